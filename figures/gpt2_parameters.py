"""Figure of the chapter on GPT-2's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
SIZES = ("small", "medium", "large", "xl")
PARTS = {  # as the page stacks them, with their colours
    "tokens": "fill-0",
    "positions": "fill-2",
    "attention": "fill-1",
    "mlp": "fill-3",
    "norms": "fill-4",
}
LEFT, BAR = 74.0, 26.0


def stack(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Four bars twice: parameters by part on one scale, and each part's share of its model."""
    counts = values["gpt2_parameters.part_parameters"] or {}
    parts = {size: _joined(counts[size]) for size in SIZES if size in counts}
    largest = max((sum(found.values()) for found in parts.values()), default=1)
    drawing = Drawing(WIDTH, 438)
    y = 18.0
    for title in ("count", "share"):
        drawing.text(4, y, labels[title], size=15)
        y += 14
        for size, found in parts.items():
            total = sum(found.values())
            full = (WIDTH - LEFT - 96) if title == "count" else (WIDTH - LEFT - 4)
            drawing.text(4, y + 18, labels[size])
            x = LEFT
            for part, colour in PARTS.items():
                width = full * found[part] / (largest if title == "count" else total)
                drawing.rect(x, y, width, BAR, colour)
                if title == "share" and width > 44:
                    percent = format_value(found[part] / total, "share", ".0f%", labels["language"])
                    drawing.text(x + width / 2, y + 18, percent, "paper", anchor="middle")
                x += width
            if title == "count":
                drawing.text(x + 8, y + 18, f"{total / 1e6:,.0f}M", "muted")
            y += BAR + 8
        y += 28
    x = 4.0
    for part, colour in PARTS.items():
        drawing.rect(x, y - 8, 12, 12, colour)
        drawing.text(x + 18, y + 3, labels[part])
        x += 40 + sum(15 if ord(letter) > 0x2E80 else 7.4 for letter in labels[part])
    return str(drawing)


def _joined(parts: Mapping[str, int]) -> dict[str, int]:
    """The parts that are drawn: all norms as one; a tied head has nothing of its own."""
    joined = {part: parts[part] for part in PARTS}
    joined["norms"] += parts["final_norm"]
    return joined
