# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
#
# [tool.ledger]
# unhashed = ["GPUS"] # a record keeps the peak it used: it is not stale when the table grows
# ///
"""The reader's toolkit: what the other snippets use to measure, and the table of peaks.

One file that needs torch alone: copy it beside your own code.
A helper that has nothing to measure on this device returns None, never a zero that looks like a measurement.
"""

# --8<-- [start:imports]
import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

# --8<-- [end:imports]


# --8<-- [start:gpu]
class Gpu(NamedTuple):
    """One row of the table of peaks: what a vendor's datasheet promises, always dense (without 2:4 sparsity)."""

    device_names: tuple[str, ...]  # exactly what torch.cuda.get_device_name() returns
    memory_bytes: float  # as the datasheet counts: 80 GB is 80e9
    bandwidth_bytes_per_second: float
    peak_flop_per_second: dict[str, float]  # by data type; "tf32" is float32 on tensor cores
    source: str


def dense(float32: float, tf32: float, bfloat16: float, float16: float, float8: float) -> dict[str, float]:
    """Peaks in FLOP/s from those in TFLOP/s; 0 where the GPU has no unit for a type, which is then left out.

    float32 is that of the CUDA cores; all others are tensor cores that add up in float32.
    """
    teraflops = {"float32": float32, "tf32": tf32, "bfloat16": bfloat16, "float16": float16, "float8": float8}
    return {dtype: float(round(peak * 1e12)) for dtype, peak in teraflops.items() if peak}


NVIDIA = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center"
SHEETS = {
    "V100": "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf",
    "T4": f"{NVIDIA}/tesla-t4/t4-tensor-core-product-brief.pdf",
    "A100 40GB": "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf",
    "A100": f"{NVIDIA}/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    "H100": "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper",
    "H100 NVL": "https://www.nvidia.com/en-us/data-center/h100/",
    "H200": "https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446",
    "Blackwell": "https://nvdam.widen.net/s/wwnsxrhm2w/blackwell-datasheet-3384703",
    "L4": "https://www.nvidia.com/en-us/data-center/l4/",
    "L40S": "https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413",
    "RTX": "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf",
    "MI300X": "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf",
}

# fmt: off
GPUS: dict[str, Gpu] = {  # memory, bandwidth, dense(float32, tf32, bfloat16, float16, float8), source
    "V100 16GB SXM": Gpu(("Tesla V100-SXM2-16GB",),
        16e9, 0.900e12, dense(15.7, 0, 0, 125, 0), SHEETS["V100"]),
    "V100 32GB SXM": Gpu(("Tesla V100-SXM2-32GB",),
        32e9, 0.900e12, dense(15.7, 0, 0, 125, 0), SHEETS["V100"]),
    "V100 16GB PCIe": Gpu(("Tesla V100-PCIE-16GB",),
        16e9, 0.900e12, dense(14, 0, 0, 112, 0), SHEETS["V100"]),
    "V100 32GB PCIe": Gpu(("Tesla V100-PCIE-32GB",),
        32e9, 0.900e12, dense(14, 0, 0, 112, 0), SHEETS["V100"]),
    "T4": Gpu(("Tesla T4",),
        16e9, 0.320e12, dense(8.1, 0, 0, 65, 0), SHEETS["T4"]),
    # Old drivers, 460 for one, leave "NVIDIA" out.
    "A100 40GB SXM": Gpu(("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        40e9, 1.555e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100 40GB"]),
    "A100 40GB PCIe": Gpu(("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        40e9, 1.555e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100 40GB"]),
    "A100 80GB SXM": Gpu(("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        80e9, 2.039e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100"]),
    "A100 80GB PCIe": Gpu(("NVIDIA A100 80GB PCIe",),
        80e9, 1.935e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100"]),
    "H100 SXM": Gpu(("NVIDIA H100 80GB HBM3",),
        80e9, 3.350e12, dense(66.9, 494.7, 989.4, 989.4, 1978.9), SHEETS["H100"]),
    "H100 PCIe": Gpu(("NVIDIA H100 PCIe",),
        80e9, 2.000e12, dense(51.2, 378, 756, 756, 1513), SHEETS["H100"]),
    "H100 NVL": Gpu(("NVIDIA H100 NVL",),
        94e9, 3.900e12, dense(60, 417.5, 835.5, 835.5, 1670.5), SHEETS["H100 NVL"]),
    "H200 SXM": Gpu(("NVIDIA H200",),
        141e9, 4.800e12, dense(66.9, 494.7, 989.4, 989.4, 1978.9), SHEETS["H200"]),
    "H200 NVL": Gpu(("NVIDIA H200 NVL",),
        141e9, 4.800e12, dense(60, 417.5, 835.5, 835.5, 1670.5), SHEETS["H200"]),
    "B200": Gpu(("NVIDIA B200",),
        180e9, 7.700e12, dense(75, 1100, 2250, 2250, 4500), SHEETS["Blackwell"]),
    "GB200": Gpu(("NVIDIA GB200",),
        186e9, 8.000e12, dense(80, 1250, 2500, 2500, 5000), SHEETS["Blackwell"]),
    "L4": Gpu(("NVIDIA L4",),
        24e9, 0.300e12, dense(30.3, 60, 121, 121, 242.5), SHEETS["L4"]),
    "L40S": Gpu(("NVIDIA L40S",),
        48e9, 0.864e12, dense(91.6, 183, 362.05, 362.05, 733), SHEETS["L40S"]),
    "RTX 4090": Gpu(("NVIDIA GeForce RTX 4090",),
        24e9, 1.008e12, dense(82.6, 82.6, 165.2, 165.2, 330.3), SHEETS["RTX"]),
    "RTX 5090": Gpu(("NVIDIA GeForce RTX 5090",),
        32e9, 1.792e12, dense(104.8, 104.8, 209.5, 209.5, 419), SHEETS["RTX"]),
    "MI300X": Gpu(("AMD Instinct MI300X",),
        192e9, 5.300e12, dense(163.4, 653.7, 1307.4, 1307.4, 2614.9), SHEETS["MI300X"]),
}
# fmt: on
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


# --8<-- [start:meta]
def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor with a shape but no memory: anything can be counted on it."""
    return torch.empty(shape, dtype=dtype, device="meta")


# --8<-- [end:meta]


# --8<-- [start:count_flops]
def count_flops(function: Callable[[], object]) -> int:
    """FLOPs of the products that function() makes, by PyTorch's own counter."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


# --8<-- [end:count_flops]


# --8<-- [start:saved_tensors]
def saved_tensors(
    call: Callable[[], object],
    besides: Iterable[torch.Tensor] = (),
) -> list[torch.Tensor]:
    """What autograd keeps of call(), once a storage; not what was there before."""
    seen = {StorageWeakRef(tensor.untyped_storage()) for tensor in besides}
    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = StorageWeakRef(tensor.untyped_storage())
        if storage not in seen:
            seen.add(storage)
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return kept


def saved_bytes(call: Callable[[], object], besides: Iterable[torch.Tensor] = ()) -> int:
    """Bytes that these tensors hold: their whole storages, not only what they show."""
    return sum(t.untyped_storage().nbytes() for t in saved_tensors(call, besides))


# --8<-- [end:saved_tensors]


# --8<-- [start:memory_trace]
class MemoryTrace(TorchDispatchMode):
    """Bytes of the storages made under it: how many live now, and at the peak."""

    def __init__(self, besides: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.outside = {StorageWeakRef(tensor.untyped_storage()) for tensor in besides}
        self.alive: dict[StorageWeakRef, int] = {}
        self.bound = self.peak = 0

    def count(self) -> int:
        self.alive = {ref: size for ref, size in self.alive.items() if not ref.expired()}
        self.bound = sum(self.alive.values())
        return self.bound

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in (leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)):
            storage = tensor.untyped_storage()
            reference = StorageWeakRef(storage)
            if reference not in self.outside and reference not in self.alive:
                self.alive[reference] = storage.nbytes()
                self.bound += storage.nbytes()
        if self.bound > self.peak:  # else it is no new peak, whatever was let go
            self.peak = max(self.peak, self.count())
        return result


# --8<-- [end:memory_trace]


# --8<-- [start:divide]
def divide(a: float | None, b: float | None) -> float | None:
    """a over b; None where one of them is not known."""
    return None if a is None or not b else a / b


# --8<-- [end:divide]


# --8<-- [start:time_trials]
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


# --8<-- [end:time_trials]


# --8<-- [start:timing]
class Timing(NamedTuple):
    """Seconds of one call: the median of all trials, the spread of their middle half."""

    median_seconds: float
    spread: float  # interquartile range / median
    trials: int

    @property
    def standard_error(self) -> float:
        """Of the median, as a share of it: 1.25 σ / √trials, with σ = IQR / 1.349."""
        return 1.25 * (self.spread / 1.349) / math.sqrt(self.trials)


# --8<-- [end:timing]


# --8<-- [start:time_call]
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


# --8<-- [end:time_call]
