# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""The reader's toolkit: what the other snippets use to measure, and the table of peaks.

One file that needs torch alone: copy it beside your own code.
A helper that has nothing to measure on this device returns None, never a zero that looks like a measurement.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


# --8<-- [start:gpu]
class Gpu(NamedTuple):
    """One row of the table of peaks: what a vendor's datasheet promises, always dense (without 2:4 sparsity)."""

    device_names: tuple[str, ...]  # exactly what torch.cuda.get_device_name() returns
    memory_bytes: float  # as the datasheet counts: 80 GB is 80e9
    bandwidth_bytes_per_second: float
    peak_flop_per_second: dict[str, float]  # by data type; "tf32" is float32 on tensor cores
    source: str


GPUS: dict[str, Gpu] = {
    "A100 80GB SXM": Gpu(
        device_names=("NVIDIA A100-SXM4-80GB",),
        memory_bytes=80e9,
        bandwidth_bytes_per_second=2.039e12,
        peak_flop_per_second={"float32": 19.5e12, "tf32": 156e12, "bfloat16": 312e12, "float16": 312e12},
        source="https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    ),
    "H100 SXM": Gpu(
        device_names=("NVIDIA H100 80GB HBM3",),
        memory_bytes=80e9,
        bandwidth_bytes_per_second=3.35e12,
        peak_flop_per_second={
            "float32": 66.9e12,
            "tf32": 494.7e12,
            "bfloat16": 989.4e12,
            "float16": 989.4e12,
            "float8": 1978.9e12,
        },
        source="https://resources.nvidia.com/en-us-tensor-core",
    ),
    "H200 SXM": Gpu(
        device_names=("NVIDIA H200",),
        memory_bytes=141e9,
        bandwidth_bytes_per_second=4.8e12,
        peak_flop_per_second={
            "float32": 66.9e12,
            "tf32": 494.7e12,
            "bfloat16": 989.4e12,
            "float16": 989.4e12,
            "float8": 1978.9e12,
        },
        source="https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446",
    ),
}
# --8<-- [end:gpu]


# --8<-- [start:get_device]
def get_device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


# --8<-- [end:get_device]


# --8<-- [start:get_gpu]
def get_gpu() -> Gpu | None:
    """This machine's row of the table; None without a GPU or for a name that the table does not hold.

    Names are compared whole: "NVIDIA GH200" is not an H200, a MIG slice is no whole card.
    """
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((gpu for gpu in GPUS.values() if name in gpu.device_names), None)


def get_peak_flop_per_second(dtype: str) -> float | None:
    """The dense peak of this machine's GPU in FLOP/s; None where it is not known."""
    gpu = get_gpu()
    return gpu.peak_flop_per_second.get(dtype) if gpu else None


def get_peak_bytes_per_second() -> float | None:
    """The bandwidth of this machine's GPU memory by its datasheet, in bytes/s; None where it is not known."""
    gpu = get_gpu()
    return gpu.bandwidth_bytes_per_second if gpu else None


# --8<-- [end:get_gpu]


# --8<-- [start:get_memory_usage]
def get_memory_usage(x: torch.Tensor) -> int:
    """Bytes that the elements of x take: their number times the size of one."""
    return x.numel() * x.element_size()


# --8<-- [end:get_memory_usage]


# --8<-- [start:same_storage]
def same_storage(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether x and y are views of one piece of memory.

    Raises ValueError where the address says nothing: meta tensors have none, and empty storages share address 0.
    """
    if x.is_meta or y.is_meta:
        raise ValueError("a meta tensor has no memory to share")
    if not x.untyped_storage().nbytes() or not y.untyped_storage().nbytes():
        raise ValueError("an empty storage has no address to compare")
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


# --8<-- [end:same_storage]


# --8<-- [start:get_allocated_bytes]
def get_allocated_bytes() -> int | None:
    """Bytes of GPU memory that tensors occupy now; None without CUDA (torch itself would answer 0)."""
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else None


# --8<-- [end:get_allocated_bytes]


# --8<-- [start:time_call]
class Timing(NamedTuple):
    """Seconds of one call: the median of all trials, and how far apart the middle half of them lies."""

    median_seconds: float
    spread: float  # interquartile range / median
    trials: int


def time_call(function: Callable[[], Any], min_trials: int = 10, min_seconds: float = 0.2) -> Timing:
    """Median time of function(), in seconds, after warm-up.

    A GPU works behind Python's back, so its own clock (CUDA events) is read there; a CPU call ends when it returns.
    Trials go on until there are at least `min_trials` and `min_seconds` of them.
    """
    use_cuda = torch.cuda.is_available()
    for _ in range(3):  # libraries load, kernels are chosen, the allocator fills, clocks rise
        function()
    if use_cuda:
        torch.cuda.synchronize()

    seconds: list[float] = []
    while len(seconds) < min_trials or sum(seconds) < min_seconds:
        if use_cuda:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
        else:
            began = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - began)

    low, median, high = statistics.quantiles(seconds, n=4)
    return Timing(median, (high - low) / median, len(seconds))


# --8<-- [end:time_call]
