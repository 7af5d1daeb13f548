"""English text has the site's own face where a reader has none of those named before it, and italics an italic one."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.conftest import ROOT
from tests.site.test_weight import PAGES

STYLE = (ROOT / "docs" / "overrides" / "assets" / "book.css").read_text(encoding="utf-8")
FACES = re.findall(r'text/(\w+)\.woff2".*?unicode-range: ([^;]+);', STYLE)
ITALIC = re.compile(r"<em>(.*?)</em>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")


def letters(ranges: str) -> set[str]:
    """What a unicode-range such as "U+20-7E, U+A7" holds."""
    ends = [[int(end, 16) for end in part.removeprefix("U+").split("-")] for part in ranges.split(", ")]
    return {chr(code) for first, *last in ends for code in range(first, (last or [first])[0] + 1)}


def test_each_face_is_there_with_the_same_letters() -> None:
    assert [name for name, _ in FACES] == ["regular", "bold", "italic"] and len({ranges for _, ranges in FACES}) == 1
    assert all((ROOT / "docs" / "overrides" / "text" / f"{name}.woff2").is_file() for name, _ in FACES)


@pytest.mark.parametrize("path", [path for path in PAGES if not path.startswith("zh/")])
def test_the_italic_face_has_each_letter_in_italics(site: Path, path: str) -> None:
    found = ITALIC.findall((site / path / "index.html").read_text(encoding="utf-8"))
    words = [unescape(TAG.sub("", text)) for text in found]
    assert [text for text in words if not {*text} - {"\n"} <= letters(FACES[-1][1])] == []


@pytest.mark.parametrize(("path", "has_italics"), [("storage-and-strides/", True), ("plan/", False), ("", False)])
def test_the_italic_face_is_fetched_where_it_is_seen(page: Page, address: str, path: str, has_italics: bool) -> None:
    page.goto(address + path)
    page.add_style_tag(content=":root { --md-text-font: 'Book Text' !important }")  # whatever this machine has
    page.locator("article :is(em, p):visible").first.scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")
    loaded = "document.fonts.ready.then((fonts) => [...fonts].filter((f) => f.status === 'loaded').map((f) => f.style))"
    assert ("italic" in page.evaluate(loaded)) == has_italics
