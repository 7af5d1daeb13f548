"""The README's drawing is the page's, and brings all of its colours with it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ledger.book import Book, LedgerError
from ledger.site.picture import picture
from tests.conftest import ROOT

FIGURE, FILE = "count_your_step.picture", ".github/step.svg"


def test_the_file_is_what_the_command_writes() -> None:
    drawn = (ROOT / FILE).read_text(encoding="utf-8")
    assert drawn == picture(Book(ROOT), FIGURE), f"python -m ledger picture {FIGURE} {FILE}"
    ElementTree.fromstring(drawn)
    used, *given = set(re.findall(r"var\((--[\w-]+)\)", drawn)), *re.findall(r"svg \{ (--[^}]*)\}", drawn)
    assert len(given) == 2, "light and dark"
    assert all(used <= set(re.findall(r"(--[\w-]+):", colours)) for colours in given)


def test_a_figure_that_no_page_shows_is_named() -> None:
    with pytest.raises(LedgerError, match="no page shows the figure gradients\\.none"):
        picture(Book(ROOT), "gradients.none")
