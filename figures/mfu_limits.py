"""Figure of how far one product can go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale


def teeth(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The rate of square products by their side, as a share of the fastest: measured, and by the waves."""
    predicted = {int(side): row["filled_share"] for side, row in (values["mfu_limits.predicted_waves"] or {}).items()}
    measured = {int(side): row["measured_share"] for side, row in (values["mfu_limits.measured_teeth"] or {}).items()}
    axes = Axes(Scale(labels["side"]), Scale(labels["share"], unit="share"))
    axes.plot(sorted(predicted), [predicted[side] for side in sorted(predicted)], 2, labels["predicted"], dashed=True)
    axes.plot(sorted(measured), [measured[side] for side in sorted(measured)], 0, labels["measured"])
    return str(axes)
