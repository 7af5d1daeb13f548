"""What fits, the fastest first: of each result that a training can have, the quickest way to it that has room.

What somebody said stays. The rest is tried: which weights are trained, in what AdamW keeps its moments and where, what
is computed again, the loss in chunks, ZeRO's stage, and how a step's sequences are shared out into micro-batches.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flops_bytes.plan.assumptions import CHOSEN, CompleteQuestion
from flops_bytes.plan.evidence import MISSES, WITH_ROOM, judge_fit
from flops_bytes.plan.meters import DIES, after_allocator, read_life, step_on_card
from flops_bytes.plan.model import Model
from flops_bytes.plan.options import OPTIONS, read_gpu
from flops_bytes.plan.training import (
    STEP_MFU,
    assumed_seconds,
    flops_a_token,
    is_eight_bit,
    low_precision_rates,
    method_options,
    needed_bytes,
    read_format,
    refuse,
    step_timing,
    zero_stages,
)

TRIED = ("trained", "optimizer", "offload", "checkpointing", "loss", "chunks", "zero", "micro_batch", "accumulation")
CHUNKS = 8
Options = dict[str, Any]  # that are read


class Way(NamedTuple):
    """A way to train that can be asked for, and what it takes."""

    options: Options
    seconds: float  # a token, of all GPUs, at the assumed MFU
    needs_bytes: int
    verdict: str
    headroom_bytes: float


def given_up(a: Options) -> list[str]:
    """What is not as in a training of all weights with AdamW in float32 on the card."""
    is_so = {
        "adapters": a["lora"],
        "frozen in 4 bits": a["base"] != "as-recipe",
        "moments in 8 bits": is_eight_bit(a),
        "host": a["offload"] != "no",
    }
    return [name for name, given in is_so.items() if given]


def find_ways(question: CompleteQuestion, given: Mapping[str, Any]) -> list[Way]:
    """The fastest first, none of them slower than one that gives up no more; if none fits, the one that needs least.

    `given` is what somebody said, and stays.
    """
    model, fixed = question.model, fixed_options(given)
    tried = [quickest(result, fixed, model) for result in results(question.a, fixed)]
    found = sorted([way for way in tried if way], key=lambda way: (way.seconds, losses_of(way), way.needs_bytes))
    fitting = [way for way in found if way.verdict != MISSES]
    if not fitting:
        return sorted(found, key=lambda way: way.needs_bytes)[:1]
    return [way for place, way in enumerate(fitting) if not any([spares(other, way) for other in fitting[:place]])]


def fixed_options(given: Mapping[str, Any]) -> list[str]:
    """Of the options that are tried, those that somebody said."""
    fixed = [name for name in TRIED if given.get(name) is not None]
    return [*fixed, "trained"] if given.get("lora") is not None else fixed


def losses_of(way: Way) -> float:
    """How much a way gives up, to tell apart those that are as fast; what the host takes is not known."""
    return sum([1.5 if name == "host" else 1 for name in given_up(way.options)])


def spares(other: Way, way: Way) -> bool:
    """Whether a way that is as fast gives up no more, with as much room."""
    roomy = other.verdict == WITH_ROOM or way.verdict != WITH_ROOM
    return roomy and all([name in given_up(way.options) for name in given_up(other.options)])


def results(a: Options, fixed: list[str]) -> Iterator[Options]:
    """A question asked of each result that it may have."""
    methods = [a] if "trained" in fixed else method_options(a)
    optimizers = ["adamw-8bit"] if a["optimizer"] == "adamw" and "optimizer" not in fixed else []
    for method in methods:
        for optimizer in (a["optimizer"], *optimizers):
            for offload in [a["offload"]] if "offload" in fixed else ["no", "yes"]:
                yield method | {"optimizer": optimizer, "offload": offload}


def settings(a: Options, fixed: list[str]) -> Iterator[Options]:
    """Of one result, all ways to compute it, but for the loss: what takes most memory first. A step's sequences are
    halved into micro-batches as often as that goes."""
    sequences = a["micro_batch"] * a["accumulation"]
    micro_batches = [sequences]
    while micro_batches[-1] % 2 == 0:
        micro_batches.append(micro_batches[-1] // 2)
    for checkpointing in [a["checkpointing"]] if "checkpointing" in fixed else ["none", "per-op", "full"]:
        for stage in [a["zero"]] if "zero" in fixed else [str(stage) for stage in zero_stages(a)] or [a["zero"]]:
            for size in [a["micro_batch"]] if "micro_batch" in fixed or "accumulation" in fixed else micro_batches:
                shared = {"micro_batch": size, "accumulation": sequences // size}
                yield a | shared | {"checkpointing": checkpointing, "zero": stage}


def is_planned(a: Options, model: Model) -> bool:
    """Whether nothing in a question contradicts the rest."""
    try:
        refuse(a, model, read_gpu(a).peak_flop_per_second)
    except ValueError:
        return False
    return True


def seconds_a_token(a: Options, model: Model) -> float:
    """Of all GPUs, at the MFU that is given, or assumed."""
    peaks = read_gpu(a).peak_flop_per_second
    dtype, flops = read_format(a, peaks), flops_a_token(a, model, a["pairs"] == "causal")
    timing = step_timing(a, model, flops, low_precision_rates(a, model, peaks, dtype)[1], peaks[dtype])
    return assumed_seconds(timing, a["mfu"] or STEP_MFU) / timing.step_tokens


def quickest(result: Options, fixed: list[str], model: Model) -> Way | None:
    """The fastest that fits with room, or on paper, or else the one that needs least."""
    memory_bytes = read_gpu(result).memory_bytes
    is_fixed = "loss" in fixed or "chunks" in fixed or result["loss"] == "fused"
    losses: list[Options] = [{}] if is_fixed else [{}, {"loss": "plain", "chunks": CHUNKS}]
    planned = [a for a in settings(result, fixed) if is_planned(a, model)]

    def judged(a: Options, seconds: float) -> Way:
        needs_bytes = needed_bytes(a, model)
        verdict = judge_fit(a, needs_bytes, memory_bytes)["verdict"]
        return Way(a, seconds, needs_bytes, verdict, memory_bytes - needs_bytes)

    if not planned:
        return None
    least = judged(planned[-1] | losses[-1], seconds_a_token(planned[-1], model))
    if least.verdict == MISSES:
        return least
    on_paper = None
    for seconds, _, a in sorted([(seconds_a_token(a, model), place, a) for place, a in enumerate(planned)]):
        for loss in losses:
            way = judged(a | loss, seconds)
            if way.verdict == WITH_ROOM:
                return way
            if way.verdict != MISSES and on_paper is None:
                on_paper = way
    return on_paper


def way_row(way: Way, given: Mapping[str, Any]) -> dict[str, Any]:
    """A way as an answer has it: the options to ask for beside those that somebody gave."""
    a = way.options
    follows = {"zero": a["gpus"] == 1, "accumulation": given.get("global_batch") is not None}
    unsaid = [name for name in TRIED if given.get(name) is None and not follows.get(name)]
    differs = [name for name in unsaid if name in CHOSEN or a[name] != OPTIONS[name].default]
    return {
        "options": {name: a[name] for name in differs if a[name] is not None},
        "gives_up": given_up(a),
        "needs_bytes": way.needs_bytes,
        "headroom_bytes": way.headroom_bytes,
        "verdict": way.verdict,
        "fits": way.verdict != MISSES,
        "tokens_per_second": 1 / way.seconds,
    }


def living_ways(question: CompleteQuestion, given: Mapping[str, Any]) -> list[Way]:
    """The same without those that die in the simulated allocator, through which each goes that fits."""
    return living(find_ways(question, given), question.model)


def living(ways: list[Way], model: Model) -> list[Way]:
    """Of these the ones that live, or of which none fits."""
    found = []
    for way in ways:
        if way.verdict == MISSES:
            found.append(way)
            continue
        life = read_life(step_on_card(way.options, model, read_gpu(way.options).memory_bytes))
        if life != DIES:
            found.append(way._replace(verdict=after_allocator(way.verdict, life)))
    return found
