"""What others published of layouts with tensor, context and pipeline parallelism, beside what the planner says of them.

A file of measurements/published/layouts holds all rows of a source with the planner's options, and the readings as they
are written there, or where they stand among the other published readings (`row`: file, table, number).
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.flops import backward_flops, forward_flops, recompute_flops
from flops_bytes.plan.options import named_shape
from flops_bytes.plan.parallel import assumed_share, plan

GIB = 2**30
# What float8 linear layers make of a step, from a pair of torchtitan's without such parallelism: 128 GPUs, compiled
# (measurements/published/torchtitan.toml, "128 GPUs, FSDP", rows 1 and 2).
FLOAT8 = 8_380 / 6_514
NEAR_BYTES, NEAR_SECONDS = 0.10, 0.15  # off by no more counts as near


class Row(NamedTuple):
    """A published run: the command's options for it, and what was read, as it is written there."""

    source: str
    label: str
    settings: Mapping[str, Any]
    float8: bool
    counted: str  # FLOPs of its rate: the model's, or with what is computed again
    pairs: str
    readings: Mapping[str, str]


class Place(NamedTuple):
    """Where a published layout stands among those that the planner finds for its model, GPUs and batch."""

    place: int | None  # from 1, of the first with its degrees; None if none of these fits
    of: int
    fits: bool  # as it was run
    fastest: Mapping[str, Any]


class Said(NamedTuple):
    """Of a row: planned and published; None where the source says nothing."""

    row: Row
    planned_bytes: int
    published_bytes: float | None
    planned_seconds: float
    published_seconds: float

    @property
    def bytes_ratio(self) -> float | None:
        return self.planned_bytes / self.published_bytes if self.published_bytes else None

    @property
    def seconds_ratio(self) -> float:
        return self.planned_seconds / self.published_seconds


def read_rows(folder: Path) -> Iterator[Row]:
    """All rows, from measurements/published."""
    for path in sorted((folder / "layouts").glob("*.toml")):
        held = tomllib.loads(path.read_text(encoding="utf-8"))
        for each in held["rows"]:
            yield Row(
                path.stem,
                each["label"],
                held["settings"] | each["settings"],
                each.get("float8", False),
                held.get("counted", "model"),
                held.get("pairs", "all"),
                literals(folder, *each["row"])
                if "row" in each
                else {what: each[what] for what in ("teraflops", "seconds") if what in each},
            )


def literals(folder: Path, name: str, table: str, row: int) -> dict[str, str]:
    """What was extracted for a row of another file."""
    held = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    found = [each for each in held["extracted"]["readings"] if (each["table"], each["row"]) == (table, row)]
    return {each["what"]: each["literal"].replace(",", "") for each in found}


def planned(row: Row) -> dict[str, Any]:
    """The command's answer. Tensors alone are held against what PyTorch reserved: no allowance beside them."""
    share = assumed_share({"gpu": row.settings["gpu"]})
    faster = share * (FLOAT8 if row.float8 else 1)
    return plan(**row.settings, matmul_share=faster, attention_share=share, allowance=1)


def published_seconds(row: Row, answer: Mapping[str, Any]) -> float:
    """Of a step, from the rate that was published."""
    tokens, gpus, said = answer["step_tokens"], row.settings["gpus"], row.readings
    if "seconds" in said:
        return float(said["seconds"])
    if "tokens_per_second_a_gpu" in said:
        return float(tokens / gpus / float(said["tokens_per_second_a_gpu"]))
    settings = {"model": None, "config": None, "shape": None} | dict(row.settings)
    shape, length, causal = named_shape(settings), settings["context"], row.pairs == "causal"
    flops = sum(forward_flops(shape, length, 1, causal).values())
    flops += sum(backward_flops(shape, length, 1, causal, fused=False).values())
    if row.counted == "recomputed":
        flops += sum(recompute_flops(shape, length, 1, causal, settings["checkpointing"]).values())
    return float(flops / length * tokens / gpus / (1e12 * float(said["teraflops"])))


def reserved_bytes(row: Row, answer: Mapping[str, Any]) -> int:
    """What PyTorch has reserved when a rank holds most: tensors, and the block of the first logits.

    These are in 16 bits and gone when the loss goes backward, but no float32 of as many numbers fits into their block.
    """
    total = int(answer["memory_bytes"]["total"])
    if not answer["memory_bytes"].get("logits"):
        return total
    settings, layout = {"model": None, "config": None, "shape": None} | dict(row.settings), answer["layout"]
    tokens = settings.get("micro_batch", 1) * settings["context"] // layout["cp"]
    return total + int(2 * tokens * named_shape(settings).vocab // layout["tp"])


def compare(row: Row) -> Said:
    """The row's two readings beside the command's."""
    answer = planned(row)
    reserved = row.readings.get("reserved_gib")
    return Said(
        row,
        reserved_bytes(row, answer),
        float(reserved) * GIB if reserved else None,
        answer["step_seconds"],
        published_seconds(row, answer),
    )


def place(row: Row) -> Place:
    """By planned seconds, the published schedule and recomputation not told."""
    answer = planned(row)
    told: tuple[str, ...] = ("model", "shape", "gpu", "gpus", "context", "micro_batch", "recipe", "link", "regather")
    told += ("stages", "boundaries", "summed_in", "gate")
    asked = {name: row.settings[name] for name in told if name in row.settings}
    rows = plan(**asked, global_batch=answer["step_tokens"], layouts=10**6)["layouts"]
    own = [answer["layout"][name] for name in ("tp", "cp", "pp")]
    found = [number for number, each in enumerate(rows, 1) if [each[name] for name in ("tp", "cp", "pp")] == own]
    return Place(found[0] if found else None, len(rows), answer["fits"], rows[0])
