"""Figure and table of the chapter on activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import DASHES, Axes, Names, Scale
from figures.svg import FADED, HALF, Drawing
from ledger.units import format_value

REST = ("norms", "attention", "mlp")  # what grows with the length; the scores grow with its square
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
    groups = values["activations.PARTS"] or {}
    kept_parts = {part for parts in groups.values() for part in parts}
    drawing = Drawing(340, 62 + pitch * len(DRAWN) + 20)
    drawing.text(338, 16, labels["kept"], "muted", anchor="end")
    for name, x in columns.items():
        drawing.text(x, 40, labels[name], anchor="end")
    split = 0.0  # the height at which the residual path left
    for row, (word, shape, part) in enumerate(DRAWN):
        y = 62 + pitch * row
        if shape:
            box: dict[str, Any] = {"x": left, "y": y - 12, "width": right - left, "height": 24, "rx": 4}
            if part in kept_parts:
                drawing.add("rect", "fill-activations", fill_opacity=FADED, **box)
            drawing.add("rect", "stroke-muted", **box)
            drawing.text(left + 8, y + 5, labels[word], "ink" if part else "muted")
            drawing.text(right - 6, y + 5, shape, "ink" if part else "muted", anchor="end")
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
    """Bytes that a block keeps for growing sequences, the scores upon the rest; dots where hooks have counted."""
    stacks = values["activations.length_parts_bytes"] or {}
    counted = values["activations.length_bytes"] or {}
    order = sorted(stacks, key=int)
    axes = Axes(Names([f"{int(length):,}" for length in order], labels["length"]), Scale("GiB"))
    rest = [sum(stacks[length][part] for part in REST) / GIB for length in order]
    axes.bar(range(len(order)), rest, "activations", labels["rest"], alpha=HALF)
    scores = [stacks[length]["scores"] / GIB for length in order]
    axes.bar(range(len(order)), scores, "activations", labels["scores"], bottom=rest)
    if counted:
        dots = [counted[length] / GIB if length in counted else None for length in order]
        axes.scatter(range(len(order)), dots, "ink", labels["hooks"])
    return str(axes)


def logits(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What a token has of numbers before the head and behind it, to scale, and the three tensors of the loss."""
    sizes = (values["gpt2_parameters.letters"] or {}).get("gpt2", {"d": 1, "V": 1})
    parts = (values["activations.model_parts_bytes"] or {}).get("gpt2", {"head_input": 0, "log_probabilities": 0})
    wide, high, left = 336.0, 58.0, 2.0
    drawing = Drawing(340, 330)

    def said(part: str) -> str:
        return format_value(parts[part], "bytes", language=labels["language"])

    narrow = wide * sizes["d"] / sizes["V"]
    drawing.rect(left, 4, narrow, high, "fill-activations")
    drawing.text(left + narrow + 10, 24, f"{labels['before']}\u2003{said('head_input')}")
    drawing.text(left + narrow + 10, 46, f"bT × d = bT × {sizes['d']:,}", "muted")
    drawing.path(f"M{left + narrow / 2:g} {4 + high:g}v24m-4 -6l4 6l4 -6")
    drawing.text(left + narrow + 10, high + 26, labels["head"], "muted")
    for row, name in enumerate(("kept", "gradient", "again")):
        top = 98 + row * (high + 18)
        drawing.rect(left, top, wide, high, "fill-logits")
        drawing.text(left + 10, top + 25, f"{labels[name]}\u2003{said('log_probabilities')}", "paper")
        drawing.text(left + 10, top + 45, f"bT × V = bT × {sizes['V']:,}, fp32", "paper")
        if row:
            drawing.path(f"M170 {top - 17:g}v14m-4 -5l4 5l4 -5")
    return str(drawing)


def tiles(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Scores of one head, of which fused attention has one tile at a time: its queries at the side, keys and values
    above; what lies above the diagonal is left out."""
    sizes = (values["gpt2_parameters.letters"] or {}).get("gpt2", {"T": 8, "Q": 1})
    count, now = 8, (5, 3)  # tiles along a side; row and column of the one that is in the kernel
    cell, left, top = 24.0, 64.0, 70.0
    side, strip = count * cell, max(count * cell * sizes["Q"] / sizes["T"], 2)
    drawing = Drawing(340, 420)
    row, column = now
    for name, y in (("K", top - 2 * strip - 22), ("V", top - strip - 14)):
        drawing.rect(left, y, side, strip, "faint")
        drawing.rect(left + column * cell, y, cell, strip, "fill-activations")
        drawing.text(left - 6, y + strip / 2 + 5, name, anchor="end")
    for name, x, css in (("Q", left - strip - 14, "fill-activations"), ("O", left + side + 14, "fill-activations")):
        drawing.rect(x, top, strip, side, "faint")
        if name == "O":  # rows that are finished
            drawing.rect(x, top, strip, row * cell, css, fill_opacity=HALF)
        drawing.rect(x, top + row * cell, strip, cell, css)
        drawing.text(x + strip / 2, top + side + 16, name, anchor="middle")
    drawing.rect(left + side + 5, top, 4, (row + 1) * cell, "muted")
    lower = [(left + x * cell, top + y * cell, cell - 2, cell - 2) for y in range(count) for x in range(y + 1)]
    done = [
        box
        for box in lower
        if box[1] < top + row * cell or (box[1] < top + row * cell + 1 and box[0] < left + column * cell)
    ]
    drawing.rects(done, "stroke-muted")  # computed, and gone
    drawing.add("rect", "stroke-muted", x=left, y=top, width=side, height=side, stroke_dasharray=DASHES)
    drawing.rect(left + column * cell, top + row * cell, cell - 2, cell - 2, "ink")
    y, end = top + (row + 0.5) * cell - 1, left + (row + 1) * cell - 4  # the diagonal, where the row's last tile ends
    drawing.path(f"M{left + (column + 1) * cell + 2:g} {y:g}H{end:g}m-6 -4l6 4l-6 4")
    drawing.text(left + side - 4, top + 20, labels["later"], "muted", anchor="end")
    drawing.text(left + side / 2, top + side + 38, labels["square"].format(n=f"{sizes['T']:,}"), "muted", "middle")
    box = top + side + 54
    drawing.rect(2, box, 336, 94, "stroke-muted", rx=4)
    drawing.text(12, box + 20, labels["chip"])
    for line, (css, name) in enumerate((("ink", "tile"), ("fill-activations", "strips"), ("muted", "running"))):
        drawing.rect(12, box + 31 + 21 * line, 12, 12, css)
        drawing.text(32, box + 42 + 21 * line, labels[name])
    return str(drawing)


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
