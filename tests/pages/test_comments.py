"""A Chinese page shows the English page's code, token for token, and Chinese comments that take no more room."""

from __future__ import annotations

import ast
import io
import tokenize
import unicodedata
from functools import cache

import pytest

from ledger.book import Book
from ledger.site.chapter import Chapter, Fence
from ledger.site.comments import Comments
from ledger.site.includes import shown_lines
from tests.chapters import expand
from tests.conftest import ROOT

BOOK = Book(ROOT)
CHINESE = Comments(BOOK, "zh")
PAGES = sorted(path.name for path in (BOOK.docs / "zh").glob("*.md"))
ROOM = 96  # columns that a comment may take where the English one is shorter still


@cache
def blocks(language: str, name: str) -> list[Fence]:
    return [fence for fence in Chapter.read(BOOK.docs / language / name).fences if fence.language == "python"]


@cache
def shown(name: str) -> list[tuple[list[str], list[str]]]:
    """The lines of each block of a Chinese page, as they are in the files and as the page shows them."""
    found = []
    for fence in blocks("zh", name):
        code = [line for text in fence.lines for line in shown_lines(text, ROOT)]
        translated, problems = CHINESE.translated(code, fence.language, BOOK.docs / "zh" / name)
        assert problems == []
        found.append(([line.text for line in code], [line.text for line in translated]))
    return found


def tokens(source: str) -> list[tuple[int, str, tuple[int, int]]]:
    """All but comments and what docstrings say, with their places; Python's own parser says which are docstrings."""
    strings = {
        node.value.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            continue
        if token.type == tokenize.STRING and token.start[0] in strings:
            found.append((token.type, "", token.start))
        elif token.type not in (tokenize.NL, tokenize.NEWLINE):  # which stand behind comments
            found.append((token.type, token.string, token.start))
    return found


@pytest.mark.parametrize("name", PAGES)
def test_the_code_is_the_same_but_for_comments(name: str) -> None:
    for english, (_, chinese) in zip(blocks("en", name), shown(name), strict=True):
        theirs, ours = expand(english), "\n".join(chinese) + "\n"
        assert tokens(ours) == tokens(theirs)
        assert ours.count("\n") == theirs.count("\n"), "lines are counted to lead a number to the one that made it"


def width(line: str) -> int:
    """Columns that it takes: a Chinese character two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


@pytest.mark.parametrize("name", PAGES)
def test_a_chinese_comment_fits_where_the_english_one_does(name: str) -> None:
    for lines, translated in shown(name):
        pairs = zip(lines, translated, strict=True)
        assert [after for before, after in pairs if width(after) > max(width(before), ROOM)] == []
