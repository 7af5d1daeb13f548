"""A step lasts as long as its matmuls and what it waits for; days, GPU-hours and money follow from that."""

from __future__ import annotations

import re
import statistics
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from flops_bytes.model.shapes import parameters
from flops_bytes.parallel.sharding import overlap, ring_rate, waiting_seconds
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.options import named_shape, read_options
from flops_bytes.plan.published_runs import BATCHES, RUNS, STEPS, runs_nearest
from flops_bytes.plan.table import training_table
from flops_bytes.plan.training import RUN_MFU, STEP_MFU
from flops_bytes.time.gpus import COLLECTIVES, GPUS, LINK_EFFICIENCY, LINKS
from planner import words
from published.readings import read_all
from tests.conftest import ROOT

EIGHT: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 8192}
SLOW: dict[str, Any] = EIGHT | {"gpu": "RTX 4090", "context": 512, "checkpointing": "full", "tokens": "10B"}
LAYERS = 400
KINDS = ("none", "selective", "full")


@pytest.mark.parametrize("pairs", ["all", "causal"])
def test_an_assumed_mfu_is_of_steps_that_compute_nothing_again(pairs: str) -> None:
    found = [plan(**EIGHT, tokens="15T", price=2, pairs=pairs, checkpointing=kind) for kind in KINDS]
    flops = [each["flops_a_token"][pairs] for each in found]
    again = [each["device"] / (each["device"] - each["again"]) for each in flops]
    assert 1 == again[0] < again[1] < again[2] < 4 / 3
    for name in ("step_seconds", "days", "gpu_hours", "money"):
        assert [each[name] / found[0][name] for each in found] == pytest.approx(again), name
    assert [each["mfu"] * times for each, times in zip(found, again, strict=True)] == pytest.approx([STEP_MFU] * 3)
    assert [each["hfu"] for each in found] == pytest.approx([found[0]["hfu"]] * 3)  # as fast kernels
    assert {each["assumed_mfu"] for each in found} == {STEP_MFU}


@pytest.mark.parametrize("told", [{"mfu": 0.3}, {"tokens_per_second": 20_000}, {"step_seconds": 2}], ids=str)
def test_a_speed_that_was_measured_is_slowed_by_nothing(told: dict[str, float]) -> None:
    for asked in (EIGHT, SLOW | {"zero": 0}):
        found = plan(**asked | told)
        assert {name: found[name] for name in told} == pytest.approx(told)
        assert (found["assumed_mfu"], found["by_mfu"], found["wire"]["waits_seconds"]) == (None, [], 0)


def test_days_are_those_of_the_communication_where_it_takes_longer() -> None:
    found = plan(**SLOW, price=1)
    wire = found["wire"]
    assert wire["seconds"] == wire["bytes"] / (0.8 * 32e9) and not wire["hidden"]
    assert found["step_seconds"] == pytest.approx(wire["seconds"])
    assert found["days"] == pytest.approx(1e10 / found["step_tokens"] * wire["seconds"] / 86_400)
    assert found["days"] > 35.6  # at PCIe's nominal rate
    assert found["money"] == found["gpu_hours"] == pytest.approx(8 * 24 * found["days"])
    assert [row["days"] for row in found["by_mfu"]] == pytest.approx([found["days"]] * 2), "matmuls are not the limit"
    measured = plan(**SLOW, step_seconds=1)
    assert not measured["wire"]["hidden"] and measured["step_seconds"] == 1
    roomy = plan(**(EIGHT | {"tokens": "10B"}))
    assert roomy["wire"]["hidden"] and roomy["wire"]["waits_seconds"] == 0


def step(zero: int, accumulation: int, matmuls: float, reduced: float, gathered: float, backward: float) -> float:
    """A step layer by layer: one stream multiplies, one sends, in the order in which PyTorch asks for both."""
    forward_layer = (1 - backward) * matmuls / accumulation / LAYERS
    backward_layer = backward * matmuls / accumulation / LAYERS
    gathers = gathered / 2 / accumulation / LAYERS if zero == 3 else 0
    reduces = reduced / LAYERS / (accumulation if zero > 1 else 1)
    now = sent = 0.0  # when each of both is free
    for turn in range(accumulation):
        for layer_seconds, sums in ((forward_layer, 0.0), (backward_layer, reduces)):
            if sums and zero < 2 and turn < accumulation - 1:
                sums = 0.0
            sent = max(now, sent)
            waiting = 0.0
            for _ in range(LAYERS):
                sent += gathers
                now = max(now, sent if gathers else now) + layer_seconds
                sent = max(sent, now - layer_seconds) + waiting  # what the layer before has left to add up
                waiting = sums
            now = sent = max(now, sent + waiting)
    return now + (gathered if zero in (1, 2) else 0)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_step_waits_for_what_no_matmul_runs_beside(zero: int, accumulation: int) -> None:
    for backward in (0.5, 2 / 3, 0.75):
        for reduced, gathered in ((0.1, 0.1), (0.5, 0.6), (0.9, 0.3), (2.0, 1.0), (0.2, 3.0)):
            after = 0.0 if zero == 0 else gathered
            waits = waiting_seconds(overlap(reduced, after, 1.0, zero, accumulation, backward))
            assert 1 + waits == pytest.approx(step(zero, accumulation, 1.0, reduced, after, backward), rel=0.02)


def test_what_is_sent_once_a_step_hides_behind_the_last_micro_batch_alone() -> None:
    asked = {"model": "llama-3.2-1b", "gpu": "H100 SXM", "gpus": 8, "context": 8192, "link": "100 Gb/s"}
    once, four = (plan(**asked, accumulation=times) for times in (1, 4))
    assert once["wire"]["bytes"] == four["wire"]["bytes"]
    assert once["wire"]["waits_seconds"] == pytest.approx(four["wire"]["waits_seconds"]) and not once["wire"]["hidden"]
    assert four["tokens_per_second"] > 1.2 * once["tokens_per_second"]
    for stage in (1, 2):  # which gather the new weights when no matmul runs
        waits = plan(**asked | {"link": "NVLink 4"}, zero=stage)["wire"]["waits_seconds"]
        assert waits == pytest.approx(2 * 1_235_814_400 * 7 / 8 / (0.8 * 450e9))


def busiest(gpus: int, node_gpus: int, cards: int, within: float, between: float) -> tuple[float, float]:
    """Seconds of the busiest GPU's link and of the busiest network card, for a byte sent by each of the GPUs, message
    by message: as many rings as cards, each through all GPUs, out of each node at another GPU."""
    links: dict[int, float] = {}
    ports: dict[tuple[int, int], float] = {}
    for ring in range(cards):
        order = []
        for first in range(0, gpus, node_gpus):
            node = list(range(first, min(first + node_gpus, gpus)))
            last = ring % len(node)
            order += node[last + 1 :] + node[: last + 1]
        for sender, receiver in pairwise([*order, order[0]]):
            if sender // node_gpus == receiver // node_gpus:
                links[sender] = links.get(sender, 0) + 1 / cards
            else:
                port = (sender // node_gpus, ring)
                ports[port] = ports.get(port, 0) + 1 / cards
    return max(links.values(), default=0) / within, max(ports.values(), default=0) / between


@pytest.mark.parametrize(
    ("gpus", "node_gpus", "cards"),
    [(8, 8, 8), (16, 8, 8), (32, 8, 8), (32, 4, 4), (16, 8, 1), (144, 72, 72), (6, 1, 1)],
)
def test_rings_go_as_fast_as_the_slower_of_two_levels(gpus: int, node_gpus: int, cards: int) -> None:
    for within, between in ((450e9, 50e9), (32e9, 50e9), (450e9, 12.5e9)):
        link, port = busiest(gpus, node_gpus, cards, within, between)
        seconds = 1 / ring_rate(gpus, within, between, node_gpus, cards)
        assert seconds >= max(link, port)
        assert seconds == pytest.approx(port) or seconds == 1 / within  # a ring that leaves at a GPU spares its link


def test_a_node_that_is_not_full_has_its_part_of_the_network_cards() -> None:
    assert ring_rate(12, 450e9) == ring_rate(12, 450e9, network_cards=8) == 4 * 50e9
    assert ring_rate(9, 450e9) == 50e9 and ring_rate(16, 450e9) == 400e9 and ring_rate(8, 450e9) == 450e9
    assert ring_rate(12, 450e9, network_cards=16) == 400e9
    assert ring_rate(12, 450e9, node_gpus=6, network_cards=6) == 300e9


def test_published_collectives_reach_about_the_share_that_is_assumed() -> None:
    shares = {}
    for row in COLLECTIVES:
        within = next(link.bytes_per_second for link in LINKS.values() if row.gpu in link.cards)
        shares[row] = row.bytes_per_second / ring_rate(row.gpus, within)
        assert row.gpu in GPUS and row.source.startswith("https://")
        planned = plan(model="gpt2", gpu=row.gpu, gpus=row.gpus)["wire"]["bytes_per_second"]
        assert planned == pytest.approx(LINK_EFFICIENCY / shares[row] * row.bytes_per_second)
    of_servers = [share for row, share in shares.items() if not row.gpu.startswith("RTX")]
    assert 0.65 <= min(of_servers) < LINK_EFFICIENCY < max(of_servers) < 0.96
    assert 0.43 < min(shares.values()) < 0.45  # as the comment of LINK_EFFICIENCY says


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_says_the_share_of_the_nominal_rate(language: str) -> None:
    template = words(language)["details"]["time"]["sent"][1]
    assert re.findall(r"(\d+)\s?%", template) == [f"{100 * LINK_EFFICIENCY:.0f}"]


NETWORKS: dict[str, tuple[dict[str, Any], tuple[str, int, float]]] = {
    "a node": ({"gpus": 8}, ("NVLink 4", 1, 450e9)),
    "eight nodes": ({"gpus": 64}, ("400 Gb/s", 8, 400e9)),
    "slower network cards": ({"gpus": 64, "link": "100 Gb/s"}, ("100 Gb/s", 8, 100e9)),
    "a slower link in the node": ({"gpus": 64, "link": "PCIe 5"}, ("PCIe 5", 8, 64e9)),
    "one network card a node": ({"gpus": 64, "network_cards": 1}, ("400 Gb/s", 8, 50e9)),
    "one GPU a node": ({"gpus": 8, "node_gpus": 1}, ("400 Gb/s", 8, 50e9)),
    "one GPU a node, told by the link": ({"gpus": 8, "link": "100 Gb/s"}, ("100 Gb/s", 1, 12.5e9)),
    "a rack of GB200": ({"gpu": "gb200", "gpus": 72}, ("NVLink 5", 1, 900e9)),
    "servers of eight cards": ({"gpu": "B200", "gpus": 72}, ("400 Gb/s", 9, 400e9)),
    "nodes of 72": ({"gpu": "GB200", "gpus": 72, "node_gpus": 72}, ("NVLink 5", 1, 900e9)),
    "a part of a node": ({"gpus": 12}, ("400 Gb/s", 2, 200e9)),
    "nodes of cards on PCIe": ({"gpu": "L40S", "gpus": 16}, ("PCIe 4", 2, 32e9)),
    "cards without a link": ({"gpu": "TPU v5p", "gpus": 16}, ("400 Gb/s", 2, 400e9)),
}


@pytest.mark.parametrize(("asked", "expected"), NETWORKS.values(), ids=NETWORKS)
def test_the_slower_level_sets_the_pace(asked: dict[str, Any], expected: tuple[str, int, float]) -> None:
    wire = plan(**{"model": "gpt2", "gpu": "H100 SXM"} | asked)["wire"]
    assert (wire["link"], wire["nodes"]) == expected[:2]
    assert wire["bytes_per_second"] == pytest.approx(0.8 * expected[2])
    assert wire["seconds"] == pytest.approx(wire["bytes"] / wire["bytes_per_second"])


def test_a_good_step_and_a_whole_run_stand_side_by_side_with_runs_that_had_their_mfu() -> None:
    asked = EIGHT | {"tokens": "15T", "price": 2}
    found = plan(**asked)
    shares = (STEP_MFU, RUN_MFU)
    assert shares == (0.4, 0.3)
    assert tuple(row["mfu"] for row in found["by_mfu"]) == shares
    for row in found["by_mfu"]:
        told = plan(**asked, mfu=row["mfu"])
        for name in ("days", "gpu_hours", "money", "tokens_per_second", "tokens"):
            assert row[name] == pytest.approx(told[name])
    lines = dict(training_table(found))
    for mfu in shares:
        runs = "; ".join(f"{run.name}: {run.percent} %" for run in runs_nearest(mfu, shares))
        assert runs and lines[f"at an MFU of {mfu:.0%}"].endswith(f" ({runs})")
    assert sum(len(runs_nearest(mfu, shares)) for mfu in shares) == len(RUNS)
    step = found["by_mfu"][0]
    assert (found["days"], found["money"]) == (step["days"], step["money"])
    in_a_fortnight = plan(**EIGHT, days=14)["by_mfu"]
    assert [row["days"] for row in in_a_fortnight] == pytest.approx([14] * 2)
    assert in_a_fortnight[0]["tokens"] > in_a_fortnight[1]["tokens"]
    assert [row["days"] for row in plan(**EIGHT)["by_mfu"]] == [None] * 2


def test_the_mfu_of_a_published_run_is_as_its_source_says_it() -> None:
    for run in RUNS:
        shares = [float(part) / 100 for part in run.percent.split("–")]
        assert run.mfu == pytest.approx(statistics.mean(shares)), run.name
        assert run.source.startswith("https://")


@cache
def published_steps() -> list[tuple[str, bool, bool, float]]:
    """Of each published MFU that can be asked: card, whether products are computed again, whether it is small, MFU."""
    found = []
    for each in read_all(ROOT / "measurements" / "published"):
        if each.what == "mfu_percent" and "missing" not in each.about:
            shape = named_shape(read_options(each.settings))
            again = each.settings.get("checkpointing", "none") in ("per-op", "full")
            small = sum(parameters(shape).values()) < 1e9
            found.append((each.settings["gpu"][:4], again, small, each.value))
    return found


@pytest.mark.parametrize("kind", ["kept", "again"])
@pytest.mark.parametrize("card", STEPS)
def test_what_published_steps_of_a_kind_reached_is_what_their_rows_say(card: str, kind: str) -> None:
    shares = [mfu for gpu, again, _, mfu in published_steps() if gpu in card and again == (kind == "again")]
    tenths = statistics.quantiles(shares, n=10, method="inclusive")
    readings, *ends = STEPS[card][kind]
    assert readings == len(shares) and ends == [round(tenths[0], 2), round(tenths[-1], 2)]


def test_published_steps_reach_no_less_where_products_are_computed_again_than_is_assumed() -> None:
    medians = {
        (card, again): statistics.median(mfu for gpu, does, _, mfu in published_steps() if (gpu, does) == (card, again))
        for card in ("A100", "H100")
        for again in (False, True)
    }
    assert all(round(median, 2) >= STEP_MFU for median in medians.values())
    assert [round(medians["H100", again], 2) for again in (False, True)] == [0.40, 0.40]
    for card, apart in (("A100", 0.06), ("H100", 0.05)):  # as the comment beside STEPS says
        of_size = {
            size: statistics.median(
                mfu for gpu, again, small, mfu in published_steps() if (gpu, again, small) == (card, False, size)
            )
            for size in (True, False)
        }
        assert of_size[False] - of_size[True] == pytest.approx(apart, abs=0.01)


def test_of_one_model_steps_that_compute_again_reach_less_and_the_others_are_of_smaller_ones() -> None:
    """As compute_seconds() says; the best step of each kind of a model, at a context, on so many A100s or H100s."""
    of: dict[Any, dict[bool, list[float]]] = {}
    sizes: dict[tuple[str, bool], list[int]] = {}
    for each in read_all(ROOT / "measurements" / "published"):
        if each.what == "mfu_percent" and "missing" not in each.about:
            a = read_options(each.settings)
            again, size = a["checkpointing"] in ("per-op", "full"), sum(parameters(named_shape(a)).values())
            sizes.setdefault((a["gpu"][:4], again), []).append(size)
            pair = of.setdefault((each.source, size, a["gpu"][:4], a["gpus"], a["context"]), {True: [], False: []})
            pair[again].append(each.value)
    medians = {kind: round(statistics.median(found) / 1e9, 1) for kind, found in sizes.items()}
    assert medians == {("A100", True): 12.8, ("A100", False): 0.8, ("H100", True): 13.0, ("H100", False): 1.3}
    ratios = sorted(max(each[True]) / max(each[False]) for each in of.values() if each[True] and each[False])
    assert len(ratios) == 6 and [round(ratio, 2) for ratio in (ratios[0], ratios[-1])] == [0.74, 0.89]


KINDS_OF_STEPS: dict[str, tuple[dict[str, Any], tuple[str, str] | None]] = {
    "H100": ({}, ("H100", "kept")),
    "H100, all layers again": ({"checkpointing": "full"}, ("H100", "again")),
    "H100, products again": ({"checkpointing": "per-op"}, ("H100", "again")),
    "H100, attention alone": ({"checkpointing": "selective"}, ("H100", "kept")),
    "H200, as fast": ({"gpu": "H200 SXM"}, ("H100", "kept")),
    "A800, as fast": ({"gpu": "A800 80GB SXM"}, ("A100", "kept")),
    "another card": ({"gpu": "H20"}, ("A100, H100", "kept")),
    "a card of one's own": ({"gpu": None, "gpu_memory": "80GB", "gpu_peak": "100T"}, ("A100, H100", "kept")),
    "adapters": ({"lora": 16}, None),
}


@pytest.mark.parametrize(("asked", "kind"), KINDS_OF_STEPS.values(), ids=KINDS_OF_STEPS)
def test_an_answer_tells_what_steps_of_its_kind_reached(asked: dict[str, Any], kind: tuple[str, str] | None) -> None:
    found = plan(**EIGHT | asked)
    steps = kind and {"cards": kind[0], **STEPS[kind[0]][kind[1]]._asdict()}
    assert found["published_mfu"] == steps


WIDE = "heads=64 kv_heads=64 head_dim=128 d_ff=32768 vocab=50368 tied=yes gated=no"
RATES: dict[str, dict[str, Any]] = {  # what the sources of RUNS say beside the MFU
    "MPT 30B, 8 × H100, 8k": {
        "shape": "layers=48 d_model=7168 heads=64 kv_heads=64 head_dim=112 d_ff=28672 vocab=50368 tied=yes gated=no",
        "gpus": 8,
        "context": 8192,
        "tokens_per_second": 11_072,
    },
    "Llama 3.1 8B, 128 × H100": {"model": "llama-3-8b", "gpus": 128, "context": 8192, "tokens_per_second": 128 * 5_605},
    "MPT 70B, 512 × H100": {
        "shape": f"layers=80 d_model=8192 {WIDE}",
        "gpus": 512,
        "context": 2048,
        "tokens_per_second": 515_636,
    },
    "MPT 70B, 64 × A100": {
        "shape": f"layers=80 d_model=8192 {WIDE}",
        "gpu": "A100 80GB SXM",
        "gpus": 64,
        "context": 2048,
        "tokens_per_second": 26_274,
    },
}


@pytest.mark.parametrize("name", RATES)
def test_a_published_mfu_is_that_of_the_published_rate(name: str) -> None:
    (run,) = (run for run in RUNS if run.name == name)
    found = plan(**{"gpu": "H100 SXM"} | RATES[name])
    assert 100 * found["mfu"] == pytest.approx(float(run.percent), rel=0.02)


MPT_7B = "layers=32 d_model=4096 heads=32 kv_heads=32 head_dim=128 d_ff=16384 vocab=50368 tied=yes gated=no"
STEP_RATES: dict[str, tuple[dict[str, Any], float]] = {  # tokens a second of each GPU, from the sources of RUNS
    "torchtitan, 8 GPUs": ({"gpus": 8, "checkpointing": "selective"}, 5_762),
    "torchtitan, 8 GPUs, compiled": ({"gpus": 8, "checkpointing": "selective"}, 6_667),
    "torchtitan, 128 GPUs": ({"gpus": 128, "checkpointing": "selective"}, 5_605),
    "torchtitan, 128 GPUs, compiled": ({"gpus": 128, "checkpointing": "selective"}, 6_514),
    "MPT 7B, 8 GPUs": ({"model": None, "shape": MPT_7B, "context": 2048, "micro_batch": 6}, 10_643),
    "MPT 7B, 512 GPUs": ({"model": None, "shape": MPT_7B, "context": 2048, "micro_batch": 6, "gpus": 512}, 9_670),
    "MPT 7B, 8 GPUs, 8k, checkpointed": (
        {"model": None, "shape": MPT_7B, "micro_batch": 8, "accumulation": 2, "checkpointing": "full"},
        6_935,
    ),
}


@pytest.mark.parametrize(("asked", "published"), STEP_RATES.values(), ids=STEP_RATES)
def test_a_published_step_is_less_than_twice_off(asked: dict[str, Any], published: float) -> None:
    found = plan(**EIGHT | {"micro_batch": 2} | asked)
    assert 0.5 < published * asked.get("gpus", 8) / found["tokens_per_second"] < 2


BATCH: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {  # micro-batches, tokens of a step
    "4M": ({"global_batch": "4M"}, (64, 4 * 2**20)),
    "with micro-batches of 2": ({"global_batch": "4M", "micro_batch": 2}, (32, 4 * 2**20)),
    "what one micro-batch has": ({"global_batch": 65_536}, (1, 65_536)),
    "to the nearest": ({"global_batch": "4,000,000"}, (61, 61 * 65_536)),
    "halves go up": ({"global_batch": 3 * 32_768}, (2, 2 * 65_536)),
    "just below": ({"global_batch": 3 * 32_768 - 1}, (1, 65_536)),
}


@pytest.mark.parametrize(("asked", "expected"), BATCH.values(), ids=BATCH)
def test_a_global_batch_tells_the_accumulation(asked: dict[str, Any], expected: tuple[int, int]) -> None:
    found = plan(**EIGHT, **asked)
    assert (found["accumulation"], found["step_tokens"]) == expected
    same = {name: value for name, value in asked.items() if name != "global_batch"} | {"accumulation": expected[0]}
    assert found == plan(**EIGHT, **same)


def test_a_global_batch_that_cannot_be_is_refused_with_the_mend() -> None:
    with pytest.raises(ValueError, match="--global-batch: a micro-batch on each GPU has 65536 tokens already; give"):
        plan(**EIGHT, global_batch=65_535)
    with pytest.raises(ValueError, match="--global-batch: --accumulation tells the batch; give one"):
        plan(**EIGHT, global_batch="4M", accumulation=1)


def test_a_step_of_more_tokens_than_is_usual_is_named() -> None:
    asked = {"model": "llama-3.1-405b", "gpu": "H100 SXM", "zero": 3, "context": 8192}
    usual, large, larger, largest = (plan(**asked, gpus=gpus) for gpus in (2_048, 4_096, 16_384, 16_392))
    assert usual["step_tokens"] == BATCHES["Llama 3.1 405B"] and usual["large_batch"] is None
    names = [found["large_batch"]["as_large"] for found in (large, larger, largest)]
    assert names == [["DeepSeek-V3", "MiniMax-01"], ["MiniMax-01"], []]
    assert (largest["large_batch"]["usual"], largest["large_batch"]["largest"]) == (2**24, 2**27)
