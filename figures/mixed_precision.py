"""Figures and tables of the chapter on mixed precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 640
RECIPES = ("fp32", "autocast", "master", "master_fp32_gradients", "fp32_moments", "bf16")  # in the order of the page
PARTS = {"weights": "weights", "gradients": "gradients", "master": "master_copy", "moments": "moments"}  # value: label
MODES = ("float32", "tf32", "bfloat16", "float16")
DOTTED = ("master_fp32_gradients", "bf16")  # may lie on another curve


def curves(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """How far each recipe is from the true weights over its steps; the distance is logarithmic."""
    found = values["mixed_precision.measured_curves"] or {}
    every = values["mixed_precision.REPORT"] or 1
    names = [name for name in RECIPES if found.get(name)]
    heights = [height for name in names for height in found[name] if height > 0] or [1]
    low, high = math.floor(math.log10(min(heights))), math.ceil(math.log10(max(heights)))
    high = max(high, low + 1)
    steps = max((len(found[name]) for name in names), default=1) * every
    left, right, top, bottom = 62, WIDTH - 12, 112, 372

    def place_x(step: float) -> float:
        return left + (right - left) * step / steps

    def place_y(height: float) -> float:
        return bottom - (bottom - top) * (math.log10(height) - low) / (high - low)

    drawing = Drawing(WIDTH, bottom + 48)
    for index, name in enumerate(names):
        x, y = 320 * (index % 2), 10 + 24 * (index // 2)
        _curve(drawing, [(x + 8, y), (x + 28, y)], index, name)
        drawing.text(x + 40, y + 5, labels[name])
    drawing.text(0, 94, labels["distance"], "muted")
    for power in range(low, high + 1):
        level = place_y(10.0**power)
        drawing.line(left, level, right, level, "stroke-muted")
        drawing.text(left - 8, level + 5, f"1e{power}" if power else "1", "muted", anchor="end")
    for quarter in range(5):
        step = steps * quarter // 4
        drawing.text(place_x(step), bottom + 20, str(step), "muted", anchor="end" if quarter == 4 else "middle")
    drawing.text(right, bottom + 42, labels["steps"], "muted", anchor="end")
    for index, name in enumerate(names):
        points = [(place_x(every * (i + 1)), place_y(h)) for i, h in enumerate(found[name]) if h > 0]
        _curve(drawing, points, index, name)
    return str(drawing)


def _curve(drawing: Drawing, points: list[tuple[float, float]], colour: int, name: str) -> None:
    """A line through points, or dots on every second of them where it may cover another line."""
    if name in DOTTED:
        for x, y in points[:: 2 if len(points) > 2 else 1]:
            drawing.circle(x, y, 4, f"fill-{colour}")
    else:
        drawing.path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points), f"stroke-{colour}")


def types(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each operation: the type that the reference promises on a GPU, and what came out."""
    rows = [[labels[key] for key in ("operation", "reference", "cuda", "cpu")]]
    for name in labels:
        if name in (values["mixed_precision.REFERENCE"] or {}):
            cells = (f"REFERENCE.{name}", f"measured_types.cuda.{name}", f"measured_types.cpu.{name}")
            rows.append([labels[name], *(f"{{{{ mixed_precision.{cell} }}}}" for cell in cells)])
    return rows


def recipes(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each recipe: its bytes a parameter, part by part and in all."""
    rows = [[labels["recipe"], *(labels[label] for label in PARTS.values()), labels["sum"]]]
    for name in RECIPES:
        parts = (f"{{{{ mixed_precision.part_bytes.{name}.{part}:plain }}}}" for part in PARTS)
        rows.append([labels[name], *parts, f"{{{{ mixed_precision.state_bytes.{name}:plain }}}}"])
    return rows


def outcomes(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each recipe: its bytes counted and held by a GPU, the peak, and how far from the truth it ended."""
    cells = (
        "state_bytes.{}:plain",
        "measured_held.{}.after:.2f",
        "measured_held_ratio.{}:.4f",
        "measured_held.{}.peak:.2f",
        "measured_losses.{}:sci",
    )
    rows = [[labels[key] for key in ("recipe", "counted", "held", "ratio", "peak", "distance")]]
    for name in RECIPES:
        rows.append([labels[name], *(f"{{{{ mixed_precision.{cell.format(name)} }}}}" for cell in cells)])
    return rows


def steps(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each mode: the step's time predicted and measured, both speeds over fp32, and memory beyond the state."""
    cells = (
        "predicted_seconds.{}",
        "measured_seconds.{}",
        "measured_over_predicted_ratio.{}",
        "predicted_speedup_ratio.{}",
        "measured_speedup_ratio.{}",
        "measured_steps.{}.peak_bytes",
        "measured_rest_bytes.{}",
    )
    keys = ("mode", "predicted", "measured", "ratio", "predicted_speedup", "measured_speedup", "peak", "rest")
    rows = [[labels[key] for key in keys]]
    for name in MODES:
        rows.append([labels[name], *(f"{{{{ mixed_precision.{cell.format(name)} }}}}" for cell in cells)])
    return rows
