"""Figure and table of the chapter on activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Names, Scale
from figures.svg import Drawing

PARTS = ("norms", "attention", "mlp", "scores")  # from the bottom up
GIB = 2**30

DRAWN = (  # from top to bottom: a tensor and its shape, or a step without one; the part of the layer that it keeps
    ("input", "T × d", "norms"),
    ("norm", "", ""),
    ("normed", "T × d", "qkv_input"),
    ("to_qkv", "", ""),
    ("qkv", "T × (H+2G)Q", "qkv"),
    ("fused", "", "scores"),
    ("heads", "T × HQ", "out_input"),
    ("to_out", "", ""),
    ("attended", "T × d", ""),
    ("add", "", ""),
    ("between", "T × d", "norms"),
    ("norm", "", ""),
    ("normed", "T × d", "mlp_input"),
    ("to_mlp", "", ""),
    ("inside", "T × f", "mlp"),
    ("activate", "", ""),
    ("activated", "T × f", "mlp"),
    ("from_mlp", "", ""),
    ("changed", "T × d", ""),
    ("add", "", ""),
    ("output", "T × d", "next"),
)
TWICE = ("norms", "mlp")  # before each half, as much in both norms; as much before GELU or SwiGLU as after


def layer(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One layer from its input to its output; what is kept is coloured, with its bytes a token in both models.

    As wide as a phone, so that it need not be scaled down there.
    """
    left, spine, right, columns, pitch = 24, 44, 194, {"gpt2": 246, "llama": 338}, 27
    kept = values["activations.token_bytes"] or {}
    totals = values["activations.token_total_bytes"] or {}
    groups = values["activations.PARTS"] or {}  # in the colours of the next figure
    colours = {part: PARTS.index(name) for name, parts in groups.items() for part in parts}
    drawing = Drawing(340, 62 + pitch * len(DRAWN) + 20)
    drawing.text(338, 16, labels["kept"], "muted", anchor="end")
    for name, x in columns.items():
        drawing.text(x, 40, labels[name], anchor="end")
    split = 0.0  # the height at which the residual path left
    for row, (word, shape, part) in enumerate(DRAWN):
        y = 62 + pitch * row
        if shape:
            box: dict[str, Any] = {"x": left, "y": y - 12, "width": right - left, "height": 24, "rx": 4}
            if part in colours:
                drawing.add("rect", f"fill-{colours[part]}", fill_opacity=0.3, **box)
            drawing.add("rect", "stroke-muted", **box)
            drawing.text(left + 8, y + 5, labels[word], "ink" if part else "muted")
            drawing.text(right - 6, y + 5, shape, "muted", anchor="end")
        else:
            drawing.line(spine, y - 15, spine, y + 15)
            drawing.text(spine + 16, y + 5, labels[word])
        if word in ("input", "between"):
            split = y
        if word == "add":
            drawing.path(f"M{left} {split} H8 V{y} H{spine}", "stroke-ink")
            drawing.circle(spine, y, 4, "ink")
        for name, x in columns.items():
            size = kept.get(name, {}).get(part, 0) // (2 if part in TWICE else 1)
            if (shape or part) and part != "next" and kept:
                drawing.text(x, y + 5, f"{size:,}", "ink" if part else "muted", anchor="end")
    y = 62 + pitch * len(DRAWN)
    drawing.line(left, y - 8, 340, y - 8)
    drawing.text(left + 8, y + 13, labels["together"])
    for name, x in columns.items():
        drawing.text(x, y + 13, f"{totals[name]:,}" if name in totals else "", anchor="end")
    return str(drawing)


def lengths(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes that a block keeps, stacked by part, for growing sequences; dots where hooks have counted."""
    stacks = values["activations.length_parts_bytes"] or {}
    counted = values["activations.length_bytes"] or {}
    order = sorted(stacks, key=int)
    axes = Axes(Names([f"{int(length):,}" for length in order], labels["length"]), Scale("GiB"))
    parts = {labels[part]: [stacks[length][part] / GIB for length in order] for part in PARTS}
    axes.stack(range(len(order)), parts)
    if counted:
        dots = [counted[length] / GIB if length in counted else None for length in order]
        axes.scatter(range(len(order)), dots, "ink", labels["hooks"])
    return str(axes)


def operations(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """What each operation keeps, and why that suffices for its gradient."""
    rows = [[labels[column] for column in ("operation", "keeps", "why")]]
    table = values["activations.operations"] or {}
    reasons = {
        "x + x": "none",
        "2 * x": "number",
        "x * x": "factor",
        "x @ w": "matmul",
        "relu": "relu",
        "gelu": "gelu",
        "softmax": "softmax",
        "layer_norm": "norm",
        "dropout": "mask",
    }
    for name in (name for name in reasons if name in table):
        keeps = list(dict.fromkeys(table[name]))
        words = labels["separator"].join(f"`{word}`" if word in ("x", "w") else labels[word] for word in keeps)
        rows.append([f"`{name}`", words or labels["nothing"], labels[f"why_{reasons[name]}"]])
    return rows
