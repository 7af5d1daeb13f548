"""Figures of the chapter on named dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from figures.svg import FADED, Drawing
from ledger.units import format_value

WIDTH = 340
CHAPTER = "named_dimensions"


def positions(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The dimensions before and after the split into heads, each over its position; −2 is coloured in both rows."""
    size = {name: values[f"{CHAPTER}.{name}"] for name in ("BATCH", "SEQ_LEN", "D_MODEL", "NUM_HEADS", "D_HEAD")}
    rows = (
        ("before", (("batch", "BATCH"), ("tokens", "SEQ_LEN"), ("features", "D_MODEL"))),
        ("after", (("batch", "BATCH"), ("tokens", "SEQ_LEN"), ("heads", "NUM_HEADS"), ("head_features", "D_HEAD"))),
    )
    edges, height, pitch = (0.0, 66.0, 138.0, 218.0, WIDTH + 8.0), 44, 138  # where boxes begin, 8 apart
    drawing = Drawing(WIDTH, 2 * pitch - 44)
    for line, (when, dimensions) in enumerate(rows):
        top = line * pitch + 24
        drawing.text(0, top - 10, labels[when], "muted")
        for (left, right), (label, name), position in zip(
            pairwise(edges), dimensions, range(-len(dimensions), 0), strict=False
        ):
            x, width, is_marked = (left + right) / 2 - 4, right - left - 8, position == -2
            css, opacity = ("fill-1", FADED) if is_marked else ("faint", 1)
            drawing.rect(left, top, width, height, css, rx=3, fill_opacity=opacity)
            drawing.text(x, top + 19, labels[label], anchor="middle")
            drawing.text(x, top + 37, str(size[name] or ""), anchor="middle")
            drawing.text(x, top + height + 20, f"−{-position}", "muted", anchor="middle")
    for start, end in ((edges[2], edges[2]), (edges[3] - 8, edges[4] - 8)):
        drawing.line(start, 24 + height + 26, end, pitch + 20, "stroke-muted")
    return str(drawing)


def split(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Two strips of the same six numbers, coloured by the head that each number falls to."""
    drawing, height = Drawing(WIDTH, 0), 34
    top = drawing.legend([(f"fill-{head}", f"{labels['head']} {head}", 0.4) for head in range(2)])
    for name, pattern in (("heads_outside", "(heads d)"), ("heads_inside", "(d heads)")):
        heads = values[f"{CHAPTER}.{name}"] or []
        cell = (WIDTH + 4) / max(1, sum(map(len, heads)))
        drawing.add("text", "ink", pattern, x=0, y=top + 22, font_size=16, font_family="monospace")
        text = "\u2003".join("[" + ", ".join(map(str, head)) + "]" for head in heads)
        drawing.text(WIDTH, top + 22, text, anchor="end")
        for colour, head in enumerate(heads):
            for number in head:
                drawing.rect(number * cell, top + 32, cell - 4, height, f"fill-{colour}", rx=2, fill_opacity=FADED)
                drawing.text(number * cell + (cell - 4) / 2, top + 54, str(number), anchor="middle")
        top += 32 + height + 10
    drawing.resize(top - 10)
    return str(drawing)


def order(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The three factors as rectangles to scale, multiplied in both orders; what is made between is coloured."""
    tokens = values[f"{CHAPTER}.NUM_TOKENS"] or 1
    d_in, d_out = values[f"{CHAPTER}.D_IN"] or 1, values[f"{CHAPTER}.D_OUT"] or 1
    rank = values[f"{CHAPTER}.RANK"] or 1
    scale = 86 / tokens
    tall, wide, side, thin = tokens * scale, d_out * scale, d_in * scale, max(rank * scale, 3)
    drawing, pitch = Drawing(WIDTH, 0), tall + 68
    rows = (
        ((("x", side, tall, 0), ("a", thin, side, 0)), ("x a", thin, tall, 1), ("b", wide, thin, 0), False),
        ((("a", thin, side, 0), ("b", wide, thin, 0)), ("a b", wide, side, 1), ("x", side, tall, 0), True),
    )
    for line, (pair, between, last, before) in enumerate(rows):
        top = line * pitch + 44
        name = "weights_first" if before else "inputs_first"
        flops = values[f"{CHAPTER}.{name}_flops"]
        drawing.text(0, top - 30, labels[name])
        drawing.text(WIDTH, top - 30, format_value(flops, "flops") if flops else "", "muted", anchor="end")
        x = 2.0
        for shape in pair:
            x = _rectangle(drawing, x, top, shape)
        x = _sign(drawing, x, top + tall / 2, "→")
        for shape in (last, between) if before else (between, last):
            x = _rectangle(drawing, x, top, shape)
        x = _sign(drawing, x, top + tall / 2, "→")
        _rectangle(drawing, x, top, ("x a b", wide, tall, 0))
    drawing.resize(2 * pitch - 22)
    return str(drawing)


def _rectangle(drawing: Drawing, x: float, top: float, shape: tuple[str, float, float, int]) -> float:
    """A factor with its name above; returns where the next begins."""
    name, width, height, colour = shape
    drawing.text(x, top - 6, name)
    drawing.add("rect", f"fill-{colour}", x=x, y=top, width=width, height=height, fill_opacity=0.55 if colour else 0.25)
    drawing.rect(x, top, width, height, "stroke-ink")
    return x + width + (20 if width > 20 else 34)  # what follows a thin one has room for its name


def _sign(drawing: Drawing, x: float, y: float, sign: str) -> float:
    drawing.text(x, y, sign, "muted", size=18)
    return x + 32
