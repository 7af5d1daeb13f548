"""Figures of one step, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Colour, Names, Scale

GIB = 2**30
ALIVE = {  # from the bottom up, with their colours
    "state": "optimizer", "gradients": "gradients", "activations": "activations", "logits": "logits"
}  # fmt: skip
STACKS = ("tune_eager", "tune_compiled", "mpt", "titan_eager", "titan_compiled")
STACKED: dict[str, Colour] = {
    "matmuls": 0, "recomputed": 4, "attention": 1, "elementwise": 2, "loss": 5, "update": 3
}  # fmt: skip


def curve(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What is alive while a published step does its FLOPs, stacked, and the peak that was measured."""
    found = values["published_steps.run_curve_bytes"] or {}
    published = (values["published_steps.run_published"] or {}).get("peak_bytes", 0) / GIB
    parts = {labels[kind]: [size / GIB for size in found.get(kind, [])] for kind in ALIVE}
    columns = len(found.get("state", []))
    axes = Axes(Scale(labels["flops"], low=-0.5, ticks={-9: ""}), Scale("GiB"))
    axes.stack(range(columns), parts, width=1, colours=[*ALIVE.values()])
    axes.axhline(published, labels["published"])
    if start := values["published_steps.run_forward_to_backward"]:
        axes.axvline(start - 0.5, labels["forward"], labels["backward"])
    return str(axes)


def stacks(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Published steps, each a stack of its lines in units of its published time."""
    found = values["published_steps.stacks"] or {}
    axes = Axes(Scale(labels["axis"], low=0), Names([labels[name] for name in STACKS]), 220)
    left = [0.0] * len(STACKS)
    for part, colour in STACKED.items():
        shares = [found.get(name, {}).get(part, 0.0) for name in STACKS]
        axes.barh(range(len(STACKS)), shares, colour, labels[part], left=left)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    axes.axvline(1, labels["published"])
    return str(axes)
