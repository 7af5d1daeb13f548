"""The site serves the library as a wheel, which alone plans, and one of what pages work on; equal code, equal file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.site.bundle import SITE, Texts
from ledger.site.wheel import build_wheels, wheel_names
from tests.conftest import ROOT, serve

BOOK = Book(ROOT)
LARGEST_BYTES = 490_000  # of the library's wheel: who plans downloads no more than it takes to plan
Library = Callable[..., Book]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the wheels where the site has them."""
    folder = tmp_path_factory.mktemp("site")
    assert {*build_wheels(BOOK, folder / "downloads")} == {package.name for package in BOOK.packages}
    return folder


@pytest.fixture(scope="module")
def wheels(site: Path) -> dict[str, Path]:
    return {package: site / "downloads" / name for package, name in wheel_names(BOOK).items()}


@pytest.fixture(scope="module")
def fresh(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment in which nothing is installed but the library's wheel, without a network."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-cache-dir"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheels["flops_bytes"])], check=True)
    return programs


def test_a_fresh_environment_plans_with_it(fresh: Path, tmp_path: Path) -> None:
    asked = [str(fresh / "flops-bytes"), "plan", "--model", "gpt2", "--gpu", "H100 SXM", "--json"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, env={})
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["found"]["parameters"]["total"] == 124_439_808
    schema = subprocess.run([fresh / "flops-bytes", "plan", "--schema"], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(schema.stdout)["title"]


@pytest.mark.parametrize("package", BOOK.packages, ids=lambda package: package.name)
def test_each_holds_its_whole_package_and_nothing_else(package: Path, wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels[package.name]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {str(path.relative_to(ROOT)) for path in BOOK.code() if path.is_relative_to(package)}
    assert held == files - {f"{package.name}/pyproject.toml"}


def test_the_library_comes_without_what_pages_alone_work_on(wheels: dict[str, Path]) -> None:
    assert wheels["flops_bytes"].stat().st_size < LARGEST_BYTES


@pytest.mark.parametrize("page", ["tokens", "library"])
def test_a_page_runs_with_what_its_notebook_installs_from_the_site(site: Path, tmp_path: Path, page: str) -> None:
    """The texts and the recordings that it works on come with it; nothing of the checkout is there."""
    notebook = json.loads(Texts(BOOK, local=False).of(BOOK.docs / "en" / f"{page}.md", "en").texts["ipynb"])
    first, *others = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    installed = tmp_path / "installed"
    with serve(site) as address:
        wanted = [each.replace(SITE, address) for each in re.findall(rf'"({SITE}[^"]+)"', first)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--proxy", "", "--target", str(installed), *wanted], check=True)
    code = next(cell for cell in others if "flops_bytes_data" in cell)
    (empty := tmp_path / "empty").mkdir()
    paths = os.pathsep.join([str(installed), sysconfig.get_path("purelib")])  # torch is there; -S leads to no checkout
    command = [sys.executable, "-S", "-c", f"{code}\nprint(__import__('flops_bytes_data').__file__)"]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(str(installed)) and len(done.stdout.splitlines()) > 2


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
    (one,), (same,) = (build_wheels(library("x = 1\n", name), tmp_path / name).values() for name in ("one", "same"))
    assert one.name == same.name and one.read_bytes() == same.read_bytes()
    (other,) = build_wheels(library("x = 2\n"), one.parent).values()
    assert other.name != one.name
    assert list(one.parent.glob("*.whl")) == [other], "the one before is gone"


def test_a_book_without_a_library_has_no_wheel(small_book: Book) -> None:
    assert not wheel_names(small_book) and not build_wheels(small_book, small_book.root)
