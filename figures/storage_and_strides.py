"""Figures of the chapter on storage and strides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from figures.svg import FADED, Drawing
from ledger.units import format_value

CELL, LEFT = 21, 2  # width of one element; the strip's left edge
VIEWS = ("row", "column", "transpose", "slice", "expand")  # in the order of the page
BOX, GAP, WORDS = 84, 8, 64  # width of a tensor's box, the room between two, and that of the words at their left


def tensors(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A matrix, its column and its row as boxes with offset, shape and strides, above the strip that they share."""
    code = values["storage_and_strides.VIEWS"] or {}
    columns = {
        word: values[f"storage_and_strides.{name}"] or {}
        for word, name in (("offset", "offsets"), ("shape", "shapes"), ("strides", "strides"))
    }
    matrix = values["storage_and_strides.matrix"] or {}
    num_cells = values["storage_and_strides.num_elements"] or 0
    held = format_value(values["storage_and_strides.storage_bytes"] or 0, "bytes")
    boxes = [("x", matrix, "ink")]
    for name in ("column", "row"):  # as their beginnings lie in the strip, so that no arrow crosses another
        if name in code:
            header = {word: column[name] for word, column in columns.items() if name in column}
            boxes.append((code[name], header, str(VIEWS.index(name))))

    strip, bottom = 176, 100
    drawing = Drawing(LEFT * 2 + num_cells * CELL, strip + 56)
    for line, word in enumerate(columns):
        drawing.text(0, 48 + 20 * line, labels[word], "muted")
    for index, (title, header, colour) in enumerate(boxes):
        x = WORDS + index * (BOX + GAP)
        drawing.rect(x, 4, BOX, bottom - 4, f"stroke-{colour}", rx=4)
        drawing.add("text", "ink", title, x=x + 10, y=26, font_size=14, font_family="monospace")
        for line, word in enumerate(columns):
            drawing.text(x + 10, 48 + 20 * line, str(header.get(word, "")))
        start, end = x + CELL / 2, _middle(header.get("offset", 0))
        drawing.path(f"M{start:g} {bottom:g} L{end:g} {strip - 6:g}", f"stroke-{colour}")
        drawing.path(f"M{end - 5:g} {strip - 8:g} L{end + 5:g} {strip - 8:g} L{end:g} {strip:g} Z", _fill(colour))
    for cell in range(num_cells):
        drawing.rect(LEFT + cell * CELL, strip, CELL, 28, "stroke-muted")
        drawing.text(_middle(cell), strip + 19, str(cell), "muted", anchor="middle")
    drawing.text(
        LEFT + num_cells * CELL, strip + 48, f"{labels['storage']}{labels['separator']}{held}", "muted", anchor="end"
    )
    return str(drawing)


def _fill(colour: str) -> str:
    return colour if colour == "ink" else f"fill-{colour}"


def paths(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The strip of memory once for each view, with an arrow for each step from one of its elements to the next."""
    code = values["storage_and_strides.VIEWS"] or {}
    strides = values["storage_and_strides.strides"] or {}
    visited = values["storage_and_strides.paths"] or {}
    num_cells = values["storage_and_strides.num_elements"] or 0

    views = [name for name in VIEWS if visited.get(name)]
    width = num_cells * CELL
    drawing = Drawing(LEFT * 2 + width, sum(_heights(visited[name])[1] for name in views))
    top = 0.0
    for colour, name in enumerate(views):
        above, height = _heights(visited[name])
        drawing.text(LEFT, top + 18, labels[name])
        drawing.add("text", "ink", code[name], x=LEFT + 80, y=top + 18, font_size=14, font_family="monospace")
        drawing.text(LEFT + width, top + 18, f"{labels['strides']} {strides[name]}", css="muted", anchor="end")
        _strip(drawing, top + 28 + above, num_cells, visited[name], colour)
        top += height
    return str(drawing)


def _heights(path: list[int]) -> tuple[float, float]:
    """Room for the arrows above the strip, and for all of one view."""
    steps = [after - before for before, after in pairwise(path)]
    above = _rise(max([*steps, 1]))
    below = _rise(max(-min([*steps, 0]), 0))
    return above, 28 + above + 28 + below + 18


def _rise(step: int) -> float:
    """How far an arrow over so many elements leaves the strip."""
    return 6 + 6 * math.sqrt(step) if step else 0


def _strip(drawing: Drawing, y: float, num_cells: int, path: list[int], colour: int) -> None:
    """The cells, those of the path in colour, and the path: forwards above, backwards below, a dot where it begins."""
    for cell in range(num_cells):
        x = LEFT + cell * CELL
        drawing.rect(x, y, CELL, 28, "faint")
        if cell in path:  # see-through, so that the number stays legible in light and dark
            drawing.add("rect", f"fill-{colour}", x=x, y=y, width=CELL, height=28, fill_opacity=FADED)
        drawing.rect(x, y, CELL, 28, "stroke-muted")
        drawing.text(x + CELL / 2, y + 19, str(cell), "ink" if cell in path else "muted", anchor="middle")
    for start, end in dict.fromkeys(pairwise(path)):
        _arrow(drawing, y, start, end, colour)
    drawing.circle(_middle(path[0]) - 5, y, 4, f"fill-{colour}")


def _middle(cell: int) -> float:
    return LEFT + (cell + 0.5) * CELL


def _arrow(drawing: Drawing, y: float, start: int, end: int, colour: int) -> None:
    """An arc from one element to another, its head where it ends."""
    up = -1 if end > start else 1
    edge = y if up < 0 else y + 28
    x1 = _middle(start) - 4 * up  # arrows leave to the right of a cell's middle when they go right, else to the left
    x2 = _middle(end) + 4 * up
    bend = edge + up * 2 * _rise(abs(end - start))
    drawing.path(f"M{x1:g} {edge:g} Q{(x1 + x2) / 2:g} {bend:g} {x2:g} {edge:g}", f"stroke-{colour}")
    angle = math.atan2(edge - bend, x2 - (x1 + x2) / 2)
    corners = [(x2 - 6 * math.cos(angle + turn), edge - 6 * math.sin(angle + turn)) for turn in (0.45, -0.45)]
    drawing.path(f"M{x2:g} {edge:g} " + " ".join(f"L{x:.1f} {y:.1f}" for x, y in corners) + " Z", f"fill-{colour}")
