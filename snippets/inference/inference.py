# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "transformers>=5"]
# ///
"""What a decoding step reads: caches counted, tokens compared, bounds, and others' rates."""

# --8<-- [start:setup]
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from flops_bytes.lessons.generate import Cached, generate
from flops_bytes.lessons.measure import get_device
from flops_bytes.lessons.models import (
    GPT2_SMALL,
    LLAMA_3_8B,
    LLAMA_3_70B,
    ROTARY_BASE,
    build,
    llama,
)
from flops_bytes.lessons.trace import Trace
from flops_bytes.memory.formulas import cache_bytes
from flops_bytes.memory.outside import middle_bytes, outside_lines
from flops_bytes.model import stack
from flops_bytes.model.config import read_stack
from flops_bytes.model.presets import PRESETS
from flops_bytes.model.shapes import LLAMA_3_1_405B, MIXTRAL_8X7B, Decoder, parameters
from flops_bytes.model.stack import stack_of
from flops_bytes.plan.serving import forward_bytes
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
from flops_bytes.time.gpus import GPUS, capacity_bytes

# --8<-- [end:setup]


SHAPE = replace(llama(64, 3, 4, 96, head_dim=16), kv_heads=2, vocab=1_000)
NAMES = {  # theirs: ours
    "model.": "",
    "lm_head": "head",
    "embed_tokens": "embedding",
    "layers": "blocks",
    "self_attn.": "",
    "mlp.": "",
    "o_proj": "out",
    "_proj": "",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "mlp_norm",
}


def our_name(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name


library = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=SHAPE.vocab,
        hidden_size=SHAPE.d_model,
        num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads,
        num_key_value_heads=SHAPE.kv_heads,
        head_dim=SHAPE.head_dim,
        intermediate_size=SHAPE.d_ff,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE},
        eos_token_id=None,  # no token ends the text
    )
)


torch.manual_seed(0)
device = get_device()
for weight in library.parameters():
    torch.nn.init.normal_(weight, std=0.2)
library = library.to(device, torch.float64)
ours = build(SHAPE, dtype=torch.float64, device=device.type)
ours.load_state_dict({our_name(k): v for k, v in library.state_dict().items()})

prompt = torch.randint(SHAPE.vocab, (2, 20)).to(device)
mine = generate(ours, prompt, 100)
theirs = library.generate(prompt, max_new_tokens=100, do_sample=False)
equal_count = int((mine == theirs)[:, 20:].sum())
measured_different = len(set(mine[:, 20:].flatten().tolist()))
assert equal_count == 200


# --8<-- [start:counted]
GROUPS = LLAMA_3_8B.heads // LLAMA_3_8B.kv_heads
MODELS = {"gpt2": GPT2_SMALL, "llama_8b": LLAMA_3_8B, "llama_70b": LLAMA_3_70B}
CAPACITY = 1_024
token_bytes = {name: cache_bytes(shape, 1) for name, shape in MODELS.items()}
counted_bytes = {}
for name, shape in MODELS.items():
    cached = Cached(build(shape, dtype=torch.bfloat16), CAPACITY)  # on meta
    cached.feed(torch.zeros(1, 1, dtype=torch.int64, device="meta"))
    kept = [t for cache in cached.caches for t in (cache.keys, cache.values)]
    stored = sum(tensor.untyped_storage().nbytes() for tensor in kept)
    counted_bytes[name] = stored // CAPACITY
    counted = counted_bytes[name]
    print(f"{name:10}{token_bytes[name]:9,} B a token, counted {counted:9,}")
    assert stored == cache_bytes(shape, CAPACITY)
# --8<-- [end:counted]


# --8<-- [start:latent]
LATENT, TURNED = 512, 64  # numbers a token and layer
HEADS, HEAD_DIM, LAYERS = 128, 128, 61  # of DeepSeek-V3


def expanded(q: Tensor, turned_q: Tensor, cache: Tensor, up_k: Tensor, up_v: Tensor) -> Tensor:
    """One token's q (H, Q), the cache (T, 576) → (H, Q), by each head's k and v."""
    latent, turned = cache.split((LATENT, TURNED), dim=-1)
    k, v = latent @ up_k, latent @ up_v  # (H, T, Q), from (H, 512, Q)
    scores = (q[:, None] @ k.mT).squeeze(1) + turned_q @ turned.mT
    weights = (scores / (HEAD_DIM + TURNED) ** 0.5).softmax(-1)
    result: Tensor = (weights[:, None] @ v).squeeze(1)
    return result


def absorbed(q: Tensor, turned_q: Tensor, cache: Tensor, up_k: Tensor, up_v: Tensor) -> Tensor:
    """The same, and the cache is the only key and value: no head has its own."""
    query = torch.cat(((q[:, None] @ up_k.mT).squeeze(1), turned_q), dim=-1)  # (H, 576)
    weights = (query @ cache.mT / (HEAD_DIM + TURNED) ** 0.5).softmax(-1)
    result: Tensor = ((weights @ cache[:, :LATENT])[:, None] @ up_v).squeeze(1)
    return result


# --8<-- [end:latent]


# --8<-- [start:absorb]
def random(*size: int) -> Tensor:
    numbers: Tensor = torch.randn(size, dtype=torch.float64) / size[-1] ** 0.5
    return numbers


remembered = random(CAPACITY, LATENT + TURNED)
inputs = random(HEADS, HEAD_DIM), random(HEADS, TURNED), remembered
up = random(HEADS, LATENT, HEAD_DIM), random(HEADS, LATENT, HEAD_DIM)
torch.testing.assert_close(expanded(*inputs, *up), absorbed(*inputs, *up))

stored = LAYERS * remembered.to(torch.bfloat16).untyped_storage().nbytes()
token_bytes["deepseek"] = latent_cache_bytes(LAYERS, LATENT, TURNED, 1)
counted_bytes["deepseek"] = latent_counted_bytes = stored // CAPACITY
plain_bytes = LAYERS * HEADS * (HEAD_DIM + TURNED + HEAD_DIM) * 2  # k and v of each head, in bf16
latent_ratio = plain_bytes / token_bytes["deepseek"]
print(f"{token_bytes['deepseek']:,} B a token, as keys and values of all heads {plain_bytes:,} B")
assert stored == latent_cache_bytes(LAYERS, LATENT, TURNED, CAPACITY)
# --8<-- [end:absorb]


# --8<-- [start:phases]
BANDWIDTH = GPUS["H100 SXM"].bandwidth_bytes_per_second
PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
H100 = Server(BANDWIDTH, PEAK)
PROMPT = 1_024  # tokens
prefill_ms = 1e3 * prefill_seconds(LLAMA_3_8B, PROMPT, H100)
decode_ms = 1e3 * decode_seconds(LLAMA_3_8B, 1, PROMPT, H100)
print(f"prefill {prefill_ms:7.2f} ms for {PROMPT} tokens")
print(f"decode  {decode_ms:7.2f} ms for one, {1e3 / decode_ms:.0f} tokens/s")
# --8<-- [end:phases]
decode_rate = 1e3 / decode_ms
phase_ratio = decode_ms * PROMPT / prefill_ms
phase = {
    "prefill": {
        "read_bytes": round(decode_bytes(LLAMA_3_8B, 1, 0)),
        "flops": prefill_flops(LLAMA_3_8B, PROMPT),
    },
    "decode": {
        "read_bytes": round(decode_bytes(LLAMA_3_8B, 1, PROMPT)),
        "flops": decode_flops(LLAMA_3_8B, 1, PROMPT),
    },
}
phase_ms = {  # for reading alone, and for computing alone
    name: {
        "read": 1e3 * part["read_bytes"] / BANDWIDTH,
        "compute": 1e3 * part["flops"] / PEAK,
    }
    for name, part in phase.items()
}
intensity = {name: part["flops"] / part["read_bytes"] for name, part in phase.items()}
prompt_cache_bytes = cache_bytes(LLAMA_3_8B, PROMPT)


equal = {name: equal_tokens(shape) for name, shape in MODELS.items()}
ridge = ridge_users(H100)


def compute_share(users: int, context: int) -> float:
    """The FLOPs' time over the bytes' time of a step: 1 at the ridge."""
    flops = decode_flops(LLAMA_3_8B, users, context) / PEAK
    return flops / (decode_bytes(LLAMA_3_8B, users, context) / BANDWIDTH)


longest_at_ridge = max(T for T in range(1, 10_000) if compute_share(10**9, T) >= 1)


IN, OUT = 5_376, 43_008  # a matrix of Gemma 4 31B
KNEE = {  # TFLOP/s on an H100, by rows: vLLM, pull request 49363
    "bf16": {1: 3.072, 16: 48.329, 64: 187.994, 128: 364.745, 256: 593.265},
    "fp8": {1: 5.797, 16: 89.108, 64: 340.803, 128: 615.838, 256: 966.789},
}
WIDTH = {"bf16": 2, "fp8": 1}  # bytes of a weight and of an input; results are bf16
FP8_PEAK = GPUS["H100 SXM"].peak_flop_per_second["float8"]
KNEE_PEAK = {"bf16": PEAK, "fp8": FP8_PEAK}
knee_bytes = IN * OUT * WIDTH["bf16"]
knee: dict[str, dict[int, dict[str, float]]] = {}  # µs
for name, by_rows in KNEE.items():
    knee[name] = {}
    for rows, teraflops in by_rows.items():
        flops = 2 * rows * IN * OUT
        moved = (IN * OUT + rows * IN) * WIDTH[name] + 2 * rows * OUT
        bound = 1e6 * max(moved / BANDWIDTH, flops / KNEE_PEAK[name])
        reported = flops / teraflops / 1e6
        knee[name][rows] = {"bound": bound, "reported": reported}
        knee[name][rows]["ratio"] = bound / reported
knee_rises_share = {  # from one row to 256
    name: {kind: times[256][kind] / times[1][kind] - 1 for kind in ("reported", "bound")}
    for name, times in knee.items()
}


SERVED = {128: 10, 1_024: 8, 8_192: 5}  # tokens of a user: powers of two that fit
served_ms = {}
for context, doublings in SERVED.items():
    users_at = [2**n for n in range(doublings + 1)]
    steps = [1e3 * decode_seconds(LLAMA_3_8B, b, context, H100) for b in users_at]
    served_ms[context] = dict(zip(users_at, steps, strict=True))
served_ratio = served_ms[1_024][64] / served_ms[1_024][1]
served_gain = 64 / served_ratio


BITS = {"bf16": 16, "int8": 8, "int4": bits_per_weight(4, group=32, group_bits=32)}
LENGTHS = (1, 131_072)
quantized_bytes, one_user = {}, {}  # tokens a second on an H100, by context
for name, bits in BITS.items():
    quantized_bytes[name] = round(decode_bytes(LLAMA_3_8B, 1, 0, bits))
    server = H100._replace(weight_bits=bits)
    one_user[name] = {T: 1 / decode_seconds(LLAMA_3_8B, 1, T, server) for T in LENGTHS}
quantized_ratio = {T: one_user["int4"][T] / one_user["bf16"][T] for T in LENGTHS}


LLAMA_2_7B = replace(llama(4_096, 32, 32, 11_008), kv_heads=32, vocab=32_000)
CODE_LLAMA_7B = replace(LLAMA_2_7B, vocab=32_016)  # with tokens to fill a gap in code
LLAMA_2_70B = replace(LLAMA_3_70B, vocab=32_000)
NAMED = {
    "Llama 2 7B": LLAMA_2_7B,
    "CodeLlama 7B": CODE_LLAMA_7B,
    "Llama 2 70B": LLAMA_2_70B,
    "Llama 3.1 8B": LLAMA_3_8B,
    "Llama 3.1 70B": LLAMA_3_70B,
    "Llama 3.1 405B": LLAMA_3_1_405B,
    "Mixtral 8x7B": MIXTRAL_8X7B,
}
READS = {  # bytes/s by the datasheet
    "H100": BANDWIDTH,
    "A100": GPUS["A100 80GB SXM"].bandwidth_bytes_per_second,
    "RTX 4090": GPUS["RTX 4090"].bandwidth_bytes_per_second,
    "MI250X GCD": 3.2768e12 / 2,
}
FIVE, EIGHT_HALF = BITS["int4"], bits_per_weight(8, 32, 16)
ALONE = {  # model, GPU, how many, bits of a weight, tokens a second for one user
    "vllm_8b": ("Llama 3.1 8B", "H100", 1, 16, 133),
    "cpp_7b": ("CodeLlama 7B", "RTX 4090", 1, 16, 61.03),
    "cpp_7b_int8": ("CodeLlama 7B", "RTX 4090", 1, EIGHT_HALF, 98.13),
    # gpt-fast, README.md, in the order of its tables, and its mixtral-moe/README.md
    "fast_7b": ("Llama 2 7B", "A100", 1, 16, 104.9),
    "fast_7b_int8": ("Llama 2 7B", "A100", 1, 8, 155.58),
    "fast_7b_int4": ("Llama 2 7B", "A100", 1, FIVE, 196.80),
    "fast_70b_int8": ("Llama 2 70B", "A100", 1, 8, 19.13),
    "fast_70b_int4": ("Llama 2 70B", "A100", 1, FIVE, 25.25),
    "fast_8b": ("Llama 3.1 8B", "A100", 1, 16, 93.89),
    "fast_8b_int8": ("Llama 3.1 8B", "A100", 1, 8, 137.64),
    "fast_31_70b_int8": ("Llama 3.1 70B", "A100", 1, 8, 18.04),
    "amd_7b": ("Llama 2 7B", "MI250X GCD", 1, 16, 76.33),
    "amd_7b_int8": ("Llama 2 7B", "MI250X GCD", 1, 8, 101.86),
    "fast_mixtral_int8": ("Mixtral 8x7B", "A100", 1, 8, 97.92),
}
SEVERAL = {  # model, bits of a weight, tokens a second for one user by the number of A100s: gpt-fast's other rows
    "fast_7b": ("Llama 2 7B", 16, {2: 168.84, 4: 254.02, 8: 328.43}),
    "fast_70b": ("Llama 2 70B", 16, {2: 21.32, 4: 38.01, 8: 62.50}),
    "fast_70b_int8": ("Llama 2 70B", 8, {8: 80.44}),
    "fast_70b_int4": ("Llama 2 70B", FIVE, {8: 90.77}),
    "fast_8b": ("Llama 3.1 8B", 16, {1: 93.83, 2: 149.10, 4: 217.21, 8: 276.01}),
    "fast_31_70b": ("Llama 3.1 70B", 16, {2: 16.03, 4: 37.45, 8: 58.78}),
    "fast_31_70b_int8": ("Llama 3.1 70B", 8, {8: 75.58}),
    "fast_405b_int8": ("Llama 3.1 405B", 8, {8: 15.60}),
    "fast_mixtral": ("Mixtral 8x7B", 16, {2: 96.67, 4: 155.35, 8: 227.82}),
    "fast_mixtral_int8": ("Mixtral 8x7B", 8, {2: 155.03, 4: 216.87, 8: 279.35}),
}
PUBLISHED = ALONE | {
    f"{name}_on_{cards}": (model, "A100", cards, bits, rate)
    for name, (model, bits, rates) in SEVERAL.items()
    for cards, rate in rates.items()
}
published: dict[str, dict[str, Any]] = {}
for name, (model, gpu, cards, bits, rate) in PUBLISHED.items():
    bound = cards * READS[gpu] / decode_bytes(NAMED[model], 1, 5, bits)
    published[name] = {"model": model, "gpu": gpu, "cards": cards, "bits": bits}
    published[name] |= {"bound": bound, "reported": rate, "ratio": rate / bound}
    assert rate < bound, name


def reached_between(cards: int, *bits: float) -> list[float]:
    """The lowest and highest share of the bound on so many cards, with such weights."""
    rows = [row for row in published.values() if row["cards"] == cards]
    shares = [row["ratio"] for row in rows if row["bits"] in bits]
    return [min(shares), max(shares)]


reached_16, reached_8 = reached_between(1, 16), reached_between(1, 8, EIGHT_HALF)
reached_4, reached_eight = reached_between(1, FIVE), reached_between(8, 16)
ratios = [row["ratio"] for row in published.values()]
reached_all = [min(ratios), max(ratios)]
del ratios
int4_faster = published["fast_7b_int4"]["reported"] / published["fast_7b"]["reported"]


KINDS = (
    *("qwen3-30b-a3b", "gpt-oss-120b", "gemma-3-27b", "deepseek-v3", "deepseek-v3.2"),
    *("kimi-linear-48b-a3b", "qwen3-next-80b-a3b"),
)
SHORT, LONG = 32_768, 131_072
kinds = {}
for name in KINDS:
    layers = read_stack(PRESETS[name].config)
    short, long = (stack.cache_bytes(layers, tokens) for tokens in (SHORT, LONG))
    grows = (long - short) // (LONG - SHORT)  # a token
    row = {"grows_bytes": grows, "fixed_bytes": short - grows * SHORT, "short_bytes": short, "long_bytes": long}
    kinds[name.replace(".", "-")] = row

deepseek = read_stack(PRESETS["deepseek-v3"].config)
latent_flops = {how: stack.decode_flops(deepseek, 1, SHORT, absorbed=how == "absorbed") for how in ("absorbed", "made")}
latent_flops_ratio = latent_flops["made"] / latent_flops["absorbed"]


GEMMA_BYTES = 2 * 2 * 16 * 128  # of a token in a layer
CACHES = {  # bytes, how often they are kept, and the GiB that were reported for all
    "vllm_20k": (token_bytes["llama_8b"], 1_952 * 16, 3.81),
    "vllm_29k": (token_bytes["llama_8b"], 1_478 * 16, 2.89),
    "deepseek": (token_bytes["deepseek"], 160 * 1_024, 10.72),
    # DeepSeek-V2-Lite: 16 heads' keys and values in 27 layers, filled up to 256 numbers; latents in 14 of the layers
    "lite_heads": (2 * 27 * 16 * 2 * 256, 5_373 * 16, 35.42),
    "lite_latents": (latent_cache_bytes(14, LATENT, TURNED, 1), 807_792, 12.13),
    # Gemma 3 27B: 62 layers as if without windows; 10 without and 52 with, which hold a batch of 2,048 too
    "gemma_whole": (GEMMA_BYTES, 62 * 65_536, 31_744 / 1_024),
    "gemma_windows": (GEMMA_BYTES, 10 * 65_536 + 52 * (1_024 + 2_048), 6_368 / 1_024),
}
caches = {}
for name, (size, times, reported) in CACHES.items():
    gib = size * times / 2**30
    caches[name] = {"formula": gib, "reported": reported, "ratio": reported / gib}
    assert abs(reported / gib - 1) < 0.002


cached = Cached(build(GPT2_SMALL, dtype=torch.bfloat16), PROMPT)  # on meta
token = torch.zeros(1, 1, dtype=torch.int64, device="meta")
cached.feed(token)
with torch.no_grad(), Trace() as trace:
    cached.feed(token)
measured_operations = sum(operation.taken_bytes > 0 for operation in trace.operations)
small_us = 1e6 * decode_seconds(GPT2_SMALL, 1, PROMPT, H100)
eager_ratio = 25.5 / published["fast_7b"]["bound"]  # as PyTorch's authors began


def tokens_a_pass(accepted: float, drafted: int) -> float:
    """Expected tokens of a pass that checks drafted ones, each accepted so often."""
    return (1 - accepted ** (drafted + 1)) / (1 - accepted)


ACCEPTED, DRAFTED = 0.8, 4
pass_tokens = round(tokens_a_pass(ACCEPTED, DRAFTED), 3)


AT_ONCE = {1: 65.20, 2: 124.32, 4: 246.37, 8: 485.16}  # tokens/s, RTX 4090, llama.cpp
at_once_ratio = {n: n / rate * AT_ONCE[1] for n, rate in AT_ONCE.items()}
PLAIN = ALONE["vllm_8b"][-1]  # tokens/s without drafts, on an H100
EAGLE = {2: 201.69, 4: 198, 7: 169.92}  # with so many drafted tokens
eagle_ratio = {drafted: rate / PLAIN for drafted, rate in EAGLE.items()}


# --8<-- [start:plan]
ENGINE_SHARE = 0.9  # of a card, as vLLM took by default for years
BATCHED_TOKENS = 8_192  # of a step, for which vLLM keeps room on a large card


def beside_bytes(card: str, shape: Decoder) -> int:
    """The CUDA context and kernels, and activations."""
    outside = middle_bytes(outside_lines(card, gpus=1, node_gpus=1))
    return outside + forward_bytes(stack_of(shape), BATCHED_TOKENS)


card_bytes = capacity_bytes("H100 SXM", GPUS["H100 SXM"])
room = ENGINE_SHARE * card_bytes - beside_bytes("H100 SXM", LLAMA_3_8B)
answer = plan_serving(LLAMA_3_8B, room, H100, 8_192, 0.020)  # tokens of a user, seconds a token
print(f"{answer['users_that_fit']} users fit, {answer['users_in_time']} are served in time:")
print(f"{1e3 * answer['token_seconds']:.1f} ms a token, {answer['tokens_per_second']:,.0f} tokens/s")
# --8<-- [end:plan]
latency_ms, exercise_context = 20, 8_192
users = {key: answer[f"users_{key}"] for key in ("that_fit", "in_time")}
answer_ms, answer_rate = 1e3 * answer["token_seconds"], answer["tokens_per_second"]
first_ms = 1e3 * answer["prefill_seconds"]
del answer
reached = published["fast_8b"]["ratio"]  # of an A100's bandwidth
likely_users = users_within(LLAMA_3_8B, 0.020, exercise_context, H100._replace(bandwidth=reached * BANDWIDTH))


# --8<-- [start:exercise_1]
H200_BYTES = capacity_bytes("H200 SXM", GPUS["H200 SXM"])
large_bytes = 2 * sum(parameters(LLAMA_3_70B).values())
large_beside_bytes = beside_bytes("H200 SXM", LLAMA_3_70B)
large_room_bytes = ENGINE_SHARE * H200_BYTES - large_beside_bytes
large_fit = {}
for bits in (16, 8):
    large_fit[bits] = tokens_that_fit(LLAMA_3_70B, large_room_bytes, bits) // 8_192
whole_card_fit = tokens_that_fit(LLAMA_3_70B, H200_BYTES - large_beside_bytes) // 8_192
print(f"weights {large_bytes / 1e9:.1f} GB; users that fit: {large_fit}")
assert large_bytes > large_room_bytes and large_fit[16] == 0
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
narrow_users = users_within(LLAMA_3_8B, 0.020, 8_192, H100._replace(cache_itemsize=1))
int8_users = users_within(LLAMA_3_8B, 0.020, 8_192, H100._replace(weight_bits=8))
print(f"8-bit cache: {narrow_users} users in time; 8-bit weights: {int8_users}")
assert narrow_users > int8_users
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
grouped = cache_bytes(LLAMA_3_8B, 8_192)
ungrouped = cache_bytes(replace(LLAMA_3_8B, kv_heads=LLAMA_3_8B.heads), 8_192)
single = cache_bytes(replace(LLAMA_3_8B, kv_heads=1), 8_192)
cache_of_bytes = {"ungrouped": ungrouped, "grouped": grouped, "single": single}
for kind, size in cache_of_bytes.items():
    print(f"{kind:10}{size / 2**30:8.3f} GiB")
assert ungrouped == 4 * grouped == 32 * single
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
touched = {b: read_parameters(MIXTRAL_8X7B, b) for b in (1, 8, 64)}
touched_share = {b: count / touched[64] for b, count in touched.items()}
for b, count in touched.items():
    print(f"{b:3} users read {count / 1e9:5.1f} billion parameters")
assert touched[1] < 0.3 * touched[64]
# --8<-- [end:exercise_4]
