"""Figure and table of bandwidth by size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from ledger.units import format_value

WAYS = ("fill", "read", "copy", "triad")


def sizes(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes a second over the size of a buffer, a line for each way, with the caches and the datasheet's bandwidth."""
    ways = values["bandwidth_limits.measured_ways_bytes_per_second"] or {}
    by_size = {way: sorted((int(size), rate) for size, rate in (ways.get(way) or {}).items()) for way in WAYS}
    ends = sorted({size for line in by_size.values() for size, _ in line}) or [1]
    ticks: dict[float, str] = {size: format_value(size, "bytes") for size in ends if size.bit_length() % 3 == 1}
    axes = Axes(Log(labels["size"], ticks=ticks), Log(labels["rate"], unit="bytes_per_second"))
    for colour, (way, line) in enumerate(by_size.items()):
        axes.plot([size for size, _ in line], [rate for _, rate in line], colour, labels[way])
    for name, size in (values["bandwidth_limits.predicted_caches_bytes"] or {}).items():
        if ends[0] <= size <= ends[-1]:
            axes.axvline(size, name, colour="muted")
    if peak := values["bandwidth_limits.predicted_bytes_per_second"]:
        axes.axhline(peak, labels["datasheet"], below=True)
    return str(axes)


def rates(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each way: the buffers it touches, its rate at best, from memory, and both compared."""
    columns = {
        "passes": "PASSES",
        "best": "measured_top_bytes_per_second",
        "memory": "measured_memory_bytes_per_second",
        "ratio": "measured_cache_ratio",
    }
    if values["bandwidth_limits.predicted_bytes_per_second"]:
        columns["share"] = "measured_datasheet_share"
    rows = [[labels["way"], *(labels[column] for column in columns)]]
    for way in WAYS:
        cells = [f"{{{{ bandwidth_limits.{value}.{way} }}}}" for value in columns.values()]
        rows.append([labels[way], *cells])
    return rows
