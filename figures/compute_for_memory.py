"""Figures and tables of the chapter on trading computation for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale

STRATEGIES = ("none", "attention", "products", "full")
GIB = 2**30


def trade(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes kept against FLOPs, both relative to what the mathematics asks for; squares where a GPU gave times."""
    counted = values["compute_for_memory.strategies"] or {}
    ratios = values["compute_for_memory.hfu_to_mfu_ratio"] or {}
    floor = values["compute_for_memory.logits_bytes"] or 0
    compared = values["compute_for_memory.measured_comparison"] or {}
    timed: dict[str, float] = {}  # a toy on a CPU says nothing of GPT-2
    if values["compute_for_memory.measured_dtype"] == "bfloat16":
        timed = {name: compared[name]["to_none_ratio"] for name in STRATEGIES if name in compared}
    names = [name for name in STRATEGIES if name in counted]
    widest = max([1.2, *ratios.values(), *timed.values()])
    axes = Axes(Scale(labels["axis"], high=widest + 0.1), Scale("GiB", low=0))
    if floor:
        axes.axhline(floor / GIB, labels["logits"], below=True)
    for colour, name in enumerate(names):
        kept = counted[name]["kept_bytes"] / GIB
        axes.scatter([ratios[name]], [kept], colour, size=7)
        axes.annotate(labels[name], ratios[name], kept, dx=14, dy=-6)
        if name in timed:
            axes.scatter([timed[name]], [kept], colour, marker="s", size=5)
    if timed:
        axes.scatter([], [], "ink", labels["counted"])
        axes.scatter([], [], "ink", labels["timed"], marker="s")
    return str(axes)


def strategies(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each strategy: what it keeps of a block, bytes kept and at the peak, FLOPs, and their ratio."""
    rows = [[labels[column] for column in ("strategy", "block", "kept", "share", "peak", "ratio")]]
    blocks = {"none": "32sbh + 2as²b", "attention": "32sbh", "products": "20sbh", "full": "2sbh"}
    for name in STRATEGIES:
        quotes = (
            f"strategies.{name}.kept_bytes",
            f"kept_share.{name}",
            f"strategies.{name}.predicted_peak_bytes",
            f"hfu_to_mfu_ratio.{name}:.4f",
        )
        cells = (f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)
        rows.append([labels[name], blocks[name], *cells])
    return rows


def times(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each strategy: its time predicted from FLOPs and measured, MFU, HFU, and the peak."""
    columns = ("strategy", "predicted", "measured", "ratio", "mfu", "hfu", "peak", "peak_ratio")
    rows = [[labels[column] for column in columns]]
    for name in STRATEGIES:
        quotes = (
            f"measured_comparison.{name}.predicted_seconds",
            f"measured_strategies.{name}.timing.median_seconds",
            f"measured_comparison.{name}.to_predicted_ratio",
            f"measured_comparison.{name}.mfu",
            f"measured_comparison.{name}.hfu_share",
            f"measured_strategies.{name}.peak_bytes",
            f"measured_comparison.{name}.peak_ratio",
        )
        rows.append([labels[name], *(f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)])
    return rows


def splits(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each number of pieces: bytes kept and at the peak, as traced and measured, and the time."""
    columns = ("pieces", "kept", "peak", "measured_peak", "peak_ratio", "time")
    rows = [[labels[column] for column in columns]]
    for number in values["compute_for_memory.SPLITS"] or []:
        quotes = (
            f"splits.{number}.kept_bytes",
            f"splits.{number}.predicted_peak_bytes",
            f"measured_splits.{number}.peak_bytes",
            f"measured_splits_peak_ratio.{number}",
            f"measured_splits_ratio.{number}",
        )
        rows.append([str(number), *(f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)])
    return rows
