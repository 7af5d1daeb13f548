"""Every page with Python is a notebook too, of the same code, with all that it needs in an empty folder."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import traceback
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat
import pytest

from ledger.book import Book
from ledger.site.chapter import Chapter
from ledger.site.comments import without
from ledger.site.notebook import set_up
from tests.chapters import expand, library, published, write_files
from tests.conftest import ROOT
from tests.site.test_site import Page

LANGUAGES = ("en", "zh")
SECONDS = 600  # for one notebook
RUN = "two-questions"  # the one that is run as a notebook; of all others their pages' code is


@cache
def fences(path: Path) -> list[str]:
    """The Python that a page shows."""
    chapter = Chapter.parse(published(path.read_text(encoding="utf-8")), path)
    return [expand(fence).strip("\n") for fence in chapter.fences if fence.language == "python"]


PAGES = {path.stem: path for path in sorted((Book(ROOT).docs / "en").glob("*.md"))}


def read(site: Path, name: str, language: str) -> Any:
    path = site / "downloads" / f"{name}.{language}.ipynb"
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def cells_of(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def is_set_up(cell: str) -> bool:
    return cell.startswith(("%pip", "%%writefile"))


@pytest.mark.parametrize("name", PAGES)
def test_it_holds_the_pages_code_and_both_languages_the_same(site: Path, name: str) -> None:
    shown = fences(PAGES[name])
    if not shown:
        assert not [*(site / "downloads").glob(f"{name}.*.ipynb")]
        return
    english, chinese = (read(site, name, language) for language in LANGUAGES)
    for notebook in (english, chinese):
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == "python3"
    assert [cell for cell in cells_of(english) if not is_set_up(cell)] == shown
    assert [without(cell.split("\n"), "python") for cell in shown] == [
        without(cell.split("\n"), "python") for cell in cells_of(chinese) if not is_set_up(cell)
    ]
    assert list(filter(is_set_up, cells_of(english))) == list(filter(is_set_up, cells_of(chinese)))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_its_text_is_filled_and_its_links_lead_to_the_site(site: Path, name: str, language: str, address: str) -> None:
    if not fences(PAGES[name]):
        return
    text = "\n".join(cell.source for cell in read(site, name, language).cells if cell.cell_type == "markdown")
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert [sign for sign in ("{{", "8<-", "\n///", "{#", "[^", "](#", "site.invalid") if sign in prose] == []
    assert re.findall(r"\]\((?!http)[^)]*\)", prose) == []
    home = address if language == "en" else f"{address}zh/"
    assert f"]({home}{'' if name == 'index' else f'{name}/'})" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_page_with_python_links_its_notebook_and_no_other_does(site: Path, language: str) -> None:
    for path in (Book(ROOT).docs / language).glob("*.md"):
        folder = site if language == "en" else site / language
        text = (folder / ("" if path.stem == "index" else path.stem) / "index.html").read_text(encoding="utf-8")
        linked = [
            link.rpartition("/")[2] for link in Page(text).links if link.endswith(".ipynb") and "downloads" in link
        ]
        assert linked == ([f"{path.stem}.{language}.ipynb"] if fences(PAGES[path.stem]) else []), path.stem


def run_cells(cells: list[str], folder: Path, installed: Path, report: Connection) -> None:
    """In a process of its own, as Jupyter would, packages being there; says what went wrong, "" if nothing did."""
    os.chdir(folder)
    elsewhere = [path for path in sys.path if not path.startswith(str(ROOT)) or "site-packages" in path]
    sys.path[:] = ["", str(installed), *elsewhere]
    os.environ["PYTHONPATH"] = str(installed)  # of what it starts
    from IPython.core.interactiveshell import InteractiveShell

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    multiprocessing.set_start_method("fork", force=True)  # as in a new process: DataLoader's workers
    shell = InteractiveShell.instance()
    sys.modules["__main__"] = shell.user_module
    for cell in (cell for cell in cells if not cell.startswith("%pip")):
        result = shell.run_cell(cell, store_history=True)
        if error := result.error_before_exec or result.error_in_exec:
            report.send(f"{cell}\n\n{''.join(traceback.format_exception(error))}")
            return
    report.send("")


def failure(cells: list[str], folder: Path, installed: Path) -> str:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ledger.preload"])  # as the ledger does
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run_cells, args=(cells, folder, installed, theirs))
    process.start()
    theirs.close()
    try:
        said = ours.recv() if ours.poll(SECONDS) else f"not done after {SECONDS} s"
    except EOFError:
        said = "the process died"
    process.kill()
    process.join()
    return str(said)


def written(cells: list[str]) -> dict[str, str]:
    """The files that a notebook's first cells write beside it."""
    parts = [cell.removeprefix("%%writefile ").partition("\n") for cell in cells if cell.startswith("%%writefile ")]
    return {name: text for name, _, text in parts}


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_code_is_run_beside_the_files_that_it_writes(site: Path, tmp_path: Path, name: str) -> None:
    """What runs the blocks of every page (tests/chapters.py) gives them no more than the notebook does."""
    if fences(PAGES[name]):
        write_files(PAGES[name], tmp_path)
        found = {path.name: path.read_text(encoding="utf-8").rstrip("\n") for path in tmp_path.iterdir()}
        assert found == written(cells_of(read(site, name, "en")))


def test_its_first_cells_write_the_script_that_it_starts_and_the_data_that_it_reads(small_book: Book) -> None:
    header = '# /// ledger\n# data = ["numbers.txt"]\n# ///\n'
    sources = {"started.py": "x = 1\n", "shown.py": f"{header}y = 2\n", "numbers.txt": "1 2 3\n"}
    for name, text in sources.items():
        (small_book.snippets / name).write_text(text, encoding="utf-8")
    embedded = {small_book.snippets / name for name in sources if name.endswith(".py")}

    def names(code: str) -> set[str]:
        return set(written(["".join(cell["source"]) for cell in set_up(small_book, code, embedded, wheels={})]))

    assert names("y = 2") == {"numbers.txt"}
    assert names('importlib.util.find_spec("started")') == {"started.py", "numbers.txt"}


def test_what_a_package_needs_of_another_is_installed_with_it(small_book: Book) -> None:
    for name, source in {"flops_bytes": "", "flops_bytes_data": "import flops_bytes\n"}.items():
        (small_book.root / name).mkdir(exist_ok=True)
        (small_book.root / name / "__init__.py").write_text(source)
    wheels = {"flops_bytes": "a", "flops_bytes_data": "b"}

    def cells(code: str) -> list[str]:
        return ["".join(cell["source"]) for cell in set_up(small_book, code, [], wheels)]

    assert cells("import flops_bytes") == ["%pip install --quiet a"]
    assert cells("import flops_bytes_data") == ["%pip install --quiet a b"]
    assert cells("import math") == []


def test_one_runs_in_an_empty_folder_as_jupyter_runs_it(site: Path, installed: Path, tmp_path: Path) -> None:
    cells = cells_of(read(site, RUN, "en"))
    assert "flops_bytes" in cells[0], "one that needs the library"
    assert failure(cells, tmp_path, installed) == ""


@pytest.fixture(scope="module")
def installed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels that the site serves, installed."""
    folder = tmp_path_factory.mktemp("library")
    offline = ["--quiet", "--no-index", "--no-deps", "--no-cache-dir", "--target", str(folder)]
    wheels = map(str, (site / "downloads").glob("*.whl"))
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, *wheels], check=True)
    return folder


def test_the_pages_code_is_run_with_the_library_that_the_site_serves(installed: Path) -> None:
    held = {
        path.relative_to(library()): path.read_bytes()
        for path in library().rglob("*.*")
        if path.is_file() and path.suffix != ".pyc"
    }
    theirs = {path: (installed / path).read_bytes() for path in held}
    assert held == theirs and {package.name for package in Book(ROOT).packages} == {path.parts[0] for path in held}


@pytest.mark.parametrize("name", PAGES)
def test_its_first_cell_installs_what_it_imports(site: Path, address: str, name: str) -> None:
    if not fences(PAGES[name]):
        return
    cells = cells_of(read(site, name, "en"))
    code = "\n".join(cell for cell in cells if not is_set_up(cell))
    imported = {match for match in re.findall(r"^ *(?:from|import) (\w+)", code, re.M)}
    needed = imported - {*sys.stdlib_module_names} - {"torch"}
    installs = [cell for cell in cells if cell.startswith("%pip")]
    assert len(installs) == bool(needed) and installs == cells[: len(installs)]
    asked = set("".join(installs).replace('"', "").split()[3:])
    served = {f"{address}downloads/{path.name}": path for path in (site / "downloads").glob("*.whl")}
    own = {served[each].name.partition("-")[0] for each in asked & {*served}}
    packages = {package.name for package in Book(ROOT).packages}
    assert own == packages & needed
    assert {re.split(r"\W", each)[0] for each in asked - {*served}} == needed - packages


def test_a_cell_that_fails_is_noticed(installed: Path, tmp_path: Path) -> None:
    beside = ["%%writefile beside.py\nx = 0", "from beside import x", "1 / x"]
    assert "ZeroDivisionError" in failure(beside, tmp_path, installed)
    assert failure(["x = 1", "print(x)"], tmp_path, installed) == ""
