"""What a ring of context ranks and a pipeline send is what processes send each other, and the ring is right."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

from flops_bytes.model.shapes import LLAMA_3_8B
from flops_bytes.parallel.layouts import Layout, sent
from tests.conftest import ROOT

START = """
import json, os, sys, tempfile
import torch, torch.distributed as dist, torch.multiprocessing as processes

def run(rank, ranks, folder, work, told):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    found = work(rank, ranks, *told)
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()

def main(work):
    ranks, *told = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(run, (ranks, folder, work, told), nprocs=ranks, start_method="fork")
        print(json.dumps([json.load(open(f"{folder}/{rank}.json")) for rank in range(ranks)]))
"""

RING = """
def attention(q, k, v, mask):  # heads, tokens, features; each head has keys and values of its own
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    return scores, scores.logsumexp(-1, keepdim=True)

def work(rank, ranks, heads, tokens, features):
    torch.manual_seed(0)
    whole = [torch.randn(heads, tokens, features, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    last = torch.randn(heads, tokens, features, dtype=torch.float64)
    scores, _ = attention(*whole[:2], whole[2], torch.ones(tokens, tokens).tril().bool())
    right = scores.softmax(-1) @ whole[2]
    right.backward(last)

    own = slice(rank * tokens // ranks, (rank + 1) * tokens // ranks)
    q, k, v = (each.detach()[:, own].contiguous() for each in whole)
    sent_bytes = 0

    def pass_on(pair):
        nonlocal sent_bytes
        pair, got = pair.contiguous(), torch.empty_like(pair)
        wait = dist.isend(pair, (rank + 1) % ranks)
        dist.recv(got, (rank - 1) % ranks)
        wait.wait()
        sent_bytes += pair.numel() * pair.element_size()
        return got

    def mask(of):  # of queries here and keys that come from a rank
        at = torch.arange(tokens).chunk(ranks)
        return at[rank][:, None] >= at[of][None]

    # forward: each rank's keys and values go around; a sum of exponentials merges what they give
    pair, out, total = torch.stack((k, v)), 0.0, torch.full((*q.shape[:-1], 1), -torch.inf, dtype=q.dtype)
    for turn in range(ranks):
        of = (rank - turn) % ranks
        if of <= rank:
            scores, each = attention(q, *pair, mask(of))
            more = torch.logaddexp(total, each)
            out = out * (total - more).exp() + (scores - more).exp() @ pair[1]
            total = more
        pair = pass_on(pair) if turn < ranks - 1 else pair
    forward = sent_bytes

    # backward: they go around once more, and their gradients follow them, from the first rank they meet
    given = last[:, own]
    row = (given * out).sum(-1, keepdim=True)
    pair, grads, own_grads, q_grad = torch.stack((k, v)), None, None, torch.zeros_like(q)
    for turn in range(ranks):
        of = (rank - turn) % ranks
        here = torch.zeros_like(pair)
        if of <= rank:
            scores, _ = attention(q, *pair, mask(of))
            share = (scores - total).exp()
            back = share * (given @ pair[1].mT - row) / q.shape[-1] ** 0.5
            q_grad += back @ pair[0]
            here = torch.stack((back.mT @ q, share.mT @ given))
        if turn == 0:
            own_grads = here
        else:
            grads = here if grads is None else grads + here
            grads = pass_on(grads)  # those of the rank behind me arrive; after the last turn they are home
        pair = pass_on(pair) if turn < ranks - 1 else pair
    grads = own_grads if grads is None else own_grads + grads
    near = [torch.allclose(out, right[:, own]), torch.allclose(q_grad, whole[0].grad[:, own])]
    near += [torch.allclose(mine, each.grad[:, own]) for mine, each in zip(grads, whole[1:])]
    return {"forward": forward, "all": sent_bytes, "near": near}

main(work)
"""

PIPELINE = """
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, schedules

def work(rank, ranks, schedule, micro_batches, tokens, width):
    sent_bytes = 0
    real = schedules._batch_p2p

    def counting(operations, *more, **named):
        nonlocal sent_bytes
        sent = (each.tensor for each in operations if each.op is dist.isend)
        sent_bytes += sum(each.numel() * each.element_size() for each in sent)
        return real(operations, *more, **named)

    x = torch.randn(micro_batches, tokens, width)
    one = x[:1].clone().requires_grad_()
    layer = nn.Linear(width, width)
    stage = PipelineStage(layer, rank, ranks, torch.device("cpu"), input_args=one, output_args=layer(one))
    plan = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule]
    made = plan(stage, micro_batches, loss_fn=lambda y, target: y.square().sum() + 0 * target.sum())
    schedules._batch_p2p = counting
    made.step(*([x] if rank == 0 else []), **({"target": x} if rank == ranks - 1 else {}))
    return sent_bytes

main(work)
"""


def counted(script: str, told: list[Any]) -> list[Any]:
    command = [sys.executable, "-c", START + script, json.dumps(told)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=300)
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_ring_sends_keys_and_values_thrice_and_is_right() -> None:
    ranks, heads, tokens, features, width = 4, 2, 48, 8, 8  # float64
    shape = replace(LLAMA_3_8B, layers=1, heads=heads, kv_heads=heads, head_dim=features, d_model=heads * features)
    layout = Layout(context=ranks, zero=0)
    for found in counted(RING, [ranks, heads, tokens, features]):
        assert all(found["near"])
        assert found["all"] == sent(shape, layout, 0, tokens, width=width).context
        assert found["forward"] * 3 == found["all"]


def test_a_pipelines_ranks_hand_over_results_and_gradients() -> None:
    schedule, micro_batches, tokens, d = "1f1b", 4, 16, 32
    shape = replace(LLAMA_3_8B, layers=3, heads=1, kv_heads=1, head_dim=d, d_model=d)
    layout = Layout(pipeline=3, schedule=schedule, micro_batches=micro_batches, zero=0)
    found = counted(PIPELINE, [3, schedule, micro_batches, tokens, d])
    assert found == [sent(shape, layout, rank, tokens, width=4).pipeline for rank in range(3)]
