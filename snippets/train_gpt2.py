# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Trains GPT-2 on one device: `python train_gpt2.py DATA`; without DATA, a toy on a text of its own.

DATA (.bin) is GPT-2's tokens as uint16; of any other file the bytes are the tokens. `--help` lists all choices.
"""

# --8<-- [start:setup]
import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accounting import divide, get_device, get_peak_flop_per_second
from formulas import Decoder, backward_flops, forward_flops
from models import Model, build, gpt2, loss
from torch import Tensor

TEXT = b"What does a step cost? Count its FLOPs, count its bytes, divide by what the machine can do, then measure. " * 9
TOY = {"layers": 2, "width": 64, "heads": 2, "context": 32, "batch": 8, "pieces": 2, "steps": 12, "report": 4}
SMALL = {"layers": 12, "width": 768, "heads": 12, "context": 1024, "batch": 16, "pieces": 32, "steps": 19_073}
FIXED = ("layers", "width", "heads", "context", "batch", "pieces", "steps", "rate", "seed")  # when a run goes on


def choose(arguments: list[str]) -> argparse.Namespace:
    """The choices of a run: GPT-2 small on 10 billion tokens if there are data, else a toy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", type=Path, help="uint16 tokens (.bin), or any file, byte by byte")
    for name in TOY:  # a step adds up the gradients of so many pieces, each a batch
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--rate", type=float, default=6e-4, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    parser.add_argument("--checkpoint", type=Path, help="where each report saves the run, and it is resumed from")
    parser.set_defaults(**(SMALL | {"report": 10} if parser.parse_args(arguments).data else TOY))
    return parser.parse_args(arguments)


# --8<-- [end:setup]
# --8<-- [start:data]
def read_tokens(path: Path | None, context: int) -> tuple[Tensor, int]:
    """The tokens, mapped from the disk, and the size of their vocabulary. Raises ValueError for unusable files."""
    if path is None:
        return torch.frombuffer(bytearray(TEXT), dtype=torch.uint8), 256
    if not path.is_file():
        raise ValueError(f"{path} is no file")
    dtype, vocab = (torch.uint16, 50_304) if path.suffix == ".bin" else (torch.uint8, 256)  # 50,257, padded
    count, rest = divmod(path.stat().st_size, dtype.itemsize)
    if rest or count <= context:
        raise ValueError(f"{path}: {count} tokens and {rest} bytes, where whole tokens, at least {context + 1}, go")
    return torch.from_file(str(path), shared=False, size=count, dtype=dtype), vocab


def draw(tokens: Tensor, vocab: int, options: argparse.Namespace, piece: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets (b, T): windows that depend on the seed and the piece's number alone."""
    generator = torch.Generator().manual_seed(options.seed * 2**32 + piece)
    starts = torch.randint(len(tokens) - options.context, (options.batch,), generator=generator).tolist()
    windows = torch.stack([tokens[start : start + options.context + 1].long() for start in starts])
    if windows.max() >= vocab:
        raise ValueError(f"token {int(windows.max())} is not among {vocab}: is {options.data} uint16?")
    windows = windows.pin_memory().cuda(non_blocking=True) if torch.cuda.is_available() else windows
    return windows[:, :-1], windows[:, 1:]


def make(shape: Decoder, seed: int) -> tuple[Model, torch.optim.Optimizer]:
    """GPT-2 with its first weights, and fused AdamW, which shrinks matrices alone."""
    torch.manual_seed(seed)
    model = build(shape, device=get_device().type)
    for name, weight in model.named_parameters():
        if "norm" not in name:  # biases begin at 0
            scale = (2 * shape.layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1
            torch.nn.init.normal_(weight, std=0.02 * scale * (weight.dim() > 1))
    matrices, vectors = ([w for w in model.parameters() if (w.dim() > 1) == wide] for wide in (True, False))
    groups: Any = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def rate_at(step: int, options: argparse.Namespace) -> float:
    """The learning rate: in a straight line up over the first 4 % of the steps, then down to a few per cent of it."""
    warm_up = options.steps // 25 + 1
    return float(options.rate * min((step + 1) / warm_up, 1 - (step - warm_up) / options.steps))


# --8<-- [end:data]
# --8<-- [start:train]
def train(options: argparse.Namespace) -> list[float]:
    """The losses of the steps that this call made."""
    tokens, vocab = read_tokens(options.data, options.context)
    shape = replace(gpt2(options.width, options.layers, options.heads), vocab=vocab, positions=options.context)
    model, optimizer = make(shape, options.seed)
    compute = torch.compile(loss) if options.compile else loss
    size, per_step = (shape, options.context, options.batch), options.pieces * options.batch * options.context
    flops = options.pieces * (sum(forward_flops(*size).values()) + sum(backward_flops(*size, fused=False).values()))
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
            parts = torch.stack(waiting).view(-1, options.pieces).sum(1).tolist()  # here the CPU waits for the GPU
            losses, seconds = losses + parts, (time.perf_counter() - began) / len(parts)
            mfu = divide(flops / seconds, get_peak_flop_per_second("bfloat16"))
            share = f"MFU {mfu:.1%}" if mfu else "MFU unknown"
            print(f"step {step + 1}: loss {losses[-1]:.4f}, {per_step / seconds:,.0f} tokens/s, {share}", flush=True)
            save(options, step + 1, model, optimizer)
            waiting, began = [], time.perf_counter()
    return losses


# --8<-- [end:train]
# --8<-- [start:checkpoint]
def save(options: argparse.Namespace, step: int, model: Model, optimizer: torch.optim.Optimizer) -> None:
    """Writes the checkpoint, if one is wanted: at any time its file is the old one or the new."""
    if options.checkpoint:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {name: getattr(options, name) for name in FIXED}
        torch.save(state, temporary := options.checkpoint.with_suffix(".tmp"))
        temporary.replace(options.checkpoint)


def resume(options: argparse.Namespace, model: Model, optimizer: torch.optim.Optimizer) -> int:
    """The step at which the checkpoint, if there is one, goes on. Raises ValueError if it is of another run."""
    if not (options.checkpoint and options.checkpoint.exists()):
        return 0
    state = torch.load(options.checkpoint, map_location=get_device(), weights_only=True)
    for name in FIXED:
        if state[name] != getattr(options, name):
            raise ValueError(f"{options.checkpoint} has {name} {state[name]}, this run {getattr(options, name)}")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


# --8<-- [end:checkpoint]
if __name__ == "__main__":
    measured_losses = train(choose(sys.argv[1:]))
