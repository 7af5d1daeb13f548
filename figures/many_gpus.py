"""Figures of many GPUs: what ranks hold, how collectives move pieces, a step of FSDP, what published links reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from figures.axes import Axes, Log, Scale
from figures.svg import FADED, HALF, Drawing

RANKS = 4  # in drawings, and pieces of a tensor
PARTS = {  # first stage that splits it, and width
    "weights": ("fill-weights", 3, 12.0),
    "gradients": ("fill-gradients", 2, 12.0),
    "state": ("fill-optimizer", 1, 24.0),
}
HEIGHT = 40.0  # of a rank's bars


def zero(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """What four ranks hold under DDP and ZeRO: bars as wide as bytes a parameter, full or a piece."""
    drawing = Drawing(340, 46 + 4 * (HEIGHT + 14))
    drawing.legend([(css, labels[part], 1) for part, (css, _, _) in PARTS.items()])
    for rank in range(RANKS):
        drawing.text(106 + 66 * rank, 42, labels["rank"].format(n=rank), "muted", anchor="middle")
    for stage, name in enumerate(("ddp", "one", "two", "three")):
        top = 50 + stage * (HEIGHT + 14)
        drawing.text(0, top + HEIGHT / 2 + 5, labels[name])
        for rank in range(RANKS):
            left = 80.0 + 66 * rank
            for css, first, width in PARTS.values():
                piece = HEIGHT / RANKS
                drawing.rect(left, top, width, HEIGHT, "faint")
                held = (top + rank * piece, piece) if stage >= first else (top, HEIGHT)
                drawing.rect(left, held[0], width, held[1], css)
                left += width + 2
    return str(drawing)


def reached(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The share of the nominal rate that published all-reduces reach, over the size of the tensor."""
    found = values["many_gpus.reached_share"] or {}
    axes = Axes(Log(labels["size"], unit="bytes"), Scale(labels["share"], low=0))
    for colour, name in enumerate(("a100", "b200", "h200", "four", "two")):
        shares = {int(size): share for size, share in (found.get(name) or {}).items() if int(size) >= 2**15}
        sizes = sorted(shares)
        axes.plot(sizes, [shares[size] for size in sizes], colour, labels[name])
    axes.axhline(0.8, "0.8", at="start")
    return str(axes)


def collectives(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Three collectives on four ranks with four pieces: what each rank has before, and what after."""
    drawing = Drawing(340, 372)
    drawing.legend([("fill-0", labels["own"], HALF), ("fill-0", labels["done"], 1)])
    every = {(rank, piece) for rank in range(RANKS) for piece in range(RANKS)}
    one_each = {(rank, rank) for rank in range(RANKS)}
    whole: set[tuple[int, int]] = set()
    rows = (("scatter", every, whole, one_each), ("gather", whole, one_each, every), ("reduce", every, whole, every))
    for row, (name, own, before, after) in enumerate(rows):
        top = 30 + 115 * row
        drawing.text(0, top + 16, labels[name])
        _ranks(drawing, 0, top + 24, own, before, labels["rank"])
        drawing.line(158, top + 56, 180, top + 56)
        drawing.path(f"M174 {top + 51:g} 181 {top + 56:g} 174 {top + 61:g}")
        _ranks(drawing, 196, top + 24, whole, after, labels["rank"])
    return str(drawing)


def _ranks(
    drawing: Drawing, x: float, y: float, own: set[tuple[int, int]], done: set[tuple[int, int]], name: str
) -> None:
    """Four ranks beside each other, each a column of pieces: pale its own values, full what is complete."""
    for rank in range(RANKS):
        left = x + 37 * rank
        for piece in range(RANKS):
            css, faded = (f"fill-{piece}", 1.0) if (rank, piece) in own | done else ("faint", 1.0)
            if (rank, piece) in own - done:
                faded = HALF
            drawing.rect(left, y + 17 * piece, 30, 14, css, fill_opacity=faded)
        drawing.text(left + 15, y + 17 * RANKS + 12, name.format(n=rank), "muted", anchor="middle")


def counts(rounds: int) -> list[list[int]]:
    """How many ranks' values are in each piece of each rank, after so many rounds of a reduce-scatter on a ring."""
    held = [[1] * RANKS for _ in range(RANKS)]
    for done in range(rounds):
        sent = [held[rank][(rank - done) % RANKS] for rank in range(RANKS)]
        for rank in range(RANKS):
            held[(rank + 1) % RANKS][(rank - done) % RANKS] += sent[rank]
    return held


def ring(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A reduce-scatter on a ring, round by round: a piece is filled as far as ranks' values are in it."""
    drawing = Drawing(340, 410)
    left, pitch, width = 76.0, 68.0, 52.0
    for rank in range(RANKS):
        drawing.text(left + pitch * rank + width / 2, 14, labels["rank"].format(n=rank), anchor="middle")
    for done in range(RANKS):
        top = 26 + 97 * done
        drawing.text(0, top + 46, labels["round"].format(n=done) if done else labels["start"])
        held = counts(done)
        for rank in range(RANKS):
            x = left + pitch * rank
            for piece in range(RANKS):
                y = top + 20 * piece
                drawing.rect(x, y, width, 15, "faint")
                drawing.rect(x, y, width * held[rank][piece] / RANKS, 15, f"fill-{piece}")
            if done:
                y = top + 20 * ((rank - done) % RANKS)
                drawing.path(f"M{x:g} {y:g}h{width:g}v15h-{width:g}Z", "stroke-ink")
                drawing.line(x - 14, y + 7.5, x - 3, y + 7.5)
                drawing.path(f"M{x - 8:g} {y + 3.5:g} {x - 3:g} {y + 7.5:g} {x - 8:g} {y + 11.5:g}")
    return str(drawing)


BLOCKS = 3
GATHER, FORWARD, HEAD, BACKWARD, REDUCE = 40.0, 60.0, 50.0, 90.0, 70.0  # lengths in the drawing, not measured


def fsdp_step() -> dict[str, list[tuple[int, float, float]]]:
    """A step of FSDP: block, start and end of each all-gather, computation, reduce-scatter; 0 is the head."""
    order = [*range(1, BLOCKS + 1), 0, *range(BLOCKS, 0, -1)]
    gather, compute, reduce = [(1, 0.0, GATHER)], [], []
    now = free = GATHER
    for place, block in enumerate(order):
        now = max([now, *(end for of, _, end in gather if of == block)])
        lasts = HEAD if not block else FORWARD if place < BLOCKS else BACKWARD
        following = order[place + 1] if place + 1 < len(order) else 0
        if place + 1 == BLOCKS:
            following = 0
        if following:
            gather.append((following, now, now + GATHER))
        compute.append((block, now, now + lasts))
        now += lasts
        if place > BLOCKS:
            free = max(now, free)
            reduce.append((block, free, free + REDUCE))
            free += REDUCE
    return {"gather": gather, "compute": compute, "reduce": reduce}


def fsdp(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """A step of FSDP over time: what computes, what is sent, and how long a block's whole weights are in memory."""
    step = fsdp_step()
    drawing = Drawing(340, 0)
    scale = 340 / max(end for _, _, end in step["reduce"])
    marks: dict[str, tuple[str, float, str]] = {  # colour, how full it is, and the class of a text upon it
        "forward": ("muted", 1.0, "paper"), "backward": ("ink", 1.0, "paper"), "head": ("faint", 1.0, "ink"),
        "gather": ("fill-communication", FADED, "ink"), "reduce": ("fill-communication", 1.0, "on-pale"),
    }  # fmt: skip

    def bar(top: float, css: str, start: float, end: float, text: str, tone: str, opacity: float = 1) -> None:
        drawing.rect(start * scale, top, (end - start) * scale - 1, 24, css, fill_opacity=opacity)
        drawing.text((start + end) / 2 * scale - 0.5, top + 17, text, tone, anchor="middle")

    def row(top: float, name: str, blocks: Iterable[tuple[int, float, float]]) -> None:
        css, opacity, tone = marks[name]
        for block, start, end in blocks:
            bar(top, css, start, end, str(block or ""), tone, opacity)

    top = drawing.legend([(css, labels[name], opacity) for name, (css, opacity, _) in marks.items()]) + 18
    drawing.text(0, top, labels["compute"])
    order = step["compute"]
    for name, blocks in (
        ("forward", order[:BLOCKS]),
        ("head", order[BLOCKS : BLOCKS + 1]),
        ("backward", order[BLOCKS + 1 :]),
    ):
        row(top + 8, name, blocks)
    drawing.text(0, top + 54, labels["send"])
    for line, name in enumerate(("gather", "reduce")):
        row(top + 62 + 28 * line, name, step[name])
    drawing.text(0, top + 136, labels["hold"])
    for block in range(1, BLOCKS + 1):
        gathers = [start for of, start, _ in step["gather"] if of == block]
        computes = [end for of, _, end in order if of == block]
        for start, end in zip(gathers, computes, strict=True):
            bar(top + 114 + 30 * block, "fill-weights", start, end, labels["block"].format(n=block), "paper")
    drawing.resize(top + 114 + 30 * BLOCKS + 24)
    return str(drawing)
