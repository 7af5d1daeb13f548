"""What a step takes, of what a trace has seen, and as text."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from flops_bytes.counting.collectives import Sent
from flops_bytes.counting.step_trace import MOMENTS, TOKENS, StepTrace
from flops_bytes.memory.allocator import downwards, reserved, upwards
from flops_bytes.memory.chips import HOPPER_WORKSPACE_BYTES
from flops_bytes.memory.simulated import Change
from flops_bytes.plan.table import gib

UNREAD = (
    "{}: {:.4g} FLOPs of forward passes without a graph, of which the step uses nothing, are left out; bytes are not"
)
FIRST = "only the first step was whole, and an optimizer makes its state at the end of it"
ALONE = "no optimizer worked: all that ran counts as one step"


class Counted(NamedTuple):
    """What a step takes."""

    peak_bytes: int
    reserved_bytes: tuple[int, int] | None  # the least and the most; None of a rank, whose streams are not followed
    moment: str  # of the peak
    line: str  # of the reader's code that takes the last of it
    moments: dict[str, int]  # bytes at the peak of each
    kinds: dict[str, int]  # bytes at the peak
    lines: dict[str, int]  # bytes at the peak, the most first
    weights: dict[str, int]  # parameters: all, trained
    flops: dict[str, int]  # by kind
    again_flops: int  # of these made again
    flops_dtype: str  # of most of them
    tokens: int  # that the step looks up in a table; 0 where it looks up none
    updates: bool  # whether an optimizer works in it
    notes: list[str]
    sent: list[Sent]  # the most first
    sharded: dict[str, dict[str, int]]  # bytes that a rank holds of each kind, by the dimensions that divide it
    peers: list[int]  # ranks with which this one alone exchanges

    @property
    def useful_flops(self) -> int:
        """Without those made again."""
        return sum(self.flops.values()) - self.again_flops

    def __str__(self) -> str:
        return told(table(self))


def summed(trace: StepTrace) -> Counted:
    """What a trace has seen of its last step."""
    step, amounts, unread, notes = trace.step(), trace.amounts.copy(), Counter[str](), list(trace.notes)
    for made in {id(made): made for each in trace.made.values() for made in each}.values():
        if trace.optimizers:
            unread[made.line] += sum(
                n for (turn, _, kind, _), n in made.amounts.items() if turn in step and kind != TOKENS
            )
        else:
            amounts.update(made.amounts)
    notes += [UNREAD.format(line, count) for line, count in unread.items() if count]
    notes += [ALONE] if not trace.workers else [FIRST] if trace.optimizers and not step.start else []
    total, moments = 0, dict.fromkeys(MOMENTS, 0)
    peak, at = -1, 0
    for turn, event in enumerate(trace.events):
        total += event.change
        if event.turn in step:
            moments[event.moment] = max(moments[event.moment], total)
            if total > peak:
                peak, at = total, turn
    living: dict[int, list[Any]] = {}
    for event in trace.events[: at + 1]:
        found = living.setdefault(event.storage, [0, event])
        found[0] += event.change
    kinds: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for number, (size, event) in living.items():
        if size:
            kind = kind_of(trace, number, event.moment)
            kinds[kind] += size
            if kind not in ("weights", "gradients", "optimizer state", "buffers"):
                lines[event.line] += size
    by_kind: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    by_table: Counter[str] = Counter()
    again = 0
    for (turn, moment, kind, dtype), count in amounts.items():
        if turn in step and kind == TOKENS:
            by_table[dtype] += count
        elif turn in step:
            by_kind[kind] += count
            by_type[dtype] += count
            again += count if moment == "made again" else 0
    return Counted(
        peak_bytes=max(peak, 0),
        reserved_bytes=None if trace.sent else reserved_in(trace),
        moment=trace.events[at].moment if trace.events else "",
        line=trace.events[at].line if trace.events else "",
        moments=moments,
        kinds=dict(kinds.most_common()),
        lines=dict(lines.most_common()),
        weights=trace.weights,
        flops=dict(by_kind.most_common()),
        again_flops=again,
        flops_dtype=by_type.most_common(1)[0][0] if by_type else "",
        tokens=max(by_table.values(), default=0),
        updates=bool(trace.optimizers),
        notes=notes,
        sent=sent_in(trace, step),
        sharded=sharded_in(trace),
        peers=sorted(trace.peers),
    )


def sharded_in(trace: StepTrace) -> dict[str, dict[str, int]]:
    """By kind, and the dimensions of the mesh that divide it; nothing where none divides anything."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (_, kind), divided in trace.divided.items():
        found[kind].update(divided)
    is_divided = any(names for divided in found.values() for names in divided)
    return {kind: dict(divided.most_common()) for kind, divided in found.items()} if is_divided else {}


def sent_in(trace: StepTrace, step: range) -> list[Sent]:
    """By collective, group and line."""
    by_line: defaultdict[tuple[str, str, str], list[Sent]] = defaultdict(list)
    for turn, sent in trace.sent:
        if turn in step:
            by_line[sent[:3]].append(sent)
    totals = (
        Sent(*what, *map(sum, zip(*(each[3:] for each in sents), strict=True))) for what, sents in by_line.items()
    )
    return sorted(totals, key=lambda each: (-each.sent_bytes, each))


def kind_of(trace: StepTrace, number: int, born: str) -> str:
    """What a storage is, of which a step ends knowing more than when it is made."""
    return trace.kinds.get(number) or f"temporaries of the {born} pass".replace("update pass", "update")


def changes(trace: StepTrace) -> Iterator[Change]:
    """What a trace has seen, from the first tensor on to the end of the step that counts. What a line frees at once
    goes the largest first: autocast lets its copies go in the order of their addresses, which is another each time.
    """
    for _, group in groupby(changes_seen(trace), lambda change: (change.moment, change.frames, change.nbytes < 0)):
        together = list(group)
        if together[0].nbytes < 0:
            together.sort(key=lambda change: (change.nbytes, change.kind))
        yield from together


def changes_seen(trace: StepTrace) -> Iterator[Change]:
    """The same, as they came."""
    step, is_second = trace.step(), False
    for event in trace.events:
        is_second = is_second or (event.turn in step and event.moment != "update")  # gradients go after an update
        if event.turn < step.stop and event.change:
            kind = kind_of(trace, event.storage, event.moment)
            moment = f"{event.moment}, step {1 + is_second}" if step.start else event.moment
            yield Change(event.storage, event.change, moment, kind, event.frames)


def reserved_in(trace: StepTrace) -> tuple[int, int]:
    """What PyTorch's allocator reserves for these, at least and at most: with each segment below those before or above
    them, and with cuBLAS's workspaces, one for each thread that multiplies, or without.
    """
    seen = [(change.storage, change.nbytes) for change in changes(trace)]
    with_workspaces = list(seen)
    for thread, place in enumerate(sorted(trace.products.values(), reverse=True)):
        with_workspaces.insert(place, (-1 - thread, HOPPER_WORKSPACE_BYTES))
    found = [
        reserved(each, place=place()).peak_reserved_bytes
        for each in (seen, with_workspaces)
        for place in (downwards, upwards)
    ]
    return min(found), max(found)


LEAST_SHOWN = 2**20 / 20  # bytes: what is told as 0.1 MiB


def sized(size: float) -> str:
    """GiB as the planner has them; MiB where it is less, and KiB."""
    if size >= 2**30:
        return gib(size)
    return f"{size / 2**20:,.1f} MiB" if size >= LEAST_SHOWN or not size else f"{size / 2**10:,.1f} KiB"


def span(sizes: Iterable[float]) -> str:
    """The least and the most; one, where they are equal as they are written."""
    return " to ".join(dict.fromkeys(map(sized, sizes)))


def told(rows: Iterable[tuple[str, str]]) -> str:
    """Rows as text."""
    return "\n".join(f"{what:34} {how_much}" for what, how_much in rows)


def table(found: Counted, most: int = 8) -> Iterator[tuple[str, str]]:
    """What a step takes, in lines."""
    yield "parameters", f"{found.weights.get('all', 0):,}; trained are {found.weights.get('trained', 0):,}"
    yield (
        "peak",
        f"{sized(found.peak_bytes)}, in the {found.moment} pass at {found.line}".replace("update pass", "update"),
    )
    yield from ((f"  {kind}", sized(size)) for kind, size in found.kinds.items() if size >= LEAST_SHOWN)
    if found.reserved_bytes:
        yield "reserved by PyTorch", span(found.reserved_bytes)
    yield from ((f"peak of {moment}", sized(size)) for moment, size in found.moments.items() if size)
    lines = [(line, size) for line, size in found.lines.items() if size >= LEAST_SHOWN]
    if most and lines:
        yield "what lives at the peak", "beside weights, gradients and optimizer state, by the line that made it"
        yield from ((f"  {sized(size)}", line) for line, size in lines[:most])
        if len(lines) > most:
            more = len(lines) - most
            yield f"  {sized(sum(size for _, size in lines[most:]))}", f"{more} more line{'s' if more > 1 else ''}"
    kinds = ", ".join(f"{kind} {flops:.4g}" for kind, flops in found.flops.items())
    again = f"; of these made again {found.again_flops:.4g}" if found.again_flops else ""
    yield "FLOPs", f"{sum(found.flops.values()):.4g}: {kinds}{again}; most in {found.flops_dtype}"
    for kind, parts in found.sharded.items():
        divided = (f"{sized(size)} {f'divided by {names}' if names else 'whole'}" for names, size in parts.items())
        yield f"{kind} of a rank", "; ".join(divided)
    sent = [each for each in found.sent if each.sent_bytes >= LEAST_SHOWN]
    if sent:
        yield "sent in a step", f"{sized(sum(each.sent_bytes for each in found.sent))}, by collective, group and line"
    for each in sent[:most]:
        calls = f"{each.calls} × " if each.calls > 1 else ""
        yield f"  {sized(each.sent_bytes)}", f"{calls}{each.collective}, {each.group}: {each.line}"
    if len(sent) > most:
        yield f"  {sized(sum(each.sent_bytes for each in sent[most:]))}", f"{len(sent) - most} more"
    if found.tokens:
        yield "tokens", f"{found.tokens:,}"
    yield from (("note", note) for note in found.notes)
