"""A table of a page as data in its block: a row and a column's template make a cell, and nothing is computed.

    /// table
        of: snippet.value
        rows:
            eager: eager, none
        columns:
            Strategy: "{label}"
            A layer: "{{ snippet.kept_bytes.{row} }}"
    Caption.
    ///

`columns` gives each header its template; as a list of such pairs where two headers are alike. `rows` gives each key its
label, or several texts by name (`{label: …, formula: …}`), or a list of all its cells as they stand; or it is a list of
keys alone. `of` names a value: each row is the part of it that the key leads to, and a part that a device cannot have
(None) is no row there. With `of` alone its keys are the rows, numbers in their order, of a list the places from 0.

In a template `{row}` is the key, `{item}` the part of `of`, `{item.0}` or `{item.code}` a part of that, `{item:full}` a
number with commas; any other name is a text of the row. What remains, `{{ snippet.value }}`, is filled as anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.site.quote import INDEX, QuoteError
from ledger.text import as_said
from ledger.units import format_value

FIELD = re.compile(r"(?<!\{)\{(?P<path>[^{}\s:]+)(?::(?P<style>[^{}\s]*))?\}")
OPTIONS = ("of", "rows", "columns")
Row = dict[str, str] | list[str]  # texts by name, or all cells


@dataclass(frozen=True)
class Table:
    """What a block says, the same on every device."""

    columns: list[tuple[str, str]]  # header and template
    rows: dict[str, Row]  # by key
    of: str  # a value's name, or ""

    @classmethod
    def parse(cls, function: str, options: Mapping[str, Any]) -> Table | None:
        """The table of a block's options; None where a function of `figures/` makes it.

        Raises QuoteError for what is no table.
        """
        if function:
            if given := [option for option in OPTIONS if option in options]:
                raise QuoteError(f"figures.{function} makes this table; {given[0]}: is for a block without a function")
            return None
        if unknown := [option for option in options if option not in OPTIONS]:
            raise QuoteError(f"a table has of:, rows: and columns:, not {unknown[0]}:")
        table = cls(_columns(options.get("columns")), _rows(options.get("rows")), _text("of:", options.get("of", "")))
        if not table.rows and not table.of:
            raise QuoteError("a table needs rows:, or of: with the value whose parts are its rows")
        table._check()
        return table

    def _check(self) -> None:
        used = {match["path"].split(".")[0] for _, template in self.columns for match in FIELD.finditer(template)}
        for key, row in self.rows.items():
            if isinstance(row, list) and len(row) != len(self.columns):
                raise QuoteError(f"row {key!r} has {len(row)} cells; there are {len(self.columns)} columns")
            for name in row if isinstance(row, dict) else ():
                if name in ("row", "item") or name not in used:
                    raise QuoteError(f"row {key!r} has a text {name!r} that no column shows as {{{name}}}")

    def filled(self, values: Mapping[str, Any]) -> list[list[str]]:
        """Rows of Markdown cells, the header first, with the values of a device. Raises QuoteError."""
        rows = [[header for header, _ in self.columns]]
        for key, row, item in self._items(values):
            if isinstance(row, list):
                rows.append(row)
                continue
            known = {**row, "row": key, **({"item": item} if self.of else {})}
            rows.append([_cell(template, known, f"row {key!r}, column {head!r}") for head, template in self.columns])
        return rows

    def _items(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Row, Any]]:
        """Key, row and part of `of` for each row that a device has."""
        if not self.of:
            yield from ((key, row, None) for key, row in self.rows.items())
        elif self.rows:
            for key, row in self.rows.items():
                item = None if isinstance(row, list) else values[f"{self.of}.{key}"]
                if item is not None or isinstance(row, list):
                    yield key, row, item
        else:
            found = values[self.of]
            if not isinstance(found, dict | list | None):
                raise QuoteError(f"of: {self.of} is one {type(found).__name__}; rows are a list's or a dictionary's")
            parts = found if isinstance(found, dict) else {str(place): item for place, item in enumerate(found or ())}
            for key in sorted(parts, key=lambda key: int(key) if INDEX.fullmatch(key) else 10**9):
                if parts[key] is not None:
                    yield key, {}, parts[key]


def _columns(said: Any) -> list[tuple[str, str]]:
    pairs = said if isinstance(said, list) else [{head: template} for head, template in _mapping("columns:", said)]
    if wrong := [pair for pair in pairs if not isinstance(pair, dict) or len(pair) != 1]:
        raise QuoteError(f"columns: is a mapping or a list of `Header: template`, one each, not {wrong[0]!r}")
    if not pairs:
        raise QuoteError("a table needs columns:, each header with the template of its cells")
    found = []
    for header, template in (item for pair in pairs for item in pair.items()):
        if template is None:
            raise QuoteError(f"column {header!r} has no template")
        found.append((_text("a column's header", header), _text(f"column {header!r}", template)))
    return found


def _rows(said: Any) -> dict[str, Row]:
    if isinstance(said, list):
        keys = list(map(_key, said))
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise QuoteError(f"row {twice[0]!r} stands there twice")
        return {key: {} for key in keys}
    found: dict[str, Row] = {}
    for key, row in _mapping("rows:", said):
        where = f"row {key!r}"
        if isinstance(row, dict):
            found[_key(key)] = {_text(where, name): _text(f"{where}, {name}:", text) for name, text in row.items()}
        elif isinstance(row, list):
            found[_key(key)] = [_text(where, cell) for cell in row]
        else:
            found[_key(key)] = {"label": _text(where, row)}
    return found


def _mapping(what: str, said: Any) -> list[tuple[Any, Any]]:
    if not isinstance(said, dict | None):
        raise QuoteError(f"{what} is a list or a mapping, not {said!r}")
    return list((said or {}).items())


def _key(said: Any) -> str:
    """A row's key, which may be a number: a record has the same key as text."""
    return str(said) if type(said) is int else _text("a row's key", said)


def _text(what: str, said: Any) -> str:
    if not isinstance(said, str):
        raise QuoteError(f"YAML reads {what} as {said!r}, which is no text; write it in quotes")
    return said


def _cell(template: str, known: Mapping[str, Any], where: str) -> str:
    """A template with its fields in place."""

    def put(match: re.Match[str]) -> str:
        name, *path = match["path"].split(".")
        if name not in known:
            raise QuoteError(f"{where}: there is no {{{name}}}; there are {', '.join(f'{{{name}}}' for name in known)}")
        value = known[name]
        for part in path:
            try:
                value = value[int(part) if isinstance(value, list) else part]
            except (KeyError, IndexError, TypeError, ValueError):
                raise QuoteError(f"{where}: there is no {match[0]} in {as_said(str(known[name]))[:100]}") from None
        if isinstance(value, dict | list | bool | None):
            raise QuoteError(f"{where}: {match[0]} is a {type(value).__name__}, neither a text nor a number")
        if match["style"] is None:
            return str(value)
        if match["style"] != "full" or isinstance(value, str):
            raise QuoteError(f"{where}: {match[0]}: the one format here is full, of a number")
        return format_value(value, "", "full")

    return FIELD.sub(put, template)
