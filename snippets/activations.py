# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What a forward pass keeps for the backward pass, by formula and by hooks; the peak of a step; which batch fits."""

import math
from collections.abc import Callable
from itertools import count

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from flops_bytes.lessons.measure import divide
from flops_bytes.lessons.models import (
    GPT2_SMALL,
    LLAMA_3_2_1B,
    LLAMA_3_8B,
    Attend,
    GPT2Block,
    LlamaBlock,
    build,
    eager,
    flash,
    fused,
    loss,
    rotary,
)
from flops_bytes.lessons.trace import Trace, meta, saved_bytes, saved_tensors
from flops_bytes.memory.formulas import RECIPES, activation_bytes, layer_bytes, logits_bytes, state_bytes
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.time.gpus import GPUS

# --8<-- [start:one_layer]
with torch.device("meta"):  # tensors with a shape and no data: no GPU is needed
    layer = GPT2Block(GPT2_SMALL, flash).bfloat16()
x = meta(8, 1_024, 768, dtype=torch.bfloat16).requires_grad_()

kept = saved_bytes(lambda: layer(x), besides=layer.parameters())
print(f"{kept:,} bytes, {kept / x.numel():.2f} for each token and unit of width")
# --8<-- [end:one_layer]


def describe(call: Callable[[], Tensor]) -> list[str]:
    """What an operation on x and w keeps, by name."""
    made: list[Tensor] = []
    kept = saved_tensors(lambda: made.append(call()))
    known = (("x", x), ("w", w), ("result", made[0]))
    names = {StorageWeakRef(tensor.untyped_storage()): name for name, tensor in known}
    other = {torch.bool: "mask", torch.float32: "statistic"}  # made on the way
    storages = [(StorageWeakRef(t.untyped_storage()), other[t.dtype]) for t in kept]
    return sorted(names.get(storage, name) for storage, name in storages)


x, w = meta(8, 64).requires_grad_(), meta(64, 64).requires_grad_()
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
operations = {name: describe(call) for name, call in OPERATIONS.items()}
kept_of_sum_bytes = saved_bytes(OPERATIONS["x + x"])
with torch.no_grad():
    assert all(describe(call) == [] for call in OPERATIONS.values())


with torch.device("meta"):  # tensors with a shape and no data: no GPU is needed
    mlp = nn.Sequential(nn.LayerNorm(1_000), nn.Linear(1_000, 4_000), nn.GELU(), nn.Linear(4_000, 1_000))
mlp = mlp.to(torch.bfloat16)
hidden = meta(1_000, 1_000, dtype=torch.bfloat16).requires_grad_()
mlp_bytes = saved_bytes(lambda: mlp(hidden), besides=mlp.parameters())
print(f"{mlp_bytes:,} bytes")


# --8<-- [start:tiny]
rows, targets = meta(2, 4), meta(2)
weights = [meta(4, width).requires_grad_() for width in (4, 4, 1)]


def tiny_loss() -> Tensor:
    outputs = rows @ weights[0] @ weights[1] @ weights[2]
    return F.mse_loss(outputs.squeeze(-1), targets)


tiny_bytes = saved_bytes(tiny_loss, besides=[*weights, rows, targets])
tiny_with_data_bytes = saved_bytes(tiny_loss, besides=weights)
print(f"{tiny_bytes} bytes, with the data {tiny_with_data_bytes}")
# --8<-- [end:tiny]
tiny_claimed_bytes = 4 * 2 * 4 * 2  # float32: batch × width × square layers
state = 3 * 4 * sum(w.numel() for w in weights)  # with gradients and AdaGrad's sums
tiny_total_bytes = {
    "claimed": state + tiny_claimed_bytes,
    "counted": state + tiny_bytes,
}
assert tiny_bytes == 4 * (8 + 8 + 2)  # what leaves the three products


# --8<-- [start:layer]
def kept_by_layer(shape: Decoder, b: int, T: int) -> int:
    """Bytes that a layer keeps in bf16 with fused attention, without dropout."""
    d, f = shape.d_model, shape.d_ff
    H, G, Q = shape.heads, shape.kv_heads, shape.head_dim
    norms = 4 * d + (16 if shape.norm_shift else 8)  # inputs; fp32 statistics: LayerNorm's two, RMSNorm's one
    qkv_input, qkv = 2 * d, 2 * (H + 2 * G) * Q
    scores = 4 * H  # a logsumexp in fp32
    out_input, mlp_input = 2 * H * Q, 2 * d
    mlp = (8 if shape.gated else 4) * f  # SwiGLU keeps four tensors, GELU two
    token = norms + qkv_input + qkv + scores + out_input + mlp_input + mlp
    return b * T * token + 24  # seed and offset of the attention kernel's random numbers


for name, shape, b, T in ("GPT-2 small", GPT2_SMALL, 8, 1_024), ("Llama 3 8B", LLAMA_3_8B, 1, 8_192):
    print(f"{name}: {kept_by_layer(shape, b, T):,} bytes")
# --8<-- [end:layer]
assert kept == kept_by_layer(GPT2_SMALL, 8, 1_024)

SHAPES = {"gpt2": GPT2_SMALL, "llama": LLAMA_3_8B}
CONTEXT = {"gpt2": 1_024, "llama": 8_192}  # T that each was first trained with
layer_parts_bytes = {n: layer_bytes(SHAPES[n], CONTEXT[n]) for n in SHAPES}
layer_total_bytes = {n: sum(layer_parts_bytes[n].values()) for n in SHAPES}
assert layer_total_bytes == {n: kept_by_layer(SHAPES[n], 1, CONTEXT[n]) for n in SHAPES}
bytes_per_feature = {n: layer_total_bytes[n] / (CONTEXT[n] * SHAPES[n].d_model) for n in SHAPES}
one_token, two_tokens = ({n: layer_bytes(SHAPES[n], T) for n in SHAPES} for T in (1, 2))
token_bytes = {n: {part: two_tokens[n][part] - size for part, size in one_token[n].items()} for n in SHAPES}
token_total_bytes = {n: sum(parts.values()) for n, parts in token_bytes.items()}
for n, size in layer_total_bytes.items():
    print(f"{n:6}{size:14,} B, {bytes_per_feature[n]:.2f} a token and unit of width")
# Under autocast the inputs of both norms are float32, and each matrix behind one of Llama's has a cast of its own.
autocast_per_feature = {n: bytes_per_feature[n] + 2 * 2 + (3 * 2 if n == "llama" else 0) for n in SHAPES}


def make_layer(shape: Decoder, attend: Attend = flash, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    with torch.device("meta"):
        layer = GPT2Block(shape, attend) if shape.positions else LlamaBlock(shape, attend)
    return layer.to(dtype)


def count_layer(layer: nn.Module, shape: Decoder, seq_len: int) -> int:
    """Bytes that autograd keeps of a layer; its weights and the rotary angles are there anyway."""
    x = torch.empty(1, seq_len, shape.d_model, dtype=next(layer.parameters()).dtype, device="meta", requires_grad=True)
    angles = () if shape.positions else rotary(seq_len, shape.head_dim, x)
    return saved_bytes(lambda: layer(x, *angles), [*layer.parameters(), *angles])


# --8<-- [start:hooks]
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

counted_layer_bytes = {
    f"{n}_{attend.__name__}_{kind}": count_layer(
        make_layer(SHAPES[n], attend, dtype),
        SHAPES[n],
        CONTEXT[n],
    )
    for n in SHAPES
    for attend in (flash, eager)
    for kind, dtype in DTYPES.items()
}
for which, counted in counted_layer_bytes.items():
    n, attention, kind = which.split("_")
    width, is_fused = DTYPES[kind].itemsize, attention == "flash"
    said = layer_bytes(SHAPES[n], CONTEXT[n], 1, width, is_fused)
    print(f"{which:17}{counted:15,} B, by formula {sum(said.values()):,}")
    assert counted == sum(said.values())
# --8<-- [end:hooks]


LENGTHS = tuple(range(1_024, 8_193, 1_024))
PARTS = {
    "norms": ("norms",),
    "attention": ("qkv_input", "qkv", "out_input"),
    "mlp": ("mlp_input", "mlp"),
    "scores": ("scores",),
}


def by_part(sizes: dict[str, int]) -> dict[str, int]:
    return {part: sum(sizes[name] for name in names) for part, names in PARTS.items()}


length_parts_bytes = {T: by_part(layer_bytes(LLAMA_3_8B, T, fused=False)) for T in LENGTHS}
length_bytes = {T: count_layer(make_layer(LLAMA_3_8B, eager), LLAMA_3_8B, T) for T in LENGTHS}
scores_share = {T: parts["scores"] / length_bytes[T] for T, parts in length_parts_bytes.items()}
eager_to_fused_ratio = length_bytes[LENGTHS[-1]] / layer_total_bytes["llama"]
assert all(sum(parts.values()) == length_bytes[T] for T, parts in length_parts_bytes.items())
print({T: f"{share:.0%}" for T, share in scores_share.items()})


def eager_in_fp32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as transformers writes it: the softmax is computed in float32, and cast."""
    future = torch.full((q.shape[2], q.shape[2]), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    scores = q @ k.mT * q.shape[3] ** -0.5 + future
    attended: Tensor = scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v
    return attended


def bytes_a_score(attend: Attend) -> int:
    """What autograd keeps of the T × T tensors, a score."""
    q, k, v = (meta(1, 12, 1_024, 64, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    square = [t for t in saved_tensors(lambda: attend(q, k, v)) if t.shape[-2:] == (1_024, 1_024)]
    return sum(t.nbytes for t in square) // (12 * 1_024**2)


score_bytes = {  # on tensors without data, `fused` runs the math backend
    "ours": bytes_a_score(eager),
    "transformers": bytes_a_score(eager_in_fp32),
    "math": bytes_a_score(fused),
}
print(score_bytes)


class Dropout(nn.Module):
    """As on a GPU, where a mask takes a byte an element; on a CPU it is as wide as x."""

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = torch.native_dropout(x, 0.1, train=True)[0]
        return dropped


def eager_with_dropout(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    future = torch.full((q.shape[2], q.shape[2]), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    scores = q @ k.mT / q.shape[3] ** 0.5 + future  # (b, H, T, T)
    attended: Tensor = Dropout()(scores.softmax(-1)) @ v
    return attended


dropping_layer = make_layer(GPT2_SMALL, eager_with_dropout)
for name in ("out", "down"):  # what goes back to the residual path
    dropping_layer.set_submodule(name, nn.Sequential(dropping_layer.get_submodule(name), Dropout()))


# --8<-- [start:variants]
def korthikanti_bytes(b: int, T: int, d: int, H: int) -> int:
    """A GPT layer in 16 bits (Korthikanti et al. 2022, equation 1)."""
    return 34 * b * T * d + 5 * b * H * T**2


variants_bytes = {
    "dropout": count_layer(dropping_layer, GPT2_SMALL, 1_024),
    "eager": counted_layer_bytes["gpt2_eager_bf16"],
    "fused": counted_layer_bytes["gpt2_flash_bf16"],
}
block_formula_bytes = korthikanti_bytes(b=1, T=1_024, d=768, H=12)
statistics = 16 * 1_024  # of the norms; the formula leaves them out
block_bytes = variants_bytes["dropout"] - statistics
bought_ratio = block_formula_bytes / variants_bytes["fused"]
for name, size in variants_bytes.items():
    print(f"{name:8}{size:11,} B, formula / this {block_formula_bytes / size:.3f}")
assert block_bytes == block_formula_bytes
# --8<-- [end:variants]


BATCH = {"gpt2": 8, "llama": 1}


def make_batch(b: int, seq_len: int, device: str = "meta") -> tuple[Tensor, Tensor]:
    """Tokens, and for each the next one."""
    text = torch.zeros(b, seq_len + 1, dtype=torch.int64, device=device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def count_model(shape: Decoder, b: int, seq_len: int) -> int:
    """Bytes that autograd keeps of the whole model and its loss; weights and data are there anyway."""
    model, data = build(shape, flash, torch.bfloat16), make_batch(b, seq_len)
    return saved_bytes(lambda: loss(model, *data), [*model.parameters(), *data])


model_parts_bytes = {n: activation_bytes(SHAPES[n], CONTEXT[n], BATCH[n]) for n in SHAPES}
model_bytes = {n: count_model(SHAPES[n], BATCH[n], CONTEXT[n]) for n in SHAPES}
logits_share = {n: model_parts_bytes[n]["log_probabilities"] / model_bytes[n] for n in SHAPES}
for n, size in model_bytes.items():
    print(f"{n:6}{size:15,} B, logits {logits_share[n]:.1%}")
    assert size == sum(model_parts_bytes[n].values())


# --8<-- [start:logits]
features = meta(1_024, 1, dtype=torch.bfloat16).requires_grad_()  # width 1: next to the logits it counts for nothing
head = meta(1, 50_257, dtype=torch.bfloat16).requires_grad_()
labels = meta(1_024, dtype=torch.int64)
for dtype in (torch.float32, torch.bfloat16):
    with Trace() as trace:
        F.cross_entropy((features @ head).to(dtype), labels).backward()
    print(dtype, trace.peak_bytes // (1_024 * 50_257), "bytes a logit at the peak")
# --8<-- [end:logits]


def bytes_a_logit(loss: Callable[[Tensor], Tensor]) -> dict[str, int]:
    """What a loss on bf16 logits keeps for the backward pass, and the peak of both passes."""
    features = meta(TOKENS, 1, dtype=torch.bfloat16).requires_grad_()
    head = meta(1, VOCABULARY, dtype=torch.bfloat16).requires_grad_()
    kept = saved_bytes(lambda: loss(features @ head), besides=[features, head, labels])
    with Trace() as trace:
        loss(features @ head).backward()
    logits = TOKENS * VOCABULARY
    return {"kept_bytes": kept // logits, "peak_bytes": trace.peak_bytes // logits}


def hold_logits(logits: Tensor) -> Tensor:
    """As in a training loop with `logits, loss = model(x, y)`."""
    held.append(logits)
    return F.cross_entropy(logits.float(), labels)


TOKENS, VOCABULARY = 1_024, 50_257
held: list[Tensor] = []
per_logit = {
    "float": bytes_a_logit(lambda logits: F.cross_entropy(logits.float(), labels)),
    "direct": bytes_a_logit(lambda logits: F.cross_entropy(logits, labels)),
    "held": bytes_a_logit(hold_logits),
}
held.clear()


even = torch.zeros(1, VOCABULARY, dtype=torch.bfloat16, requires_grad=True)  # all tokens equally likely
even_loss = F.cross_entropy(even, torch.tensor([0]))
even_loss.backward()
ignorant_loss = {"exact": round(math.log(VOCABULARY), 4), "bf16": even_loss.item()}
loss_grid = 8 * torch.finfo(torch.bfloat16).eps  # from 8 to 16, bf16 numbers lie so far apart
assert even.grad is not None
gradient_excess_share = round(even.grad[0, 1].item() * VOCABULARY - 1, 4)  # exact: 1 / VOCABULARY


logits_to_layers_ratio = (  # all three of the logits, over all layers of GPT-2 with fused attention
    sum(logits_bytes(GPT2_SMALL, 1_024).values()) / GPT2_SMALL.layers / layer_total_bytes["gpt2"]
)
CLAIMED = (1, 3)  # "so many times the parameters"

model_parameters = sum(parameters(GPT2_SMALL).values())
weight_bytes = 4 * model_parameters  # float32
to_weights = {
    name: {f"b{b}_ratio": GPT2_SMALL.layers * b * size / weight_bytes for b in (1, 2, 4, 8)}
    for name, size in variants_bytes.items()
}
assert to_weights["dropout"]["b8_ratio"] > to_weights["fused"]["b8_ratio"] > CLAIMED[1]
assert to_weights["fused"]["b1_ratio"] < CLAIMED[0]


def predict_step(shape: Decoder, seq_len: int, b: int, recipe: str = "bf16", fused: bool = True) -> dict[str, int]:
    """Bytes when the backward pass begins: weights and AdamW's state, no gradient yet but the logits' two."""
    state = state_bytes(sum(parameters(shape).values()), RECIPES[recipe])
    kept = activation_bytes(shape, seq_len, b, RECIPES[recipe].weights, fused)
    logits = logits_bytes(shape, b * seq_len)
    lines = {
        "weights_bytes": state["weights"],
        "optimizer_bytes": state["optimizer"],
        "activations_bytes": sum(kept.values()),
        "logit_gradients_bytes": logits["their_gradient"] + logits["logits_gradient"],
        "loss_bytes": 4,
    }
    napkin = state["weights"] + state["gradients"] + state["optimizer"] + lines["activations_bytes"]
    return lines | {"peak_bytes": sum(lines.values()), "napkin_bytes": napkin}


def loss_on_bf16(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """The same loss without a cast of the logits."""
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def trace_step(shape: Decoder, seq_len: int, b: int, dtype: torch.dtype, lose: Callable[..., Tensor] = loss) -> int:
    """The peak of forward and backward above the weights and the optimizer's state, on meta."""
    model, data = build(shape, flash, dtype), make_batch(b, seq_len)
    with Trace() as trace:
        lose(model, *data).backward()
    return trace.peak_bytes


# --8<-- [start:trace]
STEPS = {
    "gpt2_bf16": ("gpt2", "bf16"),
    "gpt2_fp32": ("gpt2", "fp32"),
    "llama_bf16": ("llama", "bf16"),
}
steps = {which: predict_step(SHAPES[n], CONTEXT[n], BATCH[n], kind) for which, (n, kind) in STEPS.items()}
traced_peak_bytes = {
    which: trace_step(SHAPES[n], CONTEXT[n], BATCH[n], DTYPES[kind])
    + steps[which]["weights_bytes"]
    + steps[which]["optimizer_bytes"]
    for which, (n, kind) in STEPS.items()
}
for which, step in steps.items():
    predicted, traced = step["peak_bytes"], traced_peak_bytes[which]
    print(f"{which:12}predicted {predicted:,} B, traced {traced:,} B")
    assert traced == predicted
step_parts = {
    "layers": model_parts_bytes["gpt2"]["layers"],
    "logits": sum(logits_bytes(GPT2_SMALL, 8 * 1_024).values()),
}
step_part_share = {part: size / steps["gpt2_bf16"]["peak_bytes"] for part, size in step_parts.items()}
# --8<-- [end:trace]


def state_of(name: str) -> int:
    """Bytes of a model's weights and of AdamW's state, in bf16."""
    step = steps[f"{name}_bf16"]
    return step["weights_bytes"] + step["optimizer_bytes"]


direct_peak_bytes = trace_step(GPT2_SMALL, 1_024, 8, torch.bfloat16, loss_on_bf16) + state_of("gpt2")
direct_saves_bytes = steps["gpt2_bf16"]["peak_bytes"] - direct_peak_bytes

token_step_bytes = {  # A + 8bTV, a token
    n: (step["activations_bytes"] + step["logit_gradients_bytes"]) / (BATCH[n] * CONTEXT[n])
    for n in SHAPES
    for step in [steps[f"{n}_bf16"]]
}
end_gradients_bytes = {  # 2N; the two gradients of a tied embedding stand beside their sum
    n: 2 * sum(parameters(shape).values()) + (4 * shape.vocab * shape.d_model if shape.tied else 0)
    for n, shape in SHAPES.items()
}
moved_tokens = {n: size / token_step_bytes[n] for n, size in end_gradients_bytes.items()}
for n, about in moved_tokens.items():
    fewer, more = int(0.99 * about), int(1.01 * about)
    for T, at_the_end in ((fewer, True), (more, False)):
        traced = trace_step(SHAPES[n], T, 1, torch.bfloat16) + state_of(n)
        assert (traced > predict_step(SHAPES[n], T, 1)["peak_bytes"]) == at_the_end
    print(f"{n}: traced peak at the end with {fewer:,} tokens, at the start with {more:,}; estimate {about:,.0f}")


# --8<-- [start:step]
b, T, V = 8, 1_024, 50_257
N = sum(parameters(GPT2_SMALL).values())
A = sum(activation_bytes(GPT2_SMALL, T, b).values())
at_backward = 6 * N + A + 8 * b * T * V + 4  # 4: the loss itself, in fp32
print(f"by the formula {at_backward:,} bytes")

model = build(GPT2_SMALL, flash, torch.bfloat16)
tokens = meta(8, 1_024, dtype=torch.int64)
with Trace() as trace:  # follows what is in memory, moment by moment
    loss(model, tokens, tokens).backward()
print(f"by the trace   {6 * N + trace.peak_bytes:,} bytes")
# --8<-- [end:step]


def measure_step(shape: Decoder, seq_len: int, b: int, dtype: torch.dtype) -> int | None:
    """The highest count of the GPU's allocator; None without a GPU, or where the step does not fit."""
    if not torch.cuda.is_available():
        return None
    try:
        model, data = build(shape, fused, dtype, "cuda"), make_batch(b, seq_len, "cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):  # the first step makes the optimizer's state, the second counts
            optimizer.zero_grad()
            torch.cuda.reset_peak_memory_stats()
            loss(model, *data).backward()
            peak = torch.cuda.max_memory_allocated()
            optimizer.step()
    except torch.OutOfMemoryError:
        return None
    return peak


measured_peak_bytes = {
    which: measure_step(SHAPES[name], CONTEXT[name], BATCH[name], DTYPES[kind])
    for which, (name, kind) in STEPS.items()
    if name == "gpt2"
}
measured_peak_ratio = {which: divide(peak, steps[which]["peak_bytes"]) for which, peak in measured_peak_bytes.items()}


CARDS = {"rtx_4090": "RTX 4090", "h100": "H100 SXM", "h200": "H200 SXM"}
PLANS = {  # a shape, T, and whether attention is fused
    "gpt2_eager": (GPT2_SMALL, 1_024, False),
    "gpt2_fused": (GPT2_SMALL, 1_024, True),
    "llama_1b_fused": (LLAMA_3_2_1B, 8_192, True),
    "llama_8b_fused": (LLAMA_3_8B, 8_192, True),
}


def largest_batch(card: str, shape: Decoder, seq_len: int, is_fused: bool) -> int:
    """Sequences whose step in bf16 peaks below the card's memory; 0: none does."""
    room = GPUS[CARDS[card]].memory_bytes
    for fits in count():
        step = predict_step(shape, seq_len, fits + 1, fused=is_fused)
        if step["peak_bytes"] > room:
            break
    return fits


batches = {card: {name: largest_batch(card, *plan) for name, plan in PLANS.items()} for card in CARDS}
one = predict_step(GPT2_SMALL, 1_024, 1)  # solved for b: an H100, GPT-2 small with fused attention
fit_bytes = {
    "card": int(GPUS["H100 SXM"].memory_bytes),
    "state": one["weights_bytes"] + one["optimizer_bytes"],
    "activations": one["activations_bytes"],
    "logit_gradients": one["logit_gradients_bytes"],
}
fit_sequences = (fit_bytes["card"] - fit_bytes["state"]) / (fit_bytes["activations"] + fit_bytes["logit_gradients"])
assert int(fit_sequences) == batches["h100"]["gpt2_fused"]
# --8<-- [start:fits]
capacity = GPUS["H100 SXM"].memory_bytes
A_1 = sum(activation_bytes(GPT2_SMALL, T, batch=1).values())
print(f"{(capacity - 6 * N) / (A_1 + 8 * T * V):.1f} sequences")
# --8<-- [end:fits]
for card, fitting in batches.items():  # what fits has room for AdamW's update too: 10N as PyTorch runs it by default
    widest = max(sum(parameters(PLANS[name][0]).values()) for name, fits in fitting.items() if fits)
    assert 10 * widest < GPUS[CARDS[card]].memory_bytes


# --8<-- [start:exercise_1]
# GPT-2: 2HT² = (32d + 16)T; Llama 3 8B, with keys and values once a query head: 2HT² = (44d + 8)T
crossing_len = {"gpt2": (32 * 768 + 16) / (2 * 12), "llama": (44 * 4_096 + 8) / (2 * 32)}
first_longer_len = {name: math.floor(crossing) + 1 for name, crossing in crossing_len.items()}
print(first_longer_len)
# --8<-- [end:exercise_1]
for name, first in first_longer_len.items():
    shorter, longer = (layer_bytes(SHAPES[name], T, fused=False) for T in (first - 1, first))
    assert 2 * shorter["scores"] < sum(shorter.values())
    assert 2 * longer["scores"] > sum(longer.values())


# --8<-- [start:exercise_2]
def gelu_step_by_step(x: Tensor) -> Tensor:
    """GELU by its approximation with tanh, one operation after another."""
    inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


wide = meta(1_024, 4 * 768, dtype=torch.bfloat16).requires_grad_()
more_gelu_bytes = saved_bytes(lambda: gelu_step_by_step(wide)) - saved_bytes(lambda: F.gelu(wide, approximate="tanh"))
more_gelu_share = more_gelu_bytes / kept_by_layer(GPT2_SMALL, 1, 1_024)
print(f"{more_gelu_bytes:,} bytes more, {more_gelu_share:.0%} of the layer")
# --8<-- [end:exercise_2]
point = torch.linspace(-3, 3, 7, dtype=torch.float64)
assert torch.allclose(gelu_step_by_step(point), F.gelu(point, approximate="tanh"))
assert more_gelu_bytes == 3 * 2 * wide.numel()

# --8<-- [start:exercise_3]
with torch.device("meta"):
    llama_layer = LlamaBlock(LLAMA_3_8B, flash).bfloat16()
for name in ("gate", "up", "down"):
    llama_layer.get_submodule(name).requires_grad_(False)

x = meta(1, 8_192, 4_096, dtype=torch.bfloat16).requires_grad_()
angles = rotary(8_192, LLAMA_3_8B.head_dim, x)
kept = saved_bytes(lambda: llama_layer(x, *angles), besides=[*llama_layer.parameters(), *angles])
frozen_saved_bytes = kept_by_layer(LLAMA_3_8B, 1, 8_192) - kept
print(f"{frozen_saved_bytes:,} bytes less")
# --8<-- [end:exercise_3]
assert frozen_saved_bytes == 2 * 8_192 * (LLAMA_3_8B.d_model + LLAMA_3_8B.d_ff)

# --8<-- [start:exercise_4]
logits_to_layer_ratio = {
    "gpt2": 4 * 1_024 * 50_257 / kept_by_layer(GPT2_SMALL, 1, 1_024),
    "llama": 4 * 8_192 * 128_256 / kept_by_layer(LLAMA_3_8B, 1, 8_192),
}
print({name: f"{ratio:.2f} layers" for name, ratio in logits_to_layer_ratio.items()})
# --8<-- [end:exercise_4]
assert logits_to_layer_ratio["gpt2"] > logits_to_layer_ratio["llama"] > 3
