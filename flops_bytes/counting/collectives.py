"""What a rank hands to collectives, and what it sends."""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from flops_bytes.lessons.trace import tensors_in

NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional")
# A collective by the words in its operation's name, the first that is there
KINDS = {
    "allreduce": "all-reduce",
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "allgather": "all-gather",
    "all_gather": "all-gather",
    "alltoall": "all-to-all",
    "all_to_all": "all-to-all",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
    "send": "send",
    "recv": "receive",
}


class Collective(NamedTuple):
    """A call: what is handed over is the whole tensor, which is the result of an all-gather and what goes into a
    reduce-scatter.
    """

    kind: str
    group: dist.ProcessGroup
    handed_bytes: int
    peer: int | None = None  # the rank to which it is sent, or from which it comes

    @property
    def sent_bytes(self) -> int:
        """By a rank, on a ring: of n parts of what is handed over, n - 1, and of an all-reduce twice as many."""
        n = self.group.size()
        match self.kind:
            case "all-reduce":
                return 2 * self.handed_bytes * (n - 1) // n
            case "all-gather" | "reduce-scatter" | "all-to-all":
                return self.handed_bytes * (n - 1) // n
            case "receive":
                return 0
        return self.handed_bytes if n > 1 else 0


class Sent(NamedTuple):
    """What a line of code sends in a step."""

    collective: str
    group: str
    line: str
    calls: int
    handed_bytes: int  # of the whole tensors
    sent_bytes: int  # by a rank, on a ring


def group_of(args: Any) -> dist.ProcessGroup | None:
    """The group among an operation's arguments: itself, or its name as the last that is a word."""
    for each in args:
        if isinstance(each, torch.ScriptObject) and "ProcessGroup" in str(each._type()):
            return dist.ProcessGroup.unbox(each)
    names = [each for each in args if isinstance(each, str)]
    resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
    return resolve(names[-1]) if names else None


def collective_of(func: Any, args: Any) -> Collective | None:
    """What an operation of PyTorch hands over, if it is a collective or sends something."""
    if func.namespace not in NAMESPACES:
        return None
    name = func._opname
    kind = next((kind for word, kind in KINDS.items() if word in name), "")
    tensors = [tensors_in(each) for each in args if isinstance(each, Tensor | list)]
    group = group_of(args) if kind and any(tensors) else None
    if group is None:
        return None
    handed = max(sum(x.nbytes for x in each) for each in tensors)
    if func.namespace != "c10d" and kind == "all-gather" and not name.endswith("_out"):
        handed *= group.size()
    peer = dist.get_process_group_ranks(group)[args[2]] if kind in ("send", "receive") else None
    return Collective(kind, group, handed, peer)


def name_of(group: dist.ProcessGroup) -> str:
    """A dimension of the mesh, or the ranks."""
    ranks = dist.get_process_group_ranks(group)
    if group.group_desc.startswith("mesh_"):
        return f"{group.group_desc.removeprefix('mesh_')}, {len(ranks)} ranks"
    if group is dist.group.WORLD:
        return f"all {len(ranks)} ranks"
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    even = ranks == list(range(ranks[0], ranks[-1] + 1, stride))
    told = f"{ranks[0]}, {ranks[1]} … {ranks[-1]}" if even and len(ranks) > 3 else ", ".join(map(str, ranks))
    return f"ranks {told}"
