"""How many users does a model serve, how fast, in which formats? What the planner answers with --task serve: bounds."""

# --8<-- [start:setup]
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flops_bytes.memory import cache_bytes
from flops_bytes.plan.evidence import verdict
from flops_bytes.plan.options import OPTIONS, batched_tokens, capacity_source, read_gpu, read_shape
from flops_bytes.serving import (
    Server,
    bits_per_weight,
    decode_seconds,
    forward_bytes,
    plan_serving,
    prefill_seconds,
    token_seconds,
    tokens_that_fit,
    weights_bytes,
)
from flops_bytes.shapes import Decoder, parameters

BITS = {"16bit": 16.0, "8bit": 8.0, "4bit": bits_per_weight(4, group=32, group_bits=16)}
WIDTHS = {"16bit": 2, "8bit": 1}
MOST_GPUS = 1_024
# Of the bound, what engines were published to reach for one user: gpt-fast with Llama 2 70B in 4 bits on eight A100s
# (https://github.com/meta-pytorch/gpt-fast, README at 0f925b5), llama.cpp with a 7B in 16 bits on an RTX 4090
# (https://github.com/ggml-org/llama.cpp/pull/4766).
ENGINES_REACH = (0.24, 0.80)
# --8<-- [end:setup]


# --8<-- [start:shared]
def shares(shape: Decoder) -> list[int]:
    """Numbers of GPUs that can share each layer: all have as many query heads."""
    return [gpus for gpus in range(1, min(shape.heads, MOST_GPUS) + 1) if shape.heads % gpus == 0]


def shared(shape: Decoder, gpus: int) -> Decoder:
    """What GPUs hold together: each has a key-value head at least, so with more GPUs heads are repeated."""
    return replace(shape, kv_heads=gpus * -(-shape.kv_heads // gpus))


# --8<-- [end:shared]


# --8<-- [start:formats]
def formats(
    shape: Decoder, room: float, server: Server, context: int, seconds: float | None, prompt: int
) -> list[dict[str, Any]]:
    """The most users, and how fast, with weights and cache in more or fewer bits."""
    rows = []
    for weights, bits in BITS.items():
        for cache, width in WIDTHS.items():
            other = server._replace(bits=bits, width=width)
            found = plan_serving(shape, room, other, context, seconds, prompt)
            rows.append(
                {
                    "weights": weights,
                    "cache": cache,
                    "weights_bytes": int(weights_bytes(shape, bits, other.end_bits)),
                    "users": found["users"],
                    "alone_per_second": 1 / decode_seconds(shape, 1, context, other),
                    "tokens_per_second": found["tokens_per_second"],
                }
            )
    return rows


# --8<-- [end:formats]


# --8<-- [start:serve]
def serve(a: Mapping[str, Any]) -> dict[str, Any]:
    """What serving takes, from options that are read. Raises ValueError that names the option and the mend."""
    shape, gpu, gpus = read_shape(a), read_gpu(a), a["gpus"]
    if not gpu.bandwidth_bytes_per_second:
        raise ValueError("--gpu-bandwidth: serving waits for memory; give its bytes a second, such as 3.35TB")
    if gpus not in shares(shape):
        could = ", ".join(str(number) for number in shares(shape))
        raise ValueError(f"--gpus: {gpus} do not share {shape.heads} heads evenly; choose {could}")
    if (a["prompt"] or 1) > a["context"]:
        raise ValueError(f"--prompt: it is longer than the context of {a['context']}; ask for so many tokens or fewer")
    whole, width = shared(shape, gpus), WIDTHS[a["cache"]]
    peak = max(gpu.peak_flop_per_second.get(dtype, 0) for dtype in ("bfloat16", "float16"))
    # What is quantized are the layers: published checkpoints keep embedding and head in 16 bits.
    server = Server(gpus * gpu.bandwidth_bytes_per_second, gpus * peak, BITS[a["weights"]], width, end_bits=16)
    free = gpu.memory_bytes - int(gpu.memory_bytes * a["gpu_memory_utilization"])
    batched = batched_tokens(a, gpu.memory_bytes)
    activations = forward_bytes(shape, batched, gpus)
    room = gpu.memory_bytes - free - a["allowance"] - activations  # of one GPU
    seconds = a["latency"] / 1_000 if a["latency"] else None
    prompt = a["prompt"] or a["context"]
    most = plan_serving(whole, gpus * room, server, a["context"], seconds, prompt)
    users = a["users"] or max(int(most["users"]), 1)
    step_seconds = decode_seconds(whole, users, a["context"], server)
    each_seconds = token_seconds(whole, users, a["context"], server, prompt)
    lines = {
        "weights": int(weights_bytes(whole, server.bits, server.end_bits) / gpus),
        "cache": users * cache_bytes(whole, a["context"], width) // gpus,
        "activations": activations,
        "allowance": a["allowance"],
        "kept_free": free,
    }
    needs_bytes = sum(lines.values())

    def holds(number: int) -> bool:
        each = room + activations - forward_bytes(shape, batched, number)
        tokens = tokens_that_fit(shared(shape, number), number * each, server.bits, width, server.end_bits)
        return bool(tokens // a["context"] >= (a["users"] or 1))

    rate = users / each_seconds
    counts = parameters(shape)
    estimated = {"wire": gpus > 1, "experts": shape.experts > 1}
    return {
        "parameters": {"total": sum(counts.values()), "active": sum(parameters(shape, active=True).values())},
        "memory_bytes": lines | {"total": needs_bytes},
        "gpu_bytes": gpu.memory_bytes,
        "gpu_bytes_are": capacity_source(a),
        "headroom_bytes": gpu.memory_bytes - needs_bytes,
        "in_time": not seconds or each_seconds <= seconds,
        "latency_seconds": seconds,
        "token_bytes": cache_bytes(whole, 1, width),
        "user_bytes": cache_bytes(whole, a["context"], width),
        "users": users,
        "users_that_fit": most["users_that_fit"],
        "users_in_time": most["users_in_time"] if seconds else None,
        "longest_context": tokens_that_fit(whole, gpus * room, server.bits, width, server.end_bits) // users,
        "fewest_gpus": next((number for number in shares(shape) if holds(number)), None),
        "token_seconds": step_seconds,
        "with_prompts_seconds": each_seconds if prompt < a["context"] else None,
        "each_per_second": 1 / each_seconds,
        "reached_per_second": [share / each_seconds for share in ENGINES_REACH],
        "alone_per_second": 1 / decode_seconds(whole, 1, a["context"], server),
        "tokens_per_second": rate,
        "first_token_seconds": prefill_seconds(whole, prompt, server),
        "money_a_million": 1e6 * gpus * a["price"] / (3_600 * rate) if a["price"] else None,
        "currency": a["currency"],
        "formats": formats(whole, gpus * room, server, a["context"], seconds, prompt),
        "estimated": [name for name, is_so in estimated.items() if is_so],
    } | served(needs_bytes, free, gpu.memory_bytes)


def stored_bits(found: Mapping[str, Any]) -> int:
    """Of a weight that is served where nobody says: as its config.json does, else 16."""
    told = " ".join(found["estimated"])
    return next((bits for bits in (4, 8) if f"weights in {bits} bits" in told), 16)


def served(needs_bytes: int, free_bytes: float, card_bytes: float) -> dict[str, Any]:
    """The verdict on an engine, which takes its share of the card at once: its room is what is usually kept free."""
    usual = card_bytes - int(card_bytes * OPTIONS["gpu_memory_utilization"].default)
    with_room = needs_bytes + max(0, usual - free_bytes)
    return {"verdict": verdict(needs_bytes, with_room, card_bytes), "fits": needs_bytes <= card_bytes}


# --8<-- [end:serve]
