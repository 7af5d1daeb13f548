"""What a record says of the machine it comes from. No host or user names."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from ledger.environment import describe_environment
from ledger.gpu import read_links
from ledger.processor import name_processor

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def slug(name: str) -> str:
    """A device's folder name: "NVIDIA H200" → "nvidia-h200"."""
    plain = re.sub(r"\((r|tm)\)|\bcpu\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unknown"


def describe_device() -> dict[str, Any]:
    """The device that torch computes on here: kind, name, memory and what else it tells.

    Several GPUs are another device than one: their snippets of many ranks have a wire. The rest speaks of the first.
    Launches are as fast as the host's processor, and cards of one name differ by some percent: `card` tells two apart.
    """
    import torch

    if torch.cuda.is_available():
        properties, count = torch.cuda.get_device_properties(0), torch.cuda.device_count()
        name = properties.name if count == 1 else f"{count} x {properties.name}"
        several: dict[str, Any] = {"gpus": count, "links": read_links()} if count > 1 else {}
        return {
            "id": slug(name),
            "kind": "cuda",
            "name": name,
            **several,
            "memory_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "host": name_processor(),
            "card": hashlib.sha256(str(properties.uuid).encode()).hexdigest()[:12],
        }
    name = name_processor()
    return {"id": slug(name), "kind": "cpu", "name": name, "threads": torch.get_num_threads()}


def describe_peak() -> dict[str, Any] | None:
    """The datasheet's row that the snippet's toolkit used, so that a record tells what its MFU was a share of."""
    toolkit = sys.modules.get("flops_bytes.lessons.measure")
    gpu = toolkit.get_gpu() if toolkit and hasattr(toolkit, "get_gpu") else None
    return (
        {"flop_per_second": gpu.peak_flop_per_second, "bytes_per_second": gpu.bandwidth_bytes_per_second}
        if gpu
        else None
    )


def describe_software() -> dict[str, str | None]:
    """The versions that a measurement depends on; on a GPU those of what chooses and compiles kernels too."""
    import torch

    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
    if not torch.cuda.is_available():
        return versions
    return versions | {"cudnn": str(torch.backends.cudnn.version()), "triton": _version_of("triton")}


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine_key() -> str:
    """A key for what local runs depend on, cheap enough to compute at every build: versions, devices, settings."""
    drivers = sorted(Path("/proc/driver/nvidia").glob("gpus/*/information"))
    facts = [
        metadata.version("torch"),
        platform.python_version(),
        name_processor(),
        repr(describe_environment()),
        os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        *(path.read_text(encoding="utf-8", errors="replace") for path in drivers),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
