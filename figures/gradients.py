"""Figures and tables of the chapter on gradients."""

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


def products(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The products of both passes as bars of their FLOPs, the one never made as an outline; below, both times."""
    forward = values["gradients.forward_products_flops"] or {}
    backward = values["gradients.backward_products_flops"] or {}
    missing = values["gradients.missing_flops"] or 0
    ratio = values["gradients.measured_comparison.measured_time_ratio"]
    total = sum(forward.values())
    widest = max(sum(backward.values()) + missing, (ratio or 0) * total, 1)
    scale = WIDTH / widest

    drawing = Drawing(WIDTH, 310 if ratio else 168)
    _row(drawing, 0, labels["forward"], [(labels[name], forward.get(key, 0)) for name, key in FORWARD], scale, 0)
    made = [(labels[name], backward.get(key, 0)) for name, key in BACKWARD]
    end = _row(drawing, 86, labels["backward"], made, scale, 1)
    box: dict[str, Any] = {"x": end + 1, "y": 86 + 26, "width": missing * scale - 2, "height": 22}
    drawing.add("rect", "stroke-ink", stroke_dasharray="5 4", **box)
    drawing.text(end + missing * scale / 2, 86 + 66, labels["missing"], "muted", anchor="middle")
    if ratio:  # forward's bar is as long as its FLOPs are above: what backward's adds to that is the measurement
        _row(drawing, 184, labels["forward_time"], [("", total)], scale, 2)
        _row(drawing, 246, labels["backward_time"], [("", ratio * total)], scale, 3)
        x = ratio * total * scale
        text = format_value(ratio, "ratio", language=labels["language"])
        drawing.text(x - 8 if x > WIDTH - 70 else x + 8, 246 + 43, text, anchor="end" if x > WIDTH - 70 else "start")
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


def times(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each model: the counted ratio, forward timed, backward predicted from both and measured, and the ratio."""
    columns = ("model", "counted", "forward", "predicted", "backward", "ratio")
    rows = [[labels[column] for column in columns]]
    models = [(labels["two_layers"], "two_layers", "comparison", "backward_to_forward_ratio")]
    models += [
        (f"{labels['deep']} {number}", f"deep.{number}", f"deep_comparison.{number}", f"depth_ratio.{number}")
        for number in values["gradients.MEASURED_DEPTHS"] or []
    ]
    for title, timing, comparison, counted in models:
        cells = (
            counted,
            f"measured_{timing}.forward.median_seconds",
            f"measured_{comparison}.predicted_backward_seconds",
            f"measured_{timing}.backward.median_seconds",
            f"measured_{comparison}.measured_to_predicted_ratio",
        )
        rows.append([title, *(f"{{{{ gradients.{cell} }}}}" for cell in cells)])
    return rows


def freezing(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each way to freeze: FLOPs of the backward pass, their ratio to forward, and the bytes of the gradients."""
    rows = [[labels[column] for column in ("trained", "flops", "ratio", "bytes")]]
    for name in CASES:
        quote = f"gradients.freeze.{name}"
        cells = (f"{quote}.backward_flops:full", f"{quote}.to_forward_ratio", f"{quote}.gradient_bytes")
        rows.append([labels[name], *(f"{{{{ {cell} }}}}" for cell in cells)])
    return rows
