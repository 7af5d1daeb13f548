"""JSON, TOML and YAML as keys and values: `a.b` for what lies in a table, and texts read by one table, SCALARS.

PyYAML reads YAML 1.1, pages 1.2: a parser hands over texts, and what a text without quotes says is decided here. What
no table can settle, for 010 is 8 to the one and 10 to the other, stays a text, which no option takes for a number.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

MOST_KEYS = 20_000  # of a file, those that aliases repeat among them
MOST_DEPTH = 24
MOST_YAML = 2**18  # bytes: PyYAML takes some seconds for as many
LONGEST_NUMBER = 32  # characters
PYYAML = "YAML is read by PyYAML, which is not installed; pip install 'flops-bytes[files]', or pip install pyyaml"
WORDS: dict[str, Any] = {"null": None, "~": None, "": None}
WORDS |= dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)
SCALARS = (  # the table of corrections: what a bare text of YAML is, beside the words above
    (re.compile(r"[-+]?(?:0|[1-9][0-9_]*)", re.ASCII), int),
    (re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?", re.ASCII), float),
    (re.compile(r"[-+]?[1-9][0-9_]*[eE][-+]?[0-9]+", re.ASCII), float),  # 1e-5, to PyYAML a text
)
MARK = re.compile(r"line (\d+)", re.ASCII)
SECTION = re.compile(r"\s*\[\[?([^\]]+)\]", re.ASCII)


class NotThisFormat(ValueError):
    """The text is no JSON, TOML or YAML; why, and in which line, its parser says."""


def scalar(text: str) -> Any:
    """What a text without quotes stands for."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for pattern, kind in SCALARS:
        if len(text) < LONGEST_NUMBER and pattern.fullmatch(text):
            return kind(text.replace("_", ""))
    return text


def parse_json(text: str) -> Mapping[str, Any]:
    """An object of JSON, as Python reads it, with Infinity and NaN."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotThisFormat(f"line {error.lineno}: not JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise NotThisFormat("not JSON: nested too deep, or a number too long") from None
    return as_table(content, "JSON")


def parse_toml(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise NotThisFormat("not TOML: nested too deep") from None
    except ValueError as error:
        line = MARK.search(str(error))
        raise NotThisFormat(f"{f'line {line[1]}: ' if line else ''}not TOML: {error}") from None


def parse_yaml(text: str) -> Mapping[str, Any]:
    """A mapping of YAML. Nodes alone are asked of PyYAML, which makes no object of a tag; every alias is counted."""
    if len(text) > MOST_YAML:
        raise NotThisFormat(f"not YAML that is read here: it has more than {MOST_YAML:,} characters")
    try:
        import yaml
    except ModuleNotFoundError:
        raise NotThisFormat(PYYAML) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise NotThisFormat(yaml_problem(error)) from None
    except (RecursionError, ValueError):
        raise NotThisFormat("not YAML: nested too deep, or a character that it does not know") from None
    return as_table(Nodes().value(node, 0), "YAML")


def yaml_problem(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark else ""
    return f"{place}not YAML: {getattr(error, 'problem', None) or error}"


class Nodes:
    """PyYAML's nodes as values; each visit counts, so that aliases of aliases end."""

    def __init__(self) -> None:
        self.visits = 0

    def value(self, node: Any, depth: int) -> Any:
        self.visits += 1
        if self.visits > MOST_KEYS or depth > MOST_DEPTH:
            raise NotThisFormat("not YAML that is read here: too many values, aliases or levels")
        kind = getattr(node, "id", "")
        if kind == "sequence":
            return [self.value(each, depth + 1) for each in node.value]
        if kind == "mapping":
            return self.mapping(node, depth)
        if node is None:
            return None
        return scalar(node.value) if node.style is None else node.value

    def mapping(self, node: Any, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if isinstance(key.value, str) else ""
            if name == "<<":  # what an anchor holds, under what stands here
                found = self.value(value, depth + 1)
                for each in found if isinstance(found, list) else [found]:
                    merged = {**(each if isinstance(each, dict) else {}), **merged}
            else:
                own[name] = self.value(value, depth + 1)
        return merged | own


def as_table(content: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise NotThisFormat(f"not {what} with keys and values")
    return content


def flatten(table: Mapping[str, Any], whole: tuple[str, ...] = ()) -> dict[str, Any]:
    """Keys and values, those of a table under `table.key`, but of tables that are named as `whole`.

    Raises NotThisFormat for more than are read.
    """
    found: dict[str, Any] = {}
    for key, value in leaves(table, "", 0, whole):
        found[key] = value
        if len(found) > MOST_KEYS:
            raise NotThisFormat(f"it has more than {MOST_KEYS:,} keys")
    return found


def leaves(table: Mapping[str, Any], before: str, depth: int, whole: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if depth > MOST_DEPTH:
        raise NotThisFormat("its keys are nested too deep")
    for name, value in table.items():
        key = f"{before}{name}"
        if isinstance(value, Mapping) and value and key not in whole:
            yield from leaves(value, f"{key}.", depth + 1, whole)
        else:
            yield key, value


def line_of(text: str, key: str) -> int:
    """The line in which a key stands, whatever the format; 0 if it is not found."""
    lines, names = text.splitlines(), key.split(".")
    for length in range(len(names) - 1, 0, -1):  # [a.b] of TOML names two tables at once
        header = ".".join(names[:length])
        for number, line in enumerate(lines):
            section = SECTION.match(line)
            if section and section[1].strip() == header:
                return place_of(lines, names[length:], number)
    return place_of(lines, names, 0)


def place_of(lines: list[str], names: list[str], at: int) -> int:
    """The line in which the last of these names stands, each after the one before it; 0 if one does not."""
    for name in names:
        own = re.compile(rf"(?:^|[\s{{,\[])[\"']?{re.escape(name)}[\"']?\s*[:=]")
        found = next((n for n in range(at, len(lines)) if own.search(lines[n])), -1)
        if found < 0:
            return 0
        at = found
    return at + 1
