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

# accounting.py, the book's toolkit, lies beside this file
from accounting import (
    GPUS,
    Timing,
    divide,
    get_device,
    get_peak_flop_per_second,
    time_call,
)
from torch.utils.flop_counter import FlopCounterMode

SIDE = 8192  # of the square product that is measured on a GPU
DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8")


def has_gpu() -> bool:
    """Whether there is a GPU to measure; a CPU gets smaller work."""
    return torch.cuda.is_available()


# --8<-- [end:setup]


# --8<-- [start:derive]
class Chip(NamedTuple):
    """What multiplies in a GPU, and how often a second (NVIDIA's whitepapers)."""

    num_sms: int  # streaming multiprocessors
    tensor_cores: int  # in each of them
    tensor_fma: int  # multiply-adds of one tensor core in a clock, bf16, dense
    tensor_hertz: float
    cuda_cores: int  # in each SM; one fp32 multiply-add in a clock
    cuda_hertz: float


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
print("TFLOP/s                derived  printed")
for name, derived in DERIVED_FLOP_PER_SECOND.items():
    for dtype in derived:
        printed = GPUS[name].peak_flop_per_second[dtype]  # on the datasheet
        print(f"{name:14}{dtype:9}{derived[dtype] / 1e12:7.1f}{printed / 1e12:9.1f}")
        assert math.isclose(derived[dtype], printed, rel_tol=1e-3)
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
h100_over_a100_ratio = {key: h100[key] / a100[key] for key in ("bfloat16", "float32")}
print(f"H100 over A100: {h100_over_a100_ratio['bfloat16']:.2f}", end=", ")
print(f"sparse over dense: {mixed_up_ratio:.2f}")
assert max(h100_over_a100_ratio.values()) < 4  # "H100 ≫ A100"

tensor_over_cuda_ratio = h100["bfloat16"] / h100["float32"]
print(f"bf16 over fp32: {tensor_over_cuda_ratio:.1f}")
assert tensor_over_cuda_ratio < 100  # "orders of magnitude": one, not two
# --8<-- [end:which_peak]


# --8<-- [start:same_flops]
def stored_as(dtype: str) -> torch.dtype:
    """How operands lie in memory; TF32 is a way to multiply, not to store."""
    special = {"tf32": torch.float32, "float8": torch.float8_e4m3fn}
    return special.get(dtype) or getattr(torch, dtype)


def count_flops(dtype: str) -> int:
    """FLOPs of a square product of a data type, counted but not computed."""
    x = torch.empty(SIDE, SIDE, dtype=stored_as(dtype), device="meta")
    with FlopCounterMode(display=False) as counter:
        x @ x
    return int(counter.get_total_flops())


product_flops = 2 * SIDE**3
counted_flops = {dtype: count_flops(dtype) for dtype in DTYPES}
operand_bytes = {dtype: SIDE**2 * stored_as(dtype).itemsize for dtype in DTYPES}
for dtype in DTYPES:
    print(f"{dtype:9}{counted_flops[dtype]:>18,} FLOPs", end="")
    print(f"{operand_bytes[dtype]:>14,} bytes an operand")

# against "higher precision needs more compute"
assert set(counted_flops.values()) == {product_flops}
# --8<-- [end:same_flops]


# --8<-- [start:precision]
default_precision = torch.get_float32_matmul_precision()
print("float32 products:", default_precision)
assert default_precision == "highest"  # "tensor cores are used by default"
# --8<-- [end:precision]


# --8<-- [start:multiply]
def is_supported(dtype: str) -> bool:
    """Whether the GPU has units for this data type; a CPU without them emulates what it is asked for here."""
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


# --8<-- [end:multiply]


# --8<-- [start:time_product]
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


# --8<-- [end:time_product]


# --8<-- [start:predict]
torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
measured_side = SIDE if has_gpu() else 512
measured_flops = 2 * measured_side**3

predicted_peaks_flop_per_second = {d: get_peak_flop_per_second(d) for d in DTYPES}
predicted_seconds = {dtype: divide(measured_flops, peak) for dtype, peak in predicted_peaks_flop_per_second.items()}
for dtype, seconds in predicted_seconds.items():
    print(f"{dtype:9}", f"{seconds * 1e3:.4g} ms" if seconds else "peak unknown")
# --8<-- [end:predict]


# --8<-- [start:measure]
def time_square(dtype: str) -> Timing | None:
    """Time of the square product, long enough for the clock to settle."""
    side = measured_side
    return time_product(dtype, side, side, side, min_seconds=0.5 if has_gpu() else 0.05)


measured_products = {dtype: time_square(dtype) for dtype in DTYPES}
measured_seconds = {d: in_seconds(measured_products[d]) for d in DTYPES}
matmul_flop_per_second = {d: divide(measured_flops, measured_seconds[d]) for d in DTYPES}
measured_over_float32_ratio = {
    dtype: divide(rate, matmul_flop_per_second["float32"]) for dtype, rate in matmul_flop_per_second.items()
}
for dtype, rate in matmul_flop_per_second.items():
    print(f"{dtype:9}", f"{rate / 1e12:.4g} TFLOP/s" if rate else "not here")
# --8<-- [end:measure]


# --8<-- [start:utilization]
def utilization(rate: float | None, peak: float | None) -> float | None:
    """The share of the peak that was reached; None, not 0 or 1, without a peak."""
    return divide(rate, peak)


matmul_mfu = {
    dtype: utilization(rate, predicted_peaks_flop_per_second[dtype]) for dtype, rate in matmul_flop_per_second.items()
}
for dtype, share in matmul_mfu.items():
    print(f"{dtype:9}", f"{share:.1%}" if share else "unknown")
# --8<-- [end:utilization]


# --8<-- [start:unknown]
NO_PEAK = 1.0  # what some tables of peaks return for a device they do not hold

measured_rate = max(rate for rate in matmul_flop_per_second.values() if rate)
print(f'"MFU" by a made-up peak: {measured_rate / NO_PEAK:,.0f}')
assert measured_rate / NO_PEAK > 1  # no share of anything
assert utilization(measured_rate, None) is None
# --8<-- [end:unknown]


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
for (m, n, _), cut in zip(SHAPES.values(), tilings.values(), strict=True):
    print(f"{m} × {n}: {cut['tiles']} tiles, {cut['waves']} waves", end=", ")
    print(f"{cut['filled_share']:.1%} filled")
assert tilings["4224"]["filled_share"] == 1
assert tilings["4352"]["waves"] == tilings["4224"]["waves"] + 1
# --8<-- [end:tiles]


# --8<-- [start:shapes]
def rate_of(m: int, n: int, k: int) -> float | None:
    """FLOP/s of a bf16 product; None on a CPU, which has no SMs."""
    if not has_gpu():
        return None
    timing = time_product("bfloat16", m, n, k, min_seconds=0.1)
    return divide(2 * m * n * k, in_seconds(timing))


shape_flop_per_second = {name: rate_of(*shape) for name, shape in SHAPES.items()}
measured_of_full_share = {
    name: divide(rate, shape_flop_per_second["4224"]) for name, rate in shape_flop_per_second.items()
}
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
print(sample.tolist(), "becomes")
print(pruned.tolist())
assert (pruned == 0).sum() == sample.numel() // 2

kept_bits = 2 * 16 + 2 * 2  # two bf16 numbers, and for each which of the four it was
sparse_size_ratio = kept_bits / (4 * 16)
print("compressed, over dense:", sparse_size_ratio)
assert hasattr(torch.sparse, "to_sparse_semi_structured")  # "nobody uses it"
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
            warnings.filterwarnings("ignore", message=".*prototype", category=UserWarning)
            packed = torch.sparse.to_sparse_semi_structured(w)
            return time_call(lambda: F.linear(x, packed), 5, 0.5)
    except (RuntimeError, NotImplementedError, ValueError):
        return None  # no such units, no library for them, no memory


measured_sparse = time_sparse()
measured_sparse_ratio = divide(measured_seconds["bfloat16"], in_seconds(measured_sparse))
print("dense time over sparse time:", measured_sparse_ratio or "not here")
# --8<-- [end:sparse]


# --8<-- [start:layer]
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
measured_calls = {name: time_call(CALLS[name], 5, 0.1) for name in CALLS}
measured_call_ratio = {
    name: timing.median_seconds / measured_calls["products"].median_seconds for name, timing in measured_calls.items()
}
print({name: round(ratio, 2) for name, ratio in measured_call_ratio.items()})

measured_model_flops = 2 * 2 * measured_tokens * measured_d_model * 4 * measured_d_model
measured_hardware_flops = measured_model_flops * 3 // 2  # three products, not two


def share_of_peak(flops: int, call: str) -> float | None:
    """FLOPs over the time of a call, over the peak."""
    peak = predicted_peaks_flop_per_second["bfloat16"]
    return utilization(flops / measured_calls[call].median_seconds, peak)


measured_layer = {
    "kernel_share": share_of_peak(measured_model_flops, "products"),
    "mfu": share_of_peak(measured_model_flops, "layer"),
    "recomputed_mfu": share_of_peak(measured_model_flops, "recomputed"),
    "recomputed_hfu_share": share_of_peak(measured_hardware_flops, "recomputed"),
}
# --8<-- [end:three]


# --8<-- [start:recompute]
PALM_MFU, PALM_HFU_SHARE = 0.462, 0.578  # PaLM, section 4.1

full_recompute_ratio = (2 + 4 + 2) / (2 + 4)  # a second forward, over the model's own
palm_ratio = PALM_HFU_SHARE / PALM_MFU
print(f"HFU over MFU: {palm_ratio:.2f} in PaLM", end=", ")
print(f"{full_recompute_ratio:.2f} if all is recomputed")
assert 1 < palm_ratio < full_recompute_ratio
# --8<-- [end:recompute]


# --8<-- [start:published]
LONE_MATMUL_SHARE = {  # bf16, the best of many shapes: mamf-finder, ml-engineering
    "A100 SXM": 0.869,
    "GH200": 0.838,
    "H100 SXM": 0.803,
    "B200 SXM": 0.776,
    "MI300X": 0.514,
}
TRAINING_MFU = {
    "gpt_3": 0.213,  # V100; this and the next two: PaLM, table 3
    "mt_nlg": 0.302,  # A100
    "palm": PALM_MFU,  # TPU v4
    "megascale": 0.552,  # 175B parameters on 12,288 GPUs: MegaScale, abstract
    "llama_3_405b": 0.41,  # on 16,384 H100s: The Llama 3 Herd of Models, table 4
}
assert max(TRAINING_MFU.values()) < LONE_MATMUL_SHARE["H100 SXM"]
# --8<-- [end:published]


# --8<-- [start:exercise_1]
pcie = derive(Chip(114, 4, 512, 1.62e9, 128, 1.755e9))
pcie_teraflops = {dtype: peak / 1e12 for dtype, peak in pcie.items()}
print({dtype: round(peak, 1) for dtype, peak in pcie_teraflops.items()})

sxm = CHIPS["H100 SXM"]
needed_hertz = 67.5e12 / (sxm.num_sms * sxm.cuda_cores * 2)
needed_gigahertz = needed_hertz / 1e9
print(f"67.5 TFLOP/s would need {needed_gigahertz:.3f} GHz")
assert needed_hertz > sxm.cuda_hertz
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
TRACE_PRINTED = 11_739_062_719  # as "mfu", in a lecture's published trace
TRACE_FLOP_PER_SECOND = TRACE_PRINTED * NO_PEAK  # undo the division

trace_share = TRACE_FLOP_PER_SECOND / h100["float32"]
print(f"{TRACE_FLOP_PER_SECOND / 1e9:.1f} GFLOP/s, {trace_share:.3%} of an H100")
assert trace_share < 0.001  # no such GPU at work
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
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
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
GPT2_TOKENS, GPT2_D_MODEL = 8192, 768
GPT2_VOCABULARY = {"unpadded": 50257, "padded": 50304}

vocabularies = {key: tiling(GPT2_TOKENS, n) for key, n in GPT2_VOCABULARY.items()}
for key, cut in vocabularies.items():
    print(f"{key:9}{cut['tiles']} tiles, {cut['waves']} waves")
assert vocabularies["unpadded"]["tiles"] == vocabularies["padded"]["tiles"]


def seconds_of_logits(vocabulary: int) -> float | None:
    """Time of the last product of GPT-2 small; None on a CPU."""
    rate = rate_of(GPT2_TOKENS, vocabulary, GPT2_D_MODEL)
    return divide(2 * GPT2_TOKENS * vocabulary * GPT2_D_MODEL, rate)


logits_seconds = {key: seconds_of_logits(n) for key, n in GPT2_VOCABULARY.items()}
measured_padding_ratio = divide(logits_seconds["unpadded"], logits_seconds["padded"])
print("unpadded over padded:", measured_padding_ratio or "not here")
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
PRODUCTS_PART, OTHER_PART, WAITING_PART = 0.7, 0.2, 0.1  # of the time of a step
KERNEL_SHARE = 0.8  # of the peak, while products run

step_share = KERNEL_SHARE * PRODUCTS_PART
without_waiting_share = step_share / (PRODUCTS_PART + OTHER_PART)
print(f"MFU {step_share:.2f}; {without_waiting_share:.2f} if waiting did not count")
assert step_share < without_waiting_share < KERNEL_SHARE
# --8<-- [end:exercise_5]


# --8<-- [start:exercise_6]
fp8_speedup_ratio = 1 / (PRODUCTS_PART / 2 + OTHER_PART + WAITING_PART)
against_bf16_share = step_share * fp8_speedup_ratio
against_fp8_share = against_bf16_share * h100["bfloat16"] / h100["float8"]
print(f"{fp8_speedup_ratio:.2f} times as fast")
print(f"MFU {against_bf16_share:.2f} of the bf16 peak", end=", ")
print(f"{against_fp8_share:.2f} of the fp8 peak")
assert against_fp8_share < step_share < against_bf16_share
# --8<-- [end:exercise_6]
