"""Figures of the chapter on timing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import Drawing, upon
from ledger.units import format_value

WIDTH = 340
DTYPES = ("fp32", "bf16")


def calls(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Each call of both data types as a bar of its time; a line where the mean of the first five lies."""
    recorded = values["timing.measured_calls_seconds"] or {}
    left, row, head = 58, 24, 42
    drawing = Drawing(WIDTH, 0)
    top = drawing.legend([("fill-1", labels["first"], 1), ("fill-0", labels["later"], 1)])
    drawing.line(7, top, 7, top + 16, "stroke-ink")
    drawing.text(20, top + 13, labels["mean"])
    top += 18
    for dtype in (dtype for dtype in DTYPES if recorded.get(dtype)):
        seconds = recorded[dtype]
        scale = (WIDTH - left - 74) / max(seconds)
        drawing.text(0, top + 30, labels[dtype])
        for call, each in enumerate(seconds):
            y = top + head + row * call
            drawing.text(left - 6, y + 15, labels["call"].format(n=call + 1), "muted", anchor="end")
            drawing.rect(left, y + 2, each * scale, row - 6, f"fill-{int(call == 0)}")
            drawing.text(WIDTH, y + 15, format_value(each, "seconds"), anchor="end")
        mean = left + statistics.mean(seconds[:5]) * scale
        drawing.line(mean, top + head - 2, mean, top + head + row * 5)
        top += head + row * len(seconds) + 8
    drawing.resize(top)
    return str(drawing)


def queue(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Three calls that Python queues one after the other, the GPU's work on them, and what three clocks measure of it.

    As wide as a phone, so that it need not be scaled down there.
    """
    drawing = Drawing(340, 234)
    start, launch, kernel, end = 64.0, 14.0, 80.0, 318.0
    drawing.text(0, 27, labels["python"])
    drawing.text(0, 69, labels["gpu"])
    first = end - 3 * kernel
    for call in range(3):
        left = start + call * (launch + 3)
        drawing.rect(left, 10, launch, 26, "fill-1")
        drawing.rect(first + call * kernel, 52, kernel - 3, 26, "fill-0")
        drawing.text(first + (call + 0.5) * kernel, 70, labels["call"].format(n=call + 1), upon("0"), anchor="middle")
    waits = start + 3 * (launch + 3)
    drawing.rect(waits, 10, end - waits, 26, "faint")
    drawing.text((waits + end) / 2, 28, labels["waits"], anchor="middle")
    spans = (("returns", start, start + launch, 1), ("synchronized", start, end, 2), ("events", first, end - 3, 0))
    for row, (name, left, right, colour) in enumerate(spans):
        y = 102 + 48 * row
        drawing.line(left, y, right, y, f"stroke-{colour}")
        for x in (left, right):
            drawing.line(x, y - 5, x, y + 5, f"stroke-{colour}")
        drawing.text(start, y + 22, labels[name])
    return str(drawing)


def medians(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Medians of n trials as dots over n, and the standard error of the formula on both sides of the truth."""
    simulated = values["timing.simulated_medians"] or {}
    errors = values["timing.formula_errors"] or {}
    counts = sorted(map(int, simulated))
    axes = Axes(Log(labels["trials"], ticks=counts), Scale(labels["median"]), height=320)
    for count in counts:
        medians = simulated[str(count)]
        axes.scatter([count] * len(medians), medians, 0, labels["medians"] if count == counts[0] else "", size=2.5)
    for sign, label in ((1, labels["error"]), (-1, "")):
        axes.plot(counts, [sign * errors[str(count)] for count in counts], 1, label)
    return str(axes)
