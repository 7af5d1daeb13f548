"""The figure of inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log


def latency(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Tokens a second of all users over the time of a step, measured and by the bound, from one user to many."""
    language = labels["language"]
    axes = Axes(Log(labels["latency"], unit="seconds", language=language), Log(labels["throughput"]))
    measured, predicted = (values[f"decode_speed.{name}sweep_seconds"] or {} for name in ("", "predicted_"))
    users = sorted(map(int, predicted))
    for colour, (found, label) in enumerate(((predicted, labels["bound"]), (measured, labels["measured"]))):
        seconds = [found.get(str(b)) for b in users]
        rates = [taken and b / taken for b, taken in zip(users, seconds, strict=True)]
        axes.plot(seconds, rates, colour, label, dashed=not colour)
        axes.scatter(seconds, rates, colour)
        for b, taken, rate in zip(users, seconds, rates, strict=True):
            if colour and taken and rate:
                axes.annotate(str(b), taken, rate, dx=8, dy=14)
    return str(axes)
