# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What do tensor, context, pipeline and expert parallelism hold and send, and what does that take? By formula."""

# --8<-- [start:setup]
from typing import Any

from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import LLAMA_3_8B, LLAMA_3_70B, Decoder, parameters
from flops_bytes.parallel.layouts import (
    Layout,
    bubble,
    rank_parameters,
    rates,
    sent,
    state_bytes,
    step_seconds,
)
from flops_bytes.parallel.ranks import layer_activation_bytes, rank_activation_bytes
from flops_bytes.parallel.sharding import LINK_BYTES_PER_SECOND, ring_bytes, ring_rate
from flops_bytes.time.gpus import GPUS, LINK_EFFICIENCY

# --8<-- [end:setup]


WEIGHT_BYTES, GRADIENT_BYTES, STATE_BYTES = 2, 4, 12  # bf16; fp32; fp32 master weights and AdamW's two moments


# --8<-- [start:state]
T = 8_192  # tokens of a sequence
model_parameters = sum(parameters(LLAMA_3_70B).values())
whole_bytes = (2 + 4 + 12) * model_parameters  # weights, gradients, AdamW's state
layers_bytes = rank_activation_bytes(LLAMA_3_70B, Layout(), 0, T)  # of one sequence
sharded_bytes = {gpus: whole_bytes / gpus for gpus in (8, 64, 512)}
for gpus, size in sharded_bytes.items():
    print(f"{gpus:3} GPUs: {size / 1e9:5.1f} GB of state each")
print(f"and {layers_bytes / 1e9:.0f} GB of activations a sequence")
# --8<-- [end:state]


MFU, LINK_SHARE = 0.4, LINK_EFFICIENCY  # of the peak while it computes; of a link's nominal rate


# --8<-- [start:tensor]
FLOP_PER_SECOND = 0.4 * GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]  # while it computes, we assume
WITHIN, BETWEEN = (LINK_EFFICIENCY * rate for rate in LINK_BYTES_PER_SECOND.values())  # NVLink; 400 Gb/s a GPU


def tensor_share(shape: Decoder, ranks: int) -> float:
    """Forward: seconds of a layer's two all-reduces over those of its matmuls; attention's own left out."""
    counts = parameters(shape)
    layer_parameters = (counts["qkv"] + counts["out"] + counts["mlp"]) / shape.layers
    sent = 2 * ring_bytes(2 * shape.d_model, ranks, "allreduce")  # of a token
    flops = 2 * layer_parameters / ranks
    return sent / ring_rate(ranks, WITHIN, BETWEEN) * FLOP_PER_SECOND / flops


tensor_wait_share = {ranks: tensor_share(LLAMA_3_70B, ranks) for ranks in (2, 4, 8, 16)}
print({ranks: f"{share:.0%}" for ranks, share in tensor_wait_share.items()})
# --8<-- [end:tensor]


features_bytes = 2 * T * LLAMA_3_70B.d_model
EIGHT, AGAIN = Layout(tensor=8), Layout(tensor=8, trainer="nanotron")  # which gathers again, and keeps no copy
layer_held_bytes = {
    "whole": layer_activation_bytes(LLAMA_3_70B, Layout(), T),
    "tensor": layer_activation_bytes(LLAMA_3_70B, Layout(tensor=8, sequence=False), T),
    "sequence": layer_activation_bytes(LLAMA_3_70B, EIGHT, T),
    "regathered": layer_activation_bytes(LLAMA_3_70B, AGAIN, T),
}
held_ratio = {name: size / layer_held_bytes["whole"] for name, size in layer_held_bytes.items()}


# --8<-- [start:context]
def tokens_to_hide_ring(shape: Decoder, bytes_per_second: float) -> float:
    """Tokens of a sequence on a rank with which causal attention takes as long as passing keys and values on."""
    return 2 * shape.kv_heads / shape.heads * FLOP_PER_SECOND / bytes_per_second


ring_tokens = {
    "NVLink": tokens_to_hide_ring(LLAMA_3_70B, WITHIN),
    "400 Gb/s": tokens_to_hide_ring(LLAMA_3_70B, BETWEEN),
}
print({link: round(tokens) for link, tokens in ring_tokens.items()})
# --8<-- [end:context]
pairs_bytes = 2 * 2 * LLAMA_3_70B.kv_heads * LLAMA_3_70B.head_dim * T  # keys and values of a sequence, of one layer
features_to_pairs_ratio = features_bytes / pairs_bytes


handed_bytes = features_bytes  # by one stage to the next, for each micro-batch
stage_flops = forward_flops(LLAMA_3_70B, T, causal=True)
HANDING_SECONDS = handed_bytes / BETWEEN
STAGE_SECONDS = (sum(stage_flops.values()) - stage_flops["head"]) / 4 / FLOP_PER_SECOND
handing_share = HANDING_SECONDS / STAGE_SECONDS


SEQUENCES = 512  # of 8,192 tokens, in a step
SLOW = BETWEEN / 8  # one network card of 400 Gb/s for eight GPUs
AS_USUAL: dict[str, Any] = {"trainer": "nanotron", "stages": "with-ends"}  # inputs are gathered again
CHOICES = {
    "fsdp": Layout(data=512, zero=3, **AS_USUAL),
    "tensor_2": Layout(data=512, tensor=2, zero=3, **AS_USUAL),
    "tensor_4": Layout(data=256, tensor=4, zero=3, micro_batches=2, **AS_USUAL),
    "context_4": Layout(data=256, context=4, zero=3, micro_batches=2, **AS_USUAL),
    "tensor_8": Layout(data=128, tensor=8, zero=3, micro_batches=4, **AS_USUAL),
    "pipeline_4": Layout(data=32, tensor=8, pipeline=4, micro_batches=16, **AS_USUAL),
    "interleaved": Layout(
        data=32, tensor=8, pipeline=4, micro_batches=16, virtual=2, schedule="interleaved", **AS_USUAL
    ),
}


def seconds(layout: Layout, between: float) -> float:
    """Of a step, with so many bytes a second between machines for each GPU."""
    level = rates(layout, WITHIN, between)
    return sum(step_seconds(LLAMA_3_70B, layout, T, FLOP_PER_SECOND, level).values())


def worked(layout: Layout) -> dict[str, float]:
    """What the first pipeline rank holds and sends in a step, and how long that takes."""
    held = rank_parameters(LLAMA_3_70B, layout, 0)
    moved = sent(LLAMA_3_70B, layout, 0, T)
    return {
        "gpus": layout.gpus,
        "state_bytes": sum(state_bytes(held, layout, WEIGHT_BYTES, GRADIENT_BYTES, STATE_BYTES).values()),
        "activations_bytes": rank_activation_bytes(LLAMA_3_70B, layout, 0, T),
        "split_sent_bytes": sum(moved) - moved.data,
        "data_sent_bytes": moved.data,
        "bubble_share": bubble(layout),
        "step_seconds": seconds(layout, BETWEEN),
        "one_card_step_seconds": seconds(layout, SLOW),
    }


WORKED = {name: worked(layout) for name, layout in CHOICES.items()}


# --8<-- [start:exercise_tensor]
narrower_share = tensor_share(LLAMA_3_8B, 8)
print(f"{narrower_share:.0%}, of Llama 3 70B {tensor_wait_share[8]:.0%}")
assert 1.9 < narrower_share / tensor_wait_share[8] < 2
# --8<-- [end:exercise_tensor]


# --8<-- [start:exercise_context]
LONG, ROOM_BYTES = 131_072, 40e9
long_bytes = {
    context: rank_activation_bytes(LLAMA_3_70B, Layout(tensor=8, context=context, trainer="nanotron"), 0, LONG)
    for context in (1, 2, 4, 8, 16, 32)
}
smallest_context = next(c for c, size in long_bytes.items() if size <= ROOM_BYTES)
print(f"{long_bytes[1] / 1e9:.0f} GB, on {smallest_context} ranks {long_bytes[smallest_context] / 1e9:.0f} GB each")
assert smallest_context == 16
# --8<-- [end:exercise_context]


# --8<-- [start:exercise_405]
PUBLISHED = Layout(data=128, tensor=8, pipeline=16, micro_batches=16)  # Llama 3 405B on 16,384 H100s
most_ranks = 16 * 2**20 // T  # sequences of 8,192 tokens in 16 Mi tokens: no rank of the data without one
plain_share = bubble(PUBLISHED)
thin_share = bubble(PUBLISHED._replace(virtual=8, schedule="interleaved"))  # a layer a stage
print(f"{PUBLISHED.gpus} GPUs, {most_ranks} sequences; idle {plain_share:.1%}, with a layer a stage {thin_share:.1%}")
assert PUBLISHED.gpus == 16_384 and most_ranks == 2048
assert abs(plain_share - 15 / 31) < 1e-12 and abs(thin_share - 15 / 143) < 1e-12
# --8<-- [end:exercise_405]
