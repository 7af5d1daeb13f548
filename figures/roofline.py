"""Figures of the chapter on the roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from figures.svg import Drawing
from ledger.units import format_value

KINDS = {"contiguous": 2, "strided": 4, "matmul": 1, "attention": 3}  # of published kernels, and their colours
MARKS = {  # tokens that one matrix meets at once, and how high its text stands, for texts are wider than the gaps
    "decode": ("1", -8),
    "batch": ("64", -28),
    "prefill": ("2048", -48),
    "training": ("16384", -48),
}


def h100(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """An H100's roof, and where decoding, prefill and training stand."""
    card, at_once = values["roofline.H100"], values["roofline.AT_ONCE"]
    first, last, lowest = 0.1, 1e5, 1e8
    if not (card and at_once):
        return str(Axes(Log(labels["intensity"]), Log(unit="flop_per_second")))
    peaks, bandwidth = card["peak_flop_per_second"], card["bandwidth_bytes_per_second"]
    axes = Axes(
        Log(labels["intensity"], low=first, high=last, ticks=[10.0**power for power in range(-1, 4)]),
        Log(unit="flop_per_second", low=lowest, high=3e15),
        height=300,
    )
    limits = f"{format_value(peaks['bfloat16'], 'flop_per_second')}, {format_value(bandwidth, 'bytes_per_second')}"
    ridge = peaks["bfloat16"] / bandwidth
    axes.plot(
        [first, ridge, last], [first * bandwidth, *2 * [peaks["bfloat16"]]], "ink", f"{labels['roof']}\u2003{limits}"
    )
    axes.plot([peaks["float32"] / bandwidth, last], 2 * [peaks["float32"]], 5, labels["other_units"])
    for name, (tokens, height) in MARKS.items():
        intensity = at_once[tokens]["intensity"]
        axes.plot([intensity] * 2, [lowest, min(peaks["bfloat16"], intensity * bandwidth)], 0, dashed=True)
        before = name in ("batch", "prefill")
        axes.annotate(
            labels[name],
            intensity,
            lowest,
            dx=-6 if before else 6,
            dy=height,
            anchor="end" if before else "start",
        )
    axes.annotate(f"{labels['ridge']} {ridge:.0f}", ridge, peaks["bfloat16"], dx=0, dy=-7, anchor="middle")
    return str(axes)


def memories(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """From an H100's memory to its tensor cores, the ways between them as wide as they are fast; as wide as a phone."""
    card, on_chip = values["roofline.H100"] or {}, values["roofline.ON_CHIP_BYTES_PER_SECOND"]
    drawing = Drawing(340, 372)
    middle, width, height = 120, 216, 48
    boxes = (("cores", 8), ("shared", 112), ("cache", 196), ("memory", 312))
    ways = ((on_chip, 56, 112), (None, 160, 196), (card.get("bandwidth_bytes_per_second"), 244, 312))
    for rate, top, bottom in ways:
        wide = 4e-12 * (rate or 0)
        if rate:
            drawing.rect(middle - wide / 2, top, wide, bottom - top, "fill-0")
            text = format_value(rate, "bytes_per_second", language=labels["language"])
            drawing.text(middle + max(wide / 2, 8) + 8, (top + bottom) / 2 + 4, text)
        else:
            drawing.line(middle, top, middle, bottom, "stroke-muted")
    for name, top in boxes:
        for css in ("faint", "stroke-muted"):
            drawing.rect(middle - width / 2, top, width, height, css, rx=4)
        drawing.text(middle, top + 20, labels[name], anchor="middle")
        drawing.text(middle, top + 40, labels[f"{name}_size"], "muted", anchor="middle")
    drawing.add("line", "stroke-muted", x1=0, y1=264, x2=340, y2=264, stroke_dasharray="5 4")
    drawing.text(340, 256, labels["chip"], "muted", anchor="end")
    drawing.text(middle + 16, 302, labels["counted"])
    return str(drawing)


def times(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What others' kernels took over what the roof of their card allows."""
    kernels = values["roofline.KERNELS"] or {}
    axes = Axes(Log(labels["roof"], unit="seconds"), Log(labels["taken"], unit="seconds"), height=300)
    for kind, colour in KINDS.items():
        mine = kernels.get(kind, [])
        points = [each["roof_seconds"] for each in mine], [each["taken_seconds"] for each in mine]
        axes.scatter(*points, colour, labels[kind], marker="ring", size=4)
    taken = [each["taken_seconds"] for mine in kernels.values() for each in mine]
    ends = [min(taken), max(taken)] if taken else []
    axes.plot(ends, ends, "ink", labels["same"])
    return str(axes)
