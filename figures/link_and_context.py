"""Figure of what a GPU's memory holds at first, and of the link to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from ledger.units import format_value

WAYS = ("pageable_there", "pinned_there", "in_line_there", "pinned_back", "both")


def transfers(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes a second over the size of a transfer: a line for each way, and the link's rate where it is known."""
    found = values["link_and_context.measured_ways_bytes_per_second"] or {}
    sizes = sorted({int(size) for line in found.values() for size in line}) or [1]
    ticks: dict[float, str] = {size: format_value(size, "bytes") for size in sizes[::2]}
    axes = Axes(Log(labels["size"], ticks=ticks), Log(labels["rate"], unit="bytes_per_second"))
    for colour, way in enumerate(WAYS):
        axes.plot(sizes, [(found.get(way) or {}).get(str(size)) for size in sizes], colour, labels[way])
    if link := values["link_and_context.predicted_link_bytes_per_second"]:
        axes.axhline(link, labels["link"])
    return str(axes)
