"""Numbers with units as a page writes them, and the arithmetic between them: 7e9 × 2 B = 14 GB."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

PREFIXES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12, "thousand": 10**3, "million": 10**6, "billion": 10**9}
SCALES |= {"trillion": 10**12, "千": 10**3, "万亿": 10**12, "万": 10**4, "亿": 10**8}
SECONDS = {"s": 1, "second": 1, "seconds": 1, "秒": 1, "minute": 60, "minutes": 60, "分钟": 60}
SECONDS |= {"hour": 3600, "hours": 3600, "小时": 3600, "day": 86400, "days": 86400, "天": 86400}
UNITS = {name: (Fraction(size), "s") for name, size in SECONDS.items()}
UNITS |= {name: (Fraction(1), "B") for name in ("byte", "bytes", "字节")}
UNITS |= {name: (Fraction(1), "") for name in ("×", "times", "倍")}
UNITS |= {name: (Fraction(1, 100), "") for name in ("%", "％")}
UNITS |= {f"{p}B": (Fraction(1000**n), "B") for p, n in PREFIXES.items()}
UNITS |= {f"{p}iB": (Fraction(1024**n), "B") for p, n in PREFIXES.items() if p not in "k"}
UNITS |= {f"{p}B/s": (Fraction(1000**n), "B/s") for p, n in PREFIXES.items()}
UNITS |= {f"{p}FLOP{s}": (Fraction(1000**n), "F") for p, n in PREFIXES.items() for s in ("", "s")}
UNITS |= {f"{p}FLOP/s": (Fraction(1000**n), "F/s") for p, n in PREFIXES.items()}
UNITS |= {name: (Fraction(1, size), "s") for name, size in {"ms": 10**3, "毫秒": 10**3, "ns": 10**9}.items()}
UNITS |= {name: (Fraction(1, 10**6), "s") for name in ("µs", "μs", "微秒")}
DIGITS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))

UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
NUMBER = re.compile(
    r"(?<![\w.])(?P<digits>\d[\d,]*(?:\.\d+)?)(?:e(?P<power>-?\d+)|\s*×\s*10(?P<raised>⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
    r"(?:(?P<letter>[KMBT])(?![\w/])|\s*(?P<word>thousand|million|billion|trillion|万亿|[千万亿]))?"
    rf"(?:\s*(?P<unit>{UNIT})(?![A-Za-z/])(?!\s*\d))?"
)
SIGN = re.compile(r"\s*(?P<sign>[×·*/÷+−–-])\s*")
START = re.compile(r"(?<![\w.])[(\d]")
EQUALS = re.compile(r"\s*(?P<sign>=|≈)\s*")
THING = re.compile(r"\s+[a-z]+(?=\s*[×·*/÷+−=≈)])|\s*个?[一-鿿]{1,4}(?=\s*[×·*/÷+−=≈)])")  # 8 sequences × …, 8 条 × …


class Quantity(NamedTuple):
    value: Fraction
    unit: dict[str, int]  # of bytes, FLOPs and seconds the power
    last: Fraction = Fraction(0)  # what the last digit counts
    significant: Fraction = Fraction(0)  # and the last that is not 0
    bare: bool = False  # without a unit

    def is_rounded(self, value: Fraction) -> bool:
        """Whether a value is this one, rounded as it is written."""
        return abs(value - self.value) <= self.last / 2

    def is_about(self, value: Fraction) -> bool:
        """Whether it is a fair rounding of a value: to its last digit that is not 0, and within a twentieth."""
        return bool(self.value) and abs(value - self.value) <= min(self.significant / 2, abs(value) / 20)


def quantity(match: re.Match[str]) -> Quantity:
    """What a match of NUMBER says."""
    digits = match["digits"].rstrip(",").replace(",", "")
    factor = Fraction(10) ** int(match["power"] or "".join(DIGITS[c] for c in match["raised"] or "") or 0)
    factor *= SCALES[match["letter"] or match["word"] or ""] if match["letter"] or match["word"] else 1
    size, of = UNITS[match["unit"]] if match["unit"] else (Fraction(1), "")
    factor *= size
    last = factor / 10 ** len(digits.partition(".")[2])
    zeros = len(digits) - len(digits.rstrip("0")) if "." not in digits else 0
    unit = {part: power for part, power in zip(of.split("/"), (1, -1), strict=False) if part}
    return Quantity(Fraction(digits) * factor, unit, last, last * 10**zeros, match["unit"] is None)


class Arithmetic(NamedTuple):
    start: int
    end: int
    text: str
    holds: bool


def arithmetic(text: str) -> Iterator[Arithmetic]:
    """What a text says in the form `a × b … = c` or `≈ c`, and whether it is so, rounded as c is written."""
    at = 0
    while first := START.search(text, at):
        at = first.end()
        try:
            reader = Reader(text, first.start())
            found, bare = reader.sum()
        except (ArithmeticError, SyntaxError):
            continue
        equals = EQUALS.match(text, reader.at)
        to = NUMBER.match(text, equals.end()) if equals else None
        if not reader.signs or not to:
            continue
        said = quantity(to)
        if bare and said.unit:  # 4 + 4 + 8 = 16 bytes
            said = quantity(next(NUMBER.finditer(text[: to.start("unit")].rstrip(), to.start())))
        holds = found.unit == said.unit and said.is_rounded(found.value)
        yield Arithmetic(first.start(), to.end(), text[first.start() : to.end()], holds)
        at = to.end()


class Reader:
    """Sums, products and parentheses, from a place on."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at, self.signs = text, at, 0

    def sum(self) -> tuple[Quantity, bool]:
        total, bare = self.product()
        while (sign := SIGN.match(self.text, self.at)) and sign["sign"] in "+−–-":
            self.at, self.signs = sign.end(), self.signs + 1
            other, also = self.product()
            if total.unit != other.unit:
                raise ArithmeticError("unlike units")
            total = Quantity(total.value + other.value * (1 if sign["sign"] == "+" else -1), total.unit)
            bare = bare and also
        return total, bare

    def product(self) -> tuple[Quantity, bool]:
        total, bare = self.factor()
        while (sign := SIGN.match(self.text, self.at)) and sign["sign"] in "×·*/÷":
            self.at, self.signs = sign.end(), self.signs + 1
            other, also = self.factor()
            power = 1 if sign["sign"] in "×·*" else -1
            unit = Counter(total.unit)
            unit.update({part: power * n for part, n in other.unit.items()})
            total = Quantity(total.value * other.value**power, {part: n for part, n in unit.items() if n})
            bare = bare and also
        return total, bare

    def factor(self) -> tuple[Quantity, bool]:
        if self.text.startswith("(", self.at):
            self.at += 1
            inside = self.sum()
            if not self.text.startswith(")", self.at):
                raise SyntaxError("no closing parenthesis")
            self.at += 1
            return inside
        match = NUMBER.match(self.text, self.at)
        if not match:
            raise SyntaxError("no number")
        found = quantity(match)
        self.at = match.end()
        if thing := THING.match(self.text, self.at):
            self.at = thing.end()
        return found, found.bare
