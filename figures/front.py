"""The front page's figure: narrow enough for a phone as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH, HEIGHT = 340, 318  # the style sheet knows this width: such a drawing is not made wider
LEFT, RIGHT, TOP, BOTTOM = 44, 326, 92, 276
TICKS = tuple(2**30 * size for size in (2, 8, 32, 128))
LOW, HIGH = 2**30 * 1.4, 2**30 * 700
SERIES = {  # what is drawn, from behind to the front: the snippet, and the ratio
    "theirs": ("plan_transformers", "planned_ratio"),
    "composed": ("plan_transformers", "composed_ratio"),
    "check": ("plan_check", "planned_ratio"),
}


def across(size: float) -> float:
    """Where a number of bytes lies: this axis is logarithmic."""
    return LEFT + math.log(size / LOW) / math.log(HIGH / LOW) * (RIGHT - LEFT)


def planned(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The peak that the planner says of each step over the one that was counted, beside the latter's size."""
    cases = {name: values[f"{snippet}.step_cases"] or [] for name, (snippet, _) in SERIES.items()}
    ratios: list[float] = [case[SERIES[name][1]] for name in SERIES for case in cases[name]]
    low = min([0.7, *(math.floor(10 * ratio) / 10 for ratio in ratios)])
    high = max([1.05, *(ratio + 0.05 for ratio in ratios)])

    def up(ratio: float) -> float:
        return BOTTOM - (ratio - low) / (high - low) * (BOTTOM - TOP)

    drawing = Drawing(WIDTH, HEIGHT)
    for tick in TICKS:
        x = across(tick)
        drawing.line(x, BOTTOM, x, BOTTOM + 4, "stroke-ink")
        drawing.text(x, BOTTOM + 18, format_value(tick, "bytes", language=labels["language"]), "muted", "middle")
    for tenths in range(round(10 * low), math.floor(10 * high) + 1):
        y = up(tenths / 10)
        drawing.line(LEFT - 4, y, LEFT, y, "stroke-ink")
        drawing.text(LEFT - 7, y + 4, f"{tenths / 10:.1f}", "muted", "end")
    drawing.line(LEFT, up(1), RIGHT, up(1), "stroke-muted")
    drawing.path(f"M {LEFT} {TOP} V {BOTTOM} H {RIGHT}", "stroke-ink")
    drawing.text(0, TOP - 10, labels["ratio"], "ink")
    drawing.text(RIGHT, BOTTOM + 36, labels["counted"], "ink", "end")
    for colour, (name, (_, ratio)) in enumerate(SERIES.items()):
        for case in cases[name]:
            drawing.circle(across(case["counted_bytes"]), up(case[ratio]), 3, f"fill-{colour}")
        drawing.circle(5, 11 + 21 * colour, 5, f"fill-{colour}")
        drawing.text(15, 16 + 21 * colour, labels[name], "ink")
    return str(drawing)
