"""A stale value is marked wherever it is shown: in the page, its Markdown and its notebook; a fresh one nowhere."""

from __future__ import annotations

import json
import re

import pytest
from markdown import Markdown
from markdown.extensions import Extension

from ledger.book import Book
from ledger.site import makeExtension
from ledger.site.notebook import notebook
from ledger.site.plain import markdown, parts
from ledger.site.quote import open_source
from tests.conftest import ROOT

PAGE = """\
# Page {#page}

In a sentence {{ good.measured_seconds }}, **in bold {{ good.measured_seconds:.3f }}**.

- In a list {{ good.size_bytes }}.[^note]

| what | how much |
|---|---|
| in a table | {{ good.measured_seconds:sci }} |

/// details | Folded: {{ good.sizes.small }}
```python
x = 1
```
///

/// table | small.rows
///

/// figure | small.drawing
    alt: A drawing.
In a caption {{ good.measured_seconds:.1f }}.
///

/// output | good:count
///

[^note]: In a footnote {{ good.measured_seconds:.2f }}.
"""
FIGURES = """\
def rows(values, labels):
    return [["what", "how much"], ["in a block", "{{ good.measured_seconds:.4f }}"]]
def drawing(values, labels):
    return "<svg></svg>"
"""
SHOWN = ("500 ms", "0.500", "32 B", "5.00 × 10⁻¹ s", "1", "0.5000", "0.5", "0.50")
ASIDE = {"en": "(the code has changed since)", "zh": "（此后代码有改动）"}
CSS = ROOT / "docs" / "overrides" / "assets" / "book.css"


@pytest.fixture
def texts(small_book: Book, request: pytest.FixtureRequest) -> dict[str, str]:
    """The page as HTML, as Markdown and as a notebook's text, with a record that is stale or not."""
    stale, language = request.param
    (small_book.root / "figures" / "small.py").write_text(FIGURES)
    page = small_book.docs / language / "page.md"
    page.write_text(PAGE)
    if stale:
        snippet = small_book.snippets / "good.py"
        snippet.write_text(snippet.read_text() + "more_bytes = 1\n")
    (device,) = (folder.name for folder in small_book.measurements.glob("*/"))
    options = {"root": str(small_book.root), "local": False, "language": language, "default_device": device}
    extensions: list[str | Extension] = ["tables", "footnotes", "pymdownx.blocks.details", makeExtension(**options)]
    html = Markdown(extensions=extensions).convert(PAGE)
    found = list(parts(open_source(small_book, device, local=False), language, page, "https://s/"))
    said = {"title": "t", "address": "a", "device": "d"}
    cells = json.loads(
        notebook(small_book, found, language, {small_book.snippets / "good.py"}, wheels={}, **said) or ""
    )["cells"]
    return {"html": html, "text": markdown(found), "notebook": "\n".join("".join(cell["source"]) for cell in cells)}


CASES = [(stale, language) for stale in (True, False) for language in ("en", "zh")]


@pytest.mark.parametrize(("texts", "stale", "language"), [(case, *case) for case in CASES], indirect=["texts"])
def test_a_stale_value_is_marked_everywhere(texts: dict[str, str], stale: bool, language: str) -> None:
    numbers = re.findall(r'<data class="([^"]*)"[^>]*>([^<]*)</data>', texts["html"])
    assert sorted(shown for _, shown in numbers) == sorted(SHOWN)
    assert ["stale" in classes.split() for classes, _ in numbers] == [stale] * len(SHOWN)
    for form in ("text", "notebook"):
        marked = {shown: f"{shown}†" in texts[form] for shown in SHOWN}
        assert marked == dict.fromkeys(SHOWN, stale), form
    assert {form: ASIDE[language] in text for form, text in texts.items()} == dict.fromkeys(texts, stale)  # the output


def test_the_pages_mark_is_the_texts() -> None:
    assert re.search(r'data\.stale::after \{ content: "†"', CSS.read_text(encoding="utf-8"))
