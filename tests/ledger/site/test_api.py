"""The page on the library shows a signature and a docstring as the source has them, in the page's language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


def double(x: float) -> float:
    """Twice it.

    >>> double(2)
    4
    """


def bare() -> None: ...


LIMIT = 3
'''
SIGNATURE = "halve(x: float, *, times: int = 1) -> float"
PLACE = "docs/zh/comments/flops_bytes/numbers.yml"
CHINESE = "Half of it. Again and again. Raises ValueError.: |-\n    一半。\n    可以重复。\n    抛出 ValueError。\n"
LED_BY_CODE = """\
# Page {#page}

```python
--8<-- "snippets/good.py:count"
```

/// api | flops_bytes.numbers.double
///

```python
--8<-- "snippets/good.py:times"
```

It takes {{ good.measured_seconds }}, not {{ good.size_bytes }}.
"""


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


def converted(book: Book, language: str, *extensions: str) -> str:
    page = (book.docs / language / "page.md").read_text()
    own = makeExtension(root=str(book.root), local=False, language=language)
    configs: dict[str, dict[str, Any]] = {
        "pymdownx.highlight": {"line_spans": "__span"},
        "pymdownx.snippets": {"base_path": [str(book.root)]},
    }
    return Markdown(extensions=[*extensions, own], extension_configs=configs).convert(page)


def test_a_function_is_shown_as_its_source_has_it(shown: Book) -> None:
    first = f"<p><code>{SIGNATURE.replace('>', '&gt;')}</code></p>"
    english = "<p>Half of it.</p>\n<p>Again and again.\nRaises ValueError.</p>"
    assert f"{first}\n{english}" in converted(shown, "en")
    assert f"{first}\n<p>一半。</p>\n<p>可以重复。抛出 ValueError。</p>" in converted(shown, "zh")
    text = markdown(parts(open_source(shown, "", local=False), "zh", shown.docs / "zh" / "page.md", "https://site/"))
    assert f"`{SIGNATURE}`\n\n一半。\n\n可以重复。" in text
    assert check(shown) == []


@pytest.mark.parametrize(("language", "said"), [("en", "Twice it."), ("zh", "两倍。")])
def test_an_example_is_code_below_the_words_and_the_same_in_both_languages(
    shown: Book, language: str, said: str
) -> None:
    (shown.root / PLACE).write_text("Twice it.: 两倍。\n")
    text, problems = described(Comments(shown, language), "flops_bytes.numbers.double", Path("page.md"))
    example = "```pycon\n>>> double(2)\n4\n```"
    assert (text, problems) == (f"`double(x: float) -> float`\n\n{said}\n\n{example}", [])


def test_a_number_leads_to_its_line_below_an_example(shown: Book) -> None:
    """Which is a block of code too."""
    snippet = shown.snippets / "good.py"
    marked = "# --8<-- [start:times]\nmeasured_seconds = 0.5\n# --8<-- [end:times]"
    snippet.write_text(snippet.read_text().replace("measured_seconds = 0.5", marked))
    (shown.docs / "en" / "page.md").write_text(LED_BY_CODE)
    page = converted(shown, "en", "pymdownx.superfences", "pymdownx.highlight", "pymdownx.snippets")
    (line,) = re.findall(r'href="#(__span-[\d-]+)">[^<]*</a> <code>good.measured_seconds', page)
    assert re.search(rf'id="{line}">.*measured_seconds', page)


def test_what_has_no_chinese_is_named(shown: Book) -> None:
    (shown.root / PLACE).write_text("LIMIT: 上限\n")
    lacks, stale = sorted(map(str, check(shown)))[::-1]
    assert "numbers.py:3: docs/zh/comments/flops_bytes/numbers.yml lacks 'Half of it. Again and again. Raises" in lacks
    assert stale.endswith("numbers.yml:1: no page shows code with the comment 'LIMIT'")


def test_a_function_that_is_not_there_is_named(shown: Book) -> None:
    for missing in ("numbers.LIMIT", "numbers.gone", "numbers.bare", "gone.halve"):
        with pytest.raises(LedgerError, match=rf"flops_bytes\.{missing}: there is no such function with a docstring"):
            described(Comments(shown, "en"), f"flops_bytes.{missing}", Path("page.md"))
