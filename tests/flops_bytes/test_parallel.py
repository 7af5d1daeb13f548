"""What kinds of parallelism cost is what PyTorch's own schedules and DTensor say, on ranks that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from flops_bytes.memory.layers import Adapters
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_1_405B, LLAMA_3_8B, LLAMA_3_70B, MIXTRAL_8X7B, parameters
from flops_bytes.parallel.layouts import (
    Layout,
    bubble,
    in_flight,
    possible_layouts,
    rank_layers,
    rank_parameters,
    rates,
    refuse,
    sent,
    stage_layers,
    state_bytes,
)
from flops_bytes.parallel.rank_steps import Stage, asked_pass
from flops_bytes.parallel.ranks import (
    RankStep,
    layer_activation_bytes,
    outlines,
    rank_activation_bytes,
    rank_run,
    rank_stages,
    trained_numbers,
)
from tests.conftest import ROOT

SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleInterleavedZeroBubble,
}
LAYOUTS = [
    Layout(pipeline=p, schedule=schedule, micro_batches=m, virtual=v)
    for schedule, v in (
        *(("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3)),
        *(("zero-bubble", 1), ("zero-bubble", 2), ("zero-bubble", 3)),
    )
    for p in (2, 4, 8)
    for m in (p, 2 * p, 4 * p)
]


# Pipelines


def order(layout: Layout) -> dict[int, list[Any]]:
    """What each rank does, in PyTorch's order, without processes."""
    stages = [
        SimpleNamespace(
            num_stages=layout.pipeline * layout.virtual,
            group_size=layout.pipeline,
            group_rank=0,
            stage_index=index * layout.pipeline,
            is_first=index == 0,
            is_last=False,
            has_backward=True,
            submod=nn.Identity(),
            stage_index_to_group_rank={},
        )
        for index in range(layout.virtual)
    ]
    schedule = SCHEDULES[layout.schedule]
    several = layout.schedule in ("interleaved", "zero-bubble")
    made: Any = schedule(stages if several else stages[0], layout.micro_batches)
    found: dict[int, list[Any]] = made.pipeline_order
    return found


WORK = {"FORWARD": 1.0, "FULL_BACKWARD": 2.0, "BACKWARD_INPUT": 1.0, "BACKWARD_WEIGHT": 1.0}


def passes(actions: list[Any]) -> Iterator[tuple[str, int, int]]:
    """The kind, the stage and the micro-batch of what takes time.

    PyTorch 2.13 numbers those of 1F1B's last rank from 1, so they are counted here.
    """
    before: Counter[tuple[str, int]] = Counter()
    for action in actions:
        kind = action.computation_type.name if action else ""
        if kind in WORK:
            yield kind, action.stage_index, before[kind, action.stage_index]
            before[kind, action.stage_index] += 1


def needed(kind: str, stage: int, batch: int, last: int) -> tuple[str, int, int] | None:
    """What has to be there: a result of the stage before, a gradient of the one behind, or of its own result."""
    if kind == "FORWARD":
        return ("forward", stage - 1, batch) if stage else None
    if kind == "BACKWARD_WEIGHT":
        return "backward", stage, batch
    return ("forward", stage, batch) if stage == last else ("backward", stage + 1, batch)


def seconds(layout: Layout) -> float:
    """When the last pass ends, if each starts as soon as its rank and what it needs are there."""
    ended: dict[tuple[str, int, int], float] = {}
    waiting = {rank: list(passes(actions)) for rank, actions in order(layout).items()}
    free = dict.fromkeys(waiting, 0.0)
    last = layout.pipeline * layout.virtual - 1
    while any(waiting.values()):
        moved = False
        for rank, todo in waiting.items():
            while todo:
                kind, stage, batch = todo[0]
                needs = needed(kind, stage, batch, last)
                if needs is not None and needs not in ended:
                    break
                todo.pop(0)
                free[rank] = max(free[rank], ended[needs] if needs else 0.0) + WORK[kind]
                if kind != "BACKWARD_WEIGHT":
                    ended["forward" if kind == "FORWARD" else "backward", stage, batch] = free[rank]
                moved = True
        assert moved, "no rank can go on"
    return max(free.values())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_pipelines_bubble_is_that_of_pytorchs_order(layout: Layout) -> None:
    each = layout.virtual * layout.micro_batches * 3.0
    assert 1 - each / seconds(layout) == pytest.approx(bubble(layout), rel=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_so_many_micro_batches_are_in_flight_on_each_rank(layout: Layout) -> None:
    for rank, actions in order(layout).items():
        now = most = 0
        for kind, _, _ in passes(actions):
            now += {"FORWARD": 1, "BACKWARD_INPUT": 0}.get(kind, -1)
            most = max(most, now)
        assert in_flight(layout, rank) == most


def test_layers_are_shared_out_with_the_ends_as_one_layer_each() -> None:
    assert stage_layers(126, 16) == [7, *[8] * 14, 7]  # as Llama 3 405B had it (arXiv 2407.21783, section 3.3.2)
    for layers, stages in ((32, 4), (80, 7), (5, 2)):
        each = stage_layers(layers, stages)
        assert sum(each) == layers and len(each) == stages and min(each) >= 0
    layout = Layout(pipeline=4, virtual=2, schedule="interleaved", micro_batches=4)
    assert [rank_layers(replace(LLAMA_3_8B, layers=30), layout, rank) for rank in range(4)] == [
        [3, 4],
        [4, 4],
        [4, 4],
        [4, 3],
    ]


# Tensor and sequence parallelism, on ranks that are not there

# Loads once what takes seconds. Each question is a script and what it is told, and a process of its own, forked from
# this one, answers it.
SERVER = """
import json, os, sys
import torch.distributed.tensor.debug, torch.distributed.tensor.parallel, torch.testing._internal.distributed.fake_pg

for line in sys.stdin:
    script, told = json.loads(line)
    if os.fork() == 0:
        names = {"told": told}
        exec(script, names)
        print(json.dumps(names["found"]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit("a script failed")
"""
Ask = Callable[[str, list[Any]], Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """What a script finds."""
    command, pipe = [sys.executable, "-c", SERVER], subprocess.PIPE
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment) as server:

        def answer(script: str, told: list[Any]) -> Any:
            assert server.stdin and server.stdout
            print(json.dumps([script, told]), file=server.stdin, flush=True)
            return json.loads(server.stdout.readline())

        yield answer


COUNT = """
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

ranks, sequence, d, heads, groups, Q, f, batch, tokens, adapted = told
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
mesh = init_device_mesh("cpu", (ranks,))

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, n * Q, bias=False) for n in (heads, groups, groups))
        self.o = nn.Linear(heads * Q, d, bias=False)
    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (-1, Q)).transpose(1, 2) for m in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(mixed.transpose(1, 2).flatten(2))

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(d, f, bias=False), nn.Linear(d, f, bias=False)
        self.down = nn.Linear(f, d, bias=False)
    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.attention, self.n2, self.mlp = nn.RMSNorm(d), Attention(), nn.RMSNorm(d), Mlp()
    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))

block = Block().to(torch.bfloat16)
split = Shard(1) if sequence else Replicate()
plan = {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")}
plan |= {name: RowwiseParallel(output_layouts=split) for name in ("attention.o", "mlp.down")}
whole = dict(input_layouts=(split,), desired_input_layouts=(Replicate(),))
plan |= {name: PrepareModuleInput(**whole) for name in ("attention", "mlp")}
plan |= {name: SequenceParallel() for name in ("n1", "n2")} if sequence else {}
parallelize_module(block, mesh, plan)

class Adapted(nn.Module):  # a frozen matrix as this rank has it, and its adapter; who shares inputs sums both results
    def __init__(self, own, shares_inputs):
        super().__init__()
        self.weight, self.shares_inputs = nn.Parameter(own, requires_grad=False), shares_inputs
        self.down = nn.Parameter(torch.zeros(adapted, own.shape[1]))
        self.up = nn.Parameter(torch.zeros(len(own), adapted))
    def forward(self, x):
        x = x.to_local() if isinstance(x, DTensor) else x
        y = F.linear(x, self.weight) + F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype))
        if not self.shares_inputs:
            return y
        return DTensor.from_local(y, mesh, [Partial()]).redistribute(mesh, [split]).to_local()

if adapted:
    for module, names in ((block.attention, "qkvo"), (block.mlp, ("gate", "up", "down"))):
        for name in names:
            linear, shares_inputs = getattr(module, name), name in ("o", "down")
            setattr(module, name, Adapted(linear.weight.to_local().detach(), shares_inputs))
    for norm in (block.n1, block.n2):
        norm.weight.requires_grad_(False)
weights = {p.to_local().untyped_storage().data_ptr() if isinstance(p, DTensor) else p.untyped_storage().data_ptr()
           for p in block.parameters()}
held = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel()
           for p in block.parameters() if p.requires_grad)

sent = {}
class Payloads(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"):
            whole = out if name.startswith("all") else args[0]  # the gathered, the summed, what is scattered
            sent[name] = sent.get(name, 0) + whole.numel() * whole.element_size()
        return out

kept, alive = {}, []
def pack(saved):
    alive.append(saved)
    local = saved.to_local() if isinstance(saved, DTensor) else saved
    storage = local.untyped_storage()
    if storage.data_ptr() not in weights and local.dtype == torch.bfloat16:
        kept[storage.data_ptr()] = storage.nbytes()
    return saved

x = torch.randn(batch, tokens // ranks if sequence else tokens, d, dtype=torch.bfloat16, requires_grad=True)
with Payloads():
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        y = block(x)
    y = y.to_local() if isinstance(y, DTensor) else y
    y.sum().backward()
found = {"kept": sum(kept.values()), "sent": sent, "held": held}
dist.destroy_process_group()
"""


def count(ask: Ask, ranks: int, sequence: bool, batch: int, tokens: int, adapted: int = 0, **sizes: Any) -> Any:
    return ask(COUNT, [ranks, sequence, *sizes.values(), batch, tokens, adapted])


SMALL: dict[str, Any] = {"d_model": 256, "heads": 16, "kv_heads": 8, "head_dim": 32, "d_ff": 512}


MANY: dict[str, Any] = {"d_model": 1024, "heads": 512, "kv_heads": 512, "head_dim": 2, "d_ff": 2048}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("ranks", "sequence"), [(2, True), (8, True), (8, False), (64, True), (512, True)])
def test_a_tensor_parallel_layer_sends_and_keeps_what_dtensor_does(ask: Ask, ranks: int, sequence: bool) -> None:
    batch, tokens, sizes = 2, max(128, ranks), SMALL if ranks <= 8 else MANY
    found = count(ask, ranks, sequence, batch, tokens, **sizes)
    shape = replace(LLAMA_3_8B, layers=1, **sizes)
    layout = Layout(tensor=ranks, sequence=sequence, zero=0)
    payload = sum(size * (2 if name == "all_reduce" else 1) for name, size in found["sent"].items())
    assert sent(shape, layout, 0, tokens, batch).tensor == payload * (ranks - 1) / ranks
    assert set(found["sent"]) == ({"all_gather_into_tensor", "reduce_scatter_tensor"} if sequence else {"all_reduce"})
    statistics = 2 * 4 * batch * tokens // (ranks if sequence else 1) + 4 * batch * tokens * shape.heads // ranks
    # norms take the block's input and the sum behind attention; on a CPU they keep float32 copies, not counted here
    norms = 2 * 2 * batch * tokens * shape.d_model // (ranks if sequence else 1)
    assert layer_activation_bytes(shape, layout, tokens, batch) - statistics - norms == found["kept"]
    ends = 2 * -(-shape.vocab // ranks) * shape.d_model + shape.d_model
    assert rank_parameters(shape, layout, 0)["dense"] - ends == found["held"]


@pytest.mark.parametrize(("ranks", "sequence"), [(2, True), (8, True), (8, False)])
def test_a_tensor_rank_with_adapters_keeps_and_trains_what_dtensor_does(ask: Ask, ranks: int, sequence: bool) -> None:
    """The frozen matrices' inputs are kept for the adapters, which are cast; no norm keeps its weights' factors."""
    batch, tokens, rank = 2, 128, 16
    found = count(ask, ranks, sequence, batch, tokens, rank, **SMALL)
    shape = replace(LLAMA_3_8B, layers=1, **SMALL)
    layout, step = Layout(tensor=ranks, sequence=sequence, zero=0), RankStep(tokens, batch, adapters=Adapters(rank))
    assert trained_numbers(shape, layout, 0, step) == found["held"]
    (whole,) = rank_stages(shape, layout, 0)
    told = rank_run(shape, layout, 0, step)
    one, two = (
        outlines(2, *asked_pass(told, Stage(replace(whole.stack, layers=whole.stack.layers * n), False, False), True))
        for n in (1, 2)
    )
    own = tokens // (ranks if sequence else 1)
    statistics = 2 * 4 * batch * own + 4 * batch * tokens * shape.heads // ranks
    norms = 2 * 2 * batch * own * shape.d_model
    assert two[0].left - one[0].left - statistics - norms == found["kept"]
    assert two[1].gradients - one[1].gradients == 4 * found["held"]


LOSS = """
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from flops_bytes.lessons.trace import Trace

ranks, loss, d, vocab, batch, tokens, chunks = told
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
mesh = init_device_mesh("cpu", (ranks,))
model = nn.Sequential(nn.Linear(d, vocab, bias=False)).to(torch.bfloat16)
parallelize_module(model, mesh, {"0": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})

def lost(hidden, targets):
    logits = model(hidden).flatten(0, 1)
    return F.cross_entropy(logits if loss == "as-logits" else logits.float(), targets, reduction="sum")

hidden = torch.zeros(batch, tokens, d, dtype=torch.bfloat16, requires_grad=True)
targets = torch.zeros(batch * tokens, dtype=torch.int64)

def step():
    if loss == "chunked":
        pieces = [piece.detach().requires_grad_() for piece in hidden.flatten(0, 1).chunk(chunks)]
        for piece, target in zip(pieces, targets.chunk(chunks)):
            lost(piece[None], target).backward()
        gradient = torch.cat([piece.grad for piece in pieces])
        del pieces, piece
        hidden.backward(gradient.view_as(hidden))
    else:
        lost(hidden, targets).backward()

with loss_parallel():
    step()  # which makes what DTensor remembers
    model[0].weight.grad = hidden.grad = None
    with Trace() as trace:
        step()
found = trace.peak_bytes
dist.destroy_process_group()
"""


@pytest.mark.parametrize("loss", ["plain", "as-logits", "chunked"])
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_loss_over_split_logits_holds_what_loss_parallel_does(ask: Ask, loss: str, ranks: int) -> None:
    batch, tokens, chunks = 2, 512, 4
    shape = replace(LLAMA_3_8B, layers=1, vocab=16_000, **SMALL)
    found = ask(LOSS, [ranks, loss, shape.d_model, shape.vocab, batch, tokens, chunks])
    step = RankStep(tokens, batch, loss=loss, chunks=chunks if loss == "chunked" else 1)
    layout = Layout(tensor=ranks, sequence=False, zero=0)
    run = rank_run(shape, layout, 0, step)
    (whole,) = rank_stages(shape, layout, 0)
    forward, backward = outlines(0, *asked_pass(run, Stage(replace(whole.stack, layers=()), False, True), True))
    most = max(*forward.peaks.values(), *(forward.left + peak for peak in backward.peaks.values()))
    hidden = 2 * batch * tokens * shape.d_model  # what comes to the norm, and what comes out
    assert most - 2 * hidden == pytest.approx(found, rel=0.002)


def test_what_is_computed_again_repeats_the_forward_passs_collectives_but_for_the_last() -> None:
    layout = Layout(tensor=8, zero=0)
    once, again = (sent(LLAMA_3_8B, layout, 0, 8192, 1, kind).tensor for kind in ("none", "full"))
    assert again == once * 5.5 / 4


# Weights


@pytest.mark.parametrize("shape", [GPT2_SMALL, LLAMA_3_8B, MIXTRAL_8X7B])
def test_one_rank_holds_all_parameters(shape: Any) -> None:
    held = rank_parameters(shape, Layout(), 0)
    assert sum(held.values()) == sum(parameters(shape).values())
    assert held["experts"] == (parameters(shape)["mlp"] if shape.experts > 1 else 0)


def test_ranks_of_a_pipeline_hold_all_parameters_together() -> None:
    layout = Layout(pipeline=4)
    together = sum(sum(rank_parameters(LLAMA_3_70B, layout, rank).values()) for rank in range(4))
    assert together == sum(parameters(LLAMA_3_70B).values())


def test_tensor_ranks_repeat_norms_and_scarce_heads() -> None:
    shape, counts = LLAMA_3_70B, parameters(LLAMA_3_70B)
    each = rank_parameters(shape, Layout(tensor=8), 0)["dense"]
    assert 8 * (each - counts["norms"]) == sum(counts.values()) - counts["norms"]
    twice = rank_parameters(shape, Layout(tensor=16), 0)["dense"]  # 8 key-value heads on 16 ranks
    assert 16 * (twice - counts["norms"]) == sum(counts.values()) - counts["norms"] + counts_of_kv(shape)


def counts_of_kv(shape: Any) -> int:
    return int(2 * shape.layers * shape.d_model * shape.kv_heads * shape.head_dim)


def test_experts_are_sharded_over_fewer_ranks_than_all_else() -> None:
    layout = Layout(data=8, expert=4, zero=3)
    held = rank_parameters(MIXTRAL_8X7B, layout, 0)
    assert held["experts"] == parameters(MIXTRAL_8X7B)["mlp"] // 4
    state = state_bytes(held, layout, 2, 4, 12)
    assert state["state"] == -(-12 * held["dense"] // 8) - (-12 * held["experts"] // 2)
    assert state_bytes(held, layout._replace(zero=1), 2, 4, 12)["weights"] == 2 * sum(held.values())


# What is refused, and what is possible


@pytest.mark.parametrize(
    ("shape", "layout", "message"),
    [
        (LLAMA_3_8B, Layout(tensor=3), "tensor: 3 ranks cannot share 32 heads"),
        (LLAMA_3_8B, Layout(data=0), "data: at least 1, not 0"),
        (LLAMA_3_8B, Layout(zero=4), "zero: 0 to 3, not 4"),
        (LLAMA_3_8B, Layout(schedule="dual"), "schedule: dual is none of gpipe, 1f1b, interleaved, zero-bubble"),
        (LLAMA_3_8B, Layout(virtual=2), "virtual: 1f1b gives a rank one stage"),
        (LLAMA_3_8B, Layout(pipeline=40), "pipeline: 32 layers do not fill 40 stages"),
        (LLAMA_3_8B, Layout(context=3), "tokens: 8192 cannot be cut into 6 equal parts"),
        (
            LLAMA_3_8B,
            Layout(pipeline=4, schedule="interleaved", micro_batches=6),
            "turns of the pipeline ranks; give a multiple of 4",
        ),
        (MIXTRAL_8X7B, Layout(data=4, expert=8), "expert: 8 ranks cannot share 8 experts within 4 ranks of the data"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(shape: Any, layout: Layout, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refuse(shape, layout, 8192)


def test_possible_layouts_use_all_gpus_and_can_be() -> None:
    found = list(possible_layouts(LLAMA_3_1_405B, 16_384, 8192, 2048))
    assert Layout(128, 8, True, 1, 16, 1, 1, micro_batches=16) in found  # Llama 3's own: TP 8, PP 16, DP 128
    for layout in found:
        assert layout.gpus == 16_384 and layout.data * layout.micro_batches == 2048
        refuse(LLAMA_3_1_405B, layout, 8192)


def test_groups_go_over_the_level_that_they_span() -> None:
    found = rates(Layout(data=8, tensor=8, pipeline=4), 450e9, 50e9)
    assert (found.tensor, found.data, found.pipeline) == (450e9, 50e9, 50e9)
    # what goes to a neighbour alone leaves a node by one network card, however many of a group stand in it
    for layout in (Layout(pipeline=16), Layout(context=16, ring=True), Layout(context=4, tensor=4, ring=True)):
        found = rates(layout, 450e9, 50e9)
        assert (found.pipeline if layout.pipeline > 1 else found.context) == 50e9
    assert rates(Layout(context=8, ring=True), 450e9, 50e9).context == 450e9
    found = rates(Layout(data=16, tensor=2), 450e9, 50e9)  # four of a group in a node, with a network card each
    assert (found.tensor, found.data) == (450e9, 200e9)


def test_tokens_for_experts_in_other_nodes_go_by_a_gpus_own_network_card() -> None:
    assert rates(Layout(data=8, expert=8), 450e9, 50e9).expert == 450e9
    # to 63 ranks it sends as much each, and 56 of them are in other nodes
    assert rates(Layout(data=64, expert=64), 450e9, 50e9).expert == pytest.approx(50e9 * 63 / 56)


def test_activations_of_the_first_pipeline_rank_are_those_of_most_micro_batches() -> None:
    layout = Layout(pipeline=4, micro_batches=8)
    each = layer_activation_bytes(LLAMA_3_8B, layout, 8192)
    assert rank_activation_bytes(LLAMA_3_8B, layout, 0, 8192) == 4 * stage_layers(32, 4)[0] * each
    assert rank_activation_bytes(LLAMA_3_8B, layout, 3, 8192) == stage_layers(32, 4)[3] * each


@pytest.mark.parametrize("virtual", [1, 2])
def test_a_stage_sends_its_result_on_and_a_gradient_back(virtual: int) -> None:
    """Stage by stage: but for the first of all, which has nobody before it, and the last."""
    layout = Layout(pipeline=4, virtual=virtual, micro_batches=4, schedule="interleaved" if virtual > 1 else "1f1b")
    sends = [0, 0, 0, 0]
    for stage in range(4 * virtual):
        sends[stage % 4] += (stage < 4 * virtual - 1) + (stage > 0)
    features = 4 * 2 * 512 * LLAMA_3_8B.d_model  # of all micro-batches, in 16 bits
    assert [sent(LLAMA_3_8B, layout, rank, 512).pipeline for rank in range(4)] == [features * each for each in sends]
