"""What fits on many GPUs, the fastest first: the layouts that split tensors, sequences, layers or experts, and beside
them the ways of flops_bytes.plan.ways, which split none.

What somebody said stays, and so do the sequences of a step. The rest is tried: degrees in powers of two, ZeRO's stage,
schedule and stages of a pipeline, what is computed again, and how a step's sequences are shared out into micro-batches.
All are timed as layouts are (flops_bytes.plan.parallel); of a way that is not planned so, the time at the assumed MFU
tells how much faster or slower it is than a training of all weights, of which both are known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any, NamedTuple

from flops_bytes.model.shapes import Decoder
from flops_bytes.parallel.layouts import Layout, distinct_ranks, possible_layouts, powers_of_two, refuse
from flops_bytes.parallel.ranks import whole_stack
from flops_bytes.plan.assumptions import CompleteQuestion
from flops_bytes.plan.evidence import MISSES, WITH_ROOM, judge_fit
from flops_bytes.plan.meters import after_allocator, read_life
from flops_bytes.plan.model import Reader
from flops_bytes.plan.options import OPTIONS, read_option, read_options
from flops_bytes.plan.parallel import (
    DEGREES,
    PARALLEL,
    LayoutQuestion,
    bytes_of_ranks,
    held_by_rank,
    layout_flags,
    rank_on_card,
    read_question,
    refuse_unwritten,
    seconds_by_line,
)
from flops_bytes.plan.ways import (
    Options,
    Way,
    find_ways,
    fixed_options,
    given_up,
    living,
    losses_of,
    results,
    seconds_a_token,
    spares,
    way_row,
)

MOST_TRIED = 100_000  # a minute's worth
MOST_SEQUENCES = 64  # of a micro-batch
LISTED = 10
OF_A_RESULT = ("lora", "lora_on", "base", "optimizer", "offload")
UNTRIED = ("sequence", "trainer", "stages", "ring", "replicas", "whole_experts")  # of a layout: stay as asked
Tell = Callable[[str], None]  # how far a search is


class Candidate(NamedTuple):
    """A layout that can be, and its time."""

    question: LayoutQuestion  # with the size of its micro-batch
    layout: Layout
    checkpointing: str
    seconds: float  # a token, of all GPUs

    @property
    def degrees(self) -> tuple[int, ...]:
        return tuple(getattr(self.layout, name) for name in DEGREES.values())


class LayoutWay(NamedTuple):
    """A way to train, and how its layers are split."""

    way: Way
    candidate: Candidate
    fullest_rank: int


def sequences_of_step(told: Mapping[str, Any], question: LayoutQuestion) -> int:
    """Sequences of a step of all GPUs, as asked. Raises ValueError with the mend."""
    a, layout = question.a, question.layout
    if told.get("global_batch") is None:
        return int(layout.data * layout.micro_batches * a["micro_batch"])
    sequences, rest = divmod(read_option("global_batch", told["global_batch"]), a["context"])
    if rest or not sequences:
        raise ValueError(f"--global-batch: --find shares out the tokens of a step; give a multiple of {a['context']}")
    return int(sequences)


def candidates_of(question: LayoutQuestion, sequences: int) -> Iterator[Candidate]:
    """All layouts of a step, of what is not told."""
    a, shape, given, asked = question.a, question.shape, question.a["given"], question.layout
    every = ("none", "per-op", "full") if isinstance(shape, Decoder) else ("none", "full")
    checkpointings = (a["checkpointing"],) if "checkpointing" in given else every
    sizes = [a["micro_batch"]] if "micro_batch" in given else powers_of_two(MOST_SEQUENCES)
    for size in (size for size in sizes if sequences % size == 0):
        sized = question._replace(a=a | {"micro_batch": size})
        for layout in sized_layouts(sized, sequences // size):
            if given & {"micro_batches", "accumulation"} and layout.micro_batches != asked.micro_batches:
                continue
            for checkpointing in checkpointings:
                seconds = sum(seconds_by_line(sized, layout, checkpointing).values())
                yield Candidate(sized, layout, checkpointing, seconds / (sequences * a["context"]))


def sized_layouts(question: LayoutQuestion, micro_batches: int) -> Iterator[Layout]:
    """Layouts of a step of so many micro-batches of all GPUs."""
    a, shape, given, asked = question.a, question.shape, question.a["given"], question.layout
    fixed = {name: getattr(asked, name) for flag, name in (DEGREES | {"zero": "zero"}).items() if flag in given}
    fixed |= {"zero": 0} if a["gpus"] == 1 else {}  # which has none to share with
    expert_degrees = [fixed["expert"]] if "expert" in fixed else powers_of_two(shape.experts)
    untried, stack = {name: getattr(asked, name) for name in UNTRIED}, whole_stack(shape)
    for plain in possible_layouts(shape, a["gpus"], a["context"], micro_batches, a["node_gpus"], fixed):
        for schedule, virtual in schedules_to_try(question, plain):
            for expert in expert_degrees:
                layout = plain._replace(expert=expert, schedule=schedule, virtual=virtual, **untried)
                try:
                    refuse_unwritten(a, stack, asked.trainer, plain.tensor > 1)
                    refuse(shape, layout, a["context"])
                except ValueError:
                    continue
                yield layout


def schedules_to_try(question: LayoutQuestion, layout: Layout) -> Iterator[tuple[str, int]]:
    """Schedules, each with the stages that a rank may have: as told, or in powers of two as far as layers go."""
    given, asked = question.a["given"], question.layout
    unsaid = ("1f1b", "interleaved") if layout.pipeline > 1 else ("1f1b",)
    most_stages = (question.shape.layers + 2 * (asked.shares == "with-ends")) // layout.pipeline
    for schedule in (asked.schedule,) if "schedule" in given else unsaid:
        if schedule in ("gpipe", "1f1b"):
            yield schedule, 1
        elif "virtual_stages" in given:
            yield schedule, asked.virtual
        else:
            yield from ((schedule, n) for n in powers_of_two(most_stages) if n > 1 or schedule == "zero-bubble")


def in_order(candidates: Iterable[Candidate], lives: bool = True, tell: Tell | None = None) -> Iterator[LayoutWay]:
    """Those that fit, the fastest first: of each combination of degrees one, and if that fits on paper alone, the
    fastest that fits with room too. With `lives` none that dies in the simulated allocator.
    """
    ordered = sorted(candidates, key=lambda each: each.seconds)
    can_fit, best, done, fit = Fitting(ordered), dict[tuple[int, ...], str](), 0, 0
    for _, alike in groupby(ordered, key=lambda each: each.seconds):
        group = [*alike]
        judged = [judge(each) for each in group if best.get(each.degrees) != WITH_ROOM and can_fit(each)]
        for found in sorted(judged, key=of_those_as_fast):
            degrees = found.candidate.degrees
            if found.way.verdict in (MISSES, best.get(degrees)) or best.get(degrees) == WITH_ROOM:
                continue
            living = gone_through(found) if lives else found
            if living.way.verdict not in (MISSES, best.get(degrees)):
                best[degrees], fit = living.way.verdict, fit + 1
                yield living
        done += len(group)
        if tell:
            tell(f"{done:,} of {len(ordered):,} layouts tried, {fit} fit")


def of_those_as_fast(found: LayoutWay) -> tuple[bool, int, int]:
    """First what has room, then what computes its loss at once, then what holds less."""
    return found.way.verdict != WITH_ROOM, found.way.options["chunks"], found.way.needs_bytes


class Fitting:
    """Whether a candidate may fit: not if one that holds less does not, which is asked once for many."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self.least: dict[Any, Candidate] = {}
        self.fits: dict[Any, bool] = {}
        for each in candidates:
            for group in self.groups(each):
                if group not in self.least or self.held(each) < self.held(self.least[group]):
                    self.least[group] = each

    def __call__(self, candidate: Candidate) -> bool:
        return all(self.least_fits(group) for group in self.groups(candidate))

    def least_fits(self, group: Any) -> bool:
        if group not in self.fits:
            self.fits[group] = judge(self.least[group]).way.verdict != MISSES
        return self.fits[group]

    @staticmethod
    def groups(candidate: Candidate) -> tuple[Any, ...]:
        """What is split alike, by ZeRO too, and what differs in the size of its micro-batch alone."""
        layout = candidate.layout
        return (candidate.degrees, layout.zero), (layout._replace(micro_batches=1), candidate.checkpointing)

    @staticmethod
    def held(candidate: Candidate) -> tuple[int, bool, int, int]:
        """In what order candidates that are split alike hold more: by micro-batch, recomputation, chunks of the loss,
        stages of a rank."""
        a = candidate.question.a
        return a["micro_batch"], candidate.checkpointing != "full", -a["chunks"], candidate.layout.virtual


def judge(candidate: Candidate) -> LayoutWay:
    """What the fullest rank holds, and whether that fits; of ranks that do not fit the first tells."""
    question, layout, checkpointing, _ = candidate
    ranks = distinct_ranks(question.shape, layout)
    needs_bytes, fullest_rank = 0, 0
    for rank, size in zip(ranks, bytes_of_ranks(question, layout, checkpointing, ranks), strict=True):
        if size > needs_bytes:
            needs_bytes, fullest_rank = size, rank
        if size > question.memory_bytes:
            break
    return LayoutWay(way_of(candidate, needs_bytes), candidate, fullest_rank)


def way_of(candidate: Candidate, needs_bytes: int) -> Way:
    """The same as a way to train, on a rank that needs so many bytes."""
    memory_bytes = candidate.question.memory_bytes
    a = candidate.question.a | {"zero": str(candidate.layout.zero), "checkpointing": candidate.checkpointing}
    verdict = judge_fit(a, needs_bytes, memory_bytes)["verdict"]
    return Way(a, candidate.seconds, needs_bytes, verdict, memory_bytes - needs_bytes)


def gone_through(found: LayoutWay) -> LayoutWay:
    """The same, once the steps of its fullest rank have been through the allocator."""
    question, layout, checkpointing, _ = found.candidate
    job = rank_on_card(question, layout, checkpointing, found.fullest_rank)
    way = way_of(found.candidate, sum(held_by_rank(job).values()))
    return found._replace(way=way._replace(verdict=after_allocator(way.verdict, read_life(job))))


def least_of(candidates: list[Candidate]) -> list[LayoutWay]:
    """The one that holds least, if there are any."""
    can_fit = Fitting(candidates)
    judged = [judge(can_fit.least[group]) for group in {can_fit.groups(each)[0] for each in candidates}]
    return sorted(judged, key=lambda each: each.way.needs_bytes)[:1]


def layout_rows(
    said: Mapping[str, Any], reader: Reader, lives: bool = True, tell: Tell | None = None
) -> list[dict[str, Any]]:
    """The layouts that fit a question, as rows of an answer. Raises ValueError if none is planned for it."""
    return [row for _, row in fitting_or_least(layouts_with_rows(said, reader, lives, tell))]


def fitting_or_least(found: list[tuple[Way, dict[str, Any]]]) -> list[tuple[Way, dict[str, Any]]]:
    """Those that fit; if none does, the one that needs least."""
    fitting = [each for each in found if each[0].verdict != MISSES]
    return fitting or sorted(found, key=lambda each: each[0].needs_bytes)[:1]


def layouts_with_rows(
    said: Mapping[str, Any], reader: Reader, lives: bool, tell: Tell | None
) -> list[tuple[Way, dict[str, Any]]]:
    """Of each result that a training can have the fastest layout that fits, or the one that needs least; of the first
    that has one, ten."""
    told = {name: value for name, value in said.items() if value is not None}
    asked = {name: value for name, value in told.items() if name != "global_batch"}
    fixed, found, why = fixed_options(said), list[LayoutWay](), ""
    a = read_options({name: value for name, value in asked.items() if name in OPTIONS})
    for result in results(a, fixed):
        changes = {name: result[name] for name in OF_A_RESULT if result[name] != a[name]}
        candidates: list[Candidate] = []
        for loss in ({},) if {"loss", "chunks"} & {*fixed} else ({}, {"loss": "chunked"}):
            try:
                question = read_question(asked | changes | loss, reader=reader)
            except ValueError as error:
                why = why or str(error)
                continue
            for candidate in candidates_of(question, sequences_of_step(told, question)):
                candidates.append(candidate)
                refuse_too_many(len(candidates))
                if tell:
                    tell(f"{len(candidates):,} layouts timed")
        most = 1 if any(each.way.verdict != MISSES for each in found) else LISTED
        found += [*islice(in_order(candidates, lives, tell), most)] or least_of(candidates)
    if not found:
        raise ValueError(why or "--gpus: they can share no such step; give others, or another --global-batch")
    return [(each.way, layout_row(each, said)) for each in found]


def refuse_too_many(candidates: int) -> None:
    """Raises ValueError for a search that would take more than a minute."""
    if candidates > MOST_TRIED:
        few = "give --tp, --cp, --pp, --ep or --schedule"
        raise ValueError(f"--find: more than {MOST_TRIED:,} layouts to try; {few}")


def layout_row(found: LayoutWay, said: Mapping[str, Any]) -> dict[str, Any]:
    """A layout as an answer has it: the options to ask for beside those that somebody gave."""
    layout, a = found.candidate.layout, found.way.options
    every = layout_flags(layout, a["checkpointing"])
    every |= {name: a[name] for name in ("zero", "micro_batch", "loss", *OF_A_RESULT)}
    standing = {name: option.default for name, option in (OPTIONS | PARALLEL).items()}
    standing |= {"virtual_stages": 2 if layout.schedule == "interleaved" else 1, "micro_batches": layout.pipeline}
    if "global_batch" in said or "accumulation" in said:
        standing["micro_batches"] = layout.micro_batches
    if said.get("trained"):
        standing |= {name: a[name] for name in ("lora", "base")}
    unsaid = {name: every[name] for name in every if said.get(name) is None and name in standing}
    options = {name: value for name, value in unsaid.items() if value != standing[name]}
    if not any(name in PARALLEL for name in (*options, *said)):
        options = {"tp": 1} | options  # which asks for a layout
    return way_row(found.way, said) | {"options": options}


def rows_on_ranks(
    complete: CompleteQuestion, said: Mapping[str, Any], reader: Reader, lives: bool = True, tell: Tell | None = None
) -> list[dict[str, Any]]:
    """Layouts, and beside them the ways that split no layer and are not planned as layouts, without those that others
    make needless. If nothing fits, what needs least. Raises ValueError if no layout is planned."""
    layouts = layouts_with_rows({**said, "context": complete.a["context"]}, reader, lives, tell)
    others = [way for way in find_ways(complete, said) if not is_layout(way.options, said, reader)]
    others = living(others, complete.model) if lives else others
    timed = [way._replace(seconds=way.seconds * slowness(way.options, complete, said, reader)) for way in others]
    rows = [*layouts, *((way, way_row(way, said)) for way in timed)]
    found = sorted(rows, key=lambda each: (each[0].seconds, losses_of(each[0]), each[0].needs_bytes))
    fitting = fitting_or_least(found)
    return [
        row
        for place, (way, row) in enumerate(fitting)
        if not any(makes_needless(other, way, row) for other, _ in fitting[:place])
    ]


def makes_needless(other: Way, way: Way, row: Mapping[str, Any]) -> bool:
    """Whether a way that is as fast gives up no more, with as much room; of layouts, gives up less, for these are
    listed beside each other."""
    is_layout_row = any(name in PARALLEL for name in row["options"])
    return spares(other, way) and not (is_layout_row and given_up(other.options) == given_up(way.options))


def asked_of_ranks(a: Options, said: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A question that splits no layer, as one about a layout: with what `names` say of it beside what was said."""
    told = {name: value for name, value in said.items() if name in OPTIONS and name not in ("global_batch", "trained")}
    told |= {name: a[name] for name in ("context", "zero", "checkpointing", "micro_batch", "accumulation")}
    return told | {name: OPTIONS[name].default for name in OF_A_RESULT} | {name: a[name] for name in names} | {"tp": 1}


def is_layout(a: Options, said: Mapping[str, Any], reader: Reader) -> bool:
    """Whether a question that splits no layer is planned as a layout too."""
    try:
        read_question(asked_of_ranks(a, said, (*OF_A_RESULT, "loss", "chunks")), reader=reader)
    except ValueError:
        return False
    return True


def slowness(a: Options, complete: CompleteQuestion, said: Mapping[str, Any], reader: Reader) -> float:
    """How many times as long as at the assumed MFU a training of all weights takes as a layout."""
    question = read_question(asked_of_ranks(a, said, ()), reader=reader)
    layout = question.layout
    tokens = layout.data * layout.micro_batches * question.a["micro_batch"] * question.a["context"]
    as_layout = sum(seconds_by_line(question, layout, question.a["checkpointing"]).values()) / tokens
    return float(as_layout / seconds_a_token(question.a, complete.model))
