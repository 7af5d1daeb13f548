"""The library imports the standard library and itself, and torch only where it is named here: one plans without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import flops_bytes
from tests.conftest import ROOT

LIBRARY = ROOT / "flops_bytes"
ROOMS = {  # by room, what needs torch there
    "counting": (
        "buckets",
        "card",
        "collectives",
        "command",
        "count",
        "counted",
        "counter",
        "fake_group",
        "ranks",
        "step_trace",
        "check.count",
        "check.kinds",
        "check.reserved",
        "check.scripts",
    ),
    "lessons": ("generate", "measure", "models", "ranks", "steps", "trace", "train", "train_sharded"),
    "tools": ("watch",),
}
NEED_TORCH = {f"flops_bytes.{room}.{name}" for room, names in ROOMS.items() for name in names}
# Of these modules, others' packages too
OTHERS = {
    "flops_bytes.counting.check.count": {"transformers"},
    "flops_bytes.counting.check.kinds": {"transformers"},
    "flops_bytes.counting.check.reserved": {"peft", "transformers"},
    "flops_bytes.counting.check.scripts": {"transformers", "torchtitan", "picotron", "nanochat"},
    "flops_bytes.counting.pytest_plugin": {"pytest"},
    "flops_bytes.files.parse": {"yaml"},  # where it is there: the extra [files]
}
MODULES = sorted(LIBRARY.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever it does, by their whole names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_nothing_else(path: Path) -> None:
    others = {name.partition(".")[0] for name in imported(path)} - {*sys.stdlib_module_names, "flops_bytes"}
    needed = {"torch"} if name_of(path) in NEED_TORCH else set()
    assert others <= needed | OTHERS.get(name_of(path), set())


def test_what_is_not_named_here_imports_without_torch() -> None:
    names = [name_of(path) for path in MODULES if name_of(path) not in NEED_TORCH and path.stem != "__main__"]
    code = f"import importlib, sys; sys.modules['torch'] = None; [importlib.import_module(name) for name in {names}]"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


PROMISED = """
import sys, time
sys.modules["torch"] = None
began = time.process_time()
import flops_bytes
assert time.process_time() - began < 0.3, "as long as a plan may take"
assert [name for name in sys.modules if name.startswith("flops_bytes.")] == []
for _ in range(2):
    assert flops_bytes.plan(model="gpt2", gpu="T4")["fits"] in (True, False)
from flops_bytes.plan.options import OPTIONS
from flops_bytes import plan
assert plan(model="gpt2", gpu="T4")["fits"] in (True, False)
assert flops_bytes.snapshot.report and flops_bytes.kernels.report and flops_bytes.read_stack and flops_bytes.Stack
try:
    flops_bytes.count
except ModuleNotFoundError as error:
    assert error.name == "torch"
"""


def test_what_is_promised_is_imported_when_it_is_asked_for() -> None:
    """The planner without torch, however often and whatever of it was imported before."""
    done = subprocess.run([sys.executable, "-c", PROMISED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_that_is_promised_is_there() -> None:
    assert {name for name in flops_bytes.__all__ if getattr(flops_bytes, name, None) is None} == set()
    assert {*flops_bytes.__all__} <= {*dir(flops_bytes)} and not hasattr(flops_bytes, "nosuch")
    assert {*flops_bytes.MODULES, *flops_bytes.PLACES} == {*flops_bytes.__all__}
