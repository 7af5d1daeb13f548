"""The page reads three meters as Python does, to the last digit, and says what it read in both languages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py_mini_racer import MiniRacer

from flops_bytes.memory.chips import CHIPS
from flops_bytes.memory.first_steps import written
from flops_bytes.memory.outside import outside_lines
from flops_bytes.plan import meters as plan_meters
from flops_bytes.plan import options as plan_options
from flops_bytes.plan import plan, settled_question
from flops_bytes.plan.meters import LIFE, fixed_lengths, run_of
from flops_bytes.plan.options import ROWS
from flops_bytes.plan.table import GIVEN_UP, MENDS
from flops_bytes.plan.training import bytes_by_moment
from planner import words
from planner.answer import answer
from planner.meters import listed, metered, shown_meters
from planner.stacks import answer_any, listed_any, metered_any
from tests.flops_bytes.stack_cases import CASES
from tests.planner.scripts import engine_of, sent_script
from tests.planner.test_planner_script import Pasted

LANGUAGES = ("en", "zh")
MEASURE = """
const own = (x) => x instanceof Map ? [...x].map(([name, each]) => [name, own(each)])
  : Array.isArray(x) ? x.map(own) : typeof x === "bigint" ? String(x) : x ?? null;
const measured = (text) => JSON.stringify(JSON.parse(text).map((told) => {
  const fields = new Map(Object.entries(told));
  const found = FIRST(fields).get("found"), said = later(shared).LATER(fields, found);
  const ways = fields.has("pressed") ? later(shared).LISTED(fields, found) : null;
  return own([said.get("found").get("meters"), said.get("meters"), said.get("shown"), ways]);
}));
"""
SMALL: dict[str, str] = {"model": "gpt2", "gpu": "other", "gpu_memory": "80GB", "gpu_peak": "100T", "context": "1024"}
SMALL |= {"trained": "all", "checkpointing": "none"}
ASKED: list[dict[str, str]] = [
    SMALL,
    SMALL | {"gpu_memory": "3.0GiB"},  # dies
    SMALL | {"gpu_memory": "3.2GiB"},  # asks again
    SMALL | {"context": "256", "micro_batch": "2", "accumulation": "3", "attention": "eager"},
    SMALL | {"gpus": "2", "zero": "3", "checkpointing": "full", "recipe": "autocast", "gpu": "H100 SXM"},
    SMALL | {"gpus": "16", "zero": "2", "layers": "composed", "loss": "chunked", "gpu": "A100 80GB SXM"},
    SMALL | {"trained": "qlora", "recipe": "bf16", "checkpointing": "per-op", "loss": "fused", "gpu": "T4"},
    SMALL | {"optimizer": "adamw-8bit", "gpus": "2", "zero": "1", "allowance": "2GB", "gpu": "RTX 4090"},
]
ASKED += [SMALL | {"context": "256", "micro_batch": "2", "lengths": text} for text in ("packed", "64-512", "9 300 70")]
OPEN = SMALL | {"trained": "", "checkpointing": "", "gpu_memory": "3GiB", "pressed": ""}
ASKED += [OPEN, OPEN | {"gpus": "8", "accumulation": "4", "chunks": "8", "pressed": "chunks zero"}]
KINDS = [{"model_type": kind} | config for kind, config in (CASES[name] for name in ("qwen3", "gpt_oss"))]
ASKED += [SMALL | {"model": "config", "config": json.dumps(config), "context": "64"} for config in KINDS]
ASKED[-1] |= {"pressed": "trained checkpointing"}


@pytest.fixture(scope="module")
def read() -> list[tuple[dict[str, str], dict[str, Any]]]:
    """What Python reads of each."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (plan_options, plan_meters):
            patched.setattr(module, "Path", Pasted)
        return [(fields, told) for fields in ASKED if (told := measured(fields))]


def measured(fields: dict[str, str]) -> dict[str, Any] | None:
    """As the page asks."""
    if "config" in fields:
        found = answer_any(fields)["found"]
        told, ways = metered_any(fields, found), listed_any(fields, found) if "pressed" in fields else None
    else:
        found = answer(fields)["found"]
        told, ways = metered(fields, found), listed(fields, found) if "pressed" in fields else None
    return told and told | {"ways": ways}


Read = list[tuple[dict[str, str], dict[str, Any]]]


def test_the_scripts_that_are_sent_read_what_python_reads(read: Read) -> None:
    """Of models that the first knows and of others, each with what comes to it later."""
    assert len(read) == len(ASKED) and {told["meters"]["lives"] for _, told in read} == {"lives", "retries", "dies"}
    for name, first, later in (("planner.js", "answer", "metered"), ("planner-stacks.js", "answer_any", "metered_any")):
        more = sent_script(name.replace(".js", "-meters.js"))
        text = engine_of(name) + more.replace("export default", "const later=").replace("export function", "\nfunction")
        context = MiniRacer()
        context.eval(
            text
            + MEASURE.replace("FIRST", first)
            .replace("LATER", later)
            .replace("LISTED", later.replace("metered", "listed"))
        )
        some = [(fields, told) for fields, told in read if ("config" in fields) == (later == "metered_any")]
        theirs = json.loads(str(context.call("measured", json.dumps([fields for fields, _ in some]))))
        context.close()
        for (fields, ours), it in zip(some, theirs, strict=True):
            assert it == json.loads(
                json.dumps(own([ours["found"]["meters"], ours["meters"], ours["shown"], ours["ways"]]))
            ), fields


def own(value: Any) -> Any:
    """As the page hands it over here."""
    if isinstance(value, dict):
        return [[name, own(each)] for name, each in value.items()]
    if isinstance(value, list | tuple):
        return [own(each) for each in value]
    return str(value) if type(value) is int else value


def named(fields: dict[str, str]) -> dict[str, str]:
    """As Python is asked: of the card by its name, or by numbers."""
    without = ("gpu",) if fields["gpu"] == "other" else ("gpu_memory", "gpu_peak")
    return {name: value for name, value in fields.items() if name not in without}


def test_the_form_reads_what_the_command_reads(read: Read) -> None:
    for fields, told in read[:3]:
        found = plan(meters=True, **named(fields))
        assert shown_meters(found["meters"]) == told["meters"]
        assert (found["verdict"], found["fits"]) == (told["found"]["verdict"], told["found"]["fits"])
    assert [told["found"]["verdict"] for _, told in read[:3]] == ["fits with room", "does not fit", "fits on paper"]


def test_ways_that_fit_are_listed_again_when_one_of_them_is_taken(read: Read) -> None:
    before = next(told["ways"] for fields, told in read if fields == OPEN)
    assert len(before) > 2
    for way in before:
        fields = OPEN | {name: str(value) for name, value in way["options"].items()}
        taken = measured(fields | {"pressed": " ".join(way["options"])})
        assert taken and taken["ways"] == before and taken["found"]["verdict"] == way["verdict"]
        alone = measured(fields)  # as somebody says it
        assert alone and all(name not in other["options"] for other in alone["ways"] for name in way["options"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_that_a_reading_names_has_its_words(language: str) -> None:
    """Where a run can die, of what, and what lies beside PyTorch on which card."""
    said = words(language)["metered"]
    lines, parts = set[str](), set[str]()
    for fields in (ASKED[0], ASKED[3], ASKED[4], ASKED[6]):
        question = settled_question(asked := named(fields), plan(meters=False, **asked))
        a, moments = question.a, bytes_by_moment({**question.a, "allowance": 0}, question.model)
        steps = written(run_of(a, question.model, fixed_lengths(a), moments))
        lines |= {*steps.lines}
        parts |= {told.split(", ")[-1].partition(" ")[0] for _, told in steps.parts}
    assert (
        lines | {"beside", "temporaries", "copies"} == {*said["lines"]}
        and {*said["parts"]} | {"update", "load"} == parts
    )
    assert {*said["ways"]["gives_up"]} == {*GIVEN_UP}
    assert {*said["at"]} == {"forward", "backward", "update", "load"}
    assert {*said["mended"]} == {*LIFE} and {*said["by"]} == {*MENDS}
    outside = [line for card in ("", *ROWS) for line in outside_lines(card, 8, 8)]
    assert {line.name for line in outside} | {"allowance"} == {*said["outside"]}
    assumed = {line.assumed_of for line in outside} - {"", *CHIPS}
    assert assumed == {*said["assumed"]} and len(assumed) == 3
