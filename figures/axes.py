"""Charts: numbers in, SVG out, in the page's colours. The methods are called as matplotlib calls its own.

Nothing is drawn before `str(axes)`: ends, ticks, margins and the legend follow from all that was put in.
A colour is what it means ("weights", "gradients", "optimizer", "activations", "logits", "communication", "other"), the
number of a category that means none of these (0 to 5), "ink", "muted" or "faint", as the style sheet has them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise

from figures.svg import EXPONENTS, TONES, Box, Drawing, text_width
from ledger.units import format_value

WIDTH = 400  # on a phone, where 340 are left, texts have 12 pixels
INSET = 12  # pixels from the sides of the plot to the first and the last point
DASHES = "5 4"

Numbers = Sequence[float | None]  # None, not to be had on this device, is left out
Colour = int | str


def power_of_ten(power: int) -> str:
    """A power of ten as all charts print it: 10⁻³, 1, 10, 10⁶."""
    return {0: "1", 1: "10"}.get(power) or "10" + str(power).translate(str.maketrans("-0123456789", EXPONENTS))


class Scale:
    """A linear axis: where a number lies between its ends, which numbers get a tick, and how these read.

    Ends that are not given follow from the data; those of y, and of the numbers beside `Names`, reach out to a tick.
    `ticks` are numbers, or numbers with their texts; `unit` is one of the ledger's ("seconds", "flop_per_second"),
    of which some read differently by `language`.
    """

    def __init__(
        self,
        title: str = "",
        *,
        low: float | None = None,
        high: float | None = None,
        ticks: Sequence[float] | Mapping[float, str] = (),
        unit: str = "",
        language: str = "en",
    ) -> None:
        self.title, self.unit, self.language, self.given, self.ends = title, unit, language, ticks, (low, high)
        self.numbers = [float(tick) for tick in ticks]  # all that is to be seen
        self.low, self.high, self.decimals = 0.0, 1.0, 0

    def include(self, numbers: Iterable[float | None]) -> None:
        self.numbers += [number for number in numbers if number is not None]

    def settle(self, tight: bool = False) -> dict[float, str]:
        """Fixes the ends, once all numbers are known, and returns the ticks with their texts."""
        first, last = self.ends
        low = first if first is not None else min(self.numbers, default=1.0)
        high = last if last is not None else max(self.numbers, default=low)
        if low == high:
            high = self._beyond(low)
        ticks = list(self.given)
        if self.numbers and not ticks:
            ticks = self._ticks(min(low, high), max(low, high))
        if self.numbers and not (self.given or tight):
            low = low if first is not None else max(tick for tick in ticks if tick <= low)
            high = high if last is not None else min(tick for tick in ticks if tick >= high)
        self.low, self.high = low, high
        ticks = [tick for tick in ticks if self.holds(tick)]
        if isinstance(self.given, Mapping):
            return {tick: self.given[tick] for tick in ticks}
        self.decimals = max((len(f"{tick:.10g}".partition(".")[2]) for tick in ticks), default=0)
        return {tick: self._text(tick) for tick in ticks}

    def holds(self, number: float | None) -> bool:
        """Whether a number lies between the ends."""
        return number is not None and min(self.low, self.high) <= number <= max(self.low, self.high)

    def across(self, number: float) -> float:
        """Where a number lies: 0 at the low end, 1 at the high one."""
        return (number - self.low) / (self.high - self.low)

    def _beyond(self, low: float) -> float:
        return low + 1

    def _ticks(self, low: float, high: float) -> list[float]:
        """About five round numbers between low and high, and some beyond both."""
        unit = 10.0 ** math.floor(math.log10((high - low) / 5))
        step = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit * 5 >= (high - low) * 0.9)
        return [float(f"{step * n:.10g}") for n in range(math.floor(low / step) - 1, math.ceil(high / step) + 2)]

    def _text(self, number: float) -> str:
        if self.unit and not number:
            return "0"
        if self.unit:  # a round number needs no zeros after its point
            return re.sub(r"\.0+\b|(\.\d*?)0+\b", r"\1", format_value(number, self.unit, language=self.language))
        return f"{number:,.{self.decimals}f}".replace("-", "−")


class Log(Scale):
    """A logarithmic axis: equal factors are equal distances. Its numbers are above 0."""

    def include(self, numbers: Iterable[float | None]) -> None:
        super().include(numbers)
        if any(number <= 0 for number in self.numbers):
            raise ValueError("a logarithmic axis has no place for 0 and below")

    def across(self, number: float) -> float:
        return math.log(number / self.low) / math.log(self.high / self.low)

    def _beyond(self, low: float) -> float:
        return low * 10

    def _ticks(self, low: float, high: float) -> list[float]:
        """Powers of ten, or every second, fifth, tenth …; for less than a hundredfold with 2 and 5 between.

        Of bytes, which read in binary units, powers of two.
        """
        if high / low < 5:
            return super()._ticks(low, high)
        if self.unit == "bytes":
            first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
            every = -(-(last - first) // 7)
            return [2.0**power for power in range(first // every * every, last + every, every)]
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        if high / low < 100:
            return [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
        every = next(every for every in (1, 2, 5, 10, 20, 50, 100) if last - first <= 8 * every)
        return [10.0**power for power in range(first // every * every, last + every, every)]

    def _text(self, number: float) -> str:
        if self.unit:
            return super()._text(number)
        if self.low >= 1e-3 and self.high <= (1e6 if self.given else 1e4):
            return f"{number:,.10g}"
        power = math.floor(math.log10(number) + 1e-9)
        factor = f"{number / 10.0**power:.6g}"
        return ("" if factor == "1" else f"{factor} × ") + power_of_ten(power)


class Names(Scale):
    """An axis of categories: the first at 0, the second at 1; from the left, or from the top."""

    def __init__(self, names: Sequence[str], title: str = "") -> None:
        super().__init__(title, low=-0.5, high=max(len(names), 1) - 0.5, ticks=dict(enumerate(names)))


class Axes:
    """A chart of `WIDTH`: a legend on top, below it the title of y, the plot (`height` pixels), the title of x."""

    def __init__(self, x: Scale, y: Scale, height: float = 260) -> None:
        self.x, self.y, self.height = x, y, height
        self.drawing = Drawing(WIDTH, height)
        self.left = self.right = self.top = self.bottom = 0.0  # the sides of the plot in pixels
        self._marks: list[Callable[[], None]] = []
        self._legend: dict[str, tuple[str, Colour, bool, float]] = {}  # text: shape, colour, dashed, alpha
        self._above = False  # whether texts stand between the title of y and the plot
        if isinstance(y, Names):
            y.ends = (y.ends[1], y.ends[0])

    def plot(
        self, x: Numbers, y: Numbers, colour: Colour = 0, label: str = "", *, dashed: bool = False, step: bool = False
    ) -> None:
        """A line through points, broken where one is None or beyond the ends; a step holds its value until the next."""
        self._enter(label, "line", colour, dashed, x, y)

        def mark() -> None:
            for _, piece in groupby(self._places(x, y), bool):
                places = [place for place in piece if place]
                if step:
                    places = places[:1] + [corner for (_, b), (c, d) in pairwise(places) for corner in ((c, b), (c, d))]
                if places:
                    self._line(places, colour, dashed)

        self._marks.append(mark)

    def scatter(
        self, x: Numbers, y: Numbers, colour: Colour = 0, label: str = "", *, marker: str = "o", size: float = 4
    ) -> None:
        """A circle ("o"), a ring ("ring") or a square ("s") at each point; `size` is half its width in pixels."""
        self._enter(label, marker, colour, False, x, y)

        def mark() -> None:
            places = [place for place in self._places(x, y) if place]
            if marker == "ring":  # all in one path, since there can be hundreds
                self.drawing.rings(places, size, f"stroke-{colour}")
                return
            for place in places:
                self._dot(*place, marker, size, colour)

        self._marks.append(mark)

    def bar(
        self, x: Sequence[float], height: Numbers, colour: Colour = 0, label: str = "", *,
        width: float = 0.8, bottom: Sequence[float] = (), alpha: float = 1,
    ) -> None:  # fmt: skip
        """Upright bars, as wide as `width` of x; in a stack, `bottom` says where each begins."""
        self._bars(self.x, self.y, x, height, bottom, width, colour, label, alpha)

    def stack(
        self,
        x: Sequence[float],
        parts: Mapping[str, Sequence[float]],
        width: float = 0.8,
        colours: Sequence[Colour] = (),
    ) -> list[float]:
        """Upright bars one upon the other, by their labels from the bottom up; how high each stack is."""
        tops = [0.0] * len(x)
        for colour, (label, sizes) in zip(colours or range(len(parts)), parts.items(), strict=True):
            self.bar(x, sizes, colour, label, width=width, bottom=tops)
            tops = [below + size for below, size in zip(tops, sizes, strict=True)]
        return tops

    def barh(
        self, y: Sequence[float], width: Numbers, colour: Colour = 0, label: str = "", *,
        height: float = 0.8, left: Sequence[float] = (), alpha: float = 1,
    ) -> None:  # fmt: skip
        """Bars from left to right, as high as `height` of y; in a stack, `left` says where each begins."""
        self._bars(self.y, self.x, y, width, left, height, colour, label, alpha)

    def vlines(self, x: Numbers, low: Numbers, high: Numbers, colour: Colour = "ink") -> None:
        """Upright lines, each from low to high: how far a measurement spreads."""
        for at, *ends in zip(x, low, high, strict=True):
            self.plot([at, at], ends, colour)

    def axhline(
        self, y: float | None, text: str = "", colour: Colour = "ink", label: str = "", *,
        dashed: bool = True, at: str = "end", below: bool = False,
    ) -> None:  # fmt: skip
        """A line across the plot, its text above it (or below) at its start or end."""
        if y is None:
            return
        self._enter(label, "line", colour, dashed, (), (y,))

        def mark() -> None:
            height = self.place_y(y)
            self._line([(self.left, height), (self.right, height)], colour, dashed)
            x = self.right if at == "end" else self.left + 4
            self.drawing.text(x, height + 18 if below else height - 6, text, "muted over", anchor=at)

        self._marks.append(mark)

    def axvline(self, x: float, before: str = "", after: str = "", colour: Colour = "ink", label: str = "") -> None:
        """A line up the plot and, where a text stands on either side of it, above."""
        self._enter(label, "line", colour, False, (x,), ())
        self._above |= bool(before or after)

        def mark() -> None:
            across = self.place_x(x)
            self._line([(across, self.top - 20 * bool(before or after)), (across, self.bottom)], colour)
            self.drawing.text(across - 8, self.top - 9, before, anchor="end")
            self.drawing.text(across + 8, self.top - 9, after)

        self._marks.append(mark)

    def axhspan(self, low: float, high: float, colour: Colour = "faint") -> None:
        """A band across the plot, behind all else."""
        self._enter("", "s", colour, False, (), (low, high))

        def mark() -> None:
            top = self.place_y(high)
            self.drawing.rect(self.left, top, self.right - self.left, self.place_y(low) - top, _fill(colour))

        self._marks.insert(0, mark)

    def annotate(
        self, text: str, x: float, y: float, *, dx: float = 8, dy: float = 5, anchor: str = "start", css: str = "ink"
    ) -> None:
        """A text beside a point, so many pixels to the right and below; the lines behind it end around its letters."""
        self._enter("", "", 0, False, (x,), (y,))
        self._marks.append(
            lambda: self.drawing.text(self.place_x(x) + dx, self.place_y(y) + dy, text, f"{css} over", anchor=anchor)
        )

    def place_x(self, number: float) -> float:
        return self.left + self._inset + (self.right - self.left - 2 * self._inset) * self.x.across(number)

    def place_y(self, number: float) -> float:
        return self.bottom - (self.bottom - self.top) * self.y.across(number)

    def __str__(self) -> str:
        """The chart as SVG."""
        x_ticks, y_ticks = self.x.settle(tight=not isinstance(self.y, Names)), self.y.settle()
        beyond = [text_width(text) / 2 - self._inset for text in x_ticks.values()] or [0.0]
        self.left = max([beyond[0], *(text_width(text) + 8 for text in y_ticks.values())])
        self.right = WIDTH - max(beyond[-1], 4)
        self.drawing = Drawing(WIDTH, 0)
        self.top = self._draw_legend() + 22 * (bool(self.y.title) + self._above) + 14
        self.bottom = self.top + self.height
        self.drawing.resize(self.bottom + (52 if self.x.title else 28))
        self._draw_axes(x_ticks, y_ticks)
        for mark in self._marks:
            mark()
        self.drawing.line(self.left, self.bottom, self.right, self.bottom)
        return str(self.drawing)

    def _draw_legend(self) -> float:
        """The legend from left to right, line by line; returns its height."""
        x, y = 0.0, 16
        for text, (shape, colour, dashed, alpha) in self._legend.items():
            key = 24 if shape == "line" else 14
            width = key + 6 + text_width(text)
            if x and x + width > WIDTH:
                x, y = 0.0, y + 22
            if shape == "line":
                self._line([(x, y - 5), (x + key, y - 5)], colour, dashed)
            else:
                self._dot(x + 7, y - 5, shape, 7 if shape == "s" else 5, colour, alpha)
            self.drawing.text(x + key + 6, y, text)
            x += width + 20
        return y + 6 if self._legend else 0

    def _draw_axes(self, x_ticks: Mapping[float, str], y_ticks: Mapping[float, str]) -> None:
        """Titles, ticks, and lines across the plot; the text of a tick that would touch another is left out."""
        self.drawing.text(0, self.top - 20 - 22 * self._above, self.y.title)
        half = text_width(self.x.title) / 2
        middle = min(max((self.left + self.right) / 2, half), WIDTH - half)  # a long title is not cut
        self.drawing.text(middle, self.bottom + 46, self.x.title, anchor="middle")
        end = math.inf  # of the text before
        for tick, text in y_ticks.items():
            y = self.place_y(tick)
            if not isinstance(self.y, Names):
                self.drawing.line(self.left, y, self.right, y, "stroke-muted")
            if abs(end - y) > 15:
                self.drawing.text(self.left - 8, y + 5, text, "muted", anchor="end")
                end = y
        end = -math.inf
        for tick, text in x_ticks.items():
            x, half = self.place_x(tick), text_width(text) / 2
            if isinstance(self.y, Names):
                self.drawing.line(x, self.top, x, self.bottom, "stroke-muted")
            self.drawing.line(x, self.bottom, x, self.bottom + 5)
            if x - half > end + 4:
                self.drawing.text(x, self.bottom + 22, text, "muted", anchor="middle")
                end = x + half

    def _enter(
        self, label: str, shape: str, colour: Colour, dashed: bool, x: Iterable[float | None],
        y: Iterable[float | None], alpha: float = 1,
    ) -> None:  # fmt: skip
        """Notes what a new mark brings to the legend and to both scales."""
        if label:
            self._legend[label] = (shape, colour, dashed, alpha)
        self.x.include(x)
        self.y.include(y)

    def _bars(
        self, across: Scale, along: Scale, at: Sequence[float], sizes: Numbers, starts: Sequence[float],
        thickness: float, colour: Colour, label: str, alpha: float,
    ) -> None:  # fmt: skip
        self._enter(label, "s", colour, False, (), (), alpha)
        bars = list(zip(at, starts or [0.0] * len(at), sizes, strict=True))
        across.include(place + side * thickness / 2 for place in at for side in (-1, 1))
        along.include(start + size for _, start, size in bars if size)
        along.include(starts or ([] if isinstance(along, Log) else [0.0]))

        def box(place: float, start: float, size: float) -> Box:
            sides = place - thickness / 2, place + thickness / 2
            ends = [min(max(end, along.low), along.high) for end in (start, start + size)]
            x1, x2 = sorted(map(self.place_x, sides if across is self.x else ends))
            y1, y2 = sorted(map(self.place_y, ends if across is self.x else sides))
            lap = 0.4 if thickness == 1 else 0  # of bars that touch: between blurred sides the page would shine through
            return x1, y1, x2 - x1 + lap, y2 - y1

        def mark() -> None:
            boxes = (box(place, start, size) for place, start, size in bars if size)
            self.drawing.rects(boxes, _fill(colour), fill_opacity=alpha)

        self._marks.append(mark)

    @property
    def _inset(self) -> float:
        return 0 if isinstance(self.x, Names) or isinstance(self.y, Names) else INSET

    def _places(self, x: Numbers, y: Numbers) -> list[tuple[float, float] | None]:
        """The pixels of each point, None where it has none or lies beyond the ends."""
        return [
            (self.place_x(a), self.place_y(b))
            if a is not None and b is not None and self.x.holds(a) and self.y.holds(b)
            else None
            for a, b in zip(x, y, strict=True)
        ]

    def _line(self, places: list[tuple[float, float]], colour: Colour, dashed: bool = False) -> None:
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        self.drawing.add("path", f"stroke-{colour}", d=path, **({"stroke_dasharray": DASHES} if dashed else {}))

    def _dot(self, x: float, y: float, marker: str, size: float, colour: Colour, alpha: float = 1) -> None:
        if marker == "o":
            self.drawing.circle(x, y, size, _fill(colour))
        elif marker == "ring":
            self.drawing.circle(x, y, size, f"stroke-{colour}")
        else:
            self.drawing.rect(x - size, y - size, 2 * size, 2 * size, _fill(colour), fill_opacity=alpha)


def _fill(colour: Colour) -> str:
    return str(colour) if colour in TONES else f"fill-{colour}"
