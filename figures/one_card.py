"""Figures of the chapter about one card: narrow enough for a phone as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH, LEFT, HEIGHT = 340, 0, 26
ROWS = ("full_amp", "lora", "qlora")
PARTS = {  # what the drawing shows, and the planner's lines in it
    "weights": ("weights", "master", "copies", "adapters"),
    "gradients": ("gradients", "reduced"),
    "optimizer": ("optimizer",),
    "activations": ("activations", "layer", "batch", "temporaries"),
    "logits": ("logits",),
}


def methods(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What fills a card with each method, to scale; what is beyond the picture's end is cut off and said."""
    lines, card = values["one_card.lines_bytes"] or {}, values["one_card.RTX_4090_BYTES"] or 0
    scale = (WIDTH - 60) / max(card, 1)
    drawing, top, drawn = Drawing(WIDTH, 0), 22, set[str]()
    for name in (row for row in ROWS if row in lines):
        sizes = {part: sum(lines[name].get(line, 0) for line in found) for part, found in PARTS.items()}
        sizes["other"] = lines[name]["total"] - sum(sizes.values())
        total = format_value(lines[name]["total"], "bytes", language=labels["language"])
        drawing.text(LEFT, top + 14, f"{labels[name]}\u2003{total}", "ink")
        x = float(LEFT)
        for part, size in sizes.items():
            width = min(size * scale, WIDTH - x)
            drawn |= {part} if width >= 1 else set()
            drawing.rect(x, top + 20, width, HEIGHT, f"fill-{part}")
            x += width
        if lines[name]["total"] * scale > WIDTH:
            drawing.text(WIDTH - 16, top + 14, "→", "ink")
        top += 20 + HEIGHT + 12
    edge = LEFT + card * scale
    drawing.line(edge, 18, edge, top - 4)
    drawing.text(
        edge, 12, f"{labels['card']}\u2003{format_value(card, 'bytes', language=labels['language'])}", "ink", "end"
    )
    seen = [part for part in (*PARTS, "other") if part in drawn]
    for n, part in enumerate(seen):
        x, y = LEFT + n % 2 * 170, top + 10 + n // 2 * 22
        drawing.rect(x, y, 10, 10, f"fill-{part}")
        drawing.text(x + 15, y + 10, labels[part], "ink")
    drawing.resize(top + 10 + (len(seen) + 1) // 2 * 22)
    return str(drawing)
