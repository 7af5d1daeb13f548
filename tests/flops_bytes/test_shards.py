"""What a GPU of several holds and sends is what a rank of fully_shard does, or what its stage says of each line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from flops_bytes.lessons import models
from flops_bytes.lessons.models import GPT2 as GPT2Model
from flops_bytes.lessons.models import Llama, build, loss
from flops_bytes.lessons.ranks import Collectives
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.shapes import Decoder
from flops_bytes.model.stack import stack_of
from flops_bytes.parallel.sharding import (
    LINK_BYTES_PER_SECOND,
    STAGES,
    Wire,
    ddp_payload,
    fit,
    fsdp_payload,
    fsdp_peak_bytes,
    group_numbers,
    ring_bytes,
    shard_numbers,
    sharded_moments,
    tokens_to_hide,
    wire_bytes,
    zero_payload,
    zero_stage_bytes,
)
from flops_bytes.time.gpus import LINKS
from tests.flops_bytes.test_peak_lines import BYTE_16, GPT2, LLAMA, TOKENS, Moments, norm_kernel, one_kernel

RANKS = 4
SHAPES = {"gpt2": GPT2, "llama": LLAMA, "llama, tied": replace(LLAMA, tied=True)}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def modules(shape: Decoder) -> dict[str, int]:
    """Numbers of weights by what is gathered together: a layer, and the rest, but for the last norm; and all."""
    model = build(shape)
    blocks: Any = model.blocks
    layers = sum(weight.numel() for weight in blocks.parameters())
    ends = {name: weight.numel() for name, weight in model.named_parameters() if weight.dim() == 2 and "." in name}
    root = sum(size for name, size in ends.items() if not name.startswith("blocks"))
    total = sum(weight.numel() for weight in model.parameters())
    return {
        "layer": layers // shape.layers,
        "root": root,
        "total": total,
        "head": model.head.weight.numel(),
        "of_all": layers,
    }


SPLIT: dict[int, tuple[str, ...]] = {  # Rajbhandari et al. 2020, figure 1
    0: (),
    1: ("master", "optimizer"),
    2: ("master", "optimizer", "gradients"),
    3: ("master", "optimizer", "gradients", "weights"),
}


@every_shape
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("stage", SPLIT)
def test_a_stage_splits_its_lines_and_makes_whole_what_it_uses(shape: Decoder, recipe: str, stage: int) -> None:
    before, of = decoder_moments(shape, *TOKENS, recipe, accumulated=True), modules(shape)
    width = 4 if recipe == "fp32" else 2
    whole = of["root"] + 2 * of["layer"]  # a layer in use, one on its way
    sums = {"head": of["head"], "last_layer": of["head"] + of["layer"], "first_layer": of["head"] + of["layer"]}
    sums["embedding"] = of["root"] + of["layer"]
    for gpus, frozen in product((1, 3, 8), (False, True)):
        at = sharded_moments(stack_of(shape), before, recipe, gpus, stage, trained=100 if frozen else 0)
        buckets = (400 if frozen else RECIPES[recipe].gradients * of["total"]) if gpus > 1 and not stage else 0
        split = SPLIT[stage] if gpus > 1 else ()
        for moment, lines in before.items():
            expected = {line: -(-size // gpus) if line in split else size for line, size in lines.items()}
            expected["reduced"] = width * sums.get(moment, 0) if "gradients" in split and not frozen else buckets
            expected["gathered"] = width * whole if "weights" in split and moment != "update" else 0
            expected["copies"] = 0 if "weights" in split else lines["copies"]
            assert at[moment] == expected


class Counted(Collectives, Moments):
    """Payloads as the ranks' own tracer notes them, and the most bytes of each moment."""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """A group of which this process is the first rank, and the others are not there."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def simulate(shape: Decoder, mesh: Any, policy: MixedPrecisionPolicy, reshard: bool = True) -> Counted:
    """A step of one rank, with AdamW's moments beside it; the weights are kept in float32."""
    trace = Counted()

    def begins(moment: str) -> Callable[..., None]:
        return lambda module, inputs, *output: (
            (output or inputs)[0].register_hook(lambda g: trace.begin(moment)) and None
        )

    with FakeTensorMode(), warnings.catch_warnings():
        model = GPT2Model(shape, one_kernel) if shape.positions else Llama(shape, one_kernel)
        for norm in (each for each in model.modules() if isinstance(each, models.RMSNorm)):
            norm.forward = norm_kernel.__get__(norm)  # type: ignore[method-assign]
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=None if reshard else False)
        shards = [weight._local_tensor for weight in model.parameters()]  # type: ignore[attr-defined]
        moments = [torch.zeros_like(shard) for shard in shards for _ in range(2)]
        model.blocks[0].register_forward_pre_hook(begins("embedding"))
        model.blocks[0].register_forward_hook(begins("first_layer"))
        model.blocks[-1].register_forward_hook(begins("last_layer"))
        tokens = torch.zeros(TOKENS[1], TOKENS[0], dtype=torch.int64)
        targets = torch.zeros_like(tokens)
        with trace:
            for tensor in (*shards, *moments, tokens, targets):
                trace.hold(tensor.untyped_storage())
            trace.begin("forward")
            loss(model, tokens, targets).backward()
            trace.begin("update")
    return trace


def test_fully_shard_holds_what_the_third_stage_says(group: Any) -> None:
    shape = replace(LLAMA, heads=LLAMA.kv_heads)  # which a kernel takes in float32
    trace = simulate(shape, group, MixedPrecisionPolicy())
    shapes = {name: tuple(weight.shape) for name, weight in build(shape).named_parameters()}
    assert trace.payload_bytes == fsdp_payload(*group_numbers(shapes, RANKS))
    before = decoder_moments(shape, *TOKENS, "fp32")
    at = {m: sum(lines.values()) for m, lines in sharded_moments(stack_of(shape), before, "fp32", RANKS, 3).items()}
    assert trace.most["update"] == at["update"]
    two_layers = 2 * 4 * modules(shape)["layer"]
    over = {moment: (at[moment] - trace.most[moment]) / two_layers for moment in trace.most if moment in at}
    # Of two layers that are taken as whole, none is when the loss goes backward, and one, or a part, in a layer.
    assert over["forward"] == pytest.approx(1, abs=0.02) and over["loss"] == pytest.approx(1, abs=0.02)
    assert all(0 <= over[moment] <= 1 for moment in ("last_layer", "first_layer", "embedding")), over


def test_weights_that_stay_whole_are_gathered_once(group: Any) -> None:
    trace = simulate(GPT2, group, MixedPrecisionPolicy(BYTE_16, torch.float32), reshard=False)
    shapes = {name: tuple(weight.shape) for name, weight in build(GPT2).named_parameters()}
    assert trace.payload_bytes == fsdp_payload(*group_numbers(shapes, RANKS), reshard=False, gather_bytes=2)


@pytest.mark.parametrize("rows", [1, 4, 5, 7, 500])
def test_a_shard_is_padded_to_the_largest(rows: int) -> None:
    whole = torch.zeros(rows, 3, 2)
    for ranks in (1, 2, 3, 4, 8):
        assert shard_numbers((rows, 3, 2), ranks) == max(part.numel() for part in whole.chunk(ranks))
        padded = ranks * shard_numbers((rows, 3, 2), ranks)
        assert group_numbers({"blocks.0.up": (rows, 3, 2), "head": (rows, 3, 2)}, ranks) == (padded, padded)


def sent_on_a_ring(numbers: int, ranks: int, collective: str) -> int:
    """Numbers that a rank sends, one by one: a piece to its neighbour in each round."""
    rounds = (ranks - 1) * (2 if collective == "allreduce" else 1)  # sums go round, then the finished sums
    return sum(len(range(turn % ranks, numbers, ranks)) for turn in range(rounds))


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce_scatter"])
def test_a_ring_sends_each_piece_on(collective: str) -> None:
    for ranks in (2, 3, 8):
        numbers = 24 * ranks
        assert ring_bytes(4 * numbers, ranks, collective) == 4 * sent_on_a_ring(numbers, ranks, collective)


WIDTHS = {  # of a number that is sent: gradients, gradients where they are sharded, weights, gathered weights
    "fp32": (4, 4, 4, 4),
    "autocast": (4, 2, 4, 2),
    "autocast_fp16": (4, 2, 4, 2),
    "bf16": (2, 2, 2, 2),
    "bf16_master": (2, 2, 2, 2),
}


@every_shape
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_stage_sends_its_collectives(shape: Decoder, recipe: str) -> None:
    of, gpus = modules(shape), 4
    root, total = of["root"], sum(weight.numel() for weight in build(shape).parameters())
    summed, sharded, weights, gathered = WIDTHS[recipe]
    share, twice = (gpus - 1) / gpus, gathered * (2 * (total - root) + root)
    for batches in (1, 3):
        sent = [wire_bytes(stack_of(shape), recipe, gpus, stage, batches) for stage in range(4)]
        assert sent == [
            pytest.approx(share * 2 * summed * total),
            pytest.approx(share * (summed + weights) * total),
            pytest.approx(share * (batches * sharded + weights) * total),
            pytest.approx(share * batches * (sharded * total + twice)),
        ]
    trained = 8 * shape.layers * (2 * shape.d_model + (shape.heads + shape.kv_heads) * shape.head_dim)  # of q and v
    sent = [wire_bytes(stack_of(shape), recipe, gpus, stage, 3, trained=trained) for stage in range(4)]
    numbers = (2 * 4 * trained, (4 + 4) * trained, (3 * 4 + 4) * trained, 3 * (4 * trained + twice))
    assert sent == [pytest.approx(share * number) for number in numbers]


def test_stages_hold_what_their_paper_says() -> None:
    """Of 7.5 billion parameters on 64 GPUs, with 4 + 4 + 8 bytes in place of its 2 + 2 + 12 (its figure 1)."""
    numbers, ranks = 7.5e9, 64
    held = [sum(zero_stage_bytes(numbers, ranks, stage).values()) for stage, _ in enumerate(STAGES)]
    assert held == [16 * numbers, (8 + 8 / 64) * numbers, (4 + 12 / 64) * numbers, 16 / 64 * numbers]
    assert zero_stage_bytes(numbers, ranks, 2) == {
        "state": 8 * numbers / ranks,
        "gradients": 4 * numbers / ranks,
        "weights": 4 * numbers,
    }
    assert ddp_payload(10) == {"allreduce": 40} and zero_payload(10) == {"allreduce": 40, "broadcast": 40}
    assert fsdp_payload(10, 1, gather_bytes=2) == {"allgather": 2 * 21, "reduce_scatter": 4 * 11}
    peak = {"state": 12 * 88 / 8, "gradients": 4 * 80 / 8, "whole": 6 * 8}
    assert fsdp_peak_bytes(80, 8, 8) == peak


def test_the_fastest_message_tells_latency_and_bandwidth() -> None:
    wire = fit({1_000: 2e-3, 2_000: 2.5e-3, 8_000: 4e-3})
    assert wire == Wire(2e-3, 2e6) and wire.seconds(4e6) == pytest.approx(2.002)


def test_tokens_that_hide_the_wire_are_those_whose_products_last_as_long() -> None:
    tokens = tokens_to_hide(1e15, 450e9, 8)
    seconds = 2 * 10**9 * 7 / 8 / 450e9  # a billion weights of two bytes, from seven others
    assert 2 * 10**9 * tokens / 1e15 == pytest.approx(seconds)
    backward = tokens_to_hide(1e15, 450e9, 8, bytes_a_parameter=4, flops_a_parameter=4)
    assert backward == pytest.approx(tokens)
    for name, link in (("NVLink", "NVLink 4"), ("400 Gb/s", "400 Gb/s")):
        assert LINK_BYTES_PER_SECOND[name] == LINKS[link].bytes_per_second
