# /// script
# requires-python = ">=3.11"
# dependencies = ["einops", "numpy", "torch>=2.11"]
# ///
"""Claims of a lecture and of notes made from it that do not hold: each fails here, and what is right passes."""

# --8<-- [start:setup]
import itertools
import math
import statistics
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accounting import (
    GPUS,
    get_memory_usage,
    get_peak_flop_per_second,
    same_storage,
    time_call,
    time_trials,
)
from einops import rearrange, reduce
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

A100 = GPUS["A100 80GB SXM"].peak_flop_per_second
H100 = GPUS["H100 SXM"].peak_flop_per_second


def count_flops(call: Callable[[], Any]) -> int:
    """FLOPs of a call, as PyTorch counts them."""
    with FlopCounterMode(display=False) as counter:
        call()
    total: int = counter.get_total_flops()
    return total


def meta(*shape: int, requires_grad: bool = False) -> Tensor:
    """A tensor with a shape but no memory: for counting."""
    return torch.empty(shape, device="meta", requires_grad=requires_grad)


def fails(call: Callable[[], Any]) -> bool:
    """Whether a call raises an error."""
    try:
        call()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return True
    return False


# --8<-- [end:setup]


# --8<-- [start:unknown_peak]
def utilization(flop_per_second: float, peak: float | None) -> float | None:
    """A share of the peak; none where nobody knows the peak."""
    return flop_per_second / peak if peak else None


TRACED = 11_739_062_719  # the published "MFU"
print("peak of 1:   ", utilization(TRACED, 1))
print("unknown peak:", utilization(TRACED, get_peak_flop_per_second("no such type")))
assert utilization(TRACED, 1) == TRACED  # FLOP/s of a CPU, no share
assert utilization(TRACED, get_peak_flop_per_second("no such type")) is None
# --8<-- [end:unknown_peak]


# --8<-- [start:first_call]
SPOKEN_SECONDS, GOOD_SHARE = 0.03, 0.80  # the second by mamf-finder, H100
product_flops = 2 * 16384 * 32768 * 8192
spoken_share = product_flops / SPOKEN_SECONDS / H100["bfloat16"]
predicted_warm_seconds = product_flops / (GOOD_SHARE * H100["bfloat16"])
predicted_first_seconds = 5 * SPOKEN_SECONDS - 4 * predicted_warm_seconds
assert spoken_share < GOOD_SHARE / 2  # the promise is not what is wrong


def bf16_calls() -> list[float] | None:
    """Seconds of the first five bf16 products, after some in fp32."""
    if not torch.cuda.is_available():
        return None
    x, w = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
    time_trials(lambda: x @ w, 5)
    x16, w16 = x.bfloat16(), w.bfloat16()
    return time_trials(lambda: x16 @ w16, 5)


measured_bf16_seconds = bf16_calls()
# --8<-- [end:first_call]


# --8<-- [start:data]
def bf16_rate(make: Callable[..., Tensor]) -> float | None:
    """FLOP/s of a square bf16 product of two such matrices."""
    if not torch.cuda.is_available():
        return None
    x, w = (make(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    return 2 * 8192**3 / time_call(lambda: x @ w).median_seconds


measured_flop_per_second = {
    "zeros": bf16_rate(torch.zeros),
    "ones": bf16_rate(torch.ones),
    "random": bf16_rate(torch.randn),
}
# --8<-- [end:data]


# --8<-- [start:backward]
def training_flops(batch: int, *widths: int) -> tuple[int, int]:
    """Counted FLOPs, forward and backward, of a chain of linear layers."""
    x = meta(batch, widths[0])  # data: needs no gradient
    shapes = itertools.pairwise(widths)
    weights = [meta(*shape, requires_grad=True) for shape in shapes]

    def forward() -> Tensor:
        h = x
        for w in weights:
            h = h @ w
        return h

    forward_flops = count_flops(forward)
    both_flops = count_flops(lambda: forward().sum().backward())
    return forward_flops, both_flops - forward_flops


forward_flops, backward_flops = training_flops(1024, 256, 256, 64)
claimed_backward_flops = 2 * forward_flops
assert backward_flops != claimed_backward_flops
assert backward_flops == claimed_backward_flops - 2 * 1024 * 256 * 256  # no x.grad
backward_ratio = backward_flops / forward_flops

small_flops = sum(training_flops(2, 4, 4, 4, 1))  # the deep linear model
claimed_small_flops = 6 * 2 * (4 * 4 + 4 * 4 + 4 * 1)
assert small_flops == claimed_small_flops - 2 * 2 * 4 * 4
# --8<-- [end:backward]


# --8<-- [start:sharded]
MEMORY_BYTES, NUM_GPUS = 80e9, 8
fp32_bytes = 4 + 4 + (4 + 4)  # weight, gradient, two moments
mixed_bytes = 2 + 2 + 4 + (4 + 4)  # the same, and an fp32 master copy
assert mixed_bytes == fp32_bytes  # faster, not smaller

sharded_parameters = NUM_GPUS * MEMORY_BYTES / fp32_bytes
replicated_parameters = MEMORY_BYTES / fp32_bytes  # every GPU holds it all
assert replicated_parameters == sharded_parameters / NUM_GPUS
# --8<-- [end:sharded]


# --8<-- [start:state]
def copies(make: Callable[..., torch.optim.Optimizer], **options: Any) -> int:
    """How many tensors as large as a parameter an optimizer keeps for it."""
    w = torch.zeros(1000, requires_grad=True)
    w.grad = torch.ones(1000)
    optimizer = make([w], lr=0.1, **options)
    optimizer.step()
    state = optimizer.state[w].values()
    return sum(torch.is_tensor(t) and t.numel() == 1000 for t in state)


assert copies(torch.optim.SGD) == 0  # not 1
assert copies(torch.optim.SGD, momentum=0.9) == 1
assert copies(torch.optim.Adagrad) == copies(torch.optim.RMSprop) == 1
assert copies(torch.optim.Adam) == copies(torch.optim.AdamW) == 2
assert copies(torch.optim.Adam, amsgrad=True) == 3
# --8<-- [end:state]


# --8<-- [start:activations]
def over_weights(seq_len: int, batch: int) -> float:
    """Bytes of GPT-2 small's activations (Korthikanti et al.) over its fp32 weights'."""
    h, a = 768, 12
    layer = 34 * seq_len * batch * h + 5 * a * seq_len**2 * batch
    return 12 * layer / (4 * 124_439_808)


activations_ratio = over_weights(1024, batch=8)
assert not 1 <= activations_ratio <= 3
assert math.isclose(over_weights(1024, batch=16), 2 * activations_ratio)
assert over_weights(2048, batch=8) > 2 * activations_ratio  # the square
# --8<-- [end:activations]


# --8<-- [start:deep_linear]
x, y = torch.randn(2, 4), torch.randn(2)
weights = [torch.randn(4, n, requires_grad=True) for n in (4, 4, 1)]
kept: list[Tensor] = []  # one of each storage


def keep(t: Tensor) -> Tensor:
    if not any(same_storage(t, other) for other in (*weights, *kept)):
        kept.append(t)
    return t


with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
    loss = F.mse_loss((x @ weights[0] @ weights[1] @ weights[2]).squeeze(-1), y)

claimed_kept_bytes = 4 * (2 * 4 * 2)  # batch × width × layers
beside_data = [t for t in kept if not same_storage(t, x) and not same_storage(t, y)]
kept_bytes = 4 * sum(t.numel() for t in beside_data)
state_bytes = 3 * 4 * sum(weight.numel() for weight in weights)  # weights, gradients, AdaGrad's sums
deep_total_bytes = {"claimed": state_bytes + claimed_kept_bytes, "counted": state_bytes + kept_bytes}
assert kept_bytes == 4 * (8 + 8 + 2) != claimed_kept_bytes
gpu_kept_bytes = sum(math.ceil(t.untyped_storage().nbytes() / 512) * 512 for t in beside_data)
# --8<-- [end:deep_linear]


# --8<-- [start:final_norm]
VOCAB, CONTEXT, LAYERS, WIDTH, HEADS = 50257, 1024, 12, 768, 12
block = 12 * WIDTH**2 + 13 * WIDTH
claimed_parameters = (VOCAB + CONTEXT) * WIDTH + LAYERS * block
gpt2_parameters = claimed_parameters + 2 * WIDTH  # gain and shift of ln_f

gpt2 = nn.ModuleList()
with torch.device("meta"):  # a configuration is enough: nothing is downloaded
    gpt2.extend([nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)])
    for _ in range(LAYERS):
        gpt2.append(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH))
    gpt2.append(nn.LayerNorm(WIDTH))
counted_parameters = sum(p.numel() for p in gpt2.parameters())
assert counted_parameters == gpt2_parameters != claimed_parameters
# --8<-- [end:final_norm]


# --8<-- [start:twice_what]
POINTS, D_IN, D_OUT = 16, 32, 2
forward_count = count_flops(lambda: meta(POINTS, D_IN) @ meta(D_IN, D_OUT))
assert forward_count != 2 * (POINTS * D_IN)  # not twice a matrix's size
assert forward_count != 2 * (D_IN * D_OUT)  # not twice the parameters
assert forward_count == 2 * POINTS * (D_IN * D_OUT)
# --8<-- [end:twice_what]


# --8<-- [start:seventy_billion]
all_state_bytes = 70e9 * (4 + 4 + 8)  # parameters, gradients, optimizer
parameter_bytes = 70e9 * 4
assert parameter_bytes == all_state_bytes / 4
# --8<-- [end:seventy_billion]


# --8<-- [start:two_weeks]
WEEK = 7 * 24 * 60 * 60
claimed_flops = 8 * WEEK * 1979e12 / 2  # named "two weeks"
fortnight_flops = 8 * (2 * WEEK) * 1979e12 / 2
assert fortnight_flops == 2 * claimed_flops
assert 0.5 * fortnight_flops == claimed_flops  # or say: at MFU 0.5
# --8<-- [end:two_weeks]


# --8<-- [start:gigabytes]
feedforward_bytes = get_memory_usage(meta(4 * 12288, 12288))
decimal, binary = feedforward_bytes / 1e9, feedforward_bytes / 2**30
assert f"{decimal:.2f}" == "2.42" and f"{binary:.2f}" == "2.25"
assert f"{feedforward_bytes / 1024**2 / 1e3:.1f}" == "2.3"  # half of each
# --8<-- [end:gigabytes]


# --8<-- [start:luck]
def on_gpu(elements_bytes: int) -> int:
    """What the CUDA allocator hands out: whole blocks of 512 bytes."""
    return math.ceil(elements_bytes / 512) * 512


assert 2 * on_gpu(32 * 32 * 4) == 2 * 32 * 32 * 4  # passes by luck …
assert 2 * on_gpu(4 * 8 * 4) != 2 * 4 * 8 * 4  # … and here it would not
small_reported_bytes, small_held_bytes = 4 * 8 * 4, on_gpu(4 * 8 * 4)
# --8<-- [end:luck]


# --8<-- [start:held]
row = torch.zeros(1000, 1000)[0]
row_reported_bytes = get_memory_usage(row)
row_held_bytes = row.untyped_storage().nbytes()  # the whole matrix lives on
expanded = torch.zeros(1).expand(1000)
expanded_reported_bytes = get_memory_usage(expanded)
expanded_held_bytes = expanded.untyped_storage().nbytes()
assert row_reported_bytes == expanded_reported_bytes == 4_000
assert row_held_bytes == 4_000_000 and expanded_held_bytes == 4
# --8<-- [end:held]


# --8<-- [start:attention]
N, D, SEQ_LEN = 70e9, 15e12, 8192
days = 6 * N * D / (1024 * 0.5 * H100["bfloat16"] * 24 * 60 * 60)
attention_share = 12 * (80 * 64 * 128) * SEQ_LEN / (6 * N)  # Llama 3 70B
causal_attention_share = attention_share / 2
days_with_attention = days * (1 + attention_share)
assert round(days) == 144 != round(days_with_attention)
assert round(days * (1 + causal_attention_share)) != 144
# --8<-- [end:attention]


# --8<-- [start:h100]
h100s = [name for name in GPUS if name.startswith("H100")]
peaks = [GPUS[name].peak_flop_per_second["float32"] / 1e12 for name in h100s]
print(dict(zip(h100s, peaks, strict=True)))
assert 67.5 not in peaks
assert len(set(peaks)) == 3  # "H100" alone is no answer
# --8<-- [end:h100]


# --8<-- [start:dense]
print(f"{'':6}" + "".join(f"{dtype:>10}" for dtype in A100))
print("A100  " + "".join(f"{A100[dtype] / 1e12:10.1f}" for dtype in A100))
print("H100  " + "".join(f"{H100[dtype] / 1e12:10.1f}" for dtype in A100))
assert A100["bfloat16"] == 312e12 != A100["float32"]
assert round(2 * H100["bfloat16"] / 1e12) == 1979  # as if zeros were work
misread_ratio = 1979e12 / A100["bfloat16"]  # one sparse, one dense
dense_ratio = H100["bfloat16"] / A100["bfloat16"]
assert misread_ratio > 1.9 * dense_ratio
# --8<-- [end:dense]


# --8<-- [start:orders]
bf16_over_fp32_ratio = H100["bfloat16"] / H100["float32"]
h100_over_a100_fp32_ratio = H100["float32"] / A100["float32"]
assert not math.log10(bf16_over_fp32_ratio) >= 2  # orders, in the plural
assert 10 < bf16_over_fp32_ratio < 15
assert 3 < dense_ratio < h100_over_a100_fp32_ratio < 4  # "H100 ≫ A100"
# --8<-- [end:orders]


# --8<-- [start:tensor_cores]
assert torch.get_float32_matmul_precision() == "highest"  # no TF32
# --8<-- [end:tensor_cores]


# --8<-- [start:two_ratios]
KERNEL_SHARE, TIME_IN_PRODUCTS = 0.80, 0.60  # of the peak; of the step
model_share = KERNEL_SHARE * TIME_IN_PRODUCTS
assert KERNEL_SHARE > 0.7 and 0.4 < model_share < 0.5  # both are good
# --8<-- [end:two_ratios]


# --8<-- [start:precision]
def cost(dtype: torch.dtype) -> tuple[int, int]:
    """FLOPs of a product, and bytes of its operands and result."""
    x = torch.empty(64, 128, dtype=dtype, device="meta")
    w = torch.empty(128, 32, dtype=dtype, device="meta")
    return count_flops(lambda: x @ w), sum(map(get_memory_usage, (x, w, x @ w)))


wide, usual, narrow = map(cost, (torch.float64, torch.float32, torch.bfloat16))
assert wide[0] == usual[0] == narrow[0]  # as much compute …
assert wide[1] == 2 * usual[1] == 4 * narrow[1]  # … on fewer bytes
# --8<-- [end:precision]


# --8<-- [start:fp8]
with_fp8 = {name for name in GPUS if "float8" in GPUS[name].peak_flop_per_second}
print(len(with_fp8), "of", len(GPUS), "GPUs in the table have fp8")
assert not all(name.startswith("H100") for name in with_fp8)
assert {"L4", "RTX 4090", "MI300X"} <= with_fp8  # Ada, and AMD
# --8<-- [end:fp8]


# --8<-- [start:bits]
sign, exponent, fraction = 1, 5, 10  # of fp16
assert sign + exponent + fraction == torch.finfo(torch.float16).bits
assert sign + exponent + fraction != torch.float16.itemsize  # these are bytes
# --8<-- [end:bits]


# --8<-- [start:normal]
def by_formula(bits: int) -> float:
    """(−1)^s · 2^(e − 127) · (1 + f / 2^23), whatever the bits are."""
    sign, exponent, fraction = bits >> 31, bits >> 23 & 255, bits & (1 << 23) - 1
    return float((-1) ** sign * 2.0 ** (exponent - 127) * (1 + fraction / 2**23))


def stored(bits: int) -> float:
    """The float32 with these bits."""
    return float(torch.tensor(bits, dtype=torch.int32).view(torch.float32))


assert by_formula(0x3F000000) == stored(0x3F000000) == 0.5  # normal
assert by_formula(0x00000000) != stored(0x00000000) == 0  # zero
assert by_formula(0x00000001) != stored(0x00000001) == 2.0**-149  # subnormal
assert by_formula(0x7F800000) != stored(0x7F800000) == math.inf
# --8<-- [end:normal]


# --8<-- [start:cast]
tiny = torch.tensor(1e-8, dtype=torch.bfloat16)
print(bool(tiny == 1e-8), tiny.item())
assert tiny == 1e-8  # PyTorch casts the scalar first
assert tiny.item() == 1.0011717677116394e-08 != 1e-8
# --8<-- [end:cast]


# --8<-- [start:view]
matrix = torch.arange(16).view(4, 4)
turned = matrix.t()
assert not turned.is_contiguous()
assert fails(lambda: turned.view(16))  # these two dimensions cannot merge
assert same_storage(matrix, turned.view(2, 2, 4))  # a further view
# --8<-- [end:view]


# --8<-- [start:reshape]
evens = matrix[:, ::2]
assert not evens.is_contiguous()
assert same_storage(matrix, evens.reshape(8))
assert not same_storage(matrix, evens.contiguous().view(8))
# --8<-- [end:reshape]


# --8<-- [start:storage]
def same_address(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


two_empty, two_meta = (torch.empty(0), torch.empty(0)), (meta(3), meta(3))
assert same_address(*two_empty) and same_address(*two_meta)  # they share nothing
assert fails(lambda: same_storage(*two_empty))  # ours refuses to say
assert fails(lambda: same_storage(*two_meta))
# --8<-- [end:storage]


# --8<-- [start:causal]
def attend(mask: Tensor, values: Tensor) -> Tensor:
    """Row i of the mask says which values query i takes the mean of."""
    return mask / mask.sum(dim=1, keepdim=True) @ values


now = torch.tensor([[1.0], [2.0], [3.0]])
later = torch.tensor([[1.0], [2.0], [9.0]])  # only the last one is another
upper, lower = torch.ones(3, 3).triu(), torch.ones(3, 3).tril()
assert attend(upper, now)[0] != attend(upper, later)[0]  # sees the future
assert attend(lower, now)[:2].equal(attend(lower, later)[:2])
# --8<-- [end:causal]


# --8<-- [start:mean]
x = torch.ones(2, 3, 4)
assert not reduce(x, "... hidden -> ...", "sum").equal(x.mean(dim=-1))
assert reduce(x, "... hidden -> ...", "mean").equal(x.mean(dim=-1))
# --8<-- [end:mean]


# --8<-- [start:einops]
named = rearrange(x, "b t (h d) -> b h t d", h=2)
plain = x.view(2, 3, 2, 2).transpose(1, 2)
assert named.stride() == plain.stride()
assert same_storage(named, x) and same_storage(plain, x)
# --8<-- [end:einops]


# --8<-- [start:integers]
integers, floats = torch.tensor([1, 4, 9]), torch.tensor([1.0, 4, 9])
assert integers.dtype == torch.int64 and get_memory_usage(integers) == 3 * 8
assert floats.dtype == torch.float32 and get_memory_usage(floats) == 3 * 4
assert integers.sqrt().dtype == torch.float32  # it turns into another type
# --8<-- [end:integers]


# --8<-- [start:truncation]
def largest(bound: float) -> float:
    """The largest of many draws, in standard deviations."""
    std, generator = 1 / 128, torch.Generator().manual_seed(0)
    w = torch.empty(16384, 32)
    nn.init.trunc_normal_(w, std=std, a=-bound, b=bound, generator=generator)
    return w.abs().max().item() / std


bound_in_deviations = 3 / (1 / 128)
assert bound_in_deviations == 384
assert largest(bound=3) > 3.5  # outliers, as without truncation
assert largest(bound=3 / 128) < 3.001
# --8<-- [end:truncation]


# --8<-- [start:fans]
def glorot_over_lecun(fan_in: int, fan_out: int) -> float:
    """Ratio of the two standard deviations."""
    return math.sqrt(2 / (fan_in + fan_out)) / math.sqrt(1 / fan_in)


assert glorot_over_lecun(512, 512) == 1
assert glorot_over_lecun(16384, 32) > 1.41  # so there is no constant
assert glorot_over_lecun(512, 4 * 512) < 0.64
# --8<-- [end:fans]


# --8<-- [start:draw]
def outputs(seed: int, fan_in: int = 1024) -> Tensor:
    """What x @ w gives with weights scaled by the root of fan_in."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(fan_in, 1000, generator=generator) / math.sqrt(fan_in)
    return torch.randn(fan_in, generator=generator) @ w


first, second = outputs(seed=0), outputs(seed=1)
assert abs(first[0] - second[0]) > 0.01  # an output is a draw …
assert all(0.8 < y.std() < 1.2 for y in (first, second))  # … its spread is not
# --8<-- [end:draw]


# --8<-- [start:ignored]
def final_loss(lr: float, ignore: bool) -> float:
    """Loss after ten steps of SGD towards the weights 0, 1, …, 15."""
    generator = torch.Generator().manual_seed(0)
    w, target = torch.zeros(16, requires_grad=True), torch.arange(16.0)
    optimizer = torch.optim.SGD([w], lr=0.01 if ignore else lr)
    for _ in range(10):
        x = torch.randn(4, 16, generator=generator)
        loss = F.mse_loss(x @ w, x @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


for ignore in (True, False):
    losses = [round(final_loss(lr, ignore)) for lr in (0.01, 0.1)]
    print(f"lr ignored: {ignore!s:6} losses: {losses}")
assert final_loss(0.01, ignore=True) == final_loss(0.1, ignore=True)
assert final_loss(0.01, ignore=False) > 1.5 * final_loss(0.1, ignore=False)
# --8<-- [end:ignored]


# --8<-- [start:file]
tokens = np.arange(1, 11, dtype=np.uint16)
assert np.iinfo(np.uint16).max >= 50256  # GPT-2's last token fits
folder = tempfile.TemporaryDirectory()
raw, real = Path(folder.name, "raw.npy"), Path(folder.name, "real.npy")
tokens.tofile(raw)
np.save(real, tokens)
assert fails(lambda: np.load(raw))  # the name alone makes no .npy file
assert np.array_equal(np.load(real, mmap_mode="r"), tokens)
assert np.memmap(raw, dtype=np.uint16).flags.writeable  # a slip away
assert not np.load(real, mmap_mode="r").flags.writeable
folder.cleanup()
# --8<-- [end:file]


# --8<-- [start:windows]
LENGTH = 4
starts = torch.randint(len(tokens) - LENGTH, (1000,))  # the bound is excluded
assert starts.max() == 5 != len(tokens) - LENGTH  # 6, the last, never comes
assert not isinstance(np.array, type) and isinstance(np.ndarray, type)
# --8<-- [end:windows]


# --8<-- [start:batch]
ids = torch.from_numpy(tokens.astype(np.int64))
inputs, targets = ids[5:9], ids[6:10]  # the same bound is right for pairs
assert targets[-1] == 10
logits = torch.zeros(4, 50257)
assert fails(lambda: F.cross_entropy(logits, targets.int()))  # int32
assert not fails(lambda: F.cross_entropy(logits, targets))

table = torch.tensor([[1, 2, 3], [4, 5, 6]])
assert table[:, 1].tolist() == [2, 5] and table[1].tolist() == [4, 5, 6]
# --8<-- [end:batch]


# --8<-- [start:pinned]
def transfer_seconds() -> dict[str, float] | None:
    """Seconds to bring 64 MiB onto the GPU, in three ways."""
    if not torch.cuda.is_available():
        return None
    x = torch.randn(2**24)
    ahead = x.pin_memory()

    def seconds(way: Callable[[], Tensor]) -> float:
        def transfer() -> None:
            way()
            torch.cuda.synchronize()  # or the next trial would pin meanwhile

        return time_call(transfer).median_seconds

    ways: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: x.to("cuda"),
        "in_line": lambda: x.pin_memory().to("cuda", non_blocking=True),
        "ahead": lambda: ahead.to("cuda", non_blocking=True),
    }
    return {name: seconds(way) for name, way in ways.items()}


measured_transfer_seconds = transfer_seconds()
# --8<-- [end:pinned]


# --8<-- [start:checkpoint]
w = torch.ones(3, requires_grad=True)
optimizer = torch.optim.AdamW([w])
before = optimizer.state_dict()["state"]
w.sum().backward()
optimizer.step()
after = optimizer.state_dict()["state"]
assert before == {}  # saved too early: nothing to resume from
assert set(after[0]) == {"step", "exp_avg", "exp_avg_sq"}
# --8<-- [end:checkpoint]


# --8<-- [start:adagrad]
def first_step(g: float, divisor: float) -> float:
    return g / divisor


w, unused = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
w.grad = torch.full((1,), 1e-4)
torch.optim.Adagrad([w, unused], lr=1).step()  # a gradient of None is no error
assert fails(lambda: unused.grad.data)  # type: ignore[union-attr]
assert abs(-w.item() - first_step(1e-4, math.sqrt(1e-8) + 1e-10)) < 1e-4
assert first_step(1e-4, math.sqrt(1e-8 + 1e-5)) < 0.04  # ε inside the root
assert first_step(1e-4, math.sqrt(0) + 1e-10) > 9e5  # sum up to t − 1
made = []
{"g2": 1}.get("g2", made.append("zeros"))  # type: ignore[func-returns-value]
assert made == ["zeros"]  # a default is made even where none is needed
# --8<-- [end:adagrad]


# --8<-- [start:zero_grad]
w = torch.ones(3, requires_grad=True)
for _ in range(2):
    w.sum().backward()
assert w.grad is not None and w.grad.tolist() == [2, 2, 2]  # the sum of both
# --8<-- [end:zero_grad]


# --8<-- [start:seeds]
torch.manual_seed(0)
noise = torch.randn(16)
torch.manual_seed(0)
data = torch.randn(16)
assert noise.equal(data)  # one seed for two uses: the same numbers twice


def draw(others: int, generator: torch.Generator | None) -> int:
    """A batch's index, after other uses of chance have drawn so many numbers."""
    torch.manual_seed(0)
    torch.randn(others)
    return int(torch.randint(1_000_000, (1,), generator=generator))


shared = {draw(others, None) for others in (0, 16, 32)}
own = {draw(others, torch.Generator().manual_seed(1)) for others in (0, 16, 32)}
assert len(shared) > 1  # dropout, say, moves the data
assert len(own) == 1
# --8<-- [end:seeds]


# --8<-- [start:range]
def smallest(dtype: torch.dtype, integer: torch.dtype) -> float:
    """The smallest positive number: the bits of 1."""
    return float(torch.tensor(1, dtype=integer).view(dtype))


bf16, fp32 = torch.finfo(torch.bfloat16), torch.finfo(torch.float32)
largest_values = [bf16.max, fp32.max]
smallest_values = [
    smallest(torch.bfloat16, torch.int16),
    smallest(torch.float32, torch.int32),
]
print(f"largest   {bf16.max:.2e}  {fp32.max:.2e}")
print("smallest  {:.1e}  {:.1e}".format(*smallest_values))
assert bf16.smallest_normal == fp32.smallest_normal  # the same exponents …
assert bf16.max < fp32.max and smallest_values[0] > 60_000 * smallest_values[1]
# --8<-- [end:range]


# --8<-- [start:loss_scaling]
gradient, scale = torch.tensor(1e-8), 2.0**16
assert gradient.half() == 0  # underflow …
unscaled = (gradient * scale).half().float() / scale  # … and its remedy
assert abs(unscaled - gradient) < 1e-3 * gradient
assert gradient.bfloat16() != 0  # bf16 needs none
# --8<-- [end:loss_scaling]


# --8<-- [start:median]
TRIALS = [106, 11, 11, 11, 11]  # milliseconds, the first of them cold
assert statistics.mean(TRIALS) == 30
assert statistics.median(TRIALS) == 11
# --8<-- [end:median]


# --8<-- [start:overhead]
COMPUTING, TALKING, WORK, PEAK = 1.0, 0.5, 6.0, 10.0
claimed_share = WORK / COMPUTING / PEAK  # communication left out
step_share = WORK / (COMPUTING + TALKING) / PEAK  # what a clock sees
assert step_share < claimed_share
# --8<-- [end:overhead]


# --8<-- [start:leaf]
w = torch.ones(3, requires_grad=True)
prediction = w.sum()
kept_prediction = w.sum()
kept_prediction.retain_grad()
(prediction + kept_prediction).backward()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert prediction.grad is None
assert len(caught) == 1 and "not a leaf" in str(caught[0].message)
assert kept_prediction.grad == 1
# --8<-- [end:leaf]


# --8<-- [start:momentum]
Make = Callable[..., torch.optim.Optimizer]


def step_lengths(make: Make, **options: Any) -> list[float]:
    """Lengths of a hundred steps, in learning rates; the gradient is always 1."""
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    w.grad = torch.ones_like(w)
    optimizer = make([w], lr=1.0, **options)
    positions = [0.0]
    for _ in range(100):
        optimizer.step()
        positions.append(-w.item())
    return [b - a for a, b in itertools.pairwise(positions)]


longest_step = max(step_lengths(torch.optim.SGD, momentum=0.9))
assert longest_step > 9.99  # an average of ones would be 1
assert math.isclose(longest_step, 1 / (1 - 0.9), rel_tol=1e-4)
# --8<-- [end:momentum]


# --8<-- [start:adam]
uncorrected_step = (1 - 0.9) / math.sqrt(1 - 0.999)  # m / √v after one step
assert uncorrected_step > 3
assert all(abs(s - 1) < 1e-6 for s in step_lengths(torch.optim.Adam))


def decayed(make: Make, decay: float) -> float:
    """A weight of 1 after a step in which the decay alone acts."""
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    w.grad = torch.zeros_like(w)
    make([w], lr=0.1, weight_decay=decay).step()
    return round(w.item(), 4)


assert decayed(torch.optim.Adam, 0.1) == decayed(torch.optim.Adam, 1.0) == 0.9
assert decayed(torch.optim.AdamW, 0.1) == 0.99 != decayed(torch.optim.AdamW, 1.0)
# --8<-- [end:adam]


# --8<-- [start:exact]
M, K, P = 3, 5, 2
multiply_adds = sum(1 for _ in itertools.product(range(M), range(K), range(P)))
assert count_flops(lambda: meta(M, K) @ meta(K, P)) == 2 * multiply_adds
# --8<-- [end:exact]


# --8<-- [start:order]
a, b, c = meta(1000, 10), meta(10, 1000), meta(1000, 10)
left = count_flops(lambda: (a @ b) @ c)
right = count_flops(lambda: a @ (b @ c))
with torch.backends.opt_einsum.flags(enabled=False):  # whether installed or not
    as_written = count_flops(lambda: torch.einsum("ij,jk,kl->il", a, b, c))
print(f"{left:,} {right:,} {as_written:,}")
assert as_written == left == 100 * right
# --8<-- [end:order]
