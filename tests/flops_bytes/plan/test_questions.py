"""No question to the planner ends in a traceback, a hang, a NaN or a contradiction.

Questions are drawn of all options together and asked as in a terminal. What is refused is mended as the sentence says,
until there is an answer. `python -m tests.flops_bytes.plan.test_questions 100000 SEED` draws so many, and says what
came of them; with a third number it begins at that draw. QUESTIONS_SEED sets the seed of the test.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as fields_of
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import planner
from flops_bytes.model.presets import PRESETS
from flops_bytes.model.shapes import SHAPES, Decoder
from flops_bytes.plan import plan
from flops_bytes.plan.__main__ import DOES_NOT_FIT, FITS, NOT_KNOWN, answer_lines, main
from flops_bytes.plan.evidence import MISSES, ON_PAPER, WITH_ROOM
from flops_bytes.plan.fleet import settled
from flops_bytes.plan.options import OPTIONS, ROWS, TRAINED, belongs
from flops_bytes.plan.parallel import ACCEPTED as OF_LAYOUTS
from flops_bytes.plan.parallel import DEGREES, PARALLEL
from flops_bytes.plan.rl import ACCEPTED as OF_RL
from flops_bytes.plan.rl import RL
from planner.answer import answer as answer_of_form
from planner.stacks import answer_any
from tests.draw import ALL as SLOW

MOST = 2**40  # beyond which no limit is looked for
SEED = int(os.environ.get("QUESTIONS_SEED", "17"))
PARTS, DRAWS = 3, 50  # of a test: about ten seconds each
SECONDS, ROOM_BYTES = 10, 2**30  # of a processor, and of memory, that a question may take
FEW_GPUS = 8  # whose layouts are all gone through
THROUGH_ALLOCATOR = 1 if SLOW else 0.15  # of what is asked in a terminal, where a step goes through it, so many
ALL = OPTIONS | PARALLEL | RL
SCHEMA = json.loads((Path(planner.__file__).parents[1] / "flops_bytes" / "plan" / "schema.json").read_text("utf-8"))
KINDS = {"phases": "rl", "layout": "parallel", "users": "serving", "peaks_at": "training"}
VALID = {
    field: jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]})
    for field, kind in KINDS.items()  # by a field that no other kind of answer has
}
WORDS_OF_MENDS = "give|choose|leave|ask|write|check|mend|estimate|shard|a guess, without these: --shape"
MEND = re.compile(rf"; (or )?({WORDS_OF_MENDS})\b[^;]*(; left out: .*)?$")
VERDICTS = (MISSES, ON_PAPER, WITH_ROOM)
SIGNED = ("headroom_bytes", "frees_bytes")  # the only bytes that can be fewer than none
Question = dict[str, Any]


# Questions

COUNTS = ("1", "1", "2", "3", "4", "5", "8", "8", "12", "16", "64", "100", "1000", "1M", "1e18")
LENGTHS = ("1", "2", "7", "128", "512", "1000", "1024", "2k", "4096", "8192", "8k", "32k", "128k", "1M", "1e12")
NUMBERS: dict[Any, tuple[str, ...]] = {
    "count": COUNTS,
    "length": LENGTHS,
    "bandwidth": ("1", "13.2GB/s", "400GB", "1e18"),
    "share": ("0.000001", "1%", "0.3", "40%", "0.5", "90%", "1"),
    "bytes": ("1", "100kB", "1MB", "512MiB", "1GB", "16GB", "80GB", "141GiB", "1TB", "1e18"),
    "number": ("0.000001", "0.3", "1", "4.2", "30", "1000", "1M", "1e18"),
    "money": ("0.000001", "$2.5", "¥18", "1e18"),
    "gpu_peak": ("1e9", "100T", "989T", "1e18"),
    "dropout": ("0", "0.1", "1"),
    "gpus": ("1", "1", "2", "3", "4", "6", "8", "8", "8", "16", "24", "64", "64", "256", "1024", "1M", "1e18"),
    "rank": ("0", "0", "1", "3", "63", "1e18"),
}
CONFIGS: tuple[Mapping[str, Any], ...] = tuple(preset.config for preset in PRESETS.values())
SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
SMALL |= {"intermediate_size": 128, "num_key_value_heads": 2}
CONFIGS += (
    {"model_type": "llama"} | SMALL,
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "attention_dropout": 0.1} | SMALL,
    {"model_type": "qwen2", "quantization_config": {"bits": 8}} | SMALL,
    {"model_type": "mistral", "sliding_window": 100} | SMALL,
    {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2} | SMALL,
    {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 100},
    {"model_type": "nosuch"} | SMALL,
)
SIZES: dict[str, tuple[int, ...]] = {  # of a --shape, the last of each the most
    "layers": (1, 2, 3, 7, 12, 32, 80, 126, 1_000, 10_000),
    "d_model": (64, 100, 768, 4_096, 16_384, 1, 10**9 - 1),
    "heads": (1, 2, 3, 8, 12, 32, 64, 128, 10**9 - 1),
    "head_dim": (32, 64, 128, 1, 10**9 - 1),
    "d_ff": (100, 512, 4_096, 14_336, 1, 10**9 - 1),
    "vocab": (257, 1_000, 50_257, 128_256, 1, 10**9 - 1),
    "positions": (1, 512, 4_096, 10**9 - 1),
    "experts": (2, 8, 60, 128, 10**9 - 1),
}
GROWN = ("layers", "d_model", "d_ff", "vocab")  # the sizes of which more is more memory, whatever else is asked
TASKS = {"train": 4, "layout": 3, "serve": 2, "rl": 2}


def shape(drawn: random.Random) -> str:
    """A --shape, mostly of sizes that there are."""

    def one(name: str) -> int:
        sizes = SIZES[name]
        return drawn.choice(sizes if drawn.random() < 0.1 else sizes[: -1 if len(sizes) < 6 else -2])

    told: dict[str, Any] = {name: one(name) for name in ("layers", "d_model", "heads", "head_dim", "d_ff", "vocab")}
    told["kv_heads"] = drawn.choice([each for each in (1, 2, 4, 8, told["heads"]) if told["heads"] % each == 0])
    if drawn.random() < 0.2:
        told["positions"] = one("positions")
    if drawn.random() < 0.3:
        told |= {"experts": one("experts"), "active_experts": drawn.choice((1, 2))}
    flags = [field.name for field in fields_of(Decoder) if field.type == "bool"]
    told |= {flag: drawn.choice(("yes", "no")) for flag in flags if drawn.random() < 0.2}
    return " ".join(f"{name}={value}" for name, value in told.items())


def model(drawn: random.Random) -> Question:
    """One of the three ways to say it."""
    way = drawn.random()
    if way < 0.45:
        return {"shape": shape(drawn)}
    if way < 0.6:
        return {"config": json.dumps(drawn.choice(CONFIGS))}
    return {"model": drawn.choice([*SHAPES, *PRESETS] if way < 0.8 else [*SHAPES])}


def card(drawn: random.Random) -> Question:
    """A row of the table, or a card by its numbers."""
    if drawn.random() < 0.8:
        return {"gpu": drawn.choice(["H100 SXM", "A100 80GB SXM", *ROWS])}
    names = ("gpu_memory", "gpu_peak", *(["gpu_bandwidth"] if drawn.random() < 0.5 else []))
    return {name: value(drawn, name) for name in names}


def value(drawn: random.Random, name: str) -> str:
    """What could stand behind an option."""
    kind = ALL[name].kind
    return drawn.choice(kind if isinstance(kind, tuple) else NUMBERS.get(name) or NUMBERS[kind])


def question(drawn: random.Random) -> tuple[str, Question]:
    """A task, and a question of it: a model, a card, some of its options, and now and then one that is not of it."""
    task = drawn.choices(list(TASKS), list(TASKS.values()))[0]
    own = {
        "train": [name for name in OPTIONS if belongs(name, "train")],
        "serve": [name for name in OPTIONS if belongs(name, "serve")],
        "layout": [*OF_LAYOUTS, *PARALLEL],
        "rl": [*OF_RL, *RL],
    }[task]
    asked = model(drawn) | card(drawn)
    often = drawn.choice((0.05, 0.15, 0.4))
    for name, option in ALL.items():
        apart = name == "task" or option.kind in ("text", "refused") or name.startswith("gpu_")
        apart = apart or name in DEGREES
        if drawn.random() < (often if name in own else 0.002) and not apart:
            asked[name] = value(drawn, name)
    if task == "layout":
        asked = laid_out(drawn, asked)
    if task in ("serve", "rl"):
        asked["task"] = task
    if task == "rl" and drawn.random() < 0.9:
        asked["answer"] = value(drawn, "answer")
    return task, asked


def laid_out(drawn: random.Random, asked: Question) -> Question:
    """A question about a layout: mostly as many GPUs as its degrees make together."""
    degrees = {name: drawn.choice((1, 2, 2, 3, 4, 8, 16)) for name in DEGREES if drawn.random() < 0.5}
    if drawn.random() < 0.05:
        degrees[drawn.choice([*DEGREES])] = drawn.choice((1, 1_000, 10**6, 10**18))
    asked |= {name: str(size) for name, size in degrees.items()}
    if drawn.random() < 0.9:
        times = drawn.choice((1, 2, 3, 8, 64)) * degrees.pop("ep", 1)
        asked["gpus"] = str(min(times * math.prod(degrees.values()), 10**18))
    return asked if {*asked} & {*PARALLEL} else asked | {"tp": "1"}


# Answers


class Broken(AssertionError):
    """A promise was not kept."""


class Refused(Exception):
    """A sentence, and the option that it names."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        self.name = sentence[2:].partition(":")[0].replace("-", "_")


def words(asked: Question) -> list[str]:
    return [word for name, told in asked.items() for word in (f"--{name.replace('_', '-')}", str(told))]


def bounded(asks: Callable[[], Any]) -> Any:
    """What is found within the seconds and the room that a question may take."""

    def late(*_: object) -> None:
        raise Broken(f"no answer after {SECONDS} s of a processor")

    # the processor's time, not a clock's: beside others a quick answer may be long in coming
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return asks()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def read_once(asked: Question) -> Question:
    """As the command hands it on."""
    return asked | {"config": json.loads(asked["config"])} if "config" in asked else asked


def ask(asked: Question) -> dict[str, Any]:
    """What is found, checked; Refused if it is not answered."""
    try:
        answered = bounded(lambda: plan(meters=False, **read_once(asked)))
    except ValueError as error:
        sentence = str(error)
        if not sentence.startswith("--") or Refused(sentence).name not in ALL or "\n" in sentence:
            raise Broken(f"names no option: {sentence}") from error
        if not MEND.search(sentence):
            raise Broken(f"ends in no mend: {sentence}") from error
        raise Refused(sentence) from error
    found: dict[str, Any] = json.loads(json.dumps(answered, allow_nan=False))
    (kind,) = (field for field in KINDS if field in found)
    if mistakes := list(VALID[kind].iter_errors(found)):
        raise Broken(f"is not what schema.json says: {mistakes[0].message[:300]}")
    for at, number in numbers(found):
        own = at.rpartition(".")[2]
        if number < 0 and own not in SIGNED and not own.startswith("fits"):
            raise Broken(f"{at} is {number}")
    return found


def answered(asked: Question) -> dict[str, Any] | None:
    """What is found; None if it is refused."""
    try:
        return ask(asked)
    except Refused:
        return None


def numbers(found: Any, at: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of an answer, and where each stands."""
    if isinstance(found, Mapping):
        for name, each in found.items():
            yield from numbers(each, f"{at}.{name}")
    elif isinstance(found, list):
        for each in found:
            yield from numbers(each, at)
    elif isinstance(found, int | float):
        yield at, found


def mended(drawn: random.Random, asked: Question, refused: Refused) -> Question:
    """The question without what was refused, or with what was missing."""
    name = refused.name
    said = [each for each in re.findall(r"--([a-z-]+)", refused.sentence) if each.replace("-", "_") in asked]
    if "leave it out" in refused.sentence and name in asked:
        return {key: told for key, told in asked.items() if key != name}
    if of := re.search(r"multiple of (\d+)", refused.sentence):
        if int(of[1]) < 10**16:
            return asked | {name: str(int(of[1]) * drawn.choice((1, 2, 100)))}
        name = max(DEGREES, key=lambda each: int(asked.get(each, "1")))
    if name in ("model", "config", "shape") or ("positions" in refused.sentence and drawn.random() < 0.5):
        return {key: told for key, told in asked.items() if key not in ("model", "config", "shape")} | model(drawn)
    if name in ("gpu", "gpu_memory", "gpu_peak"):
        return {key: told for key, told in asked.items() if key not in ("gpu", *NUMBERS) and key[:4] != "gpu_"} | card(
            drawn
        )
    if name == "context" or (name == "answer" and "context" in asked and drawn.random() < 0.5):
        return asked | {"context": drawn.choice(LENGTHS)}
    if name in ("answer", "gpu_bandwidth", "link") and (name not in asked or name == "answer"):
        return asked | {name: value(drawn, name)}
    if name not in asked:
        own = [each for each in asked if each not in ("model", "config", "shape", "gpu", "task")]
        name = drawn.choice([each.replace("-", "_") for each in said if each != refused.name] or own or [name])
    return {key: told for key, told in asked.items() if key != name}


# Contradictions


def fixed(asked: Question, found: Mapping[str, Any]) -> Question:
    """The same question, in which nothing is left to a default that depends on what is asked."""
    told = {name: str(each) for name, each in found["assumed"].items()} | settled(asked, found)
    told = {name: str(each) for name, each in told.items()}
    told.pop("global_batch", None)
    if "layout" in found:
        told.pop("accumulation", None)
        layout = found["layout"]
        return told | {"micro_batches": str(layout["micro_batches"]), "virtual_stages": str(layout["virtual_stages"])}
    if "users" in found:
        return told | {"users": str(found["users"])}
    if "global_batch" in asked:
        tokens = found["step_tokens"] // int(read_back(told, "gpus") * read_back(told, "micro_batch"))
        told["accumulation"] = str(tokens // read_back(told, "context"))
    return told


def read_back(asked: Question, name: str) -> int:
    """A whole number as the command reads it."""
    from flops_bytes.plan.options import read_option

    return int(read_option(name, asked.get(name, OPTIONS[name].default)))


def is_parted(asked: Question) -> bool:
    """In chunks: the last one has what the others leave over, which may be less of a few tokens more."""
    return asked.get("loss") == "chunked" or read_back(asked, "chunks") > 1


def total(found: Mapping[str, Any]) -> int:
    size: int = found["memory_bytes"]["total"]
    return size


def standing(found: Mapping[str, Any]) -> int:
    """Of its verdict, from that it does not fit up; in serving there are two."""
    return VERDICTS.index(found["verdict"]) if found.get("verdict") else int(found["fits"])


def grown(drawn: random.Random, asked: Question, found: Mapping[str, Any]) -> None:
    """Memory never falls, and what does not fit never fits again, when batch, context, layers or width grow."""
    asked = fixed(asked, found)
    in_blocks = asked.get("optimizer") in ("adamw-4bit", "adamw-fp8")  # which leave a tensor with a rest of one wide
    is_shape = "shape" in asked and drawn.random() < 0.7 and not in_blocks
    batch = "users" if "users" in found else "micro_batch"
    name = drawn.choice(GROWN if is_shape else ("context", batch))
    sizes = dict(part.split("=") for part in asked["shape"].split()) if is_shape else {}
    size = int(sizes[name]) if is_shape else read_back(asked, name)
    before, last = found, asked
    in_chunks = is_parted(asked) and name in ("context", "micro_batch")
    for _ in range(3):
        more_of_it = (size + 1, size + 2, 2 * size, 2 * size, size + drawn.randrange(1, 100), 8 * size)
        size = drawn.choice((2 * size, 8 * size) if in_chunks else more_of_it)
        if is_shape:
            more = asked | {"shape": " ".join(f"{key}={each}" for key, each in (sizes | {name: str(size)}).items())}
        else:
            more = asked | {name: str(size)}
        now = answered(more)
        if now is None:
            continue
        if now["fits"] is None:
            return  # from there on only the least is known
        if total(now) < total(before):
            raise Broken(f"{total(before) - total(now)} bytes fewer of {total(before)} than of {command(last)}", more)
        if standing(now) > standing(before):
            raise Broken(f"{now['verdict']}, and {before['verdict']}: {command(last)}", more)
        before, last = now, more


def at_limits(drawn: random.Random, asked: Question, found: Mapping[str, Any]) -> None:
    """What is said to be the most, or the fewest, fits, and the next one does not."""
    one, asked = {"users": asked.get("users", "1")} if "users" in found else {}, fixed(asked, found)
    names = {"largest_micro_batch": "micro_batch", "longest_context": "context", "fewest_gpus": "gpus"}
    names |= {"users_that_fit": "users"}
    for said, name in names.items():
        if said not in found:
            continue
        limit, fewest = found[said], said == "fewest_gpus"
        if limit is None:
            continue
        beyond = limit + 1 if limit < MOST and not is_parted(asked) else 0
        inside, outside = (limit, limit - 1) if fewest else (limit, beyond)
        for size, fits in ((inside, True), (outside, False)):
            if size < 1:
                continue
            more = asked | (one if fewest else {}) | {name: str(size)}
            questions = [more]
            if size == 1 and name == "gpus":  # one GPU shares with none, but DeepSpeed runs its stages there too
                sharded = ("zero", "sharding_by", "reduce_bucket")
                questions.append({key: each for key, each in more.items() if key not in sharded})
            answers = [now["fits"] for now in filter(None, map(answered, questions))]
            if answers and any(answers) is not fits:
                raise Broken(f"{said} is {limit}, but of {size} {'not ' if fits else ''}all fits", more)


def in_form(drawn: random.Random, asked: Question, found: Mapping[str, Any]) -> None:
    """The page's form, where it has all that is asked, says the same bytes and the same verdict."""
    if {"phases", "layout"} & {*found}:
        return
    told = {name: each for name, each in asked.items() if name != "task" or each == "serve"}
    fields: dict[str, str] = {}
    for own in ("config", "shape"):
        if own in told:
            fields |= {"model": own}
    if "gpu_memory" in told:
        fields |= {"gpu": "other"}
    base = told.pop("base", "as-recipe")
    if "lora" in told:
        fields |= {"trained": TRAINED[base]}
    if "text" in told:
        fields |= {"tokens": told.pop("text"), "tokens_in": told.pop("language", "en")}
    for speed in ("mfu", "tokens_per_second", "step_seconds"):
        if speed in told:
            fields |= {"speed": told.pop(speed), "speed_in": speed}
    known = {*planner.SHOWN, *planner.FOLDED}
    if any(name not in known | {"task"} or each in planner.UNASKED_VALUES.get(name, ()) for name, each in told.items()):
        return
    if fields.get("speed_in") == "tokens_per_second":
        return  # which the form asks of each GPU
    fields |= told
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="a config "
    ) as file:  # what is pasted, is read there
        if "config" in fields:
            file.write(fields["config"])
            file.flush()
            fields |= {"config": file.name}
        there = (answer_any if is_of_stacks(asked) else answer_of_form)(fields)["found"]
    said = ("memory_bytes", "fits", "verdict", "assumed")
    same = [there.get(name) for name in said] == [found.get(name) for name in said]
    if not same:
        of = (there["memory_bytes"], there["fits"], found["memory_bytes"], found["fits"])
        raise Broken(f"the form says otherwise: {of}")


def is_of_stacks(asked: Question) -> bool:
    return "config" in asked or asked.get("model", "gpt2") not in SHAPES


def in_terminal(drawn: random.Random, asked: Question, found: Mapping[str, Any]) -> None:
    """The command prints the same as JSON, with what meters will show, as lines too; its exit status is the verdict.

    Of a step that the allocator goes through, which takes the command a second or more, mostly the lines alone."""
    once, explain = read_once(asked), drawn.random() < 0.5
    if found.get("peaks_at") and drawn.random() > THROUGH_ALLOCATOR:
        answer = bounded(lambda: plan(meters=False, **once))
        as_lines(bounded(lambda: "\n".join(answer_lines(answer, settled(once, answer), explain))))
        return
    found = json.loads(json.dumps(bounded(lambda: plan(**once))))
    verdict = NOT_KNOWN if found["fits"] is None else DOES_NOT_FIT
    verdict = FITS if found["fits"] and found.get("in_time", True) else verdict
    for more in (["--json"], ["--explain"] if explain else []):
        out, wrong = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(wrong):
            status = bounded(partial(main, [*words(asked), *more]))
        said = out.getvalue()
        if wrong.getvalue() or status != verdict:
            raise Broken(f"exit status {status}, not {verdict}: {wrong.getvalue()}")
        if "--json" not in more:
            as_lines(said)
        elif json.loads(said) != {"asked": asked, "found": found}:
            raise Broken(f"is printed as {said[:500]}")


def as_lines(said: str) -> None:
    if re.search(r"\b(nan|inf|None)\b", said.partition("\n")[2]):
        raise Broken(f"is printed as {said}")


def each_listed(drawn: random.Random, asked: Question, found: Mapping[str, Any]) -> None:
    """A layout that is found for few GPUs is answered alike where its options are asked for."""
    degrees = found.get("layout", {"data": FEW_GPUS + 1})
    if math.prod(degrees.get(name, 1) for name in ("data", "tp", "cp", "pp")) > FEW_GPUS:
        return
    rows = bounded(lambda: plan(meters=False, find=True, **read_once(asked))["ways"])
    for row in drawn.sample(rows, min(2, len(rows))):
        now = ask(asked | {name: str(value) for name, value in row["options"].items()})
        most = max(rank["needs_bytes"] for rank in now["ranks"])
        if (row["fits"] and most != row["needs_bytes"]) or not math.isclose(
            now["tokens_per_second"], row["tokens_per_second"]
        ):
            raise Broken(f"is not as listed: {row}")


HOLD = {"grown": grown, "at limits": at_limits, "in the form": in_form, "in a terminal": in_terminal}
HOLD |= {"listed": each_listed}


# A draw


def command(asked: Question) -> str:
    quoted = [f"'{word}'" if re.search(r"[^\w.,%-]", word) else word for word in words(asked)]
    return f"flops-bytes plan {' '.join(quoted)}"


def draw(seed: int, number: int, said: Counter[str]) -> None:
    """One question, mended until it is answered, and what is to hold of its answer. AssertionError if it does not."""
    drawn = random.Random(f"{seed} {number}")
    task, asked = question(drawn)
    for _ in range(40):
        try:
            found = ask(asked)
            break
        except Refused as refused:
            said[f"refused --{refused.name}"] += 1
            asked = mended(drawn, asked, refused)
        except Exception as error:
            raise told(error, seed, number, asked) from error
    else:
        raise told(Broken("what mends it leads nowhere"), seed, number, asked)
    said[f"answered {task}"] += 1
    holds = drawn.choice(list(HOLD))
    said[f"held {holds}"] += 1
    try:
        HOLD[holds](drawn, asked, found)
    except Exception as error:
        more = error.args[1] if isinstance(error, Broken) and len(error.args) > 1 else asked
        raise told(error, seed, number, more) from error


def told(error: Exception, seed: int, number: int, asked: Question) -> Broken:
    """What was found wrong, and how it is asked again."""
    what = str(error.args[0]) if isinstance(error, Broken) else "".join(traceback.format_exception(error)[-3:])
    again = f"python -m tests.flops_bytes.plan.test_questions 1 {seed} {number}"
    return Broken(f"seed {seed}, draw {number} ({again})\n{command(asked)}\n{what}")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """While no more memory is given than a question may take, beside what there is."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_question_ends_in_a_traceback_a_hang_or_a_contradiction(part: int) -> None:
    said: Counter[str] = Counter()
    with limited():
        for number in range(part * DRAWS, (part + 1) * DRAWS):
            draw(SEED, number, said)
    answered = sum(times for what, times in said.items() if what.startswith("answered"))
    assert answered > 0.9 * DRAWS and all(said[f"held {holds}"] > DRAWS // 20 for holds in HOLD), said


def many(draws: int, seed: int, first: int = 0) -> int:
    """What comes of so many draws, printed."""
    said: Counter[str] = Counter()
    slowest, wrong, began = (0.0, first), 0, time.perf_counter()
    with limited():
        for number in range(first, first + draws):
            start = time.perf_counter()
            try:
                draw(seed, number, said)
            except Broken as error:
                wrong += 1
                print(f"\n{error}", flush=True)
            slowest = max(slowest, (time.perf_counter() - start, number))
            if not (number + 1) % 10_000:
                print(f"… {number + 1:,} draws, {wrong:,} broken", file=sys.stderr, flush=True)
    for what, times in sorted(said.items()):
        print(f"{times:9,} {what}")
    worst = f"{time.perf_counter() - began:,.0f} s, at most {slowest[0]:.2f} s of one (draw {slowest[1]})"
    print(f"{draws:,} draws of seed {seed} from {first}: {wrong:,} broken, {worst}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(many(*map(int, sys.argv[1:])))
