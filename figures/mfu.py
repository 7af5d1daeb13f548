"""Figures and tables of the chapter on utilization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from figures.axes import Axes, Log, Names, Scale
from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8")


def sizes(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """FLOP/s over the side of a square product, both logarithmic: a line a data type, dashes at its peak."""
    rates = values["mfu.sweep_flop_per_second"] or {}
    peaks = values["mfu.predicted_peaks_flop_per_second"] or {}
    sides = sorted({int(side) for curve in rates.values() for side in curve or {}})
    axes = Axes(Log(labels["side"], ticks=sides), Log(labels["rate"], unit="flop_per_second"))
    for colour, dtype in enumerate(DTYPES):
        curve = [(rates.get(dtype) or {}).get(str(side)) for side in sides]
        if any(curve):
            axes.plot(sides, curve, colour, labels[dtype])
            axes.scatter(sides, curve, colour, size=6 if dtype == "float16" else 4)  # bf16 may cover fp16
            if peaks.get(dtype):
                axes.axhline(peaks[dtype], colour=colour)
    return str(axes)


def waves(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A result in tiles, its tiles on the SMs, and of two more their waves: filled as far as there are tiles."""
    shown, tile = values["mfu.FILLED"] or {}, values["mfu.EXAMPLE_TILE"] or [1, 1]
    rows, columns = (values["mfu.EXAMPLE"] or [0, 0])[:2]
    num_sms = values["mfu.NUM_SMS"] or 1
    tiled = [name for name in ("three_long", "ten") if name in shown]
    top, row = 48, 40
    drawing = Drawing(WIDTH, top + 214 + row * (len(tiled) + 1))
    _tiles(drawing, (rows, columns), tile, labels, top)
    if "few" in shown:
        _on_sms(drawing, shown["few"]["tiles"], num_sms, labels, top)
    left, box, y = 118, 40, top + 214
    drawing.text(0, y + 14, labels["result"], "muted")
    drawing.text(left, y + 14, labels["waves"], "muted")
    drawing.text(WIDTH, y + 14, labels["reached"], "muted", anchor="end")
    for index, name in enumerate(tiled):
        y, each = top + 244 + row * index, shown[name]
        drawing.text(0, y + 19, each["shape"])
        drawing.text(
            WIDTH, y + 19, format_value(each["reached_share"], "share", ".0f%", labels["language"]), anchor="end"
        )
        waves = [left + wave * box for wave in range(each["waves"])]
        shares = [min(each["tiles"] - wave * num_sms, num_sms) / num_sms for wave in range(each["waves"])]
        drawing.rects(((x, y, box - 5, 28) for x in waves), "faint")
        drawing.rects(((x, y, (box - 5) * share, 28) for x, share in zip(waves, shares, strict=True)), "fill-1")
        drawing.rects(((x, y, box - 5, 28) for x in waves), "stroke-ink")
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
    left, step, each_row = 340, 16, 12
    drawing.text(left, 14, labels["on_sms"].format(tiles=tiles, sms=num_sms))
    drawing.text(left, 34, labels["idle"].format(idle=num_sms - tiles), "muted")
    squares = [
        (left + place % each_row * step, top + place // each_row * step, step - 3, step - 3) for place in range(num_sms)
    ]
    drawing.rects(squares[:tiles], "fill-1")
    drawing.rects(squares[tiles:], "faint")
    drawing.rects(squares, "stroke-ink")


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


def peaks(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each GPU of the table: its dense peak by data type."""
    rows = [[labels["gpu"], *(labels[dtype] for dtype in DTYPES)]]
    for name in values["mfu.TABLE_GPUS"] or []:
        known = (values["mfu.PEAK_FLOP_PER_SECOND"] or {}).get(name, {})
        cells = [f"{{{{ mfu.PEAK_FLOP_PER_SECOND.{name}.{dtype} }}}}" if dtype in known else "—" for dtype in DTYPES]
        rows.append([name, *cells])
    return rows


def published(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Lone products above, whole training runs below: the share of the peak that each is reported to reach."""
    rows = [[labels["what"], labels["kind"], labels["share"]]]
    for table, kind in (("LONE_MATMUL_SHARE", "lone"), ("TRAINING_MFU", "training")):
        reported = values[f"mfu.{table}"] or {}
        for name in sorted(reported, key=lambda name: -reported[name]):
            rows.append([labels.get(name, name), labels[kind], f"{{{{ mfu.{table}.{name} }}}}"])
    return rows
