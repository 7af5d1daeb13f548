"""The figure of the chapter on how numbers are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from ledger.units import format_value


def trials(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Every trial as a dot, in order; the middle half as a band, median and mean as lines. Time is logarithmic."""
    seconds: list[float] = values["how_numbers_are_made.measured_trials_seconds"] or []
    low, median, mean, high = (
        values[f"how_numbers_are_made.{name}_seconds"] for name in ("low", "median", "mean", "high")
    )
    axes = Axes(Scale(labels["order"]), Log(unit="seconds"))
    if seconds:
        axes.axhspan(low, high)
        for colour, (name, duration) in enumerate((("median", median), ("mean", mean))):
            label = f"{labels[name]} {format_value(duration, 'seconds')}"
            axes.axhline(duration, colour=colour, label=label, dashed=False)
        axes.scatter([1], seconds[:1], 0)
        axes.scatter(range(2, len(seconds) + 1), seconds[1:], "ink")
        axes.annotate(labels["first"], 1, seconds[0])
    return str(axes)
