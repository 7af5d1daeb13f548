"""Figures and tables of the chapter on activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Names, Scale

PARTS = ("norms", "attention", "mlp", "scores")  # from the bottom up
MIB = 2**20
TENSORS = {  # in the order in which a block makes them, with their symbols
    "norms": (("inputs", "4sbh"), ("statistics", "16sb")),
    "attention": (("input", "2sbh"), ("qkv", "6sbh")),
    "scores": (("softmax", "2as²b"), ("mask", "as²b"), ("dropped", "2as²b")),
    "output": (("merged", "2sbh"), ("mask", "sbh")),
    "mlp": (("input", "2sbh"), ("before_gelu", "8sbh"), ("after_gelu", "8sbh"), ("mask", "sbh")),
}


def lengths(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes that a block keeps, stacked by part, for growing sequences; dots where hooks have counted."""
    stacks = values["activations.length_parts_bytes"] or {}
    counted = values["activations.length_bytes"] or {}
    order = sorted(stacks, key=int)
    axes = Axes(Names([f"{int(length):,}" for length in order], labels["length"]), Scale("MiB"))
    bottom = [0.0] * len(order)
    for colour, part in enumerate(PARTS):
        sizes = [stacks[length][part] / MIB for length in order]
        axes.bar(range(len(order)), sizes, colour, labels[part], bottom=bottom)
        bottom = [below + size for below, size in zip(bottom, sizes, strict=True)]
    if counted:
        dots = [counted[length] / MIB if length in counted else None for length in order]
        axes.scatter(range(len(order)), dots, "ink", labels["hooks"])
    return str(axes)


def kept(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Each tensor that a block keeps, with its symbols and its bytes."""
    rows = [[labels[column] for column in ("part", "tensor", "formula", "bytes")]]
    for part, tensors in TENSORS.items():
        for index, (name, formula) in enumerate(tensors):
            key = "attention" if part == "output" else part
            quote = f"activations.block_by_hand_bytes.{key}.{name}:full"
            title = labels[part] if not index else ""
            rows.append([title, labels[f"{part}_{name}"], formula, f"{{{{ {quote} }}}}"])
    return rows


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
        words = ", ".join(f"`{word}`" if word in ("x", "w") else labels[word] for word in keeps)
        rows.append([f"`{name}`", words or labels["nothing"], labels[f"why_{reasons[name]}"]])
    return rows


def claim(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """The formula's bytes over the weights', for batches and sequence lengths."""
    lengths = values["activations.MODEL_LENGTHS"] or []
    rows = [["", *(f"s = {length:,}" for length in lengths)]]
    for batch in values["activations.BATCHES"] or []:
        quotes = (f"activations.to_weights.{batch}.s{length}_ratio" for length in lengths)
        rows.append([f"b = {batch}", *(f"{{{{ {quote} }}}}" for quote in quotes)])
    return rows


def steps(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """A training step: its parts, their sum, the peak by trace and as measured, in both data types."""
    kinds = ("bfloat16", "float32")
    rows = [["", *(f"`{kind}`" for kind in kinds)]]
    for name in ("parameters", "optimizer", "gradients", "activations", "sum", "peak"):
        quotes = (f"activations.predicted_steps.{kind}.{name}_bytes" for kind in kinds)
        rows.append([labels[name], *(f"{{{{ {quote} }}}}" for quote in quotes)])
    for name, path in (
        ("measured_kept", "measured_steps.#.kept_bytes"),
        ("kept_ratio", "measured_ratios.#.kept_ratio"),
        ("measured_peak", "measured_steps.#.peak_bytes"),
        ("sum_ratio", "measured_ratios.#.sum_ratio"),
        ("peak_ratio", "measured_ratios.#.peak_ratio"),
    ):
        quotes = (f"activations.{path.replace('#', kind)}" for kind in kinds)
        rows.append([labels[name], *(f"{{{{ {quote} }}}}" for quote in quotes)])
    return rows
