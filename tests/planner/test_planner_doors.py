"""One question has one answer, by whichever door it comes: Python, the command line, the form, and its script."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any
from urllib.parse import parse_qsl

import pytest

from flops_bytes.files.command import plan_options
from flops_bytes.plan import plan
from flops_bytes.plan.__main__ import main
from flops_bytes.plan.options import EXAMPLE
from planner import FIRST, OPENS, form
from planner.answer import completed
from planner.stacks import answer_any
from tests.conftest import ROOT
from tests.draw import ALL as SLOW
from tests.draw import drawn
from tests.flops_bytes.plan.printed import lines_of

MODELS: tuple[str, ...] = ("gpt2", "llama-3.2-1b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b")  # layers all alike
MODELS += ("qwen3-0.6b", "qwen3-8b", "qwen3-32b", "gpt-oss-20b", "deepseek-v3")  # of which the last two differ
CARDS: tuple[dict[str, str], ...] = ({"gpu": "RTX 4090"}, {"gpu": "H200 SXM"}, {"gpu": "H100 SXM", "gpus": "8"})
CARDS += ({"gpu": "RTX 3090", "gpus": "2"},)
KNOWN = [("qwen3-8b", 0), ("llama-3-8b", 1), ("gpt2", 0), ("llama-3-70b", 0)]  # of which more is said below
OTHERS = [{"model": model, **card} for model in MODELS for n, card in enumerate(CARDS) if (model, n) not in KNOWN]
ALL = [{"model": model, **CARDS[n]} for model, n in KNOWN] + drawn(OTHERS, 8)


def said(found: dict[str, Any]) -> list[Any]:
    """A word, a number, and what both rest on."""
    assumed = {name: str(value) for name, value in found["assumed"].items()}
    return [found["verdict"], str(found["memory_bytes"]["total"]), assumed]


@pytest.fixture(scope="module")
def by_python() -> list[dict[str, Any]]:
    return [plan(**asked, meters=False) for asked in ALL]


def test_the_command_line_says_what_python_says(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in drawn(ALL, 3):  # the command goes through the allocator too
        found = plan(**asked)
        told = [word for name, value in asked.items() for word in (f"--{name}", value)]
        status = main([*told, "--json"])
        assert said(json.loads(capsys.readouterr().out)["found"]) == said(found), asked
        assert status == {None: 4, "does not fit": 3}.get(found["verdict"], 0)


def test_the_form_says_what_python_says(by_python: list[dict[str, Any]]) -> None:
    for asked, found in zip(ALL, by_python, strict=True):
        assert said(answer_any(asked)["found"]) == said(found), asked


def test_an_address_and_no_question_at_all_ask_the_same(by_python: list[dict[str, Any]]) -> None:
    assert said(answer_any(completed({}, FIRST))["found"]) == said(plan(**EXAMPLE, meters=False))
    for asked, found in zip(ALL, by_python, strict=True):
        if "peaks_at" in found:
            assert said(answer_any(completed(asked, FIRST))["found"]) == said(found), asked


def test_what_is_given_is_obeyed() -> None:
    given = {"trained": "lora", "context": "512", "checkpointing": "none", "zero": "2"}
    found = plan(model="llama-3-8b", gpu="H100 SXM", gpus=2, meters=False, **given)
    assert found["assumed"] == {} and found["trained"] == "lora"
    ranked = plan(model="llama-3-8b", gpu="H100 SXM", gpus=2, lora=16, meters=False, **given)
    assert found["memory_bytes"] == ranked["memory_bytes"]


def test_a_card_too_small_for_all_weights_gets_the_best_method_that_fits(by_python: list[dict[str, Any]]) -> None:
    chosen = {(each["model"], each["gpu"]): found for each, found in zip(ALL, by_python, strict=True)}
    qwen = chosen["qwen3-8b", "RTX 4090"]
    assert (qwen["trained"], qwen["verdict"]) == ("qlora-double", "fits with room")
    assert chosen["llama-3-8b", "H200 SXM"]["trained"] == "all"  # on paper
    assert chosen["gpt2", "RTX 4090"]["assumed"] == {"trained": "all", "context": 1_024, "checkpointing": "none"}
    large = chosen["llama-3-70b", "RTX 4090"]
    assert (large["trained"], large["verdict"]) == ("qlora-double", "does not fit")


def test_the_readme_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command, _, printed = text.partition("```console\n$ ")[2].partition("```")[0].partition("\n")
    assert main(shlex.split(command)[2:]) == 0
    assert capsys.readouterr().out == printed and 8 <= printed.count("\n") <= 18
    others = [shlex.split(other) for other in re.findall(r"^\|.*`flops-bytes plan (.*?)`", text, re.MULTILINE)]
    slow = {"--lengths", "--find"}  # of which each drawn run is gone through, or each layout
    quick = [other for other in others if not slow & {*other}]
    assert len(quick) > 1 and not any(plan_options(other) for other in (others if SLOW else quick))
    for other in [other for other in others if "--run-by" not in other]:  # whose answer depends on a software's data
        told = [word for word in other if word != "--find"]
        options = (option.removeprefix("--").replace("-", "_") for option in told[::2])
        assert plan(meters=False, **dict(zip(options, told[1::2], strict=True)))["fits"]


def test_the_form_assumes_the_speed_that_the_terminal_names() -> None:
    for model in ("qwen3-8b", "qwen3-30b-a3b"):  # layers all alike, and layers that differ
        told = answer_any({"model": model, "gpu": "RTX 4090"})
        found = plan(model=model, gpu="RTX 4090", meters=False)
        assert told["shown"]["assumed"] == f"{100 * found['by_mfu'][0]['mfu']:.0f}" == "40"


def test_bits_that_somebody_chose_are_not_those_of_the_checkpoint() -> None:
    """In the form too, which leaves out what is as usual."""
    asked = {"task": "serve", "model": "gpt-oss-20b", "gpu": "H100 SXM", "context": "8192"}
    for bits in ("16bit", "4bit"):
        assert answer_any(asked | {"weights": bits})["found"] == plan(**asked, weights=bits, meters=False)
    assert answer_any(asked)["found"]["memory_bytes"] == plan(**asked, weights="4bit", meters=False)["memory_bytes"]


def test_the_terminal_writes_numbers_as_people_read_them() -> None:
    for asked, said in (
        ({"model": "llama-3-8b", "gpu": "H100 SXM", "tokens": "15T"}, "15T tokens in 26,570 days"),
        ({"task": "serve", "model": "qwen3-235b-a22b", "gpu": "H100 SXM", "gpus": "4", "weights": "8bit"}, "for all."),
        ({"task": "serve", "model": "llama-3-70b", "gpu": "RTX 4090"}, "1 user of llama-3-70b"),
    ):
        out = lines_of(**asked)
        assert said in out and not re.search(r"\de\+\d|\b1 users", re.sub(r"(?m)^.*FLOPs.*$", "", out))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_question_of_the_page_opens_a_form_that_answers(language: str) -> None:
    """What stands in an address is what the form has fields for, and the planner answers it."""
    page = (ROOT / "docs" / language / "plan.md").read_text(encoding="utf-8")
    addresses = re.findall(r"\]\(plan\.md\?([^)#]+)", page)
    assert len(addresses) == 12
    for address in addresses:
        told = dict(parse_qsl(address, strict_parsing=True))
        fields = form("full", language)
        assert all(f'name="{name}"' in fields for name in told), address
        found = answer_any(completed(told, OPENS[language]))["found"]
        assert found["fits"] is not None and found["verdict"], address
