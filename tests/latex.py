r"""The book's formulas in LaTeX as numbers: `2TM + 4T^2LHQ` for given values of its letters.

sympy's two readers take `dL` for one name, `p(2n - 1)` for a function, and stop at `T^2d`; so this one is ours, of what
the pages write and no more. A name is a letter or \text{…}, with what stands below it: `A_\text{layer}` is
`A_layer`, `w_i^*` is `w_i_star`, `\hat m` is `hat_m`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

TOKEN = re.compile(
    r"\\(?:text|mathrm)\{(?P<word>[^{}]*)\}|\\(?P<command>[A-Za-z]+)|(?P<number>\d+(?:\.\d+)?)|(?P<letter>[A-Za-z]'?)"
    r"|(?P<sign>[-+*/^_(){},=])"
)
SPACE = re.compile(r"\\[,;:! ]|\\(?:left|right|Big|q?quad)(?![A-Za-z])|\s+|&")
GREEK = {"alpha", "beta", "eta", "mu", "nu", "sigma", "varepsilon", "ell"}
CLOSING = {")", "}", ",", "rceil", "end"}
FUNCTIONS = {"ceil": math.ceil, "max": max, "sqrt": lambda x: x**0.5, "log": math.log, "total": sum}
RELATIONS = {"=": "=", ":": ":", r"\approx": "≈", r"\ge": "≥", r"\le": "≤", r"\leftarrow": "←"}


class Line(NamedTuple):
    """One of a formula's equations: what stands between its relations, and these."""

    sides: list[str]
    relations: str


def lines(tex: str) -> Iterator[Line]:
    """Those of a display formula: between \\qquad and line breaks."""
    tex = re.sub(r"\\(?:begin|end)\{\w+\}", "", tex)
    for line in re.split(r"\\\\|\\qquad|, \\; (?=\w =)", tex):
        parts = re.split(r"(\\approx|\\[gl]e(?![a-z])|\\leftarrow|=(?![^{]*\})|:)", line)
        yield Line(parts[::2], "".join(RELATIONS[part] for part in parts[1::2]))


def value(tex: str, values: Mapping[str, Any]) -> Any:
    """Of one side of an equation. Raises ValueError for what cannot be read, NameError for a letter without value."""
    return eval(Reader(tex).code(), {"__builtins__": FUNCTIONS}, values)


def name_of(tex: str) -> str:
    """The name that all of it is, or none."""
    code = Reader(tex).code()
    return code if code.isidentifier() else ""


class Reader:
    """Turns LaTeX into Python, from left to right."""

    def __init__(self, tex: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        text, at = SPACE.sub(" ", tex), 0
        for match in TOKEN.finditer(text):
            if text[at : match.start()].strip():
                raise ValueError(f"{text[at : match.start()]!r} of {tex!r} cannot be read")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind]))
            at = match.end()
        self.tokens.append(("sign", "end"))

    @property
    def next(self) -> str:
        return self.tokens[0][1]

    def take(self, expected: str = "") -> str:
        if expected and self.next != expected:
            raise ValueError(f"{self.next!r} where {expected!r} belongs")
        return self.tokens.pop(0)[1]

    def code(self) -> str:
        found = self.sum()
        self.take("end")
        return found

    def sum(self) -> str:
        found = self.take() if self.next in "+-" else ""
        found += self.product()
        while self.next in ("+", "-"):
            found += self.take() + self.product()
        return found

    def product(self) -> str:
        found, slashed = self.power(), False
        while self.next not in CLOSING | {"+", "-"}:
            sign = self.take() if self.next in ("/", "cdot") else ""
            if slashed and not sign:
                raise ValueError(f"does what follows {found} stand below the line? Write brackets")
            slashed = sign == "/"
            found += ("/" if slashed else "*") + self.power()
        return found

    def power(self) -> str:
        found = self.factor()
        if found.endswith(")") and self.next == "_":  # the format of what is in brackets
            self.bounds()
        if self.next == "^":
            self.take()
            found = f"{found}**({self.group()})"
        return found

    def group(self) -> str:
        """What is in braces, or one letter or number."""
        if self.next != "{":
            return self.factor()
        self.take()
        found = self.sum()
        self.take("}")
        return found

    def between(self, end: str) -> str:
        found = [self.sum()]
        while self.next == ",":
            self.take()
            found.append(self.sum())
        self.take(end)
        return ",".join(found)

    def factor(self) -> str:
        kind, text = self.tokens[0]
        self.take()
        if kind == "number":
            return text
        if kind in ("letter", "word") or text in GREEK:
            if text == "ell" and self.next == "(":  # of what
                self.take()
                self.between(")")
            return self.name(re.sub(r"\W+", "_", text.replace("'", "_new").strip()))
        if text == "hat":
            return "hat_" + self.factor()
        if text in ("(", "{"):
            return f"({self.between(')' if text == '(' else '}')})"
        if text in ("frac", "tfrac", "dfrac"):
            over = self.group()
            return f"(({over})/({self.group()}))"
        if text == "lceil":
            return f"ceil({self.between('rceil')})"
        if text == "sqrt":
            return f"sqrt({self.group()})"
        if text == "max":
            self.take("(")
            return f"max({self.between(')')})"
        if text == "ln":
            return f"log({self.factor()})"
        if text == "sum":  # over all that a name with an index is
            while self.next in ("_", "^"):
                self.bounds()
            return f"total({self.product()})"
        raise ValueError(f"{text!r} cannot be read")

    def bounds(self) -> None:
        """Below or above a sum: which index it is stands in the names, and all begin at 1."""
        self.take()
        below = self.take()
        while below.count("{") > below.count("}"):
            below += self.take()
        if re.search(r"=(?!1\})", below):
            raise ValueError(f"a sum begins at 1, not at {below}")

    def name(self, found: str) -> str:
        if self.next == "_":
            self.take()
            below = self.take()
            while below.count("{") > below.count("}"):
                below += self.take()
            found += "_" + re.sub(r"\W+", "_", below.strip("{}"))
        if self.next == "^" and self.tokens[1][1] == "*":
            self.take()
            self.take()
            found += "_star"
        return found
