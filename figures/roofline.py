"""Figures of the chapter on the roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from ledger.units import format_value

OPERATIONS = ("relu", "gelu", "dot", "matvec", "matmul")  # in the order of the page
ABOVE = {"relu": 9, "matvec": 20}  # pixels: these names stand above their points, so that neighbours do not collide


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
        axes.plot([cuda_cores / known["sheet"][1], last], [cuda_cores, cuda_cores], 5)
        axes.annotate(labels["cuda_cores"], last, cuda_cores, dx=0, dy=-7, anchor="end", css="muted")

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


def sweep(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Time of square products by their side: measured, by both roofs, and the floor."""
    points = sorted((int(n), point) for n, point in (values["roofline.measured_sweep"] or {}).items())
    floor = values["roofline.measured_call_seconds"]
    rate = values["roofline.measured_flop_per_second"]
    sides = [n for n, _ in points]
    axes = Axes(Log(labels["side"], ticks=sides), Log(unit="seconds"), height=324)
    if floor:
        axes.axhline(floor, f"{labels['floor']}\u2002{format_value(floor, 'seconds')}", 2, dashed=False)
    for name in ("sheet", "roof"):
        seconds = [point[f"{name}_seconds"] for _, point in points]
        if any(seconds):
            axes.plot(sides, seconds, "ink" if name == "sheet" else 0, labels[name], dashed=name == "roof")
        if name == "roof" and floor and rate:
            axes.plot(sides, [floor + 2 * side**3 / rate for side in sides], 3, labels["sum"])
    axes.scatter(sides, [point["median_seconds"] for _, point in points], 1, labels["measured"], size=5)
    return str(axes)
