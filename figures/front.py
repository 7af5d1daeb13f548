"""The front page's figure: narrow enough for a phone as it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH, HEIGHT = 340, 84  # of all, and of the highest bar, however many readings there are
LEFT, RIGHT, SIDE = 6, 334, 4.6  # of the axis; of a bar, with the space beside it
TICKS = (0.3, 0.5, 0.7, 1.0, 1.4)
LOW, HIGH = 0.24, 1.6


def across(ratio: float) -> float:
    """Where a ratio lies: the axis is logarithmic, and nothing lies beyond its ends."""
    return LEFT + math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW) * (RIGHT - LEFT)


def readings(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Planned over published memory, as many readings as a bar is high: when first asked, and today."""
    sources = values["published_meters.sources"] or []
    columns = {
        name: Counter(round(across(ratio) / SIDE) for source in sources for ratio in source.get(f"{name}_ratios", ()))
        for name in ("first", "today")
    }
    each = HEIGHT / max((number for bars in columns.values() for number in bars.values()), default=1)
    drawing, base = Drawing(WIDTH, 0), 0.0
    for colour, (name, bars) in enumerate(columns.items()):
        drawing.text(0, base + 18, labels[name], "ink")
        base += HEIGHT + 14
        boxes = ((SIDE * column - 1.8, base - each * number, 3.6, each * number) for column, number in bars.items())
        drawing.rects(boxes, f"fill-{colour}")
        drawing.line(LEFT, base, RIGHT, base)
        drawing.line(across(1), base - HEIGHT, across(1), base + 5, "stroke-muted")
    for tick in TICKS:
        drawing.line(across(tick), base, across(tick), base + 4)
        drawing.text(across(tick), base + 19, f"{tick:g}", "muted", "middle")
    drawing.text(RIGHT, base + 39, labels["axis"], "ink", "end")
    drawing.resize(base + 46)
    return str(drawing)
