# /// script
# requires-python = ">=3.11"
# [tool.ledger]
# data = ["measurements/published/drawn_steps.jsonl.gz"]
# ///
"""What drawn steps reserve, planned and beside PyTorch's own allocator, which real steps went through.

Below that allocator lay, in place of CUDA's libraries, one that hands out addresses and computes nothing. The file is
what `python -m flops_bytes.counting.check.reserved` prints: with seed 1, on which the planner was built, with seed 2,
which was looked at only then, and, with --least, of the least memory with which a step lives.
"""

# --8<-- [start:setup]
import gzip
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flops_bytes.memory.allocator import Settings
from flops_bytes.memory.first_steps import Steps, replay, written
from flops_bytes.plan import stacks
from flops_bytes.plan.meters import fixed_lengths, run_of
from flops_bytes.plan.options import read_options
from flops_bytes.plan.training import bytes_by_moment

PATHS = (above / "measurements" / "published" / "drawn_steps.jsonl.gz" for above in Path(__file__).parents)
FILE = next(path for path in PATHS if path.is_file())
CARD_BYTES = 78.6 * 2**30  # what that card leaves beside its context
BUILT_ON, KEPT, LEAST = 1, 2, 3  # seeds
# --8<-- [end:setup]


# --8<-- [start:steps]
def steps_of(told: dict[str, Any]) -> Steps:
    """The same step, planned."""
    a = read_options({"gpu": "H100 SXM"} | told["asked"])
    model, lengths, each = stacks.read_model(told["asked"], a), told.get("lengths", []), a["accumulation"]
    by_step = [lengths[place : place + each] for place in range(0, len(lengths), each)] or fixed_lengths(a)
    return written(run_of(a, model, by_step, bytes_by_moment({**a, "allowance": 0}, model)))


def beside(told: dict[str, Any]) -> dict[str, float]:
    found = replay(steps_of(told), Settings(), int(CARD_BYTES))
    return {name: getattr(found, name) / told[name] for name in ("allocated_bytes", "reserved_bytes")}


def summary(ratios: Iterable[float]) -> dict[str, float]:
    """Of what is foretold as a part of what was."""
    off = sorted(abs(ratio - 1) for ratio in ratios)
    within = {f"within_{percent}": sum(each <= percent / 100 for each in off) for percent in (2, 5, 15)}
    return {"steps": len(off), "median_share": statistics.median(off), "worst_share": off[-1]} | within


# --8<-- [end:steps]


# --8<-- [start:drawn]
def compared(rows: list[dict[str, Any]]) -> dict[str, Any]:
    lived = [each for each in rows if not each["num_ooms"]]
    ratios = [beside(each) for each in lived]
    gaps = [each["reserved_bytes"] / each["allocated_bytes"] for each in lived]
    return {
        "allocated": summary(each["allocated_bytes"] for each in ratios),
        "reserved": summary(each["reserved_bytes"] for each in ratios),
        "smallest_gap_ratio": min(gaps),
        "largest_gap_ratio": max(gaps),
    }


rows = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).decode().splitlines()]
by_seed = {seed: [each for each in rows if each["seed"] == seed] for seed in (BUILT_ON, KEPT, LEAST)}
drawn_steps = {"built_on": compared(by_seed[BUILT_ON]), "kept": compared(by_seed[KEPT])}
for name, found in drawn_steps.items():
    print(
        name,
        {meter: {key: round(value, 5) for key, value in found[meter].items()} for meter in ("allocated", "reserved")},
    )
# --8<-- [end:drawn]


# --8<-- [start:least]
def is_between(steps: Steps, told: dict[str, Any], percent: int) -> bool:
    """Whether the planned step dies where it did, and lives where it did, or with so much less and more memory."""
    less, more = told["too_small_capacity"] * (100 - percent), told["capacity"] * (100 + percent)
    dies, lives = (replay(steps, Settings(), int(size) // 100).died_at for size in (less, more))
    return dies >= 0 and lives < 0


with_least = [(steps_of(each), each) for each in by_seed[LEAST]]
least_capacities = {
    "steps": len(with_least),
    "within": {percent: sum(is_between(*each, percent) for each in with_least) for percent in (0, 2, 5, 10)},
}
print(least_capacities)
# --8<-- [end:least]
