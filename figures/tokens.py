"""Figure and tables of the chapter on tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale

TRAINED = ("en", "zh", "both")
LANGUAGES = ("en", "zh")


def rates(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes a token over the vocabulary: English solid, Chinese dashed, a colour for each training text."""
    found = values["tokens.bytes_a_token"] or {}
    axes = Axes(
        Log(labels["size"], ticks={256 * 2**power: f"{256 * 2**power:,}" for power in range(6)}),
        Scale(labels["rate"], low=0),
    )
    for colour, name in enumerate(TRAINED):
        for language in LANGUAGES:
            points = sorted((int(size), rate[language]) for size, rate in found.get(name, {}).items())
            label = labels[f"{name}_{language}"]
            axes.plot([x for x, _ in points], [y for _, y in points], colour, label, dashed=language == "zh")
    return str(axes)


def bill(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each training text and each language: tokens, FLOPs, days, money, and content in a context."""
    rows = [[labels[key] for key in ("trained", "text", "tokens", "flops", "days", "dollars", "context")]]
    for name in TRAINED:
        for language in LANGUAGES:
            quote = f"tokens.bill.{name}.{language}"
            cells = ("tokens:wan", "run_flops", "days:.1f", "dollars:.0f", "context_bytes")
            rows.append([labels[name], labels[language], *(f"{{{{ {quote}.{cell} }}}}" for cell in cells)])
    return rows


def vocabulary(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each size of the vocabulary: parameters and the head's FLOPs in two models, and a token's logits."""
    columns = ("size", "gpt2", "gpt2_share", "gpt2_head", "llama", "llama_share", "llama_head", "logits")
    rows = [[labels[key] for key in columns]]
    for size in values["tokens.VOCABULARIES"] or []:
        cells = [f"{size:,}"]
        for model in ("gpt2", "llama"):
            quote = f"tokens.vocabulary_cost.{model}.{size}"
            parts = ("matrix_parameters", "parameter_share", "head_share")
            cells += [f"{{{{ {quote}.{part} }}}}" for part in parts]
        rows.append([*cells, f"{{{{ tokens.vocabulary_cost.gpt2.{size}.logits_bytes }}}}"])
    return rows


def speed(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Seconds to learn a sample's merges, and all of the training text's."""
    rows = [[labels[key] for key in ("trainer", "sample", "all")]]
    for name in ("plain", "heap", "library"):
        sample = f"{{{{ tokens.learn_timing.{name}.median_seconds }}}}"
        whole = f"{{{{ tokens.whole_timing.{name}.median_seconds }}}}" if name != "plain" else labels["untried"]
        rows.append([labels[name], sample, whole])
    return rows
