"""What others published of layouts with tensor, context and pipeline parallelism, beside what the planner says of them.

A file of measurements/published/layouts holds all rows of a source with the planner's options, and the readings as they
are written there, or where they stand among the other published readings (`row`: file, table, number).
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.model.flops import backward_flops, forward_flops, recompute_flops
from flops_bytes.plan.options import named_shape
from flops_bytes.plan.parallel import plan_layouts, read_question
from flops_bytes.plan.rank_ways import candidates_of, in_order

GIB = 2**30
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

    place: int | None  # of its degrees, from 1; None if these do not fit
    of: int  # combinations of degrees that fit
    fits: bool  # as it was run


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
    """The command's answer; what meters show is asked where the source has read one."""
    asked = {name: told for name, told in row.settings.items() if name != "card_gb"}
    asked |= {"linear": "float8" if row.float8 else "16-bit", "meters": "reserved_gib" in row.readings}
    if "card_gb" in row.settings:
        asked |= {"card_bytes": row.settings["card_gb"] * 10**9}
    return plan_layouts(**asked)


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


def nearer(interval: Sequence[int], read: float) -> int:
    """What of an interval is nearest to a reading."""
    low, high = interval
    return int(min(max(read, low), high))


def compare(row: Row) -> Said:
    """The row's two readings beside the command's."""
    answer = planned(row)
    read = float(row.readings["reserved_gib"]) * GIB if "reserved_gib" in row.readings else None
    return Said(
        row,
        nearer(answer["meters"]["reserved_bytes"], read) if read else answer["memory_bytes"]["total"],
        read,
        answer["step_seconds"],
        published_seconds(row, answer),
    )


def place(row: Row) -> Place:
    """By planned seconds, the published schedule and recomputation not told."""
    answer = planned(row)
    told: tuple[str, ...] = ("model", "shape", "gpu", "gpus", "context", "micro_batch", "recipe", "link", "regather")
    told += ("trainer", "stages", "sequence", "overlap_tp")
    asked = {"micro_batch": 1} | {name: row.settings[name] for name in told if name in row.settings}
    own = {name: answer["layout"][name] for name in ("tp", "cp", "pp")}
    found, of = stands(own, global_batch=answer["step_tokens"], **asked)
    return Place(found, of, answer["fits"])


def stands(own: Mapping[str, int], global_batch: int, **asked: Any) -> tuple[int | None, int]:
    """Where degrees stand in the planner's search, from 1, and among how many combinations of degrees that fit."""
    question = read_question(asked)
    candidates = candidates_of(question, global_batch // question.a["context"])
    listed = [*dict.fromkeys(way.candidate.degrees[:3] for way in in_order(candidates, lives=False))]
    place = tuple(own[name] for name in ("tp", "cp", "pp"))
    return listed.index(place) + 1 if place in listed else None, len(listed)
