"""What comments and docstrings of code that a page shows say in its language; the code is one for all languages.

The code's own are English. What those of snippets/page.py say in Chinese stands in docs/zh/comments/snippets/page.yml,
a line each, `English: 中文`; nothing behind the colon means that it is the same in both, as a name is.
"""

from __future__ import annotations

import io
import itertools
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ledger.book import Book, LedgerError, Problem
from ledger.site.chapter import SAFE_LOADER
from ledger.site.includes import Line

ENGLISH = "en"  # in which code is commented
FOLDER = "comments"  # in the folder of a language
COMMENT = re.compile(r"#\s*(?:type: ignore\S*\s*(?:#\s*|$))?(?P<text>.*)")
SHELL_COMMENT = re.compile(r"(?:^|\s)#\s+(?P<text>.*)")  # neither #! nor #SBATCH
HAN = re.compile(r"[\u4e00-\u9fff]")
WORD = re.compile(rf"[a-z]{{2}}|{HAN.pattern}")  # without one it is a shape or a formula, the same everywhere


class Span(NamedTuple):
    """A stretch of a line, counted from 0."""

    line: int
    start: int
    end: int


class Said(NamedTuple):
    """What a comment or docstring says."""

    text: str  # in one line
    spans: list[Span]  # where it says it, a line each


class Entry(NamedTuple):
    line: int  # in its file
    text: str  # "" if it is the same in both languages


def said_in(lines: Sequence[str], language: str) -> list[Said]:
    """The comments and docstrings of a block of code that consist of words.

    Raises tokenize.TokenError or SyntaxError for what is called Python and is none.
    """
    return [said for said in _all(lines, language) if WORD.search(said.text)]


def without(lines: Sequence[str], language: str) -> list[str]:
    """The code alone, each comment and docstring without what it says."""
    return _replaced(lines, [(span, "") for said in _all(lines, language) for span in said.spans])


def _all(lines: Sequence[str], language: str) -> Iterator[Said]:
    if language == "python":
        yield from _python(lines)
    elif language in ("bash", "sh"):
        for number, line in enumerate(lines):
            if match := SHELL_COMMENT.search(line):
                yield _said(lines, [Span(number, *match.span("text"))])


def _python(lines: Sequence[str]) -> Iterator[Said]:
    begins = True  # a statement; a string that is one is a docstring
    tokens = list(tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline))
    for token, after in itertools.pairwise(tokens):
        (row, column), (end_row, end_column) = token.start, token.end
        if token.type == tokenize.COMMENT:
            match = COMMENT.match(token.string)
            assert match
            yield _said(lines, [Span(row - 1, column + match.start("text"), end_column)])
        elif token.type == tokenize.STRING and begins and after.type == tokenize.NEWLINE:
            quote = token.string[-1]
            quotes = 3 if token.string.endswith(3 * quote) else 1
            first = column + token.string.index(quote) + quotes
            spans = []
            for number in range(row - 1, end_row):
                start = first if number == row - 1 else len(lines[number]) - len(lines[number].lstrip())
                end = end_column - quotes if number == end_row - 1 else len(lines[number].rstrip())
                spans += [Span(number, start, end)] if lines[number][start:end].strip() else []
            yield _said(lines, spans)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def _said(lines: Sequence[str], spans: list[Span]) -> Said:
    return Said(" ".join(lines[line][start:end].strip() for line, start, end in spans), spans)


def _replaced(lines: Sequence[str], texts: list[tuple[Span, str]]) -> list[str]:
    replaced = list(lines)
    for (line, start, end), text in reversed(texts):
        replaced[line] = replaced[line][:start] + text + replaced[line][end:]
    return replaced


class Comments:
    """Those of code in one language, and which of them pages have shown."""

    def __init__(self, book: Book, language: str) -> None:
        self.book, self.language = book, language
        self.shown: set[tuple[Path, str]] = set()  # file of this language, and what it says in English
        self.entries: dict[Path, dict[str, Entry]] = {}

    def place(self, file: str) -> Path:
        """Where what a file of code says stands in this language."""
        return (self.book.docs / self.language / FOLDER / file).with_suffix(".yml")

    def of(self, path: Path) -> dict[str, Entry]:
        if path not in self.entries:
            self.entries[path] = read(path)
        return self.entries[path]

    def translated(self, code: list[Line], language: str, page: Path) -> tuple[list[Line], list[Problem]]:
        """A block of that page with its comments in the page's language, and what has none yet."""
        if self.language == ENGLISH:
            return code, []
        lines = [line.text for line in code]
        texts, problems = list[tuple[Span, str]](), list[Problem]()
        for said in said_in(lines, language):
            line = code[said.spans[0].line]
            if not line.file:  # the page's own words
                if not HAN.search(said.text):
                    message = f"{said.text!r} is a comment in English; write it in the page's language"
                    problems.append(Problem(page, line.number, message))
                continue
            place = self.place(line.file)
            self.shown.add((place, said.text))
            try:
                entry = self.of(place).get(said.text)
            except LedgerError as error:
                problems += error.problems
                continue
            where = str(place.relative_to(self.book.root))
            parts = entry.text.split("\n") if entry else []
            if not entry:
                message = f"{where} lacks {said.text!r}, a comment that a page shows"
                problems.append(Problem(self.book.root / line.file, line.number, message))
            elif entry.text and len(parts) != len(said.spans):
                message = f"{said.text!r} takes {len(said.spans)} lines of code, and here {len(parts)}"
                problems.append(Problem(place, entry.line, message))
            elif entry.text:
                texts += zip(said.spans, parts, strict=True)
        replaced = _replaced(lines, texts)
        return [line._replace(text=text) for line, text in zip(code, replaced, strict=True)], problems

    def unshown(self) -> Iterator[Problem]:
        """What no page has shown of all that is said in this language."""
        for path in sorted((self.book.docs / self.language / FOLDER).rglob("*.yml")):
            try:
                entries = self.of(path)
            except LedgerError as error:
                yield from error.problems
                continue
            for english, entry in entries.items():
                if (path, english) not in self.shown:
                    yield Problem(path, entry.line, f"no page shows code with the comment {english!r}")


def read(path: Path) -> dict[str, Entry]:
    """By what a comment says in English, what it says here. Raises LedgerError."""
    if not path.is_file():
        return {}
    try:
        node: Any = yaml.compose(path.read_text(encoding="utf-8"), SAFE_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", -1) + 1
        raise LedgerError([Problem(path, line, f"not YAML: {getattr(error, 'problem', error)}")]) from None
    if node is not None and not isinstance(node, yaml.MappingNode):
        raise LedgerError([Problem(path, 1, "not a mapping; write `English: 中文`, a line each")])
    entries: dict[str, Entry] = {}
    for key, value in node.value if node else ():
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            raise LedgerError([Problem(path, line, "write `English: 中文`, with quotes around what holds a colon")])
        if key.value in entries:
            raise LedgerError([Problem(path, line, f"{key.value!r} stands there twice")])
        text = "\n".join(part.strip() for part in value.value.split("\n") if part.strip())
        entries[key.value] = Entry(line, text)
    return entries
