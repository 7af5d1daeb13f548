"""What lies beside PyTorch's allocator: our own record, NCCL's sizes, and cards that nobody has read."""

import json
from pathlib import Path

import pytest

from flops_bytes.memory.chips import AMD, CHIPS, workspace_bytes
from flops_bytes.memory.outside import SOURCES, Groups, Outside, outside_lines
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.time.gpus import GPUS, THIRD_PARTY

RECORD = Path(__file__).parents[2] / "measurements/nvidia-h200/link_and_context.json"
MIB = 2**20


def summed(lines: list[Outside]) -> tuple[int, int]:
    return sum(line.low_bytes for line in lines), sum(line.high_bytes for line in lines)


def named(lines: list[Outside], name: str) -> Outside:
    return next(line for line in lines if line.name == name)


def test_lines_of_an_h200_are_the_record() -> None:
    stock = json.loads(RECORD.read_text(encoding="utf-8"))["values"]["measured_stock"]
    lines = outside_lines("H200 SXM", 1, 8)
    assert named(lines, "context").low_bytes == stock["context"]["outside_bytes"]
    for said in summed(lines):
        assert abs(said / stock["attention"]["outside_bytes"] - 1) < 0.02


def test_eight_gpus_share_what_nccls_constants_make() -> None:
    line = named(outside_lines("H100 SXM", 8, 8), "nccl_data")
    tables = (3 * 32 + 2 + 17) * 2  # MiB: pages for 32 channels, the communicator, NVLS
    ring = 24 * (2 + 10)
    nvls = 16 * 2 * 8 * 8 // 8  # channels, both ways, steps, heads, chunks of 1/8 MiB
    assert line.low_bytes == (tables + ring) * MIB
    assert line.high_bytes == (256 + 2 * ring + nvls) * MIB  # 256: read beside the pairs, where tables are fewer
    assert outside_lines("H100 SXM", 8, 8)[2:] == [line]
    far = [named(outside_lines("H100 SXM", gpus, 8), "nccl_data") for gpus in (16, 64)]
    assert far[0] == far[1]  # two neighbours in a ring, however many there are


def test_what_others_read_of_nccl_is_within() -> None:
    read = {2: 544, 4: 688}  # MiB, NVIDIA/nccl, issue 964
    for gpus, mib in read.items():
        low, high = summed(outside_lines("A100 40GB SXM", gpus, 8)[2:])
        assert low <= mib * MIB <= high


def test_a_card_that_nobody_read_has_the_interval_of_all() -> None:
    unknown = outside_lines("a card of tomorrow", 8, 8, groups=Groups(tensor_ranks=2))
    assert all(line.assumed_of for line in unknown)
    for gpu in CHIPS:
        for line in outside_lines(gpu, 8, 8, groups=Groups(tensor_ranks=2)):
            wide = named(unknown, line.name)
            assert wide.low_bytes <= line.low_bytes <= line.high_bytes <= wide.high_bytes
            assert line.rests_on in SOURCES


WITHOUT_A_CHIP = {"B300"}  # of which no reading of its multiprocessors was found


def test_every_card_has_its_chip() -> None:
    assert {*GPUS, *THIRD_PARTY} - {*AMD} - {*CHIPS} == WITHOUT_A_CHIP


@pytest.mark.parametrize("gpu", [*GPUS, *THIRD_PARTY, ""])
def test_cublas_has_a_larger_workspace_on_hopper_and_later(gpu: str) -> None:
    old = gpu.startswith(("V100", "T4", "A", "L", "RTX 3", "RTX 4"))
    assert workspace_bytes(gpu) == (128 * MIB if gpu.startswith("MI3") else 8320 * 1024 if old else 32 * MIB)


def test_a_card_is_one_however_it_is_written() -> None:
    asked = {"model": "gpt2", "context": 1024, "checkpointing": "full"}
    for name, other in (("H100 SXM", "h100sxm"), ("TPU v4", "tpu V4"), ("A100 80GB SXM", "a10080gbsxm")):
        assert plan(gpu=name, **asked) == plan(gpu=other, **asked)


def test_beside_tensor_ranks_a_node_has_room_for_fewer_of_a_group() -> None:
    """As a node with half the GPUs has, and as many network cards."""
    for more in (
        {"expert_ranks": 8},
        {"pipeline_ranks": 4},
        {"pipeline_ranks": 2, "expert_ranks": 4},
        {"context_ranks": 4},
        {"replicas": 2},
    ):
        halved = outside_lines("H100 SXM", 16, 8, 8, Groups(tensor_ranks=2, **more))
        smaller = outside_lines("H100 SXM", 8, 4, 8, Groups(**more))
        assert [line for line in halved if line.name != "nccl_tensor"] == smaller


def test_each_group_has_a_communicator_of_its_own() -> None:
    def lines(groups: Groups) -> dict[str, Outside]:
        return {line.name: line for line in outside_lines("H100 SXM", 32, 8, groups=groups)[2:]}

    context = lines(Groups(tensor_ranks=2, context_ranks=4))
    assert {*context} == {"nccl_data", "nccl_tensor", "nccl_context"}
    alone = named(outside_lines("H100 SXM", 4, 8), "nccl_data")
    assert context["nccl_context"] == alone._replace(name="nccl_context")
    replicas = lines(Groups(replicas=4))
    assert {*replicas} == {"nccl_data", "nccl_replicas"}
    assert replicas["nccl_data"] == named(outside_lines("H100 SXM", 8, 8), "nccl_data")  # what ZeRO shards, in a node
    assert {*lines(Groups(replicas=32))} == {"nccl_replicas"}
