"""Figures and tables of the chapter on the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.units import format_value

WIDTH, HEIGHT = 640, 440
LEFT, RIGHT, TOP, BOTTOM = 62, 622, 62, 386  # the frame of the plot
OPERATIONS = ("relu", "gelu", "dot", "matvec", "matmul")  # in the order of the page
ABOVE = {"relu": 9, "matvec": 20}  # pixels: these names stand above their points, so that neighbours do not collide
WAYS = ("eager", "compiled", "written")
LAUNCHES = ("alone", "in_a_row", "graph")
DASHED = "7 5"


class Axes:
    """Two logarithmic axes around some points, with a line at each power of ten."""

    def __init__(self, drawing: Drawing, points: list[tuple[float, float]]) -> None:
        self.drawing = drawing
        (self.x1, self.x2), (self.y1, self.y2) = (self._limits(axis) for axis in zip(*points, strict=True))

    @staticmethod
    def _limits(numbers: tuple[float, ...]) -> tuple[float, float]:
        """The powers of ten around the numbers, with some air."""
        return float(math.floor(math.log10(min(numbers)) - 0.1)), float(math.ceil(math.log10(max(numbers)) + 0.1))

    def x(self, value: float) -> float:
        return LEFT + (RIGHT - LEFT) * (math.log10(value) - self.x1) / (self.x2 - self.x1)

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (math.log10(value) - self.y1) / (self.y2 - self.y1)

    def grid(self, x_title: str, sides: list[int] | None = None) -> None:
        """Lines and their numbers: powers of ten, or sides along x and seconds along y."""
        for power in range(round(self.y1), round(self.y2) + 1):
            y = self.y(10.0**power)
            self.drawing.line(LEFT, y, RIGHT, y, "stroke-muted")
            if sides:
                seconds = format_value(10.0**power, "seconds").replace(".00", "").replace(".0", "")
                self.drawing.text(LEFT - 6, y + 5, seconds, "muted", anchor="end")
            else:
                self._power(LEFT - 14, y + 5, power)
        for side in sides or []:
            self.drawing.line(self.x(side), TOP, self.x(side), BOTTOM, "stroke-muted")
            self.drawing.text(self.x(side), BOTTOM + 20, str(side), "muted", anchor="middle")
        for power in range(round(self.x1), round(self.x2) + 1) if not sides else ():
            x = self.x(10.0**power)
            self.drawing.line(x, TOP, x, BOTTOM, "stroke-muted")
            self._power(x + 8, BOTTOM + 22, power)
        self.drawing.text((LEFT + RIGHT) / 2, HEIGHT - 8, x_title, anchor="middle")

    def _power(self, x: float, y: float, power: int) -> None:
        """Ten to a power, its foot ending at x."""
        self.drawing.text(x - 8, y, "10", "muted", anchor="end")
        self.drawing.text(x - 7, y - 6, str(power).replace("-", "−"), "muted")

    def polyline(self, points: list[tuple[float, float]], css: str, dash: str = "none") -> None:
        steps = " L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        self.drawing.add("path", css, d=f"M{steps}", stroke_dasharray=dash)

    def dot(self, x: float, y: float, css: str, radius: float = 5) -> None:
        self.drawing.circle(self.x(x), self.y(y), radius, css)


def _key(drawing: Drawing, y: float, css: str, dash: str, text: str) -> None:
    """One line of the legend."""
    drawing.add("path", css, d=f"M{LEFT} {y - 5:g} L{LEFT + 34} {y - 5:g}", stroke_dasharray=dash)
    drawing.text(LEFT + 42, y, text)


def roof(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """FLOP/s over FLOPs per byte: the datasheet's roof, the measured one, and what was measured under them."""
    drawing = Drawing(WIDTH, HEIGHT)
    points = values["roofline.measured_points"] or {}
    sweep = {int(n): point for n, point in (values["roofline.measured_sweep"] or {}).items()}
    roofs = {
        "sheet": (
            (values["roofline.predicted_flop_per_second"] or {}).get("bfloat16"),
            values["roofline.predicted_bytes_per_second"],
        ),
        "measured": (values["roofline.measured_flop_per_second"], values["roofline.measured_bytes_per_second"]),
    }
    known = {name: (peak, bandwidth) for name, (peak, bandwidth) in roofs.items() if peak and bandwidth}
    places = [(p["intensity"], p["rate_flop_per_second"]) for p in [*points.values(), *sweep.values()]]
    if not places or not known:
        return str(drawing)

    tops = [(peak / bandwidth, peak) for peak, bandwidth in known.values()]
    axes = Axes(drawing, [*places, *tops])
    axes.grid(labels["intensity"])
    for row, (name, (peak, bandwidth)) in enumerate(known.items()):
        css, dash = ("stroke-ink", "none") if name == "sheet" else ("stroke-0", DASHED)
        start = max(10.0**axes.x1, 10.0**axes.y1 / bandwidth)
        axes.polyline([(start, start * bandwidth), (peak / bandwidth, peak), (10.0**axes.x2, peak)], css, dash)
        limits = f"{format_value(peak, 'flop_per_second')}, {format_value(bandwidth, 'bytes_per_second')}"
        _key(drawing, 18 + 22 * row, css, dash, f"{labels[name]}\u2003{limits}")
    cuda_cores = (values["roofline.predicted_flop_per_second"] or {}).get("float32")
    if cuda_cores and "sheet" in known:
        axes.polyline([(cuda_cores / known["sheet"][1], cuda_cores), (10.0**axes.x2, cuda_cores)], "stroke-5")
        drawing.text(RIGHT - 6, axes.y(cuda_cores) - 7, labels["cuda_cores"], "muted", anchor="end")

    last = max(sweep, default=0)
    for n, point in sorted(sweep.items()):
        intensity, rate = point["intensity"], point["rate_flop_per_second"]
        axes.dot(intensity, rate, "fill-1", 4.5)
        if n == min(sweep):
            drawing.text(axes.x(intensity) + 9, axes.y(rate) + 5, f"{labels['matmul']}, n = {n}")
        elif n == last:
            drawing.text(axes.x(intensity), axes.y(rate) + 21, str(n), "muted", anchor="middle")
        elif rate < sweep[last]["rate_flop_per_second"] / 2:
            drawing.text(axes.x(intensity) + 9, axes.y(rate) + 5, str(n), "muted")
    for name in OPERATIONS[:-1]:
        if name not in points:
            continue
        x, y = points[name]["intensity"], points[name]["rate_flop_per_second"]
        axes.dot(x, y, "fill-2")
        if name in ABOVE:
            drawing.text(axes.x(x) - 6, axes.y(y) - ABOVE[name], labels[name], anchor="end")
        else:
            drawing.text(axes.x(x) + 8, axes.y(y) + 14, labels[name])
    return str(drawing)


def sweep(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Time of square products by their side: measured, by both roofs, and the floor."""
    drawing = Drawing(WIDTH, HEIGHT)
    points = sorted((int(n), point) for n, point in (values["roofline.measured_sweep"] or {}).items())
    if not points:
        return str(drawing)

    measured = [(float(n), point["median_seconds"]) for n, point in points]
    lines = {
        name: [(float(n), point[f"{name}_seconds"]) for n, point in points if point[f"{name}_seconds"]]
        for name in ("sheet", "roof")
    }
    axes = Axes(drawing, [*measured, *lines["sheet"], *lines["roof"]])
    axes.x1, axes.x2 = math.log10(points[0][0] / 1.3), math.log10(points[-1][0] * 1.3)
    axes.grid(labels["side"], [n for n, _ in points])
    floor = values["roofline.measured_floor_seconds"]
    axes.polyline([(points[0][0] / 1.3, floor), (points[-1][0] * 1.3, floor)], "stroke-2")
    drawing.text(RIGHT - 6, axes.y(floor) - 7, f"{labels['floor']}\u2002{format_value(floor, 'seconds')}", anchor="end")
    row = 0
    for name, css, dash in (("sheet", "stroke-ink", "none"), ("roof", "stroke-0", DASHED)):
        if lines[name]:
            axes.polyline(lines[name], css, dash)
            _key(drawing, 18 + 22 * row, css, dash, labels[name])
            row += 1
    for n, seconds in measured:
        axes.dot(n, seconds, "fill-1")
    drawing.circle(LEFT + 317, 13, 5, "fill-1")
    drawing.text(LEFT + 330, 18, labels["measured"])
    return str(drawing)


def counts(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each operation: its FLOPs, its bytes, its intensity as a formula and as a number."""
    formulas = {
        "relu": ("n^2", "4n^2", "1/4"),
        "gelu": ("5n^2", "4n^2", "5/4"),
        "dot": ("2n^2", "4n^2 + 2", "\\approx 1/2"),
        "matvec": ("2n^2", "2n^2 + 4n", "\\approx 1"),
        "matmul": ("2n^3", "6n^2", "n/3"),
    }
    rows = [[labels[key] for key in ("operation", "flops", "bytes", "intensity", "number")]]
    for name in OPERATIONS:
        cells = [f"${formula}$" for formula in formulas[name]]
        rows.append([labels[name], *cells, f"{{{{ roofline.intensities.{name} }}}}"])
    return rows


def times(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each operation: its time by the datasheet, measured, the ratio, and the ratio to the measured roof."""
    columns = {
        "intensity": "intensity:.2f",
        "predicted": "sheet_seconds",
        "measured": "median_seconds",
        "ratio": "sheet_ratio",
        "roof_ratio": "roof_ratio",
    }
    rows = [[labels["operation"], *(labels[column] for column in columns)]]
    for name in OPERATIONS:
        cells = [f"{{{{ roofline.measured_points.{name}.{value} }}}}" for value in columns.values()]
        rows.append([labels[name], *cells])
    return rows


def launches(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each way to launch the smallest product: its time."""
    rows = [[labels["way"], labels["each"]]]
    for name in LAUNCHES:
        rows.append([labels[name], f"{{{{ roofline.measured_launch_seconds.{name} }}}}"])
    return rows


def fusion(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each way to compute the chain: tensors moved, predicted, measured, ratio, and the speed-up."""
    rows = [[labels[key] for key in ("way", "passes", "predicted", "measured", "ratio", "speed_up")]]
    for name in WAYS:
        row = f"roofline.measured_speed_ups.{name}"
        cells = (
            f"roofline.PASSES.{name}",
            f"{row}.sheet_seconds",
            f"roofline.measured_chain_seconds.{name}",
            f"{row}.sheet_ratio",
            f"{row}.speed_up_ratio",
        )
        rows.append([labels[name], *(f"{{{{ {cell} }}}}" for cell in cells)])
    return rows
