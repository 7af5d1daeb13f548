"""What several tests need: a small book to break, and the real site, built once from the committed records."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.bundle import bundle
from ledger.record import Record
from ledger.run import run
from ledger.snippet import Snippet

ROOT = Path(__file__).parent.parent

GOOD_SNIPPET = """\
# --8<-- [start:count]
size_bytes = 4 * 8
print(size_bytes)
# --8<-- [end:count]
measured_seconds = 0.5
sizes = {"small": 1, "large": [2, 3]}
"""
GOOD_PAGE = """\
# Page {#page}

It takes {{ good.size_bytes }}.

```python
--8<-- "snippets/good.py:count"
```
/// output | good:count
///
"""


@pytest.fixture(scope="session")
def book() -> Book:
    return Book(ROOT)


@pytest.fixture
def small_book(tmp_path: Path) -> Book:
    """One good snippet with its record, one good page in each language."""
    book = Book(tmp_path)
    for folder in (book.snippets, book.docs / "en", book.docs / "zh", tmp_path / "figures"):
        folder.mkdir(parents=True)
    (book.snippets / "good.py").write_text(GOOD_SNIPPET)
    for language in ("en", "zh"):
        (book.docs / language / "page.md").write_text(GOOD_PAGE)
    snippet = Snippet.read(book.snippets / "good.py")
    record = Record.of(snippet, run(snippet))
    record.write(book.measurements / record.device["id"] / "good.json")
    return book


@pytest.fixture
def write_snippet(tmp_path: Path) -> Callable[[str], Path]:
    def write(source: str) -> Path:
        path = tmp_path / "broken.py"
        path.write_text(source)
        return path

    return write


@pytest.fixture(scope="session")
def address() -> str:
    """Where the built site will be served: a free port of this machine, known before the build."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, address: str) -> Path:
    """Both languages, built strictly from the committed records alone."""
    folder = tmp_path_factory.mktemp("site")
    for config, target, suffix in (("mkdocs.yml", folder, ""), ("mkdocs.zh.yml", folder / "zh", "zh/")):
        environment = {**os.environ, "LOCAL": "0", "SITE_URL": address + suffix, "NO_MKDOCS_2_WARNING": "1"}
        command = [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", str(target)]
        built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert built.returncode == 0, built.stdout + built.stderr
    bundle(Book(ROOT), folder)
    return folder
