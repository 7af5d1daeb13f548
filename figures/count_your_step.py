"""Figure of the chapter that counts a step of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Names, Scale

GIB = 2**30
ORDER = {  # from the bottom up, with their colours
    "weights": "weights", "state": "optimizer", "gradients": "gradients",
    "layers": "activations", "loss": "logits", "temporaries": "other",
}  # fmt: skip


def lines(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Lines of code as bars: the bytes that each of them made and that live at the step's peak, the most on top."""
    found = sorted((values["count_your_step.line_bytes"] or {}).items(), key=lambda line: -line[1])
    axes = Axes(Scale(labels["axis"]), Names([labels[name] for name, _ in found]), height=30 * max(len(found), 1))
    axes.barh(range(len(found)), [size / GIB for _, size in found], 0, height=0.6)
    return str(axes)


def picture(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes over the events of two counted steps, stacked by what they hold."""
    kinds = values["count_your_step.picture_bytes"] or {}
    axes = Axes(Scale(labels["events"], low=-0.5, ticks={-9: ""}), Scale("GiB"))
    parts = {labels[kind]: [size / GIB for size in kinds.get(kind, [])] for kind in ORDER}
    axes.stack(range(len(kinds.get("weights", []))), parts, width=1, colours=[*ORDER.values()])
    if start := values["count_your_step.second_piece"]:
        axes.axvline(start - 0.5, labels["first"], labels["second"])
    return str(axes)
