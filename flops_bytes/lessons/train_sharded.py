"""Trains GPT-2, sharded: `torchrun --nproc-per-node 8 -m flops_bytes.lessons.train_sharded DATA`; without DATA, a toy.

Weights, gradients and state are sharded by FSDP2. A run goes on from its newest whole checkpoint, on any number of
ranks that divides `--pieces`. `--help` lists all choices; train_sharded.slurm starts it on a cluster.
"""

# --8<-- [start:setup]
import argparse
import shutil
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from flops_bytes.lessons.models import build, gpt2, loss
from flops_bytes.lessons.ranks import join, leave
from flops_bytes.lessons.train import NAMES, SMALL, TOY, draw, rate_at, read_tokens

Sharded = tuple[Any, torch.optim.Optimizer]  # a model in shards, and AdamW
FIXED = (*NAMES[:-1], "rate", "seed")  # when a run goes on
KEPT = 2  # checkpoints


def choose(arguments: list[str]) -> argparse.Namespace:
    """GPT-2 small on 10 billion tokens if there are data, else a toy."""
    parser = argparse.ArgumentParser()
    what = "uint16 tokens (.bin), or any file, byte by byte"
    parser.add_argument("data", nargs="?", type=Path, help=what)
    for name in TOY:  # a step's pieces, each a batch, are dealt to the ranks
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--seed", type=int, default=0)
    what = "a folder: each report saves the run there, in a folder of its own"
    parser.add_argument("--checkpoints", type=Path, help=what)
    what = "seconds that a rank waits for the others before it gives up"
    parser.add_argument("--timeout", type=float, default=600, help=what)
    parser.set_defaults(**(SMALL if parser.parse_args(arguments).data else TOY))
    return parser.parse_args(arguments)


# --8<-- [end:setup]
# --8<-- [start:shard]
def make(options: argparse.Namespace, vocab: int) -> Sharded:
    """GPT-2 in shards, its first weights the same on any number of ranks, and AdamW."""
    torch.manual_seed(options.seed)
    shape = gpt2(options.width, options.layers, options.heads)
    shape = replace(shape, vocab=vocab, positions=options.context)
    model = build(shape, device="cpu")  # a rank has all of it here, for a moment
    for name, weight in model.named_parameters():  # as on one card
        if "norm" not in name:
            last = name.endswith(("out.weight", "down.weight"))
            std = 0.02 * (2 * shape.layers) ** -0.5 if last else 0.02
            torch.nn.init.normal_(weight, std=std * (weight.dim() > 1))
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    mesh = dist.device_mesh.init_device_mesh(device, (dist.get_world_size(),))
    products = torch.bfloat16 if device == "cuda" else None  # sums and state: float32
    policy = MixedPrecisionPolicy(products, torch.float32)
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    groups: Any = [{"params": [], "weight_decay": decay} for decay in (0.0, 0.1)]
    for weight in model.parameters():
        groups[weight.dim() > 1]["params"].append(weight)  # matrices shrink
    return model, torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


# --8<-- [end:shard]
# --8<-- [start:train]
def train(options: argparse.Namespace) -> list[float]:
    """The losses of the steps that this call made, each the mean over all ranks."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if options.pieces < 1 or options.pieces % ranks:
        raise ValueError(f"{options.pieces} pieces cannot be dealt to {ranks} ranks")
    tokens, vocab = read_tokens(options.data, options.context)
    sharded = model, optimizer = make(options, vocab)
    losses, began = list[float](), time.perf_counter()
    for step in range(resume(options, sharded), options.steps):
        parts = []
        for number in range(rank, options.pieces, ranks):  # pieces dealt like cards
            x, y = draw(tokens, vocab, options, step * options.pieces + number)
            part = loss(model, x, y) * ranks / options.pieces
            part.backward()  # gradients are reduced to their mean over the ranks
            parts.append(part.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, options)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total := torch.stack(parts).sum())
        losses.append(float(total) / ranks)
        if (step + 1) % options.report == 0 or step + 1 == options.steps:
            seconds = (time.perf_counter() - began) / len(losses)
            speed = options.pieces * options.batch * options.context / seconds
            if rank == 0:
                told = f"loss {losses[-1]:.4f}, {speed:,.0f} tokens/s"
                print(f"step {step + 1}: {told}", flush=True)
            save(options, step + 1, sharded)
    return losses


# --8<-- [end:train]
def whole(folder: Path) -> list[Path]:
    """The checkpoints that are whole, oldest first: their last file is `.metadata`."""
    return sorted(path.parent for path in folder.glob("step-*/.metadata"))


def state_of(options: argparse.Namespace, sharded: Sharded) -> dict[str, Any]:
    weights, state = get_state_dict(*sharded)
    fixed = {name: getattr(options, name) for name in FIXED}
    return {"model": weights, "optimizer": state, "fixed": fixed, "step": 0}


def save(options: argparse.Namespace, step: int, sharded: Sharded) -> None:
    """Each rank writes its shards into a new folder; then old folders go."""
    if options.checkpoints:
        state = state_of(options, sharded) | {"step": step}
        write_shards(state, checkpoint_id=options.checkpoints / f"step-{step:08}")
        if dist.get_rank() == 0:
            for old in whole(options.checkpoints)[:-KEPT]:
                (old / ".metadata").unlink()  # from here on it is no checkpoint
                shutil.rmtree(old)


def resume(options: argparse.Namespace, sharded: Sharded) -> int:
    """The step at which the newest whole checkpoint, if there is one, goes on.

    Raises ValueError if it is of another run.
    """
    found = whole(options.checkpoints) if options.checkpoints else []
    if not found:
        return 0
    state = state_of(options, sharded)
    facts = {"fixed": state.pop("fixed"), "step": state.pop("step")}
    read_shards(facts, checkpoint_id=found[-1])
    for name, theirs in facts["fixed"].items():
        if theirs != (ours := getattr(options, name)):
            raise ValueError(f"{found[-1]} has {name} {theirs}, this run {ours}")
    read_shards(state, checkpoint_id=found[-1])  # a rank reads what its shards need
    weights, optimizer = state["model"], state["optimizer"]
    set_state_dict(*sharded, model_state_dict=weights, optim_state_dict=optimizer)
    return int(facts["step"])


def main(arguments: list[str]) -> list[float]:
    options = choose(arguments)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "gloo":
        torch.set_num_threads(1)  # each
    join(backend, timedelta(seconds=options.timeout))
    try:
        return train(options)
    finally:
        leave()


if __name__ == "__main__":
    measured_losses = main(sys.argv[1:])
