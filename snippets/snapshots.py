# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = ["measurements/published/snapshots/*.json.gz"]
# ///
"""Where a step's memory went: a snapshot read by line, allocated beside reserved, the allocator on others' cards."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

import torch

from flops_bytes.memory.allocator import LARGE_SEGMENT_BYTES, Allocator, Pool, Settings, reserved
from flops_bytes.plan import plan
from flops_bytes.tools.snapshot import (
    BEFORE,
    INFINITE,
    Device,
    Life,
    Snapshot,
    follow,
    is_small,
    line_of,
    main,
    read,
    report,
)
from flops_bytes_data.step_memory import LIMIT_BYTES, recorded, write_snapshot
from published.replay import History, begun, closed_loop, one_ahead, read_histories

FOLDERS = (above / "measurements" / "published" / "snapshots" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())


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
torch_version = recorded()["torch"]
print(fill(recorded()["counts"]["out_of_memory"]["message"], 96))
# --8<-- [end:message]


# --8<-- [start:read]
folder = TemporaryDirectory()
step_file = write_snapshot("out_of_memory", Path(folder.name) / "step.pickle")  # the trainer's
main([str(step_file), "--rows", "3"])
# --8<-- [end:read]


KINDS = ("weights", "state", "gradients", "layers", "loss", "backward")


def kind_of(block: Life, updates: list[int]) -> str:
    """What a block holds, by the functions that were running, and for how long it lives."""
    running = {frame.function for frame in block.frames or ()}
    if not running:  # the backward pass runs no Python; a gradient is freed after the update, a workspace never
        kept = any(block.born < update < block.died < INFINITE for update in updates)
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


PIECES = 90  # of the events until the one that failed
device = follow(read(step_file), 0)
failed_event, wanted_bytes = device.errors[0]
stacks = list(by_kind(device))


def highest(stacks: list[dict[str, int]]) -> dict[str, int]:
    return max(stacks, key=lambda stack: sum(stack.values()))


cuts = [n * failed_event // PIECES for n in range(PIECES + 1)]
pieces = [highest(stacks[start:end]) for start, end in pairwise(cuts)]
timeline_bytes = {kind: [piece[kind] for piece in pieces] for kind in KINDS}
updated = max(block.born for block in device.blocks if is_update(block))
second_event = min(block.born for block in device.blocks if block.born > updated and kind_of(block, []) == "layers")
second_piece = next(n for n, end in enumerate(cuts[1:]) if end >= second_event)
limit_bytes = LIMIT_BYTES
num_events = device.events


def at_peak(device: Device) -> dict[str, int]:
    """The bytes of each kind when the most are allocated."""
    return list(by_kind(device))[device.peak_allocated.event - 1]


peak_kinds_bytes = at_peak(device)
peak_bytes, peak_event = device.peak_allocated
state_bytes = stacks[failed_event - 1]["state"]
largest_bytes = max(block.size for block in device.blocks)
of_loss_bytes = sum(block.size for block in device.live(peak_event) if block.size == largest_bytes)
of_loss_share = of_loss_bytes / peak_bytes
print(f"{of_loss_bytes / 2**30:.2f} of {peak_bytes / 2**30:.2f} GiB")


# --8<-- [start:mended]
mended_file = write_snapshot("mended", Path(folder.name) / "mended.pickle")
mended = follow(read(mended_file), 0)
print(f"allocated at most {mended.peak_allocated.size / 2**30:.2f} GiB", end=", ")
print(f"reserved at most {mended.peak_reserved.size / 2**30:.2f} GiB")
# --8<-- [end:mended]


# --8<-- [start:alive]
def alive(path: Path) -> Counter[str]:
    """Bytes in use when the file was written, by line."""
    device = follow(read(path), 0)
    held: Counter[str] = Counter()
    for block in device.live(device.events):
        held[line_of(block.frames)] += block.size
    return held


for line, size in alive(mended_file).most_common(4):
    print(f"{size / 2**20:8.1f} MiB  {line}")
# --8<-- [end:alive]

# --8<-- [start:gap]
failed = follow(read(step_file), 0)
event, wanted = failed.errors[0]
at_failure = failed.gap(event)
print(f"wanted {wanted / 2**30:.2f} GiB")
print(f"reserved and not allocated {(at_failure.reserved - at_failure.allocated) / 2**30:.2f} GiB", end=", ")
print(f"in pieces {(at_failure.pieces_small + at_failure.pieces_large) / 2**30:.2f} GiB")
# --8<-- [end:gap]

at_failure_bytes = {
    "unallocated": at_failure.reserved - at_failure.allocated,
    "pieces": at_failure.pieces_small + at_failure.pieces_large,
    "empty": at_failure.segments,
}
recorded_counts = recorded()["counts"]
peaks = {  # of two steps on a card with room for both ways
    name: {count: recorded_counts[run][count] for count in ("allocated_bytes", "reserved_bytes")}
    for name, run in {"whole": "first", "chunks": "chunks"}.items()
}
assert mended.peak_allocated.size == peaks["chunks"]["allocated_bytes"]
mended_kinds_bytes = at_peak(mended)
assert peak_kinds_bytes["gradients"] == mended_kinds_bytes["gradients"] == 0, "so the table needs no row of theirs"
saved_share = 1 - peaks["chunks"]["allocated_bytes"] / peaks["whole"]["allocated_bytes"]


# --8<-- [start:exercise_1]
batch, seq_len, vocab = 16, 1024, 50_304
logit_bytes = 4 * batch * seq_len * vocab
print(f"{logit_bytes:,} bytes: {logit_bytes / 2**30:.2f} GiB")
# --8<-- [end:exercise_1]


_tokens, _d, _f = batch * seq_len, 768, 3_072
sizes_bytes = {  # of GPT-2 small under autocast
    "logits": logit_bytes,
    "logits_16": 2 * _tokens * vocab,
    "head": 4 * vocab * _d,
    "head_16": 2 * vocab * _d,
    "mlp": 2 * _tokens * _f,
    "qkv": 2 * _tokens * 3 * _d,
    "residual": 4 * _tokens * _d,
    "residual_16": 2 * _tokens * _d,
    "rows": 4 * _tokens * 12,
    "workspace": 32 * 2**20,
}
assert set(sizes_bytes.values()) <= {block.requested for block in device.blocks}


# --8<-- [start:exercise_2]
def changes_of(device: Device) -> list[tuple[int, int]]:
    """A storage and the bytes that it took or, negative, gave back, in order."""
    found = []
    for number, block in enumerate(device.blocks):
        found.append((block.born, number, block.requested))
        if block.died < device.events:
            found.append((int(block.died), number, -block.requested))
    return [(number, change) for _, number, change in sorted(found)]


of_mended = changes_of(mended)
foreseen_bytes = reserved(of_mended).peak_reserved_bytes
assert foreseen_bytes == mended.peak_reserved.size
growing_bytes = reserved(of_mended, Settings(expandable_segments=True)).peak_reserved_bytes
print(f"recorded {mended.peak_reserved.size:,}, by the rules {foreseen_bytes:,}, growing {growing_bytes:,}")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
LAST = 1500  # events, as with max_entries=1500
whole = read(step_file)
late = report(Snapshot(whole.segments, (whole.traces[0][-LAST:],), whole.settings), 0)
lineless_bytes = sum(row["size"] for row in late["by_line"] if row["line"] == BEFORE)
late_peak_bytes = late["peak_allocated"]["size"]
print(f"{lineless_bytes / 2**30:.2f} of {late_peak_bytes / 2**30:.2f} GiB were there {BEFORE}")
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
RUN: dict[str, Any] = {"model": "gpt2", "gpu": "RTX 4090"}
RUN |= {"micro_batch": 8, "context": 1024, "trained": "all"}
RUN |= {"recipe": "autocast", "checkpointing": "none"}
of_lengths = {"packed": plan(**RUN)["meters"], "many": plan(**RUN, lengths="64-1024")["meters"]}
for lengths, meters in of_lengths.items():
    low, high = (size / 2**30 for size in meters["reserved_bytes"])
    print(f"{lengths}: {meters['allocated_bytes'] / 2**30:.1f} GiB allocated, {low:.1f} to {high:.1f} reserved")
    print(f"    it {meters['lives']}; reserved with ", end="")
    by_setting = {name: meters[name] for name in ("expandable", "emptied") if meters[name]}
    print(", ".join(f"{name} {each['reserved_bytes'] / 2**30:.1f}" for name, each in by_setting.items()))
# --8<-- [end:exercise_4]
reserved_by_lengths_bytes = {
    lengths: {
        "least": meters["reserved_bytes"][0],
        "most": meters["reserved_bytes"][1],
        "growing": meters["expandable"]["reserved_bytes"],
        "emptied": meters["emptied"]["reserved_bytes"] if meters["emptied"] else None,
    }
    for lengths, meters in of_lengths.items()
}
num_drawn = of_lengths["many"]["draws"]
assert of_lengths["many"]["allocated_bytes"] < 1.01 * of_lengths["packed"]["allocated_bytes"]
assert [meters["lives"] for meters in of_lengths.values()] == ["lives", "retries"]


histories = {path.name.split(".")[0]: read_histories(path) for path in sorted(FOLDER.glob("*.json.gz"))}
of_all = [history for source in histories.values() for history in source.values()]
ahead = [one_ahead(history) for history in of_all]
sizes_alone = [closed_loop(history, addresses=False) for history in of_all]
num_snapshots, num_sources = len(of_all), len(histories)
num_addresses, right_addresses = (sum(getattr(each, name) for each in ahead) for name in ("addresses", "right"))
num_segments, right_segments = (sum(getattr(each, name) for each in ahead) for name in ("new_segments", "new_right"))
same_reserved = sum(
    ours.peak_reserved_bytes == theirs.peak_reserved_bytes for ours, theirs in zip(sizes_alone, ahead, strict=True)
)
print(f"{right_addresses:,} of {num_addresses:,} addresses, {right_segments:,} of {num_segments:,} segments")
print(f"peaks of reserved bytes, from sizes and order alone: {same_reserved} of {num_snapshots}")


def new_segments(history: History) -> list[int]:
    """Where CUDA placed new segments of the large pool, in order."""
    return [step.address for step in history.steps if step.action == "segment_alloc" and not is_small(step.size)]


pairs = [pair for history in of_all for pair in pairwise(new_segments(history))]
below_share = sum(second < first for first, second in pairs) / len(pairs)
print(f"{below_share:.0%} of new segments lie below the one before")


STEPS = {  # of CS336's model, from sequences of so many tokens
    128: "memory_files/memory_ctx128_fullstep.pickle",
    256: "memory_files/memory_ctx256_fullstep_.pickle",
    512: "memory_files/memory_ctx512_fullstep_.pickle",
}


def at_most(history: History) -> dict[str, int]:
    """The bytes when the most are allocated, and why more are reserved."""
    allocator = begun(history)
    found: dict[str, int] = {}
    for step in history.steps:
        match step.action:
            case "alloc":
                allocator.allocate_at(step.address, step.size)
                if allocator.allocated_bytes == allocator.peak_allocated_bytes:
                    found = reasons(allocator)
            case "free_completed":
                allocator.free(step.address)
            case "segment_alloc":
                allocator.add_segment(step.address, step.size, Pool(is_small(step.size), 0), {})
            case "segment_free":
                allocator.release(step.address)
    return found


def reasons(allocator: Allocator) -> dict[str, int]:
    empty = sum(allocator.segments[segment] for segment in allocator.empty_segments())
    return {
        "requested": allocator.requested_bytes,
        "rounding": allocator.allocated_bytes - allocator.requested_bytes,
        "pieces": allocator.reserved_bytes - allocator.allocated_bytes - empty,
        "empty": empty,
        "reserved": allocator.reserved_bytes,
    }


gap_bytes = {length: at_most(histories["cs336-a2-systems"][name]) for length, name in STEPS.items()}
unallocated_bytes = {length: gap["pieces"] + gap["empty"] for length, gap in gap_bytes.items()}
for length, gap in gap_bytes.items():
    print(length, *(f"{name} {size / 2**30:.2f}" for name, size in gap.items()))


def changes(history: History) -> list[tuple[int, int]]:
    """A storage and its bytes, more or fewer, in order: what was there before comes first."""
    found, numbers = [], {}
    for number, (at, (requested, _)) in enumerate(sorted(history.blocks.items())):
        numbers[at] = number, requested
        found.append((number, requested))
    for number, step in enumerate(history.steps, start=len(found)):
        if step.action == "alloc":
            numbers[step.address] = number, step.size
            found.append((number, step.size))
        elif step.action == "free_completed":
            owner, size = numbers.pop(step.address)
            found.append((owner, -size))
    return found


page_bytes = LARGE_SEGMENT_BYTES  # of a segment that can grow, in the large pool
GROWING = Settings(expandable_segments=True)
by_setting_bytes = {
    length: {
        "default": one_ahead(step_history).peak_reserved_bytes,  # as recorded
        "expandable": reserved(changes(step_history), GROWING).peak_reserved_bytes,
        "allocated": reserved(changes(step_history), GROWING).peak_allocated_bytes,
    }
    for length, step_history in ((n, histories["cs336-a2-systems"][name]) for n, name in STEPS.items())
}
saved_bytes = [sizes["default"] - sizes["expandable"] for sizes in by_setting_bytes.values()]
growing_saves_bytes = {"least": min(saved_bytes), "most": max(saved_bytes)}
for length, sizes in by_setting_bytes.items():
    print(length, *(f"{name} {size / 2**30:.2f}" for name, size in sizes.items()))
