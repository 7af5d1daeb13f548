"""A snapshot of a step that no GPU has taken, in the format of torch.cuda.memory._dump_snapshot().

pytorch.org/memory_viz, torch/cuda/_memory_viz.py and `flops-bytes snapshot` open it. Addresses are those that the
allocator of flops_bytes.memory.allocator gives by default, times are the places of the events in their order.
"""

import pickle
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.memory.allocator import SMALL_SEGMENT_BYTES, Allocator, downwards

Frames = tuple[tuple[str, str, int], ...]  # function, file and line, the innermost first
PROTOCOL = 4  # the newest that the viewer reads
# The viewer draws one colour a category, and stops (MemoryViz.js, annotate_snapshot) where none of them is this one.
UNKNOWN = "unknown"


class Change(NamedTuple):
    """Bytes that a storage takes or, negative, gives back."""

    storage: int  # a number
    nbytes: int
    moment: str  # such as "forward, step 2"
    kind: str  # weights, gradients, activations …; of what it takes
    frames: Frames = ()
    part: str = ""  # of the model, such as "layer 3"


def writable(path: str | Path) -> Path:
    """A file that can be written. Raises ValueError, before hours are counted for it."""
    found = Path(path)
    if found.is_dir() or not found.parent.is_dir():
        raise ValueError(f"--snapshot: {found} is no file in a folder that exists; name one, such as step.pickle")
    return found


def path_of_rank(path: str | Path, rank: int) -> Path:
    """A rank's own file: step.rank0.pickle for step.pickle."""
    return Path(path).with_suffix(f".rank{rank}{Path(path).suffix}")


def write_snapshot(path: str | Path, changes: Iterable[Change], source: str) -> None:
    """Writes a step; `source` says in the file what has simulated it. Raises ValueError."""
    try:
        writable(path).write_bytes(pickle.dumps(snapshot_of(changes, source), PROTOCOL))
    except OSError as error:
        raise ValueError(f"--snapshot: {path} cannot be written ({error.strerror or error}); name another") from None


def snapshot_of(changes: Iterable[Change], source: str) -> dict[str, Any]:
    """What the file holds. A storage that is resized gets a new block before its old one is freed, as on CUDA."""

    @cache  # what events share is one object in the file, and one in the viewer
    def listed(frames: Frames) -> list[dict[str, Any]]:
        return [framed(*frame) for frame in frames]

    @cache
    def framed(name: str, file: str, line: int) -> dict[str, Any]:
        return {"filename": file, "line": line, "name": name}

    @cache
    def told(moment: str, kind: str, part: str) -> dict[str, str]:
        return {"simulated": source, "moment": moment, "kind": kind} | ({"part": part} if part else {})

    allocator, events, moments = Allocator(place=downwards()), list[dict[str, Any]](), list[tuple[str, int]]()
    held: dict[int, tuple[int, int]] = {}  # address and bytes, by storage
    made: dict[int, dict[str, Any]] = {}  # frames and metadata, by address
    reserved_for: dict[int, dict[str, Any]] = {}  # the same of a segment's first block

    def add(action: str, address: int, size: int) -> None:
        event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(events)}
        kind = UNKNOWN if action == "segment_alloc" else made[address]["user_metadata"]["kind"]
        events.append(event | {"category": kind} | made[address])

    for change in changes:
        if not moments or moments[-1][0] != change.moment:
            moments.append((change.moment, len(events)))
        address, had = held.pop(change.storage, (0, 0))
        size, reserved = had + change.nbytes, allocator.reserved_bytes
        if size:
            new = allocator.allocate(size)
            held[change.storage] = new, size
            metadata = told(change.moment, change.kind, change.part)
            made[new] = {"frames": listed(change.frames), "user_metadata": metadata}
            if allocator.reserved_bytes > reserved:  # a segment is new, and the block lies at its beginning
                reserved_for[new] = made[new]
                add("segment_alloc", new, allocator.segments[new])
            add("alloc", new, size)
            if new < 0:
                raise ValueError("--snapshot: it holds more than there are addresses for; ask for a smaller step")
        if had:
            allocator.free(address)
            for action in ("free_requested", "free_completed"):
                add(action, address, had)
    return {
        "segments": [segment(allocator, at, made) | reserved_for[at] for at in sorted(allocator.segments)],
        "device_traces": [events],
        "allocator_settings": {"simulated": source, "expandable_segments": False, "max_split_size": -1},
        "external_annotations": list(annotations(moments, len(events))),
    }


def segment(allocator: Allocator, address: int, made: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """What the allocator has from CUDA at an address when the step has ended, and its blocks."""
    found, size = list(allocator.blocks(address)), allocator.segments[address]
    allocated = sum(block.nbytes for block in found if block.taken)
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": sum(block.requested for block in found),
        "stream": 0,
        "segment_type": "small" if size == SMALL_SEGMENT_BYTES else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": [
            {"address": block.address, "size": block.nbytes, "requested_size": block.requested}
            | {"state": "active_allocated" if block.taken else "inactive"}
            | (made[block.address] if block.taken else {"frames": []})
            for block in found
        ],
    }


def annotations(moments: list[tuple[str, int]], end: int) -> Iterable[dict[str, Any]]:
    """Where each moment begins and ends, as torch.profiler.record_function() has it noted."""
    for (name, first), last in zip(moments, [*(first for _, first in moments[1:]), end], strict=True):
        for stage, time in (("START", first), ("END", last)):
            yield {"name": name, "stage": stage, "device": 0, "time_us": time}
