"""The predictions of a step and of its ladder stand before what runs, and read nothing that a run binds."""

from __future__ import annotations

import ast

import pytest

from ledger.book import Book
from tests.conftest import ROOT

RUNS = {"full_ledger": "run", "gpt2_ladder": "measure"}  # the section in which steps are run
PATHS = {name: Book(ROOT).snippet_file(name) for name in RUNS}


def names(code: str) -> tuple[set[str], set[str]]:
    """What a piece of code binds at its top level, and all that it reads."""
    tree = ast.parse(code)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    bound |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return bound, {node.id for node in found if isinstance(node.ctx, ast.Load)}


def parts(code: str, run: str) -> tuple[str, str]:
    """The code before the run, and from the run to the end."""
    before, marker, after = code.partition(f"# --8<-- [start:{run}]")
    assert marker and "# --8<-- [start:predict]" in before
    return before, after


def problems(code: str, run: str) -> set[str]:
    """Names that the prediction reads, or the run changes."""
    before, after = parts(code, run)
    (bound_before, read_before), (bound_after, _) = names(before), names(after)
    return (read_before & bound_after - bound_before) | {
        name for name in bound_after & bound_before if name.startswith(("predicted_", "measured_"))
    }


@pytest.mark.parametrize("snippet", RUNS)
def test_the_prediction_reads_nothing_of_the_run(snippet: str) -> None:
    assert not problems(PATHS[snippet].read_text(encoding="utf-8"), RUNS[snippet])


@pytest.mark.parametrize(
    ("snippet", "old", "new"),
    [
        ("full_ledger", "step_seconds(STEP,", "measured_step_seconds * len("),
        ("full_ledger", "measured_residual =", "predicted_step_seconds = measured_step_seconds\nmeasured_residual ="),
        ("gpt2_ladder", 'lines | {"step": whole}', 'lines | {"step": measured_rungs[name]}'),
        ("gpt2_ladder", "measured_best_mfu =", "predicted_rungs_seconds = measured_rungs\nmeasured_best_mfu ="),
    ],
)
def test_a_prediction_after_the_run_is_found(snippet: str, old: str, new: str) -> None:
    code = PATHS[snippet].read_text(encoding="utf-8")
    assert old in code
    assert problems(code.replace(old, new), RUNS[snippet])
