"""The lines of a training step of GPT-2 in seconds, each from kernels that are timed alone."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from flops_bytes.lessons.measure import get_device, time_call
from flops_bytes.lessons.models import Attend, build, flash, fused, loss
from flops_bytes.lessons.trace import Trace
from flops_bytes.model.shapes import Decoder

device = get_device()


class Step(NamedTuple):
    """A step of GPT-2: its sizes, and how it is run."""

    shape: Decoder
    seq_len: int
    batch: int
    dtype: torch.dtype = torch.float32  # of the products: bfloat16 by autocast
    attend: Attend = fused
    fused_optimizer: bool = True

    @property
    def tokens(self) -> int:
        return self.seq_len * self.batch

    @property
    def autocast(self) -> bool:
        return self.dtype == torch.bfloat16


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=device).requires_grad_()


def alone(
    function: Callable[..., Tensor],
    *inputs: Tensor,
    cold: bool = False,
) -> float:
    """Seconds of a function and its backward pass, on tensors of its own.

    `cold`: these are not in the cache.
    """
    gradient = torch.ones_like(function(*inputs))

    def once() -> None:
        torch.autograd.grad(function(*inputs), inputs, gradient)

    return time_call(once, 5, 0.05, flush_l2=cold).median_seconds


def matrices(shape: Decoder) -> dict[str, tuple[int, int, int]]:
    """Rows and columns of a step's matrices, and how often each is there."""
    d, f, L = shape.d_model, shape.d_ff, shape.layers
    return {
        "qkv": (d, 3 * d, L),
        "out": (d, d, L),
        "up": (d, f, L),
        "down": (f, d, L),
        "head": (d, shape.vocab, 1),
    }


def time_products(step: Step, cold: bool = False) -> dict[str, float]:
    """Forward and backward; all but the head's with a bias."""
    random_as = partial(random, dtype=step.dtype)
    seconds = {}
    for name, (rows, columns, times) in matrices(step.shape).items():
        inputs = [random_as(step.tokens, rows), random_as(columns, rows)]
        inputs += [random_as(columns)] if name != "head" else []
        seconds[name] = times * alone(F.linear, *inputs, cold=cold)
    return seconds


def time_attention(step: Step) -> float:
    """From the product that makes q, k and v to the one that takes the heads."""
    shape, sizes = step.shape, (3, step.shape.heads, step.shape.head_dim)

    def attention(qkv: Tensor) -> Tensor:
        q, k, v = qkv.unflatten(-1, sizes).permute(2, 0, 3, 1, 4)
        with torch.autocast(device.type, torch.bfloat16, enabled=step.autocast):
            return step.attend(q, k, v).transpose(1, 2).flatten(2)

    qkv = random(step.batch, step.seq_len, 3 * shape.d_model, dtype=step.dtype)
    return shape.layers * alone(attention, qkv)


def time_others(step: Step) -> dict[str, float]:
    """What has few FLOPs and many bytes."""
    shape, tokens, d = step.shape, step.tokens, step.shape.d_model
    words = torch.randint(shape.vocab, (tokens,), device=device)

    def norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return F.layer_norm(x, (d,), scale, shift)

    def cross_entropy(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), words)

    gelu = partial(F.gelu, approximate="tanh")
    random_as = partial(random, dtype=step.dtype)
    norms = 2 * shape.layers + 1
    return {
        "norms": norms * alone(norm, random(tokens, d), random(d), random(d)),
        "gelu": shape.layers * alone(gelu, random_as(tokens, shape.d_ff)),
        "loss": alone(cross_entropy, random_as(tokens, shape.vocab)),
        "embedding": alone(partial(F.embedding, words), random(shape.vocab, d)),
    }


def time_update(step: Step) -> float:
    """AdamW, on as many weights of the same sizes."""
    of_model = build(step.shape).parameters()
    weights = [torch.randn(weight.shape, device=device) for weight in of_model]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    fused, foreach = step.fused_optimizer, not step.fused_optimizer
    update = torch.optim.AdamW(weights, fused=fused, foreach=foreach).step
    return time_call(update, 5, 0.05).median_seconds


def weights_in_products(shape: Decoder) -> int:
    each = matrices(shape).values()
    return sum(rows * columns * times for rows, columns, times in each)


def added_and_cast_bytes(step: Step) -> dict[str, int]:
    """Bytes that sums and casts move; the residual path is float32."""
    shape, width = step.shape, step.dtype.itemsize
    row, layers = step.tokens * shape.d_model, shape.layers
    forward = 2 * (4 + width + 4)  # the path and a branch are read, the path is written
    backward = 2 * (4 + 4 + 4)  # two gradients are read, their sum is written
    tied = 3 * 4 * shape.vocab * shape.d_model  # two gradients of one matrix
    # of each norm's output, forward and backward, and of each branch's gradient
    of_activations = (2 * (2 * layers + 1) + 2 * layers) * (4 + 2) * row
    of_weights = 2 * (4 + 2) * weights_in_products(shape)  # and of their gradients
    return {
        "added": layers * (forward + backward) * row + tied,
        "cast": of_activations + of_weights if step.autocast else 0,
    }


def time_byte(step: Step) -> float:
    """Seconds a byte of an operation on each number of a large tensor."""
    x = random(step.tokens, step.shape.d_ff).detach()
    return time_call(lambda: torch.neg(x), 5, 0.05).median_seconds / (2 * x.nbytes)


def compiled_bytes(step: Step) -> int:
    """Bytes of what torch.compile fuses: norms, GELU, the loss, sums, casts.

    The rule: what stands between two products is one kernel a pass. It reads each of
    its inputs and writes each of its outputs once; a reduction reads its inputs again.
    """
    shape, width = step.shape, step.dtype.itemsize
    row, inner = step.tokens * shape.d_model, step.tokens * shape.d_ff
    forward = 4 + width + 4 + width  # path and branch in; path and normed out
    gradients = (width + 4 + 4) + (4 + width)  # normed, path, sum; the new sum, cast
    reductions = width + 4  # gradients of scale and shift
    norms = (2 * shape.layers + 1) * (forward + gradients + reductions) * row
    gelu = shape.layers * (2 + 3) * width * inner
    loss = (2 + 2) * width * step.tokens * shape.vocab  # read twice; read and written
    weights = 2 * (4 + 2) * weights_in_products(shape) if step.autocast else 0
    return norms + gelu + loss + weights + 3 * 4 * shape.vocab * shape.d_model


def time_launches(step: Step) -> float:
    """Seconds in which Python launches a step's operations, to a GPU; 0 on a CPU,
    where each time above holds its own. Counted on meta, without autocast's casts.
    """
    if device.type == "cpu":
        return 0.0
    attend = flash if step.attend is fused else step.attend
    words = torch.zeros(step.batch, step.seq_len, dtype=torch.int64, device="meta")
    with Trace() as trace:
        loss(build(step.shape, attend), words, words).backward()
    launched = sum(operation.taken_bytes > 0 for operation in trace.operations)
    tiny = torch.zeros(1, device=device)
    return launched * time_call(lambda: torch.neg(tiny), 20, 0.02).median_seconds


def predict_lines(
    step: Step,
    product_seconds: dict[str, float],
    compiled: bool = False,
) -> dict[str, float]:
    """Seconds of each line of a step; compiled, norms, GELU and loss are bytes too."""
    others = time_others(step)
    moved = sum(added_and_cast_bytes(step).values())
    if compiled:
        others = {"embedding": others["embedding"]}
        moved = compiled_bytes(step)
    return {
        "products": sum(product_seconds.values()),
        "attention": time_attention(step),
        **others,
        "elementwise": moved * time_byte(step),
        "optimizer": time_update(step),
    }


def step_seconds(step: Step, lines: dict[str, float]) -> float:
    """A GPU works while Python launches what comes next: the longer of the two."""
    return max(sum(lines.values()), time_launches(step))
