"""A number with a unit in prose is quoted, has a footnote, follows by arithmetic, or is about a quoted one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest

from flops_bytes.time.gpus import GPUS, THIRD_PARTY, TPUS
from ledger.book import Book
from ledger.site.chapter import INLINE, Chapter
from ledger.site.check import configured_device
from ledger.site.quote import Quote, QuoteError, Source, open_source
from ledger.units import unit_of_path
from tests import tables
from tests.conftest import ROOT
from tests.quantities import NUMBER, arithmetic, quantity

BOOK = Book(ROOT)
SOURCE = open_source(BOOK, configured_device(BOOK), local=False)
UNIT = (
    r"%|％|[µμnm]?s\b|seconds?\b|minutes?\b|hours?\b|days?\b|[KMGTP]i?B\b|kB\b|bytes?\b|(?<=\s)B\b|[kMGTPE]?FLOPs?\b|[kMGTPE]?FLOP/s"
    r"|[KMGTk]?i?B/s|秒|毫秒|微秒|分钟|小时|天|字节|倍|times\b|×(?!\s*\d)"
)
TYPED = re.compile(rf"(?<![\w.])\d[\d,.]*(?:\s*(?:×\s*10\S*)?)\s*(?:{UNIT})")
FOOTNOTE = re.compile(r"\[\^[\w-]+\]")


PEAKS = {peak / 1e12 for gpu in (GPUS | THIRD_PARTY).values() for peak in gpu.peak_flop_per_second.values()}
PEAKS |= {peak / 1e12 for gpu in TPUS.values() for peak in gpu.peak_flop_per_second.values()}
REACHED = {  # TFLOP/s that pages cite, and no card's peak: what kernels reached, what other sheets and papers say
    *(67.5, 280, 811, 295, 257, 270),
    *(85, 68, 70.5, 69.5),  # Muon's on a TPU
}
ABOUT = re.compile(r"(?:\b(?:about|around|roughly|some|nearly|almost)\s+|[约近]\s*)$", re.IGNORECASE)
DIMENSIONS: dict[str, dict[str, int]] = {
    "bytes": {"B": 1},
    "flops": {"F": 1},
    "seconds": {"s": 1},
    "bytes_per_second": {"B": 1, "s": -1},
    "flop_per_second": {"F": 1, "s": -1},
    "share": {},
    "mfu": {},
    "ratio": {},
}


class Quoted(NamedTuple):
    value: float
    dimension: dict[str, int]


def quoted(chapter: Chapter, source: Source) -> Iterator[Quoted]:
    """The values with a unit that a page quotes, on the published device."""
    for _, text in chapter.placeholders:
        try:
            quote = Quote.parse(text)
            value = source.find(quote).value
        except QuoteError:
            continue  # check names its line
        dimension = DIMENSIONS.get(unit_of_path(list(quote.path)))
        if isinstance(value, int | float) and dimension is not None:
            yield Quoted(value, dimension)


def typed_numbers(chapter: Chapter, values: Sequence[Quoted] = ()) -> Iterator[str]:
    """Each number with a unit that somebody typed and nothing holds, and arithmetic that is wrong, as file:line."""
    for first, text in chapter.paragraphs:

        def blank(match: re.Match[str]) -> str:
            return "\n" * match[0].count("\n") + " ¶ "

        plain = INLINE.sub(blank, text)
        sums = list(arithmetic(plain))

        def place(at: int, first: int = first, plain: str = plain) -> str:
            return f"{chapter.path}:{first + plain.count(chr(10), 0, at)}"

        for each in sums:
            if not each.holds:
                yield f"{place(each.start)}: {each.text!r} is not so"
        if FOOTNOTE.search(text):
            continue
        for match in TYPED.finditer(plain):
            computed = any(each.start <= match.start() < each.end for each in sums)
            if not computed and not is_about(plain, match.start(), values):
                yield f"{place(match.start())}: {match[0]!r} is typed by hand"
    for block in chapter.blocks:
        if block.kind == "table" and not block.argument:
            for text in tables.cells(block.options):
                for match in TYPED.finditer(INLINE.sub(" ¶ ", text)):
                    yield f"{chapter.path}:{block.line}: {match[0]!r} is typed by hand"


def is_about(text: str, at: int, values: Sequence[Quoted]) -> bool:
    """Whether what stands there is said to be about a value that the page quotes, and rounds it."""
    if not ABOUT.search(text[:at]) or not (match := NUMBER.match(text, at)):
        return False
    said = quantity(match)
    return any(said.unit == each.dimension and said.is_about(Fraction(each.value)) for each in values)


def test_flops_a_second_that_are_typed_are_a_cards_peak_or_cited() -> None:
    """With 2:4 sparsity, sheets say twice as many."""
    for path in BOOK.chapters():
        for typed in re.findall(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) TFLOP/s", path.read_text(encoding="utf-8")):
            number = float(typed.replace(",", ""))
            near = [peak for peak in PEAKS if min(abs(peak - number), abs(2 * peak - number)) <= 0.51]
            assert near or number in REACHED, f"{path}: {typed} TFLOP/s"


@pytest.mark.parametrize("path", BOOK.chapters(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_number_with_a_unit_is_typed(path: Path) -> None:
    chapter = Chapter.read(path)
    found = list(typed_numbers(chapter, list(quoted(chapter, SOURCE))))
    mend = "quote a snippet's value, name a source in a footnote, show the arithmetic, or say “about” of a quoted value"
    assert not found, "\n".join([mend, *found])


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


ADDS_UP = [
    "7e9 × 2 B = 14 GB",
    "7 billion parameters × 2 bytes = 14 GB",
    "70 亿个参数 × 2 字节 = 14 GB",
    "7B × 2 B ≈ 13.0 GiB",
    "4 + 4 + 8 = 16 bytes",
    "80 GB − 3 × 14 GB = 38 GB",
    "(4 + 4 + 8) × 7e9 B = 112 GB",
    "6 × 10²¹ FLOPs / 400 TFLOP/s = 15,000,000 s",
    "3.35 TB/s × 2 ms = 6.7 GB",
    "1 − 0.25 = 75 %",
]


@pytest.mark.parametrize("text", ADDS_UP)
def test_arithmetic_that_holds_may_be_written(tmp_path: Path, text: str) -> None:
    (found,) = arithmetic(text)
    assert found.holds and found.text == text
    assert list(typed_numbers(Chapter.parse(f"So {text}, with others.\n", tmp_path / "x.md"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "7e9 × 2 B = 15 GB",  # another result
        "7e9 × 2 B = 14 GiB",  # another unit
        "7e9 × 2 B ≈ 13.1 GiB",  # rounded to another digit
        "7e9 × 2 B = 14 s",
        "7e9 × 2 = 14 GB",  # bytes of nothing
        "4 + 4 + 8 = 15 bytes",
        "80 GB − 3 × 14 GB = 37 GB",
        "7e9 × 2 B × 2 B = 28 GB",
    ],
)
def test_arithmetic_that_does_not_hold_is_found(tmp_path: Path, text: str) -> None:
    for page in (f"a\n\nSo {text}.\n", f"a\n\nSo {text}.[^source]\n"):
        found = list(typed_numbers(Chapter.parse(page, tmp_path / "x.md")))
        assert found and found[0] == f"{tmp_path / 'x.md'}:3: {text!r} is not so"


VALUES = [Quoted(2.345 * 2**30, {"B": 1}), Quoted(0.384, {}), Quoted(1.37, {}), Quoted(0.0123, {"s": 1})]


@pytest.mark.parametrize(
    "text",
    ["about 2.3 GiB", "roughly 2.35 GiB", "约 2.3 GiB", "about 2.5 GB", "nearly 40 %", "about 1.4× as", "近 12 毫秒"],
)
def test_a_quoted_value_may_be_rounded(tmp_path: Path, text: str) -> None:
    chapter = Chapter.parse(f"a\n\nIt is {text} in all.\n", tmp_path / "x.md")
    assert list(typed_numbers(chapter, VALUES)) == [] != list(typed_numbers(chapter))


@pytest.mark.parametrize(
    "text",
    [
        "2.3 GiB",
        "about 2.4 GiB",
        "about 2.3 GB",
        "about 2 GiB",
        "about 2.3 s",
        "about 30 %",
        "about 1.37 s",
        "about 3 ms",
    ],
)
def test_a_rounding_of_nothing_is_found(tmp_path: Path, text: str) -> None:
    found = list(typed_numbers(Chapter.parse(f"a\n\nIt is {text} in all.\n", tmp_path / "x.md"), VALUES))
    assert len(found) == 1 and ":3: " in found[0] and found[0].endswith("is typed by hand")


def test_a_page_quotes_what_its_records_hold(small_book: Book) -> None:
    page = Chapter.read(small_book.docs / "en" / "page.md")
    values = list(quoted(page, open_source(small_book, "", local=False)))
    assert {"B": 1} in [each.dimension for each in values] and all(each.value for each in values)
