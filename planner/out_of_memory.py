"""What PyTorch's out-of-memory messages say, number by number, and what to try first. Translated for the page.

A message is made in c10/cuda/CUDACachingAllocator.cpp. From 1.0 to 1.3 it ends in what is "cached", which is what is
reserved less what is allocated; up to 2.0 in what is "reserved in total"; since 2.1 it has what "is allocated by
PyTorch" and what is "reserved by PyTorch but unallocated". ROCm writes HIP for CUDA, c10/xpu XPU, at first without
what is free.
"""

from __future__ import annotations

import re
from typing import Any

from planner.answer import gib

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SIZE = r"(\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB)"
PATTERNS = {
    "asked": [re.compile(rf"Tried to allocate {SIZE}", re.ASCII)],
    "total": [re.compile(rf"has a total capac\w+ of {SIZE}", re.ASCII), re.compile(rf"{SIZE} total capac", re.ASCII)],
    "free": [re.compile(rf"of which {SIZE} is free", re.ASCII), re.compile(rf"{SIZE} free;", re.ASCII)],
    "allowed": [re.compile(rf"{SIZE} allowed;", re.ASCII)],
    "held": [
        re.compile(rf"{SIZE} is allocated by PyTorch", re.ASCII),
        re.compile(rf"{SIZE} already allocated", re.ASCII),
    ],
    "graphs": [re.compile(rf"with {SIZE} allocated in private pools", re.ASCII)],
    "reserved": [re.compile(rf"{SIZE} reserved in total", re.ASCII)],
    "idle": [
        re.compile(rf"{SIZE} is reserved by PyTorch but unallocated", re.ASCII),
        re.compile(rf"{SIZE} cached", re.ASCII),
    ],
    "this": [re.compile(rf"this process has {SIZE} memory in use", re.ASCII)],
}
PROCESS = re.compile(rf"(\d+) has {SIZE} memory in use", re.ASCII)
GPU = re.compile(r"GPU (\d+)", re.ASCII)
SETTING = re.compile(r"PYTORCH_\w+=expandable_segments:True", re.ASCII)
EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"  # every version takes it that has the setting
CONTEXT = 2 * 2**30  # what a CUDA context and libraries may take: more beside PyTorch is a cause
PARTS = ("asked", "total", "free", "rest", "held", "graphs", "idle", "process", "own", "other", "allowed")


def decode(text: str) -> list[dict[str, Any]]:
    """Of each message in a text its numbers as they are written, its causes, and what to try first; the same once."""
    told: list[dict[str, Any]] = []
    for part in " ".join(text.split()).split("Tried to allocate ")[1:]:
        found = sizes("Tried to allocate " + part)
        if all(name in found for name in ("asked", "total", "held", "idle")):
            one = explained(found, part)
            if one not in told:
                told.append(one)
    return told


def in_bytes(number: str, unit: str) -> int:
    return int(float(number) * UNITS[unit])


def sizes(message: str) -> dict[str, int]:
    """The bytes that a message names, however its lines are broken."""
    text = " ".join(message.split())
    found = {}
    for name, patterns in PATTERNS.items():
        for pattern in patterns:
            match = pattern.search(text)
            if match and name not in found:
                found[name] = in_bytes(match[1], match[2])
    if "reserved" in found and "held" in found:
        found["idle"] = max(found["reserved"] - found["held"], 0)
    return found


def explained(found: dict[str, int], text: str) -> dict[str, Any]:
    """The rows of one message, the causes by the bytes that they explain, and the name of the first advice."""
    total, used = found["total"], found["held"] + found["idle"]
    matches = [PROCESS.search(part) for part in text.split("Process ")[1:]]
    others = [(match[1], in_bytes(match[2], match[3])) for match in matches if match]
    others = [each for each in others if each[1] <= total]  # a driver that does not know says 2^34 GiB
    if "free" in found:
        beside = total - found["free"] - used - sum(size for _, size in others)
        if "this" in found and found["this"] <= total:
            found["own"] = max(found["this"] - used, 0)
        elif others and 2 * beside < -used:  # in a container its own number is another: one of those named is this one
            mine = min([each for each in others if 20 * each[1] > 19 * used] or others, key=lambda each: each[1])
            others = [each for each in others if each != mine]
            found["own"] = max(mine[1] - used, 0)
            beside += mine[1]
        found["other"] = max(beside - found.get("own", 0), 0)
    else:
        found["rest"] = max(total - used, 0)
    if others:
        found["process"] = sum(size for _, size in others)
    causes, setting, gpu = causes_of(found), setting_of(text), GPU.search(text)
    kind = "unified" if "PYTORCH_ALLOC" in setting else "idle" if "=" in setting else setting
    return {
        "gpu": gpu[1] if gpu else "",
        "rows": [[name, gib(found[name])] for name in PARTS if name in found],
        "causes": [[name, gib(found[name])] for name in causes],
        "first": kind if causes[0] == "idle" else causes[0],
        "setting": setting,
        "share": f"{100 * found['asked'] / max(total, 1):.0f}",
        "processes": ", ".join([name for name, _ in others]),
    }


def causes_of(found: dict[str, int]) -> list[str]:
    """The names of what explains the failure, that of most bytes first.

    Tensors and the request explain it only if a card of this size, with a CUDA context, could not hold both: a
    twentieth is lost to gaps. Else it is what lies beside them; or nothing that the message names, where much is free.
    """
    asked, total = found["asked"], found["total"]
    spare = "free" if "free" in found else "rest"
    if asked > total:
        return ["asked"]
    if "allowed" in found and found[spare] >= asked:
        return ["allowed", "idle"] if found["idle"] >= asked else ["allowed"]
    beside = found.get("own", 0) + found.get("other", 0)
    full = 20 * (found["held"] + asked + min(beside, CONTEXT)) > 19 * total
    if not full and 20 * (found[spare] - asked) >= total:
        return [spare]
    names = ["process", "idle"] + [name for name in ("own", "other") if found.get(name, 0) >= CONTEXT]
    if full:
        names = ["held", "asked", *names]
    return sorted([name for name in names if found.get(name, 0) > 0], key=lambda name: -found[name])


def setting_of(text: str) -> str:
    """What the message names against fragments, by the name that it gives; or that its version had nothing."""
    match = SETTING.search(text)
    if match or "max_split_size_mb" in text:
        return match[0] if match else "split"
    return "nothing" if "cached" in text or "in total" in text else EXPANDABLE
