"""The example of CONTRIBUTING is a page: literally taken, it passes the check, is filled and is listed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from ledger.book import Book
from ledger.record import Record
from ledger.run import run
from ledger.site.check import check
from ledger.site.llms import llms
from ledger.site.plain import markdown, parts
from ledger.site.quote import open_source
from ledger.snippet import Snippet
from tests.conftest import ROOT


@pytest.fixture
def first_page(tmp_path: Path) -> Book:
    """A book with the example alone: its snippet recorded, its page in the list."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    page = re.findall(r"^````markdown\n(.*?)^````$", text, re.MULTILINE | re.DOTALL)[0]
    book = Book(tmp_path)
    for folder in (book.snippets, book.docs / "en", book.docs / "zh"):
        folder.mkdir(parents=True)
    shutil.copytree(ROOT / "figures", tmp_path / "figures")
    (book.snippets / "my_page.py").write_text(next(code for code in blocks if "time_call(" in code), encoding="utf-8")
    figure = next(code for code in blocks if "def times(" in code)
    (tmp_path / "figures" / "my_page.py").write_text(figure, encoding="utf-8")
    (said,) = re.findall(r"`(docs/zh/comments/\S+)`:\n\n```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / said[0]).parent.mkdir(parents=True)
    (tmp_path / said[0]).write_text(said[1], encoding="utf-8")
    for language, config in (("en", "mkdocs.yml"), ("zh", "mkdocs.zh.yml")):
        (book.docs / language / "my-page.md").write_text(page, encoding="utf-8")
        nav = {"site_name": "A book", "site_description": "A test", "nav": [{"Part": ["my-page.md"]}]}
        (tmp_path / config).write_text(yaml.safe_dump(nav), encoding="utf-8")
    snippet = Snippet.read(book.snippets / "my_page.py")
    record = Record.of(snippet, run(snippet))
    record.write(book.measurements / record.device["id"] / "my_page.json")
    return book


def test_the_example_of_contributing_is_a_page(first_page: Book) -> None:
    assert check(first_page) == []
    source = open_source(first_page, "", local=False)
    text = markdown(parts(source, "en", first_page.docs / "en" / "my-page.md", "https://example.org/"))
    assert "moves 2 MiB, in " in text
    chinese = markdown(parts(source, "zh", first_page.docs / "zh" / "my-page.md", "https://example.org/zh/"))
    assert "for n in SIDES}  # 读一遍，写一遍\n" in chinese
    listed = llms(first_page, "en", "https://example.org/", "https://example.org/zh/", "a machine")
    assert "- [My page](https://example.org/my-page/index.md): The question that" in listed


def test_the_check_names_what_the_list_lacks(first_page: Book) -> None:
    page = first_page.docs / "en" / "my-page.md"
    page.write_text(page.read_text(encoding="utf-8").split("---\n", 2)[2], encoding="utf-8")
    (first_page.docs / "en" / "other.md").write_text("---\ntitle: A\ndescription: B\n---\n# A {#a}\n", encoding="utf-8")
    told = [(problem.path.name, problem.message) for problem in check(first_page)]
    assert ("other.md", "not in nav of mkdocs.yml") in told
    assert any(name == "my-page.md" and "no title and no description" in message for name, message in told)
