"""A pytest plugin: several processes share the tests in groups, the long ones first, and all are the same tests.

With `-n 2 --dist loadgroup`, the tests of a file stay together, and so do the blocks of a page. Some files' tests need
not; those that watch the clock take turns in one group.
"""

from __future__ import annotations

import pytest

# Files each of whose tests may run anywhere: they share nothing but the built site
APART = {"test_records.py", "test_browser.py", "test_planner_page.py", "test_mistakes.py", "test_notebooks.py"}
# Files that share one costly fixture, or the clock, by group
TOGETHER = {
    "devices": {"test_devices.py", "test_weight.py"},
    "clock": {"test_commands.py", "test_device.py", "test_hostile.py", "test_run.py", "test_trace.py"},
}
# What takes longest begins first, so that no process is left alone with it at the end; seconds, roughly
LONG = {
    "devices": 60,
    "test_sharded.py": 50,
    "clock": 45,
    "test_interrupted.py": 30,
    "test_sharded_alone.py": 20,
    "test_planner_script.py": 20,
    "test_reuse.py": 20,
}
NOT_QUICK = {"site", "browser", "many_devices"}  # fixtures


def group_of(item: pytest.Item) -> str:
    name = item.path.name
    for group, names in TOGETHER.items():
        if name in names:
            return group
    if name in APART:
        return item.name.replace("@", " ").replace("]", " ")
    return str(item.path.relative_to(item.config.rootpath))


def length(item: pytest.Item) -> int:
    """Roughly, of its group: seconds where they are known, else a page's before a file's."""
    return max(LONG.get(group_of(item), 0), LONG.get(item.path.name, 0), 2 if item.path.suffix == ".md" else 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what needs the built site or a browser")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Says its group before xdist asks, which is before any plugin sees the whole list."""
    item.add_marker(pytest.mark.xdist_group(group_of(item)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        items[:] = [item for item in items if not NOT_QUICK & {*getattr(item, "fixturenames", ())}]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -length(item))  # keeps the order within each group
