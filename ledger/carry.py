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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ledger.book import Book, LedgerError, Problem
from ledger.compare import leaves, misprinted, moved
from ledger.record import COUNTED_ELSEWHERE, Record, Records, is_stale
from ledger.run import Run, resolve, run
from ledger.snippet import Snippet
from ledger.units import Plain, is_device_value

SILENT = "prints no more"  # what a note says of a section
COUNTED, PRINTED, GONE = "counted anew", "printed anew", "gone"  # of exact values, of sections that print only these
TAKEN = {"silent": SILENT, "counted": COUNTED, "printed": PRINTED, "gone": GONE}  # by the option that says so
WORD = re.compile(r"[^\W\d_]{4,}")  # shorter ones are units, which follow the size of a number


class Change(NamedTuple):
    """What becomes of a value or a section of one snippet."""

    snippet: str
    place: list[str]  # its path; a * is any key
    becomes: str  # the name in place of the last one, a format such as .3g, or one of TAKEN

    @classmethod
    def read(cls, text: str) -> Change:
        """From `snippet.value=…`. Raises ValueError for what is not of that form."""
        where, sign, becomes = text.partition("=")
        snippet, *place = where.split(".")
        if not (sign and becomes and all(place) and place):
            raise ValueError(f"{text!r} is not of the form snippet.value=…")
        return cls(snippet, place, becomes)


@dataclass(frozen=True)
class Allowed:
    """What may be otherwise than in a record, as whoever carries it says."""

    renamed: list[Change]  # values that have another name
    rounded: list[Change]  # values that have fewer digits
    taken: list[Change]  # values and sections that are the fresh run's, or not there any more
    was: str | None = None  # the old name of the one snippet that has a new one

    @classmethod
    def read(
        cls, renamed: Iterable[str] = (), rounded: Iterable[str] = (), was: str | None = None, **taken: Iterable[str]
    ) -> Allowed:
        """From what options say: `snippet.value=…`, and, by the names in TAKEN, `snippet.value` or `snippet.section`.

        Raises ValueError for what is not of that form.
        """
        becoming = [f"{text}={TAKEN[option]}" for option, texts in taken.items() for text in texts]
        return cls(_changes(renamed), _changes(rounded), _changes(becoming), was)

    def of(self, snippet: str) -> Allowed:
        """What is said of this snippet."""

        def own(changes: list[Change]) -> list[Change]:
            return [change for change in changes if change.snippet == snippet]

        return Allowed(own(self.renamed), own(self.rounded), own(self.taken), self.was)


def _changes(texts: Iterable[str]) -> list[Change]:
    return [Change.read(text) for text in texts]


def carry(
    book: Book, names: list[str], allowed: Allowed, device: str | None = None, time_limit: float | None = None
) -> Iterator[str]:
    """Carries the stale records of the named snippets, of one device or of all; yields a line for each. A record that
    is not stale is taken up too where a value or a section of it is `taken`. A device that has records, but none of a
    snippet, gets its first one if no value of it depends on the device.

    A renamed snippet's records, stale or not, get its new name, and the file that goes with it.
    Raises LedgerError with all that keeps a snippet's records from being carried; those before it are carried then.
    """
    _check(book, names, allowed)
    was = allowed.was
    by_device = _called(book, was, names[0]) if was else Records.load(book, local=False).by_device
    if device is not None and device not in by_device:
        raise LedgerError([Problem(book.measurements / device, 0, f"there are: {', '.join(by_device) or 'none yet'}")])
    for snippet in resolve(book, names):
        own = allowed.of(snippet.name)
        found = {name: by_device[name].get(snippet.name) for name in by_device if device in (None, name)}
        paths = {name: book.measurements / name / f"{snippet.name}.json" for name in found}
        present = {paths[name]: record for name, record in found.items() if record}
        to_carry = {path: record for path, record in present.items() if was or own.taken or is_stale(record, snippet)}
        absent = [] if was else [name for name, record in found.items() if record is None]
        if not to_carry and not absent:
            yield f"{snippet.name}: no record is {f'called {was}' if was else 'stale'}"
            continue
        fresh = run(snippet, time_limit)
        carried = _carried_all(to_carry, list(present.values()), snippet, fresh, own)
        devices = {paths[name]: next(iter(by_device[name].values())).device for name in absent}
        first = _first_all(devices, snippet, fresh, is_needed=not to_carry)
        for path, record in (carried | first).items():
            record.write(path)
            if was:
                path.with_name(f"{was}.json").unlink()
            yield f"{snippet.name}: {'counted for' if path in first else 'carried,'} {path.parent.name}"


def _check(book: Book, names: list[str], allowed: Allowed) -> None:
    """Raises LedgerError where what is said does not fit the names of the snippets that are to be carried."""
    message = ""
    changes = (*allowed.renamed, *allowed.rounded, *allowed.taken)
    if other := next((change.snippet for change in changes if change.snippet not in names), None):
        message = f"{other!r} is not among the snippets to be carried: {', '.join(names)}"
    elif allowed.was and allowed.was in book.snippet_names():
        message = f"{allowed.was!r} is a snippet still"
    elif allowed.was and len(names) != 1:
        message = "--was is for one snippet"
    if message:
        raise LedgerError([Problem(book.snippets, 0, message)])


def _carried_all(
    records: dict[Path, Record], others: list[Record], snippet: Snippet, fresh: Run, allowed: Allowed
) -> dict[Path, Record]:
    """These records, by the paths that they will have, as ones of the present code; `others` are all of the snippet's.

    Raises LedgerError with the reasons why one cannot be.
    """
    carried, problems = {}, []
    for path, record in records.items():
        if allowed.was and path.exists():
            problems.append(Problem(path, 0, f"stands beside the one of {allowed.was!r}; remove one of them"))
            continue
        like = record.hash, fresh.device["kind"]
        alike = [other for other in others if (other.hash, other.device["kind"]) == like]
        try:
            carried[path] = _carried(record, snippet, fresh, allowed, alike)
        except ValueError as error:
            problems += [Problem(path, 0, message) for message in str(error).splitlines()]
    if problems:
        raise LedgerError(problems)
    return carried


def _first_all(
    devices: dict[Path, dict[str, Any]], snippet: Snippet, fresh: Run, *, is_needed: bool
) -> dict[Path, Record]:
    """The first records on devices that have none, by path; none where a value depends on the device.

    Raises LedgerError there if a record `is_needed`.
    """
    if not (measured := _first_device_value(fresh)):
        return {path: _first(snippet, fresh, device) for path, device in devices.items()}
    if devices and is_needed:
        names = ", ".join(path.parent.name for path in devices)
        message = f"{names} alone can record it: {measured} depends on the device"
        raise LedgerError([Problem(snippet.path, 0, f"{message}; split what is exact into a snippet of its own")])
    return {}


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


def _carried(record: Record, snippet: Snippet, fresh: Run, allowed: Allowed, alike: Sequence[Record]) -> Record:
    """The record as one of the present code. `alike` are records of the code before on devices of this machine's kind.

    Raises ValueError, one line for each reason, if that cannot be said.
    """
    changed = _changed(record, fresh, allowed)
    if reasons := list(_reasons(record, changed, snippet, fresh, alike)):
        raise ValueError("\n".join(f"cannot be carried: {reason}" for reason in reasons))
    own_name = {f"{allowed.was}.py": f"{record.snippet}.py"} if allowed.was else {}
    renamed, rounded = (
        {".".join(change.place): change.becomes for change in changes}
        for changes in ((*allowed.renamed, *allowed.taken), allowed.rounded)
    )
    note = _note(record.hash, fresh, own_name | renamed, rounded)
    return dataclasses.replace(changed, hash=snippet.hash, carried=[*record.carried, note])


def _changed(record: Record, fresh: Run, allowed: Allowed) -> Record:
    """A record whose values, and what its sections printed, are changed as it is allowed. Raises ValueError."""
    values, printed = copy.deepcopy(record.values), dict(record.outputs)
    for change in allowed.taken:
        _take(change.place[0], change.becomes, values, printed, fresh)
    for change in allowed.renamed:
        for holder, key in _places(values, change.place):
            if change.becomes in holder:
                raise ValueError(f"{'.'.join(change.place)}: there is a {change.becomes!r} already")
            holder[change.becomes] = holder.pop(key)
    for change in allowed.rounded:
        for holder, key in _places(values, change.place):
            holder[key] = _rounded(holder[key], change.becomes)
    return dataclasses.replace(record, values=values, outputs=printed)


def _reasons(record: Record, changed: Record, snippet: Snippet, fresh: Run, alike: Sequence[Record]) -> Iterator[str]:
    """Why a record, with the changes that are allowed, is none of the present code.

    Where values of records that are `alike` had other shapes than the record's, or a section of theirs other words, so
    may the fresh run's.
    """
    yield from moved(changed.values, fresh.values)
    by_kind = {reason for each in alike for reason in _other_shapes([], record.values, each.values)}
    yield from (reason for reason in _other_shapes([], changed.values, fresh.values) if reason not in by_kind)
    there, here = changed.outputs, fresh.outputs
    if there.keys() != here.keys():
        theirs, ours = (", ".join(sorted(each)) or "none" for each in (there, here))
        yield f"sections that print: {theirs} there, {ours} here"
    for section in sorted(there.keys() & here.keys()):
        words_there, words_here, *known = (
            set(WORD.findall(outputs.get(section, ""))) for outputs in (there, here, *(each.outputs for each in alike))
        )
        if (other := words_there ^ words_here) and words_here not in known:
            yield f"section {section!r} prints other words: {', '.join(sorted(other))}"
    yield from misprinted(snippet, there, changed.values, here, fresh.values)


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
