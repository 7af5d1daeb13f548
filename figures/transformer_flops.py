"""Figures of the chapter on a transformer's FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import Drawing

TOKENS = (4, 8)  # of the drawing
COLUMNS = 14  # that stand for the parameters
CELL = 10
PERCENT = {tick / 5: f"{20 * tick}%" for tick in range(6)}


def two_kinds(_: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Tokens by parameters beside tokens by tokens, for few tokens and for twice as many."""
    rectangle, square = 0, 188
    drawing = Drawing(340, 0)
    for x, kind in ((rectangle, "matrices"), (square, "attention")):
        drawing.text(x, 18, labels[kind])
        drawing.text(x, 38, labels[f"{kind}_cost"], "muted")
    top = 70.0
    for tokens in TOKENS:
        height = CELL * tokens
        drawing.text(0, top - 7, f"T = {tokens}")
        drawing.rect(rectangle, top, CELL * COLUMNS, height, "fill-0")
        for row in range(tokens):
            y, seen = top + CELL * row, CELL * (row + 1)
            drawing.rect(square, y, seen, CELL, "fill-1")
            drawing.rect(square + seen, y, height - seen, CELL, "faint")
        for x, columns, kind in ((rectangle, COLUMNS, f"{tokens} × M"), (square, tokens, f"{tokens} × {tokens}")):
            down = "".join(f"M{x + CELL * n} {top:g}v{height}" for n in range(columns + 1))
            across = "".join(f"M{x} {top + CELL * n:g}h{CELL * columns}" for n in range(tokens + 1))
            drawing.path(down + across, "stroke-muted")
            drawing.text(x + CELL * columns + 6, top + height / 2 + 5, kind, "muted")
        top += height + 32
    legend = [("fill-1", labels["left"], 1), ("faint", labels["hidden"], 1)]
    drawing.resize(drawing.legend(legend, top - 14))
    return str(drawing)


def contexts(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Attention's share of a forward pass over the context: both models, all pairs and causal."""
    axes = Axes(
        Log(labels["context"], ticks={1_024 * 2**power: f"{2**power}k" for power in range(8)}),
        Scale(labels["share"], low=0, high=1, ticks=PERCENT),
    )
    for colour, model in enumerate(("gpt2", "llama")):
        for name, dashed in (("attention_share", False), ("causal_share", True)):
            found = (values[f"transformer_flops.{name}"] or {}).get(model, {})
            points = sorted((int(context), share) for context, share in found.items())
            label = labels[f"{model}_causal" if dashed else model]
            axes.plot([x for x, _ in points], [y for _, y in points], colour, label, dashed=dashed)
    axes.axhline(0.5, labels["half"], "muted")
    return str(axes)
