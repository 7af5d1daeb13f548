"""A quoted number has its unit once: by its suffix, or by a word behind it, and never by neither or both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.site.chapter import PLACEHOLDER, Chapter
from ledger.site.check import configured_device
from ledger.site.quote import Quote, QuoteError, Source, open_source
from ledger.text import inert
from tests.conftest import ROOT

BOOK = Book(ROOT)
SOURCE = open_source(BOOK, configured_device(BOOK), local=False)
TWICE = re.compile(
    r"(?<=[\d⁰-⁹¹²³])\s?(?:[KMGT]?i?B\s*(?:bytes?|字节|[KMGT]?i?B)|[kMGTPE]?FLOPs\s*FLOPs|[kMGTPE]?FLOP/s\s*FLOP/s)(?![\w/])"
)
NONE = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3}){2,}\.\d")  # millions with a decimal: a size whose unit a format took


def filled(text: str, source: Source) -> Iterator[tuple[int, str]]:
    """The paragraphs, with their lines, as the default device fills them."""
    for paragraph in Chapter.parse(text, source.book.docs / "en").paragraphs:

        def number(found: re.Match[str]) -> str:
            try:
                quote = Quote.parse(found[0].strip("{} "))
                value = source.find(quote, source.default_device).value
                return "" if value is None else inert(quote.format(value, "en"))
            except QuoteError:  # reported by `ledger check`, or of a table's templates
                return ""

        yield paragraph.line, re.sub(PLACEHOLDER, number, paragraph.text)


def wrong(text: str, source: Source) -> list[tuple[int, str]]:
    return [
        (line, found[0])
        for line, prose in filled(text, source)
        for rule in (TWICE, NONE)
        for found in rule.finditer(prose)
    ]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").glob("*/*.md")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_units_stand_once(path: Path) -> None:
    assert wrong(path.read_text(encoding="utf-8"), SOURCE) == []


def test_a_unit_twice_or_not_at_all_is_found() -> None:
    text = "{{ two_questions.thresholds.eu.flops:sci }} FLOPs\n\n{{ muon.read_spared_bytes.eight_bit:.1f }} of memory"
    assert [line for line, _ in wrong(text, SOURCE)] == [1, 3]
    assert wrong("{{ two_questions.thresholds.eu.flops:sci }}, {{ muon.read_spared_bytes.eight_bit }}", SOURCE) == []
