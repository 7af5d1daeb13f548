"""A chapter's main line stays short: its words, its open sections and their lines, the lines of a snippet's file.

So do the lines of code that a page shows: they fit its width.

Lines that exceed it are listed, a snippet's number each. The list may only shrink: an entry that is higher than need be
fails as one that is too low does. Lower it, or take it out once the limit is met.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.fill.chapter import BLOCK_END, BLOCK_START, INLINE, Chapter, Fence
from tests.chapters import expand
from tests.conftest import ROOT

BOOK = Book(ROOT)
CHAPTERS = sorted((BOOK.docs / "en").glob("*.md"))
REFERENCE = {"errata", "glossary", "formulas", "hardware"}  # where things are looked up: any number of words

MAX_WORDS, MAX_SECTIONS, MAX_SECTION_LINES, MAX_FILE_LINES = 1800, 12, 25, 450
MAX_COLUMNS = 88  # what a page shows without a scroll bar

WIDE_LINES = {
    "activations": 35,
    "attention_speed": 12,
    "bandwidth_limits": 11,
    "compute_for_memory": 19,
    "count_ranks": 1,
    "first_measurement": 1,
    "gpus": 13,
    "gradients": 14,
    "launch_costs": 10,
    "link_and_context": 20,
    "measure": 6,
    "memory": 17,
    "mfu": 4,
    "mfu_limits": 19,
    "plan_adapters": 2,
    "plan_cases": 31,
    "plan_others": 9,
    "plan_theirs": 18,
    "ranks": 1,
    "shapes": 1,
    "sustained_rate": 11,
    "trace": 11,
    "transformer_flops": 1,
}


def folds(chapter: Chapter, text: str) -> set[int]:
    """The lines inside of folded parts."""
    code = {fence.line + offset for fence in chapter.fences for offset in range(len(fence.lines) + 2)}
    opened: list[tuple[int, bool]] = []  # slashes, and whether what they open is folded
    folded = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if number not in code and (start := BLOCK_START.match(line)):
            opened.append((len(start["slashes"]), start["kind"] == "details"))
        if any(fold for _, fold in opened):
            folded.add(number)
        if number not in code and BLOCK_END.match(line) and opened and opened[-1][0] == len(line.strip()):
            opened.pop()
    return folded


def words(chapter: Chapter, folded: set[int]) -> int:
    """The words that a reader meets before unfolding anything: paragraphs, lists and captions.

    A placeholder, a formula and each word of inline code count as one; an address, a footnote's mark and its text, a
    table and a block's options do not count.
    """

    def visible(match: re.Match[str]) -> str:
        return {"target": "]", "html": "", "placeholder": "number", "math": "formula"}.get(
            match.lastgroup or "", match[0]
        )

    titles = {block.line for block in chapter.blocks}
    count = 0
    for first, text in chapter.paragraphs:
        lines = text.splitlines()
        if text.startswith("[^") or first in titles:
            continue
        shown = [line for n, line in enumerate(lines, first) if n not in folded and not line.lstrip().startswith("|")]
        count += len(re.findall(r"\w\S*", re.sub(r"\[\^[\w-]+\]", "", INLINE.sub(visible, "\n".join(shown)))))
    return count


def sections(chapter: Chapter, folded: set[int]) -> list[int]:
    """How many lines each block of Python has that stands open."""
    open_code = [fence for fence in chapter.fences if fence.language == "python" and fence.line not in folded]
    return [len(expand(fence).strip().splitlines()) for fence in open_code]


def shown_lines(fence: Fence) -> Iterator[tuple[str, str]]:
    """Each line of a block with the snippet or module that it is taken from, or with the block's page."""
    included = re.search(r"(?:snippets|flops_bytes)/(\w+)\.py", "\n".join(fence.lines))
    for line in expand(fence).splitlines():
        yield included[1] if included else "", line


def wide(lines: set[tuple[str, str]]) -> dict[str, int]:
    """How many different lines of each snippet are wider than a page."""
    return dict(Counter(name for name, line in lines if len(line) > MAX_COLUMNS))


def measured() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {"words": {}, "sections": {}, "section lines": {}, "file lines": {}}
    shown: set[tuple[str, str]] = set()
    for path in CHAPTERS:
        text = path.read_text(encoding="utf-8")
        chapter = Chapter.parse(text, path)
        folded = folds(chapter, text)
        lines = sections(chapter, folded)
        if path.stem not in REFERENCE:
            found["words"][path.stem] = words(chapter, folded)
        found["sections"][path.stem] = len(lines)
        found["section lines"][path.stem] = max(lines, default=0)
        for fence in chapter.fences:
            if fence.language == "python":
                shown |= {(name or path.stem, line) for name, line in shown_lines(fence)}
    for path in sorted(BOOK.snippets.glob("*.py")):
        found["file lines"][path.stem] = len(path.read_text(encoding="utf-8").splitlines())
    found["wide lines"] = wide(shown)
    return found


MEASURED = measured()
LIMITS: dict[str, tuple[int, dict[str, int]]] = {
    "words": (MAX_WORDS, {}),
    "sections": (MAX_SECTIONS, {}),
    "section lines": (MAX_SECTION_LINES, {}),
    "file lines": (MAX_FILE_LINES, {}),
    "wide lines": (0, WIDE_LINES),
}


def mistakes(found: dict[str, int], limit: int, listed: dict[str, int]) -> Iterator[str]:
    for name in sorted(found.keys() | listed.keys()):
        now, allowed = found.get(name, 0), listed.get(name, limit)
        if now > allowed:
            yield f"{name} has {now}, more than {allowed}: shorten it"
        elif name in listed and (now < allowed or now <= limit):
            yield f"{name} has {now} now: {f'list {now}' if now > limit else 'take it from the list'}"


@pytest.mark.parametrize("kind", LIMITS)
def test_no_page_is_longer_than_its_limit(kind: str) -> None:
    assert list(mistakes(MEASURED[kind], *LIMITS[kind])) == []


def test_the_list_may_only_shrink() -> None:
    def found(now: int, listed: dict[str, int]) -> list[str]:
        return list(mistakes({"page": now}, 12, listed))

    assert found(12, {}) == [] and found(15, {"page": 15}) == []
    assert found(13, {}) == ["page has 13, more than 12: shorten it"]
    assert found(16, {"page": 15}) == ["page has 16, more than 15: shorten it"]
    assert found(14, {"page": 15}) == ["page has 14 now: list 14"]
    assert found(12, {"page": 15}) == ["page has 12 now: take it from the list"]
    assert list(mistakes({}, 12, {"gone": 15})) == ["gone has 0 now: take it from the list"]


PAGE = """\
# Title {#title}

Three small words. {{ a.b }} is `x = 1`, see [the link](page.md#x).[^note]

- one item

| a | table |
|---|---|

//// details | Folded
More, and more.
```python
/// details
x = 1
```
/// output | a:b
///
////
```python
x = 1
y = 2
```
/// figure | a.b
    alt: not counted
One caption.
///

[^note]: Not counted.
"""


def test_what_counts(tmp_path: Path) -> None:
    chapter = Chapter.parse(PAGE, tmp_path / "page.md")
    folded = folds(chapter, PAGE)
    assert folded == set(range(10, 19))
    assert words(chapter, folded) == 3 + 7 + 2 + 2
    assert sections(chapter, folded) == [2]


def test_a_line_wider_than_the_page_is_counted_once() -> None:
    long = "x" * (MAX_COLUMNS + 1)
    assert wide({("a", long), ("a", long + "x"), ("b", long[1:]), ("c", long)}) == {"a": 2, "c": 1}
