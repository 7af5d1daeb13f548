"""Figures and tables of the chapter on GPU memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale
from figures.svg import Drawing

WIDTH = 640
COUNTS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
MIB = 2**20


def segments(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Two segments with their blocks, in use or free, and the request that no gap can hold, on one scale."""
    rows = values["gpu_memory.fragmented_segments"] or []
    wanted = values["gpu_memory.NEXT_BYTES"] or 0
    left, height, pitch = 110, 40, 62
    longest = max((sum(size for size, _ in row) for row in rows), default=0) or 1
    scale = (WIDTH - left - 4) / longest
    drawing = Drawing(WIDTH, 34 + pitch * (len(rows) + bool(wanted)))
    drawing.rect(left, 4, 16, 14, "fill-1")
    drawing.text(left + 24, 16, labels["used"])
    drawing.rect(left + 160, 4, 16, 14, "faint")
    drawing.rect(left + 160, 4, 16, 14, "stroke-muted")
    drawing.text(left + 184, 16, labels["free"])
    for index, row in enumerate(rows):
        x, y = float(left), 34 + index * pitch
        drawing.text(0, y + 25, f"{labels['segment']} {index + 1}")
        for size, used in row:
            drawing.rect(x, y, size * scale, height, "faint")
            if used:  # see-through, so that its number stays legible in light and dark
                drawing.add("rect", "fill-1", x=x, y=y, width=size * scale, height=height, fill_opacity=0.45)
            drawing.rect(x, y, size * scale, height, "stroke-muted")
            drawing.text(x + size * scale / 2, y + 25, f"{size // MIB} MiB", "ink" if used else "muted", "middle")
            x += size * scale
    if wanted:
        y = 34 + len(rows) * pitch
        drawing.text(0, y + 25, labels["wanted"])
        drawing.rect(left, y, wanted * scale, height, "stroke-0")
        drawing.text(left + wanted * scale / 2, y + 25, f"{wanted // MIB} MiB", anchor="middle")
    return str(drawing)


def timeline(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes after each allocation of a training step, stacked by kind; a dot where the allocator's history has them."""
    stacks = values["gpu_memory.timeline"] or []
    measured = values["gpu_memory.measured_step.timeline_bytes"] or []
    num_forward = 1 + 3 * (values["gpu_memory.NUM_LAYERS"] or 0)  # the input; a weight and two results a layer
    axes = Axes(Scale(labels["allocations"]), Scale("MiB"))
    order = range(1, len(stacks) + 1)
    bottom = [0.0] * len(stacks)
    for colour, kind in enumerate(values["gpu_memory.KINDS"] or []):
        sizes = [stack[kind] / MIB for stack in stacks]
        axes.bar(order, sizes, colour, labels[kind], width=0.9, bottom=bottom)
        bottom = [below + size for below, size in zip(bottom, sizes, strict=True)]
    if measured:
        axes.scatter(range(1, len(measured) + 1), [size / MIB for size in measured], "ink", labels["measured"])
    if stacks:
        axes.axvline(num_forward + 0.5, labels["forward"], labels["backward"])
    return str(axes)


def requests(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each shape: what is requested, allocated and reserved, by the model and on the device."""
    columns = ("shape", "requested", "allocated", "reserved", "measured_allocated", "measured_reserved")
    rows = [[labels[column] for column in columns]]
    for name in values["gpu_memory.SHAPES"] or {}:
        quotes = [f"requests.{name}.{count}" for count in COUNTS]
        quotes += [f"measured_requests.{name}.{count}" for count in COUNTS[1:]]
        rows.append([name.replace("x", " × "), *(f"{{{{ gpu_memory.{quote}:full }}}}" for quote in quotes)])
    return [rows[0], *sorted(rows[1:], key=lambda row: _elements(row[0]))]


def _elements(shape: str) -> int:
    """The number of elements of "4 × 8": records keep their keys sorted as text."""
    product = 1
    for size in shape.split(" × "):
        product *= int(size)
    return product


def peaks(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """The three counts at their peak, predicted and measured."""
    rows = [[labels[column] for column in ("count", "predicted", "measured", "ratio")]]
    for count in COUNTS:
        quotes = (f"step_peaks.{count}", f"measured_peaks.{count}", f"measured_peaks_ratio.{count}:times")
        rows.append([labels[count], *(f"{{{{ gpu_memory.{quote} }}}}" for quote in quotes)])
    return rows


def transfers(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each way to the GPU: its time, its rate, the share of the link, and its time against the plain one."""
    rows = [[labels[column] for column in ("way", "time", "rate", "share", "relative")]]
    for name in ("pageable", "pinned_ahead", "pinned_in_line"):
        quotes = (
            f"measured_transfers.{name}.median_seconds",
            f"measured_rates.{name}.bytes_per_second",
            f"measured_rates.{name}.link_share",
            f"measured_rates.{name}.to_pageable_ratio",
        )
        rows.append([labels[name], *(f"{{{{ gpu_memory.{quote} }}}}" for quote in quotes)])
    return rows
