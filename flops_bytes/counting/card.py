"""A machine that seems to have a card: what a script asks of one is answered, and its kernels are those of one."""

import builtins
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from os import PathLike
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.cuda import nccl
from torch.nn.attention import flex_attention
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader

from flops_bytes.counting.step_trace import (
    MOST_CONSTANT_NUMBERS,
    MOST_KNOWN_NUMBERS,
    TORCH,
    StepTrace,
    Uncountable,
    lines_of,
    owner_of,
)
from flops_bytes.lessons.trace import tensors_in

ASKED = "{}: a question about numbers was answered by {}, so that what a {} would run is not counted"
NUMBER = "{}: a number of a tensor was answered by {}, and if a branch depends on it, it was taken accordingly"
STATED = "{}: a number that nobody has computed decides what runs; give --item and one that it could be, such as 1"
SHARED = "{}: {} choices among {} were taken as spread {}"
WHOLE = (
    "the number in a tensor is asked for, a whole one, which nobody has computed and --item does not answer; leave "
    "that line out, or name a function that takes a step without it"
)
RNN = "{} was counted as PyTorch's own operations, whose bytes are not those that cuDNN keeps"


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
    widths = [each.shape[-1] for each in (query, value)]
    small = query.dim() == 4 and widths[0] == widths[1] <= 256
    aligned = query.dim() == 4 and not any(width * query.element_size() % 16 for width in widths)
    narrow = is_narrow(query)
    shared = enable_gqa and key.shape[1] != query.shape[1]  # which but flash attention no kernel takes (sdp_utils.cpp)
    cuda = torch.backends.cuda
    keeps = any(each.requires_grad for each in (query, key, value)) and torch.is_grad_enabled()
    found: Tensor
    if small and narrow and attn_mask is None and cuda.flash_sdp_enabled():
        found = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        return found
    masked = attn_mask is not None and attn_mask.requires_grad
    if aligned and not shared and query.dtype != torch.float64 and not masked and cuda.mem_efficient_sdp_enabled():
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(query.dtype)
            attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
        found = aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, keeps, dropout_p, is_causal, scale=scale
        )[0]
        return found
    if aligned and not shared and narrow and max(widths) <= 256 and not masked and cuda.cudnn_sdp_enabled():
        found = aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, keeps, dropout_p, is_causal, False, scale=scale
        )[0]
        return found
    found = aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]
    return found


attend.__name__ = "scaled_dot_product_attention"  # by which context parallelism replaces it


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


IS_ENABLED = torch.is_autocast_enabled
BACKWARD = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
RUN_BACKWARD: Any = torch.autograd._engine_run_backward  # type: ignore[attr-defined]


def on_cpu(where: Any) -> Any:
    """A card's name as the CPU's, on whose fake tensors all is counted."""
    if isinstance(where, torch.device) and where.type == "cuda":
        return torch.device("cpu")
    if isinstance(where, str) and where.startswith("cuda"):
        return "cpu"
    return where


def sent_to(where: Any) -> Any:
    """As on_cpu(), where a card may be a number too."""
    return "cpu" if type(where) is int else on_cpu(where)


QUESTIONS = ("equal", "allclose", "is_nonzero")
OF_FINITE = {"isfinite": True, "isnan": False, "isinf": False, "isposinf": False, "isneginf": False}
OF_ALL, OF_ANY = ("all", "_is_all_true"), ("any", "_is_any_true")
NOT, OR, AND = ("logical_not", "__invert__"), ("logical_or", "__or__"), ("logical_and", "__and__")


class Answer(NamedTuple):
    """To a question about numbers that nobody has computed."""

    is_yes: bool
    is_sure: bool  # whether it needs no note: numbers are finite


def answer_of(name: str, args: Any) -> Answer | None:
    """What is asked of all numbers is so, as a check of them expects, and what is asked of any of them is not."""
    if name in OF_FINITE:
        return Answer(OF_FINITE[name], True)
    if name not in (*OF_ALL, *OF_ANY, *NOT, *OR, *AND):
        return None
    known = [x.answer for x in args if hasattr(x, "answer")]
    if name in OF_ALL or name in OF_ANY:
        return known[0] if known else Answer(name in OF_ALL, False)
    is_sure = bool(known) and all(each.is_sure for each in known)
    if name in NOT and known:
        return Answer(not known[0].is_yes, is_sure)
    if len(known) == 2:
        return Answer((any if name in OR else all)(each.is_yes for each in known), is_sure)
    return None


class Stated(float):
    """A number that stands for one that nobody has computed: it may be logged and reckoned with, but a reader's code
    that compares it is refused. A library's may.
    """

    def decide(self, compare: str, other: Any) -> bool:
        frame = sys._getframe(2)
        if owner_of(frame.f_code.co_filename) == "reader":
            raise Uncountable(STATED.format(lines_of(frame)))
        return bool(getattr(float, compare)(self, other))

    __hash__ = float.__hash__


def reckon(name: str) -> Callable[..., Any]:
    def run(self: Stated, *others: Any) -> Any:
        found = getattr(float, name)(self, *others)
        return Stated(found) if type(found) is float else found

    return run


ARITHMETIC = """
add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs round
"""
COMPARISONS = "lt le gt ge eq ne"
for name in (f"__{each}__" for each in ARITHMETIC.split()):
    setattr(Stated, name, reckon(name))
for name in (f"__{each}__" for each in COMPARISONS.split()):
    setattr(Stated, name, lambda self, other, name=name: self.decide(name, other))


def choose(count: int, k: int, among: int, imbalance: float) -> Tensor:
    """`count` times k different choices among so many, spread evenly, or so that shares fall on a straight line from
    `imbalance` times an even one.
    """
    place = (torch.arange(k) + (torch.arange(count, dtype=torch.float64)[:, None] + 0.5) / max(1, count)) / k
    if bend := imbalance - 1:
        place = (imbalance - (imbalance**2 - 4 * bend * place).sqrt()) / (2 * bend)
    return (place * among).long().clamp_(max=among - 1)


class OnCard(TorchFunctionMode):
    """Answers for a card: tensors that are sent there stay, and operations take a card's kernels."""

    def __init__(self, trace: StepTrace, item: float | None, imbalance: float) -> None:
        super().__init__()
        self.trace, self.item, self.imbalance = trace, item, imbalance

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return attend(*args, **kwargs)
        if name in ("cuda", "pin_memory"):
            return args[0]
        if name == "__deepcopy__":
            return deep_copy(*args)
        if func in BACKWARD:
            with patch.object(torch.autograd, "_engine_run_backward", self.run_backward):
                return func(*args, **kwargs)
        if name in ("dropout", "dropout_"):
            return dropout(*args, **kwargs)
        if name == "rms_norm" and is_one_kernel(*args, **kwargs):
            return fused_norm(*args, **kwargs)
        if name in ("item", "__float__", "__int__", "__bool__", *QUESTIONS):
            return self.number(func, *args, **kwargs)
        if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            self.trace.notes[RNN.format(name)] = None
        if (answer := answer_of(name, args)) is not None:
            found = func(*args, **kwargs)
            found.answer = answer
            return found
        if name == "__format__" and args[0].dim() == 0 and args[1]:
            return format(self.number(torch.Tensor.item, args[0], written=True), args[1])
        if name == "tensor" and args and (held := tensors_in(args[0])) and not isinstance(args[0], Tensor):
            args, kwargs = (without_tensors(args[0]), *args[1:]), {"dtype": held[0].dtype} | kwargs
        if name == "ctc_loss":  # of lists, its mean makes a tensor whose memory it writes
            args = tuple(torch.tensor(each) if isinstance(each, list | tuple) else each for each in args)
        if "device" in kwargs:
            kwargs = kwargs | {"device": sent_to(kwargs["device"])}
        if name == "to":
            args = (args[0], *map(sent_to, args[1:]))
        if name == "_parse_to":  # of a module
            args = tuple(map(sent_to, args))
        if cast_type():
            if name == "cross_entropy" and is_narrow(args[0]):
                return cross_entropy(*args, **kwargs)
            if name in WIDE_RESULT and kwargs.get("dtype") is None and is_narrow(args[0]):
                kwargs = kwargs | {"dtype": torch.float32}
            elif name in FLOAT32_OPERATIONS:
                args, kwargs = tuple(map(in_float32, args)), {key: in_float32(value) for key, value in kwargs.items()}
        found = func(*args, **kwargs)
        if name == "topk" and is_fake(found[1]) and found[1].numel() <= MOST_KNOWN_NUMBERS:
            return type(found)((found[0], self.chosen(args[0], found[1], *args[2:], **kwargs)))
        return found

    def run_backward(self, *values: Any, **named: Any) -> Any:
        """Here too: what is made again in a backward pass takes the same kernels."""
        with self:
            return RUN_BACKWARD(*values, **named)

    def chosen(self, x: Tensor, indices: Tensor, dim: int = -1, *_: Any, **named: Any) -> Tensor:
        """What a router chooses, which decides sizes."""
        dim = named.get("dim", dim) % x.dim()
        among, k = x.shape[dim], indices.shape[dim]
        where = lines_of(sys._getframe(2))
        shares = "evenly" if self.imbalance == 1 else f"with {self.imbalance} times an even share for the first"
        self.trace.notes[SHARED.format(where, k, among, shares)] = None
        with _disable_current_modes():
            rows = choose(indices.numel() // max(1, k), k, among, self.imbalance)
            shape = [*(size for place, size in enumerate(x.shape) if place != dim), k]
            found = rows.view(shape).movedim(-1, dim).contiguous()
        self.trace.hold(found.untyped_storage())
        return found

    def number(self, func: Any, *args: Any, written: bool = False, **kwargs: Any) -> Any:
        """What .item() answers: PyTorch's own code gets a number, a reader's only what was given for it.

        PyTorch's loops and checks end as answer_of() has it; where it compares numbers or follows a loss, as LBFGS
        does, that is noted.
        """
        try:
            return func(*args, **kwargs)
        except DataDependentOutputException:
            name, x, frame = func.__name__, args[0], sys._getframe(2)
            caller = frame.f_code.co_filename
            by_torch = caller.startswith(TORCH) and not written
            asks = name in QUESTIONS or x.dtype == torch.bool
            is_yes, is_sure = getattr(x, "answer", Answer(by_torch and name in QUESTIONS, False))
            if not (by_torch or is_sure or asks or x.is_floating_point()):
                raise Uncountable(f"{lines_of(frame)}: {WHOLE}") from None
            if not (by_torch or is_sure) and self.item is None:
                if asks:
                    raise Uncountable(STATED.format(lines_of(frame))) from None
                if name == "item":
                    return Stated(1)
            if asks:
                answer: Any = is_yes
                note = ASKED.format(lines_of(frame), *(("yes", "no") if is_yes else ("no", "yes")))
                is_noted = not is_sure and not (by_torch and (hasattr(x, "answer") or is_yes))
            else:
                stated = 1.0 if self.item is None or by_torch else self.item
                answer = 0.0 if by_torch and caller.endswith("grad_scaler.py") else stated
                note, is_noted = NUMBER.format(lines_of(frame), answer), not by_torch or x.requires_grad
            if is_noted:
                self.trace.notes[note] = None
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


# How libraries build a model of its configuration alone: what stands for the reading of weights
def of_transformers(read: Any, kind: Any, name: Any, *values: Any, config: Any = None, **named: Any) -> Any:
    asked = {key: named.pop(key) for key in ("dtype", "torch_dtype") if key in named}
    if isinstance(config, str | PathLike | None):
        config, named = kind.config_class.from_pretrained(config or name, return_unused_kwargs=True, **named)
    if config.dtype is None and set(asked.values()) <= {None, "auto"}:
        asked = {"dtype": torch.float32}
    return read(kind, None, *values, **named | asked | {"config": config, "state_dict": {}})


def of_diffusers(read: Any, kind: Any, name: Any, *, torch_dtype: Any = None, **named: Any) -> Any:
    return kind.from_config(kind.load_config(name, **named)).to(torch_dtype).eval()


def of_configuration(build: Callable[..., Any], trace: StepTrace, read: Any) -> Any:
    def make(kind: Any, *values: Any, **named: Any) -> Any:
        logging.disable(logging.WARNING)  # that weights are missing
        try:
            found = build(read.__func__, kind, *values, **named)
        finally:
            logging.disable(logging.NOTSET)
        what = f"{kind.__name__} was built of its configuration, in {getattr(found, 'dtype', 'its own types')}"
        trace.notes[f"{lines_of(sys._getframe(1))}: {what}; no weights were read"] = None
        return found

    return classmethod(make)


def without_triton(trace: StepTrace, run: Any) -> Any:
    """A kernel writes into tensors that it is given."""

    def leave_out(kernel: Any, *_: Any, **__: Any) -> None:
        name = getattr(getattr(kernel, "fn", kernel), "__name__", "")
        trace.notes[f"{lines_of(sys._getframe(1))}: the Triton kernel {name} was left out, and its FLOPs with it"] = (
            None
        )

    return leave_out


def refuse(why: str, *_: Any) -> Any:
    """What stands for a function that is refused; it names the line that calls it."""

    def stop(*_: Any, **__: Any) -> None:
        raise Uncountable(f"{lines_of(sys._getframe(1))}: {why}")

    return stop


DEEPSPEED = (
    "DeepSpeed's engine takes memory of its own, which nobody sees here; its stages 1 to 3 shard what fully_shard() of "
    "torch.distributed.fsdp does: count the step with it"
)
GRAPHS = "what a CUDA graph runs again is run by no Python, and so not seen here; count the step without CUDA graphs"
NCCL = "torch.cuda.nccl sends without a process group; take what torch.distributed has for it"
# What is refused of CUDA
REFUSED: tuple[tuple[Any, str, str], ...] = (
    (torch.cuda.CUDAGraph, "__new__", GRAPHS),
    *((torch.cuda, name, GRAPHS) for name in ("graph_pool_handle", "make_graphed_callables")),
    *(
        (nccl, name, NCCL)
        for name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "init_rank")
    ),
)
# What stands for a library's part, by its module, once it is imported
LIBRARIES: dict[str, tuple[str, str, Callable[[StepTrace, Any], Any]]] = {
    "transformers.modeling_utils": ("PreTrainedModel", "from_pretrained", partial(of_configuration, of_transformers)),
    "diffusers.models.modeling_utils": ("ModelMixin", "from_pretrained", partial(of_configuration, of_diffusers)),
    "triton.runtime.jit": ("JITFunction", "run", without_triton),
    "triton.runtime.autotuner": ("Autotuner", "run", without_triton),
    "deepspeed": ("", "initialize", partial(refuse, DEEPSPEED)),
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


class Silent:
    """What has each method that is asked for, and none does anything."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return do_nothing


class NullDevice(Silent, nullcontext[None]):
    """A stream, an event or a device, of which nothing is to be had but its name."""

    cuda_stream = 0

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__()

    def elapsed_time(self, *_: Any) -> float:
        return 1.0

    def query(self) -> bool:
        return True


@contextmanager
def fake_card(trace: StepTrace, memory_bytes: float) -> Iterator[None]:
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
    silent = "synchronize empty_cache manual_seed manual_seed_all set_device set_rng_state set_rng_state_all"
    silent += " reset_peak_memory_stats init"
    answers |= dict.fromkeys(silent.split(), do_nothing)
    stands = "Event Stream stream current_stream default_stream device"
    answers |= dict.fromkeys(stands.split(), NullDevice)

    def stats(*_: Any) -> dict[str, int]:
        now = {"current": trace.live_bytes, "peak": trace.peak_bytes}
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes")
        return defaultdict(int, {f"{kind}.all.{when}": size for kind in kinds for when, size in now.items()})

    answers |= {"get_rng_state": lambda *_: torch.get_rng_state(), "get_rng_state_all": lambda: [torch.get_rng_state()]}
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

    unseen, load_module = dict(LIBRARIES), builtins.__import__

    modules = 0  # that have been looked at

    def load_and_look(*values: Any, **named: Any) -> Any:
        """An import, after which a library may be there."""
        nonlocal modules
        module = load_module(*values, **named)
        if len(sys.modules) == modules:
            return module
        there = [name for name in unseen if name in sys.modules]
        for name in there:
            kind, part, make = unseen[name]
            owner = getattr(sys.modules[name], kind, None) if kind else sys.modules[name]
            if old := getattr(owner, part, None):
                unseen.pop(name)
                stack.enter_context(patch.object(owner, part, make(trace, old)))
        modules = 0 if unseen.keys() & there else len(sys.modules)  # one is half imported, or all have been looked at
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
            *((place, name, refuse(why)) for place, name, why in REFUSED),
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
        stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
        torch._C._set_mkldnn_enabled(False)  # its LSTM is one kernel of a CPU
        load_and_look("sys")  # for those that are there already
        yield
