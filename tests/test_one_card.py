"""Each number of the page about one card that leads to the planner is what the planner answers there."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import pytest

from ledger.site.check import configured_device
from ledger.site.quote import Values, open_source
from ledger.site.tables import Table
from planner.stacks import answer_any
from tests import tables
from tests.tables import BOOK

CELL = re.compile(r"\[\{\{ (?P<path>one_card\.[^:}]+?)(?::\S+)? \}\}\]\(plan\.md\?(?P<query>[^)]+)\)(?P<mark>.*)")
SAYS = {"needs_bytes": "memory_bytes", "hours": "gpu_hours"}  # else the longest context


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_cell_says_what_its_link_asks(language: str) -> None:
    values, asked = Values(open_source(BOOK, configured_device(BOOK), local=False), configured_device(BOOK)), 0
    for block in (block for name, block in tables.blocks(language).items() if name.startswith("one-card#")):
        table = Table.parse("", block.options)
        assert table
        for match in (CELL.fullmatch(cell) for row in table.filled(values) for cell in row):
            if match:
                found = answer_any(dict(parse_qsl(match["query"])))["found"]
                said = found[SAYS.get(match["path"].split(".")[-1], "longest_context")]
                assert values[match["path"]] == pytest.approx(said["total"] if isinstance(said, dict) else said), match
                if match["mark"].strip():
                    assert found["fits"], match
                asked += 1
    assert asked > 80
