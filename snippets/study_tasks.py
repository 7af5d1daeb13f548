# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Eight tasks of resource accounting for a study group: what goes in, what comes out, and who checks it."""

from math import ceil

from flops_bytes.lessons.answers import RIGHT, check
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.plan import plan
from flops_bytes.time.gpus import GPUS, capacity_bytes

# --8<-- [start:parameters]
qwen3_8b = Decoder(layers=36, d_model=4_096, heads=32, kv_heads=8, head_dim=128, d_ff=12_288, vocab=151_936)
num_parameters = sum(parameters(qwen3_8b).values())
RIGHT["parameters"] = num_parameters
print(f"{num_parameters:,} parameters, {2 * num_parameters / 2**30:.1f} GiB in bf16")
# --8<-- [end:parameters]
weights_bytes = 2 * num_parameters


# --8<-- [start:state]
small_parameters = plan(model="qwen3-1.7b", gpu="RTX 4090", meters=False)["parameters"]["total"]
RIGHT["state"] = 16 * small_parameters
for name, each in {"autocast": 16, "all bf16": 8, "all bf16, 8-bit AdamW": 6}.items():
    print(f"{name:22} {each * small_parameters / 2**30:5.1f} GiB")
print(f"an RTX 4090 reports {capacity_bytes('RTX 4090', GPUS['RTX 4090']) / 2**30:.1f} GiB")
# --8<-- [end:state]
autocast_bytes, bf16_bytes = 16 * small_parameters, 8 * small_parameters
CARD_BYTES = capacity_bytes("RTX 4090", GPUS["RTX 4090"])


# --8<-- [start:logits]
RIGHT["logits"] = 12 * 8_192 * 151_936
lora = {"model": "qwen3-8b", "gpu": "RTX 4090", "context": 8_192, "trained": "lora", "checkpointing": "full"}
for loss in ("plain", "fused"):
    answer = plan(**lora, loss=loss)
    print(f"{loss} loss: {answer['memory_bytes']['total'] / 2**30:.1f} GiB, {answer['verdict']}")
# --8<-- [end:logits]
logits_bytes = 12 * 8_192 * 151_936
plain_bytes, fused_bytes = (
    plan(**lora, loss=loss, meters=False)["memory_bytes"]["total"] for loss in ("plain", "fused")
)


# --8<-- [start:batch]
adapters = {"model": "qwen3-4b", "gpu": "RTX 4090", "context": 2_048, "trained": "lora", "checkpointing": "full"}
adapters["loss"] = "fused"
largest = plan(**adapters, micro_batch=1)["largest_micro_batch"]
living = next(size for size in range(largest, 0, -1) if plan(**adapters, micro_batch=size)["fits"])
RIGHT["batch"] = largest
print(
    f"tensors of {largest} sequences fit, of {living} the allocator finds room for; for 64 a step, 16 at once, 4 times"
)
# --8<-- [end:batch]


# --8<-- [start:days]
a_day = 86_400 * 8 * 0.4 * GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]  # FLOPs of 8 cards
days = 6 * 8.03e9 * 100e9 / a_day
RIGHT["days"] = days
needed = {mfu: ceil(8 * days / 10 * 0.4 / mfu) for mfu in (0.4, 0.3)}
print(f"{days:.1f} days by 6ND; in 10 days, {needed[0.4]} cards, by the MFU of a whole run {needed[0.3]}")
# --8<-- [end:days]
cards_in_time, cards_of_run = needed.values()


# --8<-- [start:mfu]
of_peak = 6 * 8.03e9 * 6_200 / GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
RIGHT["mfu"] = of_peak
print(f"MFU {of_peak:.0%}")
# --8<-- [end:mfu]


# --8<-- [start:stage]
N, R = 4_022_468_096, 8  # parameters of Qwen3 4B; cards
of_stage = {"DDP": 18 * N, "ZeRO-1": 6 * N + 12 * N / R, "ZeRO-2": 2 * N + 16 * N / R, "ZeRO-3": 18 * N / R}
RIGHT["stage"] = of_stage["ZeRO-2"]
for name, held in of_stage.items():
    print(f"{name:7} {held / 2**30:5.1f} GiB")
# --8<-- [end:stage]
stage_bytes = {name.replace("-", "_"): each for name, each in of_stage.items()}


# --8<-- [start:users]
served = {}
for weights in ("16bit", "8bit", "4bit"):
    answer = plan(task="serve", model="qwen3-8b", gpu="RTX 4090", gpus=1, context=8_192, weights=weights)
    served[weights] = answer["users_that_fit"]
    print(f"{weights:5}: {served[weights]} users of 8,192 tokens")
RIGHT["users"] = served["8bit"]
# --8<-- [end:users]
beside_bytes = sum(answer["memory_bytes"][line] for line in ("activations", "allowance"))
token_bytes = 2 * 2 * 36 * 8 * 128
assert check("parameters", 8.19e9) and not check("mfu", 2 * of_peak)
