"""A colour is a thing: weights, gradients, optimizer state and the rest have one each, told apart by all who read."""

from __future__ import annotations

import itertools
import math
import operator
import re
from typing import Literal

import pytest
from playwright.sync_api import Browser

from ledger.book import Book
from ledger.site import variants
from ledger.site.chapter import Chapter
from ledger.site.quote import open_source
from planner import PARTS, words
from tests.conftest import ROOT
from tests.pages.test_figures import Chart

BOOK = Book(ROOT)
STYLE = (ROOT / "docs" / "overrides" / "assets" / "book.css").read_text(encoding="utf-8")
MEANINGS = ("weights", "gradients", "optimizer", "activations", "logits", "communication")
CALLED = {  # keys of labels in figures, and the meaning that they have
    "parameter": "weights", "gradient": "gradients", "state": "optimizer", "moments": "optimizer", "loss": "logits",
    "exposed": "communication", "gather": "communication", "reduce": "communication",
} | {meaning: meaning for meaning in MEANINGS}  # fmt: skip
ELSE = {("full_ledger.stacks", "loss"), ("timing.queue", "state")}  # a loss's time, not its logits
LIGHT, DARK = (
    dict(re.findall(r"--book-(\w+): (#\w{6});", scheme))
    for scheme in re.split(r"@media screen \{\n\[data-md-color-scheme=\"slate\"\]", STYLE, maxsplit=1)
)
# How the world looks without one kind of cone, as matrices of linear red, green and blue (Machado, Oliveira and
# Fernandes, 2009, doi:10.1109/TVCG.2009.113, at full severity), and with all three
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)),
    "deuteranopia": ((0.3673, 0.8606, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "tritanopia": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9309, 0.1476), (0.0047, 0.6914, 0.3039)),
}


def lab(colour: str, eye: str = "all") -> tuple[float, float, float]:
    """A colour in CIE L*a*b*, where equal distances look about equally far apart."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    r, g, b = (min(max(sum(map(operator.mul, row, linear)), 0.0), 1.0) for row in SEEN[eye])
    x, y, z = (
        part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
        for part in (
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eye", SEEN)
@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_eye_tells_meanings_apart(scheme: dict[str, str], eye: str) -> None:
    assert scheme.keys() >= {*MEANINGS, "other"}
    for one, two in itertools.combinations((*MEANINGS, "other"), 2):
        assert math.dist(lab(scheme[one], eye), lab(scheme[two], eye)) > 15, (one, two)


def test_in_print_without_colour_each_meaning_is_a_grey_of_its_own() -> None:
    greys = sorted(lab(LIGHT[meaning])[0] for meaning in MEANINGS)
    assert min(after - before for before, after in itertools.pairwise(greys)) > 7


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_figure_takes_the_colour_of_what_it_shows_from_the_one_table(language: str) -> None:
    source, seen = open_source(BOOK, "", local=False), set()
    for path in (path for path in BOOK.chapters() if path.parent.name == language):
        for block in (block for block in Chapter.read(path).blocks if block.kind == "figure"):
            labels = block.options["labels"]
            for _, svg in variants.drawings(source, language, block.argument, labels):
                chart = Chart(svg or "<svg viewBox='0 0 1 1'/>")
                for key in labels.keys() & CALLED.keys():
                    if labels[key] in chart.colours and (block.argument, key) not in ELSE:
                        seen.add(CALLED[key])
                        assert chart.colours[labels[key]] == CALLED[key], (block.argument, key)
    assert seen == {*MEANINGS}


def test_every_class_of_a_drawing_is_in_the_style_sheet() -> None:
    known = set(re.findall(r"svg \.([\w-]+)", STYLE))
    source = open_source(BOOK, "", local=False)
    for path in (path for path in BOOK.chapters() if path.parent.name == "en"):
        for block in (block for block in Chapter.read(path).blocks if block.kind == "figure"):
            for _, svg in variants.drawings(source, "en", block.argument, block.options["labels"]):
                assert set(re.findall(r'class="([\w-]+)"', svg)) <= known, block.argument


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_planners_bar_has_the_colours_of_the_figures(language: str) -> None:
    parts = dict(re.findall(r"\.part-(\w+) \{ background: var\(--book-(\w+)\); \}", STYLE))
    assert all(part == colour for part, colour in parts.items())
    assert list(parts) == list(words(language)["part_names"]) and parts.keys() == {*PARTS.values(), "other"}


# Of each text of a drawing, the least contrast (as WCAG defines it) to what is drawn beneath its beginning, middle and
# end; axe does not judge what lies in a drawing.
CONTRASTS = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, n) => sum + [0.2126, 0.7152, 0.0722][n] * part, 0.05);
  return [...document.querySelectorAll("svg text")].map((text) => {
    const { x, y, width, height } = text.getBBox(), { fill } = getComputedStyle(text);
    const before = [...text.ownerSVGElement.children].slice(0, [...text.ownerSVGElement.children].indexOf(text));
    const ratios = [0.1, 0.5, 0.9].map((along) => {
      let beneath = numbers(getComputedStyle(document.body).backgroundColor);
      for (const shape of before) {
        const style = getComputedStyle(shape), { tagName } = shape;
        if (tagName === "text" || tagName === "line" || style.fill === "none") continue;
        if (!shape.isPointInFill({ x: x + along * width, y: y + height / 2 })) continue;
        const colour = numbers(style.fill);
        beneath = beneath.map((part, n) => part + style.fillOpacity * (colour[n] - part));
      }
      const [less, more] = [light(numbers(fill)), light(beneath)].sort((a, b) => a - b);
      return more / less;
    });
    return [Math.min(...ratios), `${text.closest("[id]").id}: ${text.textContent}`];
  });
}"""


@pytest.mark.parametrize(("scheme", "name"), [("light", "default"), ("dark", "slate")])
def test_a_text_upon_a_colour_can_be_read(browser: Browser, scheme: Literal["light", "dark"], name: str) -> None:
    source, drawings = open_source(BOOK, "", local=False), ""
    for path in (path for path in BOOK.chapters() if path.parent.name == "en"):
        for block in (block for block in Chapter.read(path).blocks if block.kind == "figure"):
            for _, svg in variants.drawings(source, "en", block.argument, block.options["labels"]):
                drawings += f'<div id="{block.argument}">{svg}</div>'
    page = browser.new_page(color_scheme=scheme)
    body = f'<body data-md-color-scheme="{name}" style="background: var(--md-default-bg-color)">'
    page.set_content(f"<style>{STYLE}</style>{body}{drawings}")
    contrasts = page.evaluate(CONTRASTS)
    page.close()
    assert len(contrasts) > 1000 and [text for contrast, text in contrasts if contrast < 4.5] == []
