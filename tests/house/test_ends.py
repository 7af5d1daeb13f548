"""Each pinned tool, and each Python that is tested, has an end or goes on; of an end there is a warning in time."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta

from tests import ends
from tests.conftest import ROOT
from tests.ends import ENDS, NOTICE, warnings
from tests.house.test_publish import workflow


def test_every_pinned_tool_has_an_end_or_goes_on() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"].values()
    pinned = {re.match(r"[\w-]+", tool)[0] for group in groups for tool in group if isinstance(tool, str)}  # type: ignore[index]
    pythons = {f"python {version}" for version in workflow("check.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]}
    alive = tomllib.loads(ENDS.read_text())["alive"]["tools"]
    for name, entry in ends.told().items():
        assert {*entry} in ({"ends", "source", "then"}, {"last_release", "source", "then"}), name
    assert sorted([*alive, *ends.told()]) == sorted(pinned | pythons)


def test_an_end_is_told_180_days_before_and_from_then_on() -> None:
    end = ends.told()["mkdocs-material"]["ends"]

    def told(days: int) -> list[str]:
        return [line for line in warnings(end - timedelta(days=days)) if line.startswith("mkdocs-material ")]

    assert (NOTICE.days, told(181)) == (180, [])
    assert "ends in 180 days" in told(180)[0] and "Zensical" in told(180)[0]
    assert "has ended" in told(0)[0] and "has ended" in told(-400)[0]


def test_the_nightly_run_warns() -> None:
    steps = workflow("nightly.yml")["jobs"]["test"]["steps"]
    assert any(step.get("run", "").endswith("python -m tests.ends") for step in steps)
