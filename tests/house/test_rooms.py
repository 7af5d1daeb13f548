"""Everything lies in its room: a snippet where its page or its slowness puts it, each name once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledger.__main__ import main
from ledger.book import Book, LedgerError
from ledger.snippet import PACKAGES, Snippet
from tests.conftest import ROOT

BOOK = Book(ROOT)
SECTION = re.compile(r"# --8<-- \[start:([\w-]+)\]")
PAGES = {path.stem.replace("-", "_") for path in (BOOK.docs / "en").glob("*.md")}


@pytest.mark.parametrize("name", BOOK.snippet_names())
def test_a_snippet_is_called_as_its_page_or_lies_in_that_ones_folder(name: str) -> None:
    folder = BOOK.snippet_file(name).relative_to(BOOK.snippets).parent.name
    assert folder == "slow" or (folder or name) in PAGES


@pytest.mark.parametrize("folder", sorted({path.parent for path in BOOK.snippet_files().values()} - {BOOK.snippets}))
def test_a_folder_holds_several(folder: Path) -> None:
    assert len([*folder.glob("*.py")]) > 1, f"one snippet alone is {folder.name}.py"


def test_each_section_of_the_library_is_shown_on_a_page() -> None:
    """A marker that no page quotes is a line to read for nothing."""
    quoting = "".join(path.read_text(encoding="utf-8") for path in BOOK.docs.rglob("*.md"))
    files = [path for room in PACKAGES for path in (ROOT / room).rglob("*.py")]
    marked = [(path.relative_to(ROOT), name) for path in files for name in SECTION.findall(path.read_text("utf-8"))]
    assert len(marked) > 5
    assert [f"{path}:{name}" for path, name in marked if f"{path}:{name}" not in quoting] == []


# In any book


def write(book: Book, *names: str) -> None:
    for name in names:
        (path := book.snippets / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x_bytes = 1\n")


def test_a_snippet_is_found_by_its_name_in_any_folder(tmp_path: Path) -> None:
    book = Book(tmp_path)
    write(book, "good.py", "slow/long.py", "page/other.py", ".hidden/no.py", "__pycache__/no.py", "page/deep/no.py")
    assert book.snippet_names() == ["good", "long", "other"]
    assert book.snippet_file("other") == book.snippets / "page" / "other.py"
    assert book.snippet_file("nosuch") == book.snippets / "nosuch.py"
    assert [name for name, path in book.snippet_files().items() if Snippet.read(path).is_slow] == ["long"]


def test_two_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = Book(tmp_path)
    write(book, "good.py", "slow/good.py", "fine.py")
    with pytest.raises(LedgerError) as caught:
        book.snippet_names()
    message = "slow/good.py: snippets/good.py is called 'good' too; each snippet has its own name"
    assert str(caught.value).endswith(message) and len(caught.value.problems) == 1
    for command in ("status", "run", "check"):
        assert main(["--root", str(tmp_path), command]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("statement", ["import long", "from long import x", "from slow.long import x", "import good"])
@pytest.mark.parametrize("importing", ["own.py", "slow/own.py", "page/own.py"])
def test_a_snippet_imports_none_of_another_folder(tmp_path: Path, importing: str, statement: str) -> None:
    book = Book(tmp_path)
    write(book, "good.py", "slow/long.py")
    (path := book.snippets / importing).parent.mkdir(exist_ok=True)
    path.write_text(f"import math\n{statement}\n")
    with pytest.raises(LedgerError, match=r"own\.py:2: imports the snippet '(slow\.)?(long|good)'"):
        Snippet.read(path)


def test_where_a_snippet_lies_is_no_part_of_its_hash(tmp_path: Path) -> None:
    book = Book(tmp_path)
    write(book, "one.py", "slow/two.py")
    assert len({Snippet.read(path).hash for path in book.snippet_files().values()}) == 1
