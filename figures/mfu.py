"""Figures and tables of the chapter on utilization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from figures.axes import Axes, Names, Scale
from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 340


def waves(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A result in tiles, its tiles on the SMs, and of two more their waves: filled as far as there are tiles."""
    shown, tile = values["mfu.FILLED"] or {}, values["mfu.EXAMPLE_TILE"] or [1, 1]
    rows, columns = (values["mfu.EXAMPLE"] or [0, 0])[:2]
    num_sms = values["mfu.NUM_SMS"] or 1
    tiled = [name for name in ("three_long", "ten") if name in shown]
    top, row, box = 48, 58, 34
    drawing = Drawing(WIDTH, top + 262 + row * len(tiled))
    _tiles(drawing, (rows, columns), tile, labels, top)
    if "few" in shown:
        _on_sms(drawing, shown["few"]["tiles"], num_sms, labels, top)
    y = top + 252
    drawing.text(0, y, labels["result"], "muted")
    drawing.text(WIDTH, y, labels["reached"], "muted", anchor="end")
    for index, name in enumerate(tiled):
        y, each = top + 280 + row * index, shown[name]
        reached = format_value(each["reached_share"], "share", ".0f%", labels["language"])
        drawing.text(0, y, each["shape"])
        drawing.text(WIDTH, y, reached, anchor="end")
        places = [(wave * box + 1, y + 8) for wave in range(each["waves"])]
        shares = [min(each["tiles"] - wave * num_sms, num_sms) / num_sms for wave in range(each["waves"])]
        drawing.rects(((*place, box - 5, 24) for place in places), "faint")
        drawing.rects(((*place, (box - 5) * share, 24) for place, share in zip(places, shares, strict=True)), "fill-1")
        drawing.rects(((*place, box - 5, 24) for place in places), "stroke-ink")
    return str(drawing)


def _tiles(
    drawing: Drawing,
    size: Sequence[int],
    tile: Sequence[int],
    labels: Mapping[str, str],
    top: float,
    scale: float = 0.2,
) -> None:
    """A result of so many rows and columns, and the tiles that cover it."""
    drawing.text(0, 14, labels["cut"].format(result=f"{size[0]} × {size[1]}", tile=f"{tile[0]} × {tile[1]}"))
    drawing.text(0, 34, labels["overhang"].format(used=size[0] % tile[0], rows=tile[0]), "muted")
    high, wide = (scale * side for side in tile)
    down, across = (-(-whole // part) for whole, part in zip(size, tile, strict=True))
    drawing.rect(0, top, wide * across, high * down, "faint")
    drawing.rect(0, top, scale * size[1], scale * size[0], "fill-1")
    places = ((place % across * wide, top + place // across * high) for place in range(down * across))
    drawing.rects(((x, y, wide, high) for x, y in places), "stroke-ink")


def _on_sms(drawing: Drawing, tiles: int, num_sms: int, labels: Mapping[str, str], top: float) -> None:
    """A square for each SM, in colour if it has a tile."""
    left, step, each_row = WIDTH - 156, 13, 12
    drawing.text(WIDTH, top + 200, labels["on_sms"].format(tiles=tiles, sms=num_sms), anchor="end")
    drawing.text(WIDTH, top + 220, labels["idle"].format(idle=num_sms - tiles), "muted", anchor="end")
    squares = [
        (left + place % each_row * step, top + place // each_row * step, step - 3, step - 3) for place in range(num_sms)
    ]
    drawing.rects(squares[:tiles], "fill-1")
    drawing.rects(squares[tiles:], "faint")
    drawing.rects(squares, "stroke-muted")


def where(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Where a published step's time went, from all of it down to what its FLOPs would take at the peak."""
    lines = (values["published_steps.stacks"] or {}).get("mpt", {})
    reached = ((values["mfu.PUBLISHED"] or {}).get("a100_40gb") or {}).get("mfu", 0.0)
    parts = {
        "rest": 1 - sum(lines.values()),
        "small": lines.get("loss", 0.0) + lines.get("update", 0.0),
        "elementwise": lines.get("elementwise", 0.0),
        "recomputed": lines.get("recomputed", 0.0),
        "slower": lines.get("matmuls", 0.0) + lines.get("attention", 0.0) - reached,
    }
    wide, pitch, end = 338.0, 46.0, 1.0
    drawing = Drawing(340, pitch * (len(parts) + 2))

    def row(number: int, word: str, share: float, start: float, css: str) -> None:
        top, sign = pitch * number, "− " if start else ""
        drawing.text(0, top + 16, labels[word])
        drawing.text(338, top + 16, sign + format_value(share, "share", ".0f%", labels["language"]), anchor="end")
        drawing.rect(1 + start * wide, top + 22, max(share * wide, 1), 18, css)

    row(0, "whole", 1.0, 0.0, "muted")
    for number, (word, share) in enumerate(parts.items(), start=1):
        drawing.rect(1, pitch * number + 22, end * wide, 18, "faint")
        end -= share
        row(number, word, share, end, "fill-other")
    row(len(parts) + 1, "mfu", reached, 0.0, "ink")
    return str(drawing)


def steps(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Every published MFU, a row for each card; those of runs that recompute matmuls below."""
    points = values["mfu.POINTS"] or {}
    names = list(points)
    axes = Axes(
        Scale(labels["axis"], low=0, unit="share", language=labels["language"]),
        Names([labels[name] for name in names]),
        height=64 * len(names) + 70,
    )
    for colour, (kind, shift) in enumerate((("kept", -0.17), ("again", 0.2))):
        placed = [
            (share, row + shift + 0.045 * (number % 5 - 2))
            for row, name in enumerate(names)
            for number, share in enumerate(points[name][kind])
        ]
        axes.scatter([x for x, _ in placed], [y for _, y in placed], colour, labels[kind], marker="ring", size=3)
    return str(axes)
