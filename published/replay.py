"""Recorded requests and frees, sent through the allocator's rules: does it give the addresses that PyTorch's gave?

Of a snapshot that somebody published only these are kept: sizes, order, addresses, in one compressed file a source.
"""

import gzip
import hashlib
import json
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.memory.allocator import MIN_BLOCK_BYTES, Allocator, Pool, segment_bytes
from flops_bytes.tools.snapshot import NotPlain, Snapshot, as_snapshot, before, is_small, plain
from published.readings import bytes_at

NEEDED = ("repository", "commit", "licence", "card", "paths")
CODES = {"alloc": "a", "free_completed": "f", "segment_alloc": "s", "segment_free": "r"}
ACTIONS = {code: action for action, code in CODES.items()}
APART = 2**40  # bytes between segments whose addresses are not given, above all that are


class Step(NamedTuple):
    """A request, a free, or a segment that came or went."""

    action: str  # alloc, free_completed, segment_alloc, segment_free
    address: int
    size: int  # bytes: requested, or of the segment


class History(NamedTuple):
    """What a device's allocator held before the first step, and the steps; of one stream, no segment grows."""

    segments: dict[int, tuple[int, bool]]  # by address: bytes, of the small pool
    blocks: dict[int, tuple[int, int]]  # by address: bytes requested; bytes had, 0 where nothing says it
    steps: tuple[Step, ...]


def history(snapshot: Snapshot, number: int = 0) -> History:
    """A device's history. Raises ValueError if it has several streams, or segments that grow."""
    blocks, segments, pages = before(snapshot, number)
    events = snapshot.traces[number] if number < len(snapshot.traces) else ()
    steps = tuple(Step(each.action, each.address, each.size) for each in events if each.action in CODES)
    if any(pages.values()) or any(each.action == "segment_map" for each in events):
        raise ValueError("segments that grow are not replayed")
    if len({each.stream for each in events} | {stream for _, _, stream in segments.values()}) > 1:
        raise ValueError("several streams are not replayed")
    return History(
        {at: (size, small) for at, (size, small, _) in segments.items()},
        {at: (requested, had) for at, (requested, had, *_) in blocks.items()},
        steps,
    )


class Replayed(NamedTuple):
    """How often the rules said what PyTorch did."""

    addresses: int
    right: int
    first_wrong: (
        str  # "tie": the right block was as large as the one that the rules chose; "other"; "" if all are right
    )
    new_segments: int  # that PyTorch asked of CUDA
    new_right: int  # that the rules ask for at the same request, as large
    given_back: int  # times that segments went back to CUDA
    given_back_right: int  # these were all that held nothing
    peak_allocated_bytes: int
    peak_reserved_bytes: int


def begun(found: History) -> Allocator:
    """An allocator as it was before the first step."""
    allocator = Allocator()
    order = sorted(found.blocks)
    for at, (size, small) in found.segments.items():
        inside = order[bisect_left(order, at) : bisect_left(order, at + size)]
        allocator.add_segment(at, size, Pool(small, 0), {each: found.blocks[each] for each in inside})
    return allocator


def one_ahead(found: History) -> Replayed:
    """Each step foreseen from the true steps before it. Raises ValueError where PyTorch took what was not free."""
    truth = _Truth(found)
    wrong, first = 0, ""
    for step in found.steps:
        if step.action == "alloc":
            said, is_free = truth.allocator.foresee(step.size), truth.allocator.free_at(step.address)
            if not said or said[0] != step.address:
                wrong, first = wrong + 1, first or ("tie" if said and said[1] == is_free else "other")
        truth.follow(step)
    return truth.counted(wrong, first, truth.allocator)


def closed_loop(found: History, addresses: bool) -> Replayed:
    """All steps from sizes and order alone: where a block lies is never told, what is freed is where the rules put it.

    CUDA chooses where a new segment lies: that is told if `addresses`; else each lies above all before. When PyTorch
    gave segments back, so do the rules, the same ones.
    """
    truth, ours = _Truth(found), begun(found)
    new = [step for step in found.steps if step.action == "segment_alloc"]
    above = max([at + size for at, (size, _) in found.segments.items()] + [step.address + step.size for step in new])
    asked: list[int] = []

    def place(size: int) -> int:
        asked.append(size)
        told = addresses and len(asked) <= len(new)
        return new[len(asked) - 1].address if told else above + APART * len(asked)

    ours.place = place
    here = {at: at for at in found.blocks}  # ours by PyTorch's
    where = {at: at for at in found.segments}
    wrong, first, news = 0, "", 0
    for step in found.steps:
        match step.action:
            case "segment_alloc":
                news += 1
                where[step.address] = step.address if addresses else above + APART * news
            case "alloc":
                start = truth.segment_of(step.address)
                said, is_free = ours.foresee(step.size), truth.allocator.free_at(step.address)
                here[step.address] = at = ours.allocate(step.size)
                if at != where[start] + step.address - start:
                    wrong, first = wrong + 1, first or ("tie" if said and said[1] == is_free else "other")
            case "free_completed":
                ours.free(here.pop(step.address))
            case "segment_free":
                ours.release(where.pop(step.address))
        truth.follow(step)
    return truth.counted(wrong, first, ours)


class _Truth:
    """What PyTorch did, step by step."""

    def __init__(self, found: History) -> None:
        self.found, self.allocator, self.starts = found, begun(found), sorted(found.segments)
        self.new: int | None = None  # a segment that no request has used yet
        self.new_right = self.given_back = self.given_back_right = 0
        self.going: set[int] | None = None  # segments that went back to CUDA, one behind the other
        self.empty: set[int] = set()

    def follow(self, step: Step) -> None:
        if step.action != "segment_free":
            self.gone()
        match step.action:
            case "segment_alloc":
                self.new = step.size
                self.allocator.add_segment(step.address, step.size, Pool(is_small(step.size), 0), {})
                insort(self.starts, step.address)
            case "alloc":
                if self.new is not None:
                    self.new_right += self.new == segment_bytes(self.allocator.settings.block_bytes(step.size))
                    self.new = None
                if not self.allocator.allocate_at(step.address, step.size):
                    raise ValueError(f"{step.size} bytes at {step.address}: no free block begins there")
            case "free_completed":
                self.allocator.free(step.address)
            case "segment_free":
                if self.going is None:
                    self.going, self.empty = set(), self.allocator.empty_segments()
                self.going.add(step.address)
                self.allocator.release(step.address)
                self.starts.remove(step.address)

    def gone(self) -> None:
        if self.going is not None:
            self.given_back, self.given_back_right = (
                self.given_back + 1,
                self.given_back_right + (self.going == self.empty),
            )
            self.going = None

    def segment_of(self, address: int) -> int:
        return self.starts[bisect_right(self.starts, address) - 1]

    def counted(self, wrong: int, first: str, allocator: Allocator) -> Replayed:
        self.gone()
        requests, new = (
            sum(step.action == action for step in self.found.steps) for action in ("alloc", "segment_alloc")
        )
        return Replayed(
            requests,
            requests - wrong,
            first,
            new,
            self.new_right,
            self.given_back,
            self.given_back_right,
            allocator.peak_allocated_bytes,
            allocator.peak_reserved_bytes,
        )


def packed(found: History) -> dict[str, Any]:
    """A history as plain numbers. Addresses and sizes of blocks are in units of 512 bytes, a request's in bytes.

    A free names its block by how many that are live came after it; an address is a segment's number and the distance
    from its start. Segments are numbered by address, new ones on from there.
    """
    sizes = sorted({step.size for step in found.steps if step.action == "alloc"})
    live, starts = sorted(found.blocks), sorted(found.segments)
    number, segments = {at: index for index, at in enumerate(starts)}, len(starts) - 1
    numbers, of_segment, distance = [], [], []
    for action, address, size in found.steps:
        match action:
            case "alloc":
                start = starts[bisect_right(starts, address) - 1]
                numbers.append(bisect_left(sizes, size))
                of_segment.append(number[start])
                distance.append((address - start) // MIN_BLOCK_BYTES)
                live.append(address)
            case "free_completed":
                behind = live[::-1].index(address)
                numbers.append(behind)
                live.pop(len(live) - 1 - behind)
            case "segment_alloc":
                number[address] = segments = segments + 1
                numbers.append(address // MIN_BLOCK_BYTES)
                numbers.append(size)
                insort(starts, address)
            case _:
                numbers.append(number[address])
                starts.remove(address)
    return {
        "segments": [[at // MIN_BLOCK_BYTES, size, int(small)] for at, (size, small) in sorted(found.segments.items())],
        "blocks": [[at // MIN_BLOCK_BYTES, *sizes] for at, sizes in sorted(found.blocks.items())],
        "sizes": sizes,
        "actions": "".join(CODES[step.action] for step in found.steps),
        "numbers": numbers,
        "segment": of_segment,
        "distance": distance,
    }


def unpacked(told: dict[str, Any]) -> History:
    """The history that was packed."""
    segments = {at * MIN_BLOCK_BYTES: (size, bool(small)) for at, size, small in told["segments"]}
    blocks = {at * MIN_BLOCK_BYTES: (requested, had) for at, requested, had in told["blocks"]}
    live, starts, steps = [(at, requested) for at, (requested, _) in blocks.items()], list(segments), []
    bytes_of = {at: size for at, (size, _) in segments.items()}
    numbers, places = iter(told["numbers"]), zip(told["segment"], told["distance"], strict=True)
    for code in told["actions"]:
        value = next(numbers)
        match code:
            case "a":
                segment, distance = next(places)
                live.append((starts[segment] + distance * MIN_BLOCK_BYTES, told["sizes"][value]))
                step = live[-1]
            case "f":
                step = live.pop(len(live) - 1 - value)
            case "s":
                step = value * MIN_BLOCK_BYTES, next(numbers)
                starts.append(step[0])
                bytes_of[step[0]] = step[1]
            case _:
                step = starts[value], bytes_of[starts[value]]
        steps.append(Step(ACTIONS[code], *step))
    return History(segments, blocks, tuple(steps))


def read_histories(path: Path) -> dict[str, History]:
    """The histories of a file, by the snapshot's path in its repository. Raises ValueError with the file's name."""
    return {name: unpacked(told) for name, told in read_file(path)["histories"].items()}


def read_file(path: Path) -> dict[str, Any]:
    """A file of histories, with its source. Raises ValueError with its name and what it lacks."""
    try:
        told: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if missing := [key for key in NEEDED if key not in told]:
        raise ValueError(f"{path}: it says no {missing[0]}; a source has {', '.join(NEEDED)}")
    return told


def derive(path: Path, clone: Path) -> Iterator[tuple[str, History]]:
    """Reads a source's snapshots from a clone, at its commit and paths, and writes their histories; each of them.

    Raises ValueError if the clone has no such file at that commit.
    """
    told = {key: read_file(path)[key] for key in NEEDED} | {"sha256": {}, "histories": {}}
    for name in told["paths"]:
        data = bytes_at(clone, told["commit"], name)
        found = history(as_snapshot(plain(data), len(data)))
        told["sha256"][name] = hashlib.sha256(data).hexdigest()
        told["histories"][name] = packed(found)
        yield name, found
    path.write_bytes(gzip.compress(json.dumps(told, separators=(",", ":")).encode(), 9, mtime=0))


def main(arguments: list[str]) -> int:
    """python -m published.replay FILE CLONE: FILE's histories anew, from a clone of its repository."""
    if len(arguments) != 2:
        print(main.__doc__, file=sys.stderr)
        return 2
    try:
        for name, found in derive(*map(Path, arguments)):
            print(name, *one_ahead(found))
    except (ValueError, NotPlain) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
