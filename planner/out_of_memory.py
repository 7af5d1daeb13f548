"""What PyTorch's out-of-memory message says, number by number, and what to try first. Translated for the page.

The message is made in c10/cuda/CUDACachingAllocator.cpp: up to 2.0 with "already allocated" and what is "reserved in
total", since 2.1 with "is allocated by PyTorch" and what is "reserved by PyTorch but unallocated".
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
    "idle": [re.compile(rf"{SIZE} is reserved by PyTorch but unallocated", re.ASCII)],
}
CONTEXT = 2 * 2**30  # what a CUDA context and libraries may take: more beside PyTorch is somebody else's


def sizes(message: str) -> dict[str, int]:
    """The bytes that a message names, however its lines are broken."""
    text = " ".join(message.split())
    found = {}
    for name, patterns in PATTERNS.items():
        for pattern in patterns:
            match = pattern.search(text)
            if match and name not in found:
                found[name] = int(float(match[1]) * UNITS[match[2]])
    if "reserved" in found and "held" in found:
        found["idle"] = max(found["reserved"] - found["held"], 0)
    return found


def decode(message: str) -> dict[str, Any] | None:
    """Each number as it is written, and what to try first; None if the text is no such message."""
    found = sizes(message)
    if not all(name in found for name in ("asked", "total", "free", "held", "idle")):
        return None
    found["other"] = max(found["total"] - found["free"] - found["held"] - found["idle"], 0)
    rows = ("asked", "total", "free", "held", "graphs", "idle", "other", "allowed")
    return {"rows": [[name, gib(found[name])] for name in rows if name in found], "first": first(found)}


def first(found: dict[str, int]) -> str:
    """What to try first: the cause that explains most comes first."""
    asked = found["asked"]
    if asked > found["total"]:
        return "one_tensor"
    if "allowed" in found and found["free"] >= asked:
        return "fraction"
    if found["idle"] >= asked:
        return "fragments"
    if found["other"] >= max(asked, CONTEXT):
        return "others"
    return "tensors"
