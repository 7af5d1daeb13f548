"""Figures of the chapter on tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import Drawing

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


LEFT, BYTE = 112, 14.5  # pixels before the first byte, and of each


def cut(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A question in two languages, and under it the tokens of each tokenizer: boxes as wide as their bytes."""
    sentences = values["tokens.SENTENCE"] or {}
    found = values["tokens.cuts"] or {}
    drawing = Drawing(640, 20)
    drawing.text(LEFT - 12, 16, labels["learned"], "muted", anchor="end")
    drawing.text(640, 16, labels["tokens"], "muted", anchor="end")
    y = 16.0
    for language in LANGUAGES:
        x: float = LEFT
        for letter in sentences.get(language, ""):
            width, (size, wide) = BYTE * len(letter.encode()), (15, 8.5) if letter.isascii() else (20, 20)
            drawing.text(x + (width - wide) / 2, y, letter.strip(), size=size)
            x += width
        for colour, name in enumerate(TRAINED):
            y += 30
            drawing.text(LEFT - 12, y, labels[name], anchor="end")
            x = LEFT
            lengths = found.get(name, {}).get(language, [])
            for length in lengths:
                drawing.add(
                    "rect",
                    f"fill-{colour}",
                    x=x + 1,
                    y=y - 16,
                    width=BYTE * length - 2,
                    height=22,
                    rx=3,
                    fill_opacity=0.45,
                )
                x += BYTE * length
            drawing.text(640, y, str(len(lengths)), anchor="end")
        y += 48
    drawing.resize(y - 38)
    return str(drawing)
