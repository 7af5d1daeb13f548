"""Figures of the chapter on counting FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import text_width
from figures.svg import Drawing, upon
from ledger.units import format_value

WIDTH = 640
CELL = 26


def product(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Three matrices: a row of the first and a column of the second make one element of the third."""
    m, n, p = (values[f"counting_flops.{name}"] or 0 for name in ("ROWS", "INNER", "COLUMNS"))
    row, column = m // 2, p // 2
    drawing = Drawing(WIDTH, 24 + CELL * max(m, n) + 74)
    middle = 24 + CELL * max(m, n) / 2
    x = 4.0
    for rows, columns, name, sign, chosen in (  # chosen: the row and column to colour, None for all of them
        (m, n, "m × n", "·", (row, None)),
        (n, p, "n × p", "=", (None, column)),
        (m, p, "m × p", "", (row, column)),
    ):
        top = middle - CELL * rows / 2
        for i in range(rows):
            for j in range(columns):
                left, y = x + j * CELL, top + i * CELL
                drawing.rect(left, y, CELL, CELL, "faint")
                if chosen[0] in (i, None) and chosen[1] in (j, None):
                    colour = "fill-1" if not sign else "fill-0"
                    drawing.add("rect", colour, x=left, y=y, width=CELL, height=CELL, fill_opacity=0.55)
                drawing.rect(left, y, CELL, CELL, "stroke-muted")
        drawing.text(x + columns * CELL / 2, top - 8, name, "muted", anchor="middle")
        x += columns * CELL
        drawing.text(x + 26, middle + 6, sign, anchor="middle", size=20)
        x += 52
    for line, name in enumerate(("multiplications", "additions", "elements")):
        drawing.text(4, middle + CELL * max(m, n) / 2 + 26 + 22 * line, labels[name])
    return str(drawing)


def shares(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Two bars from 0 to 1: what each kind of operation has of the FLOPs, and what of the time."""
    published = values["counting_flops.PUBLISHED"] or {}
    kinds = [kind for kind in ("matmuls", "norms", "element_wise") if kind in published]
    drawing = Drawing(WIDTH, 156)
    left, full, bar = 70, WIDTH - 74, 34
    for line, measure in enumerate(("flops", "time")):
        x, y = float(left), 8 + line * (bar + 18)
        drawing.text(4, y + 22, labels[measure])
        for colour, kind in enumerate(kinds):
            share = published[kind][f"{measure}_share"]
            drawing.rect(x, y, full * share, bar, f"fill-{colour}")
            if full * share > 48:
                percent = format_value(share, "share", ".1f%", labels["language"])
                drawing.text(x + full * share / 2, y + 22, percent, upon(str(colour)), anchor="middle")
            x += full * share
    x = float(left)
    for colour, kind in enumerate(kinds):
        drawing.rect(x, 124, 12, 12, f"fill-{colour}")
        drawing.text(x + 18, 135, labels[kind])
        x += 44 + text_width(labels[kind])
    return str(drawing)
