# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A model's parameters: what they are, and how large to draw them, again the same."""

# --8<-- [start:setup]
import math
from typing import Any

import torch
from torch import nn

from flops_bytes.measure import time_call

torch.set_num_threads(1)  # on a CPU; work as small as this gains nothing from more


def seeded(seed: int) -> torch.Generator:
    """A generator of one's own, on the CPU: the same seed gives the same numbers."""
    return torch.Generator().manual_seed(seed)


Rng = torch.Generator | None  # where random numbers come from; None: the global one
# --8<-- [end:setup]


# --8<-- [start:parameter]
class Layer(nn.Module):
    """x @ weight, (…, fan_in) → (…, fan_out); the weight is normal numbers."""

    def __init__(self, fan_in: int, fan_out: int, std: float, rng: Rng = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_in, fan_out))
        self.plain = torch.zeros(fan_in)  # a tensor, but no parameter
        nn.init.normal_(self.weight, std=std, generator=rng)

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
    """Square layers, then a head with one output: (…, width) → (…)."""

    def __init__(self, width: int, depth: int, std: float, rng: Rng = None) -> None:
        super().__init__()
        square = (Layer(width, width, std, rng) for _ in range(depth))
        self.layers = nn.ModuleList(square)
        self.head = Layer(width, 1, std, rng)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.head(x)
        return y.squeeze(-1)


D_MODEL, NUM_LAYERS, BATCH = 256, 32, 64  # deep, and not even wide
data = torch.randn(BATCH, D_MODEL, generator=seeded(0))
too_large = DeepLinear(D_MODEL, NUM_LAYERS, std=1.0, rng=seeded(1))
print(too_large(data)[:4])
assert too_large(data).isnan().all()
# --8<-- [end:model]


# --8<-- [start:scale]
WIDTHS = (64, 256, 1024, 4096, 16384)
WIDE_D_MODEL = WIDTHS[-1]
ROWS, COLUMNS = 64, 256  # enough outputs for a standard deviation


def output_scale(d: int) -> float:
    """Standard deviation of x @ w, x and w of unit normal numbers."""
    x = torch.randn(ROWS, d, generator=seeded(0))
    w = torch.randn(d, COLUMNS, generator=seeded(1))
    return (x @ w).std().item()


root_d = {d: math.sqrt(d) for d in WIDTHS}  # the prediction
measured_scale = {d: output_scale(d) for d in WIDTHS}
measured_scale_ratio = {d: measured_scale[d] / root_d[d] for d in WIDTHS}
assert all(abs(ratio - 1) < 0.1 for ratio in measured_scale_ratio.values())
# --8<-- [end:scale]


# --8<-- [start:depth]
def std_of(x: torch.Tensor) -> float | None:
    """Standard deviation of all elements; None if it is infinite or not a number."""
    std = x.double().std().item()  # float64: squares of large float32 overflow
    return std if math.isfinite(std) else None


def scales_over_depth(std: float) -> list[float | None]:
    """Standard deviation of the activations: of the data, then after each layer."""
    model = DeepLinear(D_MODEL, NUM_LAYERS, std, rng=seeded(1))
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
measured_depth = {name: scales_over_depth(std) for name, std in WEIGHT_STD.items()}
print("         a layer   layer 8   layer 16   layer 31   layer 32")
for name, scales in measured_depth.items():
    row = "".join(f"{scales[n] or math.nan:11.2g}" for n in (8, 16, 31, 32))
    print(f"{name:8}{growth_ratio[name]:8.3f}{row}")
assert measured_depth["unit"][NUM_LAYERS] is None  # infinite
# --8<-- [end:depth]


# --8<-- [start:limits]
limits = {  # lines of the figure
    "float32_largest": torch.finfo(torch.float32).max,
    "float16_largest": torch.finfo(torch.float16).max,
    "float16_smallest": torch.finfo(torch.float16).tiny,  # that is not subnormal
}
# --8<-- [end:limits]


# --8<-- [start:residual]
NUM_BLOCKS = 12  # of GPT-2 small; each adds to the residual stream twice
STD_OF_GPT2 = 0.02  # Radford et al. 2019


def stream_scale(num_blocks: int, std: float) -> float:
    """Standard deviation of 1 plus two independent terms a block, of standard deviation std each."""
    return math.sqrt(1 + 2 * num_blocks * std**2)


residual_factor = 1 / math.sqrt(2 * NUM_BLOCKS)
stream_scales = {
    "plain": stream_scale(NUM_BLOCKS, 1.0),
    "scaled": stream_scale(NUM_BLOCKS, residual_factor),
}
residual_std = STD_OF_GPT2 * residual_factor  # of the matrices that write to the stream
root_d_stds = {d: 1 / math.sqrt(d) for d in (768, 4096)}  # GPT-2 small, Llama 3 8B
# --8<-- [end:residual]


# --8<-- [start:truncation]
FAN_IN, NUM_STD = 16384, 3  # cut off beyond three standard deviations
STD = 1 / math.sqrt(FAN_IN)  # 1/128
bound_in_std = NUM_STD / STD  # how far away a = -3, b = 3 is
# --8<-- [end:truncation]


# --8<-- [start:rules]
def lecun(fan_in: int, fan_out: int) -> float:
    """LeCun et al. 1998: outputs keep the scale of inputs."""
    return math.sqrt(1 / fan_in)


def glorot(fan_in: int, fan_out: int) -> float:
    """Glorot and Bengio 2010, also called Xavier: between outputs and gradients."""
    return math.sqrt(2 / (fan_in + fan_out))


FANS = {"square": (768, 768), "up": (768, 3072), "down": (3072, 768)}  # GPT-2 small
rule_ratio = {shape: glorot(*fans) / lecun(*fans) for shape, fans in FANS.items()}
print("Glorot / LeCun:", {shape: round(r, 3) for shape, r in rule_ratio.items()})
assert len(set(rule_ratio.values())) == 3  # no constant
# --8<-- [end:rules]


# --8<-- [start:order]
left_first, right_first = (1e16 + -1e16) + 1.0, 1e16 + (-1e16 + 1.0)
print(left_first, right_first)
assert left_first == 1.0 and right_first == 0.0
# --8<-- [end:order]


# --8<-- [start:determinism]
ADDENDS, SUMS, SUM_WIDTH, RUNS = 65536, 1024, 768, 10  # 64 rows for each sum


def repeat_sums(deterministic: bool) -> dict[str, Any] | None:
    """How many different results equal runs give, and their time; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    rows = torch.randn(ADDENDS, SUM_WIDTH, generator=seeded(0)).cuda()
    index = torch.randint(SUMS, (ADDENDS,), generator=seeded(1)).cuda()
    sums = torch.zeros(SUMS, SUM_WIDTH, device="cuda")
    torch.use_deterministic_algorithms(deterministic)
    results = [sums.zero_().index_add_(0, index, rows).cpu() for _ in range(RUNS)]
    timing = time_call(lambda: sums.zero_().index_add_(0, index, rows))
    torch.use_deterministic_algorithms(False)
    different = len({result.numpy().tobytes() for result in results})
    return {"different": different, "timing": timing}


measured_free = repeat_sums(deterministic=False)
measured_fixed = repeat_sums(deterministic=True)
print(measured_free, measured_fixed, sep="\n")
assert measured_fixed is None or measured_fixed["different"] == 1
# --8<-- [end:determinism]


# --8<-- [start:exercise_empty]
def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters; one that stands in two places counts once."""
    return sum(p.numel() for p in model.parameters())


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
# --8<-- [end:exercise_empty]


# --8<-- [start:exercise_relu]
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
# --8<-- [end:exercise_relu]
