"""Figure and table of the chapter on models and initialization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale

LINES = ("unit", "lecun", "default")  # from the largest scale to the smallest
LIMITS = ("float32_largest", "float16_largest", "float16_smallest")
RULES = ("lecun", "glorot")
SHAPES = ("square", "up", "down")


def depth(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Standard deviation of the activations over depth, on a logarithmic axis, for three initial scales."""
    scales = values["models_and_initialization.measured_depth"] or {}
    limits = values["models_and_initialization.limits"] or {}
    layers = values["models_and_initialization.NUM_LAYERS"] or 1
    axes = Axes(Scale(labels["layer"], ticks=range(0, layers + 1, 8)), Log(low=1e-10, high=1e40), height=296)
    for name in LIMITS:
        if name in limits:  # the largest below its line and at its start, away from the curve that ends there
            largest = name == "float32_largest"
            axes.axhline(limits[name], labels[name], at="start" if largest else "end", below=largest)
    for colour, name in enumerate(LINES):
        curve = [scale or None for scale in scales.get(name, ())]
        axes.plot(range(len(curve)), curve, colour, labels[name])
        finite = [layer for layer, scale in enumerate(curve) if scale][-1:]
        axes.scatter(finite, [curve[layer] for layer in finite], colour)
    return str(axes)


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
