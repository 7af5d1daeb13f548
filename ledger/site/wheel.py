"""The library as a wheel, which the site itself serves: equal code gives an equal file, other code another version."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path

from ledger.book import Book, LedgerError, Problem

VERSION = re.compile(r'(?m)^version = "(?P<version>[^"]+)"$')
NAME = re.compile(r'(?m)^name = "(?P<name>[^"]+)"$')


def wheel_name(book: Book) -> str | None:
    """The file's name; None in a book without a library.

    Its version ends in a hash of the code: pip leaves what it has installed if only the code is another.
    """
    found = _metadata(book)
    return f"{found[0].replace('-', '_')}-{found[1]}-py3-none-any.whl" if found else None


def build_wheel(book: Book, folder: Path) -> Path | None:
    """Writes the wheel into a folder, in place of any other of the library; its path, None if there is no library."""
    name, found = wheel_name(book), _metadata(book)
    if not (name and found):
        return None
    for other in folder.glob(f"{found[0].replace('-', '_')}-*.whl"):
        if other.name != name:
            other.unlink()
    if not (folder / name).exists():
        from hatchling.builders.wheel import WheelBuilder

        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary)
            hidden = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(book.library, copy / book.library.name, ignore=hidden)
            for path in book.root.glob("LICENSE*"):
                shutil.copy(path, copy)
            project = _project(book)
            (copy / "pyproject.toml").write_text(VERSION.sub(f'version = "{found[1]}"', project), encoding="utf-8")
            folder.mkdir(parents=True, exist_ok=True)
            (built,) = WheelBuilder(str(copy)).build(directory=temporary, versions=["standard"])
            unfinished = folder / f".{name}"
            shutil.copy(built, unfinished)
            unfinished.replace(folder / name)
    return folder / name


def _project(book: Book) -> str:
    return (book.root / "pyproject.toml").read_text(encoding="utf-8")


def _metadata(book: Book) -> tuple[str, str] | None:
    """The distribution's name, and its version with the hash."""
    if not (book.library.is_dir() and (book.root / "pyproject.toml").is_file()):
        return None
    project = _project(book)
    name, version = NAME.search(project), VERSION.search(project)
    if not (name and version):
        raise LedgerError([Problem(book.root / "pyproject.toml", 0, "the project needs a name and a version")])
    files = sorted(path for path in book.code() if path.is_relative_to(book.library))
    listed = [(str(path.relative_to(book.root)), path.read_bytes()) for path in files]
    digest = hashlib.sha256(repr((project.partition("[dependency-groups]")[0], listed)).encode()).hexdigest()
    return name["name"], f"{version['version']}+{digest[:12]}"
