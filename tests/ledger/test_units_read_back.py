"""A printed value reads back as the value, within its rounding: over the whole range of its unit, in both languages."""

from __future__ import annotations

import itertools
import re

import pytest

from ledger.units import DASH, format_value

# What a reader takes each unit for: names of a value's unit, and how many of it one of what is printed is.
DECIMAL = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
TIMES = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
FLOPS = {f" {prefix}FLOPs": DECIMAL[prefix] for prefix in ("", "k", "M", "G", "T", "P", "E")}
READ: dict[str, dict[str, float]] = {
    "bytes": {f" {prefix}B": factor for prefix, factor in BINARY.items()},
    "bytes_per_second": {f" {prefix}B/s": DECIMAL[prefix] for prefix in ("", "k", "M", "G", "T", "P")},
    "flops": FLOPS,
    "flop_per_second": {name.replace("FLOPs", "FLOP/s"): factor for name, factor in FLOPS.items()},
    "parameters": {prefix: DECIMAL[prefix] for prefix in ("", "K", "M", "B", "T")},
    "seconds": {f" {name}": factor for name, factor in TIMES.items()},
    "share": {" %": 0.01, "%": 0.01},
    "mfu": {" %": 0.01, "%": 0.01},
    "ratio": {"×": 1, " 倍": 1},
    "per_second": {"/s": 1},
    "": {"": 1},
}
STYLES: dict[str, dict[str, float]] = {
    "gb": {f" {prefix}B": DECIMAL[prefix] for prefix in ("", "k", "M", "G", "T", "P")},
    "wan": {"": 1, " 万": 1e4, " 亿": 1e8, " 万亿": 1e12, **READ["parameters"]},
    "short": READ["parameters"],
    "percent": READ["share"],
    "times": READ["ratio"],
    "plain": {"": 1},
    "full": {"": 1},
    "sci": {"": 1},
    ".1f%": READ["share"],
    ".3f": {"": 1},
}
LANGUAGES = {"en": (" %", "×", ""), "zh": ("%", " 倍", " 万", " 亿", " 万亿")}  # what only one of them writes
PRINTED = re.compile(r"(?P<number>-?\d[\d,.]*)(?: × 10(?P<power>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?(?P<unit>.*)")
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
BORDERS = [
    *(base**power for base in (10, 1000, 1024, 10_000) for power in range(-12, 26) if 1e-12 < base**power < 1e25),
    60.0, 3600.0, 86_400.0,
]  # fmt: skip
FACTORS = (0.5, 0.99, 0.9994, 0.9996, 1, 1.0004, 1.001, 1.5, 2.345, 9.995, 99.96, 999.4, 999.96)


def read(text: str, factors: dict[str, float]) -> tuple[float, float]:
    """The number that a text says, and how far off it may be: half of its last digit, or of the third from the left."""
    found = PRINTED.fullmatch(text)
    assert found and found["unit"] in factors, f"{text!r} has none of the units {sorted(factors)}"
    factor = factors[found["unit"]] * 10.0 ** int((found["power"] or "0").translate(RAISED))
    whole, _, decimals = found["number"].replace(",", "").partition(".")
    digit = 10.0 ** max(-len(decimals), len(whole.lstrip("-")) - 3 if not decimals else -len(decimals))
    return float(f"{whole}.{decimals}") * factor, 0.5 * digit * factor


def values(unit: str, whole: bool) -> list[float]:
    """Values of all sizes, those at the borders of prefixes and roundings among them."""
    found = {border * factor for border, factor in itertools.product(BORDERS, FACTORS)}
    if whole:
        return sorted({round(value) for value in found if 1 <= value < 1e21})
    limits = {"share": (1e-6, 100), "mfu": (1e-4, 2), "ratio": (1e-4, 1e9), "seconds": (1e-11, 1e9)}
    low, high = limits.get(unit, (1e-6, 1e24))
    return sorted(value for value in found if low <= value <= high)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("unit", READ)
def test_a_unit_reads_back(unit: str, language: str) -> None:
    foreign = set(LANGUAGES["zh" if language == "en" else "en"]) - set(LANGUAGES[language]) - {""}
    factors = {name: factor for name, factor in READ[unit].items() if name not in foreign}
    for whole in (False, True):
        for value in values(unit, whole):
            text = format_value(int(value) if whole else value, unit, language=language)
            number, error = read(text, factors)
            assert abs(number - value) <= error * 1.0001 + abs(value) * 1e-12, f"{value!r} is printed as {text}"
            assert number == value or error <= 0.006 * value, f"{value!r} is printed as {text}"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("style", STYLES)
def test_a_format_reads_back(style: str, language: str) -> None:
    foreign = set(LANGUAGES["zh" if language == "en" else "en"]) - set(LANGUAGES[language]) - {""}
    factors = {name: factor for name, factor in STYLES[style].items() if name not in foreign}
    unit = {"percent": "share", ".1f%": "share", "times": "ratio"}.get(style, "")
    for value in values(unit, whole=style in ("gb", "wan", "short", "full", "sci")):
        text = format_value(value, "", style, language)
        number, error = read(text, factors)
        assert abs(number - value) <= error * 1.0001 + abs(value) * 1e-12, f"{value!r} is printed as {text}"


@pytest.mark.parametrize("unit", [unit for unit in READ if unit not in ("bytes", "parameters")])
def test_a_small_negative_and_nothing_read_back(unit: str) -> None:
    for value in (-0.25, -3.0, 0.0):
        number, error = read(format_value(value, unit), READ[unit])
        assert abs(number - value) <= error
    assert format_value(None, unit) == DASH
