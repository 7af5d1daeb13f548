"""Several files as one run: what they ask of the planner together, and what is said of it, sentence by sentence.

In a terminal, and translated for the page, from the same data of the softwares. The sentences stand in words.toml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flops_bytes.files.content import Content
from flops_bytes.files.formats import flatten, line_of
from flops_bytes.files.interpret import Part, Reading, Said, Software, holds, interpret, words
from flops_bytes.files.out_of_memory import TOOLS, decode
from flops_bytes.model.presets import PRESETS, known
from flops_bytes.model.shapes import SHAPES, abbreviated
from flops_bytes.plan.options import OPTIONS, ROWS
from flops_bytes.plan.parallel import ACCEPTED, PARALLEL
from flops_bytes.time.gpus import TPUS, capacity_bytes

INNER = "deepspeed."  # before the keys of a DeepSpeed file that stands in a trainer's
MODELS = ("model", "config", "shape")  # the ways to say one
CARDS = ("gpu", "gpu_memory")  # and a card
NAMING = ("model_name_or_path", "base_model")  # keys whose value is a model's name
FEW_KEYS = 8  # of which a mark says enough; of more several do
# Options that a file may say, of few bytes each: where the planner does not derive them they are left out, and told.
SMALL: tuple[str, ...] = ("update", "reentrant", "sharding_by", "reduce_bucket", "lora_dropout", "layers", "attention")
SMALL += ("matmuls", "overlap_tp", "lora_on", "loss")
NEAR = 0.02  # of a card's memory, which messages round


class Run(NamedTuple):
    """The files of a run, and what they ask of the planner."""

    parts: list[Part]
    config: Content | None
    more: dict[str, Any]  # what rules ask for beside the files
    reading: Reading
    asked: dict[str, Any]
    texts: dict[str, str]  # by file
    formats: dict[str, str]


class Row(NamedTuple):
    """One sentence about what was read: its name in words.toml, and what it says."""

    sentence: str
    file: str = ""
    line: int = 0
    key: str = ""  # with its value
    means: str = ""  # options, as they are written on the command line
    why: str = ""


# What is asked


def software_of(keys: Mapping[str, Any], data: Mapping[str, Software]) -> str:
    """The software whose marks most of these keys are, or nothing; one that takes over another's keys has those too."""
    own = {name: marks_in(keys, each["known_by"]) for name, each in data.items()}
    found = {
        name: own[name] + (own[each["extends"]] if own[name] and "extends" in each else 0)
        for name, each in data.items()
    }
    best = max(found, key=lambda name: found[name])
    return best if found[best] > 1 or (found[best] and len(keys) < FEW_KEYS) else ""


def marks_in(keys: Mapping[str, Any], marks: list[str]) -> int:
    """How many marks are keys, or tables that keys lie in."""
    return len([mark for mark in marks if mark in keys or any(key.startswith(f"{mark}.") for key in keys)])


def parts_of(tables: list[Content], data: Mapping[str, Software]) -> tuple[list[Part], Content | None]:
    """What each file says, in the order in which softwares take precedence; and the model's config.json."""
    found: list[Part] = []
    config: Content | None = None
    inside: Content | None = None
    for each in tables:
        try:
            keys = flatten(each.table)
        except ValueError as error:
            raise ValueError(f"{each.path}: {error}") from None
        name = software_of(keys, data)
        flat = {key.split(".")[-1]: value for key, value in keys.items()}
        if not name and software_of(flat, data):
            name, keys = software_of(flat, data), flat  # in tables of a script's own
        if not name:
            known_here = ", ".join([software["name"] for software in data.values()])
            raise ValueError(f"{each.path}: its keys are of no software that is known: {known_here}")
        if name == "config":
            if config:
                raise ValueError(f"{each.path}: {config.path} is a model's config.json too; give one")
            config = each
            continue
        if name != "deepspeed":  # whose own file may stand in another's
            inner = {key[len(INNER) :]: value for key, value in keys.items() if key.startswith(INNER)}
            found += [Part(each.path, "deepspeed", inner)] if inner else []
            keys = {key: value for key, value in keys.items() if not key.startswith(INNER)}
        own = data[name].get("config", {})
        if own and holds(own, keys):
            inside = config_inside(each, own)
            keys = {key: value for key, value in keys.items() if not key.startswith(f"{own['table']}.")}
        found.append(Part(each.path, name, keys))
    order = list(data)
    return sorted(found, key=lambda part: order.index(part.software)), config or inside


def config_inside(each: Content, own: Mapping[str, Any]) -> Content:
    """The model's config.json, which stands in another's file as a table."""
    table: Any = each.table
    for name in own["table"].split("."):
        table = table.get(name, {}) if isinstance(table, Mapping) else {}
    return Content(f"{each.path}, {own['table']}", "table", "", {**table, "model_type": own["model_type"]})


def facts_beside(parts: list[Part], config: Content | None) -> dict[str, Any]:
    """What rules ask for and no file's key says: the width of the model's layers, which sizes DeepSpeed's buckets."""
    names = [value for part in parts for key, value in part.held.items() if key in NAMING]
    name = known(str(names[0])) if names else None
    table: Mapping[str, Any] = config.table if config else {}
    if not config and name:
        if name in SHAPES:
            return {"@hidden_size": SHAPES[name].d_model}
        table = PRESETS[name].config
    inner = table.get("text_config")
    size = table.get("hidden_size") or (inner.get("hidden_size") if isinstance(inner, Mapping) else None)
    return {"@hidden_size": size if isinstance(size, int) else None}


def asked_of(
    reading: Reading, config: Content | None, told: list[dict[str, Any]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of the planner: what the files say, but for what is `given` beside them."""
    asked = dict(reading.options)
    if config:
        asked = {name: value for name, value in asked.items() if name != "model"} | {"config": config.table}
    elif asked.get("model"):
        asked["model"] = known(str(asked["model"])) or asked["model"]
    if told and not any(name in given for name in CARDS):
        asked = asked | card_of(told[0])
    if any(name in given for name in MODELS):
        asked = {name: value for name, value in asked.items() if name not in MODELS}
    asked = {name: value for name, value in asked.items() if name not in told_by_method(given)}
    asked = {name: value for name, value in asked.items() if name not in given}
    if "global_batch" in asked or "global_batch" in given:
        asked = {name: value for name, value in asked.items() if name != "accumulation"}
    both = {**asked, **given}
    if str(both.get("gpus")) == "1" and str(both.get("sharding_by", "fsdp2")).startswith("fsdp"):
        asked = {name: value for name, value in asked.items() if name not in ("zero", "sharding_by")}
    if any(name in PARALLEL for name in both):
        asked = {name: value for name, value in asked.items() if name in ACCEPTED or not is_plain(name, value)}
    return asked


def told_by_method(given: Mapping[str, Any]) -> list[str]:
    """Options of files that no longer stand where somebody says what is trained: by its name, or by a rank."""
    if given.get("trained") == "all":
        return ["base", "lora", "lora_on", "lora_dropout", "lora_inputs"]
    if "trained" in given:
        return ["base"]
    return ["trained"] if "lora" in given else []


def is_plain(name: str, value: Any) -> bool:
    """Whether an option says no more than none, where layouts are planned."""
    return name in OPTIONS and bool(value == OPTIONS[name].default)


def card_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The card that has about as much memory as a message says, of those of the vendor that it names."""
    is_amd = message["smi"] == TOOLS["HIP"]
    if not message.get("card") or message["smi"] not in (TOOLS["CUDA"], TOOLS["HIP"]):
        return {}
    total = float(message["card"].replace("GiB", "")) * 2**30
    rows = {name: row for name, row in ROWS.items() if name.startswith("MI") == is_amd and name not in TPUS}
    off = {name: abs(capacity_bytes(name, row) / total - 1) for name, row in rows.items()}
    nearest = min(off, key=lambda name: off[name])
    return {"gpu": nearest} if off[nearest] < NEAR else {}


def read_run(contents: list[Content], data: Mapping[str, Software], given: Mapping[str, Any]) -> Run:
    """What tables and messages ask of the planner, but for what is `given`. Raises ValueError that names the file."""
    told = [one for each in contents if each.kind == "message" for one in decode(each.text)]
    parts, config = parts_of([each for each in contents if each.kind == "table"], data)
    more = facts_beside(parts, config)
    reading = interpret(parts, data, more)
    texts, formats = {each.path: each.text for each in contents}, {each.path: each.written_in for each in contents}
    return Run(parts, config, more, reading, asked_of(reading, config, told, given), texts, formats)


# What was read


def rows_of(run: Run, data: Mapping[str, Software]) -> Iterator[Row]:
    """What each key means here: what is planned with, what costs nothing, warnings; then the softwares' defaults."""
    parts, config, asked, texts, read = run.parts, run.config, run.asked, run.texts, run.reading.said
    for file in dict.fromkeys([part.file for part in parts]):
        yield Row("file", file, why=" and ".join([data[part.software]["name"] for part in parts if part.file == file]))
        mine = [each for each in read if each.file == file]
        for each in mine:
            if each.kind == "option":
                yield Row("option", file, key=shown(each), means=flags(each.options, config), why=each.text)
        for kind in ("nothing", "no effect"):
            if names := [abbreviated(each.key) for each in mine if each.kind == kind]:
                yield Row(kind, file, key=", ".join(names))
        for each in mine:
            if each.kind in ("not planned", "unknown"):
                yield Row(each.kind, file, line_of(texts.get(file, ""), each.key), shown(each), why=each.text)
    if config:
        yield Row("config", config.path, why=data["config"]["name"])
    for each in read:
        if each.kind == "default":
            yield Row("default", key=shown(each), means=flags(each.options, config), why=each.text)
    named = [*MODELS, "gpu", *[name for each in read for name in each.options]]
    if implied := {name: value for name, value in asked.items() if name not in named}:
        yield Row("implied", means=flags(implied, config))
    if "gpu" in asked:
        yield Row("card", means=asked["gpu"])


def problems_of(run: Run, given: Mapping[str, Any], data: Mapping[str, Software]) -> Iterator[Row]:
    """What keeps these files from being planned, each with its mend."""
    asked, texts = run.asked, run.texts
    for said in run.reading.refused:
        if not any(name in given for name in said.options):
            line = line_of(texts.get(said.file, ""), said.key)
            yield Row("refused" if said.file else "refusal", said.file, line, shown(said), why=said.text)
    both = {**asked, **given}
    if "zero" not in both:
        yield from files_asked_for(run.parts, texts, data)
    model = str(asked.get("model", ""))
    if model and not known(model):
        yield Row("unknown model", key=abbreviated(model))
    elif not any(name in both for name in MODELS):
        yield Row("no model")
    if not any(name in both for name in CARDS):
        yield Row("no card")
    elif str(both.get("zero", "0")) != "0" and "gpus" not in both:
        yield Row("no count")


def files_asked_for(parts: list[Part], texts: Mapping[str, str], data: Mapping[str, Software]) -> Iterator[Row]:
    """Files that these name, and which are not given."""
    there = [part.software for part in parts]
    for part in parts:
        names = [part.software, data[part.software].get("extends", part.software)]
        for key, own in [item for name in dict.fromkeys(names) for item in data[name].get("keys", {}).items()]:
            value = part.held.get(key)
            if isinstance(value, str) and own.get("asks_for", part.software) not in there:
                line = line_of(texts.get(part.file, ""), key)
                yield Row("asks for", part.file, line, shown(Said(part.file, key, value, "refused")))


def shown(said: Said) -> str:
    """A key with its value, as it is written."""
    return f"{abbreviated(said.key)}: {abbreviated(as_written(said.value))}"


def as_written(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join([in_list(each) for each in value])}]"
    if isinstance(value, Mapping):
        return "{…}" if value else "{}"
    return words(value)


def in_list(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else as_written(value)


def flags(options: Mapping[str, Any], config: Content | None) -> str:
    """Options as they are written on the command line."""
    told = []
    for name, value in options.items():
        own = known(str(value)) if name == "model" and not config else None
        is_handed_on = name == "config" or (name == "model" and config is not None)
        of_config = f"as {config.path if config else 'it'} has it" if is_handed_on else ""
        told.append(of_config or f"--{name.replace('_', '-')} {spaced(own or value)}")
    return " ".join(told)


def spaced(value: Any) -> str:
    text = abbreviated(str(value))
    return f"'{text}'" if " " in text else text
