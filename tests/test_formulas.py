"""Every formula of the chapters stands on the page of formulas, beside values that its own chapter makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from figures.formulas import GROUPS, Formula, ratio
from ledger.book import Book
from ledger.fill.chapter import INCLUDE, Chapter
from ledger.snippet import Snippet

BOOK = Book(Path(__file__).parent.parent)
FORMULAS = [formula for group in GROUPS.values() for formula in group]
WITHOUT_A_ROW = {
    # what a thing is, or how it is changed, not what comes out
    "gradients.md#by-hand",
    "named-dimensions.md#einsum",
    "number-formats.md#formula",
    "optimizers.md#adagrad",
    "optimizers.md#adam",
    "optimizers.md#momentum",
    "optimizers.md#rmsprop",
    "optimizers.md#sgd",
    "roofline.md#work",
    "storage-and-strides.md#contiguity",
    "training-loop.md#data",
    # part of a formula that has a row
    "counting-flops.md#count-or-speed",
    "gpt2-parameters.md#block",
    "index.md#first-measurement",
    "models-and-initialization.md#count",
    # its last term can be measured, not predicted
    "roofline.md#launch",
}


def headings_with_a_formula(path: Path) -> Iterator[str]:
    """`page.md#heading` for each heading of a page that a display formula stands under."""
    marks = [n for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1) if line.strip() == "$$"]
    headings = Chapter.read(path).headings
    for mark in marks[::2]:
        yield f"{path.name}#{[heading.id for heading in headings if heading.line < mark][-1]}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_formula_of_the_chapters_has_a_row_or_a_reason(language: str) -> None:
    pages = sorted((BOOK.docs / language).glob("*.md"))
    pages = [path for path in pages if path.name != "errata.md"]  # which repeats what chapters say
    found = {heading for path in pages for heading in headings_with_a_formula(path)}
    with_a_row = {formula.derived_at for formula in FORMULAS}
    assert sorted(found - with_a_row) == sorted(WITHOUT_A_ROW)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_a_row_leads_to_the_chapter_that_makes_its_values(formula: Formula) -> None:
    page, _, heading = formula.derived_at.partition("#")
    name, _, section_name = formula.code.partition(":")
    snippet = Snippet.read(BOOK.snippets / f"{name}.py")
    section = snippet.sections[section_name]
    value = (formula.measured or formula.predicted).partition(".")[0].partition(":")[0]
    assert section.first_line <= snippet.bindings[value].line <= section.last_line
    for language in ("en", "zh"):
        chapter = Chapter.read(BOOK.docs / language / page)
        shown = [include for fence in chapter.fences for line in fence.lines if (include := INCLUDE.match(line))]
        assert heading in [each.id for each in chapter.headings]
        assert (f"snippets/{name}.py", section_name) in [(each["path"], each["section"]) for each in shown]


def test_a_ratio_is_bare_if_exact_and_a_dash_if_unknown() -> None:
    assert [ratio(2, 2), ratio(4, 4.0004), ratio(4, 2), ratio(4, None), ratio(None, 4)] == [
        "1",
        "1.00×",
        "0.500×",
        "—",
        "—",
    ]
