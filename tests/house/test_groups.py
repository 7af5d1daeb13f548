"""Several processes may share the tests: what belongs together stays together, and what takes long begins first."""

from __future__ import annotations

from pathlib import Path

from tests import groups
from tests.conftest import ROOT
from tests.groups import expected_seconds, group_of


def test_a_pages_blocks_and_a_files_tests_stay_together() -> None:
    first, second = (f"docs/en/plan.md::[CodeFence#{number}][line:{number}]" for number in (1, 2))
    assert group_of(first) == group_of(second) != group_of(first.replace("plan", "mfu"))
    assert group_of("tests/ledger/test_units.py::test_a[x/y.md::z]") == group_of("tests/ledger/test_units.py::test_b")
    assert group_of("tests/site/test_weight.py::test_a") == group_of("tests/site/test_devices.py::test_b")
    assert group_of("tests/ledger/test_records.py::test_a[x]") != group_of("tests/ledger/test_records.py::test_a[y]")


def test_what_takes_long_begins_first() -> None:
    names = [
        "tests/ledger/test_units.py::test_a",
        "docs/en/plan.md::[CodeFence#1]",
        "tests/flops_bytes/test_sharded.py::test_a",
    ]
    assert sorted(names, key=lambda name: -expected_seconds(name)) == names[::-1]


def test_the_files_that_are_named_are_there() -> None:
    named = {Path(name).name for name in groups.LONG if name.endswith(".py")}
    here = {path.name for path in (ROOT / "tests").rglob("*.py")}
    assert named | groups.APART | set().union(*groups.TOGETHER.values()) <= here
