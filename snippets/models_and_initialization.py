# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""A model's parameters: what they are, how large to draw them, how to draw them again."""

# --8<-- [start:setup]
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

# accounting.py, the book's toolkit, lies beside this file
from accounting import (
    get_allocated_bytes,
    get_device,
    get_memory_usage,
    same_storage,
    time_call,
)
from torch import nn

torch.set_num_threads(1)  # on a CPU; work as small as this gains nothing from more


def seeded(seed: int) -> torch.Generator:
    """A generator of one's own, on the CPU: the same seed gives the same numbers."""
    return torch.Generator().manual_seed(seed)


def std_of(x: torch.Tensor) -> float | None:
    """Standard deviation of all elements; None if it is infinite or not a number."""
    std = x.double().std().item()  # float64: squares of large float32 overflow
    return std if math.isfinite(std) else None


# --8<-- [end:setup]


# --8<-- [start:parameter]
class Layer(nn.Module):
    """x @ weight, (…, fan_in) → (…, fan_out); the weight is normal numbers."""

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        std: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_in, fan_out))
        self.plain = torch.zeros(fan_in)  # a tensor, but no parameter
        nn.init.normal_(self.weight, std=std, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x @ self.weight
        return y


layer = Layer(4, 2, std=1.0)
parameter_names = [name for name, _ in layer.named_parameters()]
print("parameters:", parameter_names)
print("requires_grad:", layer.weight.requires_grad, layer.plain.requires_grad)
assert isinstance(layer.weight, torch.Tensor) and parameter_names == ["weight"]
# --8<-- [end:parameter]


# --8<-- [start:model]
class DeepLinear(nn.Module):
    """Square layers, then a head with one output: (…, d_model) → (…)."""

    def __init__(
        self,
        d_model: int,
        num_layers: int,
        std: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        square = (Layer(d_model, d_model, std, generator) for _ in range(num_layers))
        self.layers = nn.ModuleList(square)
        self.head = Layer(d_model, 1, std, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.head(x)
        return y.squeeze(-1)


# --8<-- [end:model]


# --8<-- [start:nan]
D_MODEL, NUM_LAYERS, BATCH = 256, 32, 64  # deep, and not even wide

data = torch.randn(BATCH, D_MODEL, generator=seeded(0))
too_large = DeepLinear(D_MODEL, NUM_LAYERS, std=1.0, generator=seeded(1))
print(too_large(data)[:4])
assert too_large(data).isnan().all()
# --8<-- [end:nan]


# --8<-- [start:state_dict]
SMALL_D_MODEL, SMALL_NUM_LAYERS = 64, 2  # as in the CS336 lecture

small = DeepLinear(SMALL_D_MODEL, SMALL_NUM_LAYERS, std=SMALL_D_MODEL**-0.5)
state = small.state_dict()
for name, tensor in state.items():
    print(f"{name:17}{tuple(tensor.shape)}")
assert same_storage(state["head.weight"], small.head.weight)  # no copy
# --8<-- [end:state_dict]


# --8<-- [start:count]
WIDE_D_MODEL = 16384  # the lecture's width for the scale of an output


def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters; one that stands in two places counts once."""
    return sum(p.numel() for p in model.parameters())


def formula_parameters(d_model: int, num_layers: int) -> int:
    """L square layers and a head with one output: L d² + d."""
    return num_layers * d_model**2 + d_model


with torch.device("meta"):  # shapes without memory
    wide = DeepLinear(WIDE_D_MODEL, SMALL_NUM_LAYERS, std=WIDE_D_MODEL**-0.5)

small_parameters = count_parameters(small)
wide_parameters = count_parameters(wide)
wide_bytes = sum(get_memory_usage(p) for p in wide.parameters())
print(f"d = {SMALL_D_MODEL}: {small_parameters:,} parameters")
print(f"d = {WIDE_D_MODEL}: {wide_parameters:,} parameters, {wide_bytes:,} B")
assert small_parameters == formula_parameters(SMALL_D_MODEL, SMALL_NUM_LAYERS)
assert wide_parameters == formula_parameters(WIDE_D_MODEL, SMALL_NUM_LAYERS)
# --8<-- [end:count]


# --8<-- [start:move]
head_before = small.head.weight
measured_before_bytes = get_allocated_bytes()
moved = small.to(get_device(), torch.bfloat16)  # device, data type, or both
measured_after_bytes = get_allocated_bytes()
measured_moved_bytes = measured_after_bytes and measured_after_bytes - (measured_before_bytes or 0)
moved_bytes = sum(get_memory_usage(p) for p in small.parameters())
print("the same model:    ", moved is small)
print("the same parameter:", small.head.weight is head_before)
print("the parameter:     ", small.head.weight.dtype)
print("the plain tensor:  ", small.head.plain.dtype)
assert moved is small and small.head.weight is head_before
assert small.head.plain.dtype == torch.float32  # left behind
# --8<-- [end:move]


# --8<-- [start:scale]
WIDTHS = (64, 256, 1024, 4096, 16384)
ROWS, COLUMNS = 64, 256  # enough outputs for a standard deviation


def output_scale(d: int, scale: float) -> float | None:
    """Standard deviation of x @ (scale · w), x and w of unit normal numbers."""
    x = torch.randn(ROWS, d, generator=seeded(0))
    w = torch.randn(d, COLUMNS, generator=seeded(1))
    return std_of(x @ (scale * w))


root_d = {d: math.sqrt(d) for d in WIDTHS}  # the prediction
measured_scale = {d: output_scale(d, 1.0) for d in WIDTHS}
measured_scaled = {d: output_scale(d, d**-0.5) for d in WIDTHS}
measured_scale_ratio = {d: (measured_scale[d] or 0) / root_d[d] for d in WIDTHS}
print("     d    √d  measured  divided by √d")
for d in WIDTHS:
    print(f"{d:6}{root_d[d]:6.0f}{measured_scale[d]:10.1f}{measured_scaled[d]:15.3f}")
    assert abs(measured_scale_ratio[d] - 1) < 0.1
assert root_d[16384] == 128
# --8<-- [end:scale]


# --8<-- [start:one_draw]
def draw_outputs(seed: int) -> dict[str, float]:
    """The widest layer, divided by √d: its first output, and the scale of all."""
    x = torch.randn(4, WIDE_D_MODEL, generator=seeded(0))
    w = torch.randn(WIDE_D_MODEL, 128, generator=seeded(seed))
    y = x @ w / math.sqrt(WIDE_D_MODEL)
    return {"first": round(y[0, 0].item(), 2), "std": round(y.std().item(), 2)}


measured_draws = [draw_outputs(seed) for seed in (1, 2, 3, 4, 5)]
for draw in measured_draws:
    print(f"first output {draw['first']:5.2f}, standard deviation {draw['std']:.2f}")
assert len({draw["first"] for draw in measured_draws}) == len(measured_draws)
assert all(abs(draw["std"] - 1) < 0.2 for draw in measured_draws)
# --8<-- [end:one_draw]


# --8<-- [start:depth]
def scales_over_depth(std: float) -> list[float | None]:
    """Standard deviation of the activations: of the data, then after each layer."""
    model = DeepLinear(D_MODEL, NUM_LAYERS, std, generator=seeded(1))
    x, scales = data, [std_of(data)]
    with torch.no_grad():
        for layer in model.layers:
            x = layer(x)
            scales.append(std_of(x))
    return scales


WEIGHT_STD = {
    "unit": 1.0,  # torch.randn
    "default": 1 / math.sqrt(3 * D_MODEL),  # nn.Linear: uniform within ± 1/√d
    "lecun": 1 / math.sqrt(D_MODEL),
}
growth_ratio = {name: std * math.sqrt(D_MODEL) for name, std in WEIGHT_STD.items()}
limits = {
    "float32_largest": torch.finfo(torch.float32).max,
    "float16_largest": torch.finfo(torch.float16).max,
    "float16_smallest": torch.finfo(torch.float16).tiny,  # that is not subnormal
}
measured_depth = {name: scales_over_depth(std) for name, std in WEIGHT_STD.items()}
print("         a layer   layer 8   layer 16   layer 31   layer 32")
for name, scales in measured_depth.items():
    row = "".join(f"{scales[n] or math.nan:11.2g}" for n in (8, 16, 31, 32))
    print(f"{name:8}{growth_ratio[name]:8.3f}{row}")
assert measured_depth["unit"][NUM_LAYERS] is None  # infinite
# --8<-- [end:depth]


# --8<-- [start:truncation_fails]
FAN_IN = 16384
STD = 1 / math.sqrt(FAN_IN)  # 1/128
NUM_STD = 3  # cut off beyond three standard deviations

bound_in_std = NUM_STD / STD  # how far away a = -3, b = 3 is
beyond_share = math.erfc(NUM_STD / math.sqrt(2))  # of an untruncated normal


def truncated(bound: float) -> torch.Tensor:
    """Normal numbers of standard deviation STD within ± bound, in units of STD."""
    w = torch.empty(1024, 1024)
    nn.init.trunc_normal_(w, std=STD, a=-bound, b=bound, generator=seeded(0))
    return w / STD


absolute = truncated(bound=NUM_STD)  # the wrong line: a=-3, b=3
measured_beyond_share = (absolute.abs() > NUM_STD).double().mean().item()
measured_largest = absolute.abs().max().item()
print(f"the bounds are {bound_in_std:.0f} standard deviations away")
print(f"beyond three:  {measured_beyond_share:.3%} (a normal: {beyond_share:.3%})")
print(f"the largest:   {measured_largest:.2f} standard deviations")
assert measured_largest > NUM_STD  # nothing was cut
# --8<-- [end:truncation_fails]


# --8<-- [start:truncation]
relative = truncated(bound=NUM_STD * STD)  # a=-3*std, b=3*std
measured_cut_largest = relative.abs().max().item()


def truncated_std(c: float) -> float:
    """Standard deviation of a unit normal truncated at ± c.

    √(1 − 2c φ(c) / (2Φ(c) − 1)), φ the normal density, Φ its integral.
    """
    density = math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
    return math.sqrt(1 - 2 * c * density / math.erf(c / math.sqrt(2)))


kept_std = truncated_std(NUM_STD)
measured_kept_std = relative.double().std().item()
measured_kept_ratio = measured_kept_std / kept_std
print(f"the largest:        {measured_cut_largest:.4f}")
print(f"standard deviation: {measured_kept_std:.4f} (predicted {kept_std:.4f})")
assert measured_cut_largest <= NUM_STD + 1e-4
assert abs(measured_kept_ratio - 1) < 0.01
# --8<-- [end:truncation]


# --8<-- [start:fans]
FANS = {"square": (768, 768), "up": (768, 3072), "down": (3072, 768)}  # GPT-2 small


def lecun(fan_in: int, fan_out: int) -> float:
    """LeCun et al. 1998: outputs keep the scale of inputs."""
    return math.sqrt(1 / fan_in)


def glorot(fan_in: int, fan_out: int) -> float:
    """Glorot and Bengio 2010, also called Xavier: between outputs and gradients."""
    return math.sqrt(2 / (fan_in + fan_out))


def kept(
    rule: Callable[[int, int], float],
    fan_in: int,
    fan_out: int,
) -> dict[str, float]:
    """What a layer multiplies the scale by, forward and backward."""
    std = rule(fan_in, fan_out)
    w = std * torch.randn(fan_in, fan_out, generator=seeded(1))
    x = torch.randn(BATCH, fan_in, generator=seeded(2))
    g = torch.randn(BATCH, fan_out, generator=seeded(3))
    return {
        "std": std,
        "forward": std * math.sqrt(fan_in),
        "backward": std * math.sqrt(fan_out),
        "measured_forward": (x @ w).std().item(),
        "measured_backward": (g @ w.T).std().item(),
    }


rules = {
    "lecun": {shape: kept(lecun, *fans) for shape, fans in FANS.items()},
    "glorot": {shape: kept(glorot, *fans) for shape, fans in FANS.items()},
}
rule_ratio = {shape: glorot(*fans) / lecun(*fans) for shape, fans in FANS.items()}
for rule, shapes in rules.items():
    for shape, kept_scale in shapes.items():
        forward, backward = kept_scale["forward"], kept_scale["backward"]
        print(f"{rule:7}{shape:7}forward {forward:.3f}  backward {backward:.3f}")
print("Glorot / LeCun:", [round(r, 3) for r in rule_ratio.values()])
assert len(set(rule_ratio.values())) == 3  # no constant
# --8<-- [end:fans]


# --8<-- [start:torch_rules]
for fan_in, fan_out in FANS.values():
    w = torch.empty(fan_out, fan_in)  # nn.Linear's order: out, in
    nn.init.xavier_normal_(w, generator=seeded(0))
    assert abs(w.std().item() / glorot(fan_in, fan_out) - 1) < 0.01

linear = nn.Linear(FANS["up"][0], FANS["up"][1], bias=False)
measured_linear_growth = linear.weight.std().item() * math.sqrt(linear.in_features)
linear_growth = 1 / math.sqrt(3)
print(f"nn.Linear: {measured_linear_growth:.3f} a layer (1/√3 = {linear_growth:.3f})")
assert abs(measured_linear_growth / linear_growth - 1) < 0.01
# --8<-- [end:torch_rules]


# --8<-- [start:three_streams]
def three_draws() -> tuple[float, float, float]:
    """One number each from torch, NumPy and Python, from their global generators."""
    return torch.rand(1).item(), float(np.random.rand()), random.random()


torch.manual_seed(0)
measured_first = three_draws()
torch.manual_seed(0)
measured_second = three_draws()
same_after_torch_seed = [a == b for a, b in zip(measured_first, measured_second, strict=True)]
print("torch, NumPy, Python the same:", same_after_torch_seed)
assert same_after_torch_seed == [True, False, False]
# --8<-- [end:three_streams]


# --8<-- [start:shifted]
def draw_data(after_dropout: bool, own: bool) -> torch.Tensor:
    """Data drawn after a model has run, one with a dropout in it or one without."""
    torch.manual_seed(0)
    generator = seeded(1) if own else None  # None: the global one
    if after_dropout:
        nn.functional.dropout(torch.ones(8), p=0.1)  # draws from the global one
    return torch.randn(4, generator=generator)


same_data = {
    name: torch.equal(draw_data(False, own), draw_data(True, own))
    for name, own in {"global": False, "own": True}.items()
}
print("the same data after a dropout was added:", same_data)
assert same_data == {"global": False, "own": True}
# --8<-- [end:shifted]


# --8<-- [start:own]
torch_numbers = torch.rand(2, generator=seeded(0))
numpy_numbers = np.random.default_rng(0).random(2)
python_numbers = random.Random(0)  # its .random() and .shuffle() use it alone
torch.manual_seed(1)  # the global generators no longer matter
assert torch.equal(torch_numbers, torch.rand(2, generator=seeded(0)))
assert np.array_equal(numpy_numbers, np.random.default_rng(0).random(2))
assert python_numbers.random() == random.Random(0).random()
# --8<-- [end:own]


# --8<-- [start:same_seed]
def first_output(data_seed: int, weight_seed: int) -> float:
    """The product of a row of unit normals with a column of unit normals."""
    row = torch.randn(WIDE_D_MODEL, generator=seeded(data_seed))
    column = torch.randn(WIDE_D_MODEL, generator=seeded(weight_seed))
    return (row @ column).item()


measured_one_seed = first_output(data_seed=0, weight_seed=0)
measured_two_seeds = first_output(data_seed=0, weight_seed=1)
measured_one_seed_ratio = measured_one_seed / math.sqrt(WIDE_D_MODEL)
print(f"two seeds: {measured_two_seeds:9.0f}  (predicted: within a few times 128)")
print(f"one seed:  {measured_one_seed:9.0f}  (d = {WIDE_D_MODEL})")
assert abs(measured_one_seed / WIDE_D_MODEL - 1) < 0.1
assert abs(measured_two_seeds) < 6 * math.sqrt(WIDE_D_MODEL)
# --8<-- [end:same_seed]


# --8<-- [start:order]
left_first = (1e16 + -1e16) + 1.0
right_first = 1e16 + (-1e16 + 1.0)
print(left_first, right_first)
assert left_first == 1.0 and right_first == 0.0
# --8<-- [end:order]


# --8<-- [start:determinism]
ADDENDS, SUMS, SUM_WIDTH, RUNS = 65536, 1024, 768, 10  # 64 rows for each sum


def repeat_sums(deterministic: bool) -> dict[str, Any] | None:
    """How many different results equal runs give, and their time; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    generator = torch.Generator("cuda").manual_seed(0)
    options: dict[str, Any] = {"generator": generator, "device": "cuda"}
    rows = torch.randn(ADDENDS, SUM_WIDTH, **options)
    index = torch.randint(SUMS, (ADDENDS,), **options)
    sums = torch.zeros(SUMS, SUM_WIDTH, device="cuda")
    torch.use_deterministic_algorithms(deterministic)
    try:
        results = [sums.zero_().index_add_(0, index, rows).cpu() for _ in range(RUNS)]
        timing = time_call(lambda: sums.zero_().index_add_(0, index, rows))
    finally:
        torch.use_deterministic_algorithms(False)
    return {
        "different": len({result.numpy().tobytes() for result in results}),
        "timing": timing,
    }


measured_free = repeat_sums(deterministic=False)
measured_fixed = repeat_sums(deterministic=True)
measured_cost_ratio = (
    measured_fixed["timing"].median_seconds / measured_free["timing"].median_seconds
    if measured_free and measured_fixed
    else None
)
print("different results, free: ", measured_free and measured_free["different"])
print("different results, fixed:", measured_fixed and measured_fixed["different"])
print("time fixed / free:       ", measured_cost_ratio and round(measured_cost_ratio, 2))
assert measured_fixed is None or measured_fixed["different"] == 1
# --8<-- [end:determinism]


# --8<-- [start:exercise_1]
class Hidden(nn.Module):
    """Its layers stand in a Python list, where a module does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [Layer(64, 64, std=0.125) for _ in range(2)]
        self.register_buffer("mask", torch.ones(64))  # state that is not trained


hidden = Hidden()
hidden_parameters = count_parameters(hidden)
hidden_names = list(hidden.state_dict())
found = nn.ModuleList(hidden.layers)
found_parameters = count_parameters(found)
print("in a list:", hidden_parameters, " in a ModuleList:", found_parameters)
print("state dict:", hidden_names)
assert hidden_parameters == 0 and found_parameters == 2 * 64 * 64
assert hidden_names == ["mask"]
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
def layers_until_overflow(dtype: torch.dtype, d: int) -> int:
    """The first layer whose predicted scale exceeds the largest number."""
    return math.floor(math.log(torch.finfo(dtype).max) / math.log(math.sqrt(d))) + 1


overflow_layers = {
    "float16": layers_until_overflow(torch.float16, WIDE_D_MODEL),
    "float32": layers_until_overflow(torch.float32, WIDE_D_MODEL),
}
print(overflow_layers)
assert overflow_layers == {"float16": 3, "float32": 19}
assert 128.0**2 < torch.finfo(torch.float16).max < 128.0**3
assert 128.0**18 < torch.finfo(torch.float32).max < 128.0**19
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def after_relus(gain: float, layers: int = 8, d: int = 1024) -> float:
    """Root mean square after so many layers with ReLU, their std gain / √d."""
    x = torch.randn(32, d, generator=seeded(0))
    generator = seeded(1)
    for _ in range(layers):
        w = torch.randn(d, d, generator=generator)
        x = (x @ w * (gain / math.sqrt(d))).relu()
    return x.square().mean().sqrt().item()


lecun_relu_scale = 2 ** (-8 / 2)  # half of the mean square lost, eight times
measured_relu = {"lecun": after_relus(1.0), "he": after_relus(math.sqrt(2))}
print({name: round(value, 3) for name, value in measured_relu.items()})
assert abs(measured_relu["lecun"] / lecun_relu_scale - 1) < 0.25
assert abs(measured_relu["he"] - 1) < 0.25
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
JAX_CONSTANT = 0.87962566103423978  # jax.nn.initializers, truncation at two std

two_std = truncated_std(2)
corrected = torch.empty(1024, 1024)
cut_std = STD / two_std  # the std to ask for
bounds = {"a": -2 * cut_std, "b": 2 * cut_std}
nn.init.trunc_normal_(corrected, std=cut_std, **bounds, generator=seeded(0))
measured_corrected_ratio = corrected.double().std().item() / STD
print(f"{two_std:.6f}, measured over wanted: {measured_corrected_ratio:.4f}")
assert abs(two_std - JAX_CONSTANT) < 1e-9
assert abs(measured_corrected_ratio - 1) < 0.01
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
shallow = DeepLinear(64, 1, std=0.125, generator=seeded(0))
deeper = DeepLinear(64, 2, std=0.125, generator=seeded(0))
same_head = torch.equal(shallow.head.weight, deeper.head.weight)


def named(name: str) -> torch.Generator:
    """A generator for a use: its seed is the use's name, as bytes."""
    return seeded(int.from_bytes(name.encode()[:7]))


head_draw = torch.randn(4, generator=named("head"))
data_draw = torch.randn(4, generator=named("data"))
same_named_head = torch.equal(head_draw, torch.randn(4, generator=named("head")))
print("one generator:", same_head, " one for each name:", same_named_head)
assert not same_head and same_named_head
assert not torch.equal(head_draw, data_draw)
# --8<-- [end:exercise_5]
