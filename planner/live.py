"""What the live figures of pages compute at a reader's setting. Translated to the scripts that draw them."""

from __future__ import annotations

from flops_bytes.memory.formulas import layer_bytes
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_8B
from flops_bytes.time.roofline import matmul


def layer(is_llama: bool, seq_len: int, batch: int, fused: bool) -> list[int]:
    """Bytes that one layer keeps in bf16: of norms, attention's inputs and results, its scores, the MLP."""
    kept = layer_bytes(LLAMA_3_8B if is_llama else GPT2_SMALL, seq_len, batch, fused=fused)
    around = kept["qkv_input"] + kept["qkv"] + kept["out_input"]
    return [kept["norms"], around, kept["scores"], kept["mlp_input"] + kept["mlp"]]


def roof(tokens: int, d: int, f: int, peak: float, bandwidth: float) -> list[float]:
    """Of so many tokens times a matrix of d × f in bf16: FLOPs a byte, seconds of the arithmetic, and of the bytes."""
    work = matmul(tokens, d, f)
    return [work.intensity(), work.work_flops / peak, work.moved_bytes / bandwidth]
