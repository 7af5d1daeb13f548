"""What others measured on their GPUs and published, beside what the planner says: the command `python -m published`.

A file `<source>.toml` says where a source stands (repository, commit, licence), which lines of which of its files hold
readings (a pattern finds them, each group of it named as in `QUANTITIES`), and with which settings each was measured,
in the planner's own words. All that the pattern finds must have settings: every row, or none. Settings are given row
by row, or read: a group of another name is an option, or what `means` says of each of its words, and of such rows the
table says only how many they are (`count`). A setting that the source does not state is a list of what it can be; the
prediction is then an interval; `cells` has what a single row says beside these, by its number. Of rows in
which it finds nothing a table can say what that is: `empty` is "died". A discussion (`thread`) has no files: there a
row holds its readings itself. Where what the planner says of a reading's meter (published.meters) is far off, one of
`far` says what is known of it. What follows the line `EXTRACTED` is written by `--extract` and `--first` alone.
"""

import argparse
import hashlib
import json
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from flops_bytes.plan import evidence as written_evidence
from flops_bytes.plan import plan_exactly
from flops_bytes.plan.evidence import run_kind
from flops_bytes.plan.options import SPEEDS, named_shape, read_gpu, read_options
from flops_bytes.plan.stacks import training_bytes_exactly
from flops_bytes.tools.toml import inline

EXTRACTED = "# Written by `python -m published`, from the files above and by the planner. No hand types what follows."
GIB = 2**30
QUANTITIES = {  # a pattern's group: what it is, and its unit; `smi` is what nvidia-smi shows of the whole card
    "memory_gib": ("memory", GIB),  # of `memory` the source does not say which meter it was,
    "memory_gb": ("memory", 1e9),
    "memory_g": ("memory", 1e9),  # nor, of this, whether a G is 1e9 bytes or 2**30
    "allocated_gib": ("memory", GIB),
    "allocated_gb": ("memory", 1e9),
    "allocated_mb": ("memory", 1e6),
    "allocated_bytes": ("memory", 1),
    "active_gib": ("memory", GIB),
    "reserved_gib": ("memory", GIB),
    "reserved_gb": ("memory", 1e9),
    "reserved_mib": ("memory", 2**20),
    "reserved_bytes": ("memory", 1),
    "smi_gib": ("memory", GIB),
    "smi_gb": ("memory", 1e9),
    "smi_mib": ("memory", 2**20),
    "tokens_per_second_a_gpu": ("rate", 1),
    "tokens_per_second": ("rate", 1),
    "step_seconds": ("rate", 1),
    "run_seconds": ("rate", 1),  # of a run of `run_tokens`
    "mfu_percent": ("mfu", 0.01),
}
A_GPU = "tokens_per_second_a_gpu"
# Of a row, beside its settings: what the planner cannot say of it, or of its memory; whether its distance was seen
# before it was written down; over how many GPUs the memory is the sum; the tokens of a run; whether the same run stands
# in a row above, so that this is no reading; what its card has, where that is not what one of its name has.
ABOUT = ("label", "missing", "memory_missing", "seen", "summed_gpus", "run_tokens", "again", "card_gb")
NEEDED = {"repository": ("repository", "commit", "licence", "tables"), "thread": ("thread", "when", "tables")}
MOST = 256  # settings of one row, where some are not known
NEAR = 0.15  # off by no more counts as near
COVERED = 0.9  # the share of readings that the room left free is to cover
# The plan lacks it; another meaning of the reading; the source's own; what is drawn, where the source does not say it.
WHY = ("lacking", "meter", "source", "chance", "unexplained")


class Reading(NamedTuple):
    """One number that somebody published, and the settings under which it was measured."""

    source: str
    table: str
    row: int
    path: str
    line: int  # of the file; 0 in a discussion
    what: str  # one of QUANTITIES
    literal: str  # as it is printed there
    settings: Mapping[str, Any]
    about: Mapping[str, Any]
    found: Mapping[str, str]  # settings that stand in the same line
    first: tuple[float, float] | None  # what the planner said when it was asked first, in the same unit
    first_on: str | None
    metered: tuple[float, float] | None = None  # what its own meter showed by the planner, when that was asked first
    metered_on: str | None = None

    @property
    def kind(self) -> str:
        return QUANTITIES[self.what][0]

    @property
    def value(self) -> float:
        """In bytes, tokens a second, seconds, or as a share."""
        return float(self.literal.replace(",", "")) * QUANTITIES[self.what][1]


def rows_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of what a table's pattern finds, in order; `columns` come with every one of `rows`."""
    if "count" in table:
        return [dict(table.get("settings", {}))] * int(table["count"])
    rows, columns = table.get("rows", [{}]), table.get("columns", [{}])
    told = [{**table.get("settings", {}), **row, **column} for row in rows for column in columns]
    return [{**row, **table.get("cells", {}).get(str(number), {})} for number, row in enumerate(told)]


def with_found(table: Mapping[str, Any], row: Mapping[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
    """A row with the settings that stand in its line: a word's meaning, or the word itself; and `{word}` in a text."""
    told = dict(row)
    for name, word in found.items():
        means = table.get("means", {}).get(name)
        if means is not None and word not in means:
            raise ValueError(f"{name} = {word!r} has no meaning; add it to means.{name}")
        told |= {name: word} if means is None else means[word]
    return {name: value.format(**found) if isinstance(value, str) else value for name, value in told.items()}


def read_file(path: Path, needed: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """A source's file, with what is needed of a thread or of a repository. Raises ValueError with the file and the
    mend."""
    try:
        source = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    kind = "thread" if "thread" in source and "thread" in needed else "repository"
    if missing := [key for key in needed[kind] if not source.get(key)]:
        raise ValueError(f"{path}: it says no {missing[0]}; a source has {', '.join(needed[kind])}")
    if kind == "repository" and not re.fullmatch(r"[0-9a-f]{40}", source["commit"]):
        raise ValueError(f"{path}: its commit is not 40 hexadecimal digits")
    return source


def read_head(path: Path) -> dict[str, Any]:
    """A source as its file has it. Raises ValueError with the file and the mend."""
    source = read_file(path, NEEDED)
    if len({table["name"] for table in source["tables"]}) < len(source["tables"]):
        raise ValueError(f"{path}: two tables have one name")
    for far in source.get("far", []):
        if far.get("why") not in WHY or not all(far.get(name) for name in ("where", "en", "zh")):
            raise ValueError(f"{path}: what is far off has `where`, `why` ({', '.join(WHY)}), `en` and `zh`, not {far}")
    return source


def read_source(path: Path) -> tuple[dict[str, Any], list[Reading]]:
    """A source, and its readings as they were extracted. Raises ValueError with the file and the mend."""
    source = read_head(path)
    tables = {table["name"]: table for table in source["tables"]}
    rows = {name: rows_of(table) for name, table in tables.items()}
    now = held(source, ((each["table"], each["row"]) for each in extracted(source)))
    if "extracted" in source and source["extracted"]["rows"] != now:
        raise ValueError(f"{path}: its tables hold {now} (rows, rows with readings), not what was extracted; --extract")
    return source, [_reading(path, source, tables, rows, each) for each in extracted(source)]


def read_empty(path: Path) -> list[Reading]:
    """The rows of a source's tables that have no reading, where a table says what that is (`empty`): all but what was
    read."""
    source = read_head(path)
    tables = {table["name"]: table for table in source["tables"]}
    rows = {name: rows_of(table) for name, table in tables.items()}
    found = source.get("extracted", {}).get("empty", [])
    return [_reading(path, source, tables, rows, {**each, "what": "", "literal": ""}) for each in found]


def held(source: Mapping[str, Any], readings: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """By table: its rows, and those of them that have readings."""
    read = Counter(name for name, _ in set(readings))
    return {table["name"]: [len(rows_of(table)), read[table["name"]]] for table in source["tables"]}


def extracted(source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was read from a source's files, as it stands in its own."""
    found: list[dict[str, Any]] = source.get("extracted", {}).get("readings", [])
    return found


def _reading(
    path: Path,
    source: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, list[dict[str, Any]]],
    each: Mapping[str, Any],
) -> Reading:
    """What was extracted, with its row's settings. Raises ValueError if it has no row, or one that cannot be asked."""
    name, number, what = each["table"], each["row"], each["what"]
    where = f"{path}: {name}, row {number}"
    if what not in ("", *QUANTITIES) or number >= len(rows.get(name, [])):
        raise ValueError(f"{where}: no such row or quantity; run --extract")
    table, found = tables[name], each.get("found", {})
    try:
        row = with_found(table, rows[name][number], found)
        beside = {*ABOUT, *QUANTITIES} - ({*found} & {*SPEEDS})
        settings = {name: value for name, value in row.items() if name not in beside}
        check(json.dumps(settings), "missing" in row)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return Reading(
        source=path.stem,
        table=name,
        row=number,
        path=each.get("path") or next(iter(source["extracted"]["sha256"]), source.get("thread", "")),
        line=each["line"],
        what=what,
        literal=each["literal"],
        settings=settings,
        about={name: value for name, value in row.items() if name in ABOUT},
        found=found,
        first=tuple(each["first"]) if "first" in each else None,
        first_on=each.get("first_on"),
        metered=tuple(each["metered"]) if "metered" in each else None,
        metered_on=each.get("metered_on"),
    )


@cache
def check(settings_json: str, missing: bool) -> None:
    """Raises ValueError where settings are no question: a slip of the keyboard is not something that is missing."""
    for question in asked(json.loads(settings_json)):
        options = read_options(question)
        if not missing:
            named_shape(options)
            read_gpu(options)


def read_all(folder: Path) -> list[Reading]:
    """The readings of every source in a folder. Raises ValueError if there is none."""
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise ValueError(f"{folder}: no source (<source>.toml) stands there")
    return [reading for path in paths for reading in read_source(path)[1]]


def extract(path: Path, clones: Path) -> int:
    """Reads a source's files at their commit from `clones/<owner>/<name>`, and writes what stands there; how many.

    What the planner said first is kept where the literal is as it was.
    """
    source, text = read_head(path), path.read_text(encoding="utf-8")
    before = {(each["table"], each["row"], each["what"], each["literal"]): each for each in extracted(source)}
    texts: dict[str, str] = {}
    readings, empty = [], []
    for table in source["tables"]:
        for row, (where, line, groups) in enumerate(matches(path, source, table, clones, texts)):
            if rows_of(table)[row].get("again"):
                continue
            literals = {what: literal for what, literal in groups.items() if what in QUANTITIES}
            found = {name: word for name, word in groups.items() if name not in QUANTITIES}
            if not literals and "empty" in table:
                empty.append({"table": table["name"], "row": row, "path": where, "line": line, "found": found})
            if "mfu_percent" in literals:  # it is that of the speed beside it
                found |= {what: literals[what] for what in (*SPEEDS, A_GPU) if what in literals}
            for what, literal in literals.items():
                name = table["name"]
                first = before.get((name, row, what, literal), {})
                told = tuple(first.get(key) for key in ("first", "first_on", "metered", "metered_on"))
                readings.append(Reading(path.stem, name, row, where, line, what, literal, {}, {}, found, *told))
    write(path, {where: hashlib.sha256(texts[where].encode()).hexdigest() for where in texts}, readings, empty)
    try:
        read_source(path)
    except ValueError:
        path.write_text(text, encoding="utf-8")  # as it was
        raise
    return len(readings)


def matches(
    path: Path, source: Mapping[str, Any], table: Mapping[str, Any], clones: Path, texts: dict[str, str]
) -> list[tuple[str, int, dict[str, str]]]:
    """What a table's rows hold: file, line, and each group that was found there; as many as have settings."""
    rows = rows_of(table)
    if "thread" in source:
        return [(source["thread"], 0, {what: row[what] for what in QUANTITIES if what in row}) for row in rows]
    found = []
    files = table.get("path", source.get("path"))
    for where in [files] if isinstance(files, str) else files:
        if where not in texts:
            texts[where] = bytes_at(clones / source["repository"], source["commit"], where).decode("utf-8")
        lines = texts[where].split("\n")
        low, high = table.get("lines", (1, len(lines)))
        if not 1 <= low <= high <= len(lines):
            raise ValueError(f"{path}: {table['name']}: {where} has {len(lines)} lines, not {high}")
        part = "\n".join(lines[low - 1 : high])
        for match in re.finditer(table["pattern"], part, re.MULTILINE):
            groups = {name: word for name, word in match.groupdict().items() if word}
            start = match.start(next((name for name in groups if name in QUANTITIES), 0))
            found.append((where, low + part.count("\n", 0, start), groups))
    if len(found) != len(rows):
        raise ValueError(f"{path}: {table['name']}: {len(found)} are found, {len(rows)} have settings")
    return found


def bytes_at(clone: Path, commit: str, path: str) -> bytes:
    """A file of a clone at a commit. Raises ValueError if it is not there."""
    found = subprocess.run(["git", "-C", str(clone), "show", f"{commit}:{path}"], capture_output=True)
    if found.returncode:
        raise ValueError(f"{clone}: no {path} at {commit[:7]}: {found.stderr.decode(errors='replace').strip()}")
    return found.stdout


def write(
    path: Path, hashes: Mapping[str, str], readings: Iterable[Reading], empty: Iterable[Mapping[str, Any]] | None = None
) -> None:
    """Writes below EXTRACTED what was read, a line each, and rows without a reading, which stay where none are given;
    all above it stays as it is."""
    empty = tomllib.loads(path.read_text(encoding="utf-8"))["extracted"].get("empty", []) if empty is None else empty
    above, readings = path.read_text(encoding="utf-8").partition(EXTRACTED)[0].rstrip(), list(readings)
    rows = inline(held(tomllib.loads(above), ((each.table, each.row) for each in readings)))
    lines = [above, "", EXTRACTED, "[extracted]", f"rows = {rows}", "readings = ["]
    for each in readings:
        told: dict[str, Any] = {"table": each.table, "row": each.row}
        told |= {"path": each.path} if len(hashes) > 1 else {}
        told |= {"line": each.line, "what": each.what, "literal": each.literal}
        told |= {"found": each.found} if each.found else {}
        told |= {"first": list(each.first), "first_on": each.first_on} if each.first else {}
        told |= {"metered": list(each.metered), "metered_on": each.metered_on} if each.metered else {}
        lines.append(f"    {inline(told)},")
    lines.append("]")
    if rows_without := [f"    {inline(each)}," for each in empty]:
        lines += ["empty = [", *rows_without, "]"]
    lines += [
        "",
        "[extracted.sha256]",
        *(f"{json.dumps(where)} = {json.dumps(hashes[where])}" for where in hashes),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def asked(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each question that settings leave open: one for every combination of what they can be."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def predict(reading: Reading, beside_bytes: int | None = None) -> tuple[float, float]:
    """The lowest and the highest that the planner says, in the reading's unit. Raises ValueError as the planner does.

    Of memory: the tensors; of nvidia-smi's also what is not in tensors, or so many bytes in its place; both, where the
    meter is not known. Of a rate: at the MFU that the planner assumes, whatever speed was read beside it. Of an MFU: at
    that speed.
    """
    settings = {name: value for name, value in reading.settings.items() if reading.kind != "rate" or name not in SPEEDS}
    if reading.kind == "mfu" and A_GPU in reading.found:
        settings["tokens_per_second"] = float(reading.found[A_GPU].replace(",", "")) * int(settings.get("gpus", 1))
    if reading.kind == "mfu" and not any(name in settings for name in SPEEDS):
        raise ValueError(f"{reading.source}, {reading.table}: an MFU, and no speed that says it")
    questions = list(asked(settings))
    if len(questions) > MOST:
        raise ValueError(f"{reading.source}, {reading.table}: {len(questions)} questions, more than {MOST}")
    ask = _held if reading.kind == "memory" else _planned
    found = [(question, ask(json.dumps(question))) for question in questions]
    said = [each for question, planned in found for each in _said(reading, planned, question, beside_bytes)]
    if reading.kind == "memory":
        summed = reading.about.get("summed_gpus", 1)
        said = [gpus * each for gpus in (summed if isinstance(summed, list) else [summed]) for each in said]
    return min(said), max(said)


def planned_tensors(question: Mapping[str, Any]) -> int:
    """The bytes of tensors that the planner says of a question."""
    lines = _held(json.dumps(question))
    return int(lines["total"] - lines["allowance"])


@cache  # a row has more than one reading
def _planned(question_json: str) -> dict[str, Any]:
    return plan_exactly(**json.loads(question_json))


@cache
def _held(question_json: str) -> dict[str, int]:
    """The bytes of a GPU by line, without the rest of the answer."""
    return training_bytes_exactly(**json.loads(question_json))


def _said(
    reading: Reading, found: Mapping[str, Any], question: Mapping[str, Any], beside_bytes: int | None
) -> tuple[float, ...]:
    what = reading.what
    if reading.kind == "memory":
        tensors = float(found["total"] - found["allowance"])
        whole = tensors + (found["allowance"] if beside_bytes is None else beside_bytes)
        if what == "memory_g":
            return tensors * 1e9 / GIB, whole
        return (tensors, whole) if what.startswith("memory") else (whole,) if what.startswith("smi") else (tensors,)
    if what == A_GPU:
        return (float(found["tokens_per_second"] / int(question.get("gpus", 1))),)
    if what == "run_seconds":
        return (float(reading.about["run_tokens"] / found["tokens_per_second"]),)
    return (float(found["mfu" if what == "mfu_percent" else what]),)


def nearest_ratio(said: tuple[float, float], value: float) -> float:
    """Planned over published; where settings are not said, the nearest of what the planner says of all they can be."""
    low, high = said
    return low / value if low > value else min(high / value, 1)


class Compared(NamedTuple):
    """A reading beside what the planner says; `why` it cannot."""

    reading: Reading
    said: tuple[float, float] | None
    why: str


def missing(reading: Reading) -> str:
    """What the planner cannot say of what was read; nothing, if it can be asked."""
    about = reading.about
    return str(about.get("missing") or (about.get("memory_missing") if reading.kind == "memory" else "") or "")


def compare(readings: Iterable[Reading]) -> Iterator[Compared]:
    """Each reading beside what the planner says of it today."""
    for reading in readings:
        if why := missing(reading):
            yield Compared(reading, None, why)
            continue
        try:
            yield Compared(reading, predict(reading), "")
        except ValueError as error:
            yield Compared(reading, None, str(error))


class Sourced(Protocol):
    """Something that is said of a reading."""

    @property
    def reading(self) -> Reading: ...


class Asked(Sourced, Protocol):
    """A reading beside what is said of it."""

    @property
    def said(self) -> tuple[float, float] | None: ...


Each = TypeVar("Each", bound=Sourced)
Answered = TypeVar("Answered", bound=Asked)


def today(each: Asked) -> float:
    """The ratio with the planner as it is now."""
    assert each.said
    return nearest_ratio(each.said, each.reading.value)


def at_first(each: Sourced) -> float:
    """The ratio when the planner was asked for the first time."""
    assert each.reading.first
    return nearest_ratio(each.reading.first, each.reading.value)


def is_far(ratio: float) -> bool:
    return abs(ratio - 1) > NEAR


def why_far(source: Mapping[str, Any], reading: Reading) -> Mapping[str, Any] | None:
    """The first of a source's `far` that speaks of a reading; each word of its `where` can be one of a list."""
    known = {"table": reading.table, "row": reading.row, "what": reading.what}
    known |= {**reading.found, **reading.settings, **reading.about}
    for far in source.get("far", []):
        words = {name: word if isinstance(word, list) else [word] for name, word in far["where"].items()}
        if all(known.get(name) in word for name, word in words.items()):
            return dict(far)
    return None


def by_source(compared: Iterable[Each]) -> dict[str, list[Each]]:
    found: dict[str, list[Each]] = {}
    for each in compared:
        found.setdefault(each.reading.source, []).append(each)
    return found


def errors(compared: Iterable[Sourced], ratio: Callable[[Any], float] = today) -> dict[str, Any]:
    """The median error over sources, since a source has one reading and another hundreds; and the share near."""
    ratios = {source: [ratio(each) for each in found] for source, found in by_source(compared).items()}
    every = sorted(each for found in ratios.values() for each in found)
    medians = [statistics.median(abs(each - 1) for each in found) for found in ratios.values()]
    return {
        "readings": len(every),
        "sources": len(ratios),
        "median_error_share": statistics.median(medians),
        "within_share": sum(abs(each - 1) <= NEAR for each in every) / len(every),
        "too_small": sum(each < 1 - NEAR for each in every),
        "too_large": sum(each > 1 + NEAR for each in every),
        "low_ratio": every[0],
        "high_ratio": every[-1],
    }


def contained(compared: Iterable[Compared]) -> dict[str, Any]:
    """Of readings with settings that are not said: how many lie within what they leave open, and how wide that is."""
    open_ = [(each.said, each.reading.value) for each in compared if each.said and each.said[0] < each.said[1]]
    widths = [(high - low) / value for (low, high), value in open_]
    return {
        "readings": len(open_),
        "within": sum(low <= value <= high for (low, high), value in open_),
        "median_width_share": statistics.median(widths) if widths else None,
    }


def by_kind(compared: Iterable[Compared]) -> dict[str, list[Compared]]:
    """The readings of memory that can be planned, by the kind of run, where it has a name."""
    found: dict[str, list[Compared]] = {}
    for each in compared:
        if each.reading.kind == "memory" and each.said:
            kind = run_kind(read_options(next(asked(each.reading.settings))))  # of a list, the first that it can be
            found.setdefault(kind, []).append(each)
    return {kind: each for kind, each in sorted(found.items()) if kind}


def spread(compared: Iterable[Asked]) -> tuple[float, float, float, float]:
    """Of the ratios the lowest, the highest, and the ends of the middle nine tenths."""
    ratios = sorted(map(today, compared))
    out = len(ratios) // 20  # on each side
    return ratios[0], ratios[-1], ratios[out], ratios[-1 - out]


def room(compared: Iterable[Asked]) -> float:
    """The share of the plan that has to be left free beside it, for nine of ten of the readings to fit."""
    over = sorted(1 / today(each) - 1 for each in compared)
    return max(over[min(int(COVERED * len(over)), len(over) - 1)], 0)


def evidence(compared: Iterable[Compared]) -> dict[str, tuple[int, str, str, str, str, str]]:
    """What the planner's answer says of itself: of each kind of run how many readings, planned over published, and how
    many times the plan nine of ten took at most."""
    found = {}
    for kind, each in by_kind(compared).items():
        low, high, start, end = (f"{ratio:.2f}" for ratio in spread(each))
        found[kind] = (len(each), low, high, start, end, f"{1 + room(each):.2f}")
    return found


def write_evidence(compared: Iterable[Compared]) -> None:
    """Writes it where the planner's answer looks for it: into this checkout's library."""
    path = Path(written_evidence.__file__)
    above = path.read_text(encoding="utf-8").partition("]] = {")[0]
    rows = (f"    {json.dumps(name)}: {json.dumps(found)},\n" for name, found in evidence(compared).items())
    rows = (row.replace("[", "(").replace("]", ")") for row in rows)
    path.write_text(f"{above}]] = {{\n{''.join(rows)}}}\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Prints every reading beside what the planner says; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="python -m published", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the sources: measurements/published of a checkout")
    parser.add_argument("--extract", type=Path, metavar="CLONES", help="read the sources anew from CLONES/owner/name")
    parser.add_argument("--first", action="store_true", help="keep what the planner says of what it was not asked yet")
    parser.add_argument("--evidence", action="store_true", help="write what an answer of the planner says of itself")
    options = parser.parse_args(arguments)
    try:
        paths = sorted(options.folder.glob("*.toml"))
        if options.extract:
            for path in paths:
                print(f"{path.stem}: {extract(path, options.extract)} readings")
        readings = read_all(options.folder)
        compared = list(compare(readings))
        if options.first:
            for path in paths:
                keep_first(path, compared)
        if options.evidence:
            write_evidence(compared)
    except (OSError, ValueError) as error:
        print(f"python -m published: {error}", file=sys.stderr)
        return 2
    for line in (*table(compared), *told_figures(compared)):
        print(line)
    return 0


def keep_first(path: Path, compared: Iterable[Compared]) -> None:
    """Writes into a source what the planner says of readings of which it has said nothing yet."""
    today = datetime.now(UTC).date().isoformat()
    own = [each for each in compared if each.reading.source == path.stem]
    kept = [
        each.reading._replace(first=each.said, first_on=today) if each.said and not each.reading.first else each.reading
        for each in own
    ]
    write(path, read_source(path)[0]["extracted"]["sha256"], kept)


def named(reading: Reading) -> str:
    return f"{reading.source:24} {reading.table:28} {reading.row:3} {reading.what:14} {reading.literal:>9}"


def table(compared: list[Compared]) -> Iterator[str]:
    """Every reading of memory with its ratio, planned over published, today and first."""
    for each in (each for each in compared if each.reading.kind == "memory"):
        if not each.said:
            yield f"{named(each.reading)}  {each.why}"
            continue
        low, high = (said / each.reading.value for said in each.said)
        span = f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
        first = f" (first {each.reading.first[0] / each.reading.value:.3f})" if each.reading.first else ""
        yield f"{named(each.reading)}  {span}{first}"


def told_figures(compared: list[Compared]) -> Iterator[str]:
    """The figures over all readings of a kind."""
    for kind in ("memory", "rate", "mfu"):
        of_kind = [each for each in compared if each.reading.kind == kind]
        told = [each for each in of_kind if each.said]
        if of_kind:
            sources = len(by_source(of_kind))
            yield f"{kind}: {len(told)} of {len(of_kind)} readings of {sources} sources can be asked"
        if told:
            found, left_open = errors(told), contained(told)
            near = f"within {NEAR:.0%}: {found['within_share']:.0%}"
            yield f"  median error over sources {found['median_error_share']:.1%}, {near}"
            medians = {source: errors(each)["median_error_share"] for source, each in by_source(told).items()}
            yield "  " + ", ".join(f"{source} {error:.1%}" for source, error in sorted(medians.items()))
            if left_open["readings"]:
                width = f"median width {left_open['median_width_share']:.1%}"
                yield f"  intervals: {left_open['within']} of {left_open['readings']} hold their reading, {width}"


def far_groups(
    compared: Iterable[Answered], heads: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, Mapping[str, Any] | None, list[Answered]]]:
    """Readings of memory that are far off, by source and by what is known of them; None where nothing was written."""
    found: dict[str, tuple[str, Mapping[str, Any] | None, list[Answered]]] = {}
    for each in compared:
        if each.reading.kind == "memory" and each.said and is_far(today(each)):
            source = each.reading.source
            why = why_far(heads[source], each.reading)
            found.setdefault(f"{source} {why['en'] if why else ''}", (source, why, []))[2].append(each)
    return list(found.values())


def told_far(compared: Iterable[Asked], heads: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What is known of each reading of memory that is far off."""
    groups = far_groups(compared, heads)
    if groups:
        yield f"farther off than {NEAR:.0%}: {sum(len(each) for _, _, each in groups)} readings of memory"
    for source, why, found in groups:
        said = f"{why['why']}: {why['en']}" if why else "nothing is said; write it into its file, under [[far]]"
        yield f"  {source}: {said}"
        yield from (f"    {named(each.reading)}  {today(each):.3f}" for each in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
