# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What ranks hand to each other and hold, counted on real ones and on simulated ones; how long the wire takes."""

# --8<-- [start:setup]
import json
import os
import subprocess
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, Llama, again, build, flash, loss
from flops_bytes.lessons.ranks import WAYS, main
from flops_bytes.lessons.trace import Trace
from flops_bytes.parallel.sharding import (
    ddp_payload,
    fit,
    fsdp_payload,
    fsdp_peak_bytes,
    group_numbers,
    ring_bytes,
    zero_payload,
)

# --8<-- [end:setup]


# --8<-- [start:launch]
def torchrun(ranks: int, *arguments: str) -> dict[str, Any]:
    """What rank 0 of so many processes of main() says at its end."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, f"--nproc-per-node={ranks}", "-m", main.__module__, *arguments]
    hidden = {} if "nccl" in arguments else {"CUDA_VISIBLE_DEVICES": ""}  # any machine has as many ranks on its CPU
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | hidden)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# --8<-- [end:launch]


# --8<-- [start:simulate]
def simulate(ranks: int, apart: bool = False) -> dict[str, int]:
    """Bytes on rank 0 of Llama 3 8B, one token: before a step, at its peak, after it.

    `apart`: embedding and head are groups of their own, not both the root's.
    """
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    with FakeTensorMode():
        model = Llama(LLAMA_3_8B, flash)
        for block in model.blocks:
            block.forward = again(block.forward)
        own = [model.embedding, model.head] if apart else []
        for module in (*model.blocks, *own, model):
            fully_shard(module, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizer.step()  # makes its state
        optimizer.zero_grad()
        with Trace() as trace:
            for shard in local_shards(model, optimizer):
                trace.hold(shard.untyped_storage())
            found = {"before": trace.live_bytes}
            tokens = torch.zeros(1, 1, dtype=torch.int64)
            loss(model, tokens, tokens).backward()
            found |= {"peak": trace.peak_bytes, "after": trace.live_bytes}
    dist.destroy_process_group()
    return found


# --8<-- [end:simulate]


# --8<-- [start:shards]
def local_shards(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What this rank holds of the weights and of the optimizer's state."""
    state = [v for values in optimizer.state.values() for v in values.values()]
    sharded = [*model.parameters(), *state]
    return [getattr(tensor, "_local_tensor", tensor) for tensor in sharded]


# --8<-- [end:shards]


# --8<-- [start:count]
_two = torchrun(2, *WAYS, "gloo")
_four = torchrun(4, "ddp", "fsdp")
# --8<-- [end:count]


# --8<-- [start:payload]
def groups(model: torch.nn.Module, ranks: int) -> tuple[int, int]:
    """Numbers, padded, of all blocks, and of the root's group."""
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    return group_numbers(shapes, ranks)


gpt2 = build(GPT2_SMALL)
numbers = sum(weight.numel() for weight in gpt2.parameters())
predicted_payload = {
    "ddp": ddp_payload(numbers),
    "zero_1": zero_payload(numbers),
    "fsdp_whole": fsdp_payload(*groups(gpt2, 2), reshard=False),
    "fsdp": fsdp_payload(*groups(gpt2, 2)),
    "fsdp_4": fsdp_payload(*groups(gpt2, 4)),
}
counted_payload = {way: _two[way]["payload_bytes"] for way in predicted_payload if way in _two}
counted_payload["fsdp_4"] = _four["fsdp"]["payload_bytes"]
assert counted_payload == predicted_payload
assert _four["ddp"]["payload_bytes"] == _two["ddp"]["payload_bytes"]
payload_bytes = {way: sum(parts.values()) for way, parts in counted_payload.items()}
formula_bytes = {way: sum(parts.values()) for way, parts in predicted_payload.items()}
gathered_bytes = {way: parts.get("allgather", 0) + parts.get("broadcast", 0) for way, parts in counted_payload.items()}
reduced_bytes = {
    way: parts.get("allreduce", 0) + parts.get("reduce_scatter", 0) for way, parts in counted_payload.items()
}
# --8<-- [end:payload]


# --8<-- [start:held]
held_bytes = {way: _two[way]["held_bytes"][0] for way in WAYS}
held_bytes["fsdp_4"] = _four["fsdp"]["held_bytes"][0]
held_ratio = {way: size / numbers for way, size in held_bytes.items()}
uneven_bytes = _two["zero_1"]["held_bytes"][0] - _two["zero_1"]["held_bytes"][1]
# from the forward to the backward pass: resharded, and whole
between_bytes = {way: _two[way]["between_bytes"] for way in ("fsdp", "fsdp_whole")}
kept_whole_bytes = between_bytes["fsdp_whole"] - between_bytes["fsdp"]
assert kept_whole_bytes == 4 * groups(gpt2, 2)[0]
# --8<-- [end:held]


# --8<-- [start:simulated]
simulated = {ranks: simulate(ranks) for ranks in (8, 64)}
simulated_bytes = {ranks: found["peak"] for ranks, found in simulated.items()}
formula_peak_bytes = {
    ranks: sum(fsdp_peak_bytes(*groups(build(LLAMA_3_8B), ranks), ranks).values()) for ranks in simulated
}
before_bytes = {ranks: found["before"] for ranks, found in simulated.items()}
after_bytes = {ranks: found["after"] for ranks, found in simulated.items()}
apart_bytes = simulate(64, apart=True)["peak"]
ONE_TOKEN = 1e-5  # the share of activations, a batch and counters of steps
for ranks, size in formula_peak_bytes.items():
    assert abs(simulated_bytes[ranks] / size - 1) < ONE_TOKEN
# --8<-- [end:simulated]


# --8<-- [start:wire]
def time_wire() -> dict[str, Any]:
    """Seconds by collective and bytes, over NCCL on all GPUs or gloo on CPUs.

    Empty on one GPU, which has no wire: its CPU would speak for itself alone.
    """
    gpus = torch.cuda.device_count()
    if gpus > 1:
        return torchrun(gpus, "nccl")
    return {} if gpus else _two


measured_wire = time_wire()
# --8<-- [end:wire]


# --8<-- [start:fit]
def sent_by_a_rank(found: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Seconds by collective and by the bytes that each rank sends."""
    return {
        collective: {int(ring_bytes(int(n), found["ranks"], collective)): t for n, t in times.items()}
        for collective, times in found["seconds"].items()
    }


measured_sent = sent_by_a_rank(measured_wire) if measured_wire else None
measured_fits = {name: fit(times) for name, times in measured_sent.items()} if measured_sent else None
# --8<-- [end:fit]
