"""The book's packages as wheels, which the site serves: equal code gives an equal file, other code another version.

One is the library. The other has what pages work on beside it, which nobody installs who only plans or counts.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ledger.book import Book, LedgerError, Problem

VERSION = re.compile(r'(?m)^version = "(?P<version>[^"]+)"$')
NAME = re.compile(r'(?m)^name = "(?P<name>[^"]+)"$')


def wheel_names(book: Book) -> dict[str, str]:
    """Of each package the wheel's name."""
    return {distribution.package.name: distribution.wheel_name for distribution in _distributions(book)}


def build_wheels(book: Book, folder: Path) -> dict[str, Path]:
    """Writes the wheels into a folder, in place of any others of these packages; of each package its path."""
    return {distribution.package.name: distribution.build(folder) for distribution in _distributions(book)}


def _distributions(book: Book) -> Iterator[Distribution]:
    """The packages that have a pyproject.toml: each its own, the library that at the root."""
    for package in book.packages:
        project = book.root if package == book.library else package
        if package.is_dir() and (project / "pyproject.toml").is_file():
            yield Distribution(book, package, project)


class Distribution:
    """A package and the folder of the pyproject.toml that says how a wheel is made of it."""

    def __init__(self, book: Book, package: Path, project: Path) -> None:
        self.book, self.package, self.project = book, package, project

    @cached_property
    def settings(self) -> str:
        """What its pyproject.toml says."""
        return (self.project / "pyproject.toml").read_text(encoding="utf-8")

    @cached_property
    def files(self) -> list[Path]:
        return [path for path in self.book.code() if path.is_relative_to(self.package)]

    @cached_property
    def name_and_version(self) -> tuple[str, str]:
        """As a wheel's name has them. The version ends in a hash of the code: pip leaves what it has installed if only
        the code is another.
        """
        name, version = NAME.search(self.settings), VERSION.search(self.settings)
        if not (name and version):
            raise LedgerError([Problem(self.project / "pyproject.toml", 0, "the project needs a name and a version")])
        listed = [(str(path.relative_to(self.book.root)), path.read_bytes()) for path in self.files]
        digest = hashlib.sha256(repr((self.settings.partition("[dependency-groups]")[0], listed)).encode()).hexdigest()
        return name["name"].replace("-", "_"), f"{version['version']}+{digest[:12]}"

    @property
    def wheel_name(self) -> str:
        return f"{'-'.join(self.name_and_version)}-py3-none-any.whl"

    def build(self, folder: Path) -> Path:
        name, version = self.name_and_version
        for other in folder.glob(f"{name}-*.whl"):
            if other.name != self.wheel_name:
                other.unlink()
        wheel = folder / self.wheel_name
        if not wheel.exists():
            from hatchling.builders.wheel import WheelBuilder

            with tempfile.TemporaryDirectory() as temporary:
                copy = Path(temporary)
                for path in self.files:
                    (place := copy / path.relative_to(self.project)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, place)
                for path in self.book.root.glob("LICENSE*"):
                    shutil.copy(path, copy)
                versioned = VERSION.sub(f'version = "{version}"', self.settings)
                (copy / "pyproject.toml").write_text(versioned, encoding="utf-8")
                folder.mkdir(parents=True, exist_ok=True)
                (built,) = WheelBuilder(str(copy)).build(directory=temporary, versions=["standard"])
                unfinished = folder / f".{wheel.name}"
                shutil.copy(built, unfinished)
                unfinished.replace(wheel)
        return wheel
