# /// script
# requires-python = ">=3.11"
# [tool.ledger]
# data = ["measurements/published/*.toml"]
# ///
"""Steps that others published of their GPUs: bytes by formula and milliseconds by published rates, beside theirs.

All is counted, in Python alone. Times of a step are in milliseconds, rounded to a microsecond.
"""

import statistics
from math import prod
from pathlib import Path
from typing import Any

from flops_bytes.memory.events import Event, live_bytes, step_events
from flops_bytes.memory.step import StepConfig, decoder_moments, family_of
from flops_bytes.model.stack import stack_of
from flops_bytes.plan.options import named_shape, read_options
from flops_bytes.plan.step_time import StepTime, step_time
from flops_bytes.time import rates
from flops_bytes.time.gpus import GPUS
from published.readings import A_GPU, Reading, read_source
from published.step_times import Rated, rated

FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())


def read_row(source: str, table: str, row: int) -> dict[str, Reading]:
    """The readings of one published row, by what each is."""
    _, readings = read_source(FOLDER / f"{source}.toml")
    return {each.what: each for each in readings if (each.table, each.row) == (table, row)}


def ms_of(readings: dict[str, Reading], tokens: int) -> float:
    """Of a step of so many tokens a GPU, or on all of them if the row counts them together."""
    reading = readings.get(A_GPU) or readings["tokens_per_second"]
    return round(1e3 * tokens / reading.value, 3)


def in_ms(of: StepTime) -> dict[str, dict[str, float]]:
    """Each line and their sum: low, assumed and high."""
    lines = {line.replace(" ", "_").replace("-", "_"): each for line, each in of.lines.items()} | {"sum": of.seconds}
    return {
        line: {name: round(1e3 * each, 3) for name, each in seconds._asdict().items()}
        for line, seconds in lines.items()
    }


# --8<-- [start:run]
SEQ_LEN, SEQUENCES = 4_096, 2
RUN = {
    "shape": """layers=28 d_model=3072 heads=24 kv_heads=8 head_dim=128
                d_ff=8192 vocab=128256 tied=yes""",  # Llama 3.2 3B
    "gpu": "A100 80GB SXM",
    "recipe": "bf16",  # weights, gradients and AdamW's moments
    "layers": "composed",  # several kernels a norm, as before torch.compile
    "context": SEQ_LEN,
    "micro_batch": SEQUENCES,
}
SHAPE = named_shape(read_options(RUN))
run_moments = decoder_moments(SHAPE, SEQ_LEN, SEQUENCES, "bf16", composed=True)
for line, size in run_moments["loss"].items():
    if size > 2**20:
        print(f"{line:14}{size / 2**30:6.1f} GiB")

run_step = step_time(read_options(RUN), compiled=False)
for line, seconds in run_step.lines.items():
    if seconds.assumed:
        print(f"{line:14}{1e3 * seconds.assumed:6.0f} ms")
# --8<-- [end:run]


# --8<-- [start:moments]
for moment, lines in run_moments.items():
    print(f"{moment:12}{sum(lines.values()) / 2**30:6.1f} GiB")
# --8<-- [end:moments]


def curve_of(events: list[Event]) -> tuple[dict[str, list[int]], int]:
    """What is alive where that is most, in each of 150 columns of a chart, in which the step does as many FLOPs; and
    the one in which the backward pass begins."""
    state = dict.fromkeys(("weights", "master", "optimizer", "batch"), "state") | {"copies": "activations"}
    whole, done, backward = sum(event.flops for event in events), 0, 0
    alive = dict.fromkeys(("state", "gradients", "activations", "logits"), 0)
    columns: list[dict[str, int]] = []
    for event in events:
        if event.nbytes:
            alive[state.get(event.line, event.line)] += event.nbytes
        done += event.flops
        column = min(150 * done // whole, 149)
        while len(columns) <= column:
            columns.append(alive.copy())
        if event.phase == "forward":
            backward = column
        columns[column] = max(columns[column], alive.copy(), key=lambda kinds: sum(kinds.values()))
    assert max(live_bytes(events)) == max(sum(column.values()) for column in columns)
    return {kind: [column[kind] for column in columns] for kind in alive}, backward


stack = stack_of(SHAPE)
events = step_events(stack, family_of(stack, composed=True), StepConfig(SEQ_LEN, SEQUENCES, "bf16"))
assert max(live_bytes(events)) == max(sum(lines.values()) for lines in run_moments.values())
run_curve_bytes, run_forward_to_backward = curve_of(events)

# --8<-- [start:checkpointed]
fewer = decoder_moments(SHAPE, SEQ_LEN, SEQUENCES, "bf16", loss="compiled", checkpointing="full")
for moment, lines in fewer.items():
    print(f"{moment:12}{sum(lines.values()) / 2**30:6.1f} GiB")
# --8<-- [end:checkpointed]

RUN_TOKENS = SEQ_LEN * SEQUENCES
run_moment_bytes = {moment: sum(lines.values()) for moment, lines in run_moments.items()}
run_peak_at = max(run_moment_bytes, key=lambda moment: run_moment_bytes[moment])
assert run_peak_at == "loss"
run_lines_bytes = {line: size for line, size in run_moments[run_peak_at].items() if size}
last_moment_bytes = {moment: sum(lines.values()) for moment, lines in fewer.items()}
run_ms = in_ms(run_step)
CARD = "A100 80GB SXM"
PEAK = rates.card_peak(CARD)
SUSTAINED = rates.matmul_rate(CARD, PEAK).assumed
SIDES = {"k_v": 1_024, "q_out": 3_072, "mlp": 8_192, "head": 128_256}  # beside the width
# FLOPs by that side, and how many SUSTAINED would do in the same time
run_work: dict[int, list[float]] = {side: [0, 0] for side in SIDES.values()}
for product in rates.matmul_products(SHAPE, RUN_TOKENS, "none", 1, True):
    work = run_work[prod(product.size) // (RUN_TOKENS * SHAPE.d_model)]
    work[0] += product.flops
    work[1] += product.flops / rates.size_share(CARD, *product.size)
run_size_share = {name: round(run_work[side][0] / run_work[side][1], 4) for name, side in SIDES.items()}
run_flops = {
    "matmuls": int(sum(flops for flops, _ in run_work.values())),
    "attention_forward": 4 * SHAPE.d_model * SHAPE.layers * RUN_TOKENS * (SEQ_LEN + 1) // 2,
}
run_flops["model"] = run_flops["matmuls"] + 3 * 4 * SHAPE.d_model * SHAPE.layers * RUN_TOKENS * SEQ_LEN  # full square
forward, backward = rates.attention_rates(CARD, PEAK, SEQ_LEN, SHAPE.heads)
run_rates = {  # TFLOP/s
    "peak": round(PEAK / 1e12, 1),
    "matmuls": round(SUSTAINED / 1e12, 1),
    "reached": round(run_flops["matmuls"] / run_ms["matmuls"]["assumed"] / 1e9, 1),
    "average_share": round(run_flops["matmuls"] / run_ms["matmuls"]["assumed"] * 1e3 / SUSTAINED, 4),
    "forward": round(forward.assumed / 1e12, 1),
    "backward": round(backward.assumed / 1e12, 1),
}
run_terabytes = round(rates.pass_bandwidth(CARD, GPUS[CARD].bandwidth_bytes_per_second).assumed / 1e12, 3)
card_rates = {}  # TFLOP/s, attention's with 8,192 tokens and 32 heads
for _card in (CARD, "H100 SXM", "H200 SXM"):
    _peak, _bytes = rates.card_peak(_card), GPUS[_card].bandwidth_bytes_per_second
    _forward, _backward = rates.attention_rates(_card, _peak, 8_192, 32)
    _matmuls = rates.matmul_rate(_card, _peak).assumed
    card_rates[_card] = {
        "matmuls": round(_matmuls / 1e12, 1),
        "matmuls_share": round(_matmuls / _peak, 4),
        "forward": round(_forward.assumed / 1e12, 1),
        "backward": round(_backward.assumed / 1e12, 1),
        "terabytes": round(rates.pass_bandwidth(_card, _bytes).assumed / 1e12, 3),
    }
# GPT-2 small as gpt2_ladder trains it on an H200, eager with fused attention and compiled
LADDER = {"model": "gpt2", "gpu": "H200 SXM", "recipe": "autocast", "context": 1_024, "micro_batch": 8}
ladder_steps = {
    rung: step_time(read_options(LADDER | {"update": "foreach"}), compiled)
    for rung, compiled in {"attention": False, "compile": True}.items()
}
ladder_ms = {rung: round(1e3 * step.seconds.assumed, 1) for rung, step in ladder_steps.items()}
_matmul_seconds = {rung: step.lines["matmuls"].assumed for rung, step in ladder_steps.items()}
ladder_unaligned_ms = round(1e3 * (_matmul_seconds["attention"] - _matmul_seconds["compile"]), 1)
del ladder_steps
assert sum(rates.layer_moved_bytes(SHAPE, rates.Widths(2, 2), compiled=False, composed=True)) == 1_271_808  # a token
loss_logit_bytes = rates.loss_moved_bytes(SHAPE.vocab, 2, compiled=False) // SHAPE.vocab


TORCHTUNE = "torchtune", "Llama 3.2 3B"
_run_found = read_row(*TORCHTUNE, 1)
run_published = {
    "peak_bytes": int(_run_found["active_gib"].value),
    "rate": int(_run_found["tokens_per_second"].value),  # tokens a second
    "ms": ms_of(_run_found, RUN_TOKENS),
}
run_counted = {
    "peak_bytes": run_moment_bytes[run_peak_at],
    "low_ms": run_ms["sum"]["low"],
    "ms": run_ms["sum"]["assumed"],
    "high_ms": run_ms["sum"]["high"],
}
run_beside = {
    "peak_ratio": round(run_counted["peak_bytes"] / run_published["peak_bytes"], 4),
    "ms_ratio": round(run_counted["ms"] / run_published["ms"], 4),
}
run_line_share = {line: round(each["assumed"] / run_counted["ms"], 4) for line, each in run_ms.items()}
run_mfu_share = round(1e3 * run_flops["model"] / PEAK / run_published["ms"], 4)
run_bytes_ms = round(sum(run_ms[line]["assumed"] for line in ("element_wise", "loss", "update")), 3)
assert run_counted["low_ms"] < run_published["ms"] < run_counted["high_ms"]
run_missing_bytes = run_published["peak_bytes"] - run_counted["peak_bytes"]
run_lines_share = {line: round(size / run_counted["peak_bytes"], 4) for line, size in run_lines_bytes.items()}


# --8<-- [start:exercise]
MPT_OPTIONS = {
    "shape": "layers=32 d_model=4096 heads=32 kv_heads=32 head_dim=128 d_ff=16384 "
    "vocab=50368 positions=2048 tied=yes gated=no biases=yes norm_shift=yes",
    "gpu": "A100 40GB SXM",
    "gpus": 8,
    "zero": 3,
    "recipe": "autocast",
    "context": 2_048,
    "micro_batch": 12,
    "accumulation": 4,
    "checkpointing": "full",
}
mpt, newer = (step_time(read_options(MPT_OPTIONS), compiled=False, flash=version) for version in (1, 2))
for line, seconds in mpt.lines.items():
    if seconds.assumed:
        print(f"{line:24}{1e3 * seconds.assumed:8,.0f}{1e3 * newer.lines[line].assumed:8,.0f} ms")
print(f"{'together':24}{1e3 * mpt.seconds.assumed:8,.0f}{1e3 * newer.seconds.assumed:8,.0f} ms")
# --8<-- [end:exercise]

mpt_ms = in_ms(mpt)
flash_saves_ms = {line: round(each["assumed"] - in_ms(newer)[line]["assumed"], 3) for line, each in mpt_ms.items()}
assert {line for line, ms in flash_saves_ms.items() if ms} == {"attention", "recomputation", "sum"}
flash_saves_share = round(flash_saves_ms["sum"] / mpt_ms["sum"]["assumed"], 4)
MPT_TOKENS = 8 * 4 * 12 * 2_048
_mpt_found = read_row("llm-foundry", "MPT", 158)
mpt_published = {
    "rate": int(_mpt_found["tokens_per_second"].value),
    "ms": ms_of(_mpt_found, MPT_TOKENS),
    "line": _mpt_found["tokens_per_second"].line,
}
mpt_ratio = round(mpt_ms["sum"]["assumed"] / mpt_published["ms"], 4)
assert mpt_ms["sum"]["low"] < mpt_published["ms"] < mpt_ms["sum"]["high"]


TITAN_OPTIONS = {
    "model": "llama-3-8b",
    "gpu": "H100 SXM",
    "gpus": 8,
    "zero": 3,
    "recipe": "autocast",
    "layers": "composed",  # norms of several operations, until they are compiled
    "context": 8_192,
    "micro_batch": 2,
    "checkpointing": "per-op",
}
titan_terabytes = {"usual": GPUS["H100 SXM"].bandwidth_bytes_per_second / 1e12, "theirs": 2.4}  # 96 GB, HBM2e
BY_BYTES = ("element-wise", "recomputed element-wise", "loss", "update")


def on_their_cards(of: StepTime) -> StepTime:
    slower = titan_terabytes["usual"] / titan_terabytes["theirs"]
    return StepTime({line: each.times(slower if line in BY_BYTES else 1) for line, each in of.lines.items()})


usual = {way: step_time(read_options(TITAN_OPTIONS), compiled=way == "compiled") for way in ("eager", "compiled")}
titan = {way: on_their_cards(each) for way, each in usual.items()}
titan_ms = {way: in_ms(each) for way, each in titan.items()}
for line in ("element_wise", "recomputed_element_wise", "loss", "sum"):
    print(f"{line:24}" + "".join(f"{lines[line]['assumed']:9,.0f} ms" for lines in titan_ms.values()))


TITAN = "torchtitan", "8 GPUs, FSDP"
titan_published_ms = {way: ms_of(read_row(*TITAN, row), 2 * 8_192) for row, way in enumerate(titan)}
usual_ms = {way: round(1e3 * each.seconds.assumed, 3) for way, each in usual.items()}
titan_saved_ms = {
    "published": round(titan_published_ms["eager"] - titan_published_ms["compiled"], 3),
    "by_bytes": round(titan_ms["eager"]["sum"]["assumed"] - titan_ms["compiled"]["sum"]["assumed"], 3),
    "by_usual_bytes": round(usual_ms["eager"] - usual_ms["compiled"], 3),
}
titan_saved_bytes = round(titan_saved_ms["by_bytes"] / 1e3 * titan_terabytes["theirs"] * 1e12)
titan_saved_ratio = round(titan_saved_ms["by_bytes"] / titan_saved_ms["published"], 4)


# Each on top of those before. AdamW is fused: unfused, with a temporary of all weights, the fourth would peak at the
# update, higher than was measured. The loss in chunks keeps all logits in 16 bits.
TECHNIQUES: dict[str, dict[str, Any]] = {
    "packed": {"composed": True},
    "compiled": {},  # norms in one kernel each
    "chunked": {"loss": "compiled"},
    "checkpointed": {"loss": "compiled", "checkpointing": "full"},
    "in_backward": {"loss": "compiled", "checkpointing": "full", "update": "in-backward"},  # gradients do not add up
}


def moments_of(name: str) -> dict[str, int]:
    lines = decoder_moments(SHAPE, SEQ_LEN, SEQUENCES, "bf16", **TECHNIQUES[name])
    return {moment: sum(each.values()) for moment, each in lines.items()}


def time_of(name: str) -> float:
    choices = TECHNIQUES[name]
    composed, checkpointing = choices.get("composed"), choices.get("checkpointing", "none")
    asked = RUN | {"layers": "composed" if composed else "fused", "checkpointing": checkpointing}
    return in_ms(step_time(read_options(asked), compiled=not composed))["sum"]["assumed"]


by_formula = {
    name: {"formula_bytes": max(moments_of(name).values()), "formula_ms": time_of(name)} for name in TECHNIQUES
}
for name, said in by_formula.items():
    print(f"{name:14}{said['formula_bytes'] / 2**30:7.2f} GiB{said['formula_ms']:9,.0f} ms")


def published_row(row: int) -> dict[str, float]:
    found = read_row(*TORCHTUNE, row)
    return {"published_bytes": int(found["active_gib"].value), "published_ms": ms_of(found, RUN_TOKENS)}


rungs = {name: by_formula[name] | published_row(row) for row, name in enumerate(TECHNIQUES, 1)}
assert last_moment_bytes["update"] + run_moments["update"]["weights"] > 1.1 * rungs["checkpointed"]["published_bytes"]
run_embedding_bytes = 2 * SHAPE.vocab * SHAPE.d_model
chunked_saved_bytes = rungs["compiled"]["formula_bytes"] - rungs["chunked"]["formula_bytes"]
rung_saved_ms = {
    "published": round(rungs["packed"]["published_ms"] - rungs["compiled"]["published_ms"], 3),
    "by_bytes": round(rungs["packed"]["formula_ms"] - rungs["compiled"]["formula_ms"], 3),
}
rung_saved_ratio = round(rung_saved_ms["by_bytes"] / rung_saved_ms["published"], 4)
compiled_frees_bytes = {
    each: int(rungs["packed"][f"{each}_bytes"] - rungs["compiled"][f"{each}_bytes"])
    for each in ("published", "formula")
}
in_backward_ratio = round(rungs["in_backward"]["formula_bytes"] / rungs["in_backward"]["published_bytes"], 4)


LINES = {  # of the drawing, and what each adds up
    "matmuls": ("matmuls",),
    "recomputed": ("recomputation", "recomputed element-wise"),
    "attention": ("attention",),
    "elementwise": ("element-wise",),
    "loss": ("loss",),
    "update": ("update",),
    "communication": ("communication",),
}
tuned = step_time(read_options(RUN | {"layers": "fused"}), compiled=True)
PAIRS = {
    "tune_eager": (run_step, run_published["ms"]),
    "tune_compiled": (tuned, rungs["compiled"]["published_ms"]),
    "mpt": (mpt, mpt_published["ms"]),
    "titan_eager": (titan["eager"], titan_published_ms["eager"]),
    "titan_compiled": (titan["compiled"], titan_published_ms["compiled"]),
}
stacks = {
    name: {part: round(sum(1e3 * of.lines[line].assumed for line in lines) / ms, 4) for part, lines in LINES.items()}
    for name, (of, ms) in PAIRS.items()
}
stack_sum_ratio = {name: round(1e3 * of.seconds.assumed / ms, 4) for name, (of, ms) in PAIRS.items()}


def card(each: Rated) -> str:
    of = each.reading.settings["gpu"]
    return rates.card_family(str(of[0] if isinstance(of, list) else of))


def summed_up(steps: list[Rated]) -> dict[str, float]:
    """Assumed over published."""
    ratios = [each.ratio for each in steps]
    tenths = statistics.quantiles(ratios, n=10)
    return {
        "steps": len(steps),
        "median": round(statistics.median(ratios), 4),
        "low": round(tenths[0], 4),
        "high": round(tenths[-1], 4),
        "near_share": round(sum(abs(ratio - 1) <= 0.15 for ratio in ratios) / len(ratios), 4),
        "inside_share": round(sum(each.said.low <= each.seconds <= each.said.high for each in steps) / len(steps), 4),
    }


every = rated(FOLDER)
a100, h100 = ([each for each in every if card(each) == name] for name in ("A100", "H100"))
held = {
    "a100_card": summed_up([each for each in a100 if each.gpus == 1]),
    "a100_node": summed_up([each for each in a100 if 1 < each.gpus <= 8]),
    "a100_more": summed_up([each for each in a100 if each.gpus > 8]),
    "a100": summed_up(a100),
    "h100": summed_up(h100),
    "every": summed_up(every),
}
held_sources = len({each.reading.source for each in every})
held_others_median = round(statistics.median(each.ratio for each in h100 if each.reading.source != TITAN[0]), 4)
held_highest = round(max(each.ratio for each in h100), 4)
short = [each for each in every if each.reading.source == "qwen" and each.gpus == 1]
SHORT_SECONDS = {str(each.reading.settings["context"]): each.seconds for each in short}  # by tokens of a step
held_short_ratio = {str(each.reading.settings["context"]): round(each.ratio, 4) for each in short}
for name, said in held.items():
    print(f"{name:10}{said['steps']:4} steps, median {said['median']:.2f}, {said['inside_share']:.0%} inside")
