"""Each page is Markdown too, with its numbers filled in; llms.txt lists them all, in both languages."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from flops_bytes.plan.__main__ import main as plan
from ledger.book import Book
from ledger.record import Record
from ledger.site.bundle import bundle
from ledger.site.plain import markdown, parts
from ledger.site.quote import open_source
from ledger.snippet import Snippet
from tests.conftest import ROOT

BOOK = Book(ROOT)
PAGES = [(path.parent.name, path.stem) for path in BOOK.chapters() if path.parent.parent == BOOK.docs]


def built(site: Path, language: str, stem: str, name: str) -> Path:
    folder = site if language == "en" else site / language
    return folder / name if stem == "index" else folder / stem / name


@pytest.mark.parametrize(("language", "stem"), PAGES)
def test_a_page_lies_beside_itself_as_markdown(site: Path, address: str, language: str, stem: str) -> None:
    text = built(site, language, stem, "index.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert [sign for sign in ("{{", "8<-", "///", "{#", "](#", "site.invalid", "data-planner") if sign in prose] == []
    assert re.findall(r"\]\((?!http)[^)]*\)", prose) == []
    links = [link.removeprefix(address) for link in re.findall(r"\]\(([^)\s]+)\)", prose) if link.startswith(address)]
    assert [link for link in links if not (site / re.split("[?#]", link)[0]).exists()] == []
    page = built(site, language, stem, "index.html").read_text(encoding="utf-8")
    shown = {number for number in re.findall(r'<data class="[^"]*"[^>]*>([^<]+)</data>', page) if number != "—"}
    unescaped = text.replace("<", "&lt;").replace("&lt;sup>", "")
    missing = [number for number in shown if number not in unescaped]
    assert missing == [], "what the page shows of its first device"
    assert 'type="text/markdown"' in page


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_pages_are_listed_and_lie_where_the_list_says(site: Path, address: str, language: str) -> None:
    folder = site if language == "en" else site / language
    text = (folder / "llms.txt").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0].startswith("# ") and lines[2].startswith("> ") and lines[6].startswith("## ")
    home = address if language == "en" else f"{address}zh/"
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    assert len(links) == sum(page[0] == language for page in PAGES)
    assert [link for link in links if not (folder / link.removeprefix(home)).is_file()] == []


# A search of this one layout has an answer at once; who does not say it is answered with this and others
ONE_LAYOUT = ["--trained", "all", "--tp", "8", "--pp", "1", "--cp", "1", "--zero", "3", "--micro-batch", "1"]
ONE_LAYOUT += ["--checkpointing", "full"]


def test_the_skill_has_commands_that_answer_and_addresses_that_are_there(site: Path, address: str) -> None:
    text = (site / "SKILL.md").read_text(encoding="utf-8")
    assert set(yaml.safe_load(text.split("---")[1])) == {"name", "description"}
    lines = [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    (install, *commands) = map(shlex.split, lines)
    assert install[:2] == ["pip", "install"] and len(commands) > 5
    for command in commands:
        few = ONE_LAYOUT if "--find" in command else []
        assert command[:2] == ["flops-bytes", "plan"] and plan([*command[2:], *few]) in (0, 3), command
    addresses = re.findall(rf"{address}([\w/.+-]*\w)", text)
    assert len(addresses) > 6 and [place for place in addresses if not (site / place).is_file()] == []


PAGE = """\
---
title: Page
description: One page.
---

# Page {#page}

It takes {{ good.size_bytes }} and `{{ code }}`, see [below](#more), [the start](index.md#top), [elsewhere](https://x.org/a.md).

A [question](plan.md?gpu=L4&tokens=1B).

/// details | Setup of {{ good.size_bytes }}
```python
--8<-- "snippets/good.py:count"
```
///
/// output | good:count
///

| what | where | never |
|---|---|---|
| {{ good.size_bytes }} | `a|b` | {{ good.never_seconds }} |

/// figure | small.drawing
    alt: "A drawing: small."
A caption with {{ good.sizes.small }}.
///

//// recorded | good.never_seconds
Nobody reads this.
////

$$
x = 1
$$
"""
TEXT = """\
# Page

It takes 32 B and `{{ code }}`, see [below](https://s/page/#more), [the start](https://s/#top), [elsewhere](https://x.org/a.md).

A [question](https://s/plan/?gpu=L4&tokens=1B).

**Setup of 32 B**

```python
size_bytes = 4 * 8
print(size_bytes)
```

Printed on DEVICE

```text
32
```

| what | where |
|---|---|
| 32 B | `a|b` |

Not measured on any device so far: never.

*Figure: A drawing: small.*

A caption with 1.

$$
x = 1
$$
"""


def test_what_becomes_of_each_part_of_a_page(small_book: Book) -> None:
    source = small_book.snippets / "good.py"
    source.write_text(source.read_text() + "never_seconds = None\n")
    (path,) = small_book.measurements.glob("*/good.json")
    record = Record.read(path)
    replace(record, hash=Snippet.read(source).hash, values={**record.values, "never_seconds": None}).write(path)
    page = small_book.docs / "en" / "page.md"
    page.write_text(PAGE)
    records = open_source(small_book, "", local=False)
    name = str(record.device["name"]).split(",")[0]
    text = markdown(parts(records, "en", page, "https://s/")).replace(name, "DEVICE")
    assert text == TEXT


def test_what_has_not_changed_is_not_written_anew_and_what_has_is(
    small_book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(small_book.docs / "zh")
    (small_book.docs / "en" / "page.md").write_text(PAGE.partition("| what")[0])
    (small_book.docs / "en" / "other.md").write_text("---\ntitle: Other\n---\n# Other {#other}\n\nNo number.\n")
    site, made = small_book.root / "site", []
    for name in ("page", "other"):
        (site / name).mkdir(parents=True)
        (site / name / "index.html").write_text("")
    original = parts
    monkeypatch.setattr("ledger.site.bundle.parts", lambda *a: made.append(a[2].stem) or original(*a))  # type: ignore

    def texts() -> list[str]:
        made.clear()
        bundle(small_book, site, "https://s/", local=False)
        assert "](https://s/page/)" in (site / "downloads" / "page.en.ipynb").read_text()
        assert not (site / "downloads" / "other.en.ipynb").exists()
        return sorted(made)

    assert texts() == ["other", "page"]
    assert texts() == []
    (small_book.docs / "en" / "other.md").write_text("# Other {#other}\n\nStill no number.\n")
    assert texts() == ["other"]
    source = small_book.snippets / "good.py"
    source.write_text(source.read_text().replace("4 * 8", "8 * 4"))
    assert texts() == ["page"]
    assert "8 * 4" in (site / "page" / "index.md").read_text()
