"""A machine with Python and torch alone runs, records and compares; only ledger/site needs Markdown."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LEDGER = Path(__file__).parent.parent / "ledger"


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    """Modules that are imported when a file is, not only when one of its functions is called."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield statement.module or ""
        elif not isinstance(statement, ast.FunctionDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _imported(getattr(statement, part, []))


def _missing_on_a_bare_machine(path: Path) -> set[str]:
    names = set(_imported(ast.parse(path.read_text(encoding="utf-8")).body))
    bare = {*sys.stdlib_module_names, "torch", "ledger"}
    return {name for name in names if name.partition(".")[0] not in bare or name.startswith("ledger.site")}


@pytest.mark.parametrize("path", sorted(LEDGER.glob("*.py")), ids=lambda path: path.stem)
def test_needs_torch_alone(path: Path) -> None:
    assert not _missing_on_a_bare_machine(path)


def test_the_site_is_the_side_that_needs_more() -> None:
    needed = set().union(*(_missing_on_a_bare_machine(path) for path in (LEDGER / "site").glob("*.py")))
    assert {"yaml", "markdown"} <= needed
