"""The device, its peaks, and time: what snippets measure with.

A helper that has nothing to measure on this device returns None, never a zero that looks like a measurement.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from flops_bytes.time.gpus import GPUS, Gpu


def get_device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


# --8<-- [start:get_gpu]
def get_gpu() -> Gpu | None:
    """This machine's row of the table; None without a GPU or for a name that the table does not hold.

    Names are compared whole: "NVIDIA GH200" is not an H200, a MIG slice is no whole card.
    """
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((gpu for gpu in GPUS.values() if name in gpu.device_names), None)


# --8<-- [end:get_gpu]


def get_peak_flop_per_second(dtype: str) -> float | None:
    """The dense peak of this machine's GPU in FLOP/s; None where it is not known."""
    gpu = get_gpu()
    return gpu.peak_flop_per_second.get(dtype) if gpu else None


def get_peak_bytes_per_second() -> float | None:
    """The bandwidth of this machine's GPU memory by its datasheet, in bytes/s; None where it is not known."""
    gpu = get_gpu()
    return gpu.bandwidth_bytes_per_second if gpu else None


def get_memory_usage(x: torch.Tensor) -> int:
    """Bytes that the elements of x take: their number times the size of one."""
    return x.numel() * x.element_size()


def same_storage(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether x and y are views of one piece of memory.

    Raises ValueError where the address says nothing: meta tensors have none, and empty storages share address 0.
    """
    if x.is_meta or y.is_meta:
        raise ValueError("a meta tensor has no memory to share")
    if not x.untyped_storage().nbytes() or not y.untyped_storage().nbytes():
        raise ValueError("an empty storage has no address to compare")
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def get_allocated_bytes() -> int | None:
    """Bytes of GPU memory that tensors occupy now; None without CUDA (torch itself would answer 0)."""
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else None


def divide(a: float | None, b: float | None) -> float | None:
    """a over b; None where one of them is not known."""
    return None if a is None or not b else a / b


def time_trials(
    function: Callable[[], Any],
    trials: int,
    before: Callable[[], Any] | None = None,
) -> list[float]:
    """Seconds of each of so many calls; before(), if any, precedes each, untimed.

    A GPU works behind Python's back: events in its queue are its own clock. Nothing
    waits between the calls, so the GPU finds the next one queued when it is done
    with the last; only kernels shorter than their launch make it wait for Python.
    """
    seconds: list[float] = []
    if not torch.cuda.is_available():
        for _ in range(trials):
            if before:
                before()
            began = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - began)
        return seconds

    def event() -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)

    events = [(event(), event()) for _ in range(trials)]
    for start, end in events:
        if before:
            before()
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()  # once: every event has happened now
    return [start.elapsed_time(end) / 1e3 for start, end in events]


class Timing(NamedTuple):
    """Seconds of one call: the median of all trials, the spread of their middle half."""

    median_seconds: float
    spread: float  # interquartile range / median
    trials: int

    @property
    def standard_error(self) -> float:
        """Of the median, as a share of it: 1.25 σ / √trials, with σ = IQR / 1.349."""
        return 1.25 * (self.spread / 1.349) / math.sqrt(self.trials)


def time_call(
    function: Callable[[], Any],
    min_trials: int = 10,
    min_seconds: float = 0.2,
    max_seconds: float | None = None,
    flush_l2: bool = False,
) -> Timing:
    """Median time of function(), in seconds, after warm-up.

    Trials go on for `min_trials` (2 or more) and `min_seconds`, then until the
    median's standard error is under 0.5 % or `max_seconds` have passed. None means
    10 × `min_seconds` on a GPU; on a CPU, where noise is other programs and more
    trials do not average it away, `min_seconds`. With `flush_l2`, a write larger
    than the L2 cache precedes each trial, untimed.
    """
    use_cuda = torch.cuda.is_available()
    if max_seconds is None:
        max_seconds = 10 * min_seconds if use_cuda else min_seconds
    before = None
    if flush_l2:  # 256 MiB on a GPU, as in triton.testing.do_bench
        size = 2**28 if use_cuda else 2**25
        before = torch.empty(size, dtype=torch.int8, device=get_device()).zero_

    began = time.perf_counter()
    for _ in range(3):  # libraries load, kernels are chosen, the allocator fills
        time_trials(function, 1, before)
    while time.perf_counter() - began < 0.02:  # clocks rise
        time_trials(function, 1, before)

    seconds: list[float] = []
    began = time.perf_counter()
    while True:
        # min_trials, then a quarter more each time: few looks, little overshoot
        seconds += time_trials(function, max(min_trials, len(seconds) // 4), before)
        low, median, high = statistics.quantiles(seconds, n=4)
        timing = Timing(median, (high - low) / median, len(seconds))
        elapsed = time.perf_counter() - began
        is_stable = elapsed >= min_seconds and timing.standard_error < 0.005
        if is_stable or elapsed >= max_seconds:
            return timing
