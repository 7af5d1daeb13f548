"""Figures and table of the chapter on number formats."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from statistics import mean
from typing import Any

from figures.axes import Axes, Log, Names
from figures.svg import FADED, HALF, Drawing

FORMATS = ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1")  # in the order of the page
CELL, EACH_LINE = 10.5, 32  # width of one bit; so many fill the drawing, and fp64 goes on below
DECADES = (-48, 42)  # ends of the axis of ranges; fp64 reaches beyond both


def bit_fields(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One third in every format: the bits as they are stored, and the number that they stand for."""
    fields = values["number_formats.third_fields"] or {}
    stored = values["number_formats.third_stored"] or {}
    drawing, y = Drawing(2 + CELL * EACH_LINE, 0), 34.0
    for colour, part in enumerate(("sign", "exponent", "fraction")):
        _tinted(drawing, 112 * colour + 1, 4, 16, 16, colour)
        drawing.text(112 * colour + 24, 17, labels[part])
    for name in (name for name in FORMATS if fields.get(name)):
        drawing.text(0, y + 16, labels[name])
        drawing.text(92, y + 16, repr(stored[name]), css="muted")
        bits = [(bit, colour) for colour, part in enumerate(fields[name].split(" ")) for bit in part]
        for start in range(0, len(bits), EACH_LINE):
            x, y = 1.0, y + 26 * bool(start)
            for colour, run in groupby(bits[start : start + EACH_LINE], key=itemgetter(1)):
                digits = [bit for bit, _ in run]
                _tinted(drawing, x, y + 22, CELL * len(digits), 22, colour)
                for bit in digits:
                    drawing.text(x + CELL / 2, y + 38, bit, anchor="middle")
                    x += CELL
        y += 54
    drawing.resize(y - 8)
    return str(drawing)


def _tinted(drawing: Drawing, x: float, y: float, width: float, height: float, colour: int) -> None:
    """A see-through rectangle with its outline, so that a digit on it stays legible in light and dark."""
    drawing.add("rect", f"fill-{colour}", x=x, y=y, width=width, height=height, fill_opacity=FADED)
    drawing.rect(x, y, width, height, f"stroke-{colour}")


def near_one(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The bf16 numbers around 1, each in the stretch that is rounded to it, and a step from 1 either way."""
    numbers = sorted(values["number_formats.near_one"] or [])
    step = values["number_formats.SMALL_STEP"]
    drawing = Drawing(340, 144)
    if len(numbers) < 2 or not step:
        return str(drawing)

    def place(number: float) -> float:
        x: float = 25 + 290 * (number - numbers[0]) / (numbers[-1] - numbers[0])
        return x

    ends = [numbers[0], *map(mean, pairwise(numbers)), numbers[-1]]
    for index, (number, (low, high)) in enumerate(zip(numbers, pairwise(ends), strict=True)):
        left, right = place(low), place(high)
        if number == 1:
            _tinted(drawing, left, 50, right - left, 22, 1)
            drawing.text((left + right) / 2, 136, labels["rounds"], anchor="middle")
        else:
            drawing.rect(left, 50, right - left, 22, "stroke-muted")
        drawing.circle(place(number), 61, 4, "ink")
        drawing.text(place(number), 92 + 20 * (index % 2), f"{number:.4f}", css="muted", anchor="middle")
    for sign, towards in (("+", 1), ("\N{MINUS SIGN}", -1)):
        end = place(1 + towards * step)
        drawing.line(place(1), 38, end, 38, "stroke-ink")
        drawing.path(f"M {end - 6 * towards} 33 L {end} 38 L {end - 6 * towards} 43", "stroke-ink")
        drawing.text(end, 24, f"{sign}{step:g}", anchor="middle")
    drawing.line(place(1), 32, place(1), 50, "stroke-ink")
    return str(drawing)


def ranges(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The positive numbers of every format on a logarithmic axis: normal ones dark, subnormal ones light."""
    limits = values["number_formats.limits"] or {}
    tiny = values["number_formats.TINY"]
    names = [name for name in FORMATS if limits.get(name)]
    first, last = (10.0**decade for decade in DECADES)
    ticks = [10.0**decade for decade in range(-45, DECADES[1], 15)]
    axes = Axes(
        Log(low=first / 1e3, high=last * 1e3, ticks=ticks), Names([labels[name] for name in names]), 34 * len(names)
    )
    if tiny:
        axes.axvline(tiny, after=labels["tiny"])
    for row, name in enumerate(names):
        ends = (limits[name][end] for end in ("smallest_subnormal", "smallest_normal", "largest"))
        low, knee, high = (min(max(end, first), last) for end in ends)
        axes.barh([row], [knee - low], 1, height=0.64, left=[low], alpha=HALF)
        axes.barh([row], [high - knee], 1, height=0.64, left=[knee])
        if limits[name]["largest"] > last:  # an arrow at each end says that it goes on
            axes.annotate("◄", first, row, dx=-3, css="fill-1", anchor="end")
            axes.annotate("►", last, row, dx=3, css="fill-1")
    return str(axes)


def formats(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each format: its fields, its ends, its step at 1, and what the matrix takes in it."""
    columns = {
        "bits": "limits.{}.bits",
        "largest": "limits.{}.largest",
        "smallest_normal": "limits.{}.smallest_normal",
        "smallest_subnormal": "limits.{}.smallest_subnormal",
        "eps": "limits.{}.eps",
        "matrix": "matrix_bytes.{}",
    }
    rows = [[labels["format"], *(labels[column] for column in columns)]]
    for name in FORMATS:
        rows.append([labels[name], *(f"{{{{ number_formats.{path.format(name)} }}}}" for path in columns.values())])
    limits = values["number_formats.limits"] or {}
    for name, row in zip(FORMATS, rows[1:], strict=True):
        fields = (f"{{{{ number_formats.limits.{name}.{field}_bits }}}}" for field in ("exponent", "fraction"))
        row[1] = " + ".join((f"{row[1]} = 1", *fields))
        for column, key in enumerate(("smallest_normal", "smallest_subnormal", "eps"), start=3):
            digits = str(limits.get(name, {}).get(key, 0))
            if digits.startswith("0.") and len(digits) <= 9:  # a short fraction is shown as it is
                row[column] = row[column].replace(" }}", ":raw }}")
    return rows
