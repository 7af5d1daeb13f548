"""What memory and links carry follows from wires and their rates; the planner takes it from that one table."""

from __future__ import annotations

import pytest

from flops_bytes.model.shapes import LLAMA_3_8B
from flops_bytes.parallel.sharding import LINK_BYTES_PER_SECOND
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.serve.inference import Server, decode_seconds
from flops_bytes.time.gpus import GPUS, LINKS, THIRD_PARTY, TPUS, capacity_bytes

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


@pytest.mark.parametrize("card", GPUS | THIRD_PARTY)
def test_a_cards_bandwidth_is_its_bus_times_its_rate(card: str) -> None:
    bits, gigabits = MEMORY[card]
    sheet = (GPUS | THIRD_PARTY)[card].bandwidth_bytes_per_second
    assert sheet == pytest.approx(bits / 8 * gigabits * 1e9, rel=0.011)  # 2 TB/s for 2.039 is no rounding


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
