"""What a record says of the machine it comes from. No host or user names."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def slug(name: str) -> str:
    """A device's folder name: "NVIDIA H200" → "nvidia-h200"."""
    plain = re.sub(r"\((r|tm)\)|\bcpu\b|@.*", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unknown"


def describe_device() -> dict[str, Any]:
    """The device that torch computes on here: kind, name, memory and what else it tells."""
    import torch

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return {
            "id": slug(properties.name),
            "kind": "cuda",
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
        }
    name = _processor_name()
    return {
        "id": slug(f"cpu {name}" if not name.lower().startswith("cpu") else name),
        "kind": "cpu",
        "name": name,
        "threads": torch.get_num_threads(),
    }


def ask_device() -> dict[str, Any]:
    """What describe_device() says, asked in another process: a CUDA context in this one would be measured too."""
    code = "import json; from ledger.device import describe_device; print(json.dumps(describe_device()))"
    answer = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    device: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return device


def describe_peak() -> dict[str, Any] | None:
    """The datasheet's row that the snippet's toolkit used, so that a record tells what its MFU was a share of."""
    toolkit = sys.modules.get("accounting")
    gpu = toolkit.get_gpu() if toolkit and hasattr(toolkit, "get_gpu") else None
    return (
        {"flop_per_second": gpu.peak_flop_per_second, "bytes_per_second": gpu.bandwidth_bytes_per_second}
        if gpu
        else None
    )


def describe_software() -> dict[str, str | None]:
    """The versions that a measurement depends on."""
    import torch

    return {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}


def read_gpu_state() -> dict[str, float | str] | None:
    """Driver, clocks, temperature, power and load of the first visible GPU; None where nvidia-smi does not tell."""
    if not shutil.which("nvidia-smi"):
        return None
    fields = {
        "driver": "driver_version",
        "sm_clock_mhz": "clocks.sm",
        "memory_clock_mhz": "clocks.mem",
        "temperature_celsius": "temperature.gpu",
        "power_limit_watts": "power.limit",
        "load_percent": "utilization.gpu",
        "memory_used_mib": "memory.used",
    }
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    command = [
        "nvidia-smi",
        f"--query-gpu={','.join(fields.values())}",
        "--format=csv,noheader,nounits",
        f"--id={visible}",
    ]
    try:
        line = (
            subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
            .stdout.strip()
            .splitlines()[0]
        )
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    state: dict[str, float | str] = {}
    for field, text in zip(fields, line.split(", "), strict=False):
        if field == "driver":
            state[field] = text
        elif re.fullmatch(r"-?\d+(\.\d+)?", text):  # "[N/A]" where the driver does not tell
            state[field] = float(text)
    return state or None


def machine_key() -> str:
    """A key for what local runs depend on, cheap enough to compute at every build: versions and devices."""
    drivers = sorted(Path("/proc/driver/nvidia").glob("gpus/*/information"))
    facts = [
        metadata.version("torch"),
        platform.python_version(),
        _processor_name(),
        os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        *(path.read_text(encoding="utf-8", errors="replace") for path in drivers),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def _processor_name() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    except OSError:
        match = None
    return re.sub(r"\s+", " ", match[1]).strip() if match else platform.processor() or platform.machine() or "CPU"
