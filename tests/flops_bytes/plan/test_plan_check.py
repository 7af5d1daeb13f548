"""`flops-bytes check` counts what it draws, says what it does not, and tells a wrong formula by its exit status."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import MistralConfig
from transformers.masking_utils import create_causal_mask

from flops_bytes.counting.check import __main__ as command
from flops_bytes.counting.check import draw as drawing
from flops_bytes.counting.check.__main__ import Checked, check, main
from flops_bytes.counting.check.count import Counter, Tracker
from flops_bytes.lessons.models import build, chunked_backward
from flops_bytes.memory import step as stack_step
from flops_bytes.model.shapes import Decoder
from flops_bytes.plan.options import OPTIONS
from tests.conftest import ROOT

SMALL = "layers=2 d_model=256 heads=4 kv_heads=2 head_dim=64 d_ff=704 vocab=4000"
TIED: dict[str, Any] = {"recipe": "fp32", "attention": "eager", "checkpointing": "full", "context": 797}
TIED |= {"shape": "layers=3 d_model=1040 heads=24 kv_heads=8 head_dim=32 d_ff=2881 vocab=10509 tied=1"}
TIED |= {"accumulation": 2}
STEPS: dict[str, dict[str, Any]] = {  # each was more than 1 % off, by what its name says
    "a tied head's gradient waits": TIED,
    "autocast, and attention alone again": {
        **{"shape": SMALL, "recipe": "autocast", "checkpointing": "selective", "context": 1_024, "micro_batch": 4}
    },
    "autocast, and chunks": {"shape": SMALL, "recipe": "autocast", "chunks": 3, "context": 700},
    "adapters": {"shape": SMALL, "recipe": "bf16", "lora": 16, "lora_on": "query-value", "context": 512},
    "adapters beside packed matrices": {"shape": SMALL, "recipe": "bf16", "lora": 8, "base": "4bit", "context": 64},
    "a norm of operations above the last layer": {
        **{"shape": SMALL, "recipe": "bf16", "layers": "composed", "loss": "fused", "context": 2_048}
    },
}


@pytest.mark.drawn(20)
@pytest.mark.parametrize("asked", STEPS.values(), ids=STEPS)
def test_a_step_is_planned_as_it_is_counted(asked: dict[str, Any]) -> None:
    found = check(asked, tracker=True)
    tracked = 0 if "chunks" in asked else found.counted_bytes
    assert found.is_right and found.tracked_bytes == tracked, command.line(found)


IN_FP8: dict[str, Any] = {"matmuls": "fp8", "recipe": "bf16", "optimizer": "paged-adamw", "loss": "fused"}
DEEP: dict[str, Any] = {"shape": "layers=4 d_model=512 heads=4 kv_heads=2 head_dim=128 d_ff=1408 vocab=600"}
COPIES: dict[str, tuple[dict[str, Any], float]] = {  # and how far off the plan may be: copies in fp8 are estimated
    "beside a matrix's gradient": (DEEP | {"context": 300, "layers": "fused"}, 0.01),
    "beside an earlier batch's": (DEEP | {"context": 60, "accumulation": 2, "layers": "composed"}, 0.0001),
    "in a layer that is made again": (DEEP | {"context": 200, "checkpointing": "full"}, 0.015),
    "below the peak": (DEEP | {"context": 2_000, "loss": "plain"}, 0.0001),
    "of few layers and tokens": (DEEP | {"shape": f"{SMALL} tied=1", "context": 32, "recipe": "bf16-master"}, 0.0001),
    "in many layers": ({"model": "llama-3-8b", "context": 2_048, "layers": "composed"}, 0.001),
    # torchao's tensors are multiplied by aten.mm, of which torchtitan's SelectiveAC makes every second again
    "in a layer whose every second matmul is made again": (DEEP | {"context": 300, "checkpointing": "per-op"}, 0.02),
}
B200: dict[str, Any] = DEEP | {"gpu": "B200", "layers": "fused"}
KEPT: dict[str, Any] = {"matmuls": "fp8-kept"}
COPIES |= {
    "a scale for 32": (B200 | {"matmuls": "mxfp8", "context": 320}, 0.01),
    "copies that are kept": (B200 | KEPT | {"context": 2_000, "loss": "plain"}, 0.0001),
    "copies that are kept beside a matrix's gradient": (B200 | KEPT | {"context": 300}, 0.01),
    "copies that are kept of scores": (B200 | KEPT | {"context": 512, "attention": "eager"}, 0.0001),
    "copies that are kept in many layers": (KEPT | {"model": "llama-3-8b", "context": 2_048}, 0.003),
    "copies in 4 bits": (B200 | {"matmuls": "nvfp4", "context": 320}, 0.005),
    "copies in 4 bits in a layer that is made again": (
        B200 | {"matmuls": "nvfp4", "context": 320, "checkpointing": "full"},
        0.005,
    ),
    "copies in 4 bits of many tokens": (B200 | {"matmuls": "nvfp4", "context": 704, "micro_batch": 2}, 0.02),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("asked", "off"), COPIES.values(), ids=COPIES)
def test_fp8_copies_are_planned_about_as_they_are_counted(asked: dict[str, Any], off: float) -> None:
    found = check(IN_FP8 | asked)
    assert found.ratio == pytest.approx(1, abs=off) and found.planned_flops == found.counted_flops, command.line(found)


ONE_HEAD = "d_model=32 heads=1 kv_heads=1 head_dim=32 d_ff=168 vocab=1443 positions=4096 tied=1"
ONE_HEAD = f"layers=2 {ONE_HEAD} gated=0 biases=1 norm_shift=1"
NARROW = "layers=5 d_model=228 heads=12 kv_heads=2 head_dim=32 d_ff=1467 vocab=1970 tied=1"
INSIDE: dict[str, dict[str, Any]] = {  # which PyTorch's tracker is not asked
    "names at the scores": {
        **{"shape": ONE_HEAD, "recipe": "bf16", "attention": "eager", "checkpointing": "per-op", "loss": "compiled"},
        **{"layers": "fused", "context": 1_024, "dropout": 0},
    },
    "an MLP on its way forward": {
        **{"shape": NARROW, "recipe": "autocast", "attention": "eager", "checkpointing": "full", "chunks": 11},
        **{"layers": "fused", "loss": "chunked", "accumulation": 2, "context": 33, "micro_batch": 7},
    },
    "a table of positions": {
        **{"shape": ONE_HEAD, "recipe": "bf16", "layers": "composed", "loss": "fused", "context": 186},
        **{"accumulation": 3},
    },
    "one sequence, of which no copy is made": {"shape": ONE_HEAD, "recipe": "bf16", "loss": "shifted", "context": 512}
    | {"checkpointing": "per-op", "layers": "composed"},
    "a table of positions with master weights": {"shape": ONE_HEAD, "recipe": "bf16-master", "context": 64},
    "the logits' name": {"shape": NARROW, "recipe": "autocast", "layers": "composed", "context": 64}
    | {"checkpointing": "full", "attention": "eager", "dropout": 0.1},
}

TWO_HEADS: dict[str, Any] = {"attention": "eager", "layers": "composed", "recipe": "bf16", "context": 700}
TWO_HEADS |= {"shape": "layers=2 d_model=64 heads=2 kv_heads=2 head_dim=32 d_ff=128 vocab=300", "micro_batch": 2}
INSIDE |= {
    "transformers' mask, kept to make layers again": TWO_HEADS | {"checkpointing": "full"},
    "transformers' mask, until the last layer ends": TWO_HEADS
    | {"recipe": "autocast", "dropout": 0.1, "lora": 4, "loss": "fused"},
}
NO_MLP = "layers=2 d_model=256 heads=8 kv_heads=4 head_dim=32 d_ff=512 vocab=1000"
GPT = "layers=2 d_model=256 heads=8 kv_heads=8 head_dim=32 d_ff=512 vocab=1000 positions=512"
GPT = f"{GPT} tied=1 gated=0 biases=1 norm_shift=1"
SCORES: dict[str, Any] = {"attention": "eager", "context": 512, "micro_batch": 2, "dropout": 0.1, "shape": NO_MLP}
INSIDE |= {
    "dropout's gradient in float32": SCORES
    | {"recipe": "autocast", "layers": "composed", "lora": 8, "lora_on": "attention"},
    "a name for probabilities": SCORES | {"recipe": "autocast", "layers": "composed", "lora": 8},
    "scores on their way forward": SCORES | {"recipe": "autocast"},
    "queries that are turned in float32": SCORES
    | {"recipe": "autocast", "layers": "composed", "checkpointing": "selective", "dropout": 0}
    | {"lora": 8, "lora_on": "query-value", "base": "4bit"},
    "a packed matrix that keeps nothing": SCORES
    | {"recipe": "bf16", "checkpointing": "full", "lora": 8, "lora_on": "attention", "base": "4bit"},
    "what an operation's checkpoint has kept": SCORES | {"shape": GPT, "recipe": "autocast", "checkpointing": "per-op"},
    "a layer that is made again has no gradients yet": SCORES | {"recipe": "bf16", "checkpointing": "full"},
}

MUON: dict[str, Any] = {"shape": SMALL, "optimizer": "muon", "layers": "fused", "context": 32}
INSIDE |= {
    "Muon's largest matrix": MUON | {"recipe": "fp32"},
    "Muon in 16 bits": MUON | {"recipe": "bf16", "accumulation": 2, "shape": SMALL[:-1]},
    "AdamW's roots beside Muon": MUON | {"recipe": "bf16", "update": "foreach", "shape": f"{SMALL}0"},
    "gradients cast before Muon": MUON | {"recipe": "bf16-master", "shape": f"{SMALL}0"},
}

ADAFACTOR: dict[str, Any] = MUON | {"optimizer": "adafactor"}
INSIDE |= {
    "Adafactor's estimate of the head": ADAFACTOR | {"recipe": "fp32"},
    "Adafactor in transformers' order": ADAFACTOR | {"recipe": "bf16", "layers": "composed", "accumulation": 2},
    "Adafactor under autocast": ADAFACTOR | {"recipe": "autocast", "shape": f"{SMALL}0"},
    "all of Adafactor's estimates at once": ADAFACTOR | {"recipe": "bf16", "update": "foreach", "shape": f"{SMALL}0"},
    "gradients cast before Adafactor": ADAFACTOR | {"recipe": "bf16-master"},
    "Adafactor with GPT-2's positions": ADAFACTOR | {"shape": GPT, "recipe": "bf16-master"},
    "Adafactor with GPT-2's in transformers": ADAFACTOR | {"shape": GPT, "recipe": "bf16", "layers": "composed"},
}

AT_ONCE: dict[str, Any] = {"update": "in-backward", "optimizer": "paged-adamw", "recipe": "bf16", "layers": "fused"}
BIG_MLP = "layers=1 d_model=768 heads=6 kv_heads=6 head_dim=128 d_ff=3000 vocab=800"
NARROW = "layers=3 d_model=256 heads=2 kv_heads=2 head_dim=32 d_ff=264 vocab=1246 tied=1"
INSIDE |= {
    "an update of each gradient as it comes": AT_ONCE | {"shape": SMALL, "context": 200, "optimizer": "adamw"},
    "an update at the head": AT_ONCE | {"shape": NARROW, "context": 128, "attention": "eager", "loss": "compiled"},
    "an update at an MLP's last matrix": AT_ONCE
    | {"shape": f"{BIG_MLP} tied=1", "context": 150, "checkpointing": "full", "loss": "fused"},
    "an update at a tied embedding": AT_ONCE | {"shape": f"{SMALL} tied=1", "context": 32, "layers": "composed"},
    "an update at positions": AT_ONCE | {"shape": GPT.replace("512 tied", "5000 tied"), "context": 32},
}

LLAMA = "heads=4 kv_heads=2 head_dim=64"
THIN = {"layers": "composed", "context": 700, "recipe": "bf16"}
FEW: dict[str, Any] = {"lora": 4, "base": "4bit", "attention": "fused", "layers": "composed", "recipe": "bf16"}
FEW |= {"checkpointing": "full", "context": 60, "lora_on": "query-value"}
THREE_SEQUENCES: dict[str, Any] = {"layers": "composed", "attention": "eager", "checkpointing": "full", "dropout": 0.1}
THREE_SEQUENCES |= {"micro_batch": 3, "loss": "compiled", "recipe": "autocast", "optimizer": "paged-adamw-8bit"}
THREE_SEQUENCES |= {"shape": f"layers=1 d_model=512 {LLAMA} d_ff=2000 vocab=1000"}
ONE: dict[str, Any] = {"layers": "composed", "attention": "eager", "context": 400, "loss": "fused", "recipe": "bf16"}
QWEN: dict[str, Any] = {"model_type": "qwen3", "vocab_size": 1_000, "hidden_size": 128, "intermediate_size": 160}
QWEN |= {"num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 64}
EXPERTS: dict[str, Any] = {"model_type": "mixtral", "vocab_size": 300, "hidden_size": 208, "intermediate_size": 392}
EXPERTS |= {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 40}
EXPERTS |= {"sliding_window": None, "num_local_experts": 4, "num_experts_per_tok": 2}
INSIDE |= {
    "a norm of operations inside a layer": THIN
    | {"shape": f"layers=2 d_model=512 {LLAMA} d_ff=600 vocab=1000", "checkpointing": "per-op"},
    "a norm of operations on the residual path in float32": THIN
    | {"shape": f"layers=1 d_model=800 {LLAMA} d_ff=800 vocab=1500", "checkpointing": "per-op", "recipe": "autocast"},
    "norms of heads": {"config": QWEN, "recipe": "bf16", "context": 500, "checkpointing": "per-op"},
    "a name for the head's input": THIN
    | {"shape": f"layers=6 d_model=400 {LLAMA} d_ff=400 vocab=1500", "recipe": "autocast"},
    "experts' weighted results": {"config": EXPERTS, "recipe": "bf16", "context": 400, "micro_batch": 2},
    "experts that are made again": {"config": EXPERTS, "recipe": "bf16", "context": 800, "checkpointing": "full"},
    "experts' gates and ups in one": {"config": EXPERTS, "recipe": "bf16", "context": 40, "accumulation": 2},
    "a matrix that is unpacked when it is made again": FEW
    | {"shape": "layers=3 d_model=320 heads=1 kv_heads=1 head_dim=64 d_ff=867 vocab=400"},
    "a matrix that is unpacked on its way forward": FEW
    | {"shape": f"layers=2 d_model=200 {LLAMA} d_ff=500 vocab=900", "layers": "fused", "lora_on": "attention"}
    | {"checkpointing": "none", "loss": "fused", "context": 30, "recipe": "fp32"},
    "the last matrix that is unpacked when it is made again": FEW
    | {"shape": "layers=1 d_model=816 heads=10 kv_heads=10 head_dim=64 d_ff=854 vocab=1794 tied=1", "context": 92}
    | {"layers": "fused", "attention": "eager", "lora_on": "all", "lora": 62, "accumulation": 2, "loss": "compiled"},
    "its adapter's gradients in 16 bits while it is unpacked": FEW
    | {"shape": "layers=1 d_model=1740 heads=12 kv_heads=4 head_dim=96 d_ff=6450 vocab=2238", "context": 92}
    | {"layers": "fused", "lora_on": "all", "lora": 80},
    "beside it what eager attention names": FEW
    | {"shape": "layers=1 d_model=504 heads=10 kv_heads=5 head_dim=64 d_ff=762 vocab=900", "layers": "fused"}
    | {"attention": "eager", "recipe": "autocast", "micro_batch": 7, "loss": "fused", "lora_on": "attention"},
    "all casts of a layer that is made again": THREE_SEQUENCES | {"context": 300, "lora": 8, "lora_on": "query-value"},
    "the last gradient that autocast casts": THREE_SEQUENCES | {"context": 60},
    "one sequence, of which attention makes no copies again": ONE
    | {
        "shape": "layers=2 d_model=256 heads=4 kv_heads=4 head_dim=64 d_ff=512 vocab=1000",
        "checkpointing": "selective",
    },
    "keys and values of one head": ONE
    | {"shape": "layers=2 d_model=256 heads=4 kv_heads=1 head_dim=64 d_ff=512 vocab=1000", "checkpointing": "full"}
    | {"dropout": 0.1},
    "transformers' mask beside the last MLP": ONE
    | {"shape": GPT.replace("positions=512", "positions=2048"), "recipe": "autocast", "dropout": 0.1, "context": 2_000},
    "a layer that ends when it has been made again": {
        **{"shape": "layers=1 d_model=344 heads=10 kv_heads=2 head_dim=40 d_ff=651 vocab=1418", "context": 161},
        **{"attention": "eager", "recipe": "autocast", "checkpointing": "full", "micro_batch": 3, "accumulation": 2},
    },
    "a cast of probabilities that are not kept": {
        **{"shape": "layers=3 d_model=1024 heads=8 kv_heads=2 head_dim=64 d_ff=3584 vocab=8000", "attention": "eager"},
        **{"recipe": "autocast", "checkpointing": "per-op", "loss": "chunked", "accumulation": 4, "context": 1_500},
    },
    "a tied sum without its rows": {"shape": SMALL.replace("vocab=4000", "vocab=9000 tied=1"), "context": 1_500}
    | {"recipe": "autocast", "checkpointing": "per-op", "loss": "fused"},
}

NEAR = "layers=1 d_model=256 heads=4 kv_heads=4 head_dim=64 d_ff=280 vocab=500 positions=2048 tied=1"
NEAR = f"{NEAR} gated=0 biases=1 norm_shift=1"
DROPPED: dict[str, Any] = {"shape": NEAR, "layers": "composed", "checkpointing": "full", "context": 1_600}
DROPPED |= {"loss": "fused", "dropout": 0.1}
SHORT: dict[str, Any] = {"shape": f"layers=1 d_model=128 {LLAMA} d_ff=300 vocab=9000", "context": 40, "micro_batch": 4}
WIDE: dict[str, Any] = {"recipe": "bf16", "chunks": 3, "context": 200, "optimizer": "paged-adamw", "layers": "fused"}
HEADS: dict[str, Any] = {"config": QWEN | {"num_hidden_layers": 1, "hidden_size": 256}, "layers": "composed"}
INSIDE |= {
    "a layer that is not made again": {"config": EXPERTS | {"num_hidden_layers": 2}, "recipe": "bf16", "context": 800}
    | {"micro_batch": 4, "checkpointing": "full", "checkpoint_every": 2, "loss": "compiled"},
    "norms of the first layer's keys": HEADS
    | {"recipe": "bf16", "context": 500, "lora": 4, "lora_on": "query-value", "loss": "fused"},
    "norms of heads at the scores": HEADS
    | {"recipe": "fp32", "attention": "eager", "checkpointing": "full", "context": 400, "loss": "fused"},
    "frozen norms of heads at the scores": HEADS
    | {"recipe": "bf16", "attention": "eager", "checkpointing": "full", "context": 400, "loss": "fused", "lora": 4},
    "logits but each sequence's last": SHORT | {"recipe": "bf16", "loss": "float32-held"},
    "casts of one sequence's queries and keys": ONE
    | {"shape": "layers=1 d_model=160 heads=8 kv_heads=8 head_dim=40 d_ff=240 vocab=400", "recipe": "autocast"}
    | {"checkpointing": "selective"},
    "an MLP's first matrices": WIDE | {"shape": f"layers=1 d_model=512 {LLAMA} d_ff=1500 vocab=300 tied=1"},
    "queries', keys' and values' matrices": WIDE
    | {"shape": "layers=1 d_model=1024 heads=16 kv_heads=2 head_dim=128 d_ff=1500 vocab=300 tied=1"},
    "dropout behind a layer's last matmul": DROPPED | {"recipe": "bf16"},
    "a name for GELU's product before dropout": DROPPED | {"recipe": "autocast"},
    "the only layer above a frozen embedding on its way forward": {
        **{
            "config": QWEN
            | {"num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 600}
            | {"num_attention_heads": 4, "num_key_value_heads": 2},
            "layers": "composed",
        },
        **{"recipe": "autocast", "attention": "eager", "context": 500, "lora": 4, "dropout": 0.1, "micro_batch": 2},
        **{"lora_on": "query-value", "base": "4bit", "loss": "fused"},
    },
    "a tied sum without its rows in a GPT-2": {"shape": NEAR.replace("vocab=500", "vocab=9000"), "context": 1_600}
    | {"recipe": "fp32", "layers": "fused", "checkpointing": "full", "loss": "fused", "optimizer": "paged-adamw"},
    "no cast of a frozen MLP's input": {"recipe": "autocast", "layers": "fused", "checkpointing": "full"}
    | {"shape": f"layers=2 d_model=256 {LLAMA} d_ff=600 vocab=400", "context": 700, "loss": "fused", "lora": 4}
    | {"lora_on": "attention"},
}

PACKED: dict[str, Any] = {"lora_on": "attention", "base": "4bit", "loss": "fused", "dropout": 0}
BROAD: dict[str, Any] = {"layers": "composed", "attention": "eager", "context": 120, "micro_batch": 2}
BROAD |= {"shape": "layers=2 d_model=128 heads=16 kv_heads=4 head_dim=64 d_ff=300 vocab=300", "recipe": "autocast"}
INSIDE |= {
    "what enters the only layer": PACKED
    | {"shape": "layers=1 d_model=464 heads=12 kv_heads=2 head_dim=64 d_ff=2275 vocab=2196 tied=1", "lora": 10}
    | {"recipe": "bf16-master", "attention": "fused", "layers": "fused", "loss": "compiled", "context": 124},
    "a last layer that is not made again": PACKED
    | {"shape": f"layers=2 d_model=1024 {LLAMA} d_ff=3000 vocab=500", "layers": "composed", "context": 400}
    | {"recipe": "bf16", "checkpointing": "full", "checkpoint_every": 2, "lora": 8, "accumulation": 2}
    | {"optimizer": "paged-adamw"},
    "no cast of an MLP's input at its packed last matrix": SCORES
    | PACKED
    | {"recipe": "autocast", "lora": 4}
    | {"shape": "layers=1 d_model=256 heads=1 kv_heads=1 head_dim=32 d_ff=900 vocab=300", "context": 600}
    | {"layers": "composed"},
    "a norm of operations beside transformers' mask": SCORES
    | {"shape": "layers=1 d_model=256 heads=1 kv_heads=1 head_dim=32 d_ff=900 vocab=300", "context": 600}
    | {"recipe": "autocast", "layers": "composed", "lora": 4, "loss": "fused", "dropout": 0},
    "frozen norms of heads behind an MLP's norm": HEADS
    | {"config": HEADS["config"] | {"hidden_size": 600, "vocab_size": 300, "intermediate_size": 700}, "lora": 8}
    | {"recipe": "bf16", "attention": "fused", "checkpointing": "full", "context": 400, "loss": "fused"},
    "autocast's copies of adapters in layers that are made again": {
        "config": {"model_type": "mistral", "vocab_size": 3_000, "tie_word_embeddings": True, "hidden_size": 232}
        | {"intermediate_size": 333, "num_hidden_layers": 2, "num_attention_heads": 1, "num_key_value_heads": 1}
        | {"head_dim": 40, "sliding_window": None},
        **{"recipe": "autocast", "attention": "fused", "checkpointing": "full", "loss": "fused", "context": 60},
        **{"lora": 63, "lora_on": "all", "base": "4bit"},
    },
    "queries of frozen keys at the scores of the only layer": {
        "config": {"model_type": "mistral", "vocab_size": 848, "tie_word_embeddings": False, "hidden_size": 456}
        | {"intermediate_size": 600, "num_hidden_layers": 1, "num_attention_heads": 12, "num_key_value_heads": 4}
        | {"head_dim": 40, "sliding_window": None},
        **{"recipe": "fp32", "attention": "eager", "layers": "fused", "checkpointing": "none", "loss": "fused"},
        **{"lora": 9, "lora_on": "query-value", "base": "4bit-double", "context": 605, "dropout": 0.1},
    },
    "heads wider than the model": BROAD | {"loss": "fused", "dropout": 0.1},
    "heads wider than the model beside adapters": BROAD | PACKED | {"lora": 4, "base": "as-recipe", "dropout": 0.1},
}

PACKED_QV: dict[str, Any] = {"lora": 6, "lora_on": "query-value", "base": "4bit-double", "layers": "fused"}
ALONE = {"num_hidden_layers": 3, "hidden_size": 464, "num_attention_heads": 7, "num_key_value_heads": 1, "head_dim": 96}
INSIDE |= {
    "keys of one head, which autocast copies for each query head": ONE
    | {"config": QWEN | ALONE | {"intermediate_size": 678}, "recipe": "autocast", "loss": "compiled", "context": 525},
    "the result of attention that is made again, which no frozen matrix keeps": PACKED_QV
    | {"shape": "layers=2 d_model=600 heads=12 kv_heads=6 head_dim=96 d_ff=1122 vocab=1290 tied=1", "context": 141}
    | {"recipe": "autocast", "checkpointing": "selective", "loss": "compiled", "micro_batch": 2, "accumulation": 4},
    "values of attention that is made again, kept as they came": PACKED_QV
    | {"shape": "layers=1 d_model=648 heads=11 kv_heads=11 head_dim=64 d_ff=1244 vocab=1300", "context": 94}
    | {"recipe": "bf16-master", "attention": "eager", "checkpointing": "selective", "loss": "compiled"}
    | {"lora": 12, "lora_on": "all", "accumulation": 2},
    "queries of frozen keys in a first layer that is made again": PACKED_QV
    | {"shape": "layers=2 d_model=1880 heads=45 kv_heads=9 head_dim=40 d_ff=2861 vocab=3000 tied=1", "context": 471}
    | {"recipe": "fp32", "attention": "eager", "checkpointing": "full", "checkpoint_every": 2, "dropout": 0.1}
    | {"loss": "chunked", "lora": 33, "micro_batch": 4},
    "autocast's copy of a gradient at a packed matrix": PACKED
    | {"shape": "layers=1 d_model=4096 heads=32 kv_heads=8 head_dim=128 d_ff=14336 vocab=2000", "context": 411}
    | {"recipe": "autocast", "attention": "fused", "layers": "composed", "loss": "compiled", "micro_batch": 2}
    | {"lora": 4, "lora_on": "all"},
    "norms of heads in the only layer, above a frozen embedding": {
        "config": QWEN
        | {"vocab_size": 3000, "tie_word_embeddings": False, "hidden_size": 320, "intermediate_size": 329}
        | {"num_hidden_layers": 1, "num_attention_heads": 12, "num_key_value_heads": 3},
        **{"recipe": "bf16-master", "layers": "composed", "checkpointing": "full", "loss": "fused", "context": 811},
        **{"lora": 4, "lora_on": "all", "base": "4bit-double", "accumulation": 2, "micro_batch": 4},
    },
}

TINY_GPT = "layers=2 d_model=128 heads=4 kv_heads=4 head_dim=32 d_ff=178 positions=32768"
ONE_LAYER = "layers=1 d_model=768 heads=12 kv_heads=12 head_dim=64 d_ff=3072 positions=1024"
TINY_GPT, ONE_LAYER = (f"{sizes} vocab=1000 gated=0 biases=1 norm_shift=1 tied=1" for sizes in (TINY_GPT, ONE_LAYER))
INSIDE |= {
    "attention that is made again, at softmax": {
        **{"shape": "layers=1 d_model=384 heads=16 kv_heads=4 head_dim=96 d_ff=391 vocab=1000", "micro_batch": 2},
        **{"recipe": "autocast", "attention": "eager", "layers": "composed", "checkpointing": "selective"},
        **{"loss": "compiled", "context": 49},
    },
    "queries of frozen keys where attention is made again": PACKED_QV
    | {"shape": "layers=1 d_model=128 heads=16 kv_heads=4 head_dim=64 d_ff=179 vocab=3000", "context": 653}
    | {"recipe": "fp32", "attention": "eager", "layers": "composed", "checkpointing": "selective", "loss": "fused"}
    | {"accumulation": 2, "micro_batch": 3, "dropout": 0.1, "optimizer": "paged-adamw"},
    "a table of positions beside a tied head": {
        **{
            "shape": TINY_GPT,
            "recipe": "bf16",
            "layers": "fused",
            "checkpointing": "full",
            "loss": "fused",
            "context": 576,
        },
        **{"accumulation": 2, "micro_batch": 2, "optimizer": "paged-adamw"},
    },
    "the product's gradient in float32 beside its matrix's": {
        **{
            "shape": ONE_LAYER,
            "recipe": "autocast",
            "layers": "composed",
            "checkpointing": "selective",
            "context": 189,
        },
        **{"accumulation": 2, "dropout": 0, "optimizer": "paged-adamw"},
    },
    "a tied head's gradient at the last norm": {
        **{"shape": "layers=3 d_model=1432 heads=30 kv_heads=6 head_dim=40 d_ff=1722 vocab=2000 tied=1"},
        **{"recipe": "bf16-master", "attention": "eager", "layers": "composed", "checkpointing": "selective"},
        **{"loss": "fused", "context": 122, "accumulation": 2, "micro_batch": 4, "optimizer": "paged-adamw-8bit"},
    },
    "the gradient of the head's input": {
        **{"shape": "layers=2 d_model=280 heads=4 kv_heads=1 head_dim=32 d_ff=369 vocab=1000", "context": 72},
        **{"recipe": "autocast", "layers": "fused", "loss": "compiled", "micro_batch": 4, "optimizer": "paged-adamw"},
    },
}


WIDE = QWEN | {"vocab_size": 300, "hidden_size": 320, "intermediate_size": 329, "num_hidden_layers": 1}
WIDE |= {"num_attention_heads": 9, "num_key_value_heads": 9}
TURNED: dict[str, Any] = {"config": WIDE, "loss": "fused", "optimizer": "paged-adamw", "context": 300}
TURNED |= {"micro_batch": 3, "checkpointing": "full", "recipe": "autocast"}
FROZEN: dict[str, Any] = {"lora": 4, "lora_on": "query-value"}
FOUR_TIMES = WIDE | {"hidden_size": 128, "intermediate_size": 200, "num_attention_heads": 8, "num_key_value_heads": 8}
INSIDE |= {
    "keys that autocast turns in float32": TURNED,
    "keys that are turned above a frozen embedding": TURNED | FROZEN | {"base": "4bit"},
    "keys that are turned on their way forward": TURNED | FROZEN | {"base": "4bit", "checkpointing": "none"},
    "keys that are turned beside attention's result": TURNED | {"checkpointing": "per-op"},
    "keys that are turned without a norm": TURNED | FROZEN | {"config": WIDE | {"model_type": "qwen2"}},
    "frozen norms of keys": TURNED | {"lora": 4, "recipe": "bf16"},
    "norms of queries alone": TURNED | FROZEN | {"recipe": "bf16", "config": WIDE | {"num_key_value_heads": 3}},
    "the gradient of values' matrix": TURNED | {"recipe": "bf16"},
    "attention's kernel on its way backward": TURNED | FROZEN | {"config": FOUR_TIMES, "recipe": "fp32"},
    "two gradients of attention's result": TURNED
    | {"config": FOUR_TIMES | {"hidden_size": 64, "num_key_value_heads": 2}, "recipe": "fp32"}
    | {"lora": 4, "lora_on": "attention", "checkpointing": "none"},
    "copies of adapters that autocast keeps": TURNED
    | {"lora": 56, "base": "4bit", "checkpointing": "none", "context": 33, "micro_batch": 2}
    | {"config": WIDE | {"intermediate_size": 942, "num_attention_heads": 3, "num_key_value_heads": 1}},
    "attention's result, which nothing keeps": TURNED
    | FROZEN
    | {"recipe": "bf16", "attention": "eager", "context": 150},
}


MISSED = {  # the tape leaves out something that is not found yet: a mend shows here
    "a norm of operations beside transformers' mask": "1.4 % too few",
    "the product's gradient in float32 beside its matrix's": "1.1 % too few",
}
NAMED = [
    pytest.param(asked, id=name, marks=pytest.mark.xfail(name in MISSED, strict=True, reason=MISSED.get(name, "")))
    for name, asked in INSIDE.items()
]


@pytest.mark.drawn(5)
@pytest.mark.parametrize("asked", NAMED)
def test_what_a_layer_or_a_loss_names_is_planned(asked: dict[str, Any]) -> None:
    found = check(asked)
    assert found.is_right, command.line(found)


def test_transformers_makes_one_mask_of_its_weights_width_for_all_layers() -> None:
    told: dict[str, Any] = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
    }
    config = MistralConfig.from_dict({**told, "attn_implementation": "eager", "sliding_window": None})
    for dtype in (torch.float32, torch.bfloat16):
        embedded = torch.zeros(3, 50, 64, dtype=dtype)
        mask = create_causal_mask(config=config, inputs_embeds=embedded, attention_mask=None, past_key_values=None)
        assert isinstance(mask, torch.Tensor)
        assert mask.dtype == dtype and mask.untyped_storage().nbytes() == dtype.itemsize * 3 * 50 * 50


def test_with_chunks_the_counter_and_not_the_tracker_is_as_the_allocator() -> None:
    model = build(Decoder(2, 64, 2, 2, 32, 128, 300), dtype=torch.float32, device="cpu")
    tokens = torch.zeros(2, 100, dtype=torch.int64)
    counter, tracker, live, most = Counter(), Tracker(), 0, 0
    for trace in (counter, tracker):
        model.zero_grad()
        for tensor in (*model.parameters(), tokens):
            counter.hold(tensor.untyped_storage()) if trace is counter else tracker.track_external(tensor)
        with trace:
            chunked_backward(model, tokens, tokens, 5)
    model.zero_grad()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        chunked_backward(model, tokens, tokens, 5)
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    held = sum(tensor.nbytes for tensor in (*model.parameters(), tokens))
    assert counter.peak_bytes - held == most
    assert tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"] - held > most


def test_a_wrong_formula_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "draw", lambda chance: TIED)
    assert main(["--draws", "1"]) == command.WITHIN
    stack_step.step_moments.cache_clear()  # which would remember it
    monkeypatch.setattr(stack_step, "rotary_bytes", lambda *told: 2 * 10**7)
    assert main(["--draws", "1"]) == command.BEYOND
    right, wrong = (line for line in capsys.readouterr().out.splitlines() if " planned, " in line)
    assert right.startswith("1.00") and wrong.startswith("1.0")
    stack_step.step_moments.cache_clear()


def test_other_flops_are_told() -> None:
    near = Checked(TIED, "", 1_000, 1_009, 0, 5, 5)
    assert near.is_right
    assert not near._replace(counted_flops=6).is_right and not near._replace(counted_bytes=1_011).is_right
    assert not near._replace(tracked_bytes=989).is_right


def test_a_seed_draws_the_same_and_all_that_there_is() -> None:
    first, again, other = (random.Random(seed) for seed in (1, 1, 2))
    drawn = [drawing.draw(first) for _ in range(400)]
    assert drawn == [drawing.draw(again) for _ in range(400)] != [drawing.draw(other) for _ in range(400)]
    assert {value for asked in drawn for value in drawing.values(asked)} >= drawing.all_values()


def test_a_new_option_has_to_be_drawn_or_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drawing.unknown_options() == []
    monkeypatch.setitem(OPTIONS, "new_one", OPTIONS["accumulation"])
    assert main([]) == command.MISTAKE
    assert "--new-one" in capsys.readouterr().err


def test_what_cannot_be_counted_is_refused_with_its_reason() -> None:
    gpt2 = check({"model": "gpt2", "lora": 8, "context": 64})
    assert gpt2.refused == "GPT-2 makes queries, keys and values with one matrix" and "refused" in command.line(gpt2)
    assert check({"model": "gpt2", "context": 4_096}).refused.startswith("--context")
    assert "module of that shape" in check({"model": "mixtral-8x7b"}).refused


def test_a_mistake_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "0"]) == command.MISTAKE and "--draws" in capsys.readouterr().err
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "transformers" else object())
    assert main([]) == command.MISTAKE and "transformers" in capsys.readouterr().err
    monkeypatch.setattr(
        command, "__file__", str(ROOT.parent / "elsewhere" / "flops_bytes" / "counting" / "check" / "__main__.py")
    )
    assert main([]) == command.MISTAKE and "checkout" in capsys.readouterr().err


def test_the_command_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flops_bytes", "check", "--seed", "7", "--draws", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 drawn" in done.stdout and "not drawn: task" in done.stdout
    usage = subprocess.run([sys.executable, "-m", "flops_bytes", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert "  check  " in usage.stdout
