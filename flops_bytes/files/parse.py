"""JSON, TOML and YAML as keys and values, by Python's parsers and PyYAML.

PyYAML reads YAML 1.1, the page's parser 1.2: so of YAML nodes alone are asked for, whose bare texts formats.py reads.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from flops_bytes.files.formats import MOST_DEPTH, MOST_KEYS, scalar

MOST_YAML = 2**18  # bytes: PyYAML takes some seconds for as many
PYYAML = "YAML is read by PyYAML, which is not installed; pip install 'flops-bytes[files]', or pip install pyyaml"
MARK = re.compile(r"line (\d+)", re.ASCII)


class NotThisFormat(ValueError):
    """The text is no JSON, TOML or YAML; why, and in which line, its parser says."""


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
