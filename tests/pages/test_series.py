"""A series, a bar, a row and a column show the values that its name says: of two, neither shows what the other names.

No test of a figure is needed for that: each number that a figure or table looks up is changed in turn, and what moves
has a name. The name's words (`labels["measured"]`) stand in the values' path (`measured_seconds`), or `MEANS` says what
they mean.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from xml.etree import ElementTree

import pytest

from figures.axes import Axes, Names
from ledger.site.check import configured_device
from ledger.site.quote import Values, open_source
from ledger.site.variants import call_figure
from tests import tables
from tests.tables import BOOK

BLOCKS = tables.blocks("en")
FIGURES = [name for name, block in BLOCKS.items() if block.kind == "figure"]
TABLES = [name for name, block in BLOCKS.items() if block.kind == "table"]

# Words of values that a name means, where it does not say them.
MEANS: dict[str, dict[str, str]] = {
    "activations.lengths": {"rest": "norms attention mlp", "hooks": "length bytes"},
    "grpo.phases": {"state": "trainer sampling", "passes": "trainer awake asleep", "engine_rest": "engine awake"},
    "gpu_memory.requests": {
        "scalar": "scalar", "4 × 8": "small", "2 × (32 × 32)": "pair", "100 × (1000)": "vectors",
        "1000 × 1000": "square", "1024 × 2816": "whole", "12288 × 49152": "gpt",
    },
    "experts#layer": {"Held": "expert", "Met": "active"},
    "fp8#speed": {"By the peaks": "predicted", "Over bf16": "measured ratio"},
    "optimizers#muon-flops": {"8192": "8k", "65536": "64k", "524288": "512k", "4194304": "4M"},
    "training-loop#overlap": {
        "l + w": "predicted sum", "no worker": "sum", "max(l, w)": "predicted max", "one worker": "max"
    },
    "inference#kinds": {
        "A token adds": "grows", "At 32,768 tokens": "short", "At 131,072 tokens": "long"
    },
    "inference#measured": {
        "CodeLlama 7B": "cpp", "Llama 2 7B": "7 b", "Llama 2 70B": "70 b", "Llama 3.1 8B": "8 b"
    },
    "one-card#copied": {
        "README, as printed": "cell", "README, by its factor": "rule",
        "Planner, 2,048 tokens": "short", "Planner, 16,384 tokens": "long",
    },
    "snapshots#read": {"First step": "peak", "Loss in eight chunks": "mended"},
    "gpt2-parameters#letters": {"N": "parameters"},
    "gpt2-parameters#llama": {"before": "as gpt2", "after": "llama", **{str(place): "steps" for place in range(6)}},
    "gpu-memory#capacity": {"Reported": "reported gib", "The same in GB": "reported bytes"},
    "hardware#derive": {"SMs, $S$": "processors"},
    "evidence#held": {"Rate / all busy": "at clock share"},
    "how-far-off#others": {"The planner's, today": "planned", "At first sight": "planned first"},
    "how-far-off#room": {
        "Smallest ratio": "low ratio", "Largest": "high ratio", "Nine of ten from": "start ratio", "to": "end ratio",
        "All weights, one card": "full", "All weights, sharded": "full sharded",
    },
    "storage-and-strides#contiguity": {"Left step, all right steps": "compares"},
    "inference#serve-4090": {
        "One user, tokens/s": "alone", "All of them, tokens/s": "together", "A million tokens, yuan": "yuan",
    },
    "many-gpus#pcie": {
        "A card needs": "needs bytes", "Sends a step": "sent bytes", "At 25.6 GB/s, s": "near",
        "At 10 GB/s, s": "across", "Tokens a second": "rate", "100 million tokens, yuan": "yuan",
    },
    "many-gpus#pcie 2": {"CPU memory of the offload": "host", "ZeRO-3, all offloaded": "offloaded needs"},
    "many-gpus#hidden": {"A GPU sends": "sent bytes", "Communication": "wire"},
    "mfu#measure 2": {"At the peak": "predicted seconds", "Of the peak": "matmul mfu"},
    "mfu#measure 3": {"bf16": "bfloat16", "fp32": "float32", "TF32": "tf32", "fp8": "float8"},
    "mfu#odd 2": {"4096 × 4096 × 4095": "odd sums", "Predicted": "filled"},
    "mfu.waves": {"5,185 × 1,024": "three long", "5,185 × 4,096": "ten"},
    "mixed-precision#autocast": {"Reference, CUDA": "reference", "This device's GPU": "cuda"},
    "mixed-precision#whose": {"Sum": "state"},
    "optimizers#state": {"State": "per parameter", "In all": "total", "GPT-2 small": "gpt2"},
    "optimizers#zero-grad": {"1 × 128 tokens": "few", "8 × 1,024 tokens": "many", "the default": "fused"},
    "optimizers#traffic": {"TB/s": "terabytes", "7 billion": "seven b"},
    "roofline#launch": {"Ratio": "graph ratio", "In a CUDA graph": "node seconds"},
    "roofline#look-up": {"TFLOP/s": "teraflops", "TB/s": "bandwidth", "RTX 4090": "4090"},
    "roofline#measurement": {"FLOP/B": "intensity", "Least time": "roof seconds", "Measured": "median seconds"},
    "roofline#measurement 2": {"FLOP/B": "intensity", "Least time": "roof seconds", "Measured": "median seconds"},
    "roofline#tokens": {"FLOP/B": "intensity", "Least time": "roof"},
    "roofline#measured": {"How many": "kernels", "Slowest": "low", "Fastest": "high"},
    "roofline.memories": {"cores cores_size shared": "chip", "cache_size memory": "bandwidth"},
    "roofline.h100": {
        "ridge 295": "peak bfloat16", "other_units": "peak float32", "decode": "at once", "batch": "at once",
        "prefill": "at once", "training": "at once",
    },
    "storage-and-strides#bandwidth": {"Bandwidth": "rate second"},
    "tensor-operations#element-wise": {"Allocates": "allocated", "GPU, allocator": "measured"},
    "tokens#rate": {
        "Bytes a token, English": "rate en", "Bytes a token, Chinese": "rate zh",
        "Chinese characters a token": "characters zh", "Chinese tokens / English tokens": "ratio",
    },
    "tokens#content": {
        "Bytes a token, English": "rate en", "Bytes a token, Chinese": "rate zh",
        "Chinese tokens / English tokens": "ratio",
    },
    "transformer-flops#papers": {
        "GPT-2 small, T = 1,024": "gpt2 1", "Llama 3 8B, T = 8,192": "llama 8", "Llama 3 8B, T = 131,072": "llama 128",
    },
    "optimizers.held": {"parameter": "element", "gradient": "element", "state": "per_parameter"},
    "snapshots.timeline": {"first": "second piece"},
    "inference.knee": {f"{name}_{kind}": f"{name} {kind}" for name in ("bf16", "fp8") for kind in ("bound", "reported")
    },
    "tokens.rates": {"en_zh": "enzh", "zh_en": "zhen"},
}  # fmt: skip

SAID = {  # by headers of tables, in any of them
    " / |\\bover( the)?\\b": " ratio ",
    "/s\\b": " second",
    "^time\\b": "seconds",
    "\\bof truth\\b": "ratio",
    "\\bas fast as\\b": "ratio",
}

OF_THE_SAME = ("optimizers.held",)  # whose series are made of one value
TWICE = {"storage-and-strides#bandwidth.predicted_copy_seconds"}  # shown in several rows

SOURCE = open_source(BOOK, configured_device(BOOK), local=False)


class Changed(dict[str, Any]):
    """The published device's values, some of them changed."""

    def __init__(self) -> None:
        self.source = Values(SOURCE)

    def __missing__(self, name: str) -> Any:
        self[name] = self.source[name]
        return copy.deepcopy(self[name])


def call(name: str, values: Mapping[str, Any]) -> Any:
    if not BLOCKS[name].argument:
        return tables.by_key(BLOCKS[name].options).filled(values)
    labels = {key: key for key in BLOCKS[name].options.get("labels", {})}
    return call_figure(SOURCE, name, labels | {"language": "en"}, cast(Values, values))


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+|\d+", text.lower().replace(",", "")))


def alike(one: str, other: str) -> float:
    """Whether two words are one: 1 if they are, a little less if but for an ending (count, counted)."""
    if one == other:
        return 1
    return 0.9 if min(len(one), len(other)) > 2 and (one.startswith(other) or other.startswith(one)) else 0


def fit(names: Collection[str], paths: Collection[frozenset[str]]) -> float:
    """How many of a name's words stand in the paths, on average."""
    return sum(max((alike(n, w) for w in path), default=0) for n in names for path in paths) / max(len(paths), 1)


def gain(
    one: Collection[str], ones: Collection[frozenset[str]], other: Collection[str], others: Collection[frozenset[str]]
) -> float:
    """How much better both names fit their own values than each other's."""
    return fit(one, ones) + fit(other, others) - fit(one, others) - fit(other, ones)


def meant(figure: str, name: str) -> frozenset[str]:
    name = re.split("[\u2002\u2003]", name)[0]  # behind which a number stands
    if name not in MEANS.get(figure, {}) and not BLOCKS[figure].argument:
        for said, means in SAID.items():
            name = re.sub(said, means, name, flags=re.IGNORECASE)
    return words(MEANS.get(figure, {}).get(name, name).replace("_", " "))


# Tables


class Pair(NamedTuple):
    """Two cells beside or above each other: in which row or column, their names, and the words of their values."""

    where: str
    names: tuple[str, str]
    words: tuple[frozenset[str], frozenset[str]]

    def gain(self, figure: str) -> float:
        (one, other), (ones, others) = self.names, self.words
        return gain(meant(figure, one), [ones - others], meant(figure, other), [others - ones])


def pairs(figure: str, values: Changed) -> Iterator[Pair]:
    """All pairs of a table's cells that quote different values; places in a list, which have no name, aside."""
    header, *rows = call(figure, values)
    header, rows = [filled(cell, values) for cell in header], [[filled(row[0], values), *row[1:]] for row in rows]
    table = [[frozenset().union(*map(words, quoted(cell, values)[0])) for cell in row] for row in rows]
    for names, row in zip(rows, table, strict=True):
        for a, b in itertools.combinations(range(1, len(header)), 2):
            yield Pair(names[0], (header[a], header[b]), (row[a], row[b]))
    for c in range(1, len(header)):
        for (one, ones), (other, others) in itertools.combinations(zip(rows, table, strict=True), 2):
            yield Pair(header[c], (one[0], other[0]), (ones[c], others[c]))


def filled(cell: str, values: Changed) -> str:
    """A cell with what it quotes."""
    return re.sub(r"\{\{ ([^:}]*?)(:\S+)? \}\}", lambda match: str(values[match[1]]), cell)


def quoted(cell: str, values: Changed) -> tuple[list[str], set[int]]:
    """The paths of the values that a cell quotes, without places in lists; and these."""
    paths, places = [], set()
    for quote in re.findall(r"\{\{ ([^:}]*)", cell):
        snippet, name, *parts = quote.split(".")
        value, kept = values[f"{snippet}.{name}"], [snippet, name]
        for part in parts:
            if isinstance(value, list):
                places.add(int(part))
            else:
                kept.append(part)
            value = value[int(part)] if isinstance(value, list) else (value or {}).get(part)
        paths.append(".".join(kept[1:]))
    return paths, places


# Figures


class Mark(NamedTuple):
    """Something drawn: what it is called by the legend, by the category that it stands at and by a text at it, and
    what changes with its number."""

    names: tuple[str, str, str]
    number: Any


def marks(figure: str, values: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Mark]:
    """All that a chart is given to draw, in order; or all shapes of a drawing."""
    found: list[tuple[Axes, str, dict[str, Any]]] = []

    def spy(original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)

        def called(self: Axes, *given: Any, **named: Any) -> None:
            bound = signature.bind(self, *given, **named)
            bound.apply_defaults()
            found.append((self, original.__name__, dict(bound.arguments)))
            original(self, *given, **named)

        return called

    with monkeypatch.context() as patch:
        for name in ("plot", "scatter", "bar", "barh", "axhline", "axvline", "annotate"):
            patch.setattr(Axes, name, spy(getattr(Axes, name)))
        if figure in CHARTS:
            patch.setattr(Axes, "__str__", lambda axes: "<svg/>")  # what is drawn is not looked at
        svg = call(figure, values)
    if found:
        CHARTS.add(figure)
    return list(of_chart(found)) if found else list(of_drawing(ElementTree.fromstring(svg)))


CHARTS: set[str] = set()  # figures that are known to be drawn by Axes


def of_chart(found: Sequence[tuple[Axes, str, dict[str, Any]]]) -> Iterator[Mark]:
    texts = {(a["x"], a["y"]): a["text"] for _, method, a in found if method == "annotate"}
    legend = {a["colour"]: a["label"] for _, _, a in found[::-1] if a.get("label")}
    for axes, method, a in found:
        x, y = a.get("height" if method == "barh" else "x"), a.get("height" if method == "bar" else "y")
        x = a["width"] if method == "barh" else x
        text = a.get("text") or a.get("before") or ""
        if method in ("annotate", "axhline", "axvline"):
            number = (text, x, y) if method != "annotate" else text
            yield Mark((a.get("label", "") or (not text and legend.get(a.get("colour"), "")) or "", "", text), number)
            continue
        for at in zip(x or (), y or (), strict=True):
            category = ""
            for axis, place in zip((axes.x, axes.y), at, strict=True):
                if isinstance(axis, Names) and isinstance(axis.given, Mapping) and place is not None:
                    category = list(axis.given.values())[round(place)]
            yield Mark((a["label"] or legend.get(a["colour"], ""), category, texts.get(at, "")), at)


def of_drawing(root: ElementTree.Element) -> Iterator[Mark]:
    """Rectangles and circles; a legend is a shape with a text behind it, a category a text in a row or a column."""
    shapes, legend, texts, centred = list(root), {}, [], []
    for shape, text in itertools.pairwise(shapes):
        if shape.tag.endswith(("rect", "circle")) and text.tag.endswith("text"):
            x = float(shape.get("x") or shape.get("cx") or 0)
            if 5 < float(text.attrib["x"]) - x < 30 and float(shape.get("width") or 10) < 20:
                legend[shape.get("class")] = "".join(text.itertext())
    for text in shapes:
        if text.tag.endswith("text") and "".join(text.itertext()) not in legend.values():
            texts.append((float(text.attrib["x"]), float(text.attrib["y"]), "".join(text.itertext())))
            centred += texts[-1:] if text.get("text-anchor") == "middle" else []
    for shape in shapes:
        if shape.tag.endswith("rect"):
            x, y, width, height = (float(shape.attrib[name]) for name in ("x", "y", "width", "height"))
            row = min(((tx, t) for tx, ty, t in texts if y - 9 <= ty <= y + height + 8 and tx <= x), default=(0, ""))[1]
            here = [t for tx, ty, t in centred if abs(tx - x - width / 2) < 2 and abs(ty - y - height / 2) < 60]
            yield Mark((legend.get(shape.get("class"), ""), row, " ".join(here)), (width, height))
        elif shape.tag.endswith("circle"):
            place = float(shape.attrib["cx"]), -float(shape.attrib["cy"])
            yield Mark((legend.get(shape.get("class"), ""), "", ""), place)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path to each number in a value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, str(number)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def changed(value: Any, of: Collection[tuple[str, ...]], path: tuple[str, ...] = ()) -> Any:
    """A value with some of its numbers, given by their paths, a little larger."""
    if isinstance(value, Mapping):
        return {key: changed(item, of, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [changed(item, of, (*path, str(number))) for number, item in enumerate(value)]
    if isinstance(value, int | float) and not isinstance(value, bool) and path in of:
        return value + max(1, value // 100) if isinstance(value, int) else value * 1.01 or 0.01
    return value


def kind(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """A path with numbers left out: all values of one kind."""
    return (name, *("*" if part.isdigit() else part for part in path))


def moved(figure: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Mark], dict[tuple[str, ...], list[int]]]:
    """The marks of a chart, and which of them move with each kind of value."""
    values = Changed()
    before = marks(figure, values, monkeypatch)
    found: dict[tuple[str, ...], list[int]] = {}
    for name, value in dict(values).items():
        for group in dict.fromkeys(kind(name, path) for path in leaves(value)):
            other = Changed()
            other.update(values)
            other[name] = changed(value, {path for path in leaves(value) if kind(name, path) == group})
            try:
                after = marks(figure, other, monkeypatch)
            except (IndexError, KeyError, ValueError, ZeroDivisionError):
                continue  # a number of things, not a value
            if len(after) == len(before):
                found[group] = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if grows(a, b, figure)]
    return before, found


def grows(before: Mark, after: Mark, figure: str) -> bool:
    """Whether a number's change is seen; where sizes are shares, some shrink for others to grow."""
    if figure in CHARTS:
        return bool(before.number != after.number)
    return any(b > a + 0.004 for a, b in zip(before.number, after.number, strict=True))


def path_words(group: tuple[str, ...]) -> frozenset[str]:
    """The words of a kind of value, and its keys in one."""
    keys = [part for part in group[1:] if part != "*"]
    return words(" ".join(group).replace("_", " ")) | {"".join(keys)}


def confusions(figure: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each two names of a figure whose values, as far as both have some alone, do not tell which is whose."""
    drawn, found = moved(figure, monkeypatch)
    for role in range(3):
        names = dict.fromkeys(mark.names[role] for mark in drawn if mark.names[role])
        seen = {name: {g for g, at in found.items() if any(drawn[n].names[role] == name for n in at)} for name in names}
        for one, other in itertools.combinations(names, 2):
            ones, others = seen[one] - seen[other], seen[other] - seen[one]
            if role == 0 and seen[one] and seen[one] == seen[other] and figure not in OF_THE_SAME:
                yield f"{one!r} and {other!r} show the same: {sorted(seen[one])}"
            if role == 2 and figure not in CHARTS and re.search(r"\d", one + other):
                continue  # a number that stands in a shape
            if (ones or others if figure in CHARTS else ones and others) and gain(
                meant(figure, one), [*map(path_words, ones)], meant(figure, other), [*map(path_words, others)]
            ) <= 0:
                yield f"{one!r} shows {sorted(ones)}, {other!r} shows {sorted(others)}"


def off_places(figure: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Values whose key is a number that the chart has on an axis or in a name, and that move something elsewhere."""
    values = Changed()
    before = marks(figure, values, monkeypatch)
    if figure not in CHARTS:
        return

    def is_at(mark: Mark, number: int) -> bool:
        return number in (mark.number if isinstance(mark.number, tuple) else ()) or str(number) in words(
            " ".join(mark.names)
        )

    for name, value in dict(values).items():
        by_kind: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for path in leaves(value):
            by_kind.setdefault(kind(name, path), []).append(path)
        for paths in by_kind.values():
            path = paths[len(paths) // 2]
            siblings = [(int(key), parent) for key, parent in with_parents(value, path) if key.isdigit()]
            numbers = [number for number, parent in siblings if isinstance(parent, dict)]
            others = {
                int(key) for _, parent in siblings for key in parent if isinstance(parent, dict) and key.isdigit()
            }
            other = Changed()
            other.update(values)
            other[name] = changed(value, {path})
            after = marks(figure, other, monkeypatch) if numbers else before
            for a, b in zip(before, after, strict=True):
                elsewhere = a.number != b.number and not any(is_at(a, number) for number in numbers)
                if elsewhere and any(is_at(a, number) for number in others):
                    yield f"{name}.{'.'.join(path)} moves {a}"


def with_parents(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Each key of a path with what it is a key of."""
    for key in path:
        yield key, value
        value = value[int(key)] if isinstance(value, list) else value[key]


@pytest.mark.parametrize("figure", FIGURES)
def test_of_two_names_in_a_figure_neither_stands_at_the_others_values(
    figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(confusions(figure, monkeypatch)) == []
    assert list(off_places(figure, monkeypatch)) == []


@pytest.mark.parametrize("table", [name for name in TABLES if not name.startswith("formulas.")])  # test_formulas.py
def test_of_two_rows_or_columns_neither_holds_the_others_values(table: str) -> None:
    values = Changed()
    confused = [
        pair
        for pair in pairs(table, values)
        if all(pair.words) and pair.words[0] != pair.words[1] and pair.names[0] != pair.names[1]
        if pair.gain(table) <= 0
    ]
    assert confused == [], f"headers that are not the words of their values get a line in MEANS, above, under {table!r}"
    places = [[quoted(cell, values)[1] for cell in row] for row in call(table, values)[1:]]
    lines = (places, list(zip(*places, strict=True)))
    assert any(all(len(set().union(*line)) <= 1 for line in each) for each in lines), (
        "one item of a list a row, or a column"
    )
    quotes = [quote for row in call(table, values)[1:] for cell in row for quote in re.findall(r"\{\{ ([^:}]*)", cell)]
    twice = {quote for quote in quotes if quotes.count(quote) > 1}
    assert {f"{table}.{quote.split('.')[-1].strip()}" for quote in twice} <= TWICE
