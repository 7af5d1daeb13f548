"""What --find lists can be asked for, fits as it says, and leaves out nothing that is as fast and gives up less."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import jsonschema
import pytest

from flops_bytes.plan import plan, ways
from flops_bytes.plan.__main__ import main
from flops_bytes.plan.assumptions import complete_question
from flops_bytes.plan.evidence import MISSES, WITH_ROOM, judge_fit
from flops_bytes.plan.options import read_gpu
from flops_bytes.plan.stacks import read_model
from flops_bytes.plan.training import needed_bytes
from tests.conftest import ROOT

SCHEMA = json.loads((ROOT / "flops_bytes" / "plan" / "schema.json").read_text(encoding="utf-8"))
ASKED: dict[str, dict[str, Any]] = {
    "a model and a card": {"model": "qwen3-8b", "gpu": "RTX 4090"},
    "a small model": {"model": "qwen3-0.6b", "gpu": "RTX 4090", "micro_batch": 4},
    "several cards": {"model": "qwen3-8b", "gpu": "RTX 4090", "gpus": 8, "accumulation": 4},
    "experts": {"model": "qwen3-30b-a3b", "gpu": "H100 SXM", "gpus": 8},
    "what is trained is said": {"model": "llama-3-8b", "gpu": "A100 80GB SXM", "trained": "all", "micro_batch": 2},
    "cards that wait for each other": {"model": "llama-3-8b", "gpu": "A100 80GB SXM", "gpus": 2, "micro_batch": 2},
    "the optimizer is said": {"model": "qwen3-0.6b", "gpu": "RTX 4090", "micro_batch": 8, "optimizer": "adamw"},
    "the batch is said": {"model": "qwen3-8b", "gpu": "H100 SXM", "gpus": 8, "global_batch": "256k", "offload": "no"},
}


def found(asked: dict[str, Any]) -> list[dict[str, Any]]:
    question = complete_question(asked, asked, read_model)
    return [ways.way_row(way, asked) for way in ways.find_ways(question, asked)]


@pytest.mark.parametrize("case", ASKED)
def test_what_is_listed_can_be_asked_for_and_is_as_it_says(case: str) -> None:
    asked, rows = ASKED[case], found(ASKED[case])
    assert rows and [row["tokens_per_second"] for row in rows] == sorted(
        (row["tokens_per_second"] for row in rows), reverse=True
    )
    for row in rows:
        assert not row["options"].keys() & asked.keys()
        answer = plan(meters=False, **asked | row["options"])
        assert answer["memory_bytes"]["total"] == row["needs_bytes"]
        assert (answer["verdict"], answer["headroom_bytes"]) == (row["verdict"], row["headroom_bytes"])
        assert answer["tokens_per_second"] == pytest.approx(row["tokens_per_second"])
        assert answer["step_tokens"] == plan(meters=False, **asked)["step_tokens"]


@pytest.mark.parametrize("case", ["a model and a card", "several cards", "cards that wait for each other"])
def test_no_other_way_is_faster_with_as_much_room(case: str) -> None:
    asked = ASKED[case]
    question = complete_question(asked, asked, read_model)
    rows = {frozenset(way.gives_up): way for way in map(Row, found(asked))}
    fixed = ways.fixed_options(asked)
    for result in ways.results(question.a, fixed):
        gives_up = frozenset(ways.given_up(result))
        for a, loss in product(ways.settings(result, fixed), [{}, {"loss": "plain", "chunks": ways.CHUNKS}]):
            if not ways.is_planned(a, question.model):
                continue
            options = a | loss
            fits = plan_row(options, question.model)
            if fits == WITH_ROOM:
                seconds = ways.seconds_a_token(options, question.model)
                assert any(
                    way.gives_up <= gives_up and way.seconds <= seconds * (1 + 1e-9) and way.verdict == WITH_ROOM
                    for way in rows.values()
                ), options


class Row:
    """A row, to compare with."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.gives_up, self.verdict = frozenset(row["gives_up"]), row["verdict"]
        self.seconds = 1 / row["tokens_per_second"]


def plan_row(options: dict[str, Any], model: Any) -> str:
    needs_bytes = needed_bytes(options, model)
    return str(judge_fit(options, needs_bytes, read_gpu(options).memory_bytes)["verdict"])


def test_a_step_of_many_sequences_is_shared_out_at_once() -> None:
    asked = {"model": "qwen3-0.6b", "gpu": "RTX 4090"}
    for told in ({"accumulation": 10**12}, {"micro_batch": 10**12}, {"global_batch": 2**50}):
        assert found(asked | told)
    question = complete_question(asked, asked, read_model)
    sizes = {way["micro_batch"] for way in ways.settings(question.a | {"micro_batch": 12, "accumulation": 1}, [])}
    assert sizes == {12, 6, 3}


def test_no_row_is_slower_than_one_that_gives_up_no_more() -> None:
    for asked in ASKED.values():
        rows = [Row(row) for row in found(asked)]
        for place, row in enumerate(rows):
            for before in rows[:place]:
                roomy = before.verdict == WITH_ROOM or row.verdict != WITH_ROOM
                assert not (roomy and before.gives_up <= row.gives_up)


def test_if_nothing_fits_the_one_that_needs_least_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"model": "llama-3-70b", "gpu": "RTX 4090"}
    (row,) = found(asked)
    assert row["verdict"] == MISSES and set(row["gives_up"]) >= {"adapters", "frozen in 4 bits"}
    assert main(["--model", "llama-3-70b", "--gpu", "RTX 4090", "--find"]) == 3
    assert "Nothing fits; least is needed of" in capsys.readouterr().out


def test_what_dies_in_the_allocator_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ASKED["a model and a card"]
    adapters = [row for row in found(asked) if row["gives_up"] == ["adapters"]]
    assert adapters
    monkeypatch.setattr(ways, "step_on_card", lambda a, *_: a)
    monkeypatch.setattr(ways, "read_life", lambda a: "dies" if a["base"] == "as-recipe" else "lives")
    assert {row["options"]["trained"] for row in plan(find=True, **asked)["ways"]} == {"qlora-double"}


def test_the_command_lists_ways_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    told = ["--model", "qwen3-0.6b", "--gpu", "RTX 4090", "--trained", "all", "--micro-batch", "8", "--find"]
    assert main(told) == 3  # what was asked does not fit, and the ways are others
    shown = capsys.readouterr().out
    assert "Instead" not in shown
    assert "What fits, the fastest first; what you asked for stays:" in shown and "rounds moments to 8 bits" in shown
    assert main([*told, "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(answer)
    assert answer["found"]["ways"]
