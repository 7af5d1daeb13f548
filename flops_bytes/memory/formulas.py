"""Bytes that training and serving hold: state, activations, keys and values. Numbers in and out, nothing but Python.

Symbols: b sequences of T tokens; L layers of width d; H query heads and G key-value heads of Q features; an MLP of
inner width f; V tokens in the vocabulary.
"""

from typing import NamedTuple

from flops_bytes.model.shapes import Decoder, matmuls, recomputed_matmuls


class Recipe(NamedTuple):
    """Bytes a parameter that training holds from step to step."""

    weights: int
    gradients: int
    master: int  # a copy of the weights in float32
    optimizer: int  # AdamW's two moments


RECIPES = {
    "fp32": Recipe(4, 4, 0, 8),
    "autocast": Recipe(4, 4, 0, 8),  # products in bfloat16: the weights are cast for the time of a step
    "autocast_fp16": Recipe(4, 4, 0, 8),  # in float16, the loss scaled: torch.amp.GradScaler holds a few scalars
    "bf16": Recipe(2, 2, 0, 4),  # torch.optim.AdamW keeps moments in the type of the weights
    "bf16_master": Recipe(2, 2, 4, 8),  # Rajbhandari et al. 2020, section 3.1
}


def state_bytes(parameters: int, recipe: Recipe) -> dict[str, int]:
    """Bytes of weights, gradients, master weights and AdamW's state.

    >>> state_bytes(124_439_808, RECIPES["autocast"])
    {'weights': 497759232, 'gradients': 497759232, 'master': 0, 'optimizer': 995518464}
    """
    return {part: each * parameters for part, each in recipe._asdict().items()}


def cache_bytes(shape: Decoder, tokens: int, width: int = 2) -> int:
    """Bytes of the keys and values of so many tokens: a key and a value a layer and key-value head.

    `width` is the bytes of a number.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> cache_bytes(LLAMA_3_8B, tokens=8_192)  # 1 GiB
    1073741824
    """
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * tokens * width


def layer_bytes(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    width: int = 2,
    fused: bool = True,
    checkpointing: str = "none",
    composed: bool = False,
    dropout: bool = False,
    autocast: bool = False,
) -> dict[str, int]:
    """Bytes that autograd keeps of one layer; `width` is the bytes of one activation.

    Fused attention keeps a float32 a row of scores and 24 bytes for a random seed; eager attention the T × T
    probabilities, and keys and values once a query head. "selective" makes attention again, "full" the whole layer,
    "per-op" all but what PyTorch counts as dear. GPT-2's layer has a norm of two vectors, Llama's a gate and a norm of
    one. Experts copy tokens: an estimate. `composed` layers are made of PyTorch's operations, as in transformers 5:
    instead of its input, each RMSNorm keeps a float32 copy of it, and its output before the weights, four bytes a
    feature more. `dropout` keeps a byte a number where the model has it: on probabilities, and in GPT-2 on what both
    halves of a layer add.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> sum(layer_bytes(GPT2_SMALL, seq_len=1_024).values())
    25231384
    >>> layer_bytes(GPT2_SMALL, seq_len=1_024, checkpointing="full")
    {'input': 1572864}
    """
    tokens, wide, narrow = batch * seq_len, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    row = width * tokens  # bytes of one feature of all tokens
    rows = 4 * batch * shape.heads * seq_len  # a float32 each
    if checkpointing == "full":
        return {"input": row * shape.d_model}
    if checkpointing == "per-op":
        scores = rows + 24 if fused else width * rows // 4 * seq_len
        return {"input": row * shape.d_model, "matmuls": row * saved_features(shape), "attention": row * wide + scores}
    statistics = 4 * tokens * (2 if shape.norm_shift else 1)  # float32: the mean and the scale, or the scale alone
    head_norms = shape.head_norms * (row * (wide + narrow) + 4 * tokens * (shape.heads + shape.kv_heads))
    copied = 2 * shape.d_model + shape.head_norms * (wide + narrow) if composed and not shape.norm_shift else 0
    routed = 2 * row * shape.active_experts * shape.d_model if shape.experts > 1 else 0
    spelled_out = not fused and checkpointing == "none"
    # of keys and values, once a query head; of one sequence's one head autocast copies keys alone, turned in float32
    one = composed and batch == shape.kv_heads == 1
    copies = wide - narrow if spelled_out else 0
    copies = copies * autocast if one else 2 * copies
    scores = rows + 24 if fused else rows // 4 * seq_len * score_bytes(shape, width, composed, dropout, autocast)
    kept = {
        "norms": 2 * (row * shape.d_model + statistics) + head_norms + 4 * tokens * copied,
        "qkv_input": row * shape.d_model,
        "qkv": row * (wide + 2 * narrow + copies),
        "scores": scores if checkpointing == "none" else 0,
        "out_input": row * wide,
        "mlp_input": row * shape.d_model,
        "mlp": tokens * shape.d_ff * shape.active_experts * inner_bytes(shape, width, composed, autocast) + routed,
    }
    return kept | {"masks": 2 * tokens * shape.d_model} if dropout and shape.norm_shift else kept


def softmax_bytes(shape: Decoder, width: int, composed: bool, autocast: bool) -> int:
    """Bytes of a probability as softmax makes it: float32 under autocast, and in transformers but for GPT-2."""
    return 4 if autocast or (composed and not shape.norm_shift) else width


def score_bytes(shape: Decoder, width: int, composed: bool, dropout: bool, autocast: bool) -> int:
    """Kept of a score by eager attention: softmax's result, dropout's mask, what the values are multiplied by."""
    made = softmax_bytes(shape, width, composed, autocast)
    return made + (1 if dropout else 0) + (width if dropout or made != width else 0)


def inner_bytes(shape: Decoder, width: int, composed: bool, autocast: bool) -> int:
    """Kept of an inner feature of the MLP.

    Of a gated one the gate before and after SiLU, the other half, their product; else what is before and after GELU.
    Composed as transformers' gelu_new, x/2 · (1 + tanh(…x³…)), that is x, its half, the tanh, one more than that, and
    the product; under autocast, which makes powers in float32, three of these five are float32.
    """
    if shape.gated:
        return 4 * width
    if not composed:
        return 2 * width
    return 3 * 4 + 2 * width if autocast else 5 * width


def saved_features(shape: Decoder) -> int:
    """Features of a token that checkpointing per operation keeps of a layer's matmuls."""
    return sum(each.outputs for each in matmuls(shape)) - sum(each.outputs for each in recomputed_matmuls(shape))


def activation_bytes(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    width: int = 2,
    fused: bool = True,
    checkpointing: str = "none",
) -> dict[str, int]:
    """Bytes that autograd keeps of the whole model, when the loss has been computed.

    `width` is the bytes of one activation; `fused` and `checkpointing` are as in layer_bytes(). The logits come to
    stand as float32 log-probabilities, whatever the activations are; 4 bytes count the targets.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> activation_bytes(GPT2_SMALL, seq_len=1_024, batch=8)["layers"]
    2422210848
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
    """Bytes of the logits at the backward pass's first moment: three times float32, where most steps peak.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> sum(logits_bytes(GPT2_SMALL, tokens=8 * 1_024).values())
    4940464128
    """
    return dict.fromkeys(("log_probabilities", "their_gradient", "logits_gradient"), 4 * tokens * shape.vocab)
