# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What a forward pass keeps for the backward pass: by hand, by hooks, by formula, by the allocator's peak."""

# --8<-- [start:setup]
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

# accounting.py, the book's toolkit, lies beside this file
from accounting import GPUS, Trace, divide, get_device, meta, saved_bytes, saved_tensors
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

# --8<-- [end:setup]


# --8<-- [start:operations]
x = meta(8, 64).requires_grad_()
w = meta(64, 64).requires_grad_()
OPERATIONS: dict[str, Callable[[], Tensor]] = {
    "x + x": lambda: x + x,
    "2 * x": lambda: 2 * x,
    "x * x": lambda: x * x,
    "x @ w": lambda: x @ w,
    "relu": lambda: F.relu(x),
    "gelu": lambda: F.gelu(x),
    "softmax": lambda: x.softmax(-1),
    "layer_norm": lambda: F.layer_norm(x, (64,)),
    "dropout": lambda: torch.native_dropout(x, 0.1, train=True)[0],
}


def describe(call: Callable[[], Tensor]) -> list[str]:
    """What an operation keeps, by name."""
    made: list[Tensor] = []
    kept = saved_tensors(lambda: made.append(call()))
    known = (("x", x), ("w", w), ("result", made[0]))
    names = {StorageWeakRef(tensor.untyped_storage()): name for name, tensor in known}
    other = {torch.bool: "mask", torch.float32: "statistic"}  # made on the way
    storages = [(StorageWeakRef(t.untyped_storage()), other[t.dtype]) for t in kept]
    return sorted(names.get(storage, name) for storage, name in storages)


operations = {name: describe(call) for name, call in OPERATIONS.items()}
for name, keeps in operations.items():
    print(f"{name:12}{', '.join(keeps) or 'nothing'}")
with torch.no_grad():
    assert all(describe(call) == [] for call in OPERATIONS.values())
# --8<-- [end:operations]


# --8<-- [start:tiny]
TINY_BATCH, TINY_WIDTH, TINY_LAYERS = 2, 4, 2  # B, D and the number of D × D layers

tiny_weights = [meta(4, 4).requires_grad_() for _ in range(TINY_LAYERS)]
tiny_head = meta(4, 1).requires_grad_()
tiny_parameters = sum(weight.numel() for weight in [*tiny_weights, tiny_head])


def tiny_loss() -> Tensor:
    """Two rows of data through all layers, and the mean squared error."""
    h = meta(TINY_BATCH, TINY_WIDTH)
    for weight in tiny_weights:
        h = h @ weight
    return F.mse_loss((h @ tiny_head).squeeze(-1), meta(TINY_BATCH))


tiny_claimed_bytes = 4 * TINY_BATCH * TINY_WIDTH * TINY_LAYERS
tiny_kept = saved_tensors(tiny_loss, besides=[*tiny_weights, tiny_head])
tiny_tensors = [[list(t.shape), t.untyped_storage().nbytes()] for t in tiny_kept]
tiny_bytes = sum(t.untyped_storage().nbytes() for t in tiny_kept)
for tensor in tiny_kept:
    print(f"{tuple(tensor.shape)!s:8}{tensor.untyped_storage().nbytes():4} B")
print(f"kept {tiny_bytes} B, claimed {tiny_claimed_bytes} B")
assert tiny_bytes == 112 != tiny_claimed_bytes
# --8<-- [end:tiny]


# --8<-- [start:tiny_total]
# parameters, their gradients, AdaGrad's one state; 4 bytes each
tiny_state_bytes = 3 * 4 * tiny_parameters
tiny_total_bytes = {
    "claimed": tiny_state_bytes + tiny_claimed_bytes,
    "counted": tiny_state_bytes + tiny_bytes,
}
tiny_allocated_bytes = 512 * len(tiny_kept)  # each tensor here fits in one block
print(tiny_total_bytes)
print("activations as a GPU allocates them:", tiny_allocated_bytes)
assert tiny_total_bytes["claimed"] == 496
assert all(t.untyped_storage().nbytes() <= 512 for t in tiny_kept)
# --8<-- [end:tiny_total]


# --8<-- [start:gpt2]
NUM_LAYERS, D_MODEL, NUM_HEADS = 12, 768, 12  # L, h and a of GPT-2 small
VOCAB_SIZE, SEQ_LEN = 50257, 1024  # V, and the longest s

gelu_tanh = partial(F.gelu, approximate="tanh")


def mask_out(x: Tensor, p: float) -> Tensor:
    """Dropout as a GPU does it: its mask takes one byte an element."""
    return torch.native_dropout(x, p, train=True)[0] if p else x


@dataclass(frozen=True)
class Options:
    """What may differ from one block to another."""

    dropout: float = 0.1
    fused_attention: bool = False
    gelu: Callable[[Tensor], Tensor] = gelu_tanh
    drop: Callable[[Tensor, float], Tensor] = mask_out


# --8<-- [end:gpt2]


# --8<-- [start:block]
class Block(nn.Module):
    """Attention, then an MLP; each behind a norm and beside a residual path."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.ln_1, self.ln_2 = nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.proj = nn.Linear(D_MODEL, D_MODEL)
        self.up = nn.Linear(D_MODEL, 4 * D_MODEL)
        self.down = nn.Linear(4 * D_MODEL, D_MODEL)

    def drop(self, x: Tensor) -> Tensor:
        return self.options.drop(x, self.options.dropout)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention; all are (b, a, s, h / a)."""
        if self.options.fused_attention:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        s, d = q.shape[-2:]
        future = torch.full((s, s), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
        scores = q @ k.mT / d**0.5 + future  # (b, a, s, s)
        return self.drop(scores.softmax(-1)) @ v

    def forward(self, x: Tensor) -> Tensor:
        """(b, s, h) → (b, s, h)."""
        heads = self.qkv(self.ln_1(x)).unflatten(-1, (3, NUM_HEADS, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (b, a, s, h / a)
        x = x + self.drop(self.proj(self.attend(q, k, v).transpose(1, 2).flatten(2)))
        return x + self.drop(self.down(self.options.gelu(self.up(self.ln_2(x)))))


# --8<-- [end:block]


# --8<-- [start:by_hand]
def by_hand(s: int, b: int = 1, width: int = 2) -> dict[str, dict[str, int]]:
    """Bytes that a block keeps; width is the bytes of one activation, a mask's is 1."""
    sbh, assb = s * b * D_MODEL, NUM_HEADS * s * s * b
    return {
        "norms": {"inputs": 2 * width * sbh, "statistics": 4 * 4 * s * b},
        "attention": {
            "input": width * sbh,
            "qkv": 3 * width * sbh,
            "merged": width * sbh,
            "mask": sbh,
        },
        "scores": {"softmax": width * assb, "mask": assb, "dropped": width * assb},
        "mlp": {
            "input": width * sbh,
            "before_gelu": 4 * width * sbh,
            "after_gelu": 4 * width * sbh,
            "mask": sbh,
        },
    }


def total(parts: dict[str, dict[str, int]]) -> int:
    return sum(sum(tensors.values()) for tensors in parts.values())


block_by_hand_bytes = by_hand(SEQ_LEN)
part_bytes = {part: sum(tensors.values()) for part, tensors in block_by_hand_bytes.items()}
print(part_bytes, "together", f"{total(block_by_hand_bytes):,}")
# --8<-- [end:by_hand]


# --8<-- [start:formula]
def formula_bytes(s: int, b: int = 1) -> int:
    """Activations of a block in a 16-bit format (Korthikanti et al. 2022, equation 1)."""
    return 34 * s * b * D_MODEL + 5 * NUM_HEADS * s * s * b


block_formula_bytes = formula_bytes(SEQ_LEN)
print(f"{block_formula_bytes:,}")
assert total(block_by_hand_bytes) - block_formula_bytes == 16 * SEQ_LEN  # the statistics
# --8<-- [end:formula]


# --8<-- [start:hooks]
def count_block(
    s: int,
    b: int = 1,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "meta",
    **options: Any,
) -> int:
    """Bytes that autograd keeps of one block, its weights left out."""
    block = Block(Options(**options)).to(device, dtype)
    x = torch.zeros(b, s, D_MODEL, dtype=dtype, device=device, requires_grad=True)
    return saved_bytes(lambda: block(x), besides=block.parameters())


block_bytes = count_block(SEQ_LEN)
block_to_formula_ratio = block_bytes / block_formula_bytes
print(f"{block_bytes:,}, {block_to_formula_ratio:.5f} × the formula")
assert block_bytes == total(block_by_hand_bytes)
for s, b in ((256, 1), (256, 4), (1024, 8)):
    assert count_block(s, b) == total(by_hand(s, b))
    assert count_block(s, b, torch.float32) == total(by_hand(s, b, width=4))
# --8<-- [end:hooks]


# --8<-- [start:lengths]
LENGTHS = tuple(range(512, 4097, 512))

length_bytes = {s: count_block(s) for s in LENGTHS}


def sum_parts(parts: dict[str, dict[str, int]]) -> dict[str, int]:
    return {part: sum(tensors.values()) for part, tensors in parts.items()}


length_parts_bytes = {s: sum_parts(by_hand(s)) for s in LENGTHS}
for s, size in length_bytes.items():
    print(f"s = {s:5}: {size:14,} B, scores {length_parts_bytes[s]['scores'] / size:.0%}")
    assert size == sum(length_parts_bytes[s].values())
# --8<-- [end:lengths]


# --8<-- [start:variants]
VARIANTS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16_no_dropout": {"dropout": 0.0},
    "fp32": {"dtype": torch.float32},
    "fp32_no_dropout": {"dtype": torch.float32, "dropout": 0.0},
}
variants_bytes = {name: count_block(SEQ_LEN, **o) for name, o in VARIANTS.items()}
variants_ratio = {name: n / block_formula_bytes for name, n in variants_bytes.items()}
for name, ratio in variants_ratio.items():
    print(f"{name:17}{variants_bytes[name]:13,} B {ratio:7.3f} × the formula")
# --8<-- [end:variants]


# --8<-- [start:fused]
def fused_by_hand(s: int) -> int:
    """Bytes of a block in a 16-bit format whose attention keeps no s × s tensor.

    34sbh without the two masks; the norms' statistics; a float32 a row of scores.
    """
    return s * (32 * D_MODEL + 16 + 4 * NUM_HEADS)


fused_bytes = fused_by_hand(SEQ_LEN)
fused_to_formula_ratio = fused_bytes / block_formula_bytes

measured_fused_len = SEQ_LEN if torch.cuda.is_available() else 256
predicted_fused_bytes = fused_by_hand(measured_fused_len)
measured_fused_bytes = count_block(
    measured_fused_len,
    device=get_device().type,
    dropout=0.0,
    fused_attention=True,
)
measured_fused_ratio = measured_fused_bytes / predicted_fused_bytes
print(f"{fused_bytes:,} B {fused_to_formula_ratio:.3f} × the formula")
print(f"s = {measured_fused_len}: {predicted_fused_bytes:,} predicted", end=", ")
print(f"{measured_fused_bytes:,} measured")
# --8<-- [end:fused]


# --8<-- [start:model]
class GPT2(nn.Module):
    """Tokens and targets (b, s) → the mean loss."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.tokens = nn.Embedding(VOCAB_SIZE, D_MODEL)
        self.positions = nn.Embedding(SEQ_LEN, D_MODEL)
        self.blocks = nn.Sequential(*(Block(options) for _ in range(NUM_LAYERS)))
        self.ln_f = nn.LayerNorm(D_MODEL)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = self.ln_f(self.blocks(self.options.drop(x, self.options.dropout)))
        logits = F.linear(x, self.tokens.weight)  # the head is the embedding's table
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def make_model(dtype: torch.dtype = torch.bfloat16, device: str = "meta", **options: Any) -> GPT2:
    with torch.device(device):
        return GPT2(Options(**options)).to(dtype)


def make_batch(b: int, s: int, device: str = "meta") -> tuple[Tensor, Tensor]:
    """Tokens, and for each the next one."""
    text = torch.zeros(b, s + 1, dtype=torch.int64, device=device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


# --8<-- [end:model]


# --8<-- [start:count_model]
BATCH = 8


def count_model(b: int, s: int, dtype: torch.dtype = torch.bfloat16) -> int:
    """Bytes that autograd keeps of the whole model; data and weights left out."""
    model, (tokens, targets) = make_model(dtype), make_batch(b, s)
    return saved_bytes(lambda: model(tokens, targets), [*model.parameters(), tokens, targets])


model_parameters = sum(p.numel() for p in make_model().parameters())
sbh = SEQ_LEN * BATCH * D_MODEL
model_by_hand_bytes = {
    "blocks": NUM_LAYERS * total(by_hand(SEQ_LEN, BATCH)),
    "logits": 4 * SEQ_LEN * BATCH * VOCAB_SIZE,  # float32, as log-probabilities
    # the embedding's dropout mask; the last norm's input and statistics; the head's input
    # the number of targets, by which the loss is divided
    "rest": sbh + 2 * sbh + 8 * SEQ_LEN * BATCH + 2 * sbh + 4,
}
model_bytes = count_model(BATCH, SEQ_LEN)
logits_share = model_by_hand_bytes["logits"] / model_bytes
print(f"{model_parameters:,} parameters; activations kept: {model_bytes:,} B")
assert model_parameters == 124_439_808
assert model_bytes == sum(model_by_hand_bytes.values())
# --8<-- [end:count_model]


# --8<-- [start:claim]
CLAIMED = (1, 3)  # "so many times the parameters"
BATCHES, MODEL_LENGTHS = (1, 2, 4, 8), (128, 256, 512, 1024)

weight_bytes = 4 * model_parameters  # float32


def over_weights(s: int, b: int) -> float:
    return NUM_LAYERS * formula_bytes(s, b) / weight_bytes


to_weights = {b: {f"s{s}_ratio": over_weights(s, b) for s in MODEL_LENGTHS} for b in BATCHES}
for b, row in to_weights.items():
    print(f"b = {b}:", "".join(f"{ratio:8.2f}" for ratio in row.values()))
assert not all(CLAIMED[0] <= ratio <= CLAIMED[1] for row in to_weights.values() for ratio in row.values())
assert to_weights[8]["s1024_ratio"] == 8 * to_weights[1]["s1024_ratio"]  # linear in b
assert to_weights[1]["s1024_ratio"] > 2 * to_weights[1]["s512_ratio"]  # more than that in s
# --8<-- [end:claim]


# --8<-- [start:predict]
WIDTH_BYTES = {"bfloat16": 2, "float32": 4}


def predict_step(dtype: str) -> dict[str, int]:
    """Bytes of a training step with AdamW, all in one data type, without a GPU."""
    model, data = make_model(getattr(torch, dtype)), make_batch(BATCH, SEQ_LEN)
    size = WIDTH_BYTES[dtype] * model_parameters
    with Trace() as trace:
        loss = model(*data)
        kept = trace.live_bytes
        loss.backward()
    return {
        "parameters_bytes": size,
        "optimizer_bytes": 2 * size,
        "gradients_bytes": size,
        "activations_bytes": kept,
        "sum_bytes": 4 * size + kept,
        "peak_bytes": 3 * size + trace.peak_bytes,
    }


predicted_steps = {dtype: predict_step(dtype) for dtype in WIDTH_BYTES}
for name in predicted_steps["float32"]:
    both = (f"{step[name] / 2**30:12.2f} GiB" for step in predicted_steps.values())
    print(f"{name:24}", *both)
assert predicted_steps["bfloat16"]["activations_bytes"] == model_bytes + 4  # and the loss
# at the peak there are no gradients of weights yet, but two of the logits
logit_gradients_bytes = 2 * model_by_hand_bytes["logits"]
for step in predicted_steps.values():
    without = step["sum_bytes"] - step["gradients_bytes"] + logit_gradients_bytes
    assert abs(step["peak_bytes"] / without - 1) < 1e-3
# --8<-- [end:predict]


# --8<-- [start:measure]
def measure_step(dtype: str) -> dict[str, int | None]:
    """The same on the GPU; None without one, or where it does not fit."""
    names = ("kept_bytes", "peak_bytes")
    if not torch.cuda.is_available():
        return dict.fromkeys(names)
    try:
        model = make_model(getattr(torch, dtype), "cuda")
        data = make_batch(BATCH, SEQ_LEN, "cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):  # the first step makes the optimizer's state, the second counts
            optimizer.zero_grad()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            loss = model(*data)
            kept = torch.cuda.memory_allocated() - before
            loss.backward()
            peak = torch.cuda.max_memory_allocated()
            optimizer.step()
    except torch.OutOfMemoryError:
        return dict.fromkeys(names)
    return dict(zip(names, (kept, peak), strict=True))


measured_steps = {dtype: measure_step(dtype) for dtype in WIDTH_BYTES}


def compare(measured: dict[str, int | None], step: dict[str, int]) -> dict[str, float | None]:
    """Measured over predicted."""
    return {
        "kept_ratio": divide(measured["kept_bytes"], step["activations_bytes"]),
        "sum_ratio": divide(measured["peak_bytes"], step["sum_bytes"]),
        "peak_ratio": divide(measured["peak_bytes"], step["peak_bytes"]),
    }


measured_ratios = {dtype: compare(measured_steps[dtype], predicted_steps[dtype]) for dtype in WIDTH_BYTES}
for name, measured in measured_steps.items():
    print(name, measured if torch.cuda.is_available() else "not measured, no CUDA GPU here")
# --8<-- [end:measure]


# --8<-- [start:exercise_1]
# 5as²b = 34sbh, divided by sb
crossing_len = 34 * D_MODEL / (5 * NUM_HEADS)
scores_share = {s: sum(by_hand(s)["scores"].values()) / total(by_hand(s)) for s in (435, 436, 8192)}
print(f"{crossing_len:.1f} tokens;", {s: f"{share:.1%}" for s, share in scores_share.items()})
assert 5 * NUM_HEADS * 435**2 < 34 * 435 * D_MODEL
assert 5 * NUM_HEADS * 436**2 > 34 * 436 * D_MODEL
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
def gelu_step_by_step(x: Tensor) -> Tensor:
    """The same function, written out in Python."""
    inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def multiply_out(x: Tensor, p: float) -> Tensor:
    """Dropout as a product, as on a CPU: its mask has the data type of x."""
    return x * torch.empty_like(x).bernoulli_(1 - p).div_(1 - p) if p else x


point = torch.linspace(-3, 3, 7, dtype=torch.float64)
assert torch.allclose(gelu_step_by_step(point), gelu_tanh(point))

written_out_bytes = {
    "bf16": count_block(SEQ_LEN, gelu=gelu_step_by_step, drop=multiply_out),
    "bf16_no_dropout": count_block(SEQ_LEN, gelu=gelu_step_by_step, dropout=0.0),
    "fp32": count_block(
        SEQ_LEN,
        dtype=torch.float32,
        gelu=gelu_step_by_step,
        drop=multiply_out,
    ),
}
written_out_ratio = {name: n / block_formula_bytes for name, n in written_out_bytes.items()}
more_gelu_bytes = written_out_bytes["bf16_no_dropout"] - variants_bytes["bf16_no_dropout"]
print({name: f"{ratio:.2f}" for name, ratio in written_out_ratio.items()})
assert more_gelu_bytes == 3 * 2 * 4 * SEQ_LEN * D_MODEL  # three more tensors of s × 4h
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def count_frozen() -> int:
    """Bytes that a block keeps if both matrices of its MLP are frozen."""
    block = Block(Options()).to("meta", torch.bfloat16)
    for layer in (block.up, block.down):
        layer.requires_grad_(False)
    h = meta(1, SEQ_LEN, D_MODEL, dtype=torch.bfloat16).requires_grad_()
    return saved_bytes(lambda: block(h), besides=block.parameters())


frozen_saved_bytes = block_bytes - count_frozen()
print(f"{frozen_saved_bytes:,} B less")
mlp_tensors = block_by_hand_bytes["mlp"]
assert frozen_saved_bytes == mlp_tensors["input"] + mlp_tensors["after_gelu"]
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
GPU_BYTES = GPUS["H100 SXM"].memory_bytes

STATE_BYTES = 16  # a parameter's weight, gradient and AdamW moments, in float32
state_bytes = STATE_BYTES * model_parameters
kept_logits_bytes = 4 * SEQ_LEN * VOCAB_SIZE  # their two gradients take as much each
sequence_bytes = {
    "eager": NUM_LAYERS * block_bytes + kept_logits_bytes,
    "eager_no_dropout": NUM_LAYERS * variants_bytes["bf16_no_dropout"] + kept_logits_bytes,
    "fused": NUM_LAYERS * fused_bytes + kept_logits_bytes,
}
largest_batch = {
    name: int((GPU_BYTES - state_bytes) // (size + 2 * kept_logits_bytes)) for name, size in sequence_bytes.items()
}
print(f"state {state_bytes / 1e9:.2f} GB, sequences that fit:", largest_batch)
assert abs(sequence_bytes["eager"] / count_model(1, SEQ_LEN) - 1) < 0.01
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
LARGE_VOCAB, LARGE_WIDTH = 128256, 4096  # Llama 3 8B
LARGE_LEN = 8192

large_logits_bytes = 4 * LARGE_LEN * LARGE_VOCAB
large_block_bytes = 34 * LARGE_LEN * LARGE_WIDTH
logits_to_block_ratio = large_logits_bytes / large_block_bytes
print(f"{large_logits_bytes / 2**30:.2f} GiB, {logits_to_block_ratio:.2f} blocks")
# --8<-- [end:exercise_5]
