"""What parallelism costs layers that differ is what the whole model holds, shared out, and what layers alike say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flops_bytes.memory.step import SUPPORTED, kept_bytes, unsupported_reason
from flops_bytes.model.config import read_stack
from flops_bytes.model.presets import PRESETS
from flops_bytes.model.shapes import LLAMA_3_8B, Decoder
from flops_bytes.model.stack import (
    Attention,
    Dense,
    Experts,
    LatentAttention,
    Layer,
    Stack,
    backward_flops,
    forward_flops,
    parameters,
)
from flops_bytes.parallel.layouts import (
    TRAINERS,
    Layout,
    rank_flops,
    rank_kinds,
    rank_parameters,
    refuse,
    sent,
)
from flops_bytes.parallel.ranks import RankStep, held_bytes, layer_activation_bytes, rank_activation_bytes
from flops_bytes.parallel.stacks import Split, in_order
from flops_bytes.plan.stacks import plan_model_exactly as plan_stack

NAMES = [name for name, preset in PRESETS.items() if preset.config.get("model_type") in SUPPORTED]


def split(name: str) -> Split:
    config = PRESETS[name].config
    return Split(read_stack(config), str(config["model_type"]))


SPLITS = {name: split(name) for name in NAMES}
SPLITS = {name: each for name, each in SPLITS.items() if not unsupported_reason(each.stack, each.kind, "bf16_master")}
EXPERTS = [name for name, each in SPLITS.items() if each.experts > 1]


def as_split(shape: Decoder) -> Split:
    """A Llama as a stack."""
    layer = Layer(Attention(shape.heads, shape.kv_heads, shape.head_dim), Dense(shape.d_ff))
    return Split(Stack(shape.d_model, shape.vocab, ((layer, shape.layers),), shape.tied), "llama")


def test_models_with_experts_are_there() -> None:
    assert {"deepseek-v3", "kimi-k2", "glm-4.5", "gpt-oss-120b", "qwen3-235b-a22b"} <= {*EXPERTS}


# Weights


@pytest.mark.parametrize("name", SPLITS)
def test_ranks_hold_all_parameters_together(name: str) -> None:
    shape = SPLITS[name]
    total = sum(parameters(shape.stack).values())
    tied = shape.stack.tied * shape.vocab * shape.d_model  # whose head is a matrix of its own on another rank
    layout = Layout(data=8, pipeline=4, expert=min(8, shape.experts), micro_batches=4)
    each = [rank_parameters(shape, layout, rank) for rank in range(4)]
    assert sum(held["dense"] + layout.expert * held["experts"] for held in each) == total + tied
    assert sum(rank_parameters(shape, Layout(), 0).values()) == total


def test_tensor_ranks_repeat_norms_routers_and_what_makes_latents() -> None:
    shape, d = SPLITS["deepseek-v3"], 7168
    total = sum(parameters(shape.stack).values())
    # a layer's: two norms, those of latents, the matrices that make them; of 58 layers the router's 256
    whole = 61 * (2 * d + 1536 + 512 + d * (1536 + 512 + 64)) + 58 * 256 * d + d
    assert sum(rank_parameters(shape, Layout(tensor=8), 0).values()) == (total - whole) // 8 + whole


def test_a_llama_is_shared_out_as_layers_all_alike_are() -> None:
    stack = as_split(LLAMA_3_8B)
    for layout in (Layout(), Layout(tensor=8), Layout(tensor=16, pipeline=4, micro_batches=4), Layout(pipeline=8)):
        for rank in range(layout.pipeline):
            assert rank_parameters(stack, layout, rank) | {"experts": 0} == {
                "experts": 0, "dense": sum(rank_parameters(LLAMA_3_8B, layout, rank).values())
            }  # fmt: skip


# Activations


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_a_rank_alone_keeps_what_all_layers_keep(name: str, checkpointing: str) -> None:
    shape = SPLITS[name]
    kept = kept_bytes(shape.stack, shape.kind, 2048, checkpointing=checkpointing)["layers"]
    found = {
        kind: layer_activation_bytes(kind, Layout(), 2048, 1, checkpointing) for kind in rank_kinds(shape, Layout(), 0)
    }
    assert sum(found[kind] * times for kind, times in rank_kinds(shape, Layout(), 0).items()) == kept


def test_a_llama_keeps_on_a_tensor_rank_what_layers_all_alike_do_and_its_norms_copies() -> None:
    tokens, d = 2048, LLAMA_3_8B.d_model
    own, alike = (
        layer_activation_bytes(shape, Layout(tensor=8), tokens) for shape in (as_split(LLAMA_3_8B), LLAMA_3_8B)
    )
    # instead of its input each norm keeps a float32 copy and what it is before the weights
    copies = 2 * (4 + 2 - 2) * tokens * d // 8
    assert own - copies == pytest.approx(alike, rel=2e-3)


@pytest.mark.parametrize("name", EXPERTS)
def test_context_and_pipeline_ranks_divide_what_is_kept(name: str) -> None:
    shape = SPLITS[name]
    assert rank_activation_bytes(shape, Layout(context=4), 0, 8192) == pytest.approx(
        rank_activation_bytes(shape, Layout(), 0, 8192) / 4, rel=1e-2
    )
    layout = Layout(pipeline=4, micro_batches=8)
    for rank in range(4):
        each = rank_kinds(shape, layout, rank).items()
        kept = sum(times * layer_activation_bytes(kind, layout, 8192) for kind, times in each)
        assert rank_activation_bytes(shape, layout, rank, 8192) == (4 - rank) * kept


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b", "gemma-3-4b"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_without_other_parallelism_a_gpu_holds_what_the_counted_planner_says(
    name: str, checkpointing: str, zero: int
) -> None:
    asked: dict[str, Any] = {"model": name, "gpu": "H100 SXM", "gpus": 64, "zero": zero, "context": 2048}
    asked |= {"micro_batch": 2, "checkpointing": checkpointing, "accumulation": 4}
    lines = plan_stack(**asked)["memory_bytes"]
    layout = Layout(data=64, zero=zero, micro_batches=4)
    held = held_bytes(SPLITS[name], layout, 0, RankStep(2048, 2, checkpointing=checkpointing))
    # A layer is gathered beside two that are there: a moment that paper leaves out, of the widest layers the peak.
    is_wide = name == "deepseek-v3" and zero == 3
    on_paper = lines["total"] - lines["allowance"] + is_wide * lines.get("gathered", 0) / 2
    assert held == pytest.approx(on_paper, rel=0.025 if is_wide else 0.005)


# What is sent, and FLOPs


def test_latents_are_gathered_and_tokens_are_sent_to_experts() -> None:
    shape, tokens, d = SPLITS["deepseek-v3"], 4096, 7168
    layout = Layout(data=64, pipeline=61, expert=64, micro_batches=1, stages="even")
    found = sent(shape, layout, 30, tokens)
    assert found.expert == 4 * 2 * tokens * d * 8 * 63 / 64 and found.tensor == 0
    layout = Layout(tensor=8, pipeline=61, micro_batches=1, stages="even")
    dense, routed = (sent(shape, layout, rank, tokens).tensor for rank in (0, 30))
    ring = 2 * tokens * 7 / 8  # of a feature; forward and backward each gather and scatter
    assert dense == ring * 2 * ((1536 + 512 + 64) + d + 2 * d)
    assert routed == ring * 2 * ((1536 + 512 + 64) + d + 2 * (8 * d + d))


def test_a_llama_sends_what_layers_all_alike_do() -> None:
    stack = as_split(LLAMA_3_8B)
    for layout in (Layout(tensor=8, context=2, pipeline=4, data=2, micro_batches=8, zero=1), Layout(data=8, zero=3)):
        for checkpointing in ("none", "full"):
            for trainer in TRAINERS:
                layout, size = layout._replace(trainer=trainer, stages="even"), (8192, 2, checkpointing)
                assert sent(stack, layout, 1 % layout.pipeline, *size) == pytest.approx(
                    sent(LLAMA_3_8B, layout, 1 % layout.pipeline, *size)
                )


@pytest.mark.parametrize("name", SPLITS)
def test_ranks_compute_all_flops_together(name: str) -> None:
    shape, layout = SPLITS[name], Layout(pipeline=4, micro_batches=4)
    each = [rank_flops(shape, layout, rank, 8192, 1, True, "full") for rank in range(4)]
    forward, back = (sum(of(shape.stack, 8192, 1, True).values()) for of in (forward_flops, backward_flops))
    head = forward_flops(shape.stack, 8192, 1, True)["head"]
    assert sum(one.total for one in each) == forward + back + forward - head
    assert sum(one.backward for one in each) == back + forward - head


# The order of layers, and what cannot be


def test_dense_layers_come_first_and_windows_take_turns() -> None:
    order = in_order(SPLITS["deepseek-v3"].stack)
    assert [isinstance(layer.mlp, Experts) for layer in order] == [False] * 3 + [True] * 58
    assert all(isinstance(layer.mixer, LatentAttention) for layer in order)
    windows = [layer.mixer.window > 0 for layer in in_order(SPLITS["gpt-oss-120b"].stack)]  # type: ignore[union-attr]
    assert windows in ([True, False] * 18, [False, True] * 18)


def test_what_cannot_be_is_refused() -> None:
    shape = SPLITS["deepseek-v3"]
    refuse(shape, Layout(data=64, expert=64, tensor=8), 4096)
    for layout, message in (
        (Layout(tensor=3), "tensor: 3 ranks cannot share 128 heads and 2048 features"),
        (Layout(data=96, expert=48), "expert: 48 ranks cannot share 256 experts"),
        (Layout(pipeline=64, micro_batches=64), "pipeline: 61 layers do not fill 64 stages"),
    ):
        with pytest.raises(ValueError, match=message):
            refuse(shape, layout, 4096)


def test_a_model_is_one_of_its_layers_kinds() -> None:
    shape = SPLITS["deepseek-v3"]
    kinds = rank_kinds(shape, Layout(pipeline=61, stages="even", micro_batches=61), 5)
    assert kinds == {replace(shape, stack=replace(shape.stack, layers=((*shape.stack.layers[1][:1], 1),))): 1}
