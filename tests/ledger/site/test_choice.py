"""What a page shows of a device is that device's own, and marked where it is stale: tried on a small page of two."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from markdown import Markdown
from playwright.sync_api import Page, expect

from ledger.book import Book
from ledger.record import Record
from ledger.site import makeExtension
from ledger.site.quote import Quote, open_source
from ledger.snippet import Snippet
from tests.conftest import ROOT, serve

SNIPPET = """\
# --8<-- [start:run]
size_bytes = 64
run_seconds = 0.5
# --8<-- [end:run]
"""
FIGURES = """\
def drawing(values, labels):
    return f'<svg><text>{values["it.run_seconds"]}</text></svg>'
def rows(values, labels):
    return [["head"], [str(values["it.run_seconds"])]]
"""
PAGE = """\
# Page {#page}

It takes {{ it.run_seconds }} for {{ it.size_bytes }}.

/// output | it:run
///

/// figure | small.drawing
    alt: A drawing.
///

/// table | small.rows
///
"""
FIRST, SECOND = "first-gpu", "second-gpu"
SCRIPT = ROOT / "docs" / "overrides" / "assets" / "book.js"


def make_book(root: Path) -> Book:
    """One snippet, measured on two devices: on the second with other code, for three seconds."""
    book = Book(root)
    for folder in (book.snippets, book.docs, root / "figures"):
        folder.mkdir(parents=True)
    (book.snippets / "it.py").write_text(SNIPPET)
    (root / "figures" / "small.py").write_text(FIGURES)
    first = Record(
        snippet="it",
        hash=Snippet.read(book.snippets / "it.py").hash,
        measured_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        device={"id": FIRST, "kind": "cuda", "name": "First GPU"},
        software={"torch": "2.13.0", "python": "3.11.2"},
        values={"size_bytes": 64, "run_seconds": 0.5},
        outputs={"run": "first output"},
    )
    second = replace(
        first,
        hash="0" * 64,
        measured_at="2026-02-02T00:00:00+00:00",
        device={"id": SECOND, "kind": "cuda", "name": "Second GPU"},
        values={"size_bytes": 63, "run_seconds": 3.0},
        outputs={"run": "second output"},
    )
    for record in (first, second):
        record.write(book.measurements / record.device["id"] / "it.json")
    return book


def build(book: Book, language: str = "en", default_device: str = FIRST) -> str:
    extension = makeExtension(root=str(book.root), default_device=default_device, language=language)
    return Markdown(extensions=[extension]).convert(PAGE)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page with the book's script, and with nothing else of the theme; served."""
    root = tmp_path_factory.mktemp("choice")
    (root / "site").mkdir()
    (root / "site" / "book.js").write_text(SCRIPT.read_text(encoding="utf-8"))
    head = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script src="book.js"></script>'
    page = head + build(make_book(root))
    (root / "site" / "index.html").write_text(page, encoding="utf-8")
    with serve(root / "site") as url:
        yield url


@pytest.mark.parametrize("place", ["data.measured", ".output", "figure.drawing", "figure.table"])
def test_what_depends_on_the_device_follows_the_choice(page: Page, address: str, place: str) -> None:
    page.goto(address)
    texts = []
    for device in (FIRST, SECOND, FIRST):
        page.select_option("#device-choice", device)
        texts.append(page.locator(place).inner_text())
    first, second = {"data.measured": ("500 ms", "3.00 s"), ".output": ("first output", "second output")}.get(
        place, ("0.5", "3.0")
    )
    assert first in texts[0] and second in texts[1] and first not in texts[1]
    assert texts[2] == texts[0]


def test_a_number_is_marked_stale_only_on_the_device_where_it_is(page: Page, address: str) -> None:
    page.goto(address)
    for device, stale in ((FIRST, False), (SECOND, True), (FIRST, False)):
        page.select_option("#device-choice", device)
        expect(page.locator("data.measured.stale")).to_have_count(int(stale))


def test_the_card_at_a_number_tells_the_record_of_the_device_that_is_shown(page: Page, address: str) -> None:
    page.goto(address)
    for device, name, date in ((SECOND, "Second GPU", "2026-02-02"), (FIRST, "First GPU", "2026-01-01")):
        page.select_option("#device-choice", device)
        page.locator("data.measured").click()
        card = page.locator(".provenance-card")
        expect(card).to_contain_text(f"{name} · {date}")
        page.keyboard.press("Escape")


# Without a browser: what the page is made from


def test_a_switched_devices_number_says_whether_it_is_stale(tmp_path: Path) -> None:
    (data,) = re.findall(r"id='ledger-data' data-json='([^']*)'", build(make_book(tmp_path)))
    assert json.loads(data.replace("&quot;", '"'))["quotes"]["it.run_seconds"]["on"] == {
        FIRST: ["500 ms", 0.5],
        SECOND: ["3.00 s", 3.0, True],
    }


@pytest.mark.parametrize(("language", "words"), [("en", " (the code has changed since)"), ("zh", "（此后代码有改动）")])
def test_the_table_of_records_says_which_is_stale(tmp_path: Path, language: str, words: str) -> None:
    cells = re.findall(r"<td>(2026-[^<]*)</td>", build(make_book(tmp_path), language))
    assert cells == ["2026-01-01", f"2026-02-02{words}"]


def test_an_exact_value_comes_from_a_fresh_record_wherever_there_is_one(tmp_path: Path) -> None:
    """The default device's own record is stale, and lies first."""
    source = open_source(make_book(tmp_path), SECOND, local=False)
    assert source.devices[0] == SECOND
    found = source.find(Quote.parse("it.size_bytes"))
    assert (found.value, found.stale) == (64, False)


@pytest.mark.parametrize(("language", "words"), [("en", "not measured on this device"), ("zh", "未在此设备上实测")])
def test_a_device_without_a_figures_measurements_says_so(tmp_path: Path, language: str, words: str) -> None:
    book = make_book(tmp_path)
    record = Record.read(book.measurements / SECOND / "it.json")
    replace(record, values=record.values | {"run_seconds": None}).write(book.measurements / SECOND / "it.json")
    drawn, absent = re.findall(
        r'data-devices="([^"]*)"[^>]*>(?:<p class="output-where">)?(<svg|[^<]*)', figure(book, language)
    )
    assert (drawn, absent) == ((FIRST, "<svg"), (SECOND, words))


def figure(book: Book, language: str) -> str:
    return build(book, language).partition('<figure class="drawing">')[2].partition("</figure>")[0]
