"""Each number of the page about one card that the planner makes leads to it, and is what the planner answers there."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import pytest

from ledger.site.check import configured_device
from ledger.site.quote import Values, open_source
from ledger.site.tables import Table
from ledger.text import as_said
from planner import form
from planner.stacks import answer_any
from tests import tables
from tests.tables import BOOK

CELL = re.compile(r"\[\{\{ (?P<path>one_card\.[^:}]+?)(?::\S+)? \}\}\]\(plan\.md\?(?P<query>[^)]+)\)(?P<mark>[^\[\n]*)")
MARKS = {"fits with room": "✓", "fits on paper": "?", "does not fit": ""}
NAME = re.compile(r'\bname="?([\w]+)')
SAYS = {"hours": "gpu_hours"} | dict.fromkeys(("needs_bytes",), "memory_bytes")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_cell_says_what_its_link_asks(language: str) -> None:
    values, asked = Values(open_source(BOOK, configured_device(BOOK), local=False), configured_device(BOOK)), set()
    for block in (block for name, block in tables.blocks(language).items() if name.startswith("one-card#")):
        table = Table.parse("", block.options)
        assert table
        for cell in (cell for row in table.filled(values) for cell in row if "plan.md?" in cell):
            match = CELL.fullmatch(cell)
            assert match, f"not read: {cell}"
            found = answer_any(dict(parse_qsl(match["query"])))["found"]
            path, last = match["path"], match["path"].split(".")[-1]
            said = found[SAYS.get(last, "longest_context")]
            assert values[path] == pytest.approx(said["total"] if isinstance(said, dict) else said), match
            if last == "hours":
                assert values[path.replace("hours", "yuan")] == pytest.approx(found["money"]), match
            if last == "needs_bytes":
                assert as_said(match["mark"]).strip() == MARKS[found["verdict"]], match
            asked.add(path)
    text = (BOOK.docs / language / "one-card.md").read_text(encoding="utf-8")
    links = [match for match in CELL.finditer(text) if "{row}" not in match[0]]  # in the text around the tables
    assert links
    for match in links:
        found = answer_any(dict(parse_qsl(match["query"])))["found"]
        assert values[match["path"]] == found["memory_bytes"]["total"] and found["fits"], match
        asked.add(match["path"])
    assert planned(values) - {"one_card.full_down.backward.needs_bytes"} <= asked  # for which the form has no field


def planned(values: Values) -> set[str]:
    """What the page has of the planner: every model and method, length, remedy, card; of two a choice of rows."""
    tables_of = {
        "needs": "needs_bytes",
        "longest": "",
        "adapters_down": "needs_bytes",
    }
    tables_of |= {"full_down": "needs_bytes", "day": "hours", "cards": "qlora_tokens"}
    paths = set()
    for name, ends in tables_of.items():
        for row, cells in values[f"one_card.{name}"].items():
            if (name, row) == ("day", "qlora"):  # would say the same again
                continue
            nested = isinstance(next(iter(cells.values())), dict)
            for cell in cells if nested or not ends else ends.split():
                paths.add(f"one_card.{name}.{row}.{cell}" + (f".{ends}" if nested else ""))
    return paths


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_form_has_what_a_link_fills_in(language: str) -> None:
    """What it has no field for, as the update within the backward pass, a reader would be answered without."""
    controls = re.split(r"(?=<(?:input|select)\b)", form("full", language))
    fields = {
        name[1]: set(re.findall(r'<option value="?([\w-]+)', each)) for each in controls if (name := NAME.search(each))
    }
    text = (BOOK.docs / language / "one-card.md").read_text(encoding="utf-8")
    queries = re.findall(r"plan\.md\?([^)]+)\)", text) + re.findall(r'question: "([^"]+)"', text)
    asked = {pair for query in queries for pair in parse_qsl(query) if "{" not in pair[1]}
    assert len(asked) > 25
    for name, value in asked:
        assert name in fields, f"{name}={value}"
        assert name in ("model", "gpu") or not fields[name] or value in fields[name], f"{name}={value}"
