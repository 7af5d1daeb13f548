"""Terms of an answer that no measurement sees: each is worked out a second way, by hand or by what changes with it."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from flops_bytes.memory.optimizers import muon_flops
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import LLAMA_3_8B, SHAPES, parameters
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.model import read_shape
from flops_bytes.plan.options import named_shape, read_options
from flops_bytes.plan.rl import plan_grpo
from flops_bytes.plan.step_time import step_time
from flops_bytes.plan.training import bytes_by_moment
from flops_bytes.serve.inference import Server, decode_seconds, prefill_flops
from flops_bytes.time.rates import Widths, layer_moved_bytes, matmul_products, matmul_seconds

SMALL = SHAPES["llama-3.2-1b"]
SHAPE = "layers=5 d_model=4096 heads=32 kv_heads=8 head_dim=128 d_ff=14336 vocab=128256"
RL: dict[str, Any] = {"task": "rl", "model": "llama-3.2-1b", "gpu": "A100 80GB SXM", "context": 3_072, "answer": 1_024}


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_from_so_many_tokens_matmuls_hide_what_is_sent(zero: int, accumulation: int) -> None:
    """With one sequence fewer a step waits longer; with more it waits for nothing but what is sent alone."""
    asked: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "H100 SXM", "gpus": 8, "zero": zero, "context": 512}
    asked |= {"accumulation": accumulation, "link": "100 Gb/s", "checkpointing": "full"}
    fewest = ceil(plan(**asked)["wire"]["tokens"] / 512)
    assert fewest > 2
    few, enough, many = (
        plan(**asked, micro_batch=batch)["wire"]["waits_seconds"] for batch in (fewest - 1, fewest, 4 * fewest)
    )
    assert few > enough * 1.001 and enough == pytest.approx(many)


def update_temporaries(**asked: Any) -> int:
    a = read_options({"model": "llama-3.2-1b", "recipe": "fp32", "gpu": "H100 SXM", "context": 512} | asked)
    return bytes_by_moment(a, read_shape(asked | {"model": "llama-3.2-1b"}, a))["update"]["temporaries"]


def test_muons_update_holds_the_largest_matrix_or_the_roots_of_all_that_adamw_updates() -> None:
    rows, columns = SMALL.d_ff, SMALL.d_model
    matrix = (4 + 4) * rows * columns + 4 * columns**2  # the update in fp32, X twice and A, B in 16 bits
    left_to_adamw = SMALL.vocab * SMALL.d_model + (2 * SMALL.layers + 1) * SMALL.d_model
    assert update_temporaries(optimizer="muon", update="fused") == matrix
    assert update_temporaries(optimizer="muon", update="foreach") == 4 * left_to_adamw > matrix
    assert update_temporaries(update="foreach") == 4 * sum(parameters(SMALL).values())


@pytest.mark.parametrize(("recipe", "pair_bytes"), [("fp32", 4 + 4), ("autocast", 4 + 2)])
def test_while_it_samples_keys_are_in_float32_and_values_as_the_recipe_has_them(recipe: str, pair_bytes: int) -> None:
    sampling = plan_grpo(**RL, recipe=recipe, micro_batch=2, accumulation=3)["phases"]["sampling"]
    assert sampling["cache"] == 6 * SMALL.layers * SMALL.kv_heads * SMALL.head_dim * 3_072 * pair_bytes
    assert sampling["logits"] == 6 * 4 * SMALL.vocab


@pytest.mark.parametrize(("told", "passes"), [({}, 3), ({"lora": 8}, 2)])
def test_no_pass_of_the_head_is_made_of_the_prompt(told: dict[str, Any], passes: int) -> None:
    """Of a frozen head there is no gradient: forward, and backward to its input."""
    found = plan_grpo(**RL, **told, micro_batch=4)["least_seconds"]["training"]
    training = plan(model="llama-3.2-1b", gpu="A100 80GB SXM", context=3_072, recipe="autocast", pairs="causal", **told)
    all_tokens = training["flops_a_token"]["causal"]["device"] * 3_072
    of_the_prompt = passes * 2 * (3_072 - 1_024) * SMALL.d_model * SMALL.vocab
    assert found * 312e12 == pytest.approx(4 * (all_tokens - of_the_prompt))


def test_a_phase_says_its_scoring() -> None:
    """A forward pass of the frozen copy of each answer, with the logits of the answer alone."""
    found = plan_grpo(**RL, micro_batch=4, reference="yes")["least_seconds"]["scoring"]
    parts = forward_flops(SMALL, 3_072, 1, causal=True)
    parts["head"] = 2 * 1_024 * SMALL.d_model * SMALL.vocab
    assert found * 312e12 == pytest.approx(4 * sum(parts.values()))


@pytest.mark.parametrize(("weights", "bits"), [("16bit", 16), ("8bit", 8), ("4bit", 4.5)])
def test_a_short_prompt_waits_for_the_weights_whose_ends_are_in_16_bits(weights: str, bits: float) -> None:
    count = parameters(LLAMA_3_8B)
    layers = sum(count.values()) - count["embedding"] - count["head"]
    found = plan(task="serve", model="llama-3-8b", gpu="H100 SXM", users=1, context=1_024, prompt=8, weights=weights)
    assert found["first_token_seconds"] == pytest.approx((layers * bits + count["head"] * 16) / 8 / 3.35e12)


def test_the_first_token_of_an_answer_comes_with_the_prompt() -> None:
    """So an answer of two takes one step, whose cache has all tokens but the last."""
    found = plan_grpo(**RL | {"answer": 2}, recipe="fp32", micro_batch=4)["least_seconds"]["sampling"]
    server = Server(2.039e12, 19.5e12, 32, 4)
    assert found == pytest.approx(
        decode_seconds(SMALL, 4, 3_071, server) + 4 * prefill_flops(SMALL, 3_070) / server.peak, rel=1e-6
    )


def test_of_five_layers_three_are_made_again_where_every_second_is_checkpointed() -> None:
    again = []
    for every in (1, 2):
        asked = {"shape": SHAPE, "gpu": "H100 SXM", "context": 2_048, "checkpointing": "full"}
        a = read_options(asked | {"checkpoint_every": every})
        sizes = matmul_products(named_shape(a), 2_048, "full", every, True)
        matmuls = matmul_seconds("H100 SXM", 989.4e12, sizes)["recomputation"].assumed
        again.append(step_time(a).lines["recomputation"].assumed - matmuls)
    assert again[1] / again[0] == pytest.approx(3 / 5)


@pytest.mark.parametrize(("zero", "shares"), [(0, 1), (1, 8), (3, 8)])
def test_muons_matmuls_are_shared_by_gpus_that_share_its_state(zero: int, shares: int) -> None:
    asked: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "H100 SXM", "gpus": 8, "zero": zero, "context": 8_192}
    seconds = [plan(**asked, optimizer=optimizer)["step_seconds"] for optimizer in ("muon", "adamw")]
    assert seconds[0] - seconds[1] == pytest.approx(muon_flops(SMALL) / shares / (0.4 * 989.4e12))


def test_a_host_has_what_its_own_gpus_leave_to_it() -> None:
    asked: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "H100 SXM", "offload": "yes"}
    shared = [plan(**asked, zero=3, gpus=gpus)["host_bytes"]["total"] for gpus in (8, 16, 64)]
    assert [shared[0] / each for each in shared] == pytest.approx([1, 2, 8], rel=1e-6)
    copied = [plan(**asked, zero=0, gpus=gpus)["host_bytes"]["total"] for gpus in (1, 8, 16)]
    assert [each / copied[0] for each in copied] == [1, 8, 8], "each process has all of it"
    assert plan(**asked, zero=0, gpus=16, node_gpus=4)["host_bytes"]["total"] == 4 * copied[0]


def test_in_eager_mode_what_is_rotated_is_cast_turned_and_cast_back() -> None:
    """Read and written each time: 2 bytes to 4, 4 to 4, 4 to 2, for each feature of queries and keys."""
    wide = replace(LLAMA_3_8B, head_dim=2 * LLAMA_3_8B.head_dim)
    for composed in (False, True):
        moved, more = (layer_moved_bytes(shape, Widths(2, 2), False, composed) for shape in (LLAMA_3_8B, wide))
        features = (LLAMA_3_8B.heads + LLAMA_3_8B.kv_heads) * LLAMA_3_8B.head_dim
        assert [(b - a) / features for a, b in zip(moved, more, strict=True)] == 2 * [(2 + 4) + (4 + 4) + (4 + 2)]


def test_reentrant_checkpointing_runs_a_layers_last_matmul_again() -> None:
    asked = {"shape": SHAPE, "gpu": "H100 SXM", "context": 2_048, "checkpointing": "full"}
    stops, runs = (
        step_time(read_options(asked | {"reentrant": reentrant})).lines["recomputation"] for reentrant in ("no", "yes")
    )
    assert runs.assumed > 1.2 * stops.assumed


@pytest.mark.parametrize("offload", ["yes", "all"])
def test_no_published_rates_say_a_step_whose_state_is_the_hosts(offload: str) -> None:
    with pytest.raises(ValueError, match="state in the host's memory"):
        step_time(read_options({"shape": SHAPE, "gpu": "H100 SXM", "context": 2_048, "offload": offload}))
