"""Our loop generates what transformers generates, our caches hold what the formula says, and the bounds are bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DeepseekV3Config, DeepseekV3Model, DynamicCache

from flops_bytes.lessons.generate import Cached, generate
from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, LLAMA_3_70B, build, gpt2
from flops_bytes.memory.formulas import cache_bytes
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import MIXTRAL_8X7B, Decoder, parameters
from flops_bytes.serve.inference import (
    Server,
    bits_per_weight,
    decode_bytes,
    decode_flops,
    decode_seconds,
    equal_tokens,
    latent_cache_bytes,
    plan_serving,
    prefill_flops,
    prefill_seconds,
    read_parameters,
    ridge_users,
    tokens_that_fit,
    users_within,
)
from tests.flops_bytes.test_models import SMALL_LLAMA, carried_over, library_model

SMALL_GPT2 = replace(gpt2(64, 3, 4), vocab=101)
BANDWIDTH, PEAK = 3.35e12, 989.4e12  # of an H100, and any other would do
H100 = Server(BANDWIDTH, PEAK)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("shape", [SMALL_GPT2, SMALL_LLAMA], ids=["gpt2", "llama"])
@pytest.mark.parametrize("prompt_len", [1, 17])
def test_the_tokens_are_those_of_transformers(shape: Decoder, prompt_len: int) -> None:
    torch.manual_seed(0)
    library = library_model(shape, "cpu").double().eval()
    for name, weight in library.named_parameters():
        norm = weight.dim() == 1 and "weight" in name
        torch.nn.init.normal_(weight, mean=float(norm), std=1.0 if "wpe" in name else 0.2)
    library.generation_config.eos_token_id = None
    ours = build(shape, dtype=torch.float64, device="cpu")
    ours.load_state_dict(carried_over(library))
    prompt = torch.randint(shape.vocab, (2, prompt_len))
    mine = generate(ours, prompt, 40)
    theirs = library.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40, do_sample=False)
    assert mine.shape == (2, prompt_len + 40) and torch.equal(mine, theirs)
    assert len(set(mine[:, prompt_len:].flatten().tolist())) > 3  # a text that repeats one token would prove little


def test_the_model_is_as_it_was_after_generating() -> None:
    model = build(SMALL_LLAMA, device="cpu")
    before = [block.attend for block in model.blocks]
    generate(model, torch.zeros(1, 3, dtype=torch.int64), 2)
    assert [block.attend for block in model.blocks] == before


@pytest.mark.parametrize(
    ("shape", "a_token"), [(GPT2_SMALL, 36_864), (LLAMA_3_8B, 131_072), (LLAMA_3_70B, 327_680)], ids=str
)
def test_the_cache_holds_what_the_formula_says(shape: Decoder, a_token: int) -> None:
    cached = Cached(build(shape, dtype=torch.bfloat16), 100)
    cached.feed(torch.zeros(3, 7, dtype=torch.int64, device="meta"))
    held = sum(t.untyped_storage().nbytes() for cache in cached.caches for t in (cache.keys, cache.values))
    assert held == 3 * cache_bytes(shape, 100) == 300 * a_token


def test_a_latent_cache_holds_what_transformers_keeps() -> None:

    config = DeepseekV3Config(num_hidden_layers=2, first_k_dense_replace=2)
    with torch.device("meta"):
        model: Any = DeepseekV3Model(config)
        cache: Any = DynamicCache(config=config)
        model.to(torch.bfloat16)(torch.zeros(1, 10, dtype=torch.int64), past_key_values=cache, use_cache=True)
    held = sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values))
    assert held == latent_cache_bytes(2, config.kv_lora_rank, config.qk_rope_head_dim, 10)
    assert latent_cache_bytes(61, 512, 64, 1) == 70_272


def test_the_flops_of_both_phases_are_those_that_are_counted() -> None:
    model = build(SMALL_LLAMA, device="cpu")
    cached = Cached(model, 20)
    with FlopCounterMode(display=False) as prefill, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        cached.feed(torch.zeros(2, 12, dtype=torch.int64))
    with FlopCounterMode(display=False) as decode, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        cached.feed(torch.zeros(2, 1, dtype=torch.int64))
    assert decode.get_total_flops() == decode_flops(SMALL_LLAMA, 2, 13)
    causal, full = (forward_flops(SMALL_LLAMA, 12, 2, causal) for causal in (True, False))
    hidden = sum(full.values()) - sum(causal.values())  # the counter takes all pairs
    assert prefill.get_total_flops() == prefill_flops(SMALL_LLAMA, 12, 2) + hidden


@pytest.mark.parametrize("shape", [GPT2_SMALL, LLAMA_3_8B], ids=str)
def test_a_step_reads_every_weight_that_it_multiplies(shape: Decoder) -> None:
    """All parameters but the tables that are looked up."""
    model = build(shape)
    tables = {"positions.weight"} | (set() if shape.tied else {"embedding.weight"})
    read = sum(weight.numel() for name, weight in model.named_parameters() if name not in tables)
    assert read_parameters(shape) == read
    assert decode_bytes(shape, 3, 10, bits=8, width=1) == read + 3 * cache_bytes(shape, 10, 1)


def test_experts_are_read_once_somebody_is_sent_to_them() -> None:
    active, total = (sum(parameters(MIXTRAL_8X7B, active).values()) for active in (True, False))
    table = parameters(MIXTRAL_8X7B)["embedding"]
    assert read_parameters(MIXTRAL_8X7B, 1) == active - table
    assert read_parameters(MIXTRAL_8X7B, 1_000) == pytest.approx(total - table)
    assert read_parameters(MIXTRAL_8X7B, 2) < 2 * read_parameters(MIXTRAL_8X7B, 1)


def test_a_bound_is_the_slower_of_bytes_and_flops() -> None:
    for users, context in ((1, 1_024), (1_000, 16)):
        by_bytes = decode_bytes(LLAMA_3_8B, users, context) / BANDWIDTH
        by_flops = decode_flops(LLAMA_3_8B, users, context) / PEAK
        assert decode_seconds(LLAMA_3_8B, users, context, H100) == max(by_bytes, by_flops)
    assert prefill_seconds(LLAMA_3_8B, 1, H100) == decode_bytes(LLAMA_3_8B, 1, 0) / BANDWIDTH
    assert prefill_seconds(LLAMA_3_8B, 4_096, H100) == prefill_flops(LLAMA_3_8B, 4_096) / PEAK


def test_at_the_ridge_products_take_as_long_as_reading() -> None:
    for bits in (16, 8):
        users = ridge_users(H100._replace(weight_bits=bits))
        read = read_parameters(LLAMA_3_8B)
        assert 2 * users * read / PEAK == pytest.approx(read * bits / 8 / BANDWIDTH)


def test_at_the_crossing_keys_and_values_are_as_many_bytes_as_the_weights() -> None:
    tokens = equal_tokens(LLAMA_3_8B, bits=4, width=1)
    assert cache_bytes(LLAMA_3_8B, 1, 1) * tokens == decode_bytes(LLAMA_3_8B, 1, 0, bits=4)
    assert bits_per_weight(4, group=32, group_bits=32) == 5 and bits_per_weight(8) == 8


def test_one_token_more_does_not_fit_and_one_user_more_is_late() -> None:
    tokens = tokens_that_fit(LLAMA_3_8B, 80e9)
    weights = 2 * sum(parameters(LLAMA_3_8B).values())
    assert weights + cache_bytes(LLAMA_3_8B, tokens) <= 80e9 < weights + cache_bytes(LLAMA_3_8B, tokens + 1)
    assert tokens_that_fit(LLAMA_3_70B, 80e9) == 0
    users = users_within(LLAMA_3_8B, 0.02, 8_192, H100)
    one_more = decode_seconds(LLAMA_3_8B, users + 1, 8_192, H100)
    assert decode_seconds(LLAMA_3_8B, users, 8_192, H100) <= 0.02 < one_more
    assert users_within(LLAMA_3_8B, 0.001, 8_192, H100) == 0


def test_a_plan_keeps_to_room_and_time() -> None:
    plan = plan_serving(LLAMA_3_8B, 80e9, H100, 8_192, 0.02)
    assert plan["users"] == min(plan["users_that_fit"], plan["users_in_time"]) and plan["token_seconds"] <= 0.02
    assert plan["users"] * plan["longest_context"] <= tokens_that_fit(LLAMA_3_8B, 80e9)
    assert plan["tokens_per_second"] == plan["users"] / plan["token_seconds"]
    patient = plan_serving(LLAMA_3_8B, 80e9, H100, 8_192, 1.0)
    assert patient["users"] == patient["users_that_fit"] > plan["users"]
    assert plan_serving(LLAMA_3_8B, 80e9, H100, 8_192) == patient | {"users_in_time": patient["users_that_fit"]}
    none = plan_serving(LLAMA_3_70B, 80e9, H100, 8_192, 0.02)
    assert none["users_that_fit"] == none["users"] == none["tokens_per_second"] == 0
    assert none["token_seconds"] == decode_seconds(LLAMA_3_70B, 1, 8_192, H100)
