"""How many GPUs a training takes that has to be done in so many days."""

from collections.abc import Callable, Mapping
from typing import Any

from flops_bytes.plan.options import read
from flops_bytes.plan.training import BOOKED_MFU

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
    """The same of so many GPUs; one has none to share with."""
    out = ("days", "zero") if gpus == 1 else ("days",)
    return {name: value for name, value in asked.items() if name not in out} | {"gpus": gpus}


def in_time(asked: Mapping[str, Any], planned: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """What `planned` says; if there is a deadline, with the GPUs that it takes, and of so many if none are told.

    They are as many as the FLOPs ask for at the MFU that was told or is assumed, and more where communication makes
    these wait. `booked_gpus` are those at the MFU to book by, if that is more. Raises ValueError with the mend.
    """
    if not has_deadline(asked):
        return planned(asked)
    days, told = read("days", asked["days"]), asked.get("gpus")
    for speed in ("tokens_per_second", "step_seconds"):
        if asked.get(speed) and not told:
            raise ValueError(f"--{speed.replace('_', '-')}: it is of all GPUs; give --gpus, or --mfu instead")
    gpus = read("gpus", told or A_NODE)
    found = planned(of_gpus(asked, gpus))
    at_the_peak = found["tokens_per_second"] / found["mfu"] / gpus  # tokens a second of one
    needed = found["tokens"] / (86_400 * days * at_the_peak)  # GPUs at an MFU of 1
    number = up(needed / (found.get("assumed_mfu") or found["mfu"]))
    of_these = found if number == gpus else planned(of_gpus(asked, number))
    while of_these["days"] > 1.000001 * days:
        number = max(number + 1, up(number * of_these["days"] / days))
        if number > MOST_GPUS:
            raise ValueError(f"--days: that takes more than {MOST_GPUS:,} GPUs; give it more days")
        of_these = planned(of_gpus(asked, number))
    booked = up(needed / BOOKED_MFU[0])
    is_more = found["mfu_is_assumed"] and booked > number  # else communication leaves less than that MFU already
    fleet = {
        "days": days,
        "gpus": number,
        "booked_mfu": BOOKED_MFU[0] if is_more else None,
        "booked_gpus": booked if is_more else None,
    }
    return (found if told else of_these) | {"fleet": fleet}


def up(number: float) -> int:
    """The next whole number, at least 1."""
    whole = int(number)
    return max(1, whole if whole == number else whole + 1)
