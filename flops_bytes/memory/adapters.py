"""Frozen weights and matmuls in fewer bits: their bytes. Numbers in and out, nothing but Python."""

from typing import NamedTuple

from flops_bytes.model.stack import Stack, four_bit_parameters, parameters

ADAPTED = ("all", "attention", "query-value")  # the matrices of a layer, but the router, that LoRA stands beside
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
    """Bytes of numbers of few bits, with one constant for each block of them (Dettmers et al. 2021, 2023).

    >>> quantized_bytes(4_096 * 4_096, bits=4, block=64)
    9437184
    """
    return int(elements * (bits / 8 + constant / block))


def frozen_bytes(stack: Stack, width: int, base: str) -> int:
    """Bytes of frozen weights: in 4 bits those of four_bit_parameters(), the rest at `width` bytes each.

    `base` is "4bit", "4bit-double", or another text where nothing is quantized.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> from flops_bytes.model.stack import stack_of
    >>> frozen_bytes(stack_of(LLAMA_3_8B), width=2, base="4bit")
    6027747328
    """
    packed = four_bit_parameters(stack) if base in CONSTANTS else 0
    rest = sum(parameters(stack).values()) - packed
    return width * rest + quantized_bytes(packed, 4, 64, CONSTANTS.get(base, 0))
