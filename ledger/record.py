"""Records: one JSON file for one snippet on one device, with its provenance. Written whole or not at all."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from ledger.book import Book, LedgerError, Problem
from ledger.device import SLUG, machine_key
from ledger.environment import describe_environment
from ledger.run import Run
from ledger.snippet import Snippet
from ledger.units import Plain, is_device_value, is_share_of_peak, unit_of_path

FORMAT = 1
MAX_RECORD_BYTES = 1024 * 1024
COUNTED_ELSEWHERE = {"*": "counted elsewhere"}  # carried first, without a measured value, on a device not at hand
STAND_IN = "stand-in"  # the driver that a stand-in for a GPU calls itself
MAX_DEPTH = 20
MOST_SECONDS = 1e6  # for which a snippet runs
# Categories of characters that are not seen, or change how others are shown: controls, formats, halves, private ones,
# which ledger.text has, and ends of lines and paragraphs. Beside them letters that are blank.
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
BLANK = "\u115f\u1160\u3164\uffa0"
MOST_BY_UNIT = {"seconds": 1e9, "bytes": 1e18, "flops": 1e30, "parameters": 1e15, "ratio": 1e9, "share": 1e3}
MOST_BY_UNIT |= dict.fromkeys(("flop_per_second", "bytes_per_second", "per_second"), 1e21)
NEVER_ZERO = ("seconds", "flop_per_second", "bytes_per_second", "per_second")  # where a device measures them
FIRST_DAY = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)  # before which nothing was recorded
MARKUP = re.compile(r"<|\]\(|\{\{")  # a table's cell is Markdown
LOCAL = "this-machine"  # the device that local runs appear as
NO_FILE = "neither a file nor a folder; remove it"


@dataclass(frozen=True)
class Record:
    """What one snippet gave on one device, and where, when and with what."""

    snippet: str
    hash: str
    measured_at: str  # UTC, ISO 8601
    seconds: float
    device: dict[str, Any]
    software: dict[str, Any]
    values: dict[str, Plain]
    outputs: dict[str, str]
    carried: list[dict[str, Any]] = field(default_factory=list)  # over which changes of code; see ledger/carry.py

    @classmethod
    def of(cls, snippet: Snippet, run: Run, states: dict[str, Any] | None = None) -> Record:
        """A record of a run that ended now; `states` are the GPU's clocks and temperature before and during it."""
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
        device = run.device | {key: state for key, state in (states or {}).items() if state}
        environment = describe_environment()
        software = run.software | ({"environment": environment} if environment else {})
        return cls(snippet.name, snippet.hash, now, run.seconds, device, software, run.values, run.outputs)

    def write(self, path: Path) -> None:
        """Atomically: whoever reads path finds the old record or the new one, whole."""
        text = self._text()
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except OSError as error:  # of a full disk the system names no file
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            error.filename = str(path)
            raise

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record at path. Raises LedgerError, naming the file, if it is not a valid one."""
        data = _read(path)
        del data["format"]
        return cls(**data)

    def problems(self) -> list[str]:
        """All for which it would be refused when it is read."""
        try:
            _parse(self._text().encode(errors="surrogatepass"), Path(f"{self.snippet}.json"))
        except LedgerError as error:
            return [problem.message for problem in error.problems]
        return []

    def _text(self) -> str:
        data = {"format": FORMAT, **asdict(self)}
        if not self.carried:
            del data["carried"]
        return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @cached_property
    def largest_spread(self) -> tuple[float, int] | None:
        """The widest spread of the timings in this record, and that timing's trials; None if it holds no timing."""
        widest = max(timings(self.values).values(), key=lambda timing: timing["spread"], default=None)
        return (widest["spread"], widest["trials"]) if widest else None

    @property
    def is_counted_elsewhere(self) -> bool:
        """Whether it came to be without its device, which was not at hand: it holds exact values alone."""
        return bool(self.carried) and self.carried[0]["renamed"] == COUNTED_ELSEWHERE

    @property
    def is_rehearsed(self) -> bool:
        """Whether it comes from a stand-in for a GPU, whose kernels compute nothing: no measurement."""
        return any(isinstance(state, dict) and state.get("driver") == STAND_IN for state in self.device.values())

    def over_peak(self) -> list[str]:
        """Names of values that claim more than the peak: a card may boost above its datasheet's clock, a little."""
        found: list[str] = []

        def look(path: list[str], value: Plain) -> None:
            if isinstance(value, dict):
                for key, item in value.items():
                    look([*path, key], item)
            elif isinstance(value, float) and value > 1 and is_share_of_peak(path):
                found.append(".".join(path))

        look([], self.values)
        return found


def timings(value: Plain, path: str = "") -> dict[str, dict[str, Any]]:
    """The timings within a value, by their place in it: `copies.plain`."""
    if not isinstance(value, dict | list):
        return {}
    found: dict[str, dict[str, Any]] = {}
    if isinstance(value, dict):
        if all(isinstance(value.get(part), int | float) for part in ("median_seconds", "spread", "trials")):
            found[path] = value
        items = list(value.items())
    else:
        items = [(str(index), item) for index, item in enumerate(value)]
    for key, item in items:
        found |= timings(item, f"{path}.{key}".lstrip("."))
    return found


# Validation. A record may come from elsewhere: it is data, and nothing in it is trusted.

SHAPE: dict[str, type | tuple[type, ...]] = {
    "format": int,
    "snippet": str,
    "hash": str,
    "measured_at": str,
    "seconds": (int, float),
    "device": dict,
    "software": dict,
    "values": dict,
    "outputs": dict,
}
OPTIONAL: dict[str, type | tuple[type, ...]] = {"carried": list}
CARRIED = {"at": str, "measured_hash": str, "confirmed_on": str, "renamed": dict, "rounded": dict}


def _read(path: Path) -> dict[str, Any]:
    """What the file at path holds. Raises LedgerError with all that keeps it from being a record."""
    if path.is_symlink():
        raise LedgerError([Problem(path, 0, "a link, not a file")])
    with open(path, "rb", opener=_open_at_once) as file:  # read once: another may be written meanwhile
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise LedgerError([Problem(path, 0, NO_FILE)])
        text = file.read(MAX_RECORD_BYTES + 1)
    return _parse(text, path)


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    """What the text of the record at path says, which a run's is held to before it is written."""
    if len(text) > MAX_RECORD_BYTES:
        raise LedgerError([Problem(path, 0, f"larger than {MAX_RECORD_BYTES} bytes")])
    try:
        data = json.loads(text, parse_constant=_refuse, parse_float=_float, parse_int=_int, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise LedgerError([Problem(path, line, f"not a record, or a truncated one: {error}")]) from None
    if not isinstance(data, dict):
        raise LedgerError([Problem(path, 1, f"not a record: a JSON {type(data).__name__}, not an object")])
    if data.get("format") != FORMAT:
        raise LedgerError([Problem(path, 0, f"format {data.get('format')!r}; this ledger reads format {FORMAT}")])
    if _is_deeper(data, MAX_DEPTH):
        raise LedgerError([Problem(path, 0, f"nested more than {MAX_DEPTH} deep")])
    if problems := [Problem(path, 0, message) for message in _messages(data, path)]:
        raise LedgerError(problems)
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Opens without waiting for who would write: a pipe's other end may never come."""
    return os.open(path, flags | os.O_NONBLOCK)


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects are nested deeper than that. Calls no function for each level, which Python limits."""
    level = [value]
    for _ in range(depth):
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [item for each in inner for item in (each.values() if isinstance(each, dict) else each)]
    return any(isinstance(each, dict | list) for each in level)


def _messages(data: dict[str, Any], path: Path) -> Iterator[str]:
    for key in sorted(SHAPE.keys() - data.keys()):
        yield f"{key!r} is missing"
    for key in sorted(data.keys() - SHAPE.keys() - OPTIONAL.keys()):
        yield f"{key!r} does not belong in a record"
    for key, kind in (SHAPE | OPTIONAL).items():
        if key in data and (not isinstance(data[key], kind) or isinstance(data[key], bool)):
            yield f"{key!r} is a {type(data[key]).__name__}"
            return
    if not SHAPE.keys() <= data.keys():
        return
    for place, text in _texts(data):
        if hidden := _hidden(text):
            why = f"a text with the character U+{ord(hidden):04X}, which is not seen or changes how others are shown"
            yield f"{'.'.join(place)[:100]}: {why}"
        elif place[:1] == ("values",) and (bad := MARKUP.search(text)):
            yield f"{'.'.join(place)[:100]}: a text with {bad[0]!r}, which a page would take for markup"
    if data["snippet"] != path.stem:
        yield f"is named {path.stem!r} but is a record of {data['snippet']!r}"
    if not re.fullmatch(r"[0-9a-f]{64}", data["hash"]):
        yield "'hash' is no SHA-256"
    if why := _why_no_date(data["measured_at"]):
        yield f"'measured_at' {why}"
    if not 0 <= data["seconds"] <= MOST_SECONDS:
        yield f"'seconds' is {data['seconds']:g}: no time that a snippet runs"
    for key in ("id", "kind", "name"):
        if not isinstance(data["device"].get(key), str) or not 0 < len(data["device"][key].strip()) <= 100:
            yield f"device.{key} is missing or no short text"
    device_id = data["device"].get("id")
    if isinstance(device_id, str) and (device_id == LOCAL or not SLUG.fullmatch(device_id)):
        yield f"device.id is {device_id!r}; it has small letters, digits and single hyphens, and is not {LOCAL!r}"
    if data["device"].get("kind") not in ("cpu", "cuda"):
        yield f"device.kind is {data['device'].get('kind')!r}, neither 'cpu' nor 'cuda'"
    for key in ("torch", "python"):
        if not isinstance(data["software"].get(key), str):
            yield f"software.{key} is missing"
    environment = data["software"].get("environment", {})
    if not isinstance(environment, dict) or not all(isinstance(text, str) for text in environment.values()):
        yield "software.environment is no object of texts"
    if not all(
        text is None or (isinstance(text, str) and len(text) <= 100)
        for key, text in data["software"].items()
        if key != "environment"
    ):
        yield "software holds more than short texts"
    if not all(isinstance(text, str) for text in data["outputs"].values()):
        yield "an output is no text"
    for index, note in enumerate(data.get("carried", [])):
        if why := _why_no_note(note):
            yield f"carried.{index}: {why}"
    for name, value in data["values"].items():
        yield from _value_messages([name], value)


def _why_no_note(note: Any) -> str:
    """What is wrong with a note of how a record was carried over a change of code; empty if nothing is."""
    if not isinstance(note, dict) or note.keys() != CARRIED.keys():
        return f"no object of {', '.join(CARRIED)}"
    for key, kind in CARRIED.items():
        if not isinstance(note[key], kind):
            return f"{key!r} is a {type(note[key]).__name__}"
    texts = [text for key in ("renamed", "rounded") for pair in note[key].items() for text in pair]
    if not all(isinstance(text, str) and len(text) <= 100 for text in (*texts, note["confirmed_on"])):
        return "holds more than short texts"
    if not re.fullmatch(r"[0-9a-f]{64}", note["measured_hash"]):
        return "'measured_hash' is no SHA-256"
    return f"'at' {why}" if (why := _why_no_date(note["at"])) else ""


def _why_no_date(text: str) -> str:
    """Why a record cannot be of a date; empty if it can. A clock may be wrong by a day."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return f"is no date: {text!r}"
    moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    latest = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    return "" if FIRST_DAY <= moment <= latest else f"is {text!r}, when nothing can have been recorded"


def _hidden(text: str) -> str:
    """The first character of a text that is not seen, or changes how others are shown; empty if none is."""
    in_line = text.replace("\n", "").replace("\t", "")
    if in_line.isascii() and in_line.isprintable():  # as nearly all are
        return ""
    return next((each for each in in_line if unicodedata.category(each) in HIDDEN or each in BLANK), "")


def _value_messages(path: list[str], value: Any) -> Iterator[str]:
    """What cannot be true of a value: a negative amount, more than the peak or than there is, a time in words."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _value_messages([*path, key], item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _value_messages([*path, str(index)], item)
    else:
        yield from _scalar_messages(path, value)


def _scalar_messages(path: list[str], value: Any) -> Iterator[str]:
    name, unit, is_device = ".".join(path), unit_of_path(path), is_device_value(path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0 and unit:
            yield f"{name} is {value:g}, less than nothing"
        elif not value and unit in NEVER_ZERO and is_device:
            yield f"{name} is 0, which nothing measures"
        elif value > MOST_BY_UNIT.get(unit, math.inf):
            yield f"{name} is {value:g}, more than there is"
        elif value > 1.2 and is_share_of_peak(path):
            yield f"{name} is {value:.2f}: more than 1.2 times the peak cannot be; the peak or the count is wrong"
    elif value is not None and unit and is_device:
        yield f"{name} is {value!r:.40}, no number of {unit}"


def _texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text and key of a record, with the place it stands at."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield path, key
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, str | dict | list):
                yield from _texts(item, (*path, str(index)))


# What JSON's grammar lets through


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no number of JSON, or none that can be calculated with")


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        _refuse(text)
    return number


def _int(text: str) -> int:
    """An int that a float can hold: a larger one can be neither divided nor printed."""
    if not math.isfinite(float(text)):
        _refuse(text)
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two that are the same, readers and programs may see another one."""
    if len(found := dict(pairs)) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice!r:.40} stands in it twice")
    return found


# All records of a book


@dataclass(frozen=True)
class Records:
    """Every valid record of a book, by device and snippet; local runs appear as the device `this-machine`."""

    by_device: dict[str, dict[str, Record]]

    @classmethod
    def load(cls, book: Book, local: bool = True) -> Records:
        """Reads all records. Raises LedgerError naming every invalid one."""
        by_device: dict[str, dict[str, Record]] = {}
        problems: list[Problem] = []
        known = set(book.snippet_names())
        problems += _strangers(book.measurements)
        if problems:  # nothing is read through a link, or from what is no file
            raise LedgerError(problems)
        folders = {path.name: path for path in sorted(book.measurements.glob("*")) if path.is_dir()}
        if local and local_folder(book).is_dir():
            folders[LOCAL] = local_folder(book)
        for device, folder in folders.items():
            found, wrong = read_folder(folder, known, device)
            problems += wrong
            if found:
                by_device[device] = found
        if problems:
            raise LedgerError(problems)
        return cls(by_device)

    def get(self, device: str, snippet: str) -> Record | None:
        return self.by_device.get(device, {}).get(snippet)


def read_folder(folder: Path, known: Collection[str], device: str) -> tuple[dict[str, Record], list[Problem]]:
    """A device's valid records of the known snippets, by snippet, and what is wrong with the others."""
    found: dict[str, Record] = {}
    problems: list[Problem] = []
    for path in sorted(folder.glob("[!.]*.json")):
        if path.stem not in known:
            if device != LOCAL:
                problems.append(Problem(path, 0, f"there is no snippet {path.stem!r}; remove this record"))
            continue
        try:
            record = Record.read(path)
        except LedgerError as error:
            problems += error.problems
            continue
        except OSError as error:
            if not isinstance(error, FileNotFoundError):  # taken away meanwhile
                problems.append(Problem(path, 0, f"cannot be read: {error.strerror}"))
            continue
        if device not in (LOCAL, record.device["id"]):
            problems.append(Problem(path, 0, f"comes from {record.device['id']!r} but lies in {device!r}"))
        elif record.is_rehearsed:
            problems.append(Problem(path, 0, "rehearsed on a stand-in GPU, not measured; remove this record"))
        else:
            found[path.stem] = record
    return found, problems


def _strangers(measurements: Path) -> Iterator[Problem]:
    """What lies below measurements/ and is not to be read, since it is elsewhere or no device's."""
    for path in sorted(measurements.rglob("*")):
        with suppress(FileNotFoundError):  # taken away meanwhile
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                yield Problem(path, 0, f"a link, not a {'folder' if path.is_dir() else 'file'}")
            elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                yield Problem(path, 0, NO_FILE)
    if (measurements / LOCAL).exists():
        yield Problem(measurements / LOCAL, 0, "no device's folder: pages call the runs on this machine so")


def local_folder(book: Book) -> Path:
    """Where local runs are kept: per machine and version, ignored by git."""
    return book.cache / "runs" / machine_key()


def is_stale(record: Record | None, snippet: Snippet) -> bool:
    """Whether a record does not tell what the snippet gives now; an absent one does not either."""
    return record is None or record.hash != snippet.hash
