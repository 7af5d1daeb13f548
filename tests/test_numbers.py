"""No number with a unit stands in prose unless a record filled it in or a footnote says where it is from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.site.chapter import INLINE, Chapter
from tests import tables

BOOK = Book(Path(__file__).parent.parent)
UNIT = (
    r"%|％|[µμnm]?s\b|seconds?\b|minutes?\b|hours?\b|days?\b|[KMGTP]i?B\b|kB\b|bytes?\b|(?<=\s)B\b|[kMGTPE]?FLOPs?\b|[kMGTPE]?FLOP/s"
    r"|[KMGTk]?i?B/s|秒|毫秒|微秒|分钟|小时|天|字节|倍|times\b|×(?!\s*\d)"
)
TYPED = re.compile(rf"(?<![\w.])\d[\d,.]*(?:\s*(?:×\s*10\S*)?)\s*(?:{UNIT})")
FOOTNOTE = re.compile(r"\[\^[\w-]+\]")


def typed_numbers(chapter: Chapter) -> Iterator[str]:
    """Each number with a unit that somebody typed, as file:line."""
    for first, text in chapter.paragraphs:
        if FOOTNOTE.search(text):
            continue

        def blank(match: re.Match[str]) -> str:
            return "\n" * match[0].count("\n") + " ¶ "

        for match in TYPED.finditer(INLINE.sub(blank, text)):
            yield f"{chapter.path}:{first + text.count(chr(10), 0, match.start())}: {match[0]!r} is typed by hand"
    for block in chapter.blocks:
        if block.kind == "table" and not block.argument:
            for text in tables.cells(block.options):
                for match in TYPED.finditer(INLINE.sub(" ¶ ", text)):
                    yield f"{chapter.path}:{block.line}: {match[0]!r} is typed by hand"


@pytest.mark.parametrize("path", BOOK.chapters(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_number_with_a_unit_is_typed(path: Path) -> None:
    found = list(typed_numbers(Chapter.read(path)))
    assert not found, "\n".join(["quote a snippet's value, or name a source in a footnote", *found])


@pytest.mark.parametrize(
    "text",
    [
        "it took 3.5 s",
        "12 GiB",
        "about 40 %",
        "788 TFLOP/s",
        "占 40%",
        "需要 12 小时",
        "9.58 × 10²¹ FLOPs",
        "1.2× as long",
    ],
)
def test_a_typed_number_is_found(tmp_path: Path, text: str) -> None:
    assert len(list(typed_numbers(Chapter.parse(f"a\n\nb {text}.\n", tmp_path / "x.md")))) == 1
    assert list(typed_numbers(Chapter.parse(f"{text}[^source]\n\n`{text}` {{{{ a.b }}}} s", tmp_path / "x.md"))) == []


TABLE = """\
/// table
    rows:
        a: {label: "8 B", size: few}
        b: ["16 B", many, ""]
    columns: {Of 24 B: "{label}", Size: "{size}", Time: "{{ a.b.{row} }} s"}
///
"""


@pytest.mark.parametrize("text", ["few", "many", "{{ a.b.{row} }}"])
def test_a_number_that_is_typed_in_a_table_is_found(tmp_path: Path, text: str) -> None:
    assert list(typed_numbers(Chapter.parse(TABLE, tmp_path / "x.md"))) == []  # rows and columns may be called by one
    (found,) = typed_numbers(Chapter.parse(TABLE.replace(text, "3.5 s"), tmp_path / "x.md"))
    assert found == f"{tmp_path / 'x.md'}:1: '3.5 s' is typed by hand"
