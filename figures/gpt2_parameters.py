"""Figures of the chapter on GPT-2's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing, upon
from ledger.units import format_value

WIDTH = 340
SIZES = ("small", "medium", "large", "xl")
PARTS = {  # as the page stacks them, with their colours
    "tokens": "fill-0",
    "positions": "fill-2",
    "attention": "fill-1",
    "mlp": "fill-3",
    "norms": "fill-4",
}
LEFT, BAR = 60.0, 26.0

DRAWN = (  # from top to bottom: a tensor and its shape, or a step; its matrix, inputs × outputs; the colour of its part
    ("tokens", "b × T", (), ""),
    ("embed", "", ("V", "d"), "tokens"),
    ("place", "", ("T", "d"), "positions"),
    ("stream", "b × T × d", (), ""),
    ("times", "", (), ""),
    ("norm", "", ("2", "d"), "norms"),
    ("qkv", "", ("d", "3d"), "attention"),
    ("attend", "", (), ""),
    ("mix", "", ("d", "d"), "attention"),
    ("add", "", (), ""),
    ("norm", "", ("2", "d"), "norms"),
    ("up", "", ("d", "4d"), "mlp"),
    ("gelu", "", (), ""),
    ("down", "", ("4d", "d"), "mlp"),
    ("add", "", (), ""),
    ("stream", "b × T × d", (), ""),
    ("final", "", ("2", "d"), "norms"),
    ("head", "", ("d", "V"), "tokens"),
    ("logits", "b × T × V", (), ""),
)
BLOCK = range(4, 15)  # the rows that are repeated
SIDE, MOST = 24.0, 96.0  # pixels of d; the longest side that is drawn whole


def model(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """GPT-2 small from its tokens to its logits, as wide as a phone: tensors are boxes, matrices stand at the right,
    to scale; one that is too long is cut in its middle."""
    sizes = (values["gpt2_parameters.letters"] or {}).get("gpt2", {"d": 1, "T": 1, "V": 1})
    d = sizes["d"]
    counts = {"2": 2, "d": d, "3d": 3 * d, "4d": 4 * d, "T": sizes["T"], "V": sizes["V"]}
    spine, right, middle = 52, 232, 284.0
    drawing = Drawing(340, 30)
    drawing.text(middle, 16, labels["weights"], "muted", anchor="middle")
    y, tops = 28.0, []
    split = 0.0  # the height at which the residual stream passes by
    for word, shape, matrix, part in DRAWN:
        tops.append(y)
        high, wide = (min(counts[side] / d * SIDE, MOST) for side in matrix) if matrix else (0.0, 0.0)
        step = max(high + 12, 44 if high > 2 else 27)
        at = y + step / 2
        if shape:
            drawing.add("rect", "stroke-muted", x=24, y=at - 12, width=right - 24, height=24, rx=4)
            drawing.text(30, at + 5, labels[word])
            drawing.text(right - 5, at + 5, shape, "muted", anchor="end")
        else:
            drawing.line(spine, y, spine, y + step)
            drawing.text(spine + 16, at + (-3 if high > 2 else 5), labels[word], "muted" if word == "times" else "ink")
        if word == "norm":
            split = y + 2
        if word == "add":
            drawing.path(f"M{spine} {split} H16 V{at} H{spine}", "stroke-ink")
            drawing.circle(spine, at, 4, "ink")
        if matrix:
            rows, columns = (counts[side] for side in matrix)
            is_tied = word == "head"  # the table of tokens once more, drawn without filling
            drawing.add(
                "rect", "stroke-0" if is_tied else PARTS[part],
                x=middle - wide / 2, y=at - high / 2, width=wide, height=max(high, 2),
            )  # fmt: skip
            if max(rows, columns) / d * SIDE > MOST:  # two slanted lines where a part is left out
                for shift in (-3, 3):
                    if rows > columns:
                        drawing.line(middle - wide / 2 - 4, at + shift + 3, middle + wide / 2 + 4, at + shift - 3)
                    else:
                        drawing.line(middle + shift - 3, at + high / 2 + 4, middle + shift + 3, at - high / 2 - 4)
            if high > 2:
                count = labels["tied"] if is_tied else format_value(rows * columns, "", "short", labels["language"])
                drawing.text(spine + 16, at + 15, f"{rows:,} × {columns:,}: {count}", "muted")
        y += step
    drawing.add(
        "rect", "fill-0", x=4, y=tops[BLOCK.start] - 1, width=332, height=tops[BLOCK.stop] - tops[BLOCK.start],
        rx=6, fill_opacity=0.08,
    )  # fmt: skip
    drawing.resize(y + 4)
    return str(drawing)


def attention(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One head's two matmuls to scale: queries by keys give scores, these after the softmax by values the result."""
    sizes = (values["gpt2_parameters.letters"] or {}).get("gpt2", {"T": 1, "Q": 1})
    side = 118.0  # pixels of T
    thin = side * sizes["Q"] / sizes["T"]
    square, strip = f"{sizes['T']:,} × {sizes['T']:,}", f"{sizes['T']:,} × {sizes['Q']:,}"
    drawing = Drawing(340, 382)
    right = 180.0

    def triangle(top: float, css: str) -> None:
        drawing.rect(right, top, side, side, "faint")
        drawing.path(f"M{right:g} {top:g}V{top + side:g}H{right + side:g}z", css)

    top = 34.0
    middle = top + side / 2 + 5
    drawing.rect(8, top, thin, side, "fill-activations")
    drawing.text(8 + thin / 2, top - 8, "Q", anchor="middle")
    drawing.text(20, middle, "×")
    drawing.rect(34, top + side / 2 - thin / 2, side, thin, "fill-activations")
    drawing.text(34 + side / 2, top + side / 2 - 12, "Kᵀ", anchor="middle")
    drawing.text(166, middle, "=", anchor="middle")
    triangle(top, "fill-5")
    drawing.text(right + side / 2, top - 8, f"S, {square}", anchor="middle")
    drawing.text(right + 8, top + side - 10, labels["earlier"], "on-pale")
    drawing.text(right + side - 6, top + 20, labels["later"], "muted", anchor="end")
    drawing.text(8, top + side + 20, labels["strips"].format(shape=strip), "muted")
    drawing.path(f"M{right + side / 2:g} {top + side + 6:g}v44m-4 -6l4 6l4 -6")
    drawing.text(right + side / 2 - 10, top + side + 44, labels["softmax"], anchor="end")
    top += side + 78
    middle = top + side / 2 + 5
    triangle(top, "fill-activations")
    for name, x in ((labels["result"], right - 40), ("V", right + side + 26)):
        drawing.rect(x - thin / 2, top, thin, side, "fill-activations")
        drawing.text(x, top - 8, name, anchor="middle")
    drawing.text(right - 14, middle, "=", anchor="middle")
    drawing.text(right + side + 11, middle, "×", anchor="middle")
    drawing.text(338, top + side + 20, f"P, {square}: {labels['sums']}", anchor="end")
    return str(drawing)


def stack(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Four bars twice: parameters by part on one scale, and each part's share of its model."""
    counts = values["gpt2_parameters.part_parameters"] or {}
    parts = {size: _joined(counts[size]) for size in SIZES if size in counts}
    largest = max((sum(found.values()) for found in parts.values()), default=1)
    drawing = Drawing(WIDTH, 0)
    y = drawing.legend([(colour, labels[part], 1) for part, colour in PARTS.items()]) + 18
    for title in ("count", "share"):
        drawing.text(0, y, labels[title])
        y += 10
        for size, found in parts.items():
            total = sum(found.values())
            full = WIDTH - LEFT - 58 * (title == "count")  # room for the number of parameters
            drawing.text(0, y + 18, labels[size])
            x = LEFT
            for part, colour in PARTS.items():
                width = full * found[part] / (largest if title == "count" else total)
                drawing.rect(x, y, width, BAR, colour)
                if title == "share" and width > 36:
                    percent = format_value(found[part] / total, "share", ".0f%", labels["language"])
                    drawing.text(x + width / 2, y + 18, percent, upon(colour), anchor="middle")
                x += width
            if title == "count":
                drawing.text(x + 6, y + 18, f"{total / 1e6:,.0f}M", "muted")
            y += BAR + 6
        y += 26
    drawing.resize(y - 30)
    return str(drawing)


def _joined(parts: Mapping[str, int]) -> dict[str, int]:
    """The parts that are drawn: all norms as one; a tied head has nothing of its own."""
    joined = {part: parts[part] for part in PARTS}
    joined["norms"] += parts["final_norm"]
    return joined
