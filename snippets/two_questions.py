# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""How many days a training run takes, how large a model fits: estimates, beside the planner and published runs."""

# --8<-- [start:setup]
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.flops import six_n_d_flops, training_seconds
from flops_bytes.gpus import GPUS
from flops_bytes.measure import get_memory_usage
from flops_bytes.plan import plan_exactly as plan

SECONDS_PER_DAY = 24 * 60 * 60
H100 = GPUS["H100 SXM"]  # a row of the table of peaks
H100_PEAK = H100.peak_flop_per_second["bfloat16"]  # FLOP/s, dense


def ask(**options: Any) -> SimpleNamespace:
    """The planner's answer, its lines as attributes."""
    return SimpleNamespace(**plan(**options))


# --8<-- [end:setup]


# --8<-- [start:how_long]
PARAMETERS = 70e9  # N
TOKENS = 15e12  # D
NUM_GPUS = 1024  # R
MFU = 0.3  # the one assumption among these

run_flops = 6 * PARAMETERS * TOKENS  # C
flops_per_day = NUM_GPUS * H100_PEAK * MFU * SECONDS_PER_DAY
days = run_flops / flops_per_day
napkin_gpu_hours = days * 24 * NUM_GPUS
print(f"{run_flops:.2e} FLOPs: {days:.1f} days")
# --8<-- [end:how_long]


# --8<-- [start:which_gpu]
TABLE_GPUS = ("A100 80GB SXM", "H100 SXM", "H200 SXM")  # rows of gpus.GPUS
PERCENTS = (30, 40, 50)  # MFU


def peak(gpu: str) -> float:
    return GPUS[gpu].peak_flop_per_second["bfloat16"]


def days_on(gpu: str, mfu: float) -> float:
    return training_seconds(run_flops, NUM_GPUS, peak(gpu), mfu) / SECONDS_PER_DAY


peak_teraflops = {gpu: peak(gpu) / 1e12 for gpu in TABLE_GPUS}
days_by_gpu = {
    gpu: {str(per_cent): days_on(gpu, per_cent / 100) for per_cent in PERCENTS}
    for gpu in TABLE_GPUS  # the peaks differ, nothing else
}
assert days_by_gpu["H200 SXM"] == days_by_gpu["H100 SXM"]
# --8<-- [end:which_gpu]


# --8<-- [start:attention]
SEQ_LEN = 8192  # T, the context that Llama 3 was trained with
planner = ask(
    model="llama-3-70b",
    gpu="H100 SXM",
    gpus=NUM_GPUS,
    zero=3,
    context=SEQ_LEN,
    checkpointing="full",
    tokens=TOKENS,
    mfu=MFU,
)
planned_days = planner.days
planned_to_napkin_ratio = planned_days / days
print(f"{planned_days:.1f} days, {planned_to_napkin_ratio:.3f} times 6ND's")
# --8<-- [end:attention]


# --8<-- [start:terms]
counts = planner.parameters
model_parameters = counts["total"]
looked_up = counts["embedding"]  # a token reads one row of it
multiplied_parameters = model_parameters - looked_up - counts["norms"]
lookup_share = 1 - multiplied_parameters / PARAMETERS

token_flops = {pairs: flops["model"] for pairs, flops in planner.flops_a_token.items()}
attention_share = token_flops["all"] / (6 * PARAMETERS) - (1 - lookup_share)
causal_days = planned_days * token_flops["causal"] / token_flops["all"]

print(f"attention {attention_share:+.1%}, multiplied parameters {-lookup_share:+.1%}")
print(f"half of attention: {causal_days:.0f} days")
assert math.isclose(planned_to_napkin_ratio, 1 + attention_share - lookup_share)
assert planned_days > days + 2 * 7  # attention costs weeks
# --8<-- [end:terms]


# --8<-- [start:published]
class Run(NamedTuple):
    """A training run, as its makers report it."""

    gpu: str  # a row of gpus.GPUS
    parameters: float
    tokens: float
    gpu_hours: float


A100_NAME, H100_NAME = "A100 80GB SXM", "H100 SXM"
published = {  # all rows of three tables
    "llama_2_7b": Run(A100_NAME, 7e9, 2e12, 184_320),  # arXiv 2307.09288, table 2
    "llama_2_13b": Run(A100_NAME, 13e9, 2e12, 368_640),
    "llama_2_34b": Run(A100_NAME, 34e9, 2e12, 1_038_336),
    "llama_2_70b": Run(A100_NAME, 70e9, 2e12, 1_720_320),
    "llama_3_8b": Run(H100_NAME, 8e9, 15e12, 1.3e6),  # model card; tokens: "15T+"
    "llama_3_70b": Run(H100_NAME, 70e9, 15e12, 6.4e6),
    "llama_3_1_8b": Run(H100_NAME, 8e9, 15e12, 1.46e6),  # model card; tokens: "15T+"
    "llama_3_1_70b": Run(H100_NAME, 70e9, 15e12, 7.0e6),
    "llama_3_1_405b": Run(H100_NAME, 405e9, 15.6e12, 30.84e6),  # tokens: arXiv 2407.21783
}


def hours_to_book(run: Run) -> float:
    """GPU-hours of 6ND at the MFU to book by."""
    return 6 * run.parameters * run.tokens / (peak(run.gpu) * MFU) / 3600


booked_hours = {name: hours_to_book(run) for name, run in published.items()}
published_days = published["llama_3_70b"].gpu_hours / 24 / NUM_GPUS
published_to_booked_ratio = published_days / days
# --8<-- [end:published]


# --8<-- [start:booked]
took_ratio = {name: run.gpu_hours / booked_hours[name] for name, run in published.items()}
hours_share = {name: MFU / ratio for name, ratio in took_ratio.items()}  # 6ND over the peak
num_runs = len(took_ratio)

IN_BUDGET = 1.2  # times the booked hours
in_budget = [name for name, ratio in took_ratio.items() if ratio < IN_BUDGET]
num_in_budget = len(in_budget)
least_took_ratio = min(took_ratio.values())
most_in_budget_ratio = max(took_ratio[name] for name in in_budget)
worst_run = max(took_ratio, key=took_ratio.__getitem__)
for name, ratio in took_ratio.items():
    print(f"{name:15} took {ratio:.2f} × the booked hours: {hours_share[name]:.1%}")
assert worst_run == "llama_3_1_8b"
assert set(published) - set(in_budget) == {"llama_3_8b", "llama_3_1_8b"}
# --8<-- [end:booked]


# --8<-- [start:reality_check]
PLANNED_AS = {  # the planner's names
    "llama_3_8b": "llama-3-8b",
    "llama_3_70b": "llama-3-70b",
    "llama_3_1_8b": "llama-3-8b",
    "llama_3_1_70b": "llama-3-70b",
    "llama_3_1_405b": "llama-3.1-405b",
}


def estimates(name: str) -> tuple[float, float]:
    """GPU-hours of an H100 at the MFU to book by: of 6ND, and with attention."""
    run = published[name]
    asked = {"gpu": run.gpu, "context": SEQ_LEN, "tokens": run.tokens, "mfu": MFU}
    return booked_hours[name], ask(model=PLANNED_AS[name], **asked).gpu_hours


estimated_hours = {name: estimates(name) for name in PLANNED_AS}
reported_over = {
    name: [published[name].gpu_hours / hours for hours in estimated_hours[name]]
    for name in PLANNED_AS  # reported hours over estimated ones
}
implied_share = {name: MFU / planned for name, (_, planned) in reported_over.items()}
step_share = implied_share["llama_3_1_405b"] / 0.9  # if a tenth of the hours were no steps
for name, share in implied_share.items():
    print(f"{name:15} {reported_over[name][1]:.2f} × planned: MFU {share:.1%}")
# --8<-- [end:reality_check]


# --8<-- [start:long_contexts]
LONG_TOKENS, LONG_CONTEXT = 800e9, 131_072  # arXiv 2407.21783, section 3.4.2


def flops_a_token(name: str, context: int) -> float:
    """FLOPs of the model, with attention over all pairs of tokens."""
    asked = {"model": PLANNED_AS[name], "gpu": H100_NAME, "context": context}
    return float(ask(**asked).flops_a_token["all"]["model"])


def with_long_contexts(name: str) -> float:
    """The implied MFU if all tokens beyond a context of 8,192 had the longest one."""
    ratio = flops_a_token(name, LONG_CONTEXT) / flops_a_token(name, SEQ_LEN)
    return implied_share[name] * (1 + LONG_TOKENS / published[name].tokens * (ratio - 1))


long_context_share = {name: with_long_contexts(name) for name in PLANNED_AS if "3_1" in name}
for name, share in long_context_share.items():
    print(f"{name:15} at most {share:.1%}")
# --8<-- [end:long_contexts]


# --8<-- [start:how_big]
MACHINE_GPUS = 8
WEIGHT, GRADIENT, MOMENTS = 4, 4, 4 + 4  # bytes a parameter in fp32

naive_bytes = WEIGHT + GRADIENT + MOMENTS
card_bytes = H100.memory_bytes  # by the datasheet
replicated_parameters = card_bytes / naive_bytes  # the same on each GPU
sharded_parameters = MACHINE_GPUS * replicated_parameters  # each GPU holds a part
print(f"{sharded_parameters / 1e9:g}B sharded, {replicated_parameters / 1e9:g}B not")
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
step_counter_bytes = counted_bytes["float32"] - naive_bytes * 1024**2
for dtype, held in counted_bytes.items():
    print(f"{dtype:9}{held:11,} bytes, {held / 1024**2:.6f} a parameter")
assert step_counter_bytes == 4  # Adam counts its steps, once for a whole tensor
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
state_bytes = {name: sum(recipe) for name, recipe in recipes.items()}
card_h200_bytes = GPUS["H200 SXM"].memory_bytes
largest_parameters = {
    name: {gpu: MACHINE_GPUS * GPUS[gpu].memory_bytes / size for gpu in TABLE_GPUS}
    for name, size in state_bytes.items()
}
assert state_bytes["bf16_master"] == state_bytes["fp32"]
assert state_bytes["bf16"] == counted_bytes["bfloat16"] // 1024**2
# --8<-- [end:recipes]


# --8<-- [start:fits]
SHEET = {"gpu_memory": H100.memory_bytes, "gpu_peak": H100_PEAK}  # of the datasheet


def on_eight(**asked: Any) -> SimpleNamespace:
    """The planner's answer for eight H100s: all sharded, layers computed again."""
    machine = {**SHEET, "gpus": MACHINE_GPUS, "zero": 3}
    return ask(checkpointing="full", **machine, **asked)


WIDTHS = "d_model=8192 heads=64 kv_heads=8 head_dim=128 d_ff=28672 vocab=128256"


def with_layers(layers: int) -> SimpleNamespace:
    return on_eight(shape=f"layers={layers} {WIDTHS}", context=SEQ_LEN)


deepest = max(layers for layers in range(1, 80) if with_layers(layers).fits)
largest = with_layers(deepest)
fitting_parameters = largest.parameters["total"]
fitting_share = fitting_parameters / sharded_parameters
print(f"{deepest} layers of 80, {fitting_parameters / 1e9:.1f}B parameters fit")
# --8<-- [end:fits]


# --8<-- [start:step]
REPORTED_BYTES = 83.9 * 2**30  # torchtitan: Llama 3.1 8B, 8 H100s, 32,768 tokens
step = on_eight(model="llama-3-8b", recipe="autocast", context=32_768)
napkin_step_bytes = naive_bytes * step.parameters["total"] / MACHINE_GPUS
planned_step_bytes = step.memory_bytes["total"] - step.memory_bytes["allowance"]
reported_to_napkin_bytes_ratio = REPORTED_BYTES / napkin_step_bytes
reported_to_planned_bytes_ratio = REPORTED_BYTES / planned_step_bytes
print(f"{napkin_step_bytes / 1e9:.1f} GB, planned {planned_step_bytes / 1e9:.1f} GB")
# --8<-- [end:step]


# --8<-- [start:room]
STATE = {"weights": 2, "gradients": 2, "master": 4, "optimizer": 8}  # bytes a parameter
planned, titan = largest.memory_bytes, step.memory_bytes
room_bytes = {
    "napkin": {part: size * replicated_parameters for part, size in STATE.items()},
    "planner": {line: planned[line] for line in planned if line != "total"},
    "step": {line: titan[line] for line in titan if line not in ("total", "allowance")},
}
logits_bytes = planned["logits"]
step_logits_share = titan["logits"] / planned_step_bytes
step_state_share = (titan["weights"] + titan["optimizer"]) / planned_step_bytes
assert planned["gradients"] == 0  # at the peak none is there
# --8<-- [end:room]


# --8<-- [start:which_binds]
FORTNIGHT = 14  # days
TOKENS_PER_PARAMETER = 20  # about the best use of training FLOPs (Hoffmann et al., 2022)

peak_fortnight_flops = MACHINE_GPUS * H100_PEAK * FORTNIGHT * SECONDS_PER_DAY
fortnight_flops = MFU * peak_fortnight_flops
flops_over_n_squared = 6 * TOKENS_PER_PARAMETER  # 6 · N · 20N
affordable_parameters = math.sqrt(fortnight_flops / flops_over_n_squared)

full_flops = flops_over_n_squared * fitting_parameters**2
full_model_days = training_seconds(full_flops, MACHINE_GPUS, H100_PEAK, MFU) / SECONDS_PER_DAY
print(f"{fortnight_flops:.3g} FLOPs train {affordable_parameters / 1e9:.1f}B")
print(f"the {fitting_parameters / 1e9:.1f}B that fit take {full_model_days:.0f} days")
# --8<-- [end:which_binds]


# --8<-- [start:on_one_scale]
class Threshold(NamedTuple):
    """Training compute above which a law asks something, and when."""

    flops: float
    since: str
    until: str | None


compute_flops = {
    "fortnight": fortnight_flops,
    "gpt_3": 3.14e23,  # arXiv 2005.14165, table D.1
    "run_70b": run_flops,
    "gpt_4": 2.1e25,  # Epoch AI's estimate from outside; its makers have published none
    "llama_3_1_405b": 3.8e25,  # arXiv 2407.21783
}
thresholds = {
    "eu": Threshold(1e25, "2025-08-02", None),  # 2024/1689, Art. 51(2), 113(b)
    "california": Threshold(1e26, "2026-01-01", None),  # Senate Bill 53
}
US_ORDER = Threshold(1e26, "2023-10-30", "2025-01-20")  # 14110, revoked by 14148
eu_flops = thresholds["eu"].flops
run_to_eu_share = run_flops / eu_flops
run_with_attention_to_eu_share = run_to_eu_share * planned_to_napkin_ratio
above_eu = [name for name, flops in compute_flops.items() if flops > eu_flops]
assert above_eu == ["gpt_4", "llama_3_1_405b"]
# --8<-- [end:on_one_scale]


# --8<-- [start:exercise_1]
points, d_in, d_out = 4096, 512, 256
x = torch.empty(points, d_in, device="meta")  # shapes without numbers: enough to count
weight = torch.empty(d_in, d_out, device="meta")
with FlopCounterMode(display=False) as counter:
    y = x @ weight
forward_flops = counter.get_total_flops()

assert forward_flops != 2 * weight.numel()  # the claim
assert forward_flops == 2 * weight.numel() * points
print(f"{forward_flops:,} FLOPs, {forward_flops // weight.numel():,} a parameter")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
gpt_3_flops = six_n_d_flops(175e9, 300e9)
gpt_3_ratio = gpt_3_flops / compute_flops["gpt_3"]
a100_peak = GPUS["A100 80GB SXM"].peak_flop_per_second["bfloat16"]
gpt_3_days = training_seconds(gpt_3_flops, NUM_GPUS, a100_peak, MFU) / SECONDS_PER_DAY

assert abs(gpt_3_ratio - 1) < 0.005
print(f"{gpt_3_flops:.3g} FLOPs, {gpt_3_ratio:.3f} of the reported")
print(f"{gpt_3_days:.1f} days")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
weights_only_bytes = WEIGHT * PARAMETERS
all_state_bytes = naive_bytes * PARAMETERS
napkin_gpus = math.ceil(all_state_bytes / H100.memory_bytes)
planned_gpus = on_eight(model="llama-3-70b", context=SEQ_LEN).fewest_gpus

assert weights_only_bytes == all_state_bytes / 4
assert planned_gpus > napkin_gpus
print(f"weights {weights_only_bytes / 1e9:g} GB of {all_state_bytes / 1e9:g} GB")
print(f"{napkin_gpus} GPUs by 16 bytes, {planned_gpus} by the planner")
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
causal_a_token = attention_share / 2 / SEQ_LEN  # over 6N, for each token of context
doubling_seq_len = 1 / causal_a_token
print(f"{doubling_seq_len:,.0f} tokens")
assert math.isclose(doubling_seq_len, PARAMETERS / (80 * 64 * 128))  # N / LHQ
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
LLAMA_65B_GPUS, LLAMA_65B_DAYS = 2048, 21  # A100s; arXiv 2302.13971, section 2.4
llama_65b_flops = 6 * 65e9 * 1.4e12
llama_65b_days = llama_65b_flops / (LLAMA_65B_GPUS * a100_peak * MFU) / SECONDS_PER_DAY
llama_65b_took_ratio = LLAMA_65B_DAYS / llama_65b_days
llama_65b_share = MFU / llama_65b_took_ratio
print(f"{llama_65b_days:.0f} days booked, {llama_65b_took_ratio:.2f} × of them taken")
print(f"{llama_65b_share:.0%} of the peak")
assert llama_65b_took_ratio < IN_BUDGET
# --8<-- [end:exercise_5]
