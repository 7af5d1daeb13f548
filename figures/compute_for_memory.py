"""Figures of the chapter on trading computation for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import DASHES, Axes, Scale
from figures.svg import HALF, Drawing
from ledger.units import format_value

STRATEGIES = ("eager", "eager_attention", "none", "products", "full")
RUNGS = ("eager", "fused", "chunked", "accumulated", "products", "full")  # each beside those above
WAYS = ("none", "per-op", "full")
STATE = ("eight_bit", "in_backward", "host", "sharded")  # each beside all of these
GIB = 2**30


def ladder(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What to try from top to bottom: a question, the remedy, and a bar of the peak, dark where it is beyond the card.

    As wide as a phone, so that it need not be scaled down there.
    """
    left, spine, width, pitch, top = 26, 9, 340, 60, 54
    needs = (values["step_peaks.needs_bytes"] or {}).get("llama", {})
    needs = needs | (values["step_peaks.state_needs_bytes"] or {})
    card = values["compute_for_memory.CARD_BYTES"] or 0
    scale = (width - left) / max([card, *needs.values()], default=1) if needs else 0
    rows = (*RUNGS, *STATE)
    drawing = Drawing(width, top + pitch * len(rows))
    drawing.text(width, 16, labels["peak"], "muted", anchor="end")
    ends = [top + pitch * index + 17 for index, _ in enumerate(rows)]
    last = ends[len(RUNGS) - 1]
    drawing.line(spine, ends[0], spine, last, "stroke-muted")
    drawing.add("path", "stroke-muted", d=f"M{spine} {last} V{ends[-1]}", stroke_dasharray=DASHES)
    if card and scale:
        drawing.line(left + card * scale, 26, left + card * scale, 42)
        drawing.text(left + card * scale + 8, 39, labels["card"], "muted")
    for name, y in zip(rows, ends, strict=True):
        drawing.text(left, y - 14, labels.get(f"ask_{name}", ""), "muted")
        drawing.text(left, y + 5, labels[name])
        drawing.circle(spine, y, 6, "muted")
        if name in needs:
            drawing.text(width, y + 5, format_value(needs[name], "bytes", language=labels["language"]), anchor="end")
            drawing.rect(left, y + 12, min(needs[name], card) * scale, 10, "fill-other")
            if needs[name] > card:
                drawing.rect(left + card * scale, y + 12, (needs[name] - card) * scale, 10, "ink")
        if card and scale:
            drawing.line(left + card * scale, y + 9, left + card * scale, y + 25)
    return str(drawing)


def over_time(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What a step holds, part by part, if its layers keep all, linear outputs, or their inputs; on one scale.

    As wide as a phone. What a script shows at a pointer stands with the drawing: data-held has MiB, of each way, line
    and part; data-parts names the parts; data-grid says where the columns begin, how wide they are, and their top.
    """
    held, parts = values["compute_for_memory.over_step_bytes"] or {}, values["compute_for_memory.step_parts"] or []
    lines, card = values["compute_for_memory.HELD"] or [], values["full_ledger.has_bytes"] or {}
    drawing, left, wide = Drawing(340, 0), 4.0, 332.0
    peaks = {way: max(map(sum, zip(*held[way].values(), strict=True))) for way in held}
    scale, column = 120 / max([1, *peaks.values()]), wide / max(1, len(parts))
    for turn, line in enumerate(lines):
        x, y = 170 * (turn % 2), 6 + 20 * (turn // 2)
        drawing.rect(x, y, 12, 12, f"fill-{line}")
        drawing.text(x + 18, y + 11, labels[line])
    first = 20 * ((len(lines) + 1) // 2) + 6.0  # below the legend
    top = first + 20
    ways = [way for way in WAYS if way in held]
    for way in ways:
        text = f"{labels[way]}\u2003{format_value(peaks[way], 'bytes', language=labels['language'])}"
        drawing.text(0, top - 6, text)
        edge = (card.get("H100 SXM") or 0) * scale
        floor = top + max(peaks[way] * scale, edge) + 6
        heights = [0.0] * len(parts)
        areas = []
        for line in lines:  # each upon those before
            heights = [height + size * scale for height, size in zip(heights, held[way][line], strict=True)]
            steps = "".join(f"V{floor - height:.1f}h{column:.2f}" for height in heights)
            areas.append((line, f"M{left:g} {floor:.1f}{steps}V{floor:.1f}z"))
        for line, area in reversed(areas):
            drawing.path(area, f"fill-{line}")
        drawing.line(0, floor, 340, floor)
        if edge:
            drawing.add("line", "stroke-ink", x1=0, y1=floor - edge, x2=340, y2=floor - edge, stroke_dasharray=DASHES)
            drawing.text(338, floor - edge - 6, labels["card"], "muted", anchor="end")
        top = floor + 28
    middle = left + column * (len(parts) / 2 - 1)
    for at, word, anchor in ((left, "forward", "start"), (middle, "loss", "middle"), (left + wide, "backward", "end")):
        drawing.text(at, top - 10, labels[word], "muted", anchor)
    drawing.root.set("data-grid", f"{left:g} {column:.3f} {first:g}")
    drawing.root.set("data-parts", ",".join(parts))
    told = (";".join(",".join(f"{size >> 20}" for size in held[way][line]) for line in lines) for way in ways)
    drawing.root.set("data-held", "|".join(told))
    drawing.resize(top)
    return str(drawing)


def chunks(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What one chunk of tokens holds of the tensors behind the head, to scale, and what stays from chunk to chunk."""
    sizes = (values["gpt2_parameters.letters"] or {}).get("gpt2", {"d": 1, "V": 1, "T": 1})
    whole = (values["activations.model_parts_bytes"] or {}).get("gpt2", {}).get("log_probabilities", 0)
    tokens = (values["activations.BATCH"] or {}).get("gpt2", 1) * sizes["T"]
    pieces, now, wide, high = values["step_peaks.CHUNKS"] or 1, 5, 336.0, 80.0
    drawing, pitch = Drawing(340, 0), high / pieces
    narrow, top = wide * sizes["d"] / sizes["V"], 20.0

    def said(size: float) -> str:
        return format_value(size, "bytes", language=labels["language"])

    drawing.rect(2, top, narrow, high, "fill-activations", fill_opacity=HALF)
    drawing.rect(2, top + now * pitch, narrow, pitch, "fill-activations")
    drawing.rect(8 + narrow, top, narrow, now * pitch, "fill-gradients")
    drawing.text(2, 14, labels["before"])
    drawing.text(20 + 2 * narrow, top + now * pitch / 2 + 5, labels["done"])
    drawing.text(20 + 2 * narrow, top + (now + 0.5) * pitch + 5, labels["now"], "muted")
    for name in ("kept", "gradient", "again"):
        top += high + 28
        drawing.text(2, top - 6, f"{labels[name]}\u2003{said(whole / pieces)}")
        drawing.text(330, top + 20, labels["instead"].format(size=said(whole)), "muted", anchor="end")
        drawing.add("rect", "stroke-muted", x=2, y=top, width=wide, height=high, stroke_dasharray=DASHES)
        drawing.rect(2, top + now * pitch, wide, pitch, "fill-logits")
    top += high + 28
    drawing.text(2, top - 6, labels["head"])
    drawing.rect(2, top, wide, high * sizes["d"] / tokens, "fill-gradients")
    drawing.resize(top + high * sizes["d"] / tokens + 4)
    return str(drawing)


def trade(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Bytes kept by GPT-2 small against FLOPs relative to what the mathematics asks for."""
    kept = (values["compute_for_memory.kept_bytes"] or {}).get("gpt2", {})
    ratios = (values["compute_for_memory.hfu_to_mfu_ratio"] or {}).get("gpt2", {})
    names = [name for name in STRATEGIES if name in kept and name in ratios]
    axes = Axes(Scale(labels["axis"], low=0.95, high=1.3), Scale("GiB", low=0))
    if floor := values["compute_for_memory.logits_kept_bytes"]:
        axes.axhline(floor / GIB, labels["logits"], below=True)
    for colour, name in enumerate(names):
        axes.scatter([ratios[name]], [kept[name] / GIB], colour, size=7)
        if name != "eager_attention":  # which lies where fused attention does
            axes.annotate(labels[name], ratios[name], kept[name] / GIB, dx=14, dy=-6)
    return str(axes)
