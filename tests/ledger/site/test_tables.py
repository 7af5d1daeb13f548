"""A table shows the rows and columns that its block says; those that no device of the page fills are not shown, and one
line says which."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from markdown import Markdown

from ledger.book import Book, LedgerError
from ledger.record import Record
from ledger.site import makeExtension
from ledger.site.chapter import Chapter
from ledger.site.check import check
from ledger.site.quote import QuoteError, open_source
from ledger.site.tables import Table
from ledger.site.variants import tables
from ledger.snippet import Snippet

FIGURES = """\
def rows(values, labels):
    cells = [[f"{{{{ gpu.cells.{row}{column} }}}}" for column in "xyz"] for row in "abc"]
    return [["", "X", "Y", "Z"], *([row, *line] for row, line in zip("abc", cells))]
def mixed(values, labels):
    speed = values["gpu.speeds"]
    return [["name", "known", "speed"], ["fast", "{{ gpu.EXACT }}", speed or "—"], ["", "", ""]]
def wrong(values, labels):
    return [["", "X"], ["a", "{{ gpu.nothing }}"]]
"""
SNIPPET = "EXACT = 7\ncells = dict.fromkeys(['ax'])\nspeeds = None\n"
TABLE = "| | X | Y | Z |\n|---|---|---|---|\n" + "".join(
    f"| {row} |" + "".join(f" {{{{ gpu.cells.{row}{column} }}}} |" for column in "xyz") + "\n" for row in "abc"
)
BLOCK = "/// table | gpu.rows\n///\n"
DATA = """\
/// table
    rows: [a, b, c]
    columns:
        "": "{row}"
        X: "{{ gpu.cells.{row}x }}"
        Y: "{{ gpu.cells.{row}y }}"
        Z: "{{ gpu.cells.{row}z }}"
///
"""


@pytest.fixture
def book(small_book: Book) -> Book:
    (small_book.snippets / "gpu.py").write_text(SNIPPET)
    (small_book.root / "figures" / "gpu.py").write_text(FIGURES)
    return small_book


def record(book: Book, device: str, filled: dict[str, int], speeds: str | None = None) -> None:
    """A record of a device that has some of the cells."""
    (good,) = book.measurements.glob("*/good.json")
    of_good = Record.read(good)
    cells: dict[str, Any] = {row + column: filled.get(row + column) for row in "abc" for column in "xyz"}
    dataclasses.replace(
        of_good,
        snippet="gpu",
        hash=Snippet.read(book.snippets / "gpu.py").hash,
        device={**of_good.device, "id": device},
        values={"EXACT": 7, "cells": cells, "speeds": speeds},
        outputs={},
    ).write(book.measurements / device / "gpu.json")


def rewrite(book: Book, device: str, **values: Any) -> None:
    """Gives a device's record other values."""
    path = book.measurements / device / "gpu.json"
    of_gpu = Record.read(path)
    dataclasses.replace(of_gpu, values={**of_gpu.values, **values}).write(path)


def show(book: Book, page: str, language: str = "en", device: str = "first") -> list[str]:
    """A page's header and body cells and its paragraphs, in order."""
    extension = makeExtension(root=str(book.root), local=False, language=language, default_device=device)
    html = Markdown(extensions=["tables", extension]).convert(page).partition('<details class="provenance"')[0]
    html = re.sub(r'<div class="device-line".*?</div>|\n', "", html)
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][ >].*?</t[hd]>|<p[ >].*?</p>", html)]


@pytest.mark.parametrize("page", [BLOCK, DATA, TABLE], ids=["block", "data", "text"])
def test_what_no_device_fills_is_not_shown(book: Book, page: str) -> None:
    record(book, "first", {"ax": 1})
    shown = [cell.split(">")[-1] for cell in show(book, page)]
    assert shown == ["", "X", "a", "1", "Not measured on any device so far: Y; Z; b; c."]
    record(book, "second", {"by": 2})
    assert show(book, page) == ["", "X", "Y", "a", "1", "—", "b", "—", "—", "Not measured on any device so far: Z; c."]
    assert show(book, page, device="second")[3:9] == ["a", "—", "—", "b", "—", "2"]
    assert show(book, page, "zh")[-1] == "以下各项尚无实测记录：Z；c。"
    record(book, "third", {"bz": 3, "cx": 4})
    assert show(book, page)[-1] == "—"


@pytest.mark.parametrize("page", [BLOCK, DATA, TABLE], ids=["block", "data", "text"])
def test_of_a_table_that_nobody_fills_the_names_are_left(book: Book, page: str) -> None:
    record(book, "first", {})
    assert show(book, page) == ["Not measured on any device so far: a; b; c."]


def test_a_dash_of_a_tables_own_counts_where_no_device_has_better(book: Book) -> None:
    page = "/// table | gpu.mixed\n///\n"
    record(book, "first", {})
    assert show(book, page) == ["name", "known", "fast", "7", "", "", "Not measured on any device so far: speed."]
    record(book, "second", {}, "9 B/s")
    assert show(book, page)[:3] == ["name", "known", "speed"]
    assert "No device" not in "".join(show(book, page))


def test_what_is_left_of_a_table_is_aligned_as_it_was(book: Book) -> None:
    record(book, "first", {"ay": 1})
    page = TABLE.replace("|---|---|---|---|", "|---|:--|--:|:-:|")
    html = Markdown(extensions=["tables", makeExtension(root=str(book.root), local=False)]).convert(page)
    assert re.findall(r'<th style="text-align: (\w+);">(\w+)</th>', html) == [("right", "Y")]


def test_a_column_of_numbers_stands_at_the_right(book: Book) -> None:
    record(book, "first", {"ax": 1, "bx": 2}, "9 B/s")
    page = """\
/// table
    rows: [a, b]
    columns:
        numbers: "{{ gpu.cells.{row}x }}"
        links: "[{{ gpu.cells.{row}x }}](good.md) "
        a text of a record: "{{ gpu.speeds }}"
        a sentence: "{{ gpu.cells.{row}x }} of 3"
///
"""
    html = Markdown(extensions=["tables", makeExtension(root=str(book.root), local=False)]).convert(page)
    assert re.findall(r'<th scope="col" style="text-align: right;">([^<]*)</th>', html) == ["numbers", "links"]
    assert html.count('<td style="text-align: right;">') == 4


def test_what_is_not_shown_is_not_listed_as_quoted(book: Book) -> None:
    record(book, "first", {"ax": 1})
    for page in (BLOCK, DATA, TABLE):
        html = Markdown(extensions=["tables", makeExtension(root=str(book.root), local=False)]).convert(page)
        assert "gpu.cells.ax" in html and "gpu.cells.by" not in html


def test_a_build_of_what_is_no_table_names_it(book: Book) -> None:
    for block, message in (
        ("/// table\n///\n", "/// table: a table needs columns:"),
        (BLOCK, "/// table | gpu.rows: "),
    ):
        (book.root / "figures" / "gpu.py").write_text("def rows(values, labels):\n    return []\n")
        with pytest.raises(LedgerError, match=re.escape(message)):
            Markdown(extensions=[makeExtension(root=str(book.root), local=False)]).convert(block)


def test_what_is_not_shown_is_checked(book: Book) -> None:
    record(book, "first", {})
    (book.docs / "en" / "page.md").write_text("/// table | gpu.wrong\n///\n")
    assert "gpu.nothing cannot be quoted" in "\n".join(map(str, check(book)))


# What a block says

VALUES = {
    "s.sizes": {"16": 1, "1024": 2, "128": 3, "x": 4},
    "s.few": {"a": ["one", 2048], "b": None},
    "s.few.a": ["one", 2048],
    "s.few.b": None,
    "s.codes": ["x + y", None, "z"],
    "s.cases": [{"code": "f(x)", "number": 65536}],
    "s.nothing": None,
}
SAYS = {
    "keys with labels": (
        'rows: {a: One, b: Two}\ncolumns: {Name: "{label}", Value: "{{ s.v.{row} }}"}',
        "Name|Value; One|{{ s.v.a }}; Two|{{ s.v.b }}",
    ),
    "keys alone, numbers too": (
        'rows: [8, sixty four]\ncolumns: {"": "`{row}`", V: "{{ s.{row}.{row}:.1f }} ms"}',
        "|V; `8`|{{ s.8.8:.1f }} ms; `sixty four`|{{ s.sixty four.sixty four:.1f }} ms",
    ),
    "texts by name": (
        'rows: {a: {label: One, formula: \'$\\tfrac{T}{2}$\'}}\ncolumns: {N: "{label}", F: "{formula}"}',
        r"N|F; One|$\tfrac{T}{2}$",
    ),
    "a row that gives its cells": (
        'rows: {a: One, all: ["**All**", "{row}"]}\ncolumns: {N: "{label}", V: "{{ s.{row} }}"}',
        "N|V; One|{{ s.a }}; **All**|{row}",
    ),
    "headers that are alike": ('rows: [a]\ncolumns: [R: "{row}", V: "1", V: "2"]', "R|V|V; a|1|2"),
    "a dictionary's keys, numbers in their order": (
        'of: s.sizes\ncolumns: {R: "{row}", I: "{item}"}',
        "R|I; 16|1; 128|3; 1024|2; x|4",
    ),
    "a list's places, without what is None": (
        'of: s.codes\ncolumns: {R: "{row}", C: "`{item}`"}',
        "R|C; 0|`x + y`; 2|`z`",
    ),
    "parts of items": ('of: s.cases\ncolumns: {C: "{item.code}", N: "{item.number:full}"}', "C|N; f(x)|65,536"),
    "rows in an order of their own": (
        'of: s.few\nrows: {b: B, a: A}\ncolumns: {L: "{label}", I: "{item.0} {item.1}"}',
        "L|I; A|one 2048",
    ),
    "nothing yet": ('of: s.nothing\ncolumns: {R: "{row}"}', "R"),
}


@pytest.mark.parametrize("case", SAYS)
def test_a_block_says_its_rows_and_columns(case: str) -> None:
    options, expected = SAYS[case]
    lines = "".join(f"    {line}\n" for line in options.splitlines())
    (block,) = Chapter.parse(f"/// table\n{lines}///\n", Path()).blocks
    table = Table.parse(block.argument, block.options)
    assert table and "; ".join("|".join(row) for row in table.filled(VALUES)) == expected


def test_a_row_is_shown_on_the_devices_that_have_it(book: Book) -> None:
    (book.snippets / "gpu.py").write_text(SNIPPET.replace("speeds", "measured_speeds"))
    for device, slow, fast in (("first", 1, None), ("second", None, 3)):
        record(book, device, {})
        rewrite(book, device, EXACT=7, measured_speeds={"slow": slow, "fast": fast})
    source = open_source(book, "first", local=False)
    options = {"of": "gpu.measured_speeds", "columns": {"N": "{row}", "V": "{item}"}}
    by_device = {device: rows for devices, rows in tables(source, "en", "", options) for device in devices}
    assert by_device["first"] == [["N", "V"], ["slow", "1"]] and by_device["second"] == [["N", "V"], ["fast", "3"]]
    named = {**options, "rows": {"slow": "Slow", "fast": "Fast"}, "columns": {"N": "{label}"}}
    by_device = {device: rows for devices, rows in tables(source, "en", "", named) for device in devices}
    assert by_device["first"] == [["N"], ["Slow"]] and by_device["second"] == [["N"], ["Fast"]]


def test_a_text_of_a_record_is_no_markup_in_a_cell(book: Book) -> None:
    record(book, "first", {})
    rewrite(book, "first", cells=["*x* [y] `{row}`"])
    block = '/// table\n    of: gpu.cells\n    columns:\n        A: "{item}"\n///\n'
    assert show(book, block)[:2] == ["A", "*x* [y] `{row}`"]
    linked = {"of": "gpu.cells", "columns": {"A": "[x]({item})"}}
    with pytest.raises(QuoteError, match=r"a cell links to .* itself"):
        tables(open_source(book, "", local=False), "en", "", linked)
