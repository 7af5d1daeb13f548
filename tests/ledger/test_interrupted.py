"""A recorder that is killed at any moment leaves no half record, and the next run goes on where it was."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.record import Record
from tests.conftest import ROOT

NAMES = [f"part_{number}" for number in range(8)]
KILLS = 16
# The ledger's own recording, but for the run of a snippet, for which torch would have to load; files are written in
# halves, so that a kill falls between them more often than not.
WITHOUT_TORCH = """
import sys, time
from pathlib import Path
from ledger import __main__, measure
from ledger.run import Run

opened = Path.open

def slow(path, mode="r", **options):
    file = opened(path, mode, **options)
    if mode == "w":
        write = file.write
        def in_halves(text):
            write(text[: len(text) // 2])
            file.flush()
            time.sleep(0.01)
            return write(text[len(text) // 2 :])
        file.write = in_halves
    return file

Path.open = slow

about = {"id": "made-up", "kind": "cpu", "name": "Made up"}
software = {"torch": "2", "python": "3"}
measure.ask_device = lambda: about
measure.run = lambda snippet, limit: Run({"text": "x" * 60000}, {}, "", about, software, 0.0)
sys.exit(__main__.main(sys.argv[1:]))
"""


def start_recording(book: Book, with_torch: bool = True) -> subprocess.Popen[bytes]:
    program = ["-m", "ledger"] if with_torch else ["-c", WITHOUT_TORCH]
    command = [sys.executable, *program, "--root", str(book.root), "record"]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE)


def readable(book: Book) -> dict[str, str]:
    """The records there are; reading one that is not whole would raise."""
    return {path.stem: Record.read(path).measured_at for path in book.measurements.glob("*/[!.]*.json")}


def files(book: Book) -> set[Path]:
    return set(book.measurements.glob("*/*"))


def test_a_record_whose_writing_ends_halfway_leaves_the_old_one(
    small_book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    old = Record.read(path)

    def end(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", end)
    with pytest.raises(KeyboardInterrupt):
        dataclasses.replace(old, measured_at="2026-01-01T00:00:00+00:00").write(path)
    assert Record.read(path) == old
    monkeypatch.undo()
    old.write(path)
    assert files(small_book) == {path}, "an unfinished file was left"


@pytest.mark.parametrize(("with_torch", "kills", "seconds"), [(False, KILLS, 0.08), (True, 1, 0.15)])
def test_kill_at_random_moments(tmp_path: Path, with_torch: bool, kills: int, seconds: float) -> None:
    book = Book(tmp_path)
    book.snippets.mkdir()
    for name in NAMES:
        (book.snippets / f"{name}.py").write_text("text = 'x' * 60000\n")
    rng = random.Random(20)
    interrupted = 0
    for _ in range(3 * kills + 2):  # some end before they are killed
        there = files(book)
        recording = start_recording(book, with_torch)
        until = time.monotonic() + 600
        while files(book) == there and recording.poll() is None and time.monotonic() < until:
            time.sleep(0.001)  # from the first file on, any moment is interesting
        time.sleep(rng.uniform(0, seconds))
        interrupted += recording.poll() is None
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(recording.pid, signal.SIGKILL)
        recording.communicate()
        before = readable(book)
        if len(before) == len(NAMES):
            for path in book.measurements.glob("*/*.json"):
                path.unlink()
        if interrupted == kills:
            break
    assert interrupted == kills
    before = readable(book)
    finished = start_recording(book, with_torch)
    assert finished.communicate()[1] == b""
    after = readable(book)
    assert sorted(after) == NAMES
    assert before.items() <= after.items(), "what was recorded before the kill was measured again"
    assert not list(book.measurements.glob("*/.*")), "an unfinished file was left"


def test_nothing_is_printed_where_there_is_no_terminal(small_book: Book) -> None:
    recording = start_recording(small_book)
    assert recording.communicate()[1] == b""
    assert recording.returncode == 0
