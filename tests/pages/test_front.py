"""The front page says at once what this is, answers a first question, and opens three doors; what it says of the
planner's answers is what the planner says, and how long a page takes is counted."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, expect

import planner
from figures import front
from ledger.site.chapter import Chapter
from ledger.site.check import configured_device
from ledger.site.minutes import minutes
from ledger.site.quote import Values, open_source
from planner.answer import answer, completed
from planner.stacks import answer_any
from tests.planner.test_planner_form import without_and_with_scripts
from tests.tables import BOOK

SVG = "{http://www.w3.org/2000/svg}"
LANGUAGES = ["", "zh/"]


def test_a_bar_of_its_figure_is_as_high_as_readings_have_its_ratio_and_the_highest_never_higher() -> None:
    source = {"asked": 3, "first_ratios": [0.5, 0.5, 1.4], "today_ratios": [1.0, 0.1, 5.0]}
    labels = {"first": "first", "today": "today", "axis": ""}
    for times in (1, 40):
        sources = [source, {"asked": 0}] * times
        drawing = ElementTree.fromstring(front.readings({"published_meters.sources": sources}, labels))
        ticks = {str(one.text): float(one.attrib["x"]) for one in drawing.iter(f"{SVG}text") if one.text}
        bars = [re.findall(r"M([\d.]+) [\d.]+h[\d.]+v([\d.]+)", one.attrib["d"]) for one in drawing.iter(f"{SVG}path")]
        first, today = ([(float(x) + 1.8, float(height)) for x, height in each] for each in bars)
        near = {name: pytest.approx(ticks[name], abs=front.SIDE / 2) for name in ("0.5", "1", "1.4")}
        assert [x for x, _ in first] == [near["0.5"], near["1.4"]]
        assert [height for _, height in first] == [front.HEIGHT, front.HEIGHT / 2]
        assert {height for _, height in today} == {front.HEIGHT / 2} and today[0][0] == near["1"]
        assert all(0 < x < front.WIDTH for x, _ in today)  # what is beyond lies at the end


def test_a_time_is_that_of_what_stands_open(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    words = "word " * 460  # two minutes
    code = "```python\n" + "x = 1\n" * 10 + "```\n"
    folded = f"//// details | More\n{words}\n\n{code}\n/// table\n    rows: [1]\n///\n////\n"
    text = f"# A {{#a}}\n\n{folded}\n## B {{#b}}\n\n{words}\n\n{code}\n## C {{#c}}\n\n{'字' * 800}\n"
    page = Chapter.parse(text, tmp_path / "docs" / "en" / "page.md")
    assert [minutes(page, place) for place in ("", "b", "c")] == [5, 3, 2]


# What it says of answers


def values() -> Values:
    return Values(open_source(BOOK, configured_device(BOOK), local=False), configured_device(BOOK))


def test_what_it_says_of_its_form_is_what_its_form_answers() -> None:
    found, told = answer(planner.FIRST)["found"], values()
    without = answer(planner.FIRST | {"checkpointing": "none"})["found"]
    sizes = [each["memory_bytes"]["total"] for each in (without, found)]
    assert told["plan.recomputing_frees_bytes"] == sizes[0] - sizes[1]
    work = found["flops_a_token"]["all"]
    assert work["again"] / (work["device"] - work["again"]) == pytest.approx(told["plan.recomputing_costs_share"])
    assert found["days"] / without["days"] - 1 == pytest.approx(told["plan.recomputing_costs_share"], abs=0.01)
    assert [row["mfu"] for row in found["by_mfu"]] == [told["plan.STEP_MFU"], told["plan.RUN_MFU"]]
    assert (found["assumed"]["checkpointing"], found["verdict"]) == ("full", "fits with room")


def linked() -> list[dict[str, str]]:
    """The questions that it puts to the planner, in their order."""
    text = (BOOK.docs / "en" / "index.md").read_text(encoding="utf-8")
    return [dict(parse_qsl(query, keep_blank_values=True)) for query in re.findall(r"\]\(plan\.md\?([^)]*)\)", text)]


def test_each_question_of_its_buttons_has_an_answer() -> None:
    card, fleet, served = (answer_any(completed(fields, planner.FIRST))["found"] for fields in linked())
    assert card["fits"] and card["trained"].startswith("qlora") and fleet["fleet"]["gpus"] > 8 and "users" in served


# What it shows


def part(site: Path, language: str, *between: str) -> str:
    """The article from its start, or from behind a text, to another."""
    text = (site / language / "index.html").read_text(encoding="utf-8").partition("<article")[2]
    *start, end = between
    return (text.partition(start[0])[2] if start else text).partition(end)[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_begins_with_questions_and_an_answer(site: Path, language: str) -> None:
    start = part(site, language, "<h2")
    assert len(re.findall(r'class="?asking', start)) == 6 and start.count('class="planner-figures"') == 1
    assert start.index("asking") < start.index("planner-figures") < start.index("planner-fields")


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_of_three_doors_leads_to_sections_and_says_how_long_they_take(site: Path, language: str) -> None:
    doors = part(site, language, 'id="doors"', "<h2").split("<h3")[1:]
    assert len(doors) == 3
    for door in doors:
        steps = door.partition("<ol>")[2].partition("</ol>")[0].split("<li>")[1:]
        assert len(steps) > 3
        for step in steps:
            path, place, time = re.search(r'<a href="?([\w-]+)/#([\w-]+)[^>]*>.*?<small>(\d+)', step).groups()  # type: ignore[union-attr]
            page = Chapter.read(BOOK.docs / ("zh" if language else "en") / f"{path}.md")
            assert int(time) == minutes(page, place)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_stands_without_scripts_is_what_the_script_says_first(
    browser: Browser, address: str, language: str
) -> None:
    told = []
    for page in without_and_with_scripts(browser, address + language, ".planner-facts"):
        strip = page.locator(".planner-strip")
        widths = strip.locator(".planner-bar i").evaluate_all(
            "parts => parts.map((part) => parseFloat(part.style.width))"
        )
        texts = [
            strip.locator(place).inner_text() for place in (".planner-verdict", ".planner-figures", ".planner-parts")
        ]
        told.append((texts, [round(width, 3) for width in widths]))
    assert told[0] == told[1] and sum(told[0][1]) < 100


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_scripts_the_answer_stands_in_words(browser: Browser, site: Path, address: str, language: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + language)
    expect(page.locator(".planner-fields")).to_be_hidden()
    expect(page.locator(".planner-verdict")).to_have_text(
        re.compile(r"^(Fits with room \(all weights\): needs|放得下且有余量（训练全部权重）：需要) [0-9.]+ GiB")
    )
    expect(page.locator("article noscript p")).to_have_text(
        planner.words("zh" if language else "en")["without_scripts"]
    )
    above, below = page.locator(".planner-strip").bounding_box(), page.locator("article noscript p").bounding_box()
    assert above and below and below["y"] - above["y"] - above["height"] < 60  # no blank where the fields would be
    expect(page.locator(".planner-figures b")).to_have_count(3)
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
