# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""One product for half a minute, on random numbers, on zeros, on random ones again: its rate, the clock, the power."""
# Slow: half a minute of one product.

# --8<-- [start:setup]
import os
import statistics
import subprocess
import time
from typing import NamedTuple

import torch

from flops_bytes.lessons.measure import divide, get_device, time_trials

measured_on_gpu = torch.cuda.is_available()
# --8<-- [end:setup]


# --8<-- [start:ask]
def ask(*fields: str) -> "subprocess.Popen[str] | None":
    """nvidia-smi on its way to find out; None where there is none."""
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    options = ["--format=csv,noheader,nounits", f"--id={card}"]
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", *options]
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None


def numbers(asked: "subprocess.Popen[str] | None", count: int) -> list[float | None]:
    """What it found out; None for what it does not know."""
    words = asked.communicate()[0].split(",") if asked else []
    found = [float(word) if word.strip().replace(".", "", 1).isdecimal() else None for word in words]
    return found if len(found) == count else [None] * count


# --8<-- [end:ask]


# --8<-- [start:predict]
FLOPS_PER_SM_AND_CYCLE = {"sm_80": 2048, "sm_90": 4096}  # bf16 on tensor cores: A100; H100, H200


def get_flops_per_cycle() -> int | None:
    """FLOPs of all this GPU's tensor cores in one cycle; None where it is not known."""
    if not measured_on_gpu:
        return None
    card = torch.cuda.get_device_properties(0)
    per_sm = FLOPS_PER_SM_AND_CYCLE.get(f"sm_{card.major}{card.minor}")
    return per_sm and per_sm * card.multi_processor_count


predicted_flops_per_cycle = get_flops_per_cycle()
(predicted_power_watts,) = numbers(ask("power.limit"), 1)
print("FLOPs in a cycle:", predicted_flops_per_cycle, "· power limit, W:", predicted_power_watts)
# --8<-- [end:predict]


# --8<-- [start:watch]
torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
measured_side = 8192 if measured_on_gpu else 256
dtype = torch.bfloat16 if measured_on_gpu else torch.float32
a, b, c = (torch.zeros(measured_side, measured_side, dtype=dtype, device=get_device()) for _ in range(3))


class Moment(NamedTuple):
    """Some products in a row, and the GPU's state while they ran."""

    at_seconds: float  # since the first phase began
    rate_flop_per_second: float
    clock_mhz: float | None
    power_watts: float | None


def watch(began: float) -> Moment:
    """Multiplies until nvidia-smi has answered, 20 times at least."""
    asked = ask("clocks.sm", "power.draw.instant")
    seconds = time_trials(lambda: torch.mm(a, b, out=c), 20)
    while asked and asked.poll() is None:
        seconds += time_trials(lambda: torch.mm(a, b, out=c), 20)
    rate = 2 * measured_side**3 / statistics.median(seconds)
    return Moment(time.perf_counter() - began, rate, *numbers(asked, 2))


# --8<-- [end:watch]


# --8<-- [start:phases]
measured_phases_seconds = {
    "random": 18.0 if measured_on_gpu else 0.5,
    "zeros": 6.0 if measured_on_gpu else 0.2,
    "random_again": 6.0 if measured_on_gpu else 0.2,
}


def run_phase(content: str, began: float) -> list[Moment]:
    """One kind of data, for as long as its phase lasts."""
    for matrix in (a, b):
        matrix.zero_() if content == "zeros" else matrix.normal_()
    end = time.perf_counter() + measured_phases_seconds[content]
    moments = [watch(began)]
    while time.perf_counter() < end:
        moments.append(watch(began))
    return moments


measured_began_seconds = time.perf_counter()
measured_trace = {content: run_phase(content, measured_began_seconds) for content in measured_phases_seconds}
print({content: len(moments) for content, moments in measured_trace.items()}, "moments")
# --8<-- [end:phases]


# --8<-- [start:settled]
class Settled(NamedTuple):
    """The second half of a phase: medians, and what they are against the predictions."""

    rate_flop_per_second: float
    clock_mhz: float | None
    power_watts: float | None
    predicted_flop_per_second: float | None  # all tensor cores busy at that clock
    at_clock_share: float | None
    of_limit_share: float | None


def median(numbers: list[float | None]) -> float | None:
    """The median of those that are known."""
    known = [number for number in numbers if number is not None]
    return statistics.median(known) if known else None


def settle(moments: list[Moment]) -> Settled:
    """What a phase comes to once it has settled."""
    late = moments[len(moments) // 2 :]
    rate = statistics.median(moment.rate_flop_per_second for moment in late)
    clock, power = median([moment.clock_mhz for moment in late]), median([moment.power_watts for moment in late])
    cycle_seconds = divide(1, clock and clock * 1e6)
    predicted = divide(predicted_flops_per_cycle, cycle_seconds)
    return Settled(rate, clock, power, predicted, divide(rate, predicted), divide(power, predicted_power_watts))


measured_settled = {content: settle(moments) for content, moments in measured_trace.items()}
measured_zeros_ratio = measured_settled["zeros"].rate_flop_per_second / measured_settled["random"].rate_flop_per_second
for content, settled in measured_settled.items():
    print(f"{content:13}{settled.rate_flop_per_second / 1e12:9.4g} TFLOP/s")
# --8<-- [end:settled]
