"""What the planner's form asks of the library, and how a page writes the answer.

Translated to JavaScript with it, so that a test can hold the page's numbers against these, to the last digit.
"""

from __future__ import annotations

import re
from typing import Any

from flops_bytes.plan.assumptions import CHOSEN, CompleteQuestion, complete_question, plan_with_choices
from flops_bytes.plan.evidence import MISSES
from flops_bytes.plan.fleet import has_deadline, plan_for_deadline, settled
from flops_bytes.plan.model import read_named
from flops_bytes.plan.options import OPTIONS, belongs, read_option
from flops_bytes.plan.serving import ENGINES_REACH
from flops_bytes.plan.training import flops_a_token, needed_bytes

NAME = re.compile(r"[\w\./:-]+", re.ASCII)  # of a model or its repository, which may be pasted for a config.json
FORMATS = {"float32": "fp32", "tf32": "tf32", "bfloat16": "bf16", "float16": "fp16", "float8": "fp8", "float4": "fp4"}
COUNTED = {  # tokens, as each language counts them
    "en": {"T": 10**12, "B": 10**9, "M": 10**6, "k": 1000},
    "zh": {" 万亿": 10**12, " 亿": 10**8, " 万": 10**4, " ": 1},
}
RAISED = {48 + n: digit for n, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}


def asked(fields: dict[str, str]) -> dict[str, Any]:
    """Options of the planner from the fields of the form; an empty field is not asked."""
    told = {name: text.strip() for name, text in fields.items() if text.strip()}
    serving = told.get("task") == "serve"
    task = "serve" if serving else "train"
    options: dict[str, Any] = {name: text for name, text in told.items() if name in OPTIONS and belongs(name, task)}
    no_default = (*CHOSEN, "weights")  # but one that the model tells
    options = {name: text for name, text in options.items() if text != OPTIONS[name].default or name in no_default}
    for own in ("config", "shape"):  # written out instead of a name
        if told.get("model") == own:
            options |= {"model": None, own: told.get(own, " ")}
            if own == "config" and NAME.fullmatch(options[own]):
                options |= {"model": options[own], "config": None}
        else:
            options[own] = None
    if told.get("gpu") == "other":
        options |= {"gpu": None, "gpu_memory": told.get("gpu_memory", " "), "gpu_peak": told.get("gpu_peak", " ")}
    else:
        options |= {"gpu_memory": None, "gpu_peak": None, "gpu_bandwidth": None}
    if serving:
        return options
    gpus = read_option("gpus", told.get("gpus", "1"))
    if gpus == 1 and ("gpus" in told or not has_deadline(told)):
        options["zero"] = None  # nobody to share with
    options["base"] = None  # which what is trained tells
    if told.get("trained") == "all":
        options["lora"] = None
    if told.get("trained", "all") == "all" and not options.get("lora"):
        options["lora_on"] = None
    language = told.get("tokens_in", "tokens")
    if language != "tokens":
        options |= {"tokens": None, "text": told.get("tokens"), "language": language}
    speed = told.get("speed")
    if speed:
        kind = told.get("speed_in", "mfu")
        if kind == "each" and "gpus" in told:
            options["tokens_per_second"] = read_option("tokens_per_second", speed) * gpus
        else:
            options["tokens_per_second" if kind == "each" else kind] = speed
    return options


def completed(told: dict[str, str], first: dict[str, str]) -> dict[str, str]:
    """Fields from an address: what says no model asks about the example, what says no GPU about the example's."""
    own = "config" if "config" in told else "shape"
    if own in told:
        told = {"model": own} | told
    if "model" in told:
        return {"gpu": first["gpu"]} | told
    return {name: text for name, text in first.items() if name != "tokens" or "days" not in told} | told


def ignored(fields: dict[str, str], options: dict[str, Any]) -> list[str]:
    """Fields that are filled in and change nothing."""
    if options.get("task") == "serve":
        return []
    filled = {name for name, text in fields.items() if text.strip()}
    alone = options.get("zero") is None
    unused = {
        "zero": alone and fields.get("zero", "").strip() not in ("", "0"),
        "link": alone and read_option("gpus", options.get("gpus", "1")) == 1 and "link" in filled,
        "lora": "lora" in filled and not options.get("lora"),
        "price": "price" in filled and not any(options.get(name) for name in ("tokens", "text", "days")),
    }
    return [name for name, is_so in unused.items() if is_so]


def answer(fields: dict[str, str]) -> dict[str, Any]:
    """What was found, beside it each number as it is written, and the command that gives the same: of the few models
    that are known here. Raises ValueError about --model or --config for all others."""
    options = asked(fields)
    return written(fields, options, plan_for_deadline(options, lambda each: plan_with_choices(each, each, read_named)))


def written(fields: dict[str, str], options: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """An answer as the page takes it."""
    numbers = shown_serving(found) if options.get("task") == "serve" else shown(found, options.get("pairs", "all"))
    numbers |= asked_for(found, options)
    return {"found": found, "shown": numbers, "command": command(options), "ignored": ignored(fields, options)}


def asked_for(found: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """What was asked about, and what was assumed for it."""
    chosen = {name: f"{value:,}" if name == "context" else value for name, value in found["assumed"].items()}
    if options.get("task") != "serve":
        usual = {"micro_batch": "1"} | ({"recipe": "bf16-master"} if found["trained"] == "all" else {})
        chosen |= {name: value for name, value in usual.items() if name not in options}
    elif "weights" not in options:
        chosen |= {"weights": found["weights"][:-3]}
    fleet = found.get("fleet")
    return {
        "gpus": f"{read_option('gpus', settled(options, found).get('gpus', '1')):,}",
        "gpu": options.get("gpu"),
        "needed": f"{fleet['gpus']:,}" if fleet else None,
        "run_needed": f"{fleet['run_gpus']:,}" if fleet and fleet["run_gpus"] else None,
        "deadline": duration(86_400 * fleet["days"]) if fleet else None,
        "chosen": chosen,
    }


def recomputing(fields: dict[str, str]) -> dict[str, str]:
    """What checkpointing of every layer frees, against none, and by how many per cent a step takes longer."""
    options = asked(fields)
    if has_deadline(options):
        options = settled(options, plan_for_deadline(options, lambda each: plan_with_choices(each, each, read_named)))
    return freed(complete_question(options, options, read_named))


def freed(question: CompleteQuestion) -> dict[str, str]:
    a, model = question.a | {"checkpoint_every": 1}, question.model
    without, full = (needed_bytes(a | {"checkpointing": kind}, model) for kind in ("none", "full"))
    flops = flops_a_token(a | {"checkpointing": "full"}, model, a["pairs"] == "causal")
    return {
        "frees": gib(without - full),
        "costs": f"{100 * flops['again'] / (flops['device'] - flops['again']):.0f}",
    }


def command(options: dict[str, Any]) -> str:
    given = {name: str(value) for name, value in options.items() if value is not None and value != "train"}
    if "config" in given:
        given["config"] = "config.json"
    if "-" not in given.get("lengths", "-") != "packed":  # a list of them
        given["lengths"] = "lengths.txt"
    words = [f"--{name.replace('_', '-')} {quotes(text)}" for name, text in given.items()]
    return " ".join(["flops-bytes plan", *words])


def quotes(text: str) -> str:
    """As a shell has to be told it."""
    if "$" in text:
        return f"'{text}'"
    return f'"{text}"' if " " in text else text


def gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


def significant(number: float) -> str:
    """Three digits at least; no digit before the point is dropped, and what is next to nothing is said to be."""
    if 0 < number < 0.001:
        return "< 0.001"
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def scientific(number: float) -> str:
    """Three digits, and a power of ten if there are more before the point."""
    digits, _, exponent = f"{number:.3g}".partition("e+")
    return f"{digits} × 10{str(int(exponent)).translate(RAISED)}" if exponent else digits


def amount(number: float, scales: dict[str, int]) -> str:
    """A number of tokens, short: with the largest scale of which there is at least one."""
    for unit, scale in scales.items():
        if number >= scale:
            return f"{significant(number / scale)}{unit}"
    return f"{number:,}"


def paid(found: dict[str, Any], money: float | None) -> str | None:
    """Money, with the sign of its currency if the price has one; to a cent."""
    if not money:
        return None
    less, sum_of_money = ("< ", "0.01") if money < 0.01 else ("", significant(money))
    return f"{less}{found['currency'] or ''}{sum_of_money}"


def decimal(size: float) -> str:
    """Bytes of text or of a disk, which are counted in thousands."""
    for unit, scale in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= scale:
            return f"{significant(size / scale)} {unit}"
    return f"{significant(size / 1000)} kB"


def duration(seconds: float) -> list[str]:
    """A number and its unit: the largest of which there is at least one."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1)):
        if seconds >= size:
            return [significant(seconds / size), unit]
    return [f"{1000 * seconds:.3g}", "milliseconds"]


def shown_of_both(found: dict[str, Any]) -> dict[str, Any]:
    """What the answers to a training and to serving have in common."""
    count = found["parameters"]
    return {
        "parameters": f"{count['total']:,}",
        "active": f"{count['active']:,}",
        "lines": {line: gib(size) for line, size in found["memory_bytes"].items() if size and line != "total"},
        "total": gib(found["memory_bytes"]["total"]),
        "card": gib(found["gpu_bytes"]),
        "headroom": gib(abs(found["headroom_bytes"])),
        "times": f"{found['room_ratio']:.2f}" if "room_ratio" in found else None,
        "with_room": gib(found["with_room_bytes"]) if "room_ratio" in found else None,
        "context": counted(found["longest_context"]),
        "fewest": f"{found['fewest_gpus']:,}" if found["fewest_gpus"] else None,
    }


def shown(found: dict[str, Any], pairs: str) -> dict[str, Any]:
    """The numbers of an answer as text, but for words, which each language has of its own."""
    batch, steps = found["large_batch"], found["published_mfu"]
    return (
        shown_of_both(found)
        | shown_runs(found)
        | {
            "trained": f"{found['parameters']['trained']:,}",
            "predicting": counted(found["parameters"].get("predicting")),
            "micro_batch": counted(found["largest_micro_batch"]),
            "paged": gib(found["paged_bytes"]) if found["paged_bytes"] else None,
            "host": gib(found["host_bytes"]["total"]) if found["host_bytes"] else None,
            "stages": {str(stage): gib(size) for stage, size in found["zero_bytes"].items()},
            "step_tokens": f"{found['step_tokens']:,}",
            "step": duration(found["step_seconds"]),
            "accumulation": f"{found['accumulation']:,}" if found["accumulation"] > 1 else None,
            "usual": f"{batch['usual']:,}" if batch else None,
            "as_large": ", ".join(batch["as_large"]) or None if batch else None,
            "beyond": f"{batch['largest']:,}" if batch and not batch["as_large"] else None,
            "assumed": f"{100 * found['assumed_mfu']:.0f}" if found["assumed_mfu"] else None,
            "steps": f"{100 * steps['low']:.0f}–{100 * steps['high']:.0f}" if steps else None,
            "steps_on": steps["cards"] if steps else None,
            "mfu": f"{100 * found['mfu']:.1f}",
            "hfu": f"{100 * found['hfu']:.1f}",
            "recipe_format": FORMATS[found["recipe_format"]],
            "format": FORMATS[found["matmul_format"]],
            "of_peak": f"{found['recipe_hfu']:.2f}",
            "tokens": f"{found['tokens']:,}" if found["tokens"] else None,
            "flops_token": scientific(found["flops_a_token"][pairs]["model"]),
            "flops": scientific(found["training_flops"]) if found["training_flops"] else None,
            "checkpoint": gib(found["checkpoint_bytes"]),
            "weights": gib(found["checkpoint_weights_bytes"]),
            "sent": gib(found["wire"]["bytes"]) if found["wire"] else None,
            "link": found["wire"]["link"] if found["wire"] else None,
            "sent_in": duration(found["wire"]["seconds"]) if found["wire"] else None,
            "sent_at": significant(found["wire"]["bytes_per_second"] / 1e9) if found["wire"] else None,
            "waits": duration(found["wire"]["waits_seconds"])
            if found["wire"] and found["wire"]["waits_seconds"]
            else None,
            "hidden_from": significant(found["wire"]["tokens"]) if found["wire"] else None,
            "text": decimal(found["text"]["bytes"]) if found["text"] else None,
            "text_rate": significant(found["text"]["bytes_a_token"]) if found["text"] else None,
            "text_vocab": f"{found['text']['vocab']:,}" if found["text"] and found["text"]["vocab"] else None,
        }
    )


def counted(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def shown_runs(found: dict[str, Any]) -> dict[str, Any]:
    """What a training takes and costs, by the assumed MFU of a good step and of a whole run, or by the speed that was
    told; of one that does not fit nothing."""
    whole = found["by_mfu"][-1] if found["by_mfu"] else None
    numbers = shown_run(found, found)
    if whole:
        numbers |= {f"run_{name}": text for name, text in shown_run(found, whole).items()}
        numbers["run_mfu"] = f"{100 * whole['mfu']:.0f}"
    return numbers


def shown_run(found: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    is_told = found["verdict"] != MISSES and row["days"]
    return {
        "speed": significant(row["tokens_per_second"]),
        "amount": {language: amount(row["tokens"] or 0, scales) for language, scales in COUNTED.items()},
        "time": duration(86_400 * row["days"]) if is_told else None,
        "gpu_hours": significant(row["gpu_hours"]) if is_told else None,
        "money": paid(found, row["money"]) if is_told else None,
    }


def shown_serving(found: dict[str, Any]) -> dict[str, Any]:
    """The same of an answer to what serving takes."""
    return shown_of_both(found) | {
        "token_cache": kib(found["token_bytes"]),
        "user_cache": gib(found["user_bytes"]),
        "users": f"{found['users']:,}",
        "fit": f"{found['users_that_fit']:,}",
        "in_time": None if found["users_in_time"] is None else f"{found['users_in_time']:,}",
        "token": duration(found["token_seconds"]),
        "latency": duration(found["latency_seconds"]) if found["latency_seconds"] else None,
        "each": significant(found["each_per_second"]),
        "alone": significant(found["alone_per_second"]),
        "all": significant(found["tokens_per_second"]),
        "prompts": duration(found["with_prompts_seconds"]) if found["with_prompts_seconds"] else None,
        "reached": " … ".join([significant(rate) for rate in found["reached_per_second"]]),
        "reached_low": f"{100 * ENGINES_REACH[0]:.0f}",
        "reached_high": f"{100 * ENGINES_REACH[1]:.0f}",
        "first": duration(found["first_token_seconds"]),
        "money": paid(found, found["money_a_million"]),
        "formats": [
            {
                "weights": row["weights"],
                "cache": row["cache"],
                "size": gib(row["weights_bytes"]),
                "users": f"{row['users']:,}",
                "alone": significant(row["alone_per_second"]),
                "all": significant(row["tokens_per_second"]),
            }
            for row in found["formats"]
        ],
    }


def kib(size: float) -> str:
    return f"{size / 2**10:,.1f} KiB"
