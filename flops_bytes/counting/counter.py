"""A whole training step run without memory, and the bytes that it holds at its peak, counted."""

from typing import Any

import torch
from torch import Tensor

from flops_bytes.lessons.models import again, build, chunked_backward, eager, flash, loss
from flops_bytes.lessons.trace import Trace
from flops_bytes.model.shapes import Decoder


def on_cuda(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """What scaled_dot_product_attention() runs there: the flash kernel; in float32 another, which keeps as much, but
    takes no keys that several queries share, and then none.
    """
    is_grouped = k.shape[1] < q.shape[1]
    return math_attention(q, k, v, dropout) if q.dtype == torch.float32 and is_grouped else flash(q, k, v)


def math_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """_scaled_dot_product_attention_math() of ATen's attention.cpp, as it runs where no mode watches: it adds to the
    scores in place.
    """
    root, groups = q.shape[-1] ** -0.25, q.shape[1] // k.shape[1]
    q = q * root
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
    future = torch.where(mask, torch.zeros((), device=q.device), torch.full((), -torch.inf, device=q.device))
    del mask
    keys, values = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = (q @ (keys.mT * root)).add_(future)
    probabilities = torch.ops.aten._safe_softmax(scores, -1)
    del scores
    found: Tensor = (torch.native_dropout(probabilities, dropout, True)[0] if dropout else probabilities) @ values
    return found


def prepare(
    shape: Decoder, recipe: str, fused: bool, checkpointing: str
) -> tuple[Any, list[Tensor], torch.optim.Optimizer]:
    """A model on meta, the weights that AdamW changes, and AdamW with its state."""
    attend = on_cuda if fused else eager
    model = build(shape, again(attend) if checkpointing == "selective" else attend)
    model.to(torch.float32 if recipe == "fp32" else torch.bfloat16)
    if checkpointing == "full":
        for block in model.blocks:
            block.forward = again(block.forward)
    weights: list[Tensor] = list(model.parameters())
    masters = weights
    if recipe == "bf16_master":
        masters = [weight.detach().float() for weight in weights]
    for master in masters:
        master.grad = torch.zeros_like(master)
    # fused AdamW does not run on meta
    optimizer = torch.optim.AdamW(masters, foreach=True)
    optimizer.step()  # makes its state
    optimizer.zero_grad()
    return model, masters, optimizer


def update_fused(masters: list[Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Fused AdamW's kernel itself, since torch.optim lets none fuse on meta."""
    states = optimizer.state.values()
    first = [state["exp_avg"] for state in states]
    second = [state["exp_avg_sq"] for state in states]
    steps = [state["step"] for state in states]
    gradients = [master.grad for master in masters if master.grad is not None]
    values = [master.detach() for master in masters]
    rates: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95}
    rates |= {"weight_decay": 0.1, "eps": 1e-8, "amsgrad": False, "maximize": False}
    torch._fused_adamw_(values, gradients, first, second, [], steps, **rates)


def counted_peak(
    shape: Decoder,
    seq_len: int,
    batch: int,
    recipe: str,
    fused: bool = True,
    checkpointing: str = "none",
    chunks: int = 1,
    accumulated: bool = False,
    foreach: bool = True,
) -> int:
    """Bytes at the peak of a step: forward, backward, AdamW (`foreach`, or fused)."""
    model, masters, optimizer = prepare(shape, recipe, fused, checkpointing)
    weights = list(model.parameters())
    tokens = torch.zeros(batch, seq_len, dtype=torch.int64, device="meta")
    targets = torch.zeros_like(tokens)
    state = [value for each in optimizer.state.values() for value in each.values()]
    moments = [value for value in state if value.is_meta]  # not the number of steps
    with Trace() as trace:
        for tensor in (*weights, *masters, *moments, tokens, targets):
            trace.hold(tensor.untyped_storage())
        for _ in range(2 if accumulated else 1):
            if chunks > 1:
                chunked_backward(model, tokens, targets, chunks)
            else:
                loss(model, tokens, targets).backward()
        if recipe == "bf16_master":
            for weight, master in zip(weights, masters, strict=True):
                master.grad, weight.grad = weight.grad.float(), None
        if foreach:
            optimizer.step()
        else:
            update_fused(masters, optimizer)
    names = [operation.name for operation in trace.operations]
    assert ("_softmax.default" in names) != fused
    return trace.peak_bytes
