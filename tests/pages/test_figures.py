"""A figure draws what its values say: each series where its numbers lie, each word beside its colour, nothing cut."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from figures import (
    activations,
    compute_for_memory,
    count_your_step,
    counting_flops,
    experts,
    full_ledger,
    gpt2_parameters,
    gpu_memory,
    gradients,
    grpo,
    hardware,
    how_far_off,
    inference,
    many_gpus,
    mfu,
    mixed_precision,
    named_dimensions,
    number_formats,
    one_card,
    optimizers,
    parallelism,
    roofline,
    snapshots,
    storage_and_strides,
    tensor_operations,
    timing,
    tokens,
    traces,
    transformer_flops,
    two_questions,
)
from figures.axes import Axes, Log, Names, Scale, power_of_ten
from figures.svg import text_width
from ledger.book import Book
from ledger.site import quote, variants
from ledger.site.chapter import Chapter
from ledger.site.quote import open_source
from tests import tables
from tests.conftest import ROOT

BOOK = Book(ROOT)
UNITS = {
    "": 1.0,
    "%": 0.01,
    "ns": 1e-9,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "MFLOP/s": 1e6,
    "GFLOP/s": 1e9,
    "TFLOP/s": 1e12,
}
Place = tuple[float, float]


class Values(dict[str, Any]):
    """Made-up values; what is not among them cannot be had."""

    def __missing__(self, key: str) -> None:
        return None


class Words(dict[str, str]):
    """Labels that are their own names."""

    def __missing__(self, key: str) -> str:
        return "en" if key == "language" else key


BOX = re.compile(r"M([-\d.]+) ([-\d.]+)h([\d.]+)v([\d.]+)h-\3z")  # of several in a path: its corner and its sides
RING = re.compile(r"M([-\d.]+) ([-\d.]+)a([\d.]+) ")  # of several in a path, where each begins, and its radius


class Chart:
    """A drawing as its reader sees it: shapes by colour, texts by place, the legend apart from the rest."""

    def __init__(self, svg: str) -> None:
        self.root = root = ElementTree.fromstring(re.sub(r' xmlns="[^"]*"', "", svg))
        self.width, self.height = map(float, root.attrib["viewBox"].split()[2:])
        self.texts = {_word(text): text for text in root if _word(text)}
        self.colours: dict[str, str] = {}  # of the shape that stands beside a text of the legend
        self.shapes = list(root)
        for shape, text in itertools.pairwise(root):
            if (shape.tag == "text", text.tag, text.get("text-anchor")) != (False, "text", None):
                continue
            if _colour(shape) == "muted":
                continue
            if _middle(shape) == float(text.attrib["y"]) - 5:
                self.colours[_word(text)] = _colour(shape)
                self.shapes.remove(shape)

    def dots(self, colour: str) -> list[Place]:
        circles = [shape for shape in self.shapes if shape.tag == "circle" and _colour(shape) == colour]
        paths = [shape.attrib["d"] for shape in self.shapes if shape.tag == "path" and _colour(shape) == colour]
        rings = [tuple(map(float, ring)) for path in paths for ring in RING.findall(path)]
        found = [(float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in circles]
        return found + [(left + radius, y) for left, y, radius in rings]

    def lines(self, colour: str) -> list[list[Place]]:
        paths = [shape.attrib["d"] for shape in self.shapes if shape.tag == "path" and _colour(shape) == colour]
        paths = [path for path in paths if not BOX.search(path)]
        return [[(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", path)] for path in paths]

    def bars(self, colour: str) -> list[tuple[float, float, float, float]]:
        """Left, right, top and bottom of each."""
        shapes = [shape for shape in self.shapes if _colour(shape) == colour]
        found = [shape.attrib for shape in shapes if shape.tag == "rect"]
        boxes = [[box[side] for side in ("x", "y", "width", "height")] for box in found]
        boxes += BOX.findall("".join(shape.get("d", "") for shape in shapes))
        numbers = (map(float, box) for box in boxes)
        return [(x, x + width, y, y + height) for x, y, width, height in numbers]

    def line(self, colour: str) -> tuple[float, float]:
        """Left and right of the first that is level."""
        lines = (shape.attrib for shape in self.shapes if shape.tag == "line" and _colour(shape) == colour)
        return next((float(line["x1"]), float(line["x2"])) for line in lines if line["y1"] == line["y2"])

    def place(self, word: str) -> Place:
        """Where a text stands."""
        text = self.texts[word]
        return float(text.attrib["x"]), float(text.attrib["y"])


def _word(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def _colour(shape: ElementTree.Element) -> str:
    return shape.get("class", "").removeprefix("fill-").removeprefix("stroke-")


def _middle(shape: ElementTree.Element) -> float:
    """Its height on the page."""
    if shape.tag == "rect":
        return float(shape.attrib["y"]) + float(shape.attrib["height"]) / 2
    return float(shape.get("cy") or shape.get("y1") or re.findall(r"[-\d.]+", shape.attrib["d"])[1])


def reading(text: ElementTree.Element) -> float:
    """The number that a tick names."""
    if len(text):
        factor = (text.text or "").removesuffix("10").removesuffix(" × ")
        return float(factor or 1) * 10.0 ** int((text[0].text or "").replace("−", "-"))
    digits, _, unit = _word(text).partition(" ")
    return float(digits.replace(",", "").replace("−", "-")) * UNITS[unit]


def gaps(numbers: Sequence[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(numbers)]


# The axes themselves


@pytest.mark.parametrize("unit", ["", "bytes", "seconds"])
def test_the_ticks_of_a_wide_axis_go_from_below_what_it_shows_to_above_it(unit: str) -> None:
    for low, high in ((1, 10**6), (3e3, 7e11), (2**20, 2**34), (5e-7, 40)):
        ticks = Log("", unit=unit)._ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high, (low, high)


@pytest.mark.parametrize(
    ("scale", "numbers"),
    [
        (Scale, [0, 10, 20, 30]),
        (Scale, [-3, -1, 1, 3]),
        (Scale, [1.001, 1.002, 1.003]),
        (Log, [1, 10, 100, 1000]),
        (Log, [3e-7, 3e-3, 3e1]),
        (Log, [20, 30, 45]),
    ],
)
def test_equal_steps_of_a_scale_are_equal_distances(scale: type[Scale], numbers: list[float]) -> None:
    axes = Axes(scale(), scale())
    axes.scatter(numbers, numbers)
    dots = Chart(str(axes)).dots("0")
    assert len(dots) == len(numbers)
    for steps in (gaps([x for x, _ in dots]), gaps([-y for _, y in dots])):  # more is to the right, and higher
        assert steps == pytest.approx([steps[0]] * len(steps), abs=0.05)
        assert steps[0] > 20


@pytest.mark.parametrize(
    ("scale", "low", "high", "unit"),
    [
        (Scale, 0, 1070, ""),
        (Scale, -0.3, 0.25, ""),
        (Scale, 1.2e7, 1.31e7, ""),
        (Scale, 0.1 + 0.2, 0.6000000000000001, ""),
        (Scale, 0.5, 2.5, "seconds"),
        (Scale, 0, 0.6, "seconds"),
        (Scale, 0, 1, "share"),
        (Log, 2e-3, 900, ""),
        (Log, 2e4, 3e5, ""),
        (Log, 1.2e5, 1.9e5, ""),
        (Log, 1e-9, 1e40, ""),
        (Log, 3e-6, 2e-3, "seconds"),
        (Log, 1.2e-3, 3.1e-3, "seconds"),
        (Log, 3e6, 2e9, "flop_per_second"),
    ],
)
def test_a_tick_stands_at_the_number_that_it_names(scale: type[Scale], low: float, high: float, unit: str) -> None:
    axes = Axes(Scale(ticks={0: "", 1: ""}), scale(unit=unit))
    axes.scatter([0, 1], [low, high])
    chart = Chart(str(axes))
    heights = {reading(text): float(text.attrib["y"]) - 5 for text in chart.texts.values()}
    assert len(heights) >= 3
    for number, height in heights.items():
        assert height == pytest.approx(axes.place_y(number), abs=0.1)
    (_, lowest), (_, highest) = chart.dots("0")
    assert max(heights.values()) >= lowest - 0.1  # the ends lie on ticks
    assert min(heights.values()) <= highest + 0.1


def test_a_power_of_ten_is_printed_in_one_way() -> None:
    assert [power_of_ten(power) for power in (-12, -1, 0, 1, 2, 30)] == ["10⁻¹²", "10⁻¹", "1", "10", "10²", "10³⁰"]
    axes = Axes(Log(), Log())
    axes.plot([1e-5, 1e3], [1e2, 1e9])
    assert {"10−5", "1", "10", "103", "109"} <= set(Chart(str(axes)).texts)  # exponents are raised digits
    assert '10<tspan dy="-5.6">−5</tspan>' in str(axes)


@pytest.mark.parametrize("word", ["with master weights", "激活值与主权重", "FLOP/s"])
def test_a_legend_lays_itself_out(word: str) -> None:
    axes = Axes(Scale(), Scale())
    for colour in range(6):
        draw = (axes.plot, axes.scatter, axes.bar)[colour % 3]
        draw([1, 2], [colour, colour + 1], colour, f"{word} {colour}")
    chart = Chart(str(axes))
    assert chart.colours == {f"{word} {colour}": str(colour) for colour in range(6)}
    assert not list(faults(chart))


def test_a_logarithmic_axis_of_bytes_has_binary_ticks() -> None:
    axes = Axes(Log("size", unit="bytes"), Scale())
    axes.plot([5_000, 3 * 2**30], [0, 1])
    svg = str(axes)
    assert ">32 KiB<" in svg and ">1 GiB<" in svg and "9.77" not in svg


def test_texts_of_ticks_do_not_touch() -> None:
    axes = Axes(Log("side", ticks=[2**power for power in range(4, 20)]), Scale(ticks={1: "1.00", 1.01: "1.01", 2: "2"}))
    axes.plot([16, 2**19], [1, 2])
    chart = Chart(str(axes))
    assert "16" in chart.texts
    assert "1.01" not in chart.texts
    assert not list(faults(chart))


def test_a_line_breaks_where_there_is_nothing_to_draw() -> None:
    axes = Axes(Scale(), Scale(low=0, high=10))
    axes.plot([0, 1, 2, 3, 4, 5, 6], [1, 2, None, 3, 4, 50, 5])
    axes.scatter([0, 1, 2], [1, None, 50])
    chart = Chart(str(axes))
    assert [len(line) for line in chart.lines("0")] == [2, 2, 1]
    assert len(chart.dots("0")) == 1


def test_a_step_holds_its_value_until_the_next() -> None:
    axes = Axes(Scale(), Scale())
    axes.plot([0, 1, 2], [5, 7, 6], step=True)
    ((a, b, c, d, e),) = Chart(str(axes)).lines("0")
    assert a[1] == b[1] > c[1] == d[1] < e[1] < a[1]
    assert a[0] < b[0] == c[0] < d[0] == e[0]


def test_no_zero_on_a_logarithmic_axis() -> None:
    with pytest.raises(ValueError, match="no place for 0"):
        Axes(Scale(), Log()).plot([1, 2], [0, 1])


@pytest.mark.parametrize(("x", "y"), [(Scale(), Log()), (Names([]), Scale()), (Log(), Names([]))])
def test_without_data_there_are_no_ticks(x: Scale, y: Scale) -> None:
    axes = Axes(x, y)
    axes.plot([], [], label="nothing")
    axes.axhline(None, "no peak")
    assert list(Chart(str(axes)).texts) == ["nothing"]


def test_stacked_bars_stand_on_each_other() -> None:
    axes = Axes(Names(["a", "b"]), Scale())
    axes.bar([0, 1], [10, 20], 0)
    axes.bar([0, 1], [30, 0], 1, bottom=[10, 20])
    axes.vlines([1], [15], [25])
    chart = Chart(str(axes))
    (first, second), (above,) = chart.bars("0"), chart.bars("1")  # nothing is drawn of a part that is 0
    assert first[3] == second[3] == pytest.approx(axes.place_y(0), abs=0.1)
    assert above[3] == pytest.approx(first[2], abs=0.1)
    assert above[2] == pytest.approx(axes.place_y(40), abs=0.1)
    assert chart.place("a")[0] == pytest.approx((first[0] + first[1]) / 2, abs=0.1)
    ((low, high),) = [line for line in chart.lines("ink") if line[0][0] == line[1][0]]
    assert (low[1], high[1]) == pytest.approx((axes.place_y(15), axes.place_y(25)), abs=0.1)
    assert low[0] == pytest.approx(chart.place("b")[0], abs=0.1)


def test_level_bars_are_read_from_the_top() -> None:
    axes = Axes(Log(), Names(["short", "long"]))
    axes.barh([0, 1], [1e3, 1e5])
    chart = Chart(str(axes))
    short, long = chart.bars("0")
    assert chart.place("short")[1] - 5 == pytest.approx((short[2] + short[3]) / 2, abs=0.1)
    assert chart.place("long")[1] - 5 == pytest.approx((long[2] + long[3]) / 2, abs=0.1)
    assert short[3] < long[2]
    assert long[1] == pytest.approx(chart.place("105")[0], abs=0.1)
    assert short[0] == long[0] == pytest.approx(axes.left, abs=0.05)


def faults(chart: Chart) -> Iterator[str]:
    """Texts that are cut, small, even because a phone scales the drawing down, or lie on another."""
    scaled = min(340 / chart.width, 1)
    boxes = []
    for text in chart.root.iter("text"):
        x, y, width = float(text.attrib["x"]), float(text.attrib["y"]), text_width(_word(text))
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "start")]
        if left < -0.5 or left + width > chart.width + 0.5 or not 10 <= y <= chart.height - 2:
            yield f"{_word(text)} is cut"
        if scaled * float(text.get("font-size", chart.root.attrib["font-size"])) < 11:
            yield f"{_word(text)} is small on a phone"
        boxes.append((_word(text), left, left + width, y))
    for (a, a_left, a_right, a_y), (b, b_left, b_right, b_y) in itertools.combinations(boxes, 2):
        if abs(a_y - b_y) < 13 and min(a_right, b_right) > max(a_left, b_left):
            yield f"{a} lies on {b}"


# Figures of the book, with made-up values


def test_three_clocks_measure_the_call_the_whole_and_the_kernels() -> None:
    chart = Chart(timing.queue(Values({}), Words()))
    launches, kernels, (waiting,) = (chart.bars(colour) for colour in ("1", "0", "faint"))
    spans = [chart.line(colour) for colour in ("1", "2", "0")]
    assert spans == [launches[0][:2], (launches[0][0], waiting[1]), (kernels[0][0], kernels[-1][1])]
    assert launches[0][0] < kernels[0][0] < launches[1][0] < launches[2][1] < waiting[0] < kernels[1][0]  # queued ahead


def test_a_reduce_scatter_on_a_ring_leaves_each_rank_one_complete_piece() -> None:
    assert [max(map(max, many_gpus.counts(rounds))) for rounds in range(4)] == [1, 2, 3, 4]
    complete = [[piece for piece in range(4) if held[piece] == 4] for held in many_gpus.counts(3)]
    assert complete == [[1], [2], [3], [0]]
    chart = Chart(many_gpus.ring(Values({}), Words(rank="rank {n}", round="round {n}")))
    widths = [right - left for left, right, *_ in chart.bars("0")]  # the first piece, on four ranks, four times
    assert widths == pytest.approx([13.0] * 4 + [13, 26, 13, 13] + [13, 26, 39, 13] + [13, 26, 39, 52])


def test_collectives_leave_what_they_are_named_for() -> None:
    chart = Chart(many_gpus.collectives(Values({}), Words(rank="{n}")))
    left = [bar[0] for bar in chart.bars("0") if bar[0] > 190]  # the first piece, after: on which ranks
    assert left == [196] + [196, 233, 270, 307] * 2


def test_fsdp_gathers_before_it_computes_and_holds_two_blocks_at_most() -> None:
    step = many_gpus.fsdp_step()
    assert [block for block, *_ in step["compute"]] == [1, 2, 3, 0, 3, 2, 1]
    assert [block for block, *_ in step["gather"]] == [1, 2, 3, 3, 2, 1]
    computed = [bar for bar in step["compute"] if bar[0]]
    assert all(gather[2] <= compute[1] for gather, compute in zip(step["gather"], computed, strict=True))
    held = [(gather[1], compute[2]) for gather, compute in zip(step["gather"], computed, strict=True)]
    assert max(sum(start <= moment < end for start, end in held) for moment, _ in held) == 2
    ends = {block: end for block, _, end in step["compute"][4:]}
    assert all(start >= ends[block] for block, start, _ in step["reduce"])
    chart = Chart(many_gpus.fsdp(Values({}), Words(block="block {n}")))
    sent = [top for *_, top, bottom in chart.bars("communication") if bottom - top > 14]
    assert [sent.count(top) for top in sorted(set(sent))] == [6, 3], "gathered above, reduced below, both in one colour"


def test_a_pipelines_passes_are_as_long_as_they_take_and_lie_where_they_start() -> None:
    starts = [[[0, True, 0, 0], [6, False, 0, 0]], [[2, True, 1, 0], [4, False, 1, 0]]]  # 1F1B on two ranks: 8 + 2 long
    values = Values({"pipeline_orders.starts": {"1f1b": starts}})
    chart = Chart(parallelism.one_by_one(values, Words(rank="rank {n}")))
    forward, backward = (chart.bars(colour) for colour in ("0", "1"))
    start, unit = parallelism.LEFT, (parallelism.WIDTH - parallelism.LEFT) / 10
    assert [left - start for left, *_ in forward] == pytest.approx([0, 2 * unit], abs=0.02)
    assert [left - start for left, *_ in backward] == pytest.approx([6 * unit, 4 * unit], abs=0.02)
    assert [right - left for left, right, *_ in forward] == pytest.approx([2 * unit - 1] * 2, abs=0.02)
    assert [right - left for left, right, *_ in backward] == pytest.approx([4 * unit - 1] * 2, abs=0.02)


def test_keys_and_values_come_to_each_rank_once_and_later_ones_are_pale() -> None:
    held = parallelism.turns()
    assert all(sorted(turn[rank] for turn in held) == [0, 1, 2, 3] for rank in range(4))
    assert held[1] == [3, 0, 1, 2]  # each has what the one before it had
    drawn = parallelism.ring(Values({}), Words(rank="{n}", round="{n}"))
    assert drawn.count('fill-opacity="0.3"') == 6  # of 16 pairs of a causal mask, in equal parts
    cut = [bar[0] for bar in Chart(drawn).bars("0") if bar[3] - bar[2] == 26]
    assert cut == [0, 7 * 340 / 8], "the first and the last of eight parts are of one rank"


def test_an_all_to_all_sorts_tokens_by_the_rank_they_go_to() -> None:
    chart = Chart(experts.all_to_all(Values({}), Words(rank="{n}", expert="E{n}")))
    own = [left for left, *_ in chart.bars("1")]  # of rank 1: a column before, a row after
    assert own == [52] * 4 + [212, 260, 308, 356]


def test_a_stage_leaves_a_rank_a_piece_of_what_it_shards() -> None:
    chart = Chart(many_gpus.zero(Values({}), Words(rank="{n}")))
    for stage, (whole, summed) in enumerate(((40, 40), (40, 40), (40, 10), (10, 10))):
        top = 50 + 54 * stage
        for colour, height in (("weights", whole), ("gradients", summed)):
            bars = [bar for bar in chart.bars(colour) if top <= bar[2] < top + 40]
            assert [low - high for *_, high, low in bars] == [height] * 4


def test_an_engine_asleep_holds_no_weights_and_sampling_no_passes() -> None:
    gib = {"trainer": {"sampling": 2, "awake": 4, "asleep": 4}, "engine": {"sampling": 3, "awake": 3, "asleep": 1}}
    made = {
        "parts_bytes": {part: {phase: size * 2**30 for phase, size in sizes.items()} for part, sizes in gib.items()},
        "training_parts_bytes": {"state": 3 * 2**30}, "engine_weights_bytes": 2**30, "CARD_BYTES": 6 * 2**30,
    }  # fmt: skip
    chart = Chart(grpo.phases(Values({f"grpo.{name}": value for name, value in made.items()}), Words()))
    unit = (chart.place("4")[0] - chart.place("0")[0]) / 4
    foot = chart.place("0")[0]
    expected = {
        "state": [(0, 2), (0, 3), (0, 3)], "passes": [(3, 4), (3, 4)],
        "engine_weights": [(2, 3), (4, 5)], "engine_rest": [(3, 5), (5, 7), (4, 5)],
    }  # fmt: skip
    for part, ends in expected.items():
        bars = sorted(chart.bars(chart.colours[part]), key=lambda bar: bar[2])
        found = [((left - foot) / unit, (right - foot) / unit) for left, right, *_ in bars]
        assert found == [pytest.approx(each, abs=0.02) for each in ends], part


def test_a_layer_of_experts_sorts_the_copies_of_its_tokens() -> None:
    rows = experts.sorted_rows()
    assert sorted(token for held in rows for token in held) == sorted([0, 1, 2, 3] * 2)
    chart = Chart(experts.layer(Values({}), Words()))
    tops = [top for left, _, top, _ in chart.bars("0") if left == 80]  # the first row of E0 and the first of E2
    assert tops == [34, 34 + 4 * experts.PITCH + 2 * experts.GAP]


def test_shares_of_a_link_are_drawn_in_their_own_colours() -> None:
    sizes = {"b200": 0.9, "a100": 0.75, "two": 1.7}
    shares = {name: {"1024": 0.0, "1048576": 0.1, "1073741824": share} for name, share in sizes.items()}
    chart = Chart(many_gpus.reached(Values({"many_gpus.reached_share": shares}), Words()))
    ends = {name: chart.lines(chart.colours[name])[0][-1][1] for name in sizes}
    assert ends["two"] < ends["b200"] < ends["a100"]  # up is more
    assert all(len(chart.lines(chart.colours[name])[0]) == 2 for name in sizes)  # from 32 KiB on


def test_medians_lie_over_their_counts_between_both_errors() -> None:
    simulated, errors = {"1": [0.0, 0.5], "100": [0.1]}, {"1": 1.25, "100": 0.125}
    made = {"timing.simulated_medians": simulated, "timing.formula_errors": errors}
    chart = Chart(timing.medians(Values(made), Words()))
    (x, zero), (_, half), (far, tenth) = chart.dots(chart.colours["medians"])
    assert far > x and half < zero  # more trials to the right, a slower median higher up
    assert zero - tenth == pytest.approx((zero - half) / 5, abs=0.1)
    above, below = chart.lines(chart.colours["error"])
    assert [zero - y for _, y in above] == pytest.approx([2.5 * (zero - half), 0.25 * (zero - half)], abs=0.1)
    assert [y - zero for _, y in below] == pytest.approx([zero - y for _, y in above], abs=0.1)


def test_published_steps_lie_at_their_mfu_in_the_row_of_their_card() -> None:
    points = {"a100_40gb": {"kept": [0.6], "again": [0.2]}, "h100": {"kept": [0.4], "again": []}}
    chart = Chart(mfu.steps(Values({"mfu.POINTS": points}), Words()))
    kept, again = (chart.dots(chart.colours[kind]) for kind in ("kept", "again"))
    assert [x for x, _ in kept] == pytest.approx([chart.place("60 %")[0], chart.place("40 %")[0]], abs=1)
    assert [x for x, _ in again] == pytest.approx([chart.place("20 %")[0]], abs=1)
    assert kept[0][1] < again[0][1] < kept[1][1]  # of one card, recomputed below; then the next card


def test_a_wave_is_filled_as_far_as_there_are_tiles() -> None:
    few = {"shape": "2 × 2", "tiles": 3, "waves": 1, "reached_share": 0.1}
    long = {"shape": "5 × 1", "tiles": 10, "waves": 3, "reached_share": 0.67}
    made = {
        "FILLED": {"few": few, "three_long": long},
        "EXAMPLE": (300, 128, 1),
        "EXAMPLE_TILE": (128, 64),
        "NUM_SMS": 4,
    }
    chart = Chart(mfu.waves(Values({f"mfu.{name}": value for name, value in made.items()}), Words()))
    result, *rest = chart.bars("1")
    assert (result[1] - result[0], result[3] - result[2]) == pytest.approx((0.2 * 128, 0.2 * 300))
    on_sms, waves = rest[:3], rest[3:]
    assert len(chart.bars("faint")) == 1 + 1 + 3  # the tiles' overhang, an idle SM, and what waves leave
    assert len(on_sms) == 3 and len({right - left for left, right, *_ in on_sms}) == 1
    widths = [right - left for left, right, *_ in waves]
    assert widths == pytest.approx([widths[0], widths[0], widths[0] / 2])
    assert "67 %" in chart.texts


def kernel(intensity: float, rate: float, roof: float, taken: float) -> dict[str, Any]:
    return {"intensity": intensity, "rate_flop_per_second": rate, "roof_seconds": roof, "taken_seconds": taken}


H100_ROOF = {
    "H100": {"peak_flop_per_second": {"bfloat16": 1e14, "float32": 1e13}, "bandwidth_bytes_per_second": 1e12},
    "AT_ONCE": {tokens: {"intensity": float(tokens)} for tokens, _ in roofline.MARKS.values()},
    "KERNELS": {
        "contiguous": [kernel(1, 1e12, 1e-4, 1e-4)],  # on the slope
        "strided": [kernel(1, 1e11, 1e-4, 1e-3)],
        "matmul": [kernel(1000, 1e14, 1e-3, 1e-3)],  # on the flat part
        "attention": [kernel(100, 1e13, 1e-5, 1e-4)],
    },
}


def test_a_roof_rises_with_the_bandwidth_and_ends_at_the_peak() -> None:
    chart = Chart(roofline.h100(Values({f"roofline.{name}": value for name, value in H100_ROOF.items()}), Words()))
    ((start, ridge, end),) = [line for line in chart.lines("ink") if len(line) == 3]
    (other,) = chart.lines("5")
    heights = {word: chart.place(word)[1] - 5 for word in ("10 TFLOP/s", "100 TFLOP/s")}
    decade = heights["10 TFLOP/s"] - heights["100 TFLOP/s"]
    assert ridge[1] == end[1] == pytest.approx(heights["100 TFLOP/s"], abs=0.2)
    assert other[0][1] == pytest.approx(heights["10 TFLOP/s"], abs=0.2)
    run = chart.place("100")[0] - chart.place("10")[0]
    assert (start[1] - ridge[1]) / decade == pytest.approx((ridge[0] - start[0]) / run, rel=0.01)
    assert other[0][0] == pytest.approx(chart.place("10")[0], abs=1)  # 1e13 / 1e12


def test_a_way_between_memories_is_as_wide_as_it_is_fast() -> None:
    made = {"roofline.H100": {"bandwidth_bytes_per_second": 2e12}, "roofline.ON_CHIP_BYTES_PER_SECOND": 3e13}
    chart = Chart(roofline.memories(Values(made), Words()))
    on_chip, memory = sorted(chart.bars("0"), key=lambda box: box[2])
    assert on_chip[1] - on_chip[0] == pytest.approx(15 * (memory[1] - memory[0]))
    heights = {word: chart.place(word)[1] for word in ("cores", "30 TB/s", "shared", "cache", "2 TB/s", "memory")}
    assert list(heights.values()) == sorted(heights.values())
    assert not list(faults(chart))


def test_a_kernel_at_its_roof_lies_on_the_diagonal() -> None:
    chart = Chart(roofline.times(Values({f"roofline.{name}": value for name, value in H100_ROOF.items()}), Words()))
    (low, high) = next(line for line in chart.lines("ink") if line[0][0] != line[1][0] and line[0][1] != line[1][1])
    slope = (high[1] - low[1]) / (high[0] - low[0])
    for kind, above in {"contiguous": 0, "matmul": 0, "strided": 1, "attention": 1}.items():
        ((x, y),) = chart.dots(str(roofline.KINDS[kind]))
        on_line = low[1] + slope * (x - low[0])
        assert y < on_line - 5 if above else y == pytest.approx(on_line, abs=1)


def test_the_scores_stand_upon_the_rest_for_each_length() -> None:
    parts = {part: (index + 1) * 2**30 for index, part in enumerate((*activations.REST, "scores"))}
    stacks = {"1024": {part: 4 * size for part, size in parts.items()}, "512": parts}
    made = {"length_parts_bytes": stacks, "length_bytes": {"1024": 40 * 2**30}}
    svg = activations.lengths(Values({f"activations.{name}": value for name, value in made.items()}), Words())
    chart = Chart(svg)
    unit, floor = (chart.place("0")[1] - chart.place("10")[1]) / 10, chart.place("0")[1] - 5
    bars = chart.bars("activations")  # the shorter length first, the rest before the scores
    assert [(bottom - top) / unit for *_, top, bottom in bars] == pytest.approx([6, 24, 4, 16], abs=0.02)
    assert [(floor - bottom) / unit for *_, bottom in bars] == pytest.approx([0, 0, 6, 24], abs=0.02)
    assert svg.count('fill-opacity="0.5"') == 2, "the rest is paler, in the legend too"
    (dot,) = chart.dots("ink")
    assert dot == pytest.approx((chart.place("1,024")[0], bars[3][2]), abs=0.1)


def test_two_steps_of_gpt2_are_stacked_by_kind_below_what_is_reserved() -> None:
    kinds = {"weights": [1, 1, 1, 1], "optimizer": [0, 2, 2, 2], "gradients": [0, 0, 0, 1]}
    kinds |= {"activations": [3, 1, 3, 0], "logits": [2, 0, 2, 0], "reserved": [6, 6, 10, 10]}
    made = {"gpt2_steps_bytes": {kind: [size * 2**30 for size in sizes] for kind, sizes in kinds.items()}}
    chart = Chart(gpu_memory.gpt2_steps(Values({f"gpu_memory.{name}": made[name] for name in made}), Words()))
    unit, floor = (chart.place("0")[1] - chart.place("10")[1]) / 10, chart.place("0")[1] - 5
    for kind in ("weights", "optimizer", "gradients", "activations", "logits"):
        heights = [(bottom - top) / unit for _, _, top, bottom in chart.bars(chart.colours[kind])]
        assert heights == pytest.approx([size for size in kinds[kind] if size], abs=0.02), kind
    assert chart.bars(chart.colours["logits"])[1][2] == pytest.approx(floor - 8 * unit, abs=0.1)  # on all others
    lines = chart.lines("ink")
    (reserved,) = [line for line in lines if len(line) == 4]
    assert [(floor - y) / unit for _, y in reserved] == pytest.approx(kinds["reserved"], abs=0.02)
    (between,) = [line[0][0] for line in lines if line[0][0] == line[1][0]]
    sides = [right for _, right, *_ in chart.bars(chart.colours["weights"])]
    assert between == pytest.approx(sides[1], abs=0.5) and chart.place("first")[0] < between < chart.place("second")[0]
    assert not list(faults(chart))


def test_what_lies_outside_is_from_the_least_to_the_most() -> None:
    ends = {"context": (5, 7), "kernels": (3, 3), "nccl_data": (1, 9)}
    lines = {line: {"low": low, "high": high} for line, (low, high) in ends.items()}
    rows = gpu_memory.outside(Values({"gpu_memory.outside_bytes": {"h100": lines}}), Words(h100="h100"))
    quoted = "{{{{ gpu_memory.outside_bytes.h100.{} }}}}".format
    context, nccl = (f"{quoted(line + '.low')} to {quoted(line + '.high')}" for line in ("context", "nccl_data"))
    assert rows == [["card", "context", "kernels", "nccl_data"], ["h100", context, quoted("kernels.low"), nccl]]


def test_a_snapshot_is_stacked_by_kind_and_what_was_wanted_crosses_the_limit() -> None:
    kinds = {"weights": 1, "state": 2, "gradients": 1, "layers": 3, "loss": 2, "backward": 1}
    stacked = {kind: [0, size * 2**30, size * 2**30] for kind, size in kinds.items()}
    made = {"timeline_bytes": stacked, "wanted_bytes": 4 * 2**30, "limit_bytes": 12 * 2**30, "second_piece": 2}
    chart = Chart(snapshots.timeline(Values({f"snapshots.{name}": value for name, value in made.items()}), Words()))
    unit = (chart.place("0")[1] - chart.place("10")[1]) / 10
    floor = chart.place("0")[1] - 5
    for kind, size in kinds.items():
        *stack, last = sorted(chart.bars(chart.colours[kind]), key=lambda bar: (bar[0], -bar[3]))[:2]
        for *_, top, bottom in (*stack, last):
            assert (bottom, bottom - top) == pytest.approx((floor, size * unit), abs=0.1)
        floor -= size * unit
    (wanted,) = chart.bars("ink")
    assert (wanted[3], wanted[3] - wanted[2]) == pytest.approx((floor, 4 * unit), abs=0.1)
    (limit,) = [line[0][1] for line in chart.lines("ink") if line[0][1] == line[1][1] and line[0][1] < floor]
    assert wanted[2] < limit < wanted[3]
    assert chart.place("wanted") == pytest.approx((wanted[1], wanted[2] - 6), abs=0.5)
    (between,) = [line[0][0] for line in chart.lines("ink") if line[0][0] == line[1][0]]
    assert between == pytest.approx(wanted[0], abs=0.1) and chart.place("first")[0] < between < chart.place("second")[0]
    assert not list(faults(chart))


def test_what_a_layer_keeps_stands_beside_its_tensor_and_under_its_model() -> None:
    parts = ("norms", "qkv_input", "qkv", "scores", "out_input", "mlp_input", "mlp")
    gpt2 = {part: 2 * 10**power for power, part in enumerate(parts)}
    llama = {part: 3 * size for part, size in gpt2.items()}
    groups = {"norms": ["norms"], "attention": ["qkv_input", "qkv", "out_input"], "mlp": ["mlp_input", "mlp"]}
    made = {"token_bytes": {"gpt2": gpt2, "llama": llama}, "PARTS": groups | {"scores": ["scores"]}}
    made["token_total_bytes"] = {"gpt2": 123, "llama": 456}
    drawn = activations.layer(Values({f"activations.{name}": value for name, value in made.items()}), Words())
    chart, rows = Chart(drawn), dict[float, list[tuple[float, str]]]()
    for text in chart.root.iter("text"):
        rows.setdefault(float(text.attrib["y"]), []).append((float(text.attrib["x"]), _word(text)))
    lines = [[word for _, word in sorted(rows[y])] for y in sorted(rows)]
    assert lines == [
        ["kept"],
        ["gpt2", "llama"],
        ["input", "T × d", "1", "3"],  # half of both norms, and so below
        ["norm"],
        ["normed", "T × d", "20", "60"],
        ["to_qkv"],
        ["qkv", "T × (H+2G)Q", "200", "600"],
        ["fused", "2,000", "6,000"],
        ["heads", "T × HQ", "20,000", "60,000"],
        ["to_out"],
        ["attended", "T × d", "0", "0"],
        ["add"],
        ["between", "T × d", "1", "3"],
        ["norm"],
        ["normed", "T × d", "200,000", "600,000"],
        ["to_mlp"],
        ["inside", "T × f", "1,000,000", "3,000,000"],
        ["activate"],
        ["activated", "T × f", "1,000,000", "3,000,000"],
        ["from_mlp"],
        ["changed", "T × d", "0", "0"],
        ["add"],
        ["output", "T × d"],
        ["together", "123", "456"],
    ]
    ends = {model: chart.place(model)[0] for model in ("gpt2", "llama")}
    assert all(row[-2][0] == ends["gpt2"] and row[-1][0] == ends["llama"] for row in rows.values() if len(row) == 4)
    middles = [(top + bottom) / 2 + 5 for _, _, top, bottom in chart.bars("activations")]
    kept = ["input", "normed", "qkv", "heads", "between", "normed", "inside", "activated"]
    assert [min(rows[y])[1] for y in middles] == kept, "what is kept is coloured"


def test_a_model_has_its_matrices_to_scale_beside_their_steps_and_its_tensors_in_boxes() -> None:
    made = {"gpt2_parameters.letters": {"gpt2": {"d": 100, "T": 200, "V": 5_000}}}
    chart = Chart(gpt2_parameters.model(Values(made), Words()))
    texts = sorted((float(text.attrib["y"]), float(text.attrib["x"]), _word(text)) for text in chart.root.iter("text"))
    half = ["norm", "qkv", "100 × 300: 30K", "attend", "mix", "100 × 100: 10K", "add"]
    mlp = ["norm", "up", "100 × 400: 40K", "gelu", "down", "400 × 100: 40K", "add"]
    assert [word for _, _, word in texts] == [
        *("weights", "tokens", "b × T", "embed", "5,000 × 100: 500K", "place", "200 × 100: 20K"),
        *("stream", "b × T × d", "times", *half, *mlp, "stream", "b × T × d"),
        *("final", "head", "100 × 5,000: tied", "logits", "b × T × V"),
    ]
    at = {word: y for y, _, word in texts}
    repeated = [(top, bottom) for left, right, top, bottom in chart.bars("0") if right - left > 300]
    assert repeated[0][0] < at["times"] < at["down"] < repeated[0][1] < at["final"], "what is repeated"
    sides = {
        part: [(right - left, bottom - top) for left, right, top, bottom in chart.bars(colour)]
        for part, colour in (("att", "1"), ("mlp", "3"))
    }
    d = sides["att"][1][0]
    assert sides == {"att": [(3 * d, d), (d, d)], "mlp": [(4 * d, d), (d, 4 * d)]}, "columns and rows, to scale"
    dots, norms = chart.dots("ink"), [y for y, _, word in texts if word == "norm"]
    paths = [[float(y) for y in re.findall(r"[ V]([\d.]+)", d.attrib["d"])] for d in chart.root.iter("path")]
    for (start, end), norm, (_, dot) in zip(paths, norms, dots, strict=True):
        assert start < norm < end == dot, "the residual stream passes each half by"


def test_a_tensor_has_its_own_numbers_in_its_box_and_an_arrow_to_its_offset() -> None:
    made = {
        "VIEWS": {"row": "x[2]", "column": "x[:, 3]", "slice": "x[::2]"},
        "offsets": {"row": 8, "column": 3, "slice": 0},
        "shapes": {"row": "(4,)", "column": "(5,)", "slice": "(2, 4)"},
        "strides": {"row": "(1,)", "column": "(6,)", "slice": "(7, 1)"},
        "matrix": {"offset": 0, "shape": "(4, 4)", "strides": "(4, 1)"},
        "num_elements": 17,
        "storage_bytes": 48,
    }
    made = {f"storage_and_strides.{name}": value for name, value in made.items()}
    chart = Chart(storage_and_strides.tensors(Values(made), Words(storage="held", separator=", ")))
    assert "16" in chart.texts and "17" not in chart.texts and "held, 48 B" in chart.texts
    first, step = chart.place("9")[0], chart.place("10")[0] - chart.place("9")[0]
    texts = [(_word(text), float(text.attrib["x"]), float(text.attrib["y"])) for text in chart.root.iter("text")]
    for colour, title, (offset, *header) in (
        ("ink", "x", ("0", "(4, 4)", "(4, 1)")),
        ("1", "x[:, 3]", ("3", "(5,)", "(6,)")),
        ("0", "x[2]", ("8", "(4,)", "(1,)")),
    ):
        ((left, right, top, bottom),) = chart.bars(colour)
        inside = [word for word, x, y in texts if left < x < right and top < y < bottom]
        assert inside == [title, offset, *header]
        beside = [chart.place(word)[1] for word in ("offset", "shape", "strides")]
        assert beside == [y for word, x, y in texts if left < x < right and top < y < bottom][1:], (
            "in a row with its word"
        )
        line, head = chart.lines(colour)
        assert left < line[0][0] < right and line[0][1] == bottom
        assert line[-1][0] == head[-1][0] == pytest.approx(first + (int(offset) - 9) * step), "the cell at the offset"
    assert not list(faults(chart))


def test_what_lives_after_an_operation_is_stacked_by_name_in_the_order_of_the_expressions() -> None:
    made = {
        "tensor_operations.expressions": [{"code": "e * f + g"}, {"code": "not drawn"}, {"code": "e + f"}],
        "tensor_operations.ALIVE": {"e + f": [["sum"]], "e * f + g": [["first"], ["kept", "second"]]},
    }
    chart = Chart(tensor_operations.alive(Values(made), Words()))
    assert chart.place("e * f + g")[0] < chart.place("e + f")[0] and "not drawn" not in chart.texts
    boxes = {
        colour: [
            [
                word
                for word in ("first", "kept", "second", "sum")
                if left < chart.place(word)[0] < right and top < chart.place(word)[1] < bottom
            ]
            for left, right, top, bottom in chart.bars(colour)
        ]
        for colour in ("0", "1")
    }
    assert boxes == {"0": [["first"], ["kept"]], "1": [["second"], ["sum"]]}, "the peak's last has a colour of its own"
    assert chart.place("second")[1] < chart.place("kept")[1] == chart.place("first")[1]
    assert not list(faults(chart))


def test_the_differences_that_were_meant_lie_on_the_diagonal() -> None:
    made = {"column": [30.0, 50.0], "vector": [1.0, 2.0], "differences": [[29.0, 28.0], [49.0, -48.0]]}
    values = Values({f"tensor_operations.{name}": value for name, value in made.items()})
    chart = Chart(tensor_operations.trap(values, Words()))
    assert chart.place("1")[0] == chart.place("29")[0] == chart.place("49")[0] < chart.place("2")[0]
    assert chart.place("50")[1] == chart.place("49")[1] == chart.place("−48")[1] > chart.place("30")[1]
    inside = {
        colour: [
            word
            for left, right, top, bottom in chart.bars(colour)
            for word in ("29", "28", "49", "−48")
            if left < chart.place(word)[0] < right and top < chart.place(word)[1] < bottom
        ]
        for colour in ("0", "1")
    }
    assert inside == {"0": ["29", "−48"], "1": ["28", "49"]}
    assert not list(faults(chart))


def test_minus_two_is_marked_over_another_dimension_after_the_split() -> None:
    sizes = {"BATCH": 11, "SEQ_LEN": 12, "D_MODEL": 13, "NUM_HEADS": 14, "D_HEAD": 15}
    values = Values({f"named_dimensions.{name}": size for name, size in sizes.items()})
    chart = Chart(named_dimensions.positions(values, Words()))
    texts = [(_word(text), float(text.attrib["x"]), float(text.attrib["y"])) for text in chart.root.iter("text")]
    marked = [
        [word for word, x, y in texts if left < x < right and top < y < bottom]
        for left, right, top, bottom in chart.bars("1")
    ]
    assert marked == [["tokens", "12"], ["heads", "14"]]
    for (left, right, *_, bottom), under in zip(chart.bars("1"), ("−2", "−2"), strict=True):
        assert [word for word, x, y in texts if left < x < right and bottom < y < bottom + 30] == [under]
    assert {"11", "13", "15", "head_features", "before", "after"} <= set(chart.texts)
    assert not list(faults(chart))


def test_a_matmul_has_its_flops_in_its_box_and_the_one_not_computed_is_dashed() -> None:
    made = {
        "gradients.forward_products_flops": {"hidden": 1e6, "outputs": 2e6},
        "gradients.backward_products_flops": {"w2": 3e6, "hidden": 4e6, "w1": 5e6},
    }
    chart = Chart(gradients.passes(Values(made), Words()))
    texts = [(_word(text), float(text.attrib["x"]), float(text.attrib["y"])) for text in chart.root.iter("text")]
    boxes = {
        colour: [
            [word for word, x, y in texts if left < x < right and top < y < bottom]
            for left, right, top, bottom in sorted(set(chart.bars(colour)), key=lambda box: box[2])
        ]
        for colour in ("0", "1", "2", "muted")
    }
    assert boxes == {
        "0": [["X₂ = X₁ W₁", "1 MFLOPs"], ["Y = X₂ W₂", "2 MFLOPs"]],
        "1": [["dW₁ = X₁ᵀ dX₂", "5 MFLOPs"], ["dW₂ = X₂ᵀ dY", "3 MFLOPs"]],
        "2": [["dX₂ = dY W₂ᵀ", "4 MFLOPs"]],
        "muted": [["dX₁ = dX₂ W₁ᵀ", "skipped"]],
    }
    dashed = [box for box in chart.root.iter("rect") if box.get("stroke-dasharray")]
    assert [box.get("class") for box in dashed] == ["stroke-muted"]
    columns = {_word(text): float(text.attrib["x"]) for text in chart.root.iter("text")}
    assert columns["weight"] == columns["dW₁ = X₁ᵀ dX₂"] > columns["input"] == columns["dX₂ = dY W₂ᵀ"]
    heights = {word: y for word, _, y in texts}
    assert heights["X₁"] < heights["X₂ = X₁ W₁"] < heights["X₂"] == heights["dX₂"] < heights["Y = X₂ W₂"] < heights["Y"]
    assert not list(faults(chart))


def test_trained_layers_have_the_boxes_of_their_matmuls_and_the_ratio_beside_them() -> None:
    first: dict[str, Any] = {"weight_products": [True, False], "input_products": [False, True], "to_forward_ratio": 0.5}
    last: dict[str, Any] = {
        "weight_products": [False, True],
        "input_products": [False, False],
        "to_forward_ratio": 0.25,
    }
    chart = Chart(
        gradients.frozen(Values({"gradients.freeze": {"first": first, "last": last}}), Words(layer="layer #"))
    )
    rows = {name: chart.place(name)[1] for name in ("first", "last")}
    assert chart.place("0.50")[1] == rows["first"] and chart.place("0.25")[1] == rows["last"]
    first_layer, second_layer = (chart.place(f"layer {n}")[0] for n in (1, 2))
    for colour, kind in (("1", "weight"), ("2", "input")):
        found = [((left + right) / 2, top) for left, right, top, _ in chart.bars(colour)]
        for name, case in (("first", first), ("last", last)):
            places = [x for x, y in found if 0 < y - rows[name] < 20]  # below its name
            layers = [round((x - first_layer) / (second_layer - first_layer)) for x in places]
            assert layers == [layer for layer, made in enumerate(case[f"{kind}_products"]) if made], (name, kind)


def test_a_way_over_the_valley_lies_in_its_own_panel_on_the_scale_of_the_minimum() -> None:
    ways = {name: [[0.0, 0.0], [1.0, 0.5 + index]] for index, name in enumerate(optimizers.PANELS)}
    made = {"paths": ways | {"rmsprop": [[2.0, 2.0]]}, "MINIMUM": [3.0, 1.0], "CURVATURE": [1, 25]}
    chart = Chart(optimizers.paths(Values({f"optimizers.{name}": value for name, value in made.items()}), Words()))
    ellipses = [shape for shape in chart.shapes if shape.tag == "ellipse"]
    for index, (name, way) in enumerate(ways.items()):
        title = chart.place(name)
        assert (title[0] < chart.width / 2, title[1] < chart.height / 2) == (index % 2 == 0, index < 2)
        start, end = chart.dots(str(index))
        assert chart.lines(str(index)) == [[pytest.approx(start, abs=0.1), pytest.approx(end, abs=0.1)]]
        unit = end[0] - start[0]
        assert start[1] - end[1] == pytest.approx(way[1][1] * unit, abs=0.1)
        for ellipse in ellipses[3 * index : 3 * index + 3]:
            cx, cy, rx, ry = (float(ellipse.attrib[key]) for key in ("cx", "cy", "rx", "ry"))
            assert (cx, cy) == pytest.approx((start[0] + 3 * unit, start[1] - unit), abs=0.1)
            assert rx == pytest.approx(5 * ry, abs=0.1)
    assert len(ellipses) == 12 and not chart.dots(str(len(ways)))


def test_a_recipe_is_a_bar_of_its_parts_and_only_autocast_has_copies_beside_it() -> None:
    made: dict[str, Any] = {
        "part_bytes": {
            "bf16": {"weights": 2, "gradients": 2, "master": 0, "moments": 4},
            "autocast": {"weights": 4, "gradients": 3, "master": 0, "moments": 8},
            "master": {"weights": 2, "gradients": 1, "master": 5, "moments": 9},
        },
        "cast_per_parameter": 2,
    }
    chart = Chart(mixed_precision.held(Values({f"mixed_precision.{key}": made[key] for key in made}), Words()))
    scale = mixed_precision.WIDTH / 17  # autocast's 15 and the 2 of its copies, as many as the master's
    rows = {name: chart.place(name)[1] for name in ("autocast", "master", "bf16")}
    assert list(rows.values()) == sorted(rows.values()), "in the order of the page"
    for name, y in rows.items():
        start = 0
        for part, label in zip(
            ("weights", "gradients", "master", "moments"),
            ("weights", "gradients", "master_weights", "moments"),
            strict=True,
        ):
            size = made["part_bytes"][name][part]
            ends = [(bar[0], bar[1] + 1) for bar in chart.bars(chart.colours[label]) if 0 < bar[2] - y < 20]
            if size:
                assert pytest.approx((start * scale, (start + size) * scale), abs=0.1) in ends
            start += size
        outlines = [bar[0] for bar in chart.bars("muted") if 0 < bar[2] - y < 20]
        assert outlines == ([pytest.approx(15 * scale, abs=0.1)] if name == "autocast" else [])
    assert {"15", "17", "8", "+ 2"} <= set(chart.texts)


def test_the_stretch_that_is_rounded_to_1_ends_halfway_to_its_neighbours() -> None:
    values = Values({"number_formats.near_one": [0.5, 0.75, 1.0, 1.5, 2.0], "number_formats.SMALL_STEP": 0.2})
    chart = Chart(number_formats.near_one(values, Words()))
    line = {number: chart.place(f"{number:.4f}")[0] for number in (0.5, 0.75, 1.0, 1.5, 2.0)}
    assert [x for x, _ in chart.dots("ink")] == pytest.approx(list(line.values()), abs=0.01)

    def place(number: float) -> float:
        return line[0.5] + (number - 0.5) / 1.5 * (line[2.0] - line[0.5])

    assert [place(number) for number in line] == pytest.approx(list(line.values()), abs=0.01)
    ((left, right, *_),) = chart.bars("1")[:1]
    assert [left, right] == pytest.approx([place(0.875), place(1.25)], abs=0.01)
    assert left < chart.place("rounds")[0] < right
    others = [bar[:2] for bar in chart.bars("muted")]
    assert list(itertools.chain(*others)) == pytest.approx(
        [place(end) for end in (0.5, 0.625, 0.625, 0.875, 1.25, 1.75, 1.75, 2)], abs=0.02
    )
    steps = {word: chart.place(word)[0] for word in ("+0.2", "−0.2")}
    assert steps == pytest.approx({"+0.2": place(1.2), "−0.2": place(0.8)}, abs=0.01)
    tips = [points[1][0] for points in chart.lines("ink")]
    assert sorted(tips) == pytest.approx(sorted(steps.values()), abs=0.01)


def test_a_rung_has_its_question_above_it_and_the_bar_of_its_own_peak() -> None:
    rungs = (*compute_for_memory.RUNGS, *compute_for_memory.STATE)
    sizes = {name: (40 - index) * 2**30 for index, name in enumerate(rungs)}
    state = {name: sizes.pop(name) for name in compute_for_memory.STATE}
    made = {"step_peaks.needs_bytes": {"llama": sizes, "gpt2": {}}, "step_peaks.state_needs_bytes": state}
    labels = Words(ask_fused="is it eager", ask_eight_bit="is it the state")
    chart = Chart(compute_for_memory.ladder(Values(made | {"compute_for_memory.CARD_BYTES": 20 * 2**30}), labels))
    heights = [chart.place(name)[1] for name in rungs]
    assert heights == sorted(heights), "first what costs least"
    assert chart.place("is it eager")[1] == chart.place("fused")[1] - 19
    assert chart.place("is it the state")[1] == chart.place("eight_bit")[1] - 19
    mark = {line.attrib["x1"] for line in chart.root.iter("line")} - {"9"}
    edge = chart.place("fused")[0]
    for name, y in zip(rungs, heights, strict=True):
        size = (sizes | state)[name] / 2**30
        assert chart.place(f"{size:g} GiB")[1] == y, "the number of a rung stands beside its name"
        inside, *beyond = [
            (x1, x2) for colour in ("other", "ink") for x1, x2, top, _ in chart.bars(colour) if y < top < y + 20
        ]
        assert len(beyond) == (size > 20) and inside[0] == edge, "dark is what lies beyond the card"
        end = beyond[0][1] if beyond else inside[1]
        assert end == pytest.approx(edge + (340 - edge) * size / 40, abs=0.1)
        dots = [dot for dot in chart.dots("muted") if abs(dot[1] - y) < 10]
        assert len(dots) == 1
    assert [float(x) for x in mark] == [pytest.approx(edge + (340 - edge) / 2, abs=0.1)]


def test_table_and_figure_try_remedies_in_one_order() -> None:
    rows = list(tables.blocks("en")["compute-for-memory#order"].options["rows"])
    assert rows == list(compute_for_memory.RUNGS)
    assert list(tables.blocks("en")["compute-for-memory#order 2"].options["rows"]) == list(compute_for_memory.STATE)


def test_a_token_is_as_wide_as_its_bytes_in_the_row_of_its_tokenizer_under_its_own_sentence() -> None:
    lengths = {
        "en": {"en": [2], "zh": [1, 1, 1, 4]},
        "zh": {"en": [1, 1], "zh": [3, 4]},
        "both": {"en": [2], "zh": [7]},
    }
    sentences = {"en": "ab", "zh": "显👍"}
    chart = Chart(tokens.cut(Values({"tokens.SENTENCE": sentences, "tokens.cuts": lengths}), Words()))
    rows = [float(text.attrib["y"]) for text in chart.root.iter("text") if _word(text) in lengths]
    assert len(rows) == 6 and rows == sorted(rows)
    numbers = [text for text in chart.root.iter("text") if _word(text).isdigit()]
    byte = (chart.place("👍")[0] - chart.place("显")[0]) / 3.5  # from the middle of three bytes to that of four
    for index, (language, name) in enumerate((language, name) for language in sentences for name in lengths):
        assert [_word(text) for text in numbers if float(text.attrib["y"]) == rows[index]] == [
            str(len(lengths[name][language]))
        ]
        boxes = [box for box in chart.bars(str(index % 3)) if box[2] < rows[index] < box[3]]
        widths = [right - left + 2 for left, right, _, _ in boxes]
        assert widths == pytest.approx([n * byte for n in lengths[name][language]], abs=0.1)
        assert all(b[0] - a[1] == pytest.approx(2, abs=0.1) for a, b in itertools.pairwise(boxes))
    for first, word in ((0, "a"), (3, "显")):
        assert 0 < rows[first] - chart.place(word)[1] < 40 and (first == 0 or rows[2] < chart.place(word)[1])


def test_a_kind_of_operation_has_its_share_of_the_flops_above_that_of_the_time() -> None:
    made = {
        "matmuls": {"flops_share": 0.6, "time_share": 0.2},
        "norms": {"flops_share": 0.3, "time_share": 0.3},
        "element_wise": {"flops_share": 0.1, "time_share": 0.5},
    }
    chart = Chart(counting_flops.shares(Values({"counting_flops.PUBLISHED": made}), Words()))
    starts = {"flops": 0.0, "time": 0.0}
    for kind, shares in made.items():
        flops, time = chart.bars(chart.colours[kind])
        for row, bar in (("flops", flops), ("time", time)):
            start, share = starts[row], shares[f"{row}_share"]
            assert 0 < bar[2] - chart.place(row)[1] < 10, "below its name"
            ends = counting_flops.WIDTH * start, counting_flops.WIDTH * (start + share)
            assert bar[:2] == pytest.approx(ends, abs=0.1)
            starts[row] += share
    assert {"60.0 %", "20.0 %", "30.0 %", "50.0 %"} <= set(chart.texts)
    assert "10.0 %" not in chart.texts, "a bar that has no room for it"


def test_twice_the_tokens_are_twice_the_rectangle_and_four_times_the_square() -> None:
    chart, cell = Chart(transformer_flops.two_kinds(Values(), Words())), transformer_flops.CELL
    rectangles = chart.bars("0")
    seen, hidden = (chart.bars(chart.colours[word]) for word in ("left", "hidden"))
    assert {left for left, *_ in rectangles} == {chart.place("matrices")[0]}
    assert {left for left, *_ in seen} == {chart.place("attention")[0]}
    tops = sorted(top for *_, top, _ in rectangles)
    for top, side in zip(tops, transformer_flops.TOKENS, strict=True):
        cells = [
            [(right - left) * (bottom - y) / cell**2 for left, right, y, bottom in bars if top <= y < top + cell * side]
            for bars in (rectangles, seen, hidden)
        ]
        assert cells[0] == [side * transformer_flops.COLUMNS]
        assert cells[1] == list(range(1, side + 1)) and sum(cells[1]) == side * (side + 1) / 2
        assert sum(cells[1]) + sum(cells[2]) == side**2
    assert transformer_flops.TOKENS[1] == 2 * transformer_flops.TOKENS[0]


def test_a_threshold_lies_where_its_flops_do() -> None:
    made = {"compute_flops": {"small": 1e22, "gpt_4": 1e25}, "thresholds": {"eu": {"flops": 1e24}}}
    chart = Chart(two_questions.one_scale(Values({f"two_questions.{key}": made[key] for key in made}), Words()))
    ((foot, top),) = chart.lines(chart.colours["eu"])
    assert foot[0] == top[0] == pytest.approx(chart.place("1024")[0], abs=0.1)
    (bar,) = chart.bars("1")
    assert bar[1] == pytest.approx(chart.place("1025")[0], abs=0.1)


def test_a_run_ends_at_the_hours_that_it_took_over_those_booked() -> None:
    made = {"two_questions.took_ratio": {"first": 0.5, "other": 2.0}}
    chart = Chart(two_questions.booked(Values(made), {"axis": "axis", "booked": "booked", "other": "o", "first": "f"}))
    zero, unit = chart.place("0.0")[0], chart.place("1.0")[0] - chart.place("0.0")[0]
    ends = [(bar[1] - zero) / unit for bar in sorted(chart.bars("0"), key=lambda bar: bar[2])]
    assert ends == pytest.approx([2.0, 0.5], abs=0.02), "in the order of the page's labels"
    ((foot, top),) = chart.lines(chart.colours["booked"])
    assert foot[0] == top[0] == pytest.approx(zero + unit, abs=0.1)
    assert chart.place("o\u20032.00")[1] < chart.place("f\u20030.50")[1], "each bar's number stands beside it"


def test_a_line_of_code_is_as_long_as_its_bytes_and_the_most_lies_on_top() -> None:
    made = {"count_your_step.line_bytes": {"less": 2**30, "most": 3 * 2**30}}
    chart = Chart(count_your_step.lines(Values(made), {"axis": "axis", "less": "l", "most": "m"}))
    zero, unit = chart.place("0")[0], chart.place("1")[0] - chart.place("0")[0]
    ends = [(bar[1] - zero) / unit for bar in sorted(chart.bars("0"), key=lambda bar: bar[2])]
    assert ends == pytest.approx([3, 1], abs=0.02)
    assert chart.place("m")[1] < chart.place("l")[1]


def test_a_counted_step_is_stacked_by_kind_up_to_its_second() -> None:
    kinds = ("weights", "state", "gradients", "layers", "loss", "temporaries")
    stacked = {kind: [(turn + 1) * 2**30, 0] for turn, kind in enumerate(kinds)}
    made = {"count_your_step.picture_bytes": stacked, "count_your_step.second_piece": 1}
    chart = Chart(count_your_step.picture(Values(made), Words()))
    unit = (chart.place("0")[1] - chart.place("20")[1]) / 20
    foot = chart.place("0")[1] - 5
    for turn, kind in enumerate(kinds):
        (bar,) = chart.bars(chart.colours[kind])
        top, below = (foot - bar[2]) / unit, (foot - bar[3]) / unit
        assert (below, top) == pytest.approx((turn * (turn + 1) / 2, (turn + 1) * (turn + 2) / 2), abs=0.1), kind
    assert chart.place("first")[0] < chart.place("second")[0]


def test_what_fills_a_gpu_is_stacked() -> None:
    planner = {"logits": 30e9, "weights": 10e9, "copies": 10e9}
    made = {"room_bytes": {"planner": planner, "napkin": {"optimizer": 40e9, "weights": 20e9}}}
    chart = Chart(two_questions.room(Values({f"two_questions.{name}": made[name] for name in made}), Words()))
    zero, unit = chart.place("0")[0], (chart.place("60")[0] - chart.place("0")[0]) / 60
    ends = {
        part: [((bar[0] - zero) / unit, (bar[1] - zero) / unit) for bar in chart.bars(chart.colours[part])]
        for part in ("weights", "moments", "logits")
    }
    for part, row, place in (("weights", 0, (0, 20)), ("moments", 0, (20, 60)), ("weights", 1, (0, 20))):
        assert ends[part][row] == pytest.approx(place, abs=0.5)  # the estimate's row first
    assert ends["logits"][-1] == pytest.approx((20, 50), abs=0.5)


def test_a_published_reading_lies_in_the_row_of_its_source_first_above_today() -> None:
    made = [
        {"name": "a/far", "asked": 1, "first_ratios": [0.5], "today_ratios": [0.75]},
        {"name": "b/near", "asked": 1, "first_ratios": [1.5], "today_ratios": [1.0]},
        {"name": "c/none", "asked": 0},
    ]
    chart = Chart(how_far_off.strip(Values({"published_meters.sources": made}), Words()))
    assert "none" not in chart.texts
    first, today = (chart.dots(chart.colours[when]) for when in ("first", "today"))
    for dots, ticks in ((first, ("0.5", "1.5")), (today, ("0.75", "1"))):
        assert [x for x, _ in dots] == pytest.approx([chart.place(tick)[0] for tick in ticks], abs=1)
    for row, (above, below) in zip(("far", "near"), zip(first, today, strict=True), strict=True):
        assert above[1] < chart.place(row)[1] - 5 < below[1]


def test_what_is_known_of_far_readings_stands_in_the_language_of_its_page() -> None:
    group = {"source": "a/far", "why": "meter", "en": "Reserved.", "zh": "预留。", "readings": 2}
    group |= {"low_ratio": 0.5, "high_ratio": 0.75}
    made = Values({"published_meters.far": [group, {**group, "high_ratio": 0.5}]})
    _, several, one = how_far_off.far(made, Words(language="zh", to=" 到 ", meter="测法："))
    assert several == ["far", "2", "0.50 到 0.75", "测法：预留。"] and one[2] == "0.50"


def test_a_steps_memory_is_stacked_below_the_published_peak() -> None:
    alive = {"state": [3, 3, 3], "gradients": [0, 0, 2], "activations": [1, 4, 2], "logits": [0, 3, 0]}
    made = {
        "run_curve_bytes": {kind: [size * 2**30 for size in sizes] for kind, sizes in alive.items()},
        "run_forward_to_backward": 1,
        "run_published": {"peak_bytes": 12 * 2**30},
    }
    values = Values({f"published_steps.{name}": value for name, value in made.items()})
    chart = Chart(full_ledger.curve(values, Words()))
    bars = {kind: sorted(chart.bars(chart.colours[kind])) for kind in alive}
    (left, right, top, bottom) = bars["state"][0]
    scale = (bottom - top) / 3  # a GiB
    assert [len(bars[kind]) for kind in alive] == [3, 1, 3, 1]
    for x, kind, low, high in ((1, "activations", 3, 7), (1, "logits", 7, 10), (2, "activations", 5, 7)):
        (box,) = [each for each in bars[kind] if abs(each[0] - left - x * (right - left)) < 3]
        assert box[2:] == pytest.approx((bottom - high * scale, bottom - low * scale), abs=1.5)
    paths = [re.findall(r"-?[\d.]+", path.get("d", "")) for path in chart.root.iter("path")]
    levels = [float(numbers[1]) for numbers in paths if len(numbers) == 4 and numbers[1] == numbers[3]]
    levels += [float(line.attrib["y1"]) for line in chart.root.iter("line")]
    assert min(abs(level - (bottom - 12 * scale)) for level in levels) < 1, "the published peak"


def test_a_steps_lines_stand_end_to_end_in_units_of_its_published_time() -> None:
    shares = {"mpt": {"matmuls": 0.5, "recomputed": 0.2, "attention": 0.1}, "tune_eager": {"matmuls": 0.25}}
    chart = Chart(full_ledger.stacks(Values({"published_steps.stacks": shares}), Words()))
    ((one, _), *_), *_ = chart.lines("ink")
    long, short = sorted(chart.bars(chart.colours["matmuls"]), key=lambda bar: bar[0] - bar[1])
    left, scale = long[0], one - long[0]
    assert (
        short[1] - left == pytest.approx(0.25 * scale, abs=1.1) and short[2] < chart.place("tune_eager")[1] < short[3]
    )
    for part, (start, end) in {"matmuls": (0, 0.5), "recomputed": (0.5, 0.7), "attention": (0.7, 0.8)}.items():
        bar = next(bar for bar in chart.bars(chart.colours[part]) if bar[2] < chart.place("mpt")[1] < bar[3])
        assert bar[:2] == pytest.approx((left + start * scale, left + end * scale), abs=1.1)


def test_users_stand_at_their_own_latency_and_those_with_longer_contexts_apart() -> None:
    made = {"128": {"1": 4.0, "8": 5.0}, "1024": {"1": 5.0, "8": 10.0}}
    chart = Chart(inference.latency(Values({"inference.served_ms": made}), Words(context="{tokens}")))
    few, many = (chart.dots(chart.colours[name]) for name in ("128", "1,024"))
    assert few[1][0] == pytest.approx(many[0][0], abs=0.1)  # as long a step
    assert many[0][1] > few[0][1] > many[1][1] > few[1][1]  # 200, 250, 800 and 1,600 tokens a second
    assert chart.place("8")[0] == pytest.approx(many[1][0], abs=1)


def test_a_published_matmul_lies_above_its_bound_in_each_format() -> None:
    made = {
        "bf16": {"1": {"bound": 100.0, "reported": 150.0}, "256": {"bound": 120.0, "reported": 200.0}},
        "fp8": {"1": {"bound": 50.0, "reported": 100.0}, "256": {"bound": 60.0, "reported": 120.0}},
    }
    chart = Chart(inference.knee(Values({"inference.knee": made}), Words()))
    wide, narrow = (chart.dots(chart.colours[f"{name}_reported"]) for name in ("bf16", "fp8"))
    assert wide[0][1] == pytest.approx(chart.place("150")[1] - 5, abs=1)
    assert narrow[0][1] == pytest.approx(chart.place("100")[1] - 5, abs=1) and narrow[0][1] > narrow[1][1]
    assert wide[1][0] == narrow[1][0] == pytest.approx(chart.place("256")[0], abs=1)


def test_the_first_call_has_the_colour_that_the_legend_says() -> None:
    made = {"timing.measured_calls_seconds": {timing.DTYPES[0]: [8.0, 1.0, 2.0]}}
    chart = Chart(timing.calls(Values(made), Words(call="{n}")))
    widths = [[right - left for left, right, *_ in chart.bars(chart.colours[word])] for word in ("first", "later")]
    assert len(widths[0]) == 1 and widths[1] == pytest.approx([widths[0][0] / 8, widths[0][0] / 4], abs=0.2)


def test_of_each_phase_the_bars_are_as_long_as_its_times() -> None:
    part = {"read_bytes": 15e9, "flops": 2e12}
    made = {
        "phase": {"prefill": part, "decode": {"read_bytes": 16e9, "flops": 1e10}},
        "phase_ms": {"prefill": {"read": 5.0, "compute": 20.0}, "decode": {"read": 10.0, "compute": 0.0}},
        "prompt_cache_bytes": 1.5e8,
    }
    words = Words(flops="{count} TFLOPs", read="read {time}", weights="{size}")
    chart = Chart(inference.phases(Values({f"inference.{name}": value for name, value in made.items()}), words))
    widths = [float(bar.attrib["width"]) for bar in chart.shapes if bar.tag == "rect" and bar.attrib["height"] == "16"]
    assert widths == pytest.approx([158 / 4, 158, 158 / 2, 1], abs=0.1)
    assert {"read 5 ms", "read 10 ms", "2 TFLOPs", "0.01 TFLOPs", "15.0 GB"} <= set(chart.texts)


def test_only_what_is_trained_has_a_gradient_and_moments_and_a_matrix_has_the_area_of_its_bytes() -> None:
    lines = {"full_amp": {"weights": 40, "total": 160}, "lora": {"weights": 20, "adapters": 1, "total": 30}}
    made = {"lines_bytes": lines | {"qlora": {"weights": 5, "adapters": 1, "total": 15}}, "RTX_4090_BYTES": 25}
    chart = Chart(one_card.methods(Values({f"one_card.{name}": value for name, value in made.items()}), Words()))

    def areas(colour: str) -> list[float]:
        boxes = [bar for bar in chart.bars(colour) if bar[3] - bar[2] not in (10, one_card.HEIGHT)]
        return sorted((right - left) * (bottom - top) for left, right, top, bottom in boxes)

    strip, whole = one_card.LONG * one_card.THIN, one_card.SIDE**2
    assert areas("gradients") == pytest.approx([strip] * 4 + [whole]), "of two methods A and B, of one the matrix"
    assert areas("optimizer") == pytest.approx([strip] * 8 + [whole] * 2)
    assert areas("weights") == pytest.approx([strip] * 4 + [whole / 8, whole / 2, whole], rel=0.01)


def test_the_logits_are_as_much_wider_than_what_goes_into_the_head_as_the_vocabulary() -> None:
    made = {"gpt2_parameters.letters": {"gpt2": {"d": 100, "V": 4200}}}
    made["activations.model_parts_bytes"] = {"gpt2": {"head_input": 2**20, "log_probabilities": 84 * 2**20}}
    chart = Chart(activations.logits(Values(made), Words()))
    ((left, right, *_),) = chart.bars("activations")
    widths = [bar[1] - bar[0] for bar in chart.bars("logits")]
    assert widths == pytest.approx([42 * (right - left)] * 3)
    assert {"before\u20031 MiB", "kept\u200384 MiB", "bT × V = bT × 4,200, fp32"} <= set(chart.texts)


def test_one_tile_has_its_piece_of_each_strip_and_all_before_it_are_done() -> None:
    chart = Chart(activations.tiles(Values({"gpt2_parameters.letters": {"gpt2": {"T": 64, "Q": 4}}}), Words()))
    (tile,) = [bar for bar in chart.bars("ink") if bar[1] - bar[0] == 22]
    pieces = [bar for bar in chart.bars("activations") if 24 in (bar[1] - bar[0], bar[3] - bar[2])]
    keys_and_values, queries_and_result = (
        [bar for bar in pieces if bar[3] < tile[2]],
        [bar for bar in pieces if bar[3] > tile[2]],
    )
    assert {bar[0] for bar in keys_and_values[:2]} == {tile[0]} and {bar[2] for bar in queries_and_result} >= {tile[2]}
    done = [bar for bar in chart.bars("muted") if bar[1] - bar[0] == 22]
    assert len(done) == 15 + 3, "five rows up to the diagonal, and what lies before the tile in its own"
    assert all(bar[2] < tile[2] or bar[0] < tile[0] for bar in done)
    assert "64 × 64" in activations.tiles(
        Values({"gpt2_parameters.letters": {"gpt2": {"T": 64, "Q": 4}}}), Words(square="{n} × {n}")
    )


def test_a_heads_strips_and_squares_are_to_scale() -> None:
    chart = Chart(gpt2_parameters.attention(Values({"gpt2_parameters.letters": {"gpt2": {"T": 60, "Q": 6}}}), Words()))
    squares, strips = chart.bars("faint"), chart.bars("activations")
    (side,) = {right - left for left, right, *_ in squares} | {bottom - top for *_, top, bottom in squares}
    assert [sorted((right - left, bottom - top)) for left, right, top, bottom in strips] == [
        pytest.approx([side / 10, side], abs=0.01)
    ] * 4
    assert {"S, 60 × 60", "P, 60 × 60: sums", "strips"} <= set(chart.texts)


def test_a_steps_lines_stand_upon_each_other_part_by_part_on_one_scale() -> None:
    made = {
        "compute_for_memory.HELD": ["weights", "activations"],
        "compute_for_memory.step_parts": ["forward layer 0", "backward layer 0"],
        "compute_for_memory.over_step_bytes": {
            "none": {"weights": [10 * 2**30] * 2, "activations": [30 * 2**30, 20 * 2**30]},
            "full": {"weights": [10 * 2**30] * 2, "activations": [5 * 2**30, 0]},
        },
        "full_ledger.has_bytes": {"H100 SXM": 20 * 2**30},
    }
    svg = compute_for_memory.over_time(Values(made), Words())
    chart = Chart(svg)
    areas = [
        (shape.attrib["class"], [float(y) for y in re.findall(r"V([\d.]+)", shape.attrib["d"])])
        for shape in chart.shapes
        if shape.tag == "path"
    ]
    heights = [(css, [floor - y for y in ys]) for css, (*ys, floor) in areas]
    assert [css for css, _ in heights] == ["fill-activations", "fill-weights"] * 2  # the upper ones lie behind
    gib = 120 / 40
    for (_, found), expected in zip(heights, ([40, 30], [10, 10], [15, 10], [10, 10]), strict=True):
        assert found == pytest.approx([gib * size for size in expected], abs=0.1)
    edges = [float(shape.attrib["y1"]) for shape in chart.shapes if shape.get("stroke-dasharray")]
    assert [areas[0][1][-1] - edges[0], areas[2][1][-1] - edges[1]] == pytest.approx([gib * 20] * 2, abs=0.1)
    assert {"none\u200340 GiB", "full\u200315 GiB"} <= set(chart.texts)
    assert 'data-held="10240,10240;30720,20480|10240,10240;5120,0"' in svg


def test_of_the_logits_one_chunk_is_there_and_of_chunks_that_are_done_a_gradient() -> None:
    made = {
        "gpt2_parameters.letters": {"gpt2": {"d": 10, "V": 1000, "T": 100}},
        "activations.BATCH": {"gpt2": 4},
        "activations.model_parts_bytes": {"gpt2": {"log_probabilities": 8 * 2**30}},
        "step_peaks.CHUNKS": 8,
    }
    chart = Chart(compute_for_memory.chunks(Values(made), Words(instead="{size}")))
    assert [(right - left, bottom - top) for left, right, top, bottom in chart.bars("logits")] == [(336, 10)] * 3
    hidden, (left, right, top, bottom) = chart.bars("activations")
    assert (hidden[3] - hidden[2], right - left, bottom - top) == pytest.approx((80, 3.36, 10))
    done, head = chart.bars("gradients")
    assert done[3] == top, "up to the chunk that is there"
    assert (head[1] - head[0], head[3] - head[2]) == pytest.approx((336, 80 * 10 / 400))
    assert {"kept\u20031 GiB", "8 GiB"} <= set(chart.texts)


def test_a_parameter_keeps_what_is_filled_and_passes_through_the_rest() -> None:
    parts = {"autocast": {"weights": 4, "gradients": 3, "master": 0, "moments": 8}}
    made = {"mixed_precision.part_bytes": parts, "mixed_precision.cast_per_parameter": 2}
    chart = Chart(mixed_precision.life(Values(made), Words(bytes="{n} B")))
    for colour, size in {"weights": "4 B", "gradients": "3 B", "optimizer": "4 + 4 B"}.items():
        filled = [shape for shape in chart.shapes if shape.get("class") == f"fill-{colour}"]
        x, y = chart.place(size)
        (box,) = (
            chart.bars(colour)[: len(filled)]
            if colour == "optimizer"
            else [bar for bar in chart.bars(colour) if bar[0] < x < bar[1] and bar[2] < y < bar[3]]
        )
        assert len(filled) == 1 and box[0] < x < box[1] and box[2] < y < box[3]
    assert [_word(text) for text in chart.root.iter("text")].count("2 B") == 2


def test_the_weights_are_read_once_and_a_cache_for_each_user() -> None:
    made = {
        "inference.quantized_bytes": {"bf16": 16e9},
        "inference.cache_of_bytes": {"grouped": 2e9},
        "inference.served_ms": {"8192": {"1": 4.0, "4": 5.0, "16": 8.0, "32": 20.0}},
    }
    chart = Chart(inference.users(Values(made), Words(each="{n} each", all="{n} all", users="{n}", step="{time}")))
    weights, caches = chart.bars("weights"), chart.bars("activations")
    assert [len([cache for cache in caches if cache[2] == bar[2]]) for bar in weights] == [1, 4, 16, 32]
    assert {round(cache[1] - cache[0], 1) for cache in caches} == {round(2 / 80 * 340 - 1, 1)}
    assert {"250 each", "200 each", "125 each", "50 each", "250 all", "800 all", "2,000 all", "1,600 all"} <= set(
        chart.texts
    )


def test_what_a_step_loses_is_taken_off_one_after_the_other_down_to_its_mfu() -> None:
    lines = {"matmuls": 0.5, "attention": 0.1, "recomputed": 0.2, "elementwise": 0.05, "loss": 0.03, "update": 0.02}
    made = {"published_steps.stacks": {"mpt": lines}, "mfu.PUBLISHED": {"a100_40gb": {"mfu": 0.4}}}
    chart = Chart(mfu.where(Values(made), Words()))
    (reached,), lost = chart.bars("ink"), sorted(chart.bars("other"), key=lambda bar: bar[2])
    assert [after[1] for after in lost] == pytest.approx([339, *(before[0] for before in lost[:-1])], abs=0.05)
    assert [(right - left) / 338 for left, right, *_ in lost] == pytest.approx([0.1, 0.05, 0.05, 0.2, 0.2], abs=0.001)
    assert reached[1] == pytest.approx(lost[-1][0], abs=0.05) and {"100 %", "40 %", "− 20 %"} <= set(chart.texts)


# Figures of the book, with the values of its records


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_figure_knows_the_language_of_its_page(small_book: Book, language: str) -> None:
    code = "def drawing(values, labels):\n    return f'<svg>{labels['language']}</svg>'\n"
    code += "def rows(values, labels):\n    return [[labels['language']]]\n"
    (small_book.root / "figures" / "small.py").write_text(code.replace("labels['language']}", 'labels["language"]}'))
    source = open_source(small_book, "", local=False)
    assert [svg for _, svg in variants.drawings(source, language, "small.drawing", {})] == [f"<svg>{language}</svg>"]
    assert [rows for _, rows in variants.tables(source, language, "small.rows", {})] == [[[language]]]


def test_a_figure_is_drawn_without_a_record() -> None:
    source = open_source(BOOK, "", local=False)
    for path in BOOK.chapters():
        for block in Chapter.read(path).blocks:
            if block.kind == "figure":
                labels = {key: key for key in block.options.get("labels", {})} | {"language": "en"}
                svg = variants.call_figure(source, block.argument, labels, cast(quote.Values, Values()))
                assert svg.startswith("<svg"), block.argument


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_text_is_cut_or_lies_on_another(language: str) -> None:
    source, found = open_source(BOOK, "", local=False), []
    for path in (path for path in BOOK.chapters() if path.parent.name == language):
        for block in Chapter.read(path).blocks:
            if block.kind == "figure":
                for devices, svg in variants.drawings(source, language, block.argument, block.options["labels"]):
                    if svg:  # else the device has none of its measurements
                        found += [f"{block.argument}, {devices[0]}: {fault}" for fault in faults(Chart(svg))]
    assert not found


def test_a_steps_kernels_lie_over_time_by_stream_and_below_them_what_was_idle_and_why() -> None:
    def event(cat: str, name: str, start: float, length: float, stream: int = 0, of: int = 0) -> dict[str, Any]:
        return {"cat": cat, "name": name, "ts": start, "dur": length, "args": {"stream": stream, "correlation": of}}

    made = [
        event("cuda_runtime", "launch", 45, 4, of=2),
        event("kernel", "gemm", 10, 30, 7, of=1),
        event("kernel", "gemm", 60, 20, 7, of=2),
        event("kernel", "nccl", 70, 30, 20, of=3),
    ]
    chart = Chart(traces.streams(Values({"traces.STEP": made}), Words()))
    (call,), (first, second), (sent,) = (chart.bars(colour) for colour in ("2", "0", "communication"))
    scale = (first[1] - first[0]) / 30
    assert (call[0] - 35 * scale, first[0] + 50 * scale) == pytest.approx((first[0], second[0]), abs=0.1)
    assert sent[0] - second[0] == pytest.approx(10 * scale, abs=0.1) and sent[2] > second[2] == first[2] > call[2]
    levels = [each.attrib for each in chart.shapes if each.tag == "line" and each.attrib["y1"] == each.attrib["y2"]]
    spans = {
        name: [(float(level["x1"]), float(level["x2"])) for level in levels if abs(float(level["y1"]) - y) < 6]
        for name, y in ((name, chart.place(name)[1] - 5) for name in ("busy", "idle", "launching", "exposed"))
    }
    assert sum(spans["launching"], ()) == pytest.approx((first[1], call[1]))
    assert sum(spans["busy"], ()) == pytest.approx((first[0], first[1], second[0], sent[1]))
    assert sum(spans["idle"], ()) == pytest.approx((first[1], second[0]))
    assert sum(spans["exposed"], ()) == pytest.approx((second[1], sent[1]))


def test_where_a_trace_went_is_stacked_to_a_hundred_and_the_one_that_computes_most_comes_first() -> None:
    made = {
        "bert": {"kernels": 0.1, "exposed": 0.1, "launching": 0.6, "idle": 0.2},
        "deepseek": {"kernels": 0.5, "exposed": 0.25, "launching": 0.15, "idle": 0.1},
        "unnamed": {"kernels": 1.0, "exposed": 0.0, "launching": 0.0, "idle": 0.0},
    }
    words = {name: name for name in ("share", "kernels", "exposed", "launching", "idle", "bert", "deepseek")}
    chart = Chart(traces.shares(Values({"traces.time_shares": made}), words))
    whole = chart.place("100")[0] - chart.place("0")[0]
    assert chart.place("deepseek")[1] < chart.place("bert")[1]
    for name, part, colour in (("deepseek", "kernels", "0"), ("bert", "launching", "2")):
        bars = sorted(chart.bars(colour), key=lambda bar: bar[2])
        bar = bars[0] if name == "deepseek" else bars[-1]
        assert bar[1] - bar[0] == pytest.approx(made[name][part] * whole, abs=0.5)
    for row in (0, -1):  # each part begins where the one before it ends
        parts = [sorted(chart.bars(chart.colours[part]), key=lambda bar: bar[2])[row] for part in traces.PARTS]
        assert [after[0] for after in parts[1:]] == pytest.approx([before[1] for before in parts[:-1]], abs=0.5)
    assert not list(faults(chart))


def test_a_peak_with_sparsity_is_a_bar_twice_as_long_but_of_cuda_cores() -> None:
    peaks = {"float32": 10.0, "tf32": 40.0, "bfloat16": 80.0, "float8": 160.0}
    chart = Chart(hardware.readings(Values({"hardware.PEAK_TERAFLOPS": {"H100 SXM": peaks}}), Words()))
    left = min(bar[0] for bar in chart.bars("0"))
    scale = (max(bar[1] for bar in chart.bars("faint")) - left) / 320
    for dtype, peak in peaks.items():
        y = chart.place(dtype)[1]
        (dense,) = [bar for bar in chart.bars("0") if bar[2] < y < bar[3]]
        assert dense[:2] == pytest.approx((left, left + peak * scale), abs=0.02)
        more = [bar[:2] for bar in chart.bars("faint") if bar[2] < y < bar[3]]
        assert more == ([] if dtype == "float32" else [pytest.approx((dense[1], left + 2 * peak * scale), abs=0.02)])
        assert chart.place(f"{peak:.0f} | {2 * peak:.0f}" if more else f"{peak:.0f}")[1] == y
    assert chart.place("twice")[0] == pytest.approx(left + 160 * scale), "where fp8 ends dense and bf16 sparse"


def test_a_table_of_peaks_says_which_cards_have_16_bits_in_fp16_alone() -> None:
    peaks = {"old": {"float32": 10, "float16": 80}, "new": {"float32": 10, "bfloat16": 70, "float16": 70}}
    made: dict[str, Any] = {"NAMES": [*peaks], "PEAK_TERAFLOPS": peaks, "SOURCES": dict.fromkeys(peaks, "https://a.b")}
    made |= {f"{part}.{name}": 1.0 for part in ("MEMORY_GB", "BANDWIDTH") for name in peaks}
    header, *rows = hardware.peaks(Values({f"hardware.{name}": value for name, value in made.items()}), Words())
    column = header.index("bfloat16")
    assert ["fp16_only" in row[column] for row in rows] == [True, False]
    assert [re.findall(r"PEAK_TERAFLOPS\.\w+\.(\w+)", row[column]) for row in rows] == [["float16"], ["bfloat16"]]
    for row in rows:
        assert row[header.index("tf32")] == row[header.index("float8")] == "—"


def test_bytes_a_parameter_are_stacked_and_their_sum_stands_behind() -> None:
    state = {"sgd": (4, 0), "adam": (4, 8), "adamw_bf16": (2, 6)}
    held = {name: {"element_bytes": each, "per_parameter_bytes": more} for name, (each, more) in state.items()}
    chart = Chart(optimizers.held(Values({"optimizer_costs.state": held}), Words()))
    boxes = [box.attrib for box in chart.root.iter("rect")]
    scale = max(float(box["x"]) + float(box["width"]) + 1.5 for box in boxes) / 16
    for name, (each, more) in state.items():
        y = chart.place(name)[1]
        start = 0
        for part, size in (("parameter", each), ("gradient", each), ("state", more)):
            mine = [box for box in boxes if box["class"] == f"fill-{chart.colours[part]}" and float(box["y"]) == y + 7]
            ends = [(float(box["x"]), float(box["x"]) + float(box["width"]) + 1.5) for box in mine]
            wanted = (start * scale, (start + size) * scale)
            assert ends == ([pytest.approx(wanted, abs=0.02)] if size else [])
            start += size
        assert chart.place(f"{start} B")[1] == y
    heights = [chart.place(name)[1] for name in state]
    assert heights == sorted(heights)


def test_a_format_reaches_from_its_smallest_number_over_its_smallest_normal_one_to_its_largest() -> None:
    limits = {
        "fp32": {"smallest_subnormal": 1e-45, "smallest_normal": 1e-38, "largest": 1e38},
        "fp64": {"smallest_subnormal": 1e-320, "smallest_normal": 1e-308, "largest": 1e308},
    }
    chart = Chart(
        number_formats.ranges(Values({"number_formats.limits": limits, "number_formats.TINY": 1e-30}), Words())
    )
    rows = {name: chart.place(name)[1] for name in limits}
    assert rows["fp64"] < rows["fp32"], "in the order of the page"
    pale, dark = sorted((bar for bar in chart.bars("1") if bar[2] < rows["fp32"] < bar[3]), key=lambda bar: bar[0])
    decade = (dark[1] - dark[0]) / 76
    assert pale[1] == pytest.approx(dark[0], abs=0.1) and pale[1] - pale[0] == pytest.approx(7 * decade, abs=0.2)
    (light,) = [shape for shape in chart.shapes if shape.get("fill-opacity")]
    assert float(BOX.findall(light.attrib["d"])[0][0]) == pale[0], "numbers that are not normal are pale"
    assert chart.place("◄")[1] == chart.place("►")[1] and abs(chart.place("►")[1] - rows["fp64"]) < 12


def test_a_share_of_attention_lies_at_its_context_and_what_is_masked_is_dashed() -> None:
    shares = {"gpt2": {"1024": 0.2, "4096": 0.5}, "llama": {"1024": 0.1, "4096": 0.3}}
    halved = {model: {context: share / 2 for context, share in of.items()} for model, of in shares.items()}
    made = {"transformer_flops.attention_share": shares, "transformer_flops.causal_share": halved}
    chart = Chart(transformer_flops.contexts(Values(made), Words()))
    zero, whole = (chart.place(tick)[1] - 5 for tick in ("0%", "100%"))
    for model, colour in (("gpt2", "0"), ("llama", "1")):
        drawn = {
            bool(shape.get("stroke-dasharray")): [
                float(y) for _, y in re.findall(r"([-\d.]+) ([-\d.]+)", shape.attrib["d"])
            ]
            for shape in chart.shapes
            if shape.tag == "path" and _colour(shape) == colour
        }
        for is_masked, of in ((False, shares), (True, halved)):
            heights = [zero + (whole - zero) * share for share in of[model].values()]
            assert drawn[is_masked] == pytest.approx(heights, abs=0.2)


def test_a_formats_bits_are_its_sign_its_exponent_and_its_fraction() -> None:
    limits = {"fp32": {"bits": 32, "exponent_bits": 8, "fraction_bits": 23, "eps": 1e-7}}
    header, *rows = number_formats.formats(Values({"number_formats.limits": limits}), Words())
    for name, row in zip(number_formats.FORMATS, rows, strict=True):
        said = re.sub(r"\{\{ number_formats\.limits\.(\w+\.\w+) \}\}", r"\1", row[header.index("bits")])
        assert said == f"{name}.bits = 1 + {name}.exponent_bits + {name}.fraction_bits"
