"""Carries records over a change of code that cannot change what was measured, once a fresh run here confirms it.

A record of a device that is not at hand cannot be had again at will. Whoever names its snippet here says that the
change leaves measurements as they were; what can be seen without the device is compared: every exact value, the names
of all others, the words that sections print, and the numbers where a section uses nothing measured. The record keeps
its date, its device and what was measured there, and notes the change.

A new snippet that measures nothing needs no device: what it counts here is any machine's, and its first record says
where it was counted.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ledger.book import Book, LedgerError, Problem
from ledger.compare import leaves, misprinted, moved
from ledger.record import COUNTED_ELSEWHERE, Record, Records, is_stale
from ledger.run import Run, resolve, run
from ledger.snippet import Snippet
from ledger.units import Plain, is_device_value

SILENT = "prints no more"  # what a note says of a section
COUNTED, PRINTED, GONE = "counted anew", "printed anew", "gone"  # of exact values, of sections that print only these
WORD = re.compile(r"[^\W\d_]{4,}")  # shorter ones are units, which follow the size of a number


class Change(NamedTuple):
    """What becomes of a value of one snippet: a new name, or fewer digits."""

    snippet: str
    place: list[str]  # its path; a * is any key
    becomes: str  # the name in place of the last one, or a format such as .3g


def read_changes(texts: Iterable[str]) -> list[Change]:
    """From `snippet.value=…`, one or more. Raises ValueError for what is not of that form."""
    changes = []
    for text in texts:
        where, sign, becomes = text.partition("=")
        snippet, *place = where.split(".")
        if not (sign and becomes and all(place) and place):
            raise ValueError(f"{text!r} is not of the form snippet.value=…")
        changes.append(Change(snippet, place, becomes))
    return changes


def carry(
    book: Book,
    names: list[str],
    device: str | None = None,
    renamed: Iterable[str] = (),
    rounded: Iterable[str] = (),
    silent: Iterable[str] = (),
    counted: Iterable[str] = (),
    printed: Iterable[str] = (),
    gone: Iterable[str] = (),
    was: str | None = None,
    time_limit: float | None = None,
) -> Iterator[str]:
    """Carries the stale records of the named snippets, of one device or of all; yields a line for each. A record that
    is not stale is taken up too where a value or a section of it is named. A device that has records, but none of a
    snippet, gets its first one if no value of it depends on the device.

    What sections printed that are `silent` now (`snippet.section`) goes, and so do values that are `gone`. Exact values
    that are `counted` anew (`snippet.value`), and what sections `printed` of these alone, are the fresh run's.
    `was` is the old name of the one snippet that
    has a new one: its records, stale or not, get that, and the file that goes with it.
    Raises LedgerError with all that keeps a snippet's records from being carried; those before it are carried then.
    """
    try:
        renames, roundings = read_changes(renamed), read_changes(rounded)
        named = ((silent, SILENT), (counted, COUNTED), (printed, PRINTED), (gone, GONE))
        others = read_changes(f"{text}={becomes}" for texts, becomes in named for text in texts)
    except ValueError as error:
        raise LedgerError([Problem(book.snippets, 0, str(error))]) from None
    for change in (*renames, *roundings, *others):
        if change.snippet not in names:
            message = f"{change.snippet!r} is not among the snippets to be carried: {', '.join(names)}"
            raise LedgerError([Problem(book.snippets, 0, message)])
    if was and (len(names) != 1 or was in book.snippet_names()):
        message = f"{was!r} is a snippet still" if was in book.snippet_names() else "--was is for one snippet"
        raise LedgerError([Problem(book.snippets, 0, message)])
    by_device = _called(book, was, names[0]) if was else Records.load(book, local=False).by_device
    if device is not None and device not in by_device:
        raise LedgerError([Problem(book.measurements / device, 0, f"there are: {', '.join(by_device) or 'none yet'}")])
    for snippet in resolve(book, names):
        found = {name: by_device[name].get(snippet.name) for name in by_device if device in (None, name)}
        is_named = was or any(change.snippet == snippet.name for change in others)
        stale = {name: record for name, record in found.items() if record and (is_named or is_stale(record, snippet))}
        absent = [] if was else [name for name, record in found.items() if record is None]
        if not stale and not absent:
            yield f"{snippet.name}: no record is {f'called {was}' if was else 'stale'}"
            continue
        fresh = run(snippet, time_limit)
        own = [[change for change in kind if change.snippet == snippet.name] for kind in (renames, roundings, others)]
        carried, problems = {}, []
        for name, record in stale.items():
            path = book.measurements / name / f"{snippet.name}.json"
            if was and path.exists():
                problems.append(Problem(path, 0, f"stands beside the one of {was!r}; remove one of them"))
                continue
            try:
                alike = [
                    each
                    for each in found.values()
                    if each and (each.hash, each.device["kind"]) == (record.hash, fresh.device["kind"])
                ]
                carried[path] = _carried(record, snippet, fresh, *own, was=was, alike=alike)
            except ValueError as error:
                problems += [Problem(path, 0, message) for message in str(error).splitlines()]
        if absent and not (measured := _first_device_value(fresh)):
            for name in absent:
                device_there = next(iter(by_device[name].values())).device
                carried[book.measurements / name / f"{snippet.name}.json"] = _first(snippet, fresh, device_there)
        elif absent and not stale:
            alone = f"{', '.join(absent)} alone can record it: {measured} depends on the device"
            message = f"{alone}; split what is exact into a snippet of its own"
            problems.append(Problem(snippet.path, 0, message))
        if problems:
            raise LedgerError(problems)
        for path, record in carried.items():
            record.write(path)
            if was:
                path.with_name(f"{was}.json").unlink()
            yield f"{snippet.name}: {'counted for' if path.parent.name in absent else 'carried,'} {path.parent.name}"


def _first_device_value(fresh: Run) -> str:
    """The name of a value that depends on the device; empty if there is none."""
    places = (place for name, value in fresh.values.items() for place, _ in leaves([name], value))
    return next((".".join(place) for place in places if is_device_value(list(place))), "")


def _first(snippet: Snippet, fresh: Run, device: dict[str, Any]) -> Record:
    """The first record of a snippet on a device that is not at hand, of values that are the same on every machine."""
    identity = {key: device[key] for key in ("id", "kind", "name")}
    carried = [_note(snippet.hash, fresh, COUNTED_ELSEWHERE)]
    return dataclasses.replace(Record.of(snippet, fresh), device=identity, carried=carried)


def _note(hash_: str, fresh: Run, renamed: dict[str, str], rounded: dict[str, str] | None = None) -> dict[str, Any]:
    """What a record says of having been carried, from the code of that hash, and of the run that confirmed it."""
    return {
        "at": datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
        "measured_hash": hash_,
        "confirmed_on": fresh.device["id"],
        "renamed": renamed,
        "rounded": rounded or {},
    }


def _called(book: Book, was: str, name: str) -> dict[str, dict[str, Record]]:
    """The committed records of a snippet that had another name, by device and under the new one."""
    paths = sorted(book.measurements.glob(f"*/{was}.json"))
    return {path.parent.name: {name: dataclasses.replace(Record.read(path), snippet=name)} for path in paths}


def _carried(
    record: Record,
    snippet: Snippet,
    fresh: Run,
    renames: list[Change],
    roundings: list[Change],
    others: list[Change],
    *,
    was: str | None = None,
    alike: Sequence[Record] = (),
) -> Record:
    """The record as one of the present code. `alike` are records of the code before on devices of this machine's kind:
    where their values had other shapes than the record's, or a section of theirs other words, so may the fresh run's.

    Raises ValueError, one line for each reason, if that cannot be said.
    """
    values, printed = copy.deepcopy(record.values), dict(record.outputs)
    for change in others:
        _take(change.place[0], change.becomes, values, printed, fresh)
    for change in renames:
        for holder, key in _places(values, change.place):
            if change.becomes in holder:
                raise ValueError(f"{'.'.join(change.place)}: there is a {change.becomes!r} already")
            holder[change.becomes] = holder.pop(key)
    for change in roundings:
        for holder, key in _places(values, change.place):
            holder[key] = _rounded(holder[key], change.becomes)
    by_kind = {reason for each in alike for reason in _other_shapes([], record.values, each.values)}
    reasons = [*moved(values, fresh.values)]
    reasons += [reason for reason in _other_shapes([], values, fresh.values) if reason not in by_kind]
    if printed.keys() != fresh.outputs.keys():
        theirs, ours = (", ".join(sorted(each)) or "none" for each in (printed, fresh.outputs))
        reasons.append(f"sections that print: {theirs} there, {ours} here")
    for section in sorted(printed.keys() & fresh.outputs.keys()):
        theirs_there, ours_here, *known = (
            set(WORD.findall(outputs.get(section, "")))
            for outputs in (printed, fresh.outputs, *(each.outputs for each in alike))
        )
        if (other := theirs_there ^ ours_here) and ours_here not in known:
            reasons.append(f"section {section!r} prints other words: {', '.join(sorted(other))}")
    reasons += misprinted(snippet, printed, values, fresh.outputs, fresh.values)
    if reasons:
        raise ValueError("\n".join(f"cannot be carried: {reason}" for reason in reasons))
    own_name = {f"{was}.py": f"{record.snippet}.py"} if was else {}
    renamed, rounded = (
        {".".join(change.place): change.becomes for change in changes} for changes in ((*renames, *others), roundings)
    )
    note = _note(record.hash, fresh, own_name | renamed, rounded)
    return dataclasses.replace(
        record, hash=snippet.hash, values=values, outputs=printed, carried=[*record.carried, note]
    )


def _take(name: str, becomes: str, values: dict[str, Plain], printed: dict[str, str], fresh: Run) -> None:
    """What becomes of a value or of a section's words. Raises ValueError where the device alone can tell."""
    if becomes == SILENT and printed.pop(name, None) is None:
        raise ValueError(f"section {name!r} printed nothing there, so it cannot be silent now")
    if becomes == GONE and (name in fresh.values or name not in values):
        raise ValueError(f"value {name!r} {'is not gone' if name in fresh.values else 'was not there'}")
    if becomes == GONE:
        del values[name]
    if becomes == PRINTED:
        if name not in fresh.outputs:
            raise ValueError(f"section {name!r} prints nothing here")
        printed[name] = fresh.outputs[name]
    if becomes == COUNTED:
        if name not in fresh.values:
            raise ValueError(f"there is no value {name!r} here")
        if any(is_device_value(list(place)) for place, _ in leaves([name], fresh.values[name])):
            raise ValueError(f"value {name!r} depends on the device, which alone can tell it")
        values[name] = fresh.values[name]


def _places(values: Plain, place: list[str]) -> list[tuple[Any, Any]]:
    """Each dictionary or list that holds what the path names, with its key. Raises ValueError if there is none."""
    level: list[tuple[Any, Any]] = [({"": values}, "")]
    for part in place:
        inside = [holder[key] for holder, key in level]
        level = [
            (each, key)
            for each in inside
            if isinstance(each, dict | list)
            for key in (list(each) if isinstance(each, dict) else range(len(each)))
            if part in ("*", str(key))
        ]
    if not level:
        raise ValueError(f"there is no value {'.'.join(place)!r} to rename or to round")
    return level


def _rounded(value: Plain, style: str) -> Plain:
    if isinstance(value, dict):
        return {key: _rounded(item, style) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, style) for item in value]
    return float(format(value, style)) if isinstance(value, float) else value


def _other_shapes(path: list[str], there: Plain, here: Plain) -> Iterator[str]:
    """Where values that depend on the device have other names or kinds.

    None has any, a list any length; a key that is no name, such as a size, may be what was measured.
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            if key in there and key in here:
                yield from _other_shapes([*path, key], there[key], here[key])
                continue
            where, one_sided = [*path, key], there.get(key, here.get(key))
            may_differ = path and is_device_value(path) and not key.isidentifier()
            if not may_differ and all(is_device_value(list(leaf)) for leaf, _ in leaves(where, one_sided)):
                yield f"{'.'.join(where)}: {'only there' if key in there else 'only here'}"
    elif isinstance(there, list) and isinstance(here, list):
        for index, (theirs, ours) in enumerate(zip(there, here, strict=False)):
            yield from _other_shapes([*path, str(index)], theirs, ours)
    elif is_device_value(path) and None not in (there, here) and _kind(there) != _kind(here):
        yield f"{'.'.join(path)}: a {_kind(there)} there, a {_kind(here)} here"


def _kind(value: Plain) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__
