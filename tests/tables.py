"""The tables of the book's pages, by name: what several tests hold them to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ledger.book import Book
from ledger.site.chapter import PLACEHOLDER, Block, Chapter
from ledger.site.tables import FIELD, Row, Table
from tests.conftest import ROOT

BOOK = Book(ROOT)
NOT_WORDS = re.compile(rf"{PLACEHOLDER}|{FIELD.pattern}|\$[^$]+\$|`[^`]+`")


def blocks(language: str) -> dict[str, Block]:
    """Figures and tables by their function; a table that is data by its page, heading and place below that."""
    found: dict[str, Block] = {}
    for path in sorted((BOOK.docs / language).glob("*.md")):
        chapter = Chapter.read(path)
        for block in chapter.blocks:
            if block.kind in ("figure", "table"):
                heading = [heading.id for heading in chapter.headings if heading.line < block.line][-1]
                name = block.argument or f"{path.stem}#{heading}"
                if not block.argument and name in found:
                    name += f" {sum(each.split(' ')[0] == name for each in found) + 1}"
                found[name] = block
    return found


def skeleton(text: str) -> tuple[str, ...]:
    """What a cell has in both languages: all but its words; all of it where there are none."""
    if not re.search(r"[^\W\d_]", NOT_WORDS.sub("", text)):
        return (text,)
    return tuple(match[0] for match in NOT_WORDS.finditer(text))


def shape(options: Mapping[str, Any]) -> Any:
    """A table without its words."""
    table = Table.parse("", options)
    assert table
    rows = [
        (key, *(map(skeleton, row) if isinstance(row, list) else sorted((n, skeleton(t)) for n, t in row.items())))
        for key, row in table.rows.items()
    ]
    return table.of, rows, [(skeleton(header), template) for header, template in table.columns]


def names(options: Mapping[str, Any]) -> Iterator[list[tuple[str, str]]]:
    """What a table calls its columns, and its rows: lists of keys with their texts, in both languages in one order.

    A column has no key but its header; tests/pages/test_series.py holds that to its template.
    """
    table = Table.parse("", options)
    assert table
    yield [(header, header) for header, _ in table.columns]
    rows = [
        ({"label": row[0]} if isinstance(row, list) else row, key)
        for key, row in table.rows.items()
        if not key.isdigit()
    ]
    for name in sorted({name for row, _ in rows for name in row}):
        yield [(key, row[name]) for row, key in rows if name in row]


def by_key(options: Mapping[str, Any]) -> Table:
    """A table whose rows are called by their keys."""
    table = Table.parse("", options)
    assert table
    rows: dict[str, Row] = {
        key: [key, *row[1:]] if isinstance(row, list) else dict.fromkeys(row, key) for key, row in table.rows.items()
    }
    return replace(table, rows=rows)


def cells(options: Mapping[str, Any]) -> list[str]:
    """What a table says behind and below its names."""
    table = Table.parse("", options)
    assert table
    rows = [row[1:] if isinstance(row, list) else [row[n] for n in row if n != "label"] for row in table.rows.values()]
    return [*(cell for row in rows for cell in row), *(template for _, template in table.columns)]


def words(options: Mapping[str, Any]) -> list[str]:
    """All that a table says."""
    table = Table.parse("", options)
    assert table
    texts = [text for row in table.rows.values() for text in (row if isinstance(row, list) else row.values())]
    return [*texts, *(text for column in table.columns for text in column)]
