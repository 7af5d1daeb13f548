# /// script
# requires-python = ">=3.11"
# dependencies = []
# [tool.ledger]
# data = ["measurements/published/*.toml"]
# ///
"""What trains on one card of 16, 24 or 48 GB: each model, method and context put to the planner."""

from typing import Any

from flops_bytes.plan import plan, settled_question
from flops_bytes.plan.evidence import EVIDENCE
from flops_bytes.plan.meters import most_that_lives
from flops_bytes.plan.training import RUN_MFU, STEP_MFU
from flops_bytes.time.gpus import GPUS, THIRD_PARTY, capacity_bytes

# isort: split
from pathlib import Path

from published.readings import asked, missing, predict, read_source

FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())


# --8<-- [start:first]
for model in ("qwen3-4b", "qwen3-8b", "qwen3-14b"):
    for method in ("all", "lora", "qlora-double"):
        answer = plan(model=model, trained=method, gpu="RTX 4090", context=2_048, checkpointing="full")
        needs_gib, shown_gib = answer["memory_bytes"]["total"] / 2**30, answer["meters"]["smi_bytes"][1] / 2**30
        print(f"{model:10} {method:12} {needs_gib:6.1f} GiB, nvidia-smi {shown_gib:6.1f}  {answer['verdict']}")
# --8<-- [end:first]


def ask(meters: bool = False, **fields: Any) -> dict[str, Any]:
    """What the planner's form answers: the names are those of its fields."""
    return plan(meters=meters, **fields | {"gpu": None if fields["gpu"] == "other" else fields["gpu"]})


def judge(**fields: Any) -> dict[str, Any]:
    """The same and, where tensors fit, what the allocator makes of them."""
    answer = ask(**fields)
    return ask(meters=True, **fields) if answer["fits"] else answer


CONTEXT = 2_048
LABEL_BYTES = {16: 16 * 10**9, 24: 24 * 10**9, 48: 48 * 10**9}  # as it stands on the box
CARDS: dict[int, dict[str, Any]] = {  # by the gigabytes on the box
    16: {"gpu": "other", "gpu_memory": "15.6GiB", "gpu_peak": "76.7T"},  # as an RTX A4000
    24: {"gpu": "RTX 4090"},
    48: {"gpu": "other", "gpu_memory": "47GiB", "gpu_peak": "165.2T"},  # a 4090 with 48 GB
}
METHODS: dict[str, dict[str, Any]] = {
    "full_amp": {"trained": "all", "recipe": "autocast"},  # float32 weights, bf16 matmuls
    "full_bf16": {"trained": "all", "recipe": "bf16"},  # weights, gradients and AdamW's moments
    "full_8bit": {"trained": "all", "recipe": "bf16", "optimizer": "adamw-8bit"},
    "lora": {"trained": "lora"},  # rank 16, beside all matrices of a layer
    "qlora": {"trained": "qlora-double"},  # 4 bits, constants quantized again
}
MODELS: tuple[str, ...] = ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "llama-3-8b", "qwen3-14b")
MODELS += ("qwen3-32b", "llama-3-70b")
STEP: dict[str, Any] = {"context": CONTEXT, "checkpointing": "full"}  # one sequence at a time
# Nine of ten published readings were at most so many times their plans.
ROOM = {kind: float(EVIDENCE[kind][5]) for kind in ("full", "lora", "qlora")}
MARKS = {"fits with room": "✓", "fits on paper": "?", "does not fit": ""}


needs: dict[str, dict[str, Any]] = {}
for model in MODELS:
    row = needs[model.replace(".", "_")] = {}
    for name, options in METHODS.items():
        answer = judge(model=model, **CARDS[24], **STEP, **options)
        row[name] = {
            "needs_bytes": answer["memory_bytes"]["total"],
            "mark": MARKS[answer["verdict"]],
        }
    print(f"{model:12}", *(f"{cell['needs_bytes'] / 2**30:7.1f}{cell['mark']:3}" for cell in row.values()))
# of three cells, by line
lines_bytes = {
    name: ask(model="qwen3-8b", **CARDS[24], **STEP, **METHODS[name])["memory_bytes"]
    for name in ("full_amp", "lora", "qlora")
}
lora_lines_bytes = lines_bytes["lora"]
lora_meters = judge(model="qwen3-8b", **CARDS[24], **STEP, **METHODS["lora"])["meters"]
assert abs(lora_meters["allocated_bytes"] + lora_lines_bytes["allowance"] - lora_lines_bytes["total"]) < 2**26
RTX_4090_BYTES = capacity_bytes("RTX 4090", GPUS["RTX 4090"])
roomy_bytes = {method: RTX_4090_BYTES / times for method, times in ROOM.items()}


ROWS = {
    "small_8bit": ("qwen3-1.7b", "full_8bit"),
    "medium_8bit": ("qwen3-4b", "full_8bit"),
    "medium_lora": ("qwen3-4b", "lora"),
    "qwen_lora": ("qwen3-8b", "lora"),
    "qwen_qlora": ("qwen3-8b", "qlora"),
    "llama_qlora": ("llama-3-8b", "qlora"),
    "large_qlora": ("qwen3-14b", "qlora"),
    "larger_qlora": ("qwen3-32b", "qlora"),
    "largest_qlora": ("llama-3-70b", "qlora"),
}
longest: dict[str, dict[str, int]] = {}
for name, (model, method) in ROWS.items():
    longest[name] = {}
    for loss, gigabytes in (("plain", 24), ("fused", 16), ("fused", 24), ("fused", 48)):
        question = {"model": model, **CARDS[gigabytes], **STEP, **METHODS[method]}
        question |= {"loss": "fused"} if loss == "fused" else {}
        longest[name][f"{loss}_{gigabytes}"] = ask(**question)["longest_context"]
    print(f"{name:14}", *(f"{tokens:8,}" for tokens in longest[name].values()))
plain, fused = (longest["qwen_qlora"][f"{loss}_24"] for loss in ("plain", "fused"))
AT_LIMIT: dict[str, Any] = {"model": "qwen3-8b", **CARDS[24], **STEP, **METHODS["qlora"]}
living = {}  # tokens with which the run gets through the allocator, as --explain says
for loss, on_paper in (("plain", plain), ("fused", fused)):
    _asked = settled_question(AT_LIMIT | {"loss": loss}, ask(**AT_LIMIT, loss=loss))
    living[loss] = most_that_lives(_asked.a, _asked.model, "context", on_paper, RTX_4090_BYTES)
    print(loss, living[loss], "of", on_paper, "tokens")
assert 0 < living["plain"] < plain and 0 < living["fused"] < fused
SHORTER = 1_024
assert (
    judge(model="qwen3-32b", **CARDS[24], **STEP | {"context": SHORTER}, **METHODS["qlora"])["meters"]["lives"]
    == "lives"
)
longer_ratio = fused / plain
_fused_bytes = ask(model="qwen3-8b", **CARDS[24], **STEP, trained="lora", loss="fused")["memory_bytes"]
fused_14b_bytes = ask(model="qwen3-14b", **CARDS[24], **STEP, trained="qlora-double", loss="fused")["memory_bytes"][
    "total"
]
assert fused_14b_bytes < roomy_bytes["qlora"] < needs["qwen3-14b"]["qlora"]["needs_bytes"]
layer_token_bytes, logits_token_bytes = _fused_bytes["layer"] / CONTEXT, lora_lines_bytes["logits"] / CONTEXT


EXAMPLE: dict[str, Any] = {
    "model": "qwen3-8b",
    **CARDS[24],
    **STEP,
    "trained": "qlora-double",
    "loss": "fused",
    "accumulation": 8,
}
example_bytes = ask(**EXAMPLE | {"context": 8_192})["memory_bytes"]["total"]


START = {
    "model": "qwen3-8b",
    **CARDS[24],
    "context": 4_096,
    "micro_batch": 4,
    "trained": "lora",
    "checkpointing": "none",
}
CHANGES: dict[str, dict[str, Any]] = {
    "start": {},
    "loss": {"loss": "fused"},
    "micro": {"micro_batch": 1, "accumulation": 4},
    "again": {"checkpointing": "full"},
    "qlora": {"trained": "qlora-double"},
}
FULL: dict[str, Any] = {"model": "qwen3-4b", **CARDS[24], **STEP, "trained": "all", "recipe": "bf16"}
FULL_CHANGES: dict[str, dict[str, Any]] = {
    "start": {},
    "loss": {"loss": "fused"},
    "eight": {"optimizer": "adamw-8bit"},
    "paged": {"optimizer": "paged-adamw-8bit"},
    "backward": {"update": "in-backward"},
}


def descend(question: dict[str, Any], changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What each change frees beside those above it."""
    found: dict[str, Any] = {}
    before = None
    for name, change in changes.items():
        question = question | change
        answer = judge(**question)
        total = answer["memory_bytes"]["total"]
        found[name] = {
            "needs_bytes": total,
            "frees_bytes": (before or total) - total,
            "mark": MARKS[answer["verdict"]],
        }
        before = total
        print(f"{name:6} frees {found[name]['frees_bytes'] / 2**30:6.2f} GiB, needs {total / 2**30:6.2f}")
    return found


adapters_down = descend(START, CHANGES)
full_down = descend(FULL, FULL_CHANGES)
assert ask(**FULL)["peaks_at"] == "embedding"  # its gradient comes last
_larger = ask(**FULL | FULL_CHANGES["loss"] | FULL_CHANGES["paged"] | FULL_CHANGES["backward"] | {"model": "qwen3-8b"})
assert _larger["fits"]
in_backward_bytes, in_backward_tokens = _larger["memory_bytes"]["total"], _larger["longest_context"]
print(f"qwen3-8b needs {in_backward_bytes / 2**30:6.2f}, up to {in_backward_tokens:,} tokens")


ALIKE = {  # single cards, in the words of their sources; memory
    "full_4090": ("torchtune", "Llama 3.1", 0),
    "lora_4090": ("torchtune", "Llama 3.1", 2),
    "qlora_4090": ("torchtune", "Llama 3.1", 4),
    "lora_a6000": ("torchtune", "Llama 3.1", 3),
    "user_short": ("llama-factory-7409", "Qwen2 7B", 0),
    "user_long": ("llama-factory-7409", "Qwen2 7B", 1),
    "user_pair": ("llama-factory-7409", "Qwen2 7B", 2),
}
published: dict[str, dict[str, Any]] = {}
for name, (source, table, number) in ALIKE.items():
    readings = [each for each in read_source(FOLDER / f"{source}.toml")[1] if each.kind == "memory"]
    reading = next(each for each in readings if (each.table, each.row) == (table, number))
    low, high = predict(reading)
    published[name] = {
        "reported_bytes": int(reading.value),
        "low_bytes": int(low),
        "high_bytes": int(high),
        "low_ratio": low / reading.value,
        "high_ratio": high / reading.value,
    }


reached: dict[str, list[float]] = {"RTX 4090": [], "RTX 3090": []}  # shares of the peak
for source in ("torchtune", "fsdp-qlora"):
    for reading in read_source(FOLDER / f"{source}.toml")[1]:
        card = reading.settings.get("gpu", "")
        if reading.kind == "rate" and card in reached and not missing(reading):
            answer = plan(meters=False, **next(asked(reading.settings)))
            at_the_peak = answer["tokens_per_second"] / answer["hfu"]
            tokens = reading.about.get("run_tokens")
            reached[card].append((tokens / reading.value if tokens else reading.value) / at_the_peak)
reached_share = {card.replace(" ", "_"): [min(all_), max(all_)] for card, all_ in reached.items()}
num_reached = {card.replace(" ", "_"): len(all_) for card, all_ in reached.items()}
rates = {
    each.row: each.value
    for each in read_source(FOLDER / "torchtune.toml")[1]
    if (each.table, each.kind) == ("Llama 3.1", "rate")
}
full_speed_share, qlora_speed_share = (
    rates[ALIKE[method][2]] / rates[ALIKE["lora_4090"][2]] for method in ("full_4090", "qlora_4090")
)  # of LoRA's tokens a second


PRICE = 2  # yuan for an hour of a card: our example, fill in your own
TOKENS = 10_000_000  # of a data set, once
DAILY = {"run": RUN_MFU, "step": STEP_MFU}  # of the peak
RUNS = {
    "small": ("qwen3-1.7b", "full_8bit"),
    "lora": ("qwen3-8b", "lora"),
    "qlora": ("qwen3-8b", "qlora"),
    "larger": ("qwen3-14b", "qlora"),
}
day: dict[str, dict[str, Any]] = {}
for name, (model, method) in RUNS.items():
    question = {"model": model, **CARDS[24], **STEP, **METHODS[method], "loss": "fused"}
    question |= {"tokens": TOKENS, "price": f"¥{PRICE}"}
    answer = ask(**question)  # at the planner's speed of a good step
    day[name] = {speed: 86_400 * answer["tokens_per_second"] * mfu / STEP_MFU for speed, mfu in DAILY.items()}
    day[name] |= {"token_flops": sum(answer["flops_a_token"]["all"][each] for each in ("model", "again"))}
    day[name] |= {"hours": answer["gpu_hours"], "yuan": answer["money"]}
    _millions = day[name]["step"] / 1e6
    print(f"{name:7} {_millions:5.1f} M tokens a day, {day[name]['hours']:.1f} h, ¥{day[name]['yuan']:.2f}")


NAMES = ("RTX 3090", "RTX 4090 D", "RTX 4090", "RTX 5090", "L20", "L40S", "A800 80GB SXM", "H20", "RTX PRO 6000")
QLORA_32B: dict[str, Any] = {"model": "qwen3-32b", "trained": "qlora-double", "loss": "fused"}
cards: dict[str, dict[str, float]] = {}
for name in NAMES:
    gpu = (GPUS | THIRD_PARTY)[name]
    cards[name] = {
        "reported_bytes": capacity_bytes(name, gpu),
        "label_gigabytes": gpu.memory_bytes / 1e9,
        "bandwidth_terabytes": gpu.bandwidth_bytes_per_second / 1e12,
        "bf16_teraflops": gpu.peak_flop_per_second["bfloat16"] / 1e12,
        "qlora_tokens": ask(gpu=name, **STEP, **QLORA_32B)["longest_context"],
    }
peak_share = {
    name: cards[name]["bf16_teraflops"] / cards["RTX 4090"]["bf16_teraflops"] for name in ("RTX 4090 D", "H20")
}


# --8<-- [start:exercise_1]
by_hand = 2 * 8_190_735_360  # bytes of Qwen3 8B's weights in bf16
lora = plan(model="qwen3-8b", gpu="RTX 4090", context=2_048, checkpointing="full", trained="lora")
weights_bytes = lora["memory_bytes"]["weights"]
assert weights_bytes == by_hand
state_bytes = {name: each * 8_190_735_360 for name, each in {"full_amp": 16, "full_bf16": 8, "full_8bit": 6}.items()}
for name, size in state_bytes.items():
    print(f"{name:10}{size / 2**30:7.1f} GiB")
assert min(state_bytes.values()) > 24 * 2**30
# --8<-- [end:exercise_1]
del lora


# --8<-- [start:exercise_2]
vocabularies = {"llama_2": 32_000, "llama_3": 128_256, "qwen_3": 151_936}
logits_of_bytes = {name: 12 * vocabulary * 8_192 for name, vocabulary in vocabularies.items()}
for name, size in logits_of_bytes.items():
    print(f"{name:8}{size / 2**30:6.2f} GiB")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
adapter_bytes = {}
for rank in (8, 16, 64, 256):
    answer = plan(model="qwen3-8b", gpu="RTX 4090", context=2_048, checkpointing="full", lora=rank, meters=False)
    adapter_bytes[rank] = answer["memory_bytes"]["adapters"] + answer["memory_bytes"]["optimizer"]
    print(f"rank {rank:4}: {answer['parameters']['trained'] / 1e6:6.1f} M, {adapter_bytes[rank] / 2**30:5.2f} GiB")
assert adapter_bytes[64] == 8 * adapter_bytes[8]
grown_bytes = adapter_bytes[64] - adapter_bytes[8]
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
SPEED, EPOCHS, CORPUS, RENT = 2_000, 3, 50_000_000, 2.5  # tokens a second, passes, tokens, yuan an hour
rented_hours = EPOCHS * CORPUS / SPEED / 3_600
rent_yuan = rented_hours * RENT
print(f"{rented_hours:.1f} h, ¥{rent_yuan:.0f}")
assert 52 < rent_yuan < 53
# --8<-- [end:exercise_4]
