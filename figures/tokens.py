"""Figures of the chapter on tokens."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import HALF, Drawing

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


WIDTH, LEFT, BYTE = 424, 62.0, 10.2  # pixels of all, before the first byte, and of each


def cut(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A question in two languages, and under it the tokens of each tokenizer: boxes as wide as their bytes."""
    sentences = values["tokens.SENTENCE"] or {}
    found = values["tokens.cuts"] or {}
    drawing = Drawing(WIDTH, 0)
    drawing.text(0, 16, labels["learned"], "muted")
    drawing.text(WIDTH, 16, labels["tokens"], "muted", anchor="end")
    y = 44.0
    for language in LANGUAGES:
        x: float = LEFT
        for letter in sentences.get(language, ""):
            width, (size, wide) = BYTE * len(letter.encode()), (14, 8.4) if letter.isascii() else (20, 20)
            at: dict[str, Any] = {"x": x + (width - wide) / 2, "y": y, "font_size": size, "font_family": "monospace"}
            drawing.add("text", "ink", letter.strip(), **at)  # letters of one width, as their bytes are
            x += width
        for colour, name in enumerate(TRAINED):
            y += 30
            drawing.text(0, y, labels[name])
            lengths = found.get(name, {}).get(language, [])
            starts = accumulate((BYTE * length for length in lengths), initial=LEFT)
            for x, length in zip(starts, lengths, strict=False):
                drawing.rect(x + 1, y - 16, BYTE * length - 2, 22, f"fill-{colour}", rx=3, fill_opacity=HALF)
            drawing.text(WIDTH, y, str(len(lengths)), anchor="end")
        y += 48
    drawing.resize(y - 38)
    return str(drawing)
