"""Where the memory went: a snapshot of torch.cuda.memory._dump_snapshot() by line of code, by size, and what lies free.

It is read without PyTorch, and nothing in it is run: a reader of its own takes numbers, text, lists and dicts alone.
"""

import argparse
import json
import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from struct import unpack_from
from typing import Any, NamedTuple

from flops_bytes.memory.allocator import LARGE_SEGMENT_BYTES, MIB, SMALL_SEGMENT_BYTES, Settings

LARGEST_FILE_BYTES = 256 * MIB  # which take minutes to read
SAID_FROM_BYTES = 10 * MIB  # of a file: what takes more than ten seconds, or a gigabyte, is said before
SECONDS_A_BYTE, MEMORY_A_BYTE = 1e-6, 35  # to read a snapshot of PyTorch's: on a slow core; objects for its text
# Python's pickle has a thousand items at a time on its stack, PyTorch's own in C++ a whole list; what either remembers,
# a text or a list, takes some bytes
MOST_STACKED, FEWEST_BYTES_A_MEMO = 2_000_000, 6
MOST_BYTES = 2**63  # addresses and sizes are below
INFINITE = float("inf")
BEFORE, NO_LINE = "before the first event", "no line of Python, as in the backward pass"
RECORD = "torch.cuda.memory._record_memory_history(max_entries=100_000)"


class SnapshotError(ValueError):
    """What is wrong with a file, as a sentence that names it and says what to do."""


class NotPlain(Exception):
    """A pickle that does not consist of plain data, or ends too early."""


def plain(data: bytes) -> object:
    """What a pickle of plain data holds. Raises NotPlain at the first byte that asks for more, such as a class.

    pickle.Unpickler with a find_class() that refuses is not enough: 8 bytes make its memo take gigabytes, and a key of
    nested tuples overflows the stack.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, object] = {}
    at, end = 0, len(data)

    def take(length: int) -> bytes:
        nonlocal at
        at += length
        if at > end:
            raise NotPlain("it ends too early")
        return data[at - length : at]

    def number(length: int) -> int:
        return int.from_bytes(take(length), "little")

    def above_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    def put(items: list[Any]) -> None:
        held = stack[-1]
        if type(held) is not dict or len(items) % 2 or not all(type(key) is str for key in items[::2]):
            raise NotPlain(f"at byte {at}, something else than text names a value")
        held.update(zip(items[::2], items[1::2], strict=True))

    def add(items: list[Any]) -> None:
        if type(stack[-1]) is not list:
            raise NotPlain(f"at byte {at}, something is added to what is no list")
        stack[-1].extend(items)

    def memoize(key: int) -> None:
        memo[key] = stack[-1]

    def last(count: int) -> list[Any]:
        items = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        if len(items) < count:
            raise IndexError
        return items

    push = stack.append
    operations: dict[int, Callable[[], object]] = {
        0x80: lambda: take(1),  # PROTO
        0x95: lambda: take(8),  # FRAME
        ord("("): lambda: marks.append(len(stack)),
        ord("}"): lambda: push({}),
        ord("]"): lambda: push([]),
        ord(")"): lambda: push(()),
        ord("N"): lambda: push(None),
        0x88: lambda: push(True),
        0x89: lambda: push(False),
        ord("K"): lambda: push(number(1)),
        ord("M"): lambda: push(number(2)),
        ord("J"): lambda: push(int.from_bytes(take(4), "little", signed=True)),
        0x8A: lambda: push(int.from_bytes(take(number(1)), "little", signed=True)),
        ord("G"): lambda: push(unpack_from(">d", take(8))[0]),
        0x8C: lambda: push(take(number(1)).decode("utf-8", "replace")),
        ord("X"): lambda: push(take(number(4)).decode("utf-8", "replace")),
        0x8D: lambda: push(take(number(8)).decode("utf-8", "replace")),
        ord("C"): lambda: push(take(number(1))),
        ord("B"): lambda: push(take(number(4))),
        0x94: lambda: memoize(len(memo)),
        ord("q"): lambda: memoize(number(1)),
        ord("r"): lambda: memoize(number(4)),
        ord("h"): lambda: push(memo[number(1)]),
        ord("j"): lambda: push(memo[number(4)]),
        ord("s"): lambda: put(last(2)),
        ord("u"): lambda: put(above_mark()),
        ord("a"): lambda: add(last(1)),
        ord("e"): lambda: add(above_mark()),
        ord("t"): lambda: push(tuple(above_mark())),
        0x85: lambda: push(tuple(last(1))),
        0x86: lambda: push(tuple(last(2))),
        0x87: lambda: push(tuple(last(3))),
    }
    looked_at = 0
    try:
        while (code := data[at]) != ord("."):
            at += 1
            operations[code]()
            if at - looked_at > MOST_STACKED // 2:  # bytes, of which each may ask for one more
                looked_at = at
                if len(stack) + len(marks) > MOST_STACKED or len(memo) * FEWEST_BYTES_A_MEMO > at:
                    raise NotPlain(f"at byte {at} it holds more at once than any snapshot")
        return stack[-1]
    except KeyError:
        raise NotPlain(f"at byte {at} it asks for a class, or for what was not made before") from None
    except IndexError:
        raise NotPlain(f"at byte {at} it ends, or takes what is not there") from None


class Frame(NamedTuple):
    """A line of code that was running."""

    file: str
    line: int
    function: str


Frames = tuple[Frame, ...]  # of Python, the innermost first


class Event(NamedTuple):
    """What the allocator did: `action` as PyTorch names it."""

    action: (
        str  # alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom, …
    )
    address: int
    size: int  # bytes: requested, or of the segment
    stream: int
    frames: Frames
    said: str = ""  # of torch.cuda.memory._set_memory_metadata()


class Found(NamedTuple):
    """A block that is not free when the snapshot is taken."""

    address: int
    size: int  # bytes
    requested: int  # of these
    allocated: bool  # False: freed, but another stream may still use it
    frames: Frames
    said: str = ""


class Segment(NamedTuple):
    """A piece of memory that PyTorch has from CUDA when the snapshot is taken."""

    device: int
    address: int
    size: int  # bytes
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[Found, ...]  # those that are not free


class Snapshot(NamedTuple):
    """A snapshot's segments, and each device's events in order."""

    segments: tuple[Segment, ...]
    traces: tuple[tuple[Event, ...], ...]
    settings: Settings
    simulated: str = ""  # what has made it up, where no GPU has run (flops_bytes/memory/simulated.py)


def read(path: Path) -> Snapshot:
    """The snapshot in a file. Raises SnapshotError with the file's name, what is wrong, and what to do."""
    try:
        if path.exists() and not (path.is_file() or path.is_fifo()):
            raise OSError("it is a folder or a device")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
        if len(data) > LARGEST_FILE_BYTES:
            raise SnapshotError(
                f"{path}: it has more than the {LARGEST_FILE_BYTES // MIB} MiB that are read here;"
                f" record fewer events: {RECORD}"
            )
    except OSError as error:
        raise SnapshotError(f"{path}: {error.strerror or error}; name a file of _dump_snapshot()") from None
    if len(data) > SAID_FROM_BYTES:
        takes = f"up to {len(data) * SECONDS_A_BYTE / 60:.1f} minutes and {len(data) * MEMORY_A_BYTE / 1e9:.1f} GB"
        print(f"{path}: {len(data) / MIB:,.0f} MiB take {takes} to read", file=sys.stderr)
    try:
        return as_snapshot(plain(data), most=len(data))
    except (NotPlain, MemoryError) as error:
        why = str(error) or "it needs more memory than there is"
        raise SnapshotError(
            f"{path}: no snapshot that can be read: {why}; write it anew with torch.cuda.memory._dump_snapshot()"
        ) from None


def as_snapshot(found: object, most: int) -> Snapshot:
    """Checks a snapshot's form; it has at most so many events, blocks and frames together. Raises NotPlain."""
    if isinstance(found, list):  # of torch.cuda.memory_snapshot()
        found = {"segments": found}
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise NotPlain("it has no list of segments")
    reader = _Reader(most)
    segments = tuple(reader.segment(each) for each in reader.items(found["segments"], "segments"))
    traces = reader.items(found.get("device_traces", []), "device_traces")
    events = tuple(tuple(map(reader.event, reader.items(trace, "a trace"))) for trace in traces)
    settings = found.get("allocator_settings")
    simulated = settings.get("simulated") if isinstance(settings, dict) else None
    return Snapshot(segments, events, _settings(settings), _text(simulated) if simulated else "")


def _settings(told: object) -> Settings:
    """What of a snapshot's allocator_settings changes a block's size; the sizes from 512 B on have one number each."""
    if not isinstance(told, dict):
        return Settings()
    divisions, limit = told.get("roundup_power2_divisions"), told.get("max_split_size")
    each = {x for x in divisions.values() if type(x) is int} if isinstance(divisions, dict) else set()
    one = each.pop() if len(each) == 1 else 0
    expandable = told.get("expandable_segments") is True
    try:
        return Settings(
            one,
            limit if type(limit) is int and limit > 0 and not expandable else None,
            expandable,
        )
    except ValueError:
        return Settings()


class _Reader:
    """Takes a snapshot's dicts apart; what a file repeats by reference is counted each time."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.known: dict[int, tuple[object, Frames]] = {}  # a list of frames that many events share is read once,
        self.lines: dict[int, tuple[object, Frame]] = {}  # and so is a frame

    def items(self, found: object, what: str) -> Sequence[Any]:
        if not isinstance(found, (list, tuple)):
            raise NotPlain(f"{what}: no list")
        self.left -= len(found)
        if self.left < 0:
            raise NotPlain(f"{what}: more entries than the file has bytes")
        return found

    def number(self, found: object, name: str, missing: int | None = None) -> int:
        value = found.get(name, missing) if isinstance(found, dict) else None
        if type(value) is not int or not 0 <= value < MOST_BYTES:
            said = value if type(value) is int else type(value).__name__
            raise NotPlain(f"{name}: {said} is no number of bytes, and no address")
        return value

    def frames(self, found: dict[str, Any]) -> Frames:
        told = found.get("frames") or ()
        if id(told) not in self.known:
            lines = (self.frame(each) for each in self.items(told, "frames"))
            read = tuple(line for line in lines if line.file.endswith(".py"))
            self.known[id(told)] = told, read  # `told` stays, so its id is its own
        return self.known[id(told)][1]

    def frame(self, found: object) -> Frame:
        if id(found) not in self.lines:
            told = found if isinstance(found, dict) else {}
            line = told.get("line")
            number = line if type(line) is int else 0
            self.lines[id(found)] = found, Frame(_text(told.get("filename")), number, _text(told.get("name")))
        return self.lines[id(found)][1]

    def event(self, found: object) -> Event:
        if not isinstance(found, dict) or not isinstance(found.get("action"), str):
            raise NotPlain("an event without an action")
        action = found["action"]
        where = "addr" if "addr" in found else "device_free"
        missing = 0 if action in ACTIONS else None
        address, size = self.number(found, where, missing), self.number(found, "size", missing)
        return Event(action, address, size, self.number(found, "stream", 0), self.frames(found), _said(found))

    def segment(self, found: object) -> Segment:
        if not isinstance(found, dict):
            raise NotPlain("a segment that is no dict")
        address, blocks = self.number(found, "address"), []
        here = address
        for block in self.items(found.get("blocks", []), "blocks"):
            size = self.number(block, "size")
            at, state = self.number(block, "address", here), _text(block.get("state"))
            if at < here:
                raise NotPlain(f"blocks lie over each other at {at}")
            if state.startswith("active"):
                requested = min(self.number(block, "requested_size", size), size)
                frames = self.frames(block) or self.frames(_first(block.get("history")))
                blocks.append(Found(at, size, requested, state == "active_allocated", frames, _said(block)))
            here = at + size
        size = self.number(found, "total_size")
        if here > address + size:
            raise NotPlain(f"the blocks of the segment at {address} are more than it")
        kind, expandable = found.get("segment_type"), found.get("is_expandable") is True
        return Segment(
            self.number(found, "device", 0),
            address,
            size,
            self.number(found, "stream", 0),
            kind == "small",
            expandable,
            tuple(blocks),
        )


def _text(found: object) -> str:
    """A text without what steers a terminal. Of all else only that it is none: lists in lists would have no end."""
    if type(found) is not str:
        return "?"
    return found if found.isprintable() else "".join(each if each.isprintable() else "?" for each in found)


def _said(found: dict[str, Any]) -> str:
    """Its metadata: a text, or what a simulated file says of a block's moment and kind."""
    told = found.get("user_metadata")
    words = [told.get("kind"), told.get("moment")] if isinstance(told, dict) else [told]
    return ", ".join(_text(word) for word in words if word)


def _first(found: object) -> dict[str, Any]:
    """Of a list of dicts the first."""
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}


ACTIONS = {"snapshot", "user_defined", "oom"}  # need no address, or no size


@dataclass(eq=False)
class Life:
    """A block, or a segment: the events between which it was there, counted from 1; 0: before them all."""

    address: int
    size: int  # bytes
    small: bool
    born: int
    died: float = INFINITE  # the event that gave it back
    requested: int = 0  # bytes; of a block
    unused: float = INFINITE  # the event that freed it: until it died it waited for another stream
    frames: Frames | None = None  # None: it was there before the first event, and nothing says why
    said: str = ""  # its metadata

    def at(self, event: int) -> bool:
        """Whether it was there after an event."""
        return self.born <= event < self.died


class Peak(NamedTuple):
    """The most bytes, and the event after which they were first there."""

    size: int
    event: int


NO_PEAK = Peak(0, 0)


class Gap(NamedTuple):
    """From what was requested to what was reserved, in bytes."""

    requested: int
    rounding: int  # up to 512 bytes, and rests that were too small to be split off
    waiting: int  # freed, but another stream may still use them
    pieces_small: int  # free in segments of the small pool that hold something
    pieces_large: int
    segments: int  # that hold nothing

    @property
    def allocated(self) -> int:
        return self.requested + self.rounding

    @property
    def reserved(self) -> int:
        return sum(self)


@dataclass
class Device:
    """What happened on a device, event by event."""

    number: int
    events: int
    blocks: list[Life] = field(default_factory=list)
    segments: list[Life] = field(default_factory=list)  # those that do not grow
    pages: list[tuple[int, bool, int]] = field(default_factory=list)  # of those that do: event, small, bytes more
    errors: list[tuple[int, int]] = field(default_factory=list)  # out of memory: event, bytes wanted
    peak_allocated: Peak = NO_PEAK
    peak_reserved: Peak = NO_PEAK
    misfits: int = 0  # events that contradict those before: recording was interrupted

    def live(self, event: int) -> list[Life]:
        """The blocks that were allocated after an event."""
        return [block for block in self.blocks if block.at(event) and event < block.unused]

    def gap(self, event: int) -> Gap:
        """The bytes after an event, and why more are reserved than requested."""
        here, used = [block for block in self.blocks if block.at(event)], self.live(event)
        requested, allocated = (sum(map(attrgetter(name), used)) for name in ("requested", "size"))
        pieces = {small: -sum(block.size for block in here if block.small is small) for small in (True, False)}
        waiting = -sum(pieces.values()) - allocated
        for born, small, size in self.pages:
            pieces[small] += size if born <= event else 0
        starts, empty = sorted(block.address for block in here), 0
        for segment in (each for each in self.segments if each.at(event)):
            first = bisect_left(starts, segment.address)
            if first < len(starts) and starts[first] < segment.address + segment.size:
                pieces[segment.small] += segment.size
            else:
                empty += segment.size
        return Gap(requested, allocated - requested, waiting, pieces[True], pieces[False], empty)


def follow(snapshot: Snapshot, number: int) -> Device:
    """What happened on a device: undone from the snapshot's end to the first event, and then done again."""
    events = snapshot.traces[number] if number < len(snapshot.traces) else ()
    follower = _Follower(snapshot, Device(number, len(events)))
    follower.begin(*before(snapshot, number))
    allocated = sum(life.size for life in follower.blocks.values() if life.unused)
    reserved = sum(life.size for life in follower.segments.values()) + sum(size for _, _, size in follower.device.pages)
    peaks = [Peak(allocated, 0), Peak(reserved, 0)]
    for index, event in enumerate(events, start=1):
        more, added = follower.step(index, event)
        allocated, reserved = allocated + more, reserved + added
        peaks = [
            Peak(now, index) if now > peak.size else peak
            for now, peak in zip((allocated, reserved), peaks, strict=True)
        ]
    follower.device.peak_allocated, follower.device.peak_reserved = peaks
    return follower.device


# by address: requested, bytes if known, allocated, frames, metadata
Blocks = dict[int, tuple[int, int, bool, Frames | None, str]]
Segments = dict[int, tuple[int, bool, int]]  # by address: bytes, small, stream


def before(snapshot: Snapshot, number: int) -> tuple[Blocks, Segments, dict[bool, int]]:
    """What was there before a device's first event: blocks, segments, and the bytes of those that grow, by small."""
    blocks: Blocks = {}
    segments: Segments = {}
    pages = {True: 0, False: 0}
    for each in (segment for segment in snapshot.segments if segment.device == number):
        blocks |= {x.address: (x.requested, x.size, x.allocated, x.frames or None, x.said) for x in each.blocks}
        if each.expandable:
            pages[each.small] += each.size
        else:
            segments[each.address] = each.size, each.small, each.stream
    for event in reversed(snapshot.traces[number] if number < len(snapshot.traces) else ()):
        at, size = event.address, event.size
        match event.action:
            case "alloc":
                blocks.pop(at, None)
            case "free_completed":
                blocks[at] = size, 0, False, None, event.said
            case "free_requested" if at in blocks:
                blocks[at] = *blocks[at][:2], True, None, event.said
            case "segment_alloc":
                segments.pop(at, None)
            case "segment_free":
                segments[at] = size, is_small(size), event.stream
            case "segment_map" | "segment_unmap":
                pages[are_small(size)] += size if event.action == "segment_unmap" else -size
    return blocks, segments, pages


def is_small(segment: int) -> bool:
    """Whether a segment of so many bytes is of the small pool: those of the large one have 10 MiB or more."""
    return segment == SMALL_SEGMENT_BYTES


def are_small(pages: int) -> bool:
    """Whether pages of so many bytes are of the small pool: those of the large one have 20 MiB each."""
    return pages % LARGE_SEGMENT_BYTES != 0


class _Follower:
    """What is there while the events pass."""

    def __init__(self, snapshot: Snapshot, device: Device) -> None:
        self.settings, self.device = snapshot.settings, device
        self.blocks: dict[int, Life] = {}
        self.segments: dict[int, Life] = {}
        self.taken: list[int] = []  # the addresses of both, in order
        self.starts: list[int] = []

    def begin(self, blocks: Blocks, segments: Segments, pages: dict[bool, int]) -> None:
        """What was there before the first event."""
        self.device.pages = [(0, small, size) for small, size in pages.items() if size]
        for at, (size, small, _) in segments.items():
            self.reserve(0, at, size, small)
        self.taken = sorted(blocks)
        for at in self.taken:
            requested, size, allocated, frames, said = blocks[at]
            life = self.block(0, at, requested, size)
            life.frames, life.said, life.unused = frames, said, INFINITE if allocated else 0

    def reserve(self, index: int, at: int, size: int, small: bool) -> None:
        self.segments[at] = life = Life(at, size, small, index)
        self.device.segments.append(life)
        insort(self.starts, at)

    def block(self, index: int, at: int, requested: int, size: int = 0) -> Life:
        """A block of so many bytes, or of what the rules give it where it lies."""
        wanted = self.settings.block_bytes(requested)
        small = wanted <= MIB
        behind = bisect_right(self.starts, at) - 1
        segment = self.segments[self.starts[behind]] if behind >= 0 else None
        if not size:
            size = wanted
            if segment and at < segment.address + segment.size:
                following = bisect_right(self.taken, at)
                end = min([segment.address + segment.size, *self.taken[following : following + 1]])
                if end - at > wanted and not self.settings.splits(end - at, wanted, small):
                    size = end - at
        self.blocks[at] = life = Life(at, size, small, index, requested=requested)
        self.device.blocks.append(life)
        return life

    def step(self, index: int, event: Event) -> tuple[int, int]:
        """What an event adds to the bytes that are allocated, and to those that are reserved."""
        at, size, small = event.address, event.size, are_small(event.size)
        match event.action:
            case "alloc":
                lost = self.end(index, at) if at in self.blocks else 0
                insort(self.taken, at)
                life = self.block(index, at, size)
                life.frames, life.said = event.frames, event.said
                return life.size - lost, 0
            case "free_requested" if at in self.blocks:
                life = self.blocks[at]
                life.unused = min(life.unused, index)
                return -life.size if life.unused == index else 0, 0
            case "free_completed" if at in self.blocks:
                return -self.end(index, at, fits=True), 0
            case "segment_alloc":
                gone = self.give_back(index, at) if at in self.segments else 0
                self.reserve(index, at, size, is_small(size))
                return 0, size - gone
            case "segment_free" if at in self.segments:
                return 0, -self.give_back(index, at)
            case "segment_map":
                self.device.pages.append((index, small, size))
                return 0, size
            case "segment_unmap":
                self.device.pages.append((index, small, -size))
                return 0, -size
            case "oom":
                self.device.errors.append((index, size))
            case "free_requested" | "free_completed" | "segment_free":
                self.device.misfits += 1
        return 0, 0

    def end(self, index: int, at: int, fits: bool = False) -> int:
        """Ends a block; the bytes that were allocated of it until then."""
        life = self.blocks.pop(at)
        self.taken.pop(bisect_left(self.taken, at))
        self.device.misfits += not fits
        allocated = life.size if life.unused == INFINITE else 0
        life.died, life.unused = index, min(life.unused, index)
        return allocated

    def give_back(self, index: int, at: int) -> int:
        life = self.segments.pop(at)
        self.starts.pop(bisect_left(self.starts, at))
        life.died = index
        return life.size


def line_of(frames: Frames | None, skip: Iterable[str] = ("torch",)) -> str:
    """The innermost line of Python that lies in none of the packages `skip`."""
    if frames is None:
        return BEFORE
    for frame in frames:
        folders = frame.file.replace("\\", "/").split("/")
        if not any(name in folders[:-1] for name in skip):
            return f"{'/'.join(folders[-2:])}:{frame.line} {frame.function}"
    return NO_LINE


def report(snapshot: Snapshot, number: int, rows: int = 10, skip: Iterable[str] = ("torch",)) -> dict[str, Any]:
    """What a device's part of a snapshot says, as plain data; all but `event` and `blocks` are bytes."""
    device = follow(snapshot, number)
    peak = device.peak_allocated.event
    live = device.live(peak)
    largest = sorted(live, key=lambda block: (-block.size, block.address))[:rows]
    return {
        "device": number,
        "events": device.events,
        "misfits": device.misfits,
        "peak_allocated": device.peak_allocated._asdict(),
        "peak_reserved": device.peak_reserved._asdict(),
        "by_line": _grouped(live, lambda block: line_of(block.frames, skip), "line", rows),
        "by_size": _grouped(live, lambda block: block.requested, "requested", rows),
        "largest": [
            {"size": block.size, "requested": block.requested, "event": block.born, "line": line_of(block.frames, skip)}
            for block in largest
        ],
        "gap_at_peak_allocated": device.gap(peak)._asdict(),
        "gap_at_peak_reserved": device.gap(device.peak_reserved.event)._asdict(),
        "gap_at_end": device.gap(device.events)._asdict(),
        "out_of_memory": [{"event": event, "wanted": wanted} for event, wanted in device.errors[:rows]],
    }


def _grouped(live: Iterable[Life], by: Callable[[Life], object], name: str, rows: int) -> list[dict[str, Any]]:
    sizes: Counter[object] = Counter()
    blocks: Counter[object] = Counter()
    for block in live:
        key = by(block)
        sizes[key] += block.size
        blocks[key] += 1
    ranked = sorted(sizes.items(), key=lambda item: (-item[1], str(item[0])))
    shown = [{name: key, "size": size, "blocks": blocks[key]} for key, size in ranked[:rows]]
    if rest := ranked[rows:]:
        shown.append({name: None, "size": sum(size for _, size in rest), "blocks": sum(blocks[key] for key, _ in rest)})
    return shown


def mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"


GAP = {
    "requested": "requested",
    "rounding": "rounding",
    "waiting": "freed, another stream may use it",
    "pieces_small": "free pieces, small pool",
    "pieces_large": "free pieces, large pool",
    "segments": "segments that hold nothing",
}


def printed(found: dict[str, Any]) -> Iterator[str]:
    """A report as lines of a terminal."""
    events = found["events"]
    yield f"device {found['device']}: {events:,} events"
    if found["misfits"]:
        yield f"  {found['misfits']:,} of them contradict those before: was recording interrupted?"
    for name in ("allocated", "reserved"):
        peak = found[f"peak_{name}"]
        when = f"after event {peak['event']:,}" if peak["event"] else "before the first event"
        yield f"  peak {name:<9} {mib(peak['size']):>16}  {when}"
    for each in found["out_of_memory"]:
        yield f"  out of memory at event {each['event']:,}: {mib(each['wanted'])} were wanted"
    yield "  allocated at its peak, by line"
    for row in found["by_line"]:
        yield f"  {mib(row['size']):>16} {row['blocks']:>7,} × {row['line'] or 'other lines'}"
    yield "  by size"
    for row in found["by_size"]:
        each = "other sizes" if row["requested"] is None else f"{row['requested']:,} B requested"
        yield f"  {mib(row['size']):>16} {row['blocks']:>7,} × {each}"
    yield "  the largest blocks"
    for row in found["largest"]:
        since = f"event {row['event']:,}: {row['line']}" if row["event"] else row["line"]
        yield f"  {mib(row['size']):>16} {since}"
    gaps = [found[f"gap_at_{when}"] for when in ("peak_allocated", "peak_reserved", "end")]
    yield f"  {'why more is reserved, at':<32}{'peak allocated':>16}{'peak reserved':>16}{'the end':>16}"
    for name, said in GAP.items():
        if any(gap[name] for gap in gaps):
            yield f"  {said:<32}" + "".join(f"{mib(gap[name]):>16}" for gap in gaps)
    yield f"  {'reserved':<32}" + "".join(f"{mib(sum(gap.values())):>16}" for gap in gaps)


def main(arguments: list[str]) -> int:
    """Prints what a snapshot says; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="flops-bytes snapshot", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="of torch.cuda.memory._dump_snapshot(file)")
    parser.add_argument("--json", action="store_true", help="as JSON, in bytes")
    parser.add_argument("--rows", type=int, default=10, metavar="N", help="lines, sizes and blocks that are named; 10")
    parser.add_argument(
        "--skip", action="append", default=["torch"], metavar="PACKAGE", help="frames to look past: torch, and this"
    )
    options = parser.parse_args(arguments)
    try:
        snapshot = read(options.file)
    except SnapshotError as error:
        print(f"flops-bytes snapshot: {error}", file=sys.stderr)
        return 2
    used = {each.device for each in snapshot.segments} | {n for n, events in enumerate(snapshot.traces) if events}
    found = [report(snapshot, number, max(1, options.rows), options.skip) for number in sorted(used)]
    if options.json:
        simulated = {"simulated": snapshot.simulated} if snapshot.simulated else {}
        print(json.dumps(simulated | {"devices": found}, indent=2))
    else:
        if snapshot.simulated:
            print(f"simulated by {snapshot.simulated}: no GPU has run")
        print(
            "\n".join(line for each in found for line in printed(each))
            or "nothing was allocated, and no event recorded"
        )
    return 0
