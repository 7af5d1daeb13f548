"""Figures of the chapter on counting FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import HALF, Drawing, upon
from ledger.units import format_value

WIDTH = 340
CELL = 17


def product(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Three matrices: a row of the first and a column of the second make one element of the third."""
    m, n, p = (values[f"counting_flops.{name}"] or 0 for name in ("ROWS", "INNER", "COLUMNS"))
    row, column = m // 2, p // 2
    drawing = Drawing(WIDTH, 24 + CELL * max(m, n) + 74)
    middle = 24 + CELL * max(m, n) / 2
    x = 2.0
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
                    drawing.add("rect", colour, x=left, y=y, width=CELL, height=CELL, fill_opacity=HALF)
                drawing.rect(left, y, CELL, CELL, "stroke-muted")
        drawing.text(x + columns * CELL / 2, top - 8, name, "muted", anchor="middle")
        x += columns * CELL
        drawing.text(x + 15, middle + 6, sign, anchor="middle", size=20)
        x += 30
    for line, name in enumerate(("multiplications", "additions", "elements")):
        drawing.text(2, middle + CELL * max(m, n) / 2 + 26 + 22 * line, labels[name])
    return str(drawing)


def shares(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Two bars from 0 to 1: what each kind of operation has of the FLOPs, and what of the time."""
    published = values["counting_flops.PUBLISHED"] or {}
    kinds = [kind for kind in ("matmuls", "norms", "element_wise") if kind in published]
    drawing, high = Drawing(WIDTH, 0), 34
    top = drawing.legend([(f"fill-{colour}", labels[kind], 1) for colour, kind in enumerate(kinds)])
    for measure in ("flops", "time"):
        x, y = 0.0, top + 24
        drawing.text(0, y - 6, labels[measure])
        for colour, kind in enumerate(kinds):
            width = WIDTH * published[kind][f"{measure}_share"]
            drawing.rect(x, y, width, high, f"fill-{colour}")
            if width > 45:  # has room for three digits
                percent = format_value(width / WIDTH, "share", ".1f%", labels["language"])
                drawing.text(min(x + width / 2, WIDTH - 25), y + 22, percent, upon(str(colour)), anchor="middle")
            x += width
        top = y + high
    drawing.resize(top)
    return str(drawing)
