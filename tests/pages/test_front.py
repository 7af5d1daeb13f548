"""The front page says at once what this is, answers a first question in words, and opens three doors; what it says of
the planner's answers is what the planner says."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, expect

import planner
from figures import front
from flops_bytes.gpus import GPUS
from flops_bytes.peak import peak_bytes
from flops_bytes.shapes import LLAMA_3_2_1B
from ledger.site.check import configured_device
from ledger.site.quote import Values, open_source
from planner.answer import answer
from tests.tables import BOOK

SVG = "{http://www.w3.org/2000/svg}"
LANGUAGES = ["", "zh/"]
NUMERALS = ["zero", "one", "two", "three", "four", "five"], "零一两三四五"


def test_what_it_says_of_other_modules_it_says_of_the_farthest_of_them() -> None:
    values = Values(open_source(BOOK, configured_device(BOOK), local=False), configured_device(BOOK))
    for name in ("planned_off_share", "composed_off_share"):
        shares = values[f"plan_transformers.{name}"]
        assert shares["qwen3"] == max(shares.values()), f"{name}: the page quotes Qwen 3's"
    ratios = [case["composed_ratio"] for case in values["plan_transformers.step_cases"]]
    assert all(abs(ratio - 1) < 0.005 for ratio in ratios), "the figure's description has all of these on the line"


def test_its_figure_shows_the_ratio_of_planned_to_counted_over_the_count() -> None:
    def case(counted: int, **ratios: float) -> dict[str, float]:
        return {"counted_bytes": counted * 2**30, **ratios}

    values = {
        "plan_check.step_cases": [case(2, planned_ratio=1.0), case(128, planned_ratio=0.9)],
        "plan_transformers.step_cases": [case(8, planned_ratio=0.7, composed_ratio=0.8)],
    }
    labels = {"language": "en", "ratio": "ratio", "counted": "counted"}
    labels |= {"check": "ours", "theirs": "theirs", "composed": "composed"}
    drawing = ElementTree.fromstring(front.planned(values, labels))
    texts = [(str(one.text), float(one.attrib["x"]), float(one.attrib["y"])) for one in drawing.iter(f"{SVG}text")]
    across = {text: x for text, x, y in texts if y > front.BOTTOM}  # what was counted
    up = {text: y - 4 for text, x, y in texts if x < front.LEFT}  # the ratio; a text stands on its line
    circles = [
        (one.attrib["class"], float(one.attrib["cx"]), float(one.attrib["cy"])) for one in drawing.iter(f"{SVG}circle")
    ]
    keys = {text: css for css, x, y in circles for text, right, below in texts if (right, below) == (x + 10, y + 5)}
    near = partial(pytest.approx, abs=0.1)
    points: list[Any] = [(colour, near(x), near(y)) for colour, x, y in circles if y > front.TOP]
    assert sorted(points, key=str) == sorted(
        [
            (keys["theirs"], across["8 GiB"], up["0.7"]),
            (keys["composed"], across["8 GiB"], up["0.8"]),
            (keys["ours"], across["2 GiB"], up["1.0"]),
            (keys["ours"], across["128 GiB"], up["0.9"]),
        ],
        key=str,
    )
    assert across["2 GiB"] < across["8 GiB"] and up["0.7"] > up["0.8"] > up["1.0"]


def test_its_figure_has_room_for_any_ratio() -> None:
    for ratio in (0.24, 1.93):
        case = {"counted_bytes": 2**33, "planned_ratio": ratio, "composed_ratio": 1.0}
        values = {"plan_check.step_cases": [], "plan_transformers.step_cases": [case]}
        labels = dict.fromkeys(("ratio", "counted", "check", "theirs", "composed"), "") | {"language": "en"}
        circles = ElementTree.fromstring(front.planned(values, labels)).iter(f"{SVG}circle")
        assert sum(front.TOP <= float(one.attrib["cy"]) <= front.BOTTOM for one in circles) == 2


# What it says of answers


def values() -> Values:
    return Values(open_source(BOOK, configured_device(BOOK), local=False), configured_device(BOOK))


def test_what_it_says_of_its_form_is_what_its_form_answers() -> None:
    found, told = answer(planner.FIRST)["found"], values()
    without = answer(planner.FIRST | {"checkpointing": "none"})["found"]
    assert told["plan.eight_has_bytes"] == found["gpu_bytes"]
    step, run = found["by_mfu"]
    assert (told["plan.days_for_tokens"], told["plan.days_for_run"]) == pytest.approx((step["days"], run["days"]))
    for name, row in (("tokens", step), ("run", run)):
        assert told[f"plan.money_for_{name}"] == pytest.approx(row["money"], rel=0.005)
    assert told["plan.kept_days"] == pytest.approx(without["days"]) and found["days"] > without["days"]
    assert (found["verdict"], without["verdict"]) == ("fits with room", "fits on paper")
    work = found["flops_a_token"]["all"]
    assert work["again"] / (work["device"] - work["again"]) == pytest.approx(told["plan.recomputing_costs_share"])
    for kind, plan in (("full", found), ("none", without)):
        assert told[f"plan.eight_needs_bytes.{kind}"] == plan["memory_bytes"]["total"]
        assert told[f"plan.eight_micro_batch.{kind}"] == plan["largest_micro_batch"]
    assert told["plan.TOKENS"] == found["tokens"]
    assert found["assumed"]["context"] == told["plan.LLAMA.context"]
    assert planner.FIRST["price"] == f"${told['plan.PRICE']}"
    assert (planner.FIRST["model"], planner.FIRST["gpu"], planner.FIRST["gpus"]) == ("llama-3-8b", "H100 SXM", "8")
    assert (found["assumed"]["checkpointing"], found["assumed"]["zero"]) == ("full", "3")
    assert found["assumed_mfu"] == told["plan.STEP_MFU"] == told["how_far_off.ASSUMED_MFU"]
    assert run["mfu"] == told["plan.RUN_MFU"] == told["two_questions.MFU"]
    assert found["mfu"] == pytest.approx(told["plan.checkpointed_share"])


def linked() -> list[dict[str, str]]:
    """The questions that it puts to the planner, in their order."""
    text = (BOOK.docs / "en" / "index.md").read_text(encoding="utf-8")
    return [dict(parse_qsl(query)) for query in re.findall(r"\]\(plan\.md\?([^)]*)\)", text)]


def test_what_it_sends_to_one_card_fits_there() -> None:
    one_card = [fields for fields in linked() if fields["gpus"] == "1"]
    assert [(fields["model"], fields.get("trained")) for fields in one_card] == [
        ("llama-3-8b", "qlora"),
        ("llama-3.2-1b", None),
    ]
    assert all(fields["gpu"] == "RTX 4090" and answer(fields)["found"]["fits"] for fields in one_card)
    moments = peak_bytes(LLAMA_3_2_1B, 2_048, 1, "bf16_master", True, "full", chunks=8, foreach=True)
    assert max(sum(held.values()) for held in moments.values()) > GPUS["RTX 4090"].memory_bytes  # not as by default


# What it shows


def part(site: Path, language: str, *between: str) -> str:
    """The article from its start, or from behind a text, to another."""
    text = (site / language / "index.html").read_text(encoding="utf-8").partition("<article")[2]
    *start, end = between
    return (text.partition(start[0])[2] if start else text).partition(end)[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_begins_with_the_planner_and_three_answers_in_words(site: Path, language: str) -> None:
    start = part(site, language, "<h2")
    assert re.findall(r'class="planner"|<li>', start) == ['class="planner"', *["<li>"] * 3]
    answers = start.partition('class="planner"')[2].split("<li>")[1:]
    assert all("<strong>" in text and "<data " in text for text in answers)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_of_three_doors_leads_on_for_fifteen_minutes(site: Path, language: str) -> None:
    doors = part(site, language, 'id="doors"', "<h2").split("<h3")[1:]
    assert len(doors) == 3
    for door in doors:
        steps = door.partition("<ol>")[2].partition("</ol>")[0].split("<li>")[1:]
        text = [re.sub(r"<[^>]+>", "", step) for step in steps]
        assert all("<a " in step for step in steps)
        minutes = re.findall(r"（(.)分钟）" if language else r"\((\w+) minutes\)", " ".join(text))
        assert len(minutes) == len(steps)
        assert sum(NUMERALS[language == "zh/"].index(number) for number in minutes) == 15


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_scripts_the_answer_stands_in_words(browser: Browser, site: Path, address: str, language: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + language)
    expect(page.locator(".planner-fields")).to_be_hidden()
    expect(page.locator(".planner-verdict")).to_have_text(
        re.compile("^(Fits with room: needs |放得下且有余量：需要 )[0-9.]+ GiB")
    )
    expect(page.locator("article noscript p")).to_have_text(
        planner.words("zh" if language else "en")["without_scripts"]
    )
    above, below = page.locator(".planner-strip").bounding_box(), page.locator("article noscript p").bounding_box()
    assert above and below and below["y"] - above["y"] - above["height"] < 60  # no blank where the fields would be
    expect(page.locator("article li strong").first).to_be_visible()
    context.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_number_of_a_device_comes_first(site: Path, language: str) -> None:
    start = part(site, language, "<h2")
    assert 'class="exact"' in start
    assert [sign for sign in ('class="measured', "device-line", "device-place") if sign in start] == []
    rest = (site / language / "index.html").read_text(encoding="utf-8").partition("<h2")[2]
    assert -1 < rest.index('class="device-line"') < rest.index('class="measured')


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_phone_shows_first_what_this_is_and_an_answer(page: Page, site: Path, address: str, language: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(address + language)
    for seen in ("article h1 + p", ".planner-verdict"):
        expect(page.locator(seen).first).to_be_in_viewport(ratio=1)
