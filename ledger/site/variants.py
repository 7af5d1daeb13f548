"""What outputs, drawings and tables look like on each device; devices on which they look the same stand together."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from ledger.book import Problem
from ledger.site.chapter import targets
from ledger.site.quote import QuoteError, Source, Values
from ledger.site.tables import Table
from ledger.text import as_html, as_said, is_hidden

T = TypeVar("T")
Rows = list[list[str]]  # of Markdown cells, the header first


class Output(NamedTuple):
    """What a section printed."""

    text: str
    is_stale: bool


def outputs(source: Source, argument: str) -> list[tuple[list[str], Output]]:
    """(devices, output) for each text that a section printed: `snippet:section`."""
    snippet, _, section = (part.strip() for part in argument.partition(":"))
    found = source.outputs(snippet, section)
    return _group({device: Output(str(each.value), each.stale) for device, each in found.items()})


def drawings(source: Source, language: str, name: str, labels: dict[str, str]) -> list[tuple[list[str], str]]:
    """(devices, SVG) for each way a figure looks; no SVG for devices that have none of its measurements.

    Raises QuoteError if there is no such figure or it is no SVG.
    """

    def draw(device: str | None) -> str:
        values = Values(source, device)
        svg: Any = call_figure(source, name, {"language": language, **labels}, values)
        if device and values.are_absent:
            return ""
        if not isinstance(svg, str) or not svg.startswith("<svg"):
            raise QuoteError(f"figures.{name} returned no SVG")
        return as_html(svg)

    return _on_each_device(source, draw)


def tables(source: Source, language: str, name: str, options: dict[str, Any]) -> list[tuple[list[str], Rows]]:
    """(devices, rows of Markdown cells, the header first) for each way a table looks; may raise QuoteError."""
    data = Table.parse(name, options)  # None: the function of that name makes it
    labels = {"language": language, **options.get("labels", {})}

    def make(device: str | None) -> Rows:
        values = Values(source, device)
        rows = data.filled(values) if data else call_figure(source, name, labels, values)
        if not isinstance(rows, list) or not rows or len({len(row) for row in rows}) != 1:
            raise QuoteError(f"figures.{name} returned no rows of one length")
        table = [[str(cell) for cell in row] for row in rows]
        for where in (where for row in table for cell in row for where in targets(cell)):
            if is_hidden(where):
                raise QuoteError(f"{name or 'a cell'} links to {as_said(where)} itself; ledger.text.link() may")
        return table

    return _on_each_device(source, make)


def _on_each_device(source: Source, make: Callable[[str | None], T]) -> list[tuple[list[str], T]]:
    return _group({device: make(device) for device in source.devices}) if source.devices else [([], make(None))]


def _group(by_device: dict[str, T]) -> list[tuple[list[str], T]]:
    """Devices with equal content together, in order of their first."""
    groups: list[tuple[list[str], T]] = []
    for device, content in by_device.items():
        for devices, seen in groups:
            if seen == content:
                devices.append(device)
                break
        else:
            groups.append(([device], content))
    return groups


# The functions in figures/


class Labels(dict[str, str]):
    """A page's words for a figure; a missing one is an error that names it. A text of a record may be their key."""

    def __getitem__(self, key: str) -> str:
        return super().__getitem__(as_said(key))

    def __missing__(self, key: str) -> str:
        raise QuoteError(f"the block's labels lack {key!r}")


def call_figure(source: Source, name: str, labels: dict[str, str], values: Values) -> Any:
    """Calls figures/<module>.py's function for `module.function`, with the values of a device."""
    module_name, _, function_name = name.partition(".")
    path = source.book.root / "figures" / f"{module_name}.py"
    if not path.is_file():
        raise QuoteError(f"there is no figures/{module_name}.py")
    try:
        function = getattr(_import_figures(path, path.stat().st_mtime_ns), function_name, None)
    except SyntaxError as error:
        where = Problem(Path(error.filename or path), error.lineno or 0, f"not Python: {error.msg}")
        raise QuoteError(f"figures.{name} cannot be drawn", where) from None
    if not callable(function):
        raise QuoteError(f"figures/{module_name}.py has no function {function_name!r}")
    try:
        return function(values, Labels(labels))
    except QuoteError:
        raise
    except Exception as error:  # a mistake of its own, or of a record that holds what it does not expect
        raise QuoteError(f"{place_of(error)}{type(error).__name__}: {error}, {values.whose}") from None


def place_of(error: Exception) -> str:
    """The file and line that raised it."""
    tail = error.__traceback__
    while tail and tail.tb_next:
        tail = tail.tb_next
    return f"{Path(tail.tb_frame.f_code.co_filename).name}:{tail.tb_lineno}: " if tail else ""


@cache
def _import_figures(path: Path, modified: int) -> ModuleType:
    """The module at path, loaded again after the file has changed (a live preview lives long)."""
    root = str(path.parent.parent)
    if root not in sys.path:
        sys.path.insert(0, root)  # figures import figures.svg
    spec = importlib.util.spec_from_file_location(f"figures.{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
