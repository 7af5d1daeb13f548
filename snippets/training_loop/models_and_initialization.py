# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A model's parameters: what they are, and how large to draw them, again the same."""

import math
from typing import Any

import torch
from torch import nn

from flops_bytes.lessons.measure import time_call

torch.set_num_threads(1)  # on a CPU; work as small as this gains nothing from more


def seeded(seed: int) -> torch.Generator:
    """A generator of one's own, on the CPU: the same seed gives the same numbers."""
    return torch.Generator().manual_seed(seed)


Rng = torch.Generator | None  # where random numbers come from; None: the global one


# --8<-- [start:nan]
torch.manual_seed(0)
for scale in (1, 256**-0.5):  # 256**-0.5: one over the root of the width
    x = torch.randn(64, 256)
    for _ in range(32):
        x = x @ (scale * torch.randn(256, 256))
    print(f"weights times {scale}: outputs of scale {x.std():.0f}, any nan: {x.isnan().any()}")
# --8<-- [end:nan]


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
assert too_large(data).isnan().all()


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
assert measured_depth["unit"][NUM_LAYERS] is None  # infinite


limits = {  # lines of the figure
    "float32_largest": torch.finfo(torch.float32).max,
    "float16_largest": torch.finfo(torch.float16).max,
    "float16_smallest": torch.finfo(torch.float16).tiny,  # that is not subnormal
}


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


FAN_IN, NUM_STD = 16384, 3  # cut off beyond three standard deviations
STD = 1 / math.sqrt(FAN_IN)  # 1/128
bound_in_std = NUM_STD / STD  # how far away a = -3, b = 3 is


def lecun(fan_in: int, fan_out: int) -> float:
    """LeCun et al. 1998: outputs keep the scale of inputs."""
    return math.sqrt(1 / fan_in)


def glorot(fan_in: int, fan_out: int) -> float:
    """Glorot and Bengio 2010, also called Xavier: between outputs and gradients."""
    return math.sqrt(2 / (fan_in + fan_out))


FANS = {"square": (768, 768), "up": (768, 3072), "down": (3072, 768)}  # GPT-2 small
rule_ratio = {shape: glorot(*fans) / lecun(*fans) for shape, fans in FANS.items()}
assert len(set(rule_ratio.values())) == 3  # no constant


left_first, right_first = (1e16 + -1e16) + 1.0, 1e16 + (-1e16 + 1.0)
assert left_first == 1.0 and right_first == 0.0


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
assert measured_fixed is None or measured_fixed["different"] == 1


# --8<-- [start:exercise_empty]
class Hidden(nn.Module):
    """Its layers stand in a Python list, where a module does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(64, 64, bias=False) for _ in range(2)]
        self.register_buffer("mask", torch.ones(64))  # state that is not trained


hidden = Hidden()
found = nn.ModuleList(hidden.layers)
print("in a list:", sum(p.numel() for p in hidden.parameters()), list(hidden.state_dict()))
print("in a ModuleList:", sum(p.numel() for p in found.parameters()))
# --8<-- [end:exercise_empty]


hidden_parameters = sum(p.numel() for p in hidden.parameters())
found_parameters = sum(p.numel() for p in found.parameters())


# --8<-- [start:exercise_relu]
torch.manual_seed(1)
for name, gain in {"LeCun": 1, "He": 2**0.5}.items():
    x = torch.randn(32, 1024)
    for _ in range(8):
        x = (x @ torch.randn(1024, 1024) * gain / 1024**0.5).relu()
    print(name, f"{x.square().mean().sqrt().item():.1g}")
# --8<-- [end:exercise_relu]


lecun_relu_scale = 2 ** (-8 / 2)  # half of the mean square lost, eight times
