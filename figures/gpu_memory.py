"""Figures and table of the chapter on GPU memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Scale
from figures.svg import FADED, HALF, Drawing
from ledger.units import format_value

WIDTH = 340
COUNTS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
MIB, GIB = 2**20, 2**30
STACKED = ("weights", "optimizer", "gradients", "activations", "logits")


def places(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A CPU and a GPU, each above its memory, and the link between these: connections as wide as their rates."""
    rates = values["gpu_memory.PATHS_BYTES_PER_SECOND"] or {}
    box, height, gap, top = 150, 44, 60, 26
    drawing = Drawing(WIDTH, top + 2 * height + gap + 48)
    bottom, scale = top + height + gap, 0.8 * box / max(rates.values(), default=1)

    def rate(name: str) -> str:
        return format_value(rates.get(name), "bytes_per_second", language=labels["language"])

    for colour, (name, x) in enumerate({"cpu": 0, "gpu": WIDTH - box}.items()):
        middle, width = x + box / 2, rates.get(name, 0) * scale
        drawing.text(middle, top - 10, labels[name], anchor="middle")
        drawing.add(
            "rect", f"fill-{colour}", x=middle - width / 2, y=top + height, width=width, height=gap, fill_opacity=HALF
        )
        for y, label in ((top, labels[f"{name}_chip"]), (bottom, labels[f"{name}_memory"])):
            drawing.rect(x + 1, y, box - 2, height, "faint", rx=4)
            drawing.rect(x + 1, y, box - 2, height, "stroke-muted", rx=4)
            drawing.text(middle, y + 27, label, anchor="middle")
        beside = middle + width / 2 + 8 if width < box / 4 else middle
        drawing.text(beside, top + height + 35, rate(name), anchor="start" if beside > middle else "middle")
    thickness = rates.get("link", 0) * scale
    level = bottom + height / 2
    drawing.add("rect", "fill-2", x=box, y=level - thickness / 2, width=WIDTH - 2 * box, height=thickness)
    drawing.text(WIDTH / 2, bottom + height + 20, labels["link"], anchor="middle")
    drawing.text(WIDTH / 2, bottom + height + 40, rate("link"), anchor="middle")
    return str(drawing)


def segments(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Two segments with their blocks, in use or free, and the request that no gap can hold, on one scale."""
    rows = values["gpu_memory.in_use_blocks"] or []
    wanted = values["gpu_memory.NEXT_BYTES"] or 0
    left, height, pitch = 78, 40, 52
    longest = max((sum(size for size, _ in row) for row in rows), default=0) or 1
    scale = (WIDTH - left - 4) / longest
    drawing = Drawing(WIDTH, 34 + pitch * (len(rows) + bool(wanted)))
    drawing.legend([("fill-1", labels["used"], 0.45), ("faint", labels["free"], 1)])
    for index, row in enumerate(rows):
        x, y = float(left), 34 + index * pitch
        drawing.text(0, y + 25, f"{labels['segment']} {index + 1}")
        for size, used in row:
            drawing.rect(x, y, size * scale, height, "faint")
            if used:  # see-through, so that its number stays legible in light and dark
                drawing.add("rect", "fill-1", x=x, y=y, width=size * scale, height=height, fill_opacity=FADED)
            drawing.rect(x, y, size * scale, height, "stroke-muted")
            drawing.text(x + size * scale / 2, y + 25, f"{size // MIB} MiB", "ink" if used else "muted", "middle")
            x += size * scale
    if wanted:
        y = 34 + len(rows) * pitch
        drawing.text(0, y + 25, labels["wanted"])
        drawing.rect(left, y, wanted * scale, height, "stroke-0")
        drawing.text(left + wanted * scale / 2, y + 25, f"{wanted // MIB} MiB", anchor="middle")
    return str(drawing)


def gpt2_steps(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes in use over two training steps of GPT-2, stacked by kind, and what is reserved for them as a line."""
    kinds = values["gpu_memory.gpt2_steps_bytes"] or {}
    axes = Axes(Scale(labels["order"], low=-0.5, ticks={-9: ""}), Scale("GiB"))
    parts = {labels[kind]: [size / GIB for size in kinds.get(kind, [])] for kind in STACKED}
    places = range(len(kinds.get("reserved", [])))
    axes.stack(places, parts, width=1, colours=STACKED)
    if kinds:
        axes.plot([*places], [size / GIB for size in kinds["reserved"]], "ink", label=labels["reserved"])
        axes.axvline(len(places) / 2 - 0.5, labels["first"], labels["second"])
    return str(axes)


def outside(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each card what lies outside PyTorch's allocator, line by line, from the least to the most."""
    found = values["gpu_memory.outside_bytes"] or {}
    lines = ("context", "kernels", "nccl_data")
    rows = [[labels["card"], *(labels[line] for line in lines)]]
    for card in (name for name in labels if name in found):
        cells = []
        for line in lines:
            low, high = (f"{{{{ gpu_memory.outside_bytes.{card}.{line}.{end} }}}}" for end in ("low", "high"))
            is_exact = found[card][line]["low"] == found[card][line]["high"]
            cells.append(low if is_exact else f"{low} {labels['to']} {high}")
        rows.append([labels[card], *cells])
    return rows


def requests(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each case what is requested, and what is allocated and reserved by the allocator's rules."""
    columns = {"requested": COUNTS[0], "allocated": COUNTS[1], "reserved": COUNTS[2]}
    rows = [[labels["shape"], *(labels[column] for column in columns)]]
    shapes, counts = values["gpu_memory.CASES"] or {}, values["gpu_memory.requests"] or {}
    for name in sorted(shapes, key=lambda name: int(counts[name]["requested_bytes"])):
        number, *shape = shapes[name]
        sizes = " × ".join(map(str, shape)) or labels["scalar"]
        cells = [f"{{{{ gpu_memory.requests.{name}.{count}:full }}}}" for count in columns.values()]
        rows.append([sizes if number == 1 else f"{number} × ({sizes})", *cells])
    return rows
