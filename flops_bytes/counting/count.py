"""A training step of your own, counted without a GPU: `count()`, and the command `flops-bytes count`.

The contract: a script is run as it is, or a function of it is called, until its optimizers have worked twice. Whatever
is built meanwhile has a shape but no memory, "cuda" is answered as if a card were there, and nothing is computed. A
step ends where an optimizer works that has already worked in it, so that several in turn make one step. The second
step counts, since the first one has no optimizer state before its end. A function needs no argument: it takes a step,
or returns a function that does. A step without an optimizer is called twice, and the second call counts. A function
builds its model itself, because tensors that were made before have memory.

Attention counts as the kernel that a card of today would run: flash in 16 bits without a mask, else the memory-
efficient one; dropout keeps a mask of bytes, RMSNorm is one kernel, optimizers work with foreach, and autocast follows
CUDA's lists. float32 is multiplied as tf32 where the script allows it, and in convolutions unless it forbids it.
torch.compile is left out: what is counted is the step without it. Tensors that a script leaves on the CPU count as the
card's too. Workspaces of cuBLAS and cuDNN, and what lies beside tensors, do not count. from_pretrained() of
transformers and diffusers builds a model of its configuration and reads no weights.

A number that nobody has computed is 1 where a script logs it or reckons with it, and what a router chooses is spread
evenly over its experts. Where such a number decides what runs, the script is refused, with the line.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple

from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.optim import optimizer as optimizers

from flops_bytes.counting.card import OnCard, fake_card
from flops_bytes.counting.counted import Counted, changes, summed
from flops_bytes.counting.step_trace import StepCounted, StepTrace, Uncountable, line_of
from flops_bytes.memory.simulated import writable, write_snapshot
from flops_bytes.plan.allowance import outside_bytes
from flops_bytes.plan.options import read_gpu, read_options
from flops_bytes.plan.training import RUN_MFU, STEP_MFU
from flops_bytes.time.gpus import BESIDE_TENSORS_SHARE, Gpu

TOLD_BY_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
CALLS = 64  # of a function, at most, until a second step is whole


def repeat(step: Callable[[], Any], trace: StepTrace) -> None:
    """Calls a function until the second step is whole; a call without an optimizer is a step."""
    call, calls = step, 0
    while calls < CALLS:
        try:
            found = call()
        finally:
            if not trace.optimizers:
                trace.look()  # as long as the model lives
        if callable(found) and not isinstance(found, nn.Module):
            call = found
        else:
            calls += 1
            if not trace.optimizers:
                trace.end_turn(0)


def count(
    step: Callable[[], Any],
    *,
    memory_bytes: float = 80e9,
    item: float | None = None,
    imbalance: float = 1.0,
    snapshot: str | Path | None = None,
    place: Callable[[StepTrace], AbstractContextManager[Any]] = nullcontext,
) -> Counted:
    """A step's bytes and FLOPs, by its moments and lines.

    `step` takes a training step, or returns a function that does; it builds all that it needs itself. `memory_bytes`
    is what torch.cuda tells it of the card, `item` what .item() answers, `imbalance` how many times an even share of
    routed tokens the first expert gets, 1 to 2. `snapshot` is a file to which all blocks are written as
    torch.cuda.memory._dump_snapshot() does, and `place` where it runs, such as on a rank. Raises Uncountable, with the
    line, where the step needs numbers that nobody has computed.

    >>> import torch
    >>> from flops_bytes import count
    >>> def step():
    ...     layer = torch.nn.Linear(1_024, 1_024, bias=False, device="cuda")
    ...     layer(torch.randn(8, 1_024, device="cuda")).sum().backward()
    ...
    >>> counted = count(step)
    >>> counted.peak_bytes, sum(counted.flops.values())
    (8421384, 33554432)
    """
    if snapshot:
        writable(snapshot)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    trace = StepTrace(fake, keeps_frames=bool(snapshot))
    ended = ""
    hooks = [
        optimizers.register_optimizer_step_pre_hook(trace.before_update),
        optimizers.register_optimizer_step_post_hook(trace.after_update),
    ]
    try:
        with fake_card(trace, memory_bytes), OnCard(trace, item, imbalance), fake, trace, place(trace):
            try:
                repeat(step, trace)
            except StepCounted:
                pass
            except SystemExit as exit:
                ended = (
                    f"the script ended itself at {line_of(exit)} before a step was whole; if for want of arguments, "
                    "they come after --; "
                )
    except Uncountable:
        raise
    except Exception as error:
        if isinstance(cause := first(error), Uncountable):
            raise cause from None
        raise Uncountable(reason(cause)) from error
    finally:
        for hook in hooks:
            hook.remove()
    found = summed(trace)
    if not found.flops:
        raise Uncountable(
            f"{ended}no matmul was seen: give a script that takes two steps, or name a function of it that takes one, "
            "as in train.py:step"
        )
    if snapshot:
        write_snapshot(snapshot, changes(trace), "flops-bytes count")
    return found


def first(error: Any) -> Any:
    """The error of which others were made."""
    while error.__cause__:
        error = error.__cause__
    return error


def reason(error: Exception) -> str:
    """One sentence: what cannot be counted, where, and what to do."""
    where, said = line_of(error), str(error).strip().partition("\n")[0]
    if ".numpy() is not supported" in said:
        return (
            f"{where}: the numbers in a tensor are asked for, and nothing is computed here; leave that line out, or "
            "name a function that takes a step without it, on a batch of its own"
        )
    if isinstance(error, DataDependentOutputException):
        return (
            f"{where}: the number in a tensor is asked for (.item(), float(), print(), if), and nothing is computed "
            "here; leave that line out, or give --item and a number that it could be, such as 1 for a loss: it then "
            "answers each float, and no each question, but whole numbers are not answered"
        )
    if isinstance(error, DynamicOutputShapeException):
        return (
            f"{where}: {said.removesuffix('.default')} makes a tensor whose size depends on numbers, and nothing is "
            "computed here; give that line a fixed size, as torch.where() does for a mask"
        )
    if isinstance(error, ModuleNotFoundError):
        return f"{where}: the module {error.name} is not installed; install it here, or import it where it is used"
    if isinstance(error, ImportError):
        return f"{where}: {said}; install what it names here, or import it where it is used"
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '').name}:{error.lineno}: {error.msg}; the script has to run without the count"
    if isinstance(error, FileNotFoundError):
        return f"{where}: {said}; put it there, or let the step make a batch of the same shape, as torch.randint() does"
    told = isinstance(error, KeyError) and error.args and error.args[0] in TOLD_BY_TORCHRUN
    if told or "process group" in said or "rendezvous" in said or "process_group" in said:
        return (
            f"{where}: one rank of several is asked for ({said}); give --world and how many ranks there are, such as "
            "--world 8, and the script is run as torchrun would start it"
        )
    if any(frame.f_code.co_name == "from_pretrained" for frame, _ in walk_tb(error.__traceback__)):
        return f"{where}: from_pretrained() fails ({said}); build the model of its configuration, as from_config() does"
    if "HigherOrderOperator" in said:
        name = said.partition("HigherOrderOperator ")[2].partition(" ")[0]
        return f"{where}: {name} has no rule for shapes alone; take F.scaled_dot_product_attention for the count"
    if "SparseTensorImpl" in said:
        return (
            f"{where}: a sparse tensor is made, whose size depends on numbers; sparse=False counts the step with dense "
            "gradients, which are as large as the whole table"
        )
    unknown = ("Cannot access", "no fake impl", "Meta", "meta", "dummy base class")
    is_operation = said.startswith("aten.") and " " not in said
    if (is_operation or any(word in said for word in unknown)) and "CUDA" not in said:
        return (
            f"{where}: a kernel needs data or has no rule for shapes alone ({said}); give it one by "
            "torch.library.register_fake(), or take PyTorch's own operation on dense tensors for the count"
        )
    if "CUDA" in said or "cuda" in said or "NVIDIA" in said:
        return f"{where}: CUDA itself is asked for, and no card is here ({said}); leave that line out of the step"
    if isinstance(error, TypeError) and where == "elsewhere":
        return f"the function cannot be called so ({said}); name one without arguments, which makes its batch itself"
    return f"{where}: {type(error).__name__}: {said}; if it runs without the count, leave that line out of the step"


class Fit(NamedTuple):
    """A step on a card."""

    card_bytes: int
    left_bytes: int
    fits: bool
    tight: bool
    outside_bytes: int  # of its context, kernels and NCCL's buffers
    beside_bytes: int  # that a process can hold beside tensors, at most: these, and gaps between tensors
    smi_bytes: tuple[int, int] | None  # what nvidia-smi will show, at least and at most; None of a rank
    days: dict[float, float]  # by MFU; of the tokens that were asked for
    step_seconds: dict[float, float]


def asked_of(**named: Any) -> dict[str, Any]:
    """The planner's options, of which None stands for what was not given."""
    return read_options({name: value for name, value in named.items() if value})


def peak_of(gpu: Gpu, dtype: str) -> float | None:
    """Where a card has no tf32, its float32 works."""
    peaks = gpu.peak_flop_per_second
    return peaks.get("float32" if dtype == "tf32" and dtype not in peaks else dtype)


def fit(found: Counted, gpu: str | None, tokens: str | int | None = None, **card: str | int | None) -> Fit:
    """Whether a counted step fits on a card, and how long it takes there, as the planner has it.

    Beside the step lies what is outside PyTorch's allocator, by source. `gpu` is a row of the table of peaks, or None:
    then `card` is gpu_memory="80GB" and gpu_peak="989T". Of several GPUs, which NCCL joins, it says gpus=64 too, and
    node_gpus where a node has not eight. With `tokens`, `days` are those of a training on so many. Raises ValueError
    for a card that is not known.

    >>> import torch
    >>> def step():
    ...     layer = torch.nn.Linear(1_024, 1_024, bias=False, device="cuda")
    ...     layer(torch.randn(8, 1_024, device="cuda")).sum().backward()
    ...
    >>> fit(count(step), "H100 SXM").fits
    True
    """
    asked = asked_of(gpu=gpu, tokens=tokens, **card)
    row, outside = read_gpu(asked), outside_bytes(asked)
    left = int(row.memory_bytes) - found.peak_bytes - outside
    if found.reserved_bytes:
        smi = found.reserved_bytes[0] + outside, found.reserved_bytes[1] + outside
        beside = smi[1] - found.peak_bytes
    else:
        smi, beside = None, max(outside, int(BESIDE_TENSORS_SHARE * row.memory_bytes))
    peak = peak_of(row, found.flops_dtype)
    seconds = {mfu: found.useful_flops / (mfu * peak) for mfu in (STEP_MFU, RUN_MFU)} if peak else {}
    steps = asked["tokens"] / found.tokens if asked["tokens"] and found.tokens else 0
    days = {mfu: steps * each / 86400 for mfu, each in seconds.items()} if steps else {}
    tight = 0 <= left < beside - outside
    return Fit(int(row.memory_bytes), left, left >= 0, tight, outside, beside, smi, days, seconds)
