"""A row of the page of formulas compares like with like: one unit, one key, a ratio near 1 or a reason."""

from __future__ import annotations

import pytest

from figures.formulas import GROUPS, Formula
from ledger.site.check import configured_device
from ledger.site.quote import Quote, Values, open_source
from ledger.units import unit_of_path
from tests.pages.test_series import alike
from tests.tables import BOOK

FORMULAS = [formula for group in GROUPS.values() for formula in group if formula.measured]
DEVICE = configured_device(BOOK)

# How far the measurement may be from the prediction; what is exact, 2 %, what a device took, twofold.
EXACT, MEASURED = (0.98, 1.02), (0.5, 2.0)
FARTHER: dict[str, tuple[tuple[float, float], str]] = {
    "casts": ((0.8, 1.0), "a bound: a large fp8 matmul reaches less of its peak"),
    "checkpoint": ((0.85, 1.0), "what is claimed, and does not hold"),
    "performed": ((0.9, 1.0), "a small product, where one addition less in each sum shows"),
    "run": ((1.0, 1.2), "hours of a whole run, restarts included, against an MFU to book by"),
    "rate": ((0.12, 2.0), "eight times the work takes no longer where half the side leaves most of a GPU idle"),
    "median": ((0.5, 4.0), "a bound for independent trials"),
    "transformer": ((1.0, 1.2), "6ND leaves out attention"),
    "two_layers": ((0.55, 0.65), "what is claimed, and does not hold"),
}

ONE_KEY = ("matmul", "whole_step")  # whose last key is the value's own name


@pytest.fixture(scope="module")
def values() -> Values:
    return Values(open_source(BOOK, DEVICE, local=False))


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_a_ratio_is_near_one_or_has_a_reason(formula: Formula, values: Values) -> None:
    predicted, measured = (values[quote] for quote in formula.quotes())
    on_device = any(Quote.parse(quote).is_device_value for quote in formula.quotes())
    (low, high), _ = FARTHER.get(formula.name, (MEASURED if on_device else EXACT, ""))
    if predicted is None or measured is None:
        assert on_device, "an exact value is on every device"
    else:
        assert low <= measured / predicted <= high


def test_what_may_be_farther_is_a_row() -> None:
    assert set(FARTHER) <= {formula.name for formula in FORMULAS}


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_both_sides_are_of_one_unit_one_format_and_one_key(formula: Formula) -> None:
    predicted, measured = map(Quote.parse, formula.quotes())
    assert len({unit_of_path(list(quote.path)) for quote in (predicted, measured)} - {""}) <= 1
    assert len({quote.style.replace("full", ".0f") for quote in (predicted, measured)}) == 1  # both: no decimals
    ours, theirs = ([key for key in quote.path[1:] if not key.isdigit()] for quote in (predicted, measured))
    if formula.name not in ONE_KEY and ours and theirs:  # of one model, data type, strategy …
        assert any(alike(one, other) for one in ours for other in theirs)
