"""Figures and tables of how far one product can go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale

TYPES = ("bfloat16", "float16", "float16_sums", "float8_tensorwise", "float8_rowwise", "int8")


def teeth(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The rate of square products by their side, as a share of the fastest: measured, and by the waves."""
    predicted = {int(side): row["filled_share"] for side, row in (values["mfu_limits.predicted_waves"] or {}).items()}
    measured = {int(side): row["measured_share"] for side, row in (values["mfu_limits.measured_teeth"] or {}).items()}
    axes = Axes(Scale(labels["side"]), Scale(labels["share"], unit="share"))
    axes.plot(sorted(predicted), [predicted[side] for side in sorted(predicted)], 2, labels["predicted"], dashed=True)
    axes.plot(sorted(measured), [measured[side] for side in sorted(measured)], 0, labels["measured"])
    return str(axes)


def best(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each of the best shapes: its rate for a moment, held for seconds, and the share of the peak."""
    columns = {
        "shape": "shape",
        "short": "short_flop_per_second",
        "held": "held_flop_per_second",
        "ratio": "held_to_short_ratio:.3f",
        "share": "held_peak_share",
    }
    rows = [[labels[column] for column in columns]]
    for index in range(len(values["mfu_limits.measured_best"] or [])):
        rows.append([f"{{{{ mfu_limits.measured_best.{index}.{value} }}}}" for value in columns.values()])
    return rows


def types(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each data type: its rate, its speed-up over bf16 by the datasheet and measured, and their ratio."""
    rows = [[labels[key] for key in ("type", "rate", "predicted", "measured", "ratio")]]
    for name in TYPES:
        cells = (
            f"measured_types_flop_per_second.{name}",
            f"PREDICTED_SPEED_UP_RATIO.{name}",
            f"measured_speed_up_ratio.{name}",
            f"measured_to_datasheet_ratio.{name}",
        )
        rows.append([labels[name], *(f"{{{{ mfu_limits.{cell} }}}}" for cell in cells)])
    return rows
