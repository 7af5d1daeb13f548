"""What the meters of a run show that others published, as the planner's allocator has it: the number of each reading's
own meter.

`python -m published.meters measurements/published` prints each reading of memory beside it, which takes minutes;
`--first` keeps in the sources' files what is said of readings of which nothing was said yet. A source whose sequences
differ in length says how, under `lengths`: a lognormal distribution of this mean and deviation, between the shortest
and the longest, of which those above a run's limit are `cut` or `left out`.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, NamedTuple, TypeVar

from flops_bytes.memory.allocator import Settings
from flops_bytes.memory.first_steps import Steps, replay
from flops_bytes.plan import stacks
from flops_bytes.plan.allowance import outside_bytes
from flops_bytes.plan.meters import (
    DIES,
    LIFE,
    LIVES,
    RETRIES,
    read_life,
    runs_of,
    step_on_card,
)
from flops_bytes.plan.options import read_gpu, read_options
from published.readings import (
    GIB,
    Compared,
    Reading,
    asked,
    compare,
    extracted,
    named,
    planned_tensors,
    read_all,
    read_empty,
    read_head,
    read_source,
    told_far,
    write,
)

DRAWS = 2  # runs of drawn lengths for each question
QUANTILES = 1000  # lengths that stand for a distribution
Part = TypeVar("Part")
Answer = TypeVar("Answer")
ALIKE = 1.01  # of what settings leave open, one is asked where the plan of the highest is no more times the lowest's


class Said(NamedTuple):
    """Of one question: bytes by meter, and whether the run lives on its card."""

    allocated: float
    reserved: float
    smi: float
    lives: str


def lengths_up_to(told: Mapping[str, Any], limit: int) -> tuple[int, ...]:
    """Lengths of sequences as a source has them, each as likely as the next, none above the limit."""
    variance = math.log(1 + (told["deviation"] / told["mean"]) ** 2)
    spread = NormalDist(math.log(told["mean"]) - variance / 2, math.sqrt(variance))
    most = told["longest"] if told["longer"] == "cut" else min(told["longest"], limit)
    low, high = (spread.cdf(math.log(length)) for length in (told["shortest"], most))
    drawn = (spread.inv_cdf(low + (high - low) * (place + 0.5) / QUANTILES) for place in range(QUANTILES))
    return tuple(min(limit, int(math.exp(each))) for each in drawn)


def ask(question: Mapping[str, Any], lengths: Mapping[str, Any] | None, card_gb: float | None = None) -> Said:
    """What the meters show of a run on a card, whose memory may be another than of the question's card: the mean of
    those that are drawn, where its sequences differ in length."""
    return _asked(json.dumps(question, sort_keys=True), json.dumps(lengths), card_gb)


@cache  # a row has more than one reading, and rows share questions
def _asked(question_json: str, lengths_json: str, card_gb: float | None) -> Said:
    question, _ = stacks.as_stored(json.loads(question_json), {})
    lengths, a = json.loads(lengths_json), read_options(question)
    model = stacks.read_model(question, a)
    runs = runs_of(a, model, lengths_up_to(lengths, a["context"]) if lengths else (), DRAWS)
    outside = outside_bytes(a)
    capacity = int(card_gb * 1e9 if card_gb else read_gpu(a).memory_bytes) - outside
    found = [_replayed(run, capacity) for run in runs]
    reserved = fmean(each.reserved for each in found)
    return Said(
        fmean(each.allocated for each in found),
        reserved,
        reserved + outside,
        max((each.lives for each in found), key=LIFE.index),
    )


def _replayed(run: Steps, capacity: int) -> Said:
    """One way through the allocator, the likeliest; of a run that dies there, without its card's limit."""
    free = replay(run, Settings())
    if free.reserved_bytes <= capacity:
        return Said(free.allocated_bytes, free.reserved_bytes, 0, LIVES)
    held = replay(run, Settings(), capacity)
    if held.died_at >= 0:
        return Said(free.allocated_bytes, free.reserved_bytes, 0, DIES)
    return Said(held.allocated_bytes, held.reserved_bytes, 0, RETRIES if held.retries else LIVES)


def said_of(reading: Reading, lengths: Mapping[str, Any] | None) -> tuple[tuple[float, float], list[Said]]:
    """The lowest and the highest that a reading's meter shows, in its unit, and what was found of either. Of settings
    that are not said, the two are asked of which the plan says least and most."""
    questions = sorted(asked(reading.settings), key=planned_tensors)
    are_alike = planned_tensors(questions[-1]) <= ALIKE * planned_tensors(questions[0])
    ends = questions[:1] if are_alike else [questions[0], questions[-1]]
    found = [ask(question, lengths, reading.about.get("card_gb")) for question in ends]
    summed = reading.about.get("summed_gpus", 1)
    gpus = summed if isinstance(summed, list) else [summed]
    values = [count * value for count in gpus for each in found for value in _on_meter(reading.what, each)]
    return (min(values), max(values)), found


def _on_meter(what: str, said: Said) -> tuple[float, ...]:
    """What the meter of a reading shows; where it is not said, all that it can be."""
    if what.startswith("memory"):
        return said.allocated * (1e9 / GIB if what == "memory_g" else 1), said.smi
    return (said.smi if what.startswith("smi") else said.reserved if what.startswith("reserved") else said.allocated,)


class Metered(NamedTuple):
    """A reading beside what its own meter shows by the planner."""

    reading: Reading
    said: tuple[float, float]
    lives: str


def ask_all(
    compared: Iterable[Compared], lengths_of: Mapping[str, Mapping[str, Any] | None], processes: int = 1
) -> Iterator[Metered]:
    """Each reading of memory that can be planned, by its own meter, in order; rows are shared by so many processes."""
    rows: dict[tuple[str, str, int], list[Reading]] = {}
    for each in compared:
        if each.reading.kind == "memory" and each.said:
            rows.setdefault((each.reading.source, each.reading.table, each.reading.row), []).append(each.reading)
    asked_rows = [(readings, lengths_of[source]) for (source, *_), readings in rows.items()]
    for metered in shared(_ask_row, asked_rows, processes):
        yield from metered


def _ask_row(row: tuple[Sequence[Reading], Mapping[str, Any] | None]) -> list[Metered]:
    """The readings of a row, which share questions."""
    readings, lengths = row
    metered = []
    for reading in readings:
        said, found = said_of(reading, lengths)
        metered.append(Metered(reading, said, max((each.lives for each in found), key=LIFE.index)))
    return metered


def shared(function: Callable[[Part], Answer], parts: Sequence[Part], processes: int) -> Iterator[Answer]:
    """What a function says of each part, in order, each in one of so many processes."""
    if processes == 1:
        yield from map(function, parts)
        return
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        yield from pool.map(function, parts)


FLAT_BYTES = 10**9  # that were taken to lie beside the tensors before it was known what does


class Life(NamedTuple):
    """A run that lived or died on its card, and what two rules say of it."""

    reading: Reading
    lived: bool
    by_tensors: bool  # whether tensors, and a gigabyte more, are no more than the card has
    by_allocator: bool  # whether they find room, as the allocator gives it, beside what lies outside


def lives_of(path: Path, processes: int = 1) -> Iterator[Life]:
    """Each run of a source's tables that say who died: a row that has readings lived."""
    source, readings = read_source(path)
    say = {table["name"] for table in source["tables"] if table.get("empty") == "died"}
    lived = {(each.table, each.row): each for each in reversed(readings) if each.table in say}
    runs = [(each, True) for each in lived.values()] + [(each, False) for each in read_empty(path)]
    known = [(each, is_alive) for each, is_alive in runs if not {"missing", "memory_missing"} & {*each.about}]
    known.sort(key=lambda run: (run[0].table, run[0].row))
    rules = shared(_rules, [each for each, _ in known], processes)
    for (reading, is_alive), said in zip(known, rules, strict=True):
        yield Life(reading, is_alive, *said)


def _rules(reading: Reading) -> tuple[bool, bool]:
    asks = min(asked(reading.settings), key=planned_tensors)
    question, _ = stacks.as_stored(asks, {})
    a = read_options(question)
    card_bytes = read_gpu(a).memory_bytes
    life = read_life(step_on_card(a, stacks.read_model(question, a), card_bytes))
    return planned_tensors(asks) + FLAT_BYTES <= card_bytes, life != DIES


def told(each: Metered) -> str:
    low, high = (said / each.reading.value for said in each.said)
    span = f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
    return f"{named(each.reading)}  {span} {each.lives}"


def read_lengths(folder: Path) -> dict[str, Mapping[str, Any] | None]:
    """How the sequences of each source differ in length, if they do."""
    return {path.stem: read_head(path).get("lengths") for path in sorted(folder.glob("*.toml"))}


def keep_first(path: Path, metered: Sequence[Metered]) -> None:
    """Writes into a source what its meters are said to show, of readings of which nothing was said yet."""
    today = datetime.now(UTC).date().isoformat()
    source, readings = read_source(path)
    said = {(each.reading.table, each.reading.row, each.reading.what): each.said for each in metered}
    kept = []
    for each in readings:
        found = said.get((each.table, each.row, each.what))
        new = found and not each.metered
        kept.append(each._replace(metered=found, metered_on=today) if new else each)
    if extracted(source):
        write(path, source["extracted"]["sha256"], kept)


def main(arguments: list[str]) -> int:
    """Prints each reading of memory beside what the planner says of its meter; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="python -m published.meters", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the sources: measurements/published of a checkout")
    parser.add_argument("--first", action="store_true", help="keep what is said of what was not asked yet")
    parser.add_argument("--source", action="append", help="only this one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that share the rows")
    options = parser.parse_args(arguments)
    try:
        readings = [each for each in read_all(options.folder) if not options.source or each.source in options.source]
        metered = []
        for each in ask_all(compare(readings), read_lengths(options.folder), options.processes):
            print(told(each), flush=True)
            metered.append(each)
        if options.first:
            for path in sorted(options.folder.glob("*.toml")):
                keep_first(path, [each for each in metered if each.reading.source == path.stem])
    except (OSError, ValueError) as error:
        print(f"python -m published.meters: {error}", file=sys.stderr)
        return 2
    for line in told_far(metered, {path.stem: read_head(path) for path in sorted(options.folder.glob("*.toml"))}):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
