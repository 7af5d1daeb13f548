"""Figures of parallelism: a split MLP, pipelines over time, keys that go around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import FADED, HALF, Drawing, text_width, upon

WIDTH, LEFT = 400, 50.0  # of a pipeline over time, and what its names take
RANKS = 4
COLOURS = {(True, 0): "fill-0", (False, 0): "fill-1", (True, 1): "fill-2", (False, 1): "fill-3"}


def tensor(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """An MLP on two ranks: the first matrix cut by outputs, the second by inputs, and two parts of a sum."""
    drawing = Drawing(340, 254)
    heads = (  # in two lines, for they are wider than what they stand above
        ("tokens", 0.0, 16, "start"),
        ("first", 90.0, 36, "middle"),
        ("inner", 174.0, 16, "middle"),
        ("second", 246.0, 36, "middle"),
        ("partial", 340.0, 16, "end"),
    )
    for name, x, y, anchor in heads:
        drawing.text(x, y, labels[name], "muted", anchor=anchor)
    for rank in range(2):
        top, half = 68.0 + 112 * rank, 30.0 * rank
        drawing.text(0, top - 4, labels["rank"].format(n=rank))
        for x in (40, 124, 208, 268):
            drawing.line(x, top + 31, x + 16, top + 31)
            drawing.path(f"M{x + 12} {top + 27:g} {x + 16} {top + 31:g} {x + 12} {top + 35:g}")
        drawing.rect(0, top + 10, 36, 42, "fill-activations")  # all tokens, all features
        drawing.rect(60, top + 13, 60, 36, "faint")
        drawing.rect(60 + half, top + 13, 30, 36, "fill-weights")  # half of the outputs
        drawing.rect(144, top + 10, 60, 42, "faint")
        drawing.rect(144 + half, top + 10, 30, 42, "fill-activations")
        drawing.rect(228, top + 1, 36, 60, "faint")
        drawing.rect(228, top + 1 + half, 36, 30, "fill-weights")  # half of the inputs
        drawing.rect(288, top + 10, 36, 42, "fill-activations", fill_opacity=HALF)
        drawing.path(f"M326 {top + 31:g}H333V{145 + 20 * rank:g}")
    drawing.rect(322, 145, 18, 20, "fill-communication")
    drawing.text(316, 160, labels["reduce"], anchor="end")
    return str(drawing)


def _pipeline(values: Mapping[str, Any], labels: Mapping[str, str], name: str) -> str:
    """Passes of each rank over time; what is left blank is the bubble."""
    ranks = (values["pipeline_orders.starts"] or {}).get(name) or []
    stages = {stage for passes in ranks for _, _, stage, _ in passes}
    halves = max(1, len(stages) // max(1, len(ranks)))
    lasts = {True: 2 / halves, False: 4 / halves}
    end = max((start + lasts[forward] for passes in ranks for start, forward, *_ in passes), default=1)
    last = max((batch for passes in ranks for *_, batch in passes), default=0)
    drawing = Drawing(WIDTH, 0)
    legend = [(COLOURS[forward, 0], labels[key], 1.0) for key, forward in (("forward", True), ("backward", False))]
    first = drawing.legend(legend)
    if halves > 1:
        drawing.rect(0, first, 14, 14, COLOURS[True, 1])
        drawing.rect(18, first, 14, 14, COLOURS[False, 1])
        drawing.text(38, first + 12, labels["later"])
        first += 22
    scale = (WIDTH - LEFT) / end
    for rank, passes in enumerate(ranks):
        top = first + 8 + 34 * rank
        drawing.text(0, top + 18, labels["rank"].format(n=rank))
        drawing.rect(LEFT, top, WIDTH - LEFT, 26, "faint")
        for start, forward, stage, batch in passes:
            width = lasts[forward] * scale
            css = COLOURS[forward, stage // len(ranks) % 2]
            drawing.rect(LEFT + start * scale, top, width - 1, 26, css)
            if width >= text_width(str(last + 1)) + 2:  # all have room for their numbers, or none
                middle = LEFT + start * scale + (width - 1) / 2
                drawing.text(middle, top + 18, str(batch + 1), upon(css), anchor="middle")
    drawing.resize(first + 34 * max(1, len(ranks)) + 4)
    return str(drawing)


def gpipe(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """All micro-batches forward, then all backward."""
    return _pipeline(values, labels, "gpipe")


def one_by_one(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """1F1B of four micro-batches."""
    return _pipeline(values, labels, "1f1b")


def eight(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """1F1B of eight micro-batches."""
    return _pipeline(values, labels, "1f1b_8")


def sixteen(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """1F1B of sixteen micro-batches."""
    return _pipeline(values, labels, "1f1b_16")


def interleaved(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Eight micro-batches through two stages a rank."""
    return _pipeline(values, labels, "interleaved")


def turns() -> list[list[int]]:
    """Whose keys and values each rank has, before and after each time that all pass them on."""
    return [[(rank - done) % RANKS for rank in range(RANKS)] for done in range(RANKS)]


def ring(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Queries that stay, keys and values that go around a ring of four; pale, whose tokens all come later. Below, the
    cut of a sequence that gives all ranks equally much to do."""
    left, pitch, width = 62.0, 71.0, 31.0
    drawing = Drawing(340, 28 + 56 * RANKS + 66)
    for rank in range(RANKS):
        drawing.text(left + pitch * rank + width, 14, labels["rank"].format(n=rank), anchor="middle")
    for done, held in enumerate(turns()):
        top = 28.0 + 56 * done
        drawing.text(0, top + 26, labels["round"].format(n=done + 1))
        for rank, piece in enumerate(held):
            x, later = left + pitch * rank, piece > rank
            drawing.rect(x, top, width - 1, 40, f"fill-{rank}")
            drawing.text(x + width / 2, top + 25, "Q", upon(f"fill-{rank}"), anchor="middle")
            drawing.rect(x + width, top, width, 40, f"fill-{piece}", fill_opacity=FADED if later else 1)
            css = "ink" if later else upon(f"fill-{piece}")
            drawing.text(x + width * 1.5, top + 25, "KV", css, anchor="middle")
    top, order = 28.0 + 56 * RANKS + 26, [*range(RANKS), *reversed(range(RANKS))]
    drawing.text(0, top - 8, labels["cut"])
    for place, rank in enumerate(order):
        drawing.rect(place * 340 / len(order), top, 340 / len(order) - 2, 26, f"fill-{rank}")
        drawing.text((place + 0.5) * 340 / len(order) - 1, top + 18, f"{rank}", upon(f"fill-{rank}"), anchor="middle")
    return str(drawing)
