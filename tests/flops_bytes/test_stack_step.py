"""What a step of layers that differ holds is what PyTorch's tracer counts of transformers' own modules, by kind."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import CONFIG_MAPPING, AttentionInterface, AutoModelForCausalLM

from flops_bytes import stack_layers
from flops_bytes.check.count import BFLOAT16, Counter, Made, adapt, as_on_cuda, forget, go
from flops_bytes.configs import read_stack
from flops_bytes.memory import RECIPES
from flops_bytes.shapes import from_config
from flops_bytes.sharding import sent_parts, sharded_bytes
from flops_bytes.stack import parameters
from flops_bytes.stack_layers import Adapters, norm
from flops_bytes.stack_step import DERIVED, kept_bytes, layer_parameters, sent_bytes, sharded, step_bytes, why_not
from flops_bytes.tape import Tape, apply, linear
from tests.flops_bytes.stack_cases import CASES

logging.getLogger("transformers").setLevel(logging.ERROR)  # small vocabularies lack the tokens that end a text

Config = dict[str, Any]
WIDE: Config = {
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
HEADS: Config = {"head_dim": 32}
WINDOW: Config = {"sliding_window": 64}
ROUTED: Config = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
ROUTED |= {"moe_intermediate_size": 192, "n_shared_experts": 1, "first_k_dense_replace": 1}
LATENT: Config = {"q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16}
LATENT |= {"v_head_dim": 32, "num_key_value_heads": 8}
KINDS: dict[str, Config] = {
    "qwen3_moe": WIDE | HEADS | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 192},
    "deepseek_v3": WIDE | ROUTED | LATENT,
    "glm4_moe": WIDE | HEADS | ROUTED | {"use_qk_norm": True, "attention_bias": True},
    "gpt_oss": WIDE | HEADS | WINDOW | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "gemma3_text": WIDE | HEADS | WINDOW | {"num_hidden_layers": 6},
    "olmo2": WIDE,
    "olmo3": WIDE | WINDOW,
    "llama": WIDE | {"attention_bias": True},
    "mistral": WIDE | HEADS | WINDOW,
    "phi3": WIDE | WINDOW,
    "seed_oss": WIDE | HEADS | {"attention_dropout": 0.0, "residual_dropout": 0.0},
    "qwen2_moe": WIDE
    | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 192, "decoder_sparse_step": 1}
    | {"shared_expert_intermediate_size": 320},
    "glm4_moe_lite": WIDE | ROUTED | LATENT,
    "minimax_m2": WIDE | HEADS | {"num_local_experts": 8, "num_experts_per_tok": 2, "rotary_dim": 16},
    "dots1": WIDE | HEADS | ROUTED | {"sliding_window": None},
    "olmoe": WIDE | {"num_experts": 8, "num_experts_per_tok": 2},
}
WITH_EXPERTS = [kind for kind, config in KINDS.items() if "num_experts_per_tok" in config]


# What is counted


class OneKernel(torch.autograd.Function):
    """Attention in one kernel, which keeps its factors, its result and a float32 a row of scores; values may be
    narrower than keys, which PyTorch's flash kernel does not take."""

    @staticmethod
    def forward(context: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        result = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[-1]).transpose(1, 2)
        context.save_for_backward(q, k, v, result, q.new_empty(q.shape[:-1], dtype=torch.float32))
        return result

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(each) for each in context.saved_tensors[:3])


def any_width(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **options: Any) -> tuple[Tensor, None]:
    attended: Tensor = OneKernel.apply(q, k, v)  # type: ignore[no-untyped-call]
    return attended.transpose(1, 2), None


AttentionInterface.register("any_width", any_width)


def made(kind: str, config: Config, attention: str, recipe: str, device: str) -> Any:
    """Transformers' module, with weights of one type."""
    fused = "any_width" if "kv_lora_rank" in config else "one_kernel"
    more = {"experts_implementation": "grouped_mm"} if kind in WITH_EXPERTS else {}
    options: dict[str, Any] = {"pad_token_id": 0, **config}
    dtype = BFLOAT16 if recipe.startswith("bf16") else torch.float32
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            CONFIG_MAPPING[kind](**options),
            attn_implementation=fused if attention == "fused" else "eager",
            dtype=dtype,
            **more,
        )
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model.train()


@contextmanager
def masked(model: Any, batch: int, tokens: int, attention: str, device: str) -> Iterator[None]:
    """As large as eager attention's own, which ask what a tensor on meta cannot answer."""
    written, dtype = sys.modules[type(model).__module__], next(model.parameters()).dtype

    def mask(**told: Any) -> Tensor | None:
        return torch.zeros(batch, 1, tokens, tokens, dtype=dtype, device=device) if attention == "eager" else None

    with ExitStack() as patches:
        for name in ("create_causal_mask", "create_sliding_window_causal_mask"):
            if hasattr(written, name):
                patches.enter_context(patch.object(written, name, mask))
        yield


def counted(
    kind: str,
    config: Config,
    tokens: int,
    batch: int = 1,
    attention: str = "fused",
    checkpointing: str = "none",
    recipe: str = "bf16",
    accumulated: bool = False,
    adapters: Adapters | None = None,
    base: str = "as-recipe",
    loss: str = "plain",
    chunks: int = 1,
) -> int:
    """The peak of a step, on tensors without data."""
    cast = recipe == "autocast"
    device = "cpu" if cast else "meta"
    asked: Config = {"checkpointing": checkpointing, "checkpoint_every": 1, "base": base}
    asked |= {"recipe": recipe, "loss": loss, "chunks": chunks}
    with FakeTensorMode() if cast else nullcontext():
        model = made(kind, config, attention, recipe, device)
        if adapters:
            adapt(model, model.base_model.layers, asked | {"lora": adapters.rank, "lora_on": adapters.beside})
        forget(asked, model.base_model.layers)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        has_masters = recipe == "bf16_master" and not adapters
        masters = [weight.detach().float() for weight in weights] if has_masters else weights
        moments = [torch.zeros_like(master) for master in masters for _ in range(2)]
        words = torch.zeros(batch, tokens, dtype=torch.int64, device=device)
        targets = torch.zeros_like(words)
        trace = Counter()
        for tensor in (*model.parameters(), *model.buffers(), *masters, *moments, words, targets):
            trace.hold(tensor.untyped_storage())

        def hidden(words: Tensor) -> Tensor:
            with masked(model, batch, tokens, attention, device):
                found: Tensor = model.base_model(input_ids=words, use_cache=False).last_hidden_state
            return found

        def missed(words: Tensor, targets: Tensor) -> Tensor:
            with masked(model, batch, tokens, attention, device):
                found: Tensor = model(input_ids=words, labels=targets, use_cache=False).loss
            return found

        head = model.get_output_embeddings()
        with trace, as_on_cuda(False):
            if accumulated:
                for weight in weights:
                    weight.grad = torch.empty_like(weight)
            go(Made(model, hidden, head, missed, head.weight), words, targets, asked)
            if has_masters:
                for weight, master in zip(weights, masters, strict=True):
                    gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad  # fused: no sinks
                    master.grad, weight.grad, gradient = gradient.float(), None, None
        return trace.peak_bytes


def planned(kind: str, config: Config, tokens: int, **told: Any) -> int:
    attention = told.pop("attention", "fused")
    stack = read_stack(config | {"model_type": kind})
    at = step_bytes(stack, kind, tokens, fused=attention == "fused", **{"recipe": "bf16"} | told)
    return max(sum(lines.values()) for lines in at.values())


def ratio(kind: str, config: Config, tokens: int, **told: Any) -> float:
    return planned(kind, config, tokens, **told) / counted(kind, config, tokens, **told)


# By kind


@pytest.mark.drawn(10)
@pytest.mark.parametrize(("attention", "checkpointing"), [("fused", "none"), ("fused", "full"), ("eager", "full")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_steps_peak_is_what_the_tracer_counts(kind: str, attention: str, checkpointing: str) -> None:
    told: Config = {"attention": attention, "checkpointing": checkpointing, "batch": 2}
    assert ratio(kind, KINDS[kind], 384, **told) == pytest.approx(1, abs=0.01)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITH_EXPERTS])
def test_under_autocast(kind: str, checkpointing: str) -> None:
    told: Config = {"recipe": "autocast", "checkpointing": checkpointing}
    assert ratio(kind, KINDS[kind], 384, **told) == pytest.approx(1, abs=0.01)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("recipe", ["bf16", "bf16_master"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss", "gemma3_text"])
def test_beside_an_earlier_batchs_gradients(kind: str, tied: bool, recipe: str) -> None:
    config = KINDS[kind] | {"tie_word_embeddings": tied}
    for vocab in (100, 6_000):
        told: Config = {"recipe": recipe, "accumulated": True}
        assert ratio(kind, config | {"vocab_size": vocab}, 256, **told) == pytest.approx(1, abs=0.01)


# With other weights trained, and other losses. Transformers' experts multiply in 16 bits,
# and in the counter are packed by nobody.
RARE: list[Config] = [
    {"adapters": Adapters(8)},
    {"adapters": Adapters(16, "query-value"), "batch": 2, "loss": "fused"},
    {"adapters": Adapters(4, "attention"), "checkpointing": "full", "chunks": 8},
    {"adapters": Adapters(8), "attention": "eager", "accumulated": True},
    {"loss": "fused", "checkpointing": "full", "recipe": "bf16_master"},
    {"loss": "compiled"},
    {"chunks": 3, "accumulated": True, "recipe": "bf16_master"},
    {"chunks": 4, "batch": 3},
]
DENSE: list[Config] = [
    {"adapters": Adapters(8, four_bit=True), "base": "4bit"},
    {"adapters": Adapters(8, four_bit=True), "base": "4bit-double", "checkpointing": "full", "accumulated": True},
    {"adapters": Adapters(8), "recipe": "autocast", "loss": "fused", "checkpointing": "full"},
    {"recipe": "autocast", "loss": "fused"},
    {"recipe": "autocast", "loss": "compiled", "checkpointing": "full"},
    {"recipe": "autocast", "chunks": 4},
]


@pytest.mark.drawn(6)
@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("n", range(len(RARE + DENSE)))
def test_adapters_and_other_losses(n: int, turn: int) -> None:
    told = (RARE + DENSE)[n]
    kinds = [kind for kind in KINDS if kind not in WITH_EXPERTS or n < len(RARE)]
    kind = kinds[(3 * n + 5 * turn) % len(kinds)]
    assert ratio(kind, KINDS[kind] | {"vocab_size": (100, 20_000)[turn]}, 256, **told) == pytest.approx(1, abs=0.002)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["qwen3_moe", "olmo2", "gemma3_text"])
def test_a_vocabulary_that_is_all_there_is(kind: str, tied: bool) -> None:
    config = KINDS[kind] | {"tie_word_embeddings": tied, "vocab_size": 30_000}
    for tokens in (16, 128):
        assert ratio(kind, config, tokens, recipe="bf16_master") == pytest.approx(1, abs=0.01)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_is_there_when_the_loss_is(kind: str) -> None:
    config, batch, tokens = KINDS[kind], 2, 384
    model = made(kind, config, "fused", "bf16", "meta")
    words = torch.zeros(batch, tokens, dtype=torch.int64, device="meta")
    trace = Counter()
    for tensor in (*model.parameters(), *model.buffers(), words):
        trace.hold(tensor.untyped_storage())
    before = trace.live_bytes
    with trace, masked(model, batch, tokens, "fused", "meta"):
        loss = model(input_ids=words, labels=words, use_cache=False).loss
        live = trace.live_bytes - before
    targets = 8 * batch * tokens
    kept = kept_bytes(read_stack(config | {"model_type": kind}), kind, tokens, batch)
    assert loss is not None and sum(kept.values()) + targets == pytest.approx(live, rel=0.01)


def test_all_kinds_are_counted() -> None:
    """A Kimi K2 is a DeepSeek-V3, which transformers builds it as."""
    assert {*KINDS} == {*DERIVED} - {"kimi_k2"}


# What is not derived


@pytest.mark.parametrize("case", CASES)
def test_a_kind_that_was_not_counted_says_so(case: str) -> None:
    kind, config = CASES[case]
    stack = read_stack(config | {"model_type": kind})
    reasons = {
        "qwen3_next": f"what linear attention keeps, as of a {kind}, depends on its kernels",
        "llama4_text": "transformers' llama4_text runs all experts on each token, which those who train it do not",
        "deepseek_v32": f"transformers' {kind} trains no indexer",
    }
    same = {"qwen3_5_text": "qwen3_next", "qwen3_5_moe_text": "qwen3_next", "kimi_linear": "qwen3_next"}
    same |= {"glm_moe_dsa": "deepseek_v32"}
    why = reasons.get(same.get(kind, kind), f"those of a {kind} are not derived")
    assert why_not(stack, kind, "bf16_master") == ("" if kind in DERIVED else why)


def test_experts_multiply_in_16_bits_alone() -> None:
    stack = read_stack(KINDS["gpt_oss"] | {"model_type": "gpt_oss"})
    assert why_not(stack, "gpt_oss", "autocast").endswith("PyTorch's grouped matmul takes 16 bits alone")
    with pytest.raises(RuntimeError, match="Expected inputs of BF16 type"):
        counted("gpt_oss", KINDS["gpt_oss"], 16, recipe="fp32")
    assert why_not(stack, "gpt_oss", "fp32")


# Shares


@pytest.mark.parametrize("recipe", ["bf16", "bf16_master", "autocast"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_layers_alike_send_what_the_planner_of_these_says(zero: int, recipe: str) -> None:
    config = KINDS["mistral"] | {"model_type": "mistral", "sliding_window": None}
    shape, stack = from_config(config, 128), read_stack(config)
    theirs = sent_parts(shape, recipe, 8, zero, accumulation=3)
    # the last norm is of no layer
    assert sent_bytes(stack, recipe, 8, zero, 3) == pytest.approx(theirs, rel=1e-3)


def test_a_gathered_layer_is_the_fullest() -> None:
    config = KINDS["deepseek_v3"] | {"model_type": "deepseek_v3"}
    stack = read_stack(config)
    counts = parameters(stack)
    at = step_bytes(stack, "deepseek_v3", 128)
    found = sharded(stack, at, "bf16_master", 4, 3)
    ends = counts["embedding"] + counts["head"]
    assert found["first_layer"]["gathered"] == 2 * (ends + 2 * layer_parameters(stack))
    experts = counts["experts"] // 2  # of three layers the first is dense
    assert experts < layer_parameters(stack) < 1.5 * experts
    assert found["update"]["gathered"] == 0
    assert found["update"]["optimizer"] == RECIPES["bf16_master"].optimizer * sum(counts.values()) // 4
    whole = sharded(stack, at, "bf16_master", 4, 0)
    assert whole["loss"]["weights"] == 2 * sum(counts.values()) and whole["loss"]["gathered"] == 0


def test_layers_alike_are_split_as_the_planner_of_these_says() -> None:
    config = KINDS["mistral"] | {"model_type": "mistral", "sliding_window": None}
    shape, stack = from_config(config, 128), read_stack(config)
    at = step_bytes(stack, "mistral", 128)
    ours, theirs = sharded(stack, at, "bf16_master", 8, 3), sharded_bytes(shape, with_copies(at), "bf16_master", 8, 3)
    for line in ("weights", "master", "optimizer", "gradients", "gathered"):
        assert ours["first_layer"][line] == pytest.approx(theirs["first_layer"][line], rel=1e-3), line


def with_copies(at: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {moment: lines | {"copies": 0} for moment, lines in at.items()}


# The tape


def test_a_tape_by_hand() -> None:
    """A matmul of 4 × 8 with 16 × 8, and a function of what it makes, in 16 bits."""
    tape = Tape()
    x = tape.bind(tape.given("x", (4, 8), 2))
    made = apply(tape, linear(tape, x, "w", 16))
    assert tape.live_bytes == 64 + 128 + 128 and made.made is not None
    tape.forget(made)
    tape.run_backward(made.made, tape.new((4, 16), 2))
    x_and_gradients = 64 + 64 + 2 * 16 * 8
    assert tape.live_bytes == x_and_gradients
    # the function's gradient, what the matmul makes of it, and the input
    assert tape.peak_bytes == 64 + 128 + 64 + 2 * 16 * 8


def test_a_name_lives_until_its_function_ends() -> None:
    """A loose tensor goes when it is used; a caller's name outlives the function that it was given to."""
    tape = Tape()
    named, loose = tape.bind(tape.new((8,), 2)), tape.new((4,), 2)
    tape.enter()
    for x in (named, loose):
        tape.bind(x)
        tape.used(x)
    assert tape.live_bytes == 16 + 8
    inner = tape.leave(tape.new((2,), 2))
    assert tape.live_bytes == 16 + 4
    tape.used(inner)
    tape.forget(named)
    assert tape.live_bytes == 0


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_bytes_without_a_name_are_an_error(monkeypatch: pytest.MonkeyPatch, checkpointing: str) -> None:
    """A layer that has gone both ways leaves its gradients alone."""
    stack = read_stack(KINDS["llama"] | {"model_type": "llama"})

    def leaking(way: Any, x: Any, name: str, features: int = 0) -> Any:
        way.tape.pin(way.tape.new((8,), 2))
        return norm(way, x, name, features)

    monkeypatch.setattr(stack_layers, "norm", leaking)
    with pytest.raises(AssertionError, match=r"\d+ bytes of \d+ have no name"):
        step_bytes(stack, "llama", 48, recipe="bf16", checkpointing=checkpointing)


@pytest.mark.parametrize(("kind", "tied"), [("olmo2", False), ("gemma3_text", True), ("gemma3_text", False)])
def test_a_gradient_that_is_added_to_an_earlier_one_goes_at_once(kind: str, tied: bool) -> None:
    """Sizes at which a layer's weights are large beside its activations; a tied head's gradient waits."""
    config = KINDS[kind] | {"vocab_size": 16, "tie_word_embeddings": tied}
    for tokens in (16, 64):
        told: Config = {"recipe": "bf16", "accumulated": True}
        assert abs(planned(kind, config, tokens, **told) - counted(kind, config, tokens, **told)) < 10_000
