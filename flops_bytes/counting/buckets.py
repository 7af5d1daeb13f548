"""DistributedDataParallel's buckets of gradients, whose own code is in C++ and looks into tensors' memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import distributed
from torch.nn.parallel.distributed import DistributedDataParallel

from flops_bytes.counting.card import Silent, do_nothing

COMPUTE_BUCKETS: Any = dist._compute_bucket_assignment_by_size  # type: ignore[attr-defined]


class Bucket:
    """One storage for the gradients of some parameters, which are views of it."""

    def __init__(self, position: int, parameters: list[Tensor]) -> None:
        first = parameters[0]
        self.position, self.owners = position, parameters
        self.waits_for = len(parameters)
        self.flat = torch.zeros(sum(each.numel() for each in parameters), dtype=first.dtype, device=first.device)
        self.views = self.parts(self.flat)
        self.future: Any = None
        self.reduced = self.flat  # or what a hook has made of it

    def parts(self, flat: Tensor) -> list[Tensor]:
        parts = flat.split([each.numel() for each in self.owners])
        return [part.view(each.shape) for part, each in zip(parts, self.owners, strict=True)]


class HookBucket:
    """What a communication hook is given, as dist.GradBucket."""

    def __init__(self, bucket: Bucket, is_last: bool) -> None:
        self.index = lambda: bucket.position
        self.gradients = lambda: bucket.views
        self.parameters = lambda: bucket.owners
        self.is_last = lambda: is_last
        self.flat = bucket.flat

    def buffer(self) -> Tensor:
        return self.flat

    def set_buffer(self, flat: Tensor) -> None:
        self.flat = flat


class Reducer(Silent):
    """As torch/csrc/distributed/c10d/reducer.cpp has it: a bucket is all-reduced as soon as it is full. The first
    backward pass says in which order gradients come, and the buckets are made anew in that order. Of statistics and
    logs there are none.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        bucket_indices: list[list[int]],
        limits: list[int],
        group: dist.ProcessGroup,
        sparse: list[bool],
        bucket_bytes: int,
        find_unused: bool,
        as_views: bool,
        names: Any,
        first_bucket_bytes: int,
        *more: Any,
    ) -> None:
        self.params, self.group = parameters, group
        self.limits = [first_bucket_bytes, bucket_bytes]
        self.find_unused, self.as_views = find_unused, as_views
        self.hook: Callable[[HookBucket], Any] | None = None
        self.order: list[int] = []  # in which gradients came in the first backward pass
        self.is_rebuilt, self.expects = False, False
        # Here and on the card: which parameters were used
        self.used = [torch.zeros(len(parameters), dtype=torch.int32) for _ in range(2 * find_unused)]
        self.build(bucket_indices)
        for number, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(lambda _, number=number: self.ready(number))

    def build(self, bucket_indices: Sequence[Sequence[int]]) -> None:
        self.places: dict[int, tuple[Bucket, int]] = {}
        self.buckets: list[Bucket] = []
        for position, indices in enumerate(bucket_indices):
            bucket = Bucket(position, [self.params[index] for index in indices])
            self.buckets.append(bucket)
            self.places |= {index: (bucket, place) for place, index in enumerate(indices)}
        if self.as_views:
            for number in [number for number, each in enumerate(self.params) if each.grad is not None]:
                self.copy_in(number)

    def _rebuild_buckets(self) -> bool:
        if self.is_rebuilt or self.find_unused or len(self.order) < len(self.params):
            return False
        indices, _ = COMPUTE_BUCKETS(
            [self.params[number] for number in self.order], self.limits, [False] * len(self.order), self.order
        )
        self.is_rebuilt = True
        for count in (len(self.order) + 1, len(indices)):  # rank 0's order is everyone's
            dist.broadcast(
                torch.zeros(count, dtype=torch.int32), dist.get_process_group_ranks(self.group)[0], self.group
            )
        self.build(indices)
        return True

    def prepare_for_backward(self, outputs: list[Tensor]) -> None:
        """Gradients are to be sent in the backward pass that comes."""
        self.expects = True
        for bucket in self.buckets:
            bucket.waits_for = len(bucket.owners)
        if self.find_unused:
            used = {id(each) for each in used_in(outputs)}
            for number in [number for number, each in enumerate(self.params) if id(each) not in used]:
                self.ready(number)

    def copy_in(self, number: int) -> None:
        bucket, place = self.places[number]
        parameter, view = self.params[number], bucket.views[place]
        gradient = parameter.grad
        if gradient is not None and gradient.untyped_storage()._cdata != view.untyped_storage()._cdata:
            view.copy_(gradient)
            if self.as_views:
                parameter.grad = view

    def ready(self, number: int) -> None:
        if not self.expects:
            return
        if not self.is_rebuilt:
            self.order.append(number)
        with torch.no_grad():
            self.copy_in(number)
            bucket, _ = self.places[number]
            bucket.waits_for -= 1
            if not bucket.waits_for:
                self.send(bucket)

    def send(self, bucket: Bucket) -> None:
        if self.hook:
            bucket.future = self.hook(HookBucket(bucket, bucket is self.buckets[-1]))
        else:
            dist.all_reduce(bucket.flat, group=self.group)
        if all(not each.waits_for for each in self.buckets):
            if self.find_unused:  # by any rank?
                dist.all_reduce(self.used[1], group=self.group)
            torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def end(self) -> None:
        """All buckets are there again."""
        self.expects = False
        with torch.no_grad():
            for bucket in self.buckets:
                if bucket.future:
                    found, bucket.future = bucket.future.wait(), None
                    bucket.reduced = found[0] if isinstance(found, list) else found
                elif self.as_views:
                    continue
                for parameter, view in zip(bucket.owners, bucket.parts(bucket.reduced), strict=True):
                    if parameter.grad is not None:
                        parameter.grad.copy_(view)


def used_in(outputs: list[Tensor]) -> Iterator[Tensor]:
    """The parameters to which a backward pass of these comes."""
    waiting, seen = [each.grad_fn for each in outputs if each.grad_fn], set[Any]()
    while waiting:
        node: Any = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [each for each, _ in node.next_functions if each]


class Logger(Silent):
    """A log that nobody reads."""

    def __init__(self, *_: Any) -> None:
        pass


def broadcast_coalesced(group: Any, tensors: list[Tensor], *_: Any) -> None:
    for each in tensors:
        dist.broadcast(each, src=dist.get_process_group_ranks(group)[0], group=group)


def register_hook(reducer: Reducer, state: Any, hook: Callable[[Any, HookBucket], Any]) -> None:
    reducer.hook = lambda bucket: hook(state, bucket)


def built_in_hook(reducer: Reducer, kind: Any) -> None:
    """All-reduce as it is, or in 16 bits."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    name = "fp16_compress_hook" if "FP16" in str(kind) else "allreduce_hook"
    register_hook(reducer, None, getattr(default_hooks, name))


BUILD = DistributedDataParallel.__init__


def build(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *more: Any, **named: Any) -> None:
    BUILD(self, module, None, None, *more, **named)


PATCHES = (
    (dist, "Logger", Logger),
    (dist, "_broadcast_coalesced", broadcast_coalesced),
    (dist, "_register_comm_hook", register_hook),
    (dist, "_register_builtin_comm_hook", built_in_hook),
    (distributed, "_verify_param_shape_across_processes", do_nothing),  # ranks are alike
    (distributed, "_sync_module_states", do_nothing),
    (DistributedDataParallel, "__init__", build),
)
