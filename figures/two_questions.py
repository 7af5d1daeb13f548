"""Figures and tables of the chapter of the two questions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Names
from figures.svg import Drawing
from ledger.units import format_value

WIDTH = 640
PARTS = ("weights", "gradients", "master", "moments")


def _in_order(found: Mapping[str, Any] | None, labels: Mapping[str, str]) -> list[str]:
    """The names among a value's keys in the order of the page's labels: a record keeps its keys sorted."""
    return [name for name in labels if name in (found or {})]


def bytes_per_parameter(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Each recipe as a bar of its bytes, part by part, on one scale."""
    recipes = values["two_questions.recipes"] or {}
    totals = values["two_questions.state_bytes"] or {}
    row, top = 62, 34
    drawing = Drawing(WIDTH, top + row * max(len(recipes), 1))
    for colour, part in enumerate(PARTS):
        drawing.rect(colour * 160, 2, 14, 14, f"fill-{colour}")
        drawing.text(colour * 160 + 20, 14, labels[part])
    scale = WIDTH / max(totals.values(), default=1)
    for index, name in enumerate(_in_order(recipes, labels)):
        recipe, y, x = recipes[name], top + index * row, 0.0
        drawing.text(0, y + 14, labels[name])
        drawing.text(WIDTH, y + 14, str(totals[name]), anchor="end")
        for colour, part in enumerate(PARTS):
            width = recipe[part] * scale
            if width:
                drawing.rect(x, y + 20, width - 1, 16, f"fill-{colour}")
                drawing.text(x + width / 2, y + 51, str(recipe[part]), "muted", anchor="middle")
            x += width
    return str(drawing)


def one_scale(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Training runs as bars on a logarithmic axis of FLOPs, and the thresholds as lines across them."""
    runs = sorted((values["two_questions.compute_flops"] or {}).items(), key=lambda run: run[1])
    thresholds = values["two_questions.thresholds"] or {}
    low = 10.0 ** math.floor(math.log10(min((flops for _, flops in runs), default=1)))
    axes = Axes(Log(low=low), Names([""] * len(runs)), height=48 * len(runs))
    by_size = sorted(thresholds.items(), key=lambda threshold: threshold[1]["flops"])
    for colour, (name, threshold) in enumerate(by_size, start=2):
        axes.axvline(threshold["flops"], colour=colour, label=labels[name])
    for row, (name, flops) in enumerate(runs):
        axes.annotate(f"{labels[name]}\u2003{format_value(flops, '', 'sci')}", low, row, dx=4, dy=-4)
        axes.barh([row + 0.2], [flops - low], int(name == "gpt_4"), height=0.3, left=[low])
    return str(axes)


def gpus(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each GPU: its peak, and the days of the run at several MFUs."""
    percents = values["two_questions.PERCENTS"] or []
    sign = " %" if labels["language"] == "en" else "%"
    mfus = [f"MFU {{{{ two_questions.PERCENTS.{index} }}}}{sign}" for index in range(len(percents))]
    rows = [[labels["gpu"], labels["peak"], *mfus]]
    for gpu in values["two_questions.TABLE_GPUS"] or []:
        days = [f"{{{{ two_questions.days_by_gpu.{gpu}.{percent}:.1f }}}}" for percent in percents]
        rows.append([gpu, f"{{{{ two_questions.peak_teraflops.{gpu}:.1f }}}}", *days])
    return rows


def published(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each published run: its size, the GPU-hours reported, and the utilization they imply."""
    columns = ("parameters:short", "tokens:wan", "gpu_hours:wan")
    rows = [[labels[key] for key in ("run", "parameters", "tokens", "gpu_hours", "implied")]]
    for name in _in_order(values["two_questions.published"], labels):
        reported = [f"{{{{ two_questions.published.{name}.{column} }}}}" for column in columns]
        rows.append([labels[name], *reported, f"{{{{ two_questions.implied_share.{name} }}}}"])
    return rows


def largest(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each recipe: its bytes a parameter, and the largest model on a machine of each GPU."""
    names = values["two_questions.TABLE_GPUS"] or []
    machines = [f"{{{{ two_questions.MACHINE_GPUS }}}} × {name}" for name in names]
    rows = [[labels["recipe"], labels["bytes"], *machines]]
    for name in _in_order(values["two_questions.recipes"], labels):
        sizes = [f"{{{{ two_questions.largest_parameters.{name}.{gpu} }}}}" for gpu in names]
        rows.append([labels[name], f"{{{{ two_questions.state_bytes.{name}:plain }}}}", *sizes])
    return rows
