"""Figure of attention's speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log

BACKENDS = ("cudnn", "flash", "efficient", "math")


def speeds(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Useful FLOP/s over the length of the sequence: a colour for each implementation, backward dashed."""
    found = values["attention_speed.measured_speeds"] or {}
    lengths = sorted(int(length) for length in next(iter(found.values()), {}))  # as text, 16384 precedes 512
    axes = Axes(Log(labels["length"], ticks=lengths), Log(labels["rate"], unit="flop_per_second"))
    for colour, backend in enumerate(BACKENDS):
        speeds = [(found.get(backend) or {}).get(str(length)) for length in lengths]
        if any(speeds):
            for way in ("forward", "backward"):
                line = [speed and speed[f"{way}_flop_per_second"] for speed in speeds]
                axes.plot(lengths, line, colour, labels[backend] if way == "forward" else "", dashed=way == "backward")
    return str(axes)
