"""What a file is, by what it holds: keys and values, a message, or what a command of its own reads."""

import ast
import gzip
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.files.formats import formats_of, named_format, problem_of
from flops_bytes.files.out_of_memory import decode
from flops_bytes.files.parse import PYYAML, NotThisFormat, parse_json, parse_toml, parse_yaml
from flops_bytes.model.shapes import abbreviated

MOST_BYTES = 2**24  # of a text; of a longer one, which may be a log, the end
HEAD_BYTES = 2**16  # of what a trace begins with
GZIP, PICKLE = b"\x1f\x8b", b"\x80"
TRACE = re.compile(r'"(?:traceEvents|deviceProperties)"\s*:|^\s*\[\s*\{\s*"(?:ph|name|pid)"\s*:')
FORMATS: dict[str, Callable[[str], Mapping[str, Any]]] = {"json": parse_json, "toml": parse_toml, "yaml": parse_yaml}
UNREAD = (("MPS backend out of memory", "mps"), ("RESOURCE_EXHAUSTED", "xla"))  # messages of others


class Content(NamedTuple):
    """A file: its kind is `table`, `message`, or the command that reads it."""

    path: str
    kind: str
    text: str = ""
    table: Mapping[str, Any] = {}
    written_in: str = ""  # json, toml or yaml, of a table


def content_of(path: str) -> Content:
    """What a file is. Raises ValueError that names it, and the line, if it is nothing that is read."""
    held, is_cut = read_bytes(path)
    if held.startswith(GZIP):
        held = unzipped(path)
        if held.startswith(PICKLE):
            raise ValueError(f"{path}: it is a compressed snapshot; unzip it first")
    if held.startswith(PICKLE):
        return Content(path, "snapshot")
    text = decoded(path, held, is_cut)
    if TRACE.search(text[:HEAD_BYTES]):
        return Content(path, "trace")
    if is_script(path, text):
        return Content(path, "count")
    for mark, name in UNREAD:
        if mark in text and not decode(text):
            raise ValueError(f"{path}: {message_words()[name]}")
    problems: dict[str, str] = {}
    for name in formats_of(path, text):
        try:
            return Content(path, "table", text, FORMATS[name](text), name)
        except NotThisFormat as error:
            problems[name] = str(error)
    if decode(text):
        return Content(path, "message", text)
    why = PYYAML if PYYAML in problems.values() else problem_of(path, text, problems)
    raise ValueError(f"{path}: {why}")


def read_bytes(path: str) -> tuple[bytes, bool]:
    """The last MOST_BYTES of a file, and whether it has more."""
    try:
        if not (Path(path).is_file() or Path(path).is_fifo()):
            raise OSError("it is a folder or a device" if Path(path).exists() else "there is no such file")
        with open(path, "rb") as file:
            head = file.read(MOST_BYTES)
            rest = file.read(1)
            if not rest or head.startswith((GZIP, PICKLE)) or TRACE.search(head[:HEAD_BYTES].decode("utf-8", "ignore")):
                return head, False
            file.seek(-MOST_BYTES, 2)
            return file.read(MOST_BYTES), True
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{abbreviated(path)}: it cannot be read: {why}") from None


def unzipped(path: str) -> bytes:
    """The beginning of what a compressed file holds."""
    try:
        with gzip.open(path, "rb") as file:
            return file.read(HEAD_BYTES)
    except (OSError, EOFError, ValueError):
        raise ValueError(f"{path}: it begins as a compressed file and is none; give it whole") from None


def decoded(path: str, held: bytes, is_cut: bool) -> str:
    for name in ("utf-8-sig", "utf-16"):
        if name == "utf-8-sig" or held[:2] in (b"\xff\xfe", b"\xfe\xff"):
            try:
                return held.decode(name, "ignore" if is_cut else "strict")
            except UnicodeDecodeError as error:
                line = held[: error.start].count(b"\n") + 1
    try:
        decode_able = held.decode("latin-1")
        if decode(decode_able):  # a log with bytes of a progress bar cut in two
            return decode_able
    except ValueError:
        pass
    raise ValueError(f"{path}: line {line}: it is no text; give a configuration, a log, a snapshot or a trace")


def is_script(path: str, text: str) -> bool:
    """Whether a text is Python that imports something; a file named .py is, whatever it holds."""
    if Path(path).suffix == ".py":
        return True
    if named_format(path) or not re.search(r"^(?:import|from) \w", text, re.MULTILINE):
        return False
    try:
        return any(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


@cache
def message_words() -> dict[str, Any]:
    """What is said of messages, in English."""
    return tomllib.loads(Path(__file__).with_name("messages.toml").read_text(encoding="utf-8"))
