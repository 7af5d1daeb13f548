# /// script
# requires-python = ">=3.11"
# dependencies = ["einops", "numpy", "torch>=2.11"]
# ///
"""Claims of a lecture, in two editions, that do not hold when code tries them: each fails, what is right passes."""

# --8<-- [start:setup]
import itertools
import math
import statistics
import tempfile
import timeit
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import reduce
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flops_bytes.lessons.measure import get_memory_usage, get_peak_flop_per_second, same_storage
from flops_bytes.lessons.trace import count_flops, meta, saved_tensors
from flops_bytes.time.gpus import GPUS


def fails(call: Callable[[], Any]) -> bool:
    """Whether a call raises an error."""
    try:
        call()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return True
    return False


# --8<-- [end:setup]


# --8<-- [start:sharded]
MEMORY_BYTES, NUM_GPUS = 80e9, 8
fp32_bytes = 4 + 4 + (4 + 4)  # weight, gradient, two moments: 2025, line 80
bf16_bytes = 2 + 2 + (4 + 4)  # 2026, line 81; the fp32 copy of the weights is 4 more

sharded_parameters = NUM_GPUS * MEMORY_BYTES / fp32_bytes
replicated_parameters = MEMORY_BYTES / fp32_bytes  # every GPU holds it all
print(f"{sharded_parameters / 1e9:.0f}B parameters sharded, {replicated_parameters / 1e9:.0f}B replicated")
# --8<-- [end:sharded]


# --8<-- [start:master]
weight = torch.tensor(1.0, dtype=torch.bfloat16)  # lines 160 and 161 of 2026: no fp32 copy
master = weight.float()
for _ in range(1000):
    weight += 1e-3  # rounded to bf16 after each step
    master += 1e-3
bf16_weight, master_weight = weight.item(), round(master.item(), 3)
assert bf16_weight == 1 and master_weight == 2

parameter = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
parameter.grad = torch.ones_like(parameter)
adamw = torch.optim.AdamW([parameter])
adamw.step()
moments = adamw.state[parameter]["exp_avg"], adamw.state[parameter]["exp_avg_sq"]
made_bytes = sum(each.element_size() for each in (parameter, parameter.grad, *moments))
assert made_bytes == 2 + 2 + (2 + 2) != bf16_bytes  # the moments are in bf16 too
# --8<-- [end:master]


# --8<-- [start:unknown_peak]
def lecture_peak() -> float:
    """Lines 927 to 929 of 2025, 797 to 799 of 2026, where there is no GPU."""
    return 1


published = 11_739_062_719 / lecture_peak()  # the "MFU" of the trace
assert published > 1e10  # FLOP/s of a CPU, no share of anything
assert get_peak_flop_per_second("no such type") is None  # unknown is no number
# --8<-- [end:unknown_peak]


# --8<-- [start:backward]
def training_flops(batch: int, *widths: int) -> tuple[int, int]:
    """Counted FLOPs, forward and backward, of a chain of linear layers."""
    x = meta(batch, widths[0])  # data: needs no gradient
    weights = [meta(*pair).requires_grad_() for pair in itertools.pairwise(widths)]

    def forward() -> Tensor:
        h = x
        for w in weights:
            h = h @ w
        return h

    forward_flops = count_flops(forward)
    both_flops = count_flops(lambda: forward().sum().backward())
    return forward_flops, both_flops - forward_flops


B, D, K = 1024, 256, 64  # 2025, lines 513 to 515
forward_flops, backward_flops = training_flops(B, D, D, K)
claimed_backward_flops = 2 * B * D * K + 2 * B * D * K + (2 + 2) * B * D * D  # 556-567
assert backward_flops == claimed_backward_flops - 2 * B * D * D  # no x.grad
backward_ratio = backward_flops / forward_flops

small_flops = sum(training_flops(2, 4, 4, 4, 1))  # 2025, line 827: 6 * B * num_parameters
claimed_small_flops = 6 * 2 * (4 * 4 + 4 * 4 + 4)
deep_flops = sum(training_flops(2, 4, 4, 4, 4))  # 2026, line 650
claimed_deep_flops = 6 * 2 * (3 * 4 * 4)
assert claimed_small_flops - small_flops == claimed_deep_flops - deep_flops == 2 * 2 * 4 * 4
# --8<-- [end:backward]


# --8<-- [start:h100]
h100s = [name for name in GPUS if name.startswith("H100")]
peaks = [GPUS[name].peak_flop_per_second["float32"] / 1e12 for name in h100s]
assert 67.5 not in peaks
assert len(set(peaks)) == 3  # "H100" alone is no answer
assert "B200" in "NVIDIA GB200"  # 2026, line 818: takes a GB200 for a B200
gb200_to_b200_ratio = GPUS["GB200"].peak_flop_per_second["bfloat16"] / 2.25e15
assert gb200_to_b200_ratio > 1.1
# --8<-- [end:h100]


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


# --8<-- [start:adagrad]
def displacements(make: Callable[..., Any], **options: Any) -> list[float]:
    """Lengths of a hundred steps, in learning rates; the gradient is always 1."""
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    w.grad = torch.ones_like(w)
    optimizer = make([w], lr=1.0, **options)
    positions = [0.0]
    for _ in range(100):
        optimizer.step()
        positions.append(-w.item())
    return [b - a for a, b in itertools.pairwise(positions)]


first_adagrad_step, last_adagrad_step = displacements(torch.optim.Adagrad)[::99]
assert math.isclose(first_adagrad_step, 1, rel_tol=1e-6)  # g₁² is in it: the sum goes to t, not to t - 1
assert math.isclose(last_adagrad_step, 0.1, rel_tol=1e-6)  # 1 / √100; with an average it would be 1
# --8<-- [end:adagrad]


# --8<-- [start:adam]
uncorrected_step = (1 - 0.9) / math.sqrt(1 - 0.999)  # m / √v after one step
assert uncorrected_step > 3  # RMSProp + momentum, and nothing else
assert all(abs(length - 1) < 1e-6 for length in displacements(torch.optim.Adam))
# --8<-- [end:adam]


# --8<-- [start:gigabytes]
feedforward_bytes = get_memory_usage(meta(4 * 12288, 12288))
decimal, binary = feedforward_bytes / 1e9, feedforward_bytes / 2**30
assert f"{decimal:.2f}" == "2.42" and f"{binary:.2f}" == "2.25"
assert f"{feedforward_bytes / 1024**2 / 1e3:.1f}" == "2.3"  # half of each
# --8<-- [end:gigabytes]


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
assert bf16.smallest_normal == fp32.smallest_normal  # the same exponents …
assert bf16.max < fp32.max and smallest_values[0] > 60_000 * smallest_values[1]
# --8<-- [end:range]


# --8<-- [start:bound]
PEAK, BANDWIDTH = 1979e12 / 2, 3.35e12  # facts.py of 2026
SIDE = 4096
matmul_flops = 2 * SIDE**3
matmul_bytes = 2 * 3 * SIDE**2  # read x, read w, write y, in bf16
gelu_bytes = 2 * 2 * SIDE**2  # read x, write y; its FLOPs are no matmul's

ridge = PEAK / BANDWIDTH
promised_share = min(1.0, matmul_flops / (matmul_bytes + gelu_bytes) / ridge)  # line 479
ideal_time = matmul_flops / PEAK
roofline_time = max(ideal_time, matmul_bytes / BANDWIDTH) + gelu_bytes / BANDWIDTH  # one after the other
largest_share = ideal_time / roofline_time
print(f"promised {promised_share:.2f}, on the roofline {largest_share:.2f}")
# --8<-- [end:bound]


# --8<-- [start:ridge]
FP32_PEAK = GPUS["H100 SXM"].peak_flop_per_second["float32"]
other_ridge = FP32_PEAK / BANDWIDTH  # what does not run on tensor cores
relu_intensity, gelu_intensity = 1 / 4, 20 / 4  # lines 388 and 408
assert gelu_intensity < other_ridge < ridge / 10  # the conclusion stands, with less room
free_flops = 4 * other_ridge  # for each number read and written in bf16
# --8<-- [end:ridge]


# --8<-- [start:inference]
def layer_intensity(tokens: int, d: int = 4096) -> float:
    """FLOPs over bytes of tokens × d times d × d, in bf16."""
    return 2 * tokens * d * d / (2 * (2 * tokens * d + d * d))


decode_intensity, prefill_intensity = layer_intensity(1), layer_intensity(1024)
assert decode_intensity < 1 < ridge < prefill_intensity
# --8<-- [end:inference]


# --8<-- [start:accumulation]
def accumulated(pieces: int, divide: bool) -> Tensor:
    """The gradient after a batch of 64 in pieces; by lines 726 to 728 if not divide."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 16, dtype=torch.float64, generator=generator)
    w = torch.zeros(16, dtype=torch.float64, requires_grad=True)
    for piece in x.chunk(pieces):
        loss = F.mse_loss(piece @ w, piece.sum(dim=-1))
        (loss / pieces if divide else loss).backward()
    assert w.grad is not None
    return w.grad


whole = accumulated(1, divide=False)
assert torch.allclose(accumulated(4, divide=False), 4 * whole)
assert torch.allclose(accumulated(4, divide=True), whole)
# --8<-- [end:accumulation]


# --8<-- [start:checkpointing]
WIDTH, LAYERS, ROWS = 1024, 16, 64  # lines 739 to 741
x = meta(ROWS, WIDTH).requires_grad_()
blocks = [meta(WIDTH, WIDTH).requires_grad_() for _ in range(LAYERS)]


def block(x: Tensor, w: Tensor) -> Tensor:
    return F.relu(x @ w)  # lines 584 and 585


def count_kept(recompute: bool) -> int:
    """Tensors that autograd keeps beside the weights."""

    def network() -> Tensor:
        h = x
        for w in blocks:
            h = checkpoint(block, h, w, use_reentrant=False) if recompute else block(h, w)
        return h.sum()

    return sum(1 for kept in saved_tensors(network, besides=blocks) if kept.numel())


plain_tensors, checkpointed_tensors = count_kept(recompute=False), count_kept(recompute=True)
print(f"kept without checkpoints: {plain_tensors}, with: {checkpointed_tensors}")
# --8<-- [end:checkpointing]


# --8<-- [start:average]
targets = torch.tensor([4.0, 5.0])  # line 621
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    one_number = F.mse_loss(torch.tensor(4.5), targets).item()  # the best single number
warning = str(caught[0].message).partition(". ")[0]
two_numbers = F.mse_loss(torch.tensor([4.0, 5.0]), targets).item()
assert one_number == 0.25 and two_numbers == 0
# --8<-- [end:average]


# --8<-- [start:two_weeks]
h100_flop_per_sec = 1979e12 / 2
claimed_flops = 8 * (60 * 60 * 24 * 7) * h100_flop_per_sec  # 2025, line 415: "2 weeks"
fortnight_flops = 8 * (60 * 60 * 24 * 14) * h100_flop_per_sec
assert fortnight_flops == 2 * claimed_flops
# --8<-- [end:two_weeks]


# --8<-- [start:mean]
x = torch.ones(2, 3, 4)
assert not reduce(x, "... hidden -> ...", "sum").equal(x.mean(dim=-1))
assert reduce(x, "... hidden -> ...", "mean").equal(x.mean(dim=-1))
# --8<-- [end:mean]


# --8<-- [start:bf16_rate]
fp32_trace, bf16_trace = 11_739_062_719, 4_422_881_623  # FLOP/s in the published trace
bf16_to_fp32_ratio = bf16_trace / fp32_trace
assert bf16_to_fp32_ratio < 0.4
# --8<-- [end:bf16_rate]


# --8<-- [start:first_call]
clock = [0.0]  # a clock of our own, in milliseconds
trials = [106.0, 11.0, 11.0, 11.0, 11.0]  # the first call is cold
ahead = iter(trials)


def run() -> None:
    clock[0] += next(ahead)


num_trials = 5  # lines 971 to 974, with this clock
total_time = timeit.timeit(run, timer=lambda: clock[0], number=num_trials)
assert total_time / num_trials == 30  # the mean: a third of the speed
assert statistics.median(trials) == 11
# --8<-- [end:first_call]


# --8<-- [start:deep_linear]
x, y = torch.randn(2, 4), torch.randn(2)
weights = [torch.randn(4, n, requires_grad=True) for n in (4, 4, 1)]


def loss() -> Tensor:
    return F.mse_loss((x @ weights[0] @ weights[1] @ weights[2]).squeeze(-1), y)


kept = saved_tensors(loss, besides=[x, y, *weights])
kept_bytes = sum(map(get_memory_usage, kept))
claimed_kept_bytes = 4 * (2 * 4 * 2)  # 2025, line 815: B * D * num_layers, in fp32
assert kept_bytes == 4 * (8 + 8 + 2) != claimed_kept_bytes  # and the prediction


def relu_loss() -> Tensor:
    h = x
    for w in relu_weights:
        h = F.relu(h @ w)
    return h.sum()


relu_weights = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]
relu_kept = saved_tensors(relu_loss, besides=[x, *relu_weights])
relu_kept_numbers = sum(kept.numel() for kept in relu_kept)
assert relu_kept_numbers == 2 * 4 * 3  # 2026, line 639: B * D * L is right
# --8<-- [end:deep_linear]


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


# --8<-- [start:ignored]
def final_loss(lr: float, ignore: bool) -> float:
    """Loss after ten steps of SGD towards 0, 1, …, 15; ignore: as line 858 does."""
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


assert final_loss(0.01, ignore=True) == final_loss(0.1, ignore=True)
assert final_loss(0.01, ignore=False) > 1.5 * final_loss(0.1, ignore=False)
# --8<-- [end:ignored]


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


# --8<-- [start:windows]
LENGTH = 4
starts = torch.randint(10 - LENGTH, (1000,))  # line 676, for its ten tokens
assert starts.max() == 5  # so tokens 7 to 10, which start at 6, never come
# --8<-- [end:windows]


# --8<-- [start:file]
tokens = np.arange(1, 11, dtype=np.int32)
folder = tempfile.TemporaryDirectory()
raw, real = Path(folder.name, "data.npy"), Path(folder.name, "real.npy")
tokens.tofile(raw)  # line 727
np.save(real, tokens)
assert fails(lambda: np.load(raw))  # the name alone makes no .npy file
assert np.array_equal(np.load(real, mmap_mode="r"), tokens)
assert np.memmap(raw, dtype=np.int32).flags.writeable  # line 732: a slip away
folder.cleanup()
# --8<-- [end:file]


# --8<-- [start:luck]
def on_gpu(elements_bytes: int) -> int:
    """What the CUDA allocator hands out: whole blocks of 512 bytes."""
    return math.ceil(elements_bytes / 512) * 512


small_reported_bytes, small_held_bytes = 4 * 8 * 4, on_gpu(4 * 8 * 4)
assert 2 * on_gpu(32 * 32 * 4) == 2 * (32 * 32 * 4)  # line 191 passes …
assert 2 * small_held_bytes != 2 * small_reported_bytes  # … with 4 × 8 it would not
# --8<-- [end:luck]


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


# --8<-- [start:view]
matrix = torch.arange(16).view(4, 4)
turned = matrix.t()
assert not turned.is_contiguous()
assert fails(lambda: turned.view(16))  # these two dimensions cannot merge
assert same_storage(matrix, turned.view(2, 2, 4))  # a further view
# --8<-- [end:view]


# --8<-- [start:storage]
def lecture_same_storage(x: Tensor, y: Tensor) -> bool:
    """Line 952."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


assert lecture_same_storage(torch.empty(0), torch.empty(0))  # they share nothing
assert lecture_same_storage(meta(3), meta(3))
assert fails(lambda: same_storage(meta(3), meta(3)))  # the toolkit's refuses to say
# --8<-- [end:storage]
