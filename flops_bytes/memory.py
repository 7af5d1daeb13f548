"""Bytes that training holds: state, activations, and the peak of a step. Numbers in, numbers out, nothing but Python.

Symbols: b sequences of T tokens; L layers of width d; H query heads and G key-value heads of Q features; an MLP of
inner width f; V tokens in the vocabulary.
"""

from typing import NamedTuple

from flops_bytes.shapes import Decoder, parameters


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
