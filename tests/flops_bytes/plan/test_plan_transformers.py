"""A pasted configuration plans transformers' own modules: a step of theirs holds what is planned, within a per cent.

Their steps run on meta, with autocast on a CPU. Where these differ from a GPU they are made to do what it does: dropout
keeps a mask of bytes, flash attention is one kernel, and autocast makes powers and softmax in float32.
"""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, AttentionInterface, AutoModelForCausalLM
from transformers.activations import NewGELUActivation

from flops_bytes.plan import plan_exactly as plan
from tests.flops_bytes.test_peak_lines import BYTE_16, Moments, for_a_gpu, one_kernel, update

LLAMA: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 500},
    "llama": LLAMA,
    "mistral": LLAMA | {"sliding_window": None},
    "qwen2": LLAMA,
    "qwen3": LLAMA | {"head_dim": 24},
}
GPT2_WITHOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}


def their_kernel(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, **_: Any) -> tuple[Tensor, None]:
    """Flash attention, whose dropout keeps no mask: it draws it again from its seed."""
    return one_kernel(q, k, v).transpose(1, 2), None


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """As PyTorch does it on a GPU."""
    return torch.native_dropout(x, p, True)[0] if training and p else x


def gelu_new(module: nn.Module, x: Tensor) -> Tensor:
    """Theirs, with its power in float32 under autocast."""
    cube = torch.pow(x.float() if torch.is_autocast_enabled("cpu") else x, 3.0)
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * cube)))


softmax = F.softmax


def softmax_on_gpu(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return softmax(x.float() if torch.is_autocast_enabled("cpu") else x, dim=dim, dtype=dtype)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    AttentionInterface.register("their_kernel", their_kernel)
    monkeypatch.setattr(F, "dropout", dropout)
    monkeypatch.setattr(F, "softmax", softmax_on_gpu)
    monkeypatch.setattr(NewGELUActivation, "forward", gelu_new)


def count_step(config: Any, asked: dict[str, Any]) -> dict[str, int]:
    """The most bytes at each moment of a step of their model with its own loss; AdamW fused."""
    seq_len, batch, recipe = asked["context"], asked["micro_batch"], asked["recipe"]
    autocast, eager = recipe == "autocast", asked.get("attention") == "eager"
    dtype, device = BYTE_16 if "bf16" in recipe else torch.float32, "cpu" if autocast else "meta"
    with torch.device(device):
        attends = "eager" if eager else "their_kernel"
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attends, dtype=dtype)
    model.train()

    def mask(**told: Any) -> Tensor | None:
        """As large as theirs, which is asked whether all is causal: meta cannot answer that."""
        return torch.zeros(batch, 1, seq_len, seq_len, dtype=dtype, device=device) if eager else None

    if asked.get("checkpointing") == "full":
        model.activation_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    weights = list(model.parameters())
    masters = [weight.detach().float() for weight in weights] if recipe == "bf16-master" else weights
    moments = [[torch.zeros_like(master) for master in masters] for _ in range(2)]
    tokens = torch.zeros(batch, seq_len, dtype=torch.int64, device=device)
    targets = torch.zeros_like(tokens)
    trace = Moments()

    def begins(moment: str, tensor: Tensor) -> None:
        tensor.register_hook(lambda gradient: trace.begin(moment))

    layers = model.transformer.h if config.model_type == "gpt2" else model.model.layers
    layers[0].register_forward_pre_hook(lambda module, inputs: begins("embedding", inputs[0]))
    layers[0].register_forward_hook(lambda module, inputs, output: begins("first_layer", output))
    layers[-1].register_forward_hook(lambda module, inputs, output: begins("last_layer", output))
    with trace, for_a_gpu():
        for tensor in (*weights, *masters, *moments[0], *moments[1], tokens, targets):
            trace.hold(tensor.untyped_storage())
        trace.begin("forward")
        written = sys.modules[type(model).__module__]
        with (
            patch.object(written, "create_causal_mask", mask),
            torch.autocast("cpu", BYTE_16) if autocast else nullcontext(),
        ):
            found = model(input_ids=tokens, labels=targets, use_cache=False)
        missed = found.loss
        if asked.get("loss") != "logits-held":
            del found
        missed.backward()
        trace.begin("update")
        if recipe == "bf16-master":
            for weight, master in zip(weights, masters, strict=True):
                assert weight.grad is not None
                master.grad, weight.grad = weight.grad.float(), None
        update(masters, moments[0], moments[1], [torch.zeros(()) for _ in masters], foreach=False)
    return trace.most


STEPS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {}
for recipe in ("fp32", "bf16", "bf16-master", "autocast"):
    for attention in ("fused", "eager"):
        for checkpointing in ("none", "full"):
            asked = {"recipe": recipe, "attention": attention, "checkpointing": checkpointing}
            for kind in ("gpt2", "llama"):
                STEPS[", ".join((kind, *asked.values()))] = (kind, {}, asked)
for kind in ("mistral", "qwen2", "qwen3"):
    for attention in ("fused", "eager"):
        STEPS[f"{kind}, {attention}"] = (kind, {}, {"recipe": "bf16", "attention": attention})
STEPS["gpt2 without dropout"] = ("gpt2", GPT2_WITHOUT, {"recipe": "bf16", "attention": "eager"})
STEPS["llama with dropout"] = ("llama", {"attention_dropout": 0.1}, {"recipe": "bf16", "attention": "eager"})
STEPS["gpt2, logits held"] = ("gpt2", {}, {"recipe": "bf16", "loss": "logits-held"})
STEPS["llama, logits held"] = ("llama", {}, {"recipe": "fp32", "loss": "logits-held"})


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("kind", "change", "asked"), STEPS.values(), ids=STEPS)
def test_a_step_of_theirs_holds_what_is_planned(kind: str, change: dict[str, Any], asked: dict[str, Any]) -> None:
    config = CONFIG_MAPPING[kind](**(SIZES[kind] | change))
    asked = asked | {"context": 192, "micro_batch": 2}
    counted = count_step(config, asked)
    moments = [moment for moment in counted if moment not in ("forward", "after the forward pass")]
    found = plan(gpu="H100 SXM", config=config.to_dict(), allowance="1B", **asked)
    assert found["peaks_at"] in moments
    assert found["memory_bytes"]["total"] - 1 == pytest.approx(max(counted[each] for each in moments), rel=0.01)


def test_hugging_faces_gpt2_does_not_fit_where_the_books_own_does() -> None:
    """Its dropout and its GELU of small operations nearly double what a step of eager attention holds."""
    config = CONFIG_MAPPING["gpt2"]()
    asked = {"recipe": "bf16", "attention": "eager", "context": 1024, "micro_batch": 8}
    named = plan(model="gpt2", gpu="L4", layers="composed", allowance="1B", **asked)["memory_bytes"]
    counted = max(count_step(config, asked).values())
    assert named == plan(config=config.to_dict(), gpu="L4", allowance="1B", **asked)["memory_bytes"]
    assert named["total"] == pytest.approx(counted, rel=0.002)
    own = plan(model="gpt2", gpu="L4", allowance="1B", **asked)["memory_bytes"]["total"]
    assert named["total"] > 1.5 * own
    asked["micro_batch"] = 17
    fits = [plan(model="gpt2", gpu="L4", layers=layers, **asked)["fits"] for layers in ("fused", "composed")]
    assert fits == [True, False]
