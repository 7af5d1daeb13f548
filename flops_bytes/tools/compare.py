"""Two steps at their peaks: what the one holds and the other does not. Planned, counted or recorded, as snapshots.

Lines of two programs have no names in common, so blocks are matched by their bytes first, one by one, and what is left
of each is told by line.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.memory.allocator import MIB
from flops_bytes.tools.snapshot import SnapshotError, follow, line_of, mib, read


class Held(NamedTuple):
    """A block at the peak."""

    requested: int  # bytes
    line: str
    said: str  # its kind and moment, or what the program said (torch.cuda.memory._set_memory_metadata)


class Peaked(NamedTuple):
    """What a snapshot's device has allocated at its peak."""

    simulated: str  # by what; nothing if it was recorded
    device: int
    event: int
    allocated: int  # bytes, in blocks of whole 512
    wanted: int  # bytes for which there was no memory
    blocks: list[Held]  # the oldest first: the last of them makes the peak

    @property
    def requested(self) -> int:
        return sum(block.requested for block in self.blocks)


def peak_of(path: Path, skip: Sequence[str] = ("torch",)) -> Peaked:
    """Of a file, and in it of the device that had most. Raises SnapshotError."""
    snapshot = read(path)
    used = {each.device for each in snapshot.segments} | {n for n, events in enumerate(snapshot.traces) if events}
    devices = [follow(snapshot, number) for number in sorted(used)]
    device = max(devices, key=lambda each: each.peak_allocated.size, default=None)
    if not device or not device.peak_allocated.size:
        raise SnapshotError(f"{path}: nothing is allocated in it; name a file of a step")
    size, event = device.peak_allocated
    blocks = [Held(each.requested, line_of(each.frames, skip), each.said) for each in device.live(event)]
    wanted = max((bytes_wanted for _, bytes_wanted in device.errors), default=0)
    return Peaked(snapshot.simulated, device.number, event, size, wanted, blocks)


def alone(ours: Sequence[Held], theirs: Sequence[Held]) -> list[Held]:
    """Our blocks for which the others have none of as many bytes; of equal ones the lines decide, then the newest."""
    lines, sizes = Counter(each[:2] for each in theirs), Counter(each.requested for each in theirs)
    waiting: list[Held] = []
    for block in ours:
        if lines[block[:2]]:
            lines[block[:2]] -= 1
            sizes[block.requested] -= 1
        else:
            waiting.append(block)
    found = []
    for block in waiting:
        if sizes[block.requested] > 0:
            sizes[block.requested] -= 1
        else:
            found.append(block)
    return found


def compare(peaks: tuple[Peaked, Peaked], rows: int = 10) -> dict[str, Any]:
    """Two peaks: the bytes that are alike, and what each holds alone, by line, the most first."""
    sides = []
    for peak, other in (peaks, peaks[::-1]):
        more = alone(peak.blocks, other.blocks)
        side: dict[str, Any] = peak._asdict() | {"requested": peak.requested, "blocks": len(peak.blocks)}
        side |= {"line": peak.blocks[-1].line, "said": peak.blocks[-1].said}
        side |= {"alone": sum(block.requested for block in more), "alone_by_line": list(by_line(more, rows))}
        sides.append(side)
    first, second = sides
    more_bytes = second["requested"] - first["requested"]
    return {"sides": sides, "more": more_bytes, "alike": first["requested"] - first["alone"]}


def by_line(blocks: Sequence[Held], rows: int) -> Iterator[dict[str, Any]]:
    """Bytes and blocks by line and moment; `each` are the bytes of a block if all have as many."""
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for block in blocks:
        groups[block.line, block.said].append(block.requested)
    ranked = sorted(groups.items(), key=lambda item: (-sum(item[1]), item[0]))
    for (line, said), sizes in ranked[:rows]:
        each = sizes[0] if len(set(sizes)) == 1 else None
        yield {"line": line, "said": said, "requested": sum(sizes), "blocks": len(sizes), "each": each}
    if rest := [size for _, sizes in ranked[rows:] for size in sizes]:
        yield {"line": None, "said": "", "requested": sum(rest), "blocks": len(rest), "each": None}


def printed(found: dict[str, Any], names: Sequence[str]) -> Iterator[str]:
    """A comparison as lines of a terminal."""
    for letter, name, side in zip("AB", names, found["sides"], strict=True):
        made = f"simulated by {side['simulated']}" if side["simulated"] else "recorded"
        yield f"{letter}  {name}: {made}"
        blocks = f"{side['blocks']:,} blocks, after event {side['event']:,}"
        yield f"   peak {sized(side['requested'])} in {blocks}: {where(side)}"
        if side["wanted"]:
            yield f"   out of memory: {sized(side['wanted'])} were wanted besides"
    more = found["more"]
    yield f"{'B' if more > 0 else 'A'} holds {sized(abs(more))} more" if more else "both hold as much"
    yield f"{sized(found['alike']):>16} in blocks of the same size"
    for letter, side in zip("AB", found["sides"], strict=True):
        yield f"{sized(side['alone']):>16} {letter} alone"
        for row in side["alone_by_line"]:
            each = f" × {sized(row['each'])}" if row["each"] and row["blocks"] > 1 else " ×"
            yield f"{sized(row['requested']):>18} {row['blocks']:>6,}{each} {where(row)}"


def sized(size: int) -> str:
    """MiB, but bytes of what would be 0.0."""
    return mib(size) if size >= MIB // 20 else f"{size:,} B"


def where(row: dict[str, Any]) -> str:
    return " ".join([row["line"] or "other lines", *([f"({row['said']})"] if row["said"] else [])])


def main(arguments: list[str]) -> int:
    """Prints what two snapshots differ in; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="flops-bytes compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "first", type=Path, metavar="A", help="of plan --snapshot, count --snapshot or _dump_snapshot()"
    )
    parser.add_argument("second", type=Path, metavar="B", help="another")
    parser.add_argument("--json", action="store_true", help="as JSON, in bytes")
    parser.add_argument("--rows", type=int, default=10, metavar="N", help="lines that are named of each; 10")
    parser.add_argument(
        "--skip", action="append", default=["torch"], metavar="PACKAGE", help="frames to look past: torch, and this"
    )
    options = parser.parse_args(arguments)
    first, second = options.first, options.second
    try:
        found = compare((peak_of(first, options.skip), peak_of(second, options.skip)), max(1, options.rows))
    except SnapshotError as error:
        print(f"flops-bytes compare: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(printed(found, [first.name, second.name])))
    return 0
