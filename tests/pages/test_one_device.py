"""A sentence about one device is not shown over another's numbers: it stands in a block of that device alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.site.chapter import BLOCK_END, BLOCK_START, PLACEHOLDER, Chapter
from ledger.site.quote import Quote
from tests.conftest import ROOT

CPU = r"recorded (?:two-core )?CPU|有记录的[^，。]{0,6}CPU"


def names() -> re.Pattern[str]:
    """What pages call the recorded devices: a GPU by its model, "H200"; a CPU has no short name."""
    models = {
        word
        for path in (ROOT / "measurements").glob("*/*.json")
        if (device := json.loads(path.read_text(encoding="utf-8"))["device"])["kind"] != "cpu"
        for word in device["name"].split()
        if re.search(r"\d", word)
    }
    return re.compile("|".join([*(rf"(?<!\w){model}(?!\w| SXM| NVL)" for model in sorted(models)), CPU]), re.ASCII)


NAMES = names()


def misplaced(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs, with their lines, that name a device beside a device's number or say what happened "on" it,
    outside a block for that device."""
    page = Chapter.parse(text, ROOT / "docs" / "en")
    within: list[str] = []
    blocks = {block.line for block in page.blocks} | {part.first for part in page.waiting}
    alone = set()
    for number, line in enumerate(page.lines, start=1):
        if number in blocks or ((start := BLOCK_START.match(line)) and start["kind"] in ("recorded", "only")):
            within.append(str(start["kind"]) if (start := BLOCK_START.match(line)) else "")
        elif BLOCK_END.match(line) and within:
            within.pop()
        elif "only" in within:
            alone.add(number)
    for paragraph in page.paragraphs:
        prose = re.sub(PLACEHOLDER, "", paragraph.text)
        quotes = [Quote.parse(found[0].strip("{} ")) for found in re.finditer(PLACEHOLDER, paragraph.text)]
        if paragraph.line not in alone and NAMES.search(prose) and any(quote.is_device_value for quote in quotes):
            yield paragraph.line, paragraph.text


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").glob("*/*.md")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_no_sentence_names_a_device_over_anothers_number(path: Path) -> None:
    assert list(misplaced(path.read_text(encoding="utf-8"))) == []


ABOUT = "On the H200 a copy takes {{ index.measured_matmul.median_seconds }}."


def test_a_misplaced_sentence_is_found() -> None:
    assert [line for line, _ in misplaced(f"# A {{#a}}\n\n{ABOUT}\n")] == [3]
    assert not list(misplaced(f"# A {{#a}}\n\n/// only | nvidia-h200\n{ABOUT}\n///\n"))
    assert [line for line, _ in misplaced(f"# A {{#a}}\n\n/// only | nvidia-h200\nIt.\n///\n\n{ABOUT}\n")] == [7]
