"""A machine with Python and torch alone runs, records and compares; only ledger/site needs Markdown."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ledger.book import Book
from ledger.record import Record
from tests.conftest import ROOT

LEDGER = ROOT / "ledger"


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


BARE = (  # torch, and what it needs itself
    *(
        "torch",
        "torch-*.dist-info",
        "torchgen",
        "functorch",
        "nvidia",
        "triton",
        "cuda",
        "typing_extensions.py",
        "sympy",
    ),
    *("mpmath", "filelock", "fsspec", "jinja2", "markupsafe", "networkx", "setuptools"),
)
READER = """\
import subprocess, sys
from flops_bytes.helper import size_bytes as used
own_bytes = used
_ask = [sys.executable, "-S", "-c", "from flops_bytes.helper import size_bytes; print(size_bytes)"]
childs = subprocess.run(_ask, cwd="/", capture_output=True, text=True, check=True).stdout
"""


def test_a_bare_machine_records_by_force_and_finds_the_library_in_the_checkout(
    small_book: Book, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without any site-packages (-S): torch is linked into a folder, the library installed nowhere."""
    packages, bare = Path(torch.__file__).parent.parent, tmp_path_factory.mktemp("bare")
    for path in (path for name in BARE for path in packages.glob(name)):
        (bare / path.name).symlink_to(path)
    (helper := small_book.library / "helper.py").parent.mkdir()
    helper.with_name("__init__.py").touch()
    helper.write_text("size_bytes = 12\n")
    (small_book.snippets / "reader.py").write_text(READER)
    command = [sys.executable, "-S", "-m", "ledger", "--root", str(small_book.root), "record", "--force", "reader"]
    environment = {"PYTHONPATH": str(bare), "PATH": os.environ["PATH"], "HOME": str(bare)}
    done = subprocess.run(command, cwd=LEDGER.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = small_book.measurements.glob("*/reader.json")
    assert Record.read(path).values == {"own_bytes": 12, "childs": "12\n"}
