"""What --find lists of many GPUs can be asked for and is as it says; of each split the fastest that fits, with room."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import jsonschema
import pytest

from flops_bytes.plan import plan, rank_ways
from flops_bytes.plan.__main__ import main, progress
from flops_bytes.plan.evidence import MISSES, ON_PAPER, WITH_ROOM
from flops_bytes.plan.parallel import DEGREES, PARALLEL, evaluate_layout, rank_on_card, read_question
from flops_bytes.plan.rank_ways import (
    Candidate,
    candidates_of,
    in_order,
    judge,
    layout_rows,
    makes_needless,
    sequences_of_step,
)
from flops_bytes.plan.stacks import read_model
from flops_bytes.plan.ways import Way
from tests.conftest import ROOT

SCHEMA = json.loads((ROOT / "flops_bytes" / "plan" / "schema.json").read_text(encoding="utf-8"))
FEW = {"model": "llama-3.2-1b", "gpu": "RTX 4090", "gpus": 4, "context": 8192}
MANY = {"model": "llama-3-70b", "gpu": "H100 SXM", "gpus": 256, "context": 8192}


def candidates(**asked: Any) -> list[Candidate]:
    question = read_question({name: told for name, told in asked.items() if name != "global_batch"}, reader=read_model)
    return [*candidates_of(question, sequences_of_step(asked, question))]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return plan(find=True, **FEW)


def is_layout(row: dict[str, Any]) -> bool:
    return any(name in PARALLEL for name in row["options"])


def test_what_is_listed_can_be_asked_for_and_is_as_it_says(found: dict[str, Any]) -> None:
    layouts = [row for row in found["ways"] if is_layout(row)]
    assert len(layouts) > 3 and {name for row in layouts for name in row["options"]} >= {"tp", "cp", "pp", "zero"}
    for row in layouts[:3] + layouts[-2:]:
        again = plan(**FEW | row["options"])
        assert again["memory_bytes"]["total"] == row["needs_bytes"]
        assert (again["verdict"], again["headroom_bytes"]) == (row["verdict"], row["headroom_bytes"])
        assert again["tokens_per_second"] == pytest.approx(row["tokens_per_second"])
        assert again["step_tokens"] == found["step_tokens"]


def test_ways_of_one_clock_are_ordered_by_it(found: dict[str, Any]) -> None:
    """What is not planned as a layout is as much faster beside them as it is at the assumed MFU."""
    rows = found["ways"]
    assert [row["tokens_per_second"] for row in rows] == sorted(
        (row["tokens_per_second"] for row in rows), reverse=True
    )
    (adapters,) = (row for row in rows if row["gives_up"] == ["adapters"])
    assert is_layout(adapters) and adapters["tokens_per_second"] > rows[1]["tokens_per_second"]
    moments = next(row for row in rows if not is_layout(row))
    options = {name: value for name, value in moments["options"].items() if name not in ("optimizer", "chunks")}
    alone, whole = (plan(meters=False, **FEW | each) for each in (moments["options"], options))
    as_layout = plan(meters=False, **FEW | options | {"tp": 1})
    ratio = alone["tokens_per_second"] / whole["tokens_per_second"]
    assert moments["tokens_per_second"] / as_layout["tokens_per_second"] == pytest.approx(ratio)


def test_of_ways_as_fast_those_that_give_up_no_less_are_needless() -> None:
    """But of layouts those that give up as little are listed beside each other."""
    a = read_question(FEW, reader=read_model).a
    whole, adapters = (Way(a | {"lora": rank}, 1.0, 2**30, WITH_ROOM, 2**30) for rank in (None, 16))
    alone, split = ({"options": {name: 2}} for name in ("zero", "tp"))
    assert all(makes_needless(whole, adapters, row) for row in (alone, split))
    assert makes_needless(whole, whole, alone) and not makes_needless(whole, whole, split)
    assert not any(makes_needless(adapters, whole, row) for row in (alone, split))


def test_of_each_split_the_fastest_that_fits_and_that_fits_with_room_is_listed() -> None:
    every = candidates(**MANY | {"gpus": 64}, global_batch="1M", tp=8, micro_batch=2)
    costs = [(each, evaluate_layout(each.question, each.layout, each.checkpointing)) for each in every]
    for each, cost in costs:
        assert each.seconds == pytest.approx(cost.step_seconds / 2**20)
    listed = [*in_order(every, lives=False)]
    assert [way.way.seconds for way in listed] == sorted(way.way.seconds for way in listed)
    verdicts = {WITH_ROOM: {WITH_ROOM}, ON_PAPER: {WITH_ROOM, ON_PAPER}}
    for degrees in {each.degrees for each in every}:
        alike = [way.way for way in listed if way.candidate.degrees == degrees]
        judged = [judge(each).way for each, _ in costs if each.degrees == degrees]
        for as_good in verdicts.values():
            fastest = min((way.seconds for way in judged if way.verdict in as_good), default=None)
            assert fastest == min((way.seconds for way in alike if way.verdict in as_good), default=None)
        assert len(alike) <= 2 and len({way.verdict for way in alike}) == len(alike)
    assert len(listed) < len([way for way in costs if way[1].needs_bytes <= 80e9]) < len(every)


def test_what_is_said_stays() -> None:
    rows = layout_rows(
        MANY | {"gpus": 64, "global_batch": "1M", "tp": 4, "checkpointing": "full"}, read_model, lives=False
    )
    assert rows and not {name for row in rows for name in row["options"]} & {"tp", "checkpointing", "micro_batches"}
    said = candidates(**FEW, accumulation=2, zero="1", schedule="interleaved")
    assert {(each.layout.micro_batches, each.layout.zero, each.layout.schedule) for each in said} == {
        (2, 1, "interleaved")
    }
    one = {"model": "gpt2-xl", "gpu": "H100 SXM", "context": 1024, "tp": 1}
    assert {each.layout.zero for each in candidates(**one)} == {0}  # one GPU has none to share with
    whole = candidates(**MANY | {"gpus": 64}, global_batch="1M", loss="fused")  # its head is on one GPU
    assert {each.layout.tensor for each in whole} == {1} and len({each.layout.pipeline for each in whole}) > 1
    odd = {"model": "gpt2-xl", "gpu": "H100 SXM", "gpus": 30, "context": 1024, "global_batch": 1024 * 30}
    assert {each.layout.pipeline for each in candidates(**odd, pp=3)} == {3}  # no power of two


def test_all_is_tried_that_nobody_said() -> None:
    every = candidates(**MANY | {"gpus": 64}, global_batch="1M", tp=8)
    assert {each.layout.zero for each in every} == {1, 2, 3}
    assert {each.checkpointing for each in every} == {"none", "per-op", "full"}
    assert {each.question.a["micro_batch"] for each in every} == {1, 2, 4, 8, 16, 32, 64}
    assert {each.layout.data * each.layout.micro_batches * each.question.a["micro_batch"] for each in every} == {128}
    experts = candidates(model="mixtral-8x7b", gpu="H100 SXM", gpus=64, global_batch="1M")
    assert {each.layout.expert for each in experts} == {1, 2, 4, 8}
    for schedule, stages in (("interleaved", {2, 4, 8, 16}), ("zero-bubble", {1, 2, 4, 8, 16})):
        asked = MANY | {"global_batch": "4M", "tp": 8, "pp": 4, "schedule": schedule, "micro_batch": 1}
        assert {each.layout.virtual for each in candidates(**asked)} == stages


def test_what_dies_in_the_allocator_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = FEW | {"cp": 1, "pp": 1, "micro_batch": 1, "zero": "3", "checkpointing": "full"}
    assert [row["options"].get("tp", 1) for row in layout_rows(asked, read_model)].count(2)

    splits: list[int] = []

    def noted(question: Any, layout: Any, *more: Any) -> Any:
        splits.append(layout.tensor)
        return rank_on_card(question, layout, *more)

    monkeypatch.setattr(rank_ways, "rank_on_card", noted)
    monkeypatch.setattr(rank_ways, "read_life", lambda job: "dies" if splits[-1] == 2 else "retries")
    rows = layout_rows(asked, read_model)
    assert {row["options"].get("tp", 1) for row in rows} == {1, 4} and {row["verdict"] for row in rows} == {ON_PAPER}


def test_if_nothing_fits_what_needs_least_is_said() -> None:
    asked = {"model": "llama-3-70b", "gpu": "RTX 4090", "gpus": 2, "trained": "all", "optimizer": "adamw"}
    (row,) = plan(find=True, **asked, offload="no")["ways"]
    assert row["verdict"] == MISSES and not row["fits"]
    answer = plan(find=True, **asked, tp=2)
    assert answer["verdict"] == MISSES and [way["verdict"] for way in answer["ways"]] == [MISSES]


def test_an_answer_about_layouts_is_of_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for name, told in FEW.items() for word in (f"--{name}", str(told))]
    assert main([*words, "--tp", "2", "--find", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(answer)
    answer = answer["found"]
    first = answer["ways"][0]
    assert first["options"].items() <= answer["assumed"].items() and answer["layout"]["tp"] == 2
    assert answer["memory_bytes"]["total"] == first["needs_bytes"]
    assert main([*words, "--tp", "2", "--find"]) == 0
    shown = capsys.readouterr()
    assert "What fits, the fastest first; what you asked for stays:\n  1  --" in shown.out and shown.err == ""


def test_where_no_layout_is_planned_it_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plan(find=True, meters=False, **FEW, attention="eager")
    assert answer["ways"] and not any(is_layout(row) for row in answer["ways"])
    assert answer["no_layouts"] == "--attention: it is not derived for tensor, context, pipeline or expert parallelism"
    words = [word for name, told in FEW.items() for word in (f"--{name}", str(told))]
    main([*words, "--attention", "eager", "--find"])
    assert f"Layouts are not among them: {answer['no_layouts']}.\n" in capsys.readouterr().out


REFUSED = {
    "no multiple": (FEW | {"global_batch": 10_000, "tp": 2}, "--global-batch: --find shares out the tokens of a step"),
    "serving": (FEW | {"task": "serve"}, "--find: it is of trainings; leave it out"),
    "GRPO": (FEW | {"task": "rl"}, "--find: it is of trainings; leave it out"),
    "what cannot be": (FEW | {"tp": 3}, "--gpus: 4 are no multiple of what --tp, --cp and --pp make together"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_searched_is_refused(case: str) -> None:
    asked, sentence = REFUSED[case]
    with pytest.raises(ValueError) as caught:
        plan(find=True, **asked)
    assert str(caught.value).startswith(sentence)


def test_a_search_that_would_take_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_ways, "MOST_TRIED", 100)
    with pytest.raises(ValueError, match=r"^--find: more than 100 layouts to try; give --tp, "):
        layout_rows(FEW, read_model, lives=False)
    assert layout_rows(FEW | {name: 1 for name in DEGREES} | {"micro_batch": 1}, read_model, lives=False)


def test_a_terminal_is_told_how_far_a_long_search_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    layout_rows(FEW | {"tp": 2}, read_model, lives=False, tell=told.append)
    assert told[0].endswith(" layouts timed") and any(" layouts tried, " in each for each in told)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress() as tell:
        assert tell
        tell("at once")
        assert not terminal.getvalue()
        clock[0] = 1.5
        tell("later")
    assert terminal.getvalue() == "\rlater\r     \r"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress() as tell:
        assert tell is None
