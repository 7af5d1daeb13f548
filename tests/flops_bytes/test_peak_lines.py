"""Each moment at which a step can peak holds what a trace counts on small models, to the byte but for what is named.

Whole steps run on meta, with autocast on a CPU: there its list of operations leaves out softmax, which the attention
here casts by hand as a GPU would, and the kernels that only a GPU has are stand-ins that keep what those keep.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from flops_bytes.counting.counter import math_attention
from flops_bytes.lessons import models
from flops_bytes.lessons.models import Attend, again, build, chunked_backward, loss
from flops_bytes.lessons.trace import Trace
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.shapes import Decoder

GPT2 = Decoder(3, 64, 4, 4, 16, 256, 500, positions=128, tied=True, gated=False, biases=True, norm_shift=True)
LLAMA = Decoder(3, 64, 4, 2, 24, 160, 500)
SHAPES = {"gpt2": GPT2, "llama": LLAMA, "llama, tied": replace(LLAMA, tied=True)}
BYTE_16 = torch.bfloat16
TOKENS, LONG = (32, 4), (128, 1)  # T and b; long enough for eager attention's scores to be the most of a layer


class Kernel(torch.autograd.Function):
    """Keeps what the flash kernel does: its factors and result, a float32 a row of scores, a seed."""

    @staticmethod
    def forward(context: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        result, rows = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
        context.save_for_backward(q, k, v, result, rows, q.new_empty(3, dtype=torch.int64))
        return result

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(kept) for kept in context.saved_tensors[:3])


def one_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """With autocast, attention's factors are cast. No kernel takes keys in float32 that several queries share."""
    if q.dtype == torch.float32 and k.shape[1] < q.shape[1] and not torch.is_autocast_enabled("cpu"):
        return math_attention(q, k, v, 0.0)
    kept: Callable[..., Tensor] = Kernel.apply
    return kept(*(x.to(BYTE_16) if torch.is_autocast_enabled("cpu") else x for x in (q, k, v)))


def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """models.eager(), with softmax in float32 as autocast has it on a GPU."""
    groups = q.shape[1] // k.shape[1]
    q = q.contiguous()
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = q @ k.mT / q.shape[3] ** 0.5
    scores = scores + torch.full(scores.shape[2:], -torch.inf, dtype=scores.dtype, device=q.device).triu(1)
    probabilities = scores.float().softmax(-1) if torch.is_autocast_enabled("cpu") else scores.softmax(-1)
    result: Tensor = probabilities @ v
    return result


def forgetful(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Autocast's casts go when a layer has been computed again: a GPU's backward pass has a thread of its own, where
    autocast ends then; a CPU's runs in the thread that called it, in which it may go on."""

    def forgets(*inputs: Tensor) -> Tensor:
        try:
            return forward(*inputs)
        finally:
            if torch._C._current_graph_task_id() != -1:
                torch.clear_autocast_cache()

    return forgets


def norm_kernel(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    kernel: Callable[..., Tensor] = models.NormOnMeta.apply
    return kernel(x, norm.weight)


def for_a_gpu() -> AbstractContextManager[Any]:
    """A CPU's tensors, which autocast needs here, stand for a GPU's."""
    return patch(f"{Trace.__module__}.FakeTensor", Tensor)


class Moments(Trace):
    """The most bytes that are held at each moment of a step."""

    def __init__(self) -> None:
        self.moment = "forward"
        self.most: dict[str, int] = {}
        super().__init__()

    def begin(self, moment: str) -> None:
        self.moment = moment
        self.most[moment] = max(self.most.get(moment, 0), self.live_bytes)

    def _change(self, key: int, change: int) -> None:
        super()._change(key, change)
        self.most[self.moment] = max(self.most.get(self.moment, 0), self.live_bytes)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The loss goes backward from its first gradient to that of the logits; then the head's products begin."""
        name = func.__name__
        if self.moment == "to the head" and "mm" in name:
            self.begin("head")
        elif name.startswith("nll_loss_backward"):
            self.begin("loss")
        elif name.startswith("nll_loss_forward"):
            self.begin("after the forward pass")
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if name.startswith("_log_softmax_backward"):
            self.begin("to the head")
        return result


@cache
def count_step(
    shape: Decoder,
    seq_len: int,
    batch: int,
    recipe: str,
    fused: bool = True,
    checkpointing: str = "none",
    chunks: int = 1,
    accumulated: bool = False,
    foreach: bool = False,
    change: Callable[[nn.Module], None] | None = None,
) -> dict[str, int]:
    """The most bytes at each moment of the last of one or two batches and of the update after it.

    A model may be changed before: a norm composed of operations, frozen weights.
    """
    autocast = recipe == "autocast"
    device = "cpu" if autocast else "meta"
    attend: Attend = one_kernel if fused else eager
    model = build(shape, again(attend) if checkpointing == "selective" else attend, device=device)
    model.to(BYTE_16 if "bf16" in recipe else torch.float32)
    blocks: Any = model.blocks
    for norm in (each for each in model.modules() if isinstance(each, models.RMSNorm)):
        norm.forward = norm_kernel.__get__(norm)  # type: ignore[method-assign]
    if change:
        change(model)
    if checkpointing == "full":
        for block in blocks:
            block.forward = again(forgetful(block.forward))
    weights: list[Tensor] = list(model.parameters())
    trained = [weight for weight in weights if weight.requires_grad]
    masters = [weight.detach().float() for weight in weights] if recipe == "bf16_master" else trained
    moments = [[torch.zeros_like(master) for master in masters] for _ in range(2)]
    steps = [torch.zeros(()) for _ in masters]
    tokens = torch.zeros(batch, seq_len, dtype=torch.int64, device=device)
    targets = torch.zeros_like(tokens)
    trace = Moments()

    def begins(moment: str, tensor: Tensor) -> None:
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: trace.begin(moment))

    def at_input(moment: str) -> Callable[..., None]:
        return lambda module, inputs: begins(moment, inputs[0])

    def at_output(moment: str) -> Callable[..., None]:
        return lambda module, inputs, output: begins(moment, output)

    blocks[0].register_forward_pre_hook(at_input("embedding"))
    blocks[0].register_forward_hook(at_output("first_layer"))
    blocks[-1].register_forward_pre_hook(at_input("between"))
    blocks[-1].register_forward_hook(at_output("last_layer"))
    with trace, for_a_gpu():
        for tensor in (*weights, *masters, *moments[0], *moments[1], tokens, targets):
            trace.hold(tensor.untyped_storage())
        for _ in range(2 if accumulated else 1):
            trace.most.clear()
            trace.begin("forward")
            if chunks > 1:
                chunked_backward(parts_of(model, autocast), tokens, targets, chunks)
                continue
            with torch.autocast("cpu", BYTE_16) if autocast else nullcontext():
                missed = loss(model, tokens, targets)
            missed.backward()
            del missed
        trace.begin("update")
        if recipe == "bf16_master":
            for weight, master in zip(weights, masters, strict=True):
                assert weight.grad is not None
                master.grad, weight.grad = weight.grad.float(), None
        update(masters, moments[0], moments[1], steps, foreach)
    return trace.most


def parts_of(model: Any, autocast: bool) -> Any:
    """The layers and the head, each in a context of its own, which ends before its backward pass."""

    def cast(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            with torch.autocast("cpu", BYTE_16) if autocast else nullcontext():
                return part(x)

        return forward

    return SimpleNamespace(hidden=cast(model.hidden), head=cast(model.head))


def update(
    masters: list[Tensor], first: list[Tensor], second: list[Tensor], steps: list[Tensor], foreach: bool
) -> None:
    """AdamW's step on moments that are there, by the functions that torch.optim calls; none fuses on meta there."""
    gradients = [master.grad for master in masters if master.grad is not None]
    rates: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
    lists: Any = [master.detach() for master in masters], gradients, first, second, [], steps
    if foreach:
        adamw(*lists, foreach=True, **rates, amsgrad=False, maximize=False)  # type: ignore[misc]
    else:
        torch._fused_adamw_(*lists, **rates, amsgrad=False, maximize=False)


@dataclass(frozen=True)
class Case:
    """What is asked of the formula and counted."""

    shape: Decoder
    recipe: str
    sizes: tuple[int, int]
    choice: str

    @property
    def asked(self) -> dict[str, Any]:
        return CHOICES[self.choice]

    def predicted(self) -> dict[str, dict[str, int]]:
        told = {"update" if name == "foreach" else name: value for name, value in self.asked.items()}
        told |= {"update": "foreach"} if "foreach" in self.asked else {}
        return decoder_moments(self.shape, *self.sizes, self.recipe, **told)


CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "eager": {"fused": False},
    "selective": {"checkpointing": "selective"},
    "selective, eager": {"checkpointing": "selective", "fused": False},
    "full": {"checkpointing": "full"},
    "chunked": {"chunks": 4},
    "full, chunked": {"checkpointing": "full", "chunks": 4},
    "accumulated": {"accumulated": True},
    "accumulated, chunked": {"accumulated": True, "chunks": 4},
    "foreach": {"foreach": True},
}
COUNTED = {  # choices by shape and recipe: each term of the formula in some of them, not all in all
    ("gpt2", "bf16_master"): ("plain", "selective", "full", "chunked", "accumulated", "foreach"),
    ("llama", "bf16_master"): ("plain", "full, chunked", "accumulated"),
    ("gpt2", "autocast"): ("plain", "full", "chunked", "accumulated"),
    ("llama", "autocast"): ("plain", "selective", "full, chunked"),
    ("gpt2", "fp32"): ("accumulated, chunked",),
    ("llama", "fp32"): ("plain", "chunked"),
    ("llama, tied", "bf16"): ("accumulated", "foreach"),
}
LONG_COUNTED = {
    ("gpt2", "bf16"): ("eager",),
    ("gpt2", "autocast"): ("selective, eager",),
    ("llama", "fp32"): ("selective, eager",),
    ("llama", "bf16"): ("eager",),
    ("llama", "autocast"): ("eager",),
}
CASES = {
    f"{name}, {recipe}, {choice}{', long' if sizes == LONG else ''}": Case(SHAPES[name], recipe, sizes, choice)
    for sizes, counted in ((TOKENS, COUNTED), (LONG, LONG_COUNTED))
    for (name, recipe), choices in counted.items()
    for choice in choices
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_moment_holds_what_is_counted(case: Case) -> None:
    counted, planned = count_step(case.shape, *case.sizes, case.recipe, **case.asked), case.predicted()
    # in chunks the head goes forward and backward several times, which is counted with what is forward of a layer
    moments = [at for at in planned if "chunks" not in case.asked or at not in ("forward", "head")]
    assert {at: sum(planned[at].values()) for at in moments} == pytest.approx(
        {at: counted[at] for at in moments}, rel=0.002
    )


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_there_all_the_time_is_what_the_optimizer_holds(shape: Decoder, recipe: str) -> None:
    model = build(shape, dtype=BYTE_16 if "bf16" in recipe else torch.float32)
    weights = list(model.parameters())
    masters = [weight.detach().float() for weight in weights] if recipe == "bf16_master" else weights
    for master in masters:
        master.grad = torch.zeros_like(master)
    optimizer = torch.optim.AdamW(masters)
    optimizer.step()
    seq_len, batch = TOKENS
    batch_of_ints = torch.zeros(2, batch, seq_len, dtype=torch.int64, device="meta")  # tokens and targets
    expected = {
        "weights": sum(weight.nbytes for weight in weights),
        "master": sum(master.nbytes for master in masters if master not in set(weights)),
        "optimizer": sum(v.nbytes for state in optimizer.state.values() for v in state.values() if v.dim()),
        "batch": batch_of_ints.nbytes,
    }
    logits = torch.empty(batch, seq_len, shape.vocab, device="meta").nbytes
    at = decoder_moments(shape, seq_len, batch, recipe)
    for lines in at.values():
        assert {line: lines[line] for line in expected} == expected
    assert (at["forward"]["logits"], at["loss"]["logits"]) == (2 * logits, 3 * logits)
    assert {at[moment]["logits"] for moment in ("last_layer", "first_layer", "embedding", "update")} == {0}
    assert at["embedding"]["gradients"] == sum(weight.nbytes for weight in weights)
    again = decoder_moments(shape, seq_len, batch, recipe, accumulated=True)
    assert all(again[moment]["gradients"] == sum(weight.nbytes for weight in weights) for moment in list(at)[:-1])
    assert {lines["gradients"] for lines in list(at.values())[:3]} == {0}
