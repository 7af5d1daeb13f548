"""The front page says at once what this is and why to trust it, and leads in; no speed of a device comes first."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from figures import front

SVG = "{http://www.w3.org/2000/svg}"
LANGUAGES = ["", "zh/"]


def test_its_figure_shows_what_was_planned_over_what_was_counted() -> None:
    def case(counted: int, **ratios: float) -> dict[str, float]:
        return {"counted_bytes": counted * 2**30, **ratios}

    values = {
        "plan_check.step_cases": [case(2, planned_ratio=1.0), case(128, planned_ratio=1.0)],
        "plan_theirs.step_cases": [case(8, planned_ratio=0.5, composed_ratio=4.0)],
    }
    labels = {"language": "en", "planned": "planned", "counted": "counted", "check": "ours", "theirs": "theirs"}
    drawing = ElementTree.fromstring(front.planned(values, labels))
    texts = [(str(one.text), float(one.attrib["x"]), float(one.attrib["y"])) for one in drawing.iter(f"{SVG}text")]
    across = {text: x for text, x, y in texts if y > front.BOTTOM}  # what is counted
    up = {text: y - 4 for text, x, y in texts if x < front.LEFT}  # what is planned; a text stands on its line
    circles = [
        (one.attrib["class"], float(one.attrib["cx"]), float(one.attrib["cy"])) for one in drawing.iter(f"{SVG}circle")
    ]
    keys = {text: colour for colour, x, y in circles for text, beside, _ in texts if y < 20 and beside == x + 10}
    near = partial(pytest.approx, abs=0.1)
    points: list[Any] = [(colour, near(x), near(y)) for colour, x, y in circles if y > 20]
    assert points == [
        (keys["theirs"], across["8 GiB"], up["32 GiB"]),
        (keys["ours"], across["2 GiB"], up["2 GiB"]),
        (keys["ours"], across["128 GiB"], up["128 GiB"]),
    ]
    assert across["2 GiB"] < across["8 GiB"] and up["2 GiB"] > up["8 GiB"]


def begins(site: Path, language: str) -> str:
    """The article down to its first section."""
    text = (site / language / "index.html").read_text(encoding="utf-8")
    return text.partition("<article")[2].partition("<h2")[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_begins_with_the_planner_three_answers_a_figure_and_two_ways_in(site: Path, language: str) -> None:
    parts = re.findall(r'class="planner"|<li>|<svg role="img"', begins(site, language))
    assert parts == ['class="planner"', *["<li>"] * 3, '<svg role="img"', *["<li>"] * 2]
    answers = begins(site, language).partition('class="planner"')[2].partition("<svg")[0].split("<li>")[1:]
    assert all("<strong>" in answer and answer.count("<data ") >= 2 for answer in answers)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_number_of_a_device_comes_first(site: Path, language: str) -> None:
    start = begins(site, language)
    assert 'class="exact"' in start
    assert [sign for sign in ('class="measured', "device-line", "device-place") if sign in start] == []
    rest = (site / language / "index.html").read_text(encoding="utf-8").partition("<h2")[2]
    assert -1 < rest.index('class="device-line"') < rest.index('class="measured')


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_phone_shows_first_what_this_is_and_an_answer(page: Page, site: Path, address: str, language: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(address + language)
    for seen in ("article p strong", ".planner-verdict"):
        expect(page.locator(seen).first).to_be_in_viewport(ratio=1)
