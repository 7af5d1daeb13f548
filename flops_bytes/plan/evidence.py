"""How far the planner was off published readings of memory, by the kind of run: what an answer says of its own."""

from collections.abc import Mapping
from typing import Any


def kind_of(told: Mapping[str, Any]) -> str:
    """The kind of a run, by its options: what is trained, and whether it is sharded; none for what few publish."""
    trained = "full" if not told["lora"] else "lora" if told["base"] == "as-recipe" else "qlora"
    sharded = "-sharded" if told["gpus"] > 1 and told["zero"] != "0" else ""
    usual = told["attention"] == "fused" and told["optimizer"] == "adamw" and told["offload"] == "no"
    usual = usual and told["matmuls"] == "as-recipe"
    return trained + sharded if usual and told["task"] == "train" else ""


# Of each kind with published readings: how many, then planned over published: lowest, highest, and between which the
# middle nine tenths lie. Written by `flops-bytes published --evidence`; no hand types what follows.
EVIDENCE: dict[str, tuple[int, str, str, str, str]] = {
    "full": (46, "0.50", "1.01", "0.73", "1.00"),
    "full-sharded": (33, "0.66", "1.02", "0.69", "1.01"),
    "lora": (133, "0.29", "1.04", "0.49", "1.00"),
    "lora-sharded": (50, "0.79", "1.13", "0.80", "1.10"),
    "qlora": (67, "0.40", "1.01", "0.54", "1.00"),
    "qlora-sharded": (32, "0.51", "1.40", "0.51", "1.10"),
}
