"""Figures of parallelism: a split MLP, pipelines over time, keys that go around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing, upon

WIDTH = 640
RANKS = 4
LEAST_WIDTH = 17.0  # of a pass that has room for its number
COLOURS = {(True, 0): "fill-0", (False, 0): "fill-1", (True, 1): "fill-2", (False, 1): "fill-3"}


def tensor(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """An MLP on two ranks: the first matrix cut by outputs, the second by inputs, and two parts of a sum."""
    drawing = Drawing(WIDTH, 322)
    heads = (("tokens", 96.0), ("first", 196.0), ("inner", 320.0), ("second", 432.0), ("partial", 546.0))
    for name, x in heads:
        drawing.text(x, 16, labels[name], "muted", anchor="middle")
    for rank in range(2):
        top, half = 40.0 + 132 * rank, 50.0 * rank
        drawing.text(0, top + 46, labels["rank"].format(n=rank))
        drawing.rect(66, top + 10, 60, 70, "fill-activations")  # all tokens, all features
        drawing.rect(146, top, 100, 60, "faint")
        drawing.rect(146 + half, top, 50, 60, "fill-weights")  # half of the outputs
        drawing.rect(270, top + 10, 100, 70, "faint")
        drawing.rect(270 + half, top + 10, 50, 70, "fill-activations")
        drawing.rect(402, top, 60, 100, "faint")
        drawing.rect(402, top + half, 60, 50, "fill-weights")  # half of the inputs
        drawing.rect(516, top + 10, 60, 70, "fill-activations", fill_opacity=0.4)
        for x in (130, 252, 380, 483):
            drawing.line(x, top + 45, x + 12, top + 45)
            drawing.path(f"M{x + 8} {top + 41:g} {x + 12} {top + 45:g} {x + 8} {top + 49:g}")
        drawing.path(f"M580 {top + 45:g}H604V{161 - 12 + 24 * rank:g}")
    drawing.rect(590, 149, 28, 24, "fill-communication")
    drawing.text(584, 166, labels["reduce"], anchor="end")
    drawing.text(0, 316, labels["note"], "muted")
    return str(drawing)


def _pipeline(values: Mapping[str, Any], labels: Mapping[str, str], name: str) -> str:
    """Passes of each rank over time; what is left blank is the bubble."""
    ranks = (values["pipeline_orders.starts"] or {}).get(name) or []
    stages = {stage for passes in ranks for _, _, stage, _ in passes}
    halves = max(1, len(stages) // max(1, len(ranks)))
    lasts = {True: 2 / halves, False: 4 / halves}
    end = max((start + lasts[forward] for passes in ranks for start, forward, *_ in passes), default=1)
    drawing = Drawing(WIDTH, 36 + 34 * max(1, len(ranks)))
    x = 0.0
    for key, (forward, half) in {"forward": (True, 0), "backward": (False, 0), "later": (True, 1)}.items():
        if half < halves:
            drawing.rect(x, 3, 14, 14, COLOURS[forward, half])
            if half:
                drawing.rect(x + 18, 3, 14, 14, COLOURS[False, half])
            drawing.text(x + 20 + 18 * half, 15, labels[key])
            x += 110
    left = 62.0
    scale = (WIDTH - left) / end
    for rank, passes in enumerate(ranks):
        top = 30.0 + 34 * rank
        drawing.text(0, top + 18, labels["rank"].format(n=rank))
        drawing.rect(left, top, WIDTH - left, 26, "faint")
        for start, forward, stage, batch in passes:
            width = lasts[forward] * scale
            css = COLOURS[forward, stage // len(ranks) % 2]
            drawing.rect(left + start * scale, top, width - 1, 26, css)
            if width >= LEAST_WIDTH:
                middle = left + start * scale + (width - 1) / 2
                drawing.text(middle, top + 18, str(batch + 1), upon(css), anchor="middle")
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
            drawing.rect(x + width, top, width, 40, f"fill-{piece}", fill_opacity=0.2 if later else 1)
            css = "muted" if later else upon(f"fill-{piece}")
            drawing.text(x + width * 1.5, top + 25, "KV", css, anchor="middle")
    top, order = 28.0 + 56 * RANKS + 26, [*range(RANKS), *reversed(range(RANKS))]
    drawing.text(0, top - 8, labels["cut"])
    for place, rank in enumerate(order):
        drawing.rect(place * 340 / len(order), top, 340 / len(order) - 2, 26, f"fill-{rank}")
        drawing.text((place + 0.5) * 340 / len(order) - 1, top + 18, f"{rank}", upon(f"fill-{rank}"), anchor="middle")
    return str(drawing)
