"""What a page shows can be taken as it stands: a unit once, whose number it is, no row twice, no table of dashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.site.chapter import Chapter
from ledger.site.check import configured_device
from ledger.site.plain import parts
from ledger.site.quote import Quote, QuoteError, open_source
from ledger.units import unit_of_path
from tests.conftest import ROOT

BOOK = Book(ROOT)
SOURCE = open_source(BOOK, configured_device(BOOK), local=False)
PAGES = sorted(path.relative_to(BOOK.docs) for language in ("en", "zh") for path in (BOOK.docs / language).glob("*.md"))
UNIT = r"(?:[KMGTP]i?B|kB|B|[kMGTPE]?FLOPs|[kMGTPE]?FLOP/s|[µm]?s)"
TWICE = re.compile(
    rf"\d[\d,.]*\s?{UNIT}\s+(?:bytes?|FLOPs|FLOP/s|seconds?|B|字节|秒)\b|\d[\d,.]*\s?{UNIT}\s?(?:个字节|字节)"
)
FIXED = re.compile(r"\{\{\s*(?P<quote>[\w.\- ]+?):\.\d+f\s*\}\}(?P<after>[^\n]{0,24})")
FOLLOWS = re.compile(
    r"\**\s*(?:[KMGTP]i?B|[kMGTPE]?B\b|FLOP|[kMGTPE]FLOP|[µm]?s\b|%|per|token|W\b|MHz|词元|tokens|bytes?|seconds|字节|秒|次)"
)
DASHES = {"", "—", "-"}


def plain(page: Path) -> str:
    """Its text, filled for the published device, without code and outputs."""
    text = "\n\n".join(part.text for part in parts(SOURCE, page.parts[0], BOOK.docs / page, "/") if not part.is_code)
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table below its header."""
    for block in text.split("\n\n"):
        rows = [
            [cell.strip() for cell in row.strip("|").split("|")] for row in block.splitlines() if row.startswith("|")
        ]
        if len(rows) > 2:
            yield rows[2:]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_unit_stands_once_and_tables_say_something(page: Path) -> None:
    text = plain(page)
    assert not TWICE.findall(text)
    assert not re.findall(r"\[\s*\$[^$\]]+\$\s*\]\(.*?\)", text), (
        "a reader who hears the page hears no name of this link"
    )
    for rows in tables(text):
        assert not all(set(row[1:]) <= DASHES for row in rows), f"nothing but dashes: {rows[0]}"
        names = [tuple(row) for row in rows]
        assert len(names) == len(set(names)), f"a row stands there twice: {rows}"


def bare(chapter: Chapter) -> Iterator[str]:
    """Numbers of a unit that are quoted with fixed decimals, and so without it, in prose that does not say it."""
    for first, text in chapter.paragraphs:
        for match in FIXED.finditer(text):
            try:
                unit = unit_of_path(list(Quote.parse(match["quote"]).path))
            except QuoteError:
                continue
            has_unit = FOLLOWS.match(match["after"]) or text.lstrip().startswith("|")
            if unit in ("bytes", "flops", "seconds", "bytes_per_second", "flop_per_second") and not has_unit:
                yield f"{chapter.path}:{first}: {match[0]}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_number_of_bytes_or_seconds_has_its_unit(page: Path) -> None:
    assert not list(bare(Chapter.read(BOOK.docs / page)))


# What is true of one device


def named_beside_numbers(chapter: Chapter) -> Iterator[int]:
    """Paragraphs that name a recorded GPU and quote what it measured, outside of a part for that GPU alone."""
    names = {device: SOURCE.name(device).split()[-1] for device in SOURCE.devices if device.startswith("nvidia-")}
    inside, kept = None, set()
    for number, line in enumerate(chapter.lines, start=1):
        if opening := re.match(r"(/{3,}) only \| (\S+)", line):
            inside = opening[1]
        if inside:
            kept.add(number)
        if line.strip() == inside:
            inside = None
    for first, text in chapter.paragraphs:
        if first in kept or text.lstrip().startswith("|"):
            continue
        quotes = [Quote.parse(found) for found in re.findall(r"\{\{\s*([^{}]*?)\s*\}\}", text)]
        if any(quote.is_device_value for quote in quotes) and any(name in text for name in names.values()):
            yield first


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_sentence_that_names_a_device_stands_beside_its_numbers_alone(page: Path) -> None:
    assert not list(named_beside_numbers(Chapter.read(BOOK.docs / page)))
