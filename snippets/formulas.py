# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""The book's arithmetic: numbers in, numbers out, with nothing but Python.

Symbols: b sequences of T tokens; L layers of width d; H query heads and G key-value heads of Q features; an MLP of
inner width f; V tokens in the vocabulary. A FLOP is an addition or a multiplication; only matrix products are counted.
"""

# --8<-- [start:shape]
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder-only transformer, from which all counts follow."""

    layers: int  # L
    d_model: int  # d
    heads: int  # H, of queries
    kv_heads: int  # G, of keys and values
    head_dim: int  # Q
    d_ff: int  # f
    vocab: int  # V
    positions: int = 0  # learned position embeddings; 0: positions are rotated in, without parameters
    tied: bool = False  # the head is the embedding's matrix
    gated: bool = True  # three matrices in the MLP (SwiGLU) instead of two
    biases: bool = False  # of all linear layers but head and router
    norm_shift: bool = False  # LayerNorm's second vector; RMSNorm has none
    experts: int = 1  # MLPs a layer
    active_experts: int = 1  # of these, how many a token goes through
    qkv_biases: bool = False  # of queries, keys and values alone (Qwen 2)
    head_norms: bool = False  # an RMSNorm of each head's queries and keys (Qwen 3)


# --8<-- [end:shape]


# --8<-- [start:parameters]
def parameters(shape: Decoder, active: bool = False) -> dict[str, int]:
    """Parameters by component; with `active`, those that one token passes through."""
    d, f, L, V = shape.d_model, shape.d_ff, shape.layers, shape.vocab
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    bias, norm, matrices = int(shape.biases), d * (1 + shape.norm_shift), 2 + shape.gated
    expert = matrices * d * f + bias * ((matrices - 1) * f + d)
    return {
        "embedding": V * d,
        "positions": shape.positions * d,
        "qkv": L * (d + max(bias, shape.qkv_biases)) * (wide + 2 * narrow),
        "out": L * (wide + bias) * d,
        "mlp": L * expert * (shape.active_experts if active else shape.experts),
        "router": L * d * shape.experts if shape.experts > 1 else 0,
        "norms": L * (2 * norm + 2 * shape.head_dim * shape.head_norms) + norm,
        "head": 0 if shape.tied else V * d,
    }


# --8<-- [end:parameters]

ATTENTION = ("scores", "values")  # the products without parameters


# --8<-- [start:forward]
def forward_flops(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    causal: bool = False,
) -> dict[str, int]:
    """FLOPs of a forward pass by component; a product (m × n)(n × p) takes 2mnp.

    Attention over all T² pairs of tokens; with `causal`, over T(T + 1)/2.
    """
    d, L, wide = shape.d_model, shape.layers, shape.heads * shape.head_dim
    tokens = batch * seq_len
    pairs = batch * (seq_len * (seq_len + 1) // 2 if causal else seq_len**2)
    matrices = (3 if shape.gated else 2) * shape.active_experts
    return {
        "qkv": 2 * tokens * L * d * (wide + 2 * shape.kv_heads * shape.head_dim),
        "scores": 2 * pairs * L * wide,
        "values": 2 * pairs * L * wide,
        "out": 2 * tokens * L * wide * d,
        "mlp": 2 * tokens * L * matrices * d * shape.d_ff,
        "router": 2 * tokens * L * d * shape.experts if shape.experts > 1 else 0,
        "head": 2 * tokens * d * shape.vocab,
    }


# --8<-- [end:forward]


# --8<-- [start:backward]
def backward_flops(
    shape: Decoder, seq_len: int, batch: int = 1, causal: bool = False, fused: bool = True
) -> dict[str, int]:
    """FLOPs of one backward pass by component: each product needs two, for the gradients of its two factors.

    Fused attention makes its scores again (Dao et al. 2022): three products stand there, two with the values.
    """
    forward = forward_flops(shape, seq_len, batch, causal)
    return {part: (3 if fused and part == "scores" else 2) * flops for part, flops in forward.items()}


def recompute_flops(
    shape: Decoder, seq_len: int, batch: int = 1, causal: bool = False, checkpointing: str = "full"
) -> dict[str, int]:
    """FLOPs that a step does again to keep fewer activations.

    "full": all layers; "selective": attention's products alone (Korthikanti et al. 2022); "none". PyTorch stops
    earlier, before products whose result nobody needs, unless it is told set_checkpoint_early_stop(False).
    """
    again = {"none": (), "selective": ATTENTION, "full": ("qkv", *ATTENTION, "out", "mlp", "router")}[checkpointing]
    forward = forward_flops(shape, seq_len, batch, causal)
    return {part: flops if part in again else 0 for part, flops in forward.items()}


# --8<-- [end:backward]


# --8<-- [start:papers]
def six_n_d_flops(parameters: float, tokens: float) -> float:
    """FLOPs of training without attention's: 6ND (Kaplan et al. 2020, whose N leaves the embeddings out)."""
    return 6 * parameters * tokens


def palm_flops(shape: Decoder, parameters: float, tokens: float, seq_len: int) -> float:
    """FLOPs of training: 6N + 12LHQT a token, over all pairs (Chowdhery et al. 2022, appendix B)."""
    return (6 * parameters + 12 * shape.layers * shape.heads * shape.head_dim * seq_len) * tokens


def megatron_flops(shape: Decoder, tokens: float, seq_len: int) -> float:
    """FLOPs of GPT-3's shape (G = H, HQ = d, f = 4d): 72BsLh²(1 + s/6h + V/12Lh) (Korthikanti et al. 2022)."""
    L, h = shape.layers, shape.d_model
    return 72 * tokens * L * h**2 * (1 + seq_len / (6 * h) + shape.vocab / (12 * L * h))


def training_seconds(flops: float, gpus: int, peak_flop_per_second: float, mfu: float) -> float:
    """Seconds for so many FLOPs on so many GPUs, each at the share `mfu` of its peak."""
    return flops / (gpus * peak_flop_per_second * mfu)


# --8<-- [end:papers]


# --8<-- [start:state]
class Recipe(NamedTuple):
    """Bytes a parameter that training holds from step to step."""

    weights: int
    gradients: int
    master: int  # a copy of the weights in float32
    optimizer: int  # AdamW's two moments


RECIPES = {
    "fp32": Recipe(4, 4, 0, 8),
    "autocast": Recipe(4, 4, 0, 8),  # products in bfloat16: the weights are cast for the time of a step
    "bf16": Recipe(2, 2, 0, 4),  # torch.optim.AdamW keeps moments in the type of the weights
    "bf16_master": Recipe(2, 2, 4, 8),  # Rajbhandari et al. 2020, section 3.1
}


def state_bytes(parameters: int, recipe: Recipe) -> dict[str, int]:
    """Bytes of weights, gradients, master weights and AdamW's state."""
    return {part: each * parameters for part, each in recipe._asdict().items()}


# --8<-- [start:serving]
def cache_bytes(shape: Decoder, tokens: int, width: int = 2) -> int:
    """Bytes of the keys and values of so many tokens: a key and a value a layer and key-value head."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * tokens * width


# --8<-- [end:serving]
# --8<-- [end:state]


# --8<-- [start:layer]
def layer_bytes(
    shape: Decoder, seq_len: int, batch: int = 1, width: int = 2, fused: bool = True, checkpointing: str = "none"
) -> dict[str, int]:
    """Bytes that autograd keeps of one layer without dropout; `width` is the bytes of one activation.

    Fused attention keeps a float32 a row of scores and 24 bytes for a random seed; eager attention the T × T
    probabilities, and keys and values once a query head. "selective" makes attention again, "full" the whole layer.
    GPT-2's layer has a norm of two vectors, Llama's a gate and a norm of one. Experts copy tokens: an estimate.
    """
    tokens, wide, narrow = batch * seq_len, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    row = width * tokens  # bytes of one feature of all tokens
    if checkpointing == "full":
        return {"input": row * shape.d_model}
    statistics = 4 * tokens * (2 if shape.norm_shift else 1)  # float32: the mean and the scale, or the scale alone
    head_norms = shape.head_norms * (row * (wide + narrow) + 4 * tokens * (shape.heads + shape.kv_heads))
    routed = 2 * row * shape.active_experts * shape.d_model if shape.experts > 1 else 0
    rows, spelled_out = 4 * batch * shape.heads * seq_len, not fused and checkpointing == "none"
    return {
        "norms": 2 * (row * shape.d_model + statistics) + head_norms,
        "qkv_input": row * shape.d_model,
        "qkv": row * (3 * wide if spelled_out else wide + 2 * narrow),
        "scores": (rows + 24 if fused else width * rows // 4 * seq_len) if checkpointing == "none" else 0,
        "out_input": row * wide,
        "mlp_input": row * shape.d_model,
        # before and after GELU; or the gate before and after SiLU, the other half, their product
        "mlp": row * (4 if shape.gated else 2) * shape.d_ff * shape.active_experts + routed,
    }


# --8<-- [end:layer]


# --8<-- [start:activations]
def activation_bytes(
    shape: Decoder, seq_len: int, batch: int = 1, width: int = 2, fused: bool = True, checkpointing: str = "none"
) -> dict[str, int]:
    """Bytes that autograd keeps of the whole model, when the loss has been computed.

    The logits come to stand as float32 log-probabilities, whatever the activations are; 4 bytes count the targets.
    """
    tokens = batch * seq_len
    kept = layer_bytes(shape, seq_len, batch, width, fused, checkpointing)
    return {
        "layers": shape.layers * sum(kept.values()),
        "rotary": 0 if shape.positions else 2 * width * seq_len * shape.head_dim,  # cosines and sines
        "norm": width * tokens * shape.d_model + 4 * tokens * (1 + shape.norm_shift),
        "head_input": width * tokens * shape.d_model,
        "log_probabilities": 4 * tokens * shape.vocab + 4,
    }


def logits_bytes(shape: Decoder, tokens: int) -> dict[str, int]:
    """Bytes of the logits at the backward pass's first moment: three times float32, where most steps peak."""
    return dict.fromkeys(("log_probabilities", "their_gradient", "logits_gradient"), 4 * tokens * shape.vocab)


# --8<-- [end:activations]


# --8<-- [start:peak]
def peak_bytes(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    recipe: str = "autocast",
    fused: bool = True,
    checkpointing: str = "none",
    chunks: int = 1,
    accumulated: bool = False,
    foreach: bool = False,
) -> dict[str, dict[str, int]]:
    """Bytes of tensors by line, at each moment at which a step can peak; the peak is the largest sum.

    Head and loss go forward and backward in `chunks` of the tokens; gradients of an earlier batch can be there already
    (`accumulated`); AdamW makes a temporary of all weights (`foreach`), or none if fused.
    """
    each, width, cast = RECIPES[recipe], 4 if recipe == "fp32" else 2, 2 if recipe == "autocast" else 0
    tokens, d, L, full = batch * seq_len, shape.d_model, shape.layers, checkpointing == "full"
    row, stream = width * tokens, each.weights * tokens * d  # a feature of all tokens; one tensor of the residual path
    kept = activation_bytes(shape, seq_len, batch, width, fused, checkpointing)
    whole = layer_bytes(shape, seq_len, batch, width, fused)
    inside = layer_bytes(shape, seq_len, batch, width, fused, "selective") if checkpointing == "selective" else whole
    # Autocast leaves the residual path and softmax in float32, and casts a norm's output for each matrix after it.
    wider, softmax = stream - row * d, 2 * whole["scores"] if cast and not fused else 0
    wide = 2 * wider + (3 * row * d if cast and shape.gated else 0) + (softmax if inside is whole else 0)
    layers = kept["layers"] + L * (wider if full else wide)
    hidden = stream if chunks > 1 else 0  # the head's input, and its gradient, wait for the last chunk
    every = layers + kept["rotary"] + kept["norm"] + kept["head_input"] + (2 if hidden else 1) * wider
    # The layer that goes backward: what it kept, and the gradients on their way through its MLP or its scores.
    mlp = sum(inside.values()) + wide + stream + (2 if shape.gated else 1) * row * shape.d_ff
    scores = whole["norms"] // 2 + wider + whole["qkv_input"] + whole["qkv"] + stream
    scores += (6 if cast else 3) * whole["scores"] + (0 if inside is whole else inside["qkv"])
    layer = mlp if fused else max(mlp, scores)
    counts, gradient = parameters(shape), each.gradients
    matrices = counts["qkv"] + counts["out"] + counts["mlp"] + counts["router"]
    total, head, of_layer, upper = sum(counts.values()), shape.vocab * d, matrices // L, matrices - matrices // L
    done = head + (shape.experts * d * shape.d_ff if layer == mlp else (counts["mlp"] + counts["out"]) // L)
    last = 0 if foreach else d * shape.d_ff if shape.tied else head  # waits until its master's is made
    updated = each.master * total + gradient * last if each.master else gradient * total
    before, first = gradient * total if accumulated else 0, gradient * head if hidden else 0
    summed = 2 if shape.tied and not hidden else 0  # a tied matrix's two gradients, before autograd's sum of them
    again = gradient * head * (summed + accumulated or shape.tied)  # the embedding's, before it is added
    copies, logits = cast * (matrices + head), -(-tokens // chunks) * shape.vocab
    left = 0 if full or not hidden else copies  # autocast keeps its casts until its end, or that of a checkpoint
    below = copies if hidden else cast * (of_layer if full else matrices)
    at = {  # gradients, copies, activations of other layers, of this layer, logits, temporaries
        "forward": (before, copies, every, 0, 8 * logits, 0),
        "loss": (before or first, cast * head if full and not hidden else copies, every, 0, 12 * logits, hidden),
        "head": (before or first, copies, every, 0, 0 if cast else width * logits, (width + 2 * cast) * head + hidden),
        "last_layer": (before or gradient * done, below, layers - layers // L, layer, 0, 2 * hidden),
        "first_layer": (before or gradient * (done + upper), left or cast * of_layer, 0, layer, 0, 2 * hidden),
        "embedding": (gradient * total, left, 0, 0, 0, stream + 2 * hidden + again),
        "update": (updated, 0, 0, 0, 0, each.optimizer // 2 * total if foreach else 0),
    }
    lines = ("gradients", "copies", "activations", "layer", "logits", "temporaries")
    state = state_bytes(total, each) | {"batch": 16 * tokens}  # tokens and targets
    return {moment: state | dict(zip(lines, sizes, strict=True)) for moment, sizes in at.items()}


# --8<-- [end:peak]
