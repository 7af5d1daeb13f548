# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""How much of the promised FLOP/s arrives: where the promise comes from, what is measured, what the quotient means."""

# --8<-- [start:setup]
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from flops_bytes.gpus import GPUS
from flops_bytes.measure import Timing, divide, get_device, time_call
from flops_bytes.measure import get_peak_flop_per_second as peak_of

SIDE = 8192  # of the square product that is measured on a GPU
DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8")


def has_gpu() -> bool:
    """Whether there is a GPU to measure; a CPU gets smaller work."""
    return torch.cuda.is_available()


# --8<-- [end:setup]


# --8<-- [start:chip]
class Chip(NamedTuple):
    """What multiplies in a GPU, and how often a second (NVIDIA's whitepapers)."""

    num_sms: int  # streaming multiprocessors
    tensor_cores: int  # in each of them
    tensor_fma: int  # multiply-adds of one tensor core in a clock, bf16, dense
    tensor_hertz: float
    cuda_cores: int  # in each SM; one fp32 multiply-add in a clock
    cuda_hertz: float


# --8<-- [end:chip]


# --8<-- [start:derive]

CHIPS = {
    "A100 80GB SXM": Chip(108, 4, 256, 1.41e9, 64, 1.41e9),
    "H100 SXM": Chip(132, 4, 512, 1.83e9, 128, 1.98e9),
}


def derive(chip: Chip) -> dict[str, float]:
    """FLOP/s of all units at work in every clock; a multiply-add is 2 FLOPs."""
    fma = chip.num_sms * chip.tensor_cores * chip.tensor_fma
    return {
        "bfloat16": fma * 2 * chip.tensor_hertz,
        "float32": chip.num_sms * chip.cuda_cores * 2 * chip.cuda_hertz,
    }


DERIVED_FLOP_PER_SECOND = {name: derive(chip) for name, chip in CHIPS.items()}
for name, derived in DERIVED_FLOP_PER_SECOND.items():
    for dtype, made in derived.items():
        printed = GPUS[name].peak_flop_per_second[dtype]  # by NVIDIA
        print(f"{name:14}{dtype:9}{made / 1e12:6.1f}, printed {printed / 1e12:6.1f}")
        assert math.isclose(made, printed, rel_tol=1e-3)
# --8<-- [end:derive]


# --8<-- [start:which_peak]
TABLE_GPUS = ("A100 80GB SXM", "H100 SXM", "H200 SXM")  # rows of gpus.GPUS
PEAK_FLOP_PER_SECOND = {gpu: GPUS[gpu].peak_flop_per_second for gpu in TABLE_GPUS}
HEADLINE_FLOP_PER_SECOND = 1979e12  # bf16 "with sparsity": H100 datasheet

a100 = PEAK_FLOP_PER_SECOND["A100 80GB SXM"]
h100 = PEAK_FLOP_PER_SECOND["H100 SXM"]
headline_ratio = HEADLINE_FLOP_PER_SECOND / h100["bfloat16"]
assert round(headline_ratio, 2) == 2  # the headline is not the dense peak

mixed_up_ratio = HEADLINE_FLOP_PER_SECOND / a100["bfloat16"]  # sparse over dense
h100_over_a100_ratio = h100["bfloat16"] / a100["bfloat16"]  # dense over dense
tensor_over_cuda_ratio = h100["bfloat16"] / h100["float32"]
print(f"H100 over A100: {h100_over_a100_ratio:.2f}, mixed up {mixed_up_ratio:.2f}")
print(f"bf16 over fp32: {tensor_over_cuda_ratio:.1f}")
# --8<-- [end:which_peak]


# --8<-- [start:precision]
default_precision = torch.get_float32_matmul_precision()
print("fp32 products:", default_precision)
assert default_precision == "highest"  # fp32 all the way: no tensor core
# --8<-- [end:precision]


# --8<-- [start:multiply]
def stored_as(dtype: str) -> torch.dtype:
    """How operands lie in memory; TF32 is a way to multiply, not to store."""
    special = {"tf32": torch.float32, "float8": torch.float8_e4m3fn}
    return special.get(dtype) or getattr(torch, dtype)


def is_supported(dtype: str) -> bool:
    """Whether the GPU has units for this type; a CPU without them emulates it."""
    if not has_gpu():
        return dtype in ("float32", "float16", "bfloat16")
    needed = {"float16": (7, 0), "tf32": (8, 0), "bfloat16": (8, 0), "float8": (8, 9)}
    return torch.cuda.get_device_capability() >= needed.get(dtype, (0, 0))


def multiply(dtype: str, m: int, n: int, k: int) -> Callable[[], torch.Tensor]:
    """A call that multiplies random x (m, k) by w (k, n).

    w is the transpose of a matrix in memory, as in nn.Linear; fp8 demands that.
    """
    x = torch.randn(m, k, device=get_device()).to(stored_as(dtype))
    w = torch.randn(n, k, device=get_device()).to(stored_as(dtype)).t()
    if dtype != "float8":
        return lambda: x @ w
    one = torch.ones((), device=get_device())  # the scale of each operand
    kind = torch.bfloat16
    return lambda: torch._scaled_mm(x, w, one, one, out_dtype=kind, use_fast_accum=True)


def time_product(
    dtype: str,
    m: int,
    n: int,
    k: int,
    min_trials: int = 5,
    min_seconds: float = 0.02,
) -> Timing | None:
    """Time of one product; None if the device lacks the units or the memory."""
    if not is_supported(dtype):
        return None
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        return time_call(multiply(dtype, m, n, k), min_trials, min_seconds)
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.set_float32_matmul_precision(before)


def in_seconds(timing: Timing | None) -> float | None:
    """The median, if there is one."""
    return timing.median_seconds if timing else None


# --8<-- [end:multiply]


# --8<-- [start:measure]
torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
measured_side = SIDE if has_gpu() else 512
measured_flops = 2 * measured_side**3


def time_square(dtype: str) -> Timing | None:
    """Time of the square product, long enough for the clock to settle."""
    square = (measured_side, measured_side, measured_side)
    return time_product(dtype, *square, min_seconds=0.5 if has_gpu() else 0.05)


measured_products = {dtype: time_square(dtype) for dtype in DTYPES}
measured_seconds = {d: in_seconds(measured_products[d]) for d in DTYPES}
rate_flop_per_second = {d: divide(measured_flops, measured_seconds[d]) for d in DTYPES}
for dtype, rate in rate_flop_per_second.items():
    print(f"{dtype:9}", f"{rate / 1e12:.4g} TFLOP/s" if rate else "not here")
# --8<-- [end:measure]


# --8<-- [start:utilization]
predicted_peaks_flop_per_second = {d: peak_of(d) for d in DTYPES}


def predict(dtype: str) -> float | None:
    """Seconds of the product at the peak; None where no peak is published."""
    return divide(measured_flops, predicted_peaks_flop_per_second[dtype])


predicted_seconds = {d: predict(d) for d in DTYPES}
matmul_mfu = {d: divide(predicted_seconds[d], measured_seconds[d]) for d in DTYPES}
measured_float32_rate = rate_flop_per_second["float32"]
measured_over_float32_ratio = {d: divide(rate_flop_per_second[d], measured_float32_rate) for d in DTYPES}
# --8<-- [end:utilization]


# --8<-- [start:sweep]
GPU_SIDES = (256, 512, 1024, 2048, 4096, 8192, 16384)
CPU_SIDES = (64, 128, 256, 512)


def rate_by_side(dtype: str) -> dict[str, float | None]:
    """FLOP/s of square products by their side; None where there is none."""
    rates = {}
    for side in GPU_SIDES if has_gpu() else CPU_SIDES:
        timing = time_product(dtype, side, side, side, min_trials=3)
        rates[str(side)] = divide(2 * side**3, in_seconds(timing))
    return rates


sweep_flop_per_second = {dtype: rate_by_side(dtype) for dtype in DTYPES}
for side, rate in sweep_flop_per_second["bfloat16"].items():
    print(f"bf16 {side:>6}", f"{rate / 1e12:.4g} TFLOP/s" if rate else "not here")
# --8<-- [end:sweep]


# --8<-- [start:tiles]
NUM_SMS = 132  # of an H100 or H200 SXM
TILE_ROWS, TILE_COLUMNS = 128, 256  # one of cuBLAS's large tiles


def tiling(m: int, n: int) -> dict[str, int | float]:
    """Tiles of an m × n result, and the rounds in which the SMs do them."""
    tiles = math.ceil(m / TILE_ROWS) * math.ceil(n / TILE_COLUMNS)
    waves = math.ceil(tiles / NUM_SMS)
    paid = waves * NUM_SMS * TILE_ROWS * TILE_COLUMNS  # numbers there is time for
    return {"tiles": tiles, "waves": waves, "filled_share": m * n / paid}


# --8<-- [end:tiles]


# --8<-- [start:shapes]
SHAPES = {  # rows and columns of the result, length of the sums
    "2048": (2048, 2048, 4096),
    "2304": (2304, 2304, 4096),
    "4096": (4096, 4096, 4096),
    "4224": (4224, 4096, 4096),
    "4352": (4352, 4096, 4096),
    "4097": (4097, 4097, 4096),
    "odd_sums": (4096, 4096, 4095),
}
tilings = {name: tiling(m, n) for name, (m, n, _) in SHAPES.items()}
grown_share = SHAPES["4352"][0] / SHAPES["4224"][0] - 1
assert tilings["4224"]["filled_share"] == 1
assert tilings["4352"]["waves"] == tilings["4224"]["waves"] + 1


def rate_of(m: int, n: int, k: int) -> float | None:
    """FLOP/s of a bf16 product; None on a CPU, which has no SMs."""
    if not has_gpu():
        return None
    timing = time_product("bfloat16", m, n, k, min_seconds=0.1)
    return divide(2 * m * n * k, in_seconds(timing))


shape_flop_per_second = {name: rate_of(*shape) for name, shape in SHAPES.items()}
measured_full_rate = shape_flop_per_second["4224"]
measured_of_full_share = {name: divide(rate, measured_full_rate) for name, rate in shape_flop_per_second.items()}
measured_to_filled_ratio = {
    name: divide(share, tilings[name]["filled_share"]) for name, share in measured_of_full_share.items()
}
# --8<-- [end:shapes]


# --8<-- [start:prune]
def prune_2_of_4(w: torch.Tensor) -> torch.Tensor:
    """w with the two smallest of every four neighbours in a row set to zero."""
    groups = w.reshape(-1, 4)
    largest = groups.abs().topk(2).indices
    kept = groups.gather(1, largest)
    return torch.zeros_like(groups).scatter(1, largest, kept).view_as(w)


sample = torch.tensor([1, -9, 4, 2, 7, 6, -8, 0])
pruned = prune_2_of_4(sample)
print(sample.tolist(), "becomes", pruned.tolist())
assert (pruned == 0).sum() == sample.numel() // 2
# --8<-- [end:prune]


# --8<-- [start:sparse]
def time_sparse() -> Timing | None:
    """Time of the product with a pruned w; None where nothing can run it."""
    if not has_gpu():
        return None
    try:
        x = torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda")
        w = prune_2_of_4(torch.randn_like(x))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*prototype")
            packed = torch.sparse.to_sparse_semi_structured(w)
            return time_call(lambda: F.linear(x, packed), 5, 0.5)
    except (RuntimeError, NotImplementedError, ValueError):
        return None  # no such units, no library for them, no memory


measured_sparse = time_sparse()
measured_dense_seconds = measured_seconds["bfloat16"]
measured_sparse_ratio = divide(measured_dense_seconds, in_seconds(measured_sparse))
# --8<-- [end:sparse]


# --8<-- [start:layer_setup]
measured_tokens = 8192 if has_gpu() else 512
measured_d_model = 4096 if has_gpu() else 256


def normal(rows: int, columns: int) -> torch.Tensor:
    """A random matrix, bf16 on a GPU."""
    dtype = torch.bfloat16 if has_gpu() else torch.float32
    return torch.randn(rows, columns, dtype=dtype, device=get_device())


x = normal(measured_tokens, measured_d_model)
up = normal(measured_d_model, 4 * measured_d_model)
down = normal(4 * measured_d_model, measured_d_model)
hidden = x @ up
# --8<-- [end:layer_setup]


# --8<-- [start:layer]
def products() -> None:
    """The two products of a feed-forward layer, and nothing else."""
    x @ up
    hidden @ down


def half() -> torch.Tensor:
    """The layer up to its activation: normalization, product, GELU."""
    return F.gelu(F.layer_norm(x, (measured_d_model,)) @ up)


def layer() -> torch.Tensor:
    """All of the layer, with its residual."""
    return x + half() @ down


def recomputed() -> None:
    """The layer, and its first half once more, as checkpointing would."""
    layer()
    half()


# --8<-- [end:layer]


# --8<-- [start:three]
CALLS = {"products": products, "layer": layer, "recomputed": recomputed}
measured_calls = {name: time_call(CALLS[name], 9, 0.15) for name in CALLS}
measured_model_flops = 2 * 2 * measured_tokens * measured_d_model * 4 * measured_d_model

RATIOS = {  # what runs, and the FLOPs that count, over the model's
    "kernel": ("products", 1.0),
    "model": ("layer", 1.0),
    "model_recomputed": ("recomputed", 1.0),
    "hardware_recomputed": ("recomputed", 1.5),  # three products, not two
}
layer_flop_per_second = {
    ratio: counted * measured_model_flops / measured_calls[call].median_seconds
    for ratio, (call, counted) in RATIOS.items()
}
measured_kernel = layer_flop_per_second["kernel"]
predicted_peak = predicted_peaks_flop_per_second["bfloat16"]
measured_to_kernel_ratio = {r: layer_flop_per_second[r] / measured_kernel for r in RATIOS}
layer_mfu = {r: divide(layer_flop_per_second[r], predicted_peak) for r in RATIOS}
print({name: round(share, 2) for name, share in measured_to_kernel_ratio.items()})
# --8<-- [end:three]


# --8<-- [start:published]
PALM_MFU, PALM_HFU_SHARE = 0.462, 0.578  # PaLM, section 4.1
palm_ratio = PALM_HFU_SHARE / PALM_MFU
full_recompute_ratio = (2 + 4 + 2) / (2 + 4)  # a second forward, over the model's own
assert 1 < palm_ratio < full_recompute_ratio

LONE_MATMUL_SHARE = {  # bf16, the best of many shapes: mamf-finder, ml-engineering
    "A100 SXM": 0.869,
    "GH200": 0.838,
    "H100 SXM": 0.803,
    "B200 SXM": 0.776,
    "GB200": 0.729,
    "MI300X": 0.514,
}
LONE_FLOAT8_SHARE = 0.709  # H100 SXM, the same table
TRAINING_MFU = {
    "gpt_3": 0.213,  # V100; this and the next two: PaLM, table 3
    "mt_nlg": 0.302,  # A100
    "palm": PALM_MFU,  # TPU v4
    "megascale": 0.552,  # 175B parameters on 12,288 GPUs: MegaScale, abstract
    "llama_3_405b": 0.41,  # on 16,384 H100s: The Llama 3 Herd of Models, table 4
}
assert max(TRAINING_MFU.values()) < LONE_MATMUL_SHARE["GB200"]
# --8<-- [end:published]


# --8<-- [start:exercise_1]
NO_PEAK = 1.0  # what some tables of peaks return for a device they do not hold
TRACE_PRINTED = 11_739_062_719  # as "mfu", in a lecture's published trace
TRACE_FLOP_PER_SECOND = TRACE_PRINTED * NO_PEAK  # undo the division

trace_share = TRACE_FLOP_PER_SECOND / h100["float32"]
print(f"{TRACE_FLOP_PER_SECOND / 1e9:.1f} GFLOP/s, {trace_share:.3%} of an H100")
assert trace_share < 0.001  # no such GPU at work
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
LECTURE_SECONDS = {"float32": 0.16, "bfloat16": 0.03}  # as spoken, on an H100

lecture_flops = 2 * 16384 * 32768 * 8192
lecture_rates = {dtype: lecture_flops / t for dtype, t in LECTURE_SECONDS.items()}
lecture_share = {dtype: rate / h100[dtype] for dtype, rate in lecture_rates.items()}
headline_share = lecture_rates["bfloat16"] / HEADLINE_FLOP_PER_SECOND
print({dtype: round(share, 2) for dtype, share in lecture_share.items()})
print(f"bf16 against the headline: {headline_share:.2f}")

reachable = h100["bfloat16"] * LONE_MATMUL_SHARE["H100 SXM"]
EXPECTED_SECONDS = lecture_flops / reachable
print(f"bf16 as fast as mamf-finder's: {EXPECTED_SECONDS * 1e3:.1f} ms")
assert LECTURE_SECONDS["bfloat16"] / 2 > EXPECTED_SECONDS
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
GPT2_TOKENS = 8192
GPT2_VOCABULARY = {"unpadded": 50257, "padded": 50304}

vocabularies = {key: tiling(GPT2_TOKENS, n) for key, n in GPT2_VOCABULARY.items()}
for key, cut in vocabularies.items():
    print(f"{key:9}{cut['tiles']} tiles, {cut['waves']} waves")
assert vocabularies["unpadded"]["tiles"] == vocabularies["padded"]["tiles"]
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
PRODUCTS_PART, OTHER_PART, WAITING_PART = 0.7, 0.2, 0.1  # of the time of a step
KERNEL_SHARE = 0.8  # of the peak, while products run

step_share = KERNEL_SHARE * PRODUCTS_PART
without_waiting_share = step_share / (PRODUCTS_PART + OTHER_PART)
print(f"MFU {step_share:.2f}; {without_waiting_share:.2f} if waiting did not count")
assert step_share < without_waiting_share < KERNEL_SHARE
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
fp8_speedup_ratio = 1 / (PRODUCTS_PART / 2 + OTHER_PART + WAITING_PART)
against_bf16_share = step_share * fp8_speedup_ratio
against_fp8_share = against_bf16_share * h100["bfloat16"] / h100["float8"]
print(f"{fp8_speedup_ratio:.2f} times as fast")
print(f"MFU {against_bf16_share:.2f} of the bf16 peak", end=", ")
print(f"{against_fp8_share:.2f} of the fp8 peak")
assert against_fp8_share < step_share < against_bf16_share
# --8<-- [end:exercise_5]
