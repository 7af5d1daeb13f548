"""Figures and table of the chapter on tensor operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import FADED, Drawing

WIDTH = 340


def alive(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """For each of four expressions, the new matrices that live after each operation, by name."""
    names_of = values["tensor_operations.ALIVE"] or {}
    codes = [expression["code"] for expression in values["tensor_operations.expressions"] or []]  # in the page's order
    cell, height, panel, left_edge = 55, 30, 176, 0
    tallest = 3
    drawing = Drawing(WIDTH, 2 * (tallest * height + 84) - 12)
    for place, code in enumerate(code for code in codes if code in names_of):
        steps = names_of[code]
        left, top = left_edge + place % 2 * panel, place // 2 * (tallest * height + 84)
        base = top + 34 + tallest * height
        drawing.add("text", "ink", code, x=left, y=top + 18, font_size=14, font_family="monospace")
        peak = max(map(len, steps), default=0)
        for step, names in enumerate(steps):
            x = left + step * cell
            for level, name in enumerate(names):
                y = base - (level + 1) * height
                css = "fill-1" if len(names) == level + 1 == peak else "fill-0"
                box: dict[str, Any] = {"x": x, "y": y, "width": cell - 5, "height": height - 3, "rx": 2}
                drawing.add("rect", css, fill_opacity=FADED, **box)
                middle = x + (cell - 5) / 2
                drawing.add(
                    "text", "ink", name, x=middle, y=y + 18, text_anchor="middle", font_size=14, font_family="monospace"
                )
            drawing.text(x + (cell - 5) / 2, base + 18, f"{labels['step']} {step + 1}", "muted", anchor="middle")
        drawing.line(left, base, left + len(steps) * cell - 5, base)
    return str(drawing)


def trap(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Each prediction of a column minus each target of a vector; the diagonal is what was meant."""
    rows = values["tensor_operations.differences"] or []
    predictions = values["tensor_operations.column"] or []
    targets = values["tensor_operations.vector"] or []
    cell, left, top = 42, 104, 74
    drawing = Drawing(WIDTH, 0)
    drawing.text(left + len(targets) * cell / 2, 16, labels["targets"], "muted", anchor="middle")
    drawing.text(left - 11, top - 12, labels["predictions"], "muted", anchor="end")

    def number(x: float, y: float, text: float, css: str, opacity: float = FADED) -> None:
        box: dict[str, Any] = {"x": x, "y": y, "width": cell - 5, "height": cell - 5, "rx": 2}
        drawing.add("rect", css, fill_opacity=opacity, **box)
        drawing.text(x + (cell - 5) / 2, y + 26, f"{text:g}".replace("-", "−"), anchor="middle")

    for column, target in enumerate(targets):
        number(left + column * cell, top - cell - 2, target, "faint", 1)
    for line, (prediction, differences) in enumerate(zip(predictions, rows, strict=True)):
        number(left - cell - 6, top + line * cell, prediction, "faint", 1)
        for column, difference in enumerate(differences):
            number(left + column * cell, top + line * cell, difference, "fill-0" if line == column else "fill-1")
    legend = [("fill-0", labels["meant"], 0.4), ("fill-1", labels["rest"], 0.4)]
    drawing.resize(drawing.legend(legend, top + len(rows) * cell + 10))
    return str(drawing)


def masks(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Both triangles as grids of queries by keys; what a query sees of the past and of the future in two colours."""
    cell, top = 25, 54
    drawing = Drawing(WIDTH, 0)
    drawing.text(56, top + 18, labels["queries"], "muted", anchor="end")
    drawing.text(56, top + 38, "↓", "muted", anchor="end")
    for place, name in enumerate(("tril", "triu")):
        rows = values[f"tensor_operations.{name}_mask"] or []
        left = 62 + place * 153
        drawing.add("text", "ink", name, x=left, y=16, font_size=16, font_family="monospace")
        drawing.text(left, 42, labels["keys"] + " →", "muted")
        for query, row in enumerate(rows):
            for key, seen in enumerate(row):
                x, y = left + key * cell, top + query * cell
                css = "stroke-muted" if not seen else "fill-1" if key > query else "fill-0"
                drawing.rect(x + 1.5, y + 1.5, cell - 3, cell - 3, css, rx=2)
    marks = {"past": "fill-0", "future": "fill-1", "unseen": "stroke-muted"}
    legend = [(css, labels[word], 1) for word, css in marks.items()]
    drawing.resize(drawing.legend(legend, top + 5 * cell + 14))
    return str(drawing)


def broadcast(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Pairs of shapes under each other, aligned at their right; what is repeated is dashed, what clashes coloured."""
    pairs = values["tensor_operations.PAIRS"] or []
    results = values["tensor_operations.broadcasts"] or []
    cell, row, panel_width, panel_height = 39, 36, 188, 134
    drawing = Drawing(WIDTH, panel_height * ((len(pairs) + 1) // 2) - 20)
    for index, (pair, result) in enumerate(zip(pairs, results, strict=True)):
        left, top = index % 2 * panel_width + 1, index // 2 * panel_height + 2
        columns = max(map(len, pair))
        right = left + 4 * cell
        widest = [max(size) for size in zip(*(_padded(shape, columns) for shape in pair), strict=True)]
        clash = [len(set(size) - {1}) > 1 for size in zip(*(_padded(shape, columns) for shape in pair), strict=True)]
        for line, shape in enumerate(pair):
            padded = _padded(shape, columns)
            for column in range(columns):
                x, y = right - (columns - column) * cell, top + line * row
                there = column >= columns - len(shape)
                if clash[column]:
                    drawing.add("rect", "fill-1", x=x, y=y, width=cell - 6, height=row - 8, rx=2, fill_opacity=FADED)
                    drawing.text(x + (cell - 6) / 2, y + 19, str(padded[column]), anchor="middle")
                elif padded[column] == widest[column]:
                    drawing.rect(x, y, cell - 6, row - 8, "stroke-ink", rx=2)
                    drawing.text(x + (cell - 6) / 2, y + 19, str(padded[column]), anchor="middle")
                else:
                    box: dict[str, Any] = {"x": x, "y": y, "width": cell - 6, "height": row - 8, "rx": 2}
                    drawing.add("rect", "stroke-muted", stroke_dasharray="4 4", **box)
                    if there:
                        drawing.text(x + (cell - 6) / 2, y + 19, "1", "muted", anchor="middle")
        y = top + 2 * row + 4
        drawing.line(right - columns * cell, y - 6, right - 6, y - 6)
        if result is None:
            drawing.text(right - 6, y + 19, labels["error"], anchor="end")
        for column, size in enumerate(result or []):
            x = right - (columns - column) * cell
            drawing.rect(x, y, cell - 6, row - 8, "faint", rx=2)
            drawing.text(x + (cell - 6) / 2, y + 19, str(size), anchor="middle")
    return str(drawing)


def _padded(shape: list[int], length: int) -> list[int]:
    """A shape with ones before it, as broadcasting reads it."""
    return [1] * (length - len(shape)) + shape


def expressions(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each expression: what it takes in all and at its peak, the peak measured, and the ratio."""
    rows = [[labels[column] for column in ("expression", "in_all", "peak", "measured", "ratio")]]
    for index, expression in enumerate(values["tensor_operations.expressions"] or []):
        code = f"`{expression['code']}`" if len(expression["code"]) < 30 else labels["rms_norm"]
        cells = (
            f"expressions.{index}.allocated_bytes",
            f"expressions.{index}.peak_bytes",
            f"measured_expressions.{index}.peak_bytes",
            f"measured_expressions.{index}.to_counted_ratio",
        )
        rows.append([code, *(f"{{{{ tensor_operations.{cell} }}}}" for cell in cells)])
    return rows
