"""What others published is as it was extracted: each file's hash, each interval in order, each number in range."""

from __future__ import annotations

import hashlib

from published.readings import read_all
from tests.conftest import ROOT

FOLDER = ROOT / "measurements" / "published"
SUMS = dict(line.split("  ./")[::-1] for line in (FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
READINGS = read_all(FOLDER)
RANGES = {"memory": (2**28, 2 * 10**12), "rate": (0.01, 10**8), "mfu": (0.01, 1.0)}


def test_every_file_is_as_it_was_written() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    found = {path.relative_to(FOLDER).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    moved = sorted(name for name in {*found, *SUMS} if found.get(name) != SUMS.get(name))
    assert not moved, (
        "a number typed over? If a command wrote these, or a source was added: published/README.md, SHA256SUMS"
    )


def test_a_reading_and_what_was_said_of_it_are_in_range() -> None:
    for reading in READINGS:
        low, high = RANGES[reading.kind]
        assert low <= reading.value <= high, reading
        for said in filter(None, (reading.first, reading.metered)):
            assert 0 < said[0] <= said[1] and reading.value / 25 < said[1] and said[0] < 25 * reading.value, reading


def test_rows_stand_in_the_order_of_their_lines() -> None:
    by_table: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for each in READINGS:
        if each.line:
            by_table.setdefault((each.source, each.table, each.path), []).append((each.row, each.line))
    assert [table for table, rows in by_table.items() if rows != sorted(rows, key=lambda row: row[1])] == []
