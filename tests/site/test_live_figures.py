"""What a live figure shows at a reader's setting is what the library says of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from py_mini_racer import MiniRacer

from flops_bytes.memory.events import live_bytes, step_events
from flops_bytes.memory.formulas import layer_bytes
from flops_bytes.memory.step import StepConfig, family_of
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_8B
from flops_bytes.model.stack import stack_of
from flops_bytes.time.roofline import matmul
from ledger.site.check import configured_device
from ledger.site.quote import Values, open_source
from tests.conftest import ROOT, serve
from tests.planner.scripts import sent_script
from tests.tables import BOOK

ASSETS = ROOT / "docs" / "overrides" / "assets"
VALUES = Values(open_source(BOOK, configured_device(BOOK), local=False))
PAGES = {"compute-for-memory": "step", "activations": "planner-layer", "roofline": "planner-roofline"}
WAYS = ("none", "per-op", "full")


def engine(script: str) -> MiniRacer:
    made = MiniRacer()
    made.eval(script.replace("export default", "globalThis.started ="))
    return made


def said(script: MiniRacer, code: str) -> Any:
    return json.loads(str(script.eval(f"JSON.stringify({code})")))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_live_figure_stands_on_its_page_beside_one_that_does_not_move(language: str) -> None:
    for page, name in PAGES.items():
        text = (ROOT / "docs" / language / f"{page}.md").read_text(encoding="utf-8")
        before, found, _ = text.partition(f'\n///\n\n<div data-live="{name}"></div>\n')
        assert found and before.rpartition("\n/// ")[2].startswith(("figure", "table")), page


def test_a_live_figure_is_light() -> None:
    made = {name: sent_script(name) for name in ("planner-layer.js", "planner-roofline.js")}
    made["step.js"] = (ASSETS / "step.js").read_text(encoding="utf-8")
    assert all(len(text.encode()) < 15_000 for text in made.values())


# A layer, and a matmul on the roof


@pytest.fixture(scope="module")
def layers() -> MiniRacer:
    return engine(sent_script("planner-layer.js"))


@pytest.fixture(scope="module")
def roofs() -> MiniRacer:
    return engine(sent_script("planner-roofline.js"))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_layer_keeps_what_the_library_says(layers: MiniRacer, name: str, fused: bool) -> None:
    """At settings that are drawn anew each time."""
    shape, is_llama = (LLAMA_3_8B, "true") if name == "llama" else (GPT2_SMALL, "false")
    for _ in range(20):
        tokens, batch = 2 ** random.randint(7, 17), 2 ** random.randint(0, 7)
        found = said(layers, f"layer({is_llama}, {tokens}n, {batch}n, {json.dumps(fused)}).map(Number)")
        kept = layer_bytes(shape, tokens, batch, fused=fused)
        assert sum(found) == sum(kept.values()) and found[2] == kept["scores"]
    counts = said(layers, "LAYERS")
    assert counts == [GPT2_SMALL.layers, LLAMA_3_8B.layers]
    sizes = said(layers, "[1, 1000, 2048, 10 * 2**20, 1.5 * 2**30, 2**41].map(size)")
    assert [each.replace("\u00a0", " ") for each in sizes] == [
        "1 B",
        "1000 B",
        "2.0 KiB",
        "10 MiB",
        "1.5 GiB",
        "2.0 TiB",
    ]


def test_a_batch_stands_where_the_table_of_the_page_has_it(roofs: MiniRacer) -> None:
    cards = said(roofs, "CARDS")
    assert cards["H100 SXM"] == [989.4e12, 3.35e12] and len(cards) > 4
    for tokens, row in VALUES["roofline.AT_ONCE"].items():
        found = said(roofs, f'reach({tokens}, CARDS["H100 SXM"])')
        assert found["intensity"] == pytest.approx(row["intensity"], rel=1e-12)
        assert found["arithmetic"] == pytest.approx(row["arithmetic_seconds"], rel=1e-12)
        assert found["bytes"] == pytest.approx(row["bytes_seconds"], rel=1e-12)
        assert found["rate"] == pytest.approx(row["counted_flops"] / row["roof_seconds"], rel=1e-12)


def test_the_roof_is_the_least_of_peak_and_bandwidth_on_every_card(roofs: MiniRacer) -> None:
    for name, (peak, bandwidth) in said(roofs, "CARDS").items():
        for step in range(57):
            tokens = said(roofs, f"tokensAt({step})")
            found = said(roofs, f"reach({tokens}, CARDS[{json.dumps(name)}])")
            work = matmul(tokens, 4_096, 14_336)
            assert found["rate"] == pytest.approx(min(peak, bandwidth * work.intensity()), rel=1e-12)
            x, y = said(roofs, f"[across({found['intensity']}), up({found['rate']})]")
            assert 8 <= x <= 332 and 8 <= y <= 176
    assert said(roofs, "[tokensAt(0), tokensAt(STEPS - 1)]") == [1, 16_384]


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
    left, wide, _ = said(step, "step.grid")
    last = len(data_of_parts(step)) - 1
    assert [said(step, f"column(step, {x})") for x in (-5, left + wide / 2, left + 1.5 * wide, 1e4)] == [0, 0, 1, last]


# On a page


@pytest.fixture
def address(request: pytest.FixtureRequest, drawing: str, tmp_path: Path) -> Iterator[str]:
    """A page of one language with one figure far below its beginning."""
    name, language = request.param
    made = (ASSETS / "step.js").read_text(encoding="utf-8") if name == "step" else sent_script(f"{name}.js")
    (tmp_path / f"{name}.js").write_text(made, encoding="utf-8")
    (tmp_path / "book.js").write_text((ASSETS / "book.js").read_text(encoding="utf-8"), encoding="utf-8")
    head = f'<!doctype html><html lang="{language}"><meta charset="utf-8"><link rel="icon" href="data:,">'
    space = '<p style="height: 3000px"></p>'
    body = f'<script src="book.js"></script>{space}<figure>{drawing}</figure><div data-live="{name}"></div>'
    (tmp_path / "index.html").write_text(head + body, encoding="utf-8")
    with serve(tmp_path) as url:
        yield url


def is_chinese(page: Page) -> bool:
    return str(page.locator("html").get_attribute("lang")).startswith("zh")


def in_both(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("address", [(name, "en"), (name, "zh-Hans")], indirect=True, ids=["en", "zh"])


@in_both("planner-layer")
def test_tokens_of_a_layer_are_moved(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("figure").scroll_into_view_if_needed()
    told = page.locator("[role=status]")
    expect(told).to_contain_text("5.4")
    page.locator("select").nth(1).select_option("0")
    expect(told).to_contain_text("1.3")  # without the scores of eager attention, 2 · 32 · 8192² bytes
    page.locator("input").nth(1).fill("1")
    expect(told).to_contain_text("2.6")
    expect(page.locator("output").first).to_have_text("8192" if is_chinese(page) else "8,192")


@in_both("planner-roofline")
def test_a_batch_is_dragged_along_the_roof(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("figure").scroll_into_view_if_needed()
    told, svg = page.locator("[role=status]"), page.locator(".live-roof svg")
    expect(told).to_contain_text("64")
    page.locator(".live-roof input").fill("32")
    expect(told).to_contain_text("256")
    assert svg.get_attribute("aria-label") == told.inner_text()
    box = svg.bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 20)
    expect(told).to_contain_text("16,384")


@in_both("step")
def test_a_step_is_pointed_at_once_it_is_near(page: Page, address: str) -> None:
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(address)
    page.wait_for_load_state("networkidle")
    assert not [url for url in fetched if "step.js" in url], "far away"
    page.locator("figure").scroll_into_view_if_needed()
    sums = page.locator(".live-step tbody tr").last
    expect(sums).to_contain_text("97.8")  # where the loss goes backward
    page.locator(".live-step input").focus()
    page.keyboard.press("End")
    expect(sums).to_contain_text("59.8")  # the update, the same in each way
    box = page.locator("svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + 5, box["y"] + 100)
    expect(sums).to_contain_text("44.9")
