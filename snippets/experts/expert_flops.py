# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "transformers>=5.23"]
# ///
"""What PyTorch's counter sees of models with experts, what a count of all experts says, and what capacity adds."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from flops_bytes.lessons.trace import meta, saved_bytes
from flops_bytes.model import stack
from flops_bytes.model.config import read_stack
from flops_bytes.model.presets import PRESETS
from flops_bytes.parallel.layouts import scatter_rate
from flops_bytes.parallel.sharding import LINK_BYTES_PER_SECOND
from flops_bytes.time.gpus import GPUS, LINK_EFFICIENCY

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
assert all(flops["batched"] == flops["formula"] for flops in routed_flops.values())


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


CAPACITY_FACTOR, MICRO_BATCH = 1.25, 4_096  # tokens that are routed together
CHOICES, EXPERTS = 8, 128  # of Qwen3-30B-A3B
mean_tokens = MICRO_BATCH * CHOICES // EXPERTS
room_tokens = int(CAPACITY_FACTOR * mean_tokens)
dropped_tokens = 2 * mean_tokens - room_tokens  # of an expert that twice as many choose
forward_parts_flops = stack.forward_flops(QWEN, MICRO_BATCH)
experts_share = forward_parts_flops["experts"] / sum(forward_parts_flops.values())
capacity_ratio = 1 + (CAPACITY_FACTOR - 1) * experts_share


# --8<-- [start:layer]
T, E, k, d, f = 4_096, 128, 8, 2_048, 768  # tokens; experts of Qwen3 30B-A3B, those of a token, and their sizes
gate_up = meta(E, d, 2 * f, dtype=torch.bfloat16).requires_grad_()
down = meta(E, f, d, dtype=torch.bfloat16).requires_grad_()


def through_experts(x: Tensor, shares: Tensor, order: Tensor, ends: Tensor) -> Tensor:
    """x (T, d), shares (T, k): order sorts the T · k rows by expert, ends says where those of each expert end."""
    rows = x[order // k]  # (T · k, d), a token once for each of its experts
    gate, up = F.grouped_mm(rows, gate_up, offs=ends).chunk(2, dim=-1)  # (T · k, f) each
    results = F.grouped_mm(F.silu(gate) * up, down, offs=ends)  # (T · k, d)
    weighted = results * shares.flatten()[order][:, None]
    return weighted[order.argsort()].view(T, k, d).sum(1)


# --8<-- [end:layer]


# --8<-- [start:unseen]
x = meta(T, d, dtype=torch.bfloat16).requires_grad_()
shares = meta(T, k, dtype=torch.bfloat16).requires_grad_()
order, ends = meta(T * k, dtype=torch.int64), meta(E, dtype=torch.int32)

with FlopCounterMode(display=False) as seen:
    through_experts(x, shares, order, ends)
print(f"{seen.get_total_flops():,} FLOPs counted, {T * k * 2 * 3 * d * f:,} computed")
# --8<-- [end:unseen]


# --8<-- [start:kept]
kept = saved_bytes(lambda: through_experts(x, shares, order, ends), [gate_up, down, x, shares])
dense = 2 * T * (d + 4 * k * f)  # one MLP as wide as k experts
print(f"experts keep {kept / 2**20:.0f} MiB, one MLP of the same FLOPs {dense / 2**20:.0f} MiB")
# --8<-- [end:kept]


# --8<-- [start:sent]
FLOP_PER_SECOND = 0.4 * GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]  # the MFU of a good step
NVLINK, NETWORK = (LINK_EFFICIENCY * rate for rate in LINK_BYTES_PER_SECOND.values())  # 400 Gb/s for each GPU


def sent_to_computed(d_ff: int, ranks: int) -> float:
    """Forward: seconds of sending tokens to their experts and back over those of the experts' three matmuls."""
    sent_bytes = 2 * 2 * (ranks - 1) / ranks  # of one feature of one token, there and back
    flops = 2 * 3 * d_ff
    return sent_bytes / scatter_rate(1, ranks, NVLINK, NETWORK) * FLOP_PER_SECOND / flops


expert_wait_ratio = {
    "wide": {ranks: sent_to_computed(14_336, ranks) for ranks in (8, 64)},  # Mixtral 8x7B
    "narrow": {ranks: sent_to_computed(2_048, ranks) for ranks in (8, 64)},  # DeepSeek-V3
}
print(expert_wait_ratio["narrow"])
# --8<-- [end:sent]


# --8<-- [start:exercise_capacity]
loads = [2600, 2500, 2200, 2100, 2000, 1900, 1700, 1384]  # of 8,192 tokens with two experts each
places = int(1.25 * sum(loads) / len(loads))
dropped = sum(max(0, load - places) for load in loads)
dropless_factor = max(loads) / (sum(loads) / len(loads))
print(f"{places} places an expert: {dropped} dropped, and none from a factor of {dropless_factor:.2f}")
assert sum(loads) == 2 * 8_192 and dropped == 40
# --8<-- [end:exercise_capacity]


# --8<-- [start:exercise_six]
def flops_a_weight(layers: list[torch.nn.Linear]) -> float:
    """FLOPs of a step for each token and stored weight, behind something that is trained."""
    features = meta(64, 128).requires_grad_()
    with FlopCounterMode(display=False) as step:
        torch.nn.Sequential(*layers)(features).sum().backward()
    stored = sum(weight.numel() for weight in {layer.weight for layer in layers})
    return float(step.get_total_flops() / 64 / stored)


with torch.device("meta"):
    twelve = [torch.nn.Linear(128, 128, bias=False) for _ in range(12)]
six = {"own": flops_a_weight(twelve), "shared": flops_a_weight(twelve[:1] * 12)}
six["frozen"] = flops_a_weight([layer.requires_grad_(False) for layer in twelve])
print(six)
assert six == {"own": 6, "shared": 12 * 6, "frozen": 4}
# --8<-- [end:exercise_six]
