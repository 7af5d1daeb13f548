"""Figure of the chapter on mixed precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale

RECIPES = ("fp32", "autocast", "master", "master_fp32_gradients", "fp32_moments", "bf16")  # in the order of the page
DOTTED = ("master", "bf16")  # may lie on another curve


def curves(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """How far each recipe is from the true weights over its steps; the distance is logarithmic."""
    found = values["mixed_precision.measured_curves"] or {}
    every = values["mixed_precision.REPORT"] or 1
    axes = Axes(Scale(labels["steps"], low=0), Log(labels["distance"]))
    for colour, name in enumerate(name for name in RECIPES if found.get(name) and name in labels):
        distances = [distance or None for distance in found[name]]  # 0 has no place on a logarithmic axis
        steps = [every * (index + 1) for index in range(len(distances))]
        if name in DOTTED:
            axes.scatter(steps[::2], distances[::2], colour, labels[name])
        else:
            axes.plot(steps, distances, colour, labels[name])
    return str(axes)
