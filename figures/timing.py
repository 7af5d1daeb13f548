"""Figures and tables of the chapter on timing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
DTYPES = ("fp32", "bf16")
KINDS = ("zeros", "ones", "lecture", "random")  # in the order of the page


def calls(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Each call of both data types as a bar of its time; a line where the mean of the five timed calls lies."""
    recorded = values["timing.measured_calls_seconds"] or {}
    summaries = values["timing.measured_cold"] or {}
    left, row, head = 88, 24, 42
    panels = [dtype for dtype in DTYPES if recorded.get(dtype)]
    heights = [head + row * len(recorded[dtype]) + 14 for dtype in panels]
    drawing = Drawing(WIDTH, 26 + sum(heights))
    drawing.rect(0, 3, 14, 14, "fill-1")
    drawing.text(20, 15, labels["first"])
    drawing.rect(200, 3, 14, 14, "fill-0")
    drawing.text(220, 15, labels["later"])
    drawing.line(407, 2, 407, 18, "stroke-ink")
    drawing.text(416, 15, labels["mean"])

    top = 26.0
    for dtype, height in zip(panels, heights, strict=True):
        seconds = recorded[dtype]
        scale = (WIDTH - left - 86) / max(seconds)
        drawing.text(0, top + 30, labels[dtype])
        for call, each in enumerate(seconds):
            y = top + head + row * call
            drawing.text(left - 10, y + 15, labels["call"].format(n=call + 1), "muted", anchor="end")
            drawing.rect(left, y + 2, each * scale, row - 6, f"fill-{int(call == 0)}")
            drawing.text(WIDTH, y + 15, format_value(each, "seconds"), anchor="end")
        mean = left + summaries[dtype]["mean_seconds"] * scale
        timed = int(dtype == "fp32")  # the lecture's timer began with the second call in fp32, with the first in bf16
        drawing.line(mean, top + head + row * timed - 2, mean, top + head + row * (timed + 5))
        top += height
    return str(drawing)


def running(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The median and the mean of the first n trials, over n, in final medians; both axes logarithmic."""
    seconds = values["timing.measured_trials_seconds"] or [1.0]
    final = statistics.median(seconds)
    points = sorted({round(len(seconds) ** (step / 120)) for step in range(121)})
    medians = [statistics.median(seconds[:n]) / final for n in points]
    means = [statistics.mean(seconds[:n]) / final for n in points]
    marks = {number: f"{number:.2f}" for number in sorted({1.0, max(*medians, *means)})}
    axes = Axes(Log(labels["trials"]), Log(ticks=marks))
    axes.plot(points, means, 1, labels["mean"])
    axes.plot(points, medians, 0, labels["median"])
    return str(axes)


def data(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The rate of the product on each kind of data, both data types; the middle half of the trials as a line."""
    measured = values["timing.measured_data"] or {}
    flops = values["timing.measured_flops"] or 0
    left, row, head = 190, 30, 36
    kinds = [kind for kind in KINDS if kind in measured]
    drawing = Drawing(WIDTH, 2 * (head + row * len(kinds)) + 8)
    for panel, dtype in enumerate(DTYPES):
        top = panel * (head + row * len(kinds))
        rates = {kind: flops / measured[kind][dtype]["median_seconds"] for kind in kinds}
        scale = (WIDTH - left - 124) / max(rates.values(), default=1)
        drawing.text(0, top + 24, labels[dtype])
        for index, kind in enumerate(kinds):
            y, width = top + head + row * index, rates[kind] * scale
            half = min(measured[kind][dtype]["spread"] / 2, 0.5) * width
            drawing.text(left - 12, y + 16, labels[kind], anchor="end")
            drawing.rect(left, y + 2, width, row - 10, f"fill-{panel}")
            drawing.line(left + width - half, y + 12, min(left + width + half, left + (WIDTH - left - 124)), y + 12)
            drawing.text(WIDTH, y + 16, format_value(rates[kind], "flop_per_second"), anchor="end")
    return str(drawing)


def cold(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each data type: the peak's prediction, the first call, a warm one, and the lecture's mean."""
    columns = {
        "predicted": "predicted_seconds.{}",
        "first": "measured_cold.{}.first_seconds",
        "warm": "measured_cold.{}.warm_seconds",
        "first_to_warm": "measured_cold.{}.first_to_warm_ratio",
        "warm_to_predicted": "measured_cold.{}.warm_to_predicted_ratio",
        "mean": "measured_cold.{}.mean_seconds",
        "spoken": "LECTURE_SECONDS.{}",
        "mean_to_spoken": "measured_cold.{}.mean_to_lecture_ratio",
    }
    rows = [[labels["quantity"], *DTYPES]]
    for key, path in columns.items():
        rows.append([labels[key], *(f"{{{{ timing.{path.format(dtype)} }}}}" for dtype in DTYPES)])
    return rows


def kinds(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each kind of data: the time in both data types, and the GPU's clock and power during the bf16 product."""
    rows = [[labels[key] for key in ("kind", *DTYPES, "clock", "power")]]
    for kind in KINDS:
        cells = ("fp32.median_seconds", "bf16.median_seconds", "clock_mhz", "power_watts")
        rows.append([labels[kind], *(f"{{{{ timing.measured_data.{kind}.{cell} }}}}" for cell in cells)])
    return rows
