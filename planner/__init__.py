"""The planner's page: its form, and its script, for which the library's own Python is translated to JavaScript.

`<div data-planner="full"></div>` in a page becomes the form, `short` the few fields of the front page. The script is
written where the theme's files lie, and a page that has a form fetches it.
"""

from __future__ import annotations

import html
import json
import os
import re
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

from flops_bytes import shapes
from flops_bytes.gpus import LINKS
from flops_bytes.plan import options as plan_options
from flops_bytes.plan.evidence import EVIDENCE, MISSES, ON_PAPER, WITH_ROOM
from ledger.site import tight as tight_module
from ledger.site.tight import tight
from planner.answer import answer
from planner.shorten import plainer, shortened
from planner.translate import RUNTIME, translate

PLANNER = Path(__file__).parent
ROOT = PLANNER.parent
LIBRARY = ROOT / "flops_bytes"
ASSETS = ROOT / "docs" / "overrides" / "assets"
STARTED = time.time_ns()
PLACE = re.compile(r'<div data-planner="(full|short|memory)"></div>')

FIRST = {name: str(value) for name, value in plan_options.EXAMPLE.items()}
SHOWN: tuple[str, ...] = ("model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpu_bandwidth", "gpus")
SHOWN += ("context", "micro_batch", "trained", "recipe", "checkpointing", "loss", "zero", "price", "tokens")
SHOWN += ("tokens_in", "speed", "speed_in", "weights", "users", "latency")
FOLDED: tuple[str, ...] = ("days", "global_batch", "accumulation", "chunks", "optimizer", "lora", "lora_on")
FOLDED += ("attention", "layers")
FOLDED += ("link", "node_gpus", "network_cards", "offload", "bytes_a_token", "pairs", "cache", "prompt")
FOLDED += ("gpu_memory_utilization", "allowance")
# Words of which the script has no need, for they stand in the form:
IN_PLACE = (
    "form",
    "task",
    "tasks",
    "more",
    "all_options",
    "without_scripts",
    "placeholders",
    "choices",
    "help",
    "memory",
    "stack",
    "errors",
    "estimate",
    "fields",
    "evidence",
)
# Options of the command line that the form has no field for, nor its script:
UNASKED: tuple[str, ...] = ("update", "matmuls", "sharding_by", "reduce_bucket", "reentrant", "quantized_by")
UNASKED += ("qkv_made", "lora_inputs", "lora_dropout")
UNASKED_VALUES = {  # of options that it has a field for
    "optimizer": ("muon", "adafactor", "adamw-bf16", "adamw-4bit", "adamw-fp8"),
    "update": ("in-backward",),
    "offload": ("all",),
}
WANTED = {"planner.answer": ["answer", "completed", "recomputing", "replaced"]}
STACKS = {"planner.stacks": ["answer_any"]}
SCRIPTS = {  # each with what it asks of Python; the second waits until somebody pastes a message, the third for a model
    "planner.js": (WANTED, "form.js"),
    "planner-memory.js": ({"planner.out_of_memory": ["decode"]}, "memory.js"),
    "planner-stacks.js": (STACKS, "stacks.js"),  # whose layers differ
}
TEXTS = {"memory.js": "memory", "stacks.js": "stack"}  # the words that a script brings along
ELSEWHERE = ("estimate",)  # functions that the first has no need for: what they say of a model, the third says
ERRORS = "planner-errors.js"  # their sentences in each language and what else they need, for whom an answer has none
PRESETS: dict[str, tuple[str, ...]] = {  # models whose layers differ, or that were not there, as people call them
    "Qwen": ("Qwen3 0.6B", "Qwen3 1.7B", "Qwen3 4B", "Qwen3 8B", "Qwen3 14B", "Qwen3 32B", "Qwen3 30B-A3B"),
    "DeepSeek": ("DeepSeek-V3", "DeepSeek-V3.2"),
    "Kimi": ("Kimi K2", "Kimi Linear 48B-A3B"),
    "GLM": ("GLM-4.5", "GLM-4.5-Air", "GLM-4.6", "GLM-5.2"),
    "OpenAI": ("gpt-oss-20b", "gpt-oss-120b"),
    "Gemma": ("Gemma 3 1B", "Gemma 3 4B", "Gemma 3 12B", "Gemma 3 27B", "Gemma 4 26B-A4B", "Gemma 4 31B"),
    "Llama": ("Llama 4 Scout", "Llama 4 Maverick"),
    "OLMo": ("OLMo 2 7B", "OLMo 2 13B", "OLMo 2 32B"),
    "Phi": ("Phi-3 mini", "Phi-4"),
    "SmolLM": ("SmolLM3 3B",),
    "Mistral": ("Mistral Small 24B",),
}
PRESETS["Qwen"] += ("Qwen3 235B-A22B", "Qwen3 Coder 480B-A35B", "Qwen3 Next 80B-A3B")
SHORT = ("model", "gpu", "gpus", "context", "tokens", "price")
# For which a phone needs digits alone, or these and a point; a context may be 128k, a price $2.5:
DIGITS: tuple[str, ...] = (
    "gpus",
    "micro_batch",
    "lora",
    "chunks",
    "accumulation",
    "users",
    "node_gpus",
    "network_cards",
)
DECIMALS = ("days", "latency", "bytes_a_token")
WRITTEN_OUT = {"config": "model", "shape": "model", "gpu_memory": "gpu", "gpu_peak": "gpu", "gpu_bandwidth": "gpu"}


class PlannerExtension(Extension):
    def __init__(self, **options: Any) -> None:
        self.config = {"language": ["en", "en or zh"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        write_scripts()
        md.postprocessors.register(PlannerPostprocessor(md, self.getConfig("language")), "planner", 4)


def makeExtension(**options: Any) -> PlannerExtension:
    return PlannerExtension(**options)


class PlannerPostprocessor(Postprocessor):
    def __init__(self, md: Markdown, language: str) -> None:
        super().__init__(md)
        self.language = language

    def run(self, text: str) -> str:
        return PLACE.sub(lambda match: form(match[1], self.language), text)


# The script


def engine(folders: Iterable[Path] = (PLANNER, LIBRARY), wanted: dict[str, list[str]] | None = None) -> str:
    """The planner in JavaScript: answer(), and what Python gives it to stand on."""
    return RUNTIME.read_text(encoding="utf-8") + translate(list(folders), wanted or WANTED, unasked())


def unasked() -> dict[str, Any]:
    """Each such option with its default, and each such value, written option=value, as what is never so."""
    values = {f"{name}={value}": False for name, each in UNASKED_VALUES.items() for value in each}
    return {name: plan_options.OPTIONS[name].default for name in UNASKED} | values


def in_each_language(*parts: str) -> str:
    """Words that a script brings along; of several parts, each by its name."""
    told = {language: {part: words(language)[part] for part in parts} for language in ("en", "zh")}
    only = {language: part[parts[0]] for language, part in told.items()} if len(parts) == 1 else told
    return json.dumps(only, ensure_ascii=False, separators=(",", ":"))


@cache
def script(name: str, stamp: int) -> str:
    wanted, page = SCRIPTS[name]
    elsewhere = ELSEWHERE if wanted == WANTED else ()
    translated = translate([PLANNER, LIBRARY], wanted, unasked(), elsewhere)
    inside = shortened(RUNTIME.read_text(encoding="utf-8"), translated)
    names = f"{{{','.join([*(name for names in wanted.values() for name in names), 'ValueError'])}}}"
    parts = ("element.js", page) if page != "stacks.js" else (page,)
    rest = "".join((PLANNER / part).read_text(encoding="utf-8") for part in parts)
    texts = f"const WORDS={in_each_language(TEXTS[page])};" if page in TEXTS else ""
    return f"let {names}=(()=>{{{inside}return {names}}})();{plainer(texts + tight(rest))}"


def write_scripts() -> None:
    """At once, since both languages may be built at a time; left alone if they have not changed.

    They get the time of the youngest of their sources, so that who finds them so need not make them, unless a source
    was changed since this process read its code: then the next process makes them again.
    """
    sources = [*PLANNER.iterdir(), *LIBRARY.rglob("*.py"), Path(tight_module.__file__)]
    stamp = max(path.stat().st_mtime_ns for path in {*sources, *(path.parent for path in sources)})
    paths = [ASSETS / name for name in (*SCRIPTS, ERRORS)]
    if all(path.exists() and path.stat().st_mtime_ns == stamp for path in paths):
        return
    scripts = [script(name, stamp) for name in SCRIPTS]
    scripts.append(f"export default {in_each_language('errors', 'estimate', 'fields')};\n")
    for path, text in zip(paths, scripts, strict=True):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            unfinished = path.with_name(f".{os.getpid()}.unfinished")
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        if stamp < STARTED:
            os.utime(path, ns=(stamp, stamp))


# The form


@cache
def words(language: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PLANNER / f"{language}.yml").read_text(encoding="utf-8"))
    return found


def form(kind: str, language: str) -> str:
    """The form as it stands before the script fills in the answer; without scripts it is hidden."""
    told = words(language)
    if kind == "memory":
        label, placeholder = told["memory"]["label"], told["memory"]["placeholder"]
        return (
            f'<form class="planner-memory" aria-label="{label}">'
            f'<label for="planner-message">{label} <textarea id="planner-message" rows="4" spellcheck="false" '
            f'placeholder="{placeholder}"></textarea></label>'
            '<div class="planner-answer" role="status"></div></form>'
        )
    fields = SHORT if kind == "short" else SHOWN
    asked = {name: text for name, text in told.items() if name not in IN_PLACE}
    inner = "".join(field(name, told) for name in fields)
    if kind == "short":
        inner += "".join(
            f'<input type="hidden" name="{name}" value="{value}">' for name, value in FIRST.items() if name not in SHORT
        )
        inner += f'<p class="planner-on"><a class="planner-all" href="plan/">{told["all_options"]}</a></p>'
    else:
        inner = tasks(told) + inner
        asked["evidence"] = evidence(told)
        folded = "".join(field(name, told) for name in FOLDED)
        inner += f"<details><summary>{told['more']}</summary><div>{folded}</div></details>"
    strip, memory = opening(told)
    return (
        f'<form class="planner" data-kind="{kind}" {data_of(asked)} aria-label="{told["form"]}" hidden>'
        f'<div class="planner-strip" role="status">{strip}</div><div class="planner-fields">{inner}</div></form>'
        + (f'<div class="planner-answer">{memory}</div>' if kind == "full" else "")
        + f"<noscript><p>{told['without_scripts']}</p></noscript>"
    )


def evidence(told: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Of each kind of run, how far off the planner was for those that others published, and where that stands."""
    words = told["evidence"]
    some = {kind: words["some"].format(*EVIDENCE[kind], kind=words["kinds"][kind]) for kind in EVIDENCE}
    return {kind: (text, words["chapter"]) for kind, text in ({"": words["none"]} | some).items()}


def opening(told: dict[str, Any]) -> tuple[str, str]:
    """The answer to what the form asks as it stands: what its script shows first, and what stands without scripts."""
    said = answer(FIRST)
    found, shown = said["found"], said["shown"]
    values = shown | {"mfu": shown["assumed"]}
    for of in ("", "run_"):
        sum_of_money = shown[f"{of}money"].removeprefix(found["currency"])
        values |= {
            f"{of}time": f"{shown[f'{of}time'][0]} {told['units'][shown[f'{of}time'][1]]}",
            f"{of}money": told["currencies"][found["currency"]].format(sum=sum_of_money),
            f"{of}amount": shown[f"{of}amount"][told["language"]],
        }
        values[f"{of}cost"] = told["run"]["cost"].format(money=values[f"{of}money"])
    verdict = told["verdicts"][found["verdict"]].format_map(values)
    strip = f'<p class="planner-verdict {CLASSES[found["verdict"]]}">{verdict}</p>'
    strip += f'<p class="planner-chosen">{chosen(told, shown["chosen"])}</p>'
    strip += f'<p class="planner-run">{told["run"]["time"].format_map(values)}</p>'
    lines = [(told["lines"][line][0], size) for line, size in shown["lines"].items()] + [
        (told["total"], shown["total"])
    ]
    rows = "".join(f'<tr><th scope="row">{line}</th><td>{size}</td></tr>' for line, size in lines)
    title = told["memory_title"].format(moment=told["moments"][found["peaks_at"]])
    text, chapter = evidence(told)[found["kind"]]
    note = f'<p class="planner-note"><a href="../{chapter}">{text}</a></p>'
    return strip, f'<section><p class="planner-title">{title}</p>{note}<table><tbody>{rows}</tbody></table></section>'


CLASSES = {WITH_ROOM: "fits", ON_PAPER: "paper", MISSES: "misses"}


def chosen(told: dict[str, Any], values: dict[str, str]) -> str:
    """What was assumed, in a sentence."""
    words = told["chosen"]
    parts = [
        words[name].format(value=value) if isinstance(words[name], str) else words[name][value]
        for name, value in values.items()
    ]
    return str(words["all"].format(list=told["separator"].join(parts)))


def tasks(told: dict[str, Any]) -> str:
    """What is planned: a training, or inference for many users."""
    radios = "".join(
        f'<label><input type="radio" name="task" value="{task}"{" checked" if task == "train" else ""}>'
        f" <span>{text}</span></label>"
        for task, text in told["tasks"].items()
    )
    return f'<fieldset class="planner-tasks"><legend>{told["task"]}</legend>{radios}</fieldset>'


def data_of(told: dict[str, Any]) -> str:
    """As an attribute in single quotes: JSON has many double ones. A script of data would be run by the theme."""
    text = html.escape(json.dumps(told, ensure_ascii=False, separators=(",", ":")), quote=False)
    return f"data-words='{text.replace(chr(39), '&#39;')}'"


def option(value: str, text: str, is_chosen: bool) -> str:
    """One of a list; what it is called is its value where nothing else is said."""
    own = "" if value == text else f' value="{value}"'
    return f"<option{own}{' selected' if is_chosen else ''}>{text}</option>"


def family(name: str) -> str:
    """Models of one family, as a group of a list; what the library calls them, the script makes of their names."""
    options = "".join(f"<option>{model}</option>" for model in PRESETS[name])
    return f"<optgroup label={name}>{options}</optgroup>"


def field(name: str, told: dict[str, Any]) -> str:
    label, value = told["fields"][name], FIRST.get(name, "")
    start = f'name="{name}" id="planner-{name}" aria-describedby="planner-{name}-help"'
    choices = dict(told["choices"].get(name, {}))
    if name == "model":
        choices = {each: each for each in shapes.SHAPES} | choices
    if name == "gpu":
        choices = {each: each for each in plan_options.ROWS} | choices
    if name == "link":
        choices = {each: choices.get(each, each) for each in ("", *LINKS)}
    if choices:
        options = "".join(option(key, text, key == value) for key, text in choices.items())
        options += "".join(map(family, PRESETS)) if name == "model" else ""
        control = f"<select {start}>{options}</select>"
    elif name == "config":
        control = f"<textarea {start} rows=4 spellcheck=false placeholder='{told['placeholders'][name]}'></textarea>"
    else:
        mode = "numeric" if name in DIGITS else "decimal" if name in DECIMALS else "text"
        hint = told["placeholders"][name]
        control = (
            f'<input {start} value="{value}" placeholder="{hint}" inputmode="{mode}" autocomplete="off" '
            'autocapitalize="off" spellcheck="false">'
        )
    of = f' data-of="{WRITTEN_OUT[name]}"' if name in WRITTEN_OUT else ""
    if name not in plan_options.SHARED:
        of += f' data-task="{"serve" if name in plan_options.SERVED else "train"}"'
    hidden = " hidden" if name in WRITTEN_OUT or name in plan_options.SERVED else ""
    wide = " wide" if name in ("config", "shape") else ""
    help_text = f'<small id="planner-{name}-help">{told["help"][name]}</small>'
    inside = f'<label for="planner-{name}">{label}</label>{control}{help_text}'
    return f'<div class="planner-field{wide}" data-name="{name}"{of}{hidden}>{inside}</div>'
