"""Figures of experts: a layer that sorts tokens by expert, tokens that change ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import HALF, Drawing, upon

RANKS = 4
CHOICES = ((0, 2), (0, 1), (2, 3), (0, 3))  # the experts of each token
ROW, PITCH, GAP = 16.0, 20.0, 12.0  # height of a row; from row to row; between experts


def sorted_rows() -> list[list[int]]:
    """The tokens of each expert, in their order."""
    return [[token for token, chosen in enumerate(CHOICES) if expert in chosen] for expert in range(RANKS)]


def layer(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Tokens, their copies sorted by expert, the experts, their results, and the sums by token: as wide as a phone."""
    drawing = Drawing(340, 262)
    for name, x in (("tokens", 26.0), ("rows", 99.0), ("experts", 170.0), ("results", 241.0), ("sums", 322.0)):
        drawing.text(x, 16, labels[name], "muted", anchor="middle")
    tokens = [52.0 + 52 * token for token in range(len(CHOICES))]
    top = 34.0
    for expert, rows in enumerate(sorted_rows()):
        height = PITCH * len(rows) - (PITCH - ROW)
        drawing.rect(148, top, 44, height, "faint")
        drawing.text(170, top + height / 2 + 5, f"E{expert}", anchor="middle")
        for token in rows:
            middle, own = top + ROW / 2, tokens[token] + ROW / 2
            drawing.path(f"M34 {own:g}L80 {middle:g}", f"stroke-{token}")
            drawing.path(f"M260 {middle:g}L306 {own:g}", f"stroke-{token}")
            drawing.rect(80, top, 38, ROW, f"fill-{token}")
            drawing.line(122, middle, 144, middle, "stroke-muted")
            drawing.line(196, middle, 218, middle, "stroke-muted")
            drawing.add("rect", f"fill-{token}", x=222, y=top, width=38, height=ROW, fill_opacity=HALF)
            top += PITCH
        top += GAP
    for token, own in enumerate(tokens):
        drawing.rect(0, own, 34, ROW, f"fill-{token}")
        drawing.rect(306, own, 34, ROW, f"fill-{token}")
    drawing.resize(tokens[-1] + ROW + 20)
    return str(drawing)


def all_to_all(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Tokens of four ranks, by the rank of their expert, before and after they are sent."""
    drawing = Drawing(400, 146)
    for x, name in ((4.0, "before"), (212.0, "after")):
        drawing.text(x, 16, labels[name])
        for rank in range(RANKS):
            at = x + 48 * rank
            for row in range(RANKS):
                came_from, goes_to = (rank, row) if name == "before" else (row, rank)
                drawing.rect(at, 28 + 22 * row, 40, 18, f"fill-{came_from}")
                drawing.text(at + 20, 42 + 22 * row, labels["expert"].format(n=goes_to), upon(str(came_from)), "middle")
            drawing.text(at + 20, 28 + 22 * RANKS + 16, labels["rank"].format(n=rank), "muted", anchor="middle")
    drawing.line(192, 72, 208, 72)
    drawing.path("M203 67 208 72 203 77")
    return str(drawing)
