# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Eight RTX 4090s on PCIe: what DDP, ZeRO's stages, a pipeline and tensor parallelism hold, send and take."""

from typing import Any

from flops_bytes.plan import plan
from flops_bytes.time.gpus import LINK_EFFICIENCY, LINKS

# --8<-- [start:ways]
CARDS = {"gpu": "RTX 4090", "gpus": 8}
TRAINING = {"model": "qwen3-4b", "context": 4_096, "trained": "all", "loss": "fused", "checkpointing": "full"}
for name, options in {
    "DDP": {"zero": "0"},
    "DeepSpeed ZeRO-2": {"zero": "2", "sharding_by": "deepspeed"},
    "DeepSpeed ZeRO-3": {"zero": "3", "sharding_by": "deepspeed"},
    "FSDP2": {"zero": "3"},
}.items():
    answer = plan(**CARDS, **TRAINING, **options)
    held, sent = answer["memory_bytes"]["total"] / 2**30, answer["wire"]["bytes"] / 1e9
    print(f"{name:16} {held:5.1f} GiB, sends {sent:4.1f} GB a step, {answer['verdict']}")
# --8<-- [end:ways]


PRICE = 16  # yuan for an hour of the machine: our example, fill in your own
TOKENS = 100_000_000
DEEPSPEED = {"sharding_by": "deepspeed"}
SHARDED: dict[str, dict[str, str]] = {
    "ddp": {"zero": "0"},
    "zero_1": {"zero": "1"} | DEEPSPEED,
    "zero_2": {"zero": "2"} | DEEPSPEED,
    "zero_3": {"zero": "3"} | DEEPSPEED,
    "fsdp": {"zero": "3"},
}
SPLIT: dict[str, dict[str, Any]] = {  # torchtitan's modules, and its loss, which keeps all logits
    "pipeline": {"pp": 8, "micro_batches": 8},
    "longer": {"pp": 8, "micro_batches": 32},
    "tensor": {"tp": 8},
}
MARKS = {"fits with room": "✓", "fits on paper": "?", "does not fit": ""}
NEAR_BYTES_PER_SECOND = LINK_EFFICIENCY * LINKS["PCIe 4"].bytes_per_second
ACROSS_BYTES_PER_SECOND = 10e9  # what NCCL reckons with between two sockets of a machine, as the page's note says
SLOWER = NEAR_BYTES_PER_SECOND / ACROSS_BYTES_PER_SECOND

answers = {name: plan(**CARDS, **TRAINING, **options) for name, options in SHARDED.items()}
computing = answers["fsdp"]["hfu"]  # of the peak, the same in each row
PLAIN = {name: TRAINING[name] for name in ("model", "context", "checkpointing")}
answers |= {name: plan(**CARDS, **PLAIN, **options, matmul_share=computing) for name, options in SPLIT.items()}
STEP_TOKENS = answers["ddp"]["step_tokens"]  # to which all are scaled


def sent_of(answer: dict[str, Any]) -> float:
    """What a card sends for so many tokens; of a pipeline one in the middle, which sends both ways."""
    if "wire" in answer:
        return float(answer["wire"]["bytes"])
    if (stages := answer["layout"]["pp"]) > 1:
        layout = {name: answer["layout"][name] for name in ("pp", "micro_batches")}
        answer = plan(**CARDS, **PLAIN, **layout, matmul_share=computing, rank=stages // 2)
    sent_bytes: int = sum(part["bytes"] for part in answer["sent"])
    return sent_bytes * float(STEP_TOKENS / answer["step_tokens"])


def row(answer: dict[str, Any]) -> dict[str, Any]:
    """What the table says of a way to split: of as many tokens as a step has, and of those of a data set."""
    sent, a_second = sent_of(answer), answer["tokens_per_second"]
    return {
        "needs_bytes": answer["memory_bytes"]["total"],
        "mark": MARKS[answer["verdict"]],
        "sent_bytes": sent,
        "near_s": sent / NEAR_BYTES_PER_SECOND,
        "across_s": sent / ACROSS_BYTES_PER_SECOND,
        "rate": a_second,
        "yuan": TOKENS / a_second / 3_600 * PRICE,
    }


ways = {name: row(answer) for name, answer in answers.items()}
for name, each in ways.items():
    _sent = each["sent_bytes"] / 1e9
    print(f"{name:9} {each['needs_bytes'] / 2**30:5.1f} GiB {each['mark']:1} sends {_sent:5.1f} GB,", end=" ")
    print(f"{each['rate']:6.0f} tokens/s, ¥{each['yuan']:.0f}")
longer_tokens, tensor_tokens = answers["longer"]["step_tokens"], answers["tensor"]["step_tokens"]
bubble_share = {name: answers[name]["bubble_share"] for name in ("pipeline", "longer")}
hiding_tokens = {"near": answers["fsdp"]["wire"]["tokens"], "across": SLOWER * answers["fsdp"]["wire"]["tokens"]}
tensor_waits_share = answers["tensor"]["seconds"]["tensor"] / answers["tensor"]["step_seconds"]
nvlink_ratio = LINKS["NVLink 4"].bytes_per_second / LINKS["PCIe 4"].bytes_per_second
assert ways["ddp"]["mark"] == ways["zero_1"]["mark"] == "" and answers["fsdp"]["wire"]["hidden"]
print(hiding_tokens, bubble_share, f"{tensor_waits_share:.0%}")


LARGER: dict[str, dict[str, Any]] = {
    "fsdp": {"trained": "all", "zero": "3"},
    "eight_bit": {"trained": "all", "zero": "3", "optimizer": "adamw-8bit"},
    "offloaded": {"trained": "all", "zero": "3", "sharding_by": "deepspeed", "offload": "all"},
    "lora": {"trained": "lora", "zero": "3"},
    "qlora": {"trained": "qlora-double", "zero": "3"},
}
larger: dict[str, dict[str, Any]] = {}
for model in ("qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b", "llama-3-70b"):
    larger[model] = {}
    for name, options in LARGER.items():
        answer = plan(**CARDS, **TRAINING | {"model": model} | options)
        larger[model][name] = {
            "needs_bytes": answer["memory_bytes"]["total"],
            "mark": MARKS[answer["verdict"]],
            "host_bytes": answer["host_bytes"].get("total", 0),  # of all cards
        }
    print(f"{model:10}", *(f"{cell['needs_bytes'] / 2**30:6.1f}{cell['mark']:2}" for cell in larger[model].values()))
