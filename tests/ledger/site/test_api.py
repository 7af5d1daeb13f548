"""The page on the library shows a signature and a docstring as the source has them, in the page's language."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown import Markdown

from ledger.book import Book, LedgerError
from ledger.site import makeExtension
from ledger.site.api import described
from ledger.site.check import check
from ledger.site.comments import Comments
from ledger.site.plain import markdown, parts
from ledger.site.quote import open_source

SOURCE = '''
def halve(x: float, *, times: int = 1) -> float:
    """Half of it.

    Again and again.
    Raises ValueError."""


def bare() -> None: ...


LIMIT = 3
'''
SIGNATURE = "halve(x: float, *, times: int = 1) -> float"
PLACE = "docs/zh/comments/flops_bytes/numbers.yml"
CHINESE = "Half of it. Again and again. Raises ValueError.: |-\n    一半。\n    可以重复。\n    抛出 ValueError。\n"


@pytest.fixture
def shown(small_book: Book) -> Book:
    small_book.library.mkdir(exist_ok=True)
    (small_book.library / "numbers.py").write_text(SOURCE)
    for language in ("en", "zh"):
        (small_book.docs / language / "page.md").write_text(
            "# Page {#page}\n\n/// api | flops_bytes.numbers.halve\n///\n"
        )
    (small_book.root / PLACE).parent.mkdir(parents=True)
    (small_book.root / PLACE).write_text(CHINESE)
    return small_book


def converted(book: Book, language: str) -> str:
    page = (book.docs / language / "page.md").read_text()
    return Markdown(extensions=[makeExtension(root=str(book.root), local=False, language=language)]).convert(page)


def test_a_function_is_shown_as_its_source_has_it(shown: Book) -> None:
    first = f"<p><code>{SIGNATURE.replace('>', '&gt;')}</code></p>"
    english = "<p>Half of it.</p>\n<p>Again and again.\nRaises ValueError.</p>"
    assert f"{first}\n{english}" in converted(shown, "en")
    assert f"{first}\n<p>一半。</p>\n<p>可以重复。抛出 ValueError。</p>" in converted(shown, "zh")
    text = markdown(parts(open_source(shown, "", local=False), "zh", shown.docs / "zh" / "page.md", "https://site/"))
    assert f"`{SIGNATURE}`\n\n一半。\n\n可以重复。" in text
    assert check(shown) == []


def test_what_has_no_chinese_is_named(shown: Book) -> None:
    (shown.root / PLACE).write_text("LIMIT: 上限\n")
    lacks, stale = sorted(map(str, check(shown)))[::-1]
    assert "numbers.py:3: docs/zh/comments/flops_bytes/numbers.yml lacks 'Half of it. Again and again. Raises" in lacks
    assert stale.endswith("numbers.yml:1: no page shows code with the comment 'LIMIT'")


def test_a_function_that_is_not_there_is_named(shown: Book) -> None:
    for missing in ("numbers.LIMIT", "numbers.gone", "numbers.bare", "gone.halve"):
        with pytest.raises(LedgerError, match=rf"flops_bytes\.{missing}: there is no such function with a docstring"):
            described(Comments(shown, "en"), f"flops_bytes.{missing}", Path("page.md"))
