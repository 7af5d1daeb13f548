# /// ledger
# data = ["parallel_text.en.txt", "parallel_text.zh.txt"]
# ///
"""A parallel text: this book's chapters of November 2026, paragraph by paragraph in both languages, frozen.

Line n of one file says what line n of the other says. Code, tables, displayed formulas and footnotes are left out, and
paragraphs that repeat an earlier one; numbers are those that the pages showed.
"""

from pathlib import Path

LANGUAGES = ("en", "zh")


def paragraphs(language: str) -> list[str]:
    file = Path(__file__).with_name(f"parallel_text.{language}.txt")
    return file.read_text(encoding="utf-8").splitlines(keepends=True)


HELD_OUT = 5  # every fifth paragraph is kept from training


def split(language: str) -> tuple[str, str]:
    """To train on, and to measure on: the same paragraphs in both languages."""
    lines = paragraphs(language)
    held_out = lines[HELD_OUT - 1 :: HELD_OUT]
    del lines[HELD_OUT - 1 :: HELD_OUT]
    return "".join(lines), "".join(held_out)
