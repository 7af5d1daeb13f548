"""What one rank does: `torchrun --nproc-per-node 2 -m flops_bytes.lessons.ranks`; alone: a group of one.

It counts a step of GPT-2 small in five ways to share it, and times collectives; rank 0 prints all as JSON.
"""

import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group, which its functions would have as a default, and so hold
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from flops_bytes.lessons.models import GPT2, GPT2_SMALL, build, loss
from flops_bytes.lessons.trace import Trace, tensors_in


def join(backend: str, timeout: timedelta | None = None) -> None:
    """Joins the group that torchrun tells of; without torchrun, a group of one.

    A collective that lasts longer than the timeout fails.
    """
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    alone: dict[str, Any] = {}
    if "RANK" not in os.environ:
        store = dist.HashStore()  # type: ignore[attr-defined]
        alone = {"store": store, "rank": 0, "world_size": 1}
    dist.init_process_group(backend, timeout=timeout, **alone)


def leave() -> None:
    """Leaves the group, once nothing holds it any more.

    DDP and ZeRO stand in reference cycles that keep the group alive after it is destroyed; and a mesh
    holds it, which what PyTorch knows of sharded operations keeps. A gloo thread of such a group
    still runs while Python ends, and then aborts the process.
    """
    gc.collect()
    for mesh in (each for each in gc.get_objects() if isinstance(each, dist.device_mesh.DeviceMesh)):
        getattr(mesh, "_pg_registry", {}).clear()
    dist.destroy_process_group()


class Collectives(Trace):
    """Notes what is handed to each collective: its largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.payload_bytes = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch in place of each operation."""
        tensors = tensors_in((args, kwargs))
        if func.namespace == "c10d" and tensors:
            name = func._opname.strip("_").removesuffix("_base")
            self.payload_bytes[name] += max(tensor.nbytes for tensor in tensors)
        return super().__torch_dispatch__(func, types, args, kwargs)


Shared = tuple[nn.Module, Optimizer]


def ddp(model: GPT2) -> Shared:
    return DistributedDataParallel(model), AdamW(model.parameters(), fused=True)


def ddp_views(model: GPT2) -> Shared:
    """Gradients are views of the buckets in which they are sent, not copied there."""
    shared = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return shared, AdamW(model.parameters(), fused=True)


def zero_1(model: GPT2) -> Shared:
    """The optimizer's state is split, tensor by tensor."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns when it loads

    shared = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), AdamW, fused=True)
    return shared, optimizer


def fsdp(model: GPT2) -> Shared:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model, AdamW(model.parameters(), fused=True)


def fsdp_whole(model: GPT2) -> Shared:
    """Weights stay whole from the forward to the backward pass."""
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=False)
    fully_shard(model, reshard_after_forward=False)
    return model, AdamW(model.parameters(), fused=True)


def count_step(share: Callable[[GPT2], Shared]) -> dict[str, Any]:
    """One step on 32 tokens a rank: payloads, and bytes held within and after it."""
    with Collectives() as trace:
        model = build(GPT2_SMALL, device="cpu")
        assert isinstance(model, GPT2)
        shared, optimizer = share(model)
        trace.payload_bytes.clear()  # DDP has sent rank 0's weights to all
        tokens = torch.zeros(1, 33, dtype=torch.int64)
        value = loss(shared, tokens[:, :-1], tokens[:, 1:])
        between_bytes = trace.live_bytes
        value.backward()
        optimizer.step()
        held_bytes = trace.live_bytes
    all_held: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_held, held_bytes)
    return {
        "payload_bytes": trace.payload_bytes,
        "between_bytes": between_bytes,
        "held_bytes": all_held,
    }


SIZES = [2**power for power in range(12, 25, 2)]  # bytes


def time_collective(collective: str, size: int, device: str) -> float:
    """Median seconds of one collective on `size` bytes; the slowest rank's time."""
    n, trials = dist.get_world_size(), []
    whole = torch.ones(size // 4 // n * n, device=device)
    part = whole[: len(whole) // n].clone()
    for _ in range(7):
        dist.barrier()
        began = time.perf_counter()
        if collective == "allreduce":
            dist.all_reduce(whole)
        else:
            dist.all_gather(list(whole.chunk(n)), part)
        if device == "cuda":
            torch.cuda.synchronize()
        trials.append(time.perf_counter() - began)
    slowest: Tensor = torch.tensor(statistics.median(trials[2:]), device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


WAYS = {way.__name__: way for way in (ddp, ddp_views, zero_1, fsdp, fsdp_whole)}


def main(arguments: list[str]) -> None:
    """Counts the ways that are named, on CPUs; "gloo" or "nccl" times collectives."""
    torch.set_num_threads(1)
    join("nccl" if "nccl" in arguments else "gloo")
    found: dict[str, Any] = {"ranks": dist.get_world_size(), "seconds": {}}
    for name in [way for way in WAYS if way in arguments]:
        found[name] = count_step(WAYS[name])
    for backend, device in {"gloo": "cpu", "nccl": "cuda"}.items():
        for collective in ("allreduce", "allgather"):
            if backend in arguments:
                times = {n: time_collective(collective, n, device) for n in SIZES}
                found["seconds"][collective] = times
    if dist.get_rank() == 0:
        print(json.dumps(found))
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])
