"""Figures of many GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Colour, Log, Names, Scale

GIB = 2**30
CARD_BYTES = 80e9
PARTS: dict[str, Colour] = {"weights": 0, "gradients": 1, "state": "muted"}
BARS = {  # a label, and its stage and ranks
    "ddp": ("DDP", "8"),
    "one_8": ("ZeRO-1", "8"),
    "two_8": ("ZeRO-2", "8"),
    "three_8": ("ZeRO-3", "8"),
    "one_64": ("ZeRO-1", "64"),
    "two_64": ("ZeRO-2", "64"),
    "three_64": ("ZeRO-3", "64"),
}


def stages(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes on a rank by stage and number of ranks, stacked by what they are."""
    found = values["many_gpus.parts_bytes"] or {}
    axes = Axes(Scale(labels["axis"]), Names([labels[bar] for bar in BARS]))
    left = [0.0] * len(BARS)
    for part, colour in PARTS.items():
        sizes = [found.get(ranks, {}).get(stage, {}).get(part, 0) / GIB for stage, ranks in BARS.values()]
        axes.barh(range(len(BARS)), sizes, colour, labels[part], left=left)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    axes.axvline(CARD_BYTES / GIB, after=labels["card"])
    return str(axes)


def wire(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Times of collectives over the bytes that a rank sends, and the fitted lines."""
    sent, fits = values["count_ranks.measured_sent"] or {}, values["count_ranks.measured_fits"] or {}
    axes = Axes(Log(labels["axis"], unit="bytes"), Log(labels["time"], unit="seconds"))
    for colour, collective in enumerate(("allreduce", "allgather")):
        times = {float(size): seconds for size, seconds in (sent.get(collective) or {}).items()}
        sizes = sorted(times)
        axes.scatter(sizes, [times[size] for size in sizes], colour, labels[collective])
        if fit := fits.get(collective):
            line = [fit["latency_seconds"] + size / fit["bytes_per_second"] for size in sizes]
            axes.plot(sizes, line, colour)
    return str(axes)
