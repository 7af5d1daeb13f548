"""Figures and tables of one product held for half a minute."""

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


def settled(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each phase, its second half: power, its share of the limit, the clock, and the rate against that clock."""
    columns = {
        "power": "power_watts:.0f",
        "limit": "of_limit_share",
        "clock": "clock_mhz:.0f",
        "predicted": "predicted_flop_per_second",
        "rate": "rate_flop_per_second",
        "share": "at_clock_share",
    }
    rows = [[labels["data"], *(labels[column] for column in columns)]]
    for phase in PHASES:
        cells = [f"{{{{ sustained_rate.measured_settled.{phase}.{value} }}}}" for value in columns.values()]
        rows.append([labels[phase], *cells])
    return rows
