"""The planner plans with what a card really has: its memory by CUDA, what is not in tensors, its number formats."""

from __future__ import annotations

import json
import runpy
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from flops_bytes.lessons.trace import Trace
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.step import decoder_moments
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.evidence import EVIDENCE
from flops_bytes.time.gpus import (
    BESIDE_TENSORS_SHARE,
    GPUS,
    REPORTED,
    THIRD_PARTY,
    TPUS,
    capacity_bytes,
)
from tests.conftest import ROOT
from tests.flops_bytes import test_peak_lines as lines

CARDS = GPUS | THIRD_PARTY | TPUS
HARDWARE: dict[str, Any] = runpy.run_path(str(ROOT / "snippets" / "hardware.py"))
EIGHT: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 8192}
ON_H200: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H200 SXM", "context": 8192, "checkpointing": "full"}
COLAB: dict[str, Any] = {"model": "llama-3-8b", "gpu": "T4", "context": 512, "checkpointing": "full"}
COLAB |= {"lora": 16, "base": "4bit", "recipe": "bf16-master"}


def test_what_cuda_reports_lies_within_a_tenth_of_the_label() -> None:
    assert set(REPORTED) <= set(CARDS)
    for name, reported in REPORTED.items():
        assert reported.gib * 2**30 == pytest.approx(CARDS[name].memory_bytes, rel=0.1), name
        assert reported.source.startswith("https://github.com/")
    assert {card: REPORTED[card].gib for card in ("T4", "L40S", "H200 SXM")} == {
        "T4": 14.56,
        "L40S": 44.42,
        "H200 SXM": 139.81,
    }


@pytest.mark.parametrize("card", CARDS)
def test_the_verdict_is_by_what_cuda_reports_or_says_that_it_is_the_labels(card: str) -> None:
    recipe = "autocast" if "bfloat16" in CARDS[card].peak_flop_per_second else "autocast-fp16"
    found = plan(model="gpt2", gpu=card, recipe=recipe)
    known = card in REPORTED
    has = int(REPORTED[card].gib * 2**30) if known else CARDS[card].memory_bytes
    assert (found["gpu_bytes"], found["gpu_bytes_are"]) == (has, "reported" if known else "label")
    assert found["headroom_bytes"] == has - found["memory_bytes"]["total"]
    most = found["largest_micro_batch"]
    needs = [
        plan(model="gpt2", gpu=card, recipe=recipe, micro_batch=b)["memory_bytes"]["total"] for b in (most, most + 1)
    ]
    assert needs[0] <= has < needs[1]


def test_a_memory_that_is_typed_is_what_it_says() -> None:
    found = plan(model="gpt2", gpu_memory="80GB", gpu_peak="989T")
    assert (found["gpu_bytes"], found["gpu_bytes_are"]) == (80 * 10**9, "asked")


def test_labels_mislead_both_ways() -> None:
    """A false no on an H200, whose label is less than it has; a false yes on an L40S, whose label is more."""
    sheet = {"gpu_memory": CARDS["H200 SXM"].memory_bytes, "gpu_peak": "989T"}
    assert plan(**ON_H200)["fits"] and not plan(**(ON_H200 | {"gpu": None} | sheet))["fits"]
    over = GPUS["L40S"].memory_bytes - capacity_bytes("L40S", GPUS["L40S"])
    between = {"model": "gpt2", "recipe": "bf16", "context": 1024, "allowance": "1GB"}
    label = plan(**between, gpu_memory=GPUS["L40S"].memory_bytes, gpu_peak="362T")["largest_micro_batch"]
    assert over > 0 and not plan(**between, gpu="L40S", micro_batch=label)["fits"]


def test_what_lies_beside_tensors_is_what_messages_of_full_cards_show() -> None:
    beside = HARDWARE["beside_tensors_bytes"].values()
    shares = HARDWARE["beside_tensors_share"].values()
    assert len(beside) == 13 and HARDWARE["outside_bytes"] < statistics.median(beside) < 10**9
    assert 0.005 < min(shares) < 0.01 and 0.9 * BESIDE_TENSORS_SHARE < max(shares) <= BESIDE_TENSORS_SHARE


ROOM_ASKED: dict[str, dict[str, Any]] = {
    "full": {"trained": "all"},
    "full-sharded": {"trained": "all", "gpus": 8, "zero": 3},
    "lora": {"trained": "lora"},
    "lora-sharded": {"trained": "lora", "gpus": 8, "zero": 3},
    "qlora": {"trained": "qlora-double"},
    "qlora-sharded": {"trained": "qlora", "gpus": 8, "zero": 3},
}


@pytest.mark.parametrize("kind", ROOM_ASKED)
def test_a_plan_fits_with_the_room_of_its_kind_or_on_paper_or_not(kind: str) -> None:
    asked = {"model": "llama-3-8b", "gpu_peak": "989T", "context": 8192, "checkpointing": "full"} | ROOM_ASKED[kind]
    needs = plan(**asked, gpu_memory="80GB")["memory_bytes"]["total"]
    room = float(EVIDENCE[kind][5])
    said = {}
    for card in (needs - 1, needs, int(needs * room), int(needs * room) - 1):
        found = plan(**asked, gpu_memory=card)
        assert (found["kind"], found["room_ratio"], found["with_room_bytes"]) == (kind, room, int(needs * room))
        assert found["fits"] == (found["verdict"] != "does not fit")
        said[card] = found["verdict"]
    assert list(said.values()) == ["does not fit", "fits on paper", "fits with room", "fits on paper"]


def test_what_few_publish_is_judged_as_what_it_is_nearest_to() -> None:
    found = plan(**ON_H200, optimizer="adamw-8bit")
    assert (found["kind"], found["room_ratio"]) == ("", float(EVIDENCE["full"][5]))


def test_an_engine_has_room_where_it_leaves_what_it_usually_leaves() -> None:
    asked: dict[str, Any] = {"task": "serve", "model": "llama-3-8b", "gpu": "H100 SXM", "context": 8192}
    told = {share: plan(**asked, gpu_memory_utilization=share)["verdict"] for share in (0.5, 0.9, 0.95, 1.0)}
    assert told == {0.5: "fits with room", 0.9: "fits with room", 0.95: "fits on paper", 1.0: "fits on paper"}
    assert plan(**asked, users=10**6)["verdict"] == "does not fit"


def test_the_exit_status_of_what_fits_on_paper_is_that_of_what_fits() -> None:
    asked = [part for name, value in ON_H200.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    for as_json in (["--json"], []):
        command = [sys.executable, "-m", "flops_bytes", "plan", *as_json, *asked]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if as_json:
            assert json.loads(done.stdout)["found"]["verdict"] == "fits on paper"
        else:
            assert done.stdout.startswith("Fits on paper: all weights of llama-3-8b on H200 SXM")
    told = subprocess.run([*command[:4], "--help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert "0 if it fits with room or on paper" in told


# float16 with loss scaling


@pytest.mark.parametrize(("name", "choice"), [("gpt2", "plain"), ("llama", "selective")])
def test_autocast_to_float16_holds_what_is_counted(monkeypatch: pytest.MonkeyPatch, name: str, choice: str) -> None:
    """At each moment of a whole step the bytes that autocast to bfloat16 holds, which are counted elsewhere."""
    shape, asked = lines.SHAPES[name], lines.CHOICES[choice]
    in_bfloat16 = lines.count_step(shape, *lines.TOKENS, "autocast", **asked)
    monkeypatch.setattr(lines, "BYTE_16", torch.float16)
    assert lines.count_step.__wrapped__(shape, *lines.TOKENS, "autocast", **asked) == in_bfloat16
    planned = [decoder_moments(shape, *lines.TOKENS, recipe, **asked) for recipe in ("autocast", "autocast_fp16")]
    assert planned[0] == planned[1] and any(held["copies"] for held in planned[1].values())
    assert RECIPES["autocast_fp16"] == RECIPES["autocast"]


def test_a_scaler_of_the_loss_holds_a_few_scalars() -> None:
    weight = torch.randn(64, 64, requires_grad=True)
    optimizer, scaler = torch.optim.AdamW([weight], fused=True), torch.amp.GradScaler("cpu")

    def step(scaled: bool) -> int:
        optimizer.zero_grad()
        with Trace() as trace:
            trace.hold(weight.untyped_storage())
            loss = (weight @ weight).square().mean()
            (scaler.scale(loss) if scaled else loss).backward()
            if scaled:
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
        return trace.peak_bytes

    step(True)  # makes the optimizer's state
    assert 0 <= step(True) - step(False) <= 64


def test_cards_without_bfloat16_are_planned_with_float16() -> None:
    for card in ("T4", "V100 32GB SXM"):
        found = plan(model="gpt2", gpu=card, recipe="autocast-fp16", mfu=0.4)
        assert (found["recipe_format"], found["matmul_format"]) == ("float16", "float16")
        peak = GPUS[card].peak_flop_per_second["float16"]
        assert found["tokens_per_second"] * found["flops_a_token"]["all"]["model"] == pytest.approx(0.4 * peak)
    same = [plan(model="gpt2", gpu="A100 80GB SXM", recipe=recipe) for recipe in ("autocast", "autocast-fp16")]
    assert same[0]["memory_bytes"] == same[1]["memory_bytes"] and same[0]["step_seconds"] == same[1]["step_seconds"]


def tensors(found: Mapping[str, Any]) -> dict[str, int]:
    """The bytes of a GPU but for what lies outside of PyTorch, which differs between cards."""
    return {line: size for line, size in found["memory_bytes"].items() if line not in ("allowance", "total")}


def test_qlora_computes_in_float16_where_there_is_no_bfloat16() -> None:
    found = plan(**COLAB)
    assert found["fits"] and (found["recipe_format"], found["matmul_format"]) == ("bfloat16", "float16")
    assert tensors(found) == tensors(plan(**(COLAB | {"gpu": "L4"})))
    for change in ({"lora": None, "base": None, "recipe": "bf16"}, {"recipe": "autocast"}):
        with pytest.raises(ValueError, match="--recipe: T4 multiplies no bfloat16; choose --recipe autocast-fp16, or"):
            plan(**(COLAB | change))


def test_sixteen_bits_beside_a_float32_master_are_those_of_the_card() -> None:
    """As DeepSpeed's and Megatron's fp16 on a V100: 2 + 2 + 4 + 8 bytes a parameter, the loss scaled."""
    asked: dict[str, Any] = {"model": "gpt2", "recipe": "bf16-master", "mfu": 0.4}
    old, new = (plan(**asked, gpu=card) for card in ("V100 32GB SXM", "A100 40GB SXM"))
    assert tensors(old) == tensors(new)
    assert (old["recipe_format"], old["matmul_format"]) == ("bfloat16", "float16")
    model = old["flops_a_token"]["all"]["model"]
    assert old["tokens_per_second"] * model == pytest.approx(
        0.4 * GPUS["V100 32GB SXM"].peak_flop_per_second["float16"]
    )


# A rate is judged by the peak of its format


def rate(gpu: str, share: float, recipe: str = "bf16-master") -> dict[str, Any]:
    """A plan at so many times the peak of the recipe's format."""
    asked = {"model": "gpt2", "gpu": gpu, "recipe": recipe, "attention": "eager"}
    return plan(**asked, tokens_per_second=2 * share * plan(**asked, mfu=0.5)["tokens_per_second"])


@pytest.mark.parametrize(
    ("gpu", "recipe", "of_16_bits", "dtype"),
    [
        ("H100 SXM", "bf16-master", 0.9, "bfloat16"),
        ("H100 SXM", "bf16-master", 1.3, "float8"),
        ("H100 SXM", "autocast-fp16", 1.9, "float8"),
        ("B200", "bf16-master", 1.9, "float8"),
        ("B200", "bf16-master", 3.4, "float4"),
        ("RTX 5090", "bf16-master", 7.0, "float4"),
        ("H100 SXM", "fp32", 3.0, "tf32"),
    ],
)
def test_a_rate_above_the_peak_is_one_of_a_faster_format(gpu: str, recipe: str, of_16_bits: float, dtype: str) -> None:
    found = rate(gpu, of_16_bits, recipe)
    peaks = GPUS[gpu].peak_flop_per_second
    assert found["matmul_format"] == dtype
    assert found["recipe_hfu"] == pytest.approx(of_16_bits)
    assert found["hfu"] == pytest.approx(of_16_bits * peaks[found["recipe_format"]] / peaks[dtype])
    assert found["mfu"] <= found["hfu"] <= 1


@pytest.mark.parametrize(
    ("gpu", "share", "said"),
    [
        ("A100 80GB SXM", 1.2, "1.2 times their peak; check it"),
        ("H100 SXM", 2.6, "2.6 times their peak, 1.3 times that of float8; check it"),
        ("B200", 4.8, "4.8 times their peak, 1.2 times that of float4; check it"),
    ],
)
def test_a_rate_above_all_peaks_is_refused(gpu: str, share: float, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        rate(gpu, share)
    assert str(caught.value) == f"--tokens-per-second: the GPUs would do {said}"


def test_a_share_of_the_peak_is_one_of_the_recipes() -> None:
    assert plan(**EIGHT, mfu=0.5)["matmul_format"] == "bfloat16"
    with pytest.raises(ValueError, match=r"--mfu: the GPUs would do 1\.2\d* times their peak; check it"):
        plan(**EIGHT, mfu=0.95, checkpointing="full")


def test_half_as_many_bits_double_a_peak_in_four_bits_too() -> None:
    """Sheets that print it with sparsity alone would be off by two; RTX 5090: twice float8's again, as float16 of
    GeForce cards adds up in float32 at half the rate."""
    ratios = {
        name: peaks["float4"] / peaks["float8"]
        for name, card in CARDS.items()
        if "float4" in (peaks := card.peak_flop_per_second)
    }
    expected = {"B200": 2, "GB200": 2, "RTX 5090": 4, "RTX PRO 6000": 2, "B300": 2.917}
    assert ratios == pytest.approx(expected, rel=0.01)
