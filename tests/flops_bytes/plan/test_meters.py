"""What three meters will show: the answer's numbers, its verdict, and the options that an allocator hangs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flops_bytes.memory.allocator import MIB, Settings
from flops_bytes.memory.first_steps import Replay, Steps, replay
from flops_bytes.plan import meters, plan, plan_exactly
from flops_bytes.plan.__main__ import main
from flops_bytes.plan.assumptions import complete_question
from flops_bytes.plan.meters import (
    Chance,
    after_allocator,
    drawn_lengths,
    judged_by_meters,
    life_in_ways,
    read_lengths,
    read_life,
    read_meters,
    read_settings,
    read_steps,
    step_on_card,
)
from flops_bytes.plan.options import read_options
from flops_bytes.plan.stacks import read_model
from flops_bytes.plan.table import brief

SMALL = "layers=4 d_model=512 heads=8 kv_heads=4 head_dim=64 d_ff=1536 vocab=32000"
ASKED: dict[str, Any] = {"shape": SMALL, "gpu": "RTX 4090", "context": 1024, "micro_batch": 4, "trained": "all"}


def test_each_meter_shows_what_the_one_before_does_and_more() -> None:
    found = plan(**ASKED)
    meters, lines = found["meters"], found["memory_bytes"]
    assert meters["allocated_bytes"] == pytest.approx(lines["total"] - lines["allowance"], rel=0.01)
    assert meters["allocated_bytes"] <= meters["reserved_bytes"][0] <= meters["reserved_bytes"][1]
    middle = sum(sum(line["bytes"]) for line in meters["outside"]) // 2
    assert middle == lines["allowance"]
    assert meters["smi_bytes"] == tuple(size + middle for size in meters["reserved_bytes"])
    assert all(line["source"] for line in meters["outside"])
    assert (meters["lives"], meters["death"], meters["draws"]) == ("lives", None, 0)
    assert plan(meters=False, **ASKED) == found | {"meters": None}
    assert plan_exactly(task="serve", model="llama-3-8b", gpu="H100 SXM")["meters"] is None


def test_what_is_said_to_lie_outside_is_taken_instead() -> None:
    meters = plan(**ASKED, allowance="2GB")["meters"]
    assert [line["bytes"] for line in meters["outside"]] == [(2 * 10**9, 2 * 10**9)]
    assert meters["smi_bytes"][0] - meters["reserved_bytes"][0] == 2 * 10**9


def test_a_run_lives_or_asks_again_or_dies() -> None:
    asked = ASKED | {"lengths": "64-1024", "allowance": "1GB", "checkpointing": "none"}
    roomy = plan(**asked)
    shown, other = roomy["meters"]["smi_bytes"][1], {"gpu": None, "gpu_peak": "165T"}
    tight, small = (plan(**asked | other | {"gpu_memory": int(share * shown)}) for share in (0.9, 0.3))
    assert (roomy["meters"]["lives"], roomy["meters"]["retries"]) == ("lives", 0)
    assert tight["meters"]["lives"] == "retries" and tight["verdict"] == "fits on paper" and tight["fits"]
    assert tight["meters"]["reserved_bytes"][1] <= tight["gpu_bytes"] - 10**9
    assert small["meters"]["lives"] == "dies" and not small["fits"] and small["verdict"] == "does not fit"
    death = small["meters"]["death"]
    assert death["allocated_bytes"] + death["unallocated_bytes"] <= small["gpu_bytes"]
    assert death["asked_bytes"] + death["allocated_bytes"] > 0.6 * small["gpu_bytes"]
    text = "\n".join(brief(small, {}))
    assert f"It dies: {death['at']} asks for " in text and "With expandable_segments it would" in text
    assert "gives back what lies free and asks again" in "\n".join(brief(tight, {}))


def test_the_command_says_how_much_of_what_fits_on_paper_lives(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ASKED | {"shape": SMALL.replace("layers=4", "layers=2"), "checkpointing": "none"}
    words = [word for name, told in asked.items() for word in (f"--{name.replace('_', '-')}", str(told))]
    main([*words, "--explain"])
    lines = [line.replace(",", "").split() for line in capsys.readouterr().out.splitlines()]
    for what, name in (("largest micro batch", "micro_batch"), ("longest context", "context")):
        at = next(number for number, line in enumerate(lines) if " ".join(line).startswith(what))
        assert lines[at + 1][:2] == ["that", "lives"]
        on_paper, living = (plan(**asked | {name: line[-1]}) for line in lines[at : at + 2])
        assert on_paper["meters"]["lives"] == "dies" and living["meters"]["lives"] != "dies"


def test_where_the_sum_fits_and_the_run_dies_the_headline_says_what_decides() -> None:
    """And counts no GPUs by the sum, which one card would have room for."""
    asked = {"model": "gpt2", "gpu": None, "gpu_peak": "165T", "context": 1024, "trained": "all", "allowance": "0.5GB"}
    by_gib = {gib: plan(**asked, checkpointing="none", gpu_memory=f"{gib}GiB") for gib in (3, 2)}
    told = {gib: "\n".join(brief(answer, {})) for gib, answer in by_gib.items()}
    assert by_gib[3]["headroom_bytes"] > 0 > by_gib[2]["headroom_bytes"]
    assert {answer["verdict"] for answer in by_gib.values()} == {"does not fit"}
    assert "would, but what PyTorch reserves does not, and a card has 3.0 GiB." in told[3]
    assert "; needs 2." in told[2] and "Fewest GPUs" not in told[3]


def test_a_step_that_asks_again_says_how_often() -> None:
    """Three blocks, each too large for what the one before left, the last two of them in the last step."""
    sizes = [size * MIB for size in (30, 40, 50)]
    changes = [(place, sign * size, 0) for place, size in enumerate(sizes) for sign in (1, -1)]
    steps = Steps(changes, [(0, "step 1, forward, layer 0")], ["activations"] * 3, {}, [2, 6])
    assert read_steps(steps, Settings(), 120 * MIB)[1:] == ((120 * MIB, 120 * MIB), "lives", 0, None)
    tight = read_steps(steps, Settings(), 60 * MIB)
    assert (tight.lives, tight.retries) == ("retries", 2) and tight.reserved_bytes == (50 * MIB, 50 * MIB)
    small = read_steps(steps, Settings(), 45 * MIB)
    assert small.lives == "dies" and small.death
    assert (small.death["asked_bytes"], small.death["at"]) == (50 * MIB, "step 1, forward, layer 0")
    lives = [life_in_ways(steps, Settings(), size * MIB) for size in (120, 60, 45)]
    assert lives == ["lives", "retries", "dies"]


def drawn_steps(seed: int) -> Steps:
    """Two steps of storages of drawn sizes, given back in a drawn order, beside a workspace that stays."""
    chance = Chance(seed)
    sizes = [(1 + chance.below(40)) * MIB for _ in range(12)]
    changes, held = [(12, 8 * MIB, 0)], list[int]()
    for turn in range(24):
        if turn % 12 < 8:
            held.append(turn % 12)
            changes.append((held[-1], sizes[held[-1]], 0))
        for _ in range(2 * (turn % 12 >= 8)):
            gone = held.pop(chance.below(len(held)))
            changes.append((gone, -sizes[gone], 0))
    lines = ["activations"] * 12 + ["workspace"]
    return Steps(changes, [(0, "step 1, forward, layer 0")], lines, {}, [17, 33])


def test_a_search_learns_the_same_of_a_runs_life() -> None:
    """With fewer replays, for it asks nothing else."""
    told = set[str]()
    for seed in range(30):
        steps = drawn_steps(seed)
        for capacity in range(60, 320, 8):
            life = read_steps(steps, Settings(), capacity * MIB).lives
            assert life_in_ways(steps, Settings(), capacity * MIB) == life, (seed, capacity)
            told.add(life)
    assert told == {"lives", "retries", "dies"}
    for name in ("", "64-1024"):
        asked = ASKED | ({"lengths": name} if name else {})
        question = complete_question(asked, asked, read_model)
        for gib in (0.2, 0.5, 0.8, 2, 40):
            memory = gib * 2**30
            job = step_on_card(question.a, question.model, memory)
            assert read_life(job) == read_meters(job)["lives"]


@pytest.mark.parametrize(
    ("retries", "died", "lives"),
    [
        ((0, 0), (-1, -1), "lives"),
        ((0, 1), (-1, -1), "retries"),
        ((0, 0), (-1, 3), "retries"),
        ((0, 0), (3, 3), "dies"),
    ],
)
def test_of_ways_that_nobody_can_know_the_worst_counts_unless_all_die(
    monkeypatch: pytest.MonkeyPatch, retries: tuple[int, int], died: tuple[int, int], lives: str
) -> None:
    """Made-up ways, with cuBLAS's workspaces and without, of which each has more room than the card."""

    def made_up(
        steps: Steps, settings: Settings, capacity: int | None = None, place: Any = None, workspaces: bool = True
    ) -> Replay:
        way = 0 if workspaces else 1
        return Replay(5, 12, 0) if capacity is None else Replay(5, 9, retries[way], died[way])

    monkeypatch.setattr(meters, "replay", made_up)
    monkeypatch.setattr(meters, "death_of", lambda steps, found: {})
    steps: Any = None
    assert read_steps(steps, Settings(), 10).lives == lives


def test_the_verdict_is_the_allocators_where_that_is_worse() -> None:
    verdicts = ("fits with room", "fits on paper", "does not fit")
    assert [after_allocator(each, "lives") for each in verdicts] == [*verdicts]
    assert [after_allocator(each, "retries") for each in verdicts] == ["fits on paper", "fits on paper", "does not fit"]
    assert {after_allocator(each, "dies") for each in verdicts} == {"does not fit"}
    judged = judged_by_meters({"fits": True, "verdict": "fits with room"}, {"lives": "dies"})
    assert judged == {"fits": False, "verdict": "does not fit", "meters": {"lives": "dies"}}


def test_lengths_that_differ_reserve_more_and_growing_segments_less() -> None:
    fixed, many = plan(**ASKED)["meters"], plan(**ASKED, lengths="64-1024")["meters"]
    assert many["draws"] == 5 and many["reserved_bytes"][1] > fixed["reserved_bytes"][1]
    assert many["allocated_bytes"] < 1.01 * fixed["allocated_bytes"]  # which rounds to whole blocks
    assert many["expandable"]["reserved_bytes"] < many["reserved_bytes"][0]
    growing = plan(**ASKED, lengths="64-1024", alloc_conf="expandable_segments:True")["meters"]
    assert growing["expandable"] is None and growing["reserved_bytes"][1] == many["expandable"]["reserved_bytes"]
    assert many["emptied"]["reserved_bytes"] < many["reserved_bytes"][0] and fixed["emptied"] is None


def test_a_cache_is_emptied_when_a_step_has_ended() -> None:
    """The second step asks for more than the first has left in one piece."""
    takes = [(0, 40 * MIB, 0), (0, -40 * MIB, 0), (1, 60 * MIB, 0), (1, -60 * MIB, 0)]
    steps = Steps(takes, [(0, "step 1")], ["activations"] * 2, {}, [2, 4])
    kept, emptied = (replay(steps, Settings(), empties_cache=empties).reserved_bytes for empties in (False, True))
    assert (kept, emptied) == (100 * MIB, 60 * MIB)


def test_lengths_are_packed_or_of_a_range_or_of_a_file(tmp_path: Path) -> None:
    assert plan(**ASKED, lengths="packed") == plan(**ASKED)
    assert read_lengths("64-66") == [64, 65, 66]
    told = tmp_path / "lengths.txt"
    told.write_text("12\n700\n12\n", encoding="utf-8")
    assert read_lengths(str(told)) == [12, 700, 12]
    a = read_options({"context": 256, "micro_batch": 2, "accumulation": 4})
    drawn = drawn_lengths(a, [12, 700, 12], seed=1)
    assert {len(each) for each in drawn} == {4} and {n for each in drawn for n in each} == {12, 256}
    assert drawn == drawn_lengths(a, [12, 700, 12], seed=1) != drawn_lengths(a, [12, 700, 12], seed=2)
    told.write_text("12 x", encoding="utf-8")
    for wrong, why in {
        "9-3": "is no range",
        "0-3": "is no range",
        "nowhere.txt": "no file that can be read",
        str(told): "number 2: 'x' is no number of tokens",
    }.items():
        with pytest.raises(ValueError, match=f"--lengths: .*{why}"):
            plan_exactly(**ASKED, lengths=wrong)


def test_draws_are_spread_evenly() -> None:
    chance = Chance(3)
    drawn = [chance.below(10) for _ in range(10_000)]
    assert all(900 < drawn.count(number) < 1_100 for number in range(10))


def test_the_allocators_settings_are_read_or_refused() -> None:
    read = read_settings("max_split_size_mb:128, roundup_power2_divisions:4")
    assert read == Settings(roundup_power2_divisions=4, max_split_size_bytes=2**27)
    assert read_settings("expandable_segments:True").expandable_segments
    for wrong, why in {
        "garbage_collection_threshold:0.8": "is not known",
        "expandable_segments:maybe": "is not known",
        "max_split_size_mb:10": "it is above",
        "roundup_power2_divisions:3": "a power of two",
    }.items():
        with pytest.raises(ValueError, match=f"--alloc-conf: .*{why}"):
            plan(**ASKED, alloc_conf=wrong)


def test_two_gpus_that_share_hold_the_planned_lines_and_their_copies() -> None:
    """What fully_shard receives lies beside what it multiplies, in a stream of its own."""
    shared = {"gpu": "H100 SXM", "gpus": 8, "zero": 3, "recipe": "bf16-master", "checkpointing": "none"}
    meters = plan(**ASKED | shared)["meters"]
    names = [line["line"] for line in meters["outside"]]
    assert names == ["context", "kernels", "nccl_data", "nccl_kernels"] or names == ["context", "kernels", "nccl_data"]
    planned = plan(**ASKED | shared)["memory_bytes"]
    assert meters["allocated_bytes"] >= 0.98 * (planned["total"] - planned["allowance"])
