"""Figures of the chapter on traces."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from figures.axes import Axes, Colour, Names, Scale
from figures.svg import Drawing, upon

PARTS: Mapping[str, Colour] = {"kernels": 0, "exposed": "communication", "launching": 2, "idle": "other"}


def streams(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A step's launches and kernels over time, a row a stream; below them what is busy, idle (and why), and exposed.

    As wide as a phone, so that it need not be scaled down there.
    """
    drawing = Drawing(340, 314)
    events = values["traces.STEP"] or []
    kernels = [event for event in events if event["cat"] == "kernel"]
    end = max((event["ts"] + event["dur"] for event in events), default=1)
    left, scale = 92.0, 244.0 / end

    def at(time: float) -> float:
        return left + time * scale

    names = sorted({event["args"]["stream"] for event in kernels})
    drawing.text(0, 27, labels["cpu"])
    for event in events:
        if event["cat"] != "kernel":
            drawing.rect(at(event["ts"]), 10, event["dur"] * scale, 26, "fill-2")
    for row, name in enumerate(names):
        y = 52 + 42 * row
        drawing.text(0, y + 17, labels["stream"].format(n=name))
        for event in kernels:
            if event["args"]["stream"] == name:
                shared = "nccl" in event["name"]
                middle = at(event["ts"] + event["dur"] / 2)
                css = "fill-communication" if shared else "fill-0"
                drawing.rect(at(event["ts"]), y, event["dur"] * scale, 26, css)
                drawing.text(middle, y + 18, labels["sent" if shared else "matmul"], upon(css), anchor="middle")
    computed = _union((event["ts"], event["ts"] + event["dur"]) for event in kernels if "nccl" not in event["name"])
    ran = _union((event["ts"], event["ts"] + event["dur"]) for event in kernels)
    idle = _between(ran)
    waited = [(start, _returned(events, end)) for start, end in idle]
    late = [(start, end) for start, end in waited if end > start]
    spans = (
        ("busy", ran, 0),
        ("idle", idle, 2),
        ("launching", late, 2),
        ("exposed", _without(ran, computed), "communication"),
    )
    for row, (name, found, colour) in enumerate(spans):
        y = 162 + 36 * row
        drawing.text(0, y + 5, labels[name])
        for start, stop in found:
            drawing.line(at(start), y, at(stop), y, f"stroke-{colour}")
            for x in (at(start), at(stop)):
                drawing.line(x, y - 5, x, y + 5, f"stroke-{colour}")
    drawing.line(left, 296, at(end), 296, "stroke-muted")
    for time, text, anchor in ((0, "0", "middle"), (end / 2, f"{end / 2:g}", "middle"), (end, f"{end:g} µs", "end")):
        drawing.line(at(time), 293, at(time), 296, "stroke-muted")
        drawing.text(at(time), 311, text, "muted", anchor=anchor)
    return str(drawing)


def _returned(events: Any, start: float) -> float:
    """When the call had returned that launched the kernel of this start, at the latest its start."""
    kernel = next(event for event in events if event["cat"] == "kernel" and event["ts"] == start)
    launched = kernel["args"]["correlation"]
    calls = [event for event in events if event["cat"] != "kernel" and event["args"]["correlation"] == launched]
    return float(min(start, *(event["ts"] + event["dur"] for event in calls)))


def _union(spans: Any) -> list[tuple[float, float]]:
    whole: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if whole and start <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(whole[-1][1], end)
        else:
            whole.append((start, end))
    return whole


def _between(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(before[1], after[0]) for before, after in pairwise(spans)]


def _without(spans: list[tuple[float, float]], taken: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What of spans lies in none of those taken."""
    left = []
    for start, end in spans:
        for from_, to in taken:
            if start < to and from_ < end:
                if start < from_:
                    left.append((start, from_))
                start = max(start, to)
        if start < end:
            left.append((start, end))
    return left


def shares(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Of each trace what its GPU's time went into, as a bar of its own."""
    found = values["traces.time_shares"] or {}
    names = sorted((name for name in found if name in labels), key=lambda name: -found[name]["kernels"])
    axes = Axes(
        Scale(labels["share"], low=0, high=100), Names([labels[name] for name in names]), height=30 * len(names)
    )
    ends = [0.0] * len(names)
    for part, colour in PARTS.items():
        sizes = [100 * found[name][part] for name in names]
        axes.barh(range(len(names)), sizes, colour, labels[part], left=ends)
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    return str(axes)
