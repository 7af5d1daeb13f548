"""How many users does a model serve, how fast, in which formats? What the planner answers with --task serve: bounds."""

from collections.abc import Mapping
from math import gcd
from typing import Any

from flops_bytes.model.stack import (
    Experts,
    GatedDelta,
    LatentAttention,
    Stack,
    cache_bytes,
    decode_bytes,
    decode_flops,
    prefill_flops,
    read_parameters,
    weights_bytes,
    with_shared_heads,
)
from flops_bytes.plan.allowance import outside_bytes
from flops_bytes.plan.evidence import verdict
from flops_bytes.plan.model import Model, parameter_totals
from flops_bytes.plan.options import OPTIONS, batched_tokens, capacity_source, read_gpu
from flops_bytes.serve.inference import Server, bits_per_weight, largest

WEIGHT_BITS = {"16bit": 16.0, "8bit": 8.0, "4bit": bits_per_weight(4, group=32, group_bits=16)}
CACHE_ITEMSIZE = {"16bit": 2, "8bit": 1}
MOST_SHARING_GPUS = 1_024
# Of the bound, what engines were published to reach for one user: gpt-fast with Llama 2 70B in 4 bits on eight A100s
# (https://github.com/meta-pytorch/gpt-fast, README at 0f925b5), llama.cpp with a 7B in 16 bits on an RTX 4090
# (https://github.com/ggml-org/llama.cpp/pull/4766).
ENGINES_REACH = (0.24, 0.80)


def sharing_gpus(stack: Stack) -> list[int]:
    """Numbers of GPUs that can share each layer: all have as many heads."""
    common_heads = 0
    for mixer, _ in stack.mixers():
        common_heads = gcd(common_heads, mixer.value_heads if isinstance(mixer, GatedDelta) else mixer.heads)
    return [gpus for gpus in range(1, min(common_heads, MOST_SHARING_GPUS) + 1) if common_heads % gpus == 0]


def forward_bytes(stack: Stack, tokens: int, gpus: int = 1) -> int:
    """Bytes of so many tokens' activations when most are there, in 16 bits, on each of `gpus` that share each layer.

    That is in the widest MLP: the residual path, what the MLP is given, its matmul with gate and up-projection in one,
    and their product. Nothing is kept for a backward pass.
    """
    mlp_features = max((3 if layer.mlp.gated else 2) * layer.mlp.active_d_ff() for layer, _ in stack.layers)
    return 2 * tokens * (2 * stack.d_model + mlp_features // gpus)


def decode_seconds(stack: Stack, users: int, context: int, server: Server) -> float:
    """The bound of a step, by its bytes or FLOPs; of latents as if what expands them were absorbed."""
    moved_bytes = decode_bytes(stack, users, context, server.weight_bits, server.cache_itemsize, server.end_bits)
    return max(moved_bytes / server.bandwidth, decode_flops(stack, users, context) / server.peak)


def prefill_seconds(stack: Stack, prompt: int, server: Server) -> float:
    """The bound of a prefill: its FLOPs, or the weights where the prompt is short."""
    end_bits = stack.vocab * stack.d_model * ((server.end_bits or server.weight_bits) - server.weight_bits)
    weight_bytes = (read_parameters(stack, prompt) * server.weight_bits + end_bits) / 8
    return max(weight_bytes / server.bandwidth, prefill_flops(stack, prompt) / server.peak)


def token_seconds(stack: Stack, users: int, context: int, server: Server, prompt: int) -> float:
    """The bound of a token, with its share of the prefills that all users wait for."""
    step_seconds = decode_seconds(stack, users, context, server)
    if not 0 < prompt < context:
        return step_seconds
    return step_seconds + users * prefill_seconds(stack, prompt, server) / (context - prompt)


def users_that_fit(stack: Stack, memory_bytes: float, server: Server, context: int) -> int:
    """Beside the weights."""
    room_bytes = memory_bytes - weights_bytes(stack, server.weight_bits, server.end_bits)
    return max(0, int(room_bytes / cache_bytes(stack, context, server.cache_itemsize)))


def count_users(
    stack: Stack, memory_bytes: float, server: Server, context: int, latency_seconds: float | None, prompt: int
) -> dict[str, Any]:
    """How many users fit, and how many of these get a token in time."""
    fit = in_time = users_that_fit(stack, memory_bytes, server, context)
    if latency_seconds:
        in_time = largest(lambda users: token_seconds(stack, users, context, server, prompt) - latency_seconds, 2**40)
    return {"fit": fit, "in_time": in_time, "users": min(fit, in_time)}


def serve(a: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """What serving takes, from options that are read. Raises ValueError that names the option and the mend.

    What is quantized are the layers: published checkpoints keep embedding and head in 16 bits.
    """
    stack, gpu, gpus, context, itemsize = model.stack, read_gpu(a), a["gpus"], a["context"], CACHE_ITEMSIZE[a["cache"]]
    if not gpu.bandwidth_bytes_per_second:
        raise ValueError("--gpu-bandwidth: serving waits for memory; give its bytes a second, such as 3.35TB")
    if gpus not in sharing_gpus(stack):
        could = ", ".join(str(number) for number in sharing_gpus(stack))
        raise ValueError(f"--gpus: {gpus} do not share the heads evenly; choose {could}")
    if (a["prompt"] or 1) > context:
        raise ValueError(f"--prompt: it is longer than the context of {context}; ask for so many tokens or fewer")
    shared_stack = with_shared_heads(stack, gpus)
    peak_flop_per_second = max(gpu.peak_flop_per_second.get(dtype, 0) for dtype in ("bfloat16", "float16"))
    server = Server(
        gpus * gpu.bandwidth_bytes_per_second,
        gpus * peak_flop_per_second,
        WEIGHT_BITS[a["weights"]],
        itemsize,
        end_bits=16,
    )
    allowance = outside_bytes(a)
    kept_free_bytes = gpu.memory_bytes - int(gpu.memory_bytes * a["gpu_memory_utilization"])
    activation_bytes = forward_bytes(stack, batched_tokens(a, gpu.memory_bytes), gpus)
    room_bytes = gpu.memory_bytes - kept_free_bytes - allowance - activation_bytes  # of one GPU
    latency_seconds, prompt = a["latency"] / 1_000 if a["latency"] else None, a["prompt"] or context
    most_users = count_users(shared_stack, gpus * room_bytes, server, context, latency_seconds, prompt)
    users = a["users"] or max(most_users["users"], 1)
    each_seconds = token_seconds(shared_stack, users, context, server, prompt)
    lines = {
        "weights": int(weights_bytes(shared_stack, server.weight_bits, server.end_bits) / gpus),
        "cache": users * cache_bytes(shared_stack, context, itemsize) // gpus,
        "activations": activation_bytes,
        "allowance": allowance,
        "kept_free": kept_free_bytes,
    }
    needs_bytes, tokens_per_second = sum(lines.values()), users / each_seconds

    def fits_on(number: int) -> bool:
        room_of_each = room_bytes + activation_bytes - forward_bytes(stack, batched_tokens(a, gpu.memory_bytes), number)
        return users_that_fit(with_shared_heads(stack, number), number * room_of_each, server, context) >= (
            a["users"] or 1
        )

    def missing_bytes(tokens: int) -> float:
        cache_room_bytes = gpus * room_bytes - weights_bytes(shared_stack, server.weight_bits, server.end_bits)
        return float(users * cache_bytes(shared_stack, tokens, itemsize) - cache_room_bytes)

    estimated = {
        "wire": gpus > 1,
        "experts": any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers),
        "latents on each GPU, absorbed": any(isinstance(mixer, LatentAttention) for mixer, _ in stack.mixers()),
    }
    return {
        "parameters": parameter_totals(stack),
        "memory_bytes": lines | {"total": needs_bytes},
        "gpu_bytes": gpu.memory_bytes,
        "gpu_bytes_are": capacity_source(a),
        "headroom_bytes": gpu.memory_bytes - needs_bytes,
        "meters": None,
        "in_time": not latency_seconds or each_seconds <= latency_seconds,
        "latency_seconds": latency_seconds,
        "token_bytes": cache_bytes(shared_stack, context, itemsize) - cache_bytes(shared_stack, context - 1, itemsize),
        "user_bytes": cache_bytes(shared_stack, context, itemsize),
        "users": users,
        "users_that_fit": most_users["fit"],
        "users_in_time": most_users["in_time"] if latency_seconds else None,
        "longest_context": largest(missing_bytes, 2**40),
        "fewest_gpus": next((number for number in sharing_gpus(stack) if fits_on(number)), None),
        "token_seconds": decode_seconds(shared_stack, users, context, server),
        "with_prompts_seconds": each_seconds if prompt < context else None,
        "each_per_second": 1 / each_seconds,
        "reached_per_second": [share / each_seconds for share in ENGINES_REACH],
        "alone_per_second": 1 / decode_seconds(shared_stack, 1, context, server),
        "tokens_per_second": tokens_per_second,
        "first_token_seconds": prefill_seconds(shared_stack, prompt, server),
        "money_a_million": 1e6 * gpus * a["price"] / (3_600 * tokens_per_second) if a["price"] else None,
        "currency": a["currency"],
        "formats": other_formats(shared_stack, gpus * room_bytes, server, context, latency_seconds, prompt),
        "weights": a["weights"],
        "estimated": [name for name, is_so in estimated.items() if is_so],
    } | judge_serving(needs_bytes, kept_free_bytes, gpu.memory_bytes)


def other_formats(
    stack: Stack, memory_bytes: float, server: Server, context: int, latency_seconds: float | None, prompt: int
) -> list[dict[str, Any]]:
    """The most users, and how fast, with weights and cache in more or fewer bits."""
    rows = []
    for weights, bits in WEIGHT_BITS.items():
        for cache, itemsize in CACHE_ITEMSIZE.items():
            other_server = server._replace(weight_bits=bits, cache_itemsize=itemsize)
            users = count_users(stack, memory_bytes, other_server, context, latency_seconds, prompt)["users"]
            tokens_per_second = users / token_seconds(stack, max(users, 1), context, other_server, prompt)
            row = {"weights": weights, "cache": cache, "users": users, "tokens_per_second": tokens_per_second}
            row["weights_bytes"] = int(weights_bytes(stack, bits, other_server.end_bits))
            row["alone_per_second"] = 1 / decode_seconds(stack, 1, context, other_server)
            rows.append(row)
    return rows


def judge_serving(needs_bytes: int, free_bytes: float, card_bytes: float) -> dict[str, Any]:
    """The verdict on an engine, which takes its share of the card at once: its room is what is usually kept free."""
    usual_free_bytes = card_bytes - int(card_bytes * OPTIONS["gpu_memory_utilization"].default)
    with_room_bytes = needs_bytes + max(0, usual_free_bytes - free_bytes)
    return {"verdict": verdict(needs_bytes, with_room_bytes, card_bytes), "fits": needs_bytes <= card_bytes}
