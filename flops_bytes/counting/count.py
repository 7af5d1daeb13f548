"""A training step of your own, counted without a GPU: the command `flops-bytes count`, and `count()`.

The contract: a script is run as it is, or a function of it is called, until its optimizers have worked twice. Whatever
is built meanwhile has a shape but no memory, "cuda" is answered as if a card were there, and nothing is computed. A
step ends where an optimizer works that has already worked in it, so that several in turn make one step. The second
step counts, since the first one has no optimizer state before its end. So

    flops-bytes count train.py                     runs the script, its main part too
    flops-bytes count train.py:step                runs the script up to its end, but not as main, then calls step()
    flops-bytes count train.py -- --batch-size 8   gives the script arguments

and `step` needs no argument: it takes a step, or returns a function that does. A step without an optimizer is called
twice, and the second call counts. In Python, `count(make)` does the same with a function; it has to build its model
itself, because tensors that were made before have memory.

Attention counts as the kernel that a card of today would run: flash in 16 bits without a mask, else the memory-
efficient one; dropout keeps a mask of bytes, RMSNorm is one kernel, optimizers work with foreach, and autocast follows
CUDA's lists. float32 is multiplied as tf32 where the script allows it, and in convolutions unless it forbids it.
torch.compile is left out: what is counted is the step without it. Tensors that a script leaves on the CPU count as the
card's too. Workspaces of cuBLAS and cuDNN, and what lies beside tensors, do not count. from_pretrained() of
transformers and diffusers builds a model of its configuration and reads no weights.
"""

# --8<-- [start:setup]
import argparse
import builtins
import gc
import inspect
import json
import logging
import runpy
import sys
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from os import PathLike
from pathlib import Path
from traceback import walk_tb
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.nn.attention import flex_attention
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils
from torch.utils.data import DataLoader
from torch.utils.flop_counter import conv_flop_count, flop_registry

from flops_bytes.lessons.trace import Trace, tensors_in
from flops_bytes.plan.options import read_gpu, read_options
from flops_bytes.plan.table import gib
from flops_bytes.plan.training import RUN_MFU, STEP_MFU
from flops_bytes.time.gpus import BESIDE_TENSORS_BYTES, BESIDE_TENSORS_SHARE, Gpu

MOMENTS = ("forward", "backward", "update")
TORCH, STANDARD, OWN = (
    str(Path(folder))
    for folder in (Path(torch.__file__).parent, sysconfig.get_path("stdlib"), Path(__file__).parents[1])
)
CALLS = 64  # of a function, at most, until a second step is whole
ATTENTION = "_scaled_dot_product_flash_attention"


def convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *options: Any, **_: Any) -> int:
    """As many FLOPs as the forward pass for each gradient, of x and of the weight; PyTorch's own formula leaves out
    that a group sees its own channels alone.
    """
    transposed, _, _, wanted = options[-4:]
    return int(sum(wanted[:2]) * conv_flop_count(list(x.shape), list(weight.shape), list(gradient.shape), transposed))


FLOPS = flop_registry | {  # the CPU's kernels too, which a step that runs there has
    getattr(torch.ops.aten, f"{ATTENTION}_for_cpu{end}"): flop_registry[getattr(torch.ops.aten, f"{ATTENTION}{end}")]
    for end in ("", "_backward")
}
FLOPS[torch.ops.aten.convolution_backward] = convolution_backward
TOKENS = "tokens"
IDLE = "{} did not work in this step, so that what it trains is left out: count a step in which each optimizer works"
UNREAD = (
    "{}: {:.4g} FLOPs of forward passes without a graph, of which the step uses nothing, are left out; bytes are not"
)
NO = "{}: a question about numbers was answered by no, so that what a yes would run is not counted"
NUMBER = "{}: a number of a tensor was answered by {}, and a branch that depends on it was taken accordingly"
FIRST = "only the first step was whole, and an optimizer makes its state at the end of it"
ALONE = "no optimizer worked: all that ran counts as one step"
BUILD_INSIDE = "build the model in the function that is counted, by from_config() if a file has its weights"
FITS, MISTAKE, DOES_NOT_FIT = 0, 2, 3


class Uncountable(Exception):
    """Why a step cannot be counted, in which line, and what to do."""


def weights_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


class StepCounted(BaseException):
    """The step has been counted; the rest of the script is not needed. No `except Exception` of it catches this."""


# --8<-- [end:setup]


# --8<-- [start:lines]
def owner_of(name: str) -> str:
    """Whose code a file is: "reader", "library", or "" for PyTorch, Python and this package, where nobody looks for a
    cause."""
    if name.startswith((TORCH, OWN, "<frozen", "<string")):
        return ""
    if "site-packages" in name or "dist-packages" in name:
        return "library"
    return "" if name.startswith(STANDARD) else "reader"


def lines_of(frame: FrameType | None) -> str:
    """Where a reader's code is: the line of the script, and that of a library which it calls there."""
    library = ""
    while frame:
        owner = owner_of(frame.f_code.co_filename)
        if owner:
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            if owner == "reader":
                return f"{line} → {library}" if library else line
            library = library or line
        frame = frame.f_back
    return library or "elsewhere"


def line_of(error: BaseException) -> str:
    """The last line of a reader's code that an error went through, and that of a library after it."""
    traced, reader, library = error.__traceback__, "", ""
    while traced:
        name = traced.tb_frame.f_code.co_filename
        if owner := owner_of(name):
            line = f"{Path(name).name}:{traced.tb_lineno}"
            reader, library = (line, "") if owner == "reader" else (reader, line)
        traced = traced.tb_next
    return " → ".join(each for each in (reader, library) if each) or "elsewhere"


# --8<-- [end:lines]


# --8<-- [start:known]
INTEGER_DTYPES = (torch.int64, torch.int32, torch.bool)
MOST_KNOWN_NUMBERS = 2**20  # numbers
MOST_CONSTANT_NUMBERS = 2**10  # that PyTorch computes for fake tensors, until one is written to
MAKERS = {"arange", "randint", "randperm", "zeros", "ones", "full", "scalar_tensor"}


def is_on_meta(x: Tensor) -> bool:
    return x.device.type == "meta"


def multiplied_in(kind: str, x: Tensor) -> str:
    """The data type in which a card's units multiply: float32 on tensor cores is tf32, where the script allows it."""
    backends: Any = torch.backends
    unit = backends.cudnn.conv if kind == "convolution" else backends.cuda.matmul
    is_tf32 = x.dtype == torch.float32 and unit.fp32_precision == "tf32"
    return "tf32" if is_tf32 else str(x.dtype).removeprefix("torch.")


def is_integer(x: Tensor) -> bool:
    return x.dtype in INTEGER_DTYPES


def is_known(func: Any, inputs: list[Tensor], kwargs: dict[str, Any]) -> bool:
    """Whether an operation has only whole numbers that are known, few enough to compute: indices, lengths, words."""
    if inputs:
        known = all(not isinstance(x, FakeTensor) and is_integer(x) and x.numel() <= MOST_KNOWN_NUMBERS for x in inputs)
        return known and func._overloadpacket.__name__ not in ("expand", "repeat", "repeat_interleave")
    name = func._overloadpacket.__name__
    return name in MAKERS and (kwargs.get("dtype") in INTEGER_DTYPES or name in ("randint", "randperm", "arange"))


def is_constant(func: Any, inputs: list[Tensor], result: Any) -> bool:
    """Whether an operation makes a few numbers that a fake tensor can remember: such as rates of stochastic depth."""
    named = func._overloadpacket.__name__ in ("linspace", "logspace", "arange")
    return named and not inputs and isinstance(result, FakeTensor) and result.numel() <= MOST_CONSTANT_NUMBERS


def is_sized_by_numbers(func: Any, inputs: list[Tensor]) -> bool:
    """Whether the size of its result depends on more than the sizes of its inputs, as of an index that is a mask."""
    is_index = func._overloadpacket is torch.ops.aten.index
    masked = any(x.dtype == torch.bool for x in inputs[1:])
    return torch.Tag.dynamic_output_shape in func.tags and (masked or not is_index)


# --8<-- [end:known]


# --8<-- [start:trace]
class Change(NamedTuple):
    """A storage's birth or death."""

    storage: int  # its number, which no other gets
    change: int
    moment: str
    line: str
    turn: int  # how often an optimizer had worked


# FLOPs by turn, moment, kind and data type; tokens by turn, moment, TOKENS and their table
Amounts = Counter[tuple[int, str, str, str]]


class Made(NamedTuple):
    """An operation of the forward pass without a graph."""

    sources: list[int]  # storages that it read
    amounts: Amounts
    line: str


class StepTrace(Trace):
    """A trace that knows moments, lines, steps and FLOPs, and stops after the second step.

    A step is as many turns as it takes until an optimizer works that has worked in it; a turn is what comes from the
    end of one optimizer's work to the end of the next one's. What the forward pass makes without a graph is part of a
    step with an optimizer once the graph, the backward pass or the optimizer reads it, or what was made from it: a
    teacher is, an evaluation is not.
    """

    def __init__(self, fake: FakeTensorMode | None) -> None:
        self.fake = fake
        self.moment, self.line = "forward", ""
        self.events: list[Change] = []
        self.amounts: Amounts = Counter()
        self.made: defaultdict[int, list[Made]] = defaultdict(list)  # by storage: what nothing of a step has read
        self.kinds: dict[int, str] = {}  # of storages, by number
        self.notes: dict[str, None] = {}
        self.updating, self.updated = 0, False
        self.workers: list[int] = []  # a turn's: an optimizer, or 0 where a call without one ended
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self.weights: dict[str, int] = {}
        self._numbers: dict[int, int] = {}
        self._born: dict[int, str] = {}  # the moment, of what lives
        self._made_at: dict[int, str] = {}  # a node's number in autograd's order: the line that made it
        super().__init__()

    def _change(self, key: int, change: int) -> None:
        if not change:
            return
        if change > 0 and not self._sizes.get(key):
            self._numbers[key] = len(self.events)
        number = self._numbers[key]
        self.events.append(Change(number, change, self.moment, self.line, len(self.workers)))
        self.live_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if change > 0:
            self._born.setdefault(number, self.moment)
        elif key not in self._sizes:
            self._born.pop(number, None)

    def name(self, tensors: Iterator[Tensor] | list[Tensor], kind: str) -> None:
        """What the storages of these are."""
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            if self._sizes.get(key):
                self.kinds[self._numbers[key]] = kind

    def see(self, made_again: bool) -> None:
        """The moment and the line of the operation that comes."""
        node: Any = torch._C._current_autograd_node()
        before = self.moment
        between = before in ("backward", "update") and not self.updated and not torch.is_grad_enabled()  # clipping
        if node is not None:
            self.moment = "backward"
        else:
            self.moment = "update" if self.updating or between else "forward"
        self.updated = self.updated and self.moment == "update"
        if (before, self.moment) == ("forward", "backward"):
            for number in [number for number, born in self._born.items() if born == "forward"]:
                self.kinds.setdefault(number, "activations")
        if before != self.moment:  # what lives, lives in this moment too
            self.events.append(Change(-1, 0, self.moment, self.line, len(self.workers)))
        if node is None or made_again:
            self.line = lines_of(sys._getframe(2))
            if torch.is_grad_enabled():
                number = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
                self._made_at[number] = self.line
        else:
            self.line = self._made_at.get(node._sequence_nr()) or lines_of(sys._getframe(2))

    def step(self) -> range:
        """The turns of the step that counts: the second, if all has worked in it that worked in the first."""
        workers, starts = self.workers, [0]
        for turn, worker in enumerate(workers):
            if worker in workers[starts[-1] : turn]:
                starts.append(turn)
        _, start, end, *_ = [*starts, len(workers), 0]
        whole = len(starts) > 2 or set(workers[start:]) >= set(workers[:start])
        return range(start, end) if len(starts) > 1 and whole else range(max(1, start))

    def end_turn(self, worker: int) -> None:
        """An optimizer has worked, or a call without one has ended."""
        self.workers.append(worker)
        self.updated = True
        if self.step().start:
            self.end_step()

    def end_step(self) -> None:
        """The step that counts is whole."""
        self.note_idle()
        raise StepCounted

    def note_idle(self) -> None:
        """Says of an optimizer that it has not worked in the step that counts."""
        worked = [self.optimizers[worker] for turn in self.step() if (worker := self.workers[turn])]
        changed = {id(weight) for each in worked for weight in weights_of(each)}
        for each in [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]:
            weights = weights_of(each)
            if weights and all(map(self.is_own, weights)) and changed.isdisjoint(map(id, weights)):
                self.notes[IDLE.format(type(each).__name__)] = None

    def numbers(self, tensors: list[Tensor]) -> list[int]:
        """Of their storages."""
        keys = [x.untyped_storage()._cdata for x in tensors]
        return [self._numbers[key] for key in keys if self._sizes.get(key)]

    def use(self, inputs: list[Tensor]) -> None:
        """A step reads these, and so all that they were made from."""
        waiting = self.numbers(inputs)
        while waiting:
            for made in self.made.pop(waiting.pop(), ()):
                waiting += made.sources
                self.amounts.update(made.amounts)
                made.amounts.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        node = torch._C._current_autograd_node()
        made_again = node is not None and torch.is_grad_enabled()
        kwargs = kwargs or {}
        inputs = tensors_in((args, kwargs))
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        device = kwargs.get("device")
        if str(device) == "meta" or (device is None and inputs and all(is_on_meta(each) for each in inputs)):
            return func(*args, **kwargs)  # to be filled later, on the card
        self.see(made_again)
        if self.fake and func is not torch.ops.aten.lift_fresh.default:  # what torch.tensor() made is new
            self.look_outside(inputs)
        if self.fake and is_known(func, inputs, kwargs):
            with unset_fake_temporarily():
                result = super().__torch_dispatch__(func, types, args, kwargs)
            if all(is_integer(each) for each in tensors_in(result)):
                if is_sized_by_numbers(func, inputs) and (where := lines_of(sys._getframe())):
                    self.notes[f"{where}: this size follows from numbers that were made here, at random perhaps"] = None
                return result
        has_graph = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
        is_made = self.moment == "forward" and not has_graph
        if not is_made:
            self.use(inputs)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.fake and is_constant(func, inputs, result):
            with unset_fake_temporarily():
                result.constant = func(*args, **kwargs)
            self.fake.fake_tensor_converter.add_constant_storage_mapping(result)
        packet, turn = func._overloadpacket, len(self.workers)
        amounts: Amounts = Counter()
        if formula := FLOPS.get(packet):
            moment = "made again" if made_again else self.moment
            name = packet.__name__
            kind = "attention" if "attention" in name else "convolution" if "conv" in name else "matmul"
            flops = formula(*args, **kwargs, out_val=result)
            amounts[turn, moment, kind, multiplied_in(kind, inputs[0])] += flops
        if packet is torch.ops.aten.embedding and self.moment == "forward":
            amounts[turn, self.moment, TOKENS, str(args[0].untyped_storage()._cdata)] += args[1].numel()
        if is_made:
            made = Made(self.numbers(inputs), amounts, self.line)
            for number in self.numbers(tensors_in(result) or inputs):
                self.made[number].append(made)
        else:
            self.amounts.update(amounts)
        return result

    def look_outside(self, inputs: list[Tensor]) -> None:
        """Refuses a weight that was made before the count, and says of other such numbers that they are left out."""
        for x in inputs:
            if isinstance(x, FakeTensor) or is_integer(x):
                continue
            if isinstance(x, nn.Parameter):
                raise Uncountable(f"{self.line}: a weight has memory here; {BUILD_INSIDE}")
            if x.numel() > 1:
                self.notes[f"{self.line}: uses a tensor made before the count, whose bytes are left out"] = None

    # --8<-- [start:hooks]
    def before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.updating += 1
        self.optimizers[id(optimizer)] = optimizer
        weights = weights_of(optimizer)
        if self.fake and not all(isinstance(weight, FakeTensor) for weight in weights):
            raise Uncountable(f"{lines_of(sys._getframe())}: the optimizer's weights have memory; {BUILD_INSIDE}")
        self.name([weight.grad for weight in weights if weight.grad is not None], "gradients")
        self.name(weights, "weights")

    def after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.updating -= 1
        self.name(tensors_in(list(optimizer.state.values())), "optimizer state")
        self.look()
        self.end_turn(id(optimizer))

    def is_own(self, x: Any) -> bool:
        """Whether it was made in this run."""
        return isinstance(x, FakeTensor) and x.fake_mode is self.fake if self.fake else isinstance(x, Tensor)

    def look(self) -> None:
        """For the parameters and buffers of all modules that live."""
        modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
        parameters, buffers = (
            {id(x): x for module in modules for x in vars(module)[kind].values() if self.is_own(x)}
            for kind in ("_parameters", "_buffers")
        )
        self.name(list(buffers.values()), "buffers")
        self.name([x.grad for x in parameters.values() if x.grad is not None], "gradients")
        self.name(list(parameters.values()), "weights")
        if parameters:
            trained = sum(x.numel() for x in parameters.values() if x.requires_grad)
            self.weights = {"all": sum(x.numel() for x in parameters.values()), "trained": trained}

    # --8<-- [end:hooks]


# --8<-- [end:trace]


# --8<-- [start:kernels]
class OneNorm(torch.autograd.Function):
    """RMSNorm as a GPU's one kernel: it keeps its input, and a float32 a row."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor | None) -> Tensor:
        scale = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
        context.save_for_backward(x, weight, scale)
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight)


# What CUDA's autocast makes in float32 (docs.pytorch.org/docs/stable/amp.html): the first from a copy
IN_FLOAT32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__ __rpow__ softplus norm
layer_norm group_norm nll_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss binary_cross_entropy_with_logits
cosine_similarity dist cdist logsumexp renorm
"""
FLOAT32_OPERATIONS = set(IN_FLOAT32.split())
WIDE_RESULT = {"softmax", "log_softmax", "sum", "prod", "cumsum", "cumprod"}


def cast_type() -> torch.dtype | None:
    """Of autocast, if it is on; it stands on the CPU's here."""
    return torch.get_autocast_dtype("cpu") if IS_ENABLED("cpu") else None


def is_narrow(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in (torch.bfloat16, torch.float16)


def in_float32(tree: Any) -> Any:
    """16 bits as float32."""
    if is_narrow(tree):
        return tree.float()
    return [in_float32(each) for each in tree] if type(tree) is list else tree


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """scaled_dot_product_attention, by the kernel that a card would choose."""
    aten = torch.ops.aten
    if kind := cast_type():
        query, key, value = (each.to(kind) for each in (query, key, value))
        attn_mask = attn_mask.to(kind) if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    small = query.dim() == 4 and query.shape[-1] <= 256 and value.shape[-1] == query.shape[-1]
    narrow = is_narrow(query)
    if enable_gqa and key.shape[1] != query.shape[1] and not (small and narrow and attn_mask is None):
        key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
    cuda = torch.backends.cuda
    found: Tensor
    if small and narrow and attn_mask is None and cuda.flash_sdp_enabled():
        found = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        return found
    masked = attn_mask is not None and attn_mask.requires_grad
    if small and query.dtype != torch.float64 and not masked and cuda.mem_efficient_sdp_enabled():
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(query.dtype)
            attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
        keeps = any(each.requires_grad for each in (query, key, value)) and torch.is_grad_enabled()
        found = aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, keeps, dropout_p, is_causal, scale=scale
        )[0]
        return found
    found = aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]
    return found


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *_: Any, **named: Any) -> Tensor:
    """As CUDA's autocast has it, whatever its list says: log_softmax in the format of the logits, then in float32."""
    if target.is_floating_point() or named.get("label_smoothing"):
        return F.cross_entropy(input.float(), target, weight, **named)
    probabilities = F.log_softmax(input, min(1, input.dim() - 1), dtype=input.dtype).float()
    asked = {name: named[name] for name in ("ignore_index", "reduction") if name in named}
    return F.nll_loss(probabilities, target, weight, **asked)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True) -> Tensor:
    """Dropout as on CUDA: its mask is a byte a number."""
    return torch.native_dropout(input, p, True)[0] if p and training and train else input


def is_one_kernel(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: Any = None) -> bool:
    """PyTorch fuses RMSNorm where its weight has the type of its input, or is none."""
    return weight is None or weight.dtype == input.dtype


def fused_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    found: Tensor = OneNorm.apply(input, weight)  # type: ignore[no-untyped-call]
    return found


# --8<-- [end:kernels]


# --8<-- [start:card]
IS_ENABLED = torch.is_autocast_enabled


def on_cpu(where: Any) -> Any:
    """A card's name as the CPU's, on whose fake tensors all is counted."""
    if isinstance(where, torch.device) and where.type == "cuda":
        return torch.device("cpu")
    if isinstance(where, str) and where.startswith("cuda"):
        return "cpu"
    return where


QUESTIONS = ("equal", "allclose", "is_nonzero")


class OnCard(TorchFunctionMode):
    """Answers for a card: tensors that are sent there stay, and operations take a card's kernels."""

    def __init__(self, trace: StepTrace, item: float | None) -> None:
        super().__init__()
        self.trace, self.item = trace, item

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return attend(*args, **kwargs)
        if name in ("cuda", "pin_memory"):
            return args[0]
        if name == "__deepcopy__":
            return deep_copy(*args)
        if name in ("dropout", "dropout_"):
            return dropout(*args, **kwargs)
        if name == "rms_norm" and is_one_kernel(*args, **kwargs):
            return fused_norm(*args, **kwargs)
        if name in ("item", "__float__", "__int__", "__bool__", *QUESTIONS):
            return self.number(func, *args, **kwargs)
        if name == "__format__" and args[0].dim() == 0 and args[1]:
            return format(self.number(torch.Tensor.item, args[0], written=True), args[1])
        if name == "tensor" and args and (held := tensors_in(args[0])) and not isinstance(args[0], Tensor):
            args, kwargs = (without_tensors(args[0]), *args[1:]), {"dtype": held[0].dtype} | kwargs
        if "device" in kwargs:
            kwargs = kwargs | {"device": on_cpu(kwargs["device"])}
        if name == "to":
            args = (args[0], *map(on_cpu, args[1:]))
        if cast_type():
            if name == "cross_entropy" and is_narrow(args[0]):
                return cross_entropy(*args, **kwargs)
            if name in WIDE_RESULT and kwargs.get("dtype") is None and is_narrow(args[0]):
                kwargs = kwargs | {"dtype": torch.float32}
            elif name in FLOAT32_OPERATIONS:
                args, kwargs = tuple(map(in_float32, args)), {key: in_float32(value) for key, value in kwargs.items()}
        return func(*args, **kwargs)

    def number(self, func: Any, *args: Any, written: bool = False, **kwargs: Any) -> Any:
        """What .item() answers: PyTorch's own code gets a number, a reader's only what was given for it."""
        try:
            return func(*args, **kwargs)
        except DataDependentOutputException:
            name, x, caller = func.__name__, args[0], sys._getframe(2).f_code.co_filename
            asks = name in QUESTIONS or x.dtype == torch.bool
            if caller.startswith(TORCH) and not written:
                answer: Any = 0.0 if caller.endswith("grad_scaler.py") else 1.0
            elif self.item is None or not (asks or x.is_floating_point()):
                raise
            else:
                answer = False if asks else self.item
                where = lines_of(sys._getframe(2))
                self.trace.notes[(NO if asks else NUMBER).format(where, answer)] = None
            return {"__bool__": bool, "__int__": int}.get(name, lambda each: each)(answer)


def apply(module: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """What .to() does of a module; PyTorch's own cannot swap fake parameters."""
    for child in module.children() if recurse else ():
        child._apply(change)
    for name, weight in module._parameters.items():
        if weight is not None:
            with torch.no_grad():
                changed = change(weight)
            if changed.device != weight.device:
                module._parameters[name] = nn.Parameter(changed, weight.requires_grad)
            elif changed is not weight:
                weight.data = changed
                weight.grad = change(weight.grad) if weight.grad is not None else None
    for name, buffer in module._buffers.items():
        module._buffers[name] = None if buffer is None else change(buffer)
    return module


def deep_copy(x: Tensor, memo: dict[int, Any]) -> Any:
    """What copy.deepcopy() does of a tensor; PyTorch's own copies its memory."""
    if id(x) not in memo:
        memo[id(x)] = x.detach().clone().requires_grad_(x.requires_grad)
    return memo[id(x)]


# How libraries build a model of its configuration alone: the class that reads weights, and what stands for its reading
def of_transformers(read: Any, kind: Any, name: Any, *values: Any, config: Any = None, **named: Any) -> Any:
    asked = {key: named.pop(key) for key in ("dtype", "torch_dtype") if key in named}
    if isinstance(config, str | PathLike | None):
        config, named = kind.config_class.from_pretrained(config or name, return_unused_kwargs=True, **named)
    if config.dtype is None and set(asked.values()) <= {None, "auto"}:
        asked = {"dtype": torch.float32}
    return read(kind, None, *values, **named | asked | {"config": config, "state_dict": {}})


def of_diffusers(read: Any, kind: Any, name: Any, *, torch_dtype: Any = None, **named: Any) -> Any:
    return kind.from_config(kind.load_config(name, **named)).to(torch_dtype).eval()


BUILT = {
    "transformers.modeling_utils": ("PreTrainedModel", of_transformers),
    "diffusers.models.modeling_utils": ("ModelMixin", of_diffusers),
}


class Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, on_cpu(device))  # type: ignore[call-arg]


def without_tensors(tree: Any) -> Any:
    """A list of numbers with a 0 for each that is a tensor's: torch.tensor() asks for their memory."""
    return [without_tensors(each) for each in tree] if isinstance(tree, list | tuple) else 0 if is_fake(tree) else tree


def is_fake(x: Any) -> bool:
    return isinstance(x, FakeTensor)


def do_nothing(*values: Any, **named: Any) -> None:
    """Does nothing."""


class NullDevice(nullcontext[None]):
    """A stream, an event or a device, of which nothing is to be had but its name."""

    cuda_stream = 0

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 1.0 if name == "elapsed_time" else name == "query" or None


@contextmanager
def fake_card(trace: StepTrace, memory_bytes: float, item: float | None) -> Iterator[None]:
    """A machine that seems to have a card of so much memory."""
    started, loaded = torch.amp.autocast_mode.autocast.__init__, DataLoader.__init__

    def start(self: Any, device_type: str = "cuda", dtype: Any = None, enabled: bool = True, **named: Any) -> None:
        dtype = dtype or (torch.float16 if device_type == "cuda" else None)
        started(self, on_cpu(device_type), dtype=dtype, enabled=enabled, **named)

    def load(self: Any, *values: Any, **named: Any) -> None:
        alone = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "pin_memory": False}
        loaded(self, *values, **(named | alone))

    def compiled(model: Any = None, **named: Any) -> Any:
        trace.notes["torch.compile was left out: what is counted is the step without it"] = None
        return model if model is not None else lambda function: function

    def is_enabled(device_type: str = "cuda") -> bool:
        return bool(IS_ENABLED(on_cpu(device_type)))

    of_type = torch.get_autocast_dtype
    properties = SimpleNamespace(
        name="a card to count for", total_memory=int(memory_bytes), major=9, minor=0, multi_processor_count=132
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: properties.name,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "is_bf16_supported": lambda *_, **__: True,
        "memory_allocated": lambda *_: trace.live_bytes,
        "memory_reserved": lambda *_: trace.live_bytes,
        "max_memory_allocated": lambda *_: trace.peak_bytes,
        "max_memory_reserved": lambda *_: trace.peak_bytes,
        "mem_get_info": lambda *_: (int(memory_bytes) - trace.live_bytes, int(memory_bytes)),
    }
    silent = "synchronize empty_cache manual_seed manual_seed_all set_device reset_peak_memory_stats init"
    answers |= dict.fromkeys(silent.split(), do_nothing)
    stands = "Event Stream stream current_stream default_stream device"
    answers |= dict.fromkeys(stands.split(), NullDevice)

    def stats(*_: Any) -> dict[str, int]:
        now = {"current": trace.live_bytes, "peak": trace.peak_bytes}
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes")
        return defaultdict(int, {f"{kind}.all.{when}": size for kind in kinds for when, size in now.items()})

    answers |= {"memory_stats": stats, "memory_summary": lambda *_, **__: f"{trace.live_bytes} bytes"}
    also = {"get_memory_info": "mem_get_info", "current_device_index": "current_device", "set_stream": "set_device"}
    also |= {"set_device_index": "set_device", "device_index": "device"}
    generic = answers | {name: answers[other] for name, other in also.items()}
    generic |= {"current_accelerator": lambda *_, **__: torch.device("cuda")}

    def flex(query: Tensor, key: Tensor, value: Tensor, *_: Any, **named: Any) -> Any:
        trace.notes["flex_attention was counted as flash attention without a mask"] = None
        found = attend(query, key, value, scale=named.get("scale"), enable_gqa=named.get("enable_gqa", False))
        more = query.new_empty(query.shape[:-1], dtype=torch.float32)
        return (found, more) if named.get("return_lse") or named.get("return_aux") else found

    def save(*_: Any, **__: Any) -> None:
        trace.notes[f"{lines_of(sys._getframe(1))}: torch.save was left out"] = None

    def of_configuration(build: Callable[..., Any], read: Callable[..., Any]) -> Any:
        def make(kind: Any, *values: Any, **named: Any) -> Any:
            logging.disable(logging.WARNING)  # that weights are missing
            try:
                found = build(read, kind, *values, **named)
            finally:
                logging.disable(logging.NOTSET)
            what = f"{kind.__name__} was built of its configuration, in {getattr(found, 'dtype', 'its own types')}"
            trace.notes[f"{lines_of(sys._getframe(1))}: {what}; no weights were read"] = None
            return found

        return classmethod(make)

    unseen, load_module = dict(BUILT), builtins.__import__

    def load_and_look(*values: Any, **named: Any) -> Any:
        """An import, after which a library may be there that reads weights."""
        module = load_module(*values, **named)
        for name in [name for name, (kind, _) in unseen.items() if hasattr(sys.modules.get(name), kind)]:
            kind, build = unseen.pop(name)
            reader = getattr(sys.modules[name], kind)
            new = of_configuration(build, reader.from_pretrained.__func__)
            stack.enter_context(patch.object(reader, "from_pretrained", new))
        return module

    foreach = ["cpu", *_foreach_utils._get_foreach_kernels_supported_devices()]
    with ExitStack() as stack:
        for place, name, new in (
            *((torch.cuda, name, answer) for name, answer in answers.items()),
            *((torch.accelerator, name, generic[name]) for name in generic.keys() & vars(torch.accelerator).keys()),
            (builtins, "__import__", load_and_look),
            (torch.amp.autocast_mode.autocast, "__init__", start),
            (DataLoader, "__init__", load),
            (torch, "compile", compiled),
            (nn.Module, "_apply", apply),
            (nn.Module, "compile", lambda self, *_, **__: compiled(self)),
            (torch, "is_autocast_enabled", is_enabled),
            (torch, "get_autocast_dtype", lambda device_type: of_type(on_cpu(device_type))),
            (torch, "get_autocast_gpu_dtype", lambda: of_type("cpu")),
            (torch, "save", save),
            (flex_attention, "flex_attention", flex),
            *((torch.cuda.nvtx, name, do_nothing) for name in ("range_push", "range_pop", "mark")),
            (F, "scaled_dot_product_attention", attend),
            (F, "dropout", dropout),
            (torch, "Generator", Generator),
            (fake_tensor, "CONSTANT_NUMEL_LIMIT", MOST_CONSTANT_NUMBERS),
            (fake_tensor.log, "disabled", True),  # the refusal says it in one sentence
            (optimizers, "_get_foreach_kernels_supported_devices", lambda: foreach),
            (_foreach_utils, "_get_foreach_kernels_supported_devices", lambda: foreach),
            (optimizers, "_foreach_supported_types", [*optimizers._foreach_supported_types, FakeTensor]),
            (_foreach_utils, "_foreach_supported_types", [*_foreach_utils._foreach_supported_types, FakeTensor]),
        ):
            stack.enter_context(patch.object(place, name, new))
        load_and_look("sys")  # for those that are there already
        yield


# --8<-- [end:card]


# --8<-- [start:counted]
class Counted(NamedTuple):
    """What a step takes."""

    peak_bytes: int
    moment: str  # of the peak
    line: str  # of the reader's code that takes the last of it
    moments: dict[str, int]  # bytes at the peak of each
    kinds: dict[str, int]  # bytes at the peak
    lines: dict[str, int]  # bytes at the peak, the most first
    weights: dict[str, int]  # parameters: all, trained
    flops: dict[str, int]  # by kind
    again_flops: int  # of these made again
    flops_dtype: str  # of most of them
    tokens: int  # that the step looks up in a table; 0 where it looks up none
    updates: bool  # whether an optimizer works in it
    notes: list[str]

    @property
    def useful_flops(self) -> int:
        """Without those made again."""
        return sum(self.flops.values()) - self.again_flops

    def __str__(self) -> str:
        return told(table(self))


def summed(trace: StepTrace) -> Counted:
    """What a trace has seen of its last step."""
    step, amounts, unread, notes = trace.step(), trace.amounts.copy(), Counter[str](), list(trace.notes)
    for made in {id(made): made for each in trace.made.values() for made in each}.values():
        if trace.optimizers:
            unread[made.line] += sum(
                n for (turn, _, kind, _), n in made.amounts.items() if turn in step and kind != TOKENS
            )
        else:
            amounts.update(made.amounts)
    notes += [UNREAD.format(line, count) for line, count in unread.items() if count]
    notes += [ALONE] if not trace.workers else [FIRST] if trace.optimizers and not step.start else []
    total, moments = 0, dict.fromkeys(MOMENTS, 0)
    peak, at = -1, 0
    for turn, event in enumerate(trace.events):
        total += event.change
        if event.turn in step:
            moments[event.moment] = max(moments[event.moment], total)
            if total > peak:
                peak, at = total, turn
    living: dict[int, list[Any]] = {}
    for event in trace.events[: at + 1]:
        found = living.setdefault(event.storage, [0, event])
        found[0] += event.change
    kinds: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for number, (size, event) in living.items():
        if size:
            kind = trace.kinds.get(number, f"temporaries of the {event.moment} pass")
            kinds[kind.replace("update pass", "update")] += size
            if kind not in ("weights", "gradients", "optimizer state", "buffers"):
                lines[event.line] += size
    by_kind: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    by_table: Counter[str] = Counter()
    again = 0
    for (turn, moment, kind, dtype), count in amounts.items():
        if turn in step and kind == TOKENS:
            by_table[dtype] += count
        elif turn in step:
            by_kind[kind] += count
            by_type[dtype] += count
            again += count if moment == "made again" else 0
    return Counted(
        peak_bytes=max(peak, 0),
        moment=trace.events[at].moment if trace.events else "",
        line=trace.events[at].line if trace.events else "",
        moments=moments,
        kinds=dict(kinds.most_common()),
        lines=dict(lines.most_common()),
        weights=trace.weights,
        flops=dict(by_kind.most_common()),
        again_flops=again,
        flops_dtype=by_type.most_common(1)[0][0] if by_type else "",
        tokens=max(by_table.values(), default=0),
        updates=bool(trace.optimizers),
        notes=notes,
    )


# --8<-- [end:counted]


# --8<-- [start:count]
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
    step: Callable[[], Any], *, memory_bytes: float = 80e9, item: float | None = None, tracker: Any = None
) -> Counted:
    """A step's bytes and FLOPs, by its moments and lines.

    `step` takes a training step, or returns a function that does; it builds all that it needs itself. `memory_bytes`
    is what torch.cuda tells it of the card, `item` what .item() answers. Raises Uncountable, with the line, where the
    step needs numbers that nobody has computed.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    trace = StepTrace(fake)
    ended = ""
    hooks = [
        optimizers.register_optimizer_step_pre_hook(trace.before_update),
        optimizers.register_optimizer_step_post_hook(trace.after_update),
    ]
    try:
        with fake_card(trace, memory_bytes, item), OnCard(trace, item), fake, trace, tracker or ExitStack():
            try:
                repeat(step, trace)
            except StepCounted:
                pass
            except SystemExit as exit:
                ended = f"the script ended itself at {line_of(exit)}, before a step was whole; " if exit.code else ""
    except Uncountable:
        raise
    except Exception as error:
        raise Uncountable(reason(error)) from error
    finally:
        for hook in hooks:
            hook.remove()
    found = summed(trace)
    if not found.flops:
        raise Uncountable(
            f"{ended}no matmul was seen: give a script that takes two steps, or name a function of it that takes one, "
            "as in train.py:step"
        )
    return found


def reason(error: Exception) -> str:
    """One sentence: what cannot be counted, where, and what to do."""
    where, said = line_of(error), str(error).strip().partition("\n")[0]
    if ".numpy() is not supported" in said:
        return f"{where}: the numbers in a tensor are asked for, and nothing is computed here; leave that line out"
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
    if "process group" in said or "rendezvous" in said or "process_group" in said:
        return (
            f"{where}: a group of processes is asked for ({said}); count one rank, without it, as a script does that "
            "is started without torchrun"
        )
    if any(frame.f_code.co_name == "from_pretrained" for frame, _ in walk_tb(error.__traceback__)):
        return f"{where}: from_pretrained() fails ({said}); build the model of its configuration, as from_config() does"
    if "HigherOrderOperator" in said:
        name = said.partition("HigherOrderOperator ")[2].partition(" ")[0]
        return f"{where}: {name} has no rule for shapes alone; take F.scaled_dot_product_attention for the count"
    unknown = ("Cannot access", "no fake impl", "Meta", "meta", "dummy base class", "aten.")
    if any(word in said for word in unknown) and "CUDA" not in said:
        return (
            f"{where}: a kernel needs data or has no rule for shapes alone ({said}); give it one by "
            "torch.library.register_fake(), or take PyTorch's own operation on dense tensors for the count"
        )
    if "CUDA" in said or "cuda" in said or "NVIDIA" in said:
        return f"{where}: CUDA itself is asked for, and no card is here ({said}); leave that line out of the step"
    if isinstance(error, TypeError) and where == "elsewhere":
        return f"the function cannot be called so ({said}); name one without arguments, which makes its batch itself"
    return f"{where}: {type(error).__name__}: {said}; if it runs without the count, leave that line out of the step"


# --8<-- [end:count]


# --8<-- [start:fit]
class Fit(NamedTuple):
    """A step on a card."""

    card_bytes: int
    left_bytes: int
    fits: bool
    tight: bool
    beside_bytes: int  # that a process can hold beside tensors, at most
    days: dict[float, float]  # by MFU; of the tokens that were asked for
    step_seconds: dict[float, float]


def asked_of(**named: Any) -> dict[str, Any]:
    """The planner's options, of which None stands for what was not given."""
    return read_options({name: value for name, value in named.items() if value})


def peak_of(gpu: Gpu, dtype: str) -> float | None:
    """Where a card has no tf32, its float32 works."""
    peaks = gpu.peak_flop_per_second
    return peaks.get("float32" if dtype == "tf32" and dtype not in peaks else dtype)


def fit(found: Counted, gpu: str | None, tokens: str | int | None = None, **card: str | None) -> Fit:
    """As the planner has it: what lies beside tensors may take a gigabyte, or up to a tenth of the card.

    In place of a row of the table of peaks, `card` is gpu_memory="80GB" and gpu_peak="989T".
    """
    asked = asked_of(gpu=gpu, tokens=tokens, **card)
    row = read_gpu(asked)
    left = int(row.memory_bytes) - found.peak_bytes - BESIDE_TENSORS_BYTES
    beside = max(BESIDE_TENSORS_BYTES, int(BESIDE_TENSORS_SHARE * row.memory_bytes))
    peak = peak_of(row, found.flops_dtype)
    seconds = {mfu: found.useful_flops / (mfu * peak) for mfu in (STEP_MFU, RUN_MFU)} if peak else {}
    steps = asked["tokens"] / found.tokens if asked["tokens"] and found.tokens else 0
    days = {mfu: steps * each / 86400 for mfu, each in seconds.items()} if steps else {}
    tight = 0 <= left < beside - BESIDE_TENSORS_BYTES
    return Fit(int(row.memory_bytes), left, left >= 0, tight, beside, days, seconds)


# --8<-- [end:fit]


# --8<-- [start:tell]
LEAST_SHOWN = 2**20 / 20  # bytes: what is told as 0.1 MiB


def sized(size: float) -> str:
    """GiB as the planner has them; MiB where it is less."""
    return gib(size) if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


def told(rows: Iterable[tuple[str, str]]) -> str:
    """Rows as text."""
    return "\n".join(f"{what:34} {how_much}" for what, how_much in rows)


def table(found: Counted, most: int = 8) -> Iterator[tuple[str, str]]:
    """What a step takes, in lines."""
    yield "parameters", f"{found.weights.get('all', 0):,}; trained are {found.weights.get('trained', 0):,}"
    yield (
        "peak",
        f"{sized(found.peak_bytes)}, in the {found.moment} pass at {found.line}".replace("update pass", "update"),
    )
    yield from ((f"  {kind}", sized(size)) for kind, size in found.kinds.items() if size >= LEAST_SHOWN)
    yield from ((f"peak of {moment}", sized(size)) for moment, size in found.moments.items() if size)
    lines = [(line, size) for line, size in found.lines.items() if size >= LEAST_SHOWN]
    if most and lines:
        yield "what lives at the peak", "beside weights, gradients and optimizer state, by the line that made it"
        yield from ((f"  {sized(size)}", line) for line, size in lines[:most])
        if len(lines) > most:
            yield f"  {sized(sum(size for _, size in lines[most:]))}", f"{len(lines) - most} more lines"
    kinds = ", ".join(f"{kind} {flops:.4g}" for kind, flops in found.flops.items())
    again = f"; of these made again {found.again_flops:.4g}" if found.again_flops else ""
    yield "FLOPs", f"{sum(found.flops.values()):.4g}: {kinds}{again}; most in {found.flops_dtype}"
    if found.tokens:
        yield "tokens", f"{found.tokens:,}"
    yield from (("note", note) for note in found.notes)


def on_card(found: Counted, answer: Fit, gpu: str, tokens: str | None) -> Iterator[tuple[str, str]]:
    """Whether it fits, and how long it takes."""
    verdict = "fits, {} left" if answer.fits else "does not fit, {} are missing"
    beside = f"with {sized(BESIDE_TENSORS_BYTES)} beside tensors it {verdict.format(gib(abs(answer.left_bytes)))}"
    yield gpu, f"{sized(answer.card_bytes)}; {beside}"
    if answer.tight:
        yield "  but only just", f"beside tensors, a process can hold up to {sized(answer.beside_bytes)}"
    for mfu, seconds in answer.step_seconds.items():
        days = f", {answer.days[mfu]:,.4g} days" if answer.days else ""
        yield f"at an MFU of {mfu:.0%}", f"{seconds:.4g} s a step{days}"
    if tokens and not found.tokens:
        yield "  days", "not known: no embedding looks tokens up in this step, so they cannot be counted"


# --8<-- [end:tell]


# --8<-- [start:main]
def script(path: Path, name: str, arguments: list[str]) -> Callable[[], Any]:
    """What runs a script, or loads it and gives a function of it."""

    def run() -> Any:
        with (
            patch.object(sys, "argv", [str(path), *arguments]),
            patch.object(sys, "path", [str(path.parent), *sys.path]),
        ):
            names = runpy.run_path(str(path), run_name="__main__" if not name else path.stem)
        if not name:
            raise StepCounted
        if not callable(names.get(name)):
            raise Uncountable(f"{path.name} has no function {name}; it has {', '.join(functions(names, path))}")
        return names[name]

    return run


def functions(names: dict[str, Any], path: Path) -> list[str]:
    """The functions that a script defines itself."""
    own = [key for key, value in names.items() if inspect.isfunction(value) and value.__module__ == path.stem]
    return own or ["none"]


def main(arguments: list[str]) -> int:
    """Prints what the step takes; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="flops-bytes count",
        description=__doc__,
        epilog="The exit status is 0 if it is counted and fits, 3 if it does not fit, 2 if it cannot be counted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "script", help="a file, or a function of it: train.py, train.py:step", metavar="FILE[:FUNCTION]"
    )
    parser.add_argument("--gpu", help="a row of the table of peaks, such as 'H100 SXM'")
    parser.add_argument("--gpu-memory", help="of a card that the table has not, such as 80GB; with --gpu-peak")
    parser.add_argument("--gpu-peak", help="its FLOP/s of the type that the step multiplies in, dense, such as 989T")
    parser.add_argument("--tokens", help="to train on, such as 15T")
    parser.add_argument("--item", type=float, help="what .item() answers, such as 1; without it .item() is refused")
    parser.add_argument("--json", action="store_true", help="prints one JSON object: bytes, FLOPs, seconds, days")
    parser.add_argument("--lines", type=int, default=8, help="how many lines of code are listed")
    own, theirs = (
        (arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :])
        if "--" in arguments
        else (arguments, [])
    )
    asked = parser.parse_args(own)
    path, _, name = asked.script.rpartition(":") if ".py:" in asked.script else (asked.script, "", "")
    try:
        if not Path(path).is_file():
            raise Uncountable(f"{path}: there is no such file")
        card = {"gpu_memory": asked.gpu_memory, "gpu_peak": asked.gpu_peak}
        gpu = asked.gpu or (f"{asked.gpu_memory or ''} card".strip() if any(card.values()) else None)
        memory = read_gpu(asked_of(gpu=asked.gpu, **card)).memory_bytes if gpu else 80e9
        with redirect_stdout(sys.stderr) if asked.json else nullcontext():
            found = count(script(Path(path).resolve(), name, theirs), memory_bytes=memory, item=asked.item)
        answer = fit(found, asked.gpu, asked.tokens, **card) if gpu else None
        shown = [*table(found, asked.lines), *(on_card(found, answer, str(gpu), asked.tokens) if answer else ())]
    except (Uncountable, ValueError) as error:
        print(f"flops-bytes count: {error}", file=sys.stderr)
        return MISTAKE
    if asked.json:
        print(json.dumps(found._asdict() | ({"gpu": gpu, "fit": answer._asdict()} if answer else {}), indent=2))
    else:
        print(told(shown))
    return FITS if not answer or answer.fits else DOES_NOT_FIT


# --8<-- [end:main]
