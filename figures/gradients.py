"""Figures of the chapter on gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
CASES = ("all", "last_two", "first_two", "last", "first")


def multiply_adds(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One layer of three inputs and two outputs, three times: what a weight, an edge, does with its multiply-adds."""
    drawing = Drawing(WIDTH, 236)
    panels = (  # title, what one edge does, colour, and whether the arrow points back
        ("forward", "y₁ += x₁·w₁₁", 0, False),
        ("weight", "dw₁₁ += x₁·dy₁", 1, False),
        ("input", "dx₁ += dy₁·w₁₁", 2, True),
    )
    for index, (name, rule, colour, back) in enumerate(panels):
        left, right = 216 * index + 34, 216 * index + 158
        drawing.text(216 * index + 96, 16, labels[name], anchor="middle")
        inputs, outputs = (54.0, 108.0, 162.0), (81.0, 135.0)
        for start in inputs:
            for end in outputs:
                marked = (start, end) == (inputs[0], outputs[0])
                drawing.line(left, start, right, end, f"stroke-{colour}" if marked else "stroke-muted")
        for row, y in enumerate(inputs):
            _node(drawing, left, y, colour if row == 0 and name != "input" else None)
            drawing.text(left, y + 5, f"{'dx' if back else 'x'}{'₁₂₃'[row]}", anchor="middle")
        for row, y in enumerate(outputs):
            _node(drawing, right, y, colour if row == 0 and name != "forward" else None)
            drawing.text(right, y + 5, f"{'y' if name == 'forward' else 'dy'}{'₁₂'[row]}", anchor="middle")
        drawing.text((left + right) / 2, 60, "w₁₁", anchor="middle")
        drawing.text(216 * index + 96, 200, rule, anchor="middle")
        drawing.text(216 * index + 96, 224, labels["count"], "muted", anchor="middle")
    return str(drawing)


def _node(drawing: Drawing, x: float, y: float, colour: int | None) -> None:
    """A disc for a number; a light one of its colour if the marked edge reads it."""
    drawing.circle(x, y, 13, "paper")  # covers the ends of the edges
    if colour is None:
        drawing.circle(x, y, 13, "faint")
    else:
        drawing.add("circle", f"fill-{colour}", cx=x, cy=y, r=13, fill_opacity=0.35)


def passes(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Two layers: forward downwards, backward upwards again, a box for each matmul; the one never computed is dashed.

    As wide as a phone, so that it need not be scaled down there.
    """
    forward = values["gradients.forward_products_flops"] or {}
    backward = values["gradients.backward_products_flops"] or {}
    columns, width, pitch = (56, 170, 284), 108, 96
    drawing = Drawing(340, 326)
    drawing.text(columns[0], 16, labels["forward"], anchor="middle")
    drawing.text((columns[1] + columns[2]) / 2, 16, labels["backward"], anchor="middle")
    drawing.text(columns[1], 38, labels["input"], "muted", anchor="middle")
    drawing.text(columns[2], 38, labels["weight"], "muted", anchor="middle")

    boxes = (  # column, layer, formula, FLOPs
        (0, 0, "X₂ = X₁ W₁", forward.get("hidden")),
        (0, 1, "Y = X₂ W₂", forward.get("outputs")),
        (1, 0, "dX₁ = dX₂ W₁ᵀ", None),
        (1, 1, "dX₂ = dY W₂ᵀ", backward.get("hidden")),
        (2, 0, "dW₁ = X₁ᵀ dX₂", backward.get("w1")),
        (2, 1, "dW₂ = X₂ᵀ dY", backward.get("w2")),
    )
    for column, layer, formula, flops in boxes:
        x, y = columns[column] - width / 2, 92 + pitch * layer
        frame: dict[str, Any] = {"x": x, "y": y, "width": width, "height": 48, "rx": 4}
        skipped, colour = (column, layer) == (1, 0), (0, 2, 1)[column]
        if skipped:
            drawing.add("rect", "stroke-muted", stroke_dasharray="5 4", **frame)
        else:
            drawing.add("rect", f"fill-{colour}", fill_opacity=0.3, **frame)
            drawing.add("rect", f"stroke-{colour}", **frame)
        drawing.text(columns[column], y + 20, formula, "muted" if skipped else "ink", anchor="middle")
        under = labels["skipped"] if skipped else format_value(flops, "flops", language=labels["language"])
        drawing.text(columns[column], y + 40, under, "muted", anchor="middle")

    for level, (down, up) in enumerate((("X₁", "dX₁"), ("X₂", "dX₂"), ("Y", "dY"))):
        y = 72 + pitch * level
        drawing.text(columns[0], y + 5, down, anchor="middle")
        if level:
            drawing.text(columns[1], y + 5, up, anchor="middle")
            _arrow(drawing, [(columns[0], y - 28), (columns[0], y - 10)])  # out of a box
            if level == 2:
                _arrow(drawing, [(columns[1], y - 10), (columns[1], y - 28)])
            _arrow(drawing, [(columns[1] + 14, y), (columns[2], y), (columns[2], y - 28)])
        if level < 2:
            _arrow(drawing, [(columns[0], y + 8), (columns[0], y + 20)])  # into a box
    _arrow(drawing, [(columns[1], 92 + pitch), (columns[1], 72 + pitch + 8)])
    bottom = 72 + 2 * pitch
    end = bottom + 40
    middle = (columns[0] + columns[1]) / 2
    drawing.line(columns[0], bottom + 8, columns[0], end)
    drawing.line(columns[0], end, middle - 30, end)
    drawing.text(middle, end + 5, labels["loss"], anchor="middle")
    drawing.line(middle + 30, end, columns[1], end)
    _arrow(drawing, [(columns[1], end), (columns[1], bottom + 8)])
    return str(drawing)


def _arrow(drawing: Drawing, points: Sequence[tuple[float, float]]) -> None:
    """A line through the points with a head at its end, which lies above or below the point before it."""
    for (x1, y1), (x2, y2) in pairwise(points):
        drawing.line(x1, y1, x2, y2)
    (x, y), before = points[-1], points[-2][1]
    back = -6 if before < y else 6
    drawing.path(f"M{x - 4} {y + back} L{x} {y} L{x + 4} {y + back}")


def frozen(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """For each way to freeze four layers: which of its two matmuls each layer computes backward, and the sum."""
    freeze = values["gradients.freeze"] or {}
    cases = [name for name in CASES if name in freeze]
    left, cell, top, row = 168, 76, 30, 52
    drawing = Drawing(WIDTH, top + row * max(len(cases), 1) + 30)
    layers = max((len(freeze[name]["weight_products"]) for name in cases), default=0)
    for layer in range(layers):
        drawing.text(
            left + cell * (layer + 0.5) - 5, 18, labels["layer"].replace("#", str(layer + 1)), "muted", anchor="middle"
        )
    drawing.text(WIDTH, 18, labels["ratio"], "muted", anchor="end")
    for index, name in enumerate(cases):
        case, y = freeze[name], top + row * index
        drawing.text(0, y + 22, labels[name])
        for layer in range(layers):
            x = left + cell * layer
            for offset, kind, colour in ((0, "weight_products", 1), (34, "input_products", 2)):
                if case[kind][layer]:
                    drawing.rect(x + offset, y + 4, 30, 26, f"fill-{colour}", rx=2)
                else:
                    drawing.rect(x + offset, y + 4, 30, 26, "stroke-muted", rx=2)
        drawing.text(WIDTH, y + 22, f"{case['to_forward_ratio']:.2f}", anchor="end")
    y = top + row * len(cases) + 4
    drawing.rect(left, y, 14, 14, "fill-1")
    drawing.text(left + 22, y + 13, labels["weight_product"])
    drawing.rect(left + 230, y, 14, 14, "fill-2")
    drawing.text(left + 252, y + 13, labels["input_product"])
    return str(drawing)
