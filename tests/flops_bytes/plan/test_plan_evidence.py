"""An answer of the planner says how far off it was for published runs of its kind, and says so where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from flops_bytes.plan import evidence as written_evidence
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.evidence import EVIDENCE, run_kind
from flops_bytes.plan.options import read_options
from flops_bytes.plan.table import serving_table, training_table
from planner import evidence as evidence_of_page
from planner import form, words
from published import readings as published
from published.readings import Compared, compare, evidence, read_all, spread, today
from tests.conftest import ROOT

QUESTION: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM"}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("full", {}),
    ("full", {"gpus": 8, "zero": 0}),
    ("full-sharded", {"gpus": 8, "zero": 1}),
    ("lora", {"lora": 16}),
    ("lora-sharded", {"lora": 8, "gpus": 2, "zero": 3}),
    ("qlora", {"lora": 16, "base": "4bit"}),
    ("qlora-sharded", {"lora": 16, "base": "4bit-double", "gpus": 4, "zero": 2}),
    ("", {"attention": "eager"}),
    ("", {"optimizer": "adamw-8bit"}),
    ("", {"offload": "yes", "lora": 16}),
    ("", {"task": "serve"}),
]


@cache
def of_memory() -> list[Compared]:
    """Every published reading of memory, beside what the planner says today."""
    return list(compare(each for each in read_all(ROOT / "measurements" / "published") if each.kind == "memory"))


@pytest.mark.parametrize("kind,options", CASES)
def test_a_kind_follows_from_the_options(kind: str, options: dict[str, Any]) -> None:
    assert run_kind(read_options(QUESTION | options)) == kind


def test_what_the_answer_says_is_what_is_published_and_planned_today() -> None:
    """If not: `python -m published measurements/published --evidence` writes it anew."""
    assert evidence(of_memory()) == EVIDENCE


def test_every_reading_that_is_planned_with_adamw_is_of_a_kind_that_has_a_name() -> None:
    usual = [
        each
        for each in of_memory()
        if each.said
        and each.reading.settings.get("optimizer", "adamw") == "adamw"
        and each.reading.settings.get("offload", "no") == "no"
    ]
    assert sum(readings for readings, *_ in EVIDENCE.values()) == len(usual)
    for language in ("en", "zh"):
        assert set(EVIDENCE) <= set(words(language)["evidence"]["kinds"]) == {kind for kind, _ in CASES} - {""}


def test_sharded_readings_are_those_of_several_cards_that_split_something() -> None:
    def first(settings: Mapping[str, Any], name: str, usual: int) -> str:
        value = settings.get(name, usual)
        return str(value[0] if isinstance(value, list) else value)

    planned = [each.reading for each in of_memory() if each.said and "offload" not in each.reading.settings]
    split = [each for each in planned if first(each.settings, "zero", 0) != "0"]
    sharded = [each for each in split if first(each.settings, "gpus", 1) != "1"]
    counts = {kind: readings for kind, (readings, *_) in EVIDENCE.items()}
    assert sum(readings for kind, readings in counts.items() if "sharded" in kind) == len(sharded)
    unquantized = [each for each in planned if each.settings.get("lora") and "base" not in each.settings]
    assert counts["lora"] + counts["lora-sharded"] == len(unquantized)


def test_the_lowest_and_the_highest_are_those_of_the_readings() -> None:
    ratios = [today(each) for each in of_memory() if each.said]
    assert min(float(low) for _, low, *_ in EVIDENCE.values()) == round(min(ratios), 2)
    assert max(float(high) for _, _, high, *_ in EVIDENCE.values()) == round(max(ratios), 2)


def test_the_middle_nine_tenths_leave_out_a_twentieth_on_each_side() -> None:
    def made_up(ratio: float) -> Compared:
        reading = of_memory()[0].reading
        return Compared(reading, (ratio * reading.value, ratio * reading.value), "")

    ratios = [place / 100 for place in range(109, 49, -1)]
    assert spread(map(made_up, ratios)) == pytest.approx((0.50, 1.09, 0.53, 1.06))
    assert spread(map(made_up, [1.0, 0.9])) == pytest.approx((0.90, 1.00, 0.90, 1.00))


def test_the_command_says_it_below_the_verdict() -> None:
    readings, low, high, start, end, _ = EVIDENCE["full-sharded"]
    asked = QUESTION | {"gpus": 8, "zero": 3}
    lines = dict(training_table(plan(**asked)))
    assert list(lines)[list(lines).index("it has") + 1] == "  published readings"
    said = f"{readings} of this kind (full-sharded): planned over published {low} to {high}"
    assert lines["  published readings"] == f"{said}, the middle nine of ten {start} to {end}"
    asked = QUESTION | {"task": "serve"}
    assert dict(serving_table(plan(**asked)))["  published readings"] == "none of this kind"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_has_a_sentence_for_each_kind(language: str) -> None:
    told, said = words(language)["evidence"], evidence_of_page(words(language))
    assert set(said) == {"", *EVIDENCE}
    for kind, (readings, least, *_, room) in EVIDENCE.items():
        text, chapter, most = said[kind]
        assert (chapter, most) == (told["chapter"], round(1 / float(least), 4))
        assert all(part in text for part in (str(readings), told["kinds"][kind], f"{1 / float(least):.2f}", str(room)))
    assert said[""][0] == told["none"]
    text = form("full", language)
    link = said["full-sharded"][0].partition("[")[2].partition("]")[0]
    assert text.count(f'<a href="../how-far-off/#room">{link}</a>') == 1  # before the script has run


def test_it_is_written_where_it_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "plan").mkdir()
    path = ROOT / "flops_bytes" / "plan" / "evidence.py"
    text = path.read_text(encoding="utf-8")
    (tmp_path / "plan" / "evidence.py").write_text(text.partition("]] = {")[0] + "]] = {}\n", encoding="utf-8")
    monkeypatch.setattr(written_evidence, "__file__", str(tmp_path / "plan" / "evidence.py"))
    published.write_evidence(of_memory())
    assert (tmp_path / "plan" / "evidence.py").read_text(encoding="utf-8") == text
