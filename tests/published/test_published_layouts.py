"""All published rows with tensor, context or pipeline parallelism are held against plans, as they were written."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from typing import Any

import pytest

from flops_bytes.model.shapes import LLAMA_3_8B, parameters
from flops_bytes.parallel.layouts import Layout
from flops_bytes.plan.options import named_shape
from flops_bytes.time.gpus import GPUS
from flops_bytes.time.layouts import FLOAT8_SPEEDUP, layer_seconds, rank_seconds
from published.layouts import (
    NEAR_BYTES,
    NEAR_SECONDS,
    Row,
    compare,
    literals,
    place,
    planned,
    published_seconds,
    read_rows,
    stands,
)
from tests.conftest import ROOT

FOLDER = ROOT / "measurements" / "published"
ROWS = list(read_rows(FOLDER))
FIRST = json.loads((FOLDER / "layouts" / "first.json").read_text(encoding="utf-8"))
UTILIZATION = {"22B": 41.5, "175B": 51.4, "530B": 56.0, "1T": 56.3}  # arXiv 2205.05198, table 5, of the new rows


def shape_of(row: Row) -> Any:
    return named_shape({"model": None, "config": None, "shape": None} | dict(row.settings))


def test_all_rows_that_the_other_files_leave_to_the_layouts_are_there() -> None:
    missing: Counter[tuple[str, str]] = Counter()
    for path in FOLDER.glob("torchtitan*.toml"):
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["tables"]:
            columns = len(table.get("columns", [{}]))
            whys = [(table["settings"] | row).get("missing", "") for row in table["rows"] for _ in range(columns)]
            if any("layouts/torchtitan.toml" in why for why in whys):
                missing[path.stem, table["name"]] += len(whys)
    held = tomllib.loads((FOLDER / "layouts" / "torchtitan.toml").read_text(encoding="utf-8"))["rows"]
    assert Counter((name, table) for name, table, _ in (row["row"] for row in held)) == missing
    assert len({tuple(row["row"]) for row in held}) == len(held) == 27


def test_the_first_predictions_are_of_the_same_rows() -> None:
    for source in {row.source for row in ROWS}:
        assert [row.label for row in ROWS if row.source == source] == [each["label"] for each in FIRST[source]]


@pytest.mark.parametrize("row", [row for row in ROWS if row.source[:8] == "megatron"], ids=lambda row: row.label)
def test_a_megatron_model_has_as_many_parameters_as_it_is_called(row: Row) -> None:
    billions = float(row.label.split("B,")[0])
    digits = 0.6 if billions >= 10 and row.source == "megatron-lm-2024" else 0.05  # these are rounded, some upwards
    assert abs(sum(parameters(shape_of(row)).values()) / 1e9 - billions) <= digits
    assert row.settings["gpus"] % (row.settings["tp"] * row.settings["pp"]) == 0


def test_published_iterations_agree_with_their_own_utilization() -> None:
    rows = [row for row in ROWS if row.source == "selective-recomputation" and row.label.endswith("selective")]
    for row in rows:
        answer, peak = planned(row), GPUS["A100 80GB SXM"].peak_flop_per_second["bfloat16"]
        flops = answer["mfu"] * answer["step_seconds"] * row.settings["gpus"] * peak
        mfu = flops / (published_seconds(row, answer) * row.settings["gpus"] * peak)
        assert 100 * mfu == pytest.approx(UTILIZATION[row.label.split(",")[0]], rel=5e-3)


def test_float8_is_what_the_pair_without_parallelism_says() -> None:
    rate = "tokens_per_second_a_gpu"
    before, after = (float(literals(FOLDER, "torchtitan", "128 GPUs, FSDP", row)[rate]) for row in (1, 2))
    step = rank_seconds(LLAMA_3_8B, Layout(data=128, zero=3), 0, 8192, 2, "H100 SXM", "autocast", "per-op")
    linear = 32 * layer_seconds(LLAMA_3_8B, 1, True, 2 * 8192, 8192, "H100 SXM", "per-op")["matmuls"]
    rest = sum(step.values()) - linear
    assert linear / ((linear + rest) * before / after - rest) == pytest.approx(FLOAT8_SPEEDUP, rel=1e-3)


def test_as_many_rows_are_near_as_is_said() -> None:
    said = [compare(row) for row in ROWS]
    held = [each.bytes_ratio for each in said if each.bytes_ratio]
    assert len(held) == 12 and sum(abs(ratio - 1) <= NEAR_BYTES for ratio in held) == 11
    assert len(said) == 57 and sum(abs(each.seconds_ratio - 1) <= NEAR_SECONDS for each in said) == 32


def test_a_published_layout_has_its_place_among_those_that_fit() -> None:
    alone = {"model": "llama-3-8b", "gpu": "H100 SXM", "recipe": "autocast", "context": 8192}
    assert stands({"tp": 1, "cp": 1, "pp": 1}, **alone, gpus=8, global_batch=8 * 2 * 8192)[0] == 1  # torchtitan's FSDP
    found = place(next(row for row in ROWS if row.label == "70B, TP 8"))
    assert found.fits and 1 <= (found.place or 0) <= 2 < found.of
