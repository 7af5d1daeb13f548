"""How many GPUs a training takes that has to be done in so many days."""

from collections.abc import Callable, Mapping
from typing import Any

from flops_bytes.plan.options import read_option

MOST_GPUS = 2**20
USUAL_NODE_GPUS = 8


def has_deadline(asked: Mapping[str, Any]) -> bool:
    """Whether both what is trained on and its days are told: then they ask for GPUs."""
    return bool(asked.get("days") and (asked.get("tokens") or asked.get("text")) and asked.get("task") != "serve")


def settled(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The question that an answer is of: with as many GPUs as were asked for or found, and without the days."""
    if "fleet" not in answer:
        return dict(asked)
    return with_gpus(asked, asked.get("gpus") or answer["fleet"]["gpus"])


def with_gpus(asked: Mapping[str, Any], gpus: Any) -> dict[str, Any]:
    """The same of so many GPUs; one that was found, not asked for, has none to share with."""
    number, asked_gpus = read_option("gpus", gpus), read_option("gpus", asked.get("gpus") or USUAL_NODE_GPUS)
    left_out = ("days", "zero") if number == 1 < asked_gpus else ("days",)
    told = {name: value for name, value in asked.items() if name not in left_out} | {"gpus": gpus}
    if rate := asked.get("tokens_per_second"):  # of all that were told: each of them does as much
        told["tokens_per_second"] = read_option("tokens_per_second", rate) * number / asked_gpus
    return told


def plan_for_deadline(
    asked: Mapping[str, Any], plan_once: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """What `plan_once` says; if there is a deadline, with the GPUs that it takes, and of so many if none are told.

    They are those that are done in time if all steps are good ones, or at the speed that was told; `run_gpus` are those
    that are as a whole run (RUN_MFU). Raises ValueError with the mend.
    """
    if not has_deadline(asked):
        return plan_once(asked)
    days, asked_gpus = read_option("days", asked["days"]), asked.get("gpus")
    for speed in ("tokens_per_second", "step_seconds"):
        if asked.get(speed) and not asked_gpus:
            raise ValueError(f"--{speed.replace('_', '-')}: it is of all GPUs; give --gpus, or --mfu instead")
    gpus = read_option("gpus", asked_gpus or USUAL_NODE_GPUS)
    answer = plan_once(with_gpus(asked, gpus))
    # What the FLOPs alone ask for, if all are the model's: computing again and waiting ask for more.
    peak_tokens_per_second = answer["tokens_per_second"] / answer["mfu"] / gpus  # of one GPU
    gpus_at_peak = answer["tokens"] / (86_400 * days * peak_tokens_per_second)  # GPUs at an MFU of 1
    first_gpus = rounded_up(gpus_at_peak / (answer["assumed_mfu"] or answer["mfu"]))
    needed_gpus, answer_of_needed = gpus_in_time(asked, plan_once, first_gpus, days, 0)
    is_assumed = bool(answer["by_mfu"])
    run_gpus = gpus_in_time(asked, plan_once, needed_gpus, days, -1)[0] if is_assumed else None
    fleet = {"days": days, "gpus": needed_gpus, "run_gpus": run_gpus}
    return (answer if asked_gpus else answer_of_needed) | {"fleet": fleet}


def gpus_in_time(
    asked: Mapping[str, Any], plan_once: Callable[[Mapping[str, Any]], dict[str, Any]], gpus: int, days: float, row: int
) -> tuple[int, dict[str, Any]]:
    """From so many GPUs on, those that are done in so many days, by a row of `by_mfu`, and what is planned of them."""
    while gpus <= MOST_GPUS:
        answer = plan_once(with_gpus(asked, gpus))
        took_days = answer["by_mfu"][row]["days"] if answer["by_mfu"] else answer["days"]
        if took_days <= 1.000001 * days:
            return gpus, answer
        gpus = max(gpus + 1, rounded_up(gpus * took_days / days))
    raise ValueError(f"--days: that takes more than {MOST_GPUS:,} GPUs; give it more days")


def rounded_up(number: float) -> int:
    """The next whole number, at least 1."""
    whole = int(number)
    return max(1, whole if whole == number else whole + 1)
