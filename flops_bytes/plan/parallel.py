"""The planner for layouts: tensor, context, pipeline and expert parallelism beside ZeRO. The command alone answers it.

Bytes and waits are those of flops_bytes.parallel.layouts. Two assumptions make seconds of them: collectives reach
REACHED of their link, and a rank computes at published rates of kernels, as flops_bytes.time.layouts has it. Where no
rates are known, or with `--matmul-share`, its matmuls reach a share of the peak while nothing waits: if not given, the
middle of what published steps without such parallelism reached.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from flops_bytes.model.shapes import quoted
from flops_bytes.model.stack import Attention
from flops_bytes.parallel.layouts import (
    SCHEDULES,
    Layout,
    Model,
    Sent,
    bubble,
    distinct_ranks,
    fullest,
    in_flight,
    left_out,
    model_flops,
    once_a_step,
    possible_layouts,
    powers_of_two,
    rank_bytes,
    rank_layers,
    rank_parameters,
    rates,
    refuse,
    sent,
    step_seconds,
    totals,
)
from flops_bytes.plan.model import Model as ReadModel
from flops_bytes.plan.model import Reader, read_shape, refuse_long
from flops_bytes.plan.options import (
    OPTIONS,
    Option,
    capacity_source,
    read,
    read_gpu,
    read_options,
    row_name,
)
from flops_bytes.plan.published_runs import steps_like
from flops_bytes.plan.training import card_format, cost, why_of
from flops_bytes.time.gpus import LINKS, REACHED
from flops_bytes.time.layouts import FLOAT8, covered, longer, rank_seconds, taken

PARALLEL = {
    "tp": Option("count", 1, "tensor parallelism: GPUs that share each matrix; between matrices they share the tokens"),
    "cp": Option("count", 1, "context parallelism: GPUs that share each sequence"),
    "pp": Option("count", 1, "pipeline parallelism: GPUs that share the layers"),
    "ep": Option("count", 1, "expert parallelism: of the GPUs that share no matrix, so many hold different experts"),
    "replicas": Option("count", 1, "hybrid sharding: copies of what --zero shards, each over a part of the GPUs"),
    "cp_by": Option(
        ("all-gather", "ring"), "all-gather", "keys and values of --cp; ring: they go around while attention computes"
    ),
    "schedule": Option(SCHEDULES, "1f1b", "of a pipeline; interleaved and zero-bubble: with --virtual-stages of a GPU"),
    "stages": Option(
        ("with-ends", "even"), "with-ends", "layers of a stage; with-ends: embedding and head are one each"
    ),
    "regather": Option(
        ("no", "yes"), "no", "what --tp gathers is gathered again backward, as in Megatron-LM, not kept"
    ),
    "boundaries": Option(
        ("kept", "freed"), "kept", "what stages hand over: kept for a step, as by PyTorch; freed, as by Megatron-LM"
    ),
    "gate": Option(
        ("composed", "fused"),
        "composed",
        "a gated MLP's activation and product; fused: as Megatron-LM's, it keeps less",
    ),
    "again": Option(
        ("needed", "all"), "needed", "what --checkpointing full repeats: up to the last need; all, as by Megatron-LM"
    ),
    "summed_in": Option(("recipe", "fp32"), "recipe", "gradients of a step's micro-batches are summed in that type"),
    "micro_batches": Option("count", None, "of a step, one after the other; if not given, as many as --pp"),
    "virtual_stages": Option("count", None, "of a GPU; if not given, 2 with --schedule interleaved, else 1"),
    "overlap_tp": Option(
        ("no", "yes"), "no", "what --tp sends is cut into pieces and sent while matmuls compute: asynchronous TP"
    ),
    "linear": Option(("16-bit", "float8"), "16-bit", "what linear layers multiply in; what is kept stays in 16 bits"),
    "matmul_share": Option(
        "share", None, "of the peak, by matmuls while nothing waits; if not given, published rates of kernels"
    ),
    "attention_share": Option("share", None, "the same of attention; as --matmul-share if not given"),
    "layouts": Option("count", None, "instead of degrees: so many that fit, the fastest layout of each first"),
}
MOST_TRIED = 100_000  # a few seconds' worth
DEGREES = {"tp": "tensor", "cp": "context", "pp": "pipeline", "ep": "expert"}
WORDS = {  # which flag says what a sentence of parallel.refuse() is about
    "data": "gpus", "tensor": "tp", "context": "cp", "pipeline": "pp", "expert": "ep", "virtual": "virtual-stages",
    "micro_batches": "micro-batches", "replicas": "replicas", "schedule": "schedule", "tokens": "context",
    "zero": "zero",
}  # fmt: skip
TAKEN: tuple[str, ...] = ("task", "model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpus", "context")
TAKEN += ("allowance", "price")
TAKEN += ("link", "node_gpus", "network_cards", "zero", "micro_batch", "accumulation", "global_batch", "recipe")
TAKEN += ("checkpointing", "tokens", "days", "pairs")
LIKE = (
    "ends_are_layers",
    "fused_gate",
    "recomputes_whole_layers",
    "ring",
    "replicas",
)  # of a layout that was asked for, of which a list tries no others
OWN = ("matmuls", "attention", "element-wise", "update")  # lines of what a rank computes
SENT_BY = {  # what sends, and with which collectives
    "tensor": "all-gather, reduce-scatter",
    "context": "send to the next",
    "pipeline": "send to the next",
    "expert": "all-to-all",
    "data": "reduce-scatter, all-gather",
    "replicas": "all-reduce",
}


def is_asked(asked: Mapping[str, Any]) -> bool:
    """Whether a question is about a layout."""
    return any(asked.get(name) is not None for name in PARALLEL)


class Question(NamedTuple):
    """What was asked, read."""

    a: dict[str, Any]  # the planner's own options
    shape: Model
    layout: Layout
    recipe: str
    memory_bytes: int
    flop_per_second: float  # that matmuls reach
    peak: float
    within: float  # bytes a second of a GPU to its node
    between: float  # and to other nodes
    card: str  # whose published rates are asked, or nothing


READ_AS = {"count": "accumulation", "share": "mfu"}  # options of the planner's of the same kind


def read_own(name: str, value: Any) -> Any:
    """An option of PARALLEL as it is planned with. Raises ValueError with the mend."""
    kind, flag = PARALLEL[name].kind, f"--{name.replace('_', '-')}"
    if isinstance(kind, tuple):
        if value not in kind:
            raise ValueError(f"{flag}: {quoted(value)} is not known; choose {', '.join(kind)}")
        return value
    try:
        return read(READ_AS[kind], value)
    except ValueError as error:
        raise ValueError(str(error).replace(f"--{READ_AS[kind]}", flag, 1)) from None


def read_question(asked: Mapping[str, Any], split: Model | None = None, reader: Reader = read_shape) -> Question:
    """Raises ValueError with a sentence that names the option and the mend. `split`: a model that has no name there."""
    told = {name: value for name, value in asked.items() if value is not None}
    ours = {name: read_own(name, told.pop(name)) for name in PARALLEL if name in told}
    ours = {name: option.default for name, option in PARALLEL.items()} | ours
    for name in told:
        trains = told.get("task", "train") == "train"
        other = name in OPTIONS and name not in TAKEN and told[name] != OPTIONS[name].default
        if other or not trains:
            flag = name.replace("_", "-") if trains else "task"
            why = "is not derived for tensor, context, pipeline or expert parallelism; leave it out"
            raise ValueError(f"--{flag}: it {why}")
    batch = told.pop("global_batch", None)
    if batch is not None and (ours["micro_batches"] or "accumulation" in told):
        raise ValueError("--global-batch: --micro-batches or --accumulation tells the batch; give one")
    a = read_options(told)
    a["global_batch"] = None if batch is None else read("global_batch", batch)
    shape, gpu = split or shape_of(reader(told, a), a), read_gpu(a)
    recipe, peaks = a["recipe"].replace("-", "_"), gpu.peak_flop_per_second
    dtype = card_format(peaks, recipe, False)
    if dtype not in peaks:
        raise ValueError(f"--recipe: {a['gpu']} multiplies no {dtype}; choose another --recipe or --gpu")
    told_share = ours["matmul_share"] or ours["attention_share"]
    card = row_name(a["gpu"]) if a["gpu"] and not told_share and not told.get("gpu_peak") else ""
    card = card if card and covered(shape, card, recipe) else ""
    a["matmul_share"] = None if card else ours["matmul_share"] or assumed_share(a)
    a["attention_share"] = None if card else ours["attention_share"] or a["matmul_share"]
    a |= {"float8": ours["linear"] == "float8", "hides": ours["overlap_tp"] == "yes"}
    a |= {"layouts": ours["layouts"], "regathers": ours["regather"] == "yes", "frees": ours["boundaries"] == "freed"}
    a["gradient_width"] = 4 if ours["summed_in"] == "fp32" else None
    a["given"] = told.keys() | {name for name in PARALLEL if asked.get(name) is not None}
    layout = read_layout(a, ours)
    within, between = levels(a)
    at = (a["matmul_share"] or assumed_share(a)) * peaks[dtype] * (FLOAT8 if a["float8"] else 1)
    return Question(a, shape, layout, recipe, int(gpu.memory_bytes), at, peaks[dtype], within, between, card)


def shape_of(model: ReadModel, a: Mapping[str, Any]) -> Model:
    """What is split: a decoder whose layers are all alike, also in which tokens they see; or a stack, of a kind whose
    steps are derived. Raises ValueError."""
    refuse_long(a, model.stack)
    (layer, _), *_ = model.stack.layers
    shape, reach = model.decoder, layer.mixer.window if isinstance(layer.mixer, Attention) else 0
    if shape is not None and not 0 < reach < a["context"]:
        return shape
    if a["checkpointing"] not in ("none", "full"):
        told = f"of layouts of a {model.name}, all layers are computed again or none; give full, or leave it out"
        raise ValueError(f"--checkpointing: {told}")
    if why := why_of(a, model):
        raise ValueError(f"--model: no layouts are planned, because {why}; choose another")
    from flops_bytes.parallel.stacks import Split

    return Split(model.stack, model.name)


def assumed_share(a: Mapping[str, Any]) -> float:
    """The middle of what published steps on such cards reached that computed nothing again."""
    _, steps = steps_like(row_name(a["gpu"]) if a["gpu"] else "", again=False)
    return (steps.low + steps.high) / 2


def read_layout(a: Mapping[str, Any], ours: Mapping[str, Any]) -> Layout:
    """The layout that was asked for; all GPUs that share neither matrices, sequences nor layers split the batch."""
    ranks = ours["tp"] * ours["cp"] * ours["pp"]
    data, left = divmod(a["gpus"], ranks)
    if left or not data:
        shared = f"what --tp, --cp and --pp make together; give a multiple of {ranks}"
        raise ValueError(f"--gpus: {a['gpus']} are no multiple of {shared}")
    virtual: int = ours["virtual_stages"] or (2 if ours["schedule"] == "interleaved" else 1)
    micro_batches = ours["micro_batches"] or (a["accumulation"] if "accumulation" in a["given"] else ours["pp"])
    if a["global_batch"] and not a["layouts"]:
        once = data * a["micro_batch"] * a["context"]
        micro_batches, left = divmod(a["global_batch"], once)
        if left or not micro_batches:
            raise ValueError(
                f"--global-batch: {a['global_batch']} tokens are no micro-batches of all; give a multiple of {once}"
            )
    degrees = {name: ours[flag] for flag, name in DEGREES.items()}
    return Layout(
        data,
        **degrees,
        zero=int(a["zero"]),
        schedule=ours["schedule"],
        micro_batches=micro_batches,
        virtual=virtual,
        ends_are_layers=ours["stages"] != "even",
        fused_gate=ours["gate"] == "fused",
        recomputes_whole_layers=ours["again"] == "all",
        ring=ours["cp_by"] == "ring",
        replicas=ours["replicas"],
    )


def levels(a: Mapping[str, Any]) -> tuple[float, float]:
    """Bytes a second that a GPU sends in a collective: inside its node, and by its network card."""
    card, told = row_name(a["gpu"]) if a["gpu"] else "", a["link"]
    own = next((link for link, row in LINKS.items() if card in row.cards), None)
    between = "400 Gb/s"
    if told and told.endswith("Gb/s"):
        between = told
    else:
        own = told or own
    if not own:
        raise ValueError(f"--link: what joins such GPUs in a node is not known; choose {', '.join(LINKS)}")
    cards = (a["network_cards"] or a["node_gpus"]) / a["node_gpus"]
    return REACHED * LINKS[own].bytes_per_second, REACHED * cards * LINKS[between].bytes_per_second


def check(question: Question, layout: Layout) -> None:
    """Raises ValueError in the command's words for what cannot be."""
    try:
        refuse(question.shape, layout, question.a["context"])
    except ValueError as error:
        word, _, why = str(error).partition(": ")
        raise ValueError(f"--{WORDS[word]}: {why}") from None


class Answer(NamedTuple):
    """What one layout holds and takes."""

    held: list[dict[str, int]]  # of each pipeline rank; of a list's layouts, of each that differs
    seconds: dict[str, float]  # of a step, by line

    @property
    def needs_bytes(self) -> int:
        return max(sum(lines.values()) for lines in self.held)

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def binds(self) -> str:
        """What of a step takes longest but what the rank itself computes."""
        waits = {line: seconds for line, seconds in self.seconds.items() if line not in OWN}
        line = max(waits, key=lambda each: waits[each])
        return line if waits[line] else "matmuls"


def holds(question: Question, layout: Layout, checkpointing: str, ranks: Iterable[int]) -> Iterator[dict[str, int]]:
    """Bytes of pipeline ranks of a layout that can be, by line."""
    a = question.a
    for rank in ranks:
        lines = rank_bytes(
            question.shape,
            layout,
            rank,
            a["context"],
            a["micro_batch"],
            question.recipe,
            checkpointing,
            a["regathers"],
            a["gradient_width"],
            a["frees"],
        )
        yield lines | {"allowance": a["allowance"]}


def answer(question: Question, layout: Layout, checkpointing: str) -> Answer:
    """Of a layout that can be."""
    held = [*holds(question, layout, checkpointing, range(layout.pipeline))]
    return Answer(held, step(question, layout, checkpointing))


def step(question: Question, layout: Layout, checkpointing: str, at: int = 1) -> dict[str, float]:
    """Seconds of a step by line; of published rates, `at` 0 to 2 says how much longer steps take: longer() has it."""
    a, shape, card = question.a, question.shape, question.card
    size, share = (a["context"], a["micro_batch"]), a["attention_share"]

    times = longer(card)[at] if card else 1.0

    def computed(rank: int) -> dict[str, float]:
        by_rates = rank_seconds(shape, layout, rank, *size, card, question.recipe, checkpointing, a["float8"])
        return taken(by_rates, times)

    return step_seconds(
        shape,
        once_a_step(layout),
        a["context"],
        question.flop_per_second,
        rates(layout, question.within, question.between, a["node_gpus"]),
        a["micro_batch"],
        checkpointing,
        regathers=a["regathers"],
        attention_flop_per_second=share and share * question.peak,
        computed=computed if card else None,
        hides_tensor=a["hides"],
    )


def speed(question: Question, layout: Layout, found: Answer) -> dict[str, Any]:
    """Seconds, tokens a second and the MFU of a step, attention's pairs counted as was asked."""
    a = question.a
    tokens = layout.data * layout.micro_batches * a["micro_batch"] * a["context"]
    model = model_flops(question.shape, a["context"], a["pairs"] == "causal") / a["context"] * tokens
    return {
        "step_tokens": tokens,
        "step_seconds": found.step_seconds,
        "tokens_per_second": tokens / found.step_seconds,
        "mfu": model / (layout.gpus * question.peak * found.step_seconds),
    }


def flags(layout: Layout, checkpointing: str) -> dict[str, Any]:
    """A layout by the names of its options."""
    return {
        "data": layout.data,
        **{flag: getattr(layout, name) for flag, name in DEGREES.items()},
        "zero": layout.zero,
        "schedule": layout.schedule,
        "virtual_stages": layout.virtual,
        "micro_batches": layout.micro_batches,
        "checkpointing": checkpointing,
    }


def candidates(question: Question) -> Iterator[tuple[Layout, str]]:
    """All layouts of the batch in powers of 2, of what is not told: ZeRO 1 and 3, all layers computed again or none.

    Interleaved stages are as many a rank as layers allow, in powers of 2 too, or as told.
    """
    a, shape, given, asked = question.a, question.shape, question.a["given"], question.layout
    sequences, left = divmod(a["global_batch"] or 0, a["context"] * a["micro_batch"])
    if left or not sequences:
        size = a["context"] * a["micro_batch"]
        raise ValueError(f"--global-batch: --layouts shares out the tokens of a step; give a multiple of {size}")
    kinds = (a["checkpointing"],) if "checkpointing" in given else ("none", "full")
    schedules = (asked.schedule,) if "schedule" in given else ("1f1b", "interleaved")
    said = {name: getattr(asked, name) for flag, name in (DEGREES | {"zero": "zero"}).items() if flag in given}
    experts = [said["expert"]] if "expert" in said else powers_of_two(shape.experts)
    like, tried = {name: getattr(asked, name) for name in LIKE}, 0
    for plain in possible_layouts(shape, a["gpus"], a["context"], sequences, a["node_gpus"], said):
        for schedule, virtual in ((name, each) for name in schedules for each in virtuals(question, name, plain)):
            if plain.pipeline == 1 and "schedule" not in given and schedule != "1f1b":
                continue
            for expert in experts:
                tried += 1
                bound(tried)
                layout = plain._replace(expert=expert, schedule=schedule, virtual=virtual, **like)
                try:
                    refuse(shape, layout, a["context"])
                except ValueError:
                    continue
                yield from ((layout, kind) for kind in kinds)


def bound(tried: int) -> None:
    """Raises ValueError for a list that would take more than a few seconds."""
    if tried > MOST_TRIED:
        raise ValueError(
            f"--layouts: more than {MOST_TRIED:,} layouts and stages to try; give --tp, --cp, --pp, --ep or --schedule"
        )


def virtuals(question: Question, schedule: str, layout: Layout) -> list[int]:
    """Stages a rank, of a schedule."""
    told = question.layout.virtual if "virtual_stages" in question.a["given"] else 0
    if schedule in ("gpipe", "1f1b"):
        return [1]
    most = (question.shape.layers + 2 * question.layout.ends_are_layers) // layout.pipeline
    return [told] if told else [each for each in powers_of_two(most) if each > 1 or schedule == "zero-bubble"]


def listed(question: Question) -> list[tuple[Layout, str, Answer]]:
    """Of each combination of degrees the fastest candidate that fits, the fastest first; of two as fast, the one that
    holds less.
    """
    found: dict[tuple[int, ...], tuple[Layout, str, Answer]] = {}
    tried = 0
    for layout, kind in candidates(question):
        ranks = distinct_ranks(question.shape, layout.pipeline, layout.virtual, layout.ends_are_layers)
        each_holds = holds(question, layout, kind, ranks)
        held = [*takewhile(lambda lines: sum(lines.values()) <= question.memory_bytes, each_holds)]
        tried += len(held) + 1
        bound(tried)
        if len(held) < len(ranks):
            continue
        tried += len(ranks)
        each = layout, kind, Answer(held, step(question, layout, kind))
        degrees = tuple(getattr(layout, name) for name in DEGREES.values())
        found[degrees] = min(found.get(degrees, each), each, key=by_speed)
    return sorted(found.values(), key=by_speed)


def by_speed(each: tuple[Layout, str, Answer]) -> tuple[float, int]:
    return each[2].step_seconds, each[2].needs_bytes


def plan(split: Model | None = None, reader: Reader = read_shape, /, **asked: Any) -> dict[str, Any]:
    """What a layout holds, sends and takes, or which layouts fit; `schema.json` says what is in the answer.

    The model is read by the `reader`, or given, as flops_bytes.parallel.stacks has it. Raises ValueError with a
    sentence that names the option and the mend.
    """
    question = read_question(asked, split, reader)
    a, layout, kind = question.a, question.layout, question.a["checkpointing"]
    rows: list[tuple[Layout, str, Answer]] = []
    if a["layouts"]:
        rows = listed(question)
        if not rows:
            raise ValueError("--layouts: none fits; give more --gpus, or a smaller --micro-batch or --context")
        layout, kind, _ = rows[0]
    else:
        check(question, layout)
    found = answer(question, layout, kind)
    held, rank = found.held, fullest(found.held)
    total, active = totals(question.shape)
    told = speed(question, layout, found)
    least, most = (sum(step(question, layout, kind, at).values()) for at in (0, 2))
    needs = found.needs_bytes
    return {
        "parameters": {"total": total, "active": active},
        "layout": flags(layout, kind),
        "fullest_rank": rank,
        "memory_bytes": held[rank] | {"total": needs},
        "ranks": [
            {
                "layers": sum(rank_layers(question.shape.layers, layout, each)),
                "parameters": sum(rank_parameters(question.shape, layout, each).values()),
                "in_flight": in_flight(layout, each),
                "needs_bytes": sum(lines.values()),
            }
            for each, lines in enumerate(held)
        ],
        "gpu_bytes": question.memory_bytes,
        "gpu_bytes_are": capacity_source(a),
        "fits": needs <= question.memory_bytes,
        "headroom_bytes": question.memory_bytes - needs,
        "sent": list(sends(question, layout, kind, rank)),
        "bubble_share": bubble(layout),
        "seconds": found.seconds,
        "binds": found.binds,
        "matmul_share": a["matmul_share"],
        "attention_share": a["attention_share"],
        **told,
        "least_step_seconds": least,
        "most_step_seconds": most,
        "layouts": [
            flags(each, how)
            | {
                "needs_bytes": one.needs_bytes,
                "step_seconds": one.step_seconds,
                "mfu": speed(question, each, one)["mfu"],
                "binds": one.binds,
                "binds_share": one.seconds[one.binds] / one.step_seconds,
            }
            for each, how, one in rows[: a["layouts"]]
        ],
        "layouts_that_fit": len(rows) if a["layouts"] else None,
        "left_out": left_out(question.shape),
        "currency": a["currency"],
    } | cost(a, a["tokens"], told["tokens_per_second"])


def sends(question: Question, layout: Layout, checkpointing: str, rank: int) -> Iterator[dict[str, Any]]:
    """What a rank sends in a step, by what sends it: the collective, the level that its group spans, bytes, seconds."""
    a = question.a
    size = a["context"], a["micro_batch"]
    each = sent(question.shape, once_a_step(layout), rank, *size, checkpointing, a["regathers"])
    at: Sent = rates(layout, question.within, question.between, a["node_gpus"])
    inner = {"tensor": 1, "context": layout.tensor, "expert": layout.tensor, "data": layout.tensor}
    inner["replicas"] = layout.tensor * layout.shards
    inner["pipeline"] = layout.tensor * layout.context * layout.data
    ranks = {name: getattr(layout, name) for name in ("tensor", "context", "expert", "pipeline")}
    ranks |= {"data": layout.shards, "replicas": layout.replicas}
    for name, collective in SENT_BY.items():
        if size := getattr(each, name):
            yield {
                "by": name,
                "ranks": ranks[name],
                "collective": "all-reduce" if name == "data" and layout.zero == 0 else collective,
                "level": "node" if inner[name] * ranks[name] <= a["node_gpus"] else "network",
                "bytes": size,
                "bytes_per_second": getattr(at, name),
                "seconds": size / getattr(at, name),
            }
