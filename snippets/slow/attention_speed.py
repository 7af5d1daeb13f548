# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""How fast each of PyTorch's implementations of attention is, forward and backward, by the length of the sequence."""
# Slow: four implementations, six lengths, forward and backward.

# --8<-- [start:setup]
import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from flops_bytes.lessons.measure import divide, get_device, get_peak_flop_per_second, time_call

torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
measured_on_gpu = torch.cuda.is_available()
# --8<-- [end:setup]


# --8<-- [start:work]
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5  # of s × s × d: fused backward computes the scores once more

measured_lengths = [512, 1024, 2048, 4096, 8192, 16384] if measured_on_gpu else [64, 128, 256, 512]
measured_tokens = measured_lengths[-1]  # in all: short sequences come in larger batches
measured_heads, measured_head_dim = (16, 128) if measured_on_gpu else (4, 64)
dtype = torch.bfloat16 if measured_on_gpu else torch.float32


def flops(products: int, length: int) -> int:
    """FLOPs of so many products, of the causal half alone."""
    return products * measured_tokens * length * measured_heads * measured_head_dim


def square_bytes(length: int) -> int:
    """Bytes of the scores, which only the unfused implementation writes."""
    return measured_tokens * length * measured_heads * dtype.itemsize


predicted_peak = get_peak_flop_per_second("bfloat16")
predicted_backward_ratio = BACKWARD_PRODUCTS / FORWARD_PRODUCTS
predicted_forward_seconds = {s: divide(flops(FORWARD_PRODUCTS, s), predicted_peak) for s in measured_lengths}
measured_square_bytes = square_bytes(measured_tokens)  # at the longest
print("backward over forward, in FLOPs:", predicted_backward_ratio)
# --8<-- [end:work]


# --8<-- [start:measure]
BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,  # products and softmax, one after the other
}


class Speed(NamedTuple):
    """One implementation at one length; useful FLOPs a second."""

    forward_seconds: float
    backward_seconds: float
    forward_flop_per_second: float
    backward_flop_per_second: float
    backward_ratio: float
    forward_peak_share: float | None


def time_attention(backend: SDPBackend, length: int) -> Speed:
    """Both directions of causal attention; raises RuntimeError where there is no such kernel."""
    shape = (measured_tokens // length, measured_heads, length, measured_head_dim)
    q, k, v = (torch.randn(shape, dtype=dtype, device=get_device(), requires_grad=True) for _ in range(3))

    def attend() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    least = 0.1 if measured_on_gpu else 0.01
    with sdpa_kernel(backend):
        result = attend()
        gradient = torch.randn_like(result)
        forward = time_call(attend, 3, least, 3 * least).median_seconds
        backward = time_call(
            lambda: torch.autograd.grad(result, (q, k, v), gradient, retain_graph=True), 3, least, 3 * least
        ).median_seconds
    forward_rate, backward_rate = flops(FORWARD_PRODUCTS, length) / forward, flops(BACKWARD_PRODUCTS, length) / backward
    return Speed(
        forward, backward, forward_rate, backward_rate, backward / forward, divide(forward_rate, predicted_peak)
    )


# --8<-- [end:measure]


# --8<-- [start:all]
def try_attention(backend: SDPBackend, length: int) -> Speed | None:
    """Its speed; None where this device has no such kernel or not the memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they say why there is no kernel
        try:
            return time_attention(backend, length)
        except RuntimeError:
            return None


measured_speeds = {
    name: {length: try_attention(backend, length) for length in measured_lengths} for name, backend in BACKENDS.items()
}
for name, by_length in measured_speeds.items():
    speed = by_length[measured_tokens]
    found = speed and f"{speed.forward_seconds * 1e3:.3g} ms, backward {speed.backward_seconds * 1e3:.3g} ms"
    print(f"{name:10}{measured_tokens} tokens:", found or "not here")
# --8<-- [end:all]


# --8<-- [start:fastest]
def fastest(length: int) -> str:
    """The name of the implementation that takes the least time for both directions."""
    taken = {
        name: speed.forward_seconds + speed.backward_seconds
        for name, by_length in measured_speeds.items()
        if (speed := by_length[length])
    }
    return min(taken, key=lambda name: taken[name])


def over_math(length: int) -> float | None:
    """How many times as long the unfused implementation takes as the fastest one."""
    best, unfused = measured_speeds[fastest(length)][length], measured_speeds["math"][length]
    if not best or not unfused:
        return None
    both = unfused.forward_seconds + unfused.backward_seconds
    return both / (best.forward_seconds + best.backward_seconds)


measured_fastest = {length: fastest(length) for length in measured_lengths}
measured_math_ratio = {length: over_math(length) for length in measured_lengths}
measured_longest = {name: by_length[measured_tokens] for name, by_length in measured_speeds.items()}
measured_longest_ratio = measured_math_ratio[measured_tokens]
print(measured_fastest)
# --8<-- [end:fastest]
