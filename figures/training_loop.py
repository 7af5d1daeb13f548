"""Figures and tables of the chapter on the training loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 640
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
PREDICTED_EVERY, MEASURED_EVERY = 4, 8  # steps between two points of a curve
LOW, HIGH = 0.3, 1e5  # of the axis of losses


def curves(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The loss over the steps for each learning rate: predicted as a line, the mean of many runs as dots."""
    rates = _by_size(values["training_loop.RATES"])
    steps = values["training_loop.STEPS"] or 1
    predicted = values["training_loop.predicted_curves"] or {}
    measured = values["training_loop.measured_curves"] or {}
    best = values["training_loop.best_loss"] or 1.0
    left, right, top, bottom = 44.0, WIDTH - 16.0, 40.0, 330.0

    def place(step: float, loss: float) -> tuple[float, float]:
        y = bottom - (bottom - top) * math.log(loss / LOW) / math.log(HIGH / LOW)
        return left + (right - left) * step / steps, y

    drawing = Drawing(WIDTH, bottom + 78)
    drawing.text(0, 16, labels["loss"])
    for power in range(6):
        _, y = place(0, 10.0**power)
        drawing.line(left, y, right, y, "stroke-muted")
        drawing.text(left - 8, y + 5, _power_of_ten(power), "muted", "end")
    for step in range(0, steps + 1, 60):
        x, _ = place(step, 1)
        drawing.line(x, bottom, x, bottom + 5)
        drawing.text(x, bottom + 22, str(step), "muted", "end" if step == steps else "middle")
    drawing.line(left, bottom, right, bottom)
    drawing.text((left + right) / 2, bottom + 44, labels["step"], anchor="middle")
    _, y = place(0, best)
    drawing.add("line", "stroke-ink", x1=left, y1=y, x2=right, y2=y, stroke_dasharray="5 4")
    drawing.text(right, y + 18, labels["best"], "muted", "end")
    for colour, (name, rate) in enumerate(rates.items()):
        line = [
            place(index * PREDICTED_EVERY, loss)
            for index, loss in enumerate(predicted.get(name, ()))
            if LOW < loss < HIGH
        ]
        if line:
            drawing.path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in line), f"stroke-{colour}")
        for index, loss in enumerate(measured.get(name, ())):
            if LOW < loss < HIGH:
                drawing.circle(*place(index * MEASURED_EVERY, loss), 3, f"fill-{colour}")
        x = left + 118 * colour
        drawing.rect(x, bottom + 60, 14, 14, f"fill-{colour}")
        drawing.text(x + 20, bottom + 72, f"η = {rate:g}")
    return str(drawing)


def _power_of_ten(power: int) -> str:
    return "1" if power == 0 else "10" if power == 1 else "10" + str(power).translate(SUPERSCRIPTS)


def _by_size(rates: Mapping[str, float] | None) -> dict[str, float]:
    return dict(sorted((rates or {}).items(), key=lambda item: item[1]))


def floors(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each learning rate: the loss of step 10 and the floor, predicted, measured, and their ratios."""
    columns = ("rate", "tenth", "measured_tenth", "tenth_ratio", "floor", "measured_floor", "floor_ratio")
    rows = [[labels[column] for column in columns]]
    at_rest = values["training_loop.predicted_floor"] or {}
    for name, rate in _by_size(values["training_loop.RATES"]).items():
        cells = [f"predicted_tenth.{name}:.0f", f"measured_tenth.{name}:.0f", f"measured_tenth_ratio.{name}:.2f"]
        if name in at_rest:
            cells += [f"predicted_floor.{name}:.2f", f"measured_floor.{name}:.2f", f"measured_floor_ratio.{name}:.2f"]
        quotes = [f"{{{{ training_loop.{cell} }}}}" for cell in cells]
        rows.append([f"{rate:g}", *quotes, *[""] * (len(columns) - 1 - len(quotes))])
    return rows


def files(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each model: the size of its checkpoint, predicted and measured, the ratio and the container's part."""
    rows = [[labels[column] for column in ("model", "predicted", "measured", "ratio", "container")]]
    for name in ("narrow", "wide"):
        cells = (
            f"predicted_file_bytes.{name}:full",
            f"measured_file_bytes.{name}:full",
            f"measured_file_ratio.{name}:.4f",
            f"measured_overhead_bytes.{name}:full",
        )
        rows.append([labels[name], *(f"{{{{ training_loop.{cell} }}}}" for cell in cells)])
    return rows


def parts(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each part left out of a checkpoint: whether the losses after it are the same, and how far off."""
    rows = [[labels[column] for column in ("part", "same", "difference")]]
    for name in ("none", "optimizer", "batches", "random"):
        cells = (f"parts.{name}.same", f"parts.{name}.measured_difference:.2f")
        rows.append([labels[name], *(f"{{{{ training_loop.{cell} }}}}" for cell in cells)])
    return rows
