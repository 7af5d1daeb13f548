"""Every formula of the chapters that predicts stands on the page of formulas, beside values that its own chapter makes.

So does every value that a snippet names as a prediction, or as a ratio to one.
"""

from __future__ import annotations

import ast
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from figures.formulas import DAILY, GROUPS, Daily, Formula, ratio
from flops_bytes.parallel.sharding import ring_bytes
from ledger.book import Book
from ledger.site.chapter import Chapter
from ledger.snippet import Snippet
from tests.conftest import ROOT

BOOK = Book(ROOT)
FORMULAS = [formula for group in GROUPS.values() for formula in group]
ROWS = Counter({formula.derived_at: 0 for formula in FORMULAS})  # different formulas derived under a heading
for heading, _ in {(formula.derived_at, formula.tex) for formula in FORMULAS}:
    ROWS[heading] += 1

# What needs no row: it may only shrink. How many display formulas under a heading, and why.
DEFINES = "says what a thing is, or how it is changed, not what comes out"
PART = "a part of, or a step to, a formula that has a row"
FORMULAS_WITHOUT_A_ROW = {
    "number-formats.md#fields": (2, DEFINES),
    "optimizers.md#adagrad": (1, DEFINES),
    "optimizers.md#adam": (1, DEFINES),
    "optimizers.md#momentum": (1, DEFINES),
    "optimizers.md#rmsprop": (1, DEFINES),
    "optimizers.md#sgd": (2, DEFINES),
    "roofline.md#work": (1, DEFINES),
    "storage-and-strides.md#contiguity": (1, DEFINES),
    "activations.md#fits": (1, PART),
    "activations.md#logits": (1, PART),
    "counting-flops.md#count-or-speed": (1, PART),
    "roofline.md#ridge": (1, PART),
}

# Values that are named as predictions, or as ratios to one, and follow from no formula of the book.
RATE = "a rate or a limit of the machine, given or measured: what goes into a prediction"
VALUES_WITHOUT_A_ROW = {
    "attention_speed.predicted_peak": RATE,
    "bandwidth_limits.predicted_bytes_per_second": RATE,
    "bandwidth_limits.predicted_caches_bytes": RATE,
    "decode_speed.predicted_bytes_per_second": RATE,
    "decode_speed.predicted_flop_per_second": RATE,
    "link_and_context.predicted_link_bytes_per_second": RATE,
    "mfu.predicted_peaks_flop_per_second": RATE,
    "mfu_limits.predicted_peak_flop_per_second": RATE,
    "mfu_limits.predicted_sms": RATE,
    "roofline.predicted_bytes_per_second": RATE,
    "roofline.predicted_flop_per_second": RATE,
    "storage_and_strides.predicted_bytes_per_second": RATE,
    "sustained_rate.predicted_power_watts": RATE,
}
PREDICTION = re.compile(r"predicted_\w+|(\w+_)?(to|over)_(predicted|counted|planned|napkin)_ratio")


def headings_with_a_formula(path: Path) -> Iterator[str]:
    """`page.md#heading` for each display formula of a page: the heading that it stands under."""
    marks = [n for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1) if line.strip() == "$$"]
    headings = Chapter.read(path).headings
    for mark in marks[::2]:
        yield f"{path.name}#{[heading.id for heading in headings if heading.line < mark][-1]}"


def formulas_without_a_row(found: Counter[str]) -> dict[str, int]:
    """How many display formulas under a heading are more than the rows that are derived there."""
    return {heading: n for heading, number in found.items() if (n := number - ROWS[heading]) > 0}


def predictions(source: str) -> Iterator[str]:
    """Names that a snippet publishes as predictions or as ratios to one: its own, a key's or a field's."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    for part in ast.walk(tree):
        if isinstance(part, ast.Dict):
            yield from (key.value for key in part.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(part, ast.Call):
            yield from (keyword.arg for keyword in part.keywords if keyword.arg)
        elif isinstance(part, ast.ClassDef):
            yield from (
                f.target.id for f in part.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
            )


def values_of_rows() -> set[str]:
    """`snippet.name` of each value that a row shows or lists; the names on the way to a nested one too."""
    quoted = [quote.partition(":")[0].split(".") for formula in FORMULAS for quote in formula.quotes() if quote]
    return {f"{snippet}.{name}" for snippet, *path in quoted for name in path} | {
        value for formula in FORMULAS for value in formula.also
    }


PREDICTED = {
    f"{path.stem}.{name}"
    for path in BOOK.snippet_files().values()
    for name in predictions(path.read_text(encoding="utf-8"))
    if PREDICTION.fullmatch(name)
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_formula_of_the_chapters_has_a_row_or_a_reason(language: str) -> None:
    pages = sorted((BOOK.docs / language).glob("*.md"))
    pages = [path for path in pages if path.name != "cs336.md"]  # which repeats what chapters say
    found = Counter(heading for path in pages for heading in headings_with_a_formula(path))
    assert formulas_without_a_row(found) == {heading: n for heading, (n, _) in FORMULAS_WITHOUT_A_ROW.items()}


def test_every_prediction_has_a_row_or_a_reason() -> None:
    assert sorted(PREDICTED - values_of_rows()) == sorted(VALUES_WITHOUT_A_ROW)


def test_a_row_lists_no_value_that_is_gone() -> None:
    assert sorted({value for formula in FORMULAS for value in formula.also} - PREDICTED) == []


def test_what_is_taken_for_a_prediction() -> None:
    source = """
predicted_a = 1
for x in ():
    predicted_b = 2
class Row:
    to_predicted_ratio: float
def f():
    predicted_c = g(measured_to_predicted_ratio=3)
    return {"predicted_d_seconds": 4, "d_ratio": 5}
"""
    found = {name for name in predictions(source) if PREDICTION.fullmatch(name)}
    assert found == {"predicted_a", "to_predicted_ratio", "measured_to_predicted_ratio", "predicted_d_seconds"}


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_a_row_leads_to_the_chapter_that_makes_its_values(formula: Formula) -> None:
    page, _, heading = formula.derived_at.partition("#")
    snippet = Snippet.read(BOOK.snippet_file(formula.snippet))
    tests_itself = formula.measured and not formula.measured_by
    value = (formula.measured if tests_itself else formula.predicted).partition(".")[0].partition(":")[0]
    assert value in snippet.bindings
    for language in ("en", "zh"):
        assert heading in [each.id for each in Chapter.read(BOOK.docs / language / page).headings]


@pytest.mark.parametrize("formula", DAILY, ids=lambda formula: formula.name)
def test_a_formula_of_every_day_leads_to_a_chapter_and_to_values_that_test_it(formula: Daily) -> None:
    page, _, heading = formula.derived_at.partition("#")
    for language in ("en", "zh"):
        assert heading in [each.id for each in Chapter.read(BOOK.docs / language / page).headings]
    assert bool(formula.predicted) == bool(formula.measured) and not (formula.predicted and formula.reached)
    for quote in filter(None, (formula.predicted, formula.measured, formula.reached)):
        snippet, name, *_ = quote.split(".")
        assert name in Snippet.read(BOOK.snippet_file(snippet)).bindings


def test_the_examples_of_every_day_come_out_as_in_the_head() -> None:
    found = runpy.run_path(str(BOOK.snippet_file("formulas")))
    assert found["training_flops"] == pytest.approx(6 * 8 * 10**21)
    assert found["run_hours"] == pytest.approx(48e21 / 4e17 / 3600) and round(found["logged_share"], 3) == 0.384
    assert found["state_bytes"] == 128e9 and found["logits_bytes"] == 12 * 8_192 * 128_000
    assert found["cache_bytes"] == 2**17 and found["layer_bytes"] == 8_192 * 41 * 4_096
    assert found["sent_bytes"] == ring_bytes(16e9, 8, "allreduce") == 28e9
    assert found["longer_ms"] == pytest.approx(983.04) and found["decode_ms"] == pytest.approx(
        (16 + 1.0737) / 3, rel=1e-4
    )


def test_a_ratio_is_bare_if_exact_and_a_dash_if_unknown() -> None:
    assert [ratio(2, 2), ratio(4, 4.0004), ratio(4, 2), ratio(4, None), ratio(None, 4)] == [
        "1",
        "1.00×",
        "0.500×",
        "—",
        "—",
    ]
