"""Trains GPT-2 on one device: `python -m flops_bytes.lessons.train DATA`; without DATA, a toy on a text of its own.

DATA (.bin) is GPT-2's tokens as uint16; of any other file the bytes are the tokens. `--help` lists all choices.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flops_bytes.lessons.measure import divide, get_device, get_peak_flop_per_second
from flops_bytes.lessons.models import Model, build, gpt2, loss
from flops_bytes.model.flops import backward_flops, forward_flops
from flops_bytes.model.shapes import Decoder

SENTENCE = (
    b"What does a step cost? Count its FLOPs, count its bytes,",
    b"divide by what the machine can do, then measure. ",
)
TEXT = b" ".join(SENTENCE) * 9
NAMES = ("layers", "width", "heads", "context", "batch", "pieces", "steps", "report")
TOY = dict(zip(NAMES, (2, 64, 2, 32, 8, 2, 12, 4), strict=True))
SMALL = dict(zip(NAMES, (12, 768, 12, 1024, 16, 32, 19_073, 10), strict=True))
FIXED = (*NAMES[:-1], "rate", "seed")  # when a run goes on


def choose(arguments: list[str]) -> argparse.Namespace:
    """GPT-2 small on 10 billion tokens if there are data, else a toy."""
    parser = argparse.ArgumentParser()
    what = "uint16 tokens (.bin), or any file, byte by byte"
    parser.add_argument("data", nargs="?", type=Path, help=what)
    for name in TOY:  # a step adds up the gradients of so many pieces, each a batch
        parser.add_argument(f"--{name}", type=int)
    what = "the highest learning rate"
    parser.add_argument("--rate", type=float, default=6e-4, help=what)
    parser.add_argument("--seed", type=int, default=0)
    on_or_off, on_gpu = argparse.BooleanOptionalAction, torch.cuda.is_available()
    parser.add_argument("--compile", action=on_or_off, default=on_gpu)
    what = "where each report saves the run, and it is resumed from"
    parser.add_argument("--checkpoint", type=Path, help=what)
    parser.set_defaults(**(SMALL if parser.parse_args(arguments).data else TOY))
    return parser.parse_args(arguments)


def read_tokens(path: Path | None, context: int) -> tuple[Tensor, int]:
    """The tokens, mapped from the disk, and the size of their vocabulary.

    Raises ValueError for unusable files.
    """
    if path is None:
        return torch.frombuffer(bytearray(TEXT), dtype=torch.uint8), 256
    if not path.is_file():
        raise ValueError(f"{path} is no file")
    dtype, vocab = torch.uint8, 256
    if path.suffix == ".bin":
        dtype, vocab = torch.uint16, 50_304  # 50,257, padded
    count, rest = divmod(path.stat().st_size, dtype.itemsize)
    if rest or count <= context:
        wanted = f"whole tokens, at least {context + 1}"
        raise ValueError(f"{path}: {count} tokens and {rest} bytes, where {wanted}, go")
    return torch.from_file(str(path), shared=False, size=count, dtype=dtype), vocab


def draw(
    tokens: Tensor,
    vocab: int,
    options: argparse.Namespace,
    piece: int,
) -> tuple[Tensor, Tensor]:
    """Inputs and targets (b, T), which depend on the seed and the piece's number."""
    generator = torch.Generator().manual_seed(options.seed * 2**32 + piece)
    b, T = options.batch, options.context
    starts = torch.randint(len(tokens) - T, (b,), generator=generator).tolist()
    windows = torch.stack([tokens[start : start + T + 1].long() for start in starts])
    if (word := int(windows.max())) >= vocab:
        where = f"is {options.data} uint16?"
        raise ValueError(f"token {word} is not among {vocab}: {where}")
    if torch.cuda.is_available():
        windows = windows.cuda(non_blocking=True)  # pinning it here would save no copy
    return windows[:, :-1], windows[:, 1:]


def make(shape: Decoder, seed: int) -> tuple[Model, torch.optim.Optimizer]:
    """GPT-2 with its first weights, and fused AdamW, which shrinks matrices alone."""
    torch.manual_seed(seed)
    model = build(shape, device=get_device().type)
    for name, weight in model.named_parameters():
        if "norm" not in name:  # biases begin at 0
            last = name.endswith(("out.weight", "down.weight"))  # before a sum
            scale = (2 * shape.layers) ** -0.5 if last else 1
            torch.nn.init.normal_(weight, std=0.02 * scale * (weight.dim() > 1))
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = [weight for weight in model.parameters() if weight.dim() == 1]
    groups: Any = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return model, torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def rate_at(step: int, options: argparse.Namespace) -> float:
    """The learning rate: straight up over the first 4 % of the steps, then down.

    At the end a few per cent of the highest are left.
    """
    warm_up = options.steps // 25 + 1
    up, down = (step + 1) / warm_up, 1 - (step - warm_up) / options.steps
    return float(options.rate * min(up, down))


def train(options: argparse.Namespace) -> list[float]:
    """The losses of the steps that this call made."""
    tokens, vocab = read_tokens(options.data, options.context)
    shape = gpt2(options.width, options.layers, options.heads)
    shape = replace(shape, vocab=vocab, positions=options.context)
    model, optimizer = make(shape, options.seed)
    compute = torch.compile(loss) if options.compile else loss
    size = (shape, options.context, options.batch)
    per_step = options.pieces * options.batch * options.context
    flops = sum(forward_flops(*size).values())
    flops += sum(backward_flops(*size, fused=False).values())
    losses, waiting, began = list[float](), list[Tensor](), time.perf_counter()
    for step in range(resume(options, model, optimizer), options.steps):
        for piece in range(options.pieces):
            x, y = draw(tokens, vocab, options, step * options.pieces + piece)
            with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
                part = compute(model, x, y) / options.pieces
            part.backward()
            waiting.append(part.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, options)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % options.report == 0 or step + 1 == options.steps:
            # here the CPU waits for the GPU
            parts = torch.stack(waiting).view(-1, options.pieces).sum(1).tolist()
            losses, seconds = losses + parts, (time.perf_counter() - began) / len(parts)
            rate = options.pieces * flops / seconds
            mfu = divide(rate, get_peak_flop_per_second("bfloat16"))
            share = f"MFU {mfu:.1%}" if mfu else "MFU unknown"
            loss_and_speed = f"{losses[-1]:.4f}, {per_step / seconds:,.0f} tokens/s"
            print(f"step {step + 1}: loss {loss_and_speed}, {share}", flush=True)
            save(options, step + 1, model, optimizer)
            waiting, began = [], time.perf_counter()
    return losses


def save(
    options: argparse.Namespace,
    step: int,
    model: Model,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Writes the checkpoint, if one is wanted; its file is the old one or the new."""
    if options.checkpoint:
        state = {name: getattr(options, name) for name in FIXED} | {"step": step}
        state |= {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, temporary := options.checkpoint.with_suffix(".tmp"))
        temporary.replace(options.checkpoint)


def resume(
    options: argparse.Namespace,
    model: Model,
    optimizer: torch.optim.Optimizer,
) -> int:
    """The step at which the checkpoint, if there is one, goes on.

    Raises ValueError if it is of another run.
    """
    if not (options.checkpoint and options.checkpoint.exists()):
        return 0
    state = torch.load(options.checkpoint, map_location=get_device(), weights_only=True)
    for name in FIXED:
        if state[name] != getattr(options, name):
            others = f"{options.checkpoint} has {name} {state[name]}"
            raise ValueError(f"{others}, this run {getattr(options, name)}")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


if __name__ == "__main__":
    measured_losses = train(choose(sys.argv[1:]))
