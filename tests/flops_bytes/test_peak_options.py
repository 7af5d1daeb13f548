"""How a loss is computed, what is checkpointed, dropout: each peak is the one that a trace counts, within a per cent.

What only a GPU or a compiler runs is a stand-in here, which allocates and keeps what that does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.counting.check.count import CompiledLoss, FusedLoss, dropped, policies
from flops_bytes.counting.counter import prepare, update_fused
from flops_bytes.lessons import models
from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, build, eager, flash_each
from flops_bytes.lessons.trace import Trace
from flops_bytes.memory.formulas import layer_bytes
from flops_bytes.memory.step import decoder_moments, liger_rows
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.plan import plan_exactly as plan
from tests.flops_bytes import test_peak_lines as peak_lines
from tests.flops_bytes.test_savings import token_flops

SHAPES = {"gpt2": replace(GPT2_SMALL, layers=4), "llama": replace(LLAMA_3_8B, layers=4)}
SHAPES["qwen2"] = replace(SHAPES["llama"], qkv_biases=True)
WIDE = {"llama, tied": replace(SHAPES["llama"], tied=True, d_model=1024, d_ff=4096, heads=16, head_dim=64)}
T, BATCH = 1024, 8


def fused_loss(model: Any, tokens: Tensor, targets: Tensor) -> Tensor:
    made: Callable[..., Tensor] = FusedLoss.apply
    return made(model.hidden(tokens).flatten(0, 1), model.head.weight, targets.flatten())


def go_backward(model: Any, loss: str, tokens: Tensor, targets: Tensor) -> None:
    """Forward and backward pass of one batch."""
    if loss == "fused":
        fused_loss(model, tokens, targets).backward()
    elif loss == "compiled":
        compiled: Callable[..., Tensor] = CompiledLoss.apply
        compiled(model(tokens).flatten(0, 1), targets.flatten()).backward()
    elif loss == "logits-held":
        logits = model(tokens)
        F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()).backward()
        del logits
    else:
        models.loss(model, tokens, targets).backward()


class DroppingBlock(models.GPT2Block):
    """GPT-2's layer with dropout where it has been: on what both halves add."""

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.shape.heads, self.shape.head_dim))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        x = x + dropped(self.out(self.attend(q, k, v).transpose(1, 2).flatten(2)))
        change = self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))
        return x + dropped(change)


class Dropping(models.GPT2):
    """And behind the embedding."""

    def hidden(self, tokens: Tensor) -> Tensor:
        x = dropped(self.embedding(tokens) + self.positions.weight[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        normed: Tensor = self.norm(x)
        return normed


def dropping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Eager attention with dropout on its probabilities; a flash kernel draws its mask again from the seed."""
    groups, future = q.shape[1] // k.shape[1], torch.full((q.shape[2], q.shape[2]), -torch.inf, device=q.device)
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = q.contiguous() @ k.mT / q.shape[3] ** 0.5 + future.triu(1).to(q.dtype)
    return dropped(scores.softmax(-1)) @ v


def add_qkv_biases(model: Any) -> None:
    """Qwen 2's."""
    for block in model.blocks:
        for part in (block.q, block.k, block.v):
            part.bias = torch.nn.Parameter(part.weight.new_empty(part.out_features))


def checkpoint_blocks(model: Any, checkpointing: str, every: int = 1) -> None:
    for block in model.blocks[::every]:
        if checkpointing == "full":
            block.forward = models.again(block.forward)
        elif checkpointing == "per-op":
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=policies)


def made(shape: Decoder, attend: models.Attend, dtype: torch.dtype = torch.bfloat16) -> Any:
    model = build(shape, attend, dtype)
    if shape.qkv_biases:
        add_qkv_biases(model)
    assert sum(weight.numel() for weight in model.parameters()) == sum(parameters(shape).values())
    return model


def count_peak(
    shape: Decoder,
    recipe: str,
    batch: int = BATCH,
    loss: str = "plain",
    checkpointing: str = "none",
    every: int = 1,
    fused: bool = True,
    accumulated: bool = False,
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> int:
    """Bytes at the peak of a step."""
    if monkeypatch:
        monkeypatch.setattr(
            "flops_bytes.counting.counter.build", lambda shape, attend: made(shape, attend, torch.float32)
        )
    model, masters, optimizer = prepare(shape, recipe, fused, "none")
    checkpoint_blocks(model, checkpointing, every)
    tokens = torch.zeros(batch, T, dtype=torch.int64, device="meta")
    targets = torch.zeros_like(tokens)
    moments = [value for state in optimizer.state.values() for value in state.values() if value.is_meta]
    with Trace() as trace:
        for tensor in (*model.parameters(), *masters, *moments, tokens, targets):
            trace.hold(tensor.untyped_storage())
        for _ in range(2 if accumulated else 1):
            go_backward(model, loss, tokens, targets)
        if recipe == "bf16_master":
            for weight, master in zip(model.parameters(), masters, strict=True):
                master.grad, weight.grad = weight.grad.float(), None
        update_fused(masters, optimizer)
    return trace.peak_bytes


def planned_peak(shape: Decoder, recipe: str, batch: int = BATCH, **asked: Any) -> int:
    return max(sum(lines.values()) for lines in decoder_moments(shape, T, batch, recipe, **asked).values())


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("shape", "recipe"), [("gpt2", "fp32"), ("gpt2", "bf16"), ("llama", "bf16")])
@pytest.mark.parametrize("asked", [{}, {"fused": False}, {"checkpointing": "full"}, {"checkpointing": "per-op"}])
def test_dropout_keeps_masks_where_a_model_has_it(
    shape: str, recipe: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our modules have none, so that these get it: a GPT-2 in three places, a Llama on its probabilities alone."""
    monkeypatch.setattr(models, "GPT2Block", DroppingBlock)
    monkeypatch.setattr(models, "GPT2", Dropping)
    monkeypatch.setattr("flops_bytes.counting.counter.eager", dropping)
    counted = count_peak(SHAPES[shape], recipe, loss="fused", **asked)
    planned = planned_peak(SHAPES[shape], recipe, loss="fused", dropout=True, **asked)
    assert planned == pytest.approx(counted, rel=0.003)
    without = planned_peak(SHAPES[shape], recipe, loss="fused", **asked)
    assert (planned > without) == (shape == "gpt2" or asked == {"fused": False})


@pytest.mark.drawn(2)
@pytest.mark.parametrize("shape", peak_lines.SHAPES)
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("accumulated", [False, True])
def test_a_fused_loss_under_autocast_casts_the_head_twice(
    shape: str, checkpointing: str, accumulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak_lines, "loss", fused_loss)
    asked: dict[str, Any] = {"checkpointing": checkpointing, "accumulated": accumulated}
    of, sizes = peak_lines.SHAPES[shape], (128, 4)
    counted = max(peak_lines.count_step.__wrapped__(of, *sizes, "autocast", **asked).values())
    planned = decoder_moments(of, *sizes, "autocast", loss="fused", **asked)
    assert max(sum(lines.values()) for lines in planned.values()) == pytest.approx(counted, rel=0.008)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("loss", ["logits-held", "compiled", "fused"])
@pytest.mark.parametrize(("shape", "recipe"), [("gpt2", "bf16"), ("llama", "fp32"), ("llama, tied", "bf16_master")])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_a_loss_peaks_where_it_is_planned(loss: str, shape: str, recipe: str, checkpointing: str) -> None:
    asked: dict[str, Any] = {"loss": loss, "checkpointing": checkpointing}
    of = (SHAPES | WIDE)[shape]
    assert planned_peak(of, recipe, **asked) == pytest.approx(count_peak(of, recipe, **asked), rel=0.01)


CHECKPOINTS: dict[str, dict[str, Any]] = {
    "per operation": {"checkpointing": "per-op"},
    "per operation, eager": {"checkpointing": "per-op", "fused": False},
    "every second": {"checkpointing": "full", "every": 2},
    "every third": {"checkpointing": "full", "every": 3},
}


@pytest.mark.drawn(6)
@pytest.mark.parametrize(("shape", "recipe"), [("gpt2", "fp32"), ("llama", "bf16"), ("qwen2", "bf16")])
@pytest.mark.parametrize("asked", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_checkpoints_peak_where_they_are_planned(
    shape: str, recipe: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a loss that holds little, so that layers are the most."""
    planned = planned_peak(SHAPES[shape], recipe, loss="fused", **asked)
    counted = count_peak(SHAPES[shape], recipe, loss="fused", monkeypatch=monkeypatch, **asked)
    assert planned == pytest.approx(counted, rel=0.003)


def test_a_mask_behind_the_last_matmul_has_that_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "GPT2Block", DroppingBlock)
    model, seq_len = made(SHAPES["gpt2"], flash_each), 256
    checkpoint_blocks(model, "full")
    tokens = torch.zeros(1, seq_len, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        models.loss(model, tokens, tokens).backward()
    asked: dict[str, Any] = {"gpu": "H100 SXM", "context": seq_len, "checkpointing": "full", "dropout": 0.1}
    shape = "layers=4 d_model=768 heads=12 kv_heads=12 head_dim=64 d_ff=3072 vocab=50257 positions=1024"
    found = plan(shape=f"{shape} tied=yes gated=no biases=yes norm_shift=yes", **asked)["flops_a_token"]["all"]
    assert int(counter.get_total_flops()) == seq_len * found["device"]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("checkpointing", ["selective", "per-op", "full"])
@pytest.mark.parametrize("attention", ["fused", "eager"])
def test_what_is_computed_again_is_what_is_counted(shape: str, checkpointing: str, attention: str) -> None:
    """PyTorch stops as soon as it has what the backward pass needs."""
    fused, seq_len = attention == "fused", 256
    attend = flash_each if fused else eager
    for every in (1, 2, 3) if checkpointing == "full" else (1,):
        model = made(SHAPES[shape], models.again(attend) if checkpointing == "selective" else attend)
        checkpoint_blocks(model, checkpointing, every)
        tokens = torch.zeros(1, seq_len, dtype=torch.int64, device="meta")
        with FlopCounterMode(display=False) as counter:
            models.loss(model, tokens, tokens).backward()
        planned = token_flops(SHAPES[shape], seq_len, fused=fused, checkpointing=checkpointing, every=every)
        assert int(counter.get_total_flops()) == seq_len * planned["device"]


def test_a_compiled_loss_keeps_the_logits_as_they_are() -> None:
    """By the partition that torch.compile makes of forward and backward pass."""
    from torch._inductor.decomposition import select_decomp_table  # which takes seconds

    graphs: list[Any] = []

    def seen(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return make_boxed_func(gm)

    def of(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), targets)

    logits = torch.randn(64, 500, dtype=torch.bfloat16, requires_grad=True)
    compiled = aot_function(
        of,
        seen,
        seen,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    compiled(logits, torch.zeros(64, dtype=torch.int64)).backward()
    backward = graphs[1]
    kept = [node.meta["val"] for node in backward.graph.nodes if node.op == "placeholder"]
    large = [(value.dtype, value.numel()) for value in kept if value.numel() > 64]
    made = [node.meta["val"] for node in backward.graph.find_nodes(op="output")[0].args[0] if node is not None]
    assert large == [(torch.bfloat16, 64 * 500)] == [(value.dtype, value.numel()) for value in made]


def test_a_fused_loss_takes_as_many_tokens_at_a_time_as_ligers() -> None:
    """Its own example: 4 × 4,096 tokens of 4,096 features and 32,000 words go in chunks of 2,048."""
    shape = replace(LLAMA_3_8B, vocab=32_000)
    assert liger_rows(4 * 4096, shape.vocab, shape.d_model) == 2048
    for tokens in (1, 7, 100, 4096, 5000):
        chunk = liger_rows(tokens, shape.vocab, shape.d_model)
        assert chunk == min(tokens, 1 << (-(-tokens // 8) - 1).bit_length())


def test_per_operation_keeps_every_second_matmul() -> None:
    """Of a Llama: queries, values, the gate and the MLP's result; of one with biases there all of attention's."""
    of, rows = LLAMA_3_8B, 4 * LLAMA_3_8B.heads * 10 + 24
    wide, narrow, d, f = 4096, 1024, 4096, 14336
    for biased, features in ((False, wide + narrow + f + d), (True, wide + 2 * narrow + d + f)):
        kept = layer_bytes(replace(of, qkv_biases=biased), 10, checkpointing="per-op")
        assert sum(kept.values()) == 2 * 10 * (d + features + wide) + rows
    gpt2 = layer_bytes(GPT2_SMALL, 10, checkpointing="per-op")  # all have biases
    assert gpt2["matmuls"] == 2 * 10 * (3 + 1 + 4 + 1) * 768
