"""Figure of the chapter on models and initialization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale

LINES = ("unit", "lecun", "default")  # from the largest scale to the smallest
LIMITS = ("float32_largest", "float16_largest", "float16_smallest")


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
