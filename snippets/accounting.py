# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""The reader's toolkit: what the other snippets use to measure.

It needs torch and gpus.py, the table of peaks, alone: copy both beside your own code.
A helper that has nothing to measure on this device returns None, never a zero that looks like a measurement.
"""

# --8<-- [start:imports]
import math
import statistics
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import torch

# gpus.py, the table of peaks, lies beside this file
from gpus import GPUS as GPUS
from gpus import Gpu as Gpu
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

# --8<-- [end:imports]


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


# --8<-- [start:live_bytes]
class LiveBytes(TorchDispatchMode):
    """The bytes of storages, each from when it is first held until it dies."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = self.peak_bytes = 0
        self.changes: list[tuple[int, int]] = []  # a storage, and the bytes that it took or, negative, gave back
        self._sizes: dict[int, int] = {}  # bytes by storage

    def hold(self, storage: torch.UntypedStorage) -> None:
        """Counts a storage at the size that it has now."""
        key = storage._cdata  # where it lies, and so its own while it lives
        if key not in self._sizes:
            weakref.finalize(storage, self._die, key).atexit = False
        self._change(key, storage.nbytes() - self._sizes.get(key, 0))
        self._sizes[key] = storage.nbytes()

    def _die(self, key: int) -> None:
        self._change(key, -self._sizes.pop(key))

    def _change(self, key: int, change: int) -> None:
        self.changes += [(key, change)] if change else []
        self.live_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)


# --8<-- [end:live_bytes]


# --8<-- [start:resized_bytes]
class ResizedBytes(LiveBytes):
    """Holds storages that are resized too: storage.resize_() is no operation, so it is replaced meanwhile.

    So does torch.distributed._tools.MemTracker, which tells bytes by module, but not by operation or in order.
    """

    def __enter__(self) -> Self:
        self._resize = resize = torch.UntypedStorage.resize_

        def resize_and_hold(storage: torch.UntypedStorage, size: int) -> None:
            resize(storage, size)
            self.hold(storage)

        torch.UntypedStorage.resize_ = resize_and_hold  # type: ignore[assignment, method-assign]
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *error: object) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]


# --8<-- [end:resized_bytes]


# --8<-- [start:operation]
class Operation(NamedTuple):
    """What a trace notes of an operation."""

    name: str  # such as "mul.Tensor"
    moved_bytes: int  # of its inputs and outputs
    taken_bytes: int  # of the storages that it made or resized
    live_bytes: int  # of those that the trace holds, then


def tensors_in(tree: object) -> list[torch.Tensor]:
    """The tensors in nested arguments or results, each once."""
    leaves = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return list({id(tensor): tensor for tensor in leaves}.values())


# --8<-- [end:operation]


# --8<-- [start:trace]
class Trace(ResizedBytes):
    """Sees each operation that PyTorch runs, backward too, and holds the storages that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch in place of each operation."""
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # a DTensor: the operations on what it wraps will come here
        if func is torch.ops.prim.device.default:
            return func(*args)  # no operation: a fake tensor was asked where it lies
        live, inputs = self.live_bytes, tensors_in((args, kwargs))
        known = [] if func is torch.ops.aten.lift_fresh.default else inputs  # what torch.tensor() made is new
        before = {s._cdata: s.nbytes() for s in map(torch.Tensor.untyped_storage, known)}
        result = func(*args, **(kwargs or {}))
        for s in map(torch.Tensor.untyped_storage, outputs := tensors_in(result)):
            if s.nbytes() != before.get(s._cdata):  # else a view, or written in place
                self.hold(s)
        moved = sum(map(get_memory_usage, tensors_in((inputs, outputs))))
        taken = self.live_bytes - live
        self.operations.append(Operation(func.__name__, moved, taken, self.live_bytes))
        return result


# --8<-- [end:trace]


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
