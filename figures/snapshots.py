"""What a snapshot of the trainer holds over its events."""

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale

GIB = 2**30
ORDER = {  # from the bottom up, with their colours
    "weights": "weights", "state": "optimizer", "gradients": "gradients",
    "layers": "activations", "loss": "logits", "backward": "other",
}  # fmt: skip


def timeline(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Allocated bytes over the events of two steps, stacked by what asked for them; and the limit of them all."""
    kinds = values["snapshots.timeline_bytes"] or {}
    axes = Axes(Scale(labels["events"], low=-0.5, ticks={-9: ""}), Scale("GiB"))
    parts = {labels[kind]: [size / GIB for size in kinds.get(kind, [])] for kind in ORDER}
    tops = axes.stack(range(len(kinds.get("weights", []))), parts, width=1, colours=[*ORDER.values()])
    if wanted := values["snapshots.wanted_bytes"]:
        last, below, size = len(tops) - 1, tops[-1], wanted / GIB
        axes.bar([last], [size], "ink", width=1, bottom=[below], alpha=0.3)
        axes.annotate(labels["wanted"], last + 0.5, below + size, dx=0, dy=-6, anchor="end")
    if limit := values["snapshots.limit_bytes"]:
        axes.axhline(limit / GIB, labels["limit"], at="start")
    if start := values["snapshots.second_piece"]:
        axes.axvline(start - 0.5, labels["first"], labels["second"])
    return str(axes)
