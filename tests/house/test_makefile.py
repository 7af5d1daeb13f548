"""Of the two commands each half counts: tests and types, and each language of the site."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Says what it is called with, and fails if that holds the word in FAILS.
PYTHON = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in *"$FAILS"*) exit 1 ;; esac
"""
FAILING = {
    "test": ["pytest", "mypy", "ruff check", "ruff format"],
    "site": ["mkdocs.zh.yml", "bundle site", "language zh"],
}


def run_target(target: str, fails: str, folder: Path) -> tuple[int, str]:
    """What a target of the Makefile ends with, and all that it calls Python with, where everything else succeeds."""
    (folder / "python").write_text(PYTHON)
    (folder / "python").chmod(0o755)
    (folder / "Makefile").write_text((ROOT / "Makefile").read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("site/zh", ".cache/site-zh", ".github"):
        (folder / name).mkdir(parents=True)
    for name in ("pyproject.toml", ".github/constraints.txt"):  # of which the set-up is made, older than it
        (folder / name).touch()
    calls = folder / "calls"
    calls.touch()
    done = subprocess.run(
        ["make", target, "BIN=.", "READY=calls", "LOCAL=0"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "CALLS": str(calls), "FAILS": fails},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, calls.read_text()


@pytest.mark.parametrize("target", FAILING)
def test_a_target_does_all_its_parts_and_fails_if_one_of_them_fails(target: str, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    ended, called = run_target(target, "nothing of the kind", tmp_path / "all")
    assert ended == 0, called
    for part in FAILING[target]:
        assert part in called
        (tmp_path / part.replace(" ", "-")).mkdir()
        assert run_target(target, part, tmp_path / part.replace(" ", "-"))[0] != 0, part


def test_what_one_edits_is_looked_at_by_the_structure_of_all_pages() -> None:
    """`make quick` has at least what reads each page of both languages."""
    (names,) = re.findall(r"^QUICK := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    files = {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert {*names.split()} <= files and len({*names.split()}) == len(names.split())
    assert {"figures", "formulas", "glossary", "languages", "numbers", "series", "units"} <= {*names.split()}


def test_continuous_integration_runs_the_tests_and_the_exact_values() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make ")] == ['make test "$@"', "make exact"]
    assert "set -euo pipefail" in lines
