"""Figure of the chapter on tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale

TRAINED = ("en", "zh", "both")
LANGUAGES = ("en", "zh")


def rates(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes a token over the vocabulary: English solid, Chinese dashed, a colour for each training text."""
    found = values["tokens.bytes_a_token"] or {}
    axes = Axes(
        Log(labels["size"], ticks={256 * 2**power: f"{256 * 2**power:,}" for power in range(6)}),
        Scale(labels["rate"], low=0),
    )
    for colour, name in enumerate(TRAINED):
        for language in LANGUAGES:
            points = sorted((int(size), rate[language]) for size, rate in found.get(name, {}).items())
            label = labels[f"{name}_{language}"]
            axes.plot([x for x, _ in points], [y for _, y in points], colour, label, dashed=language == "zh")
    return str(axes)
