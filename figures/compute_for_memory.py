"""Figures and tables of the chapter on trading computation for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 640
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
    left, top, bottom, right = 48.0, 44.0, 300.0, WIDTH - 20.0
    highest = max((counted[name]["kept_bytes"] for name in names), default=GIB) * 1.1
    widest = max([1.2, *ratios.values(), *timed.values()]) + 0.1
    start = min([1.0, *timed.values()]) - 0.02

    def place(ratio: float, size: float) -> tuple[float, float]:
        x = left + (right - left) * (ratio - start) / (widest - start)
        return x, bottom - (bottom - top) * size / highest

    drawing = Drawing(WIDTH, bottom + 52)
    for size in range(int(highest / GIB) + 1):
        _, y = place(1, size * GIB)
        drawing.line(left, y, right, y, "stroke-ink" if not size else "stroke-muted")
        drawing.text(left - 8, y + 5, str(size), "muted", "end")
    drawing.text(left - 8, top - 12, "GiB", "muted", "end")
    tick = 0.1 if widest < 2 else 0.5
    for step in range(int((widest - 1) / tick) + 1):
        x, _ = place(1 + step * tick, 0)
        drawing.line(x, bottom, x, bottom + 5)
        drawing.text(x, bottom + 22, f"{1 + step * tick:.1f}", "muted", "middle")
    drawing.text((left + right) / 2, bottom + 46, labels["axis"], anchor="middle")
    if floor:
        _, y = place(1, floor)
        drawing.add("line", "stroke-ink", x1=left, y1=y, x2=right, y2=y, stroke_dasharray="5 4")
        drawing.text(right, y + 18, labels["logits"], "muted", "end")
    for colour, name in enumerate(names):
        x, y = place(ratios[name], counted[name]["kept_bytes"])
        drawing.circle(x, y, 7, f"fill-{colour}")
        drawing.text(x + 14, y - 6, labels[name])
        if name in timed:
            x, y = place(timed[name], counted[name]["kept_bytes"])
            drawing.rect(x - 5, y - 5, 10, 10, f"fill-{colour}")
    if timed:
        drawing.circle(left + 8, 12, 5, "ink")
        drawing.text(left + 20, 17, labels["counted"])
        drawing.rect(left + 190, 7, 10, 10, "ink")
        drawing.text(left + 208, 17, labels["timed"])
    return str(drawing)


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
