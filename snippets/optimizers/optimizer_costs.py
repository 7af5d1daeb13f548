# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What an optimizer holds, reads and writes, and how long a step of it takes."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flops_bytes.counting.counter import update_fused
from flops_bytes.lessons.measure import (
    get_allocated_bytes,
    get_device,
    get_memory_usage,
    time_call,
)
from flops_bytes.lessons.models import build, flash, loss
from flops_bytes.lessons.trace import Trace, Traffic, tensors_in
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_8B, gpt2, parameters
from flops_bytes.time.gpus import GPUS

Make = Callable[..., torch.optim.Optimizer]


def with_gradients(
    params: Iterable[Tensor],
    device: str | torch.device,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """Parameters of these shapes, with gradients."""
    made = [torch.randn(w.shape, device=device, dtype=dtype) for w in params]
    for w in made:
        w.requires_grad_().grad = torch.randn_like(w)
    return made


# --8<-- [start:your_own]
model = build(GPT2_SMALL)  # on meta: shapes without memory
for w in model.parameters():
    w.grad = torch.zeros_like(w)

optimizer = torch.optim.AdamW(model.parameters())  # put yours here
optimizer.step()  # makes the state
kept = [x for each in optimizer.state.values() for x in each.values()]
print(f"{sum(x.nbytes for x in kept if torch.is_tensor(x)):,} bytes of state")
# --8<-- [end:your_own]


model_parameters = sum(w.numel() for w in model.parameters())


def count_state(make: Make, dtype: torch.dtype = torch.float32) -> dict[str, int]:
    """Bytes of state after one step: per parameter, of step counters, and in all."""
    optimizer = make(with_gradients(model.parameters(), "meta", dtype), lr=1e-3)
    at_birth = len(optimizer.state)
    optimizer.step()
    tensors = tensors_in(list(optimizer.state.values()))
    held = sum(get_memory_usage(t) for t in tensors if t.dim() > 0)
    counters = sum(get_memory_usage(t) for t in tensors if t.dim() == 0)
    return {
        "per_parameter_bytes": held // model_parameters,
        "element_bytes": dtype.itemsize,  # of a parameter, and of its gradient
        "counter_bytes": counters,
        "state_bytes": held + counters,
        "tensors_at_birth": at_birth,
    }


OPTIMIZERS: dict[str, Make] = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "amsgrad": partial(torch.optim.Adam, amsgrad=True),
    "rmsprop_full": partial(torch.optim.RMSprop, centered=True, momentum=0.9),
}
state = {name: count_state(make) for name, make in OPTIMIZERS.items()}
state["adamw_bf16"] = count_state(torch.optim.AdamW, torch.bfloat16)

for name, held in state.items():
    per_parameter, total = held["per_parameter_bytes"], held["state_bytes"]
    print(f"{name:13}{per_parameter:2} B a parameter, in all {total:13,} B")
made_at_birth = [name for name, held in state.items() if held["tensors_at_birth"]]
assert made_at_birth == ["adagrad"]  # the others at the first step


SIZES = {
    "gpt2": model_parameters,
    "seven_b": 7_000_000_000,
    "llama": sum(parameters(LLAMA_3_8B).values()),
}


def together(held: dict[str, int]) -> int:
    """Bytes of one parameter's weight, gradient and state."""
    return 2 * held["element_bytes"] + held["per_parameter_bytes"]


def of_models(per_parameter: int) -> dict[str, int]:
    """Bytes of all parameters of each model."""
    return {size: number * per_parameter for size, number in SIZES.items()}


total_bytes = {name: together(held) for name, held in state.items()}
needed_bytes = {name: of_models(each) for name, each in total_bytes.items()}
llama_state_bytes = SIZES["llama"] * state["adamw"]["per_parameter_bytes"]


net = build(GPT2_SMALL, flash)
weights: list[Tensor] = list(net.parameters())
for weight in weights:
    weight.grad = torch.zeros_like(weight)
adamw = torch.optim.AdamW(weights, foreach=True)  # torch fuses none on meta
adamw.step()


def peak_of_step(
    batch: int,
    seq_len: int,
    fused: bool = True,
    set_to_none: bool = True,
) -> int:
    """Bytes at the peak of a step after the first, in fp32, on meta."""
    tokens = torch.zeros(batch, seq_len, dtype=torch.int64, device="meta")
    for w in weights:
        w.grad = None if set_to_none else torch.zeros_like(w)
    with Trace() as trace:
        gradients = [w.grad for w in weights]
        for tensor in tensors_in((weights, gradients, list(adamw.state.values()))):
            trace.hold(tensor.untyped_storage())
        loss(net, tokens, tokens).backward()
        if fused:
            update_fused(weights, adamw)  # the kernel itself
        else:
            adamw.step()
    return trace.peak_bytes


TOKENS = {"few": (1, 128), "many": (8, 1_024)}  # sequences, and tokens in each


def peaks(**options: bool) -> dict[str, int]:
    return {size: peak_of_step(*TOKENS[size], **options) for size in TOKENS}


peak_bytes = {
    "fused": peaks(),
    "zeros": peaks(set_to_none=False),
    "foreach": peaks(fused=False),
}


def more(way: str) -> dict[str, int]:
    """Bytes beyond the peak of the fused update with gradients set to None."""
    return {size: peak_bytes[way][size] - peak_bytes["fused"][size] for size in TOKENS}


more_bytes = {way: more(way) for way in ("zeros", "foreach")}
for way, found in peak_bytes.items():
    print(f"{way:8}" + "".join(f"{found[size] / 2**30:7.2f} GiB" for size in TOKENS))


IMPLEMENTATIONS: dict[str, Make] = {
    "adamw_loop": partial(torch.optim.AdamW, foreach=False),
    "adamw_foreach": partial(torch.optim.AdamW, foreach=True),
    "adamw_fused": partial(torch.optim.AdamW, fused=True),
    "momentum_fused": partial(torch.optim.SGD, momentum=0.9, fused=True),
    "sgd_fused": partial(torch.optim.SGD, fused=True),
}


def count_traffic(make: Make) -> dict[str, int]:
    """Operations of one step on two tensors; bytes they move per parameter."""
    torch.manual_seed(0)  # a write is seen where it changes a number
    params = with_gradients([torch.empty(64, 32), torch.empty(32)], "cpu")
    optimizer = make(params, lr=1e-2)
    optimizer.step()  # the first makes the state
    with Traffic() as traffic:
        optimizer.step()
    moved_bytes = traffic.moved_bytes // sum(w.numel() for w in params)
    return {"operations": traffic.num_operations, "per_parameter_bytes": moved_bytes}


traffic = {name: count_traffic(make) for name, make in IMPLEMENTATIONS.items()}
print(*(f"{name:15} {count}" for name, count in traffic.items()), sep="\n")

# --8<-- [start:moved]
for name, foreach, fused in (
    ("for-loop", False, False),
    ("foreach", True, False),
    ("fused", False, True),
):
    torch.manual_seed(0)  # a write is seen where it changes a number
    weight = torch.randn(64, 32, requires_grad=True)
    weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.AdamW([weight], foreach=foreach, fused=fused)
    optimizer.step()  # makes the state
    with Traffic() as seen:
        optimizer.step()
    print(f"{name:9}{seen.moved_bytes // weight.numel()} bytes a parameter")
# --8<-- [end:moved]


CARDS = {"h100": "H100 SXM", "a100": "A100 80GB SXM", "rtx_4090": "RTX 4090"}
moved_bytes = of_models(traffic["adamw_fused"]["per_parameter_bytes"])


def terabytes(card: str) -> float:
    """That the card's memory moves in a second, by the datasheet."""
    return GPUS[card].bandwidth_bytes_per_second / 1e12


def milliseconds(card: str) -> dict[str, float]:
    return {size: moved / terabytes(card) / 1e9 for size, moved in moved_bytes.items()}


card_terabytes = {card: terabytes(name) for card, name in CARDS.items()}
update_milliseconds = {card: milliseconds(name) for card, name in CARDS.items()}


SMALL = replace(gpt2(d_model=256, layers=4, heads=4), vocab=4096)
measured_on_gpu = torch.cuda.is_available()
measured_params = list(build(GPT2_SMALL if measured_on_gpu else SMALL).parameters())
measured_parameters = sum(w.numel() for w in measured_params)
measured_tensors = len(measured_params)


def measure(make: Make) -> dict[str, Any]:
    """Seconds of a step; GPU bytes of the state, and what a later step takes on top."""
    optimizer = make(with_gradients(measured_params, get_device()), lr=1e-4)
    before = get_allocated_bytes() or 0
    optimizer.step()
    after = get_allocated_bytes()
    found: dict[str, Any] = {"measured_state_bytes": None, "measured_extra_bytes": None}
    if after is not None:
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        found["measured_state_bytes"] = after - before
        found["measured_extra_bytes"] = torch.cuda.max_memory_allocated() - after
    return {**found, "measured_step": time_call(optimizer.step)}


def time_copy() -> float:
    """Bytes a second of a copy between buffers as large as AdamW's four together."""
    source = torch.randn(2 * measured_parameters, device=get_device())
    target = torch.empty_like(source)
    timing = time_call(lambda: target.copy_(source))
    return 2 * get_memory_usage(source) / timing.median_seconds


# a root and its quotient, for one tensor; the roots of all tensors
measured_largest_bytes = max(map(get_memory_usage, measured_params))
predicted_extra_bytes = {
    "adamw_loop": 2 * measured_largest_bytes,
    "adamw_foreach": 4 * measured_parameters,
    "adamw_fused": 0,
    "momentum_fused": 0,
    "sgd_fused": 0,
}
predicted_state_bytes = {
    name: measured_parameters * state[name.split("_")[0]]["per_parameter_bytes"]
    for name in IMPLEMENTATIONS  # the name begins with that of the optimizer
}


# --8<-- [start:compare]
measured_threads = torch.get_num_threads()
torch.set_num_threads(1)  # on a CPU, other work disturbs one thread least
measured_rate_bytes_per_second = time_copy()
steps = {name: measure(make) for name, make in IMPLEMENTATIONS.items()}
torch.set_num_threads(measured_threads)


def predict(name: str) -> float:
    """Seconds that the bytes of a step take at the rate of a copy."""
    moved_bytes = traffic[name]["per_parameter_bytes"] * measured_parameters
    return moved_bytes / measured_rate_bytes_per_second


predicted_seconds = {name: predict(name) for name in steps}
measured_seconds = {name: steps[name]["measured_step"].median_seconds for name in steps}
measured_time_ratio = {name: measured_seconds[name] / predict(name) for name in steps}
for name, ratio in measured_time_ratio.items():
    print(f"{name:15}{measured_seconds[name] * 1e3:7.2f} ms, {ratio:.2f} × predicted")
# --8<-- [end:compare]


# --8<-- [start:exercise_1]
gpu_bytes = GPUS["H100 SXM"].memory_bytes
each_bytes = {"sgd": 8, "momentum": 12, "adamw": 16, "amsgrad": 20, "adamw_bf16": 8}  # weight, gradient, state
largest_parameters = {name: gpu_bytes / each for name, each in each_bytes.items()}
for name, number in largest_parameters.items():
    print(f"{name:11}{number / 1e9:6.2f}B parameters")
# --8<-- [end:exercise_1]
assert each_bytes == {name: total_bytes[name] for name in each_bytes}
