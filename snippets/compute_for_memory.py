# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What to try when a training step does not fit: what each remedy frees, in bytes, and costs, in FLOPs and seconds."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.lessons.measure import divide, get_device, get_peak_flop_per_second, time_call
from flops_bytes.lessons.models import (
    GPT2_SMALL,
    LLAMA_3_8B,
    Attend,
    build,
    eager,
    flash,
    flash_each,
    fused,
    gpt2,
    loss,
)
from flops_bytes.lessons.trace import Trace, saved_bytes
from flops_bytes.memory.events import step_events
from flops_bytes.memory.formulas import activation_bytes, layer_bytes
from flops_bytes.memory.step import StepConfig, decoder_moments, family_of
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.model.stack import stack_of
from flops_bytes.time.gpus import GPUS

# --8<-- [start:order]
REMEDIES: list[tuple[str, dict[str, Any]]] = [  # each on top of those above
    ("eager attention", {"fused": False}),
    ("fused attention", {"fused": True}),
    ("loss in 8 chunks", {"chunks": 8}),
    ("one sequence at a time", {"batch": 1, "accumulated": True}),
    ("keep only layer inputs", {"checkpointing": "full"}),
]
choices: dict[str, Any] = {"batch": 2, "recipe": "bf16"}
for name, remedy in REMEDIES:
    choices |= remedy
    moments = decoder_moments(LLAMA_3_8B, 8_192, **choices)
    peak = max(sum(lines.values()) for lines in moments.values())
    print(f"{name:24}{peak / 2**30:7.1f} GiB")
# --8<-- [end:order]


# --8<-- [start:idea]
mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).double()
x = torch.linspace(-1, 1, 32 * 64, dtype=torch.float64).view(32, 64).requires_grad_()

plain, checkpointed = partial(mlp, x), partial(checkpoint, mlp, x, use_reentrant=False)

plain_bytes = saved_bytes(plain, mlp.parameters())
checkpointed_bytes = saved_bytes(checkpointed, mlp.parameters())
print(f"kept {plain_bytes:,} B, checkpointed {checkpointed_bytes:,} B")

(plain_grad,) = torch.autograd.grad(plain().pow(2).sum(), x)
(checkpointed_grad,) = torch.autograd.grad(checkpointed().pow(2).sum(), x)
print("same gradient, bit for bit:", torch.equal(plain_grad, checkpointed_grad))
# --8<-- [end:idea]

assert checkpointed_bytes == 8 * x.numel()  # the input alone
assert torch.equal(plain_grad, checkpointed_grad)


# --8<-- [start:policy]
MATMULS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]  # with weights
OPTIONS: dict[str, dict[str, Any]] = {
    "layer inputs": {},
    "linear outputs": {"context_fn": partial(create_selective_checkpoint_contexts, MATMULS)},
}
for keep, options in OPTIONS.items():
    model = build(GPT2_SMALL, flash, torch.bfloat16)  # on meta: shapes, no data
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, **options)
    tokens = torch.zeros(8, 1_024, dtype=torch.int64, device="meta")
    with Trace() as trace:
        mean_loss = loss(model, tokens, tokens)
    print(f"{keep:16}{trace.live_bytes / 2**30:5.2f} GiB kept for the backward pass")
# --8<-- [end:policy]


again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # no dropout


def make(
    shape: Decoder,
    strategy: str,
    attend: Attend,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "meta",
) -> nn.Module:
    """The model, keeping what the strategy keeps."""
    core = partial(again, attend) if strategy == "attention" else attend
    model = build(shape, core, dtype, device)
    contexts = partial(create_selective_checkpoint_contexts, MATMULS)
    options = {"context_fn": contexts} if strategy == "products" else {}
    if strategy in ("products", "full"):
        for block in model.get_submodule("blocks").children():
            block.forward = partial(again, block.forward, **options)
    return model


SHAPES = {"gpt2": GPT2_SMALL, "llama": LLAMA_3_8B}
SIZES = {"gpt2": (1_024, 8), "llama": (8_192, 1)}  # T, b
STRATEGIES = {
    "eager": ("none", eager),
    "eager_attention": ("attention", eager),
    "none": ("none", flash),
    "products": ("products", flash),
    "full": ("full", flash),
}


def kept_of_layer(name: str, strategy: str, attend: Attend) -> int:
    """Bytes in bf16."""
    shape, (T, b) = SHAPES[name], SIZES[name]
    if strategy == "products":  # the input, and the results of q, k, v, out, and the MLP
        qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        wide = shape.d_ff * (2 if shape.gated else 1)
        return 2 * b * T * (shape.d_model + qkv + shape.d_model + wide + shape.d_model)
    checkpointing = {"attention": "selective"}.get(strategy, strategy)
    return sum(layer_bytes(shape, T, b, 2, attend is flash, checkpointing).values())


def count_kept(name: str, strategy: str, attend: Attend) -> int:
    """Bytes above the weights when the loss has been computed."""
    T, b = SIZES[name]
    model = make(SHAPES[name], strategy, attend)
    tokens = torch.zeros(b, T, dtype=torch.int64, device="meta")
    with Trace() as trace:
        mean_loss = loss(model, tokens, tokens)
    assert mean_loss.requires_grad  # and so all that backward needs is held
    return trace.live_bytes


layer_kept_bytes, kept_bytes = (
    {n: {which: count(n, *how) for which, how in STRATEGIES.items()} for n in SHAPES}
    for count in (kept_of_layer, count_kept)
)
for n, shape in SHAPES.items():
    outside = activation_bytes(replace(shape, layers=0), *SIZES[n])
    for which, kept in kept_bytes[n].items():
        print(f"{n:6}{which:16}{kept:16,} B kept")
        layers = shape.layers * layer_kept_bytes[n][which]
        assert kept == layers + sum(outside.values()) + 4  # the loss


CLAIMED_RATIO = 4 / 3  # forward 1, backward 2, forward again 1: 4 instead of 3


# --8<-- [start:repeated]
def repeated_flops(shape: Decoder, T: int, b: int, strategy: str, attend: Attend) -> int:
    """FLOPs done twice, where a checkpoint stops at what backward needs."""
    forward = forward_flops(shape, T, b)
    last = forward["mlp"] // (3 if shape.gated else 2)  # backward does not need its result
    by_checkpoint = {
        "none": 0,
        "attention": forward["scores"],  # the second matmul is the last
        "products": forward["scores"] + forward["values"],
        "full": sum(forward.values()) - forward["head"] - last,
    }
    by_kernel = forward["scores"] if attend is flash else 0
    return by_checkpoint[strategy] + by_kernel


def hfu_to_mfu(n: str, strategy: str, attend: Attend) -> float:
    model = 3 * sum(forward_flops(SHAPES[n], *SIZES[n]).values())
    return 1 + repeated_flops(SHAPES[n], *SIZES[n], strategy, attend) / model


hfu_to_mfu_ratio = {n: {which: hfu_to_mfu(n, *how) for which, how in STRATEGIES.items()} for n in SHAPES}
checkpointed_to_none_ratio = {  # the same step, with fused attention, with checkpoints and without
    n: {which: ratios[which] / ratios["none"] for which in ("products", "full")}
    for n, ratios in hfu_to_mfu_ratio.items()
}
# --8<-- [end:repeated]


def count_step(shape: Decoder, T: int, b: int, strategy: str, attend: Attend) -> int:
    """FLOPs of forward and backward by PyTorch's counter."""
    model = make(shape, strategy, flash_each if attend is flash else attend)
    tokens = torch.zeros(b, T, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        loss(model, tokens, tokens).backward()
    return int(counter.get_total_flops())


for shape in (replace(GPT2_SMALL, layers=2), replace(LLAMA_3_8B, layers=2)):  # all layers are alike
    once = 3 * sum(forward_flops(shape, 1_024).values())
    for how in STRATEGIES.values():
        assert count_step(shape, 1_024, 1, *how) == once + repeated_flops(shape, 1_024, 1, *how)
logits_kept_bytes = 4 * 8 * 1_024 * GPT2_SMALL.vocab


# --8<-- [start:time_steps]
measured_on_gpu = torch.cuda.is_available()
measured_dtype = "bfloat16" if measured_on_gpu else "float32"
TIMED = GPT2_SMALL if measured_on_gpu else replace(gpt2(128, 2, 2), vocab=512, positions=64)  # on a CPU a toy
measured_sizes = {"layers": TIMED.layers, "d_model": TIMED.d_model, "batch": 8, "seq_len": TIMED.positions}


def step(model: nn.Module, text: Tensor, pieces: int) -> None:
    """Gradients of the mean loss, from nothing, the batch cut into pieces."""
    model.zero_grad()
    for piece in text.chunk(pieces):
        (loss(model, piece[:, :-1], piece[:, 1:]) / pieces).backward()


def measure(strategy: str, pieces: int = 1) -> dict[str, Any]:
    """Time and memory of such a step; memory is None without a GPU."""
    device = get_device().type
    model = make(TIMED, strategy, fused, getattr(torch, measured_dtype), device)
    text = torch.randint(TIMED.vocab, (8, TIMED.positions + 1), device=device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least
    timing = time_call(partial(step, model, text, pieces), 7, min_seconds=0.05)
    torch.set_num_threads(threads)
    model.zero_grad()
    if not measured_on_gpu:
        return {"timing": timing, "peak_bytes": None}
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(model, text, pieces)
    return {"timing": timing, "peak_bytes": torch.cuda.max_memory_allocated() - before}


FUSED_STRATEGIES = ("none", "products", "full")
measured_strategies = {name: measure(name) for name in FUSED_STRATEGIES}
# --8<-- [end:time_steps]


peak_flop_per_second = get_peak_flop_per_second(measured_dtype)
measured_model_flops = 3 * sum(forward_flops(TIMED, TIMED.positions, 8).values())


def compare(strategy: str) -> dict[str, float | None]:
    """MFU counts the model's FLOPs, HFU all that were done; time as FLOPs predict it."""
    done = measured_model_flops + repeated_flops(TIMED, TIMED.positions, 8, strategy, flash)
    base = measured_model_flops + repeated_flops(TIMED, TIMED.positions, 8, "none", flash)
    seconds, none_seconds = (measured_strategies[each]["timing"].median_seconds for each in (strategy, "none"))
    return {
        "predicted_seconds": none_seconds * done / base,
        "to_predicted_ratio": seconds / none_seconds / (done / base),
        "to_none_ratio": seconds / none_seconds,
        "mfu": divide(measured_model_flops / seconds, peak_flop_per_second),
        "hfu_share": divide(done / seconds, peak_flop_per_second),
    }


measured_comparison = {name: compare(name) for name in FUSED_STRATEGIES}
for name, compared in measured_comparison.items():
    print(f"{name:10}{compared['to_none_ratio']:.2f} × the time, {compared['to_predicted_ratio']:.2f} × predicted")


# --8<-- [start:accumulate]
torch.manual_seed(0)
rows = torch.randn(64, 32, dtype=torch.float64)
targets = torch.randn(64, dtype=torch.float64)
weight = torch.randn(32, dtype=torch.float64, requires_grad=True)


def gradient(pieces: int, divisor: int) -> Tensor:
    """Of the mean squared error, accumulated over pieces of the batch."""
    weight.grad = torch.zeros_like(weight)
    for x, y in zip(rows.chunk(pieces), targets.chunk(pieces), strict=True):
        (F.mse_loss(x @ weight, y) / divisor).backward()  # adds to weight.grad
    return weight.grad


whole = gradient(pieces=1, divisor=1)
print("divided by the pieces:", torch.allclose(gradient(pieces=8, divisor=8), whole))
too_large = round((gradient(pieces=8, divisor=1).norm() / whole.norm()).item(), 6)
print("not divided:", too_large, "times as large")
# --8<-- [end:accumulate]

PIECES = 8
assert too_large == PIECES and torch.allclose(gradient(PIECES, PIECES), whole, rtol=1e-12, atol=1e-12)


SPLITS = (1, 2, 4, 8)


def trace_piece(pieces: int, T: int = 1_024, b: int = 8) -> dict[str, int]:
    """Bytes above GPT-2 small's weights in the last of so many pieces."""
    model = make(GPT2_SMALL, "none", flash)
    tokens = torch.zeros(b // pieces, T, dtype=torch.int64, device="meta")
    with Trace() as trace:
        if pieces > 1:  # the pieces before have left gradients
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        mean_loss = loss(model, tokens, tokens)
        kept = trace.live_bytes
        mean_loss.backward()
    return {"kept_bytes": kept, "peak_bytes": trace.peak_bytes}


gradient_bytes = 2 * sum(parameters(GPT2_SMALL).values())
splits = {pieces: trace_piece(pieces) for pieces in SPLITS}
for pieces, traced in splits.items():
    piece = activation_bytes(GPT2_SMALL, 1_024, 8 // pieces)
    waiting = gradient_bytes if pieces > 1 else 0
    assert traced["kept_bytes"] == sum(piece.values()) + waiting + 4  # the loss


measured_splits = {pieces: measure("none", pieces) for pieces in SPLITS}
measured_splits_ratio = {
    pieces: row["timing"].median_seconds / measured_splits[1]["timing"].median_seconds
    for pieces, row in measured_splits.items()
}
measured_peak_ratio = {
    pieces: divide(row["peak_bytes"], splits[pieces]["peak_bytes"]) for pieces, row in measured_splits.items()
}


# --8<-- [start:chunks]
def loss_in_chunks(hidden: Tensor, head: nn.Linear, targets: Tensor, chunks: int) -> Tensor:
    """The mean loss, with its gradients. hidden: (tokens, d), targets: (tokens,), -100 for padding."""
    parts = [part.detach().requires_grad_() for part in hidden.chunk(chunks)]
    total, count = torch.zeros((), device=hidden.device), (targets != -100).sum()
    for part, words in zip(parts, targets.chunk(chunks), strict=True):
        one = F.cross_entropy(head(part).float(), words, reduction="sum") / count  # no name keeps the logits
        one.backward()  # adds to head.weight.grad, and lets the logits go
        total += one.detach()
    gradient = torch.cat([part.grad for part in parts if part.grad is not None])
    del part, parts  # which hold the same gradients
    hidden.backward(gradient)
    return total


# --8<-- [end:chunks]


logits_peak_bytes = 12 * 8 * 1_024 * GPT2_SMALL.vocab  # of GPT-2 small, all at once
vocabulary_head = nn.Linear(32, 500, bias=False)
words = torch.arange(64) * 7 % 500
words[:5] = -100  # padding
found = []
for chunks in (0, 8):
    vocabulary_head.zero_grad()
    features = torch.linspace(-1, 1, 64 * 32).view(64, 32).requires_grad_()
    if chunks:
        found_loss = loss_in_chunks(features * 2, vocabulary_head, words, chunks)
    else:  # all at once
        found_loss = F.cross_entropy(vocabulary_head(features * 2).float(), words)
        found_loss.backward()
    found.append((found_loss, features.grad, vocabulary_head.weight.grad.clone()))  # type: ignore[union-attr]
chunks_agree = all(torch.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in zip(*found, strict=True))
print("the same loss and gradients:", chunks_agree)
assert chunks_agree


# --8<-- [start:in_backward]
def update_in_backward(weights: Iterable[Tensor]) -> None:
    """From now on, backward() changes each of these as soon as its gradient is there, and frees the gradient.

    Not for a weight whose gradient several calls of backward() make.
    """
    optimizers: dict[Tensor, torch.optim.AdamW] = {}

    def update(weight: Tensor) -> None:
        optimizers[weight].step()
        optimizers[weight].zero_grad()

    for weight in weights:
        optimizers[weight] = torch.optim.AdamW([weight])
        weight.register_post_accumulate_grad_hook(update)


# --8<-- [end:in_backward]


usual, hooked = (nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(2))
hooked.load_state_dict(usual.state_dict())
update_in_backward(hooked.parameters())
inputs = torch.linspace(-1, 1, 32 * 64).view(32, 64)
adamw = torch.optim.AdamW(usual.parameters())
for _ in range(3):
    usual(inputs).pow(2).mean().backward()
    adamw.step()
    adamw.zero_grad()
    hooked(inputs).pow(2).mean().backward()
same_update = all(map(torch.equal, usual.parameters(), hooked.parameters()))
print("the same weights after three steps, bit for bit:", same_update)
assert same_update and all(weight.grad is None for weight in hooked.parameters())


REPORTED_HFU_SHARE = 0.52
reported_mfu_share = REPORTED_HFU_SHARE / CLAIMED_RATIO
print(f"MFU {reported_mfu_share:.0%}")
assert abs(reported_mfu_share - 0.39) < 1e-12


# --8<-- [start:exercise_2]
GROUPS = (1, 2, 3, 4, 6, 12)  # layers a checkpoint
of_layer = {how: sum(layer_bytes(GPT2_SMALL, 1_024, 8, 2, True, how).values()) for how in ("full", "none")}


def grouped_bytes(layers: int) -> int:
    """Inputs of all groups of GPT-2's layers, and all of the one group that is being computed again."""
    return GPT2_SMALL.layers // layers * of_layer["full"] + layers * of_layer["none"]


grouped = {f"of_{n}_bytes": grouped_bytes(n) for n in GROUPS}
best_group = min(GROUPS, key=grouped_bytes)
print({name: f"{size / 2**20:,.0f} MiB" for name, size in grouped.items()}, "best:", best_group)
assert best_group == 1


def whole_peak(layers: int) -> int:
    """Bytes of a whole step above weights and moments at their peak, by trace, the loss in 8 chunks."""
    model = build(GPT2_SMALL, flash, torch.bfloat16)
    blocks = list(model.blocks)
    groups: list[nn.Module] = [
        nn.Sequential(*blocks[first : first + layers]) for first in range(0, len(blocks), layers)
    ]
    for group in groups:
        group.forward = partial(checkpoint, group.forward, use_reentrant=False, preserve_rng_state=False)
    model.blocks = nn.ModuleList(groups)
    tokens = torch.zeros(8, 1_024, dtype=torch.int64, device="meta")
    with Trace() as trace:
        loss_in_chunks(model.hidden(tokens).flatten(0, 1), model.head, tokens.flatten(), 8)
    return trace.peak_bytes


whole_steps = {f"of_{n}_bytes": whole_peak(n) for n in GROUPS[:3]}
print({name: f"{size / 2**20:,.0f} MiB" for name, size in whole_steps.items()}, "for the whole step")
assert min(whole_steps, key=lambda name: whole_steps[name]) == "of_2_bytes"
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
errors = torch.tensor([4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0])  # a loss for each token
first, second = errors[:2], errors[2:]  # two texts, one shorter
true_mean = errors.mean().item()
mean_of_means = ((first.mean() + second.mean()) / 2).item()
sum_over_all = ((first.sum() + second.sum()) / len(errors)).item()
print("mean of all", true_mean, " of means", round(mean_of_means, 4), " right", sum_over_all)
assert sum_over_all == true_mean != mean_of_means
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
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
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
CARD_BYTES = int(GPUS["H100 SXM"].memory_bytes)  # as its datasheet counts
master_state_bytes = 16 * sum(parameters(LLAMA_3_8B).values())  # 2 + 2 + 4 + 8
fewest_cards = -(-master_state_bytes // CARD_BYTES)
print(f"{master_state_bytes / 2**30:.1f} GiB, {fewest_cards} cards for the state alone")
assert fewest_cards == 2
# --8<-- [end:exercise_5]


HELD = ("weights", "optimizer", "gradients", "activations", "logits")  # lines of a step, the lowest first


def held_over_step(checkpointing: str) -> dict[str, dict[str, int]]:
    """Bytes of each line in each part of a step of Llama 3 8B, in the order of the parts, when the part holds most."""
    stack, config = stack_of(LLAMA_3_8B), StepConfig(8_192, recipe="bf16", checkpointing=checkpointing)
    alive, fullest = Counter[str](), dict[str, dict[str, int]]()
    for event in step_events(stack, family_of(stack, composed=False), config):
        alive[event.line] += event.nbytes
        part = f"{event.phase} {event.part}"
        if alive.total() >= sum(fullest.get(part, {}).values()):
            fullest[part] = dict(alive)
    return fullest


_over_step = {which: held_over_step(which) for which in ("none", "per-op", "full")}
step_parts = list(_over_step["none"])
over_step_bytes = {
    which: {line: [held.get(line, 0) for held in parts.values()] for line in HELD}
    for which, parts in _over_step.items()
}
assert all(list(parts) == step_parts for parts in _over_step.values())
