"""What the texts of JSON, TOML and YAML say: which format a text is in, its keys as `a.b`, their lines, a bare word.

In a terminal, and translated for the page, whose parsers are others: so what two YAMLs read differently is decided
here, by one table. What no table can settle, for 010 is 8 to the one and 10 to the other, stays a text, which no option
takes for a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flops_bytes.files.out_of_memory import decode

MOST_KEYS = 20_000  # of a file, those that aliases repeat among them
MOST_DEPTH = 24
LONGEST_NUMBER = 32  # characters
WORDS: dict[str, Any] = {"null": None, "~": None, "": None}
WORDS |= dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)
# The table of corrections: what a bare text of YAML is, beside the words above.
WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)", re.ASCII)
FRACTIONS = (
    re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?", re.ASCII),
    re.compile(r"[-+]?[1-9][0-9_]*[eE][-+]?[0-9]+", re.ASCII),  # 1e-5, to PyYAML a text
)
KEY = re.compile(r"""[\w\."' -]+""", re.ASCII)
TABLE = re.compile(r"""\[[\w\."' -]+\]""", re.ASCII)
SUFFIXES = {"json": "json", "toml": "toml", "yaml": "yaml", "yml": "yaml"}


def scalar(text: str) -> Any:
    """What a text without quotes stands for."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if len(text) < LONGEST_NUMBER:
        if WHOLE.fullmatch(text):
            return int(text.replace("_", ""))
        if any(pattern.fullmatch(text) for pattern in FRACTIONS):
            return float(text.replace("_", ""))
    return text


def flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Keys and values, those of a table under `table.key`. Raises ValueError for more than are read."""
    found: dict[str, Any] = {}
    for key, value in leaves(table, "", 0):
        found[key] = value
        if len(found) > MOST_KEYS:
            raise ValueError(f"it has more than {MOST_KEYS:,} keys")
    return found


def leaves(table: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > MOST_DEPTH:
        raise ValueError("its keys are nested too deep")
    for name, value in table.items():
        key = f"{before}{name}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{key}.", depth + 1)
        else:
            yield key, value


def named_format(path: str) -> str:
    """The format that a file's name says, or nothing."""
    ending = path.split("/")[-1].lower().split(".")
    return SUFFIXES.get(ending[-1], "") if len(ending) > 1 else ""


def formats_of(path: str, text: str) -> list[str]:
    """The formats that a text may be of, its name's own first."""
    lines = text.split("\n")
    named = named_format(path)
    looks = [named] if named else []
    if text.strip().startswith("{"):
        looks.append("json")
    if any(is_of_toml(line.strip()) for line in lines):
        looks.append("toml")
    if any(is_of_yaml(line) for line in lines) and not decode(text):
        looks.append("yaml")
    return list(dict.fromkeys(looks))


def is_of_toml(line: str) -> bool:
    """Whether a line gives a key its value, or begins a table."""
    key, sign, value = line.partition("=")
    is_assigned = sign and KEY.fullmatch(key) and " " not in key.strip() and value[:1] in ("", " ", "\t")
    return bool(is_assigned or TABLE.fullmatch(line.partition("#")[0].strip()))


def is_of_yaml(line: str) -> bool:
    key, sign, value = line.partition(":")
    return bool(sign and KEY.fullmatch(key) and value[:1] in ("", " ", "\t", "\r"))


def problem_of(path: str, text: str, problems: Mapping[str, str]) -> str:
    """Why a file is nothing that is read: the complaint of the format that its name says, or it seems to be in."""
    if not text.strip():
        return "it is empty"
    named = named_format(path) or ", ".join(list(problems)[:1])
    return problems.get(named, "it is no configuration, message, snapshot, trace or script that is known")


def line_of(text: str, key: str) -> int:
    """The line in which a key stands, whatever the format; 0 if it is not found."""
    lines, names = text.split("\n"), key.split(".")
    for length in range(1, len(names)):  # [a.b] of TOML names two tables at once
        header, last = ".".join(names[: len(names) - length]), names[len(names) - length :]
        for number, line in enumerate(lines):
            if section_of(line) == header:
                return place_of(lines, last, number)
    return place_of(lines, names, 0)


def section_of(line: str) -> str:
    """The table that a line of TOML begins, or nothing."""
    bare = line.strip()
    return bare.replace("[", "").partition("]")[0].strip() if bare.startswith("[") and "]" in bare else ""


def place_of(lines: list[str], names: list[str], at: int) -> int:
    """The line in which the last of these names stands, each after the one before it; 0 if one does not."""
    for name in names:
        found = next((n for n, line in enumerate(lines) if n >= at and says(line, name)), -1)
        if found < 0:
            return 0
        at = found
    return at + 1


def says(line: str, name: str) -> bool:
    """Whether a name stands in a line as a key."""
    parts = line.split(name) if name else [line]
    for n in range(1, len(parts)):
        before, after = parts[n - 1], parts[n].strip()
        quoted = before[-1:] in ("'", '"') and before != ""
        before = before[: len(before) - 1] if quoted else before
        after = after[1:].strip() if quoted else after
        starts = before == "" or before[-1:] in (" ", "\t", "{", ",", "[")
        if starts and (after.startswith(":") or after.startswith("=")):
            return True
    return False
