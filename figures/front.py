"""The front page's figure: narrow enough for a phone as it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 340
LEFT, RIGHT, SIDE = 6, 334, 4.6  # of the axis; of a point, with the space around it
TICKS = (0.3, 0.5, 0.7, 1.0, 1.4)
LOW, HIGH = 0.24, 1.6


def across(ratio: float) -> float:
    """Where a ratio lies: the axis is logarithmic, and nothing lies beyond its ends."""
    return LEFT + math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW) * (RIGHT - LEFT)


def readings(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Planned over published memory, a point a reading, piled up: when first asked, and today."""
    sources = values["published_meters.sources"] or []
    drawing, top = Drawing(WIDTH, 0), 4.0
    for colour, name in enumerate(("first", "today")):
        columns = Counter(
            round(across(ratio) / SIDE) for source in sources for ratio in source.get(f"{name}_ratios", ())
        )
        base = top + 22 + SIDE * max(columns.values(), default=0)
        drawing.text(0, top + 14, labels[name], "ink")
        places = ((SIDE * column, base - SIDE * (row + 0.5)) for column, rows in columns.items() for row in range(rows))
        drawing.rects(((x - 1.8, y - 1.8, 3.6, 3.6) for x, y in places), f"fill-{colour}")
        drawing.line(LEFT, base, RIGHT, base)
        drawing.line(across(1), top + 20, across(1), base + 5, "stroke-muted")
        top = base + 14
    for tick in TICKS:
        drawing.line(across(tick), top - 14, across(tick), top - 10)
        drawing.text(across(tick), top + 5, f"{tick:g}", "muted", "middle")
    drawing.text(RIGHT, top + 25, labels["axis"], "ink", "end")
    drawing.resize(top + 32)
    return str(drawing)
