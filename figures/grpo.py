"""Figure of GRPO: what a card holds while an engine samples, and while it trains with the engine awake or asleep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Names, Scale

GIB = 2**30
PHASES = ("sampling", "awake", "asleep")


def phases(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bars of the trainer's bytes and the engine's, one on the other, and a line at what the card has."""
    parts, left = values["grpo.parts_bytes"] or {}, [0.0] * len(PHASES)
    axes = Axes(Scale(labels["axis"]), Names([labels[phase] for phase in PHASES]))
    for part, colour in (("trainer", 0), ("engine", 2)):
        sizes = [parts.get(part, {}).get(phase, 0) / GIB for phase in PHASES]
        axes.barh(range(len(PHASES)), sizes, colour, labels[part], left=left)
        left = sizes
    axes.axvline((values["grpo.CARD_BYTES"] or 0) / GIB, after=labels["card"])
    return str(axes)
