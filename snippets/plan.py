# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Eight questions that people ask first, answered by the planner; and one run, beside what its makers report."""

# --8<-- [start:setup]
import json
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from flops_bytes.files.command import main
from flops_bytes.plan import plan
from flops_bytes.plan.assumptions import LARGE_CARD_BYTES
from flops_bytes.time.gpus import GPUS


def ask(**options: Any) -> SimpleNamespace:
    return SimpleNamespace(**plan(**options))


# --8<-- [end:setup]


# --8<-- [start:in_python]
answer = plan(model="llama-3-8b", gpu="H100 SXM", gpus=8)
print(answer["verdict"], "·", answer["assumed"])
for line, size in sorted(answer["memory_bytes"].items(), key=lambda each: -each[1])[:4]:
    print(f"{line:12}{size / 2**30:6.1f} GiB")
for meter in ("reserved_bytes", "smi_bytes"):
    print(meter, *(f"{size / 2**30:.1f} GiB" for size in answer["meters"][meter]))
# --8<-- [end:in_python]
del answer  # all of it would be in the record


# --8<-- [start:files]
TRAINING = {
    "model_name_or_path": "Qwen/Qwen3-8B",
    "per_device_train_batch_size": 2,
    "max_seq_length": 4096,
    "learning_rate": 1e-5,
    "bf16": True,
    "gradient_checkpointing": True,
    "deepspeed": "zero3.json",
}
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
}
with TemporaryDirectory() as _folder, chdir(_folder):
    Path("training.json").write_text(json.dumps(TRAINING))
    Path("zero3.json").write_text(json.dumps(DEEPSPEED))
    main(["training.json", "zero3.json", "--gpu", "H100 SXM", "--gpus", "8"])
# --8<-- [end:files]


# --8<-- [start:fits]
LLAMA = {"model": "llama-3-8b", "context": 8_192, "trained": "all"}
whole = ask(**LLAMA, gpu="H200 SXM", checkpointing="full")
h200_needs_bytes = whole.memory_bytes["total"]
H200_REPORTED_BYTES = int(whole.gpu_bytes)
h200_spare_bytes = whole.headroom_bytes
large_card_bytes = LARGE_CARD_BYTES  # from which on a sequence is taken to be longer
h200_room_ratio, h200_with_room_bytes = whole.room_ratio, whole.with_room_bytes
print(
    f"{whole.verdict}: {h200_spare_bytes / 2**30:.1f} GiB are left; nine of ten took {h200_room_ratio} times the plan"
)
LABEL = {"gpu_memory": GPUS["H200 SXM"].memory_bytes, "gpu_peak": "989.4T"}
by_label = ask(**LLAMA, **LABEL, checkpointing="full")
h200_has_bytes = int(by_label.gpu_bytes)
h200_missing_bytes = h200_needs_bytes - h200_has_bytes
print(f"by its label, {h200_missing_bytes / 2**30:.1f} GiB are missing")
assert (whole.verdict, by_label.verdict) == ("fits on paper", "does not fit")
lighter = ask(**LLAMA, gpu="H200 SXM", checkpointing="full", recipe="autocast")
assert lighter.verdict == "fits on paper" and lighter.headroom_bytes > h200_spare_bytes
# --8<-- [end:fits]


# --8<-- [start:eight]
EIGHT = LLAMA | {"gpu": "H100 SXM", "gpus": 8, "zero": 3}
kept, again = ask(**EIGHT, checkpointing="none"), ask(**EIGHT, checkpointing="full")
eight_micro_batch = {
    "none": kept.largest_micro_batch,
    "full": again.largest_micro_batch,
}
eight_needs_bytes = {
    "none": kept.memory_bytes["total"],
    "full": again.memory_bytes["total"],
}
eight_has_bytes = int(kept.gpu_bytes)
eight_room_ratio = again.room_ratio
assert (again.verdict, kept.verdict) == ("fits with room", "fits on paper")
recomputing_frees_bytes = eight_needs_bytes["none"] - eight_needs_bytes["full"]
work = again.flops_a_token["all"]
recomputing_costs_share = work["again"] / (work["device"] - work["again"])
print(f"eight H100s: micro-batches of {eight_micro_batch}")
# --8<-- [end:eight]


# --8<-- [start:time]
TOKENS, PRICE, TOKENS_A_GPU = 100 * 10**9, 2.5, 12_000  # these in a second
run = ask(model="llama-3-8b", gpu="H100 SXM", gpus=8, tokens=TOKENS, price=PRICE)  # what else there is, it chooses
assert run.assumed == {"trained": "all", "context": 8_192, "checkpointing": "full", "zero": "3"}
STEP_MFU, RUN_MFU = (row["mfu"] for row in run.by_mfu)  # assumed, of a good step and of a whole run
days_for_tokens, days_for_run = (row["days"] for row in run.by_mfu)
money_for_tokens, money_for_run = (round(row["money"], -2) for row in run.by_mfu)  # it stands on assumptions
kept_days = ask(**EIGHT, tokens=TOKENS, checkpointing="none").days
checkpointed_share = run.mfu
implied_share = ask(**LLAMA, gpu="H100 SXM", tokens_per_second=TOKENS_A_GPU).mfu
print(f"{days_for_tokens:.1f} days, {money_for_tokens:,.0f}; as a whole run {days_for_run:.1f}, {money_for_run:,.0f}")
print(f"with nothing computed again {kept_days:.1f} days; 12,000 tokens a second are an MFU of {implied_share:.1%}")
assert abs(days_for_tokens / kept_days - (1 + recomputing_costs_share)) < 1e-9
# --8<-- [end:time]


# --8<-- [start:qlora]
QLORA: dict[str, Any] = {"model": "llama-3-70b", "gpu": "L40S", "checkpointing": "full"}
QLORA |= {"lora": 16, "base": "4bit"}
QLORA_CONTEXT = 1_024
qlora = ask(**QLORA, context=QLORA_CONTEXT)
qlora_needs_bytes = qlora.memory_bytes["total"]
L40S_REPORTED_BYTES = int(qlora.gpu_bytes)
in_four_bits = sum(qlora.parameters[part] for part in ("attention", "mlp"))
planned_bits = 4 + 32 / 64  # a constant of 32 bits for each 64 weights
double_bits = 4 + 8 / 64 + 32 / (64 * 256)  # double quantization, as in QLoRA's paper
double_saves_bytes = int(in_four_bits * (planned_bits - double_bits) / 8)
double = ask(**QLORA | {"base": "4bit-double"}, context=QLORA_CONTEXT)
qlora_double_bytes = double.memory_bytes["total"]
qlora_spare_bytes = double.headroom_bytes
print(f"{qlora_needs_bytes / 2**30:.1f} of {L40S_REPORTED_BYTES / 2**30:.1f} GiB")
print(f"with double quantization {qlora_double_bytes / 2**30:.1f} GiB")
assert abs(qlora_needs_bytes - double_saves_bytes - qlora_double_bytes) <= 1
assert (double.verdict, qlora.verdict) == ("fits on paper", "does not fit")
# --8<-- [end:qlora]


# --8<-- [start:text]
TEXT_BYTES = 10**12  # of Chinese
chinese = ask(**EIGHT, text=TEXT_BYTES, language="zh")
text_tokens = chinese.tokens
text_rate = chinese.text["bytes_a_token"]
text_days = chinese.days
print(f"{text_tokens:,} tokens, {text_days:.0f} days")
# --8<-- [end:text]


# --8<-- [start:serve]
served = ask(
    task="serve",
    model="llama-3-70b",
    gpu="H100 SXM",
    gpus=2,
    context=8_192,
    weights="8bit",
)
served_users = served.users
served_rates = {
    "each": served.each_per_second,
    "alone": served.alone_per_second,
    "all": served.tokens_per_second,
}
served_first_ms = 1e3 * served.first_token_seconds
eights = {"weights": "8bit", "cache": "8bit"}
served_small_cache = next(
    {"users": row["users"], "all": row["tokens_per_second"]} for row in served.formats if eights.items() <= row.items()
)
print(f"{served_users} users, {served_rates['each']:.0f} tokens/s for each")
assert served.verdict == "fits with room"
# --8<-- [end:serve]
