"""Figures and tables of the chapter on utilization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log
from figures.svg import Drawing

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
    """For each shape of a result its waves: a box a wave, filled as far as SMs have a tile to do."""
    shapes = values["mfu.SHAPES"] or {}
    tilings = values["mfu.tilings"] or {}
    num_sms = values["mfu.NUM_SMS"] or 1
    names = [name for name in ("2048", "2304", "4096", "4224", "4352") if name in shapes and name in tilings]
    left, box, row, top = 132, 84, 40, 30
    drawing = Drawing(WIDTH, top + row * max(len(names), 1))
    drawing.text(0, 14, labels["result"], "muted")
    drawing.text(left, 14, labels["waves"], "muted")
    drawing.text(WIDTH, 14, labels["tiles"], "muted", anchor="end")
    for index, name in enumerate(names):
        y = top + row * index
        tiles = tilings[name]["tiles"]
        drawing.text(0, y + 19, f"{shapes[name][0]} × {shapes[name][1]}")
        drawing.text(WIDTH, y + 19, str(tiles), anchor="end")
        for wave in range(tilings[name]["waves"]):
            x = left + wave * box
            at_work = min(tiles - wave * num_sms, num_sms)
            drawing.rect(x, y, box - 6, 28, "faint")
            drawing.rect(x, y, (box - 6) * at_work / num_sms, 28, "fill-1")
            drawing.rect(x, y, box - 6, 28, "stroke-ink")
    return str(drawing)


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
