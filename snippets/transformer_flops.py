# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Where a transformer's FLOPs go: by component, context and formula, against a counter."""

# --8<-- [start:setup]
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes import flops as formulas
from flops_bytes import models
from flops_bytes.flops import ATTENTION, backward_flops, forward_flops
from flops_bytes.measure import get_device, time_call
from flops_bytes.models import GPT2_SMALL, LLAMA_3_8B, GPT2Block, build, eager, flash, flash_each, fused, loss
from flops_bytes.shapes import Decoder, parameters

# --8<-- [end:setup]


# --8<-- [start:components]
SHAPES = {"gpt2": GPT2_SMALL, "llama": LLAMA_3_8B}
CONTEXT = {"gpt2": 1_024, "llama": 8_192}  # T that each was first trained with


def by_component(shape: Decoder, T: int, causal: bool = False) -> dict[str, int]:
    """A forward pass without experts; attention is the scores and the values."""
    flops = forward_flops(shape, T, causal=causal)
    others = {part: flops[part] for part in ("qkv", "out", "mlp", "head")}
    return {"attention": sum(flops[part] for part in ATTENTION)} | others


def as_shares(parts: Mapping[str, float]) -> dict[str, float]:
    return {part: amount / sum(parts.values()) for part, amount in parts.items()}


component_flops = {m: by_component(SHAPES[m], T) for m, T in CONTEXT.items()}
total_flops = {m: sum(flops.values()) for m, flops in component_flops.items()}
component_share = {m: as_shares(flops) for m, flops in component_flops.items()}
for part, count in component_flops["gpt2"].items():
    shares = (component_share[m][part] for m in SHAPES)
    print(f"{part:10}{count:16,}", *(f"{share:7.1%}" for share in shares))
# --8<-- [end:components]


# --8<-- [start:count]
PART = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "mlp", "up": "mlp", "down": "mlp"}


def count_parts(shape: Decoder, seq_len: int) -> dict[str, int]:
    """FLOPs by module; what no linear layer multiplies is attention."""
    model = build(shape, eager)  # on meta
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, seq_len, dtype=torch.int64, device="meta"))
    found = dict.fromkeys(("attention", "qkv", "out", "mlp", "head"), 0)
    for path, operations in counter.get_flop_counts().items():
        name = path.split(".")[-1]
        if (part := PART.get(name, name)) in found:
            found[part] += sum(operations.values())
    found["attention"] = counter.get_total_flops() - sum(found.values())
    return found


counted_component_flops = {m: count_parts(SHAPES[m], T) for m, T in CONTEXT.items()}
counted_total_flops = {m: sum(counted_component_flops[m].values()) for m in SHAPES}
print(counted_total_flops, counted_component_flops == component_flops)
assert counted_component_flops == component_flops
# --8<-- [end:count]


# --8<-- [start:step]
def count_step(shape: Decoder, seq_len: int, attend: models.Attend) -> tuple[int, int]:
    """FLOPs of a forward and a backward pass on meta."""
    tokens = torch.zeros(1, seq_len, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        mean_loss = loss(build(shape, attend), tokens, tokens)
        forward = counter.get_total_flops()
        mean_loss.backward()
    return forward, counter.get_total_flops() - forward


# --8<-- [end:step]


# --8<-- [start:backward]
def step_flops(
    shape: Decoder,
    T: int,
    fused: bool = False,
    causal: bool = False,
) -> int:
    forward = forward_flops(shape, T, causal=causal)
    backward = backward_flops(shape, T, causal=causal, fused=fused)
    return sum(forward.values()) + sum(backward.values())


eager_step_flops = step_flops(GPT2_SMALL, 1_024)
fused_step_flops = step_flops(GPT2_SMALL, 1_024, fused=True)
counted_fused_step_flops = sum(count_step(GPT2_SMALL, 1_024, flash))
again_flops = counted_fused_step_flops - eager_step_flops  # the scores, made twice
at_128k_flops = [step_flops(LLAMA_3_8B, 131_072, fused) for fused in (True, False)]
fused_step_ratio = at_128k_flops[0] / at_128k_flops[1]
print(f"{counted_fused_step_flops:,} counted, {again_flops:,} of them again")
assert counted_fused_step_flops == fused_step_flops
assert again_flops == component_flops["gpt2"]["attention"] / 2
# --8<-- [end:backward]


# --8<-- [start:contexts]
CONTEXTS = tuple(1_024 * 2**i for i in range(8))  # 1k to 128k
ONE_LAYER = {  # all are alike; GPT-2 gets positions that it never had
    "gpt2": replace(GPT2_SMALL, layers=1, positions=CONTEXTS[-1]),
    "llama": replace(LLAMA_3_8B, layers=1),
}
for m, shape in ONE_LAYER.items():
    for T in CONTEXTS:
        for attend in (eager, flash_each):
            forward, backward = count_step(shape, T, attend)
            assert forward == sum(forward_flops(shape, T).values())
            assert forward + backward == step_flops(shape, T, attend is flash_each)
    print(f"{m}: {2 * len(CONTEXTS)} steps counted, each as predicted")
# --8<-- [end:contexts]


# --8<-- [start:shares]
def attention_shares(shape: Decoder, causal: bool = False) -> dict[int, float]:
    """Attention's share of a forward pass in each context."""
    shares = {T: as_shares(by_component(shape, T, causal)) for T in CONTEXTS}
    return {T: share["attention"] for T, share in shares.items()}


attention_share = {m: attention_shares(shape) for m, shape in SHAPES.items()}
causal_share = {m: attention_shares(shape, True) for m, shape in SHAPES.items()}
for T in CONTEXTS:
    print(f"{T:8,}", *(f"{m} {share[T]:6.1%}" for m, share in attention_share.items()))
# --8<-- [end:shares]


# --8<-- [start:crossing]
def multiplied(shape: Decoder, head: bool = True) -> int:
    """M: all matrices, a tied head too, but no table that is only looked up."""
    flops = by_component(shape, 1)
    others = flops["qkv"] + flops["out"] + flops["mlp"]
    return (others + head * flops["head"]) // 2


def crossing(M: int, shape: Decoder) -> float:
    return M / (2 * shape.layers * shape.heads * shape.head_dim)


multiplied_parameters = {m: multiplied(shape) for m, shape in SHAPES.items()}
crossings = {m: crossing(multiplied(shape), shape) for m, shape in SHAPES.items()}
without_head = {m: crossing(multiplied(s, head=False), s) for m, s in SHAPES.items()}
crossing_in_widths = {m: T / SHAPES[m].d_model for m, T in without_head.items()}
at_crossing = count_parts(LLAMA_3_8B, round(crossings["llama"]))
crossing_attention_flops = at_crossing.pop("attention")
crossing_rest_flops = sum(at_crossing.values())
print(crossings, crossing_in_widths)
assert crossing_attention_flops == crossing_rest_flops
# --8<-- [end:crossing]


# --8<-- [start:causal]
def all_over_causal(shape: Decoder, T: int) -> float:
    return step_flops(shape, T) / step_flops(shape, T, causal=True)


causal_ratio = {T: all_over_causal(LLAMA_3_8B, T) for T in CONTEXTS}
for T in (8_192, 131_072):
    print(f"T = {T:7,}: all pairs are {causal_ratio[T]:.2f} × the causal count")
# --8<-- [end:causal]


# --8<-- [start:names]
def without_tables(shape: Decoder) -> int:
    """Kaplan's N."""
    tables = ("embedding", "positions", "head")
    return sum(n for part, n in parameters(shape).items() if part not in tables)


all_parameters = {m: sum(parameters(shape).values()) for m, shape in SHAPES.items()}
kaplan_parameters = {m: without_tables(shape) for m, shape in SHAPES.items()}
names_ratio = all_parameters["gpt2"] / kaplan_parameters["gpt2"]
for m in SHAPES:
    counts = (all_parameters[m], multiplied_parameters[m], kaplan_parameters[m])
    print(f"{m:6}", *(f"{n:14,}" for n in counts))
# --8<-- [end:names]


# --8<-- [start:papers]
def over_count(m: str, T: int) -> dict[str, float]:
    """What each formula says of a step over T tokens, over the eager count."""
    shape, N, M = SHAPES[m], all_parameters[m], multiplied_parameters[m]
    said = {
        "kaplan": formulas.six_n_d_flops(kaplan_parameters[m], T),
        "all": formulas.six_n_d_flops(N, T),
        "matrices": formulas.six_n_d_flops(M, T),
        "palm": formulas.palm_flops(shape, N, T, T),
        "palm_matrices": formulas.palm_flops(shape, M, T, T),
        "megatron": formulas.megatron_flops(shape, T, T),
    }
    return {formula: flops / step_flops(shape, T) for formula, flops in said.items()}


formula_ratio = {m: over_count(m, T) for m, T in CONTEXT.items()}
counted_step_flops = sum(count_step(GPT2_SMALL, 1_024, eager))
palm_step_flops = formulas.palm_flops(
    GPT2_SMALL,
    multiplied_parameters["gpt2"],
    tokens=1_024,
    seq_len=1_024,
)
assert counted_step_flops == palm_step_flops == step_flops(GPT2_SMALL, 1_024)
# --8<-- [end:papers]


# --8<-- [start:six]
def flops_a_parameter(blocks: list[GPT2Block]) -> float:
    """FLOPs of a step for each token and weight, without attention's own products."""
    x = torch.zeros(1, 64, GPT2_SMALL.d_model, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        nn.Sequential(*blocks)(x).sum().backward()
    attention = counter.get_flop_counts()["Global"][torch.ops.aten.bmm]
    weights = {w for block in blocks for w in block.parameters() if w.dim() == 2}
    products = counter.get_total_flops() - attention
    return float(products / 64 / sum(weight.numel() for weight in weights))


with torch.device("meta"):
    blocks = [GPT2Block(GPT2_SMALL, eager) for _ in range(GPT2_SMALL.layers)]
    frozen = [GPT2Block(GPT2_SMALL, eager).requires_grad_(False) for _ in blocks]
six = {
    "own": flops_a_parameter(blocks),
    "shared": flops_a_parameter(blocks[:1] * len(blocks)),
    "frozen": flops_a_parameter(frozen),
}
print(six)
assert six == {"own": 6, "shared": 72, "frozen": 4}
# --8<-- [end:six]


# --8<-- [start:experts]
# Mixtral 8x7B: Llama 3 8B's shape but for these
MIXTRAL = replace(LLAMA_3_8B, vocab=32_000, experts=8, active_experts=2)

expert_parameters = {
    "total": sum(parameters(MIXTRAL).values()),
    "active": sum(parameters(MIXTRAL, active=True).values()),
}
expert_ratio = expert_parameters["total"] / expert_parameters["active"]
print(expert_parameters, f"{expert_ratio:.2f}")
# --8<-- [end:experts]


# --8<-- [start:timed]
if torch.cuda.is_available():
    TIMED, TIMED_LEN, BATCH, DTYPE = GPT2_SMALL, 1_024, 8, torch.bfloat16
else:  # a third of the width, the vocabulary and the context: the same shares of FLOPs
    TIMED = replace(
        GPT2_SMALL,
        d_model=256,
        heads=4,
        kv_heads=4,
        d_ff=1_024,
        vocab=16_752,
    )
    TIMED_LEN, BATCH, DTYPE = 341, 1, torch.float32

block = GPT2Block(TIMED, fused).to(get_device(), DTYPE).requires_grad_(False)
head = nn.Linear(TIMED.d_model, TIMED.vocab, bias=False).requires_grad_(False)
head.to(block.out.weight)
x = torch.randn(BATCH, TIMED_LEN, TIMED.d_model).to(block.out.weight)
q, k, v = block.qkv(x).unflatten(-1, (3, TIMED.heads, -1)).permute(2, 0, 3, 1, 4)
wide = block.up(x)
# --8<-- [end:timed]


# --8<-- [start:time]
CALLS: dict[str, tuple[int, Callable[[], Any]]] = {  # how often, and what
    "attention": (TIMED.layers, lambda: fused(q, k, v)),
    "qkv": (TIMED.layers, lambda: block.qkv(x)),
    "out": (TIMED.layers, lambda: block.out(x)),
    "mlp": (TIMED.layers, lambda: block.down(block.up(x))),
    "gelu": (TIMED.layers, lambda: F.gelu(wide, approximate="tanh")),
    "norms": (2 * TIMED.layers, lambda: block.mlp_norm(x) + x),  # and residuals
    "head": (1, lambda: head(x)),
}
measured_seconds: dict[str, float] = {}
for part, (often, call) in CALLS.items():
    measured_seconds[part] = often * time_call(call).median_seconds
measured_time_share = as_shares(measured_seconds)
measured_rest_share = measured_time_share["gelu"] + measured_time_share["norms"]
for part, share in measured_time_share.items():
    counted = component_share["gpt2"].get(part, 0)
    print(f"{part:10}{counted:6.1%} of FLOPs {share:6.1%} of time")
# --8<-- [end:time]


# --8<-- [start:exercise_1]
crossing_70b = crossing(multiplied(models.LLAMA_3_70B), models.LLAMA_3_70B)
print(f"T = {crossing_70b:,.0f}")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
small_llama_flops = by_component(models.LLAMA_3_2_1B, 8_192)
small_head_share = as_shares(small_llama_flops)["head"]
print(f"{small_head_share:.1%}")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
REPORTED_SHARE = 0.40  # MFU by PaLM's formula with all parameters

counted_share = REPORTED_SHARE / formula_ratio["llama"]["palm"]
causal_mfu_share = counted_share / causal_ratio[8_192]
print(f"{counted_share:.1%} by the count, {causal_mfu_share:.1%} by the causal count")
# --8<-- [end:exercise_3]
