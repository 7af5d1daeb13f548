# /// script
# requires-python = ">=3.11"
# [tool.ledger]
# data = ["measurements/published/torchtitan*.toml", "measurements/published/layouts/*.*"]
# ///
"""How far off plans of layouts are: memory and step times beside what others published, row by row."""

# --8<-- [start:setup]
import json
from pathlib import Path
from typing import Any

from flops_bytes.model.config import read_stack
from flops_bytes.model.presets import PRESETS
from flops_bytes.parallel.stacks import Split
from flops_bytes.plan.parallel import plan_layouts
from flops_bytes.time.gpus import GPUS
from flops_bytes.time.layouts import FLOAT8_SPEEDUP, slowdowns
from published.layouts import NEAR_BYTES, NEAR_SECONDS, Said, compare, place, read_rows

FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())
FIRST = json.loads((FOLDER / "layouts" / "first.json").read_text(encoding="utf-8"))  # written before any was compared
FLOAT8_RATIO = FLOAT8_SPEEDUP
LONGER = {card: dict(zip(("least", "middle", "most"), slowdowns(card), strict=True)) for card in ("A100", "H100")}
NEAR_BYTES_SHARE, NEAR_SECONDS_SHARE = NEAR_BYTES, NEAR_SECONDS
# --8<-- [end:setup]


# --8<-- [start:rows]
def told(said: Said, first: dict[str, Any]) -> dict[str, Any]:
    """A row, for a table: what is planned now, what was planned first, what was published."""
    bytes_then, seconds_then = first["bytes"], first["seconds"]
    return {
        "label": said.row.label + (", float8" if said.row.float8 else ""),
        "planned_bytes": said.planned_bytes,
        "published_bytes": said.published_bytes,
        "bytes_ratio": said.bytes_ratio,
        "first_bytes_ratio": bytes_then / said.published_bytes if said.published_bytes else None,
        "planned_step_seconds": said.planned_seconds,
        "published_step_seconds": said.published_seconds,
        "step_ratio": said.seconds_ratio,
        "first_step_ratio": seconds_then / said.published_seconds,
    }


ALL = list(read_rows(FOLDER))
SOURCES = sorted({row.source for row in ALL})
ROWS = {
    source: {
        str(number): told(compare(row), FIRST[source][number])
        for number, row in enumerate(each for each in ALL if each.source == source)
    }
    for source in SOURCES
}
# --8<-- [end:rows]


# --8<-- [start:near]
def near(ratio: str, within: float, sources: list[str]) -> dict[str, Any]:
    """How many rows of some sources have a reading, how many of these lie near, and the two that lie farthest."""
    rows = [row for source in sources for row in ROWS[source].values()]
    ratios = sorted(row[ratio] for row in rows if row[ratio] is not None)
    inside = sum(1 - within <= each <= 1 + within for each in ratios)
    return {"rows": len(ratios), "near": inside, "low_ratio": ratios[0], "high_ratio": ratios[-1]}


NEAR = {
    "memory": near("bytes_ratio", NEAR_BYTES, SOURCES),
    "memory_first": near("first_bytes_ratio", NEAR_BYTES, SOURCES),
    "steps": near("step_ratio", NEAR_SECONDS, SOURCES),
    "steps_first": near("first_step_ratio", NEAR_SECONDS, SOURCES),
} | {source: near("step_ratio", NEAR_SECONDS, [source]) for source in SOURCES}
WHOLE_STEPS = [float(row.readings["teraflops"]) for row in ALL if row.source == "megatron-lm-2024"]
reached_share = 1e12 * max(WHOLE_STEPS) / GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]  # of the peak, all waits in
for what, found in NEAR.items():
    print(f"{what:26}{found['near']:3} of {found['rows']:3}, {found['low_ratio']:.2f} to {found['high_ratio']:.2f}")
# --8<-- [end:near]


# --8<-- [start:places]
STANDS: dict[str, dict[str, Any]] = {}
for what, label in (("70b", "70B, TP 8"), ("405b", "405B, TP 8, PP 16, 16,384 GPUs")):
    found_at = place(next(row for row in ALL if row.label == label))
    STANDS[what] = {"place": found_at.place, "of": found_at.of}
    print(f"{what:12}{found_at.place or 'none':>4} of {found_at.of}")
V3 = Split(read_stack(PRESETS["deepseek-v3"].config), "deepseek_v3")
BATCH_TOKENS = 15_360 * 4_096  # DeepSeek-V3's
THEIRS = {"gpu": "H800 SXM", "gpus": 2048, "context": 4096, "global_batch": BATCH_TOKENS}
# --8<-- [end:places]


# --8<-- [start:deepseek]
ASKED = THEIRS | {"pp": 16, "ep": 64, "zero": 1}
GPU_HOURS, TOKENS = 2.664e6, 14.8e12  # of pre-training (arXiv 2412.19437, table 1 and section 4.2)
published_step = GPU_HOURS * 3_600 / 2_048 * BATCH_TOKENS / TOKENS
DEEPSEEK = {}
for kind in ("none", "full"):
    layout = plan_layouts(V3, **ASKED, checkpointing=kind, meters=False)
    DEEPSEEK[kind] = {
        "planned_bytes": layout["memory_bytes"]["total"],
        "fits": layout["fits"],
        "step_ratio": layout["step_seconds"] / published_step,
        "expert_share": layout["seconds"]["expert"] / layout["step_seconds"],
    }
    print(
        f"{kind:6}{DEEPSEEK[kind]['planned_bytes'] / 1e9:6.1f} GB, step {DEEPSEEK[kind]['step_ratio']:.2f} × published"
    )
# --8<-- [end:deepseek]
