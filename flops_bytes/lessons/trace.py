"""What PyTorch does, counted as it runs: FLOPs, tensors that autograd keeps, storages, operations."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import torch
from torch._subclasses import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.lessons.measure import get_memory_usage


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor with a shape but no memory: anything can be counted on it."""
    return torch.empty(shape, dtype=dtype, device="meta")


# --8<-- [start:count_flops]
def count_flops(function: Callable[[], object]) -> int:
    """FLOPs of the products that function() makes, by PyTorch's own counter."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


# --8<-- [end:count_flops]


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


def is_added_in_place(func: Any, args: Any) -> bool:
    """Whether autograd would add two gradients in place, did no mode watch it: if nothing but its buffer holds the
    first (InputBuffer::accumulate in torch/csrc/autograd/input_buffer.cpp). Of a view, its base does too; and of what
    a backward pass was given, its caller, which reentrant checkpointing is.
    """
    if func is not torch.ops.aten.add.Tensor or torch.is_grad_enabled() or torch._C._current_graph_task_id() == -1:
        return False
    holders = args[0]._use_count(), torch._C._storage_Use_Count(args[0].untyped_storage()._cdata)
    return holders == (4, 2)  # the buffer and, of the call that is watched, the others


def made_inside(func: Any, args: Any) -> list[torch.Tensor]:
    """What is made inside an operation beside its result, and freed. _safe_softmax() marks scores that are infinite; on
    CUDA, softmax's backward multiplies the gradient by the result first (softmax_backward_cuda_out in SoftMax.cu).
    """
    if func is torch.ops.aten._safe_softmax.default:
        return [torch.empty_like(args[0], dtype=torch.bool)]
    if func is torch.ops.aten._softmax_backward_data.default:
        is_on_cpu = args[0].device.type == "cpu" and not isinstance(args[0], FakeTensor)  # a fake stands for a GPU's
        return [] if is_on_cpu else [torch.empty_like(args[0])]
    return []


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
        if is_added_in_place(func, args):
            func = torch.ops.aten.add_.Tensor
        live, inputs = self.live_bytes, tensors_in((args, kwargs))
        known = [] if func is torch.ops.aten.lift_fresh.default else inputs  # what torch.tensor() made is new
        before = {s._cdata: s.nbytes() for s in map(torch.Tensor.untyped_storage, known)}
        result = func(*args, **(kwargs or {}))
        for s in map(torch.Tensor.untyped_storage, outputs := tensors_in(result)):
            if s.nbytes() != before.get(s._cdata):  # else a view, or written in place
                self.hold(s)
        for temporary in made_inside(func, args):
            self.hold(temporary.untyped_storage())
        moved = sum(map(get_memory_usage, tensors_in((inputs, outputs))))
        taken = self.live_bytes - live
        self.operations.append(Operation(func.__name__, moved, taken, self.live_bytes))
        return result


class Traffic(Trace):
    """Adds up the bytes of tensors that operations read and write, but no counters, and no views, which move nothing.

    A write in place is seen where it changes a number, so tensors need data: this is for small ones.
    """

    num_operations = moved_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = tensors_in((args, kwargs))
        before = [x.clone() for x in inputs]
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func.is_view:
            return result
        changed = [x for x, old in zip(inputs, before, strict=True) if not x.equal(old)]
        made = [x for x in tensors_in(result) if not any(x is old for old in inputs)]
        touched = [x for x in (*inputs, *changed, *made) if x.dim()]
        self.num_operations += bool(touched)
        self.moved_bytes += sum(map(get_memory_usage, touched))
        return result
