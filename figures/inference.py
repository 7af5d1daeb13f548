"""Figures of inference: its two phases, one matmul with more rows, a server with more users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import Drawing

HALF, GAP = 158.0, 24.0  # widths of a phase, and between both
TOKENS, SIDE = 8, 15.0


def phases(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Prefill beside decoding: the tokens that go in, what is read, and how long reading and computing take.

    As wide as a phone, so that it need not be scaled down there.
    """
    drawing = Drawing(2 * HALF + GAP, 310)
    parts, times = values["inference.phase"], values["inference.phase_ms"]
    if not parts or not times:
        return str(drawing)
    cache = f"{values['inference.prompt_cache_bytes'] / 1e9:.2f} GB"
    weights = f"{parts['prefill']['read_bytes'] / 1e9:.1f} GB"
    longest = max(taken for part in times.values() for taken in part.values())
    for column, name in enumerate(("prefill", "decode")):
        left = column * (HALF + GAP)
        drawing.text(left, 15, labels[name])
        new = TOKENS if name == "prefill" else 1
        for token in range(TOKENS + (name == "decode")):
            css = "muted" if token >= TOKENS + (name == "decode") - new else "faint"
            drawing.rect(left + token * (SIDE + 2.4), 28, SIDE, SIDE, css)
        drawing.text(left, 64, labels[f"{name}_tokens"], "muted")
        drawing.rect(left, 78, HALF, 34, "fill-weights", rx=4)
        drawing.text(left + HALF / 2, 100, labels["weights"].format(size=weights), "paper", anchor="middle")
        css = "fill-activations" if name == "decode" else "faint"
        drawing.rect(left, 120, HALF, 34, css, rx=4)
        text = labels[f"{name}_cache"].format(size=cache)
        drawing.text(left + HALF / 2, 142, text, "on-pale" if name == "decode" else "ink", anchor="middle")
        drawing.text(left, 182, labels["flops"].format(count=f"{parts[name]['flops'] / 1e12:.3g}"))
        for row, (kind, css) in enumerate((("read", "muted"), ("compute", "ink"))):
            y = 206 + 54 * row
            taken = times[name][kind]
            drawing.text(left, y + 8, labels[kind].format(time=f"{taken:.3g} ms"))
            drawing.rect(left, y + 16, max(taken / longest * HALF, 1), 16, css)
    return str(drawing)


def users(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What a decoding step reads for more and more users: the weights once, and a cache for each."""
    weights = (values["inference.quantized_bytes"] or {}).get("bf16", 1)
    cache = (values["inference.cache_of_bytes"] or {}).get("grouped", 0)
    served = (values["inference.served_ms"] or {}).get("8192", {})
    counts, wide = (1, 4, 16, 32), 2 * HALF + GAP
    scale = wide / (weights + counts[-1] * cache)
    drawing, top = Drawing(wide, 0), 14.0
    for number in (count for count in counts if str(count) in served):
        taken = served[str(number)]
        drawing.text(0, top, labels["users"].format(n=number))
        drawing.text(wide, top, labels["each"].format(n=f"{1e3 / taken:,.0f}"), "muted", anchor="end")
        drawing.rect(0, top + 7, weights * scale - 1, 26, "fill-weights")
        drawing.text(weights * scale / 2, top + 25, labels["weights"], "paper", anchor="middle")
        boxes = ((weights * scale + user * cache * scale, top + 7, cache * scale - 1, 26) for user in range(number))
        drawing.rects(boxes, "fill-activations")
        drawing.text(0, top + 50, labels["step"].format(time=f"{taken:.1f}"), "muted")
        drawing.text(wide, top + 50, labels["all"].format(n=f"{1e3 * number / taken:,.0f}"), "muted", anchor="end")
        top += 78
    drawing.resize(top - 20)
    return str(drawing)


def knee(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Time of one matmul over its rows, in two formats: as published, and dashed the roofline's."""
    points = values["inference.knee"] or {}
    axes = Axes(Log(labels["rows"], ticks=(1, 16, 64, 128, 256)), Scale(labels["time"], low=0))
    for colour, name in enumerate(sorted(points)):
        rows = sorted(map(int, points[name]))
        for kind in ("bound", "reported"):
            taken = [points[name][str(n)][kind] for n in rows]
            axes.plot(rows, taken, colour, labels[f"{name}_{kind}"], dashed=kind == "bound")
            if kind == "reported":
                axes.scatter(rows, taken, colour)
    return str(axes)


def latency(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Tokens a second of all users over the time of a step, by the bound, for more and more users of equal contexts."""
    served = values["inference.served_ms"] or {}
    axes = Axes(Scale(labels["latency"], low=0), Log(labels["throughput"]))
    for colour, context in enumerate(sorted(served, key=int)):
        users = sorted(map(int, served[context]))
        taken = [served[context][str(b)] for b in users]
        rates = [1e3 * b / ms for b, ms in zip(users, taken, strict=True)]
        axes.plot(taken, rates, colour, labels["context"].format(tokens=f"{int(context):,}"))
        axes.scatter(taken, rates, colour)
        axes.annotate(str(users[-1]), taken[-1], rates[-1], dx=0, dy=-10, anchor="end")
        middle = users.index(users[-1] // 8)
        axes.annotate(str(users[middle]), taken[middle], rates[middle], dx=8, dy=14)
    return str(axes)
