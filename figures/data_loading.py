"""Figure of the chapter on data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 640


def windows(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A strip of tokens, and below it the last window that is drawn, the one that is not, and both with targets."""
    length = values["data_loading.LENGTH"] or 1
    window = values["data_loading.WINDOW"] or 1
    left, cell, height = 190.0, (WIDTH - 200.0) / length, 30.0
    last = length - window  # of the windows without targets
    drawing = Drawing(WIDTH, 262)

    def row(y: float, name: str, start: int, count: int, css: str, first: int | None = None) -> None:
        drawing.text(0, y + 20, labels[name])
        for index in range(start, start + count):
            drawing.rect(left + cell * index + 1, y, cell - 2, height, css, rx=2)
            if first is not None:
                drawing.text(left + cell * (index + 0.5), y + 20, str(first + index - start), anchor="middle")

    row(6, "tokens", 0, length, "stroke-muted", first=0)
    row(64, "drawn", last - 1, window, "fill-0")
    row(108, "missed", last, window, "stroke-ink")
    row(170, "inputs", last - 1, window, "fill-0")
    row(214, "targets", last, window, "fill-1")
    drawing.line(0, 154, WIDTH, 154, "stroke-muted")
    return str(drawing)
