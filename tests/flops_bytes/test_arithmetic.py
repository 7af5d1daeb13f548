"""The book's arithmetic is exact: what its formulas say of a model is what PyTorch counts, to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, Attend, build, eager, flash, loss
from flops_bytes.lessons.trace import Trace, count_flops, saved_tensors
from flops_bytes.memory.formulas import activation_bytes, logits_bytes
from flops_bytes.model.flops import backward_flops, forward_flops, recompute_flops
from flops_bytes.model.shapes import Decoder, parameters

SHAPES = {
    "gpt2": GPT2_SMALL,
    "llama": replace(LLAMA_3_8B, layers=4),
    "odd": replace(LLAMA_3_8B, layers=2, heads=12, kv_heads=4, head_dim=64, tied=True),  # d is not H × Q
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
every_attention = pytest.mark.parametrize("attend", [flash, eager])
SIZES = ((1, 256), (3, 512))  # b, T


def data(batch: int, seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    text = torch.zeros(batch, seq_len + 1, dtype=torch.int64, device="meta")
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


@every_shape
@every_attention
@pytest.mark.parametrize(("batch", "seq_len"), SIZES)
def test_flops_are_what_the_counter_counts(shape: Decoder, attend: Attend, batch: int, seq_len: int) -> None:
    model, (tokens, targets) = build(shape, attend), data(batch, seq_len)
    forward = sum(forward_flops(shape, seq_len, batch).values())
    backward = sum(backward_flops(shape, seq_len, batch, fused=attend is flash).values())
    assert count_flops(lambda: model(tokens)) == forward
    assert count_flops(lambda: loss(model, tokens, targets).backward()) == forward + backward


@every_shape
@every_attention
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize(("batch", "seq_len"), SIZES)
def test_activations_are_what_autograd_keeps(
    shape: Decoder, attend: Attend, dtype: torch.dtype, batch: int, seq_len: int
) -> None:
    model, (tokens, targets) = build(shape, attend, dtype), data(batch, seq_len)
    kept = saved_tensors(lambda: loss(model, tokens, targets), [*model.parameters(), tokens, targets])
    predicted = activation_bytes(shape, seq_len, batch, dtype.itemsize, fused=attend is flash)
    assert sum(tensor.untyped_storage().nbytes() for tensor in kept) == sum(predicted.values())
    squares = [tensor for tensor in kept if tensor.shape[-2:] == (seq_len, seq_len)]
    assert len(squares) == (0 if attend is flash else shape.layers), "fused attention keeps no T × T tensor"


def again(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return partial(checkpoint, function, use_reentrant=False, preserve_rng_state=False)


@every_shape
@every_attention
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_checkpointing_keeps_and_repeats_what_it_should(shape: Decoder, attend: Attend, checkpointing: str) -> None:
    batch, seq_len = 2, 256
    model = build(shape, again(attend) if checkpointing == "selective" else attend, torch.bfloat16)
    if checkpointing == "full":
        for block in model.blocks:
            block.forward = again(block.forward)
    tokens, targets = data(batch, seq_len)
    with set_checkpoint_early_stop(False):
        with Trace() as trace:
            kept_loss = loss(model, tokens, targets)
            kept = trace.live_bytes - 4  # the loss itself
        predicted = activation_bytes(shape, seq_len, batch, 2, attend is flash, checkpointing)
        assert kept == sum(predicted.values())
        backward = sum(backward_flops(shape, seq_len, batch, fused=attend is flash).values())
        repeated = sum(recompute_flops(shape, seq_len, batch, checkpointing=checkpointing).values())
        assert count_flops(kept_loss.backward) == backward + repeated


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_a_step_with_large_logits_peaks_at_them(dtype: torch.dtype) -> None:
    batch, seq_len = 8, 1024
    model, (tokens, targets) = build(GPT2_SMALL, flash, dtype), data(batch, seq_len)
    with Trace() as trace:
        loss(model, tokens, targets).backward()
    kept = activation_bytes(GPT2_SMALL, seq_len, batch, dtype.itemsize)
    logits = logits_bytes(GPT2_SMALL, batch * seq_len)
    predicted = sum((kept | logits).values())  # both name the log-probabilities
    assert predicted + 8 == trace.peak_bytes  # the loss and its gradient


def test_experts_are_counted_as_transformers_builds_them() -> None:
    from transformers import AutoModelForCausalLM, MixtralConfig

    shape = replace(LLAMA_3_8B, vocab=32_000, experts=8, active_experts=2)
    config = MixtralConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        num_local_experts=shape.experts,
        num_experts_per_tok=shape.active_experts,
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(parameters(shape).values()) == sum(parameter.numel() for parameter in model.parameters())
