"""A lab's page holds what its cells printed, is light and asks no other host; a cell that fails fails the build."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
import yaml

from ledger.book import Book
from ledger.site.check import check
from ledger.site.comments import Comments
from ledger.site.lab_source import in_language
from ledger.site.labs import run_once
from tests.conftest import ROOT
from tests.site.test_site import Page

NAMES = sorted(path.stem for path in (ROOT / "docs" / "labs").glob("*.py"))
LANGUAGES = ("en", "zh")
MAX_BYTES = 100_000  # of a page before compression; mkdocs-jupyter's own renderer makes 600,000
GPT2_PARAMETERS = ("124,439,808", "354,823,168", "774,030,080", "1,557,611,200")


def source(name: str, language: str) -> Any:
    text, problems = in_language(ROOT / "docs" / "labs" / f"{name}.py", Comments(Book(ROOT), language))
    assert problems == []
    return jupytext.reads(text, fmt="py")


def page_of(site: Path, name: str, language: str) -> Path:
    return (site if language == "en" else site / language) / "labs" / name.replace("_", "-") / "index.html"


def code(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_formulas(name: str) -> None:
    english, chinese = (re.findall(r"\$\$.+?\$\$", str(source(name, language).cells)) for language in LANGUAGES)
    assert english == chinese


def test_what_a_lab_says_in_no_language_but_english_is_named(tmp_path: Path) -> None:
    book = Book(tmp_path)
    lab = book.docs / "labs" / "lab.py"
    lab.parent.mkdir(parents=True)
    lab.write_text('# %% [markdown] slug="a"\n# # A lab\n\n# %%\nx = 1  # one\n\n# %% [markdown] slug="b"\n# ## B\n')
    lab.with_suffix(".zh.md").write_text("# 实验 {#a}\n\n文字。\n\n## 丙 {#c}\n\n## 又一个 {#c}\n")
    written, problems = in_language(lab, Comments(book, "zh"))
    assert written.startswith('# %% [markdown] slug="a"\n# # 实验\n#\n# 文字。\n\n# %%\nx = 1')
    assert [(problem.path.name, problem.line, problem.message) for problem in problems] == [
        ("lab.zh.md", 7, "{#c} stands there twice"),
        ("lab.py", 5, "docs/zh/comments/docs/labs/lab.yml lacks 'one', a comment that a page shows"),
        ("lab.py", 7, "docs/labs/lab.zh.md has no heading {#b}"),
        ("lab.zh.md", 7, "no cell has the slug 'c'"),
    ]
    (book.docs / "zh").mkdir()
    assert [problem for problem in check(book) if problem.path.parent == lab.parent] == problems


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_holds_what_the_cells_printed(site: Path, language: str) -> None:
    text = page_of(site, "gpt2_parameters", language).read_text(encoding="utf-8")
    printed = "".join(re.findall(r'<div class="output">.*?</div>', text, re.S))
    assert [(number, printed.count(number)) for number in GPT2_PARAMETERS] == [
        (number, 2) for number in GPT2_PARAMETERS
    ], "by hand and by the library"
    index = page_of(site, "gpt2_parameters", language).parents[2] / "search/search_index.json"
    assert any(entry["location"] == "labs/gpt2-parameters/" for entry in json.loads(index.read_text())["docs"])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_light_and_stands_alone(site: Path, name: str, language: str, address: str) -> None:
    path = page_of(site, name, language)
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < MAX_BYTES
    page = Page(text)
    assert [url for url in page.loads if "//" in url.replace(address, "")] == []
    assert "<style" not in text.split("<body")[1] and "cdn" not in text.lower()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_headings_formulas_and_code_are_the_books_own(site: Path, name: str, language: str) -> None:
    notebook, page = source(name, language), Page(page_of(site, name, language).read_text(encoding="utf-8"))
    slugs = [cell.metadata["slug"] for cell in notebook.cells if cell.cell_type == "markdown"]
    assert [slug for slug in slugs if slug not in page.ids] == []
    assert [slug for slug in slugs[1:] if f"#{slug}" not in page.links] == [], "the table of contents"
    assert page.python_blocks == len(code(notebook))
    assert [sign for sign in ("$", "{#", "](", ".md") if sign in page.prose] == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_can_be_taken_along(site: Path, name: str, language: str, address: str) -> None:
    page = page_of(site, name, language)
    link = f"{name.replace('_', '-')}.ipynb"
    assert link in Page(page.read_text(encoding="utf-8")).links
    notebook = nbformat.read(page.parent / link, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    assert code(notebook) == code(source(name, language))
    assert notebook.metadata.kernelspec.name == "python3"
    home = address if language == "en" else f"{address}zh/"
    links = re.findall(r"\]\(([^)]+)\)", "".join(cell.source for cell in notebook.cells))
    assert links and [url for url in links if not url.startswith(home)] == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("site")
def test_builds_for_other_addresses_share_the_checkouts_notebook(name: str, language: str) -> None:
    """A live preview beside these tests, for one."""
    text = (ROOT / "docs" / language / "labs" / f"{name.replace('_', '-')}.ipynb").read_text(encoding="utf-8")
    assert "](../" in text and "](http://127" not in text


def test_builds_that_share_a_folder_run_the_same_cells_once(tmp_path: Path) -> None:
    def ask(*cells: str, printed: str = "", folder: str = str(tmp_path / "outputs")) -> tuple[bool, str]:
        notebook = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
            cells=[nbformat.v4.new_markdown_cell(printed), *map(nbformat.v4.new_code_cell, cells)]  # type: ignore[no-untyped-call]
        )
        with run_once(notebook, folder) as has_run:
            if not has_run and not printed:
                raise RuntimeError("a cell fails")
            if not has_run:
                notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text=printed)]  # type: ignore[no-untyped-call]
        return has_run, "".join(output.text for output in notebook.cells[1].outputs)

    with pytest.raises(RuntimeError):
        ask("print(1)")
    assert ask("print(1)", printed="1\n") == (False, "1\n"), "one that failed is run again"
    assert ask("print(1)", printed="2\n") == ask("print(1)", printed="3\n") == (True, "1\n")
    assert ask("print(3)  # one", printed="3\n") == (False, "3\n")
    assert ask("print(3)  # 一", printed="4\n") == (True, "3\n"), "comments are a language's own"
    assert ask("print(2)", printed="2\n") == (False, "2\n")
    assert ask("print(1)", "x", printed="4\n") == (False, "4\n")
    assert ask("print(1)", printed="5\n", folder="") == (False, "5\n")


def test_a_cell_that_fails_fails_the_build(tmp_path: Path) -> None:
    lab, docs = tmp_path / "docs" / "labs" / "good_or_bad.py", tmp_path / "docs" / "en"
    for folder in (lab.parent, docs, Book(tmp_path).snippets):
        folder.mkdir(parents=True)
    (docs / "index.md").write_text("# Start {#start}\n")
    lab.write_text('# %% [markdown] slug="lab"\n# # Lab\n\n# %%\nprint(6 / 0)\n')
    config = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(docs),
        "hooks": [],
        "theme": {"custom_dir": str(ROOT / "docs" / "overrides")},
        "markdown_extensions": {"ledger.site.labs": {"root": str(tmp_path)}},
        "nav": ["index.md", "labs/good-or-bad.ipynb"],
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "-f",
        str(tmp_path / "mkdocs.yml"),
        "-d",
        str(tmp_path / "site"),
    ]
    environment = {**os.environ, "LOCAL": "0", "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode != 0 and "ZeroDivisionError" in built.stderr
