"""What cannot be is refused in a sentence, a layout's numbers are parallel/layouts.py's, a list is sorted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from flops_bytes.model.shapes import LLAMA_3_8B, LLAMA_3_70B, MIXTRAL_8X7B
from flops_bytes.parallel.layouts import (
    Layout,
    bubble,
    context_kv_bytes,
    distinct_ranks,
    fullest,
    once_a_step,
    rank_bytes,
    rates,
    sent,
    step_seconds,
)
from flops_bytes.plan import parallel
from flops_bytes.plan import plan as plan_any
from flops_bytes.plan import plan_exactly as plan_alike
from flops_bytes.plan.parallel import (
    DEGREES,
    PARALLEL,
    candidate_layouts,
    evaluate_layout,
    fastest_layouts,
    plan_layouts,
    read_question,
)
from tests.conftest import ROOT

ASKED: dict[str, Any] = {"model": "llama-3-70b", "gpu": "H100 SXM", "gpus": 256, "context": 8192, "zero": 1}
SPLIT = ASKED | {"tp": 8, "pp": 4, "global_batch": "4M"}
SCHEMA = json.loads((ROOT / "flops_bytes" / "plan" / "schema.json").read_text(encoding="utf-8"))


def command(asked: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    words = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    told = [sys.executable, "-m", "flops_bytes", "plan", *words, *more]
    return subprocess.run(told, capture_output=True, text=True, cwd=ROOT, check=False)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({"tp": 48, "gpus": 480}, "--tp: 48 ranks cannot share 64 heads and 28672 features"),
    "stages": ({"pp": 128}, "--pp: 80 layers do not fill 128 stages"),
    "gpus": ({"tp": 8, "pp": 3}, "--gpus: 256 are no multiple of what --tp, --cp and --pp make together; give"),
    "experts": ({"ep": 2}, "--ep: 2 ranks cannot share 1 experts within 256 ranks of the data"),
    "schedule": (
        {"pp": 4, "schedule": "dual"},
        "--schedule: 'dual' is not known; choose gpipe, 1f1b, interleaved, zero-bubble",
    ),
    "virtual": ({"pp": 4, "virtual_stages": 2}, "--virtual-stages: 1f1b gives a rank one stage"),
    "turns": (
        {"pp": 4, "schedule": "interleaved", "micro_batches": 6},
        "--micro-batches: interleaved goes in turns of the pipeline ranks; give a multiple of 4",
    ),
    "tokens": ({"cp": 64, "context": 100, "gpus": 64}, "--context: 100 cannot be cut into 128 equal parts"),
    "batch": (
        {"tp": 8, "global_batch": 100_000},
        "--global-batch: 100000 tokens are no micro-batches of all; give a multiple of 262144",
    ),
    "two batches": ({"tp": 8, "global_batch": "4M", "micro_batches": 4}, "--global-batch: --micro-batches or"),
    "adapters": ({"tp": 8, "lora": 8}, "--lora: it is not derived for tensor, context, pipeline or expert parallelism"),
    "serving": ({"tp": 8, "task": "serve"}, "--task: it is not derived"),
    "no number": ({"tp": "x"}, "--tp: 'x' is not a number above 0"),
    "no batch": ({"layouts": 3}, "--global-batch: --layouts shares out the tokens of a step"),
    "no room": ({"layouts": 3, "gpus": 1, "zero": 0, "global_batch": "8k"}, "--layouts: none fits"),
    "no such option": ({"tp": 8, "nosuch": 1}, "--nosuch: not an option"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence_with_its_option(case: str) -> None:
    change, sentence = REFUSED[case]
    with pytest.raises(ValueError) as caught:
        plan_layouts(**(ASKED | change))
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)


def test_an_answer_is_what_the_formulas_say() -> None:
    found = plan_layouts(**SPLIT, matmul_share=0.5, allowance=1)
    layout = Layout(data=8, tensor=8, pipeline=4, zero=1, micro_batches=64)
    held = [rank_bytes(LLAMA_3_70B, layout, rank, 8192) for rank in range(4)]
    assert found["fullest_rank"] == fullest(held) == 0
    assert found["memory_bytes"]["total"] == sum(held[0].values()) + 1
    rate = rates(layout, 0.8 * 450e9, 0.8 * 50e9)
    seconds = step_seconds(LLAMA_3_70B, layout, 8192, 0.5 * 989.4e12, rate)
    assert found["seconds"] == pytest.approx(seconds, rel=1e-3) and found["step_seconds"] == sum(
        found["seconds"].values()
    )
    assert found["bubble_share"] == bubble(layout) and found["step_tokens"] == 2**22
    each = {one["by"]: one for one in found["sent"]}
    assert {by: one["bytes"] for by, one in each.items()} == {
        by: size for by, size in sent(LLAMA_3_70B, layout, 0, 8192)._asdict().items() if size
    }
    assert [each[by]["level"] for by in ("tensor", "pipeline", "data")] == ["node", "network", "network"]
    assert found["mfu"] < 0.5


def test_zero_3_in_a_pipeline_keeps_what_it_gathers_and_sends_once_a_step() -> None:
    inside, alone = Layout(data=8, pipeline=4, zero=3, micro_batches=8), Layout(data=8, zero=3, micro_batches=8)
    assert once_a_step(inside).zero == 1 and once_a_step(alone) is alone
    held = rank_bytes(LLAMA_3_8B, inside, 1, 8192, recipe="autocast")
    assert held["gradients"] == 2 * held["gathered"]  # float32 beside 16 bits, both whole
    assert "reduced" in rank_bytes(LLAMA_3_8B, alone, 0, 8192, recipe="autocast")


def test_attention_may_have_a_rate_of_its_own() -> None:
    both, slow = (plan_layouts(**SPLIT, matmul_share=0.5, attention_share=share)["seconds"] for share in (0.5, 0.25))
    assert slow["matmuls"] > both["matmuls"] and {**slow, "matmuls": 0, "bubble": 0, "data": 0} == {
        **both, "matmuls": 0, "bubble": 0, "data": 0
    }  # fmt: skip


def test_a_library_that_frees_fuses_or_sums_in_float32_holds_as_much_less_or_more() -> None:
    held = plan_layouts(**SPLIT)["memory_bytes"]
    freed = plan_layouts(**SPLIT, boundaries="freed")["memory_bytes"]
    features = 2 * 8192 * 8192 // 8  # of a micro-batch, on a tensor rank
    assert freed == held | {"boundaries": features, "total": held["total"] - held["boundaries"] + features}
    fused = plan_layouts(**SPLIT, gate="fused")["memory_bytes"]
    inner = 2 * 8192 * 28672 // 8
    assert held["activations"] - fused["activations"] == 4 * 20 * inner  # in flight, of the layers of the first rank
    wide = plan_layouts(**SPLIT, summed_in="fp32")["memory_bytes"]
    assert wide["gradients"] == 2 * held["gradients"] and wide["activations"] == held["activations"]


def test_gradients_of_zero_2_are_whole_until_they_are_reduced() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 2, "context": 1024, "micro_batch": 2}
    asked |= {"checkpointing": "full"}
    for accumulation in (1, 4):
        counted = plan_alike(**asked, accumulation=accumulation)["memory_bytes"]["total"]
        assert plan_layouts(**asked, accumulation=accumulation, tp=1)["memory_bytes"]["total"] == pytest.approx(
            counted, 0.01
        )


def test_tensor_ranks_gather_the_copies_of_tokens_that_come_to_their_experts() -> None:
    layout, row = Layout(tensor=2), 2 * 1024 * MIXTRAL_8X7B.d_model
    once = sent(replace(MIXTRAL_8X7B, experts=1, active_experts=1), layout, 0, 1024).tensor
    # forward and backward a ring of two sends each byte of a gathered and of a scattered row once
    assert once == 32 * 4 * row and sent(MIXTRAL_8X7B, layout, 0, 1024).tensor == 32 * (2 + 2 * 2) * row


def test_interleaved_stages_are_listed_in_powers_of_two() -> None:
    for schedule, stages in (("interleaved", {2, 4, 8, 16}), ("zero-bubble", {1, 2, 4, 8, 16})):
        asked = ASKED | {"global_batch": "4M", "layouts": 1, "tp": 8, "pp": 4, "schedule": schedule}
        assert {layout.virtual for layout, _ in candidate_layouts(read_question(asked))} == stages


def test_even_stages_count_layers_alone() -> None:
    gpt = "layers=105 d_model=20480 heads=128 kv_heads=128 head_dim=160 d_ff=81920 vocab=51200 gated=no"
    asked = {"shape": gpt, "gpu": "A100 80GB SXM", "gpus": 280, "tp": 8, "pp": 35, "micro_batches": 70, "context": 2048}
    assert {each["layers"] for each in plan_layouts(**asked, stages="even")["ranks"]} == {3}
    assert [each["layers"] for each in plan_layouts(**asked)["ranks"]][:4] == [3, 4, 3, 3]


def test_listed_layouts_fit_and_are_sorted() -> None:
    found = plan_layouts(**ASKED | {"zero": None}, global_batch="4M", layouts=1000)
    rows = found["layouts"]
    assert len(rows) == found["layouts_that_fit"] > 10
    assert [row["step_seconds"] for row in rows] == sorted(row["step_seconds"] for row in rows)
    for row in rows[:5]:
        again = {name: row[name] for name in (*DEGREES, "zero", "schedule", "checkpointing")}
        more = {"virtual_stages": row["virtual_stages"]} if row["schedule"] == "interleaved" else {}
        alone = plan_layouts(**ASKED | again | more, global_batch="4M")
        assert (alone["step_seconds"], alone["memory_bytes"]["total"]) == (row["step_seconds"], row["needs_bytes"])
        assert alone["fits"] and alone["binds"] == row["binds"]


def test_of_each_combination_of_degrees_the_fastest_that_fits_is_listed() -> None:
    question = read_question(ASKED | {"zero": None, "global_batch": "4M", "layouts": 1, "tp": 8})
    every = [(layout, kind, evaluate_layout(question, layout, kind)) for layout, kind in candidate_layouts(question)]
    fitting = [each for each in every if each[2].needs_bytes <= question.memory_bytes]
    rows = fastest_layouts(question)
    assert len({(row.context, row.pipeline) for row, _, _ in rows}) == len(rows) < len(fitting) < len(every)
    for layout, _, found in rows:
        alike = [one.step_seconds for each, _, one in fitting if each[1:6] == layout[1:6]]
        assert found.step_seconds == min(alike)


def test_a_list_that_would_take_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ASKED | {"gpus": 64, "global_batch": "4M", "layouts": 3}
    assert plan_layouts(**asked)["layouts_that_fit"] > 0
    monkeypatch.setattr(parallel, "MOST_TRIED", 100)
    with pytest.raises(ValueError, match=r"^--layouts: more than 100 layouts and stages to try; give --tp, "):
        plan_layouts(**asked)
    assert plan_layouts(**asked, tp=8, pp=8, schedule="1f1b")["layouts_that_fit"] > 0


def test_a_degree_that_is_told_need_be_no_power_of_two() -> None:
    asked = {"model": "gpt2-xl", "gpu": "H100 SXM", "gpus": 30, "context": 1024, "global_batch": 1024 * 30, "zero": 0}
    rows = plan_layouts(**asked, layouts=9, pp=3)["layouts"]
    assert rows and {(row["pp"], row["zero"]) for row in rows} == {(3, 0)}


@pytest.mark.parametrize("layout", [Layout(pipeline=6, virtual=2, schedule="interleaved", micro_batches=6)])
def test_of_pipeline_ranks_that_are_alike_the_first_holds_most(layout: Layout) -> None:
    few = distinct_ranks(LLAMA_3_70B, layout.pipeline, layout.virtual, layout.ends_are_layers)
    held = [sum(rank_bytes(LLAMA_3_70B, layout, rank, 8192).values()) for rank in range(layout.pipeline)]
    assert 0 in few and len(few) < layout.pipeline and max(held) == max(held[rank] for rank in few)


def test_what_is_said_of_a_list_holds_for_each_of_its_layouts() -> None:
    rows = plan_layouts(**ASKED, global_batch="4M", layouts=50, tp=4, checkpointing="full")["layouts"]
    assert rows and {(row["tp"], row["zero"], row["checkpointing"]) for row in rows} == {(4, 1, "full")}
    mixed = {"model": "mixtral-8x7b", "gpu": "H100 SXM", "gpus": 64, "context": 8192, "global_batch": "4M"}
    assert {row["ep"] for row in plan_layouts(**mixed, layouts=1000)["layouts"]} == {1, 2, 4, 8}


def test_the_command_answers_a_layout_as_json_by_its_schema_and_as_a_table() -> None:
    check = jsonschema.Draft202012Validator(SCHEMA)
    for asked in (SPLIT, ASKED | {"global_batch": "4M", "layouts": 2}, ASKED | {"tp": 8, "zero": 3, "cp": 2}):
        done = command(asked, "--json")
        answer = json.loads(done.stdout)
        check.validate(answer)
        assert done.returncode == (0 if answer["found"]["fits"] else 3)
        assert answer["found"] == json.loads(json.dumps(plan_any(**asked)))
        for name in answer["found"]:
            lacking = {key: value for key, value in answer["found"].items() if key != name}
            assert not check.is_valid({"asked": {}, "found": lacking}), name
    done = command(SPLIT)
    assert done.returncode == 0 and "TP 8 PP 4 DP 8, ZeRO 1, 1f1b, 64 micro-batches" in done.stdout
    assert (
        "fullest: rank 0 of 4 in line" in done.stdout
        and "bubble                          4.5% of a step" in done.stdout
    )


def test_a_layout_that_has_no_room_says_which_options_make_some() -> None:
    """As Megatron-LM has them, each beside those before, and none that frees nothing."""
    asked = ASKED | {"gpus": 64, "tp": 4, "pp": 8, "schedule": "interleaved", "virtual_stages": 5, "micro_batches": 64}
    found, told = plan_any(**asked, checkpointing="none"), asked | {"checkpointing": "none"}
    assert found["verdict"] == "does not fit"
    tried = [row["try"] for row in found["remedies"]]
    assert tried == ["--boundaries freed", "--gate fused", "--regather yes", "--checkpointing full"]
    for row in found["remedies"]:
        name, value = row["try"][2:].split(" ")
        told |= {name: value}
        same = plan_any(**told)
        assert (same["memory_bytes"]["total"], same["verdict"]) == (row["needs_bytes"], row["verdict"])
    assert row["verdict"] == "fits with room" and same["remedies"] == []
    fewer_sequences = ASKED | {"gpus": 1024, "zero": None, "global_batch": "4M"}  # than GPUs: some share one
    assert plan_any(**fewer_sequences, layouts=3)["remedies"] == []


def test_a_ring_hides_behind_attention_and_holds_fewer_keys_and_values() -> None:
    asked = ASKED | {"tp": 8, "cp": 4, "context": 131072, "checkpointing": "full", "zero": 3, "micro_batch": 1}
    gathered, ring = (plan_layouts(**asked, cp_by=by) for by in ("all-gather", "ring"))
    assert gathered["seconds"]["context"] > 0 == ring["seconds"]["context"]  # of so long a sequence
    own = 2 * 32768 * 2 * 128  # bytes of a rank's keys and values, one head on each tensor rank
    of = [context_kv_bytes(LLAMA_3_70B, Layout(tensor=8, context=4, ring=by), 131072) for by in (False, True)]
    assert of == [2 * 3 * own, 4 * own]
    short = {"context": 8192, "matmul_share": 0.5}
    waits = [plan_layouts(**asked | short, cp_by=by)["seconds"]["context"] for by in ("all-gather", "ring")]
    assert waits[0] > waits[1] > 0  # the same of so few tokens, and a share of the peak


def test_hybrid_sharding_shards_within_and_reduces_between() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 64, "context": 8192, "zero": 3, "checkpointing": "full"}
    whole, hybrid = plan_layouts(**asked, tp=1), plan_layouts(**asked, replicas=8)
    assert hybrid["memory_bytes"]["state"] == pytest.approx(8 * whole["memory_bytes"]["state"])
    each = {one["by"]: one for one in hybrid["sent"]}
    assert (each["data"]["ranks"], each["data"]["level"]) == (8, "node")
    assert (each["replicas"]["ranks"], each["replicas"]["level"]) == (8, "network")
    shard = 4 * whole["parameters"]["total"] / 8  # gradients in float32
    assert each["replicas"]["bytes"] == pytest.approx(2 * 7 / 8 * shard, rel=1e-3)
    assert {one["by"] for one in whole["sent"]} == {"data"}
    short = asked | {"context": 1024}  # too few tokens to hide what is sent
    waits = [plan_layouts(**short, replicas=8, network_cards=cards)["seconds"]["data"] for cards in (8, 1)]
    assert 0 < waits[0] < waits[1]  # the shards' reduction alone uses the network
    with pytest.raises(ValueError, match="--replicas: 3 cannot share 64 ranks of the data"):
        plan_layouts(**asked, replicas=3)


def test_known_names_of_degrees_are_taken() -> None:
    words = {f"{name}_parallel" for name in DEGREES.values()}
    help_text = command({}, "--help").stdout
    for name in words | set(PARALLEL):
        assert f"--{name.replace('_', '-')}" in help_text
    long = ASKED | {"tensor_parallel": 8, "pipeline_parallel": 4, "global_batch": "4M"}
    assert json.loads(command(long, "--json").stdout)["found"] == json.loads(json.dumps(plan_any(**SPLIT)))
    assert all(len(option.meaning) <= 110 for option in PARALLEL.values())


def test_models_by_other_names_have_layouts_if_their_layers_are_alike() -> None:
    asked = {"gpu": "H100 SXM", "gpus": 64, "tp": 8}
    assert command(asked | {"model": "qwen3-32b"}, "--json").returncode in (0, 3)
    assert command(asked | {"model": "deepseek-v3"}, "--json").returncode in (0, 3)
    done = command(asked | {"model": "qwen3-next-80b-a3b"})
    assert done.returncode == 2 and "no layouts are planned, because what linear attention keeps" in done.stderr
    done = command(asked | {"model": "deepseek-v3", "recipe": "autocast"})
    assert done.returncode == 2 and "experts multiply as their weights are" in done.stderr
    done = command(asked | {"model": "deepseek-v3", "checkpointing": "selective"})
    assert done.returncode == 2 and "all layers are computed again or none" in done.stderr


@pytest.mark.parametrize("recipe", ["bf16-master", "autocast"])
@pytest.mark.parametrize("checkpointing", ["none", "per-op", "full"])
@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3.2-1b", "gpt2-xl"])
def test_without_other_parallelism_zero_3_holds_what_the_counted_planner_says(
    model: str, checkpointing: str, recipe: str
) -> None:
    asked = {"model": model, "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 1024, "micro_batch": 4}
    asked |= {"checkpointing": checkpointing, "recipe": recipe}
    counted = plan_alike(**asked)["memory_bytes"]["total"]
    assert plan_layouts(**asked, tp=1)["memory_bytes"]["total"] == pytest.approx(counted, rel=3e-3)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3.2-1b", "gpt2-xl"])
def test_gradients_are_cast_for_master_weights_when_a_step_ends(model: str, zero: int) -> None:
    asked = {"model": model, "gpu": "H100 SXM", "gpus": 8 if zero else 1, "zero": zero, "context": 1024}
    asked |= {"checkpointing": "full"}
    counted = plan_alike(**asked)["memory_bytes"]["total"]
    assert plan_layouts(**asked, tp=1)["memory_bytes"]["total"] == pytest.approx(counted, rel=0.04)
