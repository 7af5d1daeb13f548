# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""What sharding, frozen weights and fewer bits make of a training step's bytes and FLOPs: estimates, not counts."""

# --8<-- [start:setup]
# the book's arithmetic, with nothing but Python; it lies beside this file
from formulas import (
    ATTENTION,
    RECIPES,
    Decoder,
    backward_flops,
    forward_flops,
    parameters,
    recompute_flops,
    state_bytes,
)
from wire import fsdp_payload, ring_bytes

# --8<-- [end:setup]


# --8<-- [start:sharding]
def sharded_bytes(
    shape: Decoder, at: dict[str, dict[str, int]], recipe: str, gpus: int, zero: int, frozen: bool = False
) -> dict[str, dict[str, int]]:
    """What peak_bytes() gives, a GPU, when ZeRO's stage splits it: 1 moments and master, 2 gradients, 3 weights too.

    Layers are gathered and their gradients reduced one by one: one in use, one on its way. Embedding and head stay
    gathered from the forward pass to the backward pass's end, and so do their gradients (PyTorch's fully_shard).
    Where weights are frozen, no gradients are reduced but those of adapters, which are small.
    """
    counts, width = parameters(shape), 4 if recipe == "fp32" else 2
    ends = counts["embedding"] + counts["positions"] + counts["head"]
    layer = (sum(counts.values()) - ends) // shape.layers
    head = shape.vocab * shape.d_model
    split = ("master", "optimizer", "gradients", "weights")[: 0 if gpus == 1 else (0, 2, 3, 4)[zero]]
    reduced = {"head": head, "last_layer": head + layer, "first_layer": head + layer, "embedding": ends + layer}
    found = {}
    for moment, lines in at.items():
        found[moment] = {line: -(-size // gpus) if line in split else size for line, size in lines.items()}
        found[moment]["reduced"] = width * reduced.get(moment, 0) if "gradients" in split and not frozen else 0
        found[moment]["gathered"] = width * (ends + 2 * layer) if "weights" in split and moment != "update" else 0
        if "weights" in split:
            found[moment]["copies"] = 0  # what is gathered is cast already
    return found


# --8<-- [end:sharding]


# --8<-- [start:wire]
def wire_bytes(
    shape: Decoder, recipe: str, gpus: int, zero: int, accumulation: int = 1, rank: int = 0, adapted: str = "all"
) -> float:
    """Bytes that a GPU sends in a step, and receives, on a ring (Rajbhandari et al. 2020, section 7).

    Gradients are summed once a step, or, if they are sharded, once a micro-batch. Stages 1 and 2 then gather the new
    weights; stage 3 gathers all of them twice a micro-batch, embedding and head once (PyTorch's fully_shard).
    """
    counts, width = parameters(shape), 4 if recipe == "fp32" else 2
    trained = trained_parameters(shape, rank, adapted)
    each = RECIPES["fp32" if rank else recipe]
    if zero == 0:
        return ring_bytes(each.gradients * trained, gpus, "allreduce")
    reduced = trained * (each.gradients if rank or zero == 1 else width)
    times = accumulation if zero > 1 else 1
    gathered = each.weights * trained
    if zero == 3:
        ends = counts["embedding"] + counts["positions"] + counts["head"]
        blocks = sum(counts.values()) - ends
        gathered = accumulation * fsdp_payload(blocks, ends, gather_bytes=width)["allgather"]
    return ring_bytes(times * reduced, gpus, "reduce_scatter") + ring_bytes(gathered, gpus, "allgather")


# --8<-- [end:wire]


# --8<-- [start:composed]
def composed_bytes(
    shape: Decoder,
    at: dict[str, dict[str, int]],
    recipe: str,
    seq_len: int,
    batch: int,
    fused: bool,
    checkpointing: str,
) -> dict[str, dict[str, int]]:
    """What peak_bytes() gives, for layers composed of PyTorch's operations as transformers 5 writes its RMSNorms.

    Instead of its input, each norm keeps a float32 copy of it, and its output before the weights: four bytes a feature
    more, in 16 bits as in 32. Eager attention keeps its probabilities in float32 too. GPT-2 has neither.
    """
    if shape.norm_shift:
        return at
    tokens, of_heads = batch * seq_len, (shape.heads + shape.kv_heads) * shape.head_dim if shape.head_norms else 0
    layer, last = 4 * tokens * (2 * shape.d_model + of_heads), 4 * tokens * shape.d_model
    scores = 4 * batch * shape.heads * seq_len**2 if not fused and recipe in ("bf16", "bf16_master") else 0
    each = {"none": layer + scores, "selective": layer, "full": 0}[checkpointing]  # kept of a layer that waits
    kept = dict.fromkeys(("forward", "loss", "head"), each * shape.layers + last)
    kept["last_layer"] = each * (shape.layers - 1)
    found = {}
    for moment, lines in at.items():
        inside = layer + scores if moment in ("last_layer", "first_layer") else 0
        more = {"activations": lines["activations"] + kept.get(moment, 0), "layer": lines["layer"] + inside}
        found[moment] = lines | more
    return found


# --8<-- [end:composed]


# --8<-- [start:frozen]
ADAPTED = ("all", "attention", "query-value")  # the matrices of a layer, but the router, that LoRA stands beside


def adapter_parameters(shape: Decoder, rank: int, adapted: str = "all") -> int:
    """Parameters of LoRA: (inputs + outputs) times the rank for each matrix, which is all of them, those of
    attention, or the queries' and values' alone (Hu et al. 2021)."""
    d, f, wide, narrow = shape.d_model, shape.d_ff, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    mlp = (3 if shape.gated else 2) * (d + f) * shape.experts
    sides = {"query-value": 2 * d + wide + narrow, "attention": 4 * d + 2 * wide + 2 * narrow}
    sides["all"] = sides["attention"] + mlp
    return shape.layers * rank * sides[adapted]


def trained_parameters(shape: Decoder, rank: int = 0, adapted: str = "all") -> int:
    """All parameters of a model, or those of its adapters alone."""
    return adapter_parameters(shape, rank, adapted) if rank else sum(parameters(shape).values())


def quantized_bytes(elements: int, bits: int, block: int, constant: float = 4) -> int:
    """Bytes of numbers of few bits, with one constant for each block of them (Dettmers et al. 2021, 2023)."""
    return int(elements * (bits / 8 + constant / block))


def frozen_bytes(
    shape: Decoder,
    at: dict[str, dict[str, int]],
    recipe: str,
    tokens: int,
    rank: int,
    adapted: str = "all",
    four_bit: bool = False,
    full: bool = False,
) -> dict[str, dict[str, int]]:
    """What peak_bytes() gives, for adapters that are trained in float32 beside frozen weights without gradients.

    Between an adapter's two matrices lie `rank` features of each token, kept unless checkpointing is `full`; the input
    of a frozen MLP's matrices is not. A matrix in 4 bits is unpacked when it is multiplied.
    """
    counts, adapters = parameters(shape), adapter_parameters(shape, rank, adapted)
    width, active = 4 if recipe == "fp32" else 2, shape.active_experts
    matrices = counts["qkv"] + counts["out"] + counts["mlp"] if four_bit else 0
    weights = RECIPES[recipe].weights * (sum(counts.values()) - matrices) + quantized_bytes(matrices, 4, 64)
    beside = {"query-value": 2, "attention": 4, "all": 4 + (3 if shape.gated else 2) * active}[adapted]
    spared = 0 if adapted == "all" else shape.d_model + shape.d_ff * active
    layer = width * tokens * (rank * beside - spared)  # kept of one layer, beside what was kept before
    trained = state_bytes(adapters, RECIPES["fp32"])
    found = {}
    for moment in ("forward", "loss", "head", "last_layer", "first_layer", "update"):
        lines = at[moment] | trained | {"weights": weights, "adapters": trained["weights"]}
        if four_bit and moment != "update":
            lines["temporaries"] += width * shape.d_model * shape.d_ff
        if moment == "head":
            lines["temporaries"] -= width * shape.vocab * shape.d_model  # the head's gradient
        if moment in ("last_layer", "first_layer"):
            lines["layer"] += layer
        if moment in ("forward", "loss", "head", "last_layer") and not full:
            lines["activations"] += (shape.layers - (moment == "last_layer")) * layer
        found[moment] = lines
    return found


# --8<-- [end:frozen]


# --8<-- [start:token]
def token_flops(
    shape: Decoder,
    seq_len: int,
    causal: bool = False,
    fused: bool = True,
    checkpointing: str = "none",
    rank: int = 0,
    adapted: str = "all",
) -> dict[str, float]:
    """FLOPs of training on one token of so many: the model's own, the device's, and what of these it does again.

    The model's are those of forward and backward pass alone, by which MFU is measured. Where only adapters of a
    `rank` are trained, frozen weights need no gradients: a third of their products' FLOPs fall away.
    """
    forward = forward_flops(shape, seq_len, causal=causal)
    again = sum(recompute_flops(shape, seq_len, causal=causal, checkpointing=checkpointing).values())
    spared = 0
    if rank:
        spared = sum(flops for part, flops in forward.items() if part not in ATTENTION)
        spared -= 6 * adapter_parameters(shape, rank, adapted) * seq_len
    model, device = (
        sum(forward.values()) + sum(backward_flops(shape, seq_len, 1, causal, twice).values()) - spared
        for twice in (False, fused)
    )
    return {"model": model / seq_len, "device": (device + again) / seq_len, "again": again / seq_len}


# --8<-- [end:token]
