"""Figures of the chapter on gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
FORWARD = (("hidden", "hidden"), ("outputs", "outputs"))  # label, key of the value; in the order they are made
BACKWARD = (("w2_grad", "w2"), ("hidden_grad", "hidden"), ("w1_grad", "w1"))
CASES = ("all", "last_two", "first_two", "last", "first")


def multiply_adds(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One layer of three inputs and two outputs, three times: what a weight, an edge, does with its multiply-adds."""
    drawing = Drawing(WIDTH, 236)
    panels = (  # title, what one edge does, colour, and whether the arrow points back
        ("forward", "y += x·w", 0, False),
        ("weight", "∂w += x·g", 1, False),
        ("input", "∂x += g·w", 2, True),
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
            drawing.circle(left, y, 13, f"fill-{colour}" if row == 0 and name != "input" else "faint")
            drawing.text(left, y + 5, "∂x" if back else "x", anchor="middle")
        for row, y in enumerate(outputs):
            drawing.circle(right, y, 13, f"fill-{colour}" if row == 0 and name != "forward" else "faint")
            drawing.text(right, y + 5, "y" if name == "forward" else "g", anchor="middle")
        drawing.text(216 * index + 96, 200, rule, anchor="middle")
        drawing.text(216 * index + 96, 224, labels["count"], "muted", anchor="middle")
    return str(drawing)


def products(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The products of both passes as bars of their FLOPs, the one never made as an outline."""
    forward = values["gradients.forward_products_flops"] or {}
    backward = values["gradients.backward_products_flops"] or {}
    missing = values["gradients.missing_flops"] or 0
    scale = WIDTH / max(sum(backward.values()) + missing, 1)

    drawing = Drawing(WIDTH, 168)
    _row(drawing, 0, labels["forward"], [(labels[name], forward.get(key, 0)) for name, key in FORWARD], scale, 0)
    made = [(labels[name], backward.get(key, 0)) for name, key in BACKWARD]
    end = _row(drawing, 86, labels["backward"], made, scale, 1)
    box: dict[str, Any] = {"x": end + 1, "y": 86 + 26, "width": missing * scale - 2, "height": 22}
    drawing.add("rect", "stroke-ink", stroke_dasharray="5 4", **box)
    drawing.text(end + missing * scale / 2, 86 + 66, labels["missing"], "muted", anchor="middle")
    return str(drawing)


def _row(drawing: Drawing, y: float, title: str, parts: list[tuple[str, float]], scale: float, colour: int) -> float:
    """A title and below it a bar of parts, each with its name; returns where the bar ends."""
    drawing.text(0, y + 16, title)
    x = 0.0
    for name, amount in parts:
        width = amount * scale
        drawing.rect(x, y + 26, max(width - 1.5, 0), 22, f"fill-{colour}")
        drawing.text(x + width / 2, y + 66, name, "muted", anchor="middle")
        x += width
    return x


def depth(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Backward over forward against the number of layers: counted as a curve, timed as dots, and the limit."""
    depths = values["gradients.DEPTHS"] or [1, 2]
    counted = values["gradients.depth_ratio"] or {}
    timed = values["gradients.measured_deep_comparison"] or {}
    powers = [number for number in depths if math.log2(number).is_integer()]
    axes = Axes(Log(labels["layers"], ticks=powers), Scale())
    axes.axhline(2, dashed=False)
    curve = [2 ** (step / 8) for step in range(int(8 * math.log2(max(depths))) + 1)]
    axes.plot(curve, [2 - 1 / number for number in curve])
    axes.scatter(depths, [counted.get(str(number)) for number in depths], label=labels["counted"])
    if timed:
        ratios = [row["measured_time_ratio"] for row in timed.values()]
        axes.scatter([int(number) for number in timed], ratios, 1, labels["timed"], marker="s", size=5)
    return str(axes)


def frozen(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """For each way to freeze four layers: which of the two products each layer makes backward, and the sum."""
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
            for offset, kind, colour in ((0, "weight_products", 0), (34, "input_products", 1)):
                if case[kind][layer]:
                    drawing.rect(x + offset, y + 4, 30, 26, f"fill-{colour}", rx=2)
                else:
                    drawing.rect(x + offset, y + 4, 30, 26, "stroke-muted", rx=2)
        ratio = format_value(case["to_forward_ratio"], "ratio", language=labels["language"])
        drawing.text(WIDTH, y + 22, ratio, anchor="end")
    y = top + row * len(cases) + 4
    drawing.rect(left, y, 14, 14, "fill-0")
    drawing.text(left + 22, y + 13, labels["weight_product"])
    drawing.rect(left + 230, y, 14, 14, "fill-1")
    drawing.text(left + 252, y + 13, labels["input_product"])
    return str(drawing)
