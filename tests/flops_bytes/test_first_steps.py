"""A run's first steps through the allocator, beside PyTorch's own under real steps, and by what it says of itself.

What that did under drawn steps is in DRAWN, all of which snippets/slow/drawn_steps.py compares.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist

from flops_bytes.memory.allocator import MIB, Settings
from flops_bytes.memory.first_steps import GATHER, REDUCE, Run, Sharding, replay, written
from flops_bytes.memory.layers import LLAMA
from flops_bytes.memory.passes import between_passes, record_pass, trained_numbers
from flops_bytes.memory.step import StepConfig, family_of, step_bytes
from flops_bytes.model.shapes import SHAPES, Decoder
from flops_bytes.model.stack import Stack, stack_of
from flops_bytes_data.step_memory import RUNS, SHAPE, recorded
from tests.conftest import ROOT

DRAWN = ROOT / "measurements" / "published" / "drawn_steps.jsonl.gz"
SNIPPET = ROOT / "snippets" / "slow" / "drawn_steps.py"
DEFINED: dict[str, Any] = {"__name__": "drawn_steps", "__file__": str(SNIPPET)}  # what stands before the first step
exec(compile(SNIPPET.read_text(encoding="utf-8").partition("# --8<-- [start:drawn]")[0], SNIPPET, "exec"), DEFINED)
STATE = ("weights", "adapters", "master", "optimizer")
SMALL = Decoder(layers=4, d_model=512, heads=8, kv_heads=4, head_dim=64, d_ff=1536, vocab=32000)


def run(stack: Stack, config: StepConfig, lengths: list[list[int]], own: bool = False, **told: Any) -> Run:
    family = family_of(stack, composed=not own)
    at_update = step_bytes(stack, family, config)["update"]
    state = {line: at_update.get(line, 0) for line in STATE}
    return Run(stack, family, config, state, at_update["temporaries"], lengths, **told)


@pytest.mark.parametrize("case", RUNS)
def test_a_trainers_steps_reserve_what_pytorch_reserved(case: str) -> None:
    asked, told = RUNS[case], recorded()["counts"][case]
    config = StepConfig(
        SHAPE.positions,
        asked.batch,
        asked.precision if asked.precision in ("bf16", "fp32") else "autocast",
        checkpointing="full" if asked.checkpointing else "none",
        chunks=asked.chunks,
        update="fused" if asked.fused else "foreach",
    )
    lengths = [[SHAPE.positions]] * 2
    found = replay(written(run(stack_of(SHAPE), config, lengths, own=True, workspace_bytes=32 * MIB)), Settings())
    assert found.reserved_bytes == pytest.approx(told["reserved_bytes"], rel=0.012)
    assert found.allocated_bytes == pytest.approx(told["allocated_bytes"], rel=0.04 if asked.chunks > 1 else 5e-4)


@cache
def drawn() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(DRAWN.read_bytes()).decode().splitlines()]


@pytest.mark.drawn(12)
@pytest.mark.parametrize("place", range(200))
def test_a_drawn_step_allocates_and_reserves_what_it_did_there(place: int) -> None:
    """Which hole a block takes decides what is reserved, so that a few are some per cent off and most not at all."""
    told = drawn()[place]
    if told["num_ooms"]:
        pytest.skip("it had no room")
    ratios = DEFINED["beside"](told)
    assert ratios["allocated_bytes"] == pytest.approx(1, rel=0.005)
    assert ratios["reserved_bytes"] == pytest.approx(1, rel=0.1)


def test_what_a_plan_says_of_one_gpu_is_what_its_steps_hold() -> None:
    """Nothing is beside the changes that only a formula knows."""
    stack = stack_of(SMALL)
    for config in (
        StepConfig(256, 2, "bf16_master"),
        StepConfig(256, 2, "autocast", checkpointing="full", update="foreach"),
        StepConfig(256, 2, "fp32", chunks=4),
        StepConfig(256, 2, "bf16", update="in-backward"),
    ):
        planned: dict[str, int] = {}
        for place, lines in step_bytes(stack, family_of(stack, True), config).items():
            moment = place.partition(" ")[0]
            planned[moment] = max(planned.get(moment, 0), sum(lines.values()))
        peaks = written(run(stack, config, [[256], [256]])).peaks
        assert max(peaks.values()) == pytest.approx(max(planned.values()), rel=1e-3), config


def test_the_first_step_leaves_holes_that_the_second_does_not_find() -> None:
    """The optimizer's state falls into those of the first backward pass."""
    config, stack = StepConfig(1024, 8, "autocast"), stack_of(SHAPES["gpt2"])
    one, two, three = (
        replay(written(run(stack, config, [[1024]] * steps, own=True)), Settings()).reserved_bytes
        for steps in (1, 2, 3)
    )
    assert one < two == three


def test_all_that_a_step_takes_it_gives_back_but_for_state() -> None:
    config = StepConfig(128, 2, "bf16_master", update="foreach")
    steps = written(run(stack_of(SMALL), config, [[128, 128], [128, 128]], workspace_bytes=MIB))
    there: dict[int, int] = {}
    for storage, nbytes, _ in steps.changes:
        there[storage] = there.get(storage, 0) + nbytes
    assert set(there.values()) >= {0} and min(there.values()) == 0
    left = {steps.lines[storage] for storage, nbytes in there.items() if nbytes}
    assert left == {"weights", "master", "optimizer", "workspace"}


def test_a_length_between_two_that_were_recorded_is_as_if_recorded() -> None:
    stack, config = stack_of(SMALL), StepConfig(1, 2, "bf16")
    short, middle, long = (record_pass(stack, LLAMA, config._replace(seq_len=length)) for length in (100, 300, 900))
    assert between_passes(short, long, 200, 800) == middle
    eager = [record_pass(stack, LLAMA, config._replace(seq_len=length, fused=False)) for length in (100, 300, 900)]
    assert between_passes(eager[0], eager[2], 200, 800) != eager[1], "scores grow with the square"


def test_units_are_gathered_and_reduced_in_streams_of_their_own() -> None:
    config, stack = StepConfig(256, 2, "bf16_master"), stack_of(SMALL)
    sharding = Sharding(8, gathers=True, reduces=True, share_itemsize=2)
    steps = written(run(stack, config, [[256], [256]], sharding=sharding))
    received = [nbytes for _, nbytes, stream in steps.changes if stream == GATHER and nbytes > 0]
    shares = [nbytes for _, nbytes, stream in steps.changes if stream == REDUCE and nbytes > 0]
    # each layer forward and backward but the last, which stays between; the rest once, in each of two steps
    assert len(received) == 2 * (2 * SMALL.layers - 1 + 1)
    assert len(shares) == 2 * (SMALL.layers + 1)
    live = {storage: 0 for storage, _, _ in steps.changes}
    for storage, nbytes, _ in steps.changes:
        live[storage] += nbytes
    assert not any(nbytes for storage, nbytes in live.items() if steps.lines[storage] in ("gathered", "reduced"))
    again = written(run(stack, config, [[256, 256], [256, 256]], sharding=sharding))
    there = sum(nbytes for storage, nbytes, stream in again.changes if stream == REDUCE)
    assert there == 0, "of a second micro-batch's shares none stays: they are added"


def test_a_run_dies_where_the_allocator_has_no_block_and_says_where() -> None:
    steps = written(run(stack_of(SMALL), StepConfig(512, 8, "bf16"), [[512], [512]]))
    free = replay(steps, Settings())
    assert replay(steps, Settings(), free.reserved_bytes) == free
    dead = replay(steps, Settings(), int(0.8 * free.allocated_bytes))
    assert dead.died_at > 0
    assert dead.allocated_bytes + steps.changes[dead.died_at][1] > 0.8 * free.allocated_bytes
    assert dead.reserved_bytes <= 0.8 * free.allocated_bytes


def test_each_of_two_threads_that_multiply_has_a_workspace() -> None:
    steps = written(run(stack_of(SMALL), StepConfig(512, 8, "bf16"), [[512], [512]], workspace_bytes=32 * MIB))
    assert steps.lines.count("workspace") == 2
    taken = [place for place, change in enumerate(steps.changes) if steps.lines[change[0]] == "workspace"]
    parts = [[part for start, part in steps.parts if start <= place][-1] for place in taken]
    assert parts == ["step 1, forward, layer 0", "step 1, backward, head"]
    assert steps.changes[taken[1] - 1][1] == 2 * SMALL.vocab * SMALL.d_model, "after the first product's result"
    with_both, without = (replay(steps, Settings(), None, None, each) for each in (True, False))
    assert with_both.allocated_bytes - without.allocated_bytes == 64 * MIB


@pytest.mark.parametrize("d_ff", [1536, 15_360])
@pytest.mark.parametrize("tied", [False, True])
def test_buckets_of_gradients_are_those_of_ddp(tied: bool, d_ff: int) -> None:
    """Of whole tensors, the last ones first, as PyTorch's own function cuts them; in fp32."""
    stack, config = stack_of(replace(SMALL, tied=tied, d_ff=d_ff)), StepConfig(256, 2, "fp32")
    total = 4 * sum(trained_numbers(stack, LLAMA, config).values())
    steps = written(run(stack, config, [[256], [256]], bucket_bytes=total))
    found = [nbytes for storage, nbytes, _ in steps.changes if steps.lines[storage] == "reduced" and nbytes > 0]
    tensors = [torch.empty(numbers, device="meta") for numbers in trained_numbers(stack, LLAMA, config).values()]
    indices, _ = dist._compute_bucket_assignment_by_size(tensors[::-1], [MIB, 25 * MIB])  # type: ignore[attr-defined]
    assert found == [sum(4 * tensors[::-1][index].numel() for index in each) for each in indices]
    assert len(found) > 2 and max(found) > 50 * MIB
