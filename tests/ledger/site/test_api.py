"""The page on the library shows a signature and a docstring as the source has them, or says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.book import LedgerError
from ledger.site.api import described

SOURCE = '''
def halve(x: float, *, times: int = 1) -> float:
    """Half of it.

    Raises ValueError."""


def bare() -> None: ...


LIMIT = 3
'''


def test_a_function_is_shown_as_its_source_has_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "numbers.py").write_text(SOURCE)
    text = described(tmp_path, "package.numbers", "halve")
    assert text == "`halve(x: float, *, times: int = 1) -> float`\n\nHalf of it.\n\nRaises ValueError."
    for missing in ("numbers.LIMIT", "numbers.gone", "numbers.bare", "gone.halve"):
        module, _, name = f"package.{missing}".rpartition(".")
        with pytest.raises(LedgerError, match=rf"{module}.{name}: there is no such function with a docstring"):
            described(tmp_path, module, name)
