"""Figure and tables of the page on hardware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.svg import Drawing
from ledger.text import link

WIDTH = 340
DTYPES = ("float32", "tf32", "bfloat16", "float8")
MEMORY = ("MEMORY_GB", "BANDWIDTH")


def peaks(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """The table of peaks: each GPU, linked to its source, with its memory, by its sheet and by a message that is linked
    too, and its dense peaks by data type."""
    rows = [[labels[key] for key in ("gpu", "memory", "reported", "float32", "tf32", "bfloat16", "float8", "ridge")]]
    gib, messages = values["hardware.REPORTED_GIB"] or {}, values["hardware.REPORTED_SOURCES"] or {}
    sources, teraflops = values["hardware.SOURCES"] or {}, values["hardware.PEAK_TERAFLOPS"] or {}
    for name in values["hardware.NAMES"] or []:
        memory = labels["separator"].join(
            _quote(f"{part}.{name}", values[f"hardware.{part}.{name}"]) for part in MEMORY
        )
        dense = {dtype: _quote(f"PEAK_TERAFLOPS.{name}.{dtype}", peak) for dtype, peak in teraflops[name].items()}
        sixteen = dense.get("bfloat16", f"{dense['float16']}{labels['fp16_only']}")  # where both are, they are equal
        cells = [dense["float32"], dense.get("tf32", "—"), sixteen, dense.get("float8", "—")]
        reported = link(_quote(f"REPORTED_GIB.{name}", gib[name], 2), messages[name]) if name in gib else "—"
        rows.append([link(name, sources[name]), memory, reported, *cells, f"{{{{ hardware.RIDGE.{name}:.0f }}}}"])
    return rows


def others(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Cards whose figures are mostly third parties', each linked to who gives them, or a dash."""
    decimals = {"memory_gb": 0, "bandwidth": 3, "bfloat16": 1, "float8": 1, "reported_gib": 2, "link_gb": 0}
    rows = [[labels["gpu"], *(labels[key] for key in decimals)]]
    for name, row in (values["hardware.OTHERS"] or {}).items():
        cells = [
            f"{{{{ hardware.OTHERS.{name}.{key}:.{digits}f }}}}" if row[key] is not None else "—"
            for key, digits in decimals.items()
        ]
        rows.append([link(name, row["source"]), *cells])
    return rows


def links(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """What a GPU sends over each link, one way and as it is printed, and the cards that have it."""
    rows = [[labels[key] for key in ("link", "one_way", "printed", "cards")]]
    for name in values["hardware.LINK_NAMES"] or []:
        cards = labels["separator"].join((values["hardware.LINKED"] or {})[name])
        rows.append(
            [name, *(f"{{{{ hardware.{part}.{name}:.0f }}}}" for part in ("ONE_WAY_GB", "BOTH_WAYS_GB")), cards]
        )
    return rows


def _quote(path: str, value: float, least: int = 0) -> str:
    """A placeholder with as many decimals as the sheet prints."""
    decimals = next(digits for digits in range(least, 4) if digits == 3 or value == round(value, digits))
    return f"{{{{ hardware.{path}:.{decimals}f }}}}"


def printed(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """What each datasheet's 16-bit line says, without and with sparsity, beside the table's figure."""
    rows = [[labels[key] for key in ("gpu", "dense", "sparse", "table")]]
    found, teraflops = values["hardware.PRINTED"] or {}, values["hardware.PEAK_TERAFLOPS"] or {}
    for name in [name for name in values["hardware.NAMES"] or [] if name in found]:
        said = [(f"PRINTED.{name}.{key}", found[name][key]) for key in ("dense", "sparse")]
        said.append((f"PEAK_TERAFLOPS.{name}.float16", teraflops[name]["float16"]))
        rows.append([name, *(_quote(path, figure) if figure else "—" for path, figure in said)])
    return rows


def readings(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The H100's peaks by data type, what sparsity would add to each, and the one figure that is two of them."""
    teraflops = (values["hardware.PEAK_TERAFLOPS"] or {}).get("H100 SXM", {})
    rows = [(dtype, teraflops[dtype]) for dtype in DTYPES if dtype in teraflops]
    left, row, top = 44, 40, 36
    scale = (WIDTH - left - 110) / max([2 * peak for _, peak in rows], default=1)
    drawing = Drawing(WIDTH, top + row * len(rows) + 40)
    drawing.legend([("fill-0", labels["dense"], 1), ("faint", labels["sparse"], 1)])
    for index, (dtype, peak) in enumerate(rows):
        y, width = top + row * index, peak * scale
        has_sparse = dtype != "float32"  # CUDA cores know no sparsity
        if has_sparse:
            drawing.rect(left + width, y, width, 26, "faint")
            drawing.rect(left + width, y, width, 26, "stroke-muted")
        drawing.rect(left, y, width, 26, "fill-0")
        drawing.text(0, y + 19, labels[dtype])
        figures = f"{peak:,.0f} | {2 * peak:,.0f}" if has_sparse else f"{peak:,.0f}"
        drawing.text(left + width * (1 + has_sparse) + 6, y + 19, figures)
    if "float8" in teraflops:  # the last row; the one above it ends where this one's dense part does
        x, bottom = left + teraflops["float8"] * scale, top + row * len(rows)
        drawing.line(x, bottom - 2 * row - 4, x, bottom + 6, "stroke-1")
        drawing.text(x, bottom + 24, labels["twice"], anchor="middle")
    return str(drawing)
