"""What the GPU was doing: a trace of torch.profiler, as export_chrome_trace() writes it, by kind of kernel.

A trace has an event for each kernel, for each call by which the CPU launched one, and for each operation of PyTorch. It
is read as a stream, one event after the other, without PyTorch; what is no such file ends in one sentence.
"""

import argparse
import gzip
import json
import re
import statistics
import sys
import zlib
from codecs import getincrementaldecoder
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from flops_bytes.time.gpus import GPUS, THIRD_PARTY, Gpu

MIB = 2**20
CHUNK = MIB  # bytes that are read at a time
LARGEST_VALUE = 16 * MIB  # characters of one event, or of one entry beside the events
LARGEST_FILE_BYTES = 2048 * MIB  # unpacked
MOST_TENSORS, MOST_DIMS, MOST_NUMBERS = 64, 8, 2**48  # of an operation, of a tensor, in a dimension
MOST_DEVICES = 64
MOST_EVENTS = 4_000_000  # that are kept: kernels, launches, operations with shapes
WRITE = "torch.profiler.profile(record_shapes=True) and export_chrome_trace(FILE)"
FEWER = "record fewer steps, with torch.profiler.schedule()"


class TraceError(ValueError):
    """What is wrong with a file, as a sentence that names it and says what to do."""


# The kind of a kernel, by its name: the first rule that finds something. What none finds is "other".
KINDS: tuple[tuple[str, str], ...] = (
    ("collective", r"nccl|rccl|nvshmem|multimem|all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|cross_device"),
    ("collective", r"\bep::(inter|intra)node::|deep_?ep"),  # DeepSeek's experts
    ("attention", r"attention|flash_?(attn|fwd|bwd|attention)|\bflash::|fmha|sdpa|_attn\b|attn_(fwd|bwd|ws)|\bmha"),
    ("optimizer", r"adamw?(?![a-z])|lamb(?!da)|multi_tensor_apply|muon|optimizer"),
    (
        "normalization",
        r"(layer|rms|batch|group|instance)_?norm|\bln_(fwd|bwd)|bn_(fw|bw)|softmax|GammaBeta|RowwiseMoments",
    ),
    ("matmul", r"gemm|gemv|cijk_|nvjet|splitk|_xmma_|wgmma|\bmm_kernel|triton_tem\w*mm|cublas|epilogue::impl"),
    ("matmul", r"scudnn|winograd|tensorop|conv(?!ert)|[dw]grad"),  # convolutions, matmuls inside
    ("copy", r"copy|transpose|nchwtonhwc|nhwctonchw|fillfunctor|memcpy|memset"),
    (
        "element-wise",
        r"elementwise|reduce_kernel|triton_(poi|red|per)_|cast|quant|swiglu|silu|gelu|dropout|rotary",
    ),
)
RULES = tuple((kind, re.compile(rule, re.IGNORECASE)) for kind, rule in KINDS)
OTHER = "other"
NAMES = (*dict.fromkeys(kind for kind, _ in KINDS), OTHER)


def kind_of(name: str) -> str:
    """The kind of the kernel with a name."""
    return next((kind for kind, rule in RULES if rule.search(name)), OTHER)


class Kernel(NamedTuple):
    """A kernel, or a copy that the GPU made; times in nanoseconds of the trace's clock."""

    name: str
    kind: str
    start: int
    end: int
    device: int
    stream: str
    correlation: int  # that of its launch; 0 where there is none
    copied: bool  # a memcpy or memset, which is no kernel


class Launch(NamedTuple):
    """A call of the CPU that starts kernels: their correlation is its own."""

    start: int
    end: int
    thread: str
    correlation: int


class Operation(NamedTuple):
    """An operation of PyTorch's whose arithmetic and bytes follow from its shapes."""

    name: str
    start: int
    end: int
    thread: str
    work: "Work"


class Trace(NamedTuple):
    """What is kept of a file."""

    kernels: tuple[Kernel, ...]  # by their starts
    launches: Mapping[int, Launch]  # by correlation
    operations: tuple[Operation, ...]  # by their starts
    cards: Mapping[int, tuple[str, int]]  # by device: its name, and how many SMs it has
    misfits: int  # events without a time, or with one that makes no sense

    def card(self, device: int) -> tuple[str, int]:
        """A device's card. ROCm counts processors too: a number that is not listed is a card like all that are."""
        alike = set(self.cards.values())
        return self.cards.get(device) or (alike.pop() if len(alike) == 1 else ("", 0))


class Work(NamedTuple):
    """What an operation has to do, by its shapes."""

    kind: str  # matmul, attention, element-wise
    shape: tuple[int, ...]  # matmul: batch, m, n, k; attention: b, H, G, T, S, Q; element-wise: numbers read, written
    dtype: str
    flops: int
    bytes: int  # every input read once, every output written once


SIZES = {
    "double": ("float64", 8),
    "float": ("float32", 4),
    "c10::BFloat16": ("bfloat16", 2),
    "c10::Half": ("float16", 2),
    "c10::Float8_e4m3fn": ("float8", 1),
    "c10::Float8_e5m2": ("float8", 1),
}
MATMULS = {"aten::mm": 2, "aten::addmm": 2, "aten::bmm": 3, "aten::baddbmm": 3, "aten::_scaled_mm": 2}
ATTENTIONS = {  # FLOPs of a pair of query and key, over a head's features; the first of q, k, v; the tensors moved
    "aten::_scaled_dot_product_flash_attention": (4, 0, 4),
    "aten::_scaled_dot_product_efficient_attention": (4, 0, 4),
    "aten::_scaled_dot_product_cudnn_attention": (4, 0, 4),
    "aten::_scaled_dot_product_flash_attention_backward": (10, 1, 8),  # scores made again: five matmuls for two
    "aten::_scaled_dot_product_efficient_attention_backward": (10, 1, 8),
    "aten::_scaled_dot_product_cudnn_attention_backward": (10, 1, 8),
}
UNARY = {f"aten::{name}" for name in ("sigmoid", "tanh", "relu", "gelu", "silu", "neg", "exp", "log", "sqrt", "clone")}
BINARY = {f"aten::{name}" for name in ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_")}
BINARY |= {f"aten::{name}_backward" for name in ("sigmoid", "tanh", "gelu", "silu")}
ELEMENTWISE = UNARY | BINARY | {"aten::copy_"}  # which reads its second


def matmul_work(batch: int, m: int, n: int, k: int, dtype: str, size: int, added: int = 0) -> Work:
    """(m × k)(k × n), `batch` times: 2mnk FLOPs each; `added` numbers are read beside."""
    written = 2 if dtype == "float8" else size
    moved = size * (batch * (m * k + k * n) + added) + written * batch * m * n
    return Work("matmul", (batch, m, n, k), dtype, 2 * batch * m * n * k, moved)


def attention_work(shape: tuple[int, ...], dtype: str, size: int, flops: int, causal: bool, moved: int) -> Work:
    """Attention of b sequences, H query and G key-value heads, T queries, S keys, Q features; scores stay on the chip.

    Of `moved` tensors half are as large as the queries, half as the keys. Causal, T(T + 1)/2 pairs count, if T = S.
    """
    b, H, G, T, S, Q = shape
    pairs = T * (T + 1) // 2 if causal and T == S else T * S
    return Work("attention", shape, dtype, flops * b * H * pairs * Q, size * moved // 2 * b * Q * (H * T + G * S))


def work_of(name: str, args: Mapping[str, Any]) -> Work | None:
    """The work of an operation, if a trace that recorded shapes says enough of it."""
    dims, types = args.get("Input Dims", args.get("Input dims")), args.get("Input type", args.get("Input Types"))
    if type(dims) is not list or type(types) is not list or len(dims) != len(types):
        return None
    tensors = [
        (tuple(each), *SIZES[kind])
        for each, kind in zip(dims[:MOST_TENSORS], types, strict=False)
        if type(kind) is str and kind in SIZES and type(each) is list and len(each) <= MOST_DIMS
        if all(type(n) is int and 0 <= n < MOST_NUMBERS for n in each)
    ]
    if not tensors:
        return None
    concrete = args.get("Concrete Inputs", [])
    if name in MATMULS:
        return _matmul(tensors, MATMULS[name], name in ("aten::addmm", "aten::baddbmm"))
    if name in ATTENTIONS:
        return _attention(tensors, *ATTENTIONS[name], type(concrete) is list and "True" in concrete)
    return _elementwise(name, tensors) if name in ELEMENTWISE else None


Tensors = list[tuple[tuple[int, ...], str, int]]


def _matmul(tensors: Tensors, dims: int, adds: bool) -> Work | None:
    added = prod(tensors[0][0]) if adds else 0
    tensors = tensors[1:3] if adds else tensors[:2]
    if len(tensors) != 2 or any(len(shape) != dims for shape, _, _ in tensors):
        return None
    (*batch, m, k), (*others, inner, n) = tensors[0][0], tensors[1][0]
    if batch != others or k != inner or not m * n * k:
        return None
    return matmul_work(prod(batch), m, n, k, *tensors[0][1:], added=added)


def _attention(tensors: Tensors, flops: int, first: int, moved: int, causal: bool) -> Work | None:
    shapes = [shape for shape, _, _ in tensors[first : first + 3]]
    if len(shapes) < 3 or any(len(shape) != 4 for shape in shapes) or not all(map(prod, shapes)):
        return None
    (b, H, T, Q), (_, G, S, _), _ = shapes
    return attention_work((b, H, G, T, S, Q), *tensors[first][1:], flops=flops, causal=causal, moved=moved)


def _elementwise(name: str, tensors: Tensors) -> Work | None:
    if name == "aten::copy_":
        inputs, (written, _, size) = tensors[1:2], tensors[0]
    else:
        inputs = tensors[: 2 if name in BINARY else 1]
        written, _, size = tensors[0] if name.endswith("_") else _result(inputs)
    numbers = sum(prod(shape) for shape, _, _ in inputs), prod(written)
    if not numbers[1]:
        return None
    moved = sum(size * prod(shape) for shape, _, size in inputs) + size * numbers[1]
    return Work("element-wise", numbers, tensors[0][1], numbers[1], moved)


def _result(inputs: Tensors) -> tuple[tuple[int, ...], str, int]:
    """What element-wise operations write: as long as the longest, as wide as the widest; a number alone widens none."""
    longest = max(len(shape) for shape, _, _ in inputs)
    padded = [(1,) * (longest - len(shape)) + shape for shape, _, _ in inputs]
    widest = max(inputs, key=lambda each: (bool(each[0]), each[2]))
    return tuple(map(max, zip(*padded, strict=True))), *widest[1:]


TENSOR = re.compile(r"tf32|xf32|s1688", re.IGNORECASE)


def unit_of(dtype: str, kernel: str) -> str:
    """The units that a kernel used, as gpus.py names their peaks: float32 may run on tensor cores, as TF32."""
    return "tf32" if dtype == "float32" and TENSOR.search(kernel) else dtype


KERNELS = {"kernel": False, "Kernel": False}
KERNELS |= dict.fromkeys(("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"), True)
LAUNCHES = {"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"}
LAUNCHING = re.compile(r"launch|memcpy|memset", re.IGNORECASE)
OPERATIONS = {"cpu_op", "Operator"}
DECODER = json.JSONDecoder()
SPACE = re.compile(r"[ \t\r\n]*")


class _Source:
    """The text of a file, of which a part at a time is held."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.utf8 = file, getincrementaldecoder("utf-8")("replace")
        self.text, self.at, self.bytes, self.ended = "", 0, 0, False

    def more(self) -> None:
        data = self.file.read(max(CHUNK, len(self.text) - self.at))
        self.bytes += len(data)
        if self.bytes > LARGEST_FILE_BYTES:
            raise TraceError(f"it is larger than {LARGEST_FILE_BYTES // MIB:,} MiB; {FEWER}")
        self.text = self.text[self.at :] + self.utf8.decode(data, final=not data)
        self.at, self.ended = 0, not data

    def next(self) -> str:
        """The next character that is no space, which stays; "" at the end."""
        while True:
            found = SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self.more()

    def take(self, *wanted: str) -> str:
        """The next character, which must be one of those wanted."""
        found = self.next()
        if found not in wanted or not found:
            raise TraceError(f"{self.where()} stands {found!r}" if found else "it ends too early, so it is not whole")
        self.at += 1
        return found

    def value(self) -> Any:
        """The next value, whole."""
        self.next()
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.at)
            except RecursionError:
                raise TraceError(f"{self.where()} something is nested too deep") from None
            except ValueError:
                if self.ended:
                    raise TraceError("it ends too early, so it is not whole, or it is no JSON") from None
            else:
                if end < len(self.text) or self.ended:  # else a number may go on
                    self.at = end
                    return value
            if len(self.text) - self.at > LARGEST_VALUE:
                raise TraceError(f"{self.where()} stands what is no value of JSON, or one of over 16 MiB")
            self.more()

    def where(self) -> str:
        return f"about {self.bytes:,} bytes into it"


def entries(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Each event, as ("traceEvents", event), and each entry beside them. Raises TraceError where it is no trace."""
    source = _Source(file)
    if source.next() == "[":  # the older form: events alone
        for event in _items(source):
            yield "traceEvents", event
        return
    source.take("{")
    if source.next() == "}":
        return
    while True:
        if source.next() != '"':
            source.take('"')
        key = source.value()
        source.take(":")
        if key == "traceEvents" and source.next() == "[":
            for event in _items(source):
                yield key, event
        else:
            yield key, source.value()
        if source.take(",", "}") == "}":
            return


def _items(source: _Source) -> Iterator[Any]:
    source.take("[")
    if source.next() == "]":
        source.take("]")
        return
    while True:
        yield source.value()
        if source.take(",", "]") == "]":
            return


def read(path: Path) -> Trace:
    """The trace in a file, .json or .json.gz. Raises TraceError with its name, what is wrong, and what to do."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return as_trace(entries(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file))
    except TraceError as error:
        raise TraceError(f"{path}: {error}; a trace is written with {WRITE}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TraceError(f"{path}: its compression is damaged, or it is not whole; copy it once more") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; name a file of {WRITE}") from None


class _Misfit(Exception):
    """An event that makes no sense."""


def nanoseconds(found: object) -> int:
    """A time in nanoseconds, from microseconds."""
    if type(found) not in (int, float) or not -1e16 < cast(float, found) < 1e16:
        raise _Misfit
    return round(cast(float, found) * 1000)


def as_trace(found: Iterable[tuple[str, Any]]) -> Trace:
    """What is kept of a file's entries. Raises TraceError if they hold no list of events."""
    kernels: list[Kernel] = []
    launches: dict[int, Launch] = {}
    operations: list[Operation] = []
    cards: dict[int, tuple[str, int]] = {}
    names: dict[str, tuple[str, str]] = {}
    misfits, has_events = 0, False
    for key, value in found:
        has_events = has_events or key == "traceEvents"
        if key == "deviceProperties" and type(value) is list:
            cards |= dict(_card(each, index) for index, each in enumerate(value) if type(each) is dict)
        if key != "traceEvents" or type(value) is not dict or value.get("ph") != "X":
            continue
        category, name, args = value.get("cat"), value.get("name"), value.get("args") or {}
        if type(category) is not str or type(name) is not str or type(args) is not dict:
            misfits += 1
            continue
        try:
            if category in KERNELS:
                kernels.append(_kernel(value, names, category))
            elif category in LAUNCHES and LAUNCHING.search(name):
                launch = Launch(*_times(value), _thread(value), _number(args.get("correlation")))
                launches.setdefault(launch.correlation, launch)
            elif category in OPERATIONS and (work := work_of(name, args)):
                operations.append(Operation(sys.intern(name), *_times(value), _thread(value), work))
        except _Misfit:
            misfits += 1
        if len(kernels) + len(launches) + len(operations) > MOST_EVENTS:
            raise TraceError(f"it has more than {MOST_EVENTS:,} kernels, launches and operations; {FEWER}")
    if not has_events:
        raise TraceError("it has no list of traceEvents")
    launches.pop(0, None)
    kernels.sort(key=attrgetter("start", "end"))
    operations.sort(key=lambda each: (each.start, -each.end))
    return Trace(tuple(kernels), launches, tuple(operations), cards, misfits)


def _card(found: dict[str, Any], index: int) -> tuple[int, tuple[str, int]]:
    number, name, sms = (found.get(key) for key in ("id", "name", "numSms"))
    return (
        number if type(number) is int else index,
        (printable(name)[:100] if type(name) is str else "", sms if type(sms) is int and 0 < sms < 10**6 else 0),
    )


def _kernel(event: dict[str, Any], names: dict[str, tuple[str, str]], category: str) -> Kernel:
    name, args = event["name"], event.get("args") or {}
    if name not in names:
        said = printable(name)[:300]
        names[name] = said, "copy" if KERNELS[category] else kind_of(name[:3000])
    device, stream = args.get("device", event.get("pid")), printable(str(args.get("stream", event.get("tid"))))
    start, end = _times(event)
    number = _number(args.get("correlation"))
    place = device if type(device) is int else 0
    return Kernel(*names[name], start, end, place, sys.intern(stream[:30]), number, KERNELS[category])


def _times(event: dict[str, Any]) -> tuple[int, int]:
    start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if length < 0:
        raise _Misfit
    return start, start + length


def _thread(event: dict[str, Any]) -> str:
    return sys.intern(f"{event.get('pid')} {event.get('tid')}"[:60])


def _number(found: object) -> int:
    return found if type(found) is int and 0 < found < 2**63 else 0


def printable(text: str) -> str:
    """A name without what steers a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:3000])


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The times that some of the spans cover, as spans that do not touch. They come by their starts."""
    whole: list[tuple[int, int]] = []
    for start, end in spans:
        if whole and start <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(whole[-1][1], end)
        else:
            whole.append((start, end))
    return whole


def covered(kernels: Iterable[Kernel]) -> int:
    """Nanoseconds in which at least one of these ran. They come by their starts."""
    return sum(end - start for start, end in union((each.start, each.end) for each in kernels))


def exposed(kernels: Sequence[Kernel]) -> int:
    """Nanoseconds of collectives in which no kernel computed: what they cover beyond all others."""
    ran = [each for each in kernels if not each.copied]
    return covered(ran) - covered(each for each in ran if each.kind != "collective")


class Gap(NamedTuple):
    """A time in which the GPU did nothing, and how much of it passed before the next kernel's launch had returned."""

    start: int
    end: int
    launching: int | None  # None where the trace has no such launch


def gaps(kernels: Sequence[Kernel], launches: Mapping[int, Launch]) -> Iterator[Gap]:
    """Each gap between two kernels or copies of a device."""
    busy_until: int | None = None
    for kernel in kernels:
        if busy_until is not None and kernel.start > busy_until:
            launch = launches.get(kernel.correlation)
            waited = max(0, min(kernel.start, launch.end) - busy_until) if launch else None
            yield Gap(busy_until, kernel.start, waited)
        busy_until = max(busy_until or kernel.end, kernel.end)


class Delay(NamedTuple):
    """From the start of a launch to the start of its kernel."""

    nanoseconds: int
    idle: bool  # when the launch began, nothing ran and nothing was queued before its kernel


def delays(kernels: Sequence[Kernel], launches: Mapping[int, Launch]) -> Iterator[Delay]:
    """The delay of each launch whose kernel began after it; of several kernels, as of a graph, to the first."""
    seen: set[int] = set()
    busy_until = -(2**63)
    for kernel in kernels:
        launch = launches.get(kernel.correlation)
        if launch and launch.correlation not in seen and launch.start <= kernel.start:
            seen.add(launch.correlation)
            yield Delay(kernel.start - launch.start, busy_until <= launch.start)
        busy_until = max(busy_until, kernel.end)


class Done(NamedTuple):
    """An operation, and the kernels that it launched."""

    operation: Operation
    kernels: tuple[Kernel, ...]

    @property
    def nanoseconds(self) -> int:
        return sum(each.end - each.start for each in self.kernels)

    @property
    def longest(self) -> Kernel:
        return max(self.kernels, key=lambda each: each.end - each.start)


def joined(trace: Trace, device: int) -> list[Done]:
    """Operations with their kernels: a launch lies within its operation's time, on the same thread.

    Of operations that hold each other, the innermost has the kernel.
    """
    threads: dict[str, list[Operation]] = defaultdict(list)
    for operation in trace.operations:
        threads[operation.thread].append(operation)
    launched: dict[str, list[tuple[int, Kernel]]] = defaultdict(list)
    for kernel in trace.kernels:
        launch = trace.launches.get(kernel.correlation)
        if launch and launch.thread in threads and kernel.device == device:
            launched[launch.thread].append((launch.start, kernel))
    found: dict[tuple[str, int], list[Kernel]] = defaultdict(list)
    for thread, starts in launched.items():
        inside: list[int] = []  # operations that have begun, the innermost last
        begun = 0
        for at, kernel in sorted(starts, key=lambda each: each[0]):
            while begun < len(threads[thread]) and threads[thread][begun].start <= at:
                inside.append(begun)
                begun += 1
            while inside and threads[thread][inside[-1]].end < at:
                inside.pop()
            if inside:
                found[thread, inside[-1]].append(kernel)
    return [Done(threads[thread][index], tuple(kernels)) for (thread, index), kernels in found.items()]


class Row(NamedTuple):
    """All calls of an operation with the same shapes."""

    operation: str
    work: Work
    unit: str
    kernel: str  # that took longest in the median call
    calls: int
    median_seconds: float
    seconds: float

    @property
    def flop_per_second(self) -> float:
        return self.work.flops / self.median_seconds if self.median_seconds else 0.0


def by_shape(done: Iterable[Done]) -> list[Row]:
    """A row for each operation, shape and unit; those that took longest come first."""
    groups: dict[tuple[str, Work, str], list[Done]] = defaultdict(list)
    for each in done:
        work = each.operation.work
        groups[each.operation.name, work, unit_of(work.dtype, each.longest.name)].append(each)
    rows = []
    for (name, work, unit), calls in groups.items():
        calls.sort(key=lambda each: each.nanoseconds)
        times = [each.nanoseconds / 1e9 for each in calls]
        kernel = calls[len(calls) // 2].longest.name
        rows.append(Row(name, work, unit, kernel, len(calls), statistics.median(times), sum(times)))
    return sorted(rows, key=lambda row: (-row.seconds, row.operation, row.work))


def card_of(name: str) -> tuple[str, Gpu] | None:
    """The GPU that a name means: one of gpus.py's, or what CUDA calls it."""
    for title, gpu in (GPUS | THIRD_PARTY).items():
        if name == title or name in gpu.device_names:
            return title, gpu
    return None


def report(trace: Trace, device: int, gpu: str | None = None, rows: int = 10) -> dict[str, Any]:
    """What a trace says of a device, as plain data; times in seconds."""
    kernels = [each for each in trace.kernels if each.device == device]
    name, sms = trace.card(device)
    card = card_of(gpu or name)
    span = (max(each.end for each in kernels) - kernels[0].start) / 1e9
    between = list(gaps(kernels, trace.launches))
    communication = [each for each in kernels if each.kind == "collective"]
    shapes = by_shape(joined(trace, device))
    return {
        "device": device,
        "name": name,
        "sms": sms,
        "gpu": card[0] if card else None,
        "kernels": sum(not each.copied for each in kernels),
        "copies": sum(each.copied for each in kernels),
        "span_seconds": span,
        "busy_seconds": covered(kernels) / 1e9,
        "kinds": _grouped(kernels, attrgetter("kind"), "kind"),
        "streams": _streams(kernels),
        "communication_seconds": covered(communication) / 1e9,
        "exposed_communication_seconds": exposed(kernels) / 1e9,
        "gaps": {
            "count": len(between),
            "seconds": sum(each.end - each.start for each in between) / 1e9,
            "launching_seconds": sum(each.launching or 0 for each in between) / 1e9,
            "unknown_seconds": sum(each.end - each.start for each in between if each.launching is None) / 1e9,
        },
        "launches": _launches(kernels, trace.launches),
        "longest": _grouped(kernels, lambda each: (each.name, each.kind), "kernel", rows),
        "other": _grouped([each for each in kernels if each.kind == OTHER], attrgetter("name"), "kernel", rows),
        "operations": [_told(row, card) for row in shapes[:rows]],
        "with_shapes": _with_shapes(shapes, card, span),
    }


def _grouped(
    kernels: Iterable[Kernel], by: Callable[[Kernel], object], name: str, most: int | None = None
) -> list[dict[str, Any]]:
    times: dict[object, list[int]] = defaultdict(list)
    for each in kernels:
        times[by(each)].append(each.end - each.start)
    found = sorted(times.items(), key=lambda item: (-sum(item[1]), str(item[0])))[:most]
    return [
        ({name: key[0], "kind": key[1]} if isinstance(key, tuple) else {name: key})
        | {"count": len(each), "seconds": sum(each) / 1e9, "median_seconds": statistics.median(each) / 1e9}
        for key, each in found
    ]


def _streams(kernels: Iterable[Kernel]) -> list[dict[str, Any]]:
    streams: dict[str, list[Kernel]] = defaultdict(list)
    for each in kernels:
        streams[each.stream].append(each)
    found = [{"stream": name, "count": len(own), "busy_seconds": covered(own) / 1e9} for name, own in streams.items()]
    return sorted(found, key=lambda each: (-each["busy_seconds"], each["stream"]))


def _launches(kernels: Sequence[Kernel], launches: Mapping[int, Launch]) -> dict[str, Any]:
    made = [launches[number] for number in {each.correlation for each in kernels} if number in launches]
    found = list(delays(kernels, launches))
    idle = [each.nanoseconds for each in found if each.idle]
    return {
        "count": len(made),
        "median_call_seconds": _median(each.end - each.start for each in made),
        "median_delay_seconds": _median(each.nanoseconds for each in found),
        "idle_count": len(idle),
        "median_idle_delay_seconds": _median(idle),
    }


def _median(found: Iterable[int]) -> float | None:
    times = list(found)
    return statistics.median(times) / 1e9 if times else None


def _told(row: Row, card: tuple[str, Gpu] | None) -> dict[str, Any]:
    work = row.work
    peak = card[1].peak_flop_per_second.get(row.unit) if card and work.kind != "element-wise" else None
    return {
        "operation": row.operation,
        "kind": work.kind,
        "shape": list(work.shape),
        "dtype": work.dtype,
        "unit": row.unit,
        "kernel": row.kernel,
        "calls": row.calls,
        "seconds": row.seconds,
        "median_seconds": row.median_seconds,
        "flops": work.flops,
        "bytes": work.bytes,
        "flop_per_second": row.flop_per_second,
        "bytes_per_second": work.bytes / row.median_seconds if row.median_seconds else 0.0,
        "peak_share": row.flop_per_second / peak if peak else None,
    }


def _with_shapes(rows: Sequence[Row], card: tuple[str, Gpu] | None, span: float) -> dict[str, Any]:
    """Matmuls and attention whose shapes were recorded: what they did, in how long, and what share of the span that is.

    `peak_share`: the time that they would take at the card's peak, over the whole span; an MFU, if they are all.
    """
    counted = [row for row in rows if row.work.kind != "element-wise"]
    peaks = [card[1].peak_flop_per_second.get(row.unit) if card else None for row in counted]
    known = bool(counted) and all(peaks)
    at_peak = sum(row.calls * row.work.flops / peak for row, peak in zip(counted, peaks, strict=True) if peak)
    return {
        "calls": sum(row.calls for row in counted),
        "flops": sum(row.calls * row.work.flops for row in counted),
        "seconds": sum(row.seconds for row in counted),
        "peak_share": at_peak / span if known and span else None,
    }


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"


def microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f} µs"


def printed(found: Mapping[str, Any], rows: int = 10, width: int = 60) -> Iterator[str]:
    """A report as lines of a terminal."""
    span = found["span_seconds"] or 1
    card = found["gpu"] or "no card of the book's table; --gpu names one"
    yield f"device {found['device']}: {found['name'] or 'no name'} ({card})"
    yield f"  {'span':<24}{milliseconds(found['span_seconds']):>16}"
    yield f"  {'busy':<24}{milliseconds(found['busy_seconds']):>16}{found['busy_seconds'] / span:>8.1%}"
    yield f"  by kind, {found['kernels']:,} kernels and {found['copies']:,} copies"
    for row in found["kinds"]:
        share = row["seconds"] / span
        yield f"    {row['kind']:<22}{milliseconds(row['seconds']):>16}{share:>8.1%}{row['count']:>9,} ×"
    yield "  by stream"
    for row in found["streams"][:rows]:
        yield f"    {row['stream']:<22}{milliseconds(row['busy_seconds']):>16}{row['busy_seconds'] / span:>8.1%}"
    if found["communication_seconds"]:
        shown, all_ = found["exposed_communication_seconds"], found["communication_seconds"]
        yield f"  communication {milliseconds(all_)}, of which {milliseconds(shown)} while nothing computed"
    between, launches = found["gaps"], found["launches"]
    waited = between["launching_seconds"]
    yield f"  {'idle between kernels':<24}{milliseconds(between['seconds']):>16}{between['seconds'] / span:>8.1%}"
    yield f"    {'not launched yet':<22}{milliseconds(waited):>16}{waited / span:>8.1%}{between['count']:>9,} gaps"
    if between["unknown_seconds"]:
        yield f"    {'launch not in the trace':<22}{milliseconds(between['unknown_seconds']):>15}"
    yield (
        f"  {launches['count']:,} launches: a call {microseconds(launches['median_call_seconds'])}, to the kernel"
        f" {microseconds(launches['median_delay_seconds'])};"
        f" on an idle GPU {microseconds(launches['median_idle_delay_seconds'])} ({launches['idle_count']:,} ×)"
    )
    yield "  the most time"
    for row in found["longest"]:
        yield f"    {milliseconds(row['seconds']):>16}{row['count']:>8,} × {row['kind']}: {row['kernel'][:width]}"
    if found["other"]:
        yield "  of the kind other, which no rule knows"
        for row in found["other"]:
            yield f"    {milliseconds(row['seconds']):>16}{row['count']:>8,} × {row['kernel'][:width]}"
    if not found["operations"]:
        yield "  no shapes: record_shapes=True of torch.profiler.profile() tells what FLOP/s kernels reach"
        return
    yield "  operations with shapes: a call, FLOP/s, the share of the peak"
    for row in found["operations"]:
        shape = " × ".join(map(str, row["shape"]))
        share = "" if row["peak_share"] is None else f"{row['peak_share']:>7.1%}"
        rate = f"{row['flop_per_second'] / 1e12:,.1f} TFLOP/s" if row["kind"] != "element-wise" else ""
        rate = rate or f"{row['bytes_per_second'] / 1e9:,.0f} GB/s"
        told = f"{row['operation'].removeprefix('aten::')} {shape} {row['unit']}"
        yield f"    {microseconds(row['median_seconds']):>14}{rate:>16}{share:>7} {row['calls']:>6,} × {told}"
    whole = found["with_shapes"]
    share = "" if whole["peak_share"] is None else f"; at the peak they would be {whole['peak_share']:.1%} of the span"
    yield f"  matmuls and attention with shapes: {whole['flops']:.4g} FLOPs in {milliseconds(whole['seconds'])}{share}"


def main(arguments: list[str]) -> int:
    """Prints what a trace says; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="flops-bytes trace", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="of torch.profiler's export_chrome_trace(): .json or .json.gz")
    parser.add_argument(
        "--gpu", help="whose peak counts, such as 'H100 SXM'; else that of the card that the trace names"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, times in seconds")
    parser.add_argument("--rows", type=int, default=10, metavar="N", help="kernels and operations that are named; 10")
    options = parser.parse_args(arguments)
    if options.gpu and not card_of(options.gpu):
        print(f"flops-bytes trace: --gpu {options.gpu}: no such card; one of {', '.join(GPUS)}", file=sys.stderr)
        return 2
    try:
        trace = read(options.file)
    except TraceError as error:
        print(f"flops-bytes trace: {error}", file=sys.stderr)
        return 2
    devices = sorted({each.device for each in trace.kernels})[:MOST_DEVICES]
    found = [report(trace, device, options.gpu, max(1, options.rows)) for device in devices]
    if options.json:
        print(json.dumps({"misfits": trace.misfits, "devices": found}, indent=2))
        return 0
    for line in (line for each in found for line in printed(each, max(1, options.rows))):
        print(line)
    if not found:
        print("no kernel of a GPU is in it: was ProfilerActivity.CUDA among the activities?")
    if trace.misfits:
        print(f"{trace.misfits:,} events make no sense and were left out")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
