"""Figures of the chapter on the roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from ledger.units import format_value

OPERATIONS = ("relu", "gelu", "dot", "matvec", "matmul")  # in the order of the page
ABOVE = {"relu": 9, "matvec": 20}  # pixels: these names stand above their points, so that neighbours do not collide
KINDS = {"contiguous": 2, "strided": 4, "matmul": 1, "attention": 3}  # of published kernels, and their colours
MARKS = {"decode": "1", "batch": "64", "prefill": "2048", "training": "16384"}  # tokens that one matrix meets at once


def h100(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """An H100's roof: where decoding, prefill and training stand, and what others' kernels reached."""
    card, at_once = values["roofline.H100"], values["roofline.AT_ONCE"]
    first, last, lowest = 0.1, 10_000, 1e8
    if not (card and at_once):
        return str(Axes(Log(labels["intensity"]), Log(unit="flop_per_second")))
    peaks, bandwidth = card["peak_flop_per_second"], card["bandwidth_bytes_per_second"]
    axes = Axes(
        Log(labels["intensity"], low=first, high=last), Log(unit="flop_per_second", low=lowest, high=3e15), height=390
    )
    limits = f"{format_value(peaks['bfloat16'], 'flop_per_second')}, {format_value(bandwidth, 'bytes_per_second')}"
    ridge = peaks["bfloat16"] / bandwidth
    axes.plot(
        [first, ridge, last], [first * bandwidth, *2 * [peaks["bfloat16"]]], "ink", f"{labels['roof']}\u2003{limits}"
    )
    axes.plot([peaks["float32"] / bandwidth, last], 2 * [peaks["float32"]], 5)
    axes.annotate(
        labels["other_units"], peaks["float32"] / bandwidth, peaks["float32"], dx=-10, dy=4, anchor="end", css="muted"
    )
    for name, tokens in MARKS.items():
        intensity = at_once[tokens]["intensity"]
        axes.plot([intensity] * 2, [lowest, min(peaks["bfloat16"], intensity * bandwidth)], 0, dashed=True)
        before = name == "prefill"
        axes.annotate(
            labels[name],
            intensity,
            lowest,
            dx=-6 if before else 6,
            dy=-28 if before else -8,
            anchor="end" if before else "start",
        )
    for kind, colour in KINDS.items():
        mine = (values["roofline.KERNELS"] or {}).get(kind, [])
        points = [each["intensity"] for each in mine], [each["rate_flop_per_second"] for each in mine]
        axes.scatter(*points, colour, labels[kind], marker="ring", size=4)
    axes.annotate(f"{labels['ridge']} {ridge:.0f}", ridge, peaks["bfloat16"], dx=0, dy=-7, anchor="middle")
    return str(axes)


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


def roof(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """FLOP/s over FLOPs per byte: the datasheet's roof, the measured one, and what was measured under them."""
    points = values["roofline.measured_points"] or {}
    sweep = {int(n): point for n, point in (values["roofline.measured_sweep"] or {}).items()}
    peaks = values["roofline.predicted_flop_per_second"] or {}
    roofs = {
        "sheet": (peaks.get("bfloat16"), values["roofline.predicted_bytes_per_second"]),
        "measured": (values["roofline.measured_flop_per_second"], values["roofline.measured_bytes_per_second"]),
    }
    known = {name: (peak, bandwidth) for name, (peak, bandwidth) in roofs.items() if peak and bandwidth}
    intensities = [point["intensity"] for point in (*points.values(), *sweep.values())]
    intensities += [peak / bandwidth for peak, bandwidth in known.values()]
    first, last = min(intensities, default=1) / 4, max(intensities, default=1) * 4
    axes = Axes(Log(labels["intensity"], low=first, high=last), Log(unit="flop_per_second"), height=324)
    for name, (peak, bandwidth) in known.items():
        limits = f"{format_value(peak, 'flop_per_second')}, {format_value(bandwidth, 'bytes_per_second')}"
        colour: int | str = "ink" if name == "sheet" else 0
        corners = [first, peak / bandwidth, last], [first * bandwidth, peak, peak]
        axes.plot(*corners, colour, f"{labels[name]}\u2003{limits}", dashed=name == "measured")
    cuda_cores = peaks.get("float32")
    if cuda_cores and "sheet" in known:
        slope = cuda_cores / known["sheet"][1]  # where the roof is as high; left of it nothing can stand
        axes.plot([slope, last], [cuda_cores, cuda_cores], 5)
        axes.annotate(labels["cuda_cores"], slope, cuda_cores, dx=-10, dy=4, anchor="end", css="muted")

    largest = max(sweep, default=0)
    for n, point in sorted(sweep.items()):
        intensity, rate = point["intensity"], point["rate_flop_per_second"]
        axes.scatter([intensity], [rate], 1, size=4.5)
        if n == min(sweep):
            axes.annotate(f"{labels['matmul']} = {n}", intensity, rate)
        elif n == largest:
            axes.annotate(f"{n:,}", intensity, rate, dx=0, dy=21, anchor="middle", css="muted")
        elif rate < sweep[largest]["rate_flop_per_second"] / 2:
            axes.annotate(f"{n:,}", intensity, rate, css="muted")
    for name in (name for name in OPERATIONS[:-1] if name in points):
        x, y = points[name]["intensity"], points[name]["rate_flop_per_second"]
        axes.scatter([x], [y], 2, size=5)
        if name in ABOVE:
            axes.annotate(labels[name], x, y, dx=-6, dy=-ABOVE[name], anchor="end")
        else:
            axes.annotate(labels[name], x, y, dy=14)
    return str(axes)
