"""What comments of shown code say in a page's language: on the page, in its notebook; what lacks or is left over."""

from __future__ import annotations

import re

import pytest
from markdown import Markdown

from ledger.book import Book
from ledger.record import Record
from ledger.run import run
from ledger.site import makeExtension
from ledger.site.bundle import bundle
from ledger.site.check import check
from ledger.site.comments import said_in, without
from ledger.snippet import Snippet

SNIPPET = '''\
# --8<-- [start:count]
def double(n: int) -> int:
    """Twice: as much."""
    return 2 * n  # not # n


def triple(n: int) -> int:
    """Three times.

    As much.
    """
    text = "# no comment"
    "neither is this, in the middle"; text += ""
    return int(3 * n)  # type: ignore[no-any-return]  # a whole number


size_bytes = double(16)  # (B, T)
model = "x"  # Llama
# --8<-- [end:count]
other = 1  # nobody sees this
'''
CHINESE = """\
"Twice: as much.": 两倍。
"not # n": 不是 n
Three times. As much.: |-
    三倍。
    就这么多。
neither is this, in the middle: 也不是
a whole number: 整数
Llama:
"""
SHOWN = '''\
def double(n: int) -> int:
    """两倍。"""
    return 2 * n  # 不是 n


def triple(n: int) -> int:
    """三倍。

    就这么多。
    """
    text = "# no comment"
    "neither is this, in the middle"; text += ""
    return int(3 * n)  # type: ignore[no-any-return]  # 整数


size_bytes = double(16)  # (B, T)
model = "x"  # Llama'''
PAGE = """\
# Page {#page}

It takes {{ good.size_bytes }}.

```python
--8<-- "snippets/good.py:count"
x = 1  # WORDS
```
"""
PLACE = "docs/zh/comments/snippets/good.yml"


@pytest.fixture
def commented(small_book: Book) -> Book:
    path = small_book.snippets / "good.py"
    path.write_text(SNIPPET)
    record = Record.of(Snippet.read(path), run(Snippet.read(path)))
    record.write(small_book.measurements / record.device["id"] / "good.json")
    for language, words in (("en", "one"), ("zh", "一")):
        (small_book.docs / language / "page.md").write_text(PAGE.replace("WORDS", words))
    (small_book.root / PLACE).parent.mkdir(parents=True)
    (small_book.root / PLACE).write_text(CHINESE.replace("neither is this, in the middle: 也不是\n", ""))
    return small_book


def problems(book: Book) -> list[str]:
    return [f"{problem.path.relative_to(book.root)}:{problem.line}: {problem.message}" for problem in check(book)]


def converted(book: Book, language: str) -> str:
    ours = makeExtension(root=str(book.root), local=False, language=language)
    page = (book.docs / language / "page.md").read_text()
    return Markdown(extensions=["pymdownx.superfences", ours]).convert(page)


def test_a_page_shows_the_comments_of_its_language(commented: Book) -> None:
    assert problems(commented) == []
    html = re.sub(r"<[^>]+>", "", converted(commented, "zh")).replace("&quot;", '"').replace("&gt;", ">")
    assert f"{SHOWN}\nx = 1  # 一" in html
    assert 'count"\nx = 1  # one' in re.sub(r"<[^>]+>", "", converted(commented, "en")), "left to what includes files"


def test_the_kept_notebook_is_made_anew_when_a_comment_says_something_else(commented: Book) -> None:
    (commented.root / "site/zh/page").mkdir(parents=True)
    (commented.root / "site/zh/page/index.html").write_text("")
    for words in ("整数", "整整的数"):
        place = commented.root / PLACE
        place.write_text(place.read_text().replace("整数", words))
        bundle(commented, commented.root / "site", "https://s/", local=False, languages=["zh"])
        assert words in (commented.root / "site/downloads/page.zh.ipynb").read_text()
        assert words in (commented.root / "site/zh/page/index.md").read_text()


MISTAKES = {
    "a comment without Chinese": (
        ("a whole number: 整数\n", ""),
        r"^snippets/good\.py:14: docs/zh/comments/snippets/good\.yml lacks 'a whole number'",
    ),
    "a docstring without Chinese": (
        ('"Twice: as much.": 两倍。\n', ""),
        r"^snippets/good\.py:3: docs/zh/comments/snippets/good\.yml lacks 'Twice: as much\.'",
    ),
    "no comment says that": (
        ("Llama:\n", "Llama:\nnobody sees this: 看不见\n"),
        r"^docs/zh/comments/snippets/good\.yml:8: no page shows code with the comment 'nobody sees this'",
    ),
    "a line too few": (
        ("    就这么多。\n", ""),
        r"^docs/zh/comments/snippets/good\.yml:3: 'Three times\. As much\.' takes 2 lines of code, and here 1",
    ),
    "twice": (
        ("Llama:\n", "Llama:\nLlama: 羊驼\n"),
        r"^docs/zh/comments/snippets/good\.yml:8: 'Llama' stands there twice",
    ),
    "no YAML": (("Llama:\n", "Llama: a: b\n"), r"^docs/zh/comments/snippets/good\.yml:7: not YAML: mapping values"),
    "no mapping": (("", "- a\n"), r"^docs/zh/comments/snippets/good\.yml:1: not a mapping"),
    "a list": (("Llama:\n", "Llama: [a]\n"), r"^docs/zh/comments/snippets/good\.yml:7: write `English: 中文`"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_wrong_is_named_with_file_and_line(commented: Book, mistake: str) -> None:
    (before, after), message = MISTAKES[mistake]
    place = commented.root / PLACE
    text = place.read_text()
    assert before in text
    place.write_text(text.replace(before, after) if before else after)
    found = problems(commented)
    assert any(re.search(message, problem) for problem in found), found


def test_a_file_of_comments_without_its_code_is_left_over(commented: Book) -> None:
    (commented.root / PLACE).with_name("gone.yml").write_text("words: 词\n")
    (found,) = problems(commented)
    assert found == "docs/zh/comments/snippets/gone.yml:1: no page shows code with the comment 'words'"


def test_what_a_page_writes_itself_stands_in_its_own_language(commented: Book) -> None:
    page = commented.docs / "zh" / "page.md"
    page.write_text(PAGE.replace("WORDS", "one"))
    (found,) = problems(commented)
    assert found == "docs/zh/page.md:7: 'one' is a comment in English; write it in the page's language"


def test_code_without_its_words() -> None:
    shell = ["#!/bin/bash", "#SBATCH --nodes=2", "run x#y   # two of them", "# all"]
    assert [said.text for said in said_in(shell, "bash")] == ["two of them", "all"]
    assert without(shell, "bash") == ["#!/bin/bash", "#SBATCH --nodes=2", "run x#y   # ", "# "]
    assert said_in(shell, "text") == []
    code = ["def f():", '    r"""A word."""', "    return 'a word'  # (B, T), 2n", "    # a word"]
    assert [said.text for said in said_in(code, "python")] == ["A word.", "a word"]
    assert without(code, "python") == ["def f():", '    r""""""', "    return 'a word'  # ", "    # "]
