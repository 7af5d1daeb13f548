"""What `run` and `record` do: run what is absent or stale on this machine, record by record."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from ledger.book import Book, LedgerError, Problem, explain
from ledger.compare import leaves
from ledger.device import machine_key
from ledger.environment import why_not_to_publish
from ledger.gpu import BUSY_PERCENT, at_work, read_gpu_state, watch_gpu
from ledger.record import Record, is_stale, local_folder
from ledger.run import MissingImport, ask_device, resolve, run, start_server
from ledger.snippet import Snippet
from ledger.units import is_device_value

MAX_AT_ONCE = 4  # each may take some GB
UNSETTLED_NS = 100_000_000  # after a change there may be another; the clock of a file system ticks every few ms
WIDE_SPREAD = 0.05  # of a median: more than that is worth a warning


class Told(IntEnum):
    """What other devices' records leave for this machine to tell, the most urgent first: a rented GPU is not at hand
    for long."""

    NOT_ALL = 0  # a value is None there: pages wait for a device that has it
    NOTHING = 1  # there is no record
    ITS_OWN = 2  # each device has its own values
    EVERYTHING = 3  # the values are the same on every machine


@dataclass
class Measurement:
    """Snippets to be run into one folder of records."""

    book: Book
    folder: Path
    names: list[str] = field(default_factory=list)  # all, if none is named
    force: bool = False  # also what is fresh
    slow: bool = False  # where none is named: the slow ones alone, or all others
    measuring: bool = False  # where none is named: those alone that may give another machine other values
    time_limit: float | None = None  # seconds, for one snippet; None: its own
    to_publish: bool = False

    @classmethod
    def here(cls, book: Book, names: list[str], **options: Any) -> Measurement:
        """For the pages that are built on this machine: into .cache/."""
        return cls(book, local_folder(book), names, **options)

    @classmethod
    def published(cls, book: Book, names: list[str], **options: Any) -> Measurement:
        """To be committed: into measurements/<device>/. Says so where a GPU is busy with something else.

        Raises LedgerError where the environment changes results. A local run only notes it: who sets such a variable
        may want to see on the pages what it does.
        """
        if reason := why_not_to_publish():
            raise LedgerError([Problem(book.measurements, 0, reason)])
        load = (read_gpu_state() or {}).get("load_percent", 0)
        if float(load) > BUSY_PERCENT:
            print(f"the GPU is busy ({load:g} % load): what is measured now will be off", file=sys.stderr)
        folder = book.measurements / ask_device()["id"]
        return cls(book, folder, names, to_publish=True, **options)

    def run(self, gave_up: dict[str, str] | None = None) -> dict[str, str]:
        """Runs what is absent or stale in the folder; returns what failed, by name, with the hash it failed with.

        One after the other; at last several at once of those that, by a committed record, measure nothing.
        What is in `gave_up` with its present hash is not tried again.
        """
        failed: dict[str, str] = {}
        everything = not self.names and not self.force and not self.measuring
        done = f"{self.folder.name}.measured{'-slow' if self.slow else ''}"
        sources = self.book.code_stamp()  # before they are read: what is edited while others run is run next
        if everything and self.book.is_done(done, sources + self._records_stamp()):
            return failed
        skipped: list[str] = []

        def attempt(snippet: Snippet) -> None:
            tried = ""
            try:
                snippet = Snippet.read(snippet.path)  # it may have waited for long
                tried = snippet.hash  # before it runs: what is edited meanwhile has not been tried
                if self.force or self._is_stale(snippet):  # still, if another process had to be waited for
                    self._record(snippet, tried)
            except MissingImport as error:
                print(f"{snippet.name}: skipped, needs {error}, which is not installed", file=sys.stderr)
                skipped.append(snippet.name)
            except LedgerError as error:
                print(error, file=sys.stderr)
                failed[snippet.name] = tried or str(error)

        todo = self._todo(gave_up or {}, failed)
        counted = [snippet for snippet in todo if self._measures_nothing(snippet)]
        measured = [snippet for snippet in todo if snippet not in counted]
        for snippet in _with_progress(measured):
            with _alone(self.book):
                attempt(snippet)
        if counted:
            with _alone(self.book), ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_AT_ONCE)) as pool:
                for _ in zip(_with_progress(counted), pool.map(attempt, counted), strict=True):
                    pass
        if everything and not failed and not skipped:
            self.book.set_done(done, sources + self._records_stamp())
        return failed

    def watch(self) -> None:
        """Runs each snippet again when it changes, until it is interrupted."""
        start_server()  # it will be wanted at once
        seen = self._times()
        failed = self.run()
        self.force = False
        self._todo(failed, failed)  # reads every snippet, so that the first edit need not; what it tells is told
        while True:
            time.sleep(0.2)
            now = self._times()
            if now is not None and now != seen:
                seen = now
                try:
                    failed = self.run(failed)
                    (self.folder / ".looked").touch()  # a preview of the pages follows, whatever came of it
                except LedgerError as error:  # two snippets have one name
                    print(error, file=sys.stderr)
                except OSError as error:  # a full disk may have room when the next change comes
                    print(explain(error), file=sys.stderr)

    def _times(self) -> dict[str, tuple[int, int]] | None:
        """When each file of the snippets was last written, and changed at all: of the two an edit can keep the first
        alone.

        None while an editor may be at one: it empties a file before it fills it, and both can have the same time.
        """
        try:
            states = {str(path): path.stat() for path in self.book.code()}
        except FileNotFoundError:  # just being replaced
            return None
        now = time.time_ns()
        if any(abs(now - state.st_ctime_ns) < UNSETTLED_NS for state in states.values()):
            return None
        return {name: (state.st_mtime_ns, state.st_ctime_ns) for name, state in states.items()}

    def _records_stamp(self) -> str:
        return self.book.stamp(str(self.folder.relative_to(self.book.root) / "*.json"))

    def _todo(self, gave_up: dict[str, str], failed: dict[str, str]) -> list[Snippet]:
        """What has to be run; snippets that cannot even be read are added to `failed`."""
        todo: list[Snippet] = []
        for name in self.names or self.book.snippet_names():
            try:
                (snippet,) = resolve(self.book, [name])
            except LedgerError as error:
                if str(error) not in (gave_up.get(name), *failed.values()):  # many import one that is broken
                    print(error, file=sys.stderr)
                failed[name] = str(error)
                continue
            if not self.names and snippet.is_slow != self.slow:
                continue
            if gave_up.get(name) == snippet.hash:
                failed[name] = snippet.hash
            elif self.force or self._is_stale(snippet):
                todo.append(snippet)
        if not self.names and (self.to_publish or self.measuring):
            told = {snippet.name: self._told_elsewhere(snippet) for snippet in todo}
            todo = [snippet for snippet in todo if told[snippet.name] is not Told.EVERYTHING or not self.measuring]
            todo.sort(key=lambda snippet: told[snippet.name])
        return todo

    def _told_elsewhere(self, snippet: Snippet) -> Told:
        """What other devices' records leave for this machine to tell of a snippet."""
        found = []
        for path in sorted(self.book.measurements.glob(f"*/{snippet.name}.json")):
            if path.parent != self.folder and (record := read_or_none(path)):
                own = [value for place, value in leaves([], record.values) if is_device_value(list(place))]
                found.append(Told.NOT_ALL if None in own else Told.ITS_OWN if own else Told.EVERYTHING)
        return max(found, default=Told.NOTHING)

    def _measures_nothing(self, snippet: Snippet) -> bool:
        """Whether a committed record of this very code has exact values alone: others may run beside it."""
        found = map(read_or_none, self.book.measurements.glob(f"*/{snippet.name}.json"))
        fresh = [leaves([], record.values) for record in found if record and not is_stale(record, snippet)]
        return any(not any(is_device_value(list(place)) for place, _ in values) for values in fresh)

    def _is_stale(self, snippet: Snippet) -> bool:
        return is_stale(read_or_none(self.folder / f"{snippet.name}.json"), snippet)

    def _record(self, snippet: Snippet, source_hash: str) -> None:
        before = read_gpu_state()
        with watch_gpu() as samples:
            result = run(snippet, self.time_limit)
        during = at_work(samples)
        if result.warnings:
            print(f"{snippet.name} wrote to standard error:\n{result.warnings.rstrip()}", file=sys.stderr)
        if Snippet.read(snippet.path).hash != source_hash:
            raise LedgerError(
                [Problem(snippet.path, 0, "was changed while it ran, so it is not recorded; run it again")]
            )
        record = Record.of(snippet, result, {"before": before, "during": during})
        if problems := list(_problems(snippet, record)):
            raise LedgerError(problems)
        record.write(self.folder / f"{snippet.name}.json")
        clock = (during or {}).get("sm_clock_mhz", "unknown")
        for name in record.over_peak():
            message = f"{snippet.name}: {name} is over 1; the clock was {clock} MHz: above the datasheet's?"
            print(message, file=sys.stderr)
        widest = record.largest_spread
        if self.to_publish and widest and widest[0] > WIDE_SPREAD:
            message = f"{snippet.name}: the widest spread is {widest[0]:.1%} of its median; was the machine idle?"
            print(f"{message} --force measures again", file=sys.stderr)


def _problems(snippet: Snippet, record: Record) -> Iterator[Problem]:
    """For what a record would be refused when it is read, at the lines of the snippet that it comes from.

    It is said now: what a run on a rented GPU has cost is lost by the time that somebody checks its records.
    """
    if not (whole := record.problems()):
        return
    bare = replace(record, values={}, outputs={})
    found = bare.problems()
    yield from (Problem(snippet.path, 0, message) for message in found)
    parts = [(snippet.bindings[name].line, replace(bare, values={name: record.values[name]})) for name in record.values]
    for name, text in record.outputs.items():
        parts.append((snippet.sections[name].first_line - 1, replace(bare, outputs={name: text})))
    for line, part in parts:
        for message in part.problems():
            if message not in found:
                mend = "; print without it" if part.outputs else ""
                yield Problem(snippet.path, line, message + mend)
                found.append(message)
    if not found:
        yield from (Problem(snippet.path, 0, f"its record would be {message}; bind or print less") for message in whole)


def read_or_none(path: Path) -> Record | None:
    """The record at path; None if there is none or it is no longer readable, so that it is measured again."""
    try:
        return Record.read(path)
    except (FileNotFoundError, LedgerError):
        return None


@contextmanager
def _alone(book: Book) -> Iterator[None]:
    """Waits until no other process measures on this machine for this book: two at once would measure each other, and
    write the same records. A process that is killed gives way too."""
    book.cache.mkdir(parents=True, exist_ok=True)
    with (book.cache / f"{machine_key()}.lock").open("a") as lock:
        with suppress(OSError):  # a file system that has no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _with_progress(snippets: list[Snippet]) -> Iterator[Snippet]:
    """The snippets one by one, with a line on a terminal that says which is running."""
    began = time.monotonic()
    for number, snippet in enumerate(snippets, start=1):
        if sys.stderr.isatty():
            elapsed = time.monotonic() - began
            print(
                f"\r\033[K[{number}/{len(snippets)}] {elapsed:.0f} s  {snippet.name}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        yield snippet
    if snippets and sys.stderr.isatty():
        print(f"\r\033[K{len(snippets)} snippets in {time.monotonic() - began:.1f} s", file=sys.stderr)
