"""Serving is planned as engines do it: their share of the memory, a head in 16 bits, prompts between the tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from flops_bytes.lessons.models import build
from flops_bytes.lessons.trace import Trace
from flops_bytes.model.shapes import LLAMA_3_2_1B, LLAMA_3_8B, LLAMA_3_70B, MIXTRAL_8X7B, SHAPES, Decoder, llama
from flops_bytes.model.stack import stack_of
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.serving import ENGINES_REACH, forward_bytes
from flops_bytes.serve.inference import (
    Server,
    bits_per_weight,
    decode_bytes,
    decode_seconds,
    prefill_seconds,
    read_bytes,
    token_seconds,
    users_within,
    weights_bytes,
)
from flops_bytes.time.gpus import GPUS

EIGHT_B: dict[str, Any] = {"task": "serve", "model": "llama-3-8b", "gpu": "H100 SXM", "context": 8192}


def test_an_engine_takes_its_share_of_the_card() -> None:
    """vLLM printed 53.29 GiB for keys and values of Llama 3 8B on a card of 79.22, of which it takes nine tenths."""
    own = {"gpu_memory": "79.22GiB", "gpu_peak": "989.4T", "gpu_bandwidth": "3.35TB"}
    users = plan(**(EIGHT_B | {"gpu": None} | own))["users_that_fit"]  # a user's are 1 GiB
    assert 53 <= users <= 56
    found, whole = plan(**EIGHT_B), plan(**EIGHT_B, gpu_memory_utilization="100%")
    left = found["memory_bytes"]["kept_free"]
    assert left == pytest.approx(0.1 * found["gpu_bytes"], abs=1) and whole["memory_bytes"]["kept_free"] == 0
    assert whole["users_that_fit"] - found["users_that_fit"] in (left // 2**30, left // 2**30 + 1)
    assert found["memory_bytes"]["total"] == sum(found["memory_bytes"].values()) / 2
    over = plan(**EIGHT_B, users=found["users_that_fit"] + 1)
    assert found["fits"] and not over["fits"] and over["headroom_bytes"] < 0
    with pytest.raises(ValueError, match="--gpu-memory-utilization: it belongs to --task serve; leave it out"):
        plan(model="gpt2", gpu="L4", gpu_memory_utilization=0.9)


@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize("shape", [LLAMA_3_8B, SHAPES["gpt2"]], ids=["gated", "not gated"])
def test_an_engine_keeps_room_for_a_forward_pass(shape: Decoder, gpus: int) -> None:
    """A layer as vLLM runs it, of GPUs that share it: queries, keys and values in one matmul, gate and up-projection in
    another, no tensor longer than it is needed."""
    d, f, tokens = shape.d_model, shape.d_ff // gpus, 512
    heads, kv_heads = shape.heads // gpus * shape.head_dim, max(1, shape.kv_heads // gpus) * shape.head_dim
    weights = [(heads + 2 * kv_heads, d), (d, heads), ((1 + shape.gated) * f, d), (d, f)]
    sizes = [torch.empty(size, dtype=torch.bfloat16, device="meta") for size in weights]
    with Trace() as count:
        residual = torch.empty(tokens, d, dtype=torch.bfloat16, device="meta")
        given = torch.empty_like(residual)  # the norm's
        heads_of = F.linear(given, sizes[0])
        del given
        seen = torch.empty(tokens, heads, dtype=torch.bfloat16, device="meta")  # the attention kernel's
        del heads_of
        given = F.linear(seen, sizes[1])
        del seen
        up = F.linear(given, sizes[2])
        product = torch.empty(tokens, f, dtype=torch.bfloat16, device="meta")  # of one kernel, with the activation
        del up
        given = F.linear(product, sizes[3])
    assert count.peak_bytes == forward_bytes(stack_of(shape), tokens, gpus)


def test_the_tokens_of_a_batch_are_those_asked_for_or_vllms() -> None:
    """vllm/engine/arg_utils.py, get_batch_defaults: of an API server on large cards but A100s, and on others."""
    line = "activations"
    for card, tokens in (("H100 SXM", 8_192), ("H200 SXM", 8_192), ("A100 80GB SXM", 2_048), ("RTX 4090", 2_048)):
        found = plan(**EIGHT_B | {"gpu": card, "context": 2_048})
        assert found["memory_bytes"][line] == forward_bytes(stack_of(LLAMA_3_8B), tokens)
        assert found == plan(**EIGHT_B | {"gpu": card, "context": 2_048, "max_num_batched_tokens": tokens})
    two = plan(**EIGHT_B | {"gpus": 2})
    assert (
        two["memory_bytes"][line]
        == forward_bytes(stack_of(LLAMA_3_8B), 8_192, 2)
        < forward_bytes(stack_of(LLAMA_3_8B), 8_192)
    )


@pytest.mark.parametrize("shape", [LLAMA_3_8B, LLAMA_3_2_1B], ids=["8B", "1B, tied"])
def test_fewer_bits_are_those_of_the_layers(shape: Decoder) -> None:
    """The bytes of a model whose matrices in layers are quantized, all else in 16 bits; norms are next to nothing."""
    model, bits = build(shape), bits_per_weight(4, group=32, group_bits=16)
    layers = sum(weight.numel() for name, weight in model.named_parameters() if "blocks." in name)
    ends = sum(weight.numel() for name, weight in model.named_parameters() if "blocks." not in name)
    assert weights_bytes(shape, bits, 16) == pytest.approx(layers * bits / 8 + 2 * ends, rel=1e-5)
    head = shape.vocab * shape.d_model
    assert read_bytes(shape, 1, bits, 16) == pytest.approx(layers * bits / 8 + 2 * head, rel=1e-5)
    assert weights_bytes(shape) == 2 * (layers + ends) and read_bytes(shape, 1, 16, 16) == read_bytes(shape)
    name = "llama-3-8b" if shape is LLAMA_3_8B else "llama-3.2-1b"
    found = plan(**(EIGHT_B | {"model": name}), weights="4bit")
    row = next(row for row in found["formats"] if (row["weights"], row["cache"]) == ("4bit", "16bit"))
    assert found["memory_bytes"]["weights"] == row["weights_bytes"] == int(weights_bytes(shape, bits, 16))
    share = row["weights_bytes"] / (layers + ends) / (bits / 8)
    assert share == pytest.approx(1.33 if shape is LLAMA_3_8B else 1.54, abs=0.01)  # of all weights in 4.5 bits


def test_all_wait_while_a_prompt_is_read() -> None:
    """A server of 16 users who begin one after the other, each with a prompt after each answer, step by step."""
    server, users, prompt, answer = Server(3.35e12, 989.4e12), 16, 1536, 512
    context = prompt + answer
    step, prefill = (decode_seconds(LLAMA_3_8B, users, context, server), prefill_seconds(LLAMA_3_8B, prompt, server))
    left = [(user + 1) * answer // users for user in range(users)]  # tokens until each begins anew
    clock, tokens = 0.0, 20 * answer
    for _ in range(tokens):
        clock += step
        for user in range(users):
            left[user] -= 1
            if not left[user]:
                clock, left[user] = clock + prefill, answer
    assert clock / tokens == pytest.approx(token_seconds(LLAMA_3_8B, users, context, server, prompt), rel=1e-9)
    assert token_seconds(LLAMA_3_8B, users, context, server, context) == step  # no answer, or no prompt
    assert token_seconds(LLAMA_3_8B, users, context, server) == step


def test_latency_rate_and_money_are_those_with_prompts() -> None:
    asked = EIGHT_B | {"users": 16, "price": 2.5, "latency": 20}
    alone, found = plan(**asked), plan(**asked, prompt=7168)
    assert alone["with_prompts_seconds"] is None and alone["in_time"]
    assert found["token_seconds"] == alone["token_seconds"] < found["with_prompts_seconds"]
    assert found["each_per_second"] == pytest.approx(1 / found["with_prompts_seconds"])
    assert found["tokens_per_second"] == pytest.approx(16 / found["with_prompts_seconds"])
    assert found["money_a_million"] > alone["money_a_million"]
    assert found["users_in_time"] < alone["users_in_time"]
    server = Server(3.35e12, 989.4e12, end_bits=16)
    assert found["users_in_time"] == users_within(LLAMA_3_8B, 0.02, 8192, server, 7168)
    late = plan(**(asked | {"users": found["users_in_time"] + 1}), prompt=7168)
    assert found["in_time"] and not late["in_time"]


GPT_FAST = GPUS["A100 80GB SXM"].bandwidth_bytes_per_second
LLAMA_2_7B = replace(llama(4_096, 32, 32, 11_008), kv_heads=32, vocab=32_000)
LLAMA_2_70B = replace(LLAMA_3_70B, vocab=32_000)
PUBLISHED = {  # cards, bytes/s of one, shape, bits of a weight, tokens a second
    "gpt-fast, 7B": (1, GPT_FAST, LLAMA_2_7B, 16, 104.9),
    "gpt-fast, 7B in 8 bits": (1, GPT_FAST, LLAMA_2_7B, 8, 155.58),
    "gpt-fast, 7B in 4 bits": (1, GPT_FAST, LLAMA_2_7B, 5, 196.80),
    "gpt-fast, 7B on 2": (2, GPT_FAST, LLAMA_2_7B, 16, 168.84),
    "gpt-fast, 7B on 4": (4, GPT_FAST, LLAMA_2_7B, 16, 254.02),
    "gpt-fast, 7B on 8": (8, GPT_FAST, LLAMA_2_7B, 16, 328.43),
    "gpt-fast, 70B in 8 bits": (1, GPT_FAST, LLAMA_2_70B, 8, 19.13),
    "gpt-fast, 70B in 4 bits": (1, GPT_FAST, LLAMA_2_70B, 5, 25.25),
    "gpt-fast, 70B on 2": (2, GPT_FAST, LLAMA_2_70B, 16, 21.32),
    "gpt-fast, 70B on 4": (4, GPT_FAST, LLAMA_2_70B, 16, 38.01),
    "gpt-fast, 70B on 8": (8, GPT_FAST, LLAMA_2_70B, 16, 62.50),
    "gpt-fast, 70B in 8 bits on 8": (8, GPT_FAST, LLAMA_2_70B, 8, 80.44),
    "gpt-fast, 70B in 4 bits on 8": (8, GPT_FAST, LLAMA_2_70B, 5, 90.77),
    "gpt-fast, Mixtral in 8 bits": (1, GPT_FAST, MIXTRAL_8X7B, 8, 97.92),
    "llama.cpp, 7B": (1, GPUS["RTX 4090"].bandwidth_bytes_per_second, LLAMA_2_7B, 16, 61.03),
    "llama.cpp, 7B in 8.5 bits": (1, GPUS["RTX 4090"].bandwidth_bytes_per_second, LLAMA_2_7B, 8.5, 98.13),
}


def test_engines_reached_between_these_shares_of_the_bound() -> None:
    shares = [
        rate * decode_bytes(shape, 1, 5, bits) / (cards * bandwidth)
        for cards, bandwidth, shape, bits, rate in PUBLISHED.values()
    ]
    assert (min(shares), max(shares)) == pytest.approx(ENGINES_REACH, abs=0.005)
    found = plan(**EIGHT_B, users=1)
    assert found["reached_per_second"] == [share * found["each_per_second"] for share in ENGINES_REACH]
