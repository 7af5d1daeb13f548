"""Where a book keeps its things, and how it speaks of what is wrong with them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

PUBLISHED = "measurements/published"  # what others measured: data of snippets, no records


class Problem(NamedTuple):
    """One thing to mend, at a line of a file (line 0: the file as a whole)."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        path = self.path.relative_to(Path.cwd()) if self.path.is_relative_to(Path.cwd()) else self.path
        return f"{path}:{self.line}: {self.message}" if self.line else f"{path}: {self.message}"


class LedgerError(Exception):
    """Bad input; its text is one problem a line, each with its file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(dict.fromkeys(problems), key=lambda problem: (str(problem.path), problem.line))
        super().__init__("\n".join(map(str, self.problems)))


def explain(error: OSError) -> str:
    """What the system refused, in a line with the file's name: a full disk, a folder that cannot be written."""
    return str(Problem(Path(error.filename or "."), 0, error.strerror or str(error)))


def _digest(path: Path) -> str:
    """Of what a file holds; of what is none, or cannot be read, why it has none."""
    if not path.is_file():  # to read a pipe would wait for ever
        path.stat()
        return "no file"
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise
    except OSError as error:
        return str(error.strerror)


def _stamp(paths: Iterable[Path]) -> str:
    """Of what files hold. Their times would not do: an edit may keep its file's time and size."""
    listed = []
    for path in paths:
        with suppress(FileNotFoundError):  # taken away meanwhile
            listed.append((str(path), _digest(path)))
    return hashlib.sha256(repr(listed).encode()).hexdigest()


@dataclass(frozen=True)
class Book:
    """The folders of a book, all below one root."""

    root: Path

    @cached_property
    def snippets(self) -> Path:
        return self.root / "snippets"

    @cached_property
    def library(self) -> Path:
        """What snippets share: a package."""
        return self.root / "flops_bytes"

    @cached_property
    def packages(self) -> tuple[Path, Path]:
        """What a page's notebook can install: the library, and the texts and recordings that pages work on."""
        return self.library, self.root / "flops_bytes_data"

    def code(self) -> list[Path]:
        """The files that snippets consist of: they, the packages, the data that lie beside each, and
        published ones with what reads them."""
        published = self.root.joinpath(PUBLISHED).rglob("[!.]*.*")
        readers = self.root.joinpath("published").rglob("[!.]*.py")
        own = [path for folder in (self.snippets, *self.packages) for path in folder.rglob("[!.]*.*")]
        files = [*own, *readers, *published]
        return sorted(path for path in files if "__pycache__" not in path.parts)

    @cached_property
    def measurements(self) -> Path:
        return self.root / "measurements"

    @cached_property
    def docs(self) -> Path:
        return self.root / "docs"

    @cached_property
    def cache(self) -> Path:
        return self.root / ".cache"

    def stamp(self, *patterns: str) -> str:
        """Of what files below the root hold: another one as soon as one of them is changed, added or taken away."""
        return _stamp(path for pattern in patterns for path in sorted(self.root.glob(pattern)))

    def code_stamp(self) -> str:
        """The same of the snippets' files."""
        return _stamp(self.code())

    def is_done(self, what: str, stamp: str) -> bool:
        """Whether this was done when the stamp was the same."""
        path = self.cache / "done" / what
        return path.is_file() and path.read_text(encoding="utf-8") == stamp

    def set_done(self, what: str, stamp: str) -> None:
        """Notes it, if that can be noted: where it cannot, it is done again next time."""
        path = self.cache / "done" / what
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(stamp, encoding="utf-8")

    def snippet_files(self) -> dict[str, Path]:
        """Each snippet by its name, wherever it lies: in snippets/ or in a folder there.

        Raises LedgerError where two have one name: pages and records know a snippet by it alone.
        """
        found: dict[str, Path] = {}
        problems = []
        for path in sorted([*self.snippets.glob("[!.]*.py"), *self.snippets.glob("[!._]*/[!.]*.py")]):
            if (first := found.setdefault(path.stem, path)) != path:
                message = f"{first.relative_to(self.root)} is called {path.stem!r} too; each snippet has its own name"
                problems.append(Problem(path, 0, message))
        if problems:
            raise LedgerError(problems)
        return {name: found[name] for name in sorted(found)}

    def snippet_file(self, name: str) -> Path:
        """The snippet of that name; where it would lie, if there is none."""
        return self.snippet_files().get(name, self.snippets / f"{name}.py")

    def snippet_names(self) -> list[str]:
        return list(self.snippet_files())

    def chapters(self) -> list[Path]:
        """Every page of every language: docs/en/*.md, docs/zh/*.md."""
        return sorted(path for path in self.docs.glob("??/**/*.md"))
