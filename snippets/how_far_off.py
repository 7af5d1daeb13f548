# /// script
# requires-python = ">=3.11"
# [tool.ledger]
# data = ["measurements/published/*.toml", "measurements/published/estimators/*.toml"]
# ///
"""How far off the planner is: beside memory, speeds and hours that others published, and what composed layers keep."""

# --8<-- [start:setup]
from typing import Any, NamedTuple

from flops_bytes.model.shapes import SHAPES, parameters
from flops_bytes.plan import plan_exactly as plan

# --8<-- [end:setup]
# isort: split
# --8<-- [start:setup_published]
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from flops_bytes.plan.options import SPEEDS
from published.estimators import estimates, read_said
from published.readings import (
    A_GPU,
    NEAR,
    Compared,
    Reading,
    at_first,
    by_kind,
    by_source,
    compare,
    contained,
    errors,
    nearest_ratio,
    read_all,
    read_head,
    room,
    spread,
    today,
)
from published.readings import asked as asked_of

FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())
NEAR_PERCENT = round(100 * NEAR)  # off by no more counts as near
# --8<-- [end:setup_published]


# --8<-- [start:sources]
GITHUB = "https://github.com"
SOURCES = {
    "llama3.1": f"{GITHUB}/meta-llama/llama-models/blob/1b28708/models/llama3_1/MODEL_CARD.md",
    "llama2": "https://arxiv.org/abs/2307.09288",
    "nanogpt": f"{GITHUB}/karpathy/nanoGPT/blob/0110f3c/README.md",
    "llm.c": f"{GITHUB}/karpathy/llm.c/discussions/481",
}


class Case(NamedTuple):
    """Published GPU-hours, and ours."""

    model: str
    part: str  # what of it
    published: float
    planned: float
    source: str
    sentence: str  # the source's own words, or the cells of its table


# --8<-- [end:sources]


# --8<-- [start:shapes]
LLAMA_2 = "kv_heads={} vocab=32000 head_dim=128 layers={} d_model={} heads={} d_ff={}"
LLAMA_2_7B = LLAMA_2.format(32, 32, 4096, 32, 11008)
LLAMA_2_13B = LLAMA_2.format(40, 40, 5120, 40, 13824)
LLAMA_2_70B = LLAMA_2.format(8, 80, 8192, 64, 28672)
# --8<-- [end:shapes]


# --8<-- [start:hours]
ASSUMED_MFU = 0.40  # what the planner takes if nobody tells it


def gpu_hours(tokens: str, context: int, gpu: str, mfu: float = ASSUMED_MFU, **model: str) -> float:
    """Of a GPU at a share of its peak."""
    return float(plan(gpu=gpu, tokens=tokens, context=context, mfu=mfu, **model)["gpu_hours"])


A100, H100 = "A100 80GB SXM", "H100 SXM"
HOURS = [
    Case("Llama 3.1 8B", "15T", 1.46e6, gpu_hours("15T", 8192, H100, model="llama-3-8b"), "llama3.1", "1.46M"),
    Case("Llama 3.1 70B", "15T", 7.0e6, gpu_hours("15T", 8192, H100, model="llama-3-70b"), "llama3.1", "7.0M"),
    Case(
        "Llama 3.1 405B",
        "15.6T",  # by its report, section 1: arXiv 2407.21783
        30.84e6,
        gpu_hours("15.6T", 8192, H100, model="llama-3.1-405b"),
        "llama3.1",
        "30.84M",
    ),
    Case("Llama 2 7B", "2T", 184_320, gpu_hours("2T", 4096, A100, shape=LLAMA_2_7B), "llama2", "184,320"),
    Case("Llama 2 13B", "2T", 368_640, gpu_hours("2T", 4096, A100, shape=LLAMA_2_13B), "llama2", "368,640"),
    Case("Llama 2 70B", "2T", 1_720_320, gpu_hours("2T", 4096, A100, shape=LLAMA_2_70B), "llama2", "1,720,320"),
    Case(
        "GPT-2 124M",
        "295B",
        4 * 24 * 8,
        gpu_hours(str(600_000 * 491_520), 1024, "A100 40GB SXM", model="gpt2"),
        "nanogpt",
        "on a single 8XA100 40GB node in about 4 days of training",
    ),
    Case(
        "GPT-2 124M",
        "at_60",
        1.5 * 8,
        gpu_hours("10B", 1024, A100, mfu=0.6, model="gpt2"),
        "llm.c",
        "at up to ~60% model flops utilization … one 8X A100 80GB SXM node takes ~90 minutes",
    ),
]
# --8<-- [end:hours]


# --8<-- [start:exercise_1]
def implied_mfu(case: Case) -> float:
    return ASSUMED_MFU * case.planned / case.published


implied_mfu_share = {case.model.replace(".", "_"): implied_mfu(case) for case in HOURS[:6]}
for model, share in implied_mfu_share.items():
    print(f"{model:16}{share:.1%}")
assert implied_mfu_share["Llama 3_1 8B"] < 0.2 < 0.35 < implied_mfu_share["Llama 3_1 405B"]
assert all(0.4 < share < 0.5 for model, share in implied_mfu_share.items() if "Llama 2" in model)
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
GIB = 2**30
titan_parameters = sum(parameters(SHAPES["llama-3-8b"]).values())
spared_bytes_a_parameter = (82.4 - 67.0) * GIB / titan_parameters / (1 / 8 - 1 / 128)
print(f"{spared_bytes_a_parameter:.1f} bytes a parameter")
assert 16 < spared_bytes_a_parameter < 18
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def tensors_bytes(**asked: Any) -> int:
    """Of PyTorch's tensors: without the allowance."""
    found = plan(**asked)["memory_bytes"]
    return int(found["total"] - found["allowance"])


EAGER: dict[str, Any] = {"model": "llama-3-8b", "gpu": H100, "recipe": "bf16", "attention": "eager", "context": 4096}
fused_bytes, composed_bytes = (tensors_bytes(**EAGER, layers=layers) for layers in ("fused", "composed"))
fused_to_composed_share = fused_bytes / composed_bytes
softmax_bytes = 4 * 32 * 4096**2 * 32  # float32, H heads, T × T, L layers
norms_bytes = 4 * 4096 * 4096 * (2 * 32 + 1)  # float32, T tokens, d features, norms
print(
    f"{fused_bytes / GIB:.1f} GiB, composed {composed_bytes / GIB:.1f} GiB; the scores alone {softmax_bytes / GIB:.1f}"
)
assert composed_bytes - fused_bytes == softmax_bytes + norms_bytes
# --8<-- [end:exercise_3]


# --8<-- [start:all]
compared = list(compare(read_all(FOLDER)))
heads = {path.stem: read_head(path) for path in FOLDER.glob("*.toml")}
peaks = [each for each in compared if each.reading.kind == "memory"]
asked = [each for each in peaks if each.said]
seen_first = [each for each in asked if each.reading.first]
memory_readings, memory_sources = len(peaks), len(by_source(peaks))
asked_readings, asked_sources = len(asked), len(by_source(asked))
not_asked_readings = memory_readings - asked_readings
now, first = errors(asked), errors(seen_first, at_first)
intervals = contained(asked)  # where a source leaves settings open
print(f"{asked_readings} of {memory_readings} readings, {asked_sources} of {memory_sources} sources can be asked")
for name, found in (("first", first), ("today", now)):
    print(f"{name}: median error over sources {found['median_error_share']:.1%}, near {found['within_share']:.0%}")
# --8<-- [end:all]


# --8<-- [start:kinds]
kinds = {}
for name, of_kind in by_kind(asked).items():
    *_, start, end = spread(of_kind)
    kinds[name] = errors(of_kind) | {"start_ratio": start, "end_ratio": end, "room_share": room(of_kind)}
    print(f"{name:14} {kinds[name]}")
# --8<-- [end:kinds]


# --8<-- [start:worst]
_worst_name, _of_worst = max(by_source(asked).items(), key=lambda item: errors(item[1])["median_error_share"])
worst = {"name": heads[_worst_name].get("repository", _worst_name), **errors(_of_worst)}
_without_worst = [each for each in by_kind(asked)["lora"] if each.reading.source != _worst_name]
lora_room_without_worst_share = room(_without_worst)
# --8<-- [end:worst]


# --8<-- [start:missing]
why_counts = Counter(each.why for each in peaks if not each.said)
reasons: list[dict[str, Any]] = [{"why": why, "readings": number} for why, number in why_counts.most_common()]
main_reasons = [reason for reason in reasons if reason["readings"] >= 10]
other_reasons_readings = not_asked_readings - sum(reason["readings"] for reason in main_reasons)
for reason in reasons[:12]:
    print(f"{reason['readings']:4} {reason['why']}")
# --8<-- [end:missing]


# --8<-- [start:time]
QUESTION: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 8192}
QUESTION |= {"checkpointing": "full", "tokens": "10B"}
assert plan(**QUESTION)["assumed_mfu"] == ASSUMED_MFU
days_at, mfu_at_share = (
    {name: row[key] for name, row in zip(("step", "run"), plan(**QUESTION)["by_mfu"], strict=True)}
    for key in ("days", "mfu")
)


def share_of_peak(reading: Reading) -> float | None:
    """The MFU that a published speed is; None if it would be more than the peak of the card and the tokens we know."""
    question = {name: value for name, value in next(asked_of(reading.settings)).items() if name not in SPEEDS}
    if reading.what == "step_seconds":
        speed = {"step_seconds": reading.value}
    elif reading.what == "run_seconds":
        speed = {"tokens_per_second": reading.about["run_tokens"] / reading.value}
    else:
        of = int(question.get("gpus", 1)) if reading.what == A_GPU else 1
        speed = {"tokens_per_second": of * reading.value}
    try:
        return float(plan(**question, **speed)["mfu"])
    except ValueError:
        return None


speeds = [each for each in compared if each.reading.kind == "rate" and each.said]
found_shares = {source: [share_of_peak(each.reading) for each in found] for source, found in by_source(speeds).items()}
impossible_speeds = sum(share is None for found in found_shares.values() for share in found)
implied = {source: sorted(share for share in found if share) for source, found in found_shares.items()}
speeds_of = [
    {"name": heads[source].get("repository", source), "readings": len(found)}
    | {"low_share": found[0], "median_share": statistics.median(found), "high_share": found[-1]}
    for source, found in sorted(implied.items(), key=lambda item: statistics.median(item[1]))
]
every_share = sorted(share for found in implied.values() for share in found)
speed_readings, speed_sources = len(every_share), len(implied)
tenth_implied_share, *_, ninetieth_implied_share = statistics.quantiles(every_share, n=10)
print(
    f"{speed_readings} speeds; eight of ten have an MFU of {tenth_implied_share:.2f} to {ninetieth_implied_share:.2f}"
)
print(f"{impossible_speeds} more would be above the peak", *speeds_of, sep="\n")
# --8<-- [end:time]


# --8<-- [start:estimators]
ESTIMATORS = FOLDER / "estimators"
ALIKE = ("llm-analysis", "deepspeed", "eleuther")  # which express readings of more than one source in common
Asked = dict[tuple[str, str, int, str], tuple[Compared, float]]  # a reading, and what an estimator says over it


def of_them(ratios: Iterable[float]) -> dict[str, float]:
    """Over readings, not over sources: some estimators express those of one source alone."""
    off = [abs(ratio - 1) for ratio in ratios]
    return {"median_error_share": statistics.median(off), "within_share": sum(each <= NEAR for each in off) / len(off)}


estimated: dict[str, Asked] = {}
for tool, each, said in estimates(ESTIMATORS, asked):
    key = (each.reading.source, each.reading.table, each.reading.row, each.reading.what)
    estimated.setdefault(tool, {})[key] = each, nearest_ratio(said, each.reading.value)
estimators: dict[str, dict[str, Any]] = {}
for tool, head in read_said(ESTIMATORS).items():
    of_tool = [each for each, _ in estimated[tool].values()]
    ratios = sorted(ratio for _, ratio in estimated[tool].values())
    estimators[tool] = {"name": head["name"], "readings": len(of_tool), "sources": len(by_source(of_tool))}
    estimators[tool] |= of_them(ratios) | {"low_ratio": ratios[0], "high_ratio": ratios[-1]}
    estimators[tool] |= {"planned": of_them(map(today, of_tool)), "planned_first": of_them(map(at_first, of_tool))}
    print(tool, estimators[tool])


def in_common(tools: Iterable[str]) -> dict[str, Any]:
    """The same readings for several estimators, and for the planner."""
    keys = sorted(set.intersection(*(set(estimated[tool]) for tool in tools)))
    found: dict[str, Any] = {"readings": len(keys), "sources": len({source for source, *_ in keys})}
    errors = {tool: of_them(estimated[tool][key][1] for key in keys)["median_error_share"] for tool in tools}
    planned = of_them(today(estimated[ALIKE[0]][key][0]) for key in keys)["median_error_share"]
    return found | {"median_error_share": errors | {"planned": planned}}


in_common_of = {"three": in_common(ALIKE), "all": in_common(estimators)}
print(in_common_of)
# --8<-- [end:estimators]
