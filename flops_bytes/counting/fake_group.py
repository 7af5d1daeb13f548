"""One rank of a job that nobody has started: PyTorch's fake process group, torchrun's environment, and the mail."""

import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from types import FunctionType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensor
from torch.distributed import device_mesh, distributed_c10d, fsdp
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from flops_bytes.counting.buckets import PATCHES as BUCKETS
from flops_bytes.counting.buckets import Reducer
from flops_bytes.counting.card import on_cpu, refuse
from flops_bytes.counting.collectives import Collective
from flops_bytes.counting.step_trace import StepTrace, Uncountable, is_integer, lines_of
from flops_bytes.lessons.trace import tensors_in
from flops_bytes.plan.fleet import USUAL_NODE_GPUS

FSDP_1 = "FSDP 1 resizes tensors where nobody looks; take fully_shard(), in accelerate by fsdp_version: 2"
ALIKE = "{}: each rank was taken to hand over what this one does"


class Mailbox:
    """A rank's end of what hands objects from rank to rank: the process that counts them all keeps them."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.turns: Counter[tuple[Any, ...]] = Counter()

    def address(self, *parts: Any) -> tuple[Any, ...]:
        """What no other message has: between these, the next."""
        self.turns[parts] += 1
        return (*parts, self.turns[parts])

    def put(self, parts: tuple[Any, ...], content: Any) -> None:
        self.pipe.send(("put", self.address(*parts), pickle.dumps(content)))

    def get(self, parts: tuple[Any, ...], source: int) -> Any:
        """Waits for it; `source` is the rank that puts it there."""
        self.pipe.send(("get", self.address(*parts), source))
        content = self.pipe.recv_bytes()
        if not content:
            raise Uncountable(f"{lines_of(sys._getframe(1))}: waits for what rank {source} does not send in two steps")
        return pickle.loads(content)


def ranks_of(group: Any) -> list[int]:
    """Of all ranks, if the group is None."""
    return [int(rank) for rank in dist.get_process_group_ranks(group or dist.group.WORLD)]


def objects(mailbox: Mailbox, trace: StepTrace) -> dict[str, Callable[..., Any]]:
    """The functions that hand over objects, by name."""

    def alike() -> None:
        trace.notes[ALIKE.format(lines_of(sys._getframe(2)))] = None

    def of_rank(group: Any, rank: Any, group_rank: int | None) -> int:
        return int(rank or 0) if group_rank is None else ranks_of(group)[group_rank]

    def send_object_list(object_list: Any, dst: Any = None, group: Any = None, *_: Any, **named: Any) -> None:
        dst = of_rank(group, dst, named.get("group_dst"))
        mailbox.put(("objects", dist.get_rank(), dst), list(object_list))

    def recv_object_list(object_list: Any, src: Any = None, group: Any = None, *_: Any, **named: Any) -> int:
        src = of_rank(group, src, named.get("group_src"))
        object_list[:] = mailbox.get(("objects", src, dist.get_rank()), src)
        return int(src)

    def broadcast_object_list(object_list: Any, src: Any = None, group: Any = None, *_: Any, **named: Any) -> None:
        src, where = of_rank(group, src, named.get("group_src")), ("broadcast", tuple(ranks_of(group)))
        if src == dist.get_rank():
            mailbox.put((*where, src), list(object_list))
        else:
            object_list[:] = mailbox.get((*where, src), src)

    def scatter_object_list(
        output: Any, inputs: Any = None, src: Any = None, group: Any = None, *_: Any, **named: Any
    ) -> None:
        src, where = of_rank(group, src, named.get("group_src")), ("scatter", tuple(ranks_of(group)))
        if src == dist.get_rank():
            mailbox.put((*where, src), list(inputs))
        else:
            inputs = mailbox.get((*where, src), src)
        output[0] = inputs[ranks_of(group).index(dist.get_rank())]

    def all_gather_object(object_list: Any, obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * len(ranks_of(group))
        alike()

    def gather_object(
        obj: Any, object_gather_list: Any = None, dst: Any = None, group: Any = None, *_: Any, **__: Any
    ) -> None:
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(ranks_of(group))
            alike()

    return {name: function for name, function in locals().items() if "object" in name}


class Done:
    """The work of an all-reduce, which the fake group's says nothing of."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result([self.tensor])
        return future


def everywhere(name: str, new: Any) -> Iterator[tuple[Any, str, Any]]:
    """The modules that hold one of PyTorch's functions, its name, and what stands for it."""
    old = getattr(dist, name)
    for module in list(sys.modules.values()):
        if vars(module).get(name) is old:
            yield module, name, new


def outside(function: Any) -> Any:
    """Does its own arithmetic on tensors that have memory, unwatched."""

    if isinstance(function, property):
        return property(outside(function.fget))
    if isinstance(function, staticmethod | classmethod):
        return type(function)(outside(function.__func__))

    def run(*values: Any, **named: Any) -> Any:
        with _disable_current_modes():
            return function(*map(on_cpu, values), **{name: on_cpu(value) for name, value in named.items()})

    return run


class World(NamedTuple):
    """How many ranks there are, and on one node."""

    size: int
    node: int = USUAL_NODE_GPUS

    def environment(self, rank: int) -> dict[str, str]:
        """What torchrun gives a rank."""
        local = min(self.node, self.size)
        told = {
            "RANK": rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": rank % local,
            "LOCAL_WORLD_SIZE": local,
            "GROUP_RANK": rank // local,
            "GROUP_WORLD_SIZE": -(-self.size // local),
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": self.size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RUN_ID": "count",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        return {name: str(value) for name, value in told.items()}


@contextmanager
def fake_group(world: World, rank: int, mailbox: Mailbox, trace: StepTrace) -> Iterator[None]:
    """A rank of a job, as PyTorch's functions and torchrun's environment have it."""
    init, new_group = distributed_c10d.init_process_group, distributed_c10d.new_group
    reduce = distributed_c10d.all_reduce

    def init_process_group(*_: Any, **named: Any) -> None:
        if not dist.is_initialized():
            init("fake", store=FakeStore(), rank=rank, world_size=world.size)

    def make_group(ranks: Any = None, *_: Any, **named: Any) -> Any:
        told = {name: named[name] for name in ("use_local_synchronization", "group_desc") if name in named}
        with _disable_current_modes():
            return new_group(ranks, **told)

    def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        work = reduce(tensor, op, group, async_op)
        if op == dist.ReduceOp.SUM and is_known_number(tensor):
            tensor.mul_(dist.get_world_size(group))
        return Done(tensor) if work is not None else None

    def gathered(parameter: Any) -> None:
        allocate(parameter)
        trace.name(parameter.all_gather_outputs, "gathered weights")

    class Buckets(Reducer):
        """Whose storages have a name."""

        def build(self, *indices: Any) -> None:
            super().build(*indices)
            trace.name([bucket.flat for bucket in self.buckets], "buckets of gradients")

    allocate = _fsdp_param.FSDPParam.alloc_all_gather_outputs
    mesh, shapes = device_mesh.DeviceMesh, "_propagate_tensor_meta_non_cached"  # of whole tensors, which no rank has
    kinds = (FunctionType, property, staticmethod, classmethod)
    asked_often = {name for name in vars(mesh) if name[:2] == "__"} - {"__init__", "__getitem__"}  # and simple
    methods = {name: each for name, each in vars(mesh).items() if isinstance(each, kinds) and name not in asked_often}
    functions = objects(mailbox, trace) | {
        "init_process_group": init_process_group,
        "new_group": make_group,
        "all_reduce": all_reduce,
        "init_device_mesh": outside(device_mesh.init_device_mesh),
    }
    trace.hand_over = lambda *what: hand_over(mailbox, *what)
    with ExitStack() as stack:
        for place, called, stands in (
            *(each for name, new in functions.items() for each in everywhere(name, new)),
            *((mesh, name, outside(method)) for name, method in methods.items()),
            (ShardingPropagator, shapes, outside(getattr(ShardingPropagator, shapes))),
            (dist, "get_backend", lambda *_, **__: "nccl"),
            (dist, "is_nccl_available", lambda: True),
            (torch.cuda.nccl, "version", lambda: (2, 27, 5)),
            (torch.cuda, "device_count", lambda: min(world.node, world.size)),
            (torch.accelerator, "device_count", lambda: min(world.node, world.size)),
            (fsdp.FullyShardedDataParallel, "__init__", refuse(FSDP_1)),
            (_fsdp_param.FSDPParam, "alloc_all_gather_outputs", gathered),
            (dist, "Reducer", Buckets),
            *BUCKETS,
        ):
            stack.enter_context(patch.object(place, called, stands))
        stack.enter_context(patch.dict(os.environ, world.environment(rank)))
        yield


def is_known_number(x: Any) -> bool:
    return not isinstance(x, FakeTensor) and is_integer(x)


def hand_over(mailbox: Mailbox, found: Collective, func: Any, args: Any, result: Any, known: bool) -> None:
    """Known numbers reach the rank they are sent to; in a collective, each rank has what this one has. The fake group
    has done neither.
    """
    here, peer, size = dist.get_rank(), found.peer or 0, found.group.size()
    if found.kind == "send":
        (tensor,) = args[0]
        mailbox.put(("tensor", here, found.peer, args[3]), tensor.tolist() if known else None)
    elif found.kind == "receive":
        address = ("tensor", found.peer, here, args[3])
        if not known:
            mailbox.address(*address)
        elif (numbers := mailbox.get(address, peer)) is not None:
            args[0][0].copy_(torch.tensor(numbers, dtype=args[0][0].dtype))
    elif known and found.kind == "all-to-all":
        (source, *_), target = tensors_in(args[1:] if func.namespace == "c10d" else args), tensors_in((result, args))[0]
        if source.shape == target.shape and not len(source) % size:
            mine = source.chunk(size)[dist.get_rank(found.group)]
            target.copy_(mine.repeat(size, *[1] * (mine.dim() - 1)))
    elif known and found.kind == "all-reduce" and func.namespace != "c10d" and args[1] == "sum":
        result.mul_(size)
