"""An answer of the planner as lines of a terminal: the dozen that answer, and, to explain it, what and how much."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flops_bytes.model.shapes import abbreviated
from flops_bytes.model.stack import PARTS
from flops_bytes.plan.evidence import EVIDENCE, MISSES, WITH_ROOM
from flops_bytes.plan.options import read_option
from flops_bytes.plan.parallel import DEGREES
from flops_bytes.plan.published_runs import runs_nearest
from flops_bytes.plan.serving import ENGINES_REACH
from flops_bytes.time.gpus import LINK_EFFICIENCY


def gib(size: float) -> str:
    return f"{round(size / 2**30, 2) + 0.0:,.2f} GiB"  # + 0.0: not −0.00


CAPACITY_SOURCES = {"reported": " by CUDA", "label": " by its label; what CUDA reports is not known here", "asked": ""}


def memory_lines(answer: dict[str, Any], what: str) -> Iterator[tuple[str, str]]:
    """The bytes of a GPU, line by line, and whether it has as many."""
    lines = {line: size for line, size in answer["memory_bytes"].items() if size and line != "total"}
    yield from ((f"  {line.replace('_', ' ')}", gib(size)) for line, size in lines.items())
    yield what, gib(answer["memory_bytes"]["total"])
    left = (
        f"{gib(answer['headroom_bytes'])} are left for activations" if answer["fits"] is None else verdict_text(answer)
    )
    yield "it has", f"{gib(answer['gpu_bytes'])}{CAPACITY_SOURCES[answer['gpu_bytes_are']]}: {left}"
    yield "  published readings", evidence_text(answer.get("kind", ""))


def verdict_text(answer: dict[str, Any]) -> str:
    """The verdict, and what is left or missing."""
    left = gib(abs(answer["headroom_bytes"]))
    return f"{answer['verdict']}, {left} {'are missing' if answer['verdict'] == MISSES else 'left'}"


def evidence_text(kind: str) -> str:
    """How far off the planner was, for runs of a kind that others published."""
    if kind not in EVIDENCE:
        return "none of this kind"
    readings, low, high, start, end, _ = EVIDENCE[kind]
    within = f"{low} to {high}, the middle nine of ten {start} to {end}"
    return f"{readings} of this kind ({kind}): planned over published {within}"


def money_text(answer: dict[str, Any], money: float, digits: str) -> str:
    """Money, in the currency of the price."""
    sign = answer["currency"]
    return f"{sign or ''}{money:{digits}}{'' if sign else ' in the currency of the price'}"


def digits(number: float) -> str:
    """Four digits, or all before the point."""
    return f"{number:,.0f}" if number >= 1_000 else f"{number:.4g}"


def days_and_cost(answer: dict[str, Any], costs: dict[str, Any]) -> str:
    """Days, GPU-hours and money."""
    price = (
        f", costs {money_text(answer, costs['money'], ',.0f' if costs['money'] >= 100 else '.3g')}"
        if costs["money"]
        else ""
    )
    return f"{digits(costs['days'])} days, {digits(costs['gpu_hours'])} GPU-hours{price}"


def users_text(users: int) -> str:
    return f"{users:,} user{'' if users == 1 else 's'}"


def deadline_lines(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The GPUs that a deadline takes."""
    if fleet := answer.get("fleet"):
        speeds = [row["mfu"] for row in answer["by_mfu"]] or [answer["mfu"]]
        run = f"; {fleet['run_gpus']:,} at {speeds[-1]:.0%}, a whole run" if fleet["run_gpus"] else ""
        yield f"GPUs for {fleet['days']:.4g} days", f"{fleet['gpus']:,} at an MFU of {speeds[0]:.0%}{run}"


METHODS = {"all": "all weights", "lora": "LoRA", "qlora": "QLoRA", "qlora-double": "double-quantized QLoRA"}
CHECKPOINTING = {"none": "nothing recomputed", "full": "every layer checkpointed"}
BAR_WIDTH = 32  # characters for a whole card
SMALL_SHARE = 0.01  # of the whole; smaller lines are added up


def brief(answer: dict[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """The answer: the verdict, what was assumed, the memory, time and cost, and what to change if it has no room."""
    yield headline(answer, asked)
    if assumed := list(assumption_texts(answer, asked)):
        yield f"Assumed: {', '.join(assumed)}."
    if answer["fits"] and "room_ratio" in answer:
        times, size = answer["room_ratio"], short_gib(answer["with_room_bytes"])
        of = "of this kind" if answer["kind"] else "of the nearest kind"
        yield f"Nine of ten published runs {of} took at most {times:.2f} times their plan, here {size}."
    yield ""
    yield from bars(answer)
    yield ""
    yield from meters_brief(answer)
    yield from (serving_brief if "users" in answer else time_brief)(answer)
    yield from alternatives(answer)


def headline(answer: dict[str, Any], asked: Mapping[str, Any]) -> str:
    what = asked.get("model") or "this model"
    card, gpus = asked.get("gpu") or "such a GPU", read_option("gpus", asked.get("gpus") or 1)
    where = f"{gpus} × {card}" if gpus > 1 else card
    how = f"{users_text(answer['users'])} of " if "users" in answer else f"{METHODS[answer['trained']]} of "
    each = "each needs" if gpus > 1 else "needs"
    size, has = short_gib(answer["memory_bytes"]["total"]), short_gib(answer["gpu_bytes"])
    if answer["verdict"] is None:
        return f"At least {size} of {has}: {how}{what} on {where}, without activations, which are not derived here."
    start = f"{answer['verdict'].capitalize()}: {how}{what} on {where}"
    if not answer["fits"] and answer["headroom_bytes"] >= 0:
        return f"{start}; the sum of {size} would, but what PyTorch reserves does not, and a card has {has}."
    return f"{start}; {each} {size}, and a card has {has}."


def assumption_texts(answer: dict[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """What was chosen, and what stands for what else makes the most of a difference."""
    chosen = answer["assumed"]
    if "trained" in chosen:
        yield METHODS[chosen["trained"]]
    if "users" not in answer and asked.get("micro_batch") is None:
        yield "one sequence at a time"
    if "context" in chosen:
        yield f"{chosen['context']:,} tokens each"
    if "checkpointing" in chosen:
        yield CHECKPOINTING[chosen["checkpointing"]]
    if "zero" in chosen:
        yield f"ZeRO {chosen['zero']}"
    if "users" in answer and asked.get("weights") is None:
        yield f"weights in {answer['weights'][:-3]} bits"
    if answer.get("trained") == "all" and asked.get("recipe") is None:
        yield "bf16 with a float32 master copy"


def short_gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


def bars(answer: dict[str, Any]) -> Iterator[str]:
    """The memory of a GPU, largest first; a whole bar is the card, or what is needed if that is more."""
    lines = {line: size for line, size in answer["memory_bytes"].items() if size and line != "total"}
    total_bytes = answer["memory_bytes"]["total"]
    bar_bytes = max(total_bytes, answer["gpu_bytes"])
    large = sorted((line for line in lines if lines[line] >= SMALL_SHARE * total_bytes), key=lambda line: -lines[line])
    rows = [(line.replace("_", " "), lines[line]) for line in large]
    if others := [size for line, size in lines.items() if line not in large]:
        rows.append(("others", sum(others)))
    for line, size in rows:
        yield f"  {line:16}{short_gib(size):>11}  {'#' * round(BAR_WIDTH * size / bar_bytes)}".rstrip()


MENDS = {"expandable": "expandable_segments", "emptied": "empty_cache() each step"}  # of a cache that is cut up


def meters_brief(answer: dict[str, Any]) -> Iterator[str]:
    """What three meters will show, and what becomes of a run that does not simply live."""
    meters = answer.get("meters")
    if meters is None:
        return
    reserved, smi = (range_text(*meters[name]) for name in ("reserved_bytes", "smi_bytes"))
    allocated = short_gib(meters["allocated_bytes"])
    yield f"The card will show: allocated {allocated}, reserved {reserved}, nvidia-smi {smi}."
    if meters["draws"]:
        yield f"Between these in {meters['draws']} drawn runs: it hangs on which length follows which."
    if meters["lives"] == "retries":
        often = f"{meters['retries']} time{'s' if meters['retries'] > 1 else ''}"
        where = "in such a run" if meters["draws"] else "a step"
        yield f"It may live, but PyTorch gives back what lies free and asks again, {often} {where}."
    if death := meters["death"]:
        yield f"It dies: {death_text(death)}."
    if meters["lives"] == "lives":
        return
    helps = {"lives": "it would live without", "retries": "it would live so too", "dies": "it would die too"}
    for name, told in MENDS.items():
        if mended := meters[name]:
            yield f"With {told} {helps[mended['lives']]}."


def range_text(low: float, high: float) -> str:
    """Between which it lies, where the two differ as they are written."""
    low_text, high_text = short_gib(low), short_gib(high)
    return high_text if low_text == high_text else f"{low_text[:-4]} to {high_text}"


def death_text(death: dict[str, Any]) -> str:
    """Where a run finds no block."""
    allocated, free = (short_gib(death[f"{name}_bytes"]) for name in ("allocated", "unallocated"))
    there = f"{allocated} allocated and {free} free in pieces"
    return f"{death['at']} asks for {gib(death['asked_bytes'])} of {death['line']} beside {there}"


def spread_text(sizes: Iterable[int]) -> str:
    """The lowest and the highest; one, where they are equal."""
    return " to ".join(map(gib, sorted({*sizes})))


def meter_lines(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The same, line by line, with what each part outside of PyTorch rests on."""
    meters = answer.get("meters")
    if meters is None:
        return
    yield "allocated", gib(meters["allocated_bytes"])
    yield "reserved", spread_text(meters["reserved_bytes"])
    for line in meters["outside"]:
        assumed = f", taken from {line['assumed_of']}" if line["assumed_of"] else ""
        yield f"  {line['line'].replace('_', ' ')}", f"{spread_text(line['bytes'])}: {line['source']}{assumed}"
    yield "nvidia-smi", spread_text(meters["smi_bytes"])
    for name, told in MENDS.items():
        if (mended := meters[name]) and mended["lives"] != "dies":
            yield f"with {told}", f"reserved {gib(mended['reserved_bytes'])}"


def time_brief(answer: dict[str, Any]) -> Iterator[str]:
    """Days and money at both speeds, or tokens a second if nobody says how many; nothing of a run that does not fit."""
    if answer["verdict"] == MISSES:
        return
    rows = answer["by_mfu"] or [answer]
    names = ["a good step", "a whole run"] if answer["by_mfu"] else ["a step"]
    for name, row in zip(names, rows, strict=True):
        cost_text = f"{token_count(row['tokens'])} tokens in {days_and_cost(answer, row)}" if row["tokens"] else ""
        assumed, before = ("an assumed MFU of ", " before recomputing") if answer["by_mfu"] else ("an MFU of ", "")
        rate = f"{row['tokens_per_second']:,.0f} tokens/s"
        yield f"At {assumed}{row['mfu']:.2g}{before}, {name}: {cost_text or rate}."
    for what, how_many in deadline_lines(answer):
        yield f"{what}: {how_many}."


def token_count(tokens: int) -> str:
    """As people write it: 5T."""
    for unit, scale in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if tokens >= scale:
            return f"{digits(tokens / scale)}{unit}"
    return f"{tokens:,}"


def serving_brief(answer: dict[str, Any]) -> Iterator[str]:
    """Who is served how fast, at most."""
    if answer["verdict"] == MISSES:
        return
    user_rate, total_rate = answer["each_per_second"], answer["tokens_per_second"]
    late = "" if answer["in_time"] else f" A token takes {digits(1e3 / user_rate)} ms, too long."
    yield f"At most {digits(user_rate)} tokens/s for each, {digits(total_rate)} for all.{late}"
    low, high = answer["reached_per_second"]
    yield f"Engines were published to reach {digits(low)} to {digits(high)} for each."


def alternatives(answer: dict[str, Any]) -> Iterator[str]:
    """The ways that were asked for, or else the fewest GPUs, where a training does not fit."""
    if "ways" in answer:
        yield from way_lines(answer["ways"], answer.get("no_layouts"))
        return
    if answer["headroom_bytes"] < 0 and answer.get("fewest_gpus"):
        yield f"Fewest GPUs on which it fits: {answer['fewest_gpus']:,}."


GIVEN_UP = {
    "adapters": "trains adapters alone",
    "frozen in 4 bits": "with the rest frozen in 4 bits",
    "moments in 8 bits": "rounds moments to 8 bits",
    "host": "moves state to the host and back, for a time that is not known here",
}


def in_words(asked: Mapping[str, Any]) -> str:
    """A question as it is asked on the command line, without the whole of a config.json."""
    return " ".join(f"--{name.replace('_', '-')} {abbreviated(str(value))}" for name, value in asked.items())


def way_lines(ways: list[dict[str, Any]], no_layouts: str | None = None) -> Iterator[str]:
    """What else fits, the fastest first, as options to add."""
    yield ""
    missing = not any(way["fits"] for way in ways)
    yield "Nothing fits; least is needed of" if missing else "What fits, the fastest first; what you asked for stays:"
    for number, way in enumerate(ways, start=1):
        at_most = "at most " if "host" in way["gives_up"] else ""
        speed = "" if missing else f", {at_most}{way['tokens_per_second']:,.0f} tokens/s"
        yield f"  {number:<2} {in_words(way['options'])}: {short_gib(way['needs_bytes'])}, {way['verdict']}{speed}"
        if way["gives_up"]:
            yield f"     {', '.join(GIVEN_UP[name] for name in way['gives_up'])}"
    if no_layouts:
        yield f"Layouts are not among them: {no_layouts}."
    elif any(name in DEGREES for way in ways for name in way["options"]):
        yield "All are timed as layouts are, not by an assumed MFU."


def host_lines(lines: dict[str, int]) -> Iterator[tuple[str, str]]:
    """What the memory of a host has to hold, where something is offloaded."""
    if lines:
        parts = ", ".join(f"{line} {gib(size)}" for line, size in lines.items() if line != "total")
        yield "memory of a host, at least", f"{gib(lines['total'])}: {parts}"


def training_table(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer to --task train."""
    counts = answer["parameters"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}, trained are {counts['trained']:,}"
    for part in (*PARTS, "embedding", "head"):
        if counts.get(part):
            yield f"  {part.replace('_', ' ')}", f"{counts[part]:,}"
    if counts.get("predicting"):
        yield "  beside these", f"{counts['predicting']:,} of layers that predict further tokens"
    is_derived = answer["peaks_at"] is not None
    yield from memory_lines(
        answer, f"a GPU, at {answer['peaks_at']}" if is_derived else "a GPU, at least, without activations"
    )
    yield from meter_lines(answer)
    if paged := answer["paged_bytes"]:
        yield "  and if there is room", f"{gib(paged)} of paged optimizer state"
    yield from host_lines(answer["host_bytes"])
    for name in ("largest_micro_batch", "longest_context", "fewest_gpus") if is_derived else ():
        yield name.replace("_", " "), f"{answer[name]:,}" if answer[name] else "none"
    for stage, size in answer["zero_bytes"].items():
        yield f"with ZeRO {stage}", gib(size)
    for name, flops in answer["flops_a_token"].items():
        again = f", of these again {flops['again']:.4g}" if flops["again"] else ""
        yield f"FLOPs a token, {name} pairs", f"{flops['model']:.4g}; the GPU does {flops['device']:.4g}{again}"
    assumed = f", from an assumed {answer['assumed_mfu']:.0%}" if answer["assumed_mfu"] else ""
    yield "MFU", f"{answer['mfu']:.1%}{assumed}; of the peak in use {answer['hfu']:.1%}"
    if fp8 := answer.get("fp8"):
        layers = f"{fp8['share']:.1%} of the FLOPs at {fp8['format']}'s peak, attention and the head at that of 16 bits"
        yield "  whose peak is", f"{fp8['flop_per_second'] / 1e12:,.4g} TFLOP/s: {layers}"
        yield "  of 16 bits' alone it is", f"{fp8['mfu_of_16_bits']:.1%}"
    rate = f"{answer['step_seconds']:.4g} s; {answer['tokens_per_second']:,.0f} tokens/s"
    batches = f" in {answer['accumulation']:,} micro-batches of each GPU" if answer["accumulation"] > 1 else ""
    yield "a step", f"{answer['step_tokens']:,} tokens{batches}, {rate}"
    if batch := answer["large_batch"]:
        as_large = ", ".join(batch["as_large"]) or f"none that is published, {batch['largest']:,} at most"
        yield "  a large step", f"Llama 3.1 405B had {batch['usual']:,} tokens; as many as here had {as_large}"
    if (matmul_format := answer["matmul_format"]) != (recipe_format := answer["recipe_format"]):
        of_peaks = f"the {recipe_format} peak, {answer['hfu']:.1%} of that of {matmul_format}"
        faster = f"this rate is {answer['recipe_hfu']:.3g} times {of_peaks}"
        yield (
            "multiplies in",
            f"{matmul_format}: {f'the card has no {recipe_format}' if matmul_format == 'float16' else faster}",
        )
    if wire := answer["wire"]:
        waits = f"the step waits {wire['waits_seconds']:.3g} s" if wire["waits_seconds"] else "longer than the step"
        over = f"over {wire['link']} at {wire['bytes_per_second'] / 1e9:.4g} GB/s, {LINK_EFFICIENCY:.0%} of nominal"
        hidden = "hidden behind matmuls" if wire["hidden"] else waits
        yield "sent by a GPU a step", f"{gib(wire['bytes'])}, {wire['seconds']:.3g} s {over}: {hidden}"
        yield "  matmuls hide it from", f"{wire['tokens']:,.0f} tokens of a micro-batch"
    if text := answer["text"]:
        measured = f"{text['language']}, measured with {text['vocab']:,} tokens" if text["vocab"] else "as given"
        yield "text", f"{text['bytes']:,} B at {text['bytes_a_token']:.4g} bytes a token ({measured})"
    if answer["tokens"]:
        yield "training", f"{answer['tokens']:,} tokens, {days_and_cost(answer, answer)}"
        yield from deadline_lines(answer)
        yield "FLOPs of the training", f"{answer['training_flops']:.4g}"
    if steps := answer["published_mfu"]:
        reached = f"{steps['low']:.0%} to {steps['high']:.0%}, eight of ten of {steps['readings']} on {steps['cards']}"
        yield "  published steps", reached
    for row in answer["by_mfu"]:
        nearest = runs_nearest(row["mfu"], [each["mfu"] for each in answer["by_mfu"]])
        runs = "; ".join(f"{run.name}: {run.percent} %" for run in nearest) or "no published run is nearer"
        runs = "of runs in fp8 none is known here" if "fp8" in answer else runs
        costs = days_and_cost(answer, row) if row["tokens"] else f"{row['tokens_per_second']:,.0f} tokens/s"
        yield f"at an MFU of {row['mfu']:.0%}", f"{costs} ({runs})"
    alone = gib(answer["checkpoint_weights_bytes"])
    yield "checkpoint", f"{gib(answer['checkpoint_bytes'])}; weights in 16 bits alone {alone}"
    if answer["estimated"]:
        yield "estimated, not counted", ", ".join(answer["estimated"])


def serving_table(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer to --task serve."""
    counts = answer["parameters"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}"
    yield from memory_lines(answer, f"a GPU, {users_text(answer['users'])}")
    yield "keys and values", f"{answer['token_bytes']:,} B a token, {gib(answer['user_bytes'])} a user"
    yield "users that fit", f"{answer['users_that_fit']:,}"
    if answer["latency_seconds"]:
        late = "" if answer["in_time"] else f"; a token takes {1e3 / answer['each_per_second']:.4g} ms, too long"
        yield "users in time", f"{answer['users_in_time']:,}{late}"
    yield "longest context", f"{answer['longest_context']:,}"
    yield "fewest GPUs", f"{answer['fewest_gpus']:,}" if answer["fewest_gpus"] else "none"
    alone = f"for one user alone {1e3 / answer['alone_per_second']:.4g} ms"
    yield "a token, at least", f"{1e3 * answer['token_seconds']:.4g} ms; {alone}"
    if answer["with_prompts_seconds"]:
        yield "  and all prompts between", f"{1e3 * answer['with_prompts_seconds']:.4g} ms"
    yield (
        "tokens/s, at most",
        f"{digits(answer['each_per_second'])} for each, {digits(answer['tokens_per_second'])} for all",
    )
    low, high = answer["reached_per_second"]
    yield (
        "  engines reached",
        f"{ENGINES_REACH[0]:.0%} to {ENGINES_REACH[1]:.0%} of the bound: {digits(low)} to {digits(high)} for each",
    )
    yield "first token, at least", f"{answer['first_token_seconds']:.4g} s, in which all others wait"
    if answer["money_a_million"]:
        yield "a million tokens", f"at least {money_text(answer, answer['money_a_million'], ',.3g')}"
    for row in answer["formats"]:
        size = f"{gib(row['weights_bytes'])}, {users_text(row['users'])}"
        rates = f"{digits(row['alone_per_second'])} tokens/s for one alone, {digits(row['tokens_per_second'])} for all"
        yield f"weights {row['weights']}, cache {row['cache']}", f"{size}, {rates}"
    if answer["estimated"]:
        yield "left out, or estimated", ", ".join(answer["estimated"])


def parallel_table(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer about a layout."""
    counts, layout = answer["parameters"], answer["layout"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}"
    yield "layout", layout_words(layout)
    if context := answer.get("assumed", {}).get("context"):
        yield "context, assumed", f"{context:,} tokens"
    lines = {line: size for line, size in answer["memory_bytes"].items() if size and line != "total"}
    yield from ((f"  {line}", gib(size)) for line, size in lines.items())
    rank, ranks = answer["fullest_rank"], answer["ranks"]
    is_fullest = ranks[rank]["needs_bytes"] == max(each["needs_bytes"] for each in ranks)
    of = f"{'fullest: ' if is_fullest else ''}rank {rank} of {len(ranks)} in line" if len(ranks) > 1 else "a GPU"
    yield of, gib(answer["memory_bytes"]["total"])
    yield "it has", f"{gib(answer['gpu_bytes'])}{CAPACITY_SOURCES[answer['gpu_bytes_are']]}: {verdict_text(answer)}"
    yield from meter_lines(answer)
    if len(ranks) > 1:
        holds = f"{ranks[rank]['layers']} layers, {ranks[rank]['parameters']:,} parameters before ZeRO"
        yield "  it computes", f"{holds}; {ranks[rank]['in_flight']} passes wait for their backward ones at most"
        yield "  the others need", ", ".join(gib(each["needs_bytes"]) for each in ranks)
    for each in answer["sent"]:
        over = f"{each['ranks']} ranks over the {each['level']} at {each['bytes_per_second'] / 1e9:.4g} GB/s"
        how_long = f"{gib(each['bytes'])}, {each['seconds']:.3g} s; {each['collective']} of {over}"
        yield f"sent by {each['by']}", how_long
    yield "bubble", f"{answer['bubble_share']:.1%} of a step"
    at_least, at_most = ("at least ", "at most ") if answer["seconds_are_least"] else ("", "")
    yield (
        "a step",
        f"{answer['step_tokens']:,} tokens, {at_least}{answer['step_seconds']:.4g} s; "
        + (f"{at_most}{answer['tokens_per_second']:,.0f} tokens/s"),
    )
    yield "  of these", ", ".join(f"{line} {seconds:.3g}" for line, seconds in answer["seconds"].items() if seconds)
    if answer["matmul_share"]:
        yield "  while nothing waits", f"matmuls reach {answer['matmul_share']:.1%} of the peak: an assumption"
    else:
        between = f"{answer['least_step_seconds']:.4g} and {answer['most_step_seconds']:.4g} s"
        yield "  by published rates", f"and as much longer as published steps took, eight of ten between {between}"
    if answer["seconds_are_least"]:
        computed, launched = (1e3 * answer[f"{what}_layer_seconds"] for what in ("computed", "launched"))
        why = f"of a micro-batch a layer computes {computed:.2g} ms, and unless fused is launched in {launched:.2g} ms"
        yield "  no estimate", f"{why}: the CPU may set the pace"
    yield "MFU", f"{at_most}{answer['mfu']:.1%}"
    if answer["tokens"]:
        yield "training", f"{answer['tokens']:,} tokens, {days_and_cost(answer, answer)}"
    if answer["verdict"] != WITH_ROOM and "ways" not in answer:
        yield "--find", "lists what fits, the fastest first"
    assumed = ["kernels of smaller matmuls"] if answer["matmul_share"] else []
    yield "left out", ", ".join(["latency", *assumed, "uneven experts", *answer["left_out"]])


def layout_words(layout: dict[str, Any]) -> str:
    """Its degrees that split something, and how its batch is taken."""
    degrees = [f"{name.upper()} {layout[name]}" for name in ("tp", "cp", "pp", "ep") if layout[name] > 1]
    stages = f" of {layout['virtual_stages']} stages a rank" if layout["virtual_stages"] > 1 else ""
    schedule = f", {layout['schedule']}{stages}" if layout["pp"] > 1 else ""
    again = "" if layout["checkpointing"] == "none" else f", {layout['checkpointing']} checkpointing"
    batch = f"{layout['micro_batches']} micro-batch{'' if layout['micro_batches'] == 1 else 'es'}"
    split = " ".join([*degrees, f"DP {layout['data']}"])
    by = "" if layout["trainer"] == "torchtitan" else f", {layout['trainer']}"
    return f"{split}, ZeRO {layout['zero']}{schedule}, {batch}{again}{by}"


def rl_table(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer to --task rl: each phase, then the fullest beside the card."""
    counts, least = answer["parameters"], answer["least_seconds"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}, trained are {counts['trained']:,}"
    for phase, lines in answer["phases"].items():
        moment = f", at {answer['training_peaks_at']}" if phase == "training" else ""
        answers_text = f", {answer['answers_at_once']:,} of {answer['answers']:,} answers at once"
        yield f"{phase}{moment}", f"{gib(lines['total'])}{answers_text if phase == 'sampling' else ''}"
        parts = ((line, size) for line, size in lines.items() if size and line != "total")
        yield from ((f"  {line.replace('_', ' ')}", gib(size)) for line, size in parts)
        if least and least[phase]:
            yield (
                "  takes, at least",
                f"{least[phase]:,.4g} s, {least[phase] / sum(least.values()):.0%} of a step's bounds",
            )
    yield f"most is held in {answer['peaks_in']}", gib(answer["memory_bytes"]["total"])
    yield "it has", f"{gib(answer['gpu_bytes'])}{CAPACITY_SOURCES[answer['gpu_bytes_are']]}: {verdict_text(answer)}"
    yield "left out", "rewards, activations of scoring, the engine's own workspace beyond its share"
