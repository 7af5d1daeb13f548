# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What it costs to keep less: activation checkpointing and gradient accumulation, in bytes, FLOPs and seconds."""

# --8<-- [start:setup]
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

# accounting.py, the book's toolkit, lies beside this file
from accounting import (
    Timing,
    Trace,
    divide,
    get_device,
    get_peak_flop_per_second,
    saved_bytes,
    time_call,
)
from torch import Tensor, nn
from torch.utils.checkpoint import (
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)
from torch.utils.flop_counter import FlopCounterMode

# --8<-- [end:setup]


# --8<-- [start:idea]
mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).double()
x = torch.linspace(-1, 1, 32 * 64, dtype=torch.float64).view(32, 64).requires_grad_()


def plain() -> Tensor:
    out: Tensor = mlp(x)
    return out


def checkpointed() -> Tensor:
    out: Tensor = checkpoint(mlp, x, use_reentrant=False)
    return out


plain_bytes = saved_bytes(plain, mlp.parameters())
checkpointed_bytes = saved_bytes(checkpointed, mlp.parameters())
(plain_grad,) = torch.autograd.grad(plain().pow(2).sum(), x)
(checkpointed_grad,) = torch.autograd.grad(checkpointed().pow(2).sum(), x)
same_gradient = torch.equal(plain_grad, checkpointed_grad)
print(f"kept {plain_bytes:,} B, checkpointed {checkpointed_bytes:,} B")
print("same gradient, bit for bit:", same_gradient)
assert checkpointed_bytes == 8 * x.numel()  # the input alone
assert same_gradient
# --8<-- [end:idea]


# --8<-- [start:model]
@dataclass(frozen=True)
class Sizes:
    """A model's and a batch's; GPT-2 small unless told otherwise."""

    num_layers: int = 12
    d_model: int = 768
    num_heads: int = 12
    vocab_size: int = 50257
    batch: int = 8
    seq_len: int = 1024
    dropout: float = 0.0


class Block(nn.Module):
    """Attention, then an MLP; each behind a norm and beside a residual path."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d, self.sizes = sizes.d_model, sizes
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.checkpoint_core = False

    def drop(self, x: Tensor) -> Tensor:
        p = self.sizes.dropout
        return torch.native_dropout(x, p, train=True)[0] if p else x

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What makes the s × s tensors."""
        s, d = q.shape[-2:]
        future = torch.full((s, s), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
        scores = q @ k.mT / d**0.5 + future  # (b, a, s, s)
        return self.drop(scores.softmax(-1)) @ v

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.ln_1(x)).unflatten(-1, (3, self.sizes.num_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (b, a, s, h / a)
        again = partial(checkpoint, self.core, use_reentrant=False)
        attended = (again if self.checkpoint_core else self.core)(q, k, v)
        x = x + self.drop(self.proj(attended.transpose(1, 2).flatten(2)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln_2(x)))))


# --8<-- [end:model]


# --8<-- [start:strategies]
STRATEGIES = ("none", "attention", "products", "full")  # what is checkpointed
PRODUCTS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]  # with weights


def run_block(block: Block, x: Tensor, strategy: str) -> Tensor:
    """A block, keeping what the strategy keeps."""
    block.checkpoint_core = strategy == "attention"
    if strategy in ("none", "attention"):
        out: Tensor = block(x)
    elif strategy == "products":  # a policy: these results are kept, all else is not
        contexts = partial(create_selective_checkpoint_contexts, PRODUCTS)
        out = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    else:
        out = checkpoint(block, x, use_reentrant=False)
    return out


class GPT2(nn.Module):
    """Tokens (b, s + 1) → the mean loss of predicting each from those before."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.positions = nn.Embedding(sizes.seq_len, sizes.d_model)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.num_layers))
        self.ln_f = nn.LayerNorm(sizes.d_model)

    def forward(self, text: Tensor, strategy: str = "none") -> Tensor:
        x = self.tokens(text[:, :-1]) + self.positions.weight
        for block in self.blocks:
            assert isinstance(block, Block)
            x = run_block(block, x, strategy)
        logits = F.linear(self.ln_f(x), self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())


def make(sizes: Sizes, dtype: torch.dtype, device: str) -> tuple[GPT2, Tensor]:
    """A model and a batch of random tokens for it."""
    with torch.device(device):
        model = GPT2(sizes).to(dtype)
        return model, torch.randint(sizes.vocab_size, (sizes.batch, sizes.seq_len + 1))


# --8<-- [end:strategies]


# --8<-- [start:count]
def count(strategy: str, sizes: Sizes, pieces: int = 1) -> dict[str, int]:
    """Bytes above the weights, and FLOPs, of forward and backward; on meta."""
    model, text = make(sizes, torch.bfloat16, "meta")
    with Trace() as trace, FlopCounterMode(display=False) as counter:
        if pieces > 1:  # a piece that is not the first finds gradients there
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        loss = model(text.chunk(pieces)[0], strategy)
        kept, forward_flops = trace.live_bytes, counter.get_total_flops()
        loss.backward()
    return {
        "kept_bytes": kept,
        "predicted_peak_bytes": trace.peak_bytes,
        "forward_flops": forward_flops * pieces,
        "step_flops": counter.get_total_flops() * pieces,
    }


GPT2_SMALL = Sizes()
batch = GPT2_SMALL.batch
strategies = {name: count(name, GPT2_SMALL) for name in STRATEGIES}
model_flops = strategies["none"]["step_flops"]  # what the mathematics asks for
kept_share = {n: s["kept_bytes"] / strategies["none"]["kept_bytes"] for n, s in strategies.items()}
hfu_to_mfu_ratio = {name: s["step_flops"] / model_flops for name, s in strategies.items()}
for name, counted in strategies.items():
    print(f"{name:10}{counted['kept_bytes'] / 2**20:8,.0f} MiB kept", end=", ")
    print(f"{counted['step_flops']:,} FLOPs, {hfu_to_mfu_ratio[name]:.4f}")
# --8<-- [end:count]


# --8<-- [start:by_hand]
sbh = GPT2_SMALL.seq_len * GPT2_SMALL.batch * GPT2_SMALL.d_model
assb = GPT2_SMALL.num_heads * GPT2_SMALL.seq_len**2 * GPT2_SMALL.batch
block_by_hand_bytes = {  # in a 16-bit format, without dropout and the norms' statistics
    "none": 32 * sbh + 2 * assb,  # everything
    "attention": 32 * sbh,  # all but the softmax
    "products": 2 * sbh + 2 * (3 + 1 + 4 + 1) * sbh,  # the input, and four results
    "full": 2 * sbh,  # the input
}
logits_bytes = 4 * GPT2_SMALL.seq_len * GPT2_SMALL.batch * GPT2_SMALL.vocab_size
by_hand_ratio = {
    name: strategies[name]["kept_bytes"] / (GPT2_SMALL.num_layers * size + logits_bytes)
    for name, size in block_by_hand_bytes.items()
}
print({name: f"{ratio:.3f}" for name, ratio in by_hand_ratio.items()})
assert all(1 <= ratio < 1.02 for ratio in by_hand_ratio.values())
# --8<-- [end:by_hand]


# --8<-- [start:four_thirds]
CLAIMED_RATIO = 4 / 3  # forward 1, backward 2, forward again 1: 4 instead of 3


def count_block(sizes: Sizes, early_stop: bool) -> float:
    """FLOPs of a block with full recomputation over those without."""
    flops = []
    for strategy in ("none", "full"):
        shape = (1, sizes.seq_len, sizes.d_model)
        h = torch.empty(shape, device="meta", requires_grad=True)
        block = Block(sizes).to("meta")
        counter = FlopCounterMode(display=False)
        with counter, set_checkpoint_early_stop(early_stop):
            run_block(block, h, strategy).sum().backward()
        flops.append(int(counter.get_total_flops()))
    return flops[1] / flops[0]


block_ratio = {
    "whole": count_block(GPT2_SMALL, early_stop=False),
    "early_stop": count_block(GPT2_SMALL, early_stop=True),
}
print({name: f"{ratio:.4f}" for name, ratio in block_ratio.items()})
assert block_ratio["early_stop"] < block_ratio["whole"] == CLAIMED_RATIO
# --8<-- [end:four_thirds]


# --8<-- [start:skipped]
b, s, d = GPT2_SMALL.batch, GPT2_SMALL.seq_len, GPT2_SMALL.d_model
forward_flops = strategies["none"]["forward_flops"]
head_flops = 2 * b * s * d * GPT2_SMALL.vocab_size
down_flops = GPT2_SMALL.num_layers * 2 * b * s * 4 * d * d
recomputed_flops = strategies["full"]["step_flops"] - model_flops
print(f"forward {forward_flops:,}")
print(f"head    {head_flops:,} and last products {down_flops:,} are not repeated")
assert recomputed_flops == forward_flops - head_flops - down_flops
# --8<-- [end:skipped]


# --8<-- [start:time_steps]
measured_on_gpu = torch.cuda.is_available()
measured_sizes = {  # GPT-2 small on a GPU
    "num_layers": 12 if measured_on_gpu else 2,
    "d_model": 768 if measured_on_gpu else 64,
    "num_heads": 12 if measured_on_gpu else 2,
    "vocab_size": 50257 if measured_on_gpu else 512,
    "batch": 8,
    "seq_len": 1024 if measured_on_gpu else 64,
}
measured_dtype = "bfloat16" if measured_on_gpu else "float32"


def step(model: GPT2, text: Tensor, strategy: str, pieces: int = 1) -> None:
    """Gradients of the mean loss, from nothing, the batch cut into pieces."""
    model.zero_grad()
    for piece in text.chunk(pieces):
        (model(piece, strategy) / pieces).backward()


def measure(strategy: str, pieces: int = 1) -> dict[str, Any]:
    """Time and memory of such a step; memory is None without a GPU."""
    sizes = Sizes(**measured_sizes)
    model, text = make(sizes, getattr(torch, measured_dtype), get_device().type)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least
    timing = time_call(partial(step, model, text, strategy, pieces), 5, min_seconds=0.05)
    torch.set_num_threads(threads)
    model.zero_grad()
    if measured_on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if measured_on_gpu else None
    step(model, text, strategy, pieces)
    peak = None if before is None else torch.cuda.max_memory_allocated() - before
    return {"timing": timing, "peak_bytes": peak}


measured_strategies = {name: measure(name) for name in STRATEGIES}
for name, measured in measured_strategies.items():
    print(f"{name:10}{measured['timing'].median_seconds * 1e3:8.2f} ms")
# --8<-- [end:time_steps]


# --8<-- [start:utilization]
peak_flop_per_second = get_peak_flop_per_second(measured_dtype)
measured_base: Timing = measured_strategies["none"]["timing"]
measured_flops = {  # of the sizes that were timed
    name: count(name, Sizes(**measured_sizes))["step_flops"] for name in STRATEGIES
}


def compare(strategy: str) -> dict[str, float | None]:
    """MFU counts the model's FLOPs, HFU all that were done; time as FLOPs predict it."""
    seconds = measured_strategies[strategy]["timing"].median_seconds
    predicted = measured_base.median_seconds * measured_flops[strategy] / measured_flops["none"]
    peak = strategies[strategy]["predicted_peak_bytes"] if measured_on_gpu else None
    return {
        "mfu": divide(measured_flops["none"] / seconds, peak_flop_per_second),
        "hfu_share": divide(measured_flops[strategy] / seconds, peak_flop_per_second),
        "predicted_seconds": predicted,
        "to_predicted_ratio": seconds / predicted,
        "to_none_ratio": seconds / measured_base.median_seconds,
        "peak_ratio": divide(measured_strategies[strategy]["peak_bytes"], peak),
    }


measured_comparison = {name: compare(name) for name in STRATEGIES}
for name, compared in measured_comparison.items():
    print(f"{name:10}FLOPs {measured_flops[name] / measured_flops['none']:.3f}", end=", ")
    print(f"time {compared['to_none_ratio']:.3f}")
# --8<-- [end:utilization]


# --8<-- [start:accumulate]
torch.manual_seed(0)
rows = torch.randn(64, 32, dtype=torch.float64)
targets = torch.randn(64, dtype=torch.float64)
weight = torch.randn(32, dtype=torch.float64, requires_grad=True)


def gradient(pieces: int, divide_loss: bool = True) -> Tensor:
    """The gradient of the mean squared error, accumulated over pieces of the batch."""
    weight.grad = None
    for x, y in zip(rows.chunk(pieces), targets.chunk(pieces), strict=True):
        loss = F.mse_loss(x @ weight, y)
        (loss / pieces if divide_loss else loss).backward()  # adds to weight.grad
    assert weight.grad is not None
    return weight.grad


PIECES, TOLERANCE = 8, 1e-12  # the order of the sums differs, so the last digits may
whole = gradient(1)
accumulates = torch.allclose(gradient(PIECES), whole, rtol=TOLERANCE, atol=TOLERANCE)
undivided = gradient(PIECES, divide_loss=False)
too_large = round((undivided.norm() / whole.norm()).item(), 6)
print("the same gradient:", accumulates, " without dividing:", too_large, "times as large")
assert accumulates and too_large == PIECES
# --8<-- [end:accumulate]


# --8<-- [start:pieces]
SPLITS = (1, 2, 4, 8)

weights, _ = make(GPT2_SMALL, torch.bfloat16, "meta")
gradient_bytes = 2 * sum(p.numel() for p in weights.parameters())
splits = {1: strategies["none"]} | {n: count("none", GPT2_SMALL, n) for n in SPLITS[1:]}
for n, counted in splits.items():
    print(f"pieces: {n}, kept: {counted['kept_bytes'] / 2**20:8,.0f} MiB", end=", ")
    print(f"peak: {counted['predicted_peak_bytes'] / 2**20:8,.0f} MiB")
    assert counted["step_flops"] == model_flops
    if n > 1:  # a part of the activations, and all gradients, which wait for the other parts
        expected = splits[1]["kept_bytes"] / n + gradient_bytes
        assert abs(counted["kept_bytes"] / expected - 1) < 1e-4
# --8<-- [end:pieces]


# --8<-- [start:time_pieces]
measured_splits = {n: measure("none", n) for n in SPLITS}
measured_whole: Timing = measured_splits[1]["timing"]
measured_splits_ratio = {
    n: row["timing"].median_seconds / measured_whole.median_seconds for n, row in measured_splits.items()
}
measured_splits_peak_ratio = {
    n: divide(row["peak_bytes"], splits[n]["predicted_peak_bytes"]) for n, row in measured_splits.items()
}
print({n: f"{ratio:.2f} × the time of one" for n, ratio in measured_splits_ratio.items()})
# --8<-- [end:time_pieces]


# --8<-- [start:exercise_1]
DROPPING = Sizes(dropout=0.1)
dropping_ratio = count_block(DROPPING, early_stop=True)
print(f"with dropout {dropping_ratio:.4f}, without {block_ratio['early_stop']:.4f}")
assert dropping_ratio == CLAIMED_RATIO
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
REPORTED_HFU_SHARE = 0.52
reported_mfu_share = REPORTED_HFU_SHARE / CLAIMED_RATIO
print(f"MFU {reported_mfu_share:.0%}")
assert abs(reported_mfu_share - 0.39) < 1e-12
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
GROUPS = (1, 2, 3, 4, 6, 12)  # blocks a checkpoint


def grouped_bytes(blocks: int) -> int:
    """Inputs of all groups, and all of the one group that is being recomputed."""
    groups = GPT2_SMALL.num_layers // blocks
    return groups * block_by_hand_bytes["full"] + blocks * block_by_hand_bytes["none"]


grouped = {f"of_{n}_bytes": grouped_bytes(n) for n in GROUPS}
best_group = min(GROUPS, key=grouped_bytes)
print({name: f"{size / 2**20:,.0f} MiB" for name, size in grouped.items()}, "best:", best_group)
assert best_group == 1
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
errors = torch.tensor([4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0])  # a loss for each token
first, second = errors[:2], errors[2:]  # two texts, one shorter
true_mean = errors.mean().item()
mean_of_means = ((first.mean() + second.mean()) / 2).item()
sum_over_all = ((first.sum() + second.sum()) / len(errors)).item()
print("mean of all", true_mean, " of means", round(mean_of_means, 4), " right", sum_over_all)
assert sum_over_all == true_mean != mean_of_means
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
noisy_layer = nn.Linear(64, 64).double()
noisy = nn.Sequential(nn.Dropout(0.5), noisy_layer)


def noisy_gradients(preserve: bool) -> tuple[Tensor, Tensor]:
    """The weight's gradient, plain and checkpointed, from the same seed."""
    found = []
    for call in (
        noisy,
        partial(checkpoint, noisy, use_reentrant=False, preserve_rng_state=preserve),
    ):
        torch.manual_seed(0)
        loss = call(x.detach()).pow(2).sum()
        torch.manual_seed(1)  # whatever else draws random numbers before backward
        found.append(torch.autograd.grad(loss, noisy_layer.weight)[0])
    return found[0], found[1]


rng_preserved_equal = torch.equal(*noisy_gradients(preserve=True))
rng_lost_equal = torch.equal(*noisy_gradients(preserve=False))
print("random state restored:", rng_preserved_equal, " not restored:", rng_lost_equal)
assert rng_preserved_equal and not rng_lost_equal
# --8<-- [end:exercise_5]
