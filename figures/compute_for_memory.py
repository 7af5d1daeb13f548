"""Figures and tables of the chapter on trading computation for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale

STRATEGIES = ("eager", "eager_attention", "none", "products", "full")
FUSED = ("none", "products", "full")
GIB = 2**30


def trade(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes kept by GPT-2 small against FLOPs relative to what the mathematics asks for."""
    kept = (values["compute_for_memory.kept_bytes"] or {}).get("gpt2", {})
    ratios = (values["compute_for_memory.hfu_to_mfu_ratio"] or {}).get("gpt2", {})
    names = [name for name in STRATEGIES if name in kept and name in ratios]
    axes = Axes(Scale(labels["axis"], low=0.95, high=1.3), Scale("GiB", low=0))
    if floor := values["compute_for_memory.logits_kept_bytes"]:
        axes.axhline(floor / GIB, labels["logits"], below=True)
    for colour, name in enumerate(names):
        axes.scatter([ratios[name]], [kept[name] / GIB], colour, size=7)
        if name != "eager_attention":  # which lies where fused attention does
            axes.annotate(labels[name], ratios[name], kept[name] / GIB, dx=14, dy=-6)
    return str(axes)


def strategies(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each strategy: bytes kept of a layer and of the model, for both models."""
    rows = [[labels[column] for column in ("strategy", "layer_gpt2", "gpt2", "layer_llama", "llama")]]
    for name in STRATEGIES:
        quotes = (
            f"{which}.{model}.{name}" for model in ("gpt2", "llama") for which in ("layer_kept_bytes", "kept_bytes")
        )
        rows.append([labels[name], *(f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)])
    return rows


def repeated(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each strategy: what is done twice, and the FLOPs over the model's own, for both models."""
    rows = [[labels[column] for column in ("strategy", "twice", "gpt2", "llama")]]
    for name in STRATEGIES:
        quotes = (f"hfu_to_mfu_ratio.{model}.{name}:.3f" for model in ("gpt2", "llama"))
        cells = (f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)
        rows.append([labels[name], labels[f"twice_{name}"], *cells])
    return rows


def times(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each strategy with fused attention: its time predicted from FLOPs, and measured with its spread."""
    rows = [[labels[column] for column in ("strategy", "predicted", "measured", "spread", "ratio")]]
    for name in FUSED:
        quotes = (
            f"measured_comparison.{name}.predicted_seconds",
            f"measured_strategies.{name}.timing.median_seconds",
            f"measured_strategies.{name}.timing.spread:percent",
            f"measured_comparison.{name}.to_predicted_ratio",
        )
        rows.append([labels[name], *(f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)])
    return rows


def utilization(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each strategy: MFU, HFU, and the peak of the GPU's allocator."""
    rows = [[labels[column] for column in ("strategy", "mfu", "hfu", "peak")]]
    for name in FUSED:
        quotes = (
            f"measured_comparison.{name}.mfu",
            f"measured_comparison.{name}.hfu_share",
            f"measured_strategies.{name}.peak_bytes",
        )
        rows.append([labels[name], *(f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)])
    return rows


def splits(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each number of pieces: bytes kept and at the peak, and the time with its spread."""
    rows = [[labels[column] for column in ("pieces", "kept", "peak", "time", "spread")]]
    for number in values["compute_for_memory.SPLITS"] or []:
        quotes = (
            f"splits.{number}.kept_bytes",
            f"splits.{number}.peak_bytes",
            f"measured_splits_ratio.{number}",
            f"measured_splits.{number}.timing.spread:percent",
        )
        rows.append([str(number), *(f"{{{{ compute_for_memory.{quote} }}}}" for quote in quotes)])
    return rows
