# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Where a transformer's FLOPs go: by component, by context, by other people's formulas, each held against a counter."""

# --8<-- [start:setup]
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import formulas  # the book's arithmetic; it lies beside this file, like the toolkit and the models
import torch
from accounting import get_device, time_call
from formulas import ATTENTION, Decoder
from models import (
    GPT2_SMALL,
    LLAMA_3_2_1B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    Attend,
    GPT2Block,
    build,
    eager,
    flash,
    flash_each,
    fused,
    loss,
)
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

# --8<-- [end:setup]


# --8<-- [start:components]
SHAPES = {"gpt2": GPT2_SMALL, "llama": LLAMA_3_8B}
CONTEXT = {"gpt2": 1_024, "llama": 8_192}  # T that each was first trained with


def by_component(flops: dict[str, int]) -> dict[str, int]:
    """With the two products of attention as one."""
    others = ("qkv", "out", "mlp", "head")
    return {"attention": sum(flops[part] for part in ATTENTION)} | {part: flops[part] for part in others}


component_flops = {name: by_component(formulas.forward_flops(SHAPES[name], T)) for name, T in CONTEXT.items()}
total_flops = {name: sum(flops.values()) for name, flops in component_flops.items()}
component_share = {
    name: {part: count / total_flops[name] for part, count in flops.items()} for name, flops in component_flops.items()
}
for part, count in component_flops["gpt2"].items():
    print(f"{part:10}{count:16,}{component_share['gpt2'][part]:7.1%}{component_share['llama'][part]:7.1%}")
# --8<-- [end:components]


# --8<-- [start:count]
PART_OF = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "mlp", "up": "mlp", "down": "mlp"}  # by our modules' names


def zeros(seq_len: int) -> Tensor:
    return torch.zeros(1, seq_len, dtype=torch.int64, device="meta")


def count_components(shape: Decoder, seq_len: int) -> dict[str, int]:
    """The counter's FLOPs by module; what a block multiplies outside of its modules is attention."""
    model = build(shape, eager)
    with FlopCounterMode(display=False) as counter:
        model(zeros(seq_len))
    found = dict.fromkeys(("attention", "qkv", "out", "mlp", "head"), 0)
    for path, operations in counter.get_flop_counts().items():
        part = PART_OF.get(path.split(".")[-1], path.split(".")[-1])
        if part in found:
            found[part] += sum(operations.values())
    found["attention"] = counter.get_total_flops() - sum(found.values())
    return found


counted_component_flops = {name: count_components(SHAPES[name], T) for name, T in CONTEXT.items()}
counted_total_flops = {name: sum(flops.values()) for name, flops in counted_component_flops.items()}
print(f"{counted_total_flops}, every component equal: {counted_component_flops == component_flops}")
assert counted_component_flops == component_flops
# --8<-- [end:count]


# --8<-- [start:step]
def count_step(shape: Decoder, seq_len: int, attend: Attend) -> tuple[int, int]:
    """FLOPs of a forward and a backward pass on meta."""
    model, tokens = build(shape, attend), zeros(seq_len)
    with FlopCounterMode(display=False) as counter:
        mean_loss = loss(model, tokens, tokens)
        forward = counter.get_total_flops()
        mean_loss.backward()
    return forward, counter.get_total_flops() - forward


# --8<-- [end:step]


# --8<-- [start:contexts]
CONTEXTS = tuple(1_024 * 2**i for i in range(8))  # 1k to 128k
ONE_LAYER = {  # all are alike; GPT-2 gets positions that it never had
    "gpt2": replace(GPT2_SMALL, layers=1, positions=CONTEXTS[-1]),
    "llama": replace(LLAMA_3_8B, layers=1),
}
for name, shape in ONE_LAYER.items():
    for T in CONTEXTS:
        forward = sum(formulas.forward_flops(shape, T).values())
        for attend in (eager, flash_each):
            backward = sum(formulas.backward_flops(shape, T, fused=attend is flash_each).values())
            assert count_step(shape, T, attend) == (forward, backward)
    print(f"{name}: {2 * len(CONTEXTS)} steps counted, each as predicted")
# --8<-- [end:contexts]


# --8<-- [start:backward]
def step_flops(shape: Decoder, seq_len: int, fused: bool = False, causal: bool = False) -> int:
    """Forward and backward."""
    forward = formulas.forward_flops(shape, seq_len, causal=causal)
    return sum(forward.values()) + sum(formulas.backward_flops(shape, seq_len, causal=causal, fused=fused).values())


fused_step_flops, eager_step_flops = (step_flops(GPT2_SMALL, 1_024, fused=fused) for fused in (True, False))
counted_fused_step_flops = sum(count_step(GPT2_SMALL, 1_024, flash))
again_flops = counted_fused_step_flops - eager_step_flops  # the scores, made twice
fused_step_ratio = {name: step_flops(s, 131_072, fused=True) / step_flops(s, 131_072) for name, s in SHAPES.items()}
print(f"{counted_fused_step_flops:,} counted, {again_flops:,} of them again")
assert counted_fused_step_flops == fused_step_flops
assert again_flops == component_flops["gpt2"]["attention"] / 2
# --8<-- [end:backward]


# --8<-- [start:shares]
def attention_share_at(shape: Decoder, seq_len: int, causal: bool = False) -> float:
    flops = by_component(formulas.forward_flops(shape, seq_len, causal=causal))
    return flops["attention"] / sum(flops.values())


attention_share = {name: {T: attention_share_at(s, T) for T in CONTEXTS} for name, s in SHAPES.items()}
causal_share = {name: {T: attention_share_at(s, T, causal=True) for T in CONTEXTS} for name, s in SHAPES.items()}
for T in CONTEXTS:
    print(f"{T:8,}", *(f"{name} {share[T]:6.1%}" for name, share in attention_share.items()), sep="   ")
# --8<-- [end:shares]


# --8<-- [start:crossing]
def crossing(matrices: int, shape: Decoder) -> float:
    """T at which attention's 4T²LHQ is as much as the 2TM of M parameters."""
    return matrices / (2 * shape.layers * shape.heads * shape.head_dim)


def multiplied(shape: Decoder) -> int:
    """The parameters that a token is multiplied with: M, all matrices and a tied head, but no table."""
    flops = by_component(formulas.forward_flops(shape, 1))
    return (sum(flops.values()) - flops["attention"]) // 2


multiplied_parameters = {name: multiplied(shape) for name, shape in SHAPES.items()}
crossings = {name: crossing(multiplied_parameters[name], shape) for name, shape in SHAPES.items()}
headless = {name: multiplied_parameters[name] - s.d_model * s.vocab for name, s in SHAPES.items()}
crossing_in_widths = {name: crossing(headless[name], s) / s.d_model for name, s in SHAPES.items()}
at_crossing_flops = count_components(LLAMA_3_8B, round(crossings["llama"]))
crossing_attention_flops = at_crossing_flops.pop("attention")
crossing_rest_flops = sum(at_crossing_flops.values())
for name, T in crossings.items():
    print(f"{name:6} T = {T:9,.1f}; without the head {crossing_in_widths[name]} d")
assert crossing_attention_flops == crossing_rest_flops
# --8<-- [end:crossing]


# --8<-- [start:causal]
causal_ratio = {T: step_flops(LLAMA_3_8B, T) / step_flops(LLAMA_3_8B, T, causal=True) for T in CONTEXTS}
for T in (8_192, 131_072):
    print(f"T = {T:7,}: all pairs are {causal_ratio[T]:.2f} × the causal count")
# --8<-- [end:causal]


# --8<-- [start:names]
def without_tables(shape: Decoder) -> int:
    """Kaplan's N: no embedding, no positions, no head."""
    parts = formulas.parameters(shape)
    return sum(parts.values()) - parts["embedding"] - parts["positions"] - parts["head"]


all_parameters = {name: sum(formulas.parameters(shape).values()) for name, shape in SHAPES.items()}
kaplan_parameters = {name: without_tables(shape) for name, shape in SHAPES.items()}
names_ratio = all_parameters["gpt2"] / kaplan_parameters["gpt2"]
for name in SHAPES:
    print(f"{name:6}{all_parameters[name]:14,}{multiplied_parameters[name]:14,}{kaplan_parameters[name]:14,}")
# --8<-- [end:names]


# --8<-- [start:papers]
def over_count(name: str, T: int) -> dict[str, float]:
    """What each formula says of a step over T tokens, over the count of all pairs, eager."""
    shape, N, M = SHAPES[name], all_parameters[name], multiplied_parameters[name]
    said = {
        "kaplan": formulas.six_n_d_flops(kaplan_parameters[name], T),
        "all": formulas.six_n_d_flops(N, T),
        "matrices": formulas.six_n_d_flops(M, T),
        "palm": formulas.palm_flops(shape, N, T, T),
        "palm_matrices": formulas.palm_flops(shape, M, T, T),
        "megatron": formulas.megatron_flops(shape, T, T),
    }
    return {formula: flops / step_flops(shape, T) for formula, flops in said.items()}


counted_step_flops = sum(count_step(GPT2_SMALL, 1_024, eager))
palm_step_flops = formulas.palm_flops(GPT2_SMALL, multiplied_parameters["gpt2"], 1_024, 1_024)
assert counted_step_flops == step_flops(GPT2_SMALL, 1_024) == palm_step_flops
formula_ratio = {name: over_count(name, T) for name, T in CONTEXT.items()}
for formula in formula_ratio["gpt2"]:
    print(f"{formula:14}{formula_ratio['gpt2'][formula]:8.4f}{formula_ratio['llama'][formula]:8.4f}")
# --8<-- [end:papers]


# --8<-- [start:six]
def flops_a_parameter(blocks: list[GPT2Block]) -> float:
    """FLOPs of a step for each token and weight of the blocks; attention's own products aside."""
    x = torch.zeros(1, 64, GPT2_SMALL.d_model, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        nn.Sequential(*blocks)(x).sum().backward()
    products = counter.get_total_flops() - counter.get_flop_counts()["Global"][torch.ops.aten.bmm]
    weights = {weight for block in blocks for weight in block.parameters() if weight.dim() == 2}
    return float(products / 64 / sum(weight.numel() for weight in weights))


with torch.device("meta"):
    blocks = [GPT2Block(GPT2_SMALL, eager) for _ in range(GPT2_SMALL.layers)]
    frozen = [GPT2Block(GPT2_SMALL, eager).requires_grad_(False) for _ in blocks]
six = {name: flops_a_parameter(b) for name, b in (("own", blocks), ("shared", blocks[:1] * 12), ("frozen", frozen))}
print(six)
assert six == {"own": 6, "shared": 72, "frozen": 4}
# --8<-- [end:six]


# --8<-- [start:experts]
MIXTRAL = replace(LLAMA_3_8B, vocab=32_000, experts=8, active_experts=2)  # 8x7B: the same layers otherwise

expert_parameters = {
    "total": sum(formulas.parameters(MIXTRAL).values()),
    "active": sum(formulas.parameters(MIXTRAL, active=True).values()),
}
expert_ratio = expert_parameters["total"] / expert_parameters["active"]
print(expert_parameters, f"{expert_ratio:.2f}")
# --8<-- [end:experts]


# --8<-- [start:timed]
if torch.cuda.is_available():
    TIMED, TIMED_LEN, BATCH, DTYPE = GPT2_SMALL, 1_024, 8, torch.bfloat16
else:  # a third of the width, the vocabulary and the context: the same shares of FLOPs
    TIMED = replace(GPT2_SMALL, d_model=256, heads=4, kv_heads=4, d_ff=1_024, vocab=16_752)
    TIMED_LEN, BATCH, DTYPE = 341, 1, torch.float32
# --8<-- [end:timed]


# --8<-- [start:time]
def time_components() -> dict[str, float]:
    """Seconds of each component of a forward pass, alone."""
    d = TIMED.d_model
    block = GPT2Block(TIMED, fused).to(get_device(), DTYPE)
    head = nn.Linear(d, TIMED.vocab, bias=False).to(get_device(), DTYPE)
    x = torch.randn(BATCH, TIMED_LEN, d, dtype=DTYPE, device=get_device())
    q, k, v = block.qkv(x).unflatten(-1, (3, TIMED.heads, -1)).permute(2, 0, 3, 1, 4)
    wide = block.up(x)
    of_a_layer: dict[str, Callable[[], Any]] = {
        "attention": lambda: fused(q, k, v),
        "qkv": lambda: block.qkv(x),
        "out": lambda: block.out(x),
        "mlp": lambda: block.down(block.up(x)),
        "rest": lambda: (block.attention_norm(x) + x, block.mlp_norm(x) + x, F.gelu(wide, approximate="tanh")),
    }
    seconds = {part: TIMED.layers * time_call(call).median_seconds for part, call in of_a_layer.items()}
    return seconds | {"head": time_call(lambda: head(x)).median_seconds}


with torch.no_grad():
    measured_component_seconds = time_components()
measured_forward_seconds = sum(measured_component_seconds.values())
measured_time_share = {part: s / measured_forward_seconds for part, s in measured_component_seconds.items()}
for part, share in measured_time_share.items():
    print(f"{part:10}{component_share['gpt2'].get(part, 0):7.1%} of FLOPs {share:7.1%} of time")
# --8<-- [end:time]


# --8<-- [start:exercise_1]
crossing_70b = crossing(multiplied(LLAMA_3_70B), LLAMA_3_70B)
print(f"T = {crossing_70b:,.0f}")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
small_llama_flops = by_component(formulas.forward_flops(LLAMA_3_2_1B, 8_192))
small_head_share = small_llama_flops["head"] / sum(small_llama_flops.values())
print(f"{small_head_share:.1%}")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
REPORTED_SHARE = 0.40  # MFU of Llama 3 8B at T = 8,192 by PaLM's formula with all parameters

counted_share = REPORTED_SHARE / formula_ratio["llama"]["palm"]
causal_mfu_share = counted_share / causal_ratio[8_192]
print(f"{counted_share:.1%} by the count, {causal_mfu_share:.1%} by the causal count")
# --8<-- [end:exercise_3]
