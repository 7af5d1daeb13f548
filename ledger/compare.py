"""This machine beside a published device, value by value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ledger.book import Book, LedgerError, Problem
from ledger.record import LOCAL, Record, Records, timings
from ledger.snippet import Snippet
from ledger.units import Plain, format_value, is_device_value, unit_of_path

MAX_DISAGREEMENTS = 10  # lines
NAME = re.compile(r"[^\W\d]\w*")
CUDA = "cuda"  # a section with this name in it asks what the device is
SAME = 1e-12  # Python 3.12 adds floats with less error than 3.11: the last digits of a sum differ


def compare(book: Book, device: str | None) -> Iterator[str]:
    """Lines of a table: each device value here, there, and their ratio; grouped by snippet.

    Exact values are listed only where they differ, which they never should. Raises LedgerError if there is no such
    device, or nothing has been run here.
    """
    records = Records.load(book)
    published = sorted(records.by_device.keys() - {LOCAL})
    if device not in published and (device or len(published) != 1):
        have = ", ".join(published) or "none yet"
        raise LedgerError([Problem(book.measurements, 0, f"name a device to compare with; there are: {have}")])
    there = records.by_device[device or published[0]]
    here = records.by_device.get(LOCAL, {})
    if not here:
        raise LedgerError([Problem(book.cache, 0, "nothing has been run on this machine: python -m ledger run")])
    yield f"{'':44}{_name(here):>18}{_name(there):>18}{'ratio':>9}"
    for snippet in sorted(here.keys() & there.keys()):
        rows = list(_rows(here[snippet], there[snippet]))
        if rows:
            changed = "" if here[snippet].hash == there[snippet].hash else "  (measured with different code)"
            yield f"\n{snippet}{changed}"
            yield from rows
    for snippet in sorted(there.keys() - here.keys()):
        yield f"\n{snippet}: not run here"


def disagreements(records: Records) -> Iterator[str]:
    """Lines of timings that a local run and the committed record of the same device give too differently for their
    spreads, the most distant first: the record is off, or this machine is not idle."""
    found: list[tuple[float, str]] = []
    for device, published in records.by_device.items():
        for snippet, here in records.by_device.get(LOCAL, {}).items() if device != LOCAL else ():
            there = published.get(snippet)
            if there is None or there.hash != here.hash or there.device["id"] != here.device["id"]:
                continue
            theirs = timings(there.values)
            for path, ours in timings(here.values).items():
                if path in theirs and (factor := _apart(ours, theirs[path])):
                    seconds = [format_value(timing["median_seconds"], "seconds") for timing in (ours, theirs[path])]
                    line = f"  {snippet}.{path}: {seconds[0]} here, {seconds[1]} in {device}, {factor:.3g}× apart"
                    found.append((factor, line))
    if found:
        found.sort(key=lambda pair: -pair[0])
        more = f", the first {MAX_DISAGREEMENTS}" if len(found) > MAX_DISAGREEMENTS else ""
        yield f"this machine differs from its committed records by more than the spreads in {len(found)} timings{more}:"
        yield from (line for _, line in found[:MAX_DISAGREEMENTS])


def moved(there: Plain, here: Plain) -> Iterator[str]:
    """Lines of exact values that differ between two runs of one snippet, or that only one of them has."""
    theirs, ours = (
        {path: value for path, value in leaves([], values) if not is_device_value(list(path))}
        for values in (there, here)
    )
    for path in sorted(theirs.keys() | ours.keys()):
        if path not in theirs or path not in ours or not _is_same(theirs[path], ours[path]):
            texts = [repr(values[path]) if path in values else "nothing" for values in (theirs, ours)]
            yield f"{'.'.join(path)}: {texts[0]} there, {texts[1]} here"


def _is_same(there: Plain, here: Plain) -> bool:
    if isinstance(there, float) and isinstance(here, float):
        return math.isclose(there, here, rel_tol=SAME)
    return there == here


def misprinted(
    snippet: Snippet, theirs: dict[str, str], there: dict[str, Plain], ours: dict[str, str], here: dict[str, Plain]
) -> Iterator[str]:
    """Lines of sections that print other numbers in two runs, there and here, and use nothing that is measured.

    That is: their code names no value that the two devices measured otherwise, and asks nothing of torch.cuda.
    """
    measured = {
        name
        for name in here
        if there.get(name) != here[name]
        and any(is_device_value(list(place)) for place, _ in leaves([name], here[name]))
    }
    for section in sorted(theirs.keys() & ours.keys() & snippet.sections.keys()):
        lines = snippet.sections[section]
        code = "\n".join(snippet.source.splitlines()[lines.first_line - 1 : lines.last_line])
        if theirs[section] != ours[section] and not (measured | {CUDA}) & set(NAME.findall(code)):
            yield f"section {section!r} prints other numbers, though it uses nothing that was measured"


def _apart(ours: dict[str, Any], theirs: dict[str, Any]) -> float | None:
    """The larger median over the smaller; None if their spreads, each a share of its median, explain the difference."""
    medians = [timing["median_seconds"] for timing in (ours, theirs)]
    explained = sum(timing["median_seconds"] * timing["spread"] for timing in (ours, theirs))
    return max(medians) / min(medians) if min(medians) > 0 and max(medians) - min(medians) > explained else None


def _name(records: dict[str, Record]) -> str:
    return str(next(iter(records.values())).device["name"])[:17]


def _rows(here: Record, there: Record) -> Iterator[str]:
    ours, theirs = (
        {path: value for path, value in leaves([], record.values) if not isinstance(value, dict | list)}
        for record in (here, there)
    )
    for path in sorted(ours.keys() | theirs.keys()):
        left, right = ours.get(path), theirs.get(path)
        if not is_device_value(list(path)):
            if path in ours and path in theirs and left != right:
                yield f"  {'.'.join(path):42}{left!s:>18}{right!s:>18}   differs, though it is exact"
            continue
        unit = unit_of_path(list(path))
        texts = [format_value(value, unit) for value in (left, right)]
        numbers = [value for value in (left, right) if isinstance(value, int | float) and not isinstance(value, bool)]
        ratio = f"{numbers[0] / numbers[1]:8.3g}×" if len(numbers) == 2 and numbers[1] else ""
        yield f"  {'.'.join(path):42}{texts[0]:>18}{texts[1]:>18}{ratio:>9}"


def leaves(path: list[str], value: Plain) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that holds no other, with its path."""
    if isinstance(value, dict | list) and (value or not path):
        items = value.items() if isinstance(value, dict) else ((str(i), item) for i, item in enumerate(value))
        for key, item in items:
            yield from leaves([*path, key], item)
    else:
        yield tuple(path), value
