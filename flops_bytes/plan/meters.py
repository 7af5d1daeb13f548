"""What three meters will show of a training step: allocated, reserved, and nvidia-smi; and whether the run lives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.memory.allocator import MIB, Settings, downwards, upwards
from flops_bytes.memory.chips import workspace_bytes
from flops_bytes.memory.first_steps import Replay, Run, Sharding, Steps, replay, written
from flops_bytes.memory.outside import NO_GROUPS, Groups
from flops_bytes.memory.step import moment_of
from flops_bytes.model.shapes import quoted
from flops_bytes.parallel.sharding import gathered_itemsize
from flops_bytes.plan.allowance import lines_outside, outside_bytes
from flops_bytes.plan.evidence import MISSES, ON_PAPER, WITH_ROOM
from flops_bytes.plan.model import Model
from flops_bytes.plan.software import Moments, gathers_weights, is_deepspeed
from flops_bytes.plan.training import (
    bytes_by_moment,
    leaves_gradients,
    model_family,
    recipe_name,
    step_config,
    trained_recipe,
)

LIVES, RETRIES, DIES = "lives", "retries", "dies"
LIFE = (LIVES, RETRIES, DIES)  # the best first
STATE = ("weights", "adapters", "master", "optimizer")
# What a formula may be off a moment that is gone through, before it counts as something that has no place there.
NEAR_BYTES = 4 * MIB


def run_of(a: Mapping[str, Any], model: Model, lengths: Sequence[Sequence[int]], moments: Moments) -> Run:
    """The run that is asked for, whose state, and what its libraries hold, the moments say."""
    config, at_update = step_config(a, model), moments["update"]
    if gathers_weights(a) and config.autocast:  # what is gathered is cast before
        config = config._replace(recipe="bf16_master")
    recipe, zero = recipe_name(a), int(a["zero"])
    shares = a["gpus"] > 1 and not is_deepspeed(a)
    sharding = Sharding(
        a["gpus"] if zero else 1,
        gathers=shares and zero == 3,
        reduces=a["gpus"] > 1 and zero > 1,
        flat=a["sharding_by"][:5] == "fsdp1",
        holds_inputs=a["sharding_by"] == "fsdp1" and bool(a["lora"]) and gathers_weights(a),
        gathered_layer_itemsize=gathered_itemsize(recipe, a["base"]),
        itemsize=4 if recipe == "fp32" else 2,
        share_itemsize=trained_recipe(a).gradients,
        shares_stay=not leaves_gradients(a),
    )
    return Run(
        stack=model.stack,
        family=model_family(a, model),
        config=config,
        state={line: at_update.get(line, 0) for line in STATE},
        update_bytes=at_update["temporaries"],
        lengths=lengths,
        base=a["base"],
        sharding=sharding,
        bucket_bytes=at_update.get("reduced", 0) if a["gpus"] > 1 and zero == 0 else 0,
        workspace_bytes=workspace_bytes(a["gpu"] or ""),
    )


def with_beside(run: Run, moments: Moments) -> Steps:
    """The steps, with what the moments say more than they hold: what a library keeps, of which no more is known."""
    steps = written(run)
    asked: dict[str, int] = {}
    for place, lines in moments.items():
        asked[moment_of(place)] = max(asked.get(moment_of(place), 0), sum(lines.values()))
    beside = {moment: max(0, size - steps.peaks[moment]) for moment, size in asked.items() if moment in steps.peaks}
    if max(beside.values()) <= NEAR_BYTES:
        return steps
    constant = min(beside.values())
    return written(
        run._replace(constant_bytes=constant, beside={moment: size - constant for moment, size in beside.items()})
    )


DRAWS, DRAWN_BATCHES = 5, 40  # so many runs are drawn, each of so many micro-batches
MULTIPLIER, INCREMENT, MODULUS = 6364136223846793005, 1442695040888963407, 2**64  # Knuth's MMIX


class Chance:
    """Numbers that are as if drawn, the same in Python and in JavaScript."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, limit: int) -> int:
        """A whole number from 0 on."""
        self.state = (self.state * MULTIPLIER + INCREMENT) % MODULUS
        return self.state * limit // MODULUS


def fixed_lengths(a: Mapping[str, Any]) -> list[list[int]]:
    """Two steps of sequences of one length, as where they are packed; more than two micro-batches do as two."""
    return [[a["context"]] * min(a["accumulation"], 2)] * 2


def drawn_lengths(a: Mapping[str, Any], lengths: Sequence[int], seed: int) -> list[list[int]]:
    """Steps of micro-batches, each as long as the longest of its sequences, which are cut at the context."""
    chance, turns = Chance(seed), min(a["accumulation"], DRAWN_BATCHES // 2)

    def longest() -> int:
        drawn: list[int] = [lengths[chance.below(len(lengths))] for _ in range(a["micro_batch"])]
        return min(int(a["context"]), max(drawn))

    return [[longest() for _ in range(turns)] for _ in range(DRAWN_BATCHES // turns)]


def read_lengths(text: str) -> list[int]:
    """The lengths of sequences: a range, or those of a file, a number each line. Raises ValueError with the mend."""
    low, dash, high = text.partition("-")
    if dash and low.isdigit() and high.isdigit() and 0 < int(low) <= int(high):
        return list(range(int(low), int(high) + 1))
    mend = "say packed, a range such as 64-2048, or a file with a number of tokens in each line"
    try:
        held = Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise ValueError(f"--lengths: {quoted(text)} is no range, and no file that can be read; {mend}") from None
    lines = held.split()
    for place, line in enumerate(lines):
        if not line.isdigit() or not 0 < int(line) < 2**40:
            raise ValueError(
                f"--lengths: {quoted(text)}, number {place + 1}: {quoted(line)} is no number of tokens; {mend}"
            )
    if not lines:
        raise ValueError(f"--lengths: {quoted(text)} is empty; {mend}")
    return [int(line) for line in lines]


def read_settings(text: str) -> Settings:
    """PYTORCH_ALLOC_CONF, as far as the allocator here knows it. Raises ValueError with the mend."""
    told: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        if name == "expandable_segments" and value.lower() in ("true", "false"):
            told["expandable_segments"] = value.lower() == "true"
        elif name == "max_split_size_mb" and value.isdigit():
            told["max_split_size_bytes"] = MIB * int(value)
        elif name == "roundup_power2_divisions" and value.isdigit():
            told["roundup_power2_divisions"] = int(value)
        else:
            known = "expandable_segments:True, max_split_size_mb:128, roundup_power2_divisions:4"
            raise ValueError(f"--alloc-conf: {quoted(part)} is not known; give some of {known}")
    try:
        return Settings(**told)
    except ValueError as error:
        raise ValueError(f"--alloc-conf: {error}") from None


class Reading(NamedTuple):
    """What an allocator of so many bytes does with a run."""

    allocated_bytes: int
    reserved_bytes: tuple[int, int]  # between which it lies
    lives: str  # LIVES, RETRIES or DIES
    retries: int  # of the last step, or of all where they differ: how often it gives back all that lies free
    death: Mapping[str, Any] | None  # where it dies: what was asked for, when, and what was there


def read_steps(steps: Steps, settings: Settings, capacity_bytes: int) -> Reading:
    """The steps through the allocator in four ways, of which nobody can know which it will be: with each segment below
    those before or above them, with cuBLAS's workspaces or without."""
    first = replay(steps, settings)
    if first.allocated_bytes > capacity_bytes:  # which no way mends
        death = death_of(steps, replay(steps, settings, capacity_bytes))
        return Reading(first.allocated_bytes, (first.reserved_bytes, first.reserved_bytes), DIES, 0, death)
    ways = ways_of_placing()
    found = [first] + [replay(steps, settings, None, place(), has_workspaces) for place, has_workspaces in ways[1:]]
    allocated, reserved = found[0].allocated_bytes, [each.reserved_bytes for each in found]
    if max(reserved) <= capacity_bytes:
        return Reading(allocated, (min(reserved), max(reserved)), LIVES, 0, None)
    found = [replay(steps, settings, capacity_bytes, place(), has_workspaces) for place, has_workspaces in ways]
    alive = [each for each in found if each.died_at < 0]
    if not alive:
        return Reading(allocated, (min(reserved), max(reserved)), DIES, 0, death_of(steps, found[0]))
    reserved, retries = [each.reserved_bytes for each in alive], max([each.retries for each in alive])
    lives = RETRIES if retries or len(alive) < len(found) else LIVES
    return Reading(allocated, (min(reserved), max(reserved)), lives, retries, None)


def ways_of_placing() -> list[tuple[Callable[[], Callable[[int], int]], bool]]:
    """Where segments lie, and whether there are cuBLAS's workspaces; the first is the likeliest."""
    return [(place, has_workspaces) for place in (downwards, upwards) for has_workspaces in (True, False)]


def life_in_ways(steps: Steps, settings: Settings, capacity_bytes: int) -> str:
    """What read_steps() says of a run's life, with no more of the ways than tell it."""
    lives: list[str] = []
    for place, has_workspaces in ways_of_placing():
        found = replay(steps, settings, capacity_bytes, place(), has_workspaces)
        lives.append(DIES if found.died_at >= 0 else RETRIES if found.retries else LIVES)
        if lives == [DIES] and replay(steps, settings).allocated_bytes > capacity_bytes:
            break
        if lives[0] != lives[-1] or lives[0] == RETRIES:
            return RETRIES
    return lives[0]


def death_of(steps: Steps, found: Replay) -> dict[str, Any]:
    storage, nbytes, _ = steps.changes[found.died_at]
    part = [told for start, told in steps.parts if start <= found.died_at][-1]
    return {
        "asked_bytes": nbytes,
        "line": steps.lines[storage],
        "at": part,
        "allocated_bytes": found.allocated_bytes,
        "unallocated_bytes": found.reserved_bytes - found.allocated_bytes,
    }


def one_way(steps: Steps, settings: Settings, capacity_bytes: int, empties_cache: bool = False) -> Reading:
    """The steps through the allocator in the likeliest way."""
    found = replay(steps, settings, capacity_bytes, None, True, empties_cache)
    lives = DIES if found.died_at >= 0 else RETRIES if found.retries else LIVES
    death = death_of(steps, found) if lives == DIES else None
    return Reading(found.allocated_bytes, (found.reserved_bytes, found.reserved_bytes), lives, found.retries, death)


def worst_of(readings: Sequence[Reading]) -> Reading:
    """Of several runs the lowest and the highest, and the one that lives worst."""
    worst = max(readings, key=lambda each: (LIFE.index(each.lives), each.retries))
    return worst._replace(
        allocated_bytes=max([each.allocated_bytes for each in readings]),
        reserved_bytes=(
            min([each.reserved_bytes[0] for each in readings]),
            max([each.reserved_bytes[1] for each in readings]),
        ),
    )


def lengths_of(a: Mapping[str, Any]) -> list[int]:
    """Those that are asked for; none where all sequences have one length."""
    return [] if a["lengths"] is None or a["lengths"] == "packed" else read_lengths(a["lengths"])


def settings_of(a: Mapping[str, Any]) -> Settings:
    """Those of the allocator that are asked for, or its own."""
    return Settings() if a["alloc_conf"] is None else read_settings(a["alloc_conf"])


def runs_of(a: Mapping[str, Any], model: Model, lengths: Sequence[int] = (), draws: int = DRAWS) -> list[Steps]:
    """The runs that are asked for: one, or, where sequences have many lengths, several that are drawn."""
    moments = bytes_by_moment({**a, "allowance": 0}, model)
    if not lengths:
        return [with_beside(run_of(a, model, fixed_lengths(a), moments), moments)]
    drawn = [written(run_of(a, model, drawn_lengths(a, lengths, seed), moments)) for seed in range(draws)]
    return [run._replace(are_alike=False) for run in drawn]


class OnCard(NamedTuple):
    """A GPU's first steps, in all the runs of which nobody knows which it will be, on its card."""

    runs: Sequence[Steps]
    draws: int  # how many of them are drawn: 0 where they are all that can be
    settings: Settings
    capacity_bytes: int  # that the card leaves PyTorch's allocator
    outside: list[dict[str, Any]]  # what lies beside it, line by line
    outside_bytes: int


def on_card(
    runs: Sequence[Steps], a: Mapping[str, Any], card_bytes: float, draws: int = 0, groups: Groups = NO_GROUPS
) -> OnCard:
    """Of a card of so many bytes, whose GPU is in such groups. Raises ValueError for settings of the allocator that
    cannot be read."""
    beside_bytes = outside_bytes(a, groups)
    return OnCard(runs, draws, settings_of(a), int(card_bytes) - beside_bytes, lines_outside(a, groups), beside_bytes)


def step_on_card(a: Mapping[str, Any], model: Model, card_bytes: float) -> OnCard:
    """A step of a GPU that splits no layer. Raises ValueError as the planner does, and for a kind whose steps are not
    derived."""
    lengths = lengths_of(a)
    return on_card(runs_of(a, model, lengths), a, card_bytes, DRAWS if lengths else 0)


def read_meters(job: OnCard) -> dict[str, Any]:
    """What three meters will show, and whether the run lives."""
    settings, capacity_bytes = job.settings, job.capacity_bytes
    in_ways = one_way if job.draws else read_steps  # which differ less than draws do
    found = worst_of([in_ways(run, settings, capacity_bytes) for run in job.runs])
    low, high = found.reserved_bytes
    answer = found._asdict() | {
        "draws": job.draws,
        "smi_bytes": (low + job.outside_bytes, high + job.outside_bytes),
        "outside": job.outside,
    }

    def mended(allocator: Settings, empties_cache: bool = False) -> dict[str, Any]:
        if found.allocated_bytes > capacity_bytes:  # which nothing mends
            return {"reserved_bytes": low, "lives": DIES}
        worst = worst_of([one_way(run, allocator, capacity_bytes, empties_cache) for run in job.runs])
        return {"reserved_bytes": worst.reserved_bytes[1], "lives": worst.lives}

    can_grow = not (settings.expandable_segments or settings.max_split_size_bytes)
    growing = mended(replace(settings, expandable_segments=True)) if can_grow else None
    return answer | {"expandable": growing, "emptied": mended(settings, True) if job.draws else None}


def read_life(job: OnCard) -> str:
    """Whether the run lives, as read_meters() says it; of the many that a search goes through no more is asked."""
    if job.draws:
        return worst_of([one_way(run, job.settings, job.capacity_bytes) for run in job.runs]).lives
    return LIFE[max([LIFE.index(life_in_ways(run, job.settings, job.capacity_bytes)) for run in job.runs])]


STEPS_DOWN = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)  # of what fits on paper, at which the allocator is asked


def most_that_lives(a: Mapping[str, Any], model: Model, name: str, on_paper: int, card_bytes: float) -> int:
    """The most of an option, such as the context, with which the run lives: of what fits on paper, or somewhat less.
    0 if none of these does. Reserved bytes do not grow evenly, so that some lengths below it may die."""
    for share in STEPS_DOWN:
        number = int(share * on_paper)
        if not number:
            break
        job = on_card(runs_of({**a, name: number}, model, lengths_of(a)), a, card_bytes)
        if worst_of([one_way(run, job.settings, job.capacity_bytes) for run in job.runs]).lives != DIES:
            return number
    return 0


def after_allocator(verdict: str, life: str) -> str:
    """The verdict on a run that has been through the allocator: what dies there does not fit, and what lives by asking
    again fits on paper."""
    if life == DIES:
        return MISSES
    return ON_PAPER if life == RETRIES and verdict == WITH_ROOM else verdict


def judged_by_meters(answer: Mapping[str, Any], meters: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with what its meters show, and the verdict that follows."""
    verdict = after_allocator(answer["verdict"], meters["lives"])
    return {**answer, "meters": meters, "verdict": verdict, "fits": verdict != MISSES}
