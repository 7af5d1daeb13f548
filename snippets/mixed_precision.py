# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Which numbers may be 16 bits wide: autocast, loss scaling, master weights."""

# --8<-- [start:setup]
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

# accounting.py, the book's toolkit, lies beside this file
from accounting import (
    GPUS,
    divide,
    get_allocated_bytes,
    get_device,
    get_gpu,
    get_memory_usage,
    get_peak_flop_per_second,
    time_call,
)
from torch import nn

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def has_gpu() -> bool:
    """Whether there is a GPU to measure; a CPU gets smaller work."""
    return torch.cuda.is_available()


# --8<-- [end:setup]


# --8<-- [start:promise]
h100 = GPUS["H100 SXM"]  # a row of the table of peaks, from NVIDIA's whitepaper
peaks = h100.peak_flop_per_second  # dense
bf16_over_fp32_ratio = peaks["bfloat16"] / peaks["float32"]
bytes_saved_ratio = FP32.itemsize / BF16.itemsize
print(f"FLOP/s: {bf16_over_fp32_ratio:.1f} times as many")
print(f"bytes:  {bytes_saved_ratio:g} times as few")
# --8<-- [end:promise]


# --8<-- [start:operations]
IN_LOW, IN_FULL = "bfloat16", "float32"
REFERENCE = {  # PyTorch's autocast op reference, for CUDA
    "linear": IN_LOW,
    "attention": IN_LOW,
    "gelu": IN_LOW,  # not listed: it keeps its input's type
    "mean": IN_LOW,  # not listed either
    "h_plus_h": IN_LOW,
    "h_plus_x": IN_FULL,  # of two types, the wider wins
    "softmax": IN_FULL,
    "layer_norm": IN_FULL,
    "sum": IN_FULL,
    "exp": IN_FULL,
    "cross_entropy": IN_FULL,
}


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def output_types(device: str) -> dict[str, str]:
    """Type of each operation's answer; x is fp32, h from a linear layer."""
    x = torch.ones(16, 16, device=device)
    q = x.view(1, 2, 8, 16)  # one sequence, two heads
    ids = torch.zeros(16, dtype=torch.long, device=device)
    with torch.autocast(device, dtype=BF16):
        h = F.linear(x, x)
        outputs = {
            "linear": h,
            "attention": F.scaled_dot_product_attention(q, q, q),
            "gelu": F.gelu(h),
            "mean": h.mean(),
            "h_plus_h": h + h,
            "h_plus_x": h + x,
            "softmax": F.softmax(h, dim=-1),
            "layer_norm": F.layer_norm(h, (16,)),
            "sum": h.sum(),
            "exp": h.exp(),
            "cross_entropy": F.cross_entropy(h, ids),
        }
    return {name: name_of(output.dtype) for name, output in outputs.items()}


# --8<-- [end:operations]


# --8<-- [start:types]
measured_types = {
    "cpu": output_types("cpu"),
    "cuda": output_types("cuda") if has_gpu() else dict.fromkeys(REFERENCE),
}
for device, answers in measured_types.items():
    unlike = [op for op in REFERENCE if answers[op] != REFERENCE[op]]
    print(f"{device:5}", f"unlike the reference: {unlike}" if answers["linear"] else "not here")
# --8<-- [end:types]


# --8<-- [start:loss_steps]
VOCABULARY = 50257  # GPT-2's
first_loss = round(math.log(VOCABULARY), 6)  # of a model that knows nothing

loss_in_bf16 = torch.tensor(first_loss, dtype=BF16).item()
loss_gap = torch.finfo(BF16).eps * 2 ** math.floor(math.log2(first_loss))
next_loss = torch.tensor(loss_in_bf16 + 0.51 * loss_gap, dtype=BF16).item()
print(f"{first_loss:.4f} is stored as {loss_in_bf16}, the next is {next_loss}")
assert next_loss == loss_in_bf16 + loss_gap
# --8<-- [end:loss_steps]


# --8<-- [start:casts]
def use_twice(cache: bool) -> tuple[int, torch.Tensor]:
    """Uses a weight twice: bytes of its bf16 copies kept, and its gradient."""
    weight = nn.Parameter(torch.ones(256, 256))
    x = torch.ones(8, 256, requires_grad=True)
    kept: dict[int, int] = {}  # address -> bytes

    def note(saved: torch.Tensor) -> torch.Tensor:
        if saved.dtype == BF16 and saved.shape == weight.shape:
            storage = saved.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved)
    with hooks, torch.autocast("cpu", dtype=BF16, cache_enabled=cache):
        y = F.linear(F.linear(x, weight), weight)
    (gradient,) = torch.autograd.grad(y.float().sum(), weight)
    return sum(kept.values()), gradient


cast_bytes, weight_gradient = use_twice(cache=True)
uncached_bytes, _ = use_twice(cache=False)
cast_per_parameter = cast_bytes // weight_gradient.numel()
print(f"casts: {cast_bytes:,} bytes with the cache, {uncached_bytes:,} without")
print("the gradient of the fp32 parameter:", weight_gradient.dtype)
assert cast_per_parameter == 2 and uncached_bytes == 2 * cast_bytes
assert weight_gradient.dtype == FP32
# --8<-- [end:casts]


# --8<-- [start:underflow]
FACTOR = 1e-4  # once in the forward pass, once in the loss: the gradient is 1e-8
SCALE = 2**16  # where GradScaler starts


def gradient(dtype: torch.dtype, scale: int = 1) -> float:
    """Gradient of an fp32 weight in a product of dtype, with loss scaling."""
    weight = nn.Parameter(torch.ones(1, 1))
    with torch.autocast("cpu", dtype=dtype):
        y = F.linear(torch.full((1, 1), FACTOR), weight)
    loss = y.float().sum() * FACTOR
    (scaled,) = torch.autograd.grad(loss * scale, weight)
    return scaled.item() / scale


small_gradient = {
    "fp16": gradient(FP16),
    "fp16_scaled": gradient(FP16, SCALE),
    "bf16": gradient(BF16),
}
for how, found in small_gradient.items():
    print(f"{how:12}{found}")
assert small_gradient["fp16"] == 0  # underflow: this weight learns nothing
assert math.isclose(small_gradient["fp16_scaled"], 1e-8, rel_tol=2**-10)
assert math.isclose(small_gradient["bf16"], 1e-8, rel_tol=2**-7)  # unscaled
# --8<-- [end:underflow]


# --8<-- [start:scaler]
GRADIENT = 8.0


def train_scaled(size: float, steps: int) -> tuple[list[float], list[float]]:
    """Scale and weight after each step in fp16, for one size of gradient."""
    weight = nn.Parameter(torch.ones(1, 1))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    scales, weights = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=FP16):
            y = F.linear(torch.full((1, 1), size), weight)
        scaler.scale(y.float().sum()).backward()
        scaler.step(optimizer)  # unscales; skips if a gradient is inf or NaN
        scaler.update()  # a skip halves the scale, 2,000 good steps double it
        scales.append(scaler.get_scale())
        weights.append(round(weight.item(), 2))
    return scales, weights


scales, scaled_weights = train_scaled(GRADIENT, steps=6)
skipped_steps = scaled_weights.count(1.0)
print("scale: ", scales)
print("weight:", scaled_weights)
assert GRADIENT * scales[-1] <= torch.finfo(FP16).max < GRADIENT * scales[-1] * 2
# --8<-- [end:scaler]


# --8<-- [start:stall]
STEPS, STEP_SIZE = 1000, 1e-3


def walk(dtype: torch.dtype) -> torch.Tensor:
    """A weight of 1, stored in dtype, after all steps of SGD in one direction."""
    weight = nn.Parameter(torch.ones((), dtype=dtype))
    optimizer = torch.optim.SGD([weight], lr=STEP_SIZE)
    for _ in range(STEPS):
        weight.grad = -torch.ones_like(weight)
        optimizer.step()
    return weight.detach()


walked = {"bf16": walk(BF16).item(), "fp32_master": walk(FP32).to(BF16).item()}
print(walked)
assert walked == {"bf16": 1.0, "fp32_master": 2.0}
# --8<-- [end:stall]


# --8<-- [start:sums]
COUNT, TERM = 100_000, 1e-3  # their sum is 100


def running_total(dtype: torch.dtype) -> tuple[float, int]:
    """Where a sum kept in dtype ends, and after how many terms."""
    total = torch.zeros((), dtype=dtype)
    term = torch.tensor(TERM, dtype=dtype)
    for added in range(COUNT):
        if total + term == total:
            return total.item(), added
        total += term
    return total.item(), COUNT


bf16_total, bf16_terms = running_total(BF16)
fp16_total, fp16_terms = running_total(FP16)
library_sum = torch.full((COUNT,), TERM, dtype=BF16).sum().item()
print(f"bf16: {bf16_total} after {bf16_terms:,} terms, then for ever")
print(f"fp16: {fp16_total} after {fp16_terms:,} terms, then for ever")
print("bf16, torch.sum:", library_sum)
assert library_sum == COUNT * TERM
# --8<-- [end:sums]


# --8<-- [start:accumulate]
MICRO_BATCHES = 1000


def accumulated(buffer: torch.Tensor) -> float:
    """Sum of the bf16 gradients of many backward passes, in the buffer's type."""
    weight = nn.Parameter(torch.ones((), dtype=BF16))
    for _ in range(MICRO_BATCHES):
        (gradient,) = torch.autograd.grad(weight * TERM, weight)
        buffer += gradient
    return buffer.item()


bf16_accumulated = accumulated(torch.zeros((), dtype=BF16))
fp32_accumulated = accumulated(torch.zeros((), dtype=FP32))
print(f"bf16 buffer: {bf16_accumulated}, fp32 buffer: {fp32_accumulated:.4f}")
assert bf16_accumulated < 0.6 * fp32_accumulated
assert math.isclose(fp32_accumulated, MICRO_BATCHES * TERM, rel_tol=2**-9)
# --8<-- [end:accumulate]


# --8<-- [start:recipe]
class Recipe(NamedTuple):
    """The type in which each number is kept that training with AdamW needs."""

    weights: torch.dtype
    gradients: torch.dtype
    master: torch.dtype | None  # a second copy of the weights, the one updated
    moments: torch.dtype
    autocast: bool = False


RECIPES = {
    "fp32": Recipe(FP32, FP32, None, FP32),
    "autocast": Recipe(FP32, FP32, None, FP32, autocast=True),
    "master": Recipe(BF16, BF16, FP32, FP32),
    "master_fp32_gradients": Recipe(BF16, FP32, FP32, FP32),
    "fp32_moments": Recipe(BF16, BF16, None, FP32),
    "bf16": Recipe(BF16, BF16, None, BF16),
}
# --8<-- [end:recipe]


# --8<-- [start:adamw]
class AdamW:
    """AdamW without decay: computes in fp32, keeps numbers as a recipe says."""

    def __init__(self, weights: list[torch.Tensor], recipe: Recipe) -> None:
        self.steps = 0
        self.weights = weights
        self.gradients = self.zeros(recipe.gradients)
        self.means = self.zeros(recipe.moments)
        self.squares = self.zeros(recipe.moments)
        kind = recipe.master
        self.master = [w.detach().to(kind) for w in weights] if kind else []

    def zeros(self, dtype: torch.dtype) -> list[torch.Tensor]:
        return [torch.zeros_like(w, dtype=dtype) for w in self.weights]

    @torch.no_grad()
    def step(self, lr: float, beta1: float = 0.9, beta2: float = 0.95) -> None:
        self.steps += 1
        for i, weight in enumerate(self.master or self.weights):
            g = self.gradients[i].float()
            m = self.means[i].float().lerp(g, 1 - beta1)
            v = self.squares[i].float().lerp(g * g, 1 - beta2)
            self.means[i].copy_(m)  # rounds, if kept in bf16
            self.squares[i].copy_(v)
            scale = (v / (1 - beta2**self.steps)).sqrt() + 1e-8
            update = m / (1 - beta1**self.steps) / scale
            weight.copy_(weight.float() - lr * update)  # rounds, if no master
            if self.master:
                self.weights[i].copy_(weight)  # rounds, but nothing is lost
            self.gradients[i].zero_()


# --8<-- [end:adamw]


# --8<-- [start:count]
def count_bytes(recipe: Recipe) -> dict[str, int]:
    """Bytes a parameter of all that lives on after a step, part by part."""
    weight = torch.ones(512, 512, dtype=recipe.weights, requires_grad=True)
    kept = AdamW([weight], recipe)
    kept.gradients[0] += 1
    kept.step(lr=1e-3)
    parts = {
        "weights": kept.weights,
        "gradients": kept.gradients,
        "master": kept.master,
        "moments": kept.means + kept.squares,
    }
    return {
        part: sum(map(get_memory_usage, tensors)) // weight.numel()  # exact
        for part, tensors in parts.items()
    }


part_bytes = {name: count_bytes(recipe) for name, recipe in RECIPES.items()}
state_bytes = {name: sum(parts.values()) for name, parts in part_bytes.items()}
for name, parts in part_bytes.items():
    sizes = " + ".join(map(str, parts.values()))
    print(f"{name:22} {sizes} = {state_bytes[name]}")
assert list(state_bytes.values()) == [16, 16, 16, 18, 12, 8]
# --8<-- [end:count]


# --8<-- [start:torch_adamw]
def state_of_torch(dtype: torch.dtype) -> int:
    """Bytes a parameter that torch's AdamW leaves alive; its counter aside."""
    weight = nn.Parameter(torch.ones(512, 512, dtype=dtype))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([weight])
    optimizer.step()
    moments = [t for t in optimizer.state[weight].values() if t.numel() > 1]
    alive = (weight, weight.grad, *moments)
    return sum(map(get_memory_usage, alive)) // weight.numel()


torch_bytes = {"fp32": state_of_torch(FP32), "bf16": state_of_torch(BF16)}
print(torch_bytes)
assert torch_bytes == {"fp32": state_bytes["fp32"], "bf16": state_bytes["bf16"]}
# --8<-- [end:torch_adamw]


# --8<-- [start:gpu_bytes]
class Held(NamedTuple):
    """The allocator's bytes a parameter: after a step, and at the worst."""

    after: float | None = None
    peak: float | None = None


def measure_bytes(recipe: Recipe, side: int = 4096) -> Held:
    """What a recipe keeps for one matrix on the GPU."""
    if not has_gpu():
        return Held()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    weight = torch.ones(side, side, dtype=recipe.weights, device="cuda")
    kept = AdamW([weight], recipe)
    kept.step(lr=1e-3)
    now = torch.cuda.memory_allocated()
    peak = torch.cuda.max_memory_allocated()
    return Held((now - before) / side**2, (peak - before) / side**2)


measured_held = {name: measure_bytes(recipe) for name, recipe in RECIPES.items()}
measured_held_ratio = {
    name: divide(held.after, state_bytes[name])  # 1, if nothing was forgotten
    for name, held in measured_held.items()
}
for name, held in measured_held.items():
    print(f"{name:22}", f"{held.after:.2f} held" if held.after else "no GPU here")
# --8<-- [end:gpu_bytes]


# --8<-- [start:train]
NUM_INPUTS, BATCH, TRAINING_STEPS, LEARNING_RATE = 64, 64, 400, 0.02
REPORT = 20  # steps between two points of the curve


def train(recipe: Recipe) -> list[float]:
    """Learns a linear function; squared distances to the true weights."""
    generator = torch.Generator().manual_seed(0)  # on the CPU: one problem
    device = get_device()
    truth = torch.randn(1, NUM_INPUTS, generator=generator).to(device)
    weight = torch.zeros_like(truth, dtype=recipe.weights, requires_grad=True)
    optimizer = AdamW([weight], recipe)
    distances = []
    for step in range(TRAINING_STEPS):
        x = torch.randn(BATCH, NUM_INPUTS, generator=generator).to(device)
        with torch.autocast(device.type, dtype=BF16, enabled=recipe.autocast):
            y = F.linear(x.to(recipe.weights), weight)
        loss = F.mse_loss(y.float(), F.linear(x, truth))
        (gradient,) = torch.autograd.grad(loss, weight)
        optimizer.gradients[0] += gradient
        optimizer.step(LEARNING_RATE * (1 - step / TRAINING_STEPS))
        if (step + 1) % REPORT == 0:
            distances.append((weight.float() - truth).square().sum().item())
    return distances


# --8<-- [end:train]


# --8<-- [start:losses]
threads = torch.get_num_threads()
torch.set_num_threads(1)  # products this small only wait for threads
measured_curves = {name: train(recipe) for name, recipe in RECIPES.items()}
torch.set_num_threads(threads)

measured_losses = {name: curve[-1] for name, curve in measured_curves.items()}
for name, loss in measured_losses.items():
    print(f"{name:22} {loss:.1e}")
exact_updates = ("fp32", "autocast", "master", "master_fp32_gradients")
measured_worst = max(measured_losses[name] for name in exact_updates)
for name in ("fp32_moments", "bf16"):  # weights that exist in bf16 alone
    assert measured_losses[name] > 100 * measured_worst
# --8<-- [end:losses]


# --8<-- [start:step]
measured_d_model = 4096 if has_gpu() else 128
measured_tokens = 8192 if has_gpu() else 64
MODES = {"float32": None, "tf32": None, "bfloat16": BF16, "float16": FP16}


def training_step(low: torch.dtype | None) -> Callable[[], None]:
    """A step of a feed-forward block; low: autocast's type, or None."""
    device, d_model = get_device(), measured_d_model
    block = nn.Sequential(
        nn.LayerNorm(d_model),
        nn.Linear(d_model, 4 * d_model),
        nn.GELU(),
        nn.Linear(4 * d_model, d_model),
    ).to(device)
    optimizer = torch.optim.AdamW(block.parameters(), fused=True)
    scaler = torch.amp.GradScaler(device.type, enabled=low is FP16)
    x = torch.randn(measured_tokens, d_model, device=device)
    target = torch.randn_like(x)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=low, enabled=low is not None):
            loss = F.mse_loss(x + block(x), target)
        scaler.scale(loss).backward()  # outside: backward repeats forward's types
        scaler.step(optimizer)
        scaler.update()

    return step


# --8<-- [end:step]


# --8<-- [start:predict]
measured_matrix_elements = 8 * measured_d_model**2
measured_parameters = measured_matrix_elements + 7 * measured_d_model  # biases, norm
measured_flops = 6 * measured_tokens * measured_matrix_elements  # of the products alone
UPDATE_BYTES = 7 * 4  # reads gradient, weight, moments; writes weight, moments


def predict_seconds(mode: str) -> float | None:
    """Products at the peak, then AdamW's traffic at the full bandwidth."""
    gpu, peak = get_gpu(), get_peak_flop_per_second(mode)
    if not gpu or not peak:
        return None
    traffic = measured_parameters * UPDATE_BYTES
    return measured_flops / peak + traffic / gpu.bandwidth_bytes_per_second


def speedups(seconds: dict[str, float | None]) -> dict[str, float | None]:
    return {mode: divide(seconds["float32"], t) for mode, t in seconds.items()}


predicted_seconds = {mode: predict_seconds(mode) for mode in MODES}
predicted_speedup_ratio = speedups(predicted_seconds)
for mode, seconds in predicted_seconds.items():
    print(f"{mode:9}", f"{seconds * 1e3:.3g} ms" if seconds else "peak unknown")
# --8<-- [end:predict]


# --8<-- [start:measure]
class Step(NamedTuple):
    """One training step; None where the device cannot do it, or not count."""

    median_seconds: float | None = None
    spread: float | None = None
    trials: int | None = None
    peak_bytes: int | None = None


def is_supported(mode: str) -> bool:
    """Whether the device has the units for a mode, or is asked to here."""
    if not has_gpu():
        return mode != "tf32"
    newer = mode in ("tf32", "bfloat16")
    return not newer or torch.cuda.get_device_capability() >= (8, 0)


def measure_step(mode: str) -> Step:
    """Time and peak memory of one training step."""
    if not is_supported(mode):
        return Step()
    torch.set_float32_matmul_precision("high" if mode == "tf32" else "highest")
    before = get_allocated_bytes()
    if before is not None:
        torch.cuda.reset_peak_memory_stats()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least
    try:
        step = training_step(MODES[mode])
        timing = time_call(step, min_trials=5, min_seconds=0.05)
    except torch.OutOfMemoryError:
        return Step()
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
    if before is None:
        return Step(*timing)
    return Step(*timing, torch.cuda.max_memory_allocated() - before)


measured_steps = {mode: measure_step(mode) for mode in MODES}
measured_seconds = {m: step.median_seconds for m, step in measured_steps.items()}
for mode, seconds in measured_seconds.items():
    print(f"{mode:9}", f"{seconds * 1e3:.3g} ms" if seconds else "not here")
# --8<-- [end:measure]


# --8<-- [start:compare]
measured_speedup_ratio = speedups(measured_seconds)
measured_over_predicted_ratio = {
    mode: divide(seconds, predicted_seconds[mode])  # above 1: what was left out
    for mode, seconds in measured_seconds.items()
}
predicted_state_bytes = 16 * measured_parameters  # in all modes: fp32 weights


def beyond_state(peak_bytes: int | None) -> int | None:
    """Activations, casts, temporaries."""
    return peak_bytes - predicted_state_bytes if peak_bytes else None


measured_rest_bytes = {m: beyond_state(s.peak_bytes) for m, s in measured_steps.items()}
for mode, ratio in measured_speedup_ratio.items():
    print(f"{mode:9}", f"{ratio:.2f} times as fast" if ratio else "not here")
# --8<-- [end:compare]


# --8<-- [start:fp8]
E4M3 = torch.float8_e4m3fn


def through_fp8(x: torch.Tensor, scale: float) -> torch.Tensor:
    """x scaled up, stored in E4M3, read back and scaled down."""
    return (x * scale).to(E4M3).float() / scale


small = torch.tensor([1e-5, 2e-4, 4e-4, 7e-4])
scale = torch.finfo(E4M3).max / small.abs().max().item()  # largest to largest
plain, scaled = through_fp8(small, 1), through_fp8(small, scale)
print("as they are: ", plain.tolist())
print("scaled first:", [f"{number:.2e}" for number in scaled.tolist()])
fp8_worst_share = ((scaled - small).abs() / small).max().item()
assert not plain.any()  # all gone
assert fp8_worst_share <= 2**-4  # half of eps: E4M3 has three fraction bits
# --8<-- [end:fp8]


# --8<-- [start:exercise_1]
INITIAL_STD = 0.02  # GPT-2's initial weights: normal, mean 0
RATES = ("1e-3", "1e-4", "1e-5")  # learning rates, as they are written


def stands_from(step: float) -> float:
    """The smallest power of two that a step does not move; nor larger weights."""
    powers = (2.0**e for e in range(-40, 10))
    return next(w for w in powers if torch.tensor(w, dtype=BF16) + step == w)


stall_limit = {rate: stands_from(float(rate)) for rate in RATES}
standing_share = {
    rate: round(math.erfc(limit / (math.sqrt(2) * INITIAL_STD)), 6)  # beyond ±limit
    for rate, limit in stall_limit.items()
}
for rate, limit in stall_limit.items():
    print(f"lr {rate}: from {limit} on, {standing_share[rate]:.1%} of weights")
assert stall_limit["1e-3"] == 0.5 and standing_share["1e-3"] == 0
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
LARGEST_GRADIENT, GROWTH_INTERVAL = 3.0, 2000  # GradScaler's default

exercise_scales, exercise_weights = train_scaled(LARGEST_GRADIENT, steps=4)
exercise_skipped = exercise_weights.count(1.0)
wasted_share = 1 / (GROWTH_INTERVAL + 1)  # each doubling costs one step
print(f"{exercise_skipped} steps skipped, scale {exercise_scales[-1]:,.0f}")
print(f"later: {wasted_share:.2%} of the steps")
assert LARGEST_GRADIENT * exercise_scales[-1] <= torch.finfo(FP16).max
assert LARGEST_GRADIENT * exercise_scales[-1] * 2 > torch.finfo(FP16).max
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
CONFIDENCE = 0.999


def loss_of(dtype: torch.dtype) -> float:
    """Cross-entropy of a probability that was stored in dtype."""
    stored = torch.tensor(CONFIDENCE, dtype=dtype).item()
    return round(0 - math.log(stored), 8)


confident_loss = {name_of(dtype): loss_of(dtype) for dtype in (FP32, FP16, BF16)}
for name, loss in confident_loss.items():
    print(f"{name:9}{loss:.4e}")
assert confident_loss["bfloat16"] == 0  # nothing left to learn, says bf16
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
MODEL_PARAMETERS = 7e9

model_bytes = {name: size * MODEL_PARAMETERS for name, size in state_bytes.items()}
model_casts_bytes = cast_per_parameter * MODEL_PARAMETERS
autocast_peak_bytes = model_bytes["autocast"] + model_casts_bytes
print(f"autocast: {autocast_peak_bytes / 1e9:g} GB with its casts")
print(f"bf16 weights, fp32 master: {model_bytes['master'] / 1e9:g} GB")
assert model_bytes["fp32"] == model_bytes["autocast"] == model_bytes["master"]
assert autocast_peak_bytes - model_bytes["master"] == 2 * MODEL_PARAMETERS
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
SERVED_PARAMETERS, GROUP = 70e9, 128  # each group has a scale of 16 bits


def error_of(x: torch.Tensor, bits: int) -> float:
    """The largest error of x as integers of so many bits times one scale."""
    scale = x.abs().max() / (2 ** (bits - 1) - 1)
    return float(((x / scale).round() * scale - x).abs().max())


served_bytes = {
    "bf16": SERVED_PARAMETERS * 2,
    "int8": SERVED_PARAMETERS * (8 + 16 / GROUP) / 8,
    "int4": SERVED_PARAMETERS * (4 + 16 / GROUP) / 8,
}
weights = torch.linspace(-1, 1, 10_001, dtype=torch.float64)  # between all steps too
errors = {bits: error_of(weights, bits) for bits in (8, 4)}
for name, size in served_bytes.items():
    print(f"{name:5}{size / 1e9:7.2f} GB")
assert all(0.499 < errors[bits] * (2 ** (bits - 1) - 1) < 0.501 for bits in errors)  # half a step
# --8<-- [end:exercise_5]
