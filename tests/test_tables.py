"""Rows and columns of a table that no device of the page fills are not shown, and one line says which."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from markdown import Markdown

from ledger.book import Book
from ledger.record import Record
from ledger.site import makeExtension
from ledger.site.check import check
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


def show(book: Book, page: str, language: str = "en", device: str = "first") -> list[str]:
    """A page's header and body cells and its paragraphs, in order."""
    extension = makeExtension(root=str(book.root), local=False, language=language, default_device=device)
    html = Markdown(extensions=["tables", extension]).convert(page).partition('<details class="provenance"')[0]
    html = re.sub(r'<div class="device-line".*?</div>|\n', "", html)
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][ >].*?</t[hd]>|<p[ >].*?</p>", html)]


@pytest.mark.parametrize("page", [BLOCK, TABLE], ids=["block", "text"])
def test_what_no_device_fills_is_not_shown(book: Book, page: str) -> None:
    record(book, "first", {"ax": 1})
    shown = [cell.split(">")[-1] for cell in show(book, page)]
    assert shown == ["", "X", "a", "1", "No device here has: Y; Z; b; c."]
    record(book, "second", {"by": 2})
    assert show(book, page) == ["", "X", "Y", "a", "1", "—", "b", "—", "—", "No device here has: Z; c."]
    assert show(book, page, device="second")[3:9] == ["a", "—", "—", "b", "—", "2"]
    assert show(book, page, "zh")[-1] == "这里的设备上都没有：Z；c。"
    record(book, "third", {"bz": 3, "cx": 4})
    assert show(book, page)[-1] == "—"


@pytest.mark.parametrize("page", [BLOCK, TABLE], ids=["block", "text"])
def test_of_a_table_that_nobody_fills_the_names_are_left(book: Book, page: str) -> None:
    record(book, "first", {})
    assert show(book, page) == ["No device here has: a; b; c."]


def test_a_dash_of_a_tables_own_counts_where_no_device_has_better(book: Book) -> None:
    page = "/// table | gpu.mixed\n///\n"
    record(book, "first", {})
    assert show(book, page) == ["name", "known", "fast", "7", "", "", "No device here has: speed."]
    record(book, "second", {}, "9 B/s")
    assert show(book, page)[:3] == ["name", "known", "speed"]
    assert "No device" not in "".join(show(book, page))


def test_what_is_left_of_a_table_is_aligned_as_it_was(book: Book) -> None:
    record(book, "first", {"ay": 1})
    page = TABLE.replace("|---|---|---|---|", "|---|:--|--:|:-:|")
    html = Markdown(extensions=["tables", makeExtension(root=str(book.root), local=False)]).convert(page)
    assert re.findall(r'<th style="text-align: (\w+);">(\w+)</th>', html) == [("right", "Y")]


def test_what_is_not_shown_is_not_listed_as_quoted(book: Book) -> None:
    record(book, "first", {"ax": 1})
    for page in (BLOCK, TABLE):
        html = Markdown(extensions=["tables", makeExtension(root=str(book.root), local=False)]).convert(page)
        assert "gpu.cells.ax" in html and "gpu.cells.by" not in html


def test_what_is_not_shown_is_checked(book: Book) -> None:
    record(book, "first", {})
    (book.docs / "en" / "page.md").write_text("/// table | gpu.wrong\n///\n")
    assert "gpu.nothing cannot be quoted" in "\n".join(map(str, check(book)))
