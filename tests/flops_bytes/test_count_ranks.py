"""Ranks that are counted on fake groups, beside processes that really exchange."""

import json
import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp
from torch import nn
from torch.distributed import _functional_collectives
from torch.optim import SGD, AdamW
from torch.optim import optimizer as optimizers

from flops_bytes.counting.command import alike_ranks, in_short, main, script
from flops_bytes.counting.counted import Counted, summed
from flops_bytes.counting.ranks import count_ranks
from flops_bytes.counting.step_trace import StepCounted, StepTrace, Uncountable
from flops_bytes.memory.outside import middle_bytes, outside_lines

WORLD = 2
FileStore: Any = dist.FileStore  # type: ignore[attr-defined]


def model() -> nn.Sequential:
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


def tensor_parallel() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan: dict[str, Any] = {str(number): RowwiseParallel() if number % 2 else ColwiseParallel() for number in range(8)}
    kind = "cpu" if dist.get_backend() == "gloo" else "cuda"
    shared = parallelize_module(model()[:-1], init_device_mesh(kind, (WORLD,), mesh_dim_names=("tp",)), plan)
    return shared, AdamW(shared.parameters(), foreach=True)


class Pipeline(nn.Module):
    """A stage, of which a step is called as a whole model is."""

    def __init__(self) -> None:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        super().__init__()
        self.layers = model()
        stage = PipelineStage(self.layers, dist.get_rank(), WORLD, torch.device("cpu"))
        self.schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.schedule.step(*[x][dist.get_rank() :], target=x)
        return torch.zeros(1, requires_grad=True)


def pipeline() -> Any:
    shared = Pipeline()
    return shared, AdamW(shared.parameters(), foreach=True)


WAYS: dict[str, Callable[[], Any]] = {
    "ddp": ddp,
    "views": lambda: ddp(gradient_as_bucket_view=True),
    "unused": lambda: ddp(find_unused_parameters=True),
    "zero_1": zero_1,
    "hooked": hooked,
    "fsdp": fsdp,
    "tensor_parallel": tensor_parallel,
    "pipeline": pipeline,
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
    dist.init_process_group("gloo", store=FileStore(store, WORLD), rank=rank, world_size=WORLD)
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


@pytest.mark.drawn(3)
@pytest.mark.parametrize("way", WAYS)
def test_a_rank_holds_and_sends_what_a_real_one_does(tmp_path: Path, way: str) -> None:
    seen = run_really(way, tmp_path / "store")
    for rank, found in count_ranks(lambda: steps(way), WORLD, [0]).items():
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


def test_a_refusal_outlives_a_module_that_is_half_built() -> None:
    def step() -> None:
        dist.init_process_group("nccl")
        fully_sharded = torch.distributed.fsdp.FullyShardedDataParallel
        fully_sharded(model())

    with pytest.raises(Uncountable, match=r"FSDP 1 resizes tensors .* fsdp_version: 2"):
        count_ranks(step, WORLD)


def test_who_waits_for_a_collective_gets_its_result_and_no_copy() -> None:
    def step() -> None:
        dist.init_process_group("nccl")
        group: Any = dist.group.WORLD
        x = torch.ones(1000, 1000, device="cuda")
        y = _functional_collectives.all_reduce(x, "sum", group)
        torch.mm(y[:1], x[:, :1])

    assert count_ranks(lambda: step, 2, [0])[0].peak_bytes == 2 * 4 * 1000 * 1000 + 4


ROUTED = """
import sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
EXPERTS, CHOICES, d = 8, 2, 64
ranks = dist.get_world_size()
router, expert = nn.Linear(d, EXPERTS, device="cuda"), nn.Linear(d, d, device="cuda")
optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()])
for _ in range(2):
    x = torch.randn(96, d, device="cuda")
    weights, chosen = router(x).softmax(-1).topk(CHOICES)
    counts = chosen.flatten().bincount(minlength=EXPERTS)
    ours = torch.empty_like(counts)
    dist.all_to_all_single(ours, counts)
    sent, taken = counts.view(ranks, -1).sum(1).tolist(), ours.view(ranks, -1).sum(1).tolist()
    rows = x[chosen.flatten().argsort() // CHOICES]
    routed = torch.empty(sum(taken), d, device="cuda")
    dist.all_to_all_single(routed, rows, taken, sent)
    out = expert(routed)
    (out.mean() + weights.mean()).backward()
    optimizer.step()
    print(f"{out.mean().item():.2f}", out.isnan().any().item())
"""


@pytest.mark.parametrize(("imbalance", "tokens"), [(1.0, 192), (1.5, 264)])
def test_tokens_are_shared_out_as_said(tmp_path: Path, imbalance: float, tokens: int) -> None:
    (tmp_path / "train.py").write_text(ROUTED, encoding="utf-8")
    found = count_ranks(script(tmp_path / "train.py", "", []), 4, [0], imbalance=imbalance)[0]
    assert found.flops["matmul"] == 2 * 2 * tokens * 64 * 64 + 2 * 2 * 96 * 64 * 8  # forward, and of the weights
    shares = "evenly" if imbalance == 1 else "with 1.5 times an even share for the first"
    assert found.notes[0] == f"train.py:11: 2 choices among 8 were taken as spread {shares}"


FSDP_1 = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
dist.init_process_group("nccl")
model = FullyShardedDataParallel(torch.nn.Linear(8, 8).cuda())
"""
WAITS = """
import torch.distributed as dist
dist.init_process_group("nccl")
objects = [None]
dist.recv_object_list(objects, src=1 - dist.get_rank())
"""
REFUSED = {
    FSDP_1: "rank 0: train.py:5: FSDP 1 resizes tensors where nobody looks; take fully_shard()",
    WAITS: "waits for what rank",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_counted_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    with pytest.raises(Uncountable) as refusal:
        count_ranks(script(tmp_path / "train.py", "", []), 2)
    assert REFUSED[text] in str(refusal.value)


def test_alike_ranks() -> None:
    assert alike_ranks(8, [0]) == {0: list(range(8))}
    assert alike_ranks(8, [0, 2]) == {0: [0, 1, 4, 5], 2: [2, 3, 6, 7]}
    assert alike_ranks(8, [0, 1, 5]) == {} == alike_ranks(8, [0, 3])
    assert in_short([0, 1, 4, 6, 7, 9, 11]) == "0-1, 4, …, 11"


def test_the_command_prints_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(ROUTED, encoding="utf-8")
    asked = [str(tmp_path / "train.py"), "--world", "4", "--ranks", "0,3", "--gpu", "H100 SXM"]
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert "all-to-all, all 4 ranks" in told and "rank 0, which holds most" in told and "H100 SXM" in told
    assert main([*asked, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(["--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(answer, schema)
    assert {*answer["ranks"]} == {"0", "3"} and answer["ranks"]["3"]["sent"]
    assert answer["ranks"]["3"]["fit"]["outside_bytes"] == middle_bytes(outside_lines("H100 SXM", 4, 8))  # with NCCL


WRONG = {
    "--ranks 0": "--ranks: of how many? Give --world too",
    "--world 0": "--world and --node: give 1 or more",
    "--world 2 --ranks 2": "ranks 2: of 2 ranks there are 0 to 1",
    "--world 2 --imbalance 3": "--imbalance: give 1 to 2",
}


@pytest.mark.parametrize("options", WRONG)
def test_wrong_options_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str) -> None:
    (tmp_path / "train.py").write_text(ROUTED, encoding="utf-8")
    assert main([str(tmp_path / "train.py"), *options.split()]) == 2
    assert capsys.readouterr().err.startswith(f"flops-bytes count: {WRONG[options]}")
