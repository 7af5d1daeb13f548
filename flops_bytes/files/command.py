"""`flops-bytes FILE …`: what was read of the files, key by key, and the planner's answer to it."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from textwrap import wrap
from typing import Any, TextIO

from flops_bytes.files.content import Content, content_of, message_words
from flops_bytes.files.interpret import Part, Reading, Said, interpret
from flops_bytes.files.out_of_memory import PARTS, TOOLS, decode
from flops_bytes.files.parse import NotThisFormat, flatten, line_of
from flops_bytes.files.software import NAMES, software_of, softwares
from flops_bytes.model.presets import PRESETS, known
from flops_bytes.model.shapes import SHAPES, abbreviated, quoted
from flops_bytes.plan import plan
from flops_bytes.plan.__main__ import main as run_plan
from flops_bytes.plan.options import OPTIONS, ROWS
from flops_bytes.plan.parallel import ACCEPTED, DEGREES, PARALLEL
from flops_bytes.time.gpus import TPUS, capacity_bytes

MISTAKE = 2
MOST_FILES = 20
INNER = "deepspeed."  # before the keys of a DeepSpeed file that stands in a trainer's
# Options that a file may say, of few bytes each: where the planner does not derive them they are left out, and told.
SMALL: tuple[str, ...] = ("update", "reentrant", "sharding_by", "reduce_bucket", "lora_dropout", "layers", "attention")
SMALL += ("matmuls", "overlap_tp", "lora_on", "loss")
MODELS = ("model", "config", "shape")  # the ways to say one
WIDEST = 60  # characters of a key and its value
NEAR = 0.02  # of a card's memory, which messages round
USAGE = """usage: flops-bytes FILE … [options of flops-bytes plan]

Each FILE is known by what it holds: a training's configuration (transformers, TRL, accelerate, DeepSpeed,
LLaMA-Factory, axolotl, torchtitan), a model's config.json, an out-of-memory message or a log that holds one.
Several are one run. A memory snapshot, a trace and a training script go to the commands that are theirs."""


def main(arguments: list[str]) -> int:
    """Prints what is read and the answer; the exit status is that of the planner, 2 for a file that cannot be read."""
    paths, rest = split_arguments(arguments)
    try:
        if len(paths) > MOST_FILES:
            raise ValueError(f"{len(paths)} files are no run; give {MOST_FILES} or fewer")
        contents = [content_of(path) for path in paths]
        own = [each for each in contents if each.kind not in ("table", "message")]
        if own:
            return hand_over(own, contents, rest)
        return answer(contents, rest)
    except ValueError as error:
        print(f"flops-bytes: {error}", file=sys.stderr)
        return MISTAKE


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The files, and the options behind them."""
    first = next((n for n, each in enumerate(arguments) if each.startswith("-") and each != "-"), len(arguments))
    return arguments[:first], arguments[first:]


def hand_over(own: list[Content], contents: list[Content], rest: list[str]) -> int:
    """Runs the command that reads a file."""
    if len(contents) > 1:
        others = [each.path for each in contents if each is not own[0]]
        raise ValueError(f"{own[0].path}: flops-bytes {own[0].kind} reads it alone; give {', '.join(others)} apart")
    print(f"as read: {own[0].path}: flops-bytes {own[0].kind} {own[0].path}", flush=True)
    return command_of(own[0].kind)([own[0].path, *rest])


def command_of(kind: str) -> Callable[[list[str]], int]:
    """The command that reads a file, imported when it is asked for: counting needs torch, the others do not."""
    match kind:
        case "snapshot":
            from flops_bytes.tools.snapshot import main as run
        case "trace":
            from flops_bytes.tools.kernels import main as run
        case _:
            from flops_bytes.counting.command import main as run
    return run


def answer(contents: list[Content], rest: list[str]) -> int:
    """Says what was read, and plans it."""
    given, as_json = options_in(rest), "--json" in rest
    told = [one for each in contents if each.kind == "message" for one in decode(each.text)]
    tables = [each for each in contents if each.kind == "table"]
    out = sys.stderr if as_json else sys.stdout  # which is for programs
    for line in [line for each in contents if each.kind == "message" for line in message_lines(each)]:
        print(line, file=out)
    if not tables and not rest:
        return 0
    parts, config = parts_of(tables)
    reading = interpret(parts, softwares(), {"@hidden_size": hidden_size(parts, config)})
    texts = {each.path: each.text for each in contents}
    asked = asked_of(reading, config, told, given)
    for line in reading_lines(parts, reading, config, asked, texts):
        print(line, file=out)
    if problems := list(problems_of(parts, reading, asked, given, texts)):
        raise ValueError("\n             ".join(problems))

    def where(name: str) -> str:
        each = next((each for each in reading.said if name in each.options and each.file), None)
        return f"{each.file}, {place(each, texts)}{shown(each)}: " if each else ""

    return planned(asked, given, rest, out, where)


def options_in(rest: list[str]) -> dict[str, Any]:
    """The planner's options behind the files, as plan() takes them."""
    found: dict[str, Any] = {}
    short = {f"{word}_parallel": name for name, word in DEGREES.items()}
    for n, each in enumerate(rest):
        name, is_joined, value = each.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        name = short.get(name, name)
        if each.startswith("--") and (name in OPTIONS or name in PARALLEL):
            found[name] = value if is_joined else rest[n + 1] if n + 1 < len(rest) else ""
    return found


# Tables


def parts_of(tables: list[Content]) -> tuple[list[Part], Content | None]:
    """What each file says, in the order in which softwares take precedence; and the model's config.json."""
    found: list[Part] = []
    config: Content | None = None
    for each in tables:
        try:
            keys = flatten(each.table)
        except NotThisFormat as error:
            raise ValueError(f"{each.path}: {error}") from None
        name = software_of(keys)
        if not name and software_of(flat := {key.rpartition(".")[2]: value for key, value in keys.items()}):
            name, keys = software_of(flat), flat  # in tables of a script's own
        if not name:
            known_here = ", ".join(data["name"] for data in softwares().values())
            raise ValueError(f"{each.path}: its keys are of no software that is known: {known_here}")
        if name == "config":
            if config:
                raise ValueError(f"{each.path}: {config.path} is a model's config.json too; give one")
            config = each
            continue
        if name != "deepspeed":  # whose own file may stand in another's
            inner = {key.removeprefix(INNER): value for key, value in keys.items() if key.startswith(INNER)}
            found += [Part(each.path, "deepspeed", inner)] if inner else []
            keys = {key: value for key, value in keys.items() if not key.startswith(INNER)}
        found.append(Part(each.path, name, keys))
    return sorted(found, key=lambda part: NAMES.index(part.software)), config


def hidden_size(parts: list[Part], config: Content | None) -> int | None:
    """The width of the model's layers, by which transformers sizes DeepSpeed's buckets."""
    names = [value for part in parts for key, value in part.held.items() if key in ("model_name_or_path", "base_model")]
    name = known(str(names[0])) if names else None
    table: Mapping[str, Any] = config.table if config else {}
    if not config and name:
        if name in SHAPES:
            return SHAPES[name].d_model
        table = PRESETS[name].config
    inner = table.get("text_config")
    size = table.get("hidden_size") or (inner.get("hidden_size") if isinstance(inner, Mapping) else None)
    return size if isinstance(size, int) else None


def asked_of(
    reading: Reading, config: Content | None, told: list[dict[str, Any]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of the planner: what the files say, but for what stands behind them."""
    asked = dict(reading.options)
    if config:
        asked = {name: value for name, value in asked.items() if name != "model"} | {"config": config.table}
    elif asked.get("model"):
        asked["model"] = known(str(asked["model"])) or asked["model"]
    if told and not {"gpu", "gpu_memory"} & given.keys():
        asked |= card_of(told[0])
    if {*MODELS} & given.keys():
        asked = {name: value for name, value in asked.items() if name not in MODELS}
    asked = {name: value for name, value in asked.items() if name not in given}
    if "global_batch" in asked or "global_batch" in given:
        asked.pop("accumulation", None)
    both = {**asked, **given}
    if str(both.get("gpus")) == "1" and str(both.get("sharding_by", "fsdp2")).startswith("fsdp"):
        asked = {name: value for name, value in asked.items() if name not in ("zero", "sharding_by")}
    if any(name in PARALLEL for name in both):
        asked = {name: value for name, value in asked.items() if name in ACCEPTED or not is_plain(name, value)}
    return asked


def is_plain(name: str, value: Any) -> bool:
    """Whether an option says no more than none, where layouts are planned."""
    return name in OPTIONS and value == OPTIONS[name].default


def card_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The card that has about as much memory as a message says, of those of the vendor that it names."""
    is_amd = message["smi"] == TOOLS["HIP"]
    if not message.get("card") or message["smi"] not in (TOOLS["CUDA"], TOOLS["HIP"]):
        return {}
    total = float(message["card"].removesuffix("GiB")) * 2**30
    rows = {name: row for name, row in ROWS.items() if name.startswith("MI") == is_amd and name not in TPUS}
    off = {name: abs(capacity_bytes(name, row) / total - 1) for name, row in rows.items()}
    nearest = min(off, key=lambda name: off[name])
    return {"gpu": nearest} if off[nearest] < NEAR else {}


# What was read


KINDS = {"nothing": "costs neither memory nor time", "no effect": "without effect beside the others"}


def reading_lines(
    parts: list[Part], reading: Reading, config: Content | None, asked: Mapping[str, Any], texts: Mapping[str, str]
) -> Iterator[str]:
    """What each key means here: what is planned with, the softwares' defaults, what costs nothing, and warnings."""
    read = reading.said
    width = min(max([len(shown(each)) for each in read if each.options] or [0]), WIDEST)
    for file in dict.fromkeys([part.file for part in parts]):
        data = [softwares()[part.software] for part in parts if part.file == file]
        yield f"as read: {file}: {' and '.join(each['name'] for each in data)}"
        mine = [each for each in read if each.file == file]
        for each in mine:
            if each.kind == "option":
                taken = f", {each.text}" if each.text else ""
                yield f"  {shown(each):{width}}  {flags(each.options, config)}{taken if each.options else each.text}"
        for kind, what in KINDS.items():
            if names := [abbreviated(each.key) for each in mine if each.kind == kind]:
                yield from indented(f"{what}: {', '.join(names)}")
        for each in mine:
            if each.kind in ("not planned", "unknown"):
                yield from indented(f"warning: {place(each, texts)}{shown(each)}: {why(each)}")
    if config:
        yield f"as read: {config.path}: {softwares()['config']['name']}, which is planned"
    if defaults := [each for each in read if each.kind == "default"]:
        yield "not written, so as the software has it:"
        for each in defaults:
            yield f"  {shown(each):{width}}  {flags(each.options, config)} ({each.text})"
    named = {name for each in read for name in each.options} | {*MODELS, "gpu"}
    if implied := {name: value for name, value in asked.items() if name not in named}:
        yield f"which implies: {flags(implied, config)}"
    if "gpu" in asked:
        yield f"as the message has it, the card is a {asked['gpu']}, or another with as much memory, which --gpu says"
    yield ""


def indented(text: str) -> list[str]:
    return wrap(text, 118, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def why(said: Said) -> str:
    if said.kind == "unknown":
        return "not known here; if it changes memory or time, the plan does not know of it"
    return f"not planned: {said.text}"


def shown(said: Said) -> str:
    value = said.value
    text = json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, list | dict | bool) else str(value)
    return f"{abbreviated(said.key)}: {abbreviated('null' if value is None else text)}"


def flags(options: Mapping[str, Any], config: Content | None) -> str:
    """Options as they are written on the command line."""
    words = []
    for name, value in options.items():
        is_named = name == "model" and not config and known(str(value))
        of_config = f"as {config.path} has it" if config and name == "model" else ""
        words.append(of_config or f"--{name.replace('_', '-')} {spaced(known(str(value)) if is_named else value)}")
    return " ".join(words)


def spaced(value: Any) -> str:
    text = abbreviated(str(value))
    return f"'{text}'" if " " in text else text


def place(said: Said, texts: Mapping[str, str]) -> str:
    line = line_of(texts.get(said.file, ""), said.key)
    return f"line {line}, " if line else ""


def problems_of(
    parts: list[Part],
    reading: Reading,
    asked: Mapping[str, Any],
    given: Mapping[str, Any],
    texts: Mapping[str, str],
) -> Iterator[str]:
    """What keeps these files from being planned, each with its mend."""
    for said in reading.refused:
        if not {*said.options} & given.keys():
            yield f"{said.file}, {place(said, texts)}{shown(said)}: {said.text}" if said.file else said.text
    both = {**asked, **given}
    if "zero" not in both:
        yield from files_asked_for(parts, texts)
    model = str(asked.get("model", ""))
    if model and not known(model):
        yield f"the model {quoted(model)} is not known by its name; give its config.json too, or --model"
    elif not {*MODELS} & both.keys():
        yield "the files name no model; give its config.json too, or --model"
    if not {"gpu", "gpu_memory"} & both.keys():
        yield "the files do not say on which card; add --gpu, such as --gpu 'RTX 4090', and --gpus"
    elif str(both.get("zero", "0")) != "0" and "gpus" not in both:
        yield "the files do not say over how many GPUs ZeRO shards; add --gpus"


def files_asked_for(parts: list[Part], texts: Mapping[str, str]) -> Iterator[str]:
    """Files that these name, and which are not given."""
    there = {part.software for part in parts}
    for part in parts:
        names = [part.software, softwares()[part.software].get("extends", part.software)]
        for key, own in [item for name in dict.fromkeys(names) for item in softwares()[name].get("keys", {}).items()]:
            value = part.held.get(key)
            if isinstance(value, str) and own.get("asks_for", part.software) not in there:
                said = Said(part.file, key, value, "refused")
                yield f"{part.file}, {place(said, texts)}{shown(said)}: give that file too, or say --zero"


# The answer


def planned(
    asked: dict[str, Any], given: Mapping[str, Any], rest: list[str], out: TextIO, where: Callable[[str], str]
) -> int:
    """The planner's answer; options of few bytes that it does not derive are left out, which is said."""
    asked = dict(asked)
    while True:
        try:
            plan(meters=False, **{**asked, **given})
            break
        except ValueError as error:
            name = str(error).partition(":")[0].removeprefix("--").replace("-", "_")
            if name not in asked or (name not in SMALL and not where(name)):
                break  # which the planner says itself
            if name not in SMALL:
                raise ValueError(where(name) + str(error)) from None
            print(f"left out: {flags({name: asked.pop(name)}, None)}; {str(error).partition(': ')[2]}\n", file=out)
    as_text = {name: json.dumps(value, default=str) if name == "config" else value for name, value in asked.items()}
    return run_plan([*(f"--{name.replace('_', '-')}={value}" for name, value in as_text.items()), *rest])


# Messages


def message_lines(content: Content) -> Iterator[str]:
    """A message's advice, causes and numbers, in the words of the page."""
    words = message_words()
    for one in decode(content.text):
        gpus = ", ".join(gpu for gpu in one["gpus"] if gpu)
        yield f"as read: {content.path}: a message of memory that ran out{f', of GPU {gpus}' if gpus else ''}"
        advice = words["first"][one["first"]].format(**one)
        yield from wrap(advice, 118, initial_indent="  ", subsequent_indent="  ")
        if one["at"]:
            before, what, _ = words["at"][one["at"]]
            yield from wrap(f"{before}{what}.", 118, initial_indent="  ", subsequent_indent="  ")
        rows = dict(one["rows"])
        for name in [name for name in PARTS if name in rows]:
            yield f"    {rows[name]:>12}  {words['parts'][name].format(**one)}"
        if one["first"] == "serve":
            length = f" --context {one['length']}" if one.get("length") else ""
            yield f"  What fits: flops-bytes plan --task serve --model … --gpu …{length}"
        yield ""
