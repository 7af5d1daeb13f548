"""The figure of the chapter on how numbers are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
LEFT, RIGHT, TOP, BOTTOM = 8, 500, 44, 244  # the plot; the names of its lines stand to the right


def trials(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Every trial as a dot, in order; the middle half as a band, median and mean as lines. Time is logarithmic."""
    drawing = Drawing(WIDTH, BOTTOM + 34)
    seconds: list[float] = values["how_numbers_are_made.measured_trials_seconds"] or []
    if not seconds:
        return str(drawing)
    low, median, mean, high = (
        values[f"how_numbers_are_made.{name}_seconds"] for name in ("low", "median", "mean", "high")
    )
    floor, ceiling = math.log(min(seconds)), math.log(max(seconds))

    def height(duration: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (math.log(duration) - floor) / max(ceiling - floor, 1e-9)

    def across(index: int) -> float:
        return LEFT + 8 + (RIGHT - LEFT - 16) * index / max(len(seconds) - 1, 1)

    drawing.rect(LEFT, height(high), RIGHT - LEFT, max(height(low) - height(high), 1), "faint")
    drawing.line(LEFT, height(median), RIGHT, height(median), "stroke-0")
    drawing.line(LEFT, height(mean), RIGHT, height(mean), "stroke-1")
    for index, duration in enumerate(seconds):
        drawing.circle(across(index), height(duration), 4, "ink" if index else "fill-0")

    gap = 34.0  # two names need so much between them
    upper, lower = sorted((("mean", mean, 1), ("median", median, 0)), key=lambda line: -line[1])
    y_upper = min(height(upper[1]), height(lower[1]) - gap)
    y_lower = max(height(lower[1]), y_upper + gap)
    if y_upper < TOP:
        y_upper, y_lower = float(TOP), max(y_lower, TOP + gap)
    for (name, duration, colour), y in ((upper, y_upper), (lower, y_lower)):
        drawing.line(RIGHT, height(duration), RIGHT + 14, y, f"stroke-{colour}")
        drawing.text(RIGHT + 20, y - 2, labels[name])
        drawing.text(RIGHT + 20, y + 14, format_value(duration, "seconds"), "muted")
    drawing.line(across(0), height(seconds[0]) - 8, across(0), 20, "stroke-muted")
    drawing.text(across(0) - 4, 14, labels["first"], "muted")
    drawing.line(LEFT, BOTTOM + 10, RIGHT, BOTTOM + 10, "stroke-muted")
    drawing.text(LEFT, BOTTOM + 28, labels["order"], "muted")
    return str(drawing)
