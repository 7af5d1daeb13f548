"""llms.txt: what the book is and where each of its pages stands as Markdown, in the form of https://llmstxt.org."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ledger.book import Book
from ledger.site.plain import address_of, front_matter

CONFIGS = {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}
WORDS = {
    "en": {
        "about": "Each page below is Markdown with its numbers filled in, measured on {device}. The same pages in "
        "Chinese are listed at {other}. {skill} says how to answer with commands. When you quote a number that depends "
        "on the machine, name the machine.",
    },
    "zh": {
        "about": "下面列出的各页都是 Markdown，数字已经填好，在 {device} 上测得。英文版的各页列在 {other}。"
        "怎样用命令作答，见 {skill}。与机器有关的数字，引用时请一并写明机器。",
    },
}


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without acting on its !tags."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def llms(book: Book, language: str, site: str, other: str, device: str) -> str:
    """The file for one language; `site` is its address, `other` that of the other language."""
    config = _config(book, language)
    words = WORDS[language]
    english = site if language == "en" else other
    head = [f"# {config['site_name']}", f"> {config['site_description']}"]
    head.append(words["about"].format(device=device, other=f"{other}llms.txt", skill=f"{english}SKILL.md"))
    sections = []
    for title, pages in navigation(book, language):
        lines = [f"## {title}", ""]
        lines += [_line(book.docs / language / path, site) for path in pages if path.endswith(".md")]
        sections.append("\n".join(lines))
    return "\n\n".join([*head, *sections]) + "\n"


def navigation(book: Book, language: str) -> list[tuple[str, list[str]]]:
    """The titles of the list of pages, each with its files; empty where a book has no list."""
    entries = [item for entry in _config(book, language).get("nav") or [] for item in entry.items()]
    return [(title, [pages] if isinstance(pages, str) else pages) for title, pages in entries]


def _config(book: Book, language: str) -> dict[str, Any]:
    path = book.root / CONFIGS[language]
    return yaml.load(path.read_text(encoding="utf-8"), Loader) or {} if path.is_file() else {}


def _line(path: Path, site: str) -> str:
    said = front_matter(path)
    return f"- [{said['title']}]({address_of(site, path.stem)}index.md): {said['description']}"
