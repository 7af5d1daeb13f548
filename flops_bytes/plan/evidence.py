"""How far off the planner was published readings of memory, by the kind of run; and the one verdict, which knows it."""

from collections.abc import Mapping
from typing import Any


def run_family(a: Mapping[str, Any]) -> str:
    """What is trained, and whether it is sharded: the readings that say how much room a run of this kind needs."""
    trained = "full" if not a["lora"] else "lora" if a["base"] == "as-recipe" else "qlora"
    return trained + ("-sharded" if a["gpus"] > 1 and a["zero"] != "0" else "")


def run_kind(a: Mapping[str, Any]) -> str:
    """The kind of a run, by its options; none for what few publish."""
    usual = a["attention"] == "fused" and a["optimizer"] == "adamw" and a["offload"] == "no"
    usual = usual and a["matmuls"] == "as-recipe"
    return run_family(a) if usual and a["task"] == "train" else ""


WITH_ROOM, ON_PAPER, MISSES = "fits with room", "fits on paper", "does not fit"


def verdict(needs_bytes: float, with_room_bytes: float, card_bytes: float) -> str:
    """The one answer to whether a run fits: with the room that such runs need beyond their plans, by the plan alone, or
    not."""
    if needs_bytes > card_bytes:
        return MISSES
    return WITH_ROOM if with_room_bytes <= card_bytes else ON_PAPER


def judge_fit(a: Mapping[str, Any], needs_bytes: int, card_bytes: float) -> dict[str, Any]:
    """What an answer about a training says of it: the verdict, the kind of run, and what nine of ten published runs of
    its family needed at most for such a plan."""
    room = float(EVIDENCE[run_family(a)][5])
    with_room_bytes = int(needs_bytes * room)
    return {
        "verdict": verdict(needs_bytes, with_room_bytes, card_bytes),
        "fits": needs_bytes <= card_bytes,
        "kind": run_kind(a),
        "room_ratio": room,
        "with_room_bytes": with_room_bytes,
    }


# Of each kind with published readings: how many, then planned over published: lowest, highest, and between which the
# middle nine tenths lie; then how many times the plan nine of ten took at most. Written by `python -m published
# --evidence`; no hand types what follows.
EVIDENCE: dict[str, tuple[int, str, str, str, str, str]] = {
    "full": (46, "0.50", "1.01", "0.73", "1.00", "1.29"),
    "full-sharded": (33, "0.66", "1.02", "0.69", "1.01", "1.41"),
    "lora": (133, "0.29", "1.04", "0.49", "1.00", "1.64"),
    "lora-sharded": (50, "0.80", "1.13", "0.81", "1.10", "1.23"),
    "qlora": (67, "0.40", "1.01", "0.52", "1.00", "1.67"),
    "qlora-sharded": (32, "0.51", "1.40", "0.52", "1.09", "1.44"),
}
