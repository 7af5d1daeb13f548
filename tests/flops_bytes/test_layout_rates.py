"""Layouts are timed at published rates: work is shared out by degrees, narrow parts are slower, or by a share."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flops_bytes.model.shapes import GPT2_XL, LLAMA_3_8B, LLAMA_3_70B, MIXTRAL_8X7B
from flops_bytes.parallel.layouts import Layout, exposed_seconds
from flops_bytes.plan.options import read_options
from flops_bytes.plan.parallel import plan_layouts
from flops_bytes.plan.step_time import step_time
from flops_bytes.time.layouts import (
    FLOAT8_SPEEDUP,
    LAUNCH_SECONDS,
    LAYER_OPERATIONS,
    has_rates,
    layer_seconds,
    pass_bytes_per_second,
    rank_seconds,
    slowdowns,
)
from flops_bytes.time.rates import AGREED, loss_moved_bytes
from tests.conftest import ROOT

CARD = "H100 SXM"
ASKED: dict[str, Any] = {"model": "llama-3-70b", "gpu": CARD, "gpus": 256, "context": 8192, "zero": 1}
SPLIT = ASKED | {"tp": 8, "pp": 4, "global_batch": "4M"}


@pytest.mark.parametrize("checkpointing", ["none", "per-op", "full"])
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2-xl"])
def test_without_parallelism_the_rates_say_what_they_say_of_a_plain_step(model: str, checkpointing: str) -> None:
    told = {"model": model, "gpu": "A100 80GB SXM", "context": 1024, "micro_batch": 4, "recipe": "bf16-master"}
    told |= {"checkpointing": checkpointing, "update": "foreach"}
    plain = step_time(read_options(told), compiled=True).lines
    shape = LLAMA_3_8B if model == "llama-3-8b" else GPT2_XL
    ours = rank_seconds(shape, Layout(), 0, 1024, 4, "A100 80GB SXM", "bf16_master", checkpointing)
    theirs = {line: each.assumed for line, each in plain.items()}
    assert ours["update"] == pytest.approx(theirs["update"])
    matmuls = theirs["matmuls"] + theirs["attention"] + theirs["recomputation"]
    assert ours["matmuls"] + ours["attention"] == pytest.approx(matmuls)
    moved = theirs["element-wise"] + theirs["recomputed element-wise"]
    loss = 4 * 1024 * loss_moved_bytes(shape.vocab, 2, False) / pass_bytes_per_second("A100 80GB SXM")
    assert ours["element-wise"] - loss == pytest.approx(moved, rel=0.02)  # there with the embedding


def test_work_is_shared_out_and_narrow_parts_are_slower() -> None:
    tokens = 8192
    whole, eighth = (layer_seconds(LLAMA_3_70B, tensor, True, tokens, 8192, CARD) for tensor in (1, 8))
    assert whole["matmuls"] / 8 < eighth["matmuls"] < whole["matmuls"] / 6
    assert eighth["element-wise"] == pytest.approx(whole["element-wise"] / 8)
    alone = layer_seconds(LLAMA_3_70B, 8, False, tokens, 8192, CARD)  # norms of all tokens on each rank
    assert alone["element-wise"] > 1.5 * eighth["element-wise"]
    half = layer_seconds(LLAMA_3_70B, 1, True, tokens // 2, 8192, CARD)
    assert half["attention"] == pytest.approx(whole["attention"] / 2)


def test_float8_makes_linear_layers_faster_and_nothing_else() -> None:
    asked = LLAMA_3_8B, Layout(), 0, 8192, 1, CARD, "autocast"
    plain, faster = (rank_seconds(*asked, float8=on) for on in (False, True))
    assert {line for line in plain if plain[line] != faster[line]} == {"matmuls"}
    layers = 32 * layer_seconds(LLAMA_3_8B, 1, True, 8192, 8192, CARD)["matmuls"]
    assert plain["matmuls"] - faster["matmuls"] == pytest.approx(layers * (1 - 1 / FLOAT8_SPEEDUP))


def test_what_tensor_ranks_send_shows_by_a_piece_or_by_what_matmuls_do_not_hide() -> None:
    assert (
        exposed_seconds(8.0, 20.0, 8) == 1.0
        and exposed_seconds(8.0, 5.0, 8) == 3.0
        and exposed_seconds(8.0, 0.0, 8) == 8.0
    )
    before, after = (plan_layouts(**SPLIT, overlap_tp=answer)["seconds"] for answer in ("no", "yes"))
    assert after["tensor"] == before["tensor"] / 8 and after["matmuls"] == before["matmuls"]


def test_steps_take_as_much_longer_as_published_ones_did() -> None:
    found = plan_layouts(**SPLIT)
    assert found["matmul_share"] is None and found["least_step_seconds"] < found["step_seconds"]
    assert found["step_seconds"] < found["most_step_seconds"]
    _, low, high = AGREED["H100"]
    least, middle, most = slowdowns(CARD)
    assert least * high == pytest.approx(1) == pytest.approx(most * low) and least < middle < most
    layout = Layout(data=8, tensor=8, pipeline=4, zero=1, micro_batches=64)
    own = [rank_seconds(LLAMA_3_70B, layout, rank, 8192, 1, CARD, "bf16_master")["attention"] for rank in range(4)]
    assert found["seconds"]["attention"] == pytest.approx(middle * max(own))


def test_a_share_of_the_peak_is_taken_where_it_is_told_or_no_rates_are_known() -> None:
    assert plan_layouts(**SPLIT, matmul_share=0.5)["matmul_share"] == 0.5
    assert "attention" not in plan_layouts(**SPLIT, matmul_share=0.5)["seconds"]
    assert plan_layouts(**SPLIT | {"gpu": "B200", "link": "NVLink 5"})["matmul_share"]
    assert not has_rates(MIXTRAL_8X7B, CARD, "bf16_master") and not has_rates(LLAMA_3_8B, CARD, "fp32")
    told = plan_layouts(**SPLIT, matmul_share=0.5)
    assert told["least_step_seconds"] == told["step_seconds"] == told["most_step_seconds"]


class Launched(TorchDispatchMode):
    """Counts operations that compute something, and no views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = Counter[str]()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not operation.is_view and operation not in (
            torch.ops.aten.detach.default,
            torch.ops.aten._unsafe_view.default,
        ):
            self.operations[str(operation)] += 1
        return operation(*args, **(kwargs or {}))


def test_a_layer_of_transformers_llama_has_about_as_many_operations_as_are_launched() -> None:
    transformers = pytest.importorskip("transformers")
    llama = transformers.models.llama.modeling_llama
    size = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**size, attn_implementation="sdpa")
    layer = llama.LlamaDecoderLayer(config, 0).to(torch.bfloat16)
    x = torch.randn(1, 64, 256, dtype=torch.bfloat16, requires_grad=True)
    positions = llama.LlamaRotaryEmbedding(config)(x, torch.arange(64)[None])
    with Launched() as launched:
        result = layer(x, position_embeddings=positions)
        result = result[0] if isinstance(result, tuple) else result
        result.backward(torch.ones_like(result))
    assert launched.operations["aten.mm.default"] == 3 * 7
    assert launched.operations.total() == pytest.approx(LAYER_OPERATIONS, rel=0.02)


def test_launches_are_as_far_apart_as_the_book_says() -> None:
    text = (ROOT / "snippets" / "roofline.py").read_text(encoding="utf-8")
    (told,) = re.findall(r"^LAUNCH_SECONDS = (\S+)", text, re.MULTILINE)
    assert float(told) == LAUNCH_SECONDS
