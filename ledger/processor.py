"""What a CPU is called: its model as far as the machine tells, since one trade name stands for several."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path

WIDEST = {  # by the flag of /proc/cpuinfo that tells it, the widest first
    "amx_tile": "AMX",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "avx": "AVX",
    "sse4_2": "SSE4.2",
    "sve2": "SVE2",
    "sve": "SVE",
    "asimd": "NEON",
}


@cache
def name_processor() -> str:
    """This machine's, for example "AMD EPYC, family 25 model 17, 2 cores, AVX-512"."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        text = ""
    if name := describe(text):
        return name
    model = platform.processor() or platform.machine() or "CPU"  # asked last: it starts a process
    return f"{model}, {_cores(os.cpu_count() or 1)}"


def describe(cpuinfo: str) -> str:
    """The name that the text of /proc/cpuinfo gives; empty where it tells of no processor."""
    processors = [_fields(block) for block in cpuinfo.split("\n\n") if re.search(r"^processor\s*:", block, re.M)]
    if not processors:
        return ""
    first = processors[0]
    trade_name = re.sub(r"\((r|tm)\)|\bcpu\b", " ", first.get("model name", ""), flags=re.I)
    parts = [" ".join(trade_name.split()) or first.get("vendor_id", platform.machine())]
    if "cpu family" in first:
        parts.append(f"family {first['cpu family']} model {first.get('model', '?')}")
    if "CPU part" in first:  # Arm tells two numbers and no name
        parts.append(f"implementer {first.get('CPU implementer', '?')} part {first['CPU part']}")
    # Two threads of a core share both numbers; where neither is told, each counts
    parts.append(_cores(len({(p.get("physical id"), p.get("core id", p["processor"])) for p in processors})))
    flags = first.get("flags", first.get("Features", "")).split()
    parts += [name for flag, name in WIDEST.items() if flag in flags][:1]
    return ", ".join(parts)


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cores(number: int) -> str:
    return f"{number} core{'s' if number > 1 else ''}"
