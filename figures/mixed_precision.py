"""Figures and tables of the chapter on mixed precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale

RECIPES = ("fp32", "autocast", "master", "master_fp32_gradients", "fp32_moments", "bf16")  # in the order of the page
PARTS = {"weights": "weights", "gradients": "gradients", "master": "master_copy", "moments": "moments"}  # value: label
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


def types(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each operation: the type that the reference promises on a GPU, and what came out."""
    rows = [[labels[key] for key in ("operation", "reference", "cuda", "cpu")]]
    for name in labels:
        if name in (values["mixed_precision.REFERENCE"] or {}):
            cells = (f"REFERENCE.{name}", f"measured_cuda_types.{name}", f"measured_cpu_types.{name}")
            rows.append([labels[name], *(f"{{{{ mixed_precision.{cell} }}}}" for cell in cells)])
    return rows


def recipes(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each recipe: its bytes a parameter, part by part and in all."""
    rows = [[labels["recipe"], *(labels[label] for label in PARTS.values()), labels["sum"]]]
    for name in RECIPES:
        parts = (f"{{{{ mixed_precision.part_bytes.{name}.{part}:plain }}}}" for part in PARTS)
        rows.append([labels[name], *parts, f"{{{{ mixed_precision.state_bytes.{name}:plain }}}}"])
    return rows
