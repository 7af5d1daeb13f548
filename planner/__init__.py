"""The planner's page: its form, and its script, for which the library's own Python is translated to JavaScript.

`<div data-planner="full"></div>` in a page becomes the form, `short` the few fields of the front page. The script is
written where the theme's files lie, and a page that has a form fetches it.
"""

from __future__ import annotations

import fcntl
import html
import json
import os
import re
import time
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor
from rjsmin import jsmin

from flops_bytes.files.software import softwares
from flops_bytes.plan import options as plan_options
from flops_bytes.plan.evidence import EVIDENCE, MISSES, ON_PAPER, WITH_ROOM
from flops_bytes.time.gpus import LINKS, capacity_bytes
from planner.answer import answer, gib
from planner.shorten import Apart, shortened_apart
from planner.translate import RUNTIME, together, translate, translate_apart

PLANNER = Path(__file__).parent
ROOT = PLANNER.parent
LIBRARY = ROOT / "flops_bytes"
MESSAGES = LIBRARY / "files" / "messages.toml"  # in English, which a terminal prints too
SENTENCES = LIBRARY / "files" / "words.toml"  # and these
VENDOR = PLANNER / "vendor"  # from npm, with their licences
ASSETS = ROOT / "docs" / "overrides" / "assets"
STARTED = time.time_ns()
PLACE = re.compile(r'<div data-planner="(full|short|memory|files)"></div>')

FIRST = {name: str(value) for name, value in plan_options.EXAMPLE.items()}
OPENS = {"en": FIRST, "zh": FIRST | {"price": "¥18"}}  # what each language's form asks as it stands
SHOWN: tuple[str, ...] = ("model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpu_bandwidth", "gpus")
SHOWN += ("context", "micro_batch", "trained", "recipe", "checkpointing", "loss", "zero", "price", "tokens")
SHOWN += ("tokens_in", "days", "speed", "speed_in", "weights", "users", "latency")
FOLDED: tuple[str, ...] = ("global_batch", "accumulation", "lengths", "chunks", "optimizer", "lora", "lora_on")
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
    "files",
    "stack",
    "metered",
    "errors",
    "not_understood",
    "fields",
    "evidence",
)
# Words below the verdict, which the form of the front page does not show:
BELOW = ("details", "lines", "rungs", "moments", "layouts", "meters")
FIGURES = ("figures", "part_names")  # what the form of the front page shows alone
PARTS = {"weights": "weights", "adapters": "weights", "gradients": "gradients", "reduced": "gradients"}  # of the bar
PARTS |= {"master": "optimizer", "optimizer": "optimizer", "logits": "logits"}  # what is none of its colours is "other"
PARTS |= {"activations": "activations", "layer": "activations", "cache": "activations"}
# Options of the command line that the form has no field for, nor its script:
UNASKED: tuple[str, ...] = ("update", "matmuls", "sharding_by", "reduce_bucket", "reentrant", "quantized_by")
UNASKED += ("qkv_made", "lora_inputs", "lora_dropout", "alloc_conf")
UNASKED_VALUES = {  # of options that it has a field for
    "optimizer": ("muon", "adafactor", "adamw-bf16", "adamw-4bit", "adamw-fp8"),
    "update": ("in-backward",),
    "loss": ("logits-held", "float32-held", "shifted", "as-logits"),
    "checkpointing": ("selective",),
}
WANTED = {"planner.answer": ["answer", "completed", "gib"]}
STACKS = {"planner.stacks": ["answer_any"]}
METERS = {"planner.meters": ["metered", "listed"], "planner.answer": ["recomputing"]}
FILES = {
    "planner.files": ["read_files", "write_files", "loaded"],
    "flops_bytes.files.formats": ["scalar", "formats_of", "problem_of"],
    "flops_bytes.files.out_of_memory": ["decode"],
}
METERS_ANY = {"planner.stacks": ["metered_any", "listed_any", "recomputing_any"]}
SCRIPTS = {  # each with what it asks of Python; the next wait until somebody pastes a message, files, asks for a model
    "planner.js": (WANTED, "form.js"),
    "planner-memory.js": ({"flops_bytes.files.out_of_memory": ["decode"]}, "memory.js"),
    "planner-files.js": (FILES, "files.js"),
    "planner-stacks.js": (STACKS, "stacks.js"),  # whose layers differ, or that is served
    "planner-meters.js": (METERS, "planner.js"),  # which comes to another script, once that has answered
    "planner-stacks-meters.js": (METERS_ANY, "planner-stacks.js"),
    "planner-layer.js": ({"planner.live": ["layer"]}, "layer.js"),  # two figures that readers move
    "planner-roofline.js": ({"planner.live": ["roof"]}, "roofline.js"),
}
PARSERS = {"planner-yaml.js": "js-yaml.umd.min.js", "planner-toml.js": "smol-toml.cjs"}  # which that fetches
BEFORE = {"stacks.js": (), "files.js": ("element.js", "parsers.js")}  # of a script's own; the others need the first
BEFORE |= dict.fromkeys(("layer.js", "roofline.js"), ("element.js", "live.js"))
TEXTS = {
    "memory.js": "memory",
    "files.js": "files",
    "stacks.js": "stack",
    "planner.js": "metered",
}  # the words that a script brings along
ROOFS = ("B200", "H200 SXM", "H100 SXM", "A100 80GB SXM", "RTX 4090", "H20")  # cards of the roofline that is dragged
# Functions that the first has no need for, whose models are all derived: what they say of others, the third says.
ELSEWHERE = ("estimate", "why_not_derived", "limits_without_activations", "mtp_parameters")
UNSERVED = {name: plan_options.OPTIONS[name].default for name in plan_options.SERVED if name != "gpu_bandwidth"}
UNSERVED |= {"task": "train", "task=serve": False}  # of the first script: what is served is asked of the third
ERRORS = "planner-errors.js"  # their sentences in each language and what else they need, for whom an answer has none
PRESETS: dict[str, tuple[str, ...]] = {  # as people call them; what the library calls them, the script makes of it
    "Qwen": ("Qwen3 0.6B", "Qwen3 1.7B", "Qwen3 4B", "Qwen3 8B", "Qwen3 14B", "Qwen3 32B", "Qwen3 30B-A3B"),
    "Llama": ("Llama 3.2 1B", "Llama 3.2 3B", "Llama 3 8B", "Llama 3.1 8B", "Llama 3 70B", "Llama 3.3 70B"),
    "DeepSeek": ("DeepSeek-V2-Lite", "DeepSeek-V2", "DeepSeek-V3", "DeepSeek-R1", "DeepSeek-V3.2"),
    "Gemma": ("Gemma 3 1B", "Gemma 3 4B", "Gemma 3 12B", "Gemma 3 27B", "Gemma 4 26B-A4B", "Gemma 4 31B"),
    "OpenAI": ("gpt-oss-20b", "gpt-oss-120b"),
    "GLM": ("GLM-4.5-Air", "GLM-4.5", "GLM-4.6", "GLM-5.2"),
    "Kimi": ("Kimi Linear 48B-A3B", "Kimi K2"),
    "Mistral": ("Mistral 7B", "Mistral 7B v0.3", "Mistral Nemo 12B", "Mistral Small 24B", "Mixtral 8x7B"),
    "Phi": ("Phi-3 mini", "Phi-3.5 mini", "Phi-4"),
    "SmolLM": ("SmolLM2 135M", "SmolLM2 360M", "SmolLM2 1.7B", "SmolLM3 3B"),
    "OLMo": ("OLMo 2 7B", "OLMo 2 13B", "OLMo 2 32B"),
    "Yi": ("Yi 6B", "Yi 9B", "Yi 34B"),
    "TinyLlama": ("TinyLlama 1.1B",),
    "GPT-2": ("GPT-2", "GPT-2 medium", "GPT-2 large", "GPT-2 XL"),
}
PRESETS["Qwen"] += ("Qwen3 235B-A22B", "Qwen3 Coder 480B-A35B", "Qwen3 Next 80B-A3B")
PRESETS["Qwen"] += tuple(f"Qwen2.5 {size}" for size in ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "72B"))
PRESETS["Llama"] += ("Llama 3.1 405B", "Llama 4 Scout", "Llama 4 Maverick", "Llama 2 7B", "Llama 2 13B", "Llama 2 70B")
PRESETS["DeepSeek"] += ("DeepSeek-R1 Distill Qwen 1.5B",)
PRESETS["Gemma"] += ("Gemma 2 2B", "Gemma 2 9B", "Gemma 2 27B")
PRESETS["Mistral"] += ("Mixtral 8x22B",)
CARDS = ("RTX", "H", "B", "GB", "A", "L", "T4", "V", "MI", "TPU")  # how names of GPUs begin, in the list's order
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
    """The planner in JavaScript: answer() and metered(), and what Python gives them to stand on."""
    return RUNTIME.read_text(encoding="utf-8") + translate(list(folders), wanted or together(WANTED, METERS), unasked())


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
def engines(name: str, stamp: int) -> Apart:
    """What a script computes with, short, and what another comes to it with later."""
    wanted, _ = SCRIPTS[name]
    later = next((asked for asked, of in SCRIPTS.values() if of == name), {})
    never, elsewhere = (unasked() | UNSERVED, ELSEWHERE) if wanted == WANTED else (unasked(), ())
    if wanted == FILES:  # which say what the form does not ask
        never = {}
    translated = translate_apart([PLANNER, LIBRARY], wanted, later, never, elsewhere)
    kept = [*(name for names in wanted.values() for name in names), "ValueError"]
    return shortened_apart(RUNTIME.read_text(encoding="utf-8"), *translated, kept)


@cache
def script(name: str, stamp: int) -> str:
    wanted, page = SCRIPTS[name]
    names = ",".join(name for each in wanted.values() for name in each)
    if page in SCRIPTS:
        of = engines(page, stamp)
        rest = (PLANNER / "meters.js").read_text(encoding="utf-8") if page in TEXTS else ""
        texts = f"const WORDS={in_each_language(TEXTS[page])};" if page in TEXTS else ""
        made = f"(({{{','.join(of.shared)}}})=>{{{of.later}\nreturn {{{names}}}}})(shared)"
        return f"let kept;export default(shared)=>kept??={made};{jsmin(texts + rest)}"
    of = engines(name, stamp)
    shared = f",shared:{{{','.join(of.shared)}}}" if of.shared else ""
    kept = f"{names},ValueError{',shared' if of.shared else ''}"
    parts = (*BEFORE.get(page, ("element.js",)), page)
    rest = "".join((PLANNER / part).read_text(encoding="utf-8") for part in parts)
    texts = f"const WORDS={in_each_language(TEXTS[page])};" if page in TEXTS else ""
    if wanted == FILES:
        style = re.sub(r"/\*.*?\*/|\n\s*", "", (PLANNER / "files.css").read_text(encoding="utf-8"))
        read = {name: {key: own[key] for key in own if key != "source"} for name, own in softwares().items()}
        data = json.dumps(read, ensure_ascii=False, separators=(",", ":"))
        texts += f"const STYLE={json.dumps(style)},SOFTWARES={json.dumps(data)};"
    texts += f"const CARDS={json.dumps(roofs())};" if page == "roofline.js" else ""
    return f"let {{{kept}}}=(()=>{{{of.first}\nreturn {{{names},ValueError{shared}}}}})();{jsmin(texts + rest)}"


def parser(name: str) -> str:
    """A parser from npm as a module, below its licence."""
    licence = (VENDOR / name).with_name(f"{name.partition('.')[0]}.LICENSE").read_text(encoding="utf-8")
    code = (VENDOR / name).read_text(encoding="utf-8").partition("//# sourceMappingURL")[0]
    code = code if ".min." in name else jsmin(code)
    return f"/*!\n{licence}*/\nconst module={{}},exports={{}};{code}\nexport default exports;\n"


def roofs() -> dict[str, tuple[float, float]]:
    """Peak in bf16 and bandwidth of a few cards."""
    rows = {name: plan_options.ROWS[name] for name in ROOFS}
    return {name: (row.peak_flop_per_second["bfloat16"], row.bandwidth_bytes_per_second) for name, row in rows.items()}


def write_scripts() -> None:
    """Left alone if they have not changed. Of two builds at a time, as of both languages, one waits for the other's.

    They get the time of the youngest of their sources, so that who finds them so need not make them, unless a source
    was changed since this process read its code: then the next process makes them again.
    """
    sources = [*PLANNER.iterdir(), *VENDOR.iterdir(), *LIBRARY.rglob("*.py"), *LIBRARY.glob("files/*.toml")]
    stamp = max(path.stat().st_mtime_ns for path in {*sources, *(path.parent for path in sources)})
    paths = [ASSETS / name for name in (*SCRIPTS, ERRORS, *PARSERS)]
    folder = os.open(ASSETS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if all(path.exists() and path.stat().st_mtime_ns == stamp for path in paths):
            return
        scripts = [script(name, stamp) for name in SCRIPTS]
        scripts.append(f"export default {in_each_language('errors', 'not_understood', 'fields')};\n")
        scripts += [parser(name) for name in PARSERS.values()]
        for path, text in zip(paths, scripts, strict=True):
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                unfinished = path.with_name(f".{os.getpid()}.unfinished")
                unfinished.write_text(text, encoding="utf-8")
                unfinished.replace(path)
            if stamp < STARTED:
                os.utime(path, ns=(stamp, stamp))
    finally:
        os.close(folder)


# The form


@cache
def words(language: str) -> dict[str, Any]:
    """What the page says in a language; a number and its % stay on one line."""
    found: dict[str, Any] = yaml.safe_load(joined(PLANNER / f"{language}.yml"))
    if language == "en":
        found["memory"] |= tomllib.loads(joined(MESSAGES))
        told = tomllib.loads(joined(SENTENCES))  # of which the page says those that Chinese has
        found["files"] |= {name: told[name] for name in words("zh")["files"] if name in told}
    return found


def joined(path: Path) -> str:
    return re.sub(r"(?<=[\d}]) %", "\N{NO-BREAK SPACE}%", path.read_text(encoding="utf-8"))


def form(kind: str, language: str) -> str:
    """The form with the answer to what it asks as it stands; without scripts its fields are hidden."""
    told = words(language)
    if kind == "memory":
        return form_of_messages(told["memory"])
    if kind == "files":
        return form_of_files(told["files"])
    fields = SHORT if kind == "short" else SHOWN
    asked = {name: text for name, text in told.items() if name not in IN_PLACE} | {"parts": PARTS}
    inner = "".join(field(name, told) for name in fields)
    if kind == "short":
        asked = {name: text for name, text in asked.items() if name not in BELOW}
        inner += "".join(
            f'<input type="hidden" name="{name}" value="{value}">'
            for name, value in OPENS[language].items()
            if name not in SHORT
        )
        inner += f'<p class="planner-on"><a class="planner-all" href="plan/">{told["all_options"]}</a></p>'
    else:
        asked = {name: text for name, text in asked.items() if name not in FIGURES}
        inner = tasks(told) + inner
        asked["evidence"] = evidence(told)
        folded = "".join(field(name, told) for name in FOLDED)
        inner += f"<details><summary>{told['more']}</summary><div>{folded}</div></details>"
    strip, memory = opening(told, kind)
    return (
        f'<form class="planner" data-kind="{kind}" {data_of(asked)} aria-label="{told["form"]}">'
        f'<div class="planner-strip" role="status">{strip}</div><div class="planner-fields">{inner}</div></form>'
        + (f'<div class="planner-answer">{memory}</div>' if kind == "full" else "")
        + f"<noscript><p>{told['without_scripts']}</p></noscript>"
    )


def form_of_messages(told: dict[str, Any]) -> str:
    """The form for an out-of-memory message, and for the model and the card that it came from, who wants to say."""
    cards = "".join(
        f'<option data-gib="{capacity_bytes(name, plan_options.ROWS[name]) / 2**30:.2f}">{name}</option>'
        for name in by_kind()
    )
    lists = {"model": "".join(family(name, "") for name in PRESETS), "gpu": cards}
    asked = "".join(
        f'<div class="planner-field"><label for="planner-memory-{name}">{told[name]}</label>'
        f'<select name="{name}" id="planner-memory-{name}"><option value="">{told["unsaid"]}</option>{options}</select>'
        "</div>"
        for name, options in lists.items()
    )
    return (
        f'<form class="planner-memory" aria-label="{told["label"]}">'
        f'<label for="planner-message">{told["label"]} <textarea id="planner-message" rows="4" spellcheck="false" '
        f'placeholder="{told["placeholder"]}"></textarea></label><div class="planner-about">{asked}</div>'
        '<div class="planner-answer" role="status"></div></form>'
    )


def form_of_files(told: dict[str, Any]) -> str:
    """The box for files that fill the form in; without scripts the command that reads them."""
    return (
        f'<form class="planner-files" aria-label="{told["label"]}"><details><summary>{told["label"]}</summary>'
        f'<p class="planner-note">{told["stays"]}</p>'
        f'<label for="planner-paste">{told["paste"]}<textarea id="planner-paste" rows="5" spellcheck="false" '
        f'autocapitalize="off" placeholder="{told["placeholder"]}"></textarea></label>'
        f'<label for="planner-chosen-files">{told["choose"]}<input type="file" id="planner-chosen-files" multiple>'
        f'</label><div class="planner-read" role="status"></div></details></form>'
        f"<noscript><p>{told['without_scripts']}</p></noscript>"
    )


def by_kind() -> list[str]:
    """The cards of the table of peaks, in the order of the list."""
    return sorted(plan_options.ROWS, key=lambda card: next(n for n, each in enumerate(CARDS) if card.startswith(each)))


def evidence(told: dict[str, Any]) -> dict[str, tuple[str, str, float | None]]:
    """Of each kind of run, how many times the plan those took that others published; where that stands; and how many
    times the plan the worst took."""
    words = told["evidence"]
    found: dict[str, tuple[str, str, float | None]] = {"": (words["none"], words["chapter"], None)}
    for kind, (readings, least, *_, room) in EVIDENCE.items():
        most = 1 / float(least)
        text = words["some"].replace("{readings}", str(readings)).replace("{kind}", words["kinds"][kind])
        text = text.replace("{most}", f"{most:.2f}").replace("{room}", room)
        found[kind] = (text, words["chapter"], round(most, 4))
    return found


def opening(told: dict[str, Any], kind: str) -> tuple[str, str]:
    """The answer to what the form asks as it stands: what its script shows first, and what stands without scripts."""
    said = answer(OPENS[told["language"]])
    found, shown = said["found"], said["shown"]
    values = shown | {"mfu": shown["assumed"], "how": told["chosen"]["trained"][found["trained"]]}
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
    if kind == "short":
        names = ("total", "time", "money")
        figures = (f"<p><b>{values[name]}</b>{told['figures'][name][1].format_map(values)}</p>" for name in names)
        strip += f'<div class="planner-figures">{"".join(figures)}</div>{bar(told, found, values)}'
    strip += f'<p class="planner-chosen">{chosen(told, shown["chosen"])}</p>'
    if kind != "short":
        strip += f'<p class="planner-run">{told["run"]["time"].format_map(values)}</p>'
    lines = [(told["lines"][line][0], size) for line, size in shown["lines"].items()] + [
        (told["total"], shown["total"])
    ]
    rows = "".join(f'<tr><th scope="row">{line}</th><td>{size}</td></tr>' for line, size in lines)
    title = told["memory_title"].format(moment=told["moments"][found["peaks_at"]])
    text, chapter, most = evidence(told)[found["kind"]]
    text = text.replace("{needs}", gib(found["memory_bytes"]["total"] * (most or 1)))
    linked = re.sub(r"\[(.*)\]", rf'<a href="../{chapter}">\1</a>', text)
    note = f'<p class="planner-note">{linked}</p>'
    return strip, f'<section><p class="planner-title">{title}</p>{note}<table><tbody>{rows}</tbody></table></section>'


def bar(told: dict[str, Any], found: dict[str, Any], values: dict[str, Any]) -> str:
    """The card as a bar, filled by what it holds, and the names of the parts."""
    sizes = dict.fromkeys(told["part_names"], 0)
    for line, size in found["memory_bytes"].items():
        if line != "total":
            sizes[PARTS.get(line, "other")] += size
    whole = max(found["gpu_bytes"], sum(sizes.values()))
    parts = "".join(f'<i class="part-{part}" style="width:{100 * size / whole}%"></i>' for part, size in sizes.items())
    edge = f'<b style="left:{100 * found["gpu_bytes"] / whole}%"></b>'
    names = "".join(
        f'<span><i class="part-{part}"></i>{told["part_names"][part]} {gib(size)}</span>'
        for part, size in sizes.items()
        if size
    )
    label = told["bar"].format_map(values)
    return (
        f'<div><div class="planner-bar" role="img" aria-label="{label}">{parts}{edge}</div>'
        f'<p class="planner-parts">{names}</p></div>'
    )


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


def family(name: str, chosen: str = FIRST["model"]) -> str:
    """Models of one family, as a group of a list; what the library calls them, the script makes of their names."""
    options = "".join(
        f"<option{' selected' if called(model) == chosen else ''}>{model}</option>" for model in PRESETS[name]
    )
    return f"<optgroup label={name}>{options}</optgroup>"


def called(model: str) -> str:
    """What the library calls a model of the list."""
    return model.lower().replace(" ", "-").replace("gpt-2", "gpt2")


def field(name: str, told: dict[str, Any]) -> str:
    label, value = told["fields"][name], OPENS[told["language"]].get(name, "")
    start = f'name="{name}" id="planner-{name}" aria-describedby="planner-{name}-help"'
    choices = dict(told["choices"].get(name, {}))
    if name == "gpu":
        choices = {each: each for each in by_kind()} | choices
    if name == "link":
        choices = {each: choices.get(each, each) for each in ("", *LINKS)}
    if choices:
        options = "".join(option(key, text, key == value) for key, text in choices.items())
        options = "".join(map(family, PRESETS)) + options if name == "model" else options
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
