# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What fp8, MXFP8 and NVFP4 take for a number, what a layer keeps in them, and when the casts pay."""

import math
import random
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from flops_bytes.lessons.models import LlamaBlock, flash, rotary
from flops_bytes.lessons.trace import saved_tensors
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import LLAMA_3_8B, parameters
from flops_bytes.time.gpus import GPUS

E8M0 = torch.float8_e8m0fnu


# --8<-- [start:small]
E4M3 = torch.float8_e4m3fn
E4M3_LARGEST = torch.finfo(E4M3).max  # 448


def through_fp8(x: Tensor, scale: float) -> Tensor:
    """x scaled up, stored in E4M3, read back and scaled down."""
    return (x * scale).to(E4M3).float() / scale


small = torch.tensor([1e-5, 2e-4, 4e-4, 7e-4])
scale = E4M3_LARGEST / small.abs().max().item()  # largest to largest
plain, scaled = through_fp8(small, 1), through_fp8(small, scale)
print("as they are: ", plain.tolist())
print("scaled first:", [f"{number:.2e}" for number in scaled.tolist()])
# --8<-- [end:small]
assert not plain.any()  # all gone
assert ((scaled - small).abs() / small).max() <= 2**-4  # half of eps

torch.manual_seed(0)


# --8<-- [start:matmul]
def to_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x in E4M3, and the scale by which a matmul multiplies its results."""
    scale = E4M3_LARGEST / x.abs().max()
    return (x * scale).to(E4M3), 1 / scale


x, w = torch.randn(64, 32), torch.randn(48, 32)
(x_codes, x_scale), (w_codes, w_scale) = to_fp8(x), to_fp8(w)
y = torch._scaled_mm(x_codes, w_codes.t(), x_scale, w_scale, out_dtype=torch.bfloat16)
off = (y - x @ w.t()).norm() / (x @ w.t()).norm()
print(f"{y.dtype}, off by {off:.0%}")
# --8<-- [end:matmul]
assert 0.03 < off < 0.045


class Scaling(NamedTuple):
    """Which numbers of a matrix share a scale, and in how many bits both are."""

    rows: int | None  # of a block; None: all of them
    columns: int | None
    scale: torch.dtype
    bits: int = 8  # of a number: E4M3, or E2M1 if 4
    tensor_bits: int = 0  # of one more scale for the whole tensor

    def block(self, x: Tensor) -> tuple[int, int]:
        """Rows and columns of a block of x."""
        return self.rows or x.shape[0], self.columns or x.shape[1]

    def bits_per_number(self, x: Tensor) -> float:
        """Of x (rows, columns): its own bits, and its share of the scales."""
        rows, columns = self.block(x)
        return self.bits + 8 * self.scale.itemsize / (rows * columns) + self.tensor_bits / x.numel()


SCALINGS = {
    "tensor": Scaling(None, None, torch.float32),
    "row": Scaling(1, None, torch.float32),
    "block": Scaling(1, 128, torch.float32),  # DeepSeek-V3's activations
    "tile": Scaling(128, 128, torch.float32),  # and its weights
    "mxfp8": Scaling(1, 32, E8M0),
    "fp4_tensor": Scaling(None, None, torch.float32, bits=4),
    "nvfp4": Scaling(1, 16, E4M3, bits=4, tensor_bits=32),
}


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]  # its numbers; their negatives follow


class Quantized(NamedTuple):
    """A matrix in few bits: all that is stored of it."""

    codes: Tensor  # block by block; a byte is a number in E4M3, or two in E2M1
    scales: list[Tensor]  # of the blocks, and of the tensor where it has one

    def values(self) -> Tensor:
        """What codes and scales stand for, in fp32 (rows, columns)."""
        numbers = self.codes
        if numbers.dtype == torch.float4_e2m1fn_x2:
            pairs = numbers.view(torch.uint8)
            both = torch.stack([pairs % 16, pairs // 16], -1).flatten(-2)
            table = torch.tensor([*E2M1, *(-number for number in E2M1)], device=pairs.device)
            numbers = table[both.int()]
        whole = self.scales[1] if len(self.scales) > 1 else 1.0
        return (numbers.float() * (self.scales[0].float() * whole)).flatten(2).flatten(0, 1)

    def nbytes(self) -> int:
        return self.codes.nbytes + sum(scale.nbytes for scale in self.scales)


def scales_of(largest: Tensor, scaling: Scaling) -> list[Tensor]:
    """From the largest numbers of the blocks: what takes the format's largest to them."""
    end = E4M3_LARGEST if scaling.bits == 8 else E2M1[-1]
    if scaling.tensor_bits:  # so that the largest of these scales is E4M3's largest number
        whole = largest.max() / (end * E4M3_LARGEST)
        return [(largest / end / whole).to(E4M3), whole]
    if scaling.scale == E8M0:  # the next power of two, so that nothing overflows
        fraction, exponent = torch.frexp(largest / end)
        up = exponent - (fraction == 0.5).to(exponent.dtype)
        return [torch.ldexp(torch.ones_like(largest), up).to(E8M0)]
    return [largest / end]


def quantize(x: Tensor, scaling: Scaling) -> Quantized:
    """x (rows, columns), fp32 or bf16, not all zero in any block."""
    rows, columns = scaling.block(x)
    blocks = x.float().view(x.shape[0] // rows, rows, x.shape[1] // columns, columns)
    scales = scales_of(blocks.abs().amax((1, 3), keepdim=True), scaling)
    whole = scales[1] if scaling.tensor_bits else 1.0
    scaled = blocks / (scales[0].float() * whole)
    if scaling.bits == 8:
        return Quantized(scaled.clamp(-E4M3_LARGEST, E4M3_LARGEST).to(E4M3), scales)
    table = torch.tensor(E2M1, device=x.device)  # torch 2.13 converts nothing to fp4
    place = torch.bucketize(scaled.abs(), (table[1:] + table[:-1]) / 2)  # the nearest
    pairs = (place + 8 * (scaled < 0)).to(torch.uint8).unflatten(-1, (-1, 2))
    packed = pairs[..., 0] + 16 * pairs[..., 1]
    return Quantized(packed.view(torch.float4_e2m1fn_x2), scales)


ROWS, COLUMNS = 256, 512
FAR = (1, 1_000, 1_000_000)  # size of one number in 4,096; all others are around 1


def matrix(far: float) -> Tensor:
    """Normal numbers, but far in the first place of every eighth row."""
    drawn = random.Random(0)
    x = torch.tensor([[drawn.gauss(0, 1) for _ in range(COLUMNS)] for _ in range(ROWS)])
    x[::8, 0] = far
    return x


def error_share(x: Tensor, scaling: Scaling) -> float:
    """What the other numbers lose, over their size: root mean squares."""
    others = x[:, 1:].double()
    lost = quantize(x, scaling).values()[:, 1:] - others
    return round((lost.square().mean() / others.square().mean()).sqrt().item(), 3)


normal_span = {"e4m3": E4M3_LARGEST / torch.finfo(E4M3).smallest_normal, "e2m1": 6.0 / 1.0}
matrices = {str(far): matrix(far) for far in FAR}
bits_per_number = {
    name: 8 * quantize(matrices["1"], scaling).nbytes() / (ROWS * COLUMNS) for name, scaling in SCALINGS.items()
}
low_error_share = {
    name: {far: error_share(x, scaling) for far, x in matrices.items()} for name, scaling in SCALINGS.items()
}
for name, scaling in SCALINGS.items():
    print(f"{name:10} {bits_per_number[name]:7.4f} bits, loses {low_error_share[name]}")
    assert bits_per_number[name] == scaling.bits_per_number(matrices["1"])


class LowBitMatmul(torch.autograd.Function):
    """x (tokens, d) times weight (f, d) transposed; all three products from few bits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scaling: Scaling, kept: Quantized | None) -> Tensor:
        ctx.scaling = scaling
        ctx.save_for_backward(weight, *([kept.codes, *kept.scales] if kept else [x]))
        y = quantize(x, scaling).values() @ quantize(weight, scaling).values().t()
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weight, first, *scales = ctx.saved_tensors

        def low(x: Tensor) -> Tensor:
            return quantize(x, ctx.scaling).values()

        turned = Quantized(first, scales).values() if scales else low(first.t().contiguous())
        dx = low(dy) @ low(weight.t().contiguous()).t()
        dw = low(dy.t().contiguous()) @ turned.t()
        return dx.to(dy.dtype), dw.to(weight.dtype), None, None


class LowBitLinear(nn.Linear):
    """Keeps for backward its input, or codes of it, once for layers that share the input."""

    scaling = SCALINGS["block"]
    keeps = "input"  # or "codes", or "shared"
    shared: tuple[Tensor, Quantized] | None = None  # of the class: an input, and its codes

    def codes(self, x: Tensor) -> Quantized | None:
        """Of x (b, T, d), in blocks of tokens, as the weight's gradient reads it."""
        last = LowBitLinear.shared
        if self.keeps == "input":
            return None
        if last and last[0] is x and self.keeps == "shared":
            return last[1]
        made = quantize(x.detach().flatten(0, -2).t().contiguous(), self.scaling)
        LowBitLinear.shared = (x, made)
        return made

    def forward(self, x: Tensor) -> Tensor:
        apply: Any = LowBitMatmul.apply
        made = apply(x.flatten(0, -2), self.weight, self.scaling, self.codes(x))
        unflattened: Tensor = made.unflatten(0, x.shape[:-1])
        return unflattened


torch.manual_seed(0)
exact, low = nn.Linear(256, 128, bias=False), LowBitLinear(256, 128, bias=False)
low.weight = nn.Parameter(exact.weight.detach().clone())
given = torch.randn(1, 384, 256)
got = {}
for keeps, layer in {"exact": exact, "input": low, "codes": low}.items():
    low.keeps, x = keeps, given.clone().requires_grad_()
    got[keeps] = torch.autograd.grad(layer(x).square().sum(), [x, layer.weight])
for right, input_kept, codes_kept in zip(*got.values(), strict=True):
    assert torch.equal(input_kept, codes_kept)  # the codes are all that backward needs
    assert 0.01 < (input_kept - right).norm() / right.norm() < 0.06


KEPT_TOKENS = 1_024  # of one sequence


def kept_by_layer(keeps: str, scaling: Scaling) -> float:
    """Bytes a token that autograd keeps of a layer of Llama 3 8B in bf16."""
    with torch.device("meta"):
        block = LlamaBlock(LLAMA_3_8B, flash).bfloat16()
        x = torch.empty(1, KEPT_TOKENS, LLAMA_3_8B.d_model, dtype=torch.bfloat16, requires_grad=True)
    for name, linear in list(block.named_children()):
        if isinstance(linear, nn.Linear) and keeps != "bf16":
            low = LowBitLinear(1, 1, device="meta", bias=False)
            low.weight, low.scaling, low.keeps = linear.weight, scaling, keeps
            if keeps == "shared" and name == "out":
                low.keeps = "input"  # attention keeps it anyway
            setattr(block, name, low)
    cos, sin = rotary(KEPT_TOKENS, LLAMA_3_8B.head_dim, x)
    kept = saved_tensors(lambda: block(x, cos, sin), besides=[*block.parameters(), cos, sin])
    return sum(t.untyped_storage().nbytes() for t in kept) / KEPT_TOKENS


KEEPS = ("bf16", "input", "codes", "shared")
kept_layer_bytes = {  # a token
    scaling: {keeps: kept_by_layer(keeps, SCALINGS[scaling]) for keeps in KEEPS}
    for scaling in ("tensor", "block", "mxfp8", "nvfp4")
}
freed_share = {
    scaling: {keeps: round(1 - held / kept["bf16"], 4) for keeps, held in kept.items()}
    for scaling, kept in kept_layer_bytes.items()
}
for name, kept in kept_layer_bytes.items():
    print(f"{name:7}", {keeps: f"{held:,.0f}" for keeps, held in kept.items()})
d, f = LLAMA_3_8B.d_model, LLAMA_3_8B.d_ff
for name, kept in kept_layer_bytes.items():  # by hand: h, its codes three times; out's; h, twice; down's
    each = SCALINGS[name].bits_per_number(torch.empty(d, KEPT_TOKENS, device="meta")) / 8
    down = SCALINGS[name].bits_per_number(torch.empty(f, KEPT_TOKENS, device="meta")) / 8
    by_hand = (3 * each - 2) * d + each * d + (2 * each - 2) * d + (down - 2) * f
    assert abs(kept["codes"] - kept["bf16"] - by_hand) < 1e-6, name
    assert abs(kept["shared"] - kept["bf16"] - (2 * (each - 2) * d + (down - 2) * f)) < 1e-6, name
    assert kept["input"] == kept["bf16"]


# --8<-- [start:pays]
H100, B200 = GPUS["H100 SXM"], GPUS["B200"]
MOVED_BYTES = {  # of each number of x, w and dy: read for the largest, read, written twice
    "tensor": 2 + 2 + 1 + 1,
    "block": 2 + 1 + 1,  # a block's largest number is found on the way
    "mxfp8": 2 + 2 * 33 / 32,
    "nvfp4": 2 + 2 + 2 * 9 / 16,
}


def speedup(scaling: str, tokens: int, inputs: int, outputs: int) -> float:
    """Of a linear layer's three matmuls over bf16: at the peaks, and casts at the bandwidth."""
    gpu = B200 if scaling in ("mxfp8", "nvfp4") else H100
    peaks = gpu.peak_flop_per_second
    flops = 3 * 2 * tokens * inputs * outputs
    cast = tokens * inputs + inputs * outputs + tokens * outputs
    low = flops / peaks["float4" if scaling == "nvfp4" else "float8"]
    seconds = low + MOVED_BYTES[scaling] * cast / gpu.bandwidth_bytes_per_second
    return flops / peaks["bfloat16"] / seconds


CAST_TOKENS, WIDTHS = 8_192, (1_024, 2_048, 4_096, 8_192, 16_384)
low_bit_ratio = {s: {d: round(speedup(s, CAST_TOKENS, d, d), 3) for d in WIDTHS} for s in MOVED_BYTES}
PUBLISHED_SHAPES = {"small": (1_024, 2_048, 1_024), "large": (4_096, 8_192, 16_384)}
PUBLISHED_RATIO = {"small": 0.80, "large": 1.39}  # torchao's README, measured on an H100
formula_ratio = {name: round(speedup("tensor", *shape), 2) for name, shape in PUBLISHED_SHAPES.items()}
print(low_bit_ratio["tensor"], formula_ratio, sep="\n")
# --8<-- [end:pays]


def spared(scaling: str) -> float:
    """What a square layer's matmuls gain over bf16, for each token and d²: bytes that fit into that time."""
    gpu = B200 if scaling in ("mxfp8", "nvfp4") else H100
    peaks = gpu.peak_flop_per_second
    low = peaks["float4" if scaling == "nvfp4" else "float8"]
    return 6 * (1 / peaks["bfloat16"] - 1 / low) * gpu.bandwidth_bytes_per_second


even_width = {s: round(2 * e / (spared(s) - e / CAST_TOKENS)) for s, e in MOVED_BYTES.items()}  # as fast as in bf16
least_tokens = {s: math.ceil(e / spared(s)) for s, e in MOVED_BYTES.items()}  # below them, at no width
assert all(abs(speedup(s, CAST_TOKENS, d, d) - 1) < 1e-3 for s, d in even_width.items())
assert all(
    speedup(s, tokens - 1, 10**9, 10**9) < 1 < speedup(s, tokens, 10**9, 10**9) for s, tokens in least_tokens.items()
)


CONTEXT_LENGTH = 8_192
parts = forward_flops(LLAMA_3_8B, CONTEXT_LENGTH, causal=True)
linear_share = round(1 - (parts["scores"] + parts["values"] + parts["head"]) / sum(parts.values()), 4)
step_bound_ratio = {  # with casts for nothing
    "fp8": round(1 / (1 - linear_share / 2), 3),
    "fp8_two": round(1 / (1 - linear_share * 2 / 3 / 2), 3),  # weights' gradients in bf16
    "nvfp4": round(1 / (1 - linear_share * 3 / 4), 3),
}
print(linear_share, step_bound_ratio)


LOW_STATE = {  # bytes of weight, gradient and AdamW's two moments
    "fp8": (4, 4, 4, 4),  # master weights are the parameters, as with autocast
    "deepseek": (4, 4, 2, 2),
    "nvfp4": (4, 4, 4, 4),
}
low_state_bytes = {name: sum(parts) for name, parts in LOW_STATE.items()}
kept_number_bytes = {name: bits / 8 for name, bits in bits_per_number.items()}  # of a matmul's input
print(low_state_bytes)


# --8<-- [start:exercise_bits]
four_bits = 4 + 16 / 64
counts = parameters(LLAMA_3_8B)
layers_parameters = counts["qkv"] + counts["out"] + counts["mlp"]
four_bytes = layers_parameters * four_bits / 8
print(four_bits, f"{layers_parameters:,}", f"{four_bytes / 1e9:.2f} GB")
# --8<-- [end:exercise_bits]
assert four_bits == Scaling(1, 64, torch.float16, bits=4).bits_per_number(matrices["1"])


# --8<-- [start:exercise_tokens]
INNER = 8_192
few_ratio = {tokens: round(speedup("tensor", tokens, 2_048, INNER), 3) for tokens in (512, 4_096)}
print(few_ratio)
# --8<-- [end:exercise_tokens]
