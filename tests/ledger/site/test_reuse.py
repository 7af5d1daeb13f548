"""A page that is taken from the last build is the page that would be made anew; what it shows has not changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from material.plugins.search.plugin import SearchIndex
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.structure.pages import Page

from ledger.__main__ import main
from ledger.book import Book
from ledger.site.reuse import code
from tests.conftest import ROOT

CONFIG = f"""\
site_name: Small
docs_dir: docs/en
strict: true
theme: material
hooks: [{ROOT}/ledger/site/reuse.py]
plugins: {{ search: {{}} }}
markdown_extensions:
  pymdownx.superfences: {{}}
  pymdownx.snippets: {{ base_path: ["."], check_paths: true, dedent_subsections: true }}
  attr_list: {{}}
  ledger.site: {{ default_device: none, language: en, local: LOCAL }}
"""
FIGURE = "def drawing(values, labels):\n    return f'<svg>{values[\"good.sizes.small\"]}</svg>'\n"
OTHER = """\
# Other {#other}

See [the page](page.md#page).

/// figure | small.drawing
    alt: A drawing.
A caption.
///
"""


@pytest.fixture
def project(small_book: Book, monkeypatch: pytest.MonkeyPatch) -> Book:
    root = small_book.root
    (root / "mkdocs.yml").write_text(CONFIG.replace("LOCAL", "true"))
    (root / "figures" / "small.py").write_text(FIGURE)
    (root / "docs" / "en" / "other.md").write_text(OTHER)
    (root / "docs" / "en" / "index.md").write_text("# Index {#index}\n\nNo number.\n")
    (root / "snippets" / "alone.py").write_text("alone_bytes = 1\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    assert main(["--root", str(root), "run"]) == 0
    return small_book


def make(monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], dict[str, bytes]]:
    """The pages that a build converted, and the site that it made."""
    converted: set[str] = set()

    def render(self: Page, config: object, files: object) -> None:
        converted.add(self.file.src_uri)
        original(self, config, files)  # type: ignore[arg-type]

    original = Page.render
    with monkeypatch.context() as context:
        context.setattr(Page, "render", render)
        config = load_config("mkdocs.yml")
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    site = Path("site")
    return converted, {str(path): path.read_bytes() for path in site.rglob("*.html")} | {
        "search": (site / "search" / "search_index.json").read_bytes()
    }


def test_what_has_not_changed_is_not_converted_again_and_comes_out_the_same(
    project: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first = make(monkeypatch)
    assert everything == {"page.md", "other.md", "index.md"}
    nothing, second = make(monkeypatch)
    assert nothing == set()
    assert second == first


@pytest.mark.parametrize(
    ("path", "old", "new", "pages"),
    [
        ("docs/en/index.md", "No number", "Still no number", {"index.md"}),
        ("snippets/good.py", "4 * 8", "4 * 9", {"page.md", "other.md"}),
        ("figures/small.py", "<svg>", "<svg >", {"page.md", "other.md", "index.md"}),
        ("mkdocs.yml", "Small", "Large", {"page.md", "other.md", "index.md"}),
    ],
)
def test_a_change_converts_the_pages_that_show_it(
    project: Book, monkeypatch: pytest.MonkeyPatch, path: str, old: str, new: str, pages: set[str]
) -> None:
    make(monkeypatch)
    file = project.root / path
    file.write_text(file.read_text().replace(old, new))
    assert main(["--root", str(project.root), "run"]) == 0
    converted, site = make(monkeypatch)
    assert converted == pages
    shutil.rmtree(project.cache / "pages")
    assert make(monkeypatch)[1] == site


def test_what_a_comment_says_converts_the_pages_that_show_it(project: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    source, place = project.snippets / "good.py", project.docs / "zh" / "comments" / "snippets" / "good.yml"
    source.write_text(source.read_text().replace("4 * 8", "4 * 8  # four of them"))
    place.parent.mkdir(parents=True)
    place.write_text("four of them: 四个\n")
    (project.docs / "zh" / "index.md").write_text("# Index {#index}\n\nNo number.\n")
    chinese = CONFIG.replace("LOCAL", "true").replace("docs/en", "docs/zh").replace("language: en", "language: zh")
    (project.root / "mkdocs.yml").write_text(chinese + "exclude_docs: comments/\n")
    converted, site = make(monkeypatch)
    assert converted == {"page.md", "index.md"} and "四个" in site["site/page/index.html"].decode()
    place.write_text("four of them: 共四个\n")
    (project.snippets / "alone.py").write_text("alone_bytes = 2\n")  # which no page shows
    assert main(["--root", str(project.root), "run"]) == 0
    converted, site = make(monkeypatch)
    assert converted == {"page.md"} and "共四个" in site["site/page/index.html"].decode()


def test_a_snippet_that_moves_is_linked_where_it_lies_now(project: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.docs / "en" / "index.md").write_text("# Index {#index}\n\n{{ alone.alone_bytes }}\n")
    assert b'href="snippets/alone.py"' in make(monkeypatch)[1]["site/index.html"]
    (moved := project.snippets / "index" / "alone.py").parent.mkdir()
    (project.snippets / "alone.py").rename(moved)
    assert b'href="snippets/index/alone.py"' in make(monkeypatch)[1]["site/index.html"]


def test_a_warning_is_given_again(project: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / "docs" / "en" / "index.md").write_text("# Index {#index}\n\n[Nowhere](nowhere.md)\n")
    for _ in range(2):
        with pytest.raises(Abort, match="Aborted with 1 warnings"):
            make(monkeypatch)


def test_a_link_to_an_anchor_that_is_gone_is_still_found(project: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / "mkdocs.yml").write_text(
        CONFIG.replace("LOCAL", "true") + "validation: { links: { anchors: warn } }\n"
    )
    make(monkeypatch)
    page = project.root / "docs" / "en" / "page.md"
    page.write_text(page.read_text().replace("{#page}", "{#renamed}"))
    with pytest.raises(Abort, match="Aborted with 1 warnings"):
        make(monkeypatch)


def test_what_is_published_is_made_anew(project: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    make(monkeypatch)
    (project.root / "mkdocs.yml").write_text(CONFIG.replace("LOCAL", "false"))
    for _ in range(2):
        assert make(monkeypatch)[0] == {"page.md", "other.md", "index.md"}
    assert os.listdir(project.cache / "pages") == ["en"]


def test_what_search_knows_of_a_notebook_is_kept(project: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / "mkdocs.yml").write_text(
        CONFIG.replace("LOCAL", "true").replace("{ search: {} }", "{ search: {}, mkdocs-jupyter: { execute: false } }")
    )
    path = project.docs / "en" / "lab.ipynb"
    indexed: list[str] = []

    def lab(text: str) -> str:
        cell = {"cell_type": "markdown", "id": "1", "metadata": {}, "source": text}
        path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        indexed.clear()
        return str(make(monkeypatch)[1]["search"])

    def create(self: object, section: object, toc: object, url: str, page: Page) -> None:
        indexed.append(page.file.src_uri)
        original(self, section, toc, url, page)

    original = SearchIndex.create_entry_for_section
    monkeypatch.setattr(SearchIndex, "create_entry_for_section", create)
    first = lab("# Lab")
    assert "lab.ipynb" in indexed
    assert lab("# Lab") == first and indexed == []
    assert "Other lab" in lab("# Other lab") and {*indexed} == {"lab.ipynb"}


def test_a_preview_and_a_build_keep_pages_side_by_side(project: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """They show another device first; whoever goes back and forth waits for neither."""
    named = 'first_device: !ENV [FIRST_DEVICE, ""], local: true'
    (project.root / "mkdocs.yml").write_text(CONFIG.replace("local: LOCAL", named))
    for everything in (True, False):
        for first in ("", "this-machine"):
            monkeypatch.setenv("FIRST_DEVICE", first)
            assert bool(make(monkeypatch)[0]) is everything


def test_what_python_keeps_beside_the_planner_is_no_source_of_it(tmp_path: Path) -> None:
    (tmp_path / "planner").mkdir()
    (tmp_path / "planner/form.js").write_text("let form")
    before = code(tmp_path)
    (tmp_path / "planner/__pycache__").mkdir()
    assert code(tmp_path) == before
    (tmp_path / "planner/form.js").write_text("let another")
    assert code(tmp_path) != before
