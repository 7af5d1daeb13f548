"""A draw is the same in every process of a run, another in the next, and nothing is left out for ever."""

from __future__ import annotations

import os

import pytest

from tests import draw
from tests.draw import drawn


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
