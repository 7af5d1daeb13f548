"""A page links to code and records as if they lay beside it and finds them in the built site; a wrong link is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown import Markdown
from mkdocs.commands.build import build
from mkdocs.config import load_config

from ledger.__main__ import main
from ledger.book import Book, LedgerError
from ledger.site import makeExtension
from ledger.site.files import address, copy, listed
from ledger.site.plain import PlainMarkdown
from ledger.site.quote import QuoteError, open_source
from tests.conftest import ROOT

CONFIG = """\
site_name: Small
site_description: A small book.
docs_dir: docs/en
strict: true
theme: mkdocs
HOOKS
plugins: {}
markdown_extensions:
  ledger.site: { default_device: none, language: en, local: false }
"""
TEXT = """\
# Page {#page}

It takes {{ good.size_bytes }}: [one](snippets/good.py), [two](snippets/long.py), [three](flops_bytes/data.txt),
[four](https://example.org/snippets/good.py), [five](index.md), `<a href="?file=x">`.
"""


@pytest.fixture
def book(small_book: Book, monkeypatch: pytest.MonkeyPatch) -> Book:
    """Two pages, at two depths of the site, that link to the same files."""
    root = small_book.root
    for name in ("snippets/slow/long.py", "flops_bytes/__init__.py", "flops_bytes/data.txt", "snippets/.hidden/no.py"):
        (path := root / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    for name in ("index.md", "page.md"):
        (small_book.docs / "en" / name).write_text(TEXT)
    (small_book.docs / "zh" / "page.md").unlink()
    monkeypatch.chdir(root)
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    return small_book


def build_site(book: Book, hooks: str = "") -> Path:
    (book.root / "mkdocs.yml").write_text(CONFIG.replace("HOOKS", hooks and f"hooks: [{hooks}]"))
    build(load_config("mkdocs.yml"))
    return book.root / "site"


def links(page: Path) -> list[str]:
    article = page.read_text(encoding="utf-8").partition("<h1")[2]
    return [link for link in re.findall(r'href="([^"]*)"', article) if "/" in link]


def test_a_strict_build_links_to_the_files_from_any_depth_and_bundling_puts_them_there(book: Book) -> None:
    site = build_site(book)
    files = ["snippets/good.py", "snippets/slow/long.py", "flops_bytes/data.txt"]
    (record,) = (str(path.relative_to(book.root)) for path in book.measurements.glob("*/*.json"))
    for page, up in (("index.html", ""), ("page/index.html", "../")):
        found = links(site / page)
        assert found[:4] == [*(up + name for name in files), "https://example.org/snippets/good.py"]
        assert {up + files[0], up + record} <= {*found[4:]}, "where the numbers come from"
        assert '&lt;a href="?file=x"&gt;' in (site / page).read_text()
    assert not (site / "snippets").exists()
    assert main(["--root", str(book.root), "bundle", str(site)]) == 0
    for name in (*files, record):
        assert (site / name).read_bytes() == (book.root / name).read_bytes()
    assert not list((site / "snippets").rglob("no.py"))


def test_a_preview_has_the_files_too(book: Book) -> None:
    site = build_site(book, f"{ROOT}/ledger/site/files.py")
    assert all((site / name).is_file() for name in listed(book))


def test_without_a_generator_the_links_are_those_of_the_page(book: Book) -> None:
    html = Markdown(extensions=[makeExtension(root=str(book.root), local=False)]).convert(TEXT)
    assert re.findall(r'href="([sf][^"]*)"', html)[:3] == [
        "snippets/good.py",
        "snippets/slow/long.py",
        "flops_bytes/data.txt",
    ]


def test_a_page_as_markdown_leads_to_the_site(book: Book) -> None:
    plain = PlainMarkdown(open_source(book, "", local=False), "en", "https://site/", "https://site/page/")
    assert plain.link("snippets/long.py") == "https://site/snippets/slow/long.py"
    assert plain.link("page.md#page") == "https://site/page/#page"


def test_a_link_to_no_file_is_named_with_its_line(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    page = book.docs / "en" / "page.md"
    page.write_text(TEXT.replace("data.txt", "nosuch.txt"))
    assert main(["--root", str(book.root), "check"]) == 1
    assert re.search(r"page\.md:3: there is no file flops_bytes/nosuch\.txt", capsys.readouterr().err)
    with pytest.raises(LedgerError, match=r"there is no file flops_bytes/nosuch\.txt"):
        build_site(book)
    with pytest.raises(QuoteError, match=r"there is no file snippets/nosuch\.py"):
        address(book, "../snippets/nosuch.py")


def test_what_is_copied_is_what_lies_there_now(book: Book, tmp_path: Path) -> None:
    copy(book, site := tmp_path / "site")
    (book.snippets / "good.py").write_text("x = 2\n")
    copy(book, site)
    assert (site / "snippets" / "good.py").read_text() == "x = 2\n"
