"""Shows a function as its source has it: `/// api | flops_bytes.counting.count.count` becomes signature and docstring.

griffe reads the source without running it; mkdocstrings, which is made on it, would bring a plugin and a style of its
own. What the docstring says in the page's language stands where that of shown code does (comments.py). Its example is
code, the same in both, and stands below.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import griffe

from ledger.book import LedgerError, Problem
from ledger.site.comments import Comments
from ledger.site.includes import Line

PROMPT = ">>> "  # with which an example begins: it ends the docstring
EXAMPLE = "```pycon"  # the fence that it gets
WRAPPED = re.compile(r"(?<=[\u3000-\u303f\uff00-\uffef])\n(?!\n)")  # Chinese, where a new line is no space


def described(comments: Comments, function: str, page: Path) -> tuple[str, list[Problem]]:
    """A function as Markdown: its signature as code, its docstring's paragraphs and example; and what has no words yet.

    Raises LedgerError if there is no such function, or nothing is said of it.
    """
    root = comments.book.root
    module, _, name = function.rpartition(".")
    path = root / f"{module.replace('.', '/')}.py"
    path = path if path.is_file() else path.with_suffix("") / "__init__.py"
    found, text = None, ""
    if path.is_file():
        text = path.read_text(encoding="utf-8")
        found = griffe.visit(module, path, text).members.get(name)
    if not isinstance(found, griffe.Function) or not found.docstring:
        raise LedgerError([Problem(path, 0, f"/// api | {function}: there is no such function with a docstring")])
    first, last = found.docstring.lineno, found.docstring.endlineno
    assert first and last
    file = str(path.relative_to(root))
    lines = [Line(line, file, number) for number, line in enumerate(text.split("\n"), start=1)][first - 1 : last]
    lines[0] = lines[0]._replace(text=lines[0].text.lstrip())
    starts = next((number for number, line in enumerate(lines) if line.text.lstrip().startswith(PROMPT)), len(lines))
    example = inspect.cleandoc("\n".join(line.text for line in lines[starts:-1]))
    said, problems = comments.translated([*lines[:starts], *lines[starts:][-1:]], "python", page)
    docstring = inspect.cleandoc(ast.literal_eval("\n".join(line.text for line in said))).strip()
    shown = [f"`{found.signature()}`", WRAPPED.sub("", docstring), f"{EXAMPLE}\n{example}\n```" if example else ""]
    return "\n\n".join(filter(None, shown)), problems
