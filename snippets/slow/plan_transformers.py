# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "transformers"]
# ///
"""How far off the planner is on modules that are not ours: transformers' Llama, Qwen and Mixtral, steps counted."""
# Slow: two dozen whole steps on meta.

# --8<-- [start:setup]
import random
from typing import Any

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AttentionInterface, AutoModelForCausalLM

from flops_bytes.counting.counter import on_cuda, update_fused
from flops_bytes.lessons.trace import Trace
from flops_bytes.plan import plan_exactly as plan

# --8<-- [end:setup]


# --8<-- [start:fused]
def one_kernel(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **_: Any) -> tuple[Tensor, None]:
    """As on a GPU: on meta, transformers' own "sdpa" would always make the T × T scores."""
    return on_cuda(q, k, v).transpose(1, 2), None


AttentionInterface.register("one_kernel", one_kernel)
# --8<-- [end:fused]


# --8<-- [start:models]
WIDE: dict[str, Any] = {  # widths and vocabularies of published models, with fewer layers: each layer is alike
    "llama": {  # Llama 3.2 1B
        "hidden_size": 2_048,
        "intermediate_size": 8_192,
        "num_hidden_layers": 6,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "tie_word_embeddings": True,
    },
    "qwen2": {  # Qwen 2.5 7B
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 4,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
    },
    "qwen3": {  # Qwen 3 0.6B
        "hidden_size": 1_024,
        "intermediate_size": 3_072,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "mixtral": {  # Mixtral 8x7B
        "hidden_size": 4_096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32_000,
        "sliding_window": None,
    },
}
CONFIGS = {kind: CONFIG_MAPPING[kind](**sizes) for kind, sizes in WIDE.items()}
# --8<-- [end:models]


# --8<-- [start:count]
def count_step(asked: dict[str, Any]) -> int:
    """Bytes at the peak of a step of the library's model with its own loss, on meta; AdamW fused."""
    tokens = torch.zeros(asked["micro_batch"], asked["context"], dtype=torch.int64, device="meta")
    dtype = torch.float32 if asked["recipe"] == "fp32" else torch.bfloat16
    eager = asked["attention"] == "eager"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            CONFIGS[asked["model"]], attn_implementation="eager" if eager else "one_kernel", dtype=dtype
        )
        # eager attention asks its mask whether all is causal, which meta cannot answer: so it gets one
        mask = torch.zeros(1, 1, asked["context"], asked["context"], dtype=dtype) if eager else None
    model.train()
    if asked["checkpointing"] == "full":
        model.activation_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    weights = list(model.parameters())
    masters = [weight.detach().float() for weight in weights] if asked["recipe"] == "bf16-master" else weights
    for master in masters:
        master.grad = torch.zeros_like(master)
    optimizer = torch.optim.AdamW(masters, foreach=True)
    optimizer.step()  # makes its state
    optimizer.zero_grad()
    moments = [value for state in optimizer.state.values() for value in state.values() if value.is_meta]
    held = [*weights, *masters, *moments, *model.buffers(), tokens, *([mask] if eager else [])]
    with Trace() as trace:
        for tensor in held:
            trace.hold(tensor.untyped_storage())
        for _ in range(asked["accumulation"]):
            model(
                input_ids=tokens, labels=torch.zeros_like(tokens), attention_mask=mask, use_cache=False
            ).loss.backward()
        if masters is not weights:
            for weight, master in zip(weights, masters, strict=True):
                master.grad, weight.grad = weight.grad.float(), None
        update_fused(masters, optimizer)
    names = {operation.name.removesuffix(".default") for operation in trace.operations}
    assert eager == names.isdisjoint(("_scaled_dot_product_flash_attention", "_safe_softmax"))
    return trace.peak_bytes


# --8<-- [end:count]


# --8<-- [start:compare]
def planned_bytes(asked: dict[str, Any], layers: str) -> int:
    told = asked | {"model": None, "config": CONFIGS[asked["model"]].to_dict(), "layers": layers}
    found = plan(gpu="H100 SXM", **told)["memory_bytes"]
    return int(found["total"] - found["allowance"])


def compare(asked: dict[str, Any]) -> dict[str, Any]:
    """A step counted; planned as if norms were one operation each; and as they are composed there."""
    counted = count_step(asked)
    fused, composed = (planned_bytes(asked, layers) for layers in ("fused", "composed"))
    return asked | {"counted_bytes": counted, "planned_ratio": fused / counted, "composed_ratio": composed / counted}


# --8<-- [end:compare]


# --8<-- [start:one]
ONE = {
    "model": "qwen2",
    "recipe": "bf16",
    "attention": "fused",
    "checkpointing": "none",
    "context": 4_096,
    "micro_batch": 1,
    "accumulation": 1,
}
one = compare(ONE)
print(f"counted {one['counted_bytes']:,} B")
print(f"planned {one['planned_ratio']:.4f} of it, with composed layers {one['composed_ratio']:.4f}")
norms = 2 * CONFIGS["qwen2"].num_hidden_layers + 1
norms_bytes = 4 * 4_096 * CONFIGS["qwen2"].hidden_size * norms  # float32, T tokens, d features
unplanned_bytes = one["counted_bytes"] - planned_bytes(ONE, "fused")
print(f"{norms} norms keep {norms_bytes:,} B more; missing were {unplanned_bytes:,} B")
assert abs(unplanned_bytes / norms_bytes - 1) < 0.01
# --8<-- [end:one]


# --8<-- [start:draw]
NUM_STEPS = 24
drawn = random.Random(NUM_STEPS)


def draw(model: str) -> dict[str, Any]:
    """One step, of all that transformers has and meta can count: its experts multiply in 16 bits alone there."""
    attention = drawn.choice(["fused", "fused", "eager"])
    return {
        "model": model,
        "recipe": drawn.choice(["bf16", "bf16-master"] if model == "mixtral" else ["fp32", "bf16", "bf16-master"]),
        "attention": attention,
        "checkpointing": drawn.choice(["none", "full"]),
        "context": drawn.choice([512, 1_024, 2_048] if attention == "eager" else [512, 2_048, 4_096, 8_192, 16_384]),
        "micro_batch": drawn.choice([1, 2, 4]),
        "accumulation": drawn.choice([1, 2]),
    }


step_cases = [compare(draw(list(CONFIGS)[number % len(CONFIGS)])) for number in range(NUM_STEPS)]
farthest_first = sorted(step_cases, key=lambda case: -abs(case["planned_ratio"] - 1))
for case in farthest_first:
    ratios = "  ".join(f"{case[name]:.4f}" for name in ("planned_ratio", "composed_ratio"))
    told = " ".join(str(value) for value in list(case.values())[:7])
    print(f"{ratios}  {case['counted_bytes'] / 2**30:8.2f} GiB  {told}")
# --8<-- [end:draw]


# --8<-- [start:how_far]
def farthest(ratio: str) -> dict[str, float]:
    """By model: how far off the worst of its steps is, as a share."""
    found = {model: [abs(case[ratio] - 1) for case in step_cases if case["model"] == model] for model in CONFIGS}
    return {model: max(shares) for model, shares in found.items()}


def within_two_per_cent(ratio: str) -> int:
    return sum(abs(case[ratio] - 1) < 0.02 for case in step_cases)


planned_off_share, composed_off_share = farthest("planned_ratio"), farthest("composed_ratio")
planned_within_steps, composed_within_steps = map(within_two_per_cent, ("planned_ratio", "composed_ratio"))
for model, share in planned_off_share.items():
    print(f"{model:10}{share:.2%}, composed {composed_off_share[model]:.2%}")
print(f"{planned_within_steps} of {NUM_STEPS} within 2 %, composed {composed_within_steps}")
assert all(share < 0.005 for model, share in composed_off_share.items() if model != "mixtral")
# --8<-- [end:how_far]


# --8<-- [start:experts]
experts = CONFIGS["mixtral"]
expert_matrix = experts.num_local_experts * experts.hidden_size * experts.intermediate_size
unplanned_experts_bytes = 2 * 2 * expert_matrix  # gate and up of all experts, their gradient in 16 bits
print(f"{unplanned_experts_bytes / 2**30:.2f} GiB")
# --8<-- [end:experts]
