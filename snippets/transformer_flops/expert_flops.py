# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "transformers>=5.23"]
# ///
"""What PyTorch's counter sees of models with experts, what a count of all experts says, and what capacity adds."""

# --8<-- [start:routed]
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from flops_bytes import stack
from flops_bytes.configs import read_stack
from flops_bytes.presets import PRESETS

ROUTED_LEN = 1_024  # T
WITH_EXPERTS = {"qwen": "qwen3-30b-a3b", "glm": "glm-4.5-air", "deepseek": "deepseek-v3"}
ROUTED = {name: read_stack(PRESETS[model].config) for name, model in WITH_EXPERTS.items()}


def count_layers(config: dict[str, Any], experts: str) -> int:
    """FLOPs of a training step over one sequence, all pairs, of transformers' module on meta."""
    how = {"dtype": torch.bfloat16, "attn_implementation": "eager", "experts_implementation": experts}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[config["model_type"]](**config), **how)
        tokens = torch.zeros(1, ROUTED_LEN, dtype=torch.int64)
        mask = torch.ones(1, 1, ROUTED_LEN, ROUTED_LEN, dtype=torch.bool)
    with FlopCounterMode(display=False) as counter:
        logits = model(tokens, attention_mask=mask, use_cache=False).logits
        logits.backward(torch.empty_like(logits))
    return int(counter.get_total_flops())


def count_routed(name: str, experts: str) -> int:
    """The same of all layers: from the fourth on they are alike, so the difference of five and four stands for each."""
    config = dict(PRESETS[WITH_EXPERTS[name]].config)
    layers: int = config["num_hidden_layers"]
    four, five = (count_layers(config | {"num_hidden_layers": some}, experts) for some in (4, 5))
    return four + (layers - 4) * (five - four)


routed_flops = {
    name: {
        "formula": 3 * sum(stack.forward_flops(shape, ROUTED_LEN).values()),
        "batched": count_routed(name, "batched_mm"),
        "grouped": count_routed(name, "grouped_mm"),
    }
    for name, shape in ROUTED.items()
}
routed_ratio = {
    name: {how: flops[how] / flops["formula"] for how in ("batched", "grouped")} for name, flops in routed_flops.items()
}
for name, ratios in routed_ratio.items():
    print(f"{name:9}", *(f"{how} {ratio:.3f}  " for how, ratio in ratios.items()))
    assert routed_flops[name]["batched"] == routed_flops[name]["formula"]
# --8<-- [end:routed]


# --8<-- [start:all_experts]
QWEN, QWEN_LEN = ROUTED["qwen"], 8_192
held = sum(stack.parameters(QWEN).values())
met = sum(stack.parameters(QWEN, active=True).values())
pairs_flops = 6 * 48 * 32 * 128 * QWEN_LEN  # 6LHQT
public_token_flops = 6 * held + pairs_flops  # pytorch/torchtitan at b5bcd76
qwen_token_flops = 3 * sum(stack.forward_flops(QWEN, QWEN_LEN).values()) // QWEN_LEN
public_ratio = public_token_flops / qwen_token_flops
public_billions = {  # where the difference comes from
    "idle_experts": 6 * (held - met) / 1e9,
    "embedding": 6 * QWEN.vocab * QWEN.d_model / 1e9,
    "attention": -pairs_flops / 1e9,
}
qwen_billions, public_total_billions = qwen_token_flops / 1e9, public_token_flops / 1e9
public_billions["norms"] = public_total_billions - qwen_billions - sum(public_billions.values())
print(f"said {public_token_flops / 1e9:.1f} GFLOPs a token, counted {qwen_token_flops / 1e9:.1f}: {public_ratio:.2f}")
# --8<-- [end:all_experts]


# --8<-- [start:capacity]
CAPACITY_FACTOR, MICRO_BATCH = 1.25, 4_096  # tokens that are routed together
CHOICES, EXPERTS = 8, 128  # of Qwen3-30B-A3B
mean_tokens = MICRO_BATCH * CHOICES // EXPERTS
room_tokens = int(CAPACITY_FACTOR * mean_tokens)
dropped_tokens = 2 * mean_tokens - room_tokens  # of an expert that twice as many choose
forward_parts_flops = stack.forward_flops(QWEN, MICRO_BATCH)
experts_share = forward_parts_flops["experts"] / sum(forward_parts_flops.values())
capacity_ratio = 1 + (CAPACITY_FACTOR - 1) * experts_share
print(f"{mean_tokens} tokens an expert, room for {room_tokens}: {capacity_ratio:.3f} of the FLOPs")
# --8<-- [end:capacity]
