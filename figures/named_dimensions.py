"""Figures of the chapter on named dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
CHAPTER = "named_dimensions"


def positions(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The dimensions before and after the split into heads, each over its position; −2 is coloured in both rows."""
    size = {name: values[f"{CHAPTER}.{name}"] for name in ("BATCH", "SEQ_LEN", "D_MODEL", "NUM_HEADS", "D_HEAD")}
    rows = (
        ("before", (("batch", "BATCH"), ("tokens", "SEQ_LEN"), ("features", "D_MODEL"))),
        ("after", (("batch", "BATCH"), ("tokens", "SEQ_LEN"), ("heads", "NUM_HEADS"), ("head_features", "D_HEAD"))),
    )
    width, height, left, gap = 136, 44, 56, 142
    drawing = Drawing(WIDTH, 2 * gap - 44)
    for line, (when, dimensions) in enumerate(rows):
        top = line * gap + 4
        drawing.text(0, top + 27, labels[when], "muted")
        for place, (label, name) in enumerate(dimensions):
            position, x = place - len(dimensions), left + place * (width + 12)
            box: dict[str, Any] = {"x": x, "y": top, "width": width, "height": height, "rx": 3}
            drawing.add(
                "rect", "fill-1" if position == -2 else "faint", fill_opacity=0.4 if position == -2 else 1, **box
            )
            drawing.text(x + width / 2, top + 19, labels[label], anchor="middle")
            drawing.text(x + width / 2, top + 37, str(size[name] or ""), anchor="middle")
            drawing.text(x + width / 2, top + height + 20, f"−{-position}", "muted", anchor="middle")
    features = left + 2 * (width + 12)
    for end in (features, features + 2 * width + 12):
        start = features if end == features else features + width
        drawing.line(start, 4 + height + 26, end, gap - 2, "stroke-muted")
    return str(drawing)


def split(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Two strips of the same six numbers, coloured by the head that each number falls to."""
    cell, height = 46, 34
    drawing = Drawing(WIDTH, 150)
    for line, (name, pattern) in enumerate((("heads_outside", "(heads d)"), ("heads_inside", "(d heads)"))):
        heads = values[f"{CHAPTER}.{name}"] or []
        y = 4 + line * 56
        drawing.add("text", "ink", pattern, x=0, y=y + 23, font_size=16, font_family="monospace")
        for colour, head in enumerate(heads):
            for number in head:
                x = 130 + number * cell
                box: dict[str, Any] = {"x": x, "y": y, "width": cell - 4, "height": height, "rx": 2}
                drawing.add("rect", f"fill-{colour}", fill_opacity=0.4, **box)
                drawing.text(x + (cell - 4) / 2, y + 22, str(number), anchor="middle")
        text = "   ".join("[" + ", ".join(map(str, head)) + "]" for head in heads)
        drawing.text(130 + 6 * cell + 24, y + 22, text)
    for colour, x in ((0, 130), (1, 300)):
        drawing.add("rect", f"fill-{colour}", x=x, y=122, width=14, height=14, rx=2, fill_opacity=0.4)
        drawing.text(x + 22, 134, f"{labels['head']} {colour}")
    return str(drawing)


def order(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The three factors as rectangles to scale, multiplied in both orders; what is made between is coloured."""
    tokens = values[f"{CHAPTER}.NUM_TOKENS"] or 1
    d_in, d_out = values[f"{CHAPTER}.D_IN"] or 1, values[f"{CHAPTER}.D_OUT"] or 1
    rank = values[f"{CHAPTER}.RANK"] or 1
    scale = 130 / tokens
    tall, wide, side, thin = tokens * scale, d_out * scale, d_in * scale, max(rank * scale, 3)
    drawing = Drawing(WIDTH, 2 * (tall + 50))
    rows = (
        ((("x", side, tall, 0), ("a", thin, side, 0)), ("x a", thin, tall, 1), ("b", wide, thin, 0), False),
        ((("a", thin, side, 0), ("b", wide, thin, 0)), ("a b", wide, side, 1), ("x", side, tall, 0), True),
    )
    for line, (pair, between, last, before) in enumerate(rows):
        top = line * (tall + 50) + 22
        x = 2.0
        for shape in pair:
            x = _rectangle(drawing, x, top, shape) + 34
        x = _sign(drawing, x, top + tall / 2, "→")
        for shape in (last, between) if before else (between, last):
            x = _rectangle(drawing, x, top, shape) + 34
        x = _sign(drawing, x, top + tall / 2, "→")
        _rectangle(drawing, x, top, ("x a b", wide, tall, 0))
        name = "weights_first" if before else "inputs_first"
        drawing.text(WIDTH, top + 12, labels[name], anchor="end")
        flops = values[f"{CHAPTER}.{name}_flops"]
        drawing.text(WIDTH, top + 34, format_value(flops, "flops") if flops else "", "muted", anchor="end")
    return str(drawing)


def _rectangle(drawing: Drawing, x: float, top: float, shape: tuple[str, float, float, int]) -> float:
    """A factor with its name above; returns where it ends."""
    name, width, height, colour = shape
    drawing.text(x, top - 6, name)
    drawing.add("rect", f"fill-{colour}", x=x, y=top, width=width, height=height, fill_opacity=0.55 if colour else 0.25)
    drawing.rect(x, top, width, height, "stroke-ink")
    return x + width


def _sign(drawing: Drawing, x: float, y: float, sign: str) -> float:
    drawing.text(x, y, sign, "muted", size=18)
    return x + 44
