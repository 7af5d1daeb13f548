# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What gradients cost: two products a layer backward, of which the first layer makes one."""

# --8<-- [start:setup]
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch

# accounting.py, the book's toolkit, lies beside this file
from accounting import (
    Timing,
    count_flops,
    get_allocated_bytes,
    get_device,
    get_memory_usage,
    meta,
    time_call,
)


def get_gradient_bytes(weights: Iterable[torch.Tensor]) -> int:
    """Bytes of the gradients that these weights hold."""
    return sum(get_memory_usage(w.grad) for w in weights if w.grad is not None)


# --8<-- [end:setup]


# --8<-- [start:by_hand]
x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)  # what is to be learned

prediction = x @ w
loss = 0.5 * (prediction - 5) ** 2
loss.backward()

assert w.grad is not None  # backward() has put it there
w_grad = w.grad.tolist()
print("prediction", prediction.item(), " loss", loss.item(), " gradient", w_grad)
assert w_grad == ((prediction - 5) * x).tolist()  # dL/dw = (x·w − 5) x
# --8<-- [end:by_hand]


# --8<-- [start:leaves]
def grad_of(t: torch.Tensor) -> tuple[float | list[float] | None, str]:
    """What t.grad holds, and the first sentence of the warning that reading it raised."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grad = t.grad
    warning = str(caught[0].message).split(". ")[0] if caught else ""
    return None if grad is None else grad.tolist(), warning


print("            leaf   requires_grad  .grad")
for name, t in {"x": x, "w": w, "prediction": prediction, "loss": loss}.items():
    grad, warning = grad_of(t)
    columns = f"{name:12}{t.is_leaf!s:7}{t.requires_grad!s:15}{grad}"
    print(columns + ("  (warns)" if warning else ""))
    assert (grad is not None) == (t.is_leaf and t.requires_grad)
    assert bool(warning) == (not t.is_leaf)
print(grad_of(prediction)[1])
# --8<-- [end:leaves]


# --8<-- [start:retain]
watched = x @ w
watched.retain_grad()  # before backward: afterwards there is nothing left to keep
(0.5 * (watched - 5) ** 2).backward()
print("kept:", grad_of(watched))
assert grad_of(watched) == (1.0, "")  # dL/d(prediction) = x·w − 5
# --8<-- [end:retain]


# --8<-- [start:two_layers]
BATCH, D_MODEL, D_OUT = 1024, 256, 64  # the small example of the CS336 lecture

generator = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    """Random normal numbers, in float64: checks by hand should agree to many digits."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


inputs = randn(BATCH, D_MODEL)  # data: it needs no gradient
w1 = randn(D_MODEL, D_MODEL).requires_grad_()
w2 = randn(D_MODEL, D_OUT).requires_grad_()

hidden = inputs @ w1
outputs = hidden @ w2
(0.5 * outputs.pow(2).sum()).backward()
assert w1.grad is not None and w2.grad is not None
print(tuple(inputs.shape), "→", tuple(hidden.shape), "→", tuple(outputs.shape))
# --8<-- [end:two_layers]


# --8<-- [start:products]
with torch.no_grad():
    outputs_grad = outputs.clone()  # dL/d(outputs), since L = ½ Σ outputs²

    w2_grad = hidden.T @ outputs_grad  # dL/dW = xᵀ g
    assert w2_grad.shape == w2.shape == (D_MODEL, D_OUT)
    assert torch.allclose(w2_grad, w2.grad)

    hidden_grad = outputs_grad @ w2.T  # dL/dx = g Wᵀ
    assert hidden_grad.shape == hidden.shape == (BATCH, D_MODEL)

    w1_grad = inputs.T @ hidden_grad  # the first layer: hidden_grad is its g
    assert w1_grad.shape == w1.shape == (D_MODEL, D_MODEL)
    assert torch.allclose(w1_grad, w1.grad)

for name, t in {"w2": w2_grad, "hidden": hidden_grad, "w1": w1_grad}.items():
    print(f"{name:7}{tuple(t.shape)}")
# --8<-- [end:products]


# --8<-- [start:mismatch]
def message_of(function: Callable[[], Any]) -> str:
    """What the RuntimeError of function() says first; "no error" if there is none."""
    try:
        function()
    except RuntimeError as error:
        return str(error).splitlines()[0].split(". ")[0]
    return "no error"


print("inputs @ w2.T:       ", message_of(lambda: inputs @ w2.T))
print("outputs_grad @ w2:   ", message_of(lambda: outputs_grad @ w2))
print("w2.grad = w2_grad.T: ", message_of(lambda: setattr(w2, "grad", w2_grad.T)))
print("hidden_grad @ w1:    ", message_of(lambda: hidden_grad @ w1))
assert not torch.allclose(hidden_grad @ w1, hidden_grad @ w1.T)
# --8<-- [end:mismatch]


# --8<-- [start:count]
forward_flops = count_flops(lambda: inputs @ w1 @ w2)
total_loss = 0.5 * (inputs @ w1 @ w2).pow(2).sum()
backward_flops = count_flops(total_loss.backward)

claimed_backward_flops = 2 * forward_flops
backward_to_forward_ratio = backward_flops / forward_flops
print(f"forward   {forward_flops:13,}")
print(f"backward  {backward_flops:13,}  ({backward_to_forward_ratio:.1f} × forward)")
print(f"claimed   {claimed_backward_flops:13,}  (2.0 × forward)")
print("the claim holds:", backward_flops == claimed_backward_flops)
assert backward_flops != claimed_backward_flops
# --8<-- [end:count]


# --8<-- [start:missing]
forward_products_flops = {
    "hidden": count_flops(lambda: inputs @ w1),
    "outputs": count_flops(lambda: hidden @ w2),
}
backward_products_flops = {
    "w2": count_flops(lambda: hidden.T @ outputs_grad),
    "hidden": count_flops(lambda: outputs_grad @ w2.T),
    "w1": count_flops(lambda: inputs.T @ hidden_grad),
}
missing_flops = count_flops(lambda: hidden_grad @ w1.T)  # dL/d(inputs): nobody asks for it

print("backward:", " + ".join(f"{flops:,}" for flops in backward_products_flops.values()))
print(f"missing:  {missing_flops:,}")
assert sum(backward_products_flops.values()) == backward_flops
assert backward_flops + missing_flops == claimed_backward_flops
assert grad_of(inputs) == (None, "")
# --8<-- [end:missing]


# --8<-- [start:chain]
def chain(batch: int, widths: Sequence[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Inputs and weights of a deep linear model."""
    weights = [meta(*shape).requires_grad_() for shape in pairwise(widths)]
    return meta(batch, widths[0]), weights


def run_chain(h: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """The inputs times one weight after another."""
    for weight in weights:
        h = h @ weight
    return h


def count_chain(h: torch.Tensor, weights: Sequence[torch.Tensor]) -> tuple[int, int]:
    """FLOPs of the forward pass and of the backward pass."""
    forward = count_flops(lambda: run_chain(h, weights))
    return forward, count_flops(run_chain(h, weights).sum().backward)


# --8<-- [end:chain]


# --8<-- [start:deep_linear]
SMALL_BATCH, SMALL_WIDTHS = 2, (4, 4, 4, 1)  # the lecture's deep linear model

small_inputs, small_weights = chain(SMALL_BATCH, SMALL_WIDTHS)
small_parameters = sum(weight.numel() for weight in small_weights)
small_claimed_flops = 6 * SMALL_BATCH * small_parameters
small_counted_flops = sum(count_chain(small_inputs, small_weights))
print(f"claimed 6 · {SMALL_BATCH} · {small_parameters} = {small_claimed_flops}")
print("counted", small_counted_flops)
assert small_claimed_flops - small_counted_flops == 2 * SMALL_BATCH * 4 * 4  # one product
# --8<-- [end:deep_linear]


# --8<-- [start:depth]
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def counted_ratio(depth: int) -> float:
    """Backward over forward FLOPs of so many square layers."""
    forward, backward = count_chain(*chain(BATCH, [D_MODEL] * (depth + 1)))
    return backward / forward


depth_ratio = {depth: counted_ratio(depth) for depth in DEPTHS}
print("depth  " + "".join(f"{depth:7}" for depth in DEPTHS))
print("ratio  " + "".join(f"{ratio:7.3f}" for ratio in depth_ratio.values()))
assert all(ratio == (2 * depth - 1) / depth for depth, ratio in depth_ratio.items())
# --8<-- [end:depth]


# --8<-- [start:blocks]
SEQ_LEN, VOCAB_SIZE, NUM_LAYERS, WIDTH = 1024, 50257, 12, 768  # GPT-2 small
SHAPES = {  # of a block's weights, in units of WIDTH
    "query": (1, 1),
    "key": (1, 1),
    "value": (1, 1),
    "output": (1, 1),
    "up": (1, 4),
    "down": (4, 1),
}

tokens = meta(SEQ_LEN, dtype=torch.int64)
embedding = meta(VOCAB_SIZE, WIDTH).requires_grad_()
head = meta(WIDTH, VOCAB_SIZE).requires_grad_()


def make_block() -> dict[str, torch.Tensor]:
    """The weights of one block."""
    return {name: meta(m * WIDTH, n * WIDTH).requires_grad_() for name, (m, n) in SHAPES.items()}


blocks = [make_block() for _ in range(NUM_LAYERS)]


def logits() -> torch.Tensor:
    """The products of a transformer; norms and biases make none.

    One attention head takes as many FLOPs as twelve narrow ones.
    """
    h = torch.nn.functional.embedding(tokens, embedding)
    for block in blocks:
        attention = ((h @ block["query"]) @ (h @ block["key"]).T).softmax(dim=-1)
        h = h + attention @ (h @ block["value"]) @ block["output"]
        h = h + torch.nn.functional.gelu(h @ block["up"]) @ block["down"]
    return h @ head


# --8<-- [end:blocks]


# --8<-- [start:transformer]
transformer_forward_flops = count_flops(logits)
transformer_backward_flops = count_flops(logits().sum().backward)
transformer_ratio = transformer_backward_flops / transformer_forward_flops
print(f"forward  {transformer_forward_flops:,}")
print(f"backward {transformer_backward_flops:,}  ({transformer_ratio} × forward)")
assert transformer_ratio == 2
# --8<-- [end:transformer]


# --8<-- [start:six_n_d]
block_parameters = sum(weight.numel() for block in blocks for weight in block.values())
product_parameters = block_parameters + head.numel()
six_n_d_flops = 6 * product_parameters * SEQ_LEN
attention_flops = 3 * NUM_LAYERS * 2 * (2 * SEQ_LEN * SEQ_LEN * WIDTH)  # two products each
transformer_flops = transformer_forward_flops + transformer_backward_flops

six_n_d_share = six_n_d_flops / transformer_flops
print(f"6ND        {six_n_d_flops:,}")
print(f"attention  {attention_flops:,}")
print(f"sum        {six_n_d_flops + attention_flops:,}")
assert six_n_d_flops + attention_flops == transformer_flops
# --8<-- [end:six_n_d]


# --8<-- [start:frozen]
FREEZE_DEPTH = 4
TRAINED = {  # which of four square layers are trained; the others have requires_grad=False
    "all": (True, True, True, True),
    "last_two": (False, False, True, True),
    "first_two": (True, True, False, False),
    "last": (False, False, False, True),
    "first": (True, False, False, False),
}


def count_frozen(trained: Sequence[bool]) -> dict[str, Any]:
    """FLOPs and bytes of the backward pass, and which products each layer makes in it."""
    layer_inputs, weights = chain(BATCH, [D_MODEL] * (FREEZE_DEPTH + 1))
    for weight, train in zip(weights, trained, strict=True):
        weight.requires_grad_(train)
    forward, backward = count_chain(layer_inputs, weights)
    needed = {
        "weight_products": list(trained),  # where the layer's own weight learns
        # where a layer before it learns
        "input_products": [any(trained[:layer]) for layer in range(FREEZE_DEPTH)],
    }
    product_flops = forward // FREEZE_DEPTH
    assert backward == product_flops * sum(map(sum, needed.values()))
    return {
        "backward_flops": backward,
        "to_forward_ratio": backward / forward,
        "gradient_bytes": get_gradient_bytes(weights),
    } | needed


# --8<-- [end:frozen]


# --8<-- [start:freeze]
freeze = {name: count_frozen(trained) for name, trained in TRAINED.items()}
print("trained    backward / forward  gradients")
for name, case in freeze.items():
    print(f"{name:11}{case['to_forward_ratio']:18}{case['gradient_bytes']:13,} B")
# --8<-- [end:freeze]


# --8<-- [start:memory]
def measure_gradients(dtype: torch.dtype) -> dict[str, int | None]:
    """Bytes of the two layers' parameters and of their gradients, these by the GPU too."""
    options: dict[str, Any] = {"dtype": dtype, "device": get_device()}
    a = torch.randn(BATCH, D_MODEL, **options)
    weights = [torch.randn(w.shape, **options).requires_grad_() for w in (w1, w2)]
    run_chain(a, weights).sum().backward()  # first, libraries take memory of their own
    for weight in weights:
        weight.grad = None
    before = get_allocated_bytes()
    run_chain(a, weights).sum().backward()
    after = get_allocated_bytes()
    return {
        "parameter_bytes": sum(map(get_memory_usage, weights)),
        "gradient_bytes": get_gradient_bytes(weights),
        "measured_gradient_bytes": None if before is None or after is None else after - before,
    }


state_bytes = {
    "float32": measure_gradients(torch.float32),
    "bfloat16": measure_gradients(torch.bfloat16),
}
for name, held in state_bytes.items():
    print(f"{name:10}parameters {held['parameter_bytes']:,} B", end=", ")
    print(f"gradients {held['gradient_bytes']:,} B")
    assert held["parameter_bytes"] == held["gradient_bytes"]
# --8<-- [end:memory]


# --8<-- [start:embedding_gradient]
assert embedding.grad is not None and embedding.grad.shape == embedding.shape
embedding_gradient_bytes = get_memory_usage(embedding.grad)
print(f"{SEQ_LEN:,} rows looked up")
print(f"{VOCAB_SIZE:,} rows of gradient: {embedding_gradient_bytes:,} B")
# --8<-- [end:embedding_gradient]


# --8<-- [start:time_passes]
measured_on_gpu = torch.cuda.is_available()
measured_dtype = "bfloat16" if measured_on_gpu else "float32"  # for tensor cores, if any


def time_passes(batch: int, *widths: int) -> dict[str, Timing]:
    """Seconds of a deep linear model's forward pass alone and of its backward pass alone."""
    options: dict[str, Any] = {"dtype": getattr(torch, measured_dtype), "device": get_device()}
    a = torch.randn(batch, widths[0], **options)
    weights = [torch.randn(shape, **options).div_(shape[0] ** 0.5) for shape in pairwise(widths)]
    for weight in weights:
        weight.requires_grad_()
    y = run_chain(a, weights)
    g = torch.randn_like(y)  # random: constants can run faster

    def forward() -> None:
        run_chain(a, weights)

    def backward() -> None:
        torch.autograd.grad(y, weights, grad_outputs=g, retain_graph=True)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least
    rounds = [[time_call(each, 5, min_seconds=0.02) for each in (forward, backward)] for _ in range(3)]
    torch.set_num_threads(threads)
    forwards, backwards = zip(*rounds, strict=True)  # in turns, so that both meet the same machine
    return {"forward": sorted(forwards)[1], "backward": sorted(backwards)[1]}


# --8<-- [end:time_passes]


# --8<-- [start:measure]
MEASURED_DEPTHS = (1, 2, 4, 8)

# a batch, and how wide the data is before the first layer and after each
measured_sizes = (16384, 16384, 16384, 4096) if measured_on_gpu else (1024, 256, 256, 64)
measured_side = 8192 if measured_on_gpu else 256  # of every matrix in the deep models

measured_two_layers = time_passes(*measured_sizes)
measured_deep = {n: time_passes(*[measured_side] * (n + 2)) for n in MEASURED_DEPTHS}


def show(name: str, timings: dict[str, Timing]) -> None:
    """One line: the times of both passes."""
    forward, backward = (timings[key].median_seconds * 1e3 for key in ("forward", "backward"))
    print(f"{name:12}forward {forward:8.3f} ms, backward {backward:8.3f} ms")


show("two layers", measured_two_layers)
for depth, timings in measured_deep.items():
    show(f"depth {depth}", timings)
# --8<-- [end:measure]


# --8<-- [start:compare]
def compare(timings: dict[str, Timing], ratio: float) -> dict[str, float]:
    """Backward as predicted from forward and the counted ratio, and what came of it."""
    forward, backward = (timings[key].median_seconds for key in ("forward", "backward"))
    return {
        "predicted_backward_seconds": ratio * forward,
        "measured_time_ratio": backward / forward,
        "measured_to_predicted_ratio": backward / (ratio * forward),
    }


measured_comparison = compare(measured_two_layers, backward_to_forward_ratio)
measured_deep_comparison = {n: compare(timings, depth_ratio[n]) for n, timings in measured_deep.items()}

print("            counted  timed")
print(f"two layers  {backward_to_forward_ratio:7.2f}{measured_comparison['measured_time_ratio']:7.2f}")
for n, compared in measured_deep_comparison.items():
    print(f"depth {n:<6}{depth_ratio[n]:7.2f}{compared['measured_time_ratio']:7.2f}")
# --8<-- [end:compare]


# --8<-- [start:exercise_1]
y = torch.tensor([1.0, 2.0], requires_grad=True) * 3
print(message_of(y.backward))
y.backward(torch.ones(2))  # the gradient of y.sum()
assert message_of((torch.ones(2, requires_grad=True) * 3).sum().backward) == "no error"
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
LECTURE_GPU = (16384, 32768, 8192)  # batch, d_model, d_out: the lecture's sizes on a GPU


def two_layer_ratio(batch: int, d_model: int, d_out: int) -> float:
    """Backward over forward FLOPs of the two-layer model, counted."""
    forward, backward = count_chain(*chain(batch, (d_model, d_model, d_out)))
    assert backward * (d_model + d_out) == forward * (d_model + 2 * d_out)
    return backward / forward


gpu_sizes_ratio = two_layer_ratio(*LECTURE_GPU)
wide_output_ratio = two_layer_ratio(BATCH, D_MODEL, 4 * D_MODEL)
print("the GPU's sizes:", gpu_sizes_ratio, " wide output:", wide_output_ratio)
assert gpu_sizes_ratio == backward_to_forward_ratio
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
once = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)
for _ in range(2):
    (0.5 * (x @ once - 5) ** 2).backward()
assert once.grad is not None
twice_grad = once.grad.tolist()
print("after one backward:", w_grad, " after two:", twice_grad)
assert twice_grad == [2 * value for value in w_grad]
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
embedding.requires_grad_(False)
frozen_embedding_flops = count_flops(logits().sum().backward)
embedding.requires_grad_(True)

saved_flops = transformer_backward_flops - frozen_embedding_flops
saved_share = saved_flops / transformer_backward_flops
print(f"saved {saved_flops:,} of {transformer_backward_flops:,}: {saved_share:.2%}")
assert saved_flops == 3 * 2 * SEQ_LEN * WIDTH * WIDTH  # query, key, value of one block
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
RANK, LORA_DEPTH, LORA_WIDTH = 8, 32, 4096


def lora_chain(trained: Sequence[torch.Tensor]) -> torch.Tensor:
    """A deep linear model; beside each frozen W a trained A B of low rank: h W + h A B."""
    h, frozen = chain(BATCH, [LORA_WIDTH] * (LORA_DEPTH + 1))
    for weight, a, b in zip(frozen, trained[::2], trained[1::2], strict=True):
        h = h @ weight.requires_grad_(False) + h @ a @ b
    return h


lora_shapes = [(LORA_WIDTH, RANK), (RANK, LORA_WIDTH)] * LORA_DEPTH
adapters = [meta(*shape).requires_grad_() for shape in lora_shapes]
lora_forward_flops = count_flops(lambda: lora_chain(adapters))
lora_backward_flops = count_flops(lora_chain(adapters).sum().backward)
full_flops = sum(count_chain(*chain(BATCH, [LORA_WIDTH] * (LORA_DEPTH + 1))))

lora_ratio = lora_backward_flops / lora_forward_flops
lora_step_share = (lora_forward_flops + lora_backward_flops) / full_flops
lora_gradient_bytes = get_gradient_bytes(adapters)
full_gradient_bytes = 4 * LORA_DEPTH * LORA_WIDTH**2
print(f"backward {lora_ratio:.3f} × forward, a step {lora_step_share:.1%} of a full one")
print(f"gradients {lora_gradient_bytes:,} B instead of {full_gradient_bytes:,} B")
assert abs(lora_ratio - 1) < 0.05 and abs(lora_step_share - 2 / 3) < 0.01
# --8<-- [end:exercise_5]


# --8<-- [start:exercise_6]
BIG_PARAMETERS, BIG_TOKENS = 70e9, 15e12  # N and D

big_forward_flops = 2 * BIG_PARAMETERS * BIG_TOKENS
big_backward_flops = 4 * BIG_PARAMETERS * BIG_TOKENS
big_gradient_bytes = {"float32": 4 * BIG_PARAMETERS, "bfloat16": 2 * BIG_PARAMETERS}
print(f"forward {big_forward_flops:.2e}, backward {big_backward_flops:.2e} FLOPs")
print({dtype: f"{size / 1e9:.0f} GB" for dtype, size in big_gradient_bytes.items()})
assert math.isclose(big_forward_flops + big_backward_flops, 6 * BIG_PARAMETERS * BIG_TOKENS)
# --8<-- [end:exercise_6]
