# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""How many days a training run takes, how large a model fits: estimates, beside the planner and published runs."""

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.lessons.measure import get_memory_usage
from flops_bytes.plan import plan, plan_exactly
from flops_bytes.time.gpus import GPUS

# --8<-- [start:how_long]
PARAMETERS = 70e9  # N
TOKENS = 15e12  # D
NUM_GPUS = 1024  # R
MFU = 0.3  # the one assumption among these
H100_PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]  # P, in FLOP/s
SECONDS_PER_DAY = 24 * 60 * 60

run_flops = 6 * PARAMETERS * TOKENS  # C
days = run_flops / (NUM_GPUS * H100_PEAK * MFU) / SECONDS_PER_DAY
napkin_gpu_hours = days * 24 * NUM_GPUS
print(f"{run_flops:.2e} FLOPs: {days:.1f} days, {napkin_gpu_hours:,.0f} GPU-hours")
# --8<-- [end:how_long]
days_by_percent = {str(mfu): days * MFU / (mfu / 100) for mfu in (40, 50)}  # at a higher MFU


def ask(**options: Any) -> SimpleNamespace:
    """The planner's answer, its lines as attributes."""
    return SimpleNamespace(**plan_exactly(**options))


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

# What the planner adds to 6ND is attention; what it leaves out are parameters that are looked up, not multiplied with.
counts = planner.parameters
multiplied_parameters = counts["total"] - counts["embedding"] - counts["norms"]
lookup_share = 1 - multiplied_parameters / PARAMETERS
attention_share = planner.flops_a_token["all"]["model"] / (6 * PARAMETERS) - (1 - lookup_share)
assert math.isclose(planned_to_napkin_ratio, 1 + attention_share - lookup_share)
assert planned_days > days + 2 * 7  # attention costs weeks


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
    peak = GPUS[run.gpu].peak_flop_per_second["bfloat16"]
    return 6 * run.parameters * run.tokens / (peak * MFU) / 3600


booked_hours = {name: hours_to_book(run) for name, run in published.items()}
published_days = published["llama_3_70b"].gpu_hours / 24 / NUM_GPUS
published_to_booked_ratio = published_days / days


took_ratio = {name: run.gpu_hours / booked_hours[name] for name, run in published.items()}
hours_share = {name: MFU / ratio for name, ratio in took_ratio.items()}  # 6ND over the peak
num_runs = len(took_ratio)

IN_BUDGET = 1.2  # times the booked hours
in_budget = [name for name, ratio in took_ratio.items() if ratio < IN_BUDGET]
num_in_budget = len(in_budget)
least_took_ratio = min(took_ratio.values())
most_in_budget_ratio = max(took_ratio[name] for name in in_budget)
worst_run = max(took_ratio, key=took_ratio.__getitem__)
assert worst_run == "llama_3_1_8b"
assert set(published) - set(in_budget) == {"llama_3_8b", "llama_3_1_8b"}


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


# --8<-- [start:how_big]
MACHINE_GPUS = 8
WEIGHT, GRADIENT, MOMENTS = 4, 4, 4 + 4  # bytes a parameter in fp32

naive_bytes = WEIGHT + GRADIENT + MOMENTS
card_bytes = GPUS["H100 SXM"].memory_bytes  # by the datasheet
replicated_parameters = card_bytes / naive_bytes  # the same on each GPU
sharded_parameters = MACHINE_GPUS * replicated_parameters  # each GPU holds a part
print(f"{sharded_parameters / 1e9:g}B sharded, {replicated_parameters / 1e9:g}B not")
# --8<-- [end:how_big]


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
assert step_counter_bytes == 4  # Adam counts its steps, once for a whole tensor


# Bytes that training with AdamW keeps for a parameter: weight, gradient, master weight, moments.
state_bytes = {
    "bf16_master": 2 + 2 + 4 + 8,
    "bf16_fp32_moments": 2 + 2 + 0 + 8,
}
card_h200_bytes = GPUS["H200 SXM"].memory_bytes
fp32_moments_parameters = MACHINE_GPUS * card_bytes / state_bytes["bf16_fp32_moments"]
h200_parameters = MACHINE_GPUS * card_h200_bytes / state_bytes["bf16_master"]


# --8<-- [start:fits]
WIDTHS = "d_model=8192 heads=64 kv_heads=8 head_dim=128 d_ff=28672 vocab=128256"
EIGHT: dict[str, Any] = {"gpus": 8, "gpu_memory": card_bytes, "gpu_peak": H100_PEAK, "zero": 3}
STEP: dict[str, Any] = {"trained": "all", "checkpointing": "full", "context": 8192}

depth = 80  # as Llama 3 70B has it
for meters in (False, True):  # first tensors alone, then what the allocator makes of them
    while not plan(shape=f"layers={depth} {WIDTHS}", meters=meters, **EIGHT, **STEP)["fits"]:
        depth -= 1
SHAPE = f"layers={depth} {WIDTHS}"
fitting_parameters = plan(shape=SHAPE, **EIGHT, **STEP)["parameters"]["total"]
print(f"{depth} layers of 80, {fitting_parameters / 1e9:.1f}B parameters fit")
# --8<-- [end:fits]
planned = plan(shape=SHAPE, **EIGHT, **STEP)["memory_bytes"]
fitting_share = fitting_parameters / sharded_parameters
logits_bytes = planned["logits"]
assert planned["gradients"] == 0  # at the peak none is there

STATE = {"weights": 2, "gradients": 2, "master": 4, "optimizer": 8}  # bytes a parameter
room_bytes = {
    "napkin": {part: size * replicated_parameters for part, size in STATE.items()},
    "planner": {line: planned[line] for line in planned if line != "total"},
}

REPORTED_BYTES = 83.9 * 2**30  # torchtitan: Llama 3.1 8B, 8 H100s, 32,768 tokens
TITAN: dict[str, Any] = EIGHT | {"gpu_memory": 96 * 10**9}  # its cards had more
TITAN |= {"model": "llama-3-8b", "recipe": "autocast", "context": 32_768, "checkpointing": "full"}
step = SimpleNamespace(**plan(trained="all", **TITAN))
napkin_step_bytes = naive_bytes * step.parameters["total"] / MACHINE_GPUS
planned_step_bytes = step.memory_bytes["total"] - step.memory_bytes["allowance"]
reported_to_napkin_bytes_ratio = REPORTED_BYTES / napkin_step_bytes
planned_reserved_bytes = step.meters["reserved_bytes"][1]
reported_to_planned_bytes_ratio = REPORTED_BYTES / planned_reserved_bytes  # it is what was reserved
step_logits_share = step.memory_bytes["logits"] / planned_step_bytes


# --8<-- [start:which_binds]
FORTNIGHT = 14  # days
TOKENS_PER_PARAMETER = 20  # about the best use of training FLOPs (Hoffmann et al., 2022)

peak_fortnight_flops = MACHINE_GPUS * H100_PEAK * FORTNIGHT * SECONDS_PER_DAY
fortnight_flops = MFU * peak_fortnight_flops
affordable_parameters = math.sqrt(fortnight_flops / (6 * TOKENS_PER_PARAMETER))  # 6 · N · 20N
full_model_days = FORTNIGHT * (fitting_parameters / affordable_parameters) ** 2
print(f"{fortnight_flops:.3g} FLOPs train {affordable_parameters / 1e9:.1f}B")
print(f"the {fitting_parameters / 1e9:.1f}B that fit take {full_model_days:.0f} days")
# --8<-- [end:which_binds]


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
GPT_3_FLOPS = 3.14e23  # arXiv 2005.14165, table D.1
gpt_3_flops = 6 * 175e9 * 300e9
gpt_3_ratio = gpt_3_flops / GPT_3_FLOPS
a100_peak = GPUS["A100 80GB SXM"].peak_flop_per_second["bfloat16"]
gpt_3_days = gpt_3_flops / (NUM_GPUS * a100_peak * MFU) / SECONDS_PER_DAY

assert abs(gpt_3_ratio - 1) < 0.005
print(f"{gpt_3_flops:.3g} FLOPs, {gpt_3_ratio:.3f} of the reported")
print(f"{gpt_3_days:.1f} days")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
weights_only_bytes = WEIGHT * PARAMETERS
all_state_bytes = naive_bytes * PARAMETERS
napkin_gpus = math.ceil(all_state_bytes / card_bytes)
planned_gpus = plan(model="llama-3-70b", **EIGHT, **STEP)["fewest_gpus"]

assert weights_only_bytes == all_state_bytes / 4
assert planned_gpus > napkin_gpus
print(f"weights {weights_only_bytes / 1e9:g} GB of {all_state_bytes / 1e9:g} GB")
print(f"{napkin_gpus} GPUs by 16 bytes, {planned_gpus} by the planner")
# --8<-- [end:exercise_3]


DEADLINE = 90  # days
deadline_gpus = math.ceil(NUM_GPUS * days / DEADLINE)
shard_bytes = all_state_bytes / NUM_GPUS


def use_card(name: str) -> dict[str, float]:
    """GPU-hours for a billion parameters on a trillion tokens, and the parameters whose state a card holds."""
    card = GPUS[name]
    hours = 6 * 1e9 * 1e12 / card.peak_flop_per_second["bfloat16"] / 3600  # at the peak
    return {
        "teraflops": card.peak_flop_per_second["bfloat16"] / 1e12,
        "memory_bytes": card.memory_bytes,
        "run_hours": hours / MFU,
        "step_hours": hours / 0.4,
        "parameters": card.memory_bytes / naive_bytes,
    }


run_cards = {name: use_card(name) for name in ("A100 80GB SXM", "H100 SXM", "H200 SXM", "B200")}
assert math.isclose(run_cards["H100 SXM"]["run_hours"] * 70 * 15, napkin_gpu_hours)


# --8<-- [start:exercise_4]
layers, heads, head_dim = 80, 64, 128  # L, H, Q
doubling_seq_len = PARAMETERS / (layers * heads * head_dim)
print(f"{doubling_seq_len:,.0f} tokens")
# --8<-- [end:exercise_4]
assert math.isclose(doubling_seq_len, SEQ_LEN / (attention_share / 2))


# --8<-- [start:exercise_5]
def implied_mfu(parameters: float, tokens: float, gpus: int, peak: float, days: float) -> float:
    """The share of the peak that 6ND was of a run that is over."""
    return 6 * parameters * tokens / (gpus * peak * days * SECONDS_PER_DAY)


LLAMA_65B_DAYS = 21  # on 2,048 A100s; arXiv 2302.13971, section 2.4
llama_65b_share = implied_mfu(65e9, 1.4e12, 2048, a100_peak, LLAMA_65B_DAYS)
llama_65b_days = LLAMA_65B_DAYS * llama_65b_share / MFU
llama_65b_took_ratio = LLAMA_65B_DAYS / llama_65b_days
print(f"{llama_65b_days:.0f} days booked, {llama_65b_took_ratio:.2f} × of them taken")
print(f"{llama_65b_share:.0%} of the peak")
# --8<-- [end:exercise_5]
assert llama_65b_took_ratio < IN_BUDGET


class Threshold(NamedTuple):
    """Training compute above which a law asks something, and when."""

    flops: float
    since: str
    until: str | None


thresholds = {
    "eu": Threshold(1e25, "2025-08-02", None),  # 2024/1689, Art. 51(2), 113(b)
    "california": Threshold(1e26, "2026-01-01", None),  # Senate Bill 53
}
US_ORDER = Threshold(1e26, "2023-10-30", "2025-01-20")  # 14110, revoked by 14148

# --8<-- [start:exercise_6]
EU_FLOPS = 1e25  # Regulation 2024/1689, article 51(2)
attention_flops = 12 * layers * heads * head_dim * 8192 * TOKENS  # all pairs of tokens
run_to_eu_share = run_flops / EU_FLOPS
run_with_attention_to_eu_share = (run_flops + attention_flops) / EU_FLOPS
print(f"{run_to_eu_share:.0%}, with attention {run_with_attention_to_eu_share:.0%}")
# --8<-- [end:exercise_6]
assert thresholds["eu"].flops == EU_FLOPS
compute_flops = {
    "fortnight": fortnight_flops,
    "gpt_3": GPT_3_FLOPS,
    "run_70b": run_flops,
    "gpt_4": 2.1e25,  # Epoch AI's estimate from outside; its makers have published none
    "llama_3_1_405b": 3.8e25,  # arXiv 2407.21783
}
assert [name for name, flops in compute_flops.items() if flops > EU_FLOPS] == ["gpt_4", "llama_3_1_405b"]
