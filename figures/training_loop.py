"""Figure of the chapter on the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale

PREDICTED_EVERY, MEASURED_EVERY = 4, 8  # steps between two points of a curve


def curves(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The loss over the steps for each learning rate: predicted as a line, the mean of many runs as dots."""
    steps = values["training_loop.STEPS"] or 1
    predicted = values["training_loop.predicted_curves"] or {}
    measured = values["training_loop.measured_curves"] or {}
    axes = Axes(Scale(labels["step"], ticks=range(0, steps + 1, 60)), Log(labels["loss"], low=0.3, high=1e5), 290)
    axes.axhline(values["training_loop.best_loss"] or 1.0, labels["best"], below=True)
    for colour, (name, rate) in enumerate(_by_size(values["training_loop.RATES"]).items()):
        line, dots = predicted.get(name, []), measured.get(name, [])
        axes.plot(range(0, PREDICTED_EVERY * len(line), PREDICTED_EVERY), line, colour, f"η = {rate:g}")
        axes.scatter(range(0, MEASURED_EVERY * len(dots), MEASURED_EVERY), dots, colour, size=3)
    return str(axes)


def _by_size(rates: Mapping[str, float] | None) -> dict[str, float]:
    return dict(sorted((rates or {}).items(), key=lambda item: item[1]))
