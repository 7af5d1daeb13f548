"""The site serves the library as a wheel: alone in a fresh environment it plans; equal code makes an equal file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.site.wheel import build_wheel, wheel_name
from tests.conftest import ROOT

Library = Callable[..., Book]


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment in which nothing is installed but the wheel, without a network."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-cache-dir"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    return programs


def test_a_fresh_environment_plans_with_it(fresh: Path, tmp_path: Path) -> None:
    asked = [str(fresh / "flops-bytes"), "plan", "--model", "gpt2", "--gpu", "H100 SXM", "--json"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, env={})
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["found"]["parameters"]["total"] == 124_439_808
    schema = subprocess.run([fresh / "flops-bytes", "plan", "--schema"], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(schema.stdout)["title"]


def test_it_holds_the_whole_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {
        str(path.relative_to(ROOT)) for path in Book(ROOT).code() if path.is_relative_to(ROOT / "flops_bytes")
    }


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """A book with a library of one module, which says what is wanted."""

    def make(says: str, name: str = "book") -> Book:
        book = Book(tmp_path / name)
        shutil.rmtree(book.root, ignore_errors=True)
        book.library.mkdir(parents=True)
        (book.library / "__init__.py").write_text(says)
        shutil.copy(ROOT / "pyproject.toml", book.root)
        return book

    return make


def test_equal_code_makes_an_equal_wheel_and_other_code_another_version(library: Library, tmp_path: Path) -> None:
    one, same = (build_wheel(library("x = 1\n", name), tmp_path / name) for name in ("one", "same"))
    assert one and same and one.name == same.name and one.read_bytes() == same.read_bytes()
    other = build_wheel(library("x = 2\n"), one.parent)
    assert other and other.name != one.name
    assert list(one.parent.glob("*.whl")) == [other], "the one before is gone"


def test_a_book_without_a_library_has_no_wheel(small_book: Book) -> None:
    assert wheel_name(small_book) is None and build_wheel(small_book, small_book.root) is None
