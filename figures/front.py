"""The front page's figure: narrow enough for a phone as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.axes import text_width
from figures.svg import Drawing
from ledger.units import format_value

WIDTH, HEIGHT = 340, 300  # the style sheet knows this width: such a drawing is not made wider
LEFT, RIGHT, TOP, BOTTOM = 70, 326, 52, 258
TICKS = tuple(2**30 * size for size in (2, 8, 32, 128))
LOW, HIGH = 2**30 * 1.4, 2**30 * 700


def share(size: float) -> float:
    """How far along an axis, which is logarithmic, a number of bytes lies."""
    return math.log(size / LOW) / math.log(HIGH / LOW)


def place(counted: float, planned: float) -> tuple[float, float]:
    return LEFT + share(counted) * (RIGHT - LEFT), BOTTOM - share(planned) * (BOTTOM - TOP)


def planned(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The bytes that the planner says of each step over those that were counted, ours and transformers' modules."""
    series = {name: values[f"plan_{name}.step_cases"] or [] for name in ("theirs", "check")}
    drawing = Drawing(WIDTH, HEIGHT)
    drawing.line(*place(LOW, LOW), *place(HIGH, HIGH), "stroke-muted")
    for tick in TICKS:
        text = format_value(tick, "bytes", language=labels["language"])
        (x, _), (_, y) = place(tick, LOW), place(LOW, tick)
        drawing.line(x, BOTTOM, x, BOTTOM + 4, "stroke-ink")
        drawing.text(x, BOTTOM + 18, text, "muted", "middle")
        drawing.line(LEFT - 4, y, LEFT, y, "stroke-ink")
        drawing.text(LEFT - 7, y + 4, text, "muted", "end")
    drawing.path(f"M {LEFT} {TOP} V {BOTTOM} H {RIGHT}", "stroke-ink")
    drawing.text(LEFT, TOP - 10, labels["planned"], "ink")
    drawing.text(RIGHT, BOTTOM + 36, labels["counted"], "ink", "end")
    at = 0.0
    for colour, (name, cases) in enumerate(series.items()):
        for case in cases:
            ratio = case.get("composed_ratio", case["planned_ratio"])
            drawing.circle(*place(case["counted_bytes"], case["counted_bytes"] * ratio), 3, f"fill-{colour}")
        drawing.circle(at + 5, 11, 5, f"fill-{colour}")
        drawing.text(at + 15, 16, labels[name], "ink")
        at += 15 + text_width(labels[name]) + 16
    return str(drawing)
