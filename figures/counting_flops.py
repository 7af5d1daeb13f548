"""Figures and tables of the chapter on counting FLOPs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing

WIDTH = 640
CELL = 26
TOOLS = ("FlopCounterMode", "calflops", "torchinfo", "thop")


def product(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Three matrices: a row of the first and a column of the second make one element of the third."""
    m, n, p = (values[f"counting_flops.{name}"] or 0 for name in ("ROWS", "INNER", "COLUMNS"))
    row, column = m // 2, p // 2
    drawing = Drawing(WIDTH, 24 + CELL * max(m, n) + 74)
    middle = 24 + CELL * max(m, n) / 2
    x = 4.0
    for rows, columns, name, sign, chosen in (  # chosen: the row and column to colour, None for all of them
        (m, n, "m × n", "·", (row, None)),
        (n, p, "n × p", "=", (None, column)),
        (m, p, "m × p", "", (row, column)),
    ):
        top = middle - CELL * rows / 2
        for i in range(rows):
            for j in range(columns):
                left, y = x + j * CELL, top + i * CELL
                drawing.rect(left, y, CELL, CELL, "faint")
                if chosen[0] in (i, None) and chosen[1] in (j, None):
                    colour = "fill-1" if not sign else "fill-0"
                    drawing.add("rect", colour, x=left, y=y, width=CELL, height=CELL, fill_opacity=0.55)
                drawing.rect(left, y, CELL, CELL, "stroke-muted")
        drawing.text(x + columns * CELL / 2, top - 8, name, "muted", anchor="middle")
        x += columns * CELL
        drawing.text(x + 26, middle + 6, sign, anchor="middle", size=20)
        x += 52
    for line, name in enumerate(("multiplications", "additions", "elements")):
        drawing.text(4, middle + CELL * max(m, n) / 2 + 26 + 22 * line, labels[name])
    return str(drawing)


def layer(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The cost of relu over the cost of the product before it, by width: by count, predicted by time, and measured."""
    series = {
        "count": values["counting_flops.count_ratio"] or {},
        "predicted": values["counting_flops.predicted_time_ratio"] or {},
        "measured": values["counting_flops.measured_time_ratio"] or {},
    }
    points = {
        name: sorted((int(width), ratio) for width, ratio in found.items() if ratio) for name, found in series.items()
    }
    everything = [point for found in points.values() for point in found] or [(1, 1.0)]
    left, right, top, bottom = 70.0, WIDTH - 20.0, 40.0, 300.0
    first, last = (math.log2(edge({width for width, _ in everything})) for edge in (min, max))
    low = math.floor(math.log10(min(ratio for _, ratio in everything)))
    high = max(math.ceil(math.log10(max(ratio for _, ratio in everything))), low + 1)

    def place(width: float, ratio: float) -> tuple[float, float]:
        across = (math.log2(width) - first) / ((last - first) or 1)
        up = (math.log10(ratio) - low) / (high - low)
        return left + 16 + across * (right - left - 40), bottom - up * (bottom - top)

    drawing = Drawing(WIDTH, 350)
    drawing.text(4, 18, labels["ratio"])
    drawing.line(left, bottom, right, bottom)
    for power in range(low, high + 1):
        y = place(2**first, 10.0**power)[1]
        drawing.line(left, y, right, y, "stroke-muted")
        drawing.text(left - 10, y + 5, f"{10.0**power:.10f}".rstrip("0").rstrip("."), "muted", anchor="end")
    for width in sorted({width for width, _ in everything}):
        drawing.text(place(width, 10.0**low)[0], bottom + 20, f"{width:,}", "muted", anchor="middle")
    drawing.text(right, bottom + 42, labels["width"], anchor="end")

    for colour, (name, found) in enumerate(points.items()):
        places = [place(width, ratio) for width, ratio in found]
        if name != "measured" and places:
            drawing.path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places), f"stroke-{colour}")
        for x, y in places:
            drawing.circle(x, y, 5 if name == "measured" else 3, f"fill-{colour}")
    x = left
    for colour, name in enumerate(points):
        if points[name]:
            drawing.circle(x, bottom + 37, 5, f"fill-{colour}")
            drawing.text(x + 10, bottom + 42, labels[name])
            x += 34 + sum(15 if ord(letter) > 0x2E80 else 7.6 for letter in labels[name])
    return str(drawing)


def blind(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each operation: what the counter says, and what has to be done."""
    rows = [[labels[key] for key in ("operation", "counted", "needed")]]
    for index, code in enumerate(values["counting_flops.codes"] or []):
        cells = (f"{{{{ counting_flops.{name}.{index}:plain }}}}" for name in ("seen_flops", "needed_flops"))
        rows.append([f"`{code}`", *cells])
    return rows


def precision(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each data type: FLOPs and bytes of a large product, seconds and speed of one on this device."""
    rows = [[labels[key] for key in ("dtype", "flops", "bytes", "seconds", "rate")]]
    for index, name in enumerate(("float64", "float32", "bfloat16")):
        cells = (
            f"precision_flops.{index}",
            f"precision_bytes.{index}",
            f"measured_precision.{name}.median_seconds",
            f"measured_rates.{name}.rate_flop_per_second",
        )
        rows.append([f"`{name}`", *(f"{{{{ counting_flops.{cell} }}}}" for cell in cells)])
    return rows


def tools(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each tool: its count of FLOPs at two lengths and of parameters, each with its ratio to the truth."""
    contexts = values["counting_tools.CONTEXTS"] or []
    counts = [f"{labels['flops']}, T = {{{{ counting_tools.CONTEXTS.{index}:raw }}}}" for index in range(len(contexts))]
    header = [labels["tool"]]
    for count in (*counts, labels["parameters"]):
        header += [count, labels["ratio"]]
    truth = [labels["truth"]]
    for cell in (*(f"true_flops.{T}" for T in contexts), "true_parameters"):
        truth += [f"{{{{ counting_tools.{cell} }}}}", "1"]
    rows = [header, truth]
    for tool in TOOLS:
        row = [tool]
        for T in contexts:
            row += [
                f"{{{{ counting_tools.said_flops.{tool}.{T} }}}}",
                f"{{{{ counting_tools.flops_ratio.{tool}.{T}:.4f }}}}",
            ]
        row += [
            f"{{{{ counting_tools.said_parameters.{tool} }}}}",
            f"{{{{ counting_tools.parameters_ratio.{tool}:.4f }}}}",
        ]
        rows.append(row)
    return rows
