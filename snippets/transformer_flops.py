# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Where a transformer's FLOPs go: by component, context and formula, against a counter."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.lessons import models
from flops_bytes.lessons.measure import get_device, time_call
from flops_bytes.lessons.models import (
    GPT2_SMALL,
    LLAMA_3_8B,
    GPT2Block,
    LlamaBlock,
    build,
    eager,
    flash,
    flash_each,
    fused,
    loss,
)
from flops_bytes.model.flops import ATTENTION, backward_flops, forward_flops, megatron_flops, palm_flops
from flops_bytes.model.shapes import MIXTRAL_8X7B, Decoder, parameters
from flops_bytes.time.gpus import GPUS


# --8<-- [start:formula]
def multiplied(shape: Decoder) -> int:
    """M: the parameters of all matrices that multiply a token."""
    d, wide = shape.d_model, shape.heads * shape.head_dim
    projections = d * (wide + 2 * shape.kv_heads * shape.head_dim) + wide * d
    mlp = (3 if shape.gated else 2) * d * shape.d_ff * shape.active_experts
    router = d * shape.experts if shape.experts > 1 else 0
    return shape.layers * (projections + mlp + router) + d * shape.vocab  # the head


def token_flops(shape: Decoder, T: int) -> int:
    """Of a training step, over all pairs of tokens: 6M + 12LHQT."""
    return 6 * multiplied(shape) + 12 * shape.layers * shape.heads * shape.head_dim * T


for T in (8_192, 131_072):
    print(f"T = {T:7,}: {token_flops(LLAMA_3_8B, T):,} FLOPs a token")
# --8<-- [end:formula]


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


print(f"counted  {sum(count_step(replace(LLAMA_3_8B, layers=1), 8_192, eager)):,}")
print(f"formula  {8_192 * token_flops(replace(LLAMA_3_8B, layers=1), 8_192):,}")
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


class Experts(nn.Module):
    """Mixtral's MLPs with a router; here each expert gets as many tokens as the others."""

    def __init__(self, shape: Decoder) -> None:
        super().__init__()
        self.shape = shape
        self.router = nn.Linear(shape.d_model, shape.experts, bias=False)
        blocks = [LlamaBlock(shape, eager) for _ in range(shape.experts)]
        self.experts = [(block.gate, block.up, block.down) for block in blocks]

    def forward(self, x: Tensor) -> Tensor:
        """(b, T, d) → (b, T, d)."""
        sent = x.repeat(1, self.shape.active_experts, 1).chunk(self.shape.experts, dim=1)
        weight: Tensor = self.router(x).softmax(-1).mean()  # the weighting is element-wise
        parts = [down(F.silu(gate(h)) * up(h)) for h, (gate, up, down) in zip(sent, self.experts, strict=True)]
        changes = torch.cat(parts, dim=1).chunk(self.shape.active_experts, dim=1)
        return weight * torch.stack(changes).sum(0)


def count_experts(shape: Decoder, seq_len: int) -> int:
    """FLOPs of a step's MLPs with their router, of one layer."""
    with torch.device("meta"):
        x = torch.zeros(1, seq_len, shape.d_model, requires_grad=True)
        experts = Experts(shape)
    with FlopCounterMode(display=False) as counter:
        experts(x).sum().backward()
    return int(counter.get_total_flops())


CASES = {  # a shape, and T
    "gpt2_1k": (GPT2_SMALL, 1_024),
    "llama_8k": (LLAMA_3_8B, 8_192),
    "llama_128k": (LLAMA_3_8B, 131_072),
    "mixtral_32k": (MIXTRAL_8X7B, 32_768),
}
CASE_LEN = {case: T for case, (_, T) in CASES.items()}


def count_case(shape: Decoder, T: int) -> int:
    """FLOPs of a step with eager attention: one layer, counted, as often as there are layers, and the head."""
    dense = replace(shape, experts=1, active_experts=1)
    head, with_layer = (sum(count_step(replace(dense, layers=n), T, eager)) for n in (0, 1))
    layer = with_layer - head
    if shape.experts > 1:  # in place of the dense MLP
        mlp = forward_flops(replace(dense, layers=1), T)["mlp"]
        layer += count_experts(shape, T) - 3 * mlp
    return head + shape.layers * layer


counted_steps_flops = {case: count_case(shape, T) for case, (shape, T) in CASES.items()}
counted_token_flops = {case: counted_steps_flops[case] // T for case, (_, T) in CASES.items()}
formula_token_flops = {case: token_flops(shape, T) for case, (shape, T) in CASES.items()}
causal_token_flops = {case: step_flops(shape, T, causal=True) // T for case, (shape, T) in CASES.items()}
print(*(f"{case}: {count:,}" for case, count in counted_token_flops.items()), sep="\n")
assert counted_token_flops == formula_token_flops
assert counted_steps_flops == {case: formula_token_flops[case] * T for case, (_, T) in CASES.items()}


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


def attention_shares(shape: Decoder, causal: bool = False) -> dict[int, float]:
    """Attention's share of a forward pass in each context."""
    shares = {T: as_shares(by_component(shape, T, causal)) for T in CONTEXTS}
    return {T: share["attention"] for T, share in shares.items()}


attention_share = {m: attention_shares(shape) for m, shape in SHAPES.items()}
causal_share = {m: attention_shares(shape, True) for m, shape in SHAPES.items()}
for T in CONTEXTS:
    print(f"{T:8,}", *(f"{m} {share[T]:6.1%}" for m, share in attention_share.items()))


# --8<-- [start:equal]
def crossing(M: int, shape: Decoder) -> float:
    """The context in which scores and values take as much as all other matmuls."""
    return M / (2 * shape.layers * shape.heads * shape.head_dim)


for name, shape in {"GPT-2 small": GPT2_SMALL, "Llama 3 8B": LLAMA_3_8B}.items():
    print(f"{name:12}{crossing(multiplied(shape), shape):7,.0f} tokens")
# --8<-- [end:equal]


def layers_alone(shape: Decoder) -> int:
    return multiplied(shape) - shape.d_model * shape.vocab


# --8<-- [start:crossing]
multiplied_parameters = {m: multiplied(shape) for m, shape in SHAPES.items()}
crossings = {m: crossing(multiplied(shape), shape) for m, shape in SHAPES.items()}
without_head = {m: crossing(layers_alone(shape), shape) for m, shape in SHAPES.items()}
crossing_in_widths = {m: T / SHAPES[m].d_model for m, T in without_head.items()}
at_crossing = count_parts(LLAMA_3_8B, round(crossings["llama"]))
crossing_attention_flops = at_crossing.pop("attention")
crossing_rest_flops = sum(at_crossing.values())
assert crossing_attention_flops == crossing_rest_flops
# --8<-- [end:crossing]


def all_over_causal(shape: Decoder, T: int) -> float:
    return step_flops(shape, T) / step_flops(shape, T, causal=True)


causal_ratio = {T: all_over_causal(LLAMA_3_8B, T) for T in CONTEXTS}
for T in (8_192, 131_072):
    print(f"T = {T:7,}: all pairs are {causal_ratio[T]:.2f} × the causal count")


def without_tables(shape: Decoder) -> int:
    """Kaplan's N; of experts, the active ones."""
    tables = ("embedding", "positions", "head")
    counted = parameters(shape, active=True)
    return sum(n for part, n in counted.items() if part not in tables)


NAMED = SHAPES | {"mixtral": MIXTRAL_8X7B}
names_parameters = {
    m: {
        "all": sum(parameters(shape).values()),
        "active": sum(parameters(shape, active=True).values()),
        "multiplied": multiplied(shape),
        "kaplan": without_tables(shape),
    }
    for m, shape in NAMED.items()
}
names_ratio = names_parameters["gpt2"]["all"] / names_parameters["gpt2"]["kaplan"]


# --8<-- [start:papers]
def chinchilla_flops(shape: Decoder, T: int) -> int:
    """Appendix F, for a layer with as many key as query heads and two matrices in its MLP."""
    d, wide, V = shape.d_model, shape.heads * shape.head_dim, shape.vocab
    projections = 2 * 3 * T * d * wide + 2 * T * wide * d
    attention = 2 * T * T * wide + 3 * shape.heads * T * T + 2 * T * T * wide
    dense = 2 * T * (d * shape.d_ff + d * shape.d_ff)
    forward = 2 * T * V * d + shape.layers * (projections + attention + dense) + 2 * T * d * V
    return 3 * forward


def over_count(case: str) -> dict[str, float]:
    """What each formula says of a step over T tokens, over the count of all pairs."""
    shape, T = CASES[case]
    N, active, positions, kaplan = (
        sum(parameters(shape).values()),
        sum(parameters(shape, active=True).values()),
        parameters(shape)["positions"],
        without_tables(shape),
    )
    M, scores = multiplied(shape), 12 * shape.layers * shape.heads * shape.head_dim * T
    said = {
        "all": 6 * N * T,
        "kaplan": 6 * kaplan * T,
        "kaplan_context": (6 * kaplan + scores / 2) * T,
        "chinchilla": chinchilla_flops(shape, T),
        "palm": palm_flops(shape, active, T, T),
        "nanogpt": palm_flops(shape, active - positions, T, T),
        "megatron": megatron_flops(shape, T, T),
        "megatron_today": (6 * M + scores / 2) * T,
        "multiplied": palm_flops(shape, M, T, T),
        "causal": step_flops(shape, T, causal=True),
    }
    return {formula: flops / counted_steps_flops[case] for formula, flops in said.items()}


over_count_ratio = {case: over_count(case) for case in CASES}
counted_step_flops = counted_steps_flops["gpt2_1k"]
palm_step_flops = palm_flops(
    GPT2_SMALL,
    multiplied_parameters["gpt2"],
    tokens=1_024,
    seq_len=1_024,
)
missed_share = {case: 1 - over_count_ratio[case]["all"] for case in ("llama_8k", "llama_128k")}
assert counted_step_flops == palm_step_flops == step_flops(GPT2_SMALL, 1_024)
assert {ratio["multiplied"] for ratio in over_count_ratio.values()} == {1}
# --8<-- [end:papers]


expert_parameters = {
    "total": sum(parameters(MIXTRAL_8X7B).values()),
    "active": sum(parameters(MIXTRAL_8X7B, active=True).values()),
}


# --8<-- [start:bill]
H100_PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]  # FLOP/s, dense
TOKENS, MFU = 1e12, 0.3  # D; a run's MFU, with the hours in which no step runs


def gpu_hours(flops: float) -> float:
    return flops / (H100_PEAK * MFU) / 3600


for T in (8_192, 131_072):
    print(f"T = {T:7,}: {gpu_hours(TOKENS * token_flops(LLAMA_3_8B, T)):9,.0f} H100-hours")
# --8<-- [end:bill]

bill_hours = {case: gpu_hours(TOKENS * token_flops(*CASES[case])) for case in CASES}
bill_flops = {case: TOKENS * token_flops(*CASES[case]) for case in CASES}
six_hours = {case: bill_hours[case] * over_count_ratio[case]["all"] for case in CASES}
causal_hours = {case: bill_hours[case] * over_count_ratio[case]["causal"] for case in CASES}
bill_ratio = bill_hours["llama_128k"] / bill_hours["llama_8k"]


TITAN_TOKENS = 2_904  # a second and A100: pytorch/torchtitan, docs/performance.md at 6a6f755
A100_PEAK = GPUS["A100 80GB SXM"].peak_flop_per_second["bfloat16"]

named_parameters = names_parameters["llama"]["all"]
run_token_flops = {
    "theirs": palm_flops(LLAMA_3_8B, named_parameters, tokens=1, seq_len=8_192),
    "all_pairs": token_flops(LLAMA_3_8B, 8_192),
    "causal": step_flops(LLAMA_3_8B, 8_192, causal=True) / 8_192,
    "six": 6 * named_parameters,
}
run_share = {name: TITAN_TOKENS * flops / A100_PEAK for name, flops in run_token_flops.items()}
titan_hours = TOKENS / TITAN_TOKENS / 3600  # of A100s, for a trillion tokens
short_share = run_token_flops["causal"] / run_token_flops["theirs"]
assert round(run_share["theirs"], 3) == 0.568  # what they report


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


# --8<-- [start:exercise_1]
crossing_70b = crossing(multiplied(models.LLAMA_3_70B), models.LLAMA_3_70B)
print(f"T = {crossing_70b:,.0f}")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
small_llama = models.LLAMA_3_2_1B
small_head_share = 6 * small_llama.d_model * small_llama.vocab / token_flops(small_llama, 8_192)
print(f"{small_head_share:.1%}")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
TITAN_70B_TOKENS = 331  # a second and A100, at 8,192; reported MFU: 51.7 %

all_70b = sum(parameters(models.LLAMA_3_70B).values())
reported_flops = palm_flops(models.LLAMA_3_70B, all_70b, tokens=1, seq_len=8_192)
reported_share = TITAN_70B_TOKENS * reported_flops / A100_PEAK
counted_70b_share = TITAN_70B_TOKENS * token_flops(models.LLAMA_3_70B, 8_192) / A100_PEAK
print(f"{reported_share:.1%} with all parameters, {counted_70b_share:.1%} with M")
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
QWEN3_0_6B = Decoder(28, 1_024, 16, 8, 128, 3_072, 151_936, tied=True)  # HQ is 2d

by_width_flops = 6 * multiplied(QWEN3_0_6B) + 12 * 28 * 1_024 * 32_768  # 12LdT
by_width_ratio = by_width_flops / token_flops(QWEN3_0_6B, 32_768)
print(f"{by_width_ratio:.2f}")
# --8<-- [end:exercise_4]
