"""Figure and table of the chapter on activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Names, Scale

PARTS = ("norms", "attention", "mlp", "scores")  # from the bottom up
GIB = 2**30


def lengths(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes that a block keeps, stacked by part, for growing sequences; dots where hooks have counted."""
    stacks = values["activations.length_parts_bytes"] or {}
    counted = values["activations.length_bytes"] or {}
    order = sorted(stacks, key=int)
    axes = Axes(Names([f"{int(length):,}" for length in order], labels["length"]), Scale("GiB"))
    bottom = [0.0] * len(order)
    for colour, part in enumerate(PARTS):
        sizes = [stacks[length][part] / GIB for length in order]
        axes.bar(range(len(order)), sizes, colour, labels[part], bottom=bottom)
        bottom = [below + size for below, size in zip(bottom, sizes, strict=True)]
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
