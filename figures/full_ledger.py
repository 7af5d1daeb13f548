"""Figures of one step, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import HELD, Axes, Colour, Names, Scale

GIB = 2**30
PARTS = {  # of a moment, and the lines that each adds up
    "state": ("weights", "master", "optimizer", "batch"),
    "gradients": ("gradients",),
    "activations": ("activations",),
    "layer": ("layer",),
    "logits": ("logits",),
    "temporaries": ("temporaries",),
}
COLOURS: Mapping[str, Colour] = {**HELD, "state": HELD["optimizer"], "layer": 5, "temporaries": "muted"}
MOMENTS = ("forward", "loss", "head", "last_layer", "first_layer", "embedding", "update")
STACKS = ("tune_eager", "tune_compiled", "mpt", "titan_eager", "titan_compiled")
STACKED: dict[str, Colour] = {
    "matmuls": 0, "recomputed": 4, "attention": 1, "elementwise": 2, "loss": 5, "update": 3
}  # fmt: skip


def moments(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What is alive at each moment of a published step, stacked, and the peak that was measured."""
    found = values["published_steps.run_moments"] or {}
    published = (values["published_steps.run_published"] or {}).get("peak_bytes", 0) / GIB
    axes = Axes(Scale(labels["axis"]), Names([labels[moment] for moment in MOMENTS]))
    left = [0.0] * len(MOMENTS)
    for part, lines in PARTS.items():
        sizes = [sum(found.get(moment, {}).get(line, 0) for line in lines) / GIB for moment in MOMENTS]
        axes.barh(range(len(MOMENTS)), sizes, COLOURS[part], labels[part], left=left)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    axes.axvline(published, labels["published"])
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
