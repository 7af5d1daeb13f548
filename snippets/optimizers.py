# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""The family of optimizers from scratch: what each remembers of the gradients, and what that costs."""

# --8<-- [start:setup]
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from accounting import (
    GPUS,
    Trace,
    get_allocated_bytes,
    get_device,
    get_gpu,
    get_memory_usage,
    tensors_in,
    time_call,
)
from torch import Tensor
from torch.utils._pytree import tree_leaves

State = dict[str, Any]  # what an optimizer remembers of one parameter
Make = Callable[..., torch.optim.Optimizer]


def float64(*numbers: float) -> Tensor:
    """A parameter in double precision: checks should agree to many digits."""
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


# --8<-- [end:setup]


# --8<-- [start:optimizer]
class Optimizer:
    """Moves parameters by their gradients; a subclass says how."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        self.params, self.lr = list(params), lr
        self.state: dict[Tensor, State] = {}

    @torch.no_grad()
    def step(self) -> None:
        for w in self.params:
            if w.grad is not None:  # a parameter that took no part stays where it is
                self.update(w, w.grad, self.state.setdefault(w, {}))

    def update(self, w: Tensor, g: Tensor, state: State) -> None:
        raise NotImplementedError


class SGD(Optimizer):
    def update(self, w: Tensor, g: Tensor, state: State) -> None:
        w.sub_(g, alpha=self.lr)


# --8<-- [end:optimizer]


# --8<-- [start:valley]
CURVATURE = 1.0, 50.0  # along the valley, across it
MINIMUM = 4.0, 1.5
STEPS = 40

Maker = Callable[[Sequence[Tensor]], Optimizer]
Loss = Callable[[Tensor], Tensor]


def valley(w: Tensor) -> Tensor:
    """The loss at w: flat along the first weight, steep along the second."""
    offset = w - w.new_tensor(MINIMUM)
    return 0.5 * (w.new_tensor(CURVATURE) * offset**2).sum()


def descend(make: Maker, loss: Loss = valley) -> list[list[float]]:
    """Both weights after each step from (0, 0)."""
    w = float64(0.0, 0.0)
    optimizer, path = make([w]), [w.tolist()]
    for _ in range(STEPS):
        w.grad = None
        loss(w).backward()
        optimizer.step()
        path.append([round(x, 3) + 0.0 for x in w.tolist()])  # + 0.0: no "-0.0"
    return path


# --8<-- [end:valley]


# --8<-- [start:sgd]
LR = 0.036

limit_lr = 2 / max(CURVATURE)  # beyond it, each step overshoots by more
expected_first_weight = MINIMUM[0] * (1 - (1 - LR * CURVATURE[0]) ** STEPS)
path = descend(lambda params: SGD(params, lr=LR))
left_share = 1 - path[-1][0] / MINIMUM[0]

print("second weight:", *(w[1] for w in path[:6]), "…", path[-1][1])
print("first weight: ", *(w[0] for w in path[:6]), "…", path[-1][0])
assert abs(path[-1][0] - expected_first_weight) < 1e-3
too_fast = descend(lambda params: SGD(params, lr=1.05 * limit_lr))
assert abs(too_fast[-1][1]) > abs(too_fast[1][1])  # it runs away
# --8<-- [end:sgd]


# --8<-- [start:momentum]
def remembered(state: State, name: str, w: Tensor) -> Tensor:
    """state[name], at first zeros. setdefault would make zeros at every step."""
    if name not in state:
        state[name] = torch.zeros_like(w)
    memory: Tensor = state[name]
    return memory


class Momentum(Optimizer):
    decay = 0.9

    def update(self, w: Tensor, g: Tensor, state: State) -> None:
        velocity = remembered(state, "velocity", w)
        velocity.mul_(self.decay).add_(g)
        w.sub_(velocity, alpha=self.lr)


# --8<-- [end:momentum]


# --8<-- [start:lengths]
TIMES = [1, 2, 3, 5, 7, 10, 12, 14, 20, 30, 50, 70, 100, 140, 200, 300, 500, 700, 1000]
SHOWN = 1, 10, 100, 1000  # which of them to print


def step_lengths(make: Callable[..., Any], gradient: float = 1.0) -> list[float]:
    """How long the steps at TIMES are, in learning rates, if the gradient stays."""
    w = float64(0.0)
    w.grad = torch.full_like(w, gradient)
    optimizer, lengths = make([w], lr=1.0), []
    for _ in range(max(TIMES)):
        with torch.no_grad():
            w.zero_()  # back: what w holds after the step is the step
        optimizer.step()
        lengths.append(abs(w.item()))
    return [round(lengths[t - 1], 3) for t in TIMES]


def show_times() -> None:
    """The header of the lines below it."""
    print(f"{'step number':26}" + "".join(f"{t:9,}" for t in SHOWN))


def show(name: str, lengths: list[float]) -> None:
    """One line: the steps at the times SHOWN."""
    print(f"{name:26}" + "".join(f"{lengths[TIMES.index(t)]:9.3f}" for t in SHOWN))


# --8<-- [end:lengths]


# --8<-- [start:sum]
momentum_lengths = step_lengths(Momentum)
dampened_lengths = step_lengths(partial(torch.optim.SGD, momentum=0.9, dampening=0.9))

show_times()
show("SGD", step_lengths(SGD))
show("momentum", momentum_lengths)
show(
    "momentum, torch.optim.SGD",
    step_lengths(partial(torch.optim.SGD, momentum=0.9)),
)
show("the same, dampening 0.9", dampened_lengths)
momentum_limit = momentum_lengths[-1]
assert momentum_lengths == [round((1 - 0.9**t) / (1 - 0.9), 3) for t in TIMES]
assert momentum_limit == 10  # an average of ones would be 1
assert set(dampened_lengths) == {1.0}
# --8<-- [end:sum]


# --8<-- [start:adagrad]
class AdaGrad(Optimizer):
    eps = 1e-10  # against a division by zero; it stands outside the root

    def update(self, w: Tensor, g: Tensor, state: State) -> None:
        total = remembered(state, "sum_of_squares", w)
        total.addcmul_(g, g)  # first: the sum runs up to and including step t
        w.addcdiv_(g, total.sqrt().add_(self.eps), value=-self.lr)


adagrad_lengths = step_lengths(AdaGrad)
show_times()
show("AdaGrad", adagrad_lengths)
show("AdaGrad, gradients × 1,000", step_lengths(AdaGrad, gradient=1000.0))
assert adagrad_lengths == step_lengths(AdaGrad, gradient=1000.0)
assert adagrad_lengths == [round(1 / math.sqrt(t), 3) for t in TIMES]
# --8<-- [end:adagrad]


# --8<-- [start:wrong_adagrad]
def divisors(gradients: Sequence[float]) -> dict[str, float]:
    """What the last gradient is divided by: by AdaGrad, and by three mistakes."""
    squares = [g * g for g in gradients]
    return {
        "AdaGrad": math.sqrt(sum(squares)) + 1e-10,
        "mean, not sum": math.sqrt(sum(squares) / len(squares)) + 1e-10,
        "sum up to t − 1": math.sqrt(sum(squares[:-1])) + 1e-10,
        "ε = 1e-5 inside the root": math.sqrt(sum(squares) + 1e-5),
    }


first, hundredth, tiny = divisors([1.0]), divisors([1.0] * 100), divisors([1e-4])
print(f"{'step, in learning rates':26}    first  100th    first, g = 1e-4")
for name in first:
    row = f"{name:26}{1 / first[name]:9.3g}{1 / hundredth[name]:7.3f}"
    print(row + f"{1e-4 / tiny[name]:19.3g}")
assert 1 / hundredth["mean, not sum"] > 0.999  # never gets shorter
assert 1 / first["sum up to t − 1"] > 9e9  # the first step divides by ε
assert 1e-4 / tiny["ε = 1e-5 inside the root"] < 0.04  # ε outweighs the gradient
# --8<-- [end:wrong_adagrad]


# --8<-- [start:rmsprop]
class RMSProp(Optimizer):
    decay, eps = 0.99, 1e-8

    def update(self, w: Tensor, g: Tensor, state: State) -> None:
        square = remembered(state, "mean_square", w)
        square.mul_(self.decay).addcmul_(g, g, value=1 - self.decay)
        w.addcdiv_(g, square.sqrt().add_(self.eps), value=-self.lr)


rmsprop_lengths = step_lengths(RMSProp)
show_times()
show("AdaGrad", adagrad_lengths)
show("RMSProp", rmsprop_lengths)
rmsprop_first = rmsprop_lengths[0]
assert rmsprop_lengths == [round(1 / math.sqrt(1 - 0.99**t), 3) for t in TIMES]
# --8<-- [end:rmsprop]


# --8<-- [start:adam]
class Adam(Optimizer):
    betas, eps = (0.9, 0.999), 1e-8

    def update(self, w: Tensor, g: Tensor, state: State) -> None:
        t = state["step"] = state.get("step", 0) + 1
        mean = remembered(state, "mean", w)
        square = remembered(state, "mean_square", w)
        mean.lerp_(g, 1 - self.betas[0])  # β₁ · mean + (1 − β₁) · g
        square.mul_(self.betas[1]).addcmul_(g, g, value=1 - self.betas[1])

        mean_hat = self.correct(mean, self.betas[0], t)
        square_hat = self.correct(square, self.betas[1], t)
        w.addcdiv_(mean_hat, square_hat.sqrt().add_(self.eps), value=-self.lr)

    def correct(self, average: Tensor, beta: float, t: int) -> Tensor:
        """An average that began at zero has seen only 1 − βᵗ of its weight."""
        return average / (1 - beta**t)


# --8<-- [end:adam]


# --8<-- [start:bias]
class UncorrectedAdam(Adam):
    def correct(self, average: Tensor, beta: float, t: int) -> Tensor:
        return average.clone()


adam_lengths = step_lengths(Adam)
uncorrected_lengths = step_lengths(UncorrectedAdam)
uncorrected_first, uncorrected_longest = (
    uncorrected_lengths[0],
    max(uncorrected_lengths),
)
show_times()
show("Adam", adam_lengths)
show("without bias correction", uncorrected_lengths)
print("longest, uncorrected:", uncorrected_longest)
assert set(adam_lengths) == {1.0}
assert uncorrected_first == round((1 - 0.9) / math.sqrt(1 - 0.999), 3)
# --8<-- [end:bias]


# --8<-- [start:adamw]
class AdamW(Adam):
    weight_decay = 0.01

    def update(self, w: Tensor, g: Tensor, state: State) -> None:
        w.mul_(1 - self.lr * self.weight_decay)  # past the gradient
        super().update(w, g, state)


# --8<-- [end:adamw]


# --8<-- [start:decay]
DECAYS = 0.1, 0.01


def shrink(make: Make, weight_decay: float) -> float:
    """A weight of 1 after 50 steps; the loss has no say: its gradient is zero."""
    w = float64(1.0)
    w.grad = torch.zeros_like(w)
    optimizer = make([w], lr=0.01, weight_decay=weight_decay)
    for _ in range(50):
        optimizer.step()
    return round(w.item(), 4)


shrunk = {
    name: [shrink(make, decay) for decay in DECAYS]
    for name, make in {
        "Adam": torch.optim.Adam,
        "AdamW": torch.optim.AdamW,
    }.items()
}
for name, weights in shrunk.items():
    print(
        f"{name:6}",
        *(f"λ = {d:4}: {w:.4f}" for d, w in zip(DECAYS, weights, strict=True)),
        sep="  ",
    )
assert shrunk["Adam"][0] == shrunk["Adam"][1]  # ten times the decay, the same weight
assert shrunk["AdamW"] == [round((1 - 0.01 * decay) ** 50, 4) for decay in DECAYS]
# --8<-- [end:decay]


# --8<-- [start:paths]
FAMILY: dict[str, Maker] = {  # learning rates chosen by hand, for this valley
    "sgd_limit": partial(SGD, lr=limit_lr),
    "sgd": partial(SGD, lr=LR),
    "momentum": partial(Momentum, lr=0.01),
    "adagrad": partial(AdaGrad, lr=1.0),
    "rmsprop": partial(RMSProp, lr=0.1),
    "adam": partial(Adam, lr=0.3),
}

paths = {name: descend(make) for name, make in FAMILY.items()}
for name, points in paths.items():
    away = round(math.dist(points[-1], MINIMUM), 2)
    print(f"{name:10}ends at {points[-1]}, {away:.2f} away")
# --8<-- [end:paths]


# --8<-- [start:against_torch]
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "SGD": (SGD, torch.optim.SGD),
    "momentum": (Momentum, partial(torch.optim.SGD, momentum=0.9)),
    "AdaGrad": (AdaGrad, torch.optim.Adagrad),
    "RMSProp": (RMSProp, torch.optim.RMSprop),
    "Adam": (Adam, torch.optim.Adam),
    "AdamW": (AdamW, torch.optim.AdamW),
}
TOLERANCE = 1e-12

generator = torch.Generator().manual_seed(0)
gradients = torch.randn(100, 2, 12, generator=generator, dtype=torch.float64)


def run(make: Callable[..., Any]) -> Tensor:
    """Parameters after 100 steps; the second has tiny gradients, the third none."""
    params = [float64(*[1.0] * 12) for _ in range(3)]
    optimizer = make(params, lr=0.1)
    for large, small in gradients:
        params[0].grad, params[1].grad = large, 1e-3 * small
        optimizer.step()
    assert params[2].eq(1).all()  # a gradient of None: untouched, and no crash
    return torch.stack(params).detach()


for name, (ours, theirs) in PAIRS.items():
    error = (run(ours) - run(theirs)).abs().max().item()
    print(f"{name:9}same parameters as torch.optim:", error < TOLERANCE)
    assert error < TOLERANCE
# --8<-- [end:against_torch]


# --8<-- [start:shapes]
Shapes = Sequence[tuple[int, ...]]


def gpt2_shapes(num_layers: int, d: int, vocab_size: int, seq_len: int) -> Shapes:
    """The shapes of GPT-2's parameters."""
    norm = [(d,), (d,)]
    attention = [(d, 3 * d), (3 * d,), (d, d), (d,)]
    mlp = [(d, 4 * d), (4 * d,), (4 * d, d), (d,)]
    block = [*norm, *attention, *norm, *mlp]
    return [(vocab_size, d), (seq_len, d), *block * num_layers, *norm]


SHAPES = gpt2_shapes(num_layers=12, d=768, vocab_size=50257, seq_len=1024)
num_tensors = len(SHAPES)
model_parameters = sum(map(math.prod, SHAPES))
print(f"{num_tensors} tensors, {model_parameters:,} parameters")


def make_params(
    shapes: Shapes,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "meta",
) -> list[Tensor]:
    """Parameters with gradients; on meta they have shapes, but no numbers."""
    params = [torch.randn(shape, dtype=dtype, device=device) for shape in shapes]
    for w in params:
        w.requires_grad_().grad = torch.randn(w.shape, dtype=dtype, device=device)
    return params


# --8<-- [end:shapes]


# --8<-- [start:count_state]
def count_state(make: Make, dtype: torch.dtype) -> dict[str, Any]:
    """Bytes of state after one step: per parameter, of step counters, and in all."""
    params = make_params(SHAPES, dtype)
    optimizer = make(params, lr=1e-3)
    optimizer.step()  # for most optimizers, this is what makes the state
    leaves = tree_leaves(list(optimizer.state.values()))
    tensors = [t for t in leaves if torch.is_tensor(t)]
    counter_bytes = sum(get_memory_usage(t) for t in tensors if t.dim() == 0)
    moment_bytes = sum(get_memory_usage(t) for t in tensors if t.dim() > 0)
    assert moment_bytes % model_parameters == 0
    return {
        "per_parameter_bytes": moment_bytes // model_parameters,
        "element_bytes": dtype.itemsize,  # of a parameter, and of its gradient
        "counter_bytes": counter_bytes,
        "state_bytes": moment_bytes + counter_bytes,
    }


# --8<-- [end:count_state]


# --8<-- [start:state]
OPTIMIZERS: dict[str, tuple[Make, torch.dtype]] = {
    "sgd": (torch.optim.SGD, torch.float32),
    "momentum": (partial(torch.optim.SGD, momentum=0.9), torch.float32),
    "adagrad": (torch.optim.Adagrad, torch.float32),
    "rmsprop": (torch.optim.RMSprop, torch.float32),
    "adam": (torch.optim.Adam, torch.float32),
    "adamw": (torch.optim.AdamW, torch.float32),
    "amsgrad": (partial(torch.optim.Adam, amsgrad=True), torch.float32),
    "rmsprop_full": (
        partial(torch.optim.RMSprop, centered=True, momentum=0.9),
        torch.float32,
    ),
    "adamw_bf16": (torch.optim.AdamW, torch.bfloat16),
}

state = {name: count_state(make, dtype) for name, (make, dtype) in OPTIMIZERS.items()}
for name, held in state.items():
    per_parameter, counters = held["per_parameter_bytes"], held["counter_bytes"]
    print(f"{name:13}{per_parameter:2} B × {model_parameters:,}", end="")
    print(f" + {counters:3} B = {held['state_bytes']:13,} B")
counted_bytes = [held["per_parameter_bytes"] for held in state.values()]
assert counted_bytes == [0, 4, 4, 4, 8, 8, 12, 12, 4]
# --8<-- [end:state]


# --8<-- [start:born]
def count_new(name: str) -> int:
    """Tensors of state for one parameter, before the first step."""
    make, _ = OPTIMIZERS[name]
    return sum(map(len, make([float64(1.0)], lr=1e-3).state.values()))


new_state_tensors = {name: count_new(name) for name in ("sgd", "adagrad", "adamw")}
print("state tensors before the first step:", new_state_tensors)
assert new_state_tensors == {"sgd": 0, "adagrad": 2, "adamw": 0}
# --8<-- [end:born]


# --8<-- [start:forgotten]
def farthest(zero_grad: bool, steps: int = 500) -> float:
    """How far from the minimum SGD still strays in the last 100 steps."""
    w = float64(0.0, 0.0)
    optimizer = torch.optim.SGD([w], lr=LR)
    distances = []
    for _ in range(steps):
        if zero_grad:
            optimizer.zero_grad()
        valley(w).backward()
        optimizer.step()
        distances.append(math.dist(w.tolist(), MINIMUM))
    return max(distances[-100:])


start_distance = round(math.hypot(*MINIMUM), 2)
cleared = round(farthest(zero_grad=True), 2)
kept = round(farthest(zero_grad=False), 2)
print("distance at the start  ", start_distance)
print("late, with zero_grad   ", cleared)
print("late, without zero_grad", kept)
assert cleared == 0 and kept > start_distance  # no learning at all
# --8<-- [end:forgotten]


# --8<-- [start:zero_grad]
def gradient_bytes(params: Sequence[Tensor]) -> int:
    """Bytes of the gradients that these parameters hold."""
    return sum(get_memory_usage(w.grad) for w in params if w.grad is not None)


model = make_params(SHAPES)
model_optimizer = torch.optim.AdamW(model)
held_bytes = gradient_bytes(model)
model_optimizer.zero_grad(set_to_none=False)
zeroed_bytes = gradient_bytes(model)
model_optimizer.zero_grad()  # set_to_none=True is the default
none_bytes = gradient_bytes(model)
print(f"backward {held_bytes:,} B, zeros {zeroed_bytes:,} B, None {none_bytes} B")
assert held_bytes == zeroed_bytes == 4 * model_parameters and none_bytes == 0
# --8<-- [end:zero_grad]


# --8<-- [start:counter]
class Traffic(Trace):
    """Adds up the bytes of tensors that operations read and write; step counters, of no dimension, are left out."""

    num_operations = moved_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = tensors_in((args, kwargs))
        before = [x.clone() for x in inputs]
        result = super().__torch_dispatch__(func, types, args, kwargs)
        changed = [x for x, copy in zip(inputs, before, strict=True) if not x.equal(copy)]
        made = [x for x in tensors_in(result) if not any(x is given for given in inputs)]
        touched = [x for x in (*inputs, *changed, *made) if x.dim()]
        self.num_operations += bool(touched)
        self.moved_bytes += sum(map(get_memory_usage, touched))
        return result


# --8<-- [end:counter]


# --8<-- [start:traffic]
SMALL_SHAPES = (64, 32), (32,)  # the count per parameter is the same at any size
small_parameters = sum(map(math.prod, SMALL_SHAPES))

IMPLEMENTATIONS: dict[str, Make] = {
    "adamw_loop": partial(torch.optim.AdamW, foreach=False),
    "adamw_foreach": partial(torch.optim.AdamW, foreach=True),
    "adamw_fused": partial(torch.optim.AdamW, fused=True),
    "momentum_fused": partial(torch.optim.SGD, momentum=0.9, fused=True),
    "sgd_fused": partial(torch.optim.SGD, fused=True),
}


def count_traffic(make: Make, dtype: torch.dtype = torch.float32) -> dict[str, int]:
    """Operations of one step on two tensors; bytes they move per parameter."""
    torch.manual_seed(0)  # a write is seen where it changes a number
    optimizer = make(make_params(SMALL_SHAPES, dtype, "cpu"), lr=1e-2)
    optimizer.step()  # the first makes the state
    with Traffic() as traffic:
        optimizer.step()
    assert traffic.moved_bytes % small_parameters == 0
    return {
        "operations": traffic.num_operations,
        "per_parameter_bytes": traffic.moved_bytes // small_parameters,
    }


traffic = {name: count_traffic(make) for name, make in IMPLEMENTATIONS.items()}
for name, count in traffic.items():
    operations, moved_per_parameter = count.values()
    print(f"{name:15}operations: {operations:2}, traffic: {moved_per_parameter} B a parameter")
loop_operations = num_tensors * traffic["adamw_loop"]["operations"] // len(SMALL_SHAPES)
# --8<-- [end:traffic]


# --8<-- [start:measure]
measured_on_gpu = torch.cuda.is_available()
CPU_SHAPES = gpt2_shapes(num_layers=2, d=64, vocab_size=512, seq_len=64)
measured_shapes = SHAPES if measured_on_gpu else CPU_SHAPES
measured_parameters = sum(map(math.prod, measured_shapes))
measured_tensors = len(measured_shapes)


def difference(low: int | None, high: int | None) -> int | None:
    """Bytes between two readings; None where there was nothing to read."""
    return None if low is None or high is None else abs(high - low)


def measure(make: Make) -> dict[str, Any]:
    """Seconds of a step; GPU bytes of state, on top in a step, freed by zero_grad."""
    params = make_params(measured_shapes, device=get_device())
    optimizer = make(params, lr=1e-4)
    before = get_allocated_bytes()
    optimizer.step()
    after = get_allocated_bytes()
    extra_bytes = None
    if after is not None:
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        extra_bytes = torch.cuda.max_memory_allocated() - after
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least
    step = time_call(optimizer.step, min_seconds=0.2 if measured_on_gpu else 0.02)
    torch.set_num_threads(threads)
    optimizer.zero_grad()
    freed = get_allocated_bytes()
    return {
        "measured_state_bytes": difference(before, after),
        "measured_extra_bytes": extra_bytes,
        "measured_freed_bytes": difference(after, freed),
        "measured_step": step,
    }


# --8<-- [end:measure]


# --8<-- [start:compare]
def predict_seconds(count: dict[str, int]) -> float | None:
    """Seconds that the bytes of a step need at the datasheet's bandwidth."""
    gpu, moved_bytes = get_gpu(), count["per_parameter_bytes"] * measured_parameters
    return moved_bytes / gpu.bandwidth_bytes_per_second if gpu else None


measured_largest_bytes = 4 * max(map(math.prod, measured_shapes))
predicted_extra_bytes = {
    "adamw_loop": 2 * measured_largest_bytes,  # a root and its quotient, for one tensor
    "adamw_foreach": 4 * measured_parameters,  # the roots of all tensors
    "adamw_fused": 0,
    "momentum_fused": 0,
    "sgd_fused": 0,
}
predicted_state_bytes = {
    name: measured_parameters * state[name.split("_")[0]]["per_parameter_bytes"]
    for name in IMPLEMENTATIONS  # the name begins with that of the optimizer
}

steps = {name: measure(make) for name, make in IMPLEMENTATIONS.items()}
predicted_seconds = {name: predict_seconds(count) for name, count in traffic.items()}
measured_time_ratio = {
    name: steps[name]["measured_step"].median_seconds / predicted if predicted else None
    for name, predicted in predicted_seconds.items()
}
measured_extra_ratio = {
    name: steps[name]["measured_extra_bytes"] / predicted
    if predicted and steps[name]["measured_extra_bytes"] is not None
    else None
    for name, predicted in predicted_extra_bytes.items()
}
for name, measured in steps.items():
    print(f"{name:15}{measured['measured_step'].median_seconds * 1e3:8.3f} ms a step")
# --8<-- [end:compare]


# --8<-- [start:exercise_1]
gpu_bytes = GPUS["H100 SXM"].memory_bytes
largest_parameters = {
    name: gpu_bytes / (2 * held["element_bytes"] + held["per_parameter_bytes"])
    for name, held in state.items()  # parameter and gradient, then state
}
for name in ("sgd", "momentum", "adamw", "amsgrad", "adamw_bf16"):
    print(f"{name:11}{largest_parameters[name] / 1e9:6.2f}B parameters")
assert largest_parameters["adamw"] == 5e9 and largest_parameters["adamw_bf16"] == 10e9
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
def second_moment(dtype: torch.dtype) -> float:
    """Adam's mean square, made 1 by one gradient, after 1,000 more of zero."""
    w = torch.zeros(1, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.AdamW([w], foreach=False)
    for step in range(1001):
        w.grad = torch.full_like(w, math.sqrt(1000) if step == 0 else 0)
        optimizer.step()
    return round(float(optimizer.state[w]["exp_avg_sq"]), 2)


remaining = {
    "float32": second_moment(torch.float32),
    "bfloat16": second_moment(torch.bfloat16),
}
print(remaining, " expected:", round(0.999**1000, 2))
assert remaining == {"float32": 0.37, "bfloat16": 1.0}
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def frozen_weight(make: Make, set_to_none: bool) -> float:
    """How far a weight moves in ten steps after the loss has dropped it."""
    w = float64(1.0)
    optimizer = make([w], lr=0.01)
    w.sum().backward()
    optimizer.step()
    after_one = w.item()
    for _ in range(10):
        optimizer.zero_grad(set_to_none)
        optimizer.step()
    return round(w.item() - after_one, 4)


moved = {
    name: {"zeros": frozen_weight(make, False), "none": frozen_weight(make, True)}
    for name, make in {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}.items()
}
print(moved)
assert moved["sgd"] == {"zeros": 0, "none": 0}
assert moved["adamw"]["zeros"] < -0.03 and moved["adamw"]["none"] == 0
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
TURN = math.sqrt(0.5) * float64(1, 1, -1, 1).detach().view(2, 2)  # by 45°


def distance(path: Sequence[Sequence[float]]) -> float:
    """From the end of a path to the minimum."""
    return round(math.dist(path[-1], MINIMUM), 2)


def turned_valley(w: Tensor) -> Tensor:
    """The same loss; the valley now runs across both axes."""
    return valley(TURN @ w)


def turn_back(path: list[list[float]]) -> list[list[float]]:
    """The path as the valley along the axes would show it."""
    turned_back: list[list[float]] = (TURN.new_tensor(path) @ TURN.T).tolist()
    return turned_back


straight = {name: distance(paths[name]) for name in FAMILY}
turned = {
    name: distance(turn_back(descend(make, turned_valley)))
    for name, make in FAMILY.items()  # nothing else has changed
}
for name in FAMILY:
    print(f"{name:10}{straight[name]:.2f} along the axes, {turned[name]:.2f} turned")
assert all(abs(straight[name] - turned[name]) < 0.02 for name in ("sgd", "momentum"))
assert all(turned[name] > straight[name] + 0.1 for name in ("adagrad", "rmsprop", "adam"))
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
more_traffic = {
    "amsgrad": count_traffic(partial(torch.optim.Adam, amsgrad=True, fused=True)),
    "adamw_bf16": count_traffic(partial(torch.optim.AdamW, fused=True), torch.bfloat16),
}
for name, count in more_traffic.items():
    print(f"{name:11}{count['per_parameter_bytes']} B a parameter")
assert more_traffic["amsgrad"]["per_parameter_bytes"] == 4 * (5 + 4)
assert more_traffic["adamw_bf16"]["per_parameter_bytes"] == 2 * (4 + 3)
# --8<-- [end:exercise_5]


# --8<-- [start:exercise_6]
def after_nan(optimizer_class: Make, check: bool) -> float:
    """A weight of 1 after five steps with gradient 1, but for one NaN."""
    w = float64(1.0)
    optimizer = optimizer_class([w], lr=0.1)
    for step in range(5):
        w.grad = torch.full_like(w, math.nan if step == 1 else 1.0)
        if not check or w.grad.isfinite().all():
            optimizer.step()
    return w.item()


unchecked = after_nan(torch.optim.AdamW, check=False)
checked = after_nan(torch.optim.AdamW, check=True)
print("unchecked:", unchecked, " checked:", round(checked, 3))
assert math.isnan(unchecked) and not math.isnan(checked)
# --8<-- [end:exercise_6]
