"""Figures of the chapter on mixed precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import FADED, Drawing, upon

RECIPES = ("fp32", "autocast", "master", "master_fp32_gradients", "fp32_moments", "bf16")  # in the order of the page
DOTTED = ("master", "bf16")  # may lie on another curve
PARTS = {"weights": "weights", "gradients": "gradients", "master": "master_weights", "moments": "moments"}  # labels
# The master copy is the optimizer's as its moments are, and so of its colour, paler
COLOURS = {
    "weights": ("weights", 1.0),
    "gradients": ("gradients", 1.0),
    "master": ("optimizer", FADED),
    "moments": ("optimizer", 1.0),
}
WIDTH = 340


def held(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Each recipe as a bar of its bytes a parameter, part by part; autocast's copies come and go: an outline."""
    found = values["mixed_precision.part_bytes"] or {}
    copies = values["mixed_precision.cast_per_parameter"] or 0
    rows = [name for name in RECIPES if name in found]
    sums = {name: sum(found[name].values()) for name in rows}
    scale = WIDTH / max((sums[name] + copies * (name == "autocast") for name in rows), default=1)
    drawing = Drawing(WIDTH, 0)
    parts = [(*COLOURS[part], labels[word]) for part, word in PARTS.items()]
    legend = [(f"fill-{colour}", word, opacity) for colour, opacity, word in parts]
    top = drawing.legend([*legend, ("stroke-muted", labels["copies"], 1)]) + 18
    for name in rows:
        x, y = 0.0, top + 8
        drawing.text(0, top, labels[name])
        drawing.text(WIDTH, top, str(sums[name]), anchor="end")
        for part in PARTS:
            width = found[name][part] * scale
            if width:
                colour, opacity = COLOURS[part]
                drawing.rect(x, y, width - 1, 24, f"fill-{colour}", fill_opacity=opacity)
                tone = upon(colour) if opacity == 1 else "ink"
                drawing.text(x + width / 2, y + 17, str(found[name][part]), tone, anchor="middle")
            x += width
        if name == "autocast" and copies:
            drawing.rect(x, y, copies * scale - 1, 24, "stroke-muted")
            drawing.text(x + copies * scale / 2, y + 17, f"+ {copies}", anchor="middle")
        top += 56
    drawing.resize(top - 20)
    return str(drawing)


def life(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One parameter's way through a step under autocast: what is kept until the next is filled, what goes, outlined."""
    kept = (values["mixed_precision.part_bytes"] or {}).get("autocast", {"weights": 0, "gradients": 0, "moments": 0})
    cast = values["mixed_precision.cast_per_parameter"] or 0
    half = kept["moments"] // 2
    box, right, pitch = 132.0, 206.0, 92.0
    drawing = Drawing(340, 6 + 2 * pitch + 60)
    boxes = {  # column and row, colour, whether it is kept, and its bytes
        "weight": (0, 0, "weights", True, f"{kept['weights']}"),
        "copy": (1, 0, "weights", False, f"{cast}"),
        "half": (1, 1, "gradients", False, f"{cast}"),
        "gradient": (1, 2, "gradients", True, f"{kept['gradients']}"),
        "moments": (0, 2, "optimizer", True, f"{half} + {half}"),
    }
    for name, (column, row, colour, is_kept, size) in boxes.items():
        x, y = column * (right - 1) + 1, 6 + pitch * row
        drawing.rect(x, y, box, 52, f"{'fill' if is_kept else 'stroke'}-{colour}", rx=4)
        css = upon(colour) if is_kept else "ink"
        drawing.text(x + box / 2, y + 22, labels[name], css, anchor="middle")
        drawing.text(x + box / 2, y + 42, labels["bytes"].format(n=size), css, anchor="middle")
    across, down, up = (box + right) / 2, right + box / 2, box / 2
    for name, path, x, y, anchor in (
        ("cast", f"M{box + 8:g} 32H{right - 6:g}m-6 -4l6 4l-6 4", across, 22, "middle"),
        ("backward", f"M{down:g} 62V{pitch + 2:g}m-4 -6l4 6l4 -6", down - 10, 85, "end"),
        ("back", f"M{down:g} {pitch + 62:g}V{2 * pitch + 2:g}m-4 -6l4 6l4 -6", down - 10, pitch + 85, "end"),
        ("average", f"M{right - 6:g} {2 * pitch + 32:g}H{box + 8:g}m6 -4l-6 4l6 4", across, 2 * pitch + 22, "middle"),
        ("update", f"M{up:g} {2 * pitch + 2:g}V62m-4 6l4 -6l4 6", up - 8, pitch + 36, "end"),
    ):
        drawing.path(path)
        drawing.text(x, y, labels[name], "muted" if name != "update" else "ink", anchor=anchor)
    return str(drawing)


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
