"""The planner for layouts: tensor, context, pipeline and expert parallelism beside ZeRO. The command alone answers it.

Bytes are those of flops_bytes.parallel.ranks, waits those of flops_bytes.parallel.layouts. Two assumptions make seconds
of these: collectives reach LINK_EFFICIENCY of their link, and a rank computes at published rates of kernels, as
flops_bytes.time.layouts has it. Where no rates are known, or with `--matmul-share`, its matmuls reach a share of the
peak while nothing waits: if not given, the middle of what published steps without such parallelism reached.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from flops_bytes.memory.chips import workspace_bytes
from flops_bytes.memory.outside import Groups
from flops_bytes.model.shapes import quoted
from flops_bytes.model.stack import Attention, Stack
from flops_bytes.parallel.layouts import (
    SCHEDULES,
    TRAINERS,
    Layout,
    Model,
    Sent,
    bubble,
    distinct_ranks,
    in_flight,
    left_out,
    model_flops,
    once_a_step,
    rank_flops,
    rank_layers,
    rank_parameters,
    rates,
    refuse,
    sent,
    step_seconds,
    totals,
)
from flops_bytes.parallel.rank_steps import lines_at_peak
from flops_bytes.parallel.ranks import RankStep, adapters_of, config_of, held_bytes, steps_of_rank, whole_stack
from flops_bytes.parallel.trainers import is_written
from flops_bytes.plan.allowance import outside_bytes
from flops_bytes.plan.meters import OnCard, on_card, read_meters
from flops_bytes.plan.model import Model as ReadModel
from flops_bytes.plan.model import Reader, read_shape, refuse_long_context
from flops_bytes.plan.options import (
    OPTIONS,
    Option,
    capacity_source,
    links_of,
    read_gpu,
    read_option,
    read_options,
    read_other,
)
from flops_bytes.plan.published_runs import steps_like
from flops_bytes.plan.training import adapters_of_options, card_format, cost, why_not_derived
from flops_bytes.time.gpus import LINK_EFFICIENCY, LINKS
from flops_bytes.time.layouts import FLOAT8_SPEEDUP, LAUNCHED_LAYER_SECONDS, has_rates, rank_seconds, slowdowns, slowed

PARALLEL = {
    "tp": Option("count", 1, "tensor parallelism: GPUs that share each matrix"),
    "cp": Option("count", 1, "context parallelism: GPUs that share each sequence"),
    "pp": Option("count", 1, "pipeline parallelism: GPUs that share the layers"),
    "ep": Option("count", 1, "expert parallelism: so many GPUs hold different experts"),
    "etp": Option("count", None, "GPUs that share each expert's matrices: 1, or if not given as many as --tp"),
    "replicas": Option("count", 1, "hybrid sharding: copies of what --zero shards, each over a part of the GPUs"),
    "cp_by": Option(
        ("all-gather", "ring"), "all-gather", "keys and values of --cp; ring: they go around while attention computes"
    ),
    "schedule": Option(SCHEDULES, "1f1b", "of a pipeline; interleaved and zero-bubble: with --virtual-stages of a GPU"),
    "sequence": Option(("yes", "no"), "yes", "between matrices --tp shares the tokens: sequence parallelism"),
    "trainer": Option(
        tuple(TRAINERS), "torchtitan", "whose modules and habits: what a rank keeps, gathers again, and hands over"
    ),
    "stages": Option(
        "text", None, "layers of a stage, if not by the trainer's habit: with-ends, even, by-weight, or such as 16,12"
    ),
    "rank": Option(
        "rank", None, "of the pipeline, from 0, whose bytes are shown; if not given, the one that holds most"
    ),
    "micro_batches": Option("count", None, "of a step, one after the other; if not given, as many as --pp"),
    "virtual_stages": Option("count", None, "of a GPU; if not given, 2 with --schedule interleaved, else 1"),
    "overlap_tp": Option(
        ("no", "yes"), "no", "what --tp sends is cut into pieces and sent while matmuls compute: asynchronous TP"
    ),
    "linear": Option(("16-bit", "float8"), "16-bit", "what linear layers multiply in; what is kept stays in 16 bits"),
    "bus_bandwidth": Option(
        "bandwidth", None, "of an all-reduce over all nodes, as nccl-tests prints it (busbw); if not given, as --link's"
    ),
    "tp_bandwidth": Option(
        "bandwidth", None, "the same of an all-gather over the nodes of --tp; if not given, as --bus-bandwidth"
    ),
    "matmul_share": Option(
        "share", None, "of the peak, by matmuls while nothing waits; if not given, published rates of kernels"
    ),
    "attention_share": Option("share", None, "the same of attention; as --matmul-share if not given"),
}
DEGREES = {"tp": "tensor", "cp": "context", "pp": "pipeline", "ep": "expert"}
FLAG_OF_WORD = {  # which flag says what a sentence of parallel.refuse() is about
    "data": "gpus", "tensor": "tp", "context": "cp", "pipeline": "pp", "expert": "ep", "virtual": "virtual-stages",
    "micro_batches": "micro-batches", "replicas": "replicas", "schedule": "schedule", "tokens": "context",
    "zero": "zero", "stages": "stages", "whole_experts": "etp",
}  # fmt: skip
ACCEPTED: tuple[str, ...] = ("task", "model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpus", "context")
ACCEPTED += ("allowance", "price")
ACCEPTED += ("link", "node_gpus", "network_cards", "zero", "micro_batch", "accumulation", "global_batch", "recipe")
ACCEPTED += ("checkpointing", "loss", "chunks", "alloc_conf", "tokens", "days", "pairs")
ACCEPTED += ("trained", "lora", "lora_on", "lora_inputs", "lora_dropout", "base")
COMPUTED = ("matmuls", "attention", "element-wise", "update")  # lines of what a rank computes
SENT_BY = {  # what sends, and with which collectives
    "tensor": "all-gather, reduce-scatter",
    "context": "all-gather, reduce-scatter",
    "pipeline": "send to the next",
    "expert": "all-to-all",
    "data": "reduce-scatter, all-gather",
    "replicas": "all-reduce",
}


def is_asked(asked: Mapping[str, Any]) -> bool:
    """Whether a question is about a layout."""
    return any(asked.get(name) is not None for name in PARALLEL)


class LayoutQuestion(NamedTuple):
    """What was asked, read."""

    a: dict[str, Any]  # the planner's own options
    shape: Model
    layout: Layout
    recipe: str
    memory_bytes: int
    flop_per_second: float  # that matmuls reach
    peak_flop_per_second: float
    node_bytes_per_second: float  # of a GPU, to those of its node
    network_bytes_per_second: float  # and to those of other nodes
    rates_card: str  # whose published rates are asked, or nothing


# Of a trainer; of torchtitan's where tensor ranks share the logits. A rank that has all of them can have any loss.
LOSSES = {
    "torchtitan": ("plain", "compiled", "as-logits", "chunked"),
    "megatron-lm": ("plain", "compiled"),
    "nanotron": ("plain",),
}
SHARES = ("with-ends", "even", "by-weight")


def read_own(name: str, value: Any) -> Any:
    """An option of PARALLEL as it is planned with. Raises ValueError with the mend."""
    kind = PARALLEL[name].kind
    if kind == "text":
        return read_stages(str(value))
    if kind == "rank":
        if not str(value).isdigit():
            raise ValueError(f"--rank: {quoted(value)} is no rank; give a whole number from 0")
        return int(value)
    return read_other(PARALLEL, name, value)


def read_stages(text: str) -> str | tuple[int, ...]:
    """A way to share layers out, or how many each stage has. Raises ValueError with the mend."""
    if text in SHARES:
        return text
    numbers = text.split(",")
    if all(number.strip().isdigit() for number in numbers):
        return tuple(int(number) for number in numbers)
    raise ValueError(f"--stages: {quoted(text)} is not known; choose {', '.join(SHARES)}, or give layers such as 16,12")


def read_question(asked: Mapping[str, Any], split: Model | None = None, reader: Reader = read_shape) -> LayoutQuestion:
    """Raises ValueError with a sentence that names the option and the mend. `split`: a model that has no name there."""
    told = {name: value for name, value in asked.items() if value is not None}
    layout_options = {name: read_own(name, told.pop(name)) for name in PARALLEL if name in told}
    layout_options = {name: option.default for name, option in PARALLEL.items()} | layout_options
    for name in told:
        trains = told.get("task", "train") == "train"
        is_other = name in OPTIONS and name not in ACCEPTED and told[name] != OPTIONS[name].default
        if is_other or not trains:
            flag = name.replace("_", "-") if trains else "task"
            why = "is not derived for tensor, context, pipeline or expert parallelism; leave it out"
            raise ValueError(f"--{flag}: it {why}")
    batch = told.pop("global_batch", None)
    if batch is not None and (layout_options["micro_batches"] or "accumulation" in told):
        raise ValueError("--global-batch: --micro-batches or --accumulation tells the batch; give one")
    a = read_options(told)
    a["global_batch"] = None if batch is None else read_option("global_batch", batch)
    shape, gpu = split or model_to_split(reader(told, a), a), read_gpu(a)
    recipe, peaks = a["recipe"].replace("-", "_"), gpu.peak_flop_per_second
    dtype = card_format(peaks, recipe, bool(a["lora"]))
    if dtype not in peaks:
        raise ValueError(f"--recipe: {a['gpu']} multiplies no {dtype}; choose another --recipe or --gpu")
    excludes_rates = bool(layout_options["matmul_share"] or layout_options["attention_share"] or a["lora"])
    rates_card = a["gpu"] if a["gpu"] and not excludes_rates else ""
    rates_card = rates_card if rates_card and has_rates(shape, rates_card, recipe) else ""
    a["matmul_share"] = None if rates_card else layout_options["matmul_share"] or assumed_share(a)
    a["attention_share"] = None if rates_card else layout_options["attention_share"] or a["matmul_share"]
    a |= {"float8": layout_options["linear"] == "float8", "hides": layout_options["overlap_tp"] == "yes"}
    a |= {name: layout_options[name] for name in ("rank", "bus_bandwidth", "tp_bandwidth")}
    refuse_unwritten(a, whole_stack(shape), layout_options["trainer"], layout_options["tp"] > 1)
    a["given"] = told.keys() | {name for name in PARALLEL if asked.get(name) is not None}
    layout = read_layout(a, layout_options)
    node_bytes_per_second, network_bytes_per_second = link_bandwidths(a)
    flop_per_second = (a["matmul_share"] or assumed_share(a)) * peaks[dtype] * (FLOAT8_SPEEDUP if a["float8"] else 1)
    return LayoutQuestion(
        a,
        shape,
        layout,
        recipe,
        int(gpu.memory_bytes),
        flop_per_second,
        peaks[dtype],
        node_bytes_per_second,
        network_bytes_per_second,
        rates_card,
    )


def refuse_unwritten(a: Mapping[str, Any], stack: Stack, trainer: str, shares_logits: bool) -> None:
    """Raises ValueError for what the trainer's modules are not derived with, where ranks may share the logits."""
    loss, with_tensor = "chunked" if a["chunks"] > 1 else a["loss"], " and --tp" * shares_logits
    if not is_written(trainer, stack):
        raise ValueError(f"--trainer: {trainer}'s modules are not derived for such layers; choose torchtitan")
    if trainer != "torchtitan" and a["recipe"].startswith("autocast"):
        raise ValueError(f"--recipe: {a['recipe']} is not derived with {trainer}; choose bf16-master")
    if trainer == "nanotron" and a["lora"]:
        raise ValueError("--lora: nanotron trains no adapters; choose another --trainer")
    if trainer == "megatron-lm" and (a["base"] != "as-recipe" or a["lora_inputs"] == "float32"):
        name = "base" if a["base"] != "as-recipe" else "lora-inputs"
        raise ValueError(f"--{name}: Megatron's adapters stand beside 16 bits and multiply so; leave it out")
    known = LOSSES[trainer] if trainer != "torchtitan" or shares_logits else OPTIONS["loss"].kind
    if loss not in known:
        why = "multiplies with a whole head" if loss == "fused" and shares_logits else "is none of that trainer's"
        raise ValueError(f"--loss: {loss}, with {trainer}{with_tensor}, {why}; choose {', '.join(known)}")


def model_to_split(model: ReadModel, a: Mapping[str, Any]) -> Model:
    """What is split: a decoder whose layers are all alike, also in which tokens they see; or a stack, of a kind whose
    steps are derived. Raises ValueError."""
    refuse_long_context(a, model.stack)
    (layer, _), *_ = model.stack.layers
    shape, window = model.decoder, layer.mixer.window if isinstance(layer.mixer, Attention) else 0
    if shape is not None and not 0 < window < a["context"]:
        return shape
    if a["checkpointing"] not in ("none", "full"):
        why = f"of layouts of a {model.name}, all layers are computed again or none"
        raise ValueError(f"--checkpointing: {why}; give full, or leave it out")
    if why := why_not_derived(a, model):
        raise ValueError(f"--model: no layouts are planned, because {why}; choose another")
    from flops_bytes.parallel.stacks import Split

    return Split(model.stack, model.name)


def assumed_share(a: Mapping[str, Any]) -> float:
    """The middle of what published steps on such cards reached that computed nothing again."""
    _, steps = steps_like(a["gpu"] or "", recomputes=False)
    return (steps.low + steps.high) / 2


def read_layout(a: Mapping[str, Any], layout_options: Mapping[str, Any]) -> Layout:
    """The layout that was asked for; all GPUs that share neither matrices, sequences nor layers split the batch."""
    ranks = layout_options["tp"] * layout_options["cp"] * layout_options["pp"]
    data, rest = divmod(a["gpus"], ranks)
    if rest or not data:
        shared = f"what --tp, --cp and --pp make together; give a multiple of {ranks}"
        raise ValueError(f"--gpus: {a['gpus']} are no multiple of {shared}")
    virtual_stages: int = layout_options["virtual_stages"] or (2 if layout_options["schedule"] == "interleaved" else 1)
    micro_batches = layout_options["micro_batches"] or (
        a["accumulation"] if "accumulation" in a["given"] else layout_options["pp"]
    )
    if a["global_batch"]:
        tokens_at_once = data * a["micro_batch"] * a["context"]
        micro_batches, rest = divmod(a["global_batch"], tokens_at_once)
        if rest or not micro_batches:
            mend = f"give a multiple of {tokens_at_once}"
            raise ValueError(f"--global-batch: {a['global_batch']} tokens are no micro-batches of all; {mend}")
    degrees = {name: layout_options[flag] for flag, name in DEGREES.items()}
    if layout_options["etp"] not in (None, 1, layout_options["tp"]):
        mend = f"give 1, or as many as --tp, {layout_options['tp']}"
        raise ValueError(f"--etp: {layout_options['etp']} ranks that share an expert are not derived; {mend}")
    if layout_options["trainer"] == "nanotron" and layout_options["sequence"] == "no" and layout_options["tp"] > 1:
        raise ValueError("--sequence: nanotron's ALL_REDUCE is not derived; choose yes, which is its REDUCE_SCATTER")
    return Layout(
        data,
        **degrees,
        zero=int(a["zero"]),
        schedule=layout_options["schedule"],
        micro_batches=micro_batches,
        virtual=virtual_stages,
        sequence=layout_options["sequence"] == "yes",
        trainer=layout_options["trainer"],
        stages=layout_options["stages"] or "",
        ring=layout_options["cp_by"] == "ring",
        whole_experts=layout_options["etp"] == 1 and layout_options["tp"] > 1,
        replicas=layout_options["replicas"],
    )


def link_bandwidths(a: Mapping[str, Any]) -> tuple[float, float]:
    """Bytes a second that a GPU sends in a collective: inside its node, and by its network card.

    A measured bus bandwidth is what a ring through all GPUs sends from node to node by all network cards together, and
    includes what a collective loses.
    """
    is_network = bool(a["link"]) and a["link"].endswith("Gb/s")  # However few nodes there are.
    node_link, network_link = links_of({**a, "link": None} if is_network else a)
    network_link = a["link"] if is_network else network_link
    if not node_link:
        of_nodes = ", ".join(name for name in LINKS if not name.endswith("Gb/s"))
        raise ValueError(f"--link: what joins such GPUs in a node is not known; choose {of_nodes}")
    node_rate, network_rate = (LINKS[link].bytes_per_second for link in (node_link, network_link))
    network_cards = a["network_cards"] or a["node_gpus"]
    leaving_bytes_per_second = a["bus_bandwidth"] or LINK_EFFICIENCY * network_cards * network_rate
    return LINK_EFFICIENCY * node_rate, leaving_bytes_per_second / a["node_gpus"]


def rates_of(question: LayoutQuestion, layout: Layout) -> Sent:
    """Bytes a second that a GPU sends to each of its groups."""
    a, tensor = question.a, question.a["tp_bandwidth"]
    between = question.node_bytes_per_second, question.network_bytes_per_second
    return rates(layout, *between, a["node_gpus"], tensor and tensor / a["node_gpus"])


def refuse_impossible(question: LayoutQuestion, layout: Layout) -> None:
    """Raises ValueError in the command's words for what cannot be."""
    try:
        refuse(question.shape, layout, question.a["context"])
    except ValueError as error:
        word, _, why = str(error).partition(": ")
        raise ValueError(f"--{FLAG_OF_WORD[word]}: {why}") from None


class LayoutCosts(NamedTuple):
    """What one layout holds and takes."""

    rank_bytes: list[int]  # of each pipeline rank
    seconds: dict[str, float]  # of a step, by line

    @property
    def needs_bytes(self) -> int:
        return max(self.rank_bytes)

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def binds(self) -> str:
        """What of a step takes longest but what the rank itself computes."""
        seconds_beside = {line: seconds for line, seconds in self.seconds.items() if line not in COMPUTED}
        line = max(seconds_beside, key=lambda each: seconds_beside[each])
        return line if seconds_beside[line] else "matmuls"


def rank_step(question: LayoutQuestion, checkpointing: str) -> RankStep:
    a = question.a
    return RankStep(
        a["context"],
        a["micro_batch"],
        question.recipe,
        checkpointing,
        a["loss"],
        workspace_bytes(a["gpu"] or ""),
        a["chunks"],
        adapters_of_options(a),
        a["base"],
    )


def groups_of(layout: Layout) -> Groups:
    return Groups(layout.tensor, layout.context, layout.pipeline, layout.expert, layout.replicas)


def bytes_of_ranks(question: LayoutQuestion, layout: Layout, checkpointing: str, ranks: Iterable[int]) -> Iterator[int]:
    """Bytes of pipeline ranks of a layout that can be."""
    beside = outside_bytes(question.a, groups_of(layout))
    step = rank_step(question, checkpointing)
    return (held_bytes(question.shape, layout, rank, step) + beside for rank in ranks)


def evaluate_layout(question: LayoutQuestion, layout: Layout, checkpointing: str) -> LayoutCosts:
    """Of a layout that can be."""
    rank_bytes = [*bytes_of_ranks(question, layout, checkpointing, range(layout.pipeline))]
    return LayoutCosts(rank_bytes, seconds_by_line(question, layout, checkpointing))


def shown_rank(question: LayoutQuestion, costs: LayoutCosts) -> int:
    """The one that is asked for, else the one that holds most. Raises ValueError with the mend."""
    asked, ranks = question.a["rank"], len(costs.rank_bytes)
    if asked is None:
        return max(range(ranks), key=lambda rank: costs.rank_bytes[rank])
    if asked >= ranks:
        raise ValueError(f"--rank: of {ranks} in line there is no {asked}; give 0 to {ranks - 1}")
    return int(asked)


def rank_on_card(
    question: LayoutQuestion, layout: Layout, checkpointing: str, rank: int, in_all_ways: bool = True
) -> OnCard:
    """A rank's first steps, on its card: with what it sends given back at once, and where that may be, as late as can
    be."""
    step = rank_step(question, checkpointing)
    runs = [steps_of_rank(question.shape, layout, rank, step)]
    if in_all_ways and layout.habits.lags and layout.tensor > 1:
        runs.append(steps_of_rank(question.shape, layout, rank, step, lags=True))
    return on_card(runs, question.a, question.memory_bytes, groups=groups_of(layout))


def held_by_rank(job: OnCard) -> dict[str, int]:
    """Bytes of a rank by line, when it holds most."""
    return lines_at_peak(job.runs[0]) | {"allowance": job.outside_bytes}


def seconds_by_line(
    question: LayoutQuestion, layout: Layout, checkpointing: str, slowdown_index: int = 1
) -> dict[str, float]:
    """Seconds of a step by line; of published rates, `slowdown_index` 0 to 2 says which of slowdowns() they have."""
    a, shape, rates_card = question.a, question.shape, question.rates_card
    size, attention_share = (a["context"], a["micro_batch"]), a["attention_share"]

    slowdown = slowdowns(rates_card)[slowdown_index] if rates_card else 1.0

    def computed(rank: int) -> dict[str, float]:
        by_rates = rank_seconds(shape, layout, rank, *size, rates_card, question.recipe, checkpointing, a["float8"])
        return slowed(by_rates, slowdown)

    return step_seconds(
        shape,
        once_a_step(layout),
        a["context"],
        question.flop_per_second,
        rates_of(question, layout),
        a["micro_batch"],
        checkpointing,
        sent_itemsize(question, layout, checkpointing),
        attention_flop_per_second=attention_share and attention_share * question.peak_flop_per_second,
        computed=computed if rates_card else None,
        hides_tensor=a["hides"],
        adapters=adapters_of(shape, layout, rank_step(question, checkpointing)),
    )


def sent_itemsize(question: LayoutQuestion, layout: Layout, checkpointing: str) -> int:
    """Bytes of an activation or a weight that ranks send."""
    return config_of(layout, rank_step(question, checkpointing)).number_bytes


def computed_layer_seconds(question: LayoutQuestion, layout: Layout, seconds: Mapping[str, float]) -> float:
    """What a rank computes of a layer and a micro-batch, its ends included, from its lines of a step."""
    layers = max(sum(rank_layers(question.shape, layout, rank)) for rank in distinct_ranks(question.shape, layout))
    passes = sum(seconds.get(line, 0.0) for line in COMPUTED if line != "update")
    return passes / (layout.micro_batches * layers)


def throughput(question: LayoutQuestion, layout: Layout, costs: LayoutCosts) -> dict[str, Any]:
    """Seconds, tokens a second and the MFU of a step, attention's pairs counted as was asked."""
    a = question.a
    tokens = layout.data * layout.micro_batches * a["micro_batch"] * a["context"]
    flops = trained_flops(question, layout) / a["context"] * tokens
    return {
        "step_tokens": tokens,
        "step_seconds": costs.step_seconds,
        "tokens_per_second": tokens / costs.step_seconds,
        "mfu": flops / (layout.gpus * question.peak_flop_per_second * costs.step_seconds),
    }


def trained_flops(question: LayoutQuestion, layout: Layout) -> float:
    """FLOPs of training on one sequence, nothing computed again; of frozen weights without their gradients."""
    shape, seq_len, causal = question.shape, question.a["context"], question.a["pairs"] == "causal"
    flops: float = model_flops(shape, seq_len, causal)
    adapters = adapters_of(shape, layout, rank_step(question, "none"))
    if adapters is None:
        return flops
    ranks = range(layout.pipeline)
    frozen = sum(rank_flops(shape, layout, rank, seq_len, 1, causal, "none").of_weights for rank in ranks)
    return float(flops - frozen + 6 * seq_len * layout.tensor * sum(adapters.numbers))


def layout_flags(layout: Layout, checkpointing: str) -> dict[str, Any]:
    """A layout by the names of its options."""
    return {
        "data": layout.data,
        **{flag: getattr(layout, name) for flag, name in DEGREES.items()},
        "zero": layout.zero,
        "schedule": layout.schedule,
        "virtual_stages": layout.virtual,
        "micro_batches": layout.micro_batches,
        "checkpointing": checkpointing,
        "trainer": layout.trainer,
    }


def plan_layouts(
    split: Model | None = None,
    reader: Reader = read_shape,
    /,
    *,
    meters: Any = True,
    card_bytes: Any = None,
    **asked: Any,
) -> dict[str, Any]:
    """What a layout holds, sends and takes; `schema.json` says what is in the answer.

    The model is read by the `reader`, or given, as flops_bytes.parallel.stacks has it. A card may have other bytes than
    its kind has. Without `meters` the step of the rank that is shown goes through no allocator. Raises ValueError with
    a sentence that names the option and the mend.
    """
    question = read_question(asked, split, reader)
    question = question._replace(memory_bytes=card_bytes or question.memory_bytes)
    a, layout, checkpointing = question.a, question.layout, question.a["checkpointing"]
    refuse_impossible(question, layout)
    costs = evaluate_layout(question, layout, checkpointing)
    rank = shown_rank(question, costs)
    job = rank_on_card(question, layout, checkpointing, rank, meters)
    lines = held_by_rank(job)
    total, active = totals(question.shape)
    speeds = throughput(question, layout, costs)
    least_seconds, most_seconds = (
        sum(seconds_by_line(question, layout, checkpointing, index).values()) for index in (0, 2)
    )
    layer_seconds = computed_layer_seconds(question, layout, costs.seconds)
    needs_bytes = sum(lines.values())
    return {
        "parameters": {"total": total, "active": active},
        "layout": layout_flags(layout, checkpointing),
        "fullest_rank": rank,
        "memory_bytes": lines | {"total": needs_bytes},
        "ranks": [
            {
                "layers": sum(rank_layers(question.shape, layout, each)),
                "parameters": sum(rank_parameters(question.shape, layout, each).values()),
                "in_flight": in_flight(layout, each),
                "needs_bytes": size,
            }
            for each, size in enumerate(costs.rank_bytes)
        ],
        "gpu_bytes": question.memory_bytes,
        "gpu_bytes_are": capacity_source(a),
        "fits": needs_bytes <= question.memory_bytes,
        "headroom_bytes": question.memory_bytes - needs_bytes,
        "meters": read_meters(job) if meters else None,
        "sent": list(sends_of_rank(question, layout, checkpointing, rank)),
        "bubble_share": bubble(layout),
        "seconds": costs.seconds,
        "binds": costs.binds,
        "matmul_share": a["matmul_share"],
        "attention_share": a["attention_share"],
        **speeds,
        "least_step_seconds": least_seconds,
        "most_step_seconds": most_seconds,
        "computed_layer_seconds": layer_seconds,
        "launched_layer_seconds": LAUNCHED_LAYER_SECONDS,
        "seconds_are_least": layer_seconds < LAUNCHED_LAYER_SECONDS,
        "left_out": left_out(question.shape),
        "currency": a["currency"],
    } | cost(a, a["tokens"], speeds["tokens_per_second"])


def sends_of_rank(question: LayoutQuestion, layout: Layout, checkpointing: str, rank: int) -> Iterator[dict[str, Any]]:
    """What a rank sends in a step, by what sends it: the collective, the level that its group spans, bytes, seconds."""
    a, each = question.a, once_a_step(layout)
    adapters = adapters_of(question.shape, layout, rank_step(question, checkpointing))
    size = a["context"], a["micro_batch"], checkpointing
    itemsize = sent_itemsize(question, layout, checkpointing)
    sent_bytes = sent(question.shape, each, rank, *size, itemsize, adapters=adapters)
    bandwidths: Sent = rates_of(question, layout)
    ranks_inside = {"tensor": 1, "context": layout.tensor, "expert": layout.expert_tensor, "data": layout.tensor}
    ranks_inside["replicas"] = layout.tensor * layout.shards
    ranks_inside["pipeline"] = layout.tensor * layout.context * layout.data
    ranks = {name: getattr(layout, name) for name in ("tensor", "context", "expert", "pipeline")}
    ranks |= {"data": layout.shards, "replicas": layout.replicas}
    collectives = {"data": "all-reduce"} if layout.zero == 0 else dict[str, str]()
    collectives |= {"context": "send to the next"} if layout.ring else {}
    for name, collective in SENT_BY.items():
        if size_bytes := getattr(sent_bytes, name):
            yield {
                "by": name,
                "ranks": ranks[name],
                "collective": collectives.get(name, collective),
                "level": "node" if ranks_inside[name] * ranks[name] <= a["node_gpus"] else "network",
                "bytes": size_bytes,
                "bytes_per_second": getattr(bandwidths, name),
                "seconds": size_bytes / getattr(bandwidths, name),
            }
