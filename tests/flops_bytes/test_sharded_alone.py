"""On one rank of a CPU, the sharded trainer makes the losses of the trainer for one card, and ends cleanly."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from flops_bytes.lessons import train, train_sharded
from flops_bytes.lessons.models import build, loss
from flops_bytes.lessons.ranks import ddp, ddp_views, join, leave
from flops_bytes.lessons.trace import Trace
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.options import named_shape, read_options

SMALL = "layers=2 d_model=256 heads=4 kv_heads=2 head_dim=64 d_ff=704 vocab=4000"


@pytest.fixture(autouse=True)
def on_one_thread_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_one_rank_repeats_the_losses_of_one_card() -> None:
    toy = ["--steps=8", "--report=1", "--rate=0.01"]
    one_card = train.train(train.choose([*toy, "--no-compile"]))
    assert len(one_card) == 8
    assert train_sharded.main(toy) == pytest.approx(one_card, abs=2e-3)  # sums in another order


def test_ddp_holds_gradients_twice_and_is_planned_so() -> None:
    """On one rank of a CPU, which has buckets as each of several has; views of these would be as much less."""
    asked: dict[str, Any] = {"shape": SMALL, "gpu": "L40S", "recipe": "fp32", "accumulation": 2, "allowance": "1GB"}
    shape = named_shape(read_options(asked))
    join("gloo")
    try:
        held = {}
        for share in (ddp, ddp_views):
            with Trace() as trace:
                model = build(shape, device="cpu")
                shared, optimizer = share(model)  # type: ignore[arg-type]
                tokens = torch.zeros(1, 8, dtype=torch.int64)
                loss(shared, tokens, tokens).backward()
                optimizer.step()
                held[share] = trace.live_bytes
        del shared, optimizer, model
    finally:
        leave()
    alone, two = (plan(**asked, gpus=gpus)["memory_bytes"] for gpus in (1, 2))
    assert two["reduced"] == pytest.approx(held[ddp] - held[ddp_views], rel=1e-3)
    assert two["total"] - alone["total"] == two["reduced"] == 4 * plan(**asked)["parameters"]["total"]
    adapters = plan(**asked | {"lora": 8}, gpus=2)
    assert adapters["memory_bytes"]["reduced"] == 4 * adapters["parameters"]["trained"]
    assert plan(**asked, gpus=2, zero=1)["memory_bytes"]["reduced"] == 0


def test_what_holds_a_group_is_gone_once_a_rank_has_left_it() -> None:
    """Else the group outlives the call, and its thread may abort the process at its end."""
    gc.disable()
    try:
        join("gloo")
        shared, _ = ddp(nn.Linear(2, 2))  # type: ignore[arg-type]
        group_is_held, cycle = weakref.ref(shared), [shared]
        cycle.append(cycle)  # type: ignore[arg-type]
        del shared, _, cycle
        assert group_is_held()
        leave()
        assert not group_is_held() and not dist.is_initialized()
    finally:
        gc.enable()


TASKS = Path("/proc/self/task")


@pytest.mark.skipif(not TASKS.exists(), reason="threads are listed by Linux alone")
def test_no_thread_of_a_group_is_left_once_a_rank_has_left_it() -> None:
    """Though what PyTorch remembers of sharded operations holds their mesh, which holds the group."""

    def gloo_threads() -> int:
        return sum("gloo" in (task / "comm").read_text() for task in TASKS.iterdir())

    before = gloo_threads()
    join("gloo")
    sharded: Any = fully_shard(nn.Linear(2, 2))
    sharded(torch.ones(1, 2)).sum().backward()
    del sharded
    assert gloo_threads() > before
    leave()
    assert gloo_threads() == before
