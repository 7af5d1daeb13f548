"""Each card's row follows from a second figure: units and clocks, wires and rates; the planner takes that one table."""

from __future__ import annotations

import pytest

from flops_bytes.memory.chips import CHIPS
from flops_bytes.model.shapes import LLAMA_3_8B
from flops_bytes.parallel.sharding import LINK_BYTES_PER_SECOND, ring_rate
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.published_runs import CARD_WITH_STEPS
from flops_bytes.serve.inference import Server, decode_seconds
from flops_bytes.time.gpus import COLLECTIVES, GPUS, LINKS, REPORTED, THIRD_PARTY, TPUS, capacity_bytes
from flops_bytes.time.rates import CARD_FAMILIES, CARD_WITH_RATES, SIZE_TABLES, card_family, card_peak

# Bits of the memory's bus, and gigabits a second of each: HBM2 to HBM3e, GDDR6 to GDDR7.
MEMORY = {
    "V100 16GB SXM": (4096, 1.752),
    "V100 32GB SXM": (4096, 1.752),
    "V100 16GB PCIe": (4096, 1.752),
    "V100 32GB PCIe": (4096, 1.752),
    "T4": (256, 10),
    "A100 40GB SXM": (5120, 2.43),
    "A100 40GB PCIe": (5120, 2.43),
    "A100 80GB SXM": (5120, 3.186),
    "A100 80GB PCIe": (5120, 3.024),
    "H100 SXM": (5120, 5.234),
    "H100 PCIe": (5120, 3.186),
    "H100 NVL": (6144, 5.1),
    "H200 SXM": (6144, 6.25),
    "H200 NVL": (6144, 6.25),
    "B200": (8192, 7.6),
    "GB200": (8192, 7.8),
    "L4": (192, 12.5),
    "L40S": (384, 18),
    "RTX 4090": (384, 21),
    "RTX 5090": (512, 28),
    "MI300X": (8192, 5.2),
    "A800 80GB SXM": (5120, 3.186),
    "H800 SXM": (5120, 5.234),
    "H20": (6144, 5.2),
    "L20": (384, 18),
    "A10G": (384, 12.5),
    "RTX 3090": (384, 19.5),
    "RTX 4090 D": (384, 21),
    "RTX PRO 6000": (512, 28),
    "B300": (8192, 7.8),
    "MI325X": (8192, 5.9),
}
WIRES = {  # links or lanes, and bytes a second of each in one direction
    "NVLink 2": (6, 25e9),
    "NVLink 3": (12, 25e9),
    "NVLink 4": (18, 25e9),
    "NVLink 5": (18, 50e9),
    "NVLink of A800, H800": (8, 25e9),
    "Infinity Fabric": (7, 64e9),
    "PCIe 3": (16, 1e9),
    "PCIe 4": (16, 2e9),
    "PCIe 5": (16, 4e9),
    "100 Gb/s": (100, 1e9 / 8),
    "200 Gb/s": (200, 1e9 / 8),
    "400 Gb/s": (400, 1e9 / 8),
    "800 Gb/s": (800, 1e9 / 8),
}
# Of cards of which no sheet was opened: SMs, FMA of one in a clock by CUDA cores and in 16 bits, and MHz; or a sister.
UNITS = {
    "L20": (92, 128, 256, 2520),
    "A10G": (80, 128, 256, 1710),
    "RTX 3090": (82, 128, 256, 1695),
    "RTX 4090 D": (114, 128, 256, 2520),
    "RTX PRO 6000": (188, 128, 512, 2617),
}
SISTERS = {"A800 80GB SXM": "A100 80GB SXM", "H800 SXM": "H100 SXM", "MI325X": "MI300X"}
OTHER_PEAKS = {"H20": (44, 148), "B300": (75, 2250)}  # float32 and 16 bits, in TFLOP/s
# GiB that CUDA reports less than the card's label, and what cards of which nobody reports have several of
LESS_GIB = {
    **{f"V100 16GB {form}": 0.23 for form in ("SXM", "PCIe")},
    **{f"V100 32GB {form}": 0.26 for form in ("SXM", "PCIe")},
    **{f"A100 40GB {form}": 0.5 for form in ("SXM", "PCIe")},
    **{f"A100 80GB {form}": 0.75 for form in ("SXM", "PCIe")},
    **{"T4": 1.44, "H100 SXM": 0.89, "H100 NVL": 1, "H200 SXM": 1.19, "B200": 1.65, "L4": 1.97, "L40S": 3.58},
    **{"RTX 4090": 0.36, "RTX 4090 D": 0.48, "RTX 5090": 0.63, "MI300X": 0.55, "A800 80GB SXM": 0.67, "H20": 0.9},
    **{"L20": 3.47, "A10G": 1.8, "RTX 3090": 0.3, "RTX PRO 6000": 1.03},
}
STACKS_GB = {  # of memory, and usable GB of each
    **{"H100 PCIe": (5, 16), "H200 NVL": (6, 23.5), "GB200": (8, 23.25), "H800 SXM": (5, 16), "B300": (8, 36)},
    **{
        "MI325X": (8, 32),
        "TPU v4": (4, 8 * 1.073741824),
        "TPU v5e": (2, 8),
        "TPU v5p": (6, 95 / 6),
        "TPU v6e": (2, 16),
    },
}
TPU_UNITS = {  # matrix units of a chip, FMA of one in a clock, MHz; and FLOPs a byte at the ridge
    "TPU v4": (8, 128**2, 1050, 229.2),
    "TPU v5e": (4, 128**2, 1500, 240.5),
    "TPU v5p": (8, 128**2, 1750, 166.0),
    "TPU v6e": (4, 256**2, 1750, 560.4),
}
# MHz at which a multiprocessor's 64 CUDA cores, 128 from GA102 on and on Hopper, make the peak in float32.
CLOCKS = {
    **{"V100 16GB SXM": 1530, "V100 32GB SXM": 1530, "V100 16GB PCIe": 1380, "V100 32GB PCIe": 1380, "T4": 1590},
    **{f"A100 {size} {form}": 1410 for size in ("40GB", "80GB") for form in ("SXM", "PCIe")},
    **{"A800 80GB SXM": 1410, "H100 SXM": 1980, "H200 SXM": 1980, "H800 SXM": 1980, "H100 PCIe": 1755},
    **{"H100 NVL": 1785, "H200 NVL": 1785, "B200": 1965, "L4": 2040, "L40S": 2520, "RTX 4090": 2520, "RTX 5090": 2407},
    **{card: mhz for card, (*_, mhz) in UNITS.items()},
}
PROCESSORS = {"H20": 78, "GB200": 148}  # whose peaks in float32 fit no clock that is known
REACHED = {  # of a ring's nominal rate, by what was published
    ("all-gather", "H200 SXM", 8): 0.803,
    ("reduce-scatter", "H200 SXM", 8): 0.806,
    ("all-reduce", "H200 SXM", 8): 0.816,
    ("all-reduce", "B200", 8): 0.758,
    ("all-reduce", "H200 SXM", 32): 0.912,
    ("all-reduce", "B200", 32): 0.9545,
    ("all-reduce", "H100 SXM", 128): 0.8,
    ("reduce-scatter", "H100 SXM", 32): 0.9,
    ("reduce-scatter", "H100 SXM", 1024): 0.65,
    ("all-reduce", "RTX 4090", 4): 0.811,
    ("all-reduce", "RTX 5090", 8): 0.4375,
}


@pytest.mark.parametrize("card", THIRD_PARTY)
def test_the_peaks_of_a_card_without_a_sheet_fit_together(card: str) -> None:
    peaks = THIRD_PARTY[card].peak_flop_per_second
    assert peaks["bfloat16"] == peaks["float16"]
    for wide, narrow in (("tf32", "bfloat16"), ("bfloat16", "float8")):
        if wide in peaks and narrow in peaks and card != "A10G":  # whose sheet has no more in tf32 than by CUDA cores
            assert peaks[narrow] == pytest.approx(2 * peaks[wide], rel=0.001)
    if card in SISTERS:
        assert peaks == GPUS[SISTERS[card]].peak_flop_per_second
    elif card in UNITS:
        sms, cores, fma, mhz = UNITS[card]
        found = [peaks["float32"], peaks["bfloat16"]]
        assert found == pytest.approx([sms * each * 2 * mhz * 1e6 for each in (cores, fma)], rel=0.008)
    else:
        assert [peaks["float32"] / 1e12, peaks["bfloat16"] / 1e12] == [*OTHER_PEAKS[card]]


@pytest.mark.parametrize("card", GPUS | THIRD_PARTY | TPUS)
def test_a_cards_memory_is_what_it_reports_and_a_little_or_that_of_its_stacks(card: str) -> None:
    label = (GPUS | THIRD_PARTY | TPUS)[card].memory_bytes / 1e9
    assert (card in REPORTED) == (card in LESS_GIB) != (card in STACKS_GB)
    if card in REPORTED:
        assert label - REPORTED[card].gib == pytest.approx(LESS_GIB[card])
    else:
        stacks, each = STACKS_GB[card]
        assert label == pytest.approx(stacks * each)


@pytest.mark.parametrize("tpu", TPUS)
def test_a_tpu_has_so_many_units_and_reads_as_fast_as_its_ridge_says(tpu: str) -> None:
    units, fma, mhz, ridge = TPU_UNITS[tpu]
    peak = TPUS[tpu].peak_flop_per_second["bfloat16"]
    assert peak == pytest.approx(units * fma * 2 * mhz * 1e6, rel=0.003)
    assert peak / TPUS[tpu].bandwidth_bytes_per_second == pytest.approx(ridge, abs=0.05)


def test_a_published_collective_reaches_its_share_of_the_ring() -> None:
    found = {}
    for row in COLLECTIVES:
        within = next(link.bytes_per_second for link in LINKS.values() if row.gpu in link.cards)
        found[row.what, row.gpu, row.gpus] = row.bytes_per_second / ring_rate(row.gpus, within)
    assert found == pytest.approx(REACHED, abs=0.0005)


@pytest.mark.parametrize("card", GPUS | THIRD_PARTY)
def test_a_cards_bandwidth_is_its_bus_times_its_rate(card: str) -> None:
    bits, gigabits = MEMORY[card]
    sheet = (GPUS | THIRD_PARTY)[card].bandwidth_bytes_per_second
    assert sheet == pytest.approx(bits / 8 * gigabits * 1e9, rel=0.011)  # 2 TB/s for 2.039 is no rounding


@pytest.mark.parametrize("card", CHIPS)
def test_a_chips_multiprocessors_make_its_peak(card: str) -> None:
    chip = CHIPS[card]
    if card in PROCESSORS:
        assert chip.multiprocessors == PROCESSORS[card]
    else:
        cores = 64 if chip.capability <= 80 else 128
        flops = chip.multiprocessors * cores * 2 * CLOCKS[card] * 1e6
        assert flops == pytest.approx((GPUS | THIRD_PARTY)[card].peak_flop_per_second["float32"], rel=0.011)


def test_rates_and_steps_of_another_card_are_of_the_same_chip() -> None:
    for card, other in CARD_WITH_RATES.items():
        assert CHIPS[card].multiprocessors == CHIPS[other].multiprocessors and card_peak(card) == card_peak(other)
        assert CHIPS[card].capability == CHIPS[other].capability
    for family in CARD_FAMILIES:
        assert card_family(SIZE_TABLES[family]) == family
        assert len({CHIPS[card].capability for card in CHIPS if card_family(card) == family}) == 1
    for start, other in CARD_WITH_STEPS.items():
        assert card_family(start) == card_family(other) == other


@pytest.mark.parametrize("link", LINKS)
def test_a_link_carries_what_its_wires_do(link: str) -> None:
    wires, each = WIRES[link]
    assert LINKS[link].bytes_per_second == wires * each
    for card in LINKS[link].cards:
        found = plan(model="gpt2", gpu=card, gpus=2, recipe="fp32", pairs="causal")["wire"]
        assert (found["link"], found["seconds"]) == (link, pytest.approx(found["bytes"] / (0.8 * wires * each)))
        assert found["bytes"] == 4 * 124_439_808  # of two GPUs, each sends half of the float32 gradients twice


def test_a_card_has_one_link_and_several_machines_another() -> None:
    cards = [card for link in LINKS.values() for card in link.cards]
    assert sorted(cards) == sorted(GPUS | THIRD_PARTY)
    assert {
        "NVLink": LINKS["NVLink 4"].bytes_per_second,
        "400 Gb/s": LINKS["400 Gb/s"].bytes_per_second,
    } == LINK_BYTES_PER_SECOND
    asked = {"model": "gpt2", "gpu": "H100 SXM"}
    links = {gpus: plan(**asked, gpus=gpus)["wire"] for gpus in (1, 2, 8, 9)}
    assert links.pop(1) is None
    assert [wire and wire["link"] for wire in links.values()] == ["NVLink 4", "NVLink 4", "400 Gb/s"]
    assert ["sharding" in plan(**asked, gpus=gpus)["estimated"] for gpus in (1, 2)] == [False, True]
    assert plan(model="gpt2", gpu="TPU v5p", gpus=4)["wire"] is None, "nobody says what TPUs send over"


@pytest.mark.parametrize("card", GPUS | THIRD_PARTY | TPUS)
def test_serving_reads_memory_as_fast_as_the_card(card: str) -> None:
    row = (GPUS | THIRD_PARTY | TPUS)[card]
    peak = max(row.peak_flop_per_second.get(dtype, 0) for dtype in ("bfloat16", "float16"))
    found = plan(task="serve", model="llama-3-8b", gpu=card, users=1)
    server = Server(row.bandwidth_bytes_per_second, peak)
    assert found["token_seconds"] == decode_seconds(LLAMA_3_8B, 1, 1024, server)
    assert found["gpu_bytes"] == capacity_bytes(card, row)


def test_one_user_is_enough_to_serve_and_a_prompt_may_fill_the_context() -> None:
    asked = {"task": "serve", "model": "llama-3-8b", "gpu": "H100 SXM"}
    most = plan(**asked, users=1)["longest_context"]  # of one user on one GPU
    alone = plan(**asked, context=most, prompt=most)
    assert (alone["users_that_fit"], alone["fewest_gpus"]) == (1, 1)
    assert plan(**asked, context=most, users=2)["fewest_gpus"] == 2
    assert plan(**asked, context=most)["first_token_seconds"] == alone["first_token_seconds"]
