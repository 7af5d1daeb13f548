"""A draw is the same in every process of a run, another in the next, and nothing is left out for ever."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests import draw
from tests.draw import drawn
from tests.groups import not_drawn


def test_what_is_drawn_follows_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "ALL", False)
    assert os.environ["SEED"] == draw.SEED, "other processes draw something else"
    found = []
    for seed in map(str, range(40)):
        monkeypatch.setattr(draw, "SEED", seed)
        found.append(drawn("abcdefgh", 3))
        assert found[-1] == drawn(iter("abcdefgh"), 3) == sorted(found[-1]) and len({*found[-1]}) == 3
    assert {case for cases in found for case in cases} == {*"abcdefgh"}
    assert drawn("ab", 3) == ["a", "b"]


def test_on_request_everything_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "ALL", True)
    assert drawn("abcdefgh", 3) == [*"abcdefgh"]


def test_of_a_tests_cases_some_are_run_and_every_other_test_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Item:
        def __init__(self, nodeid: str, number: int = 0) -> None:
            self.nodeid, self.number = nodeid, number

        def get_closest_marker(self, name: str) -> SimpleNamespace | None:
            return SimpleNamespace(args=(self.number,)) if self.number and name == "drawn" else None

    cases: list[Any] = [Item(f"a.py::one[{number}]", 2) for number in range(5)]
    others: list[Any] = [Item("a.py::two[0]", 1), *(Item(f"a.py::three[{number}]") for number in range(3))]
    monkeypatch.setattr(draw, "ALL", False)
    left = not_drawn(cases + others)
    assert len(left) == 3 and {id(item) for item in left} <= {id(item) for item in cases}
    monkeypatch.setattr(draw, "ALL", True)
    assert not_drawn(cases + others) == []
