"""The pipeline that a reader sets on the page idles and keeps what the library says, and shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from py_mini_racer import MiniRacer

from flops_bytes.parallel.layouts import Layout, bubble, in_flight
from tests.conftest import ROOT, serve

ASSETS = ROOT / "docs" / "overrides" / "assets"
SCRIPT = (ASSETS / "pipeline.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> MiniRacer:
    made = MiniRacer()
    made.eval(SCRIPT.replace("export default", "globalThis.started ="))
    return made


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_a_pipeline_idles_and_keeps_what_the_formulas_say(script: MiniRacer, schedule: str, ranks: int) -> None:
    stages = 2 if schedule == "interleaved" else 1
    for batches in (ranks, 2 * ranks, 4 * ranks):
        found = json.loads(str(script.eval(f"JSON.stringify(play('{schedule}', {ranks}, {batches}))")))
        share, kept = found["share"], found["kept"]
        layout = Layout(pipeline=ranks, schedule=schedule, micro_batches=batches, virtual=stages)
        assert share == pytest.approx(bubble(layout), abs=1e-12)
        assert kept == [in_flight(layout, rank) / stages for rank in range(ranks)]


def test_few_micro_batches_are_played_to_the_end(script: MiniRacer) -> None:
    for schedule in ("gpipe", "1f1b"):
        for batches in (1, 2, 3):
            share = script.eval(f"play('{schedule}', 8, {batches}).share")
            assert share == pytest.approx(bubble(Layout(pipeline=8, schedule=schedule, micro_batches=batches)))


def test_both_languages_say_the_same_things(script: MiniRacer) -> None:
    told = json.loads(str(script.eval("JSON.stringify(WORDS)")))
    assert told.keys() == {"en", "zh"} and told["en"].keys() == told["zh"].keys()
    assert told["en"]["names"].keys() == told["zh"]["names"].keys()
    for name in ("rank", "said"):
        assert len({tuple(sorted(re.findall(r"\{(\w+)\}", words[name]))) for words in told.values()}) == 1
    for language in told:
        assert "<div data-pipeline></div>" in (ROOT / "docs" / language / "parallelism.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=["en", "zh-Hans"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("pipeline")
    for name in ("book.js", "pipeline.js"):
        (folder / name).write_text((ASSETS / name).read_text(encoding="utf-8"), encoding="utf-8")
    head = f'<!doctype html><html lang="{request.param}"><meta charset="utf-8"><link rel="icon" href="data:,">'
    body = '<script src="book.js"></script><div data-pipeline></div>'
    (folder / "index.html").write_text(head + body, encoding="utf-8")
    with serve(folder) as url:
        yield url


def test_the_reader_moves_the_bubble(page: Page, address: str) -> None:
    page.goto(address)
    caption, drawn = page.locator("figcaption"), page.locator("svg rect")
    expect(caption).to_contain_text("27.3")  # three elevenths, of four ranks and eight micro-batches
    before = drawn.count()
    for name in ("schedule", "ranks", "batches"):
        assert page.locator(f"[name={name}]").get_attribute("aria-label")
    page.locator("[name=batches]").fill("16")
    expect(caption).to_contain_text("15.8")
    assert drawn.count() == before + 2 * 4 * 8
    page.locator("[name=schedule]").select_option("interleaved")
    expect(caption).to_contain_text("8.6")
    page.locator("[name=ranks]").fill("3")  # takes a multiple of three
    expect(page.locator("output").nth(1)).to_have_text("18")
    assert page.locator("svg").get_attribute("aria-label") == caption.inner_text()
