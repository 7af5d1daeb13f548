"""Figure of the chapter on trading computation for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale

STRATEGIES = ("eager", "eager_attention", "none", "products", "full")
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
