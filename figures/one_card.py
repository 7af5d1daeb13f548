"""Figures of the chapter about one card: narrow enough for a phone as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH, HEIGHT = 340, 26
SIDE = 52.0  # pixels of a matrix whose numbers take 4 bytes
LONG, THIN = 37.0, 3.0  # an adapter, as long as a matrix of 2 bytes, and far wider than to scale
ROWS = ("full_amp", "lora", "qlora")
TRAINED = ("weights", "gradients", "optimizer", "optimizer")  # what there is of a matrix that is trained
PARTS = {  # what the drawing shows, and the planner's lines in it
    "weights": ("weights", "master", "copies", "adapters"),
    "gradients": ("gradients", "reduced"),
    "optimizer": ("optimizer",),
    "activations": ("activations", "layer", "batch", "temporaries"),
    "logits": ("logits",),
}


def methods(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Of each method one matrix with all that training keeps of it, areas to scale, and below it what fills the card;
    what is beyond the picture's end is cut off and said."""
    lines, card = values["one_card.lines_bytes"] or {}, values["one_card.RTX_4090_BYTES"] or 0
    scale = (WIDTH - 60) / max(card, 1)
    drawing, top, drawn = Drawing(WIDTH, 0), 22.0, set(TRAINED)
    rows = [row for row in ROWS if row in lines]
    whole = lines[rows[0]]["weights"] if rows else 1
    for name in rows:
        sizes = {part: sum(lines[name].get(line, 0) for line in found) for part, found in PARTS.items()}
        sizes["other"] = lines[name]["total"] - sum(sizes.values())
        total = format_value(lines[name]["total"], "bytes", language=labels["language"])
        drawing.text(0, top + 14, f"{labels[name]}\u2003{total}")
        below = _matrix(
            drawing, top + 22, SIDE * (lines[name]["weights"] / whole) ** 0.5, "adapters" in lines[name], labels
        )
        x = 0.0
        for part, size in sizes.items():
            width = min(size * scale, WIDTH - x)
            drawn |= {part} if width >= 1 else set()
            drawing.rect(x, below, width, HEIGHT, f"fill-{part}")
            x += width
        if lines[name]["total"] * scale > WIDTH:
            drawing.text(WIDTH - 16, below - 4, "→")
        drawing.line(card * scale, below - 4, card * scale, below + HEIGHT + 4)
        top = below + HEIGHT + 18
    said = f"{labels['card']}\u2003{format_value(card, 'bytes', language=labels['language'])}"
    drawing.text(card * scale, top, said, anchor="end")
    seen = [part for part in (*PARTS, "other") if part in drawn]
    for n, part in enumerate(seen):
        x, y = n % 2 * 170, top + 20 + n // 2 * 22
        drawing.rect(x, y, 10, 10, f"fill-{part}")
        drawing.text(x + 15, y + 10, labels[part])
    drawing.resize(top + 20 + (len(seen) + 1) // 2 * 22)
    return str(drawing)


def _matrix(drawing: Drawing, top: float, side: float, has_adapters: bool, labels: Mapping[str, str]) -> float:
    """A matrix, and beside it what is trained: itself, or two strips; returns where the next thing may stand."""
    if not has_adapters:
        for turn, kind in enumerate(TRAINED):
            drawing.rect(turn * (SIDE + 6), top, SIDE, SIDE, f"fill-{kind}")
        drawing.text(SIDE / 2, top + SIDE / 2 + 5, "W", "paper", "middle")
        drawing.text(4 * (SIDE + 6), top + 20, labels["each"], "muted")
        return top + SIDE + 10
    drawing.rect(0, top, side, side, "fill-weights")
    if side > 20:
        drawing.text(side / 2, top + side / 2 + 5, "W", "paper", "middle")
    pitch, left = THIN + 2, side + 12
    for turn, kind in enumerate(TRAINED):
        drawing.rect(left + turn * pitch, top, THIN, LONG, f"fill-{kind}")
        drawing.rect(left + 4 * pitch + 8, top + turn * pitch, LONG, THIN, f"fill-{kind}")
    drawing.text(left + 4 * pitch + LONG + 20, top + 13, labels["frozen"], "muted")
    return top + LONG + 10
