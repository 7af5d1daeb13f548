"""A training step seen as it runs: its storages by moment and line, its FLOPs, and where it begins and ends."""

import gc
import math
import sys
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import (
    _disable_current_modes,
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
)
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import conv_flop_count, flop_registry

from flops_bytes.counting.collectives import NAMESPACES, Collective, Sent, collective_of, name_of
from flops_bytes.lessons.trace import Trace, tensors_in
from flops_bytes.memory.simulated import Frames

MOMENTS = ("forward", "backward", "update")
TORCH, STANDARD, OWN = (
    str(Path(folder))
    for folder in (Path(torch.__file__).parent, sysconfig.get_path("stdlib"), Path(__file__).parents[1])
)
MACHINERY = str(Path(__file__).parent), "<frozen", "<string"
REPEATED = "repeat", "flops_bytes.counting.count"  # what calls a script
WRAPPERS = tuple(str(Path(TORCH) / name) for name in ("_compile.py", "_dynamo"))  # of a mode's __torch_dispatch__
ATTENTION = "_scaled_dot_product_flash_attention"


def convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *options: Any, **_: Any) -> int:
    """As many FLOPs as the forward pass for each gradient, of x and of the weight; PyTorch's own formula leaves out
    that a group sees its own channels alone.
    """
    transposed, _, _, wanted = options[-4:]
    return int(sum(wanted[:2]) * conv_flop_count(list(x.shape), list(weight.shape), list(gradient.shape), transposed))


def grouped_mm(a: Tensor, b: Tensor, *more: Any, **named: Any) -> int:
    """Of groups of rows or columns, which end where a tensor of whole numbers says, if those are known."""
    sizes = {"k": a.shape[-1], "m": a.shape[-2], "n": b.shape[-1], "groups": 1}
    ends = next((x for x in tensors_in((more, named)) if x.dtype == torch.int32), None)
    if ends is None:
        sizes["groups"] = a.shape[0]
    elif not isinstance(ends, FakeTensor):
        ragged = {(2, 3): "m", (3, 2): "n", (2, 2): "k"}[a.dim(), b.dim()]
        with _disable_current_modes():
            sizes[ragged] = int(ends[-1])
    return 2 * math.prod(sizes.values())


FLOPS = flop_registry | {  # the CPU's kernels too, which a step that runs there has
    getattr(torch.ops.aten, f"{ATTENTION}_for_cpu{end}"): flop_registry[getattr(torch.ops.aten, f"{ATTENTION}{end}")]
    for end in ("", "_backward")
}


def product(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """Of matrices, of a matrix and a vector, of two vectors."""
    return 2 * math.prod(a.shape[-2:]) * (b.shape[-1] if b.dim() > 1 else 1)


def added_product(_: Tensor, a: Tensor, b: Tensor, **__: Any) -> int:
    return product(a, b)


aten = torch.ops.aten
FLOPS |= dict.fromkeys((aten.mv, aten.dot, aten.vdot, aten._int_mm), product)
FLOPS |= dict.fromkeys((aten._grouped_mm, aten._scaled_grouped_mm), grouped_mm)
FLOPS |= {aten.addmv: added_product, aten.convolution_backward: convolution_backward}
# What else makes products, and has no formula
NAMES = """
addr addbmm _trilinear _sparse_mm _sparse_addmm mkldnn_rnn_layer _cudnn_rnn linalg_eig _linalg_eigh
linalg_qr _linalg_svd linalg_inv_ex _linalg_solve_ex linalg_lu linalg_lu_factor_ex linalg_cholesky_ex linalg_lstsq
linalg_solve_triangular triangular_solve linalg_matrix_exp cholesky_inverse ormqr
"""
PRODUCTS = set(NAMES.split())
PYTORCHS = ("aten", "prim", "prims", "profiler", "fsdp", *NAMESPACES)  # kernels by its own formulas


def ctc_loss(log_probs: Tensor, targets: Tensor, _: Any, lengths: Any, *__: Any) -> tuple[Tensor, Tensor]:
    """As aten/src/ATen/native/cuda/LossCTC.cu: a loss a sequence, and a number for each frame and place of a target."""
    if isinstance(lengths, FakeTensor) or not len(lengths):
        if targets.dim() < 2:
            raise Uncountable(f"{lines_of(sys._getframe())}: {CTC}")
        longest = targets.shape[1]
    else:
        with unset_fake_temporarily():
            longest = int(max(lengths))
    frames, batch, _ = log_probs.shape
    return log_probs.new_empty(batch), log_probs.new_empty(batch, frames, 2 * longest + 1)


def as_first_made(func: Any) -> Any:
    """A kernel that makes its result as large as its input and then cuts it to size, in the same storage."""

    def rule(*inputs: Any, **named: Any) -> Tensor:
        found: Tensor = func(*inputs, **named)
        size = max(x.numel() for x in tensors_in((inputs, named)))
        if size <= found.numel():
            return found
        return found.new_empty(size).as_strided(found.shape, found.stride())

    return rule


CUT = (aten.mse_loss, aten.smooth_l1_loss, aten.binary_cross_entropy, aten.col2im)
RULES: dict[Any, Any] = {each.default: as_first_made(each.default) for each in CUT}
RULES |= {aten._ctc_loss.default: ctc_loss, aten._ctc_loss.Tensor: ctc_loss}
CTC = "the lengths of ctc_loss()'s targets are not known; give it targets that are padded, a row for each"
TOKENS = "tokens"
NO_FORMULA = "{}: {} has no formula here, so that its FLOPs are left out, if it makes products"
DRAWN = "{}: this follows from numbers that were drawn at random here, and is counted as they came out"
IDLE = "{} did not work in this step, so that what it trains is left out: count a step in which each optimizer works"
BUILD_INSIDE = "build the model in the function that is counted, by from_config() if a file has its weights"


class Uncountable(Exception):
    """Why a step cannot be counted, in which line, and what to do."""


def unwrapped(x: Any) -> Iterator[Any]:
    """What a rank holds of a tensor: a DTensor's part of it, and otherwise itself."""
    if is_traceable_wrapper_subclass(x):
        for name in x.__tensor_flatten__()[0]:
            yield from unwrapped(getattr(x, name))
    elif isinstance(x, Tensor):
        yield x


def weights_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


class StepCounted(BaseException):
    """The step has been counted; the rest of the script is not needed. No `except Exception` of it catches this."""


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


def frames_of(frame: FrameType | None) -> Frames:
    """The functions of a script that are being called, the innermost first, but for those that count it."""
    found: list[tuple[str, str, int]] = []
    while frame and (frame.f_code.co_name, frame.f_globals.get("__name__")) != REPEATED:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if not file.startswith(MACHINERY if found else MACHINERY + WRAPPERS):
            found.append((name, file, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


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


INTEGER_DTYPES = (torch.int64, torch.int32, torch.bool, torch.uint8, torch.uint64)
MOST_KNOWN_NUMBERS = 2**20  # numbers
MOST_CONSTANT_NUMBERS = 2**10  # that PyTorch computes for fake tensors, until one is written to
MAKERS = {"arange", "randint", "randperm", "zeros", "ones", "full", "scalar_tensor"}


def count_bins(x: Tensor, *options: Any, **named: Any) -> Tensor:
    """torch.histc of whole numbers, which CUDA has and the CPU has not."""
    return torch.histc(x.double(), *options, **named).to(x.dtype)


WHOLE_NUMBERS: dict[Any, Any] = {torch.ops.aten.histc.default: count_bins}


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


def is_known(func: Any, inputs: list[Tensor], args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operation has only whole numbers that are known, few enough to compute: indices, lengths, words."""
    if inputs:
        known = all(not isinstance(x, FakeTensor) and is_integer(x) and x.numel() <= MOST_KNOWN_NUMBERS for x in inputs)
        if known and torch.Tag.pointwise in func.tags:  # a row beside a column makes a square
            known = math.prod(torch.broadcast_shapes(*(x.shape for x in inputs))) <= MOST_KNOWN_NUMBERS
        return known and func._overloadpacket.__name__ not in ("expand", "repeat", "repeat_interleave")
    name = func._overloadpacket.__name__
    whole = kwargs.get("dtype") in INTEGER_DTYPES or name in ("randint", "randperm", "arange")
    return name in MAKERS and whole and func(*args, **kwargs).numel() <= MOST_KNOWN_NUMBERS


def is_drawn(func: Any, inputs: list[Tensor], result: Any) -> bool:
    """Whether an operation draws numbers at random, and from nothing else: such as where an image is cut."""
    is_weight = isinstance(result, nn.Parameter)
    return torch.Tag.nondeterministic_seeded in func.tags and all(x is result for x in inputs) and not is_weight


def is_by_chance(x: Tensor) -> bool:
    """Whether it has numbers that were drawn at random, or follow from some."""
    return isinstance(x, FakeTensor) and x.constant is not None and getattr(x, "is_drawn", False)


def is_constant(func: Any, inputs: list[Tensor], result: Any) -> bool:
    """Whether an operation makes a few numbers that a fake tensor can remember: such as rates of stochastic depth."""
    named = func._overloadpacket.__name__ in ("linspace", "logspace", "arange") and not inputs
    is_made = named or is_drawn(func, inputs, result)
    return is_made and isinstance(result, FakeTensor) and result.numel() <= MOST_CONSTANT_NUMBERS


def is_sized_by_numbers(func: Any, inputs: list[Tensor]) -> bool:
    """Whether the size of its result depends on more than the sizes of its inputs, as of an index that is a mask."""
    is_index = func._overloadpacket is torch.ops.aten.index
    masked = any(x.dtype == torch.bool for x in inputs[1:])
    return torch.Tag.dynamic_output_shape in func.tags and (masked or not is_index)


class Change(NamedTuple):
    """A storage's birth or death."""

    storage: int  # its number, which no other gets
    change: int
    moment: str
    line: str
    turn: int  # how often an optimizer had worked
    frames: Frames = ()  # where the line is, if frames are kept


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

    def __init__(self, fake: FakeTensorMode | None, keeps_frames: bool = False) -> None:
        self.fake, self.keeps_frames = fake, keeps_frames
        self.moment, self.line = "forward", ""
        self.frames: Frames = ()
        self._known_frames: dict[Frames, Frames] = {}  # of which many operations have the same
        self.events: list[Change] = []
        self.amounts: Amounts = Counter()
        self.made: defaultdict[int, list[Made]] = defaultdict(list)  # by storage: what nothing of a step has read
        self.kinds: dict[int, str] = {}  # of storages, by number
        self.notes: dict[str, None] = {}
        self.updating, self.updated = 0, False
        self.workers: list[int] = []  # a turn's: an optimizer, or 0 where a call without one ended
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self.weights: dict[str, int] = {}
        self.products: dict[bool, int] = {}  # after how many events a pass first multiplied: forward, backward
        self.sent: list[tuple[int, Sent]] = []  # calls of collectives, each with its turn
        self.divided: dict[tuple[int, str], Counter[str]] = {}  # bytes here by optimizer and kind, by dimensions
        self.peers: set[int] = set()  # ranks to which this one sends, or from which it receives, alone
        self.hand_over: Callable[..., None] | None = None  # what is known, between ranks
        self._numbers: dict[int, int] = {}
        self._born: dict[int, str] = {}  # the moment, of what lives
        self._made_at: dict[int, tuple[str, Frames]] = {}  # a node's number in autograd's order: the line that made it
        super().__init__()

    def _change(self, key: int, change: int) -> None:
        if not change:
            return
        if change > 0 and not self._sizes.get(key):
            self._numbers[key] = len(self.events)
        number = self._numbers[key]
        self.events.append(Change(number, change, self.moment, self.line, len(self.workers), self.frames))
        self.live_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if change > 0:
            self._born.setdefault(number, self.moment)
        elif key not in self._sizes:
            self._born.pop(number, None)

    def name(self, tensors: Iterator[Tensor] | list[Tensor], kind: str) -> None:
        """What the storages of these are."""
        for tensor in (part for each in tensors for part in unwrapped(each)):
            key = tensor.untyped_storage()._cdata
            if self._sizes.get(key):
                self.kinds[self._numbers[key]] = kind

    def see(self, made_again: bool) -> None:
        """The moment and the line of the operation that comes."""
        node: Any = torch._C._current_autograd_node()
        before = self.moment
        between = before in ("backward", "update") and not self.updated and not torch.is_grad_enabled()  # clipping
        if node is not None or torch._C._current_graph_task_id() != -1:  # or what follows the last node
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
            self.line, self.frames = self.where(sys._getframe(2))
            if torch.is_grad_enabled():
                number = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
                self._made_at[number] = self.line, self.frames
        else:
            self.line, self.frames = self._made_at.get(node._sequence_nr()) or self.where(sys._getframe(2))

    def where(self, frame: FrameType) -> tuple[str, Frames]:
        frames = frames_of(frame) if self.keeps_frames else ()
        return lines_of(frame), self._known_frames.setdefault(frames, frames)

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
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # a DTensor: the operations on what it wraps will come here
        node = torch._C._current_autograd_node()
        made_again = node is not None and torch.is_grad_enabled()
        kwargs = kwargs or {}
        inputs = tensors_in((args, kwargs))
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        if self.fake and func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]  # its rule for fake tensors makes a new one
        device = kwargs.get("device")
        if str(device) == "meta" or (device is None and inputs and all(is_on_meta(each) for each in inputs)):
            return func(*args, **kwargs)  # to be filled later, on the card
        self.see(made_again)
        is_lift = func is aten.lift_fresh.default  # what torch.tensor() made is new
        if self.fake and not is_lift:
            self.look_outside(inputs)
        if found := collective_of(func, args):
            return self.collect(found, func, types, args, kwargs)
        if self.fake and is_known(func, inputs, args, kwargs):
            with unset_fake_temporarily():
                result = super().__torch_dispatch__(WHOLE_NUMBERS.get(func, func), types, args, kwargs)
            if all(is_integer(each) for each in tensors_in(result)):
                if is_sized_by_numbers(func, inputs) and (where := lines_of(sys._getframe())):
                    self.notes[f"{where}: this size follows from numbers that were made here, at random perhaps"] = None
                return result
        has_graph = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
        is_made = self.moment == "forward" and not has_graph
        if not is_made:
            self.use(inputs)
        if self.fake and func.is_view and not is_lift:  # of known numbers: a view of them is no storage of its own
            args, kwargs = tree_map_only(Tensor, self.as_fake, (args, kwargs))
        result = super().__torch_dispatch__(RULES.get(func, func) if self.fake else func, types, args, kwargs)
        if self.fake and func.is_view and not is_lift and not isinstance(inputs[0], FakeTensor):
            for each in tensors_in(result):
                each.viewed = inputs[0]  # type: ignore[attr-defined]  # whose bytes live as long
        if self.fake and is_constant(func, inputs, result):
            result.is_drawn = is_drawn(func, inputs, result) and result.is_floating_point()  # not a loader's seed
            with unset_fake_temporarily():
                own = [torch.empty(x.shape, dtype=x.dtype) for x in inputs]  # what is drawn in place
                result.constant = func(*own, *args[len(own) :], **kwargs)
            self.fake.fake_tensor_converter.add_constant_storage_mapping(result)
        elif any(map(is_by_chance, inputs)):
            if torch.Tag.data_dependent_output in func.tags or is_sized_by_numbers(func, inputs):
                self.notes[DRAWN.format(lines_of(sys._getframe()))] = None
            for each in tensors_in(result):
                each.is_drawn = True  # type: ignore[attr-defined]
        packet, turn = func._overloadpacket, len(self.workers)
        amounts: Amounts = Counter()
        if formula := FLOPS.get(packet):
            moment = "made again" if made_again else self.moment
            name = packet.__name__
            kind = "attention" if "attention" in name else "convolution" if "conv" in name else "matmul"
            flops = formula(*args, **kwargs, out_val=result)
            if kind == "matmul":
                self.products.setdefault(torch._C._current_graph_task_id() >= 0, len(self.events))
            amounts[turn, moment, kind, multiplied_in(kind, inputs[0])] += flops
        elif func.namespace not in PYTORCHS or packet.__name__ in PRODUCTS:
            self.notes[NO_FORMULA.format(self.line, packet)] = None
        if packet is torch.ops.aten.embedding and self.moment == "forward":
            amounts[turn, self.moment, TOKENS, str(args[0].untyped_storage()._cdata)] += args[1].numel()
        if is_made:
            made = Made(self.numbers(inputs), amounts, self.line)
            for number in self.numbers(tensors_in(result) or inputs):
                self.made[number].append(made)
        else:
            self.amounts.update(amounts)
        return result

    def collect(self, found: Collective, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A collective, or what is sent to one rank."""
        inputs = tensors_in((args, kwargs))
        self.use(inputs)
        known = not any(isinstance(x, FakeTensor) for x in inputs)
        with unset_fake_temporarily() if known else nullcontext():
            result = super().__torch_dispatch__(func, types, args, kwargs)
            if self.hand_over:
                self.hand_over(found, func, args, result, known)
        sent = Sent(found.kind, name_of(found.group), self.line, 1, found.handed_bytes, found.sent_bytes)
        self.sent.append((len(self.workers), sent))
        if found.peer is not None:
            self.peers.add(found.peer)
        return result

    def as_fake(self, x: Tensor) -> Tensor:
        """One and the same for known numbers."""
        fake = self.fake
        return x if isinstance(x, FakeTensor) or not fake else fake.fake_tensor_converter.from_real_tensor(fake, x)

    def look_outside(self, inputs: list[Tensor]) -> None:
        """Refuses a weight that was made before the count, and says of other such numbers that they are left out."""
        for x in inputs:
            if isinstance(x, FakeTensor) or is_integer(x):
                continue
            if isinstance(x, nn.Parameter):
                raise Uncountable(f"{self.line}: a weight has memory here; {BUILD_INSIDE}")
            if x.numel() > 1:
                self.notes[f"{self.line}: uses a tensor made before the count, whose bytes are left out"] = None

    def as_forward(self, closure: Any) -> Any:
        """What an optimizer calls in its step is no update."""
        if not callable(closure) or isinstance(closure, torch.optim.Optimizer):
            return closure

        def call(*values: Any, **named: Any) -> Any:
            self.updating -= 1
            try:
                return closure(*values, **named)
            finally:
                self.updating += 1

        return call

    def before_update(self, optimizer: torch.optim.Optimizer, values: Any = (), named: Any = None) -> Any:
        """Gives back what the optimizer's step takes."""
        self.updating += 1
        self.optimizers[id(optimizer)] = optimizer
        weights = weights_of(optimizer)
        if self.fake and not all(map(self.is_own, weights)):
            raise Uncountable(f"{lines_of(sys._getframe())}: the optimizer's weights have memory; {BUILD_INSIDE}")
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        self.name(gradients, "gradients")
        self.name(weights, "weights")
        self.divide(optimizer, "weights", weights)
        self.divide(optimizer, "gradients", gradients)
        return tuple(map(self.as_forward, values)), {key: self.as_forward(each) for key, each in (named or {}).items()}

    def after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.updating -= 1
        state = tensors_in(list(optimizer.state.values()))
        self.name(state, "optimizer state")
        self.divide(optimizer, "optimizer state", state)
        self.look()
        self.end_turn(id(optimizer))

    def divide(self, optimizer: torch.optim.Optimizer, kind: str, tensors: list[Any]) -> None:
        """How many bytes of a kind are divided by which dimensions of the mesh, if any are."""
        found: Counter[str] = Counter()
        for x in tensors:
            names: tuple[str, ...] = ()
            if hasattr(x, "placements"):
                dimensions = x.device_mesh.mesh_dim_names or tuple(f"dimension {n}" for n in range(x.device_mesh.ndim))
                whole = [placed.is_replicate() or placed.is_partial() for placed in x.placements]
                names = tuple(name for name, is_whole in zip(dimensions, whole, strict=True) if not is_whole)
            found[", ".join(names)] += sum(part.nbytes for part in unwrapped(x))
        self.divided[id(optimizer), kind] = found

    def is_own(self, x: Any) -> bool:
        """Whether it was made in this run."""
        if not self.fake or not isinstance(x, Tensor):
            return isinstance(x, Tensor)
        return all(isinstance(part, FakeTensor) and part.fake_mode is self.fake for part in unwrapped(x))

    def look(self) -> None:
        """For the parameters and buffers of all modules that live."""
        modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
        parameters, buffers = (
            {id(x): x for module in modules for x in vars(module).get(kind, {}).values() if self.is_own(x)}
            for kind in ("_parameters", "_buffers")
        )
        self.name(list(buffers.values()), "buffers")
        self.name([x.grad for x in parameters.values() if x.grad is not None], "gradients")
        self.name(list(parameters.values()), "weights")
        if parameters:
            trained = sum(x.numel() for x in parameters.values() if x.requires_grad)
            self.weights = {"all": sum(x.numel() for x in parameters.values()), "trained": trained}
