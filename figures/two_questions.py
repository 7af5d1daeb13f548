"""Figures of the chapter of the two questions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Names, Scale
from ledger.units import format_value

GB = 10**9  # what a card is sold by
ROOM = ("napkin", "planner")
ROOM_PARTS = {  # what the figure shows, and the planner's lines in it
    "weights": ("weights", "master", "copies"),
    "gradients": ("gradients", "reduced"),
    "moments": ("optimizer",),
    "activations": ("activations", "layer", "batch", "temporaries"),
    "logits": ("logits",),
    "gathered": ("gathered",),
    "allowance": ("allowance",),
}
ROOM_COLOURS = {"moments": "optimizer", "gathered": "other", "allowance": "muted"}  # the rest is called as its colour


def _in_order(found: Mapping[str, Any] | None, labels: Mapping[str, str]) -> list[str]:
    """The names among a value's keys in the order of the page's labels: a record keeps its keys sorted."""
    return [name for name in labels if name in (found or {})]


def one_scale(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Training runs as bars on a logarithmic axis of FLOPs, and the thresholds as lines across them."""
    runs = sorted((values["two_questions.compute_flops"] or {}).items(), key=lambda run: run[1])
    thresholds = values["two_questions.thresholds"] or {}
    low = 10.0 ** math.floor(math.log10(min((flops for _, flops in runs), default=1)))
    axes = Axes(Log(low=low), Names([""] * len(runs)), height=48 * len(runs))
    by_size = sorted(thresholds.items(), key=lambda threshold: threshold[1]["flops"])
    for colour, (name, threshold) in enumerate(by_size, start=2):
        axes.axvline(threshold["flops"], colour=colour, label=labels[name])
    for row, (name, flops) in enumerate(runs):
        axes.annotate(f"{labels[name]}\u2003{format_value(flops, '', 'sci')}", low, row, dx=4, dy=-4)
        axes.barh([row + 0.2], [flops - low], int(name == "gpt_4"), height=0.3, left=[low])
    return str(axes)


def booked(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Published runs as bars: the hours that they took, over those that the estimate books, which is the line."""
    took = values["two_questions.took_ratio"] or {}
    names = _in_order(took, labels)
    rows = Names([f"{labels[name]}\u2003{took[name]:.2f}" for name in names])
    axes = Axes(Scale(labels["axis"]), rows, height=28 * max(len(names), 1))
    axes.barh(range(len(names)), [took[name] for name in names], 0, height=0.6)
    axes.axvline(1, colour="ink", label=labels["booked"])
    return str(axes)


def room(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What fills a GPU: by 16 bytes a parameter, and by the planner."""
    found = values["two_questions.room_bytes"] or {}
    rows = [name for name in ROOM if name in found]
    axes = Axes(Scale(labels["axis"]), Names([labels[name] for name in rows]), height=56 * max(len(rows), 1))
    left = [0.0] * len(rows)
    for part, lines in ROOM_PARTS.items():
        sizes = [sum(found[name].get(line, 0) for line in lines) / GB for name in rows]
        axes.barh(range(len(rows)), sizes, ROOM_COLOURS.get(part, part), labels[part], height=0.5, left=left)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    return str(axes)
