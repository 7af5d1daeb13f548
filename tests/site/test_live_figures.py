"""What a live figure shows at a reader's setting is what the library says of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from py_mini_racer import MiniRacer

from flops_bytes.memory.events import live_bytes, step_events
from flops_bytes.memory.step import StepConfig, family_of
from flops_bytes.model.shapes import LLAMA_3_8B
from flops_bytes.model.stack import stack_of
from ledger.site.check import configured_device
from ledger.site.quote import Values, open_source
from tests.conftest import ROOT, serve
from tests.tables import BOOK

ASSETS = ROOT / "docs" / "overrides" / "assets"
VALUES = Values(open_source(BOOK, configured_device(BOOK), local=False))
WAYS = ("none", "per-op", "full")


def engine(script: str) -> MiniRacer:
    made = MiniRacer()
    made.eval(script.replace("export default", "globalThis.started ="))
    return made


def said(script: MiniRacer, code: str) -> Any:
    return json.loads(str(script.eval(f"JSON.stringify({code})")))


# A step


@pytest.fixture(scope="module")
def drawing() -> str:
    from figures import compute_for_memory
    from tests.pages.test_figures import Words

    return compute_for_memory.over_time(VALUES, Words(language="en"))


def data_of(svg: str) -> dict[str, str]:
    start = svg[: svg.index(">")]
    return {name: start.partition(f'data-{name}="')[2].partition('"')[0] for name in ("parts", "held", "grid")}


@pytest.fixture(scope="module")
def step(drawing: str) -> MiniRacer:
    script = engine((ASSETS / "step.js").read_text(encoding="utf-8"))
    script.eval(f"globalThis.step = read({json.dumps(data_of(drawing))})")
    return script


@pytest.mark.parametrize("way", WAYS)
def test_a_step_holds_what_the_engines_events_say(step: MiniRacer, way: str) -> None:
    """In parts that are drawn anew each time, and at its peak."""
    config = StepConfig(8_192, recipe="bf16", checkpointing=way)
    stack = stack_of(LLAMA_3_8B)
    events = step_events(stack, family_of(stack, composed=False), config)
    most: dict[str, int] = {}
    for event, alive in zip(events, live_bytes(events), strict=True):
        most[f"{event.phase} {event.part}"] = max(alive, most.get(f"{event.phase} {event.part}", 0))
    assert data_of_parts(step) == list(most)
    peak = max(most, key=lambda part: most[part])
    for part in {peak, *random.sample(list(most), 8)}:
        *_, (_, *sums) = said(step, f"rows(step, {list(most).index(part)}, WORDS.en)")
        assert float(sums[WAYS.index(way)]) == pytest.approx(most[part] / 2**30, abs=0.06), part


def data_of_parts(step: MiniRacer) -> list[str]:
    return list(said(step, "step.parts"))


def test_each_part_has_words_in_both_languages(step: MiniRacer) -> None:
    for language in ("en", "zh"):
        told = said(step, f"step.parts.map((part) => named(part, WORDS.{language}))")
        assert all(told) and not any("undefined" in each or "{n}" in each for each in told)
        assert len(set(told)) == len(told)
        lines = said(step, f"WORDS.{language}.lines")
        assert len(lines) == len(VALUES["compute_for_memory.HELD"])


def test_a_pointer_is_in_the_column_below_it(step: MiniRacer) -> None:
    left, wide = said(step, "step.grid")
    last = len(data_of_parts(step)) - 1
    assert [said(step, f"column(step, {x})") for x in (-5, left + wide / 2, left + 1.5 * wide, 1e4)] == [0, 0, 1, last]


@pytest.fixture(params=["en", "zh-Hans"])
def address(request: pytest.FixtureRequest, drawing: str, tmp_path: Any) -> Iterator[str]:
    for name in ("book.js", "step.js"):
        (tmp_path / name).write_text((ASSETS / name).read_text(encoding="utf-8"), encoding="utf-8")
    head = f'<!doctype html><html lang="{request.param}"><meta charset="utf-8"><link rel="icon" href="data:,">'
    space = '<p style="height: 3000px"></p>'
    body = f'<script src="book.js"></script>{space}<figure>{drawing}</figure><div data-live="step"></div>'
    (tmp_path / "index.html").write_text(head + body, encoding="utf-8")
    with serve(tmp_path) as url:
        yield url


def test_a_step_is_pointed_at_once_it_is_near(page: Page, address: str) -> None:
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(address)
    page.wait_for_load_state("networkidle")
    assert not [url for url in fetched if "step.js" in url], "far away"
    page.locator("svg").scroll_into_view_if_needed()
    sums = page.locator(".live-step tbody tr").last
    expect(sums).to_contain_text("97.8")  # where the loss goes backward
    page.locator(".live-step input").focus()
    page.keyboard.press("End")
    expect(sums).to_contain_text("59.8")  # the update, the same in each way
    box = page.locator("svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + 5, box["y"] + 100)
    expect(sums).to_contain_text("44.9")
