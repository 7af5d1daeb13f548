"""What stands around a value says what it is: a fitted error has the blind one beside it, a prediction is no bound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.site.chapter import Chapter
from tests.conftest import ROOT

BOOK = Book(ROOT)
CHAPTERS = pytest.mark.parametrize("path", BOOK.chapters(), ids=lambda path: f"{path.parent.name}/{path.name}")

# A value that misleads alone, and what a paragraph that quotes it has to quote, too. The page of both tells them apart.
BESIDE = {"published_meters.now.median_error_share": "how_far_off.first.median_error_share"}
TOLD_AT = "how-far-off.md"
# What is predicted from one kernel's rates, which another kernel can beat, and words that would make a limit of it.
NO_LIMIT = re.compile(r"\{\{ decode_speed\.(?:predicted_|measured_graphs\.(?:\w+|\{row\})\.bound_seconds)[^}]*\}\}")
LIMITS = re.compile(r"\bbounds?\b|at (?:the )?least|下限|至少")


# Whose a value is, by its path, and how a paragraph calls it; and values that stand beside others on purpose.
MODELS = {"gpt2": "GPT-2", "llama": "Llama", "qwen": "Qwen|QwQ", "deepseek": "DeepSeek", "mixtral": "Mixtral"}
MODELS |= {"gemma": "Gemma"}
OF_OTHERS = {
    "inference.caches.gemma_windows.ratio:.4f",
    "models_of_2026.all_parameters.qwen3-30b-a3b:short",
    "models_of_2026.active_parameters.qwen3-30b-a3b:short",
}


def of_another_model(chapter: Chapter) -> list[str]:
    """Values of a model in a paragraph that names others alone, as file:line."""
    found = []
    for line, text in chapter.paragraphs:
        prose = re.sub(r"\{\{.*?\}\}", "", text)
        named = {model for model, said in MODELS.items() if re.search(said, prose)}
        for value in set(re.findall(r"\{\{\s*([^}]*?)\s*\}\}", text)) - OF_OTHERS:
            of = {model for model in MODELS if re.search(rf"[._]{model}", value.partition(".")[2].partition(":")[0])}
            if of and named and not of & named:
                found.append(f"{chapter.path}:{line}: {value} beside {sorted(named)}")
    return found


def alone(chapter: Chapter) -> list[str]:
    """Values in prose without what belongs beside them, as file:line."""
    found = []
    for line, text in chapter.paragraphs:
        for value, other in BESIDE.items():
            if f"{{{{ {value}" in text and f"{{{{ {other}" not in text:
                found.append(f"{chapter.path}:{line}: {value} without {other}")
    return found


def called_limits(chapter: Chapter) -> list[str]:
    """Predictions in prose and tables that the text around them calls a limit, as file:line."""
    found = [
        f"{chapter.path}:{line}: a prediction, called {said[0]!r}"
        for line, text in chapter.paragraphs
        if NO_LIMIT.search(text) and (said := LIMITS.search(NO_LIMIT.sub("", text)))
    ]
    for block in chapter.blocks:
        if block.kind == "table" and not block.argument:
            columns = block.options.get("columns", {})
            columns = [columns] if isinstance(columns, dict) else columns
            found += [
                f"{chapter.path}:{block.line}: a prediction, called {header!r}"
                for column in columns
                for header, cell in column.items()
                if NO_LIMIT.search(str(cell)) and LIMITS.search(str(header).lower())
            ]
    return found


@CHAPTERS
def test_a_fitted_error_is_not_quoted_alone(path: Path) -> None:
    if path.name != TOLD_AT:
        assert alone(Chapter.read(path)) == []


@CHAPTERS
def test_a_models_value_stands_where_the_model_is_named(path: Path) -> None:
    assert of_another_model(Chapter.read(path)) == []


@CHAPTERS
def test_a_prediction_is_not_called_a_limit(path: Path) -> None:
    assert called_limits(Chapter.read(path)) == []


def test_what_misleads_is_found(tmp_path: Path) -> None:
    def chapter(text: str) -> Chapter:
        return Chapter.parse(f"a\n\n{text}\n", tmp_path / "x.md")

    (said, beside), *_ = BESIDE.items()
    now, first = (f"{{{{ {value}:.0f% }}}}" for value in (said, beside))
    assert alone(chapter(f"It is {first}, now {now}.")) == [] != alone(chapter(f"It is {now}."))
    step = "{{ decode_speed.predicted_one_seconds }}"
    assert called_limits(chapter(f"We predict {step}.")) == [] != called_limits(chapter(f"Its bound is {step}."))
    cell = '"{{ decode_speed.measured_graphs.{row}.bound_seconds }}"'
    table = f"/// table\n    rows: [a]\n    columns: {{Bound: {cell}}}\nIt.\n///"
    assert called_limits(chapter(table.replace("Bound:", "Predicted:"))) == [] != called_limits(chapter(table))
