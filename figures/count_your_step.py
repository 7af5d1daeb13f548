"""Figure of the chapter that counts a step of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Names, Scale

GIB = 2**30


def lines(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Lines of code as bars: the bytes that each of them made and that live at the step's peak, the most on top."""
    found = sorted((values["count_your_step.line_bytes"] or {}).items(), key=lambda line: -line[1])
    axes = Axes(Scale(labels["axis"]), Names([labels[name] for name, _ in found]), height=30 * max(len(found), 1))
    axes.barh(range(len(found)), [size / GIB for _, size in found], 0, height=0.6)
    return str(axes)
