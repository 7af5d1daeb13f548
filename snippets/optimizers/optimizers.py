# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""The family of optimizers from scratch, each one PyTorch's own with one more idea."""

import copy
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from flops_bytes.lessons.models import build
from flops_bytes.model.shapes import GPT2_SMALL

# --8<-- [start:optimizer]
State = dict[str, Any]  # what an optimizer remembers of one parameter
Options = dict[str, Any]  # of a group of parameters: its learning rate and the like


class SGD(torch.optim.Optimizer):
    """Steps against the gradient. Those below change `options` and `update`."""

    options: ClassVar[Options] = {}

    def __init__(self, params: Iterable[Any], lr: float, **options: float) -> None:
        super().__init__(params, defaults={"lr": lr, **self.options, **options})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # torch's also takes a closure
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:  # else it took no part in the loss
                    self.update(w, w.grad, self.state[w], group)

    def update(self, w: Tensor, g: Tensor, state: State, group: Options) -> None:
        w.sub_(g, alpha=group["lr"])


# --8<-- [end:optimizer]


# --8<-- [start:valley]
CURVATURE = 1.0, 50.0  # along the valley, across it
MINIMUM = 4.0, 1.5
STEPS = 40


def valley(w: Tensor) -> Tensor:
    """The loss at w: flat along the first weight, steep along the second."""
    offset = w - w.new_tensor(MINIMUM)
    return 0.5 * (w.new_tensor(CURVATURE) * offset**2).sum()


def descend(
    make: Callable[..., torch.optim.Optimizer],
    loss: Callable[[Tensor], Tensor] = valley,
) -> list[list[float]]:
    """Both weights after each step from (0, 0)."""
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer, path = make([w]), [w.tolist()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(w).backward()
        optimizer.step()
        path.append([round(x, 3) + 0.0 for x in w.tolist()])  # + 0.0: no "-0.0"
    return path


# --8<-- [end:valley]

# --8<-- [start:sgd]
LR = 0.036  # 0.04 would be too much

path = descend(partial(SGD, lr=LR))
print("second weight:", *(w[1] for w in path[:6]), "…", path[-1][1])
print("first weight: ", *(w[0] for w in path[:6]), "…", path[-1][0])
# --8<-- [end:sgd]

limit_lr = 2 / max(CURVATURE)  # beyond it, each step overshoots by more
expected_first_weight = MINIMUM[0] * (1 - (1 - LR * CURVATURE[0]) ** STEPS)
left_share = 1 - path[-1][0] / MINIMUM[0]
assert abs(path[-1][0] - expected_first_weight) < 1e-3
too_fast = descend(partial(SGD, lr=1.05 * limit_lr))
assert abs(too_fast[-1][1]) > abs(too_fast[1][1])  # it runs away

Make = Callable[..., torch.optim.Optimizer]


def float64(*numbers: float) -> Tensor:
    """A parameter in double precision: checks should agree to many digits."""
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


# --8<-- [start:momentum]
def remembered(state: State, name: str, w: Tensor) -> Tensor:
    """state[name], at first zeros. setdefault would make zeros at every step."""
    if name not in state:
        state[name] = torch.zeros_like(w)
    memory: Tensor = state[name]
    return memory


class Momentum(SGD):
    options: ClassVar = {"momentum": 0.9}

    def update(self, w: Tensor, g: Tensor, state: State, group: Options) -> None:
        velocity = remembered(state, "velocity", w)
        velocity.mul_(group["momentum"]).add_(g)
        w.sub_(velocity, alpha=group["lr"])


# --8<-- [end:momentum]


# --8<-- [start:adagrad]
class AdaGrad(SGD):
    options: ClassVar = {"eps": 1e-10}  # against division by zero, outside the root

    def update(self, w: Tensor, g: Tensor, state: State, group: Options) -> None:
        total = remembered(state, "sum_of_squares", w)
        total.addcmul_(g, g)  # first: the sum runs up to and including step t
        w.addcdiv_(g, total.sqrt().add_(group["eps"]), value=-group["lr"])


# --8<-- [end:adagrad]


# --8<-- [start:rmsprop]
class RMSProp(SGD):
    options: ClassVar = {"alpha": 0.99, "eps": 1e-8}

    def update(self, w: Tensor, g: Tensor, state: State, group: Options) -> None:
        square = remembered(state, "mean_square", w)
        square.mul_(group["alpha"]).addcmul_(g, g, value=1 - group["alpha"])
        w.addcdiv_(g, square.sqrt().add_(group["eps"]), value=-group["lr"])


# --8<-- [end:rmsprop]


# --8<-- [start:adam]
class Adam(SGD):
    options: ClassVar = {"betas": (0.9, 0.999), "eps": 1e-8}

    def update(self, w: Tensor, g: Tensor, state: State, group: Options) -> None:
        t = state["step"] = state.get("step", 0) + 1
        mean = remembered(state, "mean", w)
        square = remembered(state, "mean_square", w)
        beta_1, beta_2 = group["betas"]
        mean.lerp_(g, 1 - beta_1)  # β₁ · mean + (1 − β₁) · g
        square.mul_(beta_2).addcmul_(g, g, value=1 - beta_2)

        mean_hat = self.correct(mean, beta_1, t)
        square_hat = self.correct(square, beta_2, t)
        w.addcdiv_(mean_hat, square_hat.sqrt().add_(group["eps"]), value=-group["lr"])

    def correct(self, average: Tensor, beta: float, t: int) -> Tensor:
        """An average that began at zero has seen only 1 − βᵗ of its weight."""
        return average / (1 - beta**t)


# --8<-- [end:adam]


TIMES = [1, 2, 3, 5, 7, 10, 12, 14, 20, 30, 50, 70, 100, 140, 200, 300, 500, 700, 1000]


class UncorrectedAdam(Adam):
    def correct(self, average: Tensor, beta: float, t: int) -> Tensor:
        return average.clone()


def step_lengths(make: Make, gradient: float = 1.0) -> list[float]:
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


OURS = (SGD, Momentum, AdaGrad, RMSProp, Adam, UncorrectedAdam)
lengths = {made.__name__: step_lengths(made) for made in OURS}
momentum_limit, rmsprop_first = lengths["Momentum"][-1], lengths["RMSProp"][0]
uncorrected = lengths["UncorrectedAdam"]
uncorrected_first, uncorrected_longest = uncorrected[0], max(uncorrected)

print(f"{'step number':16}" + "".join(f"{TIMES[i]:9,}" for i in (0, 5, 12, -1)))
for name, series in lengths.items():
    print(f"{name:16}" + "".join(f"{series[i]:9.3f}" for i in (0, 5, 12, -1)))


dampened = step_lengths(partial(torch.optim.SGD, momentum=0.9, dampening=0.9))
assert momentum_limit == 10 and set(dampened) == {1.0}  # a sum, and an average
assert lengths["AdaGrad"] == [round(1 / math.sqrt(t), 3) for t in TIMES]
assert lengths["RMSProp"] == [round(1 / math.sqrt(1 - 0.99**t), 3) for t in TIMES]
assert set(lengths["Adam"]) == {1.0}
for made in (AdaGrad, RMSProp, Adam):  # the size of the gradient cancels
    assert step_lengths(made, gradient=1000.0) == step_lengths(made)


# --8<-- [start:adamw]
class AdamW(Adam):
    options: ClassVar = {**Adam.options, "weight_decay": 0.01}

    def update(self, w: Tensor, g: Tensor, state: State, group: Options) -> None:
        w.mul_(1 - group["lr"] * group["weight_decay"])  # not through the gradient
        super().update(w, g, state, group)


# --8<-- [end:adamw]


def decayed(make: Make, weight_decay: float, gradient: float) -> float:
    """A weight of 1 after 50 steps; the sign of its gradient alternates."""
    w = float64(1.0)
    optimizer = make([w], lr=0.01, weight_decay=weight_decay)
    for step in range(50):
        w.grad = torch.full_like(w, gradient * (-1) ** step)
        optimizer.step()
    return w.item()


def lost(make: Make, gradient: float) -> float:
    """What of this the decay has taken away."""
    without, with_decay = (decayed(make, decay, gradient) for decay in (0.0, 0.1))
    return round(without - with_decay, 3)


GRADIENTS = 1.0, 10.0
lost_adam = [lost(torch.optim.Adam, gradient) for gradient in GRADIENTS]
lost_adamw = [lost(torch.optim.AdamW, gradient) for gradient in GRADIENTS]
print("gradient 1 and 10: λ = 0.1 takes", "Adam", lost_adam, "AdamW", lost_adamw)
assert 9 < lost_adam[0] / lost_adam[1] < 11 and lost_adamw[0] == lost_adamw[1]


def shrink(make: Make, weight_decay: float) -> float:
    """A weight of 1 after 50 steps if the loss has no gradient."""
    return round(decayed(make, weight_decay, gradient=0.0), 4)


shrunk_adam = [shrink(torch.optim.Adam, decay) for decay in (0.1, 0.01)]
shrunk_adamw = [shrink(torch.optim.AdamW, decay) for decay in (0.1, 0.01)]
print("no gradient, λ = 0.1 and 0.01: Adam", shrunk_adam, "AdamW", shrunk_adamw)
assert shrunk_adam[0] == shrunk_adam[1]  # ten times the decay, the same weight
assert shrunk_adamw == [round((1 - 0.01 * decay) ** 50, 4) for decay in (0.1, 0.01)]


PAIRS: list[tuple[Make, Make]] = [
    (SGD, torch.optim.SGD),
    (Momentum, partial(torch.optim.SGD, momentum=0.9)),
    (AdaGrad, torch.optim.Adagrad),
    (RMSProp, torch.optim.RMSprop),
    (Adam, torch.optim.Adam),
    (AdamW, torch.optim.AdamW),
]
TOLERANCE = 1e-12

generator = torch.Generator().manual_seed(0)
gradients = torch.randn(100, 2, 12, generator=generator, dtype=torch.float64)


def run(make: Make) -> Tensor:
    """Parameters after 100 steps; the second has tiny gradients, the third none."""
    params = [float64(*[1.0] * 12) for _ in range(3)]
    optimizer = make(params, lr=0.1)
    for large, small in gradients:
        params[0].grad, params[1].grad = large, 1e-3 * small
        optimizer.step()
    assert params[2].eq(1).all()  # a gradient of None: untouched, and no crash
    return torch.stack(params).detach()


measured_errors = [(run(a) - run(b)).abs().max().item() for a, b in PAIRS]
print(f"{len(PAIRS)} pairs, largest difference below 1e-12:", end=" ")
print(max(measured_errors) < TOLERANCE)
assert max(measured_errors) < TOLERANCE


# --8<-- [start:paths]
FAMILY: dict[str, Callable[..., torch.optim.Optimizer]] = {  # learning rates chosen by hand, for this valley
    "sgd_limit": partial(SGD, lr=0.04),
    "sgd": partial(SGD, lr=LR),
    "momentum": partial(Momentum, lr=0.01),
    "adagrad": partial(AdaGrad, lr=1.0),
    "rmsprop": partial(RMSProp, lr=0.1),
    "adam": partial(Adam, lr=0.3),
}
paths = {name: descend(make) for name, make in FAMILY.items()}
# --8<-- [end:paths]


# --8<-- [start:two_groups]
def two_groups(params: Iterable[Tensor], weight_decay: float) -> list[Options]:
    """Decay for what multiplies; none for norms and biases, which are vectors."""
    params = list(params)
    return [
        {"params": [w for w in params if w.dim() >= 2], "weight_decay": weight_decay},
        {"params": [w for w in params if w.dim() < 2], "weight_decay": 0.0},
    ]


# --8<-- [end:two_groups]


model = build(GPT2_SMALL)  # on meta: shapes without memory
one = AdamW(model.parameters(), lr=6e-4)
two = AdamW(two_groups(model.parameters(), weight_decay=0.1), lr=6e-4)

tensors = [[len(group["params"]) for group in made.param_groups] for made in (one, two)]
sizes = [sum(w.numel() for w in group["params"]) for group in two.param_groups]
decayed_parameters, other_parameters = sizes
print("tensors in each group:", tensors)
print(f"{decayed_parameters:,} parameters decay, {other_parameters:,} do not")


def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """The weights of the first layer after five more steps."""
    for _ in range(5):
        optimizer.zero_grad()
        net(gradients).square().mean().backward()
        optimizer.step()
    return next(net.parameters()).detach().clone()


net = nn.Sequential(nn.Linear(12, 12), nn.LayerNorm(12), nn.Linear(12, 1)).double()
optimizer = AdamW(two_groups(net.parameters(), weight_decay=0.1), lr=1e-2)
train(net, optimizer)
saved_net, saved_state = copy.deepcopy((net, optimizer.state_dict()))
expected = train(net, optimizer)

resumed, forgetful = saved_net, copy.deepcopy(saved_net)
loaded = AdamW(two_groups(resumed.parameters(), weight_decay=0.0), lr=1.0)
loaded.load_state_dict(saved_state)  # options too: lr and weight_decay are the old ones
fresh = AdamW(two_groups(forgetful.parameters(), weight_decay=0.1), lr=1e-2)
print(loaded.state_dict()["param_groups"][0])
assert torch.equal(train(resumed, loaded), expected)
assert not torch.allclose(train(forgetful, fresh), expected)  # model alone: another run


class Forgetful(SGD):
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgotten: each step goes against the sum of all gradients so far."""


forgotten = descend(partial(Forgetful, lr=LR))
frictionless = descend(partial(Momentum, lr=LR, momentum=1.0))
start_distance = round(math.dist(forgotten[0], MINIMUM), 2)
late_distance = round(max(math.dist(w, MINIMUM) for w in forgotten[-10:]), 2)
assert forgotten == frictionless and late_distance > 0.95 * start_distance


# --8<-- [start:exercise_2]
def second_moment(dtype: torch.dtype) -> float:
    """Adam's mean square, made 1 by one gradient, after 1,000 more of zero."""
    w = torch.zeros(1, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.AdamW([w], foreach=False)
    for step in range(1001):
        w.grad = torch.full_like(w, math.sqrt(1000) if step == 0 else 0)
        optimizer.step()
    return round(float(optimizer.state[w]["exp_avg_sq"]), 2)


remaining_float32 = second_moment(torch.float32)
remaining_bfloat16 = second_moment(torch.bfloat16)
print(remaining_float32, remaining_bfloat16, "expected:", round(0.999**1000, 2))
# --8<-- [end:exercise_2]
assert (remaining_float32, remaining_bfloat16) == (0.37, 1.0)


# --8<-- [start:exercise_3]
def frozen_weight(make: Callable[..., torch.optim.Optimizer], set_to_none: bool) -> float:
    """How far a weight moves in ten steps after the loss has dropped it."""
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimizer = make([w], lr=0.01)
    w.sum().backward()
    optimizer.step()
    after_one = w.item()
    for _ in range(10):
        optimizer.zero_grad(set_to_none)
        optimizer.step()
    return round(w.item() - after_one, 4)


print("None:", [frozen_weight(made, set_to_none=True) for made in (SGD, AdamW)])
print("zero:", [frozen_weight(made, set_to_none=False) for made in (SGD, AdamW)])
# --8<-- [end:exercise_3]
assert frozen_weight(SGD, True) == frozen_weight(AdamW, True) == 0
assert frozen_weight(SGD, False) == 0 and frozen_weight(AdamW, False) < -0.03


# --8<-- [start:exercise_4]
TURN = math.sqrt(0.5) * torch.tensor([[1, 1], [-1, 1]], dtype=torch.float64)  # by 45°


def from_minimum(end: list[float]) -> float:
    return round(math.dist(end, MINIMUM), 2)


for name, make in FAMILY.items():
    straight = from_minimum(paths[name][-1])
    turned_end = descend(make, lambda w: valley(TURN @ w))[-1]
    turned = from_minimum((TURN @ TURN.new_tensor(turned_end)).tolist())
    print(f"{name:10}ends {straight:.2f} away, in the turned valley {turned:.2f}")
    # --8<-- [end:exercise_4]
    if name in ("adagrad", "rmsprop", "adam"):
        assert turned > straight + 0.1
    else:
        assert abs(turned - straight) < 0.02


# --8<-- [start:exercise_5]
class Nesterov(Momentum):
    def update(self, w: Tensor, g: Tensor, state: State, group: Options) -> None:
        mu, velocity = group["momentum"], remembered(state, "velocity", w)
        velocity.mul_(mu).add_(g)
        w.sub_(g + mu * velocity, alpha=group["lr"])  # where the velocity will be


nesterov = partial(torch.optim.SGD, momentum=0.9, nesterov=True)
print(descend(partial(Nesterov, lr=0.01)) == descend(partial(nesterov, lr=0.01)))
# --8<-- [end:exercise_5]

assert (run(Nesterov) - run(nesterov)).abs().max() < TOLERANCE
