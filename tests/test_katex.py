"""Formulas are set while a page is built, and the process that set them ends."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
TYPESET: Any = importlib.import_module("docs.theme.typeset")  # mypy knows it by another name
AT_ONCE = 4  # without its mend, two of three such processes never ended on a busy machine


def test_a_formula_is_set() -> None:
    assert "<msup>" in TYPESET.typeset("x^2", display=False)
    assert "katex-display" in TYPESET.typeset("x^2", display=True) and "katex-display" not in TYPESET.typeset(
        "x^2", display=False
    )


def test_what_is_no_formula_is_named() -> None:
    with pytest.raises(ValueError, match=r"KaTeX cannot set \$\\nosuch\$: .*Undefined control sequence"):
        TYPESET.typeset(r"\nosuch", display=False)


def test_a_process_that_set_a_formula_ends() -> None:
    code = "from docs.theme.typeset import typeset; typeset('x^2', display=False)"
    processes = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(AT_ONCE)]
    try:
        assert [process.wait(timeout=30) for process in processes] == [0] * AT_ONCE
    finally:
        for process in processes:
            process.kill()
            process.wait()
