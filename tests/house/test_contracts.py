"""Who imports whom is as pyproject.toml says; modules are found as Python finds them; git holds no links."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.conftest import ROOT

CODE = ("figures", "flops_bytes", "flops_bytes_data", "ledger", "planner", "published", "snippets", "tests")
# Where a path is put before the others, or a module loaded whose name is only known when it runs.
LOADERS = {
    "flops_bytes/__init__.py": "imports what is promised when it is asked for",
    "flops_bytes/counting/command.py": "runs a reader's script, which finds what lies beside it",
    "flops_bytes/counting/check/scripts.py": "runs scripts of other repositories, which find what lies beside them",
    "ledger/execute.py": "a snippet finds what lies beside it and the library",
    "ledger/site/variants.py": "the one loader of figures",
    "snippets/training_loop/training_loop.py": "looks for a copy of itself that a reader saved",
    "tests/blocks.py": "proves that a block needs the library alone",
    "tests/ledger/site/test_notebooks.py": "proves that a notebook needs the library alone",
}


def test_every_contract_is_kept(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS, capfd.readouterr().out


def test_the_contracts_name_every_module_of_the_ledger() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (named,) = [set(each["source_modules"]) for each in contracts if each.get("forbidden_modules") == ["ledger.site"]]
    assert named == {f"ledger.{path.stem}" for path in (ROOT / "ledger").glob("*.py")} - {"ledger.__init__"}


def loads(source: str) -> Iterator[int]:
    """The lines where modules are looked for in another way than by an import."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                yield node.lineno
            case ast.Name(id="__import__") | ast.Attribute(value=ast.Name(id="importlib")):
                yield node.lineno
            case ast.ImportFrom(module="importlib", names=names) if {each.name for each in names} != {"metadata"}:
                yield node.lineno
            case ast.ImportFrom(module="sys", names=names) if "path" in {each.name for each in names}:
                yield node.lineno


def test_modules_are_found_as_python_finds_them() -> None:
    paths = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): list(loads(path.read_text(encoding="utf-8"))) for path in paths}
    assert {name: lines for name, lines in found.items() if lines and name not in LOADERS} == {}
    assert {name for name in LOADERS if not found.get(name)} == set(), "no longer needed"


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.path.append('x')",
        "from sys import path",
        "__import__('x')",
        "import importlib\nimportlib.import_module('x')",
        "import importlib.util\nimportlib.util.find_spec('x')",
        "from importlib import import_module",
    ],
)
def test_another_way_to_find_a_module_is_seen(source: str) -> None:
    assert list(loads(source)) and not list(loads("import sys\nfrom importlib import metadata\nsys.modules"))


def test_git_holds_no_symbolic_link() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.partition("\t")[2] for line in listed.splitlines() if line.startswith("120000")] == []
