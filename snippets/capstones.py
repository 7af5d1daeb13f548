# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Three runs decided from beginning to end: GPT-2 on one machine, 70B on 64 cards, a file that runs out of memory."""

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flops_bytes.files.command import main
from flops_bytes.lessons.answers import RIGHT, check
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_70B, parameters
from flops_bytes.plan import plan

# --8<-- [start:gpt2]
gpt2_run: dict[str, Any] = {"model": "gpt2", "gpu": "A100 40GB SXM", "gpus": 8, "zero": 0, "recipe": "autocast"}
gpt2_run |= {"micro_batch": 12, "accumulation": 5, "context": 1_024, "checkpointing": "none"}
good = plan(**gpt2_run, tokens="300B", price="$1.5", mfu=0.4, meters=False)  # a good step
whole = plan(**gpt2_run, tokens="300B", price="$1.5", mfu=0.3, meters=False)  # a whole run
RIGHT["gpt2 parameters"] = sum(parameters(GPT2_SMALL).values())
RIGHT["gpt2 FLOPs"] = 3 * sum(forward_flops(GPT2_SMALL, 1_024).values()) / 1_024
RIGHT |= {"gpt2 bytes": whole["memory_bytes"]["total"], "gpt2 days": whole["days"], "gpt2 dollars": whole["money"]}
# --8<-- [end:gpt2]
gpt2_parameters, token_flops = sum(parameters(GPT2_SMALL).values()), RIGHT["gpt2 FLOPs"]
gpt2_bytes = {"card": whole["gpu_bytes"]} | {line: whole["memory_bytes"][line] for line in ("total", "logits")}
gpt2_days = {"good": good["days"], "whole": whole["days"]}
gpt2_dollars = {"good": good["money"], "whole": whole["money"]}
del good, whole


# --8<-- [start:cards]
num_parameters = sum(parameters(LLAMA_3_70B).values())
state_bytes = 16 * num_parameters / 64  # bf16 weights and gradients; master weights and moments in float32
cards: dict[str, Any] = {"model": "llama-3-70b", "gpu": "H100 SXM", "gpus": 64, "context": 8_192, "global_batch": "4M"}
kept_bytes = {
    each: plan(**cards, zero=3, checkpointing=each, meters=False)["memory_bytes"]["activations"]
    for each in ("none", "full")
}
RIGHT |= {"70B state": state_bytes, "70B activations": kept_bytes["none"]}
# --8<-- [end:cards]

# --8<-- [start:layouts]
ways = plan(**cards, trained="all", optimizer="adamw", offload="no", find=True, meters=False)["ways"]
SPLITS = ("tp", "cp", "pp")
split = {place: [way["options"].get(name, 1) for name in SPLITS] for place, way in enumerate(ways)}
alone = next(place for place, each in split.items() if max(each) == 1)  # FSDP alone
found: dict[str, dict[str, Any]] = {}
for name, place in {"fastest": 0, "fsdp": alone}.items():
    days = 100e9 / ways[place]["tokens_per_second"] / 86_400
    found[name] = {"needs_bytes": ways[place]["needs_bytes"], "days": days, "dollars": days * 24 * 64 * 2.5}
    shared = ", ".join(f"{kind} {ranks}" for kind, ranks in zip(SPLITS, split[place], strict=True))
    print(f"{shared}: {found[name]['needs_bytes'] / 2**30:.0f} GiB, {days:.1f} days", end=", ")
    print(f"{found[name]['dollars']:,.0f} dollars")
RIGHT["70B dollars"] = found["fsdp"]["dollars"]
# --8<-- [end:layouts]
splits = dict(zip(SPLITS, split[0], strict=True))
splits["data"] = 64 // prod(split[0])
num_ways = len(ways)
saved_dollars = found["fsdp"]["dollars"] - found["fastest"]["dollars"]
del ways


# --8<-- [start:broken]
BROKEN: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen3-8B",
    "stage": "sft",
    "finetuning_type": "lora",
    "lora_rank": 16,
    "lora_target": "all",
    "cutoff_len": 8192,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 8,
    "bf16": True,
}


def planned(training: dict[str, Any]) -> dict[str, Any]:
    """The planner's answer to a trainer's file, on one RTX 4090."""
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()):
        file = Path(folder, "train.json")
        file.write_text(json.dumps(training))
        main([str(file), "--gpu", "RTX 4090", "--json"])
    return dict(json.loads(printed.getvalue())["found"])


def mended(training: dict[str, Any]) -> bool:
    """Whether a file trains what the broken one did, as long and as many sequences a step, and fits."""
    same = all(training.get(key) == BROKEN[key] for key in ("model_name_or_path", "cutoff_len", "lora_rank"))
    size, pieces = training["per_device_train_batch_size"], training["gradient_accumulation_steps"]
    answer = planned(training)
    print(f"{answer['memory_bytes']['total'] / 2**30:.1f} GiB {answer['verdict']}, {size * pieces} sequences a step")
    return same and size * pieces == 16 and bool(answer["fits"])


print(mended(BROKEN))
# --8<-- [end:broken]

# --8<-- [start:logits]
RIGHT["logits"] = 2 * 8_192 * 151_936 * 12
# --8<-- [end:logits]

# --8<-- [start:mended]
one_by_one: dict[str, Any] = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16}
fused: dict[str, Any] = {"enable_liger_kernel": True}
print("one sequence at a time:", mended(BROKEN | one_by_one))
print("a fused loss:", mended(BROKEN | fused))
print("both:", mended(BROKEN | one_by_one | fused))
print("and weights in 4 bits:", mended(BROKEN | one_by_one | fused | {"quantization_bit": 4}))
# --8<-- [end:mended]
tries: dict[str, dict[str, Any]] = {"broken": {}, "one": one_by_one, "fused": fused, "both": one_by_one | fused}
tries["four_bits"] = tries["both"] | {"quantization_bit": 4}
needs_bytes = {name: planned(BROKEN | changed)["memory_bytes"]["total"] for name, changed in tries.items()}
logits_bytes = planned(BROKEN)["memory_bytes"]["logits"]
assert mended(BROKEN | tries["both"]) and not mended(BROKEN | tries["fused"])
assert check("logits", logits_bytes) and not check("gpt2 days", gpt2_days["good"])
