"""The full ledger's prediction stands before its run, and nothing of the prediction reads what the run binds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ledger.snippet import Snippet
from tests.conftest import ROOT

PATH = ROOT / "snippets" / "full_ledger.py"
PAGES = [ROOT / "docs" / language / "full-ledger.md" for language in ("en", "zh")]


def names(code: str) -> tuple[set[str], set[str]]:
    """What a piece of code binds at its top level, and all that it reads."""
    tree = ast.parse(code)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    bound |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return bound, {node.id for node in found if isinstance(node.ctx, ast.Load)}


def parts(code: str) -> tuple[str, str]:
    """The code before the run, and from the run to the end."""
    before, marker, after = code.partition("# --8<-- [start:run]")
    assert marker and "# --8<-- [start:predict]" in before
    return before, after


def problems(code: str) -> set[str]:
    """Names that the prediction reads, or the run changes."""
    before, after = parts(code)
    (bound_before, read_before), (bound_after, _) = names(before), names(after)
    return (read_before & bound_after - bound_before) | {
        name for name in bound_after & bound_before if name.startswith(("predicted_", "measured_"))
    }


def test_the_prediction_reads_nothing_of_the_run() -> None:
    assert not problems(PATH.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("elementwise_seconds,", "measured_step_seconds,"),
        ("measured_residual =", "predicted_step_seconds = measured_step_seconds\nmeasured_residual ="),
    ],
)
def test_a_prediction_after_the_run_is_found(old: str, new: str) -> None:
    code = PATH.read_text(encoding="utf-8")
    assert old in code
    assert problems(code.replace(old, new))


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_the_page_predicts_first(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = [text.index(f'full_ledger.py:{section}"') for section in ("predict", "run", "ledger")]
    assert places == sorted(places)
    assert set(Snippet.read(PATH).sections) >= {"predict", "run", "ledger"}
