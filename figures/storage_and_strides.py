"""Figure of the chapter on storage and strides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from figures.svg import Drawing

CELL, LEFT = 37, 24  # width of one element; the strip's left edge
VIEWS = ("row", "column", "transpose", "slice", "expand")  # in the order of the page


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
        drawing.add("text", "ink", code[name], x=LEFT + 118, y=top + 18, font_size=14, font_family="monospace")
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
    return 6 + 7 * math.sqrt(step) if step else 0


def _strip(drawing: Drawing, y: float, num_cells: int, path: list[int], colour: int) -> None:
    """The cells, those of the path in colour, and the path: forwards above, backwards below, a dot where it begins."""
    for cell in range(num_cells):
        x = LEFT + cell * CELL
        drawing.rect(x, y, CELL, 28, "faint")
        if cell in path:  # see-through, so that the number stays legible in light and dark
            drawing.add("rect", f"fill-{colour}", x=x, y=y, width=CELL, height=28, fill_opacity=0.4)
        drawing.rect(x, y, CELL, 28, "stroke-muted")
        drawing.text(x + CELL / 2, y + 19, str(cell), "ink" if cell in path else "muted", anchor="middle")
    for start, end in dict.fromkeys(pairwise(path)):
        _arrow(drawing, y, start, end, colour)
    drawing.circle(_middle(path[0]) - 8, y, 4, f"fill-{colour}")


def _middle(cell: int) -> float:
    return LEFT + (cell + 0.5) * CELL


def _arrow(drawing: Drawing, y: float, start: int, end: int, colour: int) -> None:
    """An arc from one element to another, its head where it ends."""
    up = -1 if end > start else 1
    edge = y if up < 0 else y + 28
    x1 = _middle(start) - 6 * up  # arrows leave to the right of a cell's middle when they go right, else to the left
    x2 = _middle(end) + 6 * up
    bend = edge + up * 2 * _rise(abs(end - start))
    drawing.path(f"M{x1:g} {edge:g} Q{(x1 + x2) / 2:g} {bend:g} {x2:g} {edge:g}", f"stroke-{colour}")
    angle = math.atan2(edge - bend, x2 - (x1 + x2) / 2)
    corners = [(x2 - 7 * math.cos(angle + turn), edge - 7 * math.sin(angle + turn)) for turn in (0.45, -0.45)]
    drawing.path(f"M{x2:g} {edge:g} " + " ".join(f"L{x:.1f} {y:.1f}" for x, y in corners) + " Z", f"fill-{colour}")
