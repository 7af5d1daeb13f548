# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = ["measurements/published/snapshots/*.json.gz"]
# ///
"""Where a step's memory went: a snapshot read by line, allocated beside reserved, and the allocator on others' cards."""

# --8<-- [start:setup]
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

import torch

from flops_bytes.allocator import Allocator, Pool, Settings, reserved, segment_bytes
from flops_bytes.replay import History, begun, closed_loop, one_ahead, read_histories
from flops_bytes.snapshot import NO_LINE, Device, Life, follow, line_of, main, read, report
from flops_bytes.step_memory import LIMIT_BYTES, SHAPE, recorded, write_snapshot

# --8<-- [end:setup]


# --8<-- [start:record]
def record(steps: Callable[[], None], path: str) -> None:
    """Runs steps, and writes what PyTorch's allocator did meanwhile, also where it failed."""
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        steps()  # makes the model too, so that its weights have lines
    finally:
        torch.cuda.memory._dump_snapshot(path)
        torch.cuda.memory._record_memory_history(enabled=None)  # stops


# --8<-- [end:record]


# --8<-- [start:message]
recorded_counts = recorded()["counts"]
print(fill(recorded_counts["out_of_memory"]["message"], 96))
# --8<-- [end:message]


# --8<-- [start:read]
temporary = TemporaryDirectory()
step_file = write_snapshot("out_of_memory", Path(temporary.name) / "step.pickle")
main([str(step_file), "--rows", "8"])
# --8<-- [end:read]


# --8<-- [start:kinds]
KINDS = ("weights", "state", "gradients", "layers", "loss", "backward")


def kind_of(block: Life, updates: list[int]) -> str:
    """What a block holds, by the functions that were running, and for how long it lives."""
    running = {frame.function for frame in block.frames or ()}
    if not running:  # the backward pass runs no Python; a gradient lives until the update
        kept = any(block.born < update < block.died for update in updates)
        return "gradients" if kept else "backward"
    if running & {"make", "build"}:
        return "weights"
    if "hidden" in running:
        return "layers"
    return "loss" if running & {"loss", "chunked_backward"} else "state"


def by_kind(device: Device) -> Iterator[dict[str, int]]:
    """The bytes in use after each event, by kind."""
    updates = [block.born for block in device.blocks if is_update(block)]
    changes: dict[int, list[tuple[str, int]]] = {}
    for block in device.blocks:
        kind = kind_of(block, updates)
        changes.setdefault(block.born, []).append((kind, block.size))
        if block.unused < device.events:
            changes.setdefault(int(block.unused), []).append((kind, -block.size))
    held = dict.fromkeys(KINDS, 0)
    for event in range(1, device.events + 1):
        for kind, change in changes.get(event, ()):
            held[kind] += change
        yield dict(held)


def is_update(block: Life) -> bool:
    """Whether it was made by the optimizer."""
    return any(frame.function in ("_init_group", "adamw") for frame in block.frames or ())


# --8<-- [end:kinds]


# --8<-- [start:timeline]
PIECES = 96  # of the events
device = follow(read(step_file), 0)
stacks = list(by_kind(device))


def highest(stacks: list[dict[str, int]]) -> dict[str, int]:
    return max(stacks, key=lambda stack: sum(stack.values()))


cuts = [n * device.events // PIECES for n in range(PIECES + 1)]
pieces = [highest(stacks[start:end]) for start, end in pairwise(cuts)]
timeline_bytes = {kind: [piece[kind] for piece in pieces] for kind in KINDS}
limit_bytes = LIMIT_BYTES
wanted_bytes = device.errors[0][1]
# --8<-- [end:timeline]
