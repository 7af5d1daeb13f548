"""The planner's page computes and writes, to the last digit, what the library does, from which it is translated."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py_mini_racer import MiniRacer

import planner
from flops_bytes.model.shapes import SHAPES
from flops_bytes.plan import options as plan_options
from flops_bytes.plan.options import OPTIONS
from flops_bytes.time.gpus import GPUS, TPUS
from planner import engine
from planner.answer import answer, completed, recomputing
from planner.translate import RUNTIME, TranslationError, translate
from tests.draw import drawn as part_of
from tests.flops_bytes.plan.test_plan import SHAPED
from tests.planner.scripts import whole

# What crosses between the two: an int as text with an n, so that neither a large one nor its type is lost; a key of
# digits in quotes, since an object of JavaScript would put it first.
BRIDGE = """
const key = (x) => typeof x === "string" && /^[0-9]+$/.test(x) ? `'${x}'` : String(tell(x));
const tell = (x) => x instanceof Map ? Object.fromEntries([...x].map(([name, each]) => [key(name), tell(each)]))
  : Array.isArray(x) ? x.map(tell)
  : typeof x === "bigint" ? `${x}n` : typeof x === "number" ? `${$repr(x)}f` : x ?? null;
const ask = (text) => JSON.stringify(JSON.parse(text).map((fields) => {
  const asked = fields.task === "serve" ? [answer] : [answer, recomputing];
  try { return asked.map((f) => tell(f(new Map(Object.entries(fields))))) } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    return error.message;
  }
}));
const formatted = (text) => JSON.stringify($json_loads(text).map(([x, spec]) => $format(x, spec)));
const quotients = (text) => JSON.stringify($json_loads(text).map(([a, b]) => $repr($div(a, b))));
"""
RUN = RUNTIME.read_text(encoding="utf-8")


class Pasted:
    """A path on a page: the text that was pasted is what it holds."""

    def __init__(self, text: str) -> None:
        self.text = text

    def read_text(self, encoding: str) -> str:
        return self.text


@pytest.fixture(scope="module")
def script() -> Iterator[MiniRacer]:
    context = MiniRacer()
    context.eval(whole() + BRIDGE)
    yield context
    context.close()


def said_by(script: str, call: str) -> Any:
    """What a call says in a browser, in the words of tell()."""
    context = MiniRacer()
    context.eval(script + BRIDGE)
    said = context.eval(f"JSON.stringify(tell({call}))")
    context.close()
    return json.loads(str(said))


def tell(value: Any) -> Any:
    match value:
        case dict():
            keys = {key: f"'{key}'" if isinstance(key, str) and key.isdigit() else str(tell(key)) for key in value}
            return {keys[key]: tell(each) for key, each in value.items()}
        case list() | tuple():
            return [tell(each) for each in value]
        case bool() | None | str():
            return value
    return f"{value}{'n' if isinstance(value, int) else 'f'}"


def answered(fields: dict[str, str]) -> Any:
    try:
        asked = [answer] if fields.get("task") == "serve" else [answer, recomputing]
        return [tell(each(fields)) for each in asked]
    except ValueError as error:
        return str(error)


KINDS = ("count", "length", "bytes", "money", "number", "share")
NUMBERS = [name for name, option in OPTIONS.items() if option.kind in KINDS and name not in planner.UNASKED]
SIZES = [
    name
    for name in NUMBERS
    if name in ("gpus", "micro_batch", "accumulation", "chunks", "allowance", "tokens", "price")
]
ENDS = ["", "", "", "k", "M", "B", "T", "GB", "GiB", " GiB", "MB", "mib", "e3", "E-2", "%", "元"]
ENDS += ["％", "万亿", "亿", " usd"]
SIGNS = ["$", "¥", "￥", "€", "US$ "]


def number(drawn: random.Random, kind: str) -> str:
    """As somebody may write it, anywhere in the range of the field: log-uniform from its smallest to its largest."""
    low = {"count": 0.0, "length": 0.0, "bytes": 3.0}.get(kind, -6.0)
    value = 10 ** drawn.uniform(low, 0.0 if kind == "share" else 18.0)
    whole = kind in ("count", "length") and drawn.random() < 0.95
    text = str(int(value)) if whole else repr(value) if drawn.random() < 0.5 else f"{value:.{drawn.randint(0, 6)}f}"
    if drawn.random() < 0.1:
        whole_part, point, rest = text.partition(".")
        text = (f"{int(whole_part):,}" if whole_part.isdigit() else whole_part) + point + rest
        text = text[1:] if drawn.random() < 0.1 else text  # which leaves commas at wrong places
    if kind == "money" and drawn.random() < 0.5:
        text = drawn.choice(SIGNS) + text
    if drawn.random() < 0.01:
        text = drawn.choice([*SIGNS, "₹", "-", "−", "e"]) + text
    if drawn.random() < 0.1:
        text = text.translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)})  # as Chinese keyboards may
    return text + (
        drawn.choice(["B", "kB", "GiB"]) if kind == "bytes" else drawn.choice(ENDS) if drawn.random() < 0.07 else ""
    )


CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "sliding_window": 131072,
}


def draw_serving(drawn: random.Random) -> dict[str, str]:
    """A form that asks how many users are served."""
    fields = {"task": "serve", "model": drawn.choice(list(SHAPES)), "gpu": drawn.choice([*GPUS, *TPUS])}
    fields |= {"gpus": drawn.choice(["", "1", "2", "4", "5", "8", "16"]), "context": drawn.choice(["", "1000", "8192"])}
    for name in ("weights", "cache"):
        fields[name] = drawn.choice(OPTIONS[name].kind)
    for name in ("users", "latency", "prompt", "price", "allowance"):
        if drawn.random() < 0.2:
            fields[name] = number(drawn, str(OPTIONS[name].kind))
    fields |= drawn.choice([{}, {"latency": str(drawn.randint(1, 200))}, {"users": str(drawn.randint(1, 300))}])
    if drawn.random() < 0.2:
        fields |= {"gpu": "other", "gpu_memory": number(drawn, "bytes"), "gpu_peak": number(drawn, "number")}
        fields["gpu_bandwidth"] = drawn.choice(["3.35TB", number(drawn, "bytes")])
    if drawn.random() < 0.1:
        fields |= {"model": "config", "config": json.dumps(CONFIG)}
    return fields | {"zero": "3", "tokens": "x"}  # fields of a training stay as they were filled in


def draw(drawn: random.Random) -> dict[str, str]:
    """A form that somebody has filled in: most of it modest, some of it anything."""
    fields = {"model": drawn.choice(list(SHAPES)), "gpu": drawn.choice([*GPUS, *TPUS])}
    fields |= {"gpus": str(2 ** drawn.randint(0, 10)), "context": str(drawn.choice([1, 512, 1000, 1024, 1024, 8192]))}
    for name, option in OPTIONS.items():
        if isinstance(option.kind, tuple) and drawn.random() < 0.5 and name not in ("task", *planner.UNASKED):
            fields[name] = drawn.choice(sorted({*option.kind}.difference(planner.UNASKED_VALUES.get(name, ()))))
    for name in drawn.sample(drawn.choice([NUMBERS, SIZES]), drawn.randint(1, 2)):
        fields[name] = number(drawn, str(OPTIONS[name].kind))
    if drawn.random() < 0.3:
        fields |= {"tokens": number(drawn, "count"), "price": number(drawn, "number")}
    if drawn.random() < 0.15:
        fields |= {"tokens": number(drawn, "bytes"), "tokens_in": drawn.choice(["tokens", "en", "zh"])}
    if drawn.random() < 0.15:
        fields |= {"speed_in": drawn.choice(["mfu", "tokens_per_second", "each", "step_seconds"])}
        fields["speed"] = number(drawn, "share" if fields["speed_in"] == "mfu" else "number")
    if drawn.random() < 0.3:
        fields |= {"trained": drawn.choice(["all", "lora", "qlora"]), "lora": number(drawn, "count")}
    if drawn.random() < 0.2:
        changed = CONFIG | {
            drawn.choice(list(CONFIG)): drawn.choice([None, 0, 64, 4096, 2**60, 1.5, "x'y", True, {"a": [1]}])
        }
        fields |= {"model": "config", "config": drawn.choice([json.dumps(changed), json.dumps(CONFIG), "{", "[1]"])}
    if drawn.random() < 0.1:
        fields |= {"model": "shape"}
        sizes = {name: int(10 ** drawn.uniform(0, 9.1)) for name in ("layers", "d_model", "heads", "kv_heads")}
        sizes |= {name: int(10 ** drawn.uniform(0, 6)) for name in ("head_dim", "d_ff", "vocab", "experts")}
        if drawn.random() < 0.9:
            sizes["heads"] = min(sizes["kv_heads"] * drawn.choice([1, 4, 8]), 10**9)
        fields["shape"] = " ".join(f"{name}={size:{drawn.choice(['', ','])}}" for name, size in sizes.items())
        fields["shape"] += f" tied={drawn.choice(['yes', 'No', 'TRUE', '0', '1', '32', '', 'ja'])}"
    if drawn.random() < 0.1:
        fields |= {"gpu": "other", "gpu_memory": number(drawn, "bytes"), "gpu_peak": number(drawn, "number")}
    return fields


def same(ours: Any, theirs: Any) -> bool:
    """Equal, in their order too; but for what JSON.parse says of a text, which each language says in its own words."""
    marks = ("cannot be read as JSON", "Python int too large")
    if isinstance(ours, str) and any(mark in ours for mark in marks):
        return isinstance(theirs, str) and ours[:15] == theirs[:15]
    return json.dumps(ours) == json.dumps(theirs)


def test_the_page_answers_what_plan_py_answers(script: MiniRacer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_options, "Path", Pasted)
    drawn = random.Random(15)
    every = [draw(drawn) for _ in range(1000)] + [draw_serving(drawn) for _ in range(500)]
    forms = part_of(every, 400)
    share = 0.7 * len(forms) / len(every)
    texts = json.loads(str(script.call("ask", json.dumps(forms))))
    ours = [answered(fields) for fields in forms]
    different = [(f, a, b) for f, a, b in zip(forms, ours, texts, strict=True) if not same(a, b)]
    assert not different, different[:3]
    for task, some in ((2, 270), (1, 200)):  # a training has two answers
        assert sum(isinstance(text, list) and len(text) == task for text in ours) > share * some
    assert sum(isinstance(text, str) for text in ours) > share * 300
    answered_texts = [text[0]["found"] for text in ours if isinstance(text, list)]
    assert sum(found.get("text") is not None for found in answered_texts) > share * 12
    assert sum(found.get("wire") is not None for found in answered_texts) > share * 120
    large = [text for text in ours if isinstance(text, list) and len(text[0]["found"]["memory_bytes"]["total"]) > 17]
    assert len(large) > share * 30  # beyond 2 ** 53, where a Number would drop digits


WRITTEN = [
    *({"tokens": text} for text in ("15,000,000,000", "１５，０００", "15万亿", "70亿", "128k", "1.5e12")),
    *({"tokens": text} for text in ("1,5", "0,500", "15,")),
    *({"context": text} for text in ("128k", "128K", "8,192", "1万", "8T", "8q")),
    *({"speed": text} for text in ("40%", "４０％", "38.3%", "140%", "40")),
    *({"price": text} for text in ("$2.5", "¥18", "￥18", "18元", "€2", "US$ 2.5", "₹200", "-2", "2.5")),
    *({"model": "shape", "shape": f"{SHAPED} tied={word}"} for word in ("yes", "no", "True", "1", "32", "ja")),
    *({"gpu": "other", "gpu_memory": "80GB", "gpu_peak": text} for text in ("989 TFLOPS", "989 TFLOP/s", "989")),
    {"model": "shape", "shape": SHAPED.replace("kv_heads=8", "kv_heads=7")},
    {"model": "shape", "shape": SHAPED.replace("vocab=5000", "vocab=5,000").replace(" ", ", ")},
    *({"gpus": gpus, "zero": zero} for gpus in ("1", "2", "") for zero in ("0", "1", "3", "")),
    *({"tokens": text} for text in ("15 trillion", "5T tokens", "15万亿个词元", "3 hours")),
    *({"days": text} for text in ("30 days", "30d", "30 天", "0.5")),
    *({"days": "30d", "gpus": "", "zero": zero} for zero in ("0", "3")),
    *({"price": text} for text in ("$2.50/hr", "18 元/小时", "0", "2 per gpu-hour")),
    *(
        {"days": "2", "gpus": "", "speed": speed, "speed_in": kind}
        for speed in ("9000", "30")
        for kind in ("mfu", "each")
    ),
    *({"model": "config", "config": text} for text in ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B", "no model")),
    *({"model": text} for text in ("Llama 3.1 8B", "meta-llama/Meta-Llama-3-8B-Instruct", "GPT-2 XL", "llama")),
]


def test_what_people_type_means_the_same_on_the_page(script: MiniRacer) -> None:
    first = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": "8", "tokens": "1B", "price": "2"}
    forms = [first | fields for fields in WRITTEN]
    forms += [first | {"task": "serve", "price": price} for price in ("¥18", "2")]
    ours = [answered(fields) for fields in forms]
    theirs = json.loads(str(script.call("ask", json.dumps(forms))))
    assert [pair for pair in zip(forms, ours, theirs, strict=True) if not same(*pair[1:])] == []
    assert sum(isinstance(text, list) for text in ours) == 56


def test_money_has_the_sign_of_its_price() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": "8", "tokens": "100B", "zero": "3"}
    told = {price: answer(asked | {"price": price})["shown"]["money"] for price in ("2", "¥2", "$2")}
    assert told["¥2"] == f"¥{told['2']}" and told["$2"] == f"${told['2']}" and told["2"][0].isdigit()
    assert "--price '$2'" in answer(asked | {"price": "$2"})["command"]  # a shell would put something else there


def test_flops_are_written_with_a_power_of_ten() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100 SXM", "tokens": "15T"}
    for pairs in ("all", "causal"):
        found, shown = (answer(asked | {"pairs": pairs})[part] for part in ("found", "shown"))
        numbers = {"flops": found["training_flops"], "flops_token": found["flops_a_token"][pairs]["model"]}
        for name, number in numbers.items():
            digits, exponent = shown[name].split(" × 10")
            assert set(exponent) <= set("⁰¹²³⁴⁵⁶⁷⁸⁹")
            exponent = exponent.translate({ord(raised): str(n) for n, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})
            assert float(f"{digits}e{exponent}") == pytest.approx(number, rel=0.005)
    assert answer(asked | {"tokens": ""})["shown"]["flops"] is None


def test_a_stage_that_one_gpu_ignores_is_named() -> None:
    asked = {"model": "gpt2", "gpu": "H100 SXM"}
    told = {(gpus, zero): answer(asked | {"gpus": gpus, "zero": zero})["ignored"] for gpus in "12" for zero in "0123"}
    assert told == {(gpus, zero): ["zero"] if gpus == "1" and zero != "0" else [] for gpus, zero in told}
    assert answer(asked | {"task": "serve", "gpus": "1", "zero": "3"})["ignored"] == []
    for language in ("en", "zh"):
        assert "ZeRO" in planner.words(language)["ignored"]["zero"]


ADDRESSES: list[tuple[dict[str, str], dict[str, str | None]]] = [  # what an address says, and what is asked then
    ({"days": "14"}, {"model": "llama-3-8b", "days": "14", "tokens": None, "gpus": "8"}),
    ({"gpus": "16"}, {"model": "llama-3-8b", "gpus": "16", "tokens": "100B"}),
    ({"tokens": "1T"}, {"model": "llama-3-8b", "tokens": "1T", "context": None}),
    ({"model": "gpt2"}, {"model": "gpt2", "gpu": "H100 SXM", "gpus": None, "context": None}),
    ({"model": "gpt2", "gpu": "L4"}, {"model": "gpt2", "gpu": "L4", "price": None}),
    ({"shape": SHAPED}, {"model": "shape", "shape": SHAPED, "gpu": "H100 SXM", "gpus": None}),
]


@pytest.mark.parametrize(("told", "expected"), ADDRESSES)
def test_an_address_may_say_less_than_all(
    script: MiniRacer, told: dict[str, str], expected: dict[str, str | None]
) -> None:
    found = completed(told, planner.FIRST)
    assert {name: found.get(name) for name in expected} == expected
    assert answer(found)["found"]["step_seconds"] > 0
    maps = ",".join(f"new Map(Object.entries({json.dumps(fields)}))" for fields in (told, planner.FIRST))
    assert json.loads(str(script.eval(f"JSON.stringify(tell(completed({maps})))"))) == found


def test_numbers_are_written_as_python_writes_them(script: MiniRacer) -> None:
    drawn = random.Random(16)
    numbers: list[float] = (
        [n + 0.5 for n in range(20)] + [n / 8 for n in range(40)] + [2.675, 0.15, 1e23, 99.95, 0, 1e-7]
    )
    numbers += [9.5, 99.5, 999.5, 0.0009995, 123456789.5, 2.0**60, 1e22 + 2**22]
    numbers += [10 ** drawn.uniform(-9, 24) for _ in range(2000)]
    specs = [",.0f", ",.1f", ".1f", ".0f", ",.2f", ".3g", ".4g", ",.4g", ".1%", ".2f"]
    cases: list[list[Any]] = [[x, drawn.choice(specs)] for x in numbers for _ in range(3)]
    cases += [[int(10 ** drawn.uniform(0, 40)), ","] for _ in range(200)]
    written = json.loads(str(script.call("formatted", json.dumps(cases))))
    assert written == [format(x, spec) for x, spec in cases]


def test_large_ints_are_divided_to_the_nearest_float(script: MiniRacer) -> None:
    drawn = random.Random(17)
    pairs = [
        [int(10 ** drawn.uniform(0, 50)), int(10 ** drawn.uniform(0, 50)) * drawn.choice([1, -1])] for _ in range(1000)
    ]
    pairs += [[(2**53 + odd) * by, by] for odd in (1, 3, 5) for by in (3, 2**80, 7**30)]  # ties
    assert json.loads(str(script.call("quotients", json.dumps(pairs)))) == [repr(a / b) for a, b in pairs]


REFUSED = {
    "a loop's else": "def f():\n    for x in [1]:\n        pass\n    else:\n        return 2",
    "with": "def f():\n    with open('x'):\n        pass",
    "an unknown function": "def f():\n    return open('x')",
    "an unknown method": "def f():\n    return 'x'.swapcase()",
    "a matrix product": "def f(a, b):\n    return a @ b",
    "a class with a method": "class f:\n    def g(self):\n        return 1",
    "any arguments": "def f(*a):\n    return a",
    "a global": "def f():\n    global x\n    x = 1",
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_translated_is_named_by_file_and_line(tmp_path: Path, source: str) -> None:
    (tmp_path / "it.py").write_text(f"# a line\n{source}\n")
    with pytest.raises(TranslationError, match=r"it\.py:[234]: .* is not translated; write it plainer"):
        translate([tmp_path], {"it": ["f"]})


SPARE = """
from typing import NamedTuple


class Card(NamedTuple):
    size: int
    source: str
    link: str


SHEET = "https://of.a.sheet"
CARDS = {"one": Card(1, SHEET + "/1", "wire"), "two": Card(2, f"{SHEET}/2", "wire")}


def f(card, *, twice=1, thrice=1):
    def inner(number, other=1):
        return number * other
    return inner(CARDS[card].size, other=twice) + thrice, CARDS[card].link


def g(name):
    return f(name, thrice=3)
"""


def test_what_nothing_reads_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "spare.py").write_text(SPARE.replace('SHEET + "/1"', '"https://of.another/1"'))
    text = translate([tmp_path], {"spare": ["g"]})
    assert "https" not in text and "SHEET" not in text and "wire" in text
    assert said_by(engine([tmp_path], {"spare": ["g"]}), "g('two')") == ["5n", "wire"]


UNASKED = """
from typing import NamedTuple


class Option(NamedTuple):
    kind: str
    default: object


class Setup(NamedTuple):
    size: int
    by: str
    often: bool
    twice: bool


OPTIONS = {"size": Option("count", 1), "by": Option("text", "us"), "often": Option("text", "no")}
OPTIONS |= {"way": Option(("this", "that"), "this")}


def theirs(setup):
    return -setup.size


def other(setup):
    return setup.by


def f(a):
    setup = Setup(size=a["size"], by=a["by"], often=a["often"] == "yes", twice=True)
    setup = setup._replace(twice=False)
    if setup.by != "us" or setup.often:
        return [theirs(setup)]
    elif a["often"] and setup.twice:
        return [other(setup)]
    elif a["way"] == "that":
        return [theirs(setup)]
    last = 1 if setup.by == "us" or setup.size else theirs(setup)
    return [*OPTIONS, setup.size, last, setup.twice, OPTIONS["way"].kind, a["way"] == "this"]
"""


def test_options_that_no_form_asks_leave_nothing_on_the_page(tmp_path: Path) -> None:
    """What only they lead to is gone; a field that is not always one value stays."""
    (tmp_path / "them.py").write_text(UNASKED)
    text = translate([tmp_path], {"them": ["f"]}, {"by": "us", "often": "no", "way=that": False})
    assert not any(word in text for word in ("theirs", "by", "often", "that")) and "twice" in text and "other" in text
    said = said_by(RUN + text, "f(new Map([['size', 3n], ['way', 'this']]))")
    assert said == ["size", "way", "3n", "1n", False, ["this"], True]
    script, words = whole(), ("deepspeed", "fsdp1", "torchao", *planner.UNASKED[2:], "muon", "adafactor", "fp8_rate")
    assert not any(re.search(rf"\b{word}\b", script) for word in words)


LOCALS = """
from pathlib import Path


def f(path, n):
    limit, grows, word, twice = 0, False, "no", 1
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        raise ValueError("lost") from None
    if grows or limit > 0:
        raise ValueError("grown")
    if n:
        twice = 2
    for limitless in range(n):
        twice += limitless
    return [text, limit, word, twice]
"""


def test_names_that_are_one_constant_leave_nothing_on_the_page(tmp_path: Path) -> None:
    """Nor what it decides; and what is pasted where a file is asked for is always there."""
    (tmp_path / "them.py").write_text(LOCALS)
    text = translate([tmp_path], {"them": ["f"]})
    assert not any(told in text for told in ("lost", "grown", "[0n", "false", "try "))
    assert said_by(RUN + text, "f('held', 3n)") == ["held", "0n", "no", "5n"]


FAMILIES = """
from functools import lru_cache
from typing import NamedTuple


class Kind(NamedTuple):
    turned: str = "halves"
    apart: bool = False


class Other(NamedTuple):
    size: int


class One(NamedTuple):
    size: int
    kind: Kind

    def wide(self):
        return self.size if self.kind.apart else 2 * self.size


COUNTED = []


def in_pairs(one):
    return -one.size


def of_other(one):
    return -2 * one.size


@lru_cache(maxsize=8)
def counted(one):
    COUNTED.append(one.size)
    if one.kind.turned == "pairs":
        return in_pairs(one)
    if one.kind.turned in ("halves", "partly"):
        return one.wide()
    return of_other(one)


def f(n):
    one = One(n, Kind(turned="partly") if n > 2 else Kind())
    assert one is not None
    first = of_other(one) if isinstance(one, Other) else counted(one)
    return [first, counted(one), counted(One(n + 1, Kind())), len(COUNTED)]
"""


def test_families_that_nothing_makes_leave_nothing_on_the_page(tmp_path: Path) -> None:
    """Neither what a field never says, nor a record that nothing makes; and who remembers is asked once."""
    (tmp_path / "them.py").write_text(FAMILIES)
    text = translate([tmp_path], {"them": ["f"]})
    assert not any(word in text for word in ("in_pairs", "of_other", "apart", "Other", "null)"))
    assert said_by(RUN + text, "f(3n)") == ["6n", "6n", "8n", "2n"]


def test_a_name_that_several_modules_bind_is_each_ones_own(tmp_path: Path) -> None:
    """Also where it is imported as another, and where a function or a field has one of its own by that name."""
    (tmp_path / "one.py").write_text("x = 1\n\n\ndef told(n):\n    return [n, x]\n")
    (tmp_path / "two.py").write_text("from one import told\n\nx = 2\n\n\ndef both(n):\n    return [told(n), x]\n")
    (tmp_path / "three.py").write_text(THREE)
    told = said_by(engine([tmp_path], {"three": ["f"]}), "f(7n)")
    assert told == [["5n", ["7n", "1n"], ["6n", "2n"]], "4n", "9n", ["0n", "1n"], ["8n", "3n"]]


THREE = """
from typing import NamedTuple

from one import told as of_one, x as x_of_one
from two import both, x as x_of_two

x = 3


class Point(NamedTuple):
    x: int


def told(x):
    return x + x_of_one


def f(n):
    inner = [x for x in range(x_of_two)]
    add = lambda x: x + x_of_two
    return [[5, of_one(n), [6, x_of_two]], told(x), add(n), inner, [Point(8).x, x]]
"""


PYTHON: dict[str, Callable[..., Any]] = {}
SAMPLE = """
from typing import NamedTuple


class Point(NamedTuple):
    x: int
    y: float = 0.5


def numbers(limit: int, *, step: int = 3):
    n = 0
    while n < limit:
        if n % 2 == 0 and n != 4:
            yield n
        elif not n - 5:
            yield from (-n, n // 2, -n // 2, n / 2, 2**n)
        n += 1 if step > 3 or limit < step else 2 - 1


def f(n):
    a, (b, c) = 1, (2.5, [n, *range(2)])
    text = "".join(sorted({"b", "a"})) + f"{n:>3}"[:0] + f"{a!r} {b} {c} {n:,} {'q' if a in c else 1e-7}"
    square = {k: v for k, v in enumerate(numbers(n, step=4)) if v or k}
    square |= {"last": [x * y for x in range(3) for y in range(x)]}
    square["sum"] = sum(square["last"]) + True
    point = Point(n)._replace(y=b)
    both = max(c, key=lambda x: -x), min(3, 2), any(c), all(c), abs(-b), round(2.5), round(3.5), int(-2.7)
    return [text, square, point._asdict(), point == Point(n, 2.5), point is None, both, (n or 7) and "end", c[-1]]
""".replace('f"{n:>3}"[:0] + ', "")


def test_what_is_translated_means_what_it_meant(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    namespace: dict[str, Any] = {}
    exec(compile(SAMPLE, "sample", "exec"), namespace)
    context = MiniRacer()
    context.eval(engine([tmp_path], {"sample": ["f"]}) + BRIDGE)
    for n in (0, 1, 4, 9, 2**64):
        if n < 2**64:
            assert json.loads(str(context.eval(f"JSON.stringify(tell(f({n}n)))"))) == json.loads(
                json.dumps(tell(namespace["f"](n)))
            )
    context.close()


GRID = """
from decimal import Decimal
from typing import NamedTuple


class Card(NamedTuple):
    size: int
    link: str = "none"
    rate: float = 0.5


INTS = [-9, -8, -7, -2, -1, 0, 1, 2, 7, 8, 9, 10**20 + 1, -(10**20) - 1]
FLOATS = [-3.5, -2.5, -1.5, -0.5, -0.4, 0.0, 0.4, 0.5, 1.5, 2.5, 2.675, 1e20, -1e20]


def tried(f, *values):
    try:
        return f(*values)
    except ValueError:
        return "refused"


def integers():
    rows = []
    for a in INTS:
        for b in INTS:
            if b:
                rows.append([a // b, a % b, a - b * (a // b), -a // b, -(a // b), a / b, a - b, a * b])
        rows.append([abs(a), -a, int(a), float(a), round(a), a == float(a), a < 0.5, a + 0.5, a * True, a + True])
    return rows


def rounded():
    return [[round(x), int(x), int(-x), abs(x), -x, x == int(x), str(x), f"{x:.0f}", f"{x:,.1f}"] for x in FLOATS]


def truth():
    empty = [[], {}, {1} - {1}, "", (), 0, 0.0, None, False, Decimal("0"), Decimal("0.00")]
    full = [[0], {0: 0}, {0}, "0", (None,), -1, 1e-300, True, Decimal("0.1"), [[]], " "]
    found = []
    for n, x in enumerate([*empty, *full]):
        one = 1 if x else 0
        other = 0 if not x else 1
        third = 0
        while x and third < 1:
            third += 1
        found.append([bool(x), one, other, third, not x, (x or n) == n, (x and n) == n, any([x]), all([x])])
        found.append([sum(1 for each in [x] if each), (n if x and x else -n), bool(x or None), bool(x and n)])
    return found


def defaults(named=3, *, only="x", nothing=None):
    d = {"zero": 0, "none": None, "empty": ""}
    gets = [d.get("zero", 5), d.get("none", 5), d.get("empty", 5), d.get("no"), d.get("no", 0), d.get("no", "")]
    firsts = [next((x for x in [] if x), "other"), next((x for x in (3, 4) if x > 3), None), next((x for x in []), 0)]
    cards = [Card(1), Card(1, "a"), Card(1, rate=2.0), Card(size=0, link=""), Card(2, "b")._replace(link="")]
    made = [(card.size, card.link, card.rate) for card in cards] + [dict.fromkeys("ab"), dict.fromkeys("ab", 0)]
    return [gets, firsts, made, named, only, nothing, list(enumerate("ab")), list(enumerate("ab", 1))]


def asked():
    return [defaults(), defaults(0), defaults(named=0), defaults(only=""), defaults(4, only=None, nothing=0)]


def chosen():
    pairs = [("a", 2), ("b", 3), ("c", 3), ("d", 1)]
    size = lambda pair: pair[1]
    ties = [max(pairs, key=size), min(pairs, key=size), sorted(pairs, key=size), max(1, 2.0, 2), min(2.0, 2)]
    spans = [list(range(3)), list(range(2, 5)), list(range(0)), list(range(3, 1)), list(range(-2, 1))]
    parts = [pairs[-1], pairs[1:], pairs[:-1], pairs[:0], pairs[-2:], "abc"[-1], "abc"[:-2], pairs[::2], "a=b=c"[1:]]
    joined = ["a=b=c".partition("="), "ab".partition("="), "a b  c".split(), "".split(), "a,,b".split(","), 2**10, 2**0]
    return [ties, spans, parts, joined, list(zip([1, 2], [3])), sum([]), sum([True, 2]), sum(x for x in FLOATS[:2])]


def f(name):
    answers = {"integers": integers, "rounded": rounded, "truth": truth, "asked": asked, "chosen": chosen}
    return answers[name]()
"""


@pytest.mark.parametrize("name", ["integers", "rounded", "truth", "asked", "chosen"])
def test_what_numbers_and_containers_do_is_what_they_do_in_python(
    grid: tuple[MiniRacer, dict[str, Any]], name: str
) -> None:
    context, namespace = grid
    ours = json.loads(json.dumps(tell(namespace["f"](name))))
    theirs = json.loads(str(context.eval(f"JSON.stringify(tell(f({json.dumps(name)})))")))
    different = [(n, a, b) for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    assert different == []


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MiniRacer, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("grid")
    (folder / "grid.py").write_text(GRID)
    namespace: dict[str, Any] = {}
    exec(compile(GRID, "grid", "exec"), namespace)
    context = MiniRacer()
    context.eval(engine([folder], {"grid": ["f"]}) + BRIDGE)
    yield context, namespace
    context.close()


DEFAULTS = """
def inner(n, extra=False, size=2):
    if extra:
        return lost(n)
    return n * size


def lost(n):
    return -n


def free(n, extra=False):
    return lost(n) if extra else n


def f(n):
    return [inner(n, extra=False, size=3), inner(n), free(n), free(n, True)]
"""


def test_a_parameter_that_no_call_changes_leaves_nothing_on_the_page(tmp_path: Path) -> None:
    """One that a call gives another value stays, and so does what a function has that is called from outside."""
    (tmp_path / "them.py").write_text(DEFAULTS)
    text = translate([tmp_path], {"them": ["f"]})
    assert text.count("lost") == 2  # where it is made, and in free()
    assert translate([tmp_path], {"them": ["f", "inner"]}).count("lost") == 3
    assert said_by(RUN + text, "f(5n)") == ["15n", "10n", "5n", "-5n"]
