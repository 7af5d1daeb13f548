"""A pytest plugin: several processes share the tests in groups, the long ones first, and all are the same tests.

With `-n 2`, the tests of a file stay together, and so do the blocks of a page, in their order. Some files need not be
kept together; those that watch the clock take turns in one group.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.draw import ALL, SEED, drawn

# Files each of whose tests may run anywhere: they share nothing but the built site
APART = {"test_records.py", "test_browser.py", "test_planner_page.py", "test_mistakes.py", "test_notebooks.py"}
# Files that share one costly fixture, what a process makes once, or the clock, by group
TOGETHER = {
    "devices": {"test_devices.py", "test_weight.py"},
    "scripts": {
        "test_planner_meters.py",
        "test_planner_script.py",
        "test_planner_shorten.py",
        "test_planner_stacks.py",
    },
    "clock": {"test_commands.py", "test_device.py", "test_hostile.py", "test_run.py", "test_trace.py"},
}
# What takes longest begins first, so that no process is left alone with it at the end; seconds, roughly
LONG = {
    "devices": 100,
    "clock": 45,
    "tests/flops_bytes/plan/test_plan_parallel.py": 45,
    "docs/en/count-your-step.md": 40,
    "scripts": 40,  # more, but once the build of the site has made the scripts
    "tests/planner/test_planner_files.py": 35,
    "tests/planner/test_planner_form.py": 35,
    "tests/flops_bytes/plan/test_rank_ways.py": 25,
    "tests/flops_bytes/plan/test_questions.py": 20,
    "tests/flops_bytes/test_sharded.py": 20,
    "tests/published/test_published_layouts.py": 20,
    "docs/en/capstones.md": 15,
    "tests/flops_bytes/files/test_write.py": 15,
    "tests/ledger/site/test_check.py": 15,
    "tests/ledger/site/test_reuse.py": 15,
    "tests/ledger/test_interrupted.py": 15,
    "tests/site/test_offline.py": 15,
    "tests/flops_bytes/plan/test_plan.py": 10,
    "tests/flops_bytes/plan/test_plan_check.py": 10,
    "tests/flops_bytes/plan/test_plan_rl.py": 10,
    "tests/flops_bytes/plan/test_plan_software.py": 10,
    "tests/flops_bytes/plan/test_plan_stacks.py": 10,
    "tests/flops_bytes/test_arithmetic.py": 10,
    "tests/flops_bytes/test_count.py": 10,
    "tests/flops_bytes/test_inference.py": 10,
    "tests/flops_bytes/test_parallel.py": 10,
    "tests/flops_bytes/test_parallel_gloo.py": 10,
    "tests/pages/test_front.py": 10,
    "tests/planner/test_planner_doors.py": 10,
    "tests/planner/test_planner_layouts.py": 10,
}
NOT_QUICK = {"site", "browser", "many_devices"}  # fixtures


def group_of(nodeid: str) -> str:
    """What a test stays together with: the tests of the same name."""
    path = nodeid.partition("::")[0]
    name = PurePosixPath(path).name
    if name in APART:
        return nodeid
    return next((group for group, names in TOGETHER.items() if name in names), path)


def expected_seconds(nodeid: str) -> int:
    """How long a test's group takes, roughly; where nobody has timed it, a page is taken for longer than a file."""
    group = group_of(nodeid)
    return LONG.get(group, 2 if group.endswith(".md") else 1)


class Groups(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
    """xdist's own `loadgroup` takes a group from a suffix of the test's name, and pytest 9.2 lets nobody add one."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    config.option.loadscopereorder = False  # the order is ours
    return Groups(config, log)


def pytest_report_header() -> str:
    return "what takes long: all of it" if ALL else f"what takes long: a part, drawn with SEED={SEED}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what needs the built site or a browser")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "drawn(number): so many of a test's cases, another part each time")


def not_drawn(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of tests marked `drawn` that are left for another time."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("drawn"):
            cases.setdefault(f"{mark.args[0]} {item.nodeid.partition('[')[0]}", []).append(item)
    chosen = {id(item) for name, of in cases.items() for item in drawn(of, int(name.partition(" ")[0]))}
    return [item for of in cases.values() for item in of if id(item) not in chosen]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if left := {id(item) for item in not_drawn(items)}:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
        items[:] = [item for item in items if id(item) not in left]
    if config.getoption("--quick"):
        items[:] = [item for item in items if not NOT_QUICK & {*getattr(item, "fixturenames", ())}]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -expected_seconds(item.nodeid))  # keeps the order within each group
