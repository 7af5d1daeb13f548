"""Ranks that are counted on fake groups, beside processes that really exchange."""

import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim import optimizer as optimizers

from flops_bytes.counting.counted import Counted, summed
from flops_bytes.counting.ranks import count_ranks
from flops_bytes.counting.step_trace import StepCounted, StepTrace, Uncountable

WORLD = 2


def model() -> nn.Module:
    return nn.Sequential(*(nn.Linear(300, 300) for _ in range(8)), nn.LayerNorm(300))


def ddp(**options: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    shared = DistributedDataParallel(model(), bucket_cap_mb=1, **options)
    return shared, AdamW(shared.parameters(), foreach=True)


def zero_1() -> Any:
    with warnings.catch_warnings(action="ignore"):
        from torch.distributed.optim import ZeroRedundancyOptimizer

    shared, _ = ddp()
    return shared, ZeroRedundancyOptimizer(shared.parameters(), SGD, momentum=0.9)


def hooked() -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_wrapper

    shared, optimizer = ddp()
    shared.register_comm_hook(None, fp16_compress_wrapper(allreduce_hook))
    return shared, optimizer


def fsdp() -> Any:
    from torch.distributed.fsdp import fully_shard

    shared = model()
    for layer in shared:
        fully_shard(layer)
    fully_shard(shared)
    return shared, AdamW(shared.parameters(), foreach=True)


WAYS: dict[str, Callable[[], Any]] = {
    "ddp": ddp,
    "views": lambda: ddp(gradient_as_bucket_view=True),
    "unused": lambda: ddp(find_unused_parameters=True),
    "zero_1": zero_1,
    "hooked": hooked,
    "fsdp": fsdp,
}


def steps(way: str) -> None:
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    torch.manual_seed(0)
    shared, optimizer = WAYS[way]()
    for _ in range(4):
        shared(torch.randn(16, 300)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def really(way: str, rank: int, store: str, results: Any) -> None:
    """The same on tensors with data, in a process that really exchanges."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, WORLD), rank=rank, world_size=WORLD)
    trace = StepTrace(None)
    optimizers.register_optimizer_step_pre_hook(trace.before_update)
    optimizers.register_optimizer_step_post_hook(trace.after_update)
    try:
        with trace:
            steps(way)
    except StepCounted:
        pass
    results.put((rank, summed(trace)))
    dist.barrier()
    results.close()
    results.join_thread()
    os._exit(0)  # gloo's threads still run


def run_really(way: str, store: Path) -> dict[int, Counted]:
    kind = multiprocessing.get_context("fork")
    results: Any = kind.Queue()
    for rank in range(WORLD):
        kind.Process(target=really, args=(way, rank, str(store), results), daemon=True).start()
    return dict(results.get(timeout=60) for _ in range(WORLD))


def sent(found: Counted) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in found.sent:
        total[each.collective] += each.handed_bytes
    return total


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_holds_and_sends_what_a_real_one_does(tmp_path: Path, way: str) -> None:
    seen = run_really(way, tmp_path / "store")
    for rank, found in count_ranks(lambda: steps(way), WORLD, range(WORLD)).items():
        real = seen[rank]
        assert sent(found) == sent(real) != {}
        assert 0 <= real.peak_bytes - found.peak_bytes < 100  # the mesh's own tensors


def whole() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    if not dist.is_initialized():
        dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (WORLD,))
    rows = 16 + sum(type(each) is Rows for each in ROWS)
    ROWS.append(Rows())
    x, w = distribute_tensor(torch.ones(rows, 64), mesh, [Replicate()]), torch.ones(64, 64)
    x @ distribute_tensor(w, mesh, [Shard(1)])


class Rows:
    """A call: each has a row more, so that DTensor knows no call's shapes before."""


ROWS: list[Rows] = []


def test_a_rank_has_nothing_of_the_whole_tensor_by_which_dtensor_finds_shapes() -> None:
    assert count_ranks(whole, WORLD)[0].flops == {"matmul": 2 * 17 * 64 * 64 // WORLD}


def in_context() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    dist.init_process_group("nccl")
    q = torch.ones(1, 2, 64, 16, dtype=torch.bfloat16, device="cuda")
    with context_parallel(init_device_mesh("cuda", (WORLD,)), buffers=[q], buffer_seq_dims=[2]):
        nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_context_parallelism_divides_attention() -> None:
    part = 64 // WORLD
    own, other = part * part, part * part // 2  # half of the rows see the other rank's
    assert count_ranks(in_context, WORLD)[0].flops == {"attention": 2 * 2 * (own + other) * 2 * 16}


def test_fsdp_1_is_refused_by_name() -> None:
    def step() -> None:
        dist.init_process_group("nccl")
        fully_sharded = torch.distributed.fsdp.FullyShardedDataParallel
        fully_sharded(model())

    with pytest.raises(Uncountable, match=r"FSDP 1 resizes tensors .* fsdp_version: 2"):
        count_ranks(step, WORLD)
