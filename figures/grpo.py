"""Figure of GRPO: what a card holds while an engine samples, and while it trains with the engine awake or asleep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Names, Scale

GIB = 2**30
PHASES = ("sampling", "awake", "asleep")


def phases(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bars of what the trainer and the engine hold, one after the other, and a line at what the card has."""
    axes = Axes(Scale(labels["axis"]), Names([labels[phase] for phase in PHASES]), 190)
    if parts := values["grpo.parts_bytes"]:
        state, weights = values["grpo.training_parts_bytes"]["state"], values["grpo.engine_weights_bytes"]
        trainer, engine = ([parts[who][phase] for phase in PHASES] for who in ("trainer", "engine"))
        kept = [min(size, state) for size in trainer]
        served = [min(weights, size) if phase != "asleep" else 0 for phase, size in zip(PHASES, engine, strict=True)]
        stacked = {
            ("state", "optimizer"): kept,
            ("passes", "other"): [size - of for size, of in zip(trainer, kept, strict=True)],
            ("engine_weights", "weights"): served,
            ("engine_rest", "activations"): [size - of for size, of in zip(engine, served, strict=True)],
        }
        left = [0.0] * len(PHASES)
        for (part, colour), sizes in stacked.items():
            axes.barh(range(len(PHASES)), [size / GIB for size in sizes], colour, labels[part], left=left)
            left = [before + size / GIB for before, size in zip(left, sizes, strict=True)]
    axes.axvline((values["grpo.CARD_BYTES"] or 0) / GIB, after=labels["card"])
    return str(axes)
