"""What a step of layers that differ holds is what PyTorch's tracer counts of transformers' own modules, by kind."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from flops_bytes.counting.check.count import Counter
from flops_bytes.counting.check.kinds import (
    DEFAULTS,
    configuration,
    counted,
    has_experts,
    made,
    masked,
    options,
    planned,
    ratio,
)
from flops_bytes.memory import layers as stack_layers
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.layers import FAMILIES as WRITTEN
from flops_bytes.memory.layers import Adapters, norm
from flops_bytes.memory.step import (
    SAME_AS_LLAMA,
    SUPPORTED,
    StepConfig,
    kept_bytes,
    recomputed_flops,
    step_bytes,
    token_flops,
    unsupported_reason,
)
from flops_bytes.memory.tape import Tape, apply_saving_input, linear
from flops_bytes.model.config import read_stack
from flops_bytes.model.stack import largest_layer_parameters, parameters
from flops_bytes.parallel.sharding import sharded_moments
from tests.flops_bytes.stack_cases import CASES

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
    "deepseek_v2": WIDE | ROUTED | LATENT,
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
WITH_EXPERTS = [kind for kind, config in KINDS.items() if has_experts(config)]


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
    {"checkpointing": "per-op", "batch": 2},
    {"checkpointing": "per-op", "attention": "eager", "adapters": Adapters(8)},
    {"checkpointing": "selective", "attention": "eager", "dropout": True},
    {"checkpointing": "selective", "update": "foreach", "loss": "logits-held"},
    {"checkpointing": "full", "every": 2, "dropout": True, "attention": "eager"},
    {"checkpointing": "full", "reentrant": True, "batch": 2},
    {"loss": "float32-held", "update": "in-backward"},
    {"loss": "shifted", "batch": 2, "update": "foreach"},
]
DENSE: list[Config] = [
    {"adapters": Adapters(8, four_bit=True), "base": "4bit"},
    {"adapters": Adapters(8, four_bit=True), "base": "4bit-double", "checkpointing": "full", "accumulated": True},
    {"adapters": Adapters(8), "recipe": "autocast", "loss": "fused", "checkpointing": "full"},
    {"recipe": "autocast", "loss": "fused"},
    {"recipe": "autocast", "loss": "compiled", "checkpointing": "full"},
    {"recipe": "autocast", "chunks": 4},
    {"recipe": "autocast", "loss": "as-logits", "checkpointing": "full", "reentrant": True, "attention": "eager"},
    {"recipe": "fp32", "checkpointing": "per-op", "update": "in-backward"},
    {"recipe": "fp32", "attention": "eager", "dropout": True, "every": 3, "checkpointing": "full"},
    {"matmuls": "fp8", "checkpointing": "full"},
    {"matmuls": "fp8-kept", "recipe": "bf16_master"},
    {"matmuls": "nvfp4", "checkpointing": "per-op"},
]


@pytest.mark.drawn(6)
@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("n", range(len(RARE + DENSE)))
def test_adapters_and_other_losses(n: int, turn: int) -> None:
    told = (RARE + DENSE)[n]
    kinds = [kind for kind in KINDS if kind not in WITH_EXPERTS or n < len(RARE)]
    kind = kinds[(3 * n + 5 * turn) % len(kinds)]
    assert ratio(kind, KINDS[kind] | {"vocab_size": (100, 20_000)[turn]}, 256, **told) == pytest.approx(1, abs=0.002)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("seed", range(40))
def test_sizes_and_options_that_are_drawn(seed: int) -> None:
    """`python -m flops_bytes.counting.check.kinds` draws more of them."""
    chance = random.Random(seed)
    kind = chance.choice([*KINDS])
    config = configuration(chance, kind)
    told, tokens = options(chance, config), 32 * chance.randint(1, 12)
    assert ratio(kind, config, tokens, **told) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("kind", ["llama", "olmo2", "phi3"])
@pytest.mark.parametrize(
    "told",
    [
        {"checkpointing": "full"},
        {"checkpointing": "full", "every": 2, "adapters": Adapters(8)},
        {"checkpointing": "full", "reentrant": True},
        {"checkpointing": "selective", "attention": "eager"},
        {"checkpointing": "per-op"},
    ],
    ids=str,
)
def test_what_is_multiplied_again_is_what_pytorchs_counter_says(kind: str, told: Config) -> None:
    config, tokens = {key: size for key, size in KINDS[kind].items() if key != "sliding_window"}, 64
    flops: dict[str, int] = {}
    stack, asked = read_stack(config | {"model_type": kind, "sliding_window": None}), {**told}
    step = StepConfig(tokens, fused=asked.pop("attention", "fused") == "fused", **asked)
    for checkpointing in ("none", told["checkpointing"]):
        left_out = ("checkpointing", "every", "reentrant") if checkpointing == "none" else ()
        asked = {key: value for key, value in told.items() if key not in left_out}
        counted(kind, config, tokens, trace=(trace := Counter()), **asked)
        flops[checkpointing] = trace.flops
    again = flops[told["checkpointing"]] - flops["none"]
    assert recomputed_flops(stack, WRITTEN[kind], step, False) == again > 0
    assert tokens * token_flops(stack, WRITTEN[kind], step, False)["device"] == flops[told["checkpointing"]]


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
    model = made(kind, config, DEFAULTS, "meta")
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
    assert {*KINDS} == {*SUPPORTED} - {"kimi_k2"}


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
    assert unsupported_reason(stack, kind, "bf16_master") == ("" if kind in (*SUPPORTED, *SAME_AS_LLAMA) else why)


def test_experts_multiply_in_16_bits_alone() -> None:
    stack = read_stack(KINDS["gpt_oss"] | {"model_type": "gpt_oss"})
    assert unsupported_reason(stack, "gpt_oss", "autocast").endswith("PyTorch's grouped matmul takes 16 bits alone")
    with pytest.raises(RuntimeError, match="Expected inputs of BF16 type"):
        counted("gpt_oss", KINDS["gpt_oss"], 16, recipe="fp32")
    assert unsupported_reason(stack, "gpt_oss", "fp32")


# Shares


def test_a_gathered_layer_is_the_fullest() -> None:
    config = KINDS["deepseek_v3"] | {"model_type": "deepseek_v3"}
    stack = read_stack(config)
    counts = parameters(stack)
    at = step_bytes(stack, WRITTEN["deepseek_v3"], StepConfig(128))
    found = sharded_moments(stack, at, "bf16_master", 4, 3)
    ends = counts["embedding"] + counts["head"]
    assert found["first_layer"]["gathered"] == 2 * (ends + 2 * largest_layer_parameters(stack))
    experts = counts["experts"] // 2  # of three layers the first is dense
    assert experts < largest_layer_parameters(stack) < 1.5 * experts
    assert found["update"]["gathered"] == 0
    assert found["update"]["optimizer"] == RECIPES["bf16_master"].optimizer * sum(counts.values()) // 4
    whole = sharded_moments(stack, at, "bf16_master", 4, 0)
    assert whole["loss"]["weights"] == 2 * sum(counts.values()) and whole["loss"]["gathered"] == 0


# The tape


def test_a_tape_by_hand() -> None:
    """A matmul of 4 × 8 with 16 × 8, and a function of what it makes, in 16 bits."""
    tape = Tape()
    x = tape.bind(tape.input_leaf("x", (4, 8), 2))
    made = apply_saving_input(tape, linear(tape, x, "w", 16))
    assert tape.live_bytes == 64 + 128 + 128 and made.grad_fn is not None
    tape.forget(made)
    tape.run_backward(made.grad_fn, tape.new((4, 16), 2))
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
        tape.consume(x)
    assert tape.live_bytes == 16 + 8
    inner = tape.leave(tape.new((2,), 2))
    assert tape.live_bytes == 16 + 4
    tape.consume(inner)
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
        step_bytes(stack, WRITTEN["llama"], StepConfig(48, recipe="bf16", checkpointing=checkpointing))


@pytest.mark.parametrize(("kind", "tied"), [("olmo2", False), ("gemma3_text", True), ("gemma3_text", False)])
def test_a_gradient_that_is_added_to_an_earlier_one_goes_at_once(kind: str, tied: bool) -> None:
    """Sizes at which a layer's weights are large beside its activations; a tied head's gradient waits."""
    config = KINDS[kind] | {"vocab_size": 16, "tie_word_embeddings": tied}
    for tokens in (16, 64):
        told: Config = {"recipe": "bf16", "accumulated": True}
        assert abs(planned(kind, config, tokens, **told) - counted(kind, config, tokens, **told)) < 10_000
