"""Figures and tables of the chapter on models and initialization."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 640
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LINES = ("unit", "lecun", "default")  # from the largest scale to the smallest
LIMITS = ("float32_largest", "float16_largest", "float16_smallest")
RULES = ("lecun", "glorot")
SHAPES = ("square", "up", "down")


def depth(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Standard deviation of the activations over depth, on a logarithmic axis, for three initial scales."""
    scales = values["models_and_initialization.measured_depth"] or {}
    limits = values["models_and_initialization.limits"] or {}
    layers = values["models_and_initialization.NUM_LAYERS"] or 1
    left, right, top, bottom = 56.0, WIDTH - 16.0, 34.0, 330.0
    low, high = -10.0, 40.0

    def place(layer: float, scale: float) -> tuple[float, float]:
        y = bottom - (bottom - top) * (math.log10(scale) - low) / (high - low)
        return left + (right - left) * layer / layers, y

    drawing = Drawing(WIDTH, bottom + 52)
    for power in range(int(low), int(high) + 1, 10):
        _, y = place(0, 10.0**power)
        drawing.line(left, y, right, y, "stroke-muted")
        drawing.text(left - 8, y + 5, _power_of_ten(power), "muted", "end")
    for layer in range(0, layers + 1, 8):
        x, _ = place(layer, 1)
        drawing.line(x, bottom, x, bottom + 5)
        drawing.text(x, bottom + 22, str(layer), "muted", "end" if layer == layers else "middle")
    drawing.text((left + right) / 2, bottom + 44, labels["layer"], anchor="middle")
    for name in LIMITS:
        if name in limits:
            _, y = place(0, limits[name])
            drawing.add("line", "stroke-ink", x1=left, y1=y, x2=right, y2=y, stroke_dasharray="5 4")
            if name == "float32_largest":  # below its line, away from the curve that ends there
                drawing.text(left + 8, y + 18, labels[name], "muted")
            else:
                drawing.text(right, y - 6, labels[name], "muted", "end")
    for colour, name in enumerate(LINES):
        points = [place(n, scale) for n, scale in enumerate(scales.get(name, ())) if scale]
        if points:
            drawing.path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points), f"stroke-{colour}")
            drawing.circle(*points[-1], 4, f"fill-{colour}")
        drawing.rect(left + 190 * colour, 3, 14, 14, f"fill-{colour}")
        drawing.text(left + 190 * colour + 20, 15, labels[name])
    return str(drawing)


def _power_of_ten(power: int) -> str:
    return "1" if power == 0 else "10" + str(power).translate(SUPERSCRIPTS)


def scale(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each width: the predicted scale, the measured one and their ratio."""
    rows = [[labels[column] for column in ("width", "predicted", "measured", "ratio")]]
    for d in values["models_and_initialization.WIDTHS"] or []:
        quote = "models_and_initialization."
        cells = (
            f"root_d.{d}",
            f"measured_scale.{d}:.1f",
            f"measured_scale_ratio.{d}:.3f",
        )
        rows.append([f"{d:,}", *(f"{{{{ {quote}{cell} }}}}" for cell in cells)])
    return rows


def fans(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each rule and shape: the standard deviation, and what a layer multiplies the scale by, both ways."""
    columns = ("rule", "shape", "std", "forward", "measured_forward", "backward", "measured_backward")
    rows = [[labels[column] for column in columns]]
    sizes = values["models_and_initialization.FANS"] or {}
    for rule in RULES:
        for shape in SHAPES:
            fan_in, fan_out = sizes.get(shape, ("", ""))
            quote = f"models_and_initialization.rules.{rule}.{shape}"
            cells = (f"{quote}.std:.4f", *(f"{quote}.{column}:.3f" for column in columns[3:]))
            rows.append([labels[rule], f"{fan_in} → {fan_out}", *(f"{{{{ {cell} }}}}" for cell in cells)])
    return rows
