"""Figure of one product held for half a minute."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from figures.axes import Axes, Scale

PHASES = ("random", "zeros", "random_again")
LINES = ("rate_flop_per_second", "clock_mhz", "power_watts")


def trace(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Rate, clock and power over time, each as a share of its highest value, and where the data change."""
    phases = values["sustained_rate.measured_trace"] or {}
    moments = [moment for phase in PHASES for moment in phases.get(phase) or []]
    seconds = [moment["at_seconds"] for moment in moments]
    axes = Axes(Scale(labels["time"]), Scale(labels["share"], unit="share", low=0))
    for colour, line in enumerate(LINES):
        known = [moment[line] for moment in moments if moment[line] is not None]
        if known:
            shares = [None if moment[line] is None else moment[line] / max(known) for moment in moments]
            axes.plot(seconds, shares, colour, labels[line])
    for before, after in pairwise(PHASES):
        if phases.get(before) and phases.get(after):
            axes.axvline(phases[before][-1]["at_seconds"], labels[before], labels[after] if after == PHASES[-1] else "")
    return str(axes)
