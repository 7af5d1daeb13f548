"""Figures of the chapter on gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from figures.svg import FADED, Drawing
from ledger.units import format_value

WIDTH = 340
CASES = ("all", "last_two", "first_two", "last", "first")


def multiply_adds(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One layer of three inputs and two outputs, three times: what a weight, an edge, does with its multiply-adds."""
    pitch, left, right, text = 146.0, 14, 122, 148
    drawing = Drawing(WIDTH, 3 * pitch - 22)
    panels = (  # title, what one edge does, colour, and whether the arrow points back
        ("forward", "y₁ += x₁·w₁₁", 0, False),
        ("weight", "dw₁₁ += x₁·dy₁", 1, False),
        ("input", "dx₁ += dy₁·w₁₁", 2, True),
    )
    for index, (name, rule, colour, back) in enumerate(panels):
        inputs, outputs = ([pitch * index + y for y in ys] for ys in ((14, 62, 110), (38, 86)))
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
        drawing.text((left + right) / 2, inputs[0] + 2, "w₁₁", anchor="middle")
        for line, (word, css) in enumerate(((labels[name], "ink"), (rule, "ink"), (labels["count"], "muted"))):
            drawing.text(text, pitch * index + 42 + 26 * line, word, css)
    return str(drawing)


def _node(drawing: Drawing, x: float, y: float, colour: int | None) -> None:
    """A disc for a number; a light one of its colour if the marked edge reads it."""
    drawing.circle(x, y, 13, "paper")  # covers the ends of the edges
    if colour is None:
        drawing.circle(x, y, 13, "faint")
    else:
        drawing.add("circle", f"fill-{colour}", cx=x, cy=y, r=13, fill_opacity=FADED)


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
            drawing.add("rect", f"fill-{colour}", fill_opacity=FADED, **frame)
            drawing.add("rect", f"stroke-{colour}", **frame)
        drawing.text(columns[column], y + 20, formula, "muted" if skipped else "ink", anchor="middle")
        under = labels["skipped"] if skipped else format_value(flops, "flops", language=labels["language"])
        drawing.text(columns[column], y + 40, under, "muted" if skipped else "ink", anchor="middle")

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
    layers = max((len(freeze[name]["weight_products"]) for name in cases), default=1)
    kinds = {"weight": "fill-1", "input": "fill-2"}
    drawing, pitch = Drawing(WIDTH, 0), (WIDTH + 12) / layers
    top = drawing.legend([(css, labels[f"{kind}_product"], 1) for kind, css in kinds.items()]) + 18
    drawing.text(WIDTH, top, labels["ratio"], "muted", anchor="end")
    for name in cases:
        case, top = freeze[name], top + 24
        drawing.text(0, top, labels[name])
        drawing.text(WIDTH, top, f"{case['to_forward_ratio']:.2f}", anchor="end")
        for layer in range(layers):
            for turn, (kind, css) in enumerate(kinds.items()):
                x = pitch * (layer + turn / 2) - 4 * turn
                made = case[f"{kind}_products"][layer]
                drawing.rect(x, top + 8, pitch / 2 - 8, 22, css if made else "stroke-muted", rx=2)
        top += 30
    for layer in range(layers):
        x = pitch * (layer + 0.5) - 6
        drawing.text(x, top + 18, labels["layer"].replace("#", str(layer + 1)), "muted", anchor="middle")
    drawing.resize(top + 24)
    return str(drawing)
