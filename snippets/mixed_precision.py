# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Which numbers of a training step may be 16 bits wide, and what each recipe costs and risks."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

from flops_bytes.lessons.measure import get_device, get_memory_usage, time_call
from flops_bytes.lessons.models import GPT2_SMALL, GPT2Block, fused
from flops_bytes.lessons.trace import saved_tensors
from flops_bytes.time.gpus import GPUS

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


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


class AdamW:
    """AdamW without decay: computes in fp32, keeps numbers as a recipe says."""

    def __init__(self, weights: list[torch.Tensor], recipe: Recipe) -> None:
        def zeros(dtype: torch.dtype) -> list[torch.Tensor]:
            return [torch.zeros_like(w, dtype=dtype) for w in weights]

        self.weights, self.steps = weights, 0
        self.gradients = zeros(recipe.gradients)
        self.means, self.squares = zeros(recipe.moments), zeros(recipe.moments)
        self.master = [w.detach().to(FP32) for w in weights] if recipe.master else []

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
    return {p: sum(map(get_memory_usage, held)) // 512**2 for p, held in parts.items()}


def predict_bytes(recipe: Recipe) -> int:
    """The bytes of the types, added up."""
    types = [recipe.weights, recipe.gradients, recipe.master, *[recipe.moments] * 2]
    return sum(dtype.itemsize for dtype in types if dtype)


state_bytes = {name: predict_bytes(recipe) for name, recipe in RECIPES.items()}
part_bytes = {name: count_bytes(recipe) for name, recipe in RECIPES.items()}
counted_bytes = {name: sum(parts.values()) for name, parts in part_bytes.items()}
print(counted_bytes)
assert state_bytes == counted_bytes
# --8<-- [end:count]


# --8<-- [start:sums]
COUNT, TERM = 1000, 1e-3  # micro-batches and the gradient of each: in all, 1

gradients = torch.full((COUNT,), TERM, dtype=BF16)
buffers = {"bf16": torch.zeros((), dtype=BF16), "fp32": torch.zeros(())}
for gradient in gradients:
    for buffer in buffers.values():
        buffer += gradient
library_sum = gradients.sum().item()
accumulated = {name: round(buffer.item(), 4) for name, buffer in buffers.items()}
print("added up one by one in", accumulated)
print("torch.sum of the bf16 gradients:", library_sum)
# --8<-- [end:sums]
assert accumulated["bf16"] == 0.5 and library_sum == 1


SCORE = 20.0  # of a query and a key, before the softmax
score_gap = torch.finfo(BF16).eps * 2 ** math.floor(math.log2(SCORE))
score = torch.tensor(SCORE, dtype=BF16)
assert score + score_gap / 2 == score  # anything nearer is rounded to it
assert score + score_gap == SCORE + score_gap  # the next number
exponential_error_share = round(math.exp(score_gap / 2) - 1, 4)  # e^(s + x) = e^s e^x
print(f"scores near {SCORE} are {score_gap} apart in bf16")
print(f"rounding changes an exponential by up to {exponential_error_share:.1%}")


# --8<-- [start:use]
mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
batch = torch.randn(8, 64)

with torch.autocast("cpu", dtype=torch.bfloat16):  # on a GPU: "cuda"
    y = mlp(batch)
    loss = F.mse_loss(y, batch)
loss.backward()  # outside: it repeats the types of the forward pass

tensors = {"y": y, "loss": loss, "weight": mlp[0].weight, "grad": mlp[0].weight.grad}
kept_types = {name: str(t.dtype).removeprefix("torch.") for name, t in tensors.items()}
print(kept_types)
# --8<-- [end:use]


store = dist.HashStore()  # type: ignore[attr-defined]
# --8<-- [start:fsdp]
dist.init_process_group("gloo", rank=0, world_size=1, store=store)  # under torchrun: ("nccl")
mesh = init_device_mesh("cpu", (1,))  # on GPUs: ("cuda", (dist.get_world_size(),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
sharded = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64))  # made in fp32
for module in (*sharded, sharded):  # each layer, then the whole
    fully_shard(module, mesh=mesh, mp_policy=policy)

y = sharded(batch)  # comes out of the norm
F.mse_loss(y.float(), batch).backward()
fsdp_types = {"y": y, "weight": sharded[1].weight, "grad": sharded[1].weight.grad}
print({name: str(t.dtype) for name, t in fsdp_types.items()})
dist.destroy_process_group()
# --8<-- [end:fsdp]
assert [t.dtype for t in fsdp_types.values()] == [BF16, FP32, FP32]


def output_types(device: str) -> dict[str, str]:
    """Type of each operation's answer; x is fp32, h from a linear layer."""
    x = torch.ones(16, 16, device=device)
    q = x.view(1, 2, 8, 16)  # one sequence, two heads
    ids = torch.zeros(16, dtype=torch.long, device=device)
    with torch.autocast(device, dtype=BF16):
        h = F.linear(x, x)
        answers = {
            "linear": h,
            "attention": F.scaled_dot_product_attention(q, q, q),
            "gelu": F.gelu(h),
            "mean": h.mean(),
            "h_plus_h": h + h,
            "h_plus_x": h + x,
            "softmax": F.softmax(h, dim=-1),
            "layer_norm": F.layer_norm(h, (16,)),
            "sum": h.sum(),
            "cross_entropy": F.cross_entropy(h, ids),
        }
    return {name: str(y.dtype).removeprefix("torch.") for name, y in answers.items()}


REFERENCE = {  # PyTorch's autocast op reference, for CUDA
    "linear": "bfloat16",
    "attention": "bfloat16",
    "gelu": "bfloat16",  # not listed: it keeps its input's type
    "mean": "bfloat16",  # not listed either
    "h_plus_h": "bfloat16",
    "h_plus_x": "float32",  # of two types, the wider wins
    "softmax": "float32",
    "layer_norm": "float32",
    "sum": "float32",
    "cross_entropy": "float32",
}


measured_cpu_types = output_types("cpu")
measured_gpu = torch.cuda.is_available()
measured_cuda_types = output_types("cuda") if measured_gpu else dict.fromkeys(REFERENCE)
measured_unlike = [op for op in REFERENCE if measured_cpu_types[op] != REFERENCE[op]]
print("a CPU departs from CUDA's list in", measured_unlike)


class Casts(TorchDispatchMode):
    """Notes each tensor that is converted to another type."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cast: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch in place of each operation."""
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and result.dtype != args[0].dtype:
            self.cast.append(args[0])
        return result


LAYER_TOKENS = 48  # a size that no weight has
layers = {
    "fp32": GPT2Block(GPT2_SMALL, fused),
    "autocast": GPT2Block(GPT2_SMALL, fused),
    "bf16": GPT2Block(GPT2_SMALL, fused).to(BF16),
}
noted, per_feature = {}, {}
for name, block in layers.items():
    dtype = BF16 if name == "bf16" else FP32
    x = torch.randn(1, LAYER_TOKENS, GPT2_SMALL.d_model, dtype=dtype, requires_grad=True)
    with Casts() as casts, torch.autocast("cpu", dtype=BF16, enabled=name == "autocast"):
        kept = saved_tensors(partial(block, x), besides=block.parameters())
    of_tokens = [t for t in kept if LAYER_TOKENS in t.shape]  # not the cast weights
    noted[name] = casts.cast
    held = sum(t.untyped_storage().nbytes() for t in of_tokens)
    per_feature[name] = held / (LAYER_TOKENS * GPT2_SMALL.d_model)
weights = {parameter.data_ptr() for parameter in layers["autocast"].parameters()}
of_weights = sum(t.data_ptr() in weights for t in noted["autocast"])
casts_in_layer = {"all": len(noted["autocast"]), "of_parameters": of_weights}
kept_per_feature = {name: round(kept, 2) for name, kept in per_feature.items()}
print(casts_in_layer, kept_per_feature)
assert not noted["fp32"] and not noted["bf16"]


def use_twice(cache: bool) -> int:
    """Uses an fp32 weight twice: bytes of its bf16 copies kept for backward."""
    weight = nn.Parameter(torch.ones(256, 256))
    x = torch.ones(8, 256, requires_grad=True)

    def forward() -> torch.Tensor:
        with torch.autocast("cpu", dtype=BF16, cache_enabled=cache):
            return F.linear(F.linear(x, weight), weight)

    kept = saved_tensors(forward, besides=[weight, x])
    return sum(get_memory_usage(copy) for copy in kept if copy.shape == weight.shape)


cast_bytes, uncached_bytes = use_twice(cache=True), use_twice(cache=False)
cast_per_parameter = cast_bytes // 256**2
print(f"casts: {cast_bytes:,} bytes with the cache, {uncached_bytes:,} without")
assert cast_per_parameter == 2 and uncached_bytes == 2 * cast_bytes


# --8<-- [start:underflow]
FACTOR = 1e-4  # once in the forward pass, once in the loss: the gradient is 1e-8
SCALE = 2**16  # where GradScaler starts


def gradient_of(dtype: torch.dtype, scale: int = 1) -> float:
    """Gradient of an fp32 weight in a product of dtype, with loss scaling."""
    weight = nn.Parameter(torch.ones(1, 1))
    with torch.autocast("cpu", dtype=dtype):
        y = F.linear(torch.full((1, 1), FACTOR), weight)
    loss = y.float().sum() * FACTOR
    (scaled,) = torch.autograd.grad(loss * scale, weight)
    return scaled.item() / scale


small_gradient = {
    "fp16": gradient_of(FP16),
    "fp16_scaled": gradient_of(FP16, SCALE),
    "bf16": gradient_of(BF16),
}
print(small_gradient)
# --8<-- [end:underflow]
assert small_gradient["fp16"] == 0  # underflow: this weight learns nothing
assert math.isclose(small_gradient["fp16_scaled"], 1e-8, rel_tol=2**-10)
assert math.isclose(small_gradient["bf16"], 1e-8, rel_tol=2**-7)  # unscaled


# --8<-- [start:loop]
def scaled_step(
    x: torch.Tensor,
    weight: nn.Parameter,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> None:
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype=torch.float16):
        loss = F.linear(x, weight).float().sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # before clipping: the gradients are still too large
    nn.utils.clip_grad_norm_([weight], max_norm=1.0)
    scaler.step(optimizer)  # skips if a gradient is inf or NaN
    scaler.update()  # a skip halves the scale, 2,000 good steps double it


# --8<-- [end:loop]


# --8<-- [start:scaler]
GRADIENT = 8.0
weight = nn.Parameter(torch.ones(1, 1))
optimizer = torch.optim.SGD([weight], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
scales, scaled_weights = [], []
for _ in range(6):
    scaled_step(torch.full((1, 1), GRADIENT), weight, optimizer, scaler)
    scales.append(scaler.get_scale())
    scaled_weights.append(round(weight.item(), 2))
skipped_steps = scaled_weights.count(1.0)
print("scale: ", scales)
print("weight:", scaled_weights)
# --8<-- [end:scaler]
assert GRADIENT * scales[-1] <= torch.finfo(FP16).max < GRADIENT * scales[-1] * 2


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


walked = {
    "bf16": walk(BF16).item(),
    "fp32_master": walk(FP32).to(BF16).item(),  # updated in fp32, rounded to be used
}
print(walked)
# --8<-- [end:stall]
assert walked == {"bf16": 1.0, "fp32_master": 2.0}
for lost, moved in ((2**-8, 2**-8 + 2**-16), (-(2**-9), -(2**-9) - 2**-17)):  # eps/2 up, eps/4 down
    assert torch.tensor(1.0 + lost).to(BF16) == 1 != torch.tensor(1.0 + moved).to(BF16)


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


measured_threads = torch.get_num_threads()
torch.set_num_threads(1)  # products this small only wait for threads
measured_curves = {
    name: train(recipe)
    for name, recipe in RECIPES.items()
    if name != "master_fp32_gradients"  # one backward a step: nothing to add up
}
torch.set_num_threads(measured_threads)

measured_losses = {name: curve[-1] for name, curve in measured_curves.items()}
for name, last in measured_losses.items():
    print(f"{name:13} {last:.1e}")
measured_worst = max(measured_losses[name] for name in ("fp32", "autocast", "master"))
for name in ("fp32_moments", "bf16"):  # weights that exist in bf16 alone
    assert measured_losses[name] > 100 * measured_worst


# --8<-- [start:predict]
D_MODEL, TOKENS = 4096, 8192
h100 = GPUS["H100 SXM"]  # a row of the table of peaks
peaks = h100.peak_flop_per_second  # dense


def predict_seconds(mode: str) -> float:
    """Matmuls at the peak, then AdamW's traffic at the full bandwidth."""
    N = 8 * D_MODEL**2  # two matrices, d × 4d and back
    return 6 * N * TOKENS / peaks[mode] + 28 * N / h100.bandwidth_bytes_per_second


fp32_seconds = predict_seconds("float32")
for mode in ("float32", "tf32", "bfloat16"):
    seconds, peak = predict_seconds(mode), peaks[mode] / peaks["float32"]
    faster = fp32_seconds / seconds
    print(f"{mode:9} {seconds * 1e3:5.1f} ms  {faster:4.1f}× (peak {peak:.1f}×)")
# --8<-- [end:predict]
predicted_h100_seconds = predict_seconds("bfloat16")
predicted_step_ratio = fp32_seconds / predicted_h100_seconds
bf16_over_fp32_ratio = peaks["bfloat16"] / peaks["float32"]
bf16_over_tf32_ratio = peaks["bfloat16"] / peaks["tf32"]


def training_step(low: torch.dtype | None) -> Callable[[], None]:
    """A step of a feed-forward block; low: autocast's type, or None."""
    device = get_device()
    d_model, tokens = (D_MODEL, TOKENS) if measured_gpu else (256, 256)
    up, down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)
    block = nn.Sequential(nn.LayerNorm(d_model), up, nn.GELU(), down).to(device)
    optimizer = torch.optim.AdamW(block.parameters(), fused=True)
    scaler = torch.amp.GradScaler(device.type, enabled=low is FP16)
    x = torch.randn(tokens, d_model, device=device)
    target = torch.randn_like(x)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=low, enabled=low is not None):
            loss = F.mse_loss(x + block(x), target)
        scaler.scale(loss).backward()  # outside: it repeats forward's types
        scaler.step(optimizer)
        scaler.update()

    return step


torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least
lows = {"fp32": None, "bf16": BF16, "fp16": FP16}
measured_steps = {name: time_call(training_step(low)) for name, low in lows.items()}
torch.set_num_threads(measured_threads)
measured_fp32 = measured_steps["fp32"].median_seconds
measured_speedup_ratio = {n: measured_fp32 / t[0] for n, t in measured_steps.items()}
print({name: round(ratio, 2) for name, ratio in measured_speedup_ratio.items()})


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
print(stall_limit, standing_share)
# --8<-- [end:exercise_1]
assert stall_limit["1e-3"] == 0.5 and standing_share["1e-3"] == 0


# --8<-- [start:exercise_2]
CONFIDENCE = 0.999
FORMATS = {"fp32": FP32, "fp16": FP16, "bf16": BF16}
stored = {name: torch.tensor(CONFIDENCE, dtype=t).item() for name, t in FORMATS.items()}
confident_loss = {name: round(0 - math.log(p), 8) for name, p in stored.items()}
print(confident_loss)
# --8<-- [end:exercise_2]
assert confident_loss["bf16"] == 0  # nothing left to learn, says bf16


# --8<-- [start:exercise_3]
def state_of_torch(dtype: torch.dtype) -> int:
    """Bytes a parameter that torch's AdamW leaves alive; its counter aside."""
    weight = nn.Parameter(torch.ones(512, 512, dtype=dtype))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([weight])
    optimizer.step()
    moments = [t for t in optimizer.state[weight].values() if t.numel() > 1]
    held: int = sum(t.nbytes for t in (weight, weight.grad, *moments))
    return held // 512**2


torch_bytes = {"fp32": state_of_torch(FP32), "bf16": state_of_torch(BF16)}
print(torch_bytes)
# --8<-- [end:exercise_3]
assert torch_bytes == {name: state_bytes[name] for name in torch_bytes}


# --8<-- [start:exercise_4]
EIGHT_BILLION, CARD_BYTES = 8e9, 80e9
each_bytes = {  # a parameter
    "torchtitan": 4 + 4 + 8,  # its defaults: fp32 weights, bf16 in matmuls
    "megatron": 2 + 4 + 4 + 8,  # --bf16
    "torchtitan_bf16": 2 + 2 + 4,  # dtype = "bfloat16"
}
config_bytes = {name: each * EIGHT_BILLION for name, each in each_bytes.items()}
cards_needed = {name: math.ceil(held / CARD_BYTES) for name, held in config_bytes.items()}
room_bytes = CARD_BYTES - config_bytes["torchtitan_bf16"]
print(config_bytes, cards_needed)
# --8<-- [end:exercise_4]
assert list(each_bytes.values()) == [state_bytes[name] for name in ("autocast", "master_fp32_gradients", "bf16")]
