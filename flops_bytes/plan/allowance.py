"""What a GPU's memory holds beside PyTorch's tensors, for a question: its context, kernels, and NCCL's buffers."""

from collections.abc import Mapping
from typing import Any

from flops_bytes.memory.outside import NO_GROUPS, SOURCES, Groups, Outside, middle_bytes, outside_lines
from flops_bytes.time.gpus import TPUS


def asked_lines(a: Mapping[str, Any], groups: Groups = NO_GROUPS) -> list[Outside]:
    """Of training or serving as it is asked for; of a card of which only numbers are said, as of any; of a TPU none."""
    if a["gpu"] in TPUS:
        return []
    return outside_lines(a["gpu"] or "", a["gpus"], a["node_gpus"], a["network_cards"] or 0, groups)


def outside_bytes(a: Mapping[str, Any], groups: Groups = NO_GROUPS) -> int:
    """All of it: as much as was asked for, else the middle of what the lines say."""
    if a["allowance"] is not None:
        return int(a["allowance"])
    return middle_bytes(asked_lines(a, groups))


def lines_outside(a: Mapping[str, Any], groups: Groups = NO_GROUPS) -> list[dict[str, Any]]:
    """The same line by line, with what each rests on."""
    if a["allowance"] is not None:
        return [{"line": "allowance", "bytes": (a["allowance"], a["allowance"]), "source": "asked", "assumed_of": ""}]
    return [
        {
            "line": line.name,
            "bytes": (line.low_bytes, line.high_bytes),
            "source": SOURCES[line.rests_on],
            "assumed_of": line.assumed_of,
        }
        for line in asked_lines(a, groups)
    ]
