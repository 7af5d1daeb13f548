"""Figures of the chapter on GPT-2's parameters."""

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

DRAWN = (  # from top to bottom: a tensor and its shape, or a step; the shape of the step's weights
    ("tokens", "b × T", ""),
    ("embed", "", "V × d"),
    ("place", "", "T × d"),
    ("stream", "b × T × d", ""),
    ("times", "", ""),
    ("norm", "", "2 × d"),
    ("qkv", "", "d × 3d"),
    ("attend", "", ""),
    ("mix", "", "d × d"),
    ("add", "", ""),
    ("norm", "", "2 × d"),
    ("up", "", "d × 4d"),
    ("gelu", "", ""),
    ("down", "", "4d × d"),
    ("add", "", ""),
    ("stream", "b × T × d", ""),
    ("final", "", "2 × d"),
    ("head", "", "tied"),
    ("logits", "b × T × V", ""),
)
BLOCK = range(4, 15)  # the rows that are repeated


def model(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """GPT-2 from its tokens to its logits, as wide as a phone: tensors are boxes, weights stand at the right."""
    left, spine, right, end, pitch, top = 30, 52, 240, 334, 27, 42
    drawing = Drawing(340, top + pitch * len(DRAWN))
    drawing.text(end, 16, labels["weights"], "muted", anchor="end")
    frame = top + pitch * BLOCK.start - 14
    drawing.add("rect", "fill-0", x=4, y=frame, width=336, height=pitch * len(BLOCK), rx=6, fill_opacity=0.12)
    split = 0.0  # the height at which the residual stream passes by
    for row, (word, shape, weights) in enumerate(DRAWN):
        y = top + pitch * row
        if shape:
            drawing.add("rect", "stroke-muted", x=left, y=y - 12, width=right - left, height=24, rx=4)
            drawing.text(left + 8, y + 5, labels[word])
            drawing.text(right - 8, y + 5, shape, "muted", anchor="end")
        else:
            drawing.line(spine, y - 15, spine, y + 15)
            drawing.text(spine + 16, y + 5, labels[word], "muted" if word == "times" else "ink")
        if word == "norm":
            split = y - 12
        if word == "add":
            drawing.path(f"M{spine} {split} H16 V{y} H{spine}", "stroke-ink")
            drawing.circle(spine, y, 4, "ink")
        if weights:
            drawing.text(end, y + 5, labels["tied"] if weights == "tied" else weights, anchor="end")
    return str(drawing)


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
