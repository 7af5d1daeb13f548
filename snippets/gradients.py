# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What gradients cost: two matmuls a layer in the backward pass, of which the first layer computes one."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from flops_bytes.lessons.measure import get_device, get_memory_usage, time_call
from flops_bytes.lessons.models import GPT2, GPT2_SMALL, eager
from flops_bytes.lessons.trace import count_flops, meta


def get_gradient_bytes(weights: Iterable[torch.Tensor]) -> int:
    """Bytes of the gradients that these weights hold."""
    return sum(get_memory_usage(w.grad) for w in weights if w.grad is not None)


# --8<-- [start:two_layers]
torch.manual_seed(0)
inputs = torch.randn(1024, 256, dtype=torch.float64)  # 1,024 rows of data: no gradient needed
w1 = torch.randn(256, 512, dtype=torch.float64, requires_grad=True)
w2 = torch.randn(512, 64, dtype=torch.float64, requires_grad=True)

hidden = inputs @ w1
outputs = hidden @ w2
(0.5 * outputs.pow(2).sum()).backward()
# --8<-- [end:two_layers]

assert w1.grad is not None and w2.grad is not None


# --8<-- [start:products]
with torch.no_grad():
    outputs_grad = outputs.clone()  # dY: our loss is half the sum of squared outputs

    w2_grad = hidden.T @ outputs_grad  # Xᵀ dY, for the weight
    hidden_grad = outputs_grad @ w2.T  # dY Wᵀ, for the input; the first layer's dY
    w1_grad = inputs.T @ hidden_grad

    print("w2", tuple(w2_grad.shape), torch.allclose(w2_grad, w2.grad))
    print("w1", tuple(w1_grad.shape), torch.allclose(w1_grad, w1.grad))
# --8<-- [end:products]


assert w2_grad.shape == w2.shape and torch.allclose(w2_grad, w2.grad)
assert w1_grad.shape == w1.shape and torch.allclose(w1_grad, w1.grad)
assert len({*inputs.shape, *w1.shape, *w2.shape}) == 4  # no two sizes agree, so a wrong factor does not fit


# --8<-- [start:count]
forward_flops = count_flops(lambda: inputs @ w1 @ w2)
total_loss = 0.5 * (inputs @ w1 @ w2).pow(2).sum()
backward_flops = count_flops(total_loss.backward)

claimed_backward_flops = 2 * forward_flops
backward_to_forward_ratio = backward_flops / forward_flops
print(f"forward   {forward_flops:13,}")
print(f"backward  {backward_flops:13,}  ({backward_to_forward_ratio:.1f} × forward)")
print(f"claimed   {claimed_backward_flops:13,}  (2.0 × forward)")
# --8<-- [end:count]


# --8<-- [start:asked]
asked = inputs.clone().requires_grad_()  # the same data, but now with a gradient
asked_loss = 0.5 * (asked @ w1 @ w2).pow(2).sum()
asked_ratio = count_flops(asked_loss.backward) / forward_flops
print(f"backward  {asked_ratio} × forward")
# --8<-- [end:asked]


forward_products_flops = {
    "hidden": count_flops(lambda: inputs @ w1),
    "outputs": count_flops(lambda: hidden @ w2),
}
backward_products_flops = {
    "w2": count_flops(lambda: hidden.T @ outputs_grad),
    "hidden": count_flops(lambda: outputs_grad @ w2.T),
    "w1": count_flops(lambda: inputs.T @ hidden_grad),
}
missing_flops = count_flops(lambda: hidden_grad @ w1.T)  # for the inputs, which need none

print("backward:", " + ".join(f"{flops:,}" for flops in backward_products_flops.values()))
print(f"missing:  {missing_flops:,}")
assert sum(backward_products_flops.values()) == backward_flops
assert backward_flops + missing_flops == claimed_backward_flops
assert asked_ratio == 2


# --8<-- [start:run_chain]
ROWS, SIDE = 1024, 256  # of the data, and of each square weight


def run_chain(h: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """The input times one weight after another."""
    for weight in weights:
        h = h @ weight
    return h


# --8<-- [end:run_chain]


def chain(batch: int, widths: Sequence[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Inputs and weights of a deep linear model."""
    weights = [meta(*shape).requires_grad_() for shape in pairwise(widths)]
    return meta(batch, widths[0]), weights


def count_chain(h: torch.Tensor, weights: Sequence[torch.Tensor]) -> tuple[int, int]:
    """FLOPs of the forward pass and of the backward pass."""
    forward = count_flops(lambda: run_chain(h, weights))
    return forward, count_flops(run_chain(h, weights).sum().backward)


DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def counted_ratio(depth: int) -> float:
    """FLOPs of the backward over the forward pass of so many square layers."""
    forward, backward = count_chain(*chain(ROWS, [SIDE] * (depth + 1)))
    return backward / forward


depth_ratio = {depth: counted_ratio(depth) for depth in DEPTHS}
print("depth  " + "".join(f"{depth:7}" for depth in DEPTHS))
print("ratio  " + "".join(f"{ratio:7.3f}" for ratio in depth_ratio.values()))
assert all(ratio == (2 * depth - 1) / depth for depth, ratio in depth_ratio.items())


# --8<-- [start:transformer]
SEQ_LEN = 1024
with torch.device("meta"):
    gpt2 = GPT2(GPT2_SMALL, eager)
    tokens = torch.zeros(1, SEQ_LEN, dtype=torch.int64)

transformer_forward_flops = count_flops(lambda: gpt2(tokens))
transformer_backward_flops = count_flops(gpt2(tokens).sum().backward)
transformer_ratio = transformer_backward_flops / transformer_forward_flops
print(f"forward  {transformer_forward_flops:,}")
print(f"backward {transformer_backward_flops:,}  ({transformer_ratio} × forward)")
# --8<-- [end:transformer]


# --8<-- [start:six_n_d]
assert transformer_ratio == 2
matrices = [weight for weight in gpt2.parameters() if weight.dim() == 2]
product_parameters = sum(w.numel() for w in matrices) - gpt2.positions.weight.numel()
six_n_d_flops = 6 * product_parameters * SEQ_LEN
attention_flops = 3 * GPT2_SMALL.layers * 2 * (2 * SEQ_LEN**2 * GPT2_SMALL.d_model)
transformer_flops = transformer_forward_flops + transformer_backward_flops

six_n_d_share = six_n_d_flops / transformer_flops
print(f"6ND        {six_n_d_flops:,}")
print(f"attention  {attention_flops:,}")
print(f"sum        {six_n_d_flops + attention_flops:,}")
assert six_n_d_flops + attention_flops == transformer_flops
# --8<-- [end:six_n_d]


TOKENS, SIX_WIDTH, REPEATS, EXPERTS = 64, 128, 12, 8


def flops_a_parameter(used: Sequence[torch.Tensor], stored: int, on_data: bool = False) -> float:
    """FLOPs of a step for each token and stored parameter."""
    x = meta(TOKENS, SIX_WIDTH).requires_grad_(not on_data)  # else as behind an embedding
    step = count_flops(lambda: run_chain(x, used))
    result = run_chain(x, used).sum()
    if result.requires_grad:
        step += count_flops(result.backward)
    return step / TOKENS / (stored * SIX_WIDTH**2)


one = meta(SIX_WIDTH, SIX_WIDTH).requires_grad_()
two, frozen = meta(SIX_WIDTH, SIX_WIDTH).requires_grad_(), meta(SIX_WIDTH, SIX_WIDTH)
six = {
    "usual": flops_a_parameter([one, two], stored=2),
    "first": flops_a_parameter([one], stored=1, on_data=True),
    "shared": flops_a_parameter([one] * REPEATS, stored=1),  # one layer, twelve times
    "experts": flops_a_parameter([one, two], stored=EXPERTS),  # two of eight multiply
    "frozen": flops_a_parameter([frozen], stored=1),
    "before": flops_a_parameter([frozen], stored=1, on_data=True),  # of all that is trained
}
print(six)
assert six == {"usual": 6, "first": 4, "shared": 6 * REPEATS, "experts": 12 / EXPERTS, "frozen": 4, "before": 2}


FREEZE_DEPTH = 4
TRAINED = {  # which of four square layers are trained; the others have requires_grad=False
    "all": (True, True, True, True),
    "last_two": (False, False, True, True),
    "first_two": (True, True, False, False),
    "last": (False, False, False, True),
    "first": (True, False, False, False),
}


def count_frozen(trained: Sequence[bool]) -> dict[str, Any]:
    """FLOPs and bytes of the backward pass, and each layer's matmuls in it."""
    layer_inputs, weights = chain(ROWS, [SIDE] * (FREEZE_DEPTH + 1))
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


freeze = {name: count_frozen(trained) for name, trained in TRAINED.items()}
print("trained    backward / forward  gradients")
for name, case in freeze.items():
    print(f"{name:11}{case['to_forward_ratio']:18}{case['gradient_bytes']:13,} B")


# --8<-- [start:freezing]
def count_backward(*trained: bool) -> int:
    """FLOPs of a backward pass through square layers, of which these are trained."""
    weights = [meta(SIDE, SIDE).requires_grad_(train) for train in trained]
    return count_flops(run_chain(meta(ROWS, SIDE), weights).sum().backward)


print(f"last of four layers   {count_backward(False, False, False, True):,}")
print(f"first of four layers  {count_backward(True, False, False, False):,}")
# --8<-- [end:freezing]


# --8<-- [start:by_hand]
x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)  # what is to be learned

prediction = x @ w
loss = 0.5 * (prediction - 5) ** 2
loss.backward()
print("prediction", prediction.item(), " loss", loss.item(), " gradient", w.grad)
# --8<-- [end:by_hand]


assert w.grad is not None  # backward() has put it there
assert w.grad.tolist() == ((prediction - 5) * x).tolist()  # the error times what came in


def grad_of(t: torch.Tensor) -> tuple[float | list[float] | None, str]:
    """What t.grad holds, and how the warning begins that reading it raised."""
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


# --8<-- [start:retain]
kept = x @ w
kept.retain_grad()  # before backward()
(0.5 * (kept - 5) ** 2).backward()
print(kept.grad)
# --8<-- [end:retain]


# --8<-- [start:memory]
def gradient_bytes(dtype: torch.dtype) -> dict[str, int]:
    """Bytes of the two layers' parameters and of their gradients."""
    weights = [meta(*w.shape, dtype=dtype).requires_grad_() for w in (w1, w2)]
    run_chain(meta(ROWS, w1.shape[0], dtype=dtype), weights).sum().backward()
    return {
        "parameter_bytes": sum(map(get_memory_usage, weights)),
        "gradient_bytes": get_gradient_bytes(weights),
    }


gpt2_parameter_bytes = sum(map(get_memory_usage, gpt2.parameters()))
gpt2_gradient_bytes = get_gradient_bytes(gpt2.parameters())  # after the backward pass above
assert gpt2_gradient_bytes == gpt2_parameter_bytes

state_bytes = {"float32": gradient_bytes(torch.float32), "bfloat16": gradient_bytes(torch.bfloat16)}
assert all(len(set(held.values())) == 1 for held in state_bytes.values())  # as many bytes
# --8<-- [end:memory]


measured_on_gpu = torch.cuda.is_available()
measured_dtype = "bfloat16" if measured_on_gpu else "float32"  # for tensor cores, if any
torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least


def take_turns(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of each, the median of seven rounds in which all take turns."""
    rounds = [[time_call(call, 3, 0.004).median_seconds for call in calls.values()] for _ in range(7)]
    return dict(zip(calls, map(median, zip(*rounds, strict=True)), strict=True))


def time_passes(batch: int, *widths: int) -> dict[str, float]:
    """Seconds of a deep model's forward and backward pass, and of backward by hand."""
    options: dict[str, Any] = {"dtype": getattr(torch, measured_dtype), "device": get_device()}
    a = torch.randn(batch, widths[0], **options)
    weights = [torch.randn(shape, **options).div_(shape[0] ** 0.5) for shape in pairwise(widths)]
    kept = [a]
    for weight in weights:
        kept.append(kept[-1] @ weight)
        weight.requires_grad_()
    y = run_chain(a, weights)
    g = torch.randn_like(y)  # random: constants can run faster

    def by_hand() -> None:
        behind = g
        with torch.no_grad():
            for layer in reversed(range(len(weights))):
                kept[layer].T @ behind
                if layer:
                    behind = behind @ weights[layer].T

    return take_turns(
        {
            "forward_seconds": lambda: run_chain(a, weights),
            "backward_seconds": lambda: torch.autograd.grad(y, weights, g, retain_graph=True),
            "by_hand_seconds": by_hand,
        }
    )


MEASURED_DEPTHS = (1, 2, 4, 8)
measured_side = 8192 if measured_on_gpu else 256  # of every matrix
measured_deep = {n: time_passes(*[measured_side] * (n + 2)) for n in MEASURED_DEPTHS}


# --8<-- [start:compare]
def compare(seconds: dict[str, float], ratio: float) -> dict[str, float]:
    """Backward as predicted from forward and the counted ratio, and what came of it."""
    predicted = ratio * seconds["forward_seconds"]
    return {
        "predicted_backward_seconds": predicted,
        "measured_time_ratio": seconds["backward_seconds"] / seconds["forward_seconds"],
        "measured_to_predicted_ratio": seconds["backward_seconds"] / predicted,
        "by_hand_ratio": seconds["by_hand_seconds"] / seconds["backward_seconds"],
    }


measured_deep_comparison = {n: compare(t, depth_ratio[n]) for n, t in measured_deep.items()}
print("depth  counted  timed  by hand")
for n, row in measured_deep_comparison.items():
    print(f"{n:<7}{depth_ratio[n]:7.2f}{row['measured_time_ratio']:7.2f}", end="")
    print(f"{row['by_hand_ratio'] * row['measured_time_ratio']:9.2f}")
# --8<-- [end:compare]


# --8<-- [start:exercise_1]
y = torch.tensor([1.0, 2.0], requires_grad=True) * 3
try:
    y.backward()
except RuntimeError as error:
    print(error)
y.backward(torch.ones(2))  # the gradient of y.sum()
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
once = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)
for _ in range(2):
    (0.5 * (x @ once - 5) ** 2).backward()
print(once.grad)  # a single backward pass gives (1, 2, 3)
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def saved_by_freezing(module: torch.nn.Module) -> int:
    """FLOPs that a backward pass no longer does."""
    module.requires_grad_(False)
    return transformer_backward_flops - count_flops(gpt2(tokens).sum().backward)


gpt2.positions.requires_grad_(False)
head_flops = saved_by_freezing(gpt2.embedding)  # the head's weight is the same matrix
assert head_flops == 2 * SEQ_LEN * gpt2.embedding.weight.numel()
saved_share = head_flops / transformer_backward_flops

first = gpt2.get_submodule("blocks.0.attention_norm")
first_flops = saved_by_freezing(first) - head_flops  # the first block's queries, keys, values
assert first_flops == 2 * SEQ_LEN * 3 * GPT2_SMALL.d_model**2
print(f"saved {saved_share:.1%}; with the first norm, {first_flops:,} FLOPs more")
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
RANK, LORA_DEPTH, LORA_WIDTH = 8, 32, 4096


def lora_chain(h: torch.Tensor, adapters: Sequence[torch.Tensor]) -> torch.Tensor:
    """A deep linear model, beside each frozen W a trained A B of low rank."""
    for a, b in zip(adapters[::2], adapters[1::2], strict=True):
        h = h @ meta(LORA_WIDTH, LORA_WIDTH) + h @ a @ b
    return h


lora_shapes = [(LORA_WIDTH, RANK), (RANK, LORA_WIDTH)] * LORA_DEPTH
adapters = [meta(*shape).requires_grad_() for shape in lora_shapes]
dense = [meta(LORA_WIDTH, LORA_WIDTH).requires_grad_() for _ in range(LORA_DEPTH)]
h = meta(ROWS, LORA_WIDTH)

lora_forward_flops = count_flops(lambda: lora_chain(h, adapters))
lora_backward_flops = count_flops(lora_chain(h, adapters).sum().backward)
full_flops = count_flops(lambda: run_chain(h, dense).sum().backward())

lora_ratio = lora_backward_flops / lora_forward_flops
lora_step_share = (lora_forward_flops + lora_backward_flops) / full_flops
lora_gradient_bytes = 4 * sum(a.numel() for a in adapters)
full_gradient_bytes = 4 * sum(w.numel() for w in dense)
print(f"backward {lora_ratio:.3f} × forward, a step {lora_step_share:.1%} of a full one")
print(f"gradients {lora_gradient_bytes:,} B instead of {full_gradient_bytes:,} B")
assert abs(lora_ratio - 1) < 0.05 and abs(lora_step_share - 2 / 3) < 0.01
# --8<-- [end:exercise_4]
