"""Figure of the chapter on data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 340


def windows(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A strip of tokens, and below it the last window that is drawn, the one that is not, and both with targets."""
    length = values["data_loading.LENGTH"] or 1
    window = values["data_loading.WINDOW"] or 1
    cell, height = WIDTH / length, 30.0
    last = length - window  # of the windows without targets
    drawing = Drawing(WIDTH, 246)
    drawing.text(0, 14, labels["tokens"])
    for index in range(length):
        drawing.rect(cell * index + 1, 22, cell - 2, height, "stroke-muted", rx=2)
        drawing.text(cell * (index + 0.5), 42, str(index), anchor="middle")
    for y, name, start, css in (
        (66, "drawn", last - 1, "fill-0"),
        (106, "missed", last, "stroke-ink"),
        (174, "inputs", last - 1, "fill-0"),
        (214, "targets", last, "fill-1"),
    ):
        drawing.text(0, y + 20, labels[name])
        for index in range(start, start + window):
            drawing.rect(cell * index + 1, y, cell - 2, height, css, rx=2)
    drawing.line(0, 155, WIDTH, 155, "stroke-muted")
    return str(drawing)
