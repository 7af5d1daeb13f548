"""Figures of the chapter on optimizers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from figures.svg import Drawing
from ledger.units import format_value

WIDTH, PATHS = 340, 400
PANELS = ("sgd", "momentum", "adagrad", "adam")
PARTS = {"parameter": "fill-weights", "gradient": "fill-gradients", "state": "fill-optimizer"}
HELD = ("sgd", "momentum", "adagrad", "rmsprop", "adam", "amsgrad", "rmsprop_full", "adamw_bf16")


def paths(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The way of each optimizer over the valley's contours, one panel each, the minimum a cross at half the height."""
    found = values["optimizers.paths"] or {}
    minimum = values["optimizers.MINIMUM"] or [4, 1.5]
    curvature = values["optimizers.CURVATURE"] or [1, 50]
    wide, high, unit = PATHS / 2, 150.0, 34.0
    drawing = Drawing(PATHS, 2 * high)
    for index, name in enumerate(PANELS):
        left, top = wide * (index % 2) + 10, high * (index // 2)
        drawing.text(left - 10, top + 16, labels[name])

        def place(x: float, y: float, left: float = left, middle: float = top + 84) -> tuple[float, float]:
            return left + x * unit, middle - (y - minimum[1]) * unit

        cx, cy = place(*minimum)
        for radius in (0.5, 1.0, 1.5):
            rx, ry = radius * unit, radius * unit * math.sqrt(curvature[0] / curvature[1])
            drawing.add("ellipse", "stroke-muted", cx=cx, cy=cy, rx=rx, ry=ry)
        points = [place(x, y) for x, y in found.get(name, [])]
        if points:
            drawing.path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points), f"stroke-{index}")
            for x, y in points:
                drawing.circle(x, y, 2, f"fill-{index}")
        drawing.line(cx - 5, cy - 5, cx + 5, cy + 5)
        drawing.line(cx - 5, cy + 5, cx + 5, cy - 5)
    return str(drawing)


def step_lengths(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Length of the steps under a constant gradient, against the step's number; both axes logarithmic."""
    times = values["optimizers.TIMES"] or [1, 1000]
    lengths = values["optimizers.lengths"] or {}
    axes = Axes(Log(labels["step"]), Log(labels["length"], low=0.03, high=14))
    names = {  # where each name stands, and on which side of that place
        "Adam": (8, 1, 0, 20, "start"),
        "Momentum": (max(times), 10, 0, -8, "end"),
        "AdaGrad": (14, 0.27, 10, -4, "start"),
        "RMSProp": (1.25, 10, 0, -8, "start"),
        "UncorrectedAdam": (70, 3.84, 10, -4, "start"),
    }
    for colour, (name, (x, y, dx, dy, anchor)) in enumerate(names.items()):
        series = lengths.get(name) or []
        if series:
            axes.plot(times, series, colour)
            axes.scatter(times, series, colour, size=3)
            axes.annotate(labels[name.lower()], x, y, dx=dx, dy=dy, anchor=anchor)
    return str(axes)


def held(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes per parameter of each optimizer: parameter, gradient and state, stacked."""
    state = values["optimizer_costs.state"] or {}
    names = [name for name in HELD if name in state]
    totals = {name: 2 * state[name]["element_bytes"] + state[name]["per_parameter_bytes"] for name in names}
    scale = WIDTH / max(totals.values(), default=1)
    drawing = Drawing(WIDTH, 0)
    top = drawing.legend([(css, labels[part], 1) for part, css in PARTS.items()]) + 16
    for name in names:
        drawing.text(0, top, labels[name])
        drawing.text(WIDTH, top, format_value(totals[name], "bytes"), anchor="end")
        element, x = state[name]["element_bytes"], 0.0
        for css, amount in zip(PARTS.values(), (element, element, state[name]["per_parameter_bytes"]), strict=True):
            if amount:
                drawing.rect(x, top + 7, amount * scale - 1.5, 18, css)
            x += amount * scale
        top += 48
    drawing.resize(top - 18)
    return str(drawing)
