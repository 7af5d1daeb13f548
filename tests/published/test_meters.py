"""A published reading is held against what the planner says of its own meter, and a run against who lived."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.plan import plan
from flops_bytes.plan.meters import DIES, LIVES, RETRIES
from published import meters
from published.meters import ask, ask_all, keep_first, lengths_up_to, lives_of, read_lengths, said_of
from published.readings import Reading, compare, extract, read_source
from tests.published.test_published import change, clones, made_up

__all__ = ["made_up"]  # a fixture
SHAPE = "layers=4 d_model=512 heads=8 kv_heads=8 head_dim=64 d_ff=1536 vocab=8000"
ASKED: dict[str, Any] = {"shape": SHAPE, "gpu": "A100 80GB SXM", "recipe": "bf16", "context": 1024}
# ms-swift's page, whose quote stands in its file
SWIFT = {"mean": 3234.4, "deviation": 2547.5, "shortest": 91, "longest": 19548, "longer": "left out"}


def made(what: str, about: dict[str, Any] | None = None, **settings: Any) -> Reading:
    return Reading("made-up", "peaks", 0, "", 0, what, "1", ASKED | settings, about or {}, {}, None, None)


def test_each_meter_shows_its_own() -> None:
    """As the planner's answer has them, whose reserved bytes are an interval of several ways."""
    found, said = plan(**ASKED)["meters"], ask(ASKED, None)
    assert said.lives == LIVES and said.allocated == found["allocated_bytes"]
    low, high = found["reserved_bytes"]
    assert said.allocated < said.reserved < said.smi and low <= said.reserved <= high
    assert found["smi_bytes"][0] <= said.smi <= found["smi_bytes"][1]
    for what in ("allocated_gib", "active_gib"):
        assert said_of(made(what), None)[0] == (said.allocated,) * 2
    assert said_of(made("reserved_mib"), None)[0] == (said.reserved,) * 2
    assert said_of(made("smi_gb"), None)[0] == (said.smi,) * 2
    assert said_of(made("memory_gib"), None)[0] == (said.allocated, said.smi)
    assert said_of(made("memory_g"), None)[0] == (said.allocated * 1e9 / 2**30, said.smi)
    assert said_of(made("reserved_mib", {"summed_gpus": [2, 4]}), None)[0] == (2 * said.reserved, 4 * said.reserved)


def test_of_what_settings_leave_open_the_ends_are_asked() -> None:
    contexts = [1024, 4096, 2048]
    (low, high), found = said_of(made("reserved_mib", context=contexts), None)
    assert (low, high) == tuple(ask(ASKED | {"context": context}, None).reserved for context in (1024, 4096))
    assert len(found) == 2 and len(said_of(made("reserved_mib", context=[1024, 1025]), None)[1]) == 1  # alike


def test_a_card_can_have_more_or_less_than_its_name_says() -> None:
    tight = {"context": 2048, "micro_batch": 4}
    free = ask(ASKED | tight, None)
    assert (free.lives, ask(ASKED | tight, None, 2).lives) == (LIVES, DIES)
    assert ask(ASKED | tight, None, 2).reserved == free.reserved  # as where nothing limits it
    held = ask(ASKED | tight, None, (free.smi - 10e6) / 1e9)
    assert held.lives == RETRIES and held.reserved < free.reserved


def test_lengths_have_the_mean_and_the_deviation_of_their_source() -> None:
    every = lengths_up_to(SWIFT, 10**6)
    assert statistics.fmean(every) == pytest.approx(SWIFT["mean"], rel=0.02)  # without the longest of all
    assert statistics.pstdev(every) == pytest.approx(SWIFT["deviation"], rel=0.1)
    assert 91 <= min(every) < 300 and 15_000 < max(every) <= 19_548
    left, cut = (lengths_up_to(SWIFT | {"longer": longer}, 1024) for longer in ("left out", "cut"))
    assert max(left) <= 1024 and statistics.median(left) < 1000
    assert max(cut) == 1024 and sum(length == 1024 for length in cut) > 850
    assert sorted(cut)[:100] == pytest.approx(sorted(min(1024, length) for length in every)[:100], abs=1)


def test_what_differs_in_length_reserves_more_than_what_is_packed() -> None:
    packed, differing = ask(ASKED, None), ask(ASKED, SWIFT)
    assert differing.allocated <= 1.02 * packed.allocated and differing.reserved > 1.1 * packed.reserved


def test_what_is_said_first_of_a_meter_stays(made_up: Path) -> None:
    extract(made_up, clones(made_up))

    def said() -> list[meters.Metered]:
        return list(ask_all(compare(read_source(made_up)[1]), read_lengths(made_up.parent)))

    first = said()
    assert [(each.reading.what, each.reading.row) for each in first] == [("reserved_gib", 0), ("reserved_gib", 2)]
    keep_first(made_up, first)
    change(made_up, "zero = 3", "zero = 2")
    now = said()
    keep_first(made_up, now)
    kept = [each for each in read_source(made_up)[1] if each.kind == "memory"]
    assert [each.metered for each in kept] == [each.said for each in first] != [each.said for each in now]
    assert all(each.metered_on for each in kept)
    extract(made_up, clones(made_up))
    assert [each.metered for each in read_source(made_up)[1] if each.kind == "memory"] == [each.said for each in first]


def test_a_run_is_known_to_have_lived_by_its_readings(made_up: Path) -> None:
    """Of the made-up rows the second has none, and its context is between those of two that have."""
    change(made_up, 'name = "peaks"', 'name = "peaks"\nempty = "died"')
    extract(made_up, clones(made_up))
    found = list(lives_of(made_up))
    assert [(each.reading.row, each.lived) for each in found] == [(0, True), (1, False), (2, True)]
    assert all(each.by_tensors and each.by_allocator for each in found)
    change(made_up, "gpus = 8, zero = 3", "gpus = 1")
    assert not any(each.by_tensors or each.by_allocator for each in lives_of(made_up))
