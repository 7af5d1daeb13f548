"""A step that is drawn for a card is one that the planner takes, and runs as it is planned; else its reason is told."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from flops_bytes.counting.check import reserved
from flops_bytes.counting.check.reserved import COUNTS, RUNS, Question, draw, in_a_process, least, run, train
from flops_bytes.counting.count import count
from flops_bytes.plan import plan_exactly
from flops_bytes.plan.options import named_shape, read_options

SMALL: dict[str, Any] = {"shape": "layers=2 d_model=256 heads=4 kv_heads=2 head_dim=64 d_ff=704 vocab=4000"}
SMALL |= {"context": 256, "dropout": 0}
STEPS: dict[str, dict[str, Any]] = {
    "this book's modules": {"layers": "fused", "recipe": "bf16"},
    "transformers', which checkpoint": {"layers": "composed", "recipe": "autocast", "checkpointing": "full"},
    "masters, and transformers' mask": {
        **{"layers": "composed", "attention": "eager", "recipe": "bf16-master", "update": "foreach", "accumulation": 2}
    },
}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("more", STEPS.values(), ids=STEPS)
def test_a_step_holds_what_is_planned(more: dict[str, Any]) -> None:
    asked = read_options(SMALL | more)
    lengths = [SMALL["context"]] * 2 * asked["accumulation"]
    counted = count(lambda: list(train(asked, named_shape(asked), lengths)))
    memory = plan_exactly(**{"gpu": "H100 SXM"} | SMALL | more)["memory_bytes"]
    assert memory["total"] - memory["allowance"] == pytest.approx(counted.peak_bytes, rel=0.0005)


def test_a_seed_draws_the_same_and_all_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserved, "find_spec", bool)  # as if peft were here
    first, again = random.Random(1), random.Random(1)
    drawn = [draw(first) for _ in range(150)]
    assert drawn == [draw(again) for _ in range(150)]
    differ = [len(set(question.lengths)) > 1 for question in drawn]
    assert 0.25 < sum(differ) / len(drawn) < 0.42
    for question in drawn[::8]:
        assert plan_exactly(**{"gpu": "H100 SXM"} | json.loads(json.dumps(question.asked)))["memory_bytes"]
    for question, differs in zip(drawn, differ, strict=True):
        read = read_options(question.asked)
        reserved.refuse(read, named_shape(read))
        assert len(question.lengths) % read["accumulation"] == 0
        assert read["context"] // 8 <= min(question.lengths) <= max(question.lengths) <= read["context"]
        assert not differs or 12 <= len(question.lengths) <= 24
    for name, (values, _) in RUNS.items():
        occurring = {read_options(question.asked)[name] for question in drawn}
        assert occurring == {*values}, name
    assert len({*draw(first, differ=True).lengths}) > 1 == len({*draw(first, differ=False).lengths})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"loss": "fused"}, "--loss fused needs"),
        ({"recipe": "autocast-fp16"}, "loss scaler"),
        ({"checkpointing": "selective"}, "--checkpointing selective"),
        ({"lora": 8, "recipe": "bf16"}, "give --lora-inputs float32"),
        ({"lora": 8, "checkpointing": "per-op", "lora_inputs": "float32"}, "every second"),
        ({"layers": "fused", "dropout": 0.1}, "no dropout"),
        ({"shape": f"{SMALL['shape']} experts=4 active_experts=2"}, "router"),
        ({"context": 0}, "--context"),
    ],
)
def test_what_does_not_run_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(reserved, "find_spec", bool)
    assert why in run(Question(SMALL | more, [256]))["refused"]


def test_a_process_that_ends_without_an_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserved, "run", lambda question, capacity: os._exit(3))
    assert in_a_process(Question(SMALL, [256]))["refused"] == "its process ended with 3"
    monkeypatch.setattr(reserved, "run", lambda question, capacity: {"capacity": capacity})
    assert in_a_process(Question(SMALL, [256]), 5)["capacity"] == 5


def test_the_least_capacity_is_bisected(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(question: Question, capacity: int | None = None) -> dict[str, Any]:
        message = {"message": "out of memory"} if capacity and capacity < 1_234 else {}
        return dict.fromkeys(COUNTS, capacity or 1_500) | {"allocated_bytes": 1_000} | message

    monkeypatch.setattr(reserved, "in_a_process", tried)
    found = least(Question(SMALL, [256]))
    assert found["too_small_capacity"] < 1_234 <= found["capacity"] == found["reserved_bytes"]
    assert found["capacity"] <= 1.01 * found["too_small_capacity"]
    assert found["whole_card"]["reserved_bytes"] == 1_500
