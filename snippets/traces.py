# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = [
#     "measurements/published/traces/*.json",
#     "measurements/published/kernels/*.toml",
#     "measurements/published/torchtitan.toml",
# ]
# ///
"""What a GPU was doing: a trace of torch.profiler read in thirty lines, and what others' traces say."""

import gzip
import json
import tomllib
from collections.abc import Callable
from functools import cache
from math import isclose, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch.profiler import profile, schedule

from flops_bytes.time.gpus import GPUS
from flops_bytes.tools.kernels import as_trace, gaps, printed, report
from published.kernel_times import Timed, read_all
from published.trace_reports import read_reports

FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())


# --8<-- [start:lines]
class Kernel(NamedTuple):
    name: str
    start: float  # µs
    end: float
    stream: int
    launched: float  # when the call that launched it had returned


def covered(kernels: list[Kernel]) -> float:
    """µs in which at least one of them runs."""
    total, until = 0.0, float("-inf")
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        total += max(0, kernel.end - max(kernel.start, until))
        until = max(until, kernel.end)
    return total


def exposed(kernels: list[Kernel]) -> float:
    """µs in which only communication runs: covered, but not by those that compute."""
    return covered(kernels) - covered([k for k in kernels if "nccl" not in k.name])


def idle(kernels: list[Kernel]) -> float:
    """µs between the first start and the last end in which none runs."""
    start, end = min(k.start for k in kernels), max(k.end for k in kernels)
    return end - start - covered(kernels)


def unlaunched(kernels: list[Kernel]) -> float:
    """µs idle even if each kernel begins once its launch has returned."""
    return idle([k._replace(start=min(k.start, k.launched)) for k in kernels])


kernels = [  # made up
    Kernel("gemm_forward", 10, 50, stream=7, launched=5),
    Kernel("gemm_backward", 60, 90, stream=7, launched=57),
    Kernel("ncclDevKernel_AllReduce", 70, 100, stream=20, launched=65),
]
busy_us, exposed_us = covered(kernels), exposed(kernels)
idle_us, unlaunched_us = idle(kernels), unlaunched(kernels)
print(f"busy {busy_us:.0f} µs, exposed {exposed_us:.0f}", end=", ")
print(f"idle {idle_us:.0f}, not launched yet {unlaunched_us:.0f}")
# --8<-- [end:lines]

span_us, added_us = busy_us + idle_us, sum(kernel.end - kernel.start for kernel in kernels)


# --8<-- [start:record]
def record(step: Callable[[], None], path: Path) -> None:
    """Records three steps, after one that is left alone and one that warms the profiler up."""
    with profile(
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        record_shapes=True,
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
    ) as recording:
        for _ in range(5):
            step()
            recording.step()  # the next step begins


# --8<-- [end:record]


# --8<-- [start:read_trace]
def read_events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    events = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]  # what has a duration


def read_kernels(path: Path) -> list[Kernel]:
    kernels, returned = [], {}
    for event in sorted(read_events(path), key=lambda event: float(event["ts"])):
        args, end = event.get("args", {}), event["ts"] + event["dur"]
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            returned[args.get("correlation")] = end
        elif event.get("cat") == "kernel":
            launched = returned.get(args["correlation"], event["ts"])  # not recorded: not late
            kernels.append(Kernel(event["name"], event["ts"], end, args["stream"], launched))
    return kernels


# --8<-- [end:read_trace]


def event(cat: str, name: str, ts: float, dur: float, **args: int) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


STEP = [  # the made-up step as a trace has it, in µs, with its launches
    event("cuda_runtime", "cudaLaunchKernel", 0, 5, correlation=1),
    event("cuda_runtime", "cudaLaunchKernel", 52, 5, correlation=2),
    event("cuda_runtime", "cudaLaunchKernel", 60, 5, correlation=3),
    event("kernel", "gemm_forward", 10, 40, stream=7, correlation=1),
    event("kernel", "gemm_backward", 60, 30, stream=7, correlation=2),
    event("kernel", "ncclDevKernel_AllReduce", 70, 30, stream=20, correlation=3),
]
folder = TemporaryDirectory()
step_file = Path(folder.name) / "step.json"
step_file.write_text(json.dumps({"traceEvents": STEP}))
assert read_kernels(step_file) == kernels


# --8<-- [start:shapes]
ROWS, WIDTH = 64, 256
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)))
x = torch.randn(ROWS, WIDTH)
own_folder = TemporaryDirectory()
own_file = Path(own_folder.name) / "own.json"
record(lambda: model(x).sum().backward(), own_file)

matmuls = [e["args"]["Input Dims"] for e in read_events(own_file) if e["name"] == "aten::mm"]
recorded_flops = sum(2 * m * n * k for (m, k), (_, n), *_ in matmuls)
print(f"{len(matmuls)} matmuls in three steps, {recorded_flops / 1e6:.0f} MFLOPs")
# --8<-- [end:shapes]

assert recorded_flops == 3 * 5 * 2 * ROWS * WIDTH**2  # the first layer's input needs no gradient


@cache
def published(name: str) -> dict[str, Any]:
    """What `flops-bytes trace --json` printed of somebody's trace."""
    found: dict[str, Any] = read_reports(FOLDER / "traces")[name]["report"]
    return found


def shares_of(told: dict[str, Any]) -> dict[str, float]:
    """What a GPU's time went into, from the start of the first kernel to the end of the last."""
    shown, between = told["exposed_communication_seconds"], told["gaps"]
    parts = {
        "kernels": told["busy_seconds"] - shown,
        "exposed": shown,
        "launching": between["launching_seconds"],
        "idle": between["seconds"] - between["launching_seconds"],
    }
    assert isclose(sum(parts.values()), told["span_seconds"], rel_tol=1e-6)
    return {part: spent / told["span_seconds"] for part, spent in parts.items()}


NAMES = sorted(read_reports(FOLDER / "traces"))
num_traces = len(NAMES)
SPAN_SECONDS = {name: published(name)["span_seconds"] for name in NAMES}
time_shares = {name: shares_of(published(name)) for name in NAMES}
busy_share = {name: shares["kernels"] + shares["exposed"] for name, shares in time_shares.items()}
matmul_share = {name: published(name)["with_shapes"]["peak_share"] for name in NAMES}  # of the card's peak


small = as_trace(("traceEvents", each) for each in STEP)
assert unlaunched_us == sum(gap.launching or 0 for gap in gaps(small.kernels, small.launches)) / 1000
assert report(small, 0)["exposed_communication_seconds"] == exposed_us / 1e6


# --8<-- [start:command]
print("\n".join(printed(published("bert"), width=48)))
# --8<-- [end:command]


def launches_of(told: dict[str, Any]) -> dict[str, float]:
    """From a launch to the next on average; medians of its call, of the call to the kernel on an idle GPU, and of the
    kernel of the first row."""
    found = told["launches"]
    return {
        "every": told["span_seconds"] / found["count"],
        "call": found["median_call_seconds"],
        "to_kernel": found["median_idle_delay_seconds"],
        "kernel": told["operations"][0]["median_seconds"],
    }


LAUNCH_SECONDS = launches_of(published("bert"))
num_launches = published("bert")["launches"]["count"]


H100_FLOP_PER_SECOND = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]


class Part(NamedTuple):
    """A kind of work in a pass."""

    calls: int
    flops: int
    kernel_seconds: float
    time_share: float
    peak_share: float | None


def parts_of(told: dict[str, Any], layers: list[Timed]) -> dict[str, Part]:
    """A pass by kinds of work. `layers` are its linear layers by shape: their time is calls × the median call's."""
    counted = told["with_shapes"]
    softmax = next(each for each in told["longest"] if "SoftMax" in each["kernel"])
    kernels, matmuls = told["kernels"] + told["copies"], sum(each.calls for each in layers)
    flops = sum(each.calls * 2 * prod(each.shape) for each in layers)
    spent = sum(each.calls * (each.seconds or 0) for each in layers)

    def part(calls: int, flops: int, seconds: float) -> Part:
        reached = flops / seconds / H100_FLOP_PER_SECOND if flops else None
        return Part(calls, flops, seconds, seconds / told["span_seconds"], reached)

    return {
        "linear": part(matmuls, flops, spent),
        "products": part(counted["calls"] - matmuls, counted["flops"] - flops, counted["seconds"] - spent),
        "softmax": part(softmax["count"], 0, softmax["seconds"]),
        "others": part(
            kernels - counted["calls"] - softmax["count"],
            0,
            told["busy_seconds"] - counted["seconds"] - softmax["seconds"],
        ),
    }


def layers_of(model: str, card: str) -> list[Timed]:
    """The linear layers of a trace, by shape."""
    rows = [each for each in read_all(FOLDER / "kernels") if each.operation == "addmm"]
    return [each for each in rows if model in each.where and each.card == card]


PASS = parts_of(published("timesformer"), layers_of("timesformer", "H100 SXM"))
pass_flops = sum(part.flops for part in PASS.values())
flops_share = {name: part.flops / pass_flops for name, part in PASS.items()}
AT_PEAK_SECONDS = pass_flops / H100_FLOP_PER_SECOND
behind_peak_ratio = published("timesformer")["span_seconds"] / AT_PEAK_SECONDS
for name, part in PASS.items():
    print(
        f"{name:9}{part.calls:5} calls{part.flops:20,} FLOPs{part.kernel_seconds * 1e3:8.2f} ms{part.time_share:7.1%}"
    )
assert sum(part.time_share for part in PASS.values()) <= busy_share["timesformer"] + 1e-9


def communication_of(told: dict[str, Any]) -> dict[str, float]:
    """A span, the communication in it, and how much of that nothing hides."""
    ran, shown = told["communication_seconds"], told["exposed_communication_seconds"]
    return {
        "span_seconds": told["span_seconds"],
        "runs_seconds": ran,
        "exposed_seconds": shown,
        "hidden_share": 1 - shown / ran,
        "exposed_share": shown / told["span_seconds"],
    }


COMMUNICATION = {name: communication_of(published(name)) for name in NAMES if published(name)["communication_seconds"]}
num_blocks, num_sms = published("deepseek")["collective_blocks"], published("deepseek")["sms"]


class Reduced(NamedTuple):
    """An all-reduce of a training step: its bytes, what it took, and what a ring says."""

    bytes: int
    seconds: float
    ring_ratio: float  # taken over a ring's


REDUCED = sorted(
    Reduced(each.shape[0], each.seconds or 0, (each.seconds or 0) / each.predicted["ring"])
    for each in read_all(FOLDER / "kernels")
    if "ResNet" in each.where
)
SHORTEST_SECONDS, LONGEST_SECONDS = min(e.seconds for e in REDUCED), max(e.seconds for e in REDUCED)
least_ring_ratio, most_ring_ratio = min(e.ring_ratio for e in REDUCED), max(e.ring_ratio for e in REDUCED)


def published_tokens(row: int) -> int:
    """Tokens a second a GPU in a row of torchtitan's table for 8 GPUs."""
    found = tomllib.loads((FOLDER / "torchtitan.toml").read_text(encoding="utf-8"))["extracted"]["readings"]
    wanted = ("8 GPUs, FSDP", row, "tokens_per_second_a_gpu")
    return int(next(e["literal"] for e in found if (e["table"], e["row"], e["what"]) == wanted).replace(",", ""))


TOKENS = {"eager": published_tokens(0), "compiled": published_tokens(1)}
compiled_ratio = TOKENS["compiled"] / TOKENS["eager"]


# --8<-- [start:exercise_1]
EARLIER = 15  # µs
moved = [k._replace(start=k.start - EARLIER, end=k.end - EARLIER) if "nccl" in k.name else k for k in kernels]
moved_us = exposed(moved)
shorter_us = max(kernel.end for kernel in kernels) - max(kernel.end for kernel in moved)
print(f"exposed {moved_us:.0f} µs, the step is {shorter_us:.0f} µs shorter")
assert (moved_us, shorter_us) == (5, 10)
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
SPAN_MS, BUSY_MS = 3.908, 0.309  # of BERT's trace, as printed above

no_gaps_ratio = SPAN_MS / BUSY_MS
print(f"at most {no_gaps_ratio:.1f} times as fast")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
LAYERS, FRAMES, HEADS, TOKENS_A_FRAME, FEATURES = 12, 8, 12, 3137, 64  # of TimeSformer
REPLACED_MS = {"matmuls": 43.2, "scaling": 15.5, "softmax": 68.7}
PASS_MS, FLASH_TFLOP_PER_SECOND = 160.0, 90.2

score_flops = LAYERS * FRAMES * HEADS * 2 * (2 * TOKENS_A_FRAME**2 * FEATURES)
replaced_ms = sum(REPLACED_MS.values())
fused_ms = score_flops / FLASH_TFLOP_PER_SECOND / 1e9
after_ms = PASS_MS - replaced_ms + fused_ms
fused_ratio = PASS_MS / after_ms
print(f"{replaced_ms:.0f} ms → {fused_ms:.0f} ms, the pass {PASS_MS:.0f} ms → {after_ms:.0f} ms")
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
ALL_REDUCES = {8_196_000: 3.307, 9_724_160: 2.028, 26_255_360: 2.622, 26_550_272: 2.417, 31_502_336: 2.674}  # bytes: ms

smallest, largest = min(ALL_REDUCES), max(ALL_REDUCES)
size_ratio, time_ratio = largest / smallest, ALL_REDUCES[largest] / ALL_REDUCES[smallest]
print(f"{size_ratio:.1f} times the bytes, {time_ratio:.2f} times the time")
assert size_ratio > 3 and time_ratio < 1
# --8<-- [end:exercise_4]


def is_close(said: float, found: float) -> bool:
    """Whether a number of an exercise is what a report says, in three digits."""
    return isclose(said, found, rel_tol=2e-3)


def attention_of(told: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of what flash attention replaces: two matmuls, the scaling and the softmax of the scores."""
    operations = {name: [e for e in told["operations"] if e["operation"] == f"aten::{name}"] for name in ("bmm", "mul")}
    softmax = next(each for each in told["longest"] if "SoftMax" in each["kernel"])
    assert sum(each["calls"] * each["flops"] for each in operations["bmm"]) == score_flops
    return {
        "matmuls": 1e3 * sum(each["seconds"] for each in operations["bmm"]),
        "scaling": 1e3 * sum(each["seconds"] for each in operations["mul"]),
        "softmax": 1e3 * softmax["seconds"],
    }


def flash_rate(told: dict[str, Any]) -> float:
    return float(next(e["flop_per_second"] for e in told["operations"] if "flash" in e["operation"])) / 1e12


assert is_close(SPAN_MS, 1e3 * published("bert")["span_seconds"])
assert is_close(BUSY_MS, 1e3 * published("bert")["busy_seconds"])
assert all(is_close(REPLACED_MS[part], found) for part, found in attention_of(published("timesformer")).items())
assert is_close(PASS_MS, 1e3 * published("timesformer")["span_seconds"])
assert is_close(FLASH_TFLOP_PER_SECOND, flash_rate(published("qwen")))
assert {each.bytes: round(1e3 * each.seconds, 3) for each in REDUCED} == ALL_REDUCES
num_scores = FRAMES * HEADS * TOKENS_A_FRAME**2  # of a layer
softmax_bytes = LAYERS * num_scores * 2 * 2  # bf16, read once and written once
SOFTMAX_LEAST_SECONDS = softmax_bytes / GPUS["H100 SXM"].bandwidth_bytes_per_second
