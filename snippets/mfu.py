# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = ["measurements/published/*.toml", "measurements/published/kernels/*.toml"]
# ///
"""How much of a GPU's peak a run uses: a published step, where a peak comes from, what stops a matmul below it."""

import math
import re
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from flops_bytes.lessons.measure import Timing, divide, get_device, time_call
from flops_bytes.lessons.measure import get_peak_flop_per_second as peak_of
from flops_bytes.time.gpus import GPUS
from published.kernel_times import Timed, read_rows
from published.readings import Reading, read_all

FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())


# --8<-- [start:step]
def flops_of_a_token(parameters: int, layers: int, width: int, context: int) -> int:
    """6N + 12LHQT; the width is HQ, of all query heads together."""
    return 6 * parameters + 12 * layers * width * context


def step_mfu(tokens_per_second: float, gpus: int, token_flops: int, peak: float) -> float:
    """The share of the peak that a run reaches; the peak is one GPU's, in FLOP/s."""
    return tokens_per_second / gpus * token_flops / peak


mpt_7b_flops = flops_of_a_token(6_658_859_008, layers=32, width=4096, context=2048)
print(f"MFU {step_mfu(85_144, gpus=8, token_flops=mpt_7b_flops, peak=989.4e12):.1%}")
# --8<-- [end:step]


def published_mfus() -> list[Reading]:
    """What others published as the MFU of a step in bf16."""
    return [each for each in read_all(FOLDER) if each.kind == "mfu" and "missing" not in each.about]


LINES = {"a100_40gb": 252, "a100_80gb": 184, "h100_80gb": 118}  # of llm-foundry's README.md: MPT 7B on 8 GPUs
BY_LINE = {each.line: each for each in read_all(FOLDER) if (each.source, each.kind) == ("llm-foundry", "mfu")}


def of_line(line: int) -> dict[str, float]:
    """A published step's rate, the MFU that it gives, and the one printed beside it."""
    each = BY_LINE[line]
    rate, gpus = float(each.found["tokens_per_second"]), int(each.found["gpus"])
    peak = GPUS[each.settings["gpu"]].peak_flop_per_second["bfloat16"]
    mfu = step_mfu(rate, gpus, mpt_7b_flops, peak)
    passes = 4 if each.found["checkpointing"] == "True" else 3  # a second forward pass, to recompute activations
    return {
        "tokens_per_second": rate,
        "a_gpu_per_second": rate / gpus,
        "model_flop_per_second": rate / gpus * mpt_7b_flops,
        "executed_flop_per_second": rate / gpus * mpt_7b_flops * passes / 3,
        "peak_flop_per_second": peak,
        "mfu": mfu,
        "hfu_share": mfu * passes / 3,
        "printed_share": each.value,
    }


PUBLISHED = {card: of_line(line) for card, line in LINES.items()}
assert all(abs(each["mfu"] - each["printed_share"]) < 2e-4 for each in PUBLISHED.values())
assert {each.found["size"] + each.found["context"] for each in map(BY_LINE.get, LINES.values()) if each} == {"7b2048"}
speed_up_ratio = PUBLISHED["h100_80gb"]["tokens_per_second"] / PUBLISHED["a100_80gb"]["tokens_per_second"]
recomputed_rate_ratio = PUBLISHED["a100_40gb"]["tokens_per_second"] / PUBLISHED["a100_80gb"]["tokens_per_second"]
assert PUBLISHED["a100_40gb"]["hfu_share"] > PUBLISHED["a100_80gb"]["hfu_share"] and recomputed_rate_ratio < 1


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


MPT_7B_PARAMETERS, LAYERS, WIDTH, CONTEXT = 6_658_859_008, 32, 4096, 2048
attention_flops = 12 * LAYERS * WIDTH * CONTEXT  # of a token, over all pairs
causal_flops = attention_flops * (CONTEXT + 1) // (2 * CONTEXT)  # what a causal mask leaves
attention_share = attention_flops / mpt_7b_flops

RATE = 85_144 / 8  # tokens a second of a GPU
DENSE = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
ANSWERS = {  # FLOPs of a token, peak
    "published": (mpt_7b_flops, DENSE),
    "causal": (mpt_7b_flops - attention_flops + causal_flops, DENSE),
    "six_n": (6 * MPT_7B_PARAMETERS, DENSE),
    "sparse": (mpt_7b_flops, HEADLINE_FLOP_PER_SECOND),
    "pcie": (mpt_7b_flops, GPUS["H100 PCIe"].peak_flop_per_second["bfloat16"]),
    "a100": (mpt_7b_flops, GPUS["A100 80GB SXM"].peak_flop_per_second["bfloat16"]),
}
answers_share = {name: RATE * flops / peak for name, (flops, peak) in ANSWERS.items()}
for name, share in answers_share.items():
    print(f"{name:10}{share:6.1%}")


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
for name, derived in DERIVED_FLOP_PER_SECOND.items():
    for dtype, made in derived.items():
        printed = GPUS[name].peak_flop_per_second[dtype]  # by NVIDIA
        print(f"{name:14}{dtype:9}{made / 1e12:6.1f}, printed {printed / 1e12:6.1f}")
        assert math.isclose(made, printed, rel_tol=1e-3)


# --8<-- [start:precision]
default_precision = torch.get_float32_matmul_precision()
print("fp32 matmuls:", default_precision)
# --8<-- [end:precision]
assert default_precision == "highest"  # fp32 all the way: no tensor core


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


MATMULS = [
    row
    for path in sorted((FOLDER / "kernels").glob("*.toml"))
    for row in read_rows(path)
    if row.kind == "matmul" and row.seconds and row.card in GPUS
]
MOST = (  # at least ten matmuls
    "V100 16GB SXM float32",
    "A100 40GB SXM float32",
    "A100 40GB SXM tf32",
    "H100 SXM bfloat16",
    "MI300X bfloat16",
)


def reached(row: Timed) -> float:
    """FLOP/s of a published matmul."""
    return 2 * math.prod(row.shape) / row.seconds if row.seconds else 0


def share_of_peak(row: Timed) -> float:
    """What share of its card's dense peak a published matmul reached."""
    return reached(row) / GPUS[row.card].peak_flop_per_second[row.unit]


def of_card(name: str) -> dict[str, Any]:
    """Among the matmuls of a card in one data type, the one that reached most."""
    rows = [row for row in MATMULS if f"{row.card} {row.unit}" == name]
    best = max(rows, key=share_of_peak)
    m, p, n = best.shape[1:]
    shape = f"{m:,} × {p:,} × {n:,}"  # of the result, and length of the sums
    rate, share = reached(best), share_of_peak(best)
    return {"matmuls": len(rows), "shape": shape, "best_flop_per_second": rate, "peak_share": share}


BEST = {name.replace(" ", "_"): of_card(name) for name in MOST}
highest_share = max(share_of_peak(row) for row in MATMULS)
num_matmuls = len(MATMULS)
assert highest_share == BEST["V100_16GB_SXM_float32"]["peak_share"] < 0.82
assert set(MOST) == {f"{row.card} {row.unit}" for row in MATMULS if of_card(f"{row.card} {row.unit}")["matmuls"] >= 10}


# --8<-- [start:tiles]
NUM_SMS = 132  # of an H100 or H200 SXM


def tiling(m: int, p: int, x: int = 128, y: int = 256) -> dict[str, float]:
    """Tiles of x × y in an m × p result, waves of the SMs, and the share that they fill."""
    tiles = math.ceil(m / x) * math.ceil(p / y)
    waves = math.ceil(tiles / NUM_SMS)
    filled_share = m * p / (waves * NUM_SMS * x * y)
    return {"tiles": tiles, "waves": waves, "filled_share": filled_share}


for shape in ((5185, 1024), (5185, 4096)):
    cut = tiling(*shape, x=128, y=128)
    print(f"{shape}: {cut['tiles']} tiles, {cut['waves']} waves, {cut['filled_share']:.0%} filled")
# --8<-- [end:tiles]


def tile_of(kernel: str) -> tuple[int, int] | None:
    """The tile in a kernel's name, such as 128 × 64 in sm90_tilesize128x64x64; None if it names none."""
    found = re.search(r"(?:tilesize|_MT|_)(\d{2,3})x(\d{2,3})", kernel)
    return (int(found[1]), int(found[2])) if found else None


def waves_of(row: Timed, tile: tuple[int, int]) -> tuple[int, int, float]:
    """Tiles, waves, and the filled share: of what is computed in whole tiles and waves, what belongs to the result."""
    batch, m, p, _ = row.shape
    tiles = batch * math.ceil(m / tile[0]) * math.ceil(p / tile[1])
    waves = math.ceil(tiles / row.sms)
    return tiles, waves, batch * m * p / (waves * row.sms * math.prod(tile))


class Filled(NamedTuple):
    """A published matmul, its tiles and waves by the kernel's name, and what it reached."""

    shape: str  # of the result
    matmul: str  # with the length of the sums
    tile: str
    tiles: int
    waves: int
    filled_share: float
    reached_share: float
    sums: int


def filled_of(row: Timed, tile: tuple[int, int]) -> Filled:
    """Whichever way the tile lies, the one that fits better."""
    tiles, waves, share = max((waves_of(row, each) for each in (tile, tile[::-1])), key=lambda each: each[2])
    _, m, p, n = row.shape
    return Filled(
        f"{m:,} × {p:,}", f"{m:,} × {p:,} × {n:,}", f"{tile[0]} × {tile[1]}", tiles, waves, share, share_of_peak(row), n
    )


TILED = [(row, filled_of(row, tile)) for row in MATMULS if (tile := tile_of(row.kernel))]
beyond = [each for _, each in TILED if each.reached_share > each.filled_share]
num_tiled, num_beyond = len(TILED), len(beyond)
most_tiles_beyond, least_sums_beyond = max(each.tiles for each in beyond), min(each.sums for each in beyond)
print(f"{num_beyond} of {num_tiled} reach more than their tiles and waves fill;", end=" ")
print(f"these have {most_tiles_beyond} tiles at most, and sums of {least_sums_beyond} or more")
assert num_beyond < 0.05 * num_tiled and most_tiles_beyond <= 16 and least_sums_beyond >= 1024

SHOWN = {  # rows, columns, length of the sums: H100, bf16
    "few": (788, 768, 3072),
    "three": (5185, 1024, 1024),
    "three_long": (5185, 1024, 4096),
    "ten": (5185, 4096, 1024),
    "nine": (25088, 768, 768),
    "nine_long": (25089, 768, 3072),
}
FILLED = {
    name: next(each._asdict() for row, each in TILED if row.card == "H100 SXM" and row.shape == (1, *shape))
    for name, shape in SHOWN.items()
}
EXAMPLE, EXAMPLE_TILE = SHOWN["few"], (128, 64)  # as the kernel's name says
assert FILLED["few"]["tile"] == "128 × 64"
assert FILLED["three_long"]["reached_share"] < FILLED["ten"]["reached_share"]
assert FILLED["nine"]["reached_share"] < FILLED["nine_long"]["reached_share"]


def only(card: str, shape: tuple[int, int, int], operation: str) -> Timed:
    """The one published row of a card, a shape and an operation."""
    (row,) = [row for row in MATMULS if (row.card, row.shape[1:], row.operation) == (card, shape, operation)]
    return row


A100_SUMS = {sums: only("A100 40GB SXM", (1024, 1024, sums), "addmm") for sums in (1300, 1705, 2048)}
ALIGNED = {
    str(sums): {
        "median_seconds": row.seconds,
        "kernel": row.kernel.partition("tensorop_")[2],
        "share": share_of_peak(row),
        "tiles": filled_of(row, (128, 128)).tiles,
    }
    for sums, row in A100_SUMS.items()
}
aligned_ratio = (A100_SUMS[1705].seconds or 0) / (A100_SUMS[2048].seconds or 1)
six_calls_share = share_of_peak(only("V100 16GB SXM", (1024, 1705, 512), "addmm"))  # of exercise 1
V100_ODD = only("V100 16GB SXM", (1024, 1705, 1024), "mm")
assert {row.kernel[-6:] for row in A100_SUMS.values()} == {"align1", "align4"}
assert aligned_ratio > 2 and share_of_peak(V100_ODD) == highest_share


TRACES = {  # of TraceLens, on an H100, bf16, forward only; as `flops-bytes trace` prints them
    "timesformer": ("facebook_timesformer-base-finetuned-k400__1016002.json.gz", 159.992e-3, 158.433e-3),
    "bert": ("gaunernst_bert-small-uncased__1016001.json.gz", 3.908e-3, 0.309e-3),
}


def of_pass(name: str, span: float, busy: float) -> dict[str, float]:
    """How long the GPU was busy, its best matmul, and all FLOPs of matmuls over the whole time."""
    rows = [row for row in MATMULS if row.where.endswith(f"h100/{name}")]
    flops = sum(row.calls * 2 * math.prod(row.shape) for row in rows)
    peak = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
    best = max(share_of_peak(row) for row in rows)
    return {
        "span_seconds": span,
        "busy_share": busy / span,
        "best_share": best,
        "all_share": flops / span / peak,
    }


PASSES = {key: of_pass(*trace) for key, trace in TRACES.items()}
assert PASSES["timesformer"]["busy_share"] > 0.98 and PASSES["timesformer"]["all_share"] < 0.06


CARDS = {"a100_40gb": "A100 40GB SXM", "a100_80gb": "A100 80GB SXM", "h100": "H100 SXM"}


def shares_of(card: str, again: bool) -> list[float]:
    """Published MFUs of a card; `again`: of runs that recompute whole matmuls."""
    does = ("full", "per-op")
    found = [each for each in published_mfus() if each.settings["gpu"] == card]
    return sorted(each.value for each in found if (each.settings.get("checkpointing") in does) == again)


POINTS = {key: {"kept": shares_of(card, False), "again": shares_of(card, True)} for key, card in CARDS.items()}


def summary(shares: list[float]) -> dict[str, float]:
    """Median, the middle eight of ten, and the ends."""
    tenths = statistics.quantiles(shares, n=10, method="inclusive")
    ends = {"low_share": tenths[0], "high_share": tenths[-1], "best_share": max(shares)}
    return {"steps": len(shares), "median_share": statistics.median(shares)} | ends


STEPS = {key: summary(kinds["kept"] + kinds["again"]) for key, kinds in POINTS.items()}
num_steps = sum(each["steps"] for each in STEPS.values())
counted_sources: dict[str, int] = defaultdict(int)
for each in published_mfus():
    counted_sources[each.source] += 1
foundry_steps = counted_sources["llm-foundry"]
assert len(counted_sources) == 2 and num_steps == sum(counted_sources.values())
assert STEPS["h100"]["best_share"] == PUBLISHED["h100_80gb"]["printed_share"]


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
TRAINING_MFU = {
    "gpt_3": 0.213,  # V100; this and the next two: PaLM, table 3
    "mt_nlg": 0.302,  # A100
    "palm": PALM_MFU,  # TPU v4
    "megascale": 0.552,  # 175B parameters on 12,288 GPUs: MegaScale, abstract
    "llama_3_405b": 0.41,  # on 16,384 H100s: The Llama 3 Herd of Models, table 4
}
assert max(TRAINING_MFU.values()) < LONE_MATMUL_SHARE["GB200"]


SIDE = 8192  # of the square product that is measured on a GPU
DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8")


def has_gpu() -> bool:
    """Whether there is a GPU to measure; a CPU gets smaller work."""
    return torch.cuda.is_available()


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


predicted_peaks_flop_per_second = {d: peak_of(d) for d in DTYPES}


def predict(dtype: str) -> float | None:
    """Seconds of the product at the peak; None where no peak is published."""
    return divide(measured_flops, predicted_peaks_flop_per_second[dtype])


predicted_seconds = {d: predict(d) for d in DTYPES}
matmul_mfu = {d: divide(predicted_seconds[d], measured_seconds[d]) for d in DTYPES}
measured_float32_rate = rate_flop_per_second["float32"]
measured_over_float32_ratio = {d: divide(rate_flop_per_second[d], measured_float32_rate) for d in DTYPES}


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


# --8<-- [start:exercise_v100]
KERNEL_SECONDS = {"volta_sgemm_128x64_tn": 150e-6, "epilogue": 24e-6}  # the first of six calls
V100_PEAK = GPUS["V100 16GB SXM"].peak_flop_per_second["float32"]

addmm_flops = 2 * 1024 * 512 * 1705
by_median_share = addmm_flops / statistics.median(KERNEL_SECONDS.values()) / V100_PEAK
by_sum_share = addmm_flops / sum(KERNEL_SECONDS.values()) / V100_PEAK
print(f"by the median kernel {by_median_share:.0%} of the peak, by their sum {by_sum_share:.0%}")
# --8<-- [end:exercise_v100]
assert by_sum_share < 1 < by_median_share


# --8<-- [start:exercise_1]
NO_PEAK = 1.0  # what some tables of peaks return for a device they do not hold
TRACE_PRINTED = 11_739_062_719  # as "mfu", in a lecture's published trace
TRACE_FLOP_PER_SECOND = TRACE_PRINTED * NO_PEAK  # undo the division

trace_share = TRACE_FLOP_PER_SECOND / h100["float32"]
print(f"{TRACE_FLOP_PER_SECOND / 1e9:.1f} GFLOP/s, {trace_share:.3%} of an H100")
# --8<-- [end:exercise_1]
assert trace_share < 0.001  # no such GPU at work


# --8<-- [start:exercise_2]
LECTURE_SECONDS = {"float32": 0.16, "bfloat16": 0.03}  # as spoken, on an H100

lecture_flops = 2 * 16384 * 32768 * 8192
lecture_rates = {dtype: lecture_flops / t for dtype, t in LECTURE_SECONDS.items()}
lecture_share = {dtype: rate / h100[dtype] for dtype, rate in lecture_rates.items()}
headline_share = lecture_rates["bfloat16"] / HEADLINE_FLOP_PER_SECOND
print({dtype: round(share, 2) for dtype, share in lecture_share.items()})
print(f"bf16 against the headline: {headline_share:.2f}")
# --8<-- [end:exercise_2]

reachable = h100["bfloat16"] * LONE_MATMUL_SHARE["H100 SXM"]
EXPECTED_SECONDS = lecture_flops / reachable
assert LECTURE_SECONDS["bfloat16"] / 2 > EXPECTED_SECONDS


# --8<-- [start:exercise_3]
GPT2_TOKENS = 8192
GPT2_VOCABULARY = {"unpadded": 50257, "padded": 50304}

vocabularies = {key: tiling(GPT2_TOKENS, n) for key, n in GPT2_VOCABULARY.items()}
for key, cut in vocabularies.items():
    print(f"{key:9}{cut['tiles']} tiles, {cut['waves']} waves")
# --8<-- [end:exercise_3]
assert vocabularies["unpadded"]["tiles"] == vocabularies["padded"]["tiles"]


# --8<-- [start:exercise_4]
PRODUCTS_PART, OTHER_PART, WAITING_PART = 0.7, 0.2, 0.1  # of the time of a step
KERNEL_SHARE = 0.8  # of the peak, while products run

step_share = KERNEL_SHARE * PRODUCTS_PART
without_waiting_share = step_share / (PRODUCTS_PART + OTHER_PART)
print(f"MFU {step_share:.2f}; {without_waiting_share:.2f} if waiting did not count")
# --8<-- [end:exercise_4]
assert step_share < without_waiting_share < KERNEL_SHARE


# --8<-- [start:exercise_5]
FP8_TOKENS_PER_SECOND = {"bfloat16": 132_626, "float8": 153_174}  # MPT 3B, 8,192 tokens, eight H100s
printed_share = {"bfloat16": 0.4031, "float8": 0.2328}

fp8_speedup_ratio = FP8_TOKENS_PER_SECOND["float8"] / FP8_TOKENS_PER_SECOND["bfloat16"]
against_bf16_share = printed_share["bfloat16"] * fp8_speedup_ratio
against_fp8_share = against_bf16_share * h100["bfloat16"] / h100["float8"]
print(f"{fp8_speedup_ratio:.2f} times as fast")
print(f"MFU {against_bf16_share:.1%} of the bf16 peak", end=", ")
print(f"{against_fp8_share:.1%} of the fp8 peak; printed: {printed_share['float8']:.1%}")
# --8<-- [end:exercise_5]
assert abs(against_fp8_share - printed_share["float8"]) < 1e-3 and against_fp8_share < printed_share["bfloat16"]


assert PUBLISHED["h100_80gb"]["a_gpu_per_second"] == RATE
for name, line in {"bfloat16": 123, "float8": 155}.items():  # of llm-foundry's README.md
    assert FP8_TOKENS_PER_SECOND[name] == float(BY_LINE[line].found["tokens_per_second"])
    assert math.isclose(printed_share[name], BY_LINE[line].value)
assert six_calls_share < by_sum_share
