"""A step on one tape, every layer gone through, holds and multiplies what one layer of each kind says of all."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from flops_bytes.counting.check.kinds import configuration, derived, options
from flops_bytes.memory.events import live_bytes, step_events
from flops_bytes.memory.layers import FAMILIES, ModelFamily
from flops_bytes.memory.step import SUPPORTED, StepConfig, family_of, step_bytes, token_flops
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_8B
from flops_bytes.model.stack import Stack, parameters, stack_of


def check(stack: Stack, kind: ModelFamily, config: StepConfig, base: str = "as-recipe") -> None:
    events = step_events(stack, kind, config, base, causal=True)
    assert max(live_bytes(events)) == max(
        sum(lines.values()) for lines in step_bytes(stack, kind, config, base).values()
    )
    tokens = config.batch * config.seq_len
    device = token_flops(stack, kind, config, causal=True)["device"]
    assert sum(event.flops for event in events) == pytest.approx(device * tokens, rel=1e-12)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("seed", range(600))
def test_a_step_that_is_drawn(seed: int) -> None:
    chance = random.Random(seed)
    kind = chance.choice([each for each in SUPPORTED if each != "kimi_k2"])
    config = configuration(chance, kind)
    check(*derived(kind, config, **options(chance, config), tokens=32 * chance.randint(1, 24)))


ROTATING = {FAMILIES[kind].rope: kind for kind in SUPPORTED}  # of each way to rotate queries and keys a kind


@pytest.mark.parametrize("rope", ROTATING)
def test_a_step_of_each_way_to_rotate(rope: str) -> None:
    kind = ROTATING[rope]
    check(*derived(kind, configuration(random.Random(0), kind), tokens=256))


RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "autocast": {"recipe": "autocast"},
    "eager, checkpointed": {"fused": False, "checkpointing": "full"},
    "every third layer": {"checkpointing": "full", "every": 3},
    "reentrant": {"checkpointing": "full", "reentrant": True},
    "what is cheap again": {"checkpointing": "per-op", "dropout": (True, True)},
    "in chunks": {"chunks": 7},
    "beside earlier gradients": {"recipe": "fp32", "accumulated": True},
    "updates as they come": {"recipe": "bf16", "update": "in-backward"},
}


@pytest.mark.parametrize("composed", [False, True], ids=["own", "transformers"])
@pytest.mark.parametrize("shape", [GPT2_SMALL, LLAMA_3_8B], ids=["gpt2", "llama"])
@pytest.mark.parametrize("run", RUNS)
def test_a_step_of_decoders(run: str, shape: Any, composed: bool) -> None:
    stack = stack_of(replace(shape, layers=3))
    check(stack, family_of(stack, composed), StepConfig(256, 2)._replace(**RUNS[run]))


def test_what_is_allocated_goes_once_but_what_stays() -> None:
    stack = stack_of(GPT2_SMALL)
    events = step_events(stack, family_of(stack, composed=False), StepConfig(64, 2, "autocast"))
    there: dict[int, int] = {}
    for event in events:
        if event.storage in there:
            assert there.pop(event.storage) == -event.nbytes
        elif event.storage >= 0:
            assert event.nbytes >= 0
            there[event.storage] = event.nbytes
    stays = {event.storage: event.line for event in events if event.storage in there}
    assert set(stays.values()) == {"weights", "optimizer", "batch"}
    assert sum(size for number, size in there.items() if stays[number] == "weights") == 4 * sum(
        parameters(stack).values()
    )


def test_each_event_says_where_it_comes_from() -> None:
    stack = stack_of(GPT2_SMALL)
    events = step_events(stack, family_of(stack, composed=False), StepConfig(64, 1, "bf16"))
    parts = list(dict.fromkeys((event.phase, event.part) for event in events))
    layers = [f"layer {n}" for n in range(12)]
    forward = ["state", "embedding", *layers, "norm", "head", "loss"]
    backward = ["loss", "head", "norm", *reversed(layers), "embedding"]
    assert [part for phase, part in parts if phase == "forward"] == forward
    assert [part for phase, part in parts if phase == "backward"] == backward
    names = {name for event in events if event.part == "layer 3" for name, _, _ in event.frames}
    assert {"own_gpt2", "linear", "layer_forward", "forward_step"} <= names
    assert not names & {"hold", "new", "note", "record", "done"}  # the tape's own
