"""How many GPUs a training takes that has to be done in so many days."""

from collections.abc import Callable, Mapping
from typing import Any

from flops_bytes.plan.options import read

MOST_GPUS = 2**20
A_NODE = 8


def has_deadline(asked: Mapping[str, Any]) -> bool:
    """Whether both what is trained on and its days are told: then they ask for GPUs."""
    return bool(asked.get("days") and (asked.get("tokens") or asked.get("text")) and asked.get("task") != "serve")


def settled(asked: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The question that an answer is of: with as many GPUs as were asked for or found, and without the days."""
    if "fleet" not in found:
        return dict(asked)
    return of_gpus(asked, asked.get("gpus") or found["fleet"]["gpus"])


def of_gpus(asked: Mapping[str, Any], gpus: Any) -> dict[str, Any]:
    """The same of so many GPUs; one that was found, not asked for, has none to share with."""
    number, there = read("gpus", gpus), read("gpus", asked.get("gpus") or A_NODE)
    out = ("days", "zero") if number == 1 < there else ("days",)
    told = {name: value for name, value in asked.items() if name not in out} | {"gpus": gpus}
    if rate := asked.get("tokens_per_second"):  # of all that were told: each of them does as much
        told["tokens_per_second"] = read("tokens_per_second", rate) * number / there
    return told


def in_time(asked: Mapping[str, Any], planned: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """What `planned` says; if there is a deadline, with the GPUs that it takes, and of so many if none are told.

    They are those that are done in time if all steps are good ones, or at the speed that was told; `run_gpus` are those
    that are as a whole run (RUN_MFU). Raises ValueError with the mend.
    """
    if not has_deadline(asked):
        return planned(asked)
    days, told = read("days", asked["days"]), asked.get("gpus")
    for speed in ("tokens_per_second", "step_seconds"):
        if asked.get(speed) and not told:
            raise ValueError(f"--{speed.replace('_', '-')}: it is of all GPUs; give --gpus, or --mfu instead")
    gpus = read("gpus", told or A_NODE)
    found = planned(of_gpus(asked, gpus))
    # What the FLOPs alone ask for, if all are the model's: computing again and waiting ask for more.
    at_the_peak = found["tokens_per_second"] / found["mfu"] / gpus  # tokens a second of one
    needed = found["tokens"] / (86_400 * days * at_the_peak)  # GPUs at an MFU of 1
    number, of_these = enough(asked, planned, up(needed / (found["assumed_mfu"] or found["mfu"])), days, 0)
    is_assumed = bool(found["by_mfu"])
    run_gpus = enough(asked, planned, number, days, -1)[0] if is_assumed else None
    return (found if told else of_these) | {"fleet": {"days": days, "gpus": number, "run_gpus": run_gpus}}


def enough(
    asked: Mapping[str, Any], planned: Callable[[Mapping[str, Any]], dict[str, Any]], gpus: int, days: float, row: int
) -> tuple[int, dict[str, Any]]:
    """From so many GPUs on, those that are done in so many days, by a row of `by_mfu`, and what is planned of them."""
    while gpus <= MOST_GPUS:
        found = planned(of_gpus(asked, gpus))
        took = found["by_mfu"][row]["days"] if found["by_mfu"] else found["days"]
        if took <= 1.000001 * days:
            return gpus, found
        gpus = max(gpus + 1, up(gpus * took / days))
    raise ValueError(f"--days: that takes more than {MOST_GPUS:,} GPUs; give it more days")


def up(number: float) -> int:
    """The next whole number, at least 1."""
    whole = int(number)
    return max(1, whole if whole == number else whole + 1)
