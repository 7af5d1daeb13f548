# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = ["measurements/published/snapshots/*.json.gz"]
# ///
"""What steps reserve, counted without a GPU: beside others' snapshots of CS336's model, and beside PyTorch's allocator.

The model, which the course calls 2.7B, is written anew from what the snapshots' frames say of it: which operations, in
which order. What is not counted: what reductions take for a moment, and when a block's rest had been split off before.
"""

# --8<-- [start:setup]
import dataclasses
import gc
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flops_bytes.counting.count import count
from flops_bytes.lessons.trace import Trace, meta
from flops_bytes.memory.allocator import MIB, Allocator, downwards, reserved
from flops_bytes.memory.formulas import activation_bytes
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes_data.step_memory import RUNS, Run, recorded, trainer
from published.replay import one_ahead, read_histories

WORKSPACE_BYTES = 32 * MIB  # cuBLAS's on a Hopper, one for each thread that makes products: forward and backward
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class WithWorkspaces(Trace):
    """A trace in which the first product forward and the first one backward get a workspace, as from cuBLAS."""

    def __init__(self, missing: tuple[str, ...] = ("forward", "backward")) -> None:
        super().__init__()
        self.missing = set(missing)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        direction = "backward" if torch._C._current_graph_task_id() >= 0 else "forward"
        if direction in self.missing and func._overloadpacket.__name__ in PRODUCTS:
            self.missing.remove(direction)
            self.changes.append((-1 if direction == "forward" else -2, WORKSPACE_BYTES))
        return result


# --8<-- [end:setup]


# --8<-- [start:trainer]
def foreseen(run: Run) -> Allocator:
    """An allocator through which the first two steps of the trainer went, counted without a card."""
    trace = WithWorkspaces()
    count(lambda: trainer(run), place=lambda _: trace)
    return reserved(trace.changes, place=downwards())


# --8<-- [end:trainer]


# --8<-- [start:by_hand]
SHAPE = Decoder(layers=32, d_model=2560, heads=32, kv_heads=32, head_dim=80, d_ff=10240, vocab=10000)  # CS336's 2.7B
BATCH = 4


def hand_softmax(x: Tensor) -> Tensor:
    e = torch.exp(x - x.max(dim=-1, keepdim=True)[0])
    return e / e.sum(dim=-1, keepdim=True)


def hand_mask(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(torch.eq(mask, 0), -1e9)  # mask == False


def hand_silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def hand_norm(x: Tensor, gain: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scaled = x / torch.sqrt(norm**2 / x.shape[-1] + 1e-5)
    return torch.einsum("bsd,d->bsd", scaled, gain)


Part = Callable[..., Tensor]
BY_HAND: dict[str, Part] = {"softmax": hand_softmax, "mask": hand_mask, "silu": hand_silu, "norm": hand_norm}


# --8<-- [end:by_hand]


# --8<-- [start:kept_by_hand]
def kept_by_hand(seq_len: int, layers: int, norms: int) -> dict[str, int]:
    """What autograd keeps more of parts that are written with several operations each, in float32."""
    tokens, rows = BATCH * seq_len, BATCH * SHAPE.heads * seq_len
    return {
        "softmax": layers * (4 * rows * seq_len + 8 * rows + 4 * rows),  # exp's result, an index, a sum
        "mask": layers * rows * seq_len,  # a byte a score: mask == False, broadcast over batch and heads
        "silu": layers * 4 * tokens * SHAPE.d_ff,  # the sigmoid
        "norm": norms * 4 * tokens * (SHAPE.d_model + 1),  # what the gain multiplies, and the root
    }


# --8<-- [end:kept_by_hand]


# --8<-- [start:model]
class OneNorm(torch.autograd.Function):
    """A norm in one kernel: it keeps its input and a number a token."""

    @staticmethod
    def forward(context: Any, x: Tensor, gain: Tensor) -> Tensor:
        context.save_for_backward(x, gain, x.new_empty(x.shape[:-1]))
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(context.saved_tensors[0]), torch.empty_like(context.saved_tensors[1])


class Linear(nn.Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(meta(rows, columns))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bsi,io->bso", x, self.weight)


class Norm(nn.Module):
    def __init__(self, width: int, parts: dict[str, Part]) -> None:
        super().__init__()
        self.gain, self.part = nn.Parameter(meta(width)), parts["norm"]

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, self.gain)


class Attention(nn.Module):
    def __init__(self, shape: Decoder, seq_len: int, parts: dict[str, Part]) -> None:
        super().__init__()
        self.heads, self.parts = shape.heads, parts
        self.q, self.k, self.v, self.out = (Linear(shape.d_model, shape.d_model) for _ in range(4))
        self.cache = nn.Buffer(meta(2, seq_len, shape.head_dim // 2))

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        cosines, sines = (self.cache[index][positions].unsqueeze(1) for index in (0, 1))
        pairs = x.unflatten(-1, (-1, 2))
        first, second = pairs[..., 0], pairs[..., 1]
        rotated = torch.zeros_like(pairs)
        rotated[..., 0] = first * cosines - second * sines
        rotated[..., 1] = first * sines + second * cosines
        return rotated.flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq_len, _ = x.shape
        q, k, v = (y(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.q, self.k, self.v))
        positions = torch.arange(seq_len, device="meta").expand(batch, -1)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        past = ~torch.triu(torch.ones(seq_len, seq_len, device="meta"), diagonal=1).to(torch.bool)
        attended = self.attend(q, k, v, past.expand(batch, self.heads, -1, -1))
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
        scores = scores / math.sqrt(q.shape[-1])
        scores = self.parts["mask"](scores, mask)
        return torch.einsum("bhqk,bhkd->bhqd", self.parts["softmax"](scores), v)


class Block(nn.Module):
    def __init__(self, shape: Decoder, seq_len: int, parts: dict[str, Part]) -> None:
        super().__init__()
        self.norm, self.attention = Norm(shape.d_model, parts), Attention(shape, seq_len, parts)
        self.norm2, self.silu = Norm(shape.d_model, parts), parts["silu"]
        self.gate, self.down = Linear(shape.d_model, shape.d_ff), Linear(shape.d_ff, shape.d_model)
        self.up = Linear(shape.d_model, shape.d_ff)

    def mlp(self, x: Tensor) -> Tensor:
        gate, up = self.gate(x), self.up(x)
        return self.down(self.silu(gate) * up)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        h = self.attention(h)
        x = x + h
        h = self.norm2(x)
        h = self.mlp(h)
        return x + h


class Model(nn.Module):
    def __init__(self, shape: Decoder, seq_len: int, parts: dict[str, Part]) -> None:
        super().__init__()
        self.embedding = Linear(shape.vocab, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape, seq_len, parts) for _ in range(shape.layers))
        self.norm, self.head = Norm(shape.d_model, parts), Linear(shape.d_model, shape.vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding.weight[tokens]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    logits, targets = logits.flatten(0, 1), targets.flatten()
    shifted = logits - logits.max(dim=-1, keepdim=True)[0]
    total = torch.exp(shifted).sum(dim=-1)
    return (torch.log(total) - shifted[torch.arange(len(targets), device="meta"), targets]).mean()


def update(model: nn.Module) -> list[Tensor]:
    """A first step of AdamW, a parameter at a time: the change of one is there until that of the next is."""
    state = []
    for weight in model.parameters():
        assert weight.grad is not None
        first, second = torch.zeros_like(weight), torch.zeros_like(weight)
        state += [first, second]
        first.mul_(0.9).add_(weight.grad)
        second.mul_(0.9).addcmul_(weight.grad, weight.grad)
        change = first / torch.sqrt(second).add_(1e-8)
        weight.data.add_(change).mul_(0.9)
    return state


# --8<-- [end:model]


# --8<-- [start:count]
@cache
def counted(seq_len: int, whole: bool, workspaces: bool, in_one: tuple[str, ...] = (), layers: int = 32) -> Any:
    """An allocator through which a forward pass went, or the whole step; parts `in_one` kernel are not by hand."""
    parts = {**BY_HAND, **{name: IN_ONE[name] for name in in_one}}
    gc.collect()
    with WithWorkspaces() as trace:
        model = Model(dataclasses.replace(SHAPE, layers=layers), seq_len, parts)
        tokens = torch.randint(SHAPE.vocab, (BATCH, seq_len), device="meta")
        trace.missing = {"forward", "backward"} if workspaces else set()
        logits = model(tokens)
        if whole:
            loss = loss_of(logits, tokens)
            loss.backward()
            state = update(model)  # noqa: F841
        changes = list(trace.changes)
    return reserved(changes)


IN_ONE: dict[str, Part] = {
    "softmax": lambda x: F.softmax(x, dim=-1),
    "mask": lambda scores, mask: scores + meta(*mask.shape[-2:]),
    "silu": F.silu,
    "norm": OneNorm.apply,
}


# --8<-- [end:count]


# --8<-- [start:one]
one = foreseen(RUNS["quarter"])
print(f"allocated {one.peak_allocated_bytes / 2**30:.2f} GiB, reserved {one.peak_reserved_bytes / 2**30:.2f} GiB")
# --8<-- [end:one]


# --8<-- [start:public]
LENGTHS = (128, 256, 512)
KINDS = {"forward": False, "step": True}
FILES = "memory_files/memory_ctx{}_{}.pickle"
SNAPSHOTS = {
    "forward": [FILES.format(length, "forward" if length == 128 else "forward_") for length in LENGTHS],
    "step": [FILES.format(length, "fullstep" if length == 128 else "fullstep_") for length in LENGTHS],
}
FOLDERS = (above / "measurements" / "published" / "snapshots" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())
histories = read_histories(FOLDER / "cs336-a2-systems.json.gz")
cards = {
    kind: {length: one_ahead(histories[name]) for length, name in zip(LENGTHS, names, strict=True)}
    for kind, names in SNAPSHOTS.items()
}


def beside(ours: Allocator, theirs: Any) -> dict[str, Any]:
    """Our peaks, those of a card, and our reserved bytes as a part of the card's."""
    return {
        "allocated_bytes": ours.peak_allocated_bytes,
        "card_allocated_bytes": theirs.peak_allocated_bytes,
        "allocated_ratio": ours.peak_allocated_bytes / theirs.peak_allocated_bytes,
        "reserved_bytes": ours.peak_reserved_bytes,
        "card_reserved_bytes": theirs.peak_reserved_bytes,
        "reserved_ratio": ours.peak_reserved_bytes / theirs.peak_reserved_bytes,
    }


public_steps = {
    kind: {length: beside(counted(length, whole, True), cards[kind][length]) for length in LENGTHS}
    for kind, whole in KINDS.items()
}
for kind, steps in public_steps.items():
    for length, step in steps.items():
        print(kind, length, *(f"{step[f'{name}_ratio']:.5f}" for name in ("allocated", "reserved")))
worst_public_share = max(abs(step["reserved_ratio"] - 1) for steps in public_steps.values() for step in steps.values())
# --8<-- [end:public]


# --8<-- [start:forward]
planned_bytes = {  # parameters, and what a layer keeps whose norms, SiLU and softmax are PyTorch's own
    length: 4 * sum(parameters(SHAPE).values())
    + sum(activation_bytes(SHAPE, length, BATCH, width=4, fused=False).values())
    for length in LENGTHS
}
by_hand_bytes = {length: kept_by_hand(length, SHAPE.layers, 2 * SHAPE.layers + 1) for length in LENGTHS}
forward_card_bytes = {length: cards["forward"][length].peak_allocated_bytes for length in LENGTHS}
planned_ratio = {length: planned_bytes[length] / forward_card_bytes[length] for length in LENGTHS}
named_ratio = {
    length: (planned_bytes[length] + sum(by_hand_bytes[length].values())) / forward_card_bytes[length]
    for length in LENGTHS
}
for length in LENGTHS:
    print(length, f"{planned_ratio[length]:.3f} {named_ratio[length]:.3f}", by_hand_bytes[length])
# --8<-- [end:forward]


# --8<-- [start:trainer_steps]
told = recorded()["counts"]
trainer_steps = {}
for case, run in RUNS.items():
    ours = foreseen(run)
    trainer_steps[case] = {
        "batch": run.batch,
        "allocated_bytes": ours.peak_allocated_bytes,
        "counted_allocated_bytes": told[case]["allocated_bytes"],
        "allocated_ratio": ours.peak_allocated_bytes / told[case]["allocated_bytes"],
        "reserved_bytes": ours.peak_reserved_bytes,
        "counted_reserved_bytes": told[case]["reserved_bytes"],
        "reserved_ratio": ours.peak_reserved_bytes / told[case]["reserved_bytes"],
    }
    print(case, *(f"{trainer_steps[case][f'{name}_ratio']:.4f}" for name in ("allocated", "reserved")))
worst_trainer_share = max(abs(step["reserved_ratio"] - 1) for step in trainer_steps.values())
gap_share = {
    case: step["counted_reserved_bytes"] / step["counted_allocated_bytes"] - 1 for case, step in trainer_steps.items()
}
bf16_gap_share = gap_share["bf16"]
smallest_gap_share, largest_gap_share = min(gap_share.values()), max(gap_share.values())
# --8<-- [end:trainer_steps]
