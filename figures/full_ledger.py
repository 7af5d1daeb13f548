"""Figures and table of the full ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Colour, Names, Scale

GIB = 2**30
PARTS = {  # of a moment, and the lines that each adds up
    "state": ("weights", "master", "optimizer", "batch"),
    "gradients": ("gradients",),
    "copies": ("copies",),
    "activations": ("activations",),
    "layer": ("layer",),
    "logits": ("logits",),
    "temporaries": ("temporaries",),
}
COLOURS: tuple[Colour, ...] = ("muted", 3, 4, 0, 5, 1, 2)
MOMENTS = ("forward", "loss", "head", "last_layer", "first_layer", "embedding", "update")
LINES = ("products", "attention", "norms", "gelu", "loss", "embedding", "elementwise", "optimizer")
RUNGS = ("fp32", "tf32", "bf16", "attention", "compile", "padded", "optimizer")


def moments(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What is alive at each moment of a step, stacked."""
    found = values["full_ledger.moments"] or {}
    axes = Axes(Scale(labels["axis"]), Names([labels[moment] for moment in MOMENTS]))
    left = [0.0] * len(MOMENTS)
    for colour, (part, lines) in zip(COLOURS, PARTS.items(), strict=True):
        sizes = [sum(found.get(moment, {}).get(line, 0) for line in lines) / GIB for moment in MOMENTS]
        axes.barh(range(len(MOMENTS)), sizes, colour, labels[part], left=left)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    return str(axes)


def waterfall(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Each line of the prediction from where the one before ends; then the residual, and what was measured."""
    lines = values["full_ledger.predicted_lines_seconds"] or {}
    measured = values["full_ledger.measured_step_seconds"] or 0.0
    names = [*LINES, "residual", "measured"]
    axes = Axes(Scale(labels["axis"], unit="seconds"), Names([labels[name] for name in names]), 300)
    end = 0.0
    for row, line in enumerate(LINES):
        axes.barh([row], [lines.get(line, 0.0)], 0, left=[end])
        end += lines.get(line, 0.0)
    axes.barh([len(LINES)], [abs(measured - end)], 1, left=[min(end, measured)])
    axes.barh([len(LINES) + 1], [measured], "muted")
    return str(axes)


def ladder_lines(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """The predicted lines of a step, rung by rung; — where a line is part of another."""
    found = values["gpt2_ladder.predicted_rungs_seconds"] or {}
    names = {"attention": "fused", "optimizer": "adamw"}  # rungs that are called as a line is
    rows = [[labels[column] for column in ("rung", *LINES)]]
    for rung in RUNGS:
        lines = found.get(rung, {})
        quotes = {line: f"{{{{ gpt2_ladder.predicted_rungs_seconds.{rung}.{line} }}}}" for line in lines}
        rows.append([labels[names.get(rung, rung)], *(quotes.get(line, "—") for line in LINES)])
    return rows
