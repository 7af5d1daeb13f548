"""Asked for so many tokens in so many days, the planner says how many GPUs that takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flops_bytes.plan.__main__ import main
from flops_bytes.time.gpus import GPUS
from tests.flops_bytes.plan.printed import plan_without_meters as plan

QWEN = {"model": "qwen3-30b-a3b", "gpu": "H100 SXM", "zero": 3, "context": 4096, "tokens": "5T", "micro_batch": 64}
QWEN |= {"trained": "all"}
LLAMA = {"model": "llama-3-8b", "gpu": "H100 SXM", "zero": 3, "context": 8192, "checkpointing": "full"}


def test_the_gpus_of_a_deadline_are_the_flops_over_what_one_does() -> None:
    """Of 5T tokens on a model with 3.3 billion active parameters, 6ND alone is three quarters of it: 101 of 137. In
    micro-batches of 64 sequences nothing waits for the network."""
    found = plan(**QWEN, checkpointing="none", days=30)
    fleet = found["fleet"]
    one = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"] * 0.4 * 30 * 86_400
    six_n_d = 6 * found["parameters"]["active"] * 5e12
    assert fleet["gpus"] == 137 and 136 < found["training_flops"] / one < 137 and six_n_d < found["training_flops"]
    assert found["days"] < 30 < found["days"] * 137 / 136
    assert fleet["run_gpus"] == 182 and fleet["run_gpus"] == pytest.approx(fleet["gpus"] * 4 / 3, abs=1)


def test_layers_that_are_computed_again_ask_for_more() -> None:
    """As many more as the FLOPs that a GPU does: an assumed MFU is of steps that compute nothing again."""
    found = plan(**QWEN, days=30, checkpointing="full")
    work = found["flops_a_token"]["all"]
    assert found["days"] <= 30
    assert found["fleet"]["gpus"] == pytest.approx(137 * work["device"] / (work["device"] - work["again"]), abs=2)


def test_as_many_are_planned_as_are_needed_or_as_are_told() -> None:
    needed = plan(**LLAMA, tokens="100B", days="14 days")
    number = needed["fleet"]["gpus"]
    fewer = plan(**LLAMA, tokens="100B", gpus=number - 1)
    assert needed["days"] <= 14 < fewer["days"] and needed["fewest_gpus"]
    told = plan(**LLAMA, tokens="100B", days=14, gpus=8)
    assert told.pop("fleet") == needed["fleet"] and told == plan(**LLAMA, tokens="100B", gpus=8)
    assert "fleet" not in plan(**LLAMA, days=14, gpus=8)  # which asks for tokens
    assert plan(**LLAMA, text="400GB", days=14)["fleet"]["gpus"] > 8


def test_one_gpu_that_is_told_is_refused_what_it_is_refused_without_a_deadline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the terminal too, which asks its explanation as text."""
    asked = {"model": "gpt2", "gpu": "T4", "gpus": "1", "zero": "2", "tokens": "1M"}
    for beside in ({}, {"days": "30"}):
        with pytest.raises(ValueError, match="--zero: one GPU has none to share with"):
            plan(**asked, **beside)
    few = {"model": "gpt2", "gpu": "T4", "zero": "2", "tokens": "1M", "days": "30"}  # one is enough
    assert main([word for name, each in few.items() for word in (f"--{name}", each)] + ["--explain"]) == 0
    assert "on T4" in capsys.readouterr().out


def test_a_speed_of_all_gpus_is_that_of_each_of_them() -> None:
    """So where 8 of them take 28.9 days, 17 take less than 14, and 16 do not; a step takes as long with any number."""
    told = LLAMA | {"gpus": 8, "tokens": "100B", "days": "14", "tokens_per_second": "40000"}
    found = plan(**told)
    assert found["fleet"]["gpus"] == 17 and found["days"] == pytest.approx(100e9 / 40_000 / 86_400)
    by_step = plan(**(told | {"tokens_per_second": None, "step_seconds": found["step_seconds"]}))
    assert by_step["fleet"] == found["fleet"]


def test_communication_asks_for_more() -> None:
    """Small micro-batches wait for 100 Gb/s, and so more GPUs are needed than the FLOPs ask for."""
    slow = LLAMA | {"context": 1024, "link": "100 Gb/s"}
    waiting = plan(**slow, tokens="1T", days=30)
    assert waiting["fleet"]["run_gpus"] >= waiting["fleet"]["gpus"] and waiting["mfu"] < 0.3
    peak = waiting["tokens_per_second"] / waiting["mfu"] / waiting["fleet"]["gpus"]
    assert waiting["days"] <= 30.001 and waiting["fleet"]["gpus"] > 1.5 * 1e12 / (30 * 86_400 * peak * 0.4)


def test_a_measured_mfu_stands_alone_and_one_gpu_shares_with_nobody() -> None:
    kept = LLAMA | {"checkpointing": "none"}
    fleet = plan(**kept, tokens="100B", days=14, mfu="30%")["fleet"]
    assert fleet["run_gpus"] is None
    assert fleet["gpus"] == plan(**kept, tokens="100B", days=14)["fleet"]["run_gpus"]
    assert plan(**LLAMA, tokens="1M", days=14)["fleet"]["gpus"] == 1


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"days": 1, "tokens": "1B", "step_seconds": 2}, "--step-seconds: it is of all GPUs; give --gpus, or --mfu"),
        ({"days": "1e-6", "tokens": "1e18"}, "--days: that takes more than 1,048,576 GPUs; give it more days"),
    ],
    ids=["a speed of all GPUs", "no number meets it"],
)
def test_a_deadline_that_asks_for_no_number_is_refused(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plan(**LLAMA, **asked)


def test_the_terminal_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--model", "llama-3-8b", "--gpu", "H100 SXM", "--zero", "3", "--tokens", "100B", "--days", "14"]
    asked += ["--context", "8192", "--checkpointing", "full"]
    assert main(asked) == 0
    assert "GPUs for 14 days: 16 at an MFU of 40%; 21 at 30%, a whole run." in capsys.readouterr().out
    main([*asked, "--json"])
    assert json.loads(capsys.readouterr().out)["found"]["fleet"]["gpus"] == 16
