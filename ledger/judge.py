"""A folder of records that comes from another machine: is each valid, fresh, equal in all that is exact, and plausible?

What is plausible stands in measurements/expected.toml, by device: the lowest and the highest that a value may be.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.book import Book, LedgerError, Problem
from ledger.compare import leaves, moved
from ledger.measure import read_or_none
from ledger.record import Record, is_stale, read_folder
from ledger.snippet import Snippet
from ledger.units import format_value, unit_of_path


def judge(book: Book, folder: Path) -> tuple[list[str], list[str]]:
    """What the records say at first sight, a line each, and all that is wrong with them.

    Raises LedgerError if no record lies in the folder.
    """
    if not any(folder.glob("[!.]*.json")):
        raise LedgerError([Problem(folder, 0, "no records lie here; name the folder of one device")])
    folder = folder.resolve()
    files = book.snippet_files()
    records, wrong = read_folder(folder, files, folder.name)
    invalid = {problem.path.stem for problem in wrong}
    problems, told, later = [f"invalid: {problem}" for problem in wrong], [], []
    for name, path in files.items():
        snippet = Snippet.read(path)
        if record := records.get(name):
            told.append(_line(record))
            problems += _differences(book, folder, record)
            if is_stale(record, snippet):
                problems.append(f"stale: {name} was measured with other code than lies here")
        elif snippet.is_slow:
            later.append(name)
        elif name not in invalid:
            problems.append(f"absent: {name}")
    seconds = sum(record.seconds for record in records.values())
    told.append(f"{len(records)} records, {seconds:.0f} s; slow ones not recorded: {', '.join(later) or 'none'}")
    over = [f"{name}.{value}" for name, record in records.items() for value in record.over_peak()]
    told += [f"over the peak, which a clock above the datasheet's may explain: {', '.join(over)}"] if over else []
    for name, text, is_expected in _expected(book, folder.name, records):
        told.append(f"{name:64} {text}")
        if not is_expected:
            problems.append(f"not expected: {name} is {text}")
    return told, problems


def _line(record: Record) -> str:
    """A record's duration, its widest spread and what it lacks."""
    widest = record.largest_spread
    spread = f"spread {widest[0]:.1%}" if widest else ""
    absent = ", ".join(".".join(path) for path, value in leaves([], record.values) if value is None)
    return f"{record.snippet:27}{record.seconds:6.1f} s  {spread:15}{absent and f'without {absent}'}".rstrip()


def _differences(book: Book, folder: Path, record: Record) -> Iterator[str]:
    """Where exact values are not those that other devices' records of the same code hold."""
    for path in sorted(book.measurements.glob(f"*/{record.snippet}.json")):
        if path.parent.resolve() == folder:
            continue
        other = read_or_none(path)
        for line in moved(other.values, record.values) if other and other.hash == record.hash else ():
            yield f"not exact: {record.snippet}.{line} (there: {path.parent.name})"


def _expected(book: Book, device: str, records: dict[str, Record]) -> Iterator[tuple[str, str, bool]]:
    """Each value that something is expected of: its name, what it is beside that, and whether it is as expected.

    What the device lacks is neither plausible nor not.
    """
    for name, (low, high) in expectations(book).get(device, {}).items():
        snippet, *path = name.split(".")
        if snippet not in records:
            continue
        value = dict(leaves([], records[snippet].values)).get(tuple(path))
        said, lowest, highest = (format_value(each, unit_of_path(path)) for each in (value, low, high))
        is_expected = low <= value <= high if isinstance(value, int | float) else value is None
        yield name, f"{said} (expected {lowest} to {highest})", is_expected


def expectations(book: Book) -> dict[str, dict[str, Any]]:
    """The bounds of each device's values, by `snippet.path.to.value`; none if nobody wrote any down."""
    path = book.measurements / "expected.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
