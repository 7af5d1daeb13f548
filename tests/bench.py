"""How long the book takes to build, and how much memory: `make bench`. Prints figures and stores them in .cache/."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ledger.book import Book
from ledger.quote import open_source
from ledger.run import run
from ledger.snippet import Snippet

ROOT = Path(__file__).parent.parent


def seconds_of(*command: str, root: Path = ROOT) -> float:
    """Wall time of a command that must succeed."""
    began = time.perf_counter()
    subprocess.run(command, cwd=root, check=True, capture_output=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return time.perf_counter() - began


def ledger(*arguments: str, root: Path = ROOT) -> float:
    return seconds_of(sys.executable, "-m", "ledger", *arguments, root=root)


def build(root: Path = ROOT) -> float:
    """Both languages."""
    mkdocs = (sys.executable, "-m", "mkdocs", "build")
    return seconds_of(*mkdocs, root=root) + seconds_of(*mkdocs, "-f", "mkdocs.zh.yml", root=root)


def copy_of_the_book(folder: str) -> Path:
    """The sources without what was built from them."""
    target = Path(folder) / "book"
    ignored = shutil.ignore_patterns(".git", ".venv", "site", ".mypy_cache", ".ruff_cache", "__pycache__")
    shutil.copytree(ROOT, target, symlinks=True, ignore=ignored)
    return target


def edit_to_number() -> float:
    """From saving one changed snippet to both languages rebuilt with its new record."""
    with tempfile.TemporaryDirectory() as folder:
        root = copy_of_the_book(folder)
        snippet = root / "snippets" / "storage_and_strides.py"
        snippet.write_text(snippet.read_text(encoding="utf-8") + "\nan_edit = 1\n", encoding="utf-8")
        return ledger("run", root=root) + build(root)


def build_with_more_pages(times: int) -> float:
    """Both languages with every page so many times."""
    with tempfile.TemporaryDirectory() as folder:
        root = copy_of_the_book(folder)
        for config in ("mkdocs.yml", "mkdocs.zh.yml"):
            path = root / config
            path.write_text(path.read_text(encoding="utf-8").partition("\nnav:")[0] + "\n", encoding="utf-8")
        for page in Book(root).chapters():
            for number in range(1, times):
                shutil.copy(page, page.with_stem(f"{page.stem}-{number}"))
        return build(root)


def overhead() -> float:
    """What running a snippet costs over the snippet's own work: the median of ten, the server being there."""
    snippet = Snippet.read(ROOT / "snippets" / "accounting.py")
    run(snippet)
    extra = []
    for _ in range(10):
        began = time.perf_counter()
        own = run(snippet).seconds
        extra.append(time.perf_counter() - began - own)
    return statistics.median(extra)


def look_up() -> float:
    """Opening all records, as every build does once."""
    began = time.perf_counter()
    open_source(Book(ROOT), "", local=True)
    return time.perf_counter() - began


FIGURES: dict[str, tuple[str, float, Callable[[], float]]] = {
    "all_snippets_cold": ("all snippets, cold", 60, lambda: ledger("run", "--force")),
    "nothing_changed": ("make site with nothing changed", 6, lambda: seconds_of("make", "site")),
    "ledger_nothing_changed": ("of which the ledger: run and check", 0.5, lambda: ledger("run") + ledger("check")),
    "records": ("of which reading all records", 0.5, look_up),
    "edit": ("one edited snippet to new numbers, both languages", 5, edit_to_number),
    "overhead": ("a snippet's overhead over its own work, median", 0.1, overhead),
    "pages_1x": ("building both languages", 6, lambda: build_with_more_pages(1)),
    "pages_4x": ("building four times the pages", 24, lambda: build_with_more_pages(4)),
}


def main() -> None:
    figures: dict[str, float] = {}
    for key, (what, aim, measure) in FIGURES.items():
        figures[key] = measure()
        print(f"{what:52}{figures[key]:8.2f} s   aim {aim:g} s{'' if figures[key] < aim else '   MISSED'}", flush=True)
    figures["memory_mib"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{'memory of the largest process':52}{figures['memory_mib']:8.0f} MiB aim 1024 MiB")
    target = ROOT / ".cache" / "bench.json"
    target.write_text(json.dumps({"at": time.strftime("%Y-%m-%d"), **figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
