"""What frozen weights, adapters and fewer bits make of a training step's bytes and FLOPs: estimates, not counts."""

from typing import NamedTuple

from flops_bytes.flops import ATTENTION, backward_flops, forward_flops, recompute_flops
from flops_bytes.shapes import Decoder, parameters

# --8<-- [start:frozen]
ADAPTED = ("all", "attention", "query-value")  # the matrices of a layer, but the router, that LoRA stands beside


def adapter_parameters(shape: Decoder, rank: int, adapted: str = "all") -> int:
    """Parameters of LoRA: (inputs + outputs) times the rank for each matrix, which is all of them, those of
    attention, or the queries' and values' alone (Hu et al. 2021). Experts have none, which transformers holds as
    parameters and not as linear modules."""
    d, f, wide, narrow = shape.d_model, shape.d_ff, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    mlp = (3 if shape.gated else 2) * (d + f) * (shape.experts == 1)
    sides = {"query-value": 2 * d + wide + narrow, "attention": 4 * d + 2 * wide + 2 * narrow}
    sides["all"] = sides["attention"] + mlp
    return shape.layers * rank * sides[adapted]


def trained_parameters(
    shape: Decoder, rank: int = 0, adapted: str = "all", counts: dict[str, int] | None = None
) -> int:
    """All parameters of a model, or those of its adapters alone. `counts` is parameters() of it, if that is known."""
    return adapter_parameters(shape, rank, adapted) if rank else sum((counts or parameters(shape)).values())


CONSTANTS = {  # bytes a block of 64 weights in 4 bits
    "4bit": 4,
    "4bit-double": 1 + 4 / 256,  # quantized again: 8 bits, and a float32 for 256 of them
}


class Format(NamedTuple):
    """In which copies the layers' matmuls multiply."""

    bits: int  # of a number, in units of 1/32 of a byte: its scale is among them
    keeps_copies: bool  # for the backward pass, of each matmul's input and matrix; else these are kept in 16 bits
    peak: str  # the format at whose peak they multiply


FORMATS = {
    "fp8": Format(32, False, "float8"),  # torchao's Float8Linear; a scale a tensor or row is not counted
    "fp8-kept": Format(32, True, "float8"),  # nanochat/fp8.py, a scale a tensor
    "mxfp8": Format(33, False, "float8"),  # a byte for 32: torchao's mxfp8_linear.py
    "nvfp4": Format(18, True, "float4"),  # a byte for 16: its nvfp4_linear.py, which keeps codes of both
}


def quantized_bytes(elements: int, bits: int, block: int, constant: float = 4) -> int:
    """Bytes of numbers of few bits, with one constant for each block of them (Dettmers et al. 2021, 2023)."""
    return int(elements * (bits / 8 + constant / block))


def frozen_weights_bytes(counts: dict[str, int], width: int, base: str) -> int:
    """Bytes of frozen weights, from parameters(): in 4 bits all matrices of layers, but a router."""
    matrices = counts["qkv"] + counts["out"] + counts["mlp"] if base in CONSTANTS else 0
    return width * (sum(counts.values()) - matrices) + quantized_bytes(matrices, 4, 64, CONSTANTS.get(base, 0))


def matrix_adapters(shape: Decoder, adapted: str) -> int:
    """Adapters that a token meets in a layer."""
    mlp = 0 if shape.experts > 1 else 3 if shape.gated else 2
    return {"query-value": 2, "attention": 4, "all": 4 + mlp}[adapted]


# --8<-- [end:frozen]


# --8<-- [start:token]
def below(shape: Decoder, seq_len: int, rank: int, adapted: str) -> int:
    """FLOPs of gradients that the first layer does not make: nothing below its queries, keys and values is trained."""
    d, wide, narrow = shape.d_model, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return 2 * seq_len * d * (wide + 2 * narrow + rank * (2 if adapted == "query-value" else 3))


def token_flops(
    shape: Decoder,
    seq_len: int,
    causal: bool = False,
    fused: bool = True,
    checkpointing: str = "none",
    rank: int = 0,
    adapted: str = "all",
    every: int = 1,
    early_stop: bool = True,
) -> dict[str, float]:
    """FLOPs of training on one token of so many: the model's own, the device's, and what of these it does again.

    The model's are those of forward and backward pass alone, by which MFU is measured. Where only adapters of a
    `rank` are trained, frozen weights need no gradients: a third of their products' FLOPs fall away.
    """
    forward = forward_flops(shape, seq_len, causal=causal)
    again = sum(
        recompute_flops(
            shape,
            seq_len,
            causal=causal,
            checkpointing=checkpointing,
            fused=fused,
            early_stop=early_stop and not (rank and adapted == "all" and checkpointing == "full"),
            every=every,
        ).values()
    )
    spared = keys = 0
    if rank:
        adapters, times = adapter_parameters(shape, rank, adapted), -(-shape.layers // every)
        spared = sum(flops for part, flops in forward.items() if part not in ATTENTION)
        spared += below(shape, seq_len, rank, adapted) - 6 * adapters * seq_len
        keys = forward["scores"] // shape.layers if adapted == "query-value" and not fused else 0
        if checkpointing == "full":
            last = rank * shape.d_model * (early_stop and adapted == "all")  # of the last adapter
            again += 2 * seq_len * times * (adapters // shape.layers - last)
    model, device = (
        sum(forward.values()) + sum(backward_flops(shape, seq_len, 1, causal, twice).values()) - spared
        for twice in (False, fused)
    )
    # Where keys have no adapter, eager attention makes no gradient of the first layer's.
    return {"model": model / seq_len, "device": (device + again - keys) / seq_len, "again": again / seq_len}


# --8<-- [end:token]
