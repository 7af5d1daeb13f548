"""What GRPO is planned to hold is what its phases add up to, and what a step with its loss is counted to hold."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from flops_bytes.counting.check import count as counting
from flops_bytes.model.shapes import SHAPES
from flops_bytes.plan import plan_exactly as plan_training
from flops_bytes.plan import rl
from flops_bytes.plan.options import named_shape, read_options
from flops_bytes.serve.inference import Server, decode_seconds, prefill_flops
from tests.conftest import ROOT

SMALL = "layers=3 d_model=256 heads=4 kv_heads=2 head_dim=64 d_ff=704 vocab=20000 tied=1"
ASKED: dict[str, Any] = {
    "task": "rl",
    "model": "llama-3.2-1b",
    "gpu": "A100 80GB SXM",
    "context": 3_072,
    "answer": 1_024,
}
STEP = ASKED | {"micro_batch": 4, "recipe": "fp32"}
# As wide as Llama 3.2 1B, for attention's kernel takes no keys in float32 that several queries share.
WITHOUT_GROUPS = "layers=16 d_model=2048 heads=32 kv_heads=32 head_dim=64 d_ff=8192 vocab=128256 tied=1"


class Chosen(torch.autograd.Function):
    """torch.gather(), whose backward adds in place: what watches each operation makes it add into a copy."""

    @staticmethod
    def forward(context: Any, logits: Tensor, ids: Tensor) -> Tensor:
        context.save_for_backward(ids)
        context.sizes = logits.shape
        return torch.gather(logits, -1, ids)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), (ids,) = gradients, context.saved_tensors
        return gradient.new_zeros(context.sizes).scatter_add_(-1, ids, gradient), None


def log_probabilities(logits: Tensor, ids: Tensor) -> Tensor:
    """Of the chosen tokens, in the order of TRL 0.17's selective_log_softmax()."""
    choose: Callable[..., Tensor] = Chosen.apply
    logits = logits / 0.9
    chosen = choose(logits, ids[..., None])[..., 0]
    return chosen - torch.stack([torch.logsumexp(each, -1) for each in logits])


def train(answer: int, made: counting.Made, tokens: Tensor, targets: Tensor, asked: dict[str, Any]) -> None:
    """Forward and backward with GRPO's loss."""

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        logits = made.head(made.hidden(tokens)[:, -(answer + 1) :]).float()[:, :-1]
        new = log_probabilities(logits, targets[:, -answer:])
        return -torch.exp(new - new.detach()).mean()

    cast = asked["recipe"] in counting.AUTOCAST
    (counting.in_autocast(loss) if cast else loss)(tokens, targets).backward()


@pytest.mark.parametrize("layers", ["fused", "composed"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("recipe", ["fp32", "autocast", "bf16"])
@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("answer", [64, 256])
def test_a_step_of_training(layers: str, checkpointing: str, recipe: str, sequences: int, answer: int) -> None:
    asked: dict[str, Any] = {"shape": SMALL, "recipe": recipe, "checkpointing": checkpointing, "layers": layers}
    asked |= {"context": 512, "micro_batch": sequences}
    told = read_options(asked)
    with patch.object(counting, "go", partial(train, answer)):
        counted = counting.count(told, named_shape(told)).peak_bytes
    found = rl.plan_grpo(**asked, task="rl", answer=answer, gpu="H100 SXM", allowance=1)
    # of several answers three copies of the logits are planned, which there are while something has a name for them;
    # here nothing has, and autograd adds two gradients of them in place
    added_in_place = 4 * sequences * answer * named_shape(told).vocab if sequences > 1 else 0
    over = found["phases"]["training"]["total"] - counted
    assert -0.01 * counted <= over <= 0.01 * counted + added_in_place


@pytest.mark.parametrize(("sequences", "copies"), [(1, 4), (2, 3), (4, 3)])
def test_copies_of_the_logits(sequences: int, copies: int) -> None:
    """By PyTorch's own allocations on a CPU, without anything that watches operations."""
    x = torch.randn(sequences, 8, 50_000, requires_grad=True)
    ids = torch.zeros(sequences, 8, 1, dtype=torch.long)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        logits = x / 0.9
        chosen = torch.gather(logits, -1, ids)[..., 0]
        (chosen - torch.stack([torch.logsumexp(each, -1) for each in logits])).sum().backward()
    events: Any = profiled.profiler
    memory = [event for event in events.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(memory, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    assert most / x.nbytes == pytest.approx(copies, abs=0.01)


def test_a_larger_vocabulary_never_holds_less() -> None:
    """Which part of a step holds most is found with the logits of the answers, not of all tokens."""
    sizes = "layers=126 d_model=64 heads=128 head_dim=32 d_ff=100 kv_heads=128"
    asked: dict[str, Any] = {"task": "rl", "gpu": "A100 80GB SXM", "context": 4_096, "answer": 128}
    few, many = (
        rl.plan_grpo(**asked, shape=f"{sizes} vocab={vocab}")["memory_bytes"]["total"] for vocab in (2_002, 16_016)
    )
    assert few < many


def test_phases_add_up() -> None:
    asked = {name: value for name, value in STEP.items() if name != "model"} | {"shape": WITHOUT_GROUPS}
    found = rl.plan_grpo(**asked, reference="yes", allowance=1)
    weights, logits = 4 * found["parameters"]["total"], 4 * 4 * 1_024 * SHAPES["llama-3.2-1b"].vocab
    assert found["phases"]["scoring"]["total"] == 4 * weights + 2 * logits + 1
    assert found["phases"]["training"]["reference"] == weights
    training = plan_training(**{name: value for name, value in asked.items() if name not in ("task", "answer")})
    without = rl.plan_grpo(**asked)["phases"]["training"]
    assert (
        training["peaks_at"] == rl.plan_grpo(**asked)["training_peaks_at"] == "loss" and without["logits"] == 3 * logits
    )
    assert training["memory_bytes"]["total"] - without["total"] == training["memory_bytes"]["logits"] - 3 * logits
    cache = found["phases"]["sampling"]["cache"]
    halved = rl.plan_grpo(**asked | {"recipe": "bf16"}, reference="yes", allowance=1)["phases"]
    assert (2 * halved["sampling"]["cache"], halved["scoring"]["total"]) == (cache, 2 * weights + 2 * logits + 1)
    assert cache == 2 * rl.plan_grpo(**asked, samples=2)["phases"]["sampling"]["cache"] > 0


def test_an_engine_awake_and_asleep() -> None:
    asked = ASKED | {"accumulation": 64, "checkpointing": "full"}
    alone, awake = rl.plan_grpo(**asked), rl.plan_grpo(**asked, engine_share=0.3)
    asleep = rl.plan_grpo(**asked, engine_share=0.3, engine_asleep="1GiB")
    share = round(0.3 * awake["gpu_bytes"])
    totals = [found["phases"]["training"]["total"] for found in (alone, asleep, awake)]
    assert totals == [totals[0], totals[0] + 2**30, totals[0] + share]
    assert awake["phases"]["sampling"]["engine"] == asleep["phases"]["sampling"]["engine"] == share
    assert alone["answers_at_once"] == 64 and "cache" not in awake["phases"]["sampling"]
    few = rl.plan_grpo(**asked, engine_share=0.05)
    assert 1 <= few["answers_at_once"] < 64
    assert few["least_seconds"]["sampling"] > awake["least_seconds"]["sampling"]


def test_least_seconds() -> None:
    found = rl.plan_grpo(**STEP | {"recipe": "autocast"}, samples=2)["least_seconds"]
    shape, peak = SHAPES["llama-3.2-1b"], 312e12
    server = Server(2.039e12, peak, 16, 2)
    steps = sum(decode_seconds(shape, 2, context, server) for context in range(2_049, 3_072))
    assert found["sampling"] == pytest.approx(2 * (steps + 2 * prefill_flops(shape, 2_048) / peak), rel=1e-3)
    assert found["scoring"] == 0
    scored = rl.plan_grpo(**STEP | {"recipe": "autocast"}, reference="yes")["least_seconds"]
    # attention's scores are made again backward
    assert 3 < scored["training"] / scored["scoring"] < 3.2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no answer": ({"answer": None}, "--answer: it is missing; give the tokens of an answer"),
    "no prompt": ({"answer": 3_072}, "--answer: the context of 3072 has its prompt too; give"),
    "a master copy": (
        {"recipe": "bf16-master"},
        "--recipe: --task rl is derived for logits in float32; choose one of fp32, autocast, bf16",
    ),
    "another loss": ({"loss": "fused"}, "--loss: it is not derived for --task rl; leave it out"),
    "shards": ({"zero": 3, "gpus": 8}, "--zero: it is not derived for --task rl"),
    "two references": ({"lora": 8, "reference": "yes"}, "--reference: the model without its adapters"),
    "nobody sleeps": ({"engine_asleep": "1GB"}, "--engine-asleep: there is no engine"),
    "a small engine": ({"engine_share": 0.01}, "--engine-share: it has no room"),
    "no share": ({"engine_share": "200"}, "--engine-share: '200' is more than the whole"),
    "no such word": ({"reference": "perhaps"}, "--reference: 'perhaps' is not known; choose no, yes"),
    "no such option": ({"nosuch": 1}, "--nosuch: not an option"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence_with_its_option(case: str) -> None:
    change, sentence = REFUSED[case]
    with pytest.raises(ValueError) as caught:
        rl.plan_grpo(**ASKED | change)
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)


def command(asked: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    words = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    told = [sys.executable, "-m", "flops_bytes", "plan", *words, *more]
    return subprocess.run(told, capture_output=True, text=True, cwd=ROOT, check=False)


def test_the_command() -> None:
    asked = ASKED | {"model": "qwen3-4b", "engine_share": 0.3, "checkpointing": "full", "accumulation": 8}
    awake, asleep = command(asked), command(asked | {"engine_asleep": "1.19GiB"}, "--json")
    assert awake.returncode == 3 and "does not fit" in awake.stdout and asleep.returncode == 0, awake.stderr
    schema = json.loads((ROOT / "flops_bytes" / "plan" / "schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(asleep.stdout), schema)
    other = command(ASKED | {"model": "deepseek-v3"})
    assert other.returncode == 2 and "no GRPO is planned, because experts multiply" in other.stderr
    assert command(ASKED | {"model": "gemma-3-1b"}).returncode == 0  # whose layers differ
