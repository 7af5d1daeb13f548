"""What the suffix of a value's name says: its unit, whether it depends on the device, and how it is printed."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

UNITS = (  # the longest suffix first: a rate ends in _per_second, not in _second
    "_flop_per_second",
    "_bytes_per_second",
    "_per_second",
    "_bytes",
    "_flops",
    "_seconds",
    "_parameters",
    "_share",
    "_ratio",
    "mfu",
)
DEVICE_SUFFIXES = ("_seconds", "_per_second", "mfu")
DEVICE_PREFIXES = ("measured_", "predicted_")
DEVICE_PARTS = ("spread", "trials")  # of a Timing
FOUR_DIGITS = re.compile(r"(?<![\d,])(\d),(\d{3})(?![\d,])")  # which Chinese writes without a comma: 8192
FORMATS = ("short", "wan", "full", "plain", "gb", "sci", "percent", "times", "raw")
FORMAT = re.compile(rf"^(?:{'|'.join(FORMATS)}|\.\df%?)$")

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]

PER_CENT = {"en": " %", "zh": "%"}
TIMES = {"en": "×", "zh": " 倍"}
DASH = "—"  # what is printed for None: not to be had on this device


@cache
def unit_of(name: str) -> str:
    """The unit that a name carries, as its suffix without underscore ("" if none)."""
    return next((suffix.lstrip("_") for suffix in UNITS if name.lower().endswith(suffix)), "")


def unit_of_path(path: list[str]) -> str:
    """The unit of a value within dictionaries and lists: the last part that carries one, or is one, decides."""
    names = (f"_{part}" if within else part for within, part in enumerate(path))
    return next(filter(None, map(unit_of, reversed([*names]))), "")


def is_share_of_peak(path: list[str]) -> bool:
    """Whether a value is a share of what the hardware can do: at most 1, but for a clock above the datasheet's."""
    named = next(filter(unit_of, reversed(path)), "")
    return named.lower().endswith(("mfu", "peak_share"))


def is_device_value(path: list[str]) -> bool:
    """Whether a value depends on the device (seconds, rates, what was measured or predicted) or is exact.

    What stands under a CONSTANT was chosen or looked up, not measured: it is exact whatever its unit.
    """
    return not path[0].isupper() and any(
        part.endswith(DEVICE_SUFFIXES) or part.startswith(DEVICE_PREFIXES) or part in DEVICE_PARTS for part in path
    )


def format_value(value: Any, unit: str, style: str = "", language: str = "en") -> str:
    """A value as a page prints it. Raises ValueError for a style that does not fit the value."""
    if value is None:
        return DASH
    if style == "raw":
        return str(value)
    if isinstance(value, bool):
        if style:
            raise ValueError(f"format {style!r} is for numbers")
        return {"en": ("no", "yes"), "zh": ("否", "是")}[language][value]
    if isinstance(value, str):
        if style:
            raise ValueError(f"format {style!r} is for numbers")
        return value
    if not isinstance(value, int | float):
        raise ValueError(f"a page prints single values, not a {type(value).__name__}; quote one of its parts")
    text = _format_number(value, unit, style, language)
    return FOUR_DIGITS.sub(r"\1\2", text) if language == "zh" else text


def _format_number(value: int | float, unit: str, style: str, language: str) -> str:
    if style.endswith("f") and style.startswith("."):
        return f"{value:,{style}}"
    if style.endswith("f%"):
        return f"{value * 100:,{style[:-1]}}{PER_CENT[language]}"
    match style:
        case "plain":
            return _grouped(value)
        case "sci":
            return _scientific(value) + _symbol(unit)
        case "percent":
            return _rounded(value * 100, 3) + PER_CENT[language]
        case "times":
            return _rounded(value, 3) + TIMES[language]
        case "wan" if language == "zh":  # counted in ten thousands, as Chinese does
            return _scaled(value, 10_000, ("", "万", "亿", "万亿")).rstrip() + _symbol(unit)
        case "wan":
            return _short(value, unit)
        case "gb":
            return _scaled(value, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))
        case "full":
            return _grouped(value) + _symbol(unit)
        case "short" if unit != "bytes":
            return _short(value, unit)
    match unit:
        case "bytes":
            return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
        case "bytes_per_second":
            return _scaled(value, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"))
        case "flops" | "flop_per_second" | "parameters":
            return _short(value, unit)
        case "seconds":
            return _duration(value)
        case "share" | "mfu":
            return _rounded(value * 100, 3) + PER_CENT[language]
        case "ratio":
            return _rounded(value, 3) + TIMES[language]
        case "per_second":
            return f"{_grouped(value)}/s"
    return _grouped(value)


def _symbol(unit: str) -> str:
    symbols = {"bytes": " B", "flops": " FLOPs", "flop_per_second": " FLOP/s", "bytes_per_second": " B/s"}
    return {**symbols, "seconds": " s", "per_second": "/s"}.get(unit, "")


def _short(value: int | float, unit: str) -> str:
    if unit in ("flops", "flop_per_second"):
        name = "FLOPs" if unit == "flops" else "FLOP/s"
        if abs(value) >= 1e18 and unit == "flops":
            return f"{_scientific(value)} {name}"
        return _scaled(value, 1000, tuple(prefix + name for prefix in ("", "k", "M", "G", "T", "P", "E")))
    return _scaled(value, 1000, ("", "K", "M", "B", "T")).replace(" ", "") + _symbol(unit)


def _scaled(value: int | float, base: int, names: tuple[str, ...]) -> str:
    """Three digits and the largest name that keeps the number at 1 or more; whole numbers stay whole."""
    power = 0
    while power < len(names) - 1 and abs(value) / base**power >= base * (1 - 0.0005):
        power += 1
    scaled = value / base**power
    return f"{int(scaled):,} {names[power]}" if scaled == int(scaled) else f"{_rounded(scaled, 3)} {names[power]}"


def _duration(seconds: float) -> str:
    for limit, factor, name in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit * (1 - 0.0005):
            return f"{_rounded(seconds * factor, 3)} {name}"
    return f"{_rounded(seconds, 3)} s"


def _grouped(value: int | float) -> str:
    """All digits of an integer, four of a float, with commas; very large or small floats as a power of ten."""
    if isinstance(value, int):
        return f"{value:,}"
    if value and not 1e-4 <= abs(value) < 1e15:
        return _scientific(value)
    return f"{int(value):,}" if value == int(value) else _rounded(value, 4)


def _scientific(value: int | float) -> str:
    if not value:
        return "0"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _rounded(value: float, digits: int) -> str:
    """A number to so many significant digits, without an exponent."""
    rounded = float(f"{value:.{digits - 1}e}")
    if not rounded:
        return "0"
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{rounded:,.{decimals}f}"
