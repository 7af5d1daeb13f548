"""An answer of the planner as lines of a terminal: the dozen that answer, and, to explain it, what and how much."""

# --8<-- [start:setup]
from collections.abc import Iterator, Mapping
from typing import Any

from flops_bytes.model.stack import PARTS
from flops_bytes.plan.assumptions import other_methods
from flops_bytes.plan.evidence import EVIDENCE, MISSES, WITH_ROOM
from flops_bytes.plan.options import read
from flops_bytes.plan.published_runs import runs_nearest
from flops_bytes.plan.serving import ENGINES_REACH
from flops_bytes.time.gpus import REACHED


def gib(size: float) -> str:
    return f"{round(size / 2**30, 2) + 0.0:,.2f} GiB"  # + 0.0: not −0.00


SAID = {"reported": " by CUDA", "label": " by its label; what CUDA reports is not known here", "asked": ""}


def room(found: dict[str, Any], what: str) -> Iterator[tuple[str, str]]:
    """The bytes of a GPU, line by line, and whether it has as many."""
    lines = {line: size for line, size in found["memory_bytes"].items() if size and line != "total"}
    yield from ((f"  {line.replace('_', ' ')}", gib(size)) for line, size in lines.items())
    yield what, gib(found["memory_bytes"]["total"])
    left = f"{gib(found['headroom_bytes'])} are left for activations" if found["fits"] is None else judgement(found)
    yield "it has", f"{gib(found['gpu_bytes'])}{SAID[found['gpu_bytes_are']]}: {left}"
    yield "  published readings", published(found.get("kind", ""))


def judgement(found: dict[str, Any]) -> str:
    """The verdict, and what is left or missing."""
    left = gib(abs(found["headroom_bytes"]))
    return f"{found['verdict']}, {left} {'are missing' if found['verdict'] == MISSES else 'left'}"


def published(kind: str) -> str:
    """How far off the planner was, for runs of a kind that others published."""
    if kind not in EVIDENCE:
        return "none of this kind"
    readings, low, high, start, end, _ = EVIDENCE[kind]
    within = f"{low} to {high}, the middle nine of ten {start} to {end}"
    return f"{readings} of this kind ({kind}): planned over published {within}"


def pay(found: dict[str, Any], money: float, digits: str) -> str:
    """Money, in the currency of the price."""
    sign = found["currency"]
    return f"{sign or ''}{money:{digits}}{'' if sign else ' in the currency of the price'}"


def digits(number: float) -> str:
    """Four digits, or all before the point."""
    return f"{number:,.0f}" if number >= 1_000 else f"{number:.4g}"


def spent(found: dict[str, Any], costs: dict[str, Any]) -> str:
    """Days, GPU-hours and money."""
    price = (
        f", costs {pay(found, costs['money'], ',.0f' if costs['money'] >= 100 else '.3g')}" if costs["money"] else ""
    )
    return f"{digits(costs['days'])} days, {digits(costs['gpu_hours'])} GPU-hours{price}"


def people(users: int) -> str:
    return f"{users:,} user{'' if users == 1 else 's'}"


def in_time(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The GPUs that a deadline takes."""
    if fleet := found.get("fleet"):
        speeds = [row["mfu"] for row in found["by_mfu"]] or [found["mfu"]]
        run = f"; {fleet['run_gpus']:,} at {speeds[-1]:.0%}, a whole run" if fleet["run_gpus"] else ""
        yield f"GPUs for {fleet['days']:.4g} days", f"{fleet['gpus']:,} at an MFU of {speeds[0]:.0%}{run}"


# --8<-- [end:setup]


# --8<-- [start:brief]
METHODS = {"all": "all weights", "lora": "LoRA", "qlora": "QLoRA", "qlora-double": "double-quantized QLoRA"}
CHECKPOINTING = {"none": "nothing recomputed", "full": "every layer checkpointed"}
BAR = 32  # characters for a whole card
SMALL = 0.01  # of the whole; smaller lines are added up


def brief(found: dict[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """The answer: the verdict, what was assumed, the memory, time and cost, and what to change if it has no room."""
    yield headline(found, asked)
    if assumed := list(assumptions(found, asked)):
        yield f"Assumed: {', '.join(assumed)}."
    if found["fits"] and "room_ratio" in found:
        times, size = found["room_ratio"], short_gib(found["with_room_bytes"])
        of = "of this kind" if found["kind"] else "of the nearest kind"
        yield f"Nine of ten published runs {of} took at most {times:.2f} times their plan, here {size}."
    yield ""
    yield from bars(found)
    yield ""
    yield from (serving_brief if "users" in found else time_brief)(found)
    yield from changes(found)


def headline(found: dict[str, Any], asked: Mapping[str, Any]) -> str:
    what = asked.get("model") or "this model"
    card, gpus = asked.get("gpu") or "such a GPU", read("gpus", asked.get("gpus") or 1)
    where = f"{gpus} × {card}" if gpus > 1 else card
    how = f"{people(found['users'])} of " if "users" in found else f"{METHODS[found['trained']]} of "
    each = "each needs" if gpus > 1 else "needs"
    size, has = short_gib(found["memory_bytes"]["total"]), short_gib(found["gpu_bytes"])
    if found["verdict"] is None:
        return f"At least {size} of {has}: {how}{what} on {where}, without activations, which are not derived here."
    verdict = found["verdict"].capitalize()
    return f"{verdict}: {how}{what} on {where}; {each} {size}, and a card has {has}."


def assumptions(found: dict[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """What was chosen, and what stands for what else makes the most of a difference."""
    chosen = found["assumed"]
    if "trained" in chosen:
        yield METHODS[chosen["trained"]]
    if "users" not in found and asked.get("micro_batch") is None:
        yield "one sequence at a time"
    if "context" in chosen:
        yield f"{chosen['context']:,} tokens each"
    if "checkpointing" in chosen:
        yield CHECKPOINTING[chosen["checkpointing"]]
    if "zero" in chosen:
        yield f"ZeRO {chosen['zero']}"
    if "users" in found and asked.get("weights") is None:
        yield f"weights in {found['weights'][:-3]} bits"
    if found.get("trained") == "all" and asked.get("recipe") is None:
        yield "bf16 with a float32 master copy"


def short_gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


def bars(found: dict[str, Any]) -> Iterator[str]:
    """The memory of a GPU, largest first; a whole bar is the card, or what is needed if that is more."""
    lines = {line: size for line, size in found["memory_bytes"].items() if size and line != "total"}
    total = found["memory_bytes"]["total"]
    whole = max(total, found["gpu_bytes"])
    large = sorted((line for line in lines if lines[line] >= SMALL * total), key=lambda line: -lines[line])
    rows = [(line.replace("_", " "), lines[line]) for line in large]
    if others := [size for line, size in lines.items() if line not in large]:
        rows.append(("others", sum(others)))
    for line, size in rows:
        yield f"  {line:16}{short_gib(size):>11}  {'#' * round(BAR * size / whole)}".rstrip()


def time_brief(found: dict[str, Any]) -> Iterator[str]:
    """Days and money at both speeds, or tokens a second if nobody says how many; nothing of a run that does not fit."""
    if found["verdict"] == MISSES:
        return
    rows = found["by_mfu"] or [found]
    names = ["a good step", "a whole run"] if found["by_mfu"] else ["a step"]
    for name, row in zip(names, rows, strict=True):
        said = f"{many(row['tokens'])} tokens in {spent(found, row)}" if row["tokens"] else ""
        assumed, before = ("an assumed MFU of ", " before recomputing") if found["by_mfu"] else ("an MFU of ", "")
        rate = f"{row['tokens_per_second']:,.0f} tokens/s"
        yield f"At {assumed}{row['mfu']:.2g}{before}, {name}: {said or rate}."
    for what, how_many in in_time(found):
        yield f"{what}: {how_many}."


def many(tokens: int) -> str:
    """As people write it: 5T."""
    for unit, scale in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if tokens >= scale:
            return f"{digits(tokens / scale)}{unit}"
    return f"{tokens:,}"


def serving_brief(found: dict[str, Any]) -> Iterator[str]:
    """Who is served how fast, at most."""
    if found["verdict"] == MISSES:
        return
    each, rate = found["each_per_second"], found["tokens_per_second"]
    late = "" if found["in_time"] else f" A token takes {digits(1e3 / each)} ms, too long."
    yield f"At most {digits(each)} tokens/s for each, {digits(rate)} for all.{late}"
    low, high = found["reached_per_second"]
    yield f"Engines were published to reach {digits(low)} to {digits(high)} for each."


def changes(found: dict[str, Any]) -> Iterator[str]:
    """Other methods, and what frees memory until it fits with room."""
    for row in other_methods(found):
        yield f"Instead, {METHODS[row['trained']]}: {short_gib(row['needs_bytes'])}, {row['verdict']}."
    if found["verdict"] == WITH_ROOM:
        return
    for rung in found.get("ladder", []):
        yield f"With {rung['try']}: {short_gib(rung['needs_bytes'])}, {rung['verdict']}."
        if rung["verdict"] == WITH_ROOM:
            break
    if found["verdict"] == MISSES and found.get("fewest_gpus"):
        yield f"Fewest GPUs on which it fits: {found['fewest_gpus']:,}."


# --8<-- [end:brief]


# --8<-- [start:training]
def on_host(held: dict[str, int]) -> Iterator[tuple[str, str]]:
    """What the memory of a host has to hold, where something is offloaded."""
    if held:
        parts = ", ".join(f"{line} {gib(size)}" for line, size in held.items() if line != "total")
        yield "memory of a host, at least", f"{gib(held['total'])}: {parts}"


def training_table(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer to --task train."""
    counts = found["parameters"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}, trained are {counts['trained']:,}"
    for part in (*PARTS, "embedding", "head"):
        if counts.get(part):
            yield f"  {part.replace('_', ' ')}", f"{counts[part]:,}"
    if counts.get("predicting"):
        yield "  beside these", f"{counts['predicting']:,} of layers that predict further tokens"
    is_derived = found["peaks_at"] is not None
    yield from room(found, f"a GPU, at {found['peaks_at']}" if is_derived else "a GPU, at least, without activations")
    if paged := found["paged_bytes"]:
        yield "  and if there is room", f"{gib(paged)} of paged optimizer state"
    yield from on_host(found["host_bytes"])
    for name in ("largest_micro_batch", "longest_context", "fewest_gpus") if is_derived else ():
        yield name.replace("_", " "), f"{found[name]:,}" if found[name] else "none"
    for stage, size in found["zero_bytes"].items():
        yield f"with ZeRO {stage}", gib(size)
    for name, flops in found["flops_a_token"].items():
        again = f", of these again {flops['again']:.4g}" if flops["again"] else ""
        yield f"FLOPs a token, {name} pairs", f"{flops['model']:.4g}; the GPU does {flops['device']:.4g}{again}"
    assumed = f", from an assumed {found['assumed_mfu']:.0%}" if found["assumed_mfu"] else ""
    yield "MFU", f"{found['mfu']:.1%}{assumed}; of the peak in use {found['hfu']:.1%}"
    if fp8 := found.get("fp8"):
        layers = f"{fp8['share']:.1%} of the FLOPs at {fp8['format']}'s peak, attention and the head at that of 16 bits"
        yield "  whose peak is", f"{fp8['flop_per_second'] / 1e12:,.4g} TFLOP/s: {layers}"
        yield "  of 16 bits' alone it is", f"{fp8['mfu_of_16_bits']:.1%}"
    rate = f"{found['step_seconds']:.4g} s; {found['tokens_per_second']:,.0f} tokens/s"
    batches = f" in {found['accumulation']:,} micro-batches of each GPU" if found["accumulation"] > 1 else ""
    yield "a step", f"{found['step_tokens']:,} tokens{batches}, {rate}"
    if batch := found["large_batch"]:
        as_large = ", ".join(batch["as_large"]) or f"none that is published, {batch['largest']:,} at most"
        yield "  a large step", f"Llama 3.1 405B had {batch['usual']:,} tokens; as many as here had {as_large}"
    if (kind := found["matmul_format"]) != (asked := found["recipe_format"]):
        faster = f"this rate is {found['recipe_hfu']:.3g} times the {asked} peak, {found['hfu']:.1%} of that of {kind}"
        yield "multiplies in", f"{kind}: {f'the card has no {asked}' if kind == 'float16' else faster}"
    if wire := found["wire"]:
        waits = f"the step waits {wire['waits_seconds']:.3g} s" if wire["waits_seconds"] else "longer than the step"
        over = f"over {wire['link']} at {wire['bytes_per_second'] / 1e9:.4g} GB/s, {REACHED:.0%} of nominal"
        hidden = "hidden behind matmuls" if wire["hidden"] else waits
        yield "sent by a GPU a step", f"{gib(wire['bytes'])}, {wire['seconds']:.3g} s {over}: {hidden}"
        yield "  matmuls hide it from", f"{wire['tokens']:,.0f} tokens of a micro-batch"
    if text := found["text"]:
        measured = f"{text['language']}, measured with {text['vocab']:,} tokens" if text["vocab"] else "as given"
        yield "text", f"{text['bytes']:,} B at {text['bytes_a_token']:.4g} bytes a token ({measured})"
    if found["tokens"]:
        yield "training", f"{found['tokens']:,} tokens, {spent(found, found)}"
        yield from in_time(found)
        yield "FLOPs of the training", f"{found['training_flops']:.4g}"
    if steps := found["published_mfu"]:
        reached = f"{steps['low']:.0%} to {steps['high']:.0%}, eight of ten of {steps['readings']} on {steps['cards']}"
        yield "  published steps", reached
    for row in found["by_mfu"]:
        nearest = runs_nearest(row["mfu"], [each["mfu"] for each in found["by_mfu"]])
        runs = "; ".join(f"{run.name}: {run.percent} %" for run in nearest) or "no published run is nearer"
        runs = "of runs in fp8 none is known here" if "fp8" in found else runs
        costs = spent(found, row) if row["tokens"] else f"{row['tokens_per_second']:,.0f} tokens/s"
        yield f"at an MFU of {row['mfu']:.0%}", f"{costs} ({runs})"
    alone = gib(found["checkpoint_weights_bytes"])
    yield "checkpoint", f"{gib(found['checkpoint_bytes'])}; weights in 16 bits alone {alone}"
    for row in found["methods"]:
        if row["trained"] != found["trained"]:
            again = ", every layer checkpointed" if row["checkpointing"] == "full" else ""
            yield f"{METHODS[row['trained']]} instead", f"{gib(row['needs_bytes'])}{again}: {row['verdict']}"
    for rung in found["ladder"] if found["verdict"] != WITH_ROOM else []:
        cost = f", costs {rung['adds_seconds_a_step']:.3g} s a step" if rung["adds_seconds_a_step"] else ""
        cost += f", moves {gib(rung['moves_bytes_a_step'])} a step" if rung["moves_bytes_a_step"] else ""
        yield f"try {rung['try']}", f"frees {gib(rung['frees_bytes'])}{cost}: {rung['verdict']}"
    if found["estimated"]:
        yield "estimated, not counted", ", ".join(found["estimated"])


# --8<-- [end:training]


# --8<-- [start:serving]
def serving_table(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer to --task serve."""
    counts = found["parameters"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}"
    yield from room(found, f"a GPU, {people(found['users'])}")
    yield "keys and values", f"{found['token_bytes']:,} B a token, {gib(found['user_bytes'])} a user"
    yield "users that fit", f"{found['users_that_fit']:,}"
    if found["latency_seconds"]:
        late = "" if found["in_time"] else f"; a token takes {1e3 / found['each_per_second']:.4g} ms, too long"
        yield "users in time", f"{found['users_in_time']:,}{late}"
    yield "longest context", f"{found['longest_context']:,}"
    yield "fewest GPUs", f"{found['fewest_gpus']:,}" if found["fewest_gpus"] else "none"
    alone = f"for one user alone {1e3 / found['alone_per_second']:.4g} ms"
    yield "a token, at least", f"{1e3 * found['token_seconds']:.4g} ms; {alone}"
    if found["with_prompts_seconds"]:
        yield "  and all prompts between", f"{1e3 * found['with_prompts_seconds']:.4g} ms"
    yield (
        "tokens/s, at most",
        f"{digits(found['each_per_second'])} for each, {digits(found['tokens_per_second'])} for all",
    )
    low, high = found["reached_per_second"]
    yield (
        "  engines reached",
        f"{ENGINES_REACH[0]:.0%} to {ENGINES_REACH[1]:.0%} of the bound: {digits(low)} to {digits(high)} for each",
    )
    yield "first token, at least", f"{found['first_token_seconds']:.4g} s, in which all others wait"
    if found["money_a_million"]:
        yield "a million tokens", f"at least {pay(found, found['money_a_million'], ',.3g')}"
    for row in found["formats"]:
        size = f"{gib(row['weights_bytes'])}, {people(row['users'])}"
        rates = f"{digits(row['alone_per_second'])} tokens/s for one alone, {digits(row['tokens_per_second'])} for all"
        yield f"weights {row['weights']}, cache {row['cache']}", f"{size}, {rates}"
    if found["estimated"]:
        yield "left out, or estimated", ", ".join(found["estimated"])


# --8<-- [end:serving]


# --8<-- [start:parallel]
def parallel_table(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer about a layout."""
    counts, layout = found["parameters"], found["layout"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}"
    yield "layout", layout_words(layout)
    if context := found.get("assumed", {}).get("context"):
        yield "context, assumed", f"{context:,} tokens"
    lines = {line: size for line, size in found["memory_bytes"].items() if size and line != "total"}
    yield from ((f"  {line}", gib(size)) for line, size in lines.items())
    rank, ranks = found["fullest_rank"], found["ranks"]
    of = f"fullest: rank {rank} of {len(ranks)} in line" if len(ranks) > 1 else "a GPU"
    yield of, gib(found["memory_bytes"]["total"])
    yield "it has", f"{gib(found['gpu_bytes'])}{SAID[found['gpu_bytes_are']]}: {judgement(found)}"
    if len(ranks) > 1:
        holds = f"{ranks[rank]['layers']} layers, {ranks[rank]['parameters']:,} parameters before ZeRO"
        yield "  it computes", f"{holds}; {ranks[rank]['in_flight']} passes wait for their backward ones at most"
        yield "  the others need", ", ".join(gib(each["needs_bytes"]) for each in ranks)
    for each in found["sent"]:
        over = f"{each['ranks']} ranks over the {each['level']} at {each['bytes_per_second'] / 1e9:.4g} GB/s"
        how_long = f"{gib(each['bytes'])}, {each['seconds']:.3g} s; {each['collective']} of {over}"
        yield f"sent by {each['by']}", how_long
    yield "bubble", f"{found['bubble_share']:.1%} of a step"
    yield (
        "a step",
        f"{found['step_tokens']:,} tokens, {found['step_seconds']:.4g} s; "
        + (f"{found['tokens_per_second']:,.0f} tokens/s"),
    )
    yield "  of these", ", ".join(f"{line} {seconds:.3g}" for line, seconds in found["seconds"].items() if seconds)
    if found["matmul_share"]:
        yield "  while nothing waits", f"matmuls reach {found['matmul_share']:.1%} of the peak: an assumption"
    else:
        between = f"{found['least_step_seconds']:.4g} and {found['most_step_seconds']:.4g} s"
        yield "  by published rates", f"and as much longer as published steps took, eight of ten between {between}"
    yield "MFU", f"{found['mfu']:.1%}"
    if found["tokens"]:
        yield "training", f"{found['tokens']:,} tokens, {spent(found, found)}"
    if found["layouts_that_fit"] is not None:
        yield "layouts that fit", f"{found['layouts_that_fit']:,}, the fastest first"
    for number, each in enumerate(found["layouts"], start=1):
        speed = f"{each['step_seconds']:.4g} s, MFU {each['mfu']:.1%}, {gib(each['needs_bytes'])}"
        yield f"  {number}", f"{layout_words(each)}: {speed}; most lost to {each['binds']}, {each['binds_share']:.0%}"
    for each in found["remedies"]:
        yield (
            f"with {each['try']}",
            f"{gib(each['needs_bytes'])}, a step {each['step_seconds']:.4g} s: {each['verdict']}",
        )
    assumed = ["kernels of smaller matmuls"] if found["matmul_share"] else []
    yield "left out", ", ".join(["latency", *assumed, "uneven experts", *found["left_out"]])


def layout_words(layout: dict[str, Any]) -> str:
    """Its degrees that split something, and how its batch is taken."""
    degrees = [f"{name.upper()} {layout[name]}" for name in ("tp", "cp", "pp", "ep") if layout[name] > 1]
    stages = f" of {layout['virtual_stages']} stages a rank" if layout["virtual_stages"] > 1 else ""
    schedule = f", {layout['schedule']}{stages}" if layout["pp"] > 1 else ""
    again = "" if layout["checkpointing"] == "none" else f", {layout['checkpointing']} checkpointing"
    batch = f"{layout['micro_batches']} micro-batch{'' if layout['micro_batches'] == 1 else 'es'}"
    split = " ".join([*degrees, f"DP {layout['data']}"])
    return f"{split}, ZeRO {layout['zero']}{schedule}, {batch}{again}"


# --8<-- [end:parallel]


# --8<-- [start:rl]
def rl_table(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of an answer to --task rl: each phase, then the fullest beside the card."""
    counts, least = found["parameters"], found["least_seconds"]
    yield "parameters", f"{counts['total']:,}; a token meets {counts['active']:,}, trained are {counts['trained']:,}"
    for phase, lines in found["phases"].items():
        at = f", at {found['training_peaks_at']}" if phase == "training" else ""
        at_once = f", {found['answers_at_once']:,} of {found['answers']:,} answers at once"
        yield f"{phase}{at}", f"{gib(lines['total'])}{at_once if phase == 'sampling' else ''}"
        parts = ((line, size) for line, size in lines.items() if size and line != "total")
        yield from ((f"  {line.replace('_', ' ')}", gib(size)) for line, size in parts)
        if least and least[phase]:
            yield (
                "  takes, at least",
                f"{least[phase]:,.4g} s, {least[phase] / sum(least.values()):.0%} of a step's bounds",
            )
    yield f"most is held in {found['peaks_in']}", gib(found["memory_bytes"]["total"])
    yield "it has", f"{gib(found['gpu_bytes'])}{SAID[found['gpu_bytes_are']]}: {judgement(found)}"
    yield "left out", "rewards, activations of scoring, the engine's own workspace beyond its share"


# --8<-- [end:rl]
