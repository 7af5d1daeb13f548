# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Two napkins: how many days a training run takes, and how large a model fits, each held against what was counted."""

# --8<-- [start:setup]
import math
from typing import NamedTuple

import torch
from accounting import GPUS, get_memory_usage
from torch.utils.flop_counter import FlopCounterMode

h100 = GPUS["H100 SXM"]  # a row of the table of peaks, from NVIDIA's whitepaper
h100_peak = h100.peak_flop_per_second["bfloat16"]  # FLOP/s, dense
# --8<-- [end:setup]


# --8<-- [start:training_days]
SECONDS_PER_DAY = 24 * 60 * 60


def training_flops(parameters: float, tokens: float) -> float:
    """FLOPs of training on so many tokens: 6ND (Kaplan et al., 2020)."""
    return 6 * parameters * tokens


def training_days(flops: float, num_gpus: int, peak_flop_per_second: float, mfu: float) -> float:
    """Days in which num_gpus do so many FLOPs, each at the share mfu of its peak."""
    return flops / (num_gpus * peak_flop_per_second * mfu) / SECONDS_PER_DAY


# --8<-- [end:training_days]


# --8<-- [start:how_long]
PARAMETERS = 70e9  # N
TOKENS = 15e12  # D
NUM_GPUS = 1024
MFU = 0.5  # the share of the peak that training reaches: the one guess among these

run_flops = training_flops(PARAMETERS, TOKENS)
days = training_days(run_flops, NUM_GPUS, h100_peak, MFU)
print(f"{run_flops:.2e} FLOPs: {days:.1f} days")
# --8<-- [end:how_long]


# --8<-- [start:which_gpu]
TABLE_GPUS = ("A100 80GB SXM", "H100 SXM", "H200 SXM")  # rows of gpus.GPUS
PERCENTS = (30, 40, 50)  # MFU

peak_teraflops = {name: GPUS[name].peak_flop_per_second["bfloat16"] / 1e12 for name in TABLE_GPUS}
days_by_gpu = {
    name: {str(mfu): training_days(run_flops, NUM_GPUS, peak * 1e12, mfu / 100) for mfu in PERCENTS}
    for name, peak in peak_teraflops.items()
}
h100_over_a100_ratio = {
    dtype: h100.peak_flop_per_second[dtype] / GPUS["A100 80GB SXM"].peak_flop_per_second[dtype]
    for dtype in ("bfloat16", "float32")
}
assert max(h100_over_a100_ratio.values()) < 4  # not an order of magnitude
assert days_by_gpu["H200 SXM"] == days_by_gpu["H100 SXM"]
utilization_ratio = PERCENTS[-1] / PERCENTS[0]

print("H100 over A100:", {dtype: round(ratio, 2) for dtype, ratio in h100_over_a100_ratio.items()})
# --8<-- [end:which_gpu]


# --8<-- [start:attention]
LAYERS, HEADS, HEAD_SIZE = 80, 64, 128  # L, H, Q of Llama 3 70B, from its params.json
SEQ_LEN = 8192  # T, the context it was trained with


def attention_share_at(seq_len: float) -> float:
    """FLOPs of attention over those of the weights: 12LHQT / 6N (PaLM, appendix B)."""
    return 12 * LAYERS * HEADS * HEAD_SIZE * seq_len / (6 * PARAMETERS)


attention_share = attention_share_at(SEQ_LEN)
causal_attention_share = attention_share / 2  # a kernel that skips what the mask hides does half
days_with_attention = days * (1 + attention_share)
days_with_causal_attention = days * (1 + causal_attention_share)
assert days_with_attention > days + 3 * 7  # "144 days" is off by weeks

print(f"all pairs of tokens: {attention_share:+.1%}, {days_with_attention:.1f} days")
print(f"the causal half:      {causal_attention_share:+.1%}, {days_with_causal_attention:.1f} days")
# --8<-- [end:attention]


# --8<-- [start:published]
class Run(NamedTuple):
    """A training run on H100s, as its makers report it."""

    parameters: float
    tokens: float
    gpu_hours: float


published = {
    "llama_3_70b": Run(70e9, 15e12, 6.4e6),  # model card; tokens: "15T+"
    "llama_3_1_70b": Run(70e9, 15e12, 7.0e6),  # model card; tokens: "15T+"
    "llama_3_1_405b": Run(405e9, 15.6e12, 30.84e6),  # model card; tokens: arXiv 2407.21783
}
# --8<-- [end:published]


# --8<-- [start:reality_check]
def implied_utilization(run: Run) -> float:
    """The MFU at which 6ND takes as many GPU-hours as reported."""
    return training_flops(run.parameters, run.tokens) / (run.gpu_hours * 3600 * h100_peak)


napkin_gpu_hours = days * 24 * NUM_GPUS
reported_to_napkin_ratio = published["llama_3_70b"].gpu_hours / napkin_gpu_hours
implied_share = {name: implied_utilization(run) for name, run in published.items()}
implied_with_attention_share = implied_share["llama_3_70b"] * (1 + attention_share)
assert max(implied_share.values()) < MFU

print(f"napkin {napkin_gpu_hours:.3g} GPU-hours, reported {reported_to_napkin_ratio:.2f} times that")
print(f"implied MFU of Llama 3 70B: {implied_share['llama_3_70b']:.1%}")
# --8<-- [end:reality_check]


# --8<-- [start:how_big]
MACHINE_GPUS = 8
WEIGHT, GRADIENT, MOMENTS = 4, 4, 4 + 4  # bytes a parameter in fp32; AdamW keeps two moments


def largest_model_parameters(
    num_gpus: int, memory_bytes: float, bytes_per_parameter: float, sharded: bool = True
) -> float:
    """Parameters whose training state fills the memory: split over all GPUs, or whole on each."""
    return (num_gpus if sharded else 1) * memory_bytes / bytes_per_parameter


naive_bytes = WEIGHT + GRADIENT + MOMENTS
sharded_parameters = largest_model_parameters(MACHINE_GPUS, h100.memory_bytes, naive_bytes)
replicated_parameters = largest_model_parameters(MACHINE_GPUS, h100.memory_bytes, naive_bytes, sharded=False)
assert sharded_parameters == MACHINE_GPUS * replicated_parameters

print(f"sharded {sharded_parameters / 1e9:g}B, replicated {replicated_parameters / 1e9:g}B")
# --8<-- [end:how_big]


# --8<-- [start:count]
def train_once(dtype: torch.dtype) -> list[torch.Tensor]:
    """All that one step of AdamW leaves in memory for a matrix of 1024 × 1024."""
    weight = torch.nn.Parameter(torch.zeros(1024, 1024, dtype=dtype))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.AdamW([weight])
    optimizer.step()
    return [weight, weight.grad, *optimizer.state[weight].values()]


counted_bytes = {
    "float32": sum(map(get_memory_usage, train_once(torch.float32))),
    "bfloat16": sum(map(get_memory_usage, train_once(torch.bfloat16))),
}
counted_per_parameter = counted_bytes["float32"] / 1024**2
step_counter_bytes = counted_bytes["float32"] - naive_bytes * 1024 * 1024
assert step_counter_bytes == 4  # Adam counts its steps, once for a whole tensor

for dtype, held in counted_bytes.items():
    print(f"{dtype:9}{held:11,} bytes, {held / 1024**2:.6f} a parameter")
# --8<-- [end:count]


# --8<-- [start:recipes]
class Recipe(NamedTuple):
    """Bytes that training with AdamW keeps for every parameter."""

    weights: int
    gradients: int
    master: int  # a second copy of the weights, in fp32, that the optimizer updates
    moments: int


recipes = {
    "fp32": Recipe(4, 4, 0, 8),
    "bf16_master": Recipe(2, 2, 4, 8),  # mixed precision as ZeRO counts it
    "bf16_master_fp32_gradients": Recipe(2, 4, 4, 8),
    "bf16_fp32_moments": Recipe(2, 2, 0, 8),
    "bf16": Recipe(2, 2, 0, 4),  # what torch.optim.AdamW makes of bf16 parameters
}
# --8<-- [end:recipes]


# --8<-- [start:largest]
memory_by_gpu = {gpu: GPUS[gpu].memory_bytes for gpu in TABLE_GPUS}
state_bytes = {name: sum(recipe) for name, recipe in recipes.items()}
largest_parameters = {
    name: {gpu: largest_model_parameters(MACHINE_GPUS, held, size) for gpu, held in memory_by_gpu.items()}
    for name, size in state_bytes.items()
}
assert state_bytes["bf16_master"] == state_bytes["fp32"]  # faster, not smaller
assert state_bytes["bf16"] == counted_bytes["bfloat16"] // 1024**2
# --8<-- [end:largest]


# --8<-- [start:stall]
STEPS, STEP_SIZE = 1000, 1e-3


def walk(dtype: torch.dtype) -> torch.Tensor:
    """A weight that starts at 1 and takes all steps in one direction."""
    weight = torch.ones((), dtype=dtype)
    for _ in range(STEPS):
        weight += STEP_SIZE
    return weight


after_walk = {
    "float32": walk(torch.float32).item(),
    "bfloat16": walk(torch.bfloat16).item(),
    "float32_master": walk(torch.float32).to(torch.bfloat16).item(),
}
bf16_gap = torch.finfo(torch.bfloat16).eps  # from 1 to the next number that bf16 has
assert after_walk["bfloat16"] == 1.0  # exactly
assert bf16_gap / 2 > STEP_SIZE

for how, end in after_walk.items():
    print(f"{how:15}{end}")
# --8<-- [end:stall]


# --8<-- [start:which_binds]
FORTNIGHT = 14  # days
TOKENS_PER_PARAMETER = 20  # about compute-optimal (Hoffmann et al., 2022)

peak_fortnight_flops = MACHINE_GPUS * h100_peak * FORTNIGHT * SECONDS_PER_DAY
fortnight_flops = MFU * peak_fortnight_flops
assert round(peak_fortnight_flops / 4.79e21) == 2  # "4.79e21, at full peak" is one week

affordable_parameters = math.sqrt(fortnight_flops / (6 * TOKENS_PER_PARAMETER))  # 6 · N · 20N

full_model_flops = training_flops(sharded_parameters, TOKENS_PER_PARAMETER * sharded_parameters)
full_model_days = training_days(full_model_flops, MACHINE_GPUS, h100_peak, MFU)

print(f"{peak_fortnight_flops:.3g} FLOPs at full peak, {fortnight_flops:.3g} at MFU {MFU}")
print(f"{affordable_parameters / 1e9:.1f}B; the model that fits takes {full_model_days:.0f} days")
# --8<-- [end:which_binds]


# --8<-- [start:on_one_scale]
compute_flops = {
    "fortnight": fortnight_flops,
    "gpt_3": 3.14e23,  # arXiv 2005.14165, table D.1
    "run_70b": run_flops,
    "gpt_4": 2.1e25,  # Epoch AI's estimate from outside; its makers have published none
    "llama_3_1_405b": 3.8e25,  # arXiv 2407.21783
}
# --8<-- [end:on_one_scale]


# --8<-- [start:thresholds]
class Threshold(NamedTuple):
    """Training compute above which a law asks something of a model's provider, and when."""

    flops: float
    since: str
    until: str | None


thresholds = {
    "eu": Threshold(1e25, "2025-08-02", None),  # Regulation (EU) 2024/1689, Art. 51(2), 113(b)
    "us": Threshold(1e26, "2023-10-30", "2025-01-20"),  # Executive Order 14110, revoked by 14148
}
LAST_CHECKED = "2026-07-01"


def is_law(threshold: Threshold, date: str) -> bool:
    """Whether a threshold held on a date (ISO 8601, whose text sorts by time)."""
    return threshold.since <= date and (threshold.until is None or date < threshold.until)


assert is_law(thresholds["us"], "2024-07-01") and not is_law(thresholds["us"], LAST_CHECKED)
above_eu = [name for name, flops in compute_flops.items() if flops > thresholds["eu"].flops]
run_to_eu_share = run_flops / thresholds["eu"].flops

print({law: is_law(threshold, LAST_CHECKED) for law, threshold in thresholds.items()})
print("above 1e25:", *above_eu)
# --8<-- [end:thresholds]


# --8<-- [start:exercise_1]
points, d_in, d_out = 4096, 512, 256
x = torch.empty(points, d_in, device="meta")  # shapes without numbers: enough to count
weight = torch.empty(d_in, d_out, device="meta")
with FlopCounterMode(display=False) as counter:
    y = x @ weight
forward_flops = counter.get_total_flops()

assert forward_flops != 2 * weight.numel()  # the claim
assert forward_flops == 2 * weight.numel() * points
print(f"{forward_flops:,} FLOPs counted, {forward_flops // weight.numel():,} for each parameter")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
gpt_3_flops = training_flops(175e9, 300e9)
gpt_3_ratio = gpt_3_flops / compute_flops["gpt_3"]
gpt_3_days = training_days(gpt_3_flops, NUM_GPUS, peak_teraflops["A100 80GB SXM"] * 1e12, MFU)

assert abs(gpt_3_ratio - 1) < 0.005
print(f"{gpt_3_flops:.3g} FLOPs, {gpt_3_ratio:.3f} of the reported; {gpt_3_days:.1f} days")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
weights_only_bytes = WEIGHT * PARAMETERS
all_state_bytes = naive_bytes * PARAMETERS
gpus_needed = math.ceil(all_state_bytes / h100.memory_bytes)

assert weights_only_bytes == all_state_bytes / 4
assert largest_model_parameters(gpus_needed, h100.memory_bytes, naive_bytes) >= PARAMETERS
print(f"weights {weights_only_bytes / 1e9:g} GB of {all_state_bytes / 1e9:g} GB; {gpus_needed} GPUs")
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
def activation_bytes(batch: int, seq_len: int) -> int:
    """Activations of GPT-2 small in 16 bits: L(34sbh + 5as²b) (Korthikanti et al., 2022)."""
    layers, d_model, heads = 12, 768, 12  # L, h, a
    return layers * batch * (34 * seq_len * d_model + 5 * heads * seq_len**2)


gpt_2_bytes = 4 * 124_439_808  # its weights in fp32
activations_ratio = {
    f"b{batch}_s{seq_len}": activation_bytes(batch, seq_len) / gpt_2_bytes
    for batch, seq_len in ((1, 1024), (8, 1024), (8, 2048))
}
assert not all(1 <= ratio <= 3 for ratio in activations_ratio.values())  # the claim
print({case: round(ratio, 1) for case, ratio in activations_ratio.items()})
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
doubling_seq_len = SEQ_LEN / causal_attention_share  # attention grows in proportion to T

assert math.isclose(attention_share_at(doubling_seq_len) / 2, 1)
print(f"{doubling_seq_len:,.0f} tokens")
# --8<-- [end:exercise_5]
