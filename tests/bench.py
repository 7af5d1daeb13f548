"""How long the book takes to build, and how much memory: `make bench`. Prints figures and stores them in .cache/."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import psutil

from ledger.book import Book
from ledger.site.quote import open_source
from tests.conftest import free_port

ROOT = Path(__file__).parent.parent


def seconds_of(*command: str, root: Path = ROOT) -> float:
    """Wall time of a command that must succeed."""
    began = time.perf_counter()
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    return time.perf_counter() - began


def ledger(*arguments: str) -> float:
    return seconds_of(sys.executable, "-m", "ledger", *arguments)


@contextmanager
def copy_of_the_book(*without: str) -> Iterator[Path]:
    """The book with all that was built of it but what is named, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "book"
        left_out = (".git", ".venv", "site", ".mypy_cache", ".ruff_cache", "__pycache__", *without)
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
        (root / ".venv").symlink_to(ROOT / ".venv")
        yield root


def nothing_changed() -> float:
    seconds_of("make", "site")
    return seconds_of("make", "site")


def edit_to_number() -> float:
    """From saving a snippet to its new number on the page that `make serve` shows."""
    with copy_of_the_book() as root:
        port = free_port()
        snippet, page = root / "snippets" / "storage_and_strides.py", root / "docs" / "en" / "storage-and-strides.md"
        code = snippet.read_text(encoding="utf-8")
        snippet.write_text(f"{code}\nan_edit = 'before'\n", encoding="utf-8")
        with page.open("a", encoding="utf-8") as file:
            file.write("\n{{ storage_and_strides.an_edit }}\n")
        command = ["make", "serve", f"PORT_en={port}"]
        with subprocess.Popen(
            command, cwd=root, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                address = f"http://127.0.0.1:{port}/storage-and-strides/"
                wait_for(address, "before")
                time.sleep(3)  # as long as nobody edits anything
                began = time.perf_counter()
                snippet.write_text(f"{code}\nan_edit = 'after'\n", encoding="utf-8")
                wait_for(address, "after")
                return time.perf_counter() - began
            finally:
                os.killpg(server.pid, signal.SIGTERM)


def wait_for(address: str, text: str, seconds: float = 120) -> None:
    """Until the page quotes the text."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError):
            if f">{text}</data>" in urlopen(address).read().decode():
                return
        time.sleep(0.05)
    raise TimeoutError(f"{address} does not show {text!r} after {seconds:g} s")


def build_with_more_pages(times: int) -> float:
    """Both languages with every page so many times, none of them built before."""
    with copy_of_the_book() as root:
        for config in ("mkdocs.yml", "mkdocs.zh.yml"):
            path = root / config
            path.write_text(path.read_text(encoding="utf-8").partition("\nnav:")[0] + "\n", encoding="utf-8")
        for page in Book(root).chapters():
            for number in range(1, times):
                shutil.copy(page, page.with_stem(f"{page.stem}-{number}"))
        return seconds_of("make", "site", root=root)


RUN_TEN_TIMES = """
import statistics, time
from pathlib import Path
from ledger.run import run
from ledger.snippet import Snippet

snippet = Snippet.read(Path("snippets/index.py"))
run(snippet)
extra = []
for _ in range(10):
    began = time.perf_counter()
    own = run(snippet).seconds
    extra.append(time.perf_counter() - began - own)
print(statistics.median(extra))
"""


def overhead() -> float:
    """What running a snippet costs over the snippet's own work: the median of ten, the server being there.

    In a process of its own: a run's child imports what its parent's main module does.
    """
    command = [sys.executable, "-c", RUN_TEN_TIMES]
    return float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def look_up() -> float:
    """Opening all records, as every build does once."""
    began = time.perf_counter()
    open_source(Book(ROOT), "", local=True)
    return time.perf_counter() - began


def memory_of_a_build() -> float:
    """MiB at the peak of `make site` from nothing: all its processes together, what they share counted once."""
    with copy_of_the_book(".cache") as root:
        build = subprocess.Popen(["make", "site"], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak = 0
        while build.poll() is None:
            now = 0
            for process in psutil.Process(build.pid).children(recursive=True):
                with suppress(psutil.Error):  # it may have ended meanwhile
                    now += process.memory_full_info().pss
            peak = max(peak, now)
            time.sleep(0.05)
    if build.returncode:
        raise subprocess.CalledProcessError(build.returncode, "make site")
    return peak / 2**20


# What is measured, its unit, and the most that it should be
FIGURES: dict[str, tuple[str, str, float, Callable[[], float]]] = {
    "all_snippets_cold": ("all snippets, cold", "s", 60, lambda: ledger("run", "--force")),
    "nothing_changed": ("make site with nothing changed", "s", 6, nothing_changed),
    "ledger_nothing_changed": ("of which the ledger: run and check", "s", 0.5, lambda: ledger("run") + ledger("check")),
    "records": ("reading all records", "s", 0.5, look_up),
    "edit": ("one edited snippet to its new number on the page", "s", 5, edit_to_number),
    "overhead": ("a snippet's overhead over its own work, median", "s", 0.1, overhead),
    "pages_1x": ("all pages of both languages anew", "s", 20, lambda: build_with_more_pages(1)),
    "pages_4x": ("four times the pages", "s", 80, lambda: build_with_more_pages(4)),
    "memory": ("memory of a build from nothing, all processes", "MiB", 1024, memory_of_a_build),
}


def main() -> None:
    figures: dict[str, float] = {}
    for key, (what, unit, most, measure) in FIGURES.items():
        figures[key] = measure()
        missed = "" if figures[key] < most else "   MISSED"
        print(f"{what:52}{figures[key]:8.{2 if unit == 's' else 0}f} {unit:4} at most {most:g}{missed}", flush=True)
    target = ROOT / ".cache" / "bench.json"
    target.write_text(json.dumps({"at": time.strftime("%Y-%m-%d"), **figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
