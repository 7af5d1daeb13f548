"""Adapters, frozen and quantized weights, composed norms: what they save or cost is what is counted on small models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flops_bytes.lessons import models
from flops_bytes.lessons.models import LlamaBlock, RMSNorm, build, eager, flash, flash_each, loss, rotate
from flops_bytes.lessons.trace import count_flops, saved_bytes
from flops_bytes.memory.adapters import ADAPTED, quantized_bytes
from flops_bytes.memory.formulas import activation_bytes
from flops_bytes.memory.layers import Adapters
from flops_bytes.memory.step import StepConfig, decoder_moments, family_of, trained_parameters
from flops_bytes.memory.step import token_flops as flops_of_step
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import LLAMA_3_8B, Decoder, parameters
from flops_bytes.model.stack import stack_of
from flops_bytes.plan import plan_exactly as plan
from tests.flops_bytes.test_peak_lines import GPT2, LLAMA, TOKENS, count_step

RANK = 8
MATRICES = {"query-value": ("q", "v"), "attention": ("q", "k", "v", "out")}
MATRICES["all"] = (*MATRICES["attention"], "gate", "up", "down")
NUM_TOKENS = TOKENS[0] * TOKENS[1]


class Adapted(nn.Module):
    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, RANK, bias=False, device="meta")
        self.up = nn.Linear(RANK, frozen.out_features, bias=False, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        both: Tensor = self.frozen(x) + self.up(self.down(x))
        return both


def adapt(model: nn.Module, adapted: str) -> None:
    """Freezes a Llama and sets adapters beside the matrices of its layers."""
    model.requires_grad_(False)
    blocks: Any = model.blocks
    for block in blocks:
        for name in MATRICES[adapted]:
            setattr(block, name, Adapted(getattr(block, name)))


def compose(model: nn.Module) -> None:
    """Norms as transformers 5 writes them: a float32 copy, its product, and that by the weights."""

    def forward(norm: nn.RMSNorm, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return norm.weight * wide.to(x.dtype)

    for norm in (each for each in model.modules() if isinstance(each, nn.RMSNorm)):
        norm.forward = forward.__get__(norm)  # type: ignore[method-assign]


def softmax_in_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Eager attention as transformers writes it."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = q.contiguous() @ k.mT / q.shape[3] ** 0.5
    result: Tensor = scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v
    return result


class NormedHeads(LlamaBlock):
    """Qwen 3's layer: queries and keys have a norm of their own."""

    def __init__(self, shape: Decoder, attend: models.Attend) -> None:
        super().__init__(shape, attend)
        self.q_norm, self.k_norm = (RMSNorm(shape.head_dim) for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.attention_norm(x)
        q, k, v = (part(h).unflatten(-1, (-1, self.shape.head_dim)) for part in (self.q, self.k, self.v))
        q, k, v = (part.transpose(1, 2) for part in (self.q_norm(q), self.k_norm(k), v))
        heads = self.attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        h = self.mlp_norm(x)
        change: Tensor = self.down(nn.functional.silu(self.gate(h)) * self.up(h))
        return x + change


def config_of(seq_len: int, rank: int = 0, adapted: str = "all", **told: Any) -> StepConfig:
    return StepConfig(seq_len, recipe="fp32", adapters=Adapters(rank, adapted) if rank else None, **told)


def token_flops(shape: Decoder, seq_len: int, causal: bool = False, **told: Any) -> dict[str, float]:
    """Of this book's modules."""
    stack = stack_of(shape)
    return flops_of_step(stack, family_of(stack, False), config_of(seq_len, **told)._replace(recipe="bf16"), causal)


def adapter_parameters(shape: Decoder, adapted: str = "all") -> int:
    stack = stack_of(shape)
    return trained_parameters(stack, family_of(stack, False), config_of(TOKENS[0], RANK, adapted))


def step(model: nn.Module, tokens: Tensor) -> None:
    loss(model, tokens, tokens).backward()


def kept_bytes(model: nn.Module) -> int:
    tokens = torch.zeros(TOKENS[1], TOKENS[0], dtype=torch.int64, device="meta")
    targets = torch.zeros_like(tokens)
    return saved_bytes(lambda: loss(model, tokens, targets), [*model.parameters(), tokens, targets])


@pytest.mark.parametrize("adapted", ADAPTED)
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_adapters_hold_what_is_counted(adapted: str, checkpointing: str) -> None:
    model = build(LLAMA)
    adapt(model, adapted)
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert adapter_parameters(LLAMA, adapted) == trained
    at = decoder_moments(LLAMA, *TOKENS, "fp32", checkpointing=checkpointing, rank=RANK, adapted=adapted)
    counted = count_step(
        LLAMA, *TOKENS, "fp32", checkpointing=checkpointing, change=lambda model: adapt(model, adapted)
    )
    predicted = {moment: sum(lines.values()) for moment, lines in at.items()}
    for moment in ("loss", "head", "last_layer", "first_layer"):
        assert predicted[moment] == pytest.approx(counted[moment], rel=0.005)
    lines = {"weights": sum(weight.nbytes for weight in model.parameters() if not weight.requires_grad)}
    lines |= {"adapters": 4 * trained, "optimizer": 8 * trained, "master": 0}
    assert all({line: each[line] for line in lines} == lines for each in at.values())
    assert at["loss"]["gradients"] == 0 and at["update"]["gradients"] == 4 * trained


def test_frozen_matrices_are_held_in_four_bits() -> None:
    blocks: Any = build(LLAMA).blocks
    matrices = [weight for weight in blocks.parameters() if weight.dim() == 2]
    others = sum(weight.numel() for weight in build(LLAMA).parameters()) - sum(weight.numel() for weight in matrices)
    packed = sum(weight.numel() // 2 + 4 * (weight.numel() // 64) for weight in matrices)  # a float32 a block of 64
    blocks_of_64 = sum(weight.numel() // 64 for weight in matrices)
    packed_twice = packed - 4 * blocks_of_64 + blocks_of_64 + 4 * blocks_of_64 // 256  # a byte each, 4 for 256 of them
    for recipe, width in (("fp32", 4), ("autocast", 4), ("bf16", 2), ("bf16_master", 2)):
        at, twice = (decoder_moments(LLAMA, *TOKENS, recipe, rank=RANK, base=base) for base in ("4bit", "4bit-double"))
        assert {lines["weights"] for lines in at.values()} == {packed + width * others}
        assert {lines["weights"] for lines in twice.values()} == {packed_twice + width * others}
        assert at["loss"]["gradients"] == 0, "a frozen head has no gradient"


def test_quantized_numbers_have_a_constant_a_block() -> None:
    for elements, bits, block in ((4096, 8, 256), (4096, 4, 64), (640, 4, 32)):
        packed = elements * bits // 8 + torch.zeros(elements).unflatten(0, (-1, block)).amax(1).nbytes
        assert quantized_bytes(elements, bits, block) == packed
    found = plan(model="llama-3-8b", gpu="H100 SXM", optimizer="adamw-8bit")
    total = found["parameters"]["total"]
    assert found["memory_bytes"]["optimizer"] == 2 * total + 4 * 2 * total // 256  # a float32 for each 256 of two
    assert found["checkpoint_bytes"] == 2 * total + 4 * total + found["memory_bytes"]["optimizer"]
    adapters = plan(model="llama-3-8b", gpu="H100 SXM", optimizer="adamw-8bit", lora=16)
    trained = adapters["parameters"]["trained"]
    assert adapters["memory_bytes"]["optimizer"] == 2 * trained + 8 * trained // 256
    assert adapters["checkpoint_bytes"] == 4 * trained + adapters["memory_bytes"]["optimizer"]


def test_transformers_trainer_leaves_embeddings_out_of_8_bits() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100 SXM", "recipe": "bf16", "optimizer": "adamw-8bit"}
    ours, theirs = plan(**asked), plan(**asked, layers="composed")
    table = ours["parameters"]["embedding"]
    more = theirs["memory_bytes"]["optimizer"] - ours["memory_bytes"]["optimizer"]
    assert more == (8 - 2) * table - 4 * 2 * table // 256
    adapters = [plan(**asked, lora=16, layers=layers)["memory_bytes"]["optimizer"] for layers in ("fused", "composed")]
    assert adapters[0] == adapters[1]


@pytest.mark.parametrize("adapters", [{}, {"lora": 16}], ids=["all", "LoRA"])
@pytest.mark.parametrize(("paged", "resident"), [("paged-adamw", "adamw"), ("paged-adamw-8bit", "adamw-8bit")])
def test_paged_state_is_on_the_card_only_where_it_has_room(paged: str, resident: str, adapters: dict[str, int]) -> None:
    asked: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "accumulation": 2} | adapters
    with_it, without = plan(**asked, optimizer=resident), plan(**asked, optimizer=paged)
    state = with_it["memory_bytes"]["optimizer"]
    assert without["memory_bytes"]["optimizer"] == 0 and with_it["paged_bytes"] == 0
    assert without["paged_bytes"] == state == with_it["memory_bytes"]["total"] - without["memory_bytes"]["total"]
    assert without["checkpoint_bytes"] == with_it["checkpoint_bytes"]
    assert "offload" in without["estimated"]
    split = plan(**asked, gpus=8, zero=1, optimizer=paged)
    assert split["paged_bytes"] == -(-state // 8)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("library", ["fsdp2", "deepspeed"])
def test_with_offload_the_host_holds_the_state_of_its_gpus(library: str, zero: int) -> None:
    """Of 16 GPUs in two nodes: whole copies without ZeRO, else half of one; gradients of DeepSpeed's in float32."""
    if library == "deepspeed" and not zero:
        return
    asked: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 16, "zero": zero}
    assert plan(**asked)["host_bytes"] == {}
    found = plan(**asked, offload="yes", sharding_by=library)["host_bytes"]
    number, times = sum(parameters(LLAMA_3_8B).values()), 8 if zero == 0 else 1 / 2
    of_gradients = 4 if library == "deepspeed" and zero > 1 else 2
    assert found["master"] == 4 * number * times and found["optimizer"] == 8 * number * times
    assert found["gradients"] == of_gradients * number * times and "weights" not in found
    assert found["total"] == sum(found.values()) / 2


def test_what_has_no_master_weights_has_a_copy_of_the_weights_in_the_host() -> None:
    asked: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "offload": "yes"}
    number = sum(parameters(LLAMA_3_8B).values())
    assert plan(**asked, recipe="bf16")["host_bytes"] == {
        "weights": 2 * number,
        "optimizer": 4 * number,
        "gradients": 2 * number,
        "total": 8 * number,
    }
    found = plan(**asked, lora=8)
    trained = found["parameters"]["trained"]
    assert found["host_bytes"]["total"] == (4 + 8 + 4) * trained
    whole = plan(**asked | {"offload": "all"}, gpus=8, zero=3, recipe="bf16-master")["host_bytes"]
    assert whole["weights"] == 2 * number and whole["total"] == (2 + 4 + 8 + 2) * number


@pytest.mark.parametrize("recipe", ["fp32", "bf16"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_composed_norms_hold_what_is_counted(recipe: str, checkpointing: str) -> None:
    before = decoder_moments(LLAMA, *TOKENS, recipe, checkpointing=checkpointing)
    at = decoder_moments(LLAMA, *TOKENS, recipe, checkpointing=checkpointing, composed=True)
    options: dict[str, Any] = {"checkpointing": checkpointing}
    whole, composed = (count_step(LLAMA, *TOKENS, recipe, **options, change=each) for each in (None, compose))
    for moment, lines in at.items():
        more = sum(lines.values()) - sum(before[moment].values())
        inside = moment == "forward" and recipe == "bf16"  # transformers has a name for its logits
        inside |= moment == "last_layer" and not lines["layer"]  # the norm above it
        assert composed[moment] - whole[moment] == more or inside, moment


HEADS = replace(LLAMA, head_norms=True)
KEPT: dict[str, tuple[Decoder, models.Attend, Callable[[nn.Module], None] | None]] = {
    "fused": (LLAMA, flash, None),
    "head norms": (HEADS, flash, None),
    "composed": (LLAMA, flash, compose),
    "composed, head norms": (HEADS, flash, compose),
    "composed, eager": (LLAMA, softmax_in_float32, compose),
}


@pytest.mark.parametrize(("shape", "attend", "change"), KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("recipe", ["fp32", "bf16"])
def test_what_waits_is_what_autograd_keeps(
    shape: Decoder,
    attend: models.Attend,
    change: Callable[[nn.Module], None] | None,
    recipe: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fused, width = attend is flash, 4 if recipe == "fp32" else 2
    if shape.head_norms:
        monkeypatch.setattr(models, "LlamaBlock", NormedHeads)
    model = build(shape, attend, torch.float32 if recipe == "fp32" else torch.bfloat16)
    assert sum(weight.numel() for weight in model.parameters()) == sum(parameters(shape).values())
    if change:
        change(model)
    at = decoder_moments(shape, *TOKENS, recipe, fused)
    lines = decoder_moments(shape, *TOKENS, recipe, fused, composed=bool(change))
    more = lines["loss"]["activations"] - at["loss"]["activations"]
    predicted = sum(activation_bytes(shape, *TOKENS, width, fused).values()) + more
    assert kept_bytes(model) == predicted
    norm = 4 * NUM_TOKENS * shape.d_model
    if change:
        of_heads = 4 * NUM_TOKENS * (shape.heads + shape.kv_heads) * shape.head_dim * shape.head_norms
        scores = 0 if fused or recipe == "fp32" else 4 * shape.heads * NUM_TOKENS * TOKENS[0]
        assert more == shape.layers * (2 * norm + of_heads + scores) + norm
        selective = [
            decoder_moments(shape, *TOKENS, recipe, fused, "selective", composed=composed)["loss"]["activations"]
            for composed in (False, True)
        ]
        mask = 0 if fused else width * NUM_TOKENS * TOKENS[0]  # which transformers makes once for all layers
        assert selective[1] - selective[0] == shape.layers * (2 * norm + of_heads) + norm + mask


@pytest.mark.parametrize("adapted", ADAPTED)
def test_frozen_weights_spare_the_flops_of_their_gradients(adapted: str) -> None:
    model, seq_len = build(LLAMA, flash_each), TOKENS[0]
    adapt(model, adapted)
    tokens = torch.zeros(1, seq_len, dtype=torch.int64, device="meta")
    counted = count_flops(partial(step, model, tokens))
    planned = token_flops(LLAMA, seq_len, rank=RANK, adapted=adapted)
    assert counted == planned["device"] * seq_len
    scores = forward_flops(LLAMA, seq_len)["scores"]
    assert planned["device"] - planned["model"] == scores / seq_len and planned["again"] == 0
    spelled_out = token_flops(LLAMA, seq_len, fused=False, rank=RANK, adapted=adapted)
    keys = scores / LLAMA.layers if adapted == "query-value" else 0  # the first layer's need no gradient
    assert spelled_out["device"] + keys / seq_len == spelled_out["model"] == planned["model"]


def test_flops_of_a_token_are_counted_whole() -> None:
    for shape in (GPT2, LLAMA):
        for attend in (flash_each, eager):
            seq_len, model = 24, build(shape, attend)
            tokens = torch.zeros(1, seq_len, dtype=torch.int64, device="meta")
            counted = count_flops(partial(step, model, tokens))
            assert counted == seq_len * token_flops(shape, seq_len, fused=attend is flash_each)["device"]
    causal, whole = (token_flops(LLAMA, 24, causal, checkpointing="selective")["again"] for causal in (True, False))
    pairs = sum(1 for query in range(24) for key in range(24) if key <= query)
    assert causal / whole == pytest.approx(pairs / 24**2)


def test_a_token_meets_the_router_and_its_own_experts() -> None:
    shape, seq_len, batch = replace(LLAMA, experts=5, active_experts=2), 24, 3
    with torch.device("meta"):
        router = nn.Linear(shape.d_model, shape.experts, bias=False)
        expert = [nn.Linear(shape.d_model, shape.d_ff, bias=False) for _ in range(3)]  # gate, up, and down turned round
        tokens = torch.empty(seq_len * batch, shape.d_model)
    routed, met = count_flops(lambda: router(tokens)), count_flops(lambda: [matrix(tokens) for matrix in expert])
    forward = forward_flops(shape, seq_len, batch)
    assert (forward["router"], forward["mlp"]) == (shape.layers * routed, shape.layers * 2 * met)
    counts, dense = parameters(shape), parameters(LLAMA)
    assert (counts["router"], dense["router"]) == (shape.layers * router.weight.numel(), 0)
    assert counts["mlp"] == 5 * dense["mlp"] and parameters(shape, active=True)["mlp"] == 2 * dense["mlp"]


def test_experts_have_no_adapters() -> None:
    experts = replace(LLAMA_3_8B, experts=8, active_experts=2)
    assert adapter_parameters(experts) == adapter_parameters(LLAMA_3_8B, "attention")
    two = adapter_parameters(GPT2) - adapter_parameters(GPT2, "attention")
    assert two == 2 * GPT2.layers * (GPT2.d_model + GPT2.d_ff) * RANK
