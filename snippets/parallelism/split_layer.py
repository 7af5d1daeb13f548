# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What does one of eight ranks hold and send of a layer of Llama 3 70B? DTensor's, on ranks that are not there."""

# --8<-- [start:layer]
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

WIDTH, HEADS, KV_HEADS, HEAD_DIM, D_FF = 8192, 64, 8, 128, 28_672  # of Llama 3 70B
RANKS, TOKENS = 8, 8192


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, device="meta", dtype=torch.bfloat16)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = linear(WIDTH, HEADS * HEAD_DIM)
        self.k, self.v = linear(WIDTH, KV_HEADS * HEAD_DIM), linear(WIDTH, KV_HEADS * HEAD_DIM)
        self.out = linear(HEADS * HEAD_DIM, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (project(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for project in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return y


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = linear(WIDTH, D_FF), linear(WIDTH, D_FF), linear(D_FF, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), Mlp()
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(WIDTH, device="meta", dtype=torch.bfloat16) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = x + self.mlp(self.mlp_norm(x))
        return y


# --8<-- [end:layer]


# --8<-- [start:plan]
def split(block: Block, mesh: Any, sequence: bool) -> None:
    """First matrices by outputs, last ones by inputs; elsewhere all tokens, or with sequence parallelism a part."""
    between = Shard(1) if sequence else Replicate()
    first, last = ColwiseParallel(), RowwiseParallel(output_layouts=between)
    gathered = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    plan: dict[str, Any] = {f"attention.{name}": first for name in "qkv"} | {"attention.out": last}
    plan |= {"mlp.gate": first, "mlp.up": first, "mlp.down": last, "attention": gathered, "mlp": gathered}
    if sequence:
        plan |= {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()}
    parallelize_module(block, mesh, plan)


# --8<-- [end:plan]


# --8<-- [start:counted]
class Payloads(TorchDispatchMode):
    """Bytes handed to collectives, by name: what is reduced, or what is there once gathered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"):
            whole = out if name.startswith("all") else args[0]
            self.bytes[name] += whole.numel() * whole.element_size()
        return out


def count(sequence: bool) -> dict[str, int]:
    """Of one layer, forward and backward, on one of the ranks: parameters held, and bytes handed over by collective."""
    block = Block()
    split(block, init_device_mesh("cpu", (RANKS,)), sequence)
    held = sum(
        weight.to_local().numel() if isinstance(weight, DTensor) else weight.numel() for weight in block.parameters()
    )
    own_tokens = TOKENS // RANKS if sequence else TOKENS
    x = torch.empty(1, own_tokens, WIDTH, device="meta", dtype=torch.bfloat16, requires_grad=True)
    with Payloads() as payloads:
        y = block(x)
        (y.to_local() if isinstance(y, DTensor) else y).sum().backward()
    return {"held": held, **payloads.bytes}


dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
counted = {"tensor": count(sequence=False), "sequence": count(sequence=True)}
dist.destroy_process_group()
layer_features_bytes = 2 * TOKENS * WIDTH
assert counted["tensor"]["all_reduce"] == 4 * layer_features_bytes  # two forward, two backward
print(counted)
# --8<-- [end:counted]
