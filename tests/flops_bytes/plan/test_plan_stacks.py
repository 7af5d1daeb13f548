"""The command plans models whose layers differ, by name and by config.json, and says what of them it does not know."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flops_bytes.memory.layers import FAMILIES
from flops_bytes.memory.step import StepConfig, step_bytes
from flops_bytes.model.config import bits_of, read_stack
from flops_bytes.model.presets import PRESETS
from flops_bytes.model.shapes import SHAPES
from flops_bytes.model.stack import backward_flops, cache_bytes, decode_flops, forward_flops, parameters, stack_of
from flops_bytes.parallel.sharding import sent_parts, sharded_moments
from flops_bytes.plan import options as options_module
from flops_bytes.plan import plan
from flops_bytes.plan.__main__ import main
from flops_bytes.plan.model import Model
from flops_bytes.plan.options import ROWS, read_options
from flops_bytes.plan.serving import sharing_gpus
from flops_bytes.plan.stacks import PARTLY_NOTE, TRAINING_OPTIONS, plan_model, plan_model_exactly, read_model
from flops_bytes.plan.table import training_table
from tests.flops_bytes.plan.printed import lines_of
from tests.flops_bytes.stack_cases import CASES, FOUND, SMALL
from tests.tables import BOOK

EIGHT: dict[str, Any] = {"allowance": "1GB", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 4_096}
SERVED: dict[str, Any] = {"task": "serve", "gpu": "H100 SXM", "gpus": 8, "context": 8_192}
SCHEMA = json.loads(Path(options_module.__file__).with_name("schema.json").read_text(encoding="utf-8"))
CHECK = jsonschema.Draft202012Validator(SCHEMA)


def words(asked: dict[str, Any]) -> list[str]:
    return [part for name, value in asked.items() for part in (f"--{name.replace('_', '-')}", str(value))]


# The way


def model_of(**asked: Any) -> Model:
    return read_model(asked, read_options(asked))


def test_a_name_whose_layers_are_alike_is_planned_like_its_shape() -> None:
    """As this book's modules, unless somebody says otherwise."""
    for name in ("qwen3-8b", "smollm3-3b", "mistral-small-24b", "phi-4"):
        model, found = model_of(model=name), plan_model_exactly(model=name, **EIGHT)
        assert model.decoder is not None and model.stack == stack_of(model.decoder) and model.is_own
        told = {field: size for field, size in vars(model.decoder).items() if size}
        written = " ".join(f"{field}={'yes' if size is True else size}" for field, size in told.items())
        written += "" if model.decoder.gated else " gated=no"
        same = plan_model_exactly(shape=written, **EIGHT)
        assert found["memory_bytes"] == same["memory_bytes"] and found["step_seconds"] == same["step_seconds"]
        assert found["zero_bytes"] == same["zero_bytes"]
        assert not model_of(model=name, layers="composed").is_own


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_a_stack_and_a_stack_of_layers_alike_a_shape(name: str) -> None:
    assert model_of(model=name).decoder == SHAPES[name]


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "gemma-3-4b", "deepseek-v3"])
def test_every_family_gets_every_line(name: str) -> None:
    """What waits for the network, a checkpoint, a published MFU where there are steps of it."""
    found = plan_model_exactly(model=name, **EIGHT, tokens="1T", optimizer="paged-adamw")
    plain = plan_model_exactly(model="llama-3-8b", **EIGHT, tokens="1T", optimizer="paged-adamw")
    assert found.keys() == plain.keys() and found["wire"]["bytes"] and found["paged_bytes"]
    assert found["checkpoint_bytes"] > found["checkpoint_weights_bytes"] > 0
    assert {*dict(training_table(found))} >= {"sent by a GPU a step", "checkpoint", "longest context"}
    assert (found["published_mfu"] is None) == (name != "gemma-3-4b")


def test_one_model_alone_is_asked_for() -> None:
    two: dict[str, Any] = {"model": "gpt2", "shape": "layers=1", "gpu": "T4"}
    with pytest.raises(ValueError, match="give one of --model, --config, --shape, not model and shape"):
        plan_model_exactly(**two)
    with pytest.raises(ValueError, match=r"--model: 'gpt-9' is not known; choose gpt2, .*qwen3-0.6b, .*--shape"):
        plan_model_exactly(model="gpt-9", gpu="T4")
    with pytest.raises(ValueError, match="--config: model_type 'mamba2' is not known; not understood: the kind"):
        plan_model_exactly(config={"model_type": "mamba2"}, gpu="T4")


def test_a_decoder_in_a_larger_model_is_planned_alone() -> None:
    text = {"model_type": "mistral", "sliding_window": None, "head_dim": 16} | SMALL
    config = {"model_type": "mistral3", "text_config": text, "vision_config": {"hidden_size": 8}}
    alone = plan_model_exactly(config=text, gpu="T4", recipe="fp32")
    beside = {"estimated": [*alone["estimated"], "vision_config: left out"]}
    assert plan_model_exactly(config=config, gpu="T4", recipe="fp32") == alone | beside


# https://huggingface.co/Qwen/Qwen3-32B-FP8, config.json
QWEN_FP8 = {"model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64}
QWEN_FP8 |= {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}
FP8: dict[str, Any] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
QWEN_FP8 |= {"quantization_config": FP8 | {"weight_block_size": [128, 128]}}


AS_THE_RECIPE = "quantization_config: left out; weights are held as the recipe says"


def test_served_weights_have_the_bits_of_their_checkpoint_and_trained_ones_those_of_the_recipe() -> None:
    plain = {key: value for key, value in QWEN_FP8.items() if key != "quantization_config"}
    for asked, same, said in (
        (EIGHT, {}, [AS_THE_RECIPE]),
        (SERVED, {"weights": "8bit"}, ["quantization_config: weights in 8 bits"]),
        (SERVED | {"weights": "16bit"}, {}, []),  # who says other bits has them
    ):
        found, without = plan_model_exactly(config=QWEN_FP8, **asked), plan_model_exactly(config=plain, **asked | same)
        assert found == without | {"estimated": [*without["estimated"], *said]}
    assert found["parameters"]["total"] == 32_762_123_264  # of Qwen/Qwen3-32B
    mixtral = {"model_type": "mixtral", "quantization_config": FP8} | CASES["mixtral"][1]
    assert AS_THE_RECIPE in plan_model_exactly(config=mixtral, gpu="H100 SXM")["estimated"]
    of_lora: dict[str, Any] = {"lora": 8, "gpu": "H100 SXM", "recipe": "bf16"}
    found = plan_model_exactly(config=plain | {"quantization_config": {"load_in_4bit": True}}, **of_lora)
    without = plan_model_exactly(config=plain, base="4bit", **of_lora)
    assert found == without | {"estimated": [*without["estimated"], "quantization_config: a frozen base in 4 bits"]}


def test_a_deepseek_r1_is_served_by_eight_h200_as_it_is_published() -> None:
    config = {**PRESETS["deepseek-v3"].config, "quantization_config": FP8}
    found = plan_model_exactly(task="serve", config=config, gpu="H200 SXM", gpus=8, context=8_192)
    assert found["fits"] and found["memory_bytes"]["weights"] < 79 * 2**30
    assert not plan_model_exactly(task="serve", config=config, weights="16bit", gpu="H200 SXM", gpus=8, context=8_192)[
        "fits"
    ]
    assert plan_model_exactly(task="serve", model="deepseek-r1", gpu="H200 SXM", gpus=8, context=8_192) == found


@pytest.mark.parametrize(
    ("model", "bits"), [("kimi-k2", 8), ("deepseek-v3.2", 8), ("gpt-oss-20b", 4), ("qwen3-8b", 16)]
)
def test_a_model_by_its_name_is_served_as_it_is_published(model: str, bits: int) -> None:
    asked: dict[str, Any] = {"task": "serve", "model": model, "gpu": "H200 SXM", "gpus": 8, "context": 8_192}
    found, same = plan_model_exactly(**asked), plan_model_exactly(**asked, weights=f"{bits}bit")
    assert found["memory_bytes"] == same["memory_bytes"]


def test_a_training_unpacks_what_it_cannot_keep_packed() -> None:
    of_lora: dict[str, Any] = {"model": "gpt-oss-20b", "gpu": "H100 SXM", "recipe": "bf16"}
    assert plan_model(**of_lora, lora=16)["memory_bytes"] == plan_model(**of_lora, trained="lora")["memory_bytes"]


HOW: dict[str, tuple[dict[str, Any], int | None]] = {  # as checkpoints on Hugging Face say it
    "GPTQ": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4),
    "GPTQ of 3 bits": ({"quant_method": "gptq", "bits": 3}, None),
    "AWQ": ({"quant_method": "awq", "w_bit": 4, "version": "gemm"}, 4),
    "bitsandbytes": ({"quant_method": "bitsandbytes", "_load_in_4bit": True, "_load_in_8bit": False}, 4),
    "bitsandbytes, 8 bits": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
    "gpt-oss": ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, 4),
    "compressed-tensors": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
        8,
    ),
    "of two kinds": (
        {"config_groups": {"a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}}},
        None,
    ),
    "ModelOpt": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4),
    "a newer one": ({"quant_method": "vptq"}, None),
    "nonsense": ({"bits": [4], "config_groups": 7}, None),
}


@pytest.mark.parametrize("name", HOW)
def test_the_bits_of_a_checkpoint_are_read_or_asked_for(name: str) -> None:
    said, bits = HOW[name]
    assert bits_of(said) == bits
    config = QWEN_FP8 | {"quantization_config": said}
    if bits:
        assert (
            f"quantization_config: weights in {bits} bits" in plan_model_exactly(config=config, **SERVED)["estimated"]
        )
        return
    with pytest.raises(ValueError, match=r"--weights: quantization_config = .* is not understood; say 16bit, 8bit"):
        plan_model_exactly(config=config, **SERVED)
    assert plan_model_exactly(config=config, weights="4bit", **SERVED)["fits"] is not None


def test_what_a_checkpoint_leaves_in_16_bits_is_said_where_it_is_more_than_its_ends() -> None:
    for left, is_said in (
        (["lm_head", "model.layers.3.mlp.gate"], False),
        (["lm_head", "model.layers.*.self_attn"], True),
    ):
        said = {"quant_method": "fp8", "modules_to_not_convert": left}
        assert (
            PARTLY_NOTE in plan_model_exactly(config=QWEN_FP8 | {"quantization_config": said}, **SERVED)["estimated"]
        ) == is_said
    for words_of in ("en", "zh"):
        told = (BOOK.root / "planner" / f"{words_of}.yml").read_text(encoding="utf-8")
        assert all(f'"{text}": ' in told for text in (PARTLY_NOTE, AS_THE_RECIPE))


# https://huggingface.co/moonshotai/Kimi-K3, config.json
KIMI_K3: dict[str, Any] = {"model_type": "kimi_linear", "hidden_size": 7168, "intermediate_size": 33792}
KIMI_K3 |= {"num_hidden_layers": 93, "num_attention_heads": 96, "num_key_value_heads": 96, "vocab_size": 163840}
KIMI_K3 |= {"num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072}
KIMI_K3 |= {"first_k_dense_replace": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128}
KIMI_K3 |= {"qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": False}
KIMI_K3 |= {"activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "mla_use_nope": True}
KDA = {"num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0}
KIMI_K3 |= {
    "linear_attn_config": KDA
    | {"full_attn_layers": [*range(4, 93, 4), 93], "kda_layers": [n for n in range(1, 93) if n % 4]}
}
OF_K3 = {"attn_res_block_size": 12, "mla_use_output_gate": True, "routed_expert_hidden_size": 3584}


def test_a_kimi_k3_is_refused_for_what_is_not_counted_alone() -> None:
    """Not for the slope of an activation; and the estimate has its experts, 2.8T parameters by its model card."""
    assert "situ" not in str(plan_model_exactly(config=KIMI_K3, gpu="H100 SXM"))
    for key, value in OF_K3.items():
        with pytest.raises(ValueError, match=f"--config: {key} = {value} is not counted here; not understood: .*{key}"):
            plan_model_exactly(config=KIMI_K3 | {key: value}, gpu="H100 SXM")
    full = KIMI_K3["linear_attn_config"] | {"use_full_rank_gate": True}
    text = KIMI_K3 | OF_K3 | {"linear_attn_config": full}
    with pytest.raises(ValueError, match="--config: use_full_rank_gate = True is not counted here; not under") as told:
        plan_model_exactly(config={"model_type": "kimi_k3", "text_config": text}, gpu="H100 SXM")
    shape = re.search(r"--shape '(.*?)'", str(told.value))
    assert shape and "experts=896 active_experts=16" in shape[1]
    found = plan_model_exactly(shape=shape[1], gpu="H100 SXM")["parameters"]["total"]
    assert found == pytest.approx(2.78e12, rel=0.01)


def test_a_known_kind_whose_shape_only_a_stack_can_say() -> None:
    """A window that is shorter than the context; biases that a Decoder has not."""
    windowed = SMALL | {"model_type": "mistral", "sliding_window": 512}
    asked = {"gpu": "H100 SXM", "config": windowed}
    assert plan_model_exactly(**asked, context=512)["fits"] is True
    longer = plan_model_exactly(**asked, context=1_024)
    assert longer["fits"] is True and longer["longest_context"] > 1_024
    of_phi = SMALL | {"model_type": "phi3", "sliding_window": 512}
    assert plan_model_exactly(gpu="H100 SXM", config=of_phi, context=512)["fits"] is True
    assert plan_model_exactly(gpu="H100 SXM", config=of_phi, context=513)["peaks_at"]
    of_smollm = SMALL | {"model_type": "smollm3", "sliding_window": 512, "use_sliding_window": True}
    assert plan_model_exactly(gpu="H100 SXM", config=of_smollm, context=513)["fits"] is None
    biased = plan_model_exactly(gpu="H100 SXM", config=SMALL | {"model_type": "llama", "attention_bias": True})
    assert biased["parameters"]["attention"] == 4 * ((64 + 1) * (64 + 2 * 32) + (64 + 1) * 64)
    with pytest.raises(ValueError, match="--config: hidden_size = 'x'; a mistral needs a whole number"):
        plan_model_exactly(gpu="H100 SXM", config=windowed | {"hidden_size": "x"})


@pytest.mark.parametrize("kind", ["smollm3", "granite"])
def test_a_configuration_that_keeps_what_a_llama_keeps(kind: str) -> None:
    asked = {"gpu": "H100 SXM", "context": 512, "layers": "composed"}
    found = plan_model_exactly(config=SMALL | {"model_type": kind}, **asked)
    llama = plan_model_exactly(
        config=SMALL | {"model_type": "llama", "tie_word_embeddings": kind == "smollm3"}, **asked
    )
    assert found["memory_bytes"] == llama["memory_bytes"] and found["estimated"] == llama["estimated"]


# Training


def test_training_says_what_it_takes_at_least() -> None:
    """DeepSeek-V3's own run: 14.8T tokens on 2,048 H800s."""
    asked = {"model": "deepseek-v3", "gpu": "H800 SXM", "gpus": 2_048, "zero": 3, "context": 4_096, "tokens": "14.8T"}
    found, stack = plan_model_exactly(**asked), read_stack(PRESETS["deepseek-v3"].config)
    total = sum(parameters(stack).values())
    assert found["parameters"]["total"] == found["parameters"]["trained"] == total
    assert found["parameters"]["predicting"] > 0
    share = {part: -(-each * total // 2_048) for part, each in (("weights", 2), ("master", 4))}
    assert {part: found["memory_bytes"][part] for part in share} == share
    assert found["memory_bytes"]["optimizer"] == -(-8 * total // 2_048)
    assert found["fits"] is False  # a GPU gathers layers with all of their experts, which they spread
    assert found["headroom_bytes"] == ROWS["H800 SXM"].memory_bytes - found["memory_bytes"]["total"]
    forward = sum(forward_flops(stack, 4_096).values())
    flops = found["flops_a_token"]["all"]
    assert flops["model"] == pytest.approx(3 * forward / 4_096)
    assert flops["device"] == pytest.approx((forward + sum(backward_flops(stack, 4_096).values())) / 4_096)
    assert found["training_flops"] == pytest.approx(3 * forward / 4_096 * 14.8e12)
    assert found["gpu_hours"] >= found["training_flops"] / (0.4 * 989.5e12) / 3_600  # and waits
    assert found["estimated"][0] == "sharding" and "experts: all of a layer on each GPU" in found["estimated"]


def test_where_activations_are_not_derived_the_least_is_said() -> None:
    asked: dict[str, Any] = {
        "model": "kimi-linear-48b-a3b",
        "gpu": "H100 SXM",
        "gpus": 64,
        "zero": 3,
        "allowance": "1GB",
    }
    found, total = (
        plan_model_exactly(**asked),
        sum(parameters(read_stack(PRESETS["kimi-linear-48b-a3b"].config)).values()),
    )
    each = {"weights": 2, "gradients": 2, "master": 4, "optimizer": 8}
    held = {part: -(-size * total // 64) for part, size in each.items()}
    assert found["memory_bytes"] == held | {"allowance": 10**9, "total": sum(held.values()) + 10**9}
    assert found["fits"] is None and found["peaks_at"] is None
    assert (
        "activations: not derived (what linear attention keeps, as of a kimi_linear, depends on its kernels)"
        in found["estimated"]
    )
    in_float32 = plan_model_exactly(model="gpt-oss-20b", gpu="H100 SXM", gpus=64, zero=2, recipe="autocast")
    assert in_float32["peaks_at"] is None and "grouped matmul takes 16 bits alone" in in_float32["estimated"][0]


def test_a_step_that_is_derived_has_a_verdict() -> None:
    found, stack = plan_model_exactly(model="qwen3-30b-a3b", **EIGHT), read_stack(PRESETS["qwen3-30b-a3b"].config)
    at = sharded_moments(stack, step_bytes(stack, FAMILIES["qwen3_moe"], StepConfig(4_096)), "bf16_master", 8, 3)
    most = max(at, key=lambda moment: sum(at[moment].values()))
    assert found["peaks_at"] == most and found["memory_bytes"] == at[most] | {
        "allowance": 10**9,
        "total": sum(at[most].values()) + 10**9,
    }
    assert (
        found["fits"] is False and plan_model_exactly(model="qwen3-30b-a3b", **EIGHT | {"gpu": "B200"})["fits"] is True
    )
    assert found["wire"]["bytes"] == sum(sent_parts(stack, "bf16_master", 8, 3).values())
    fewest = found["fewest_gpus"]
    for gpus, fits in ((fewest, True), (fewest - 1, False)):
        assert plan_model_exactly(model="qwen3-30b-a3b", **EIGHT | {"gpus": gpus})["fits"] is fits
    longest = plan_model_exactly(model="qwen3-30b-a3b", **EIGHT | {"gpus": fewest})["longest_context"]
    for context, fits in ((longest, True), (longest + 1, False)):
        assert plan_model_exactly(model="qwen3-30b-a3b", **EIGHT | {"gpus": fewest, "context": context})["fits"] is fits


def test_what_is_gathered_is_cast_before() -> None:
    asked = {"model": "gemma-3-4b", "recipe": "autocast"} | EIGHT
    found, in_16_bits = plan_model_exactly(**asked), plan_model_exactly(**asked | {"recipe": "bf16-master"})
    kept = ("activations", "layer", "logits")
    assert {line: found["memory_bytes"][line] for line in kept} == {
        line: in_16_bits["memory_bytes"][line] for line in kept
    }
    assert (
        plan_model_exactly(**asked | {"zero": 2})["memory_bytes"]["activations"] > found["memory_bytes"]["activations"]
    )


def test_zero_cuts_one_more_with_each_stage() -> None:
    found = plan_model_exactly(model="qwen3-next-80b-a3b", **EIGHT)
    total = found["parameters"]["total"]
    assert found["zero_bytes"] == {
        stage: (16 - cut) * total + -(-cut * total // 8) + 10**9 for stage, cut in enumerate((0, 12, 14, 16))
    }


def test_recomputation_goes_forward_once_more() -> None:
    once, again = (
        plan_model_exactly(model="gemma-3-4b", checkpointing=kind, **EIGHT)["flops_a_token"]["all"]
        for kind in ("none", "full")
    )
    forward = forward_flops(read_stack(PRESETS["gemma-3-4b"].config), 4_096)
    assert again["again"] == pytest.approx((sum(forward.values()) - forward["head"]) / 4_096)
    assert again["device"] - once["device"] == pytest.approx(again["again"]) and once["again"] == 0


def test_what_is_not_even_held_does_not_fit() -> None:
    found = plan_model_exactly(model="kimi-k2", gpu="H100 SXM", gpus=8, zero=3)
    assert found["fits"] is False and found["headroom_bytes"] < 0


def test_a_speed_that_was_told_is_taken() -> None:
    asked = {"model": "gpt-oss-20b"} | EIGHT
    found = plan_model_exactly(**asked, tokens_per_second=50_000, days=2)
    assert (found["tokens_per_second"], found["mfu_is_assumed"]) == (pytest.approx(50_000), False)
    assert found["tokens"] == pytest.approx(2 * 86_400 * 50_000)
    assert plan_model_exactly(**asked, step_seconds=2)["tokens_per_second"] == 8 * 4_096 / 2
    assert plan_model_exactly(**asked, mfu=0.3)["mfu"] == pytest.approx(0.3)
    with pytest.raises(ValueError, match=r"--tokens-per-second: the GPUs would do .* times their peak"):
        plan_model_exactly(**asked, tokens_per_second=10**7)


ASKED: dict[str, Any] = {"quantized_by": "torchao", "optimizer": "muon", "reduce_bucket": 9, "layers": "fused"}
ASKED |= {"offload": "yes", "update": "foreach", "dropout": "0.1", "checkpoint_every": 2, "reentrant": "yes"}
ASKED |= {"loss": "shifted", "sharding_by": "fsdp1", "lora": 8, "lora_on": "attention", "trained": "lora", "chunks": 2}
ASKED |= {"lora_inputs": "float32", "lora_dropout": "yes", "qkv_made": "one", "matmuls": "fp8", "base": "4bit"}
ASKED |= {"checkpointing": "selective"}


@pytest.mark.parametrize("name", ["sharding_by", "quantized_by", "qkv_made"])
def test_what_only_a_derivation_could_answer_is_refused(name: str) -> None:
    beside = {"lora": 8, "base": "4bit"} if name == "quantized_by" else {}
    with pytest.raises(ValueError) as refusal:
        plan_model_exactly(model="deepseek-v3", **EIGHT, **{name: ASKED[name]} | beside)
    why = "what a training step of a deepseek_v3 holds with it is not derived"
    assert str(refusal.value) == f"--{name.replace('_', '-')}: {why}; leave it out"


@pytest.mark.parametrize(
    ("name", "why"), [("optimizer", "muon is counted for whole dense models"), ("layers", "this book has no modules")]
)
def test_what_is_of_layers_alike_is_refused_for_others(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"--{name}: {why}"):
        plan_model_exactly(model="gpt-oss-20b", **EIGHT, **{name: ASKED[name]})


@pytest.mark.parametrize("name", TRAINING_OPTIONS)
def test_of_a_kind_that_is_not_derived_no_option_is_answered_that_changes_what_a_step_holds(name: str) -> None:
    why = "this book has no modules" if name == "layers" else "what a training step of a kimi_linear holds with it is"
    # or what it needs, which is not there
    beside = "nothing has|whole layers|adapters|DeepSpeed's|nothing in 4 bits|cannot be frozen|is sharded by"
    with pytest.raises(ValueError, match=f"{why}|{beside}"):
        plan_model_exactly(model="kimi-linear-48b-a3b", **EIGHT, **{name: ASKED[name]})


# Options of layers that differ, beside a plain step


OTHER: dict[str, tuple[dict[str, Any], bool]] = {  # and whether it holds less
    "selective": ({"checkpointing": "selective", "attention": "eager"}, True),
    "per-op": ({"checkpointing": "per-op"}, True),
    "every second": ({"checkpointing": "full", "checkpoint_every": 2}, True),
    "reentrant": ({"checkpointing": "full", "reentrant": "yes"}, True),
    "float32": ({"recipe": "fp32"}, False),
    "dropout": ({"dropout": 0.1, "attention": "eager"}, False),
    "offload": ({"offload": "yes"}, True),
    "offload all": ({"offload": "all"}, True),
    "moments in bf16": ({"optimizer": "adamw-bf16"}, True),
    "moments in 4 bits": ({"optimizer": "adamw-4bit"}, True),
    "logits held": ({"loss": "logits-held"}, False),
    "fp8, kept": ({"matmuls": "fp8-kept"}, False),
}


@pytest.mark.parametrize("name", OTHER)
def test_an_option_changes_what_a_step_holds(name: str) -> None:
    asked, is_less = OTHER[name]
    of_attention = {"attention": asked.get("attention", "fused")}
    plain, found = (plan_model_exactly(model="gemma-3-4b", **EIGHT, **each) for each in (of_attention, asked))
    more = found["memory_bytes"]["total"] - plain["memory_bytes"]["total"]
    assert more < 0 if is_less else more > 0
    again = found["flops_a_token"]["all"]["again"]
    assert (again > 0) == ("checkpointing" in asked)
    if "offload" in asked:
        held = found["host_bytes"]
        assert held["optimizer"] == 2 * held["master"] and held["total"] > held["optimizer"] + held["master"]
    if "matmuls" in asked:
        assert found["step_seconds"] < plain["step_seconds"]


def test_what_is_not_derived_together_is_refused() -> None:
    for asked, why in (
        ({"update": "in-backward"}, "--update: in-backward is counted for one GPU"),
        ({"matmuls": "fp8", "lora": 8}, "--matmuls: fp8 is counted for all weights of dense models"),
        ({"offload": "all", "zero": 2}, "--offload: all is of weights that are gathered"),
    ):
        with pytest.raises(ValueError, match=why):
            plan_model_exactly(model="gemma-3-4b", **EIGHT | asked)


def test_experts_are_trained_under_autocast_where_weights_are_gathered_and_so_cast_before() -> None:
    asked = {"model": "qwen3-30b-a3b", "recipe": "autocast", "checkpointing": "full"} | EIGHT | {"context": "32k"}
    found, in_16_bits = plan_model_exactly(**asked), plan_model_exactly(**asked | {"recipe": "bf16-master"})
    assert found["peaks_at"] == in_16_bits["peaks_at"] == "loss"
    assert found["memory_bytes"]["activations"] == in_16_bits["memory_bytes"]["activations"] > 0
    assert plan_model_exactly(**asked | {"zero": 2})["peaks_at"] is None


def test_dropout_is_what_a_configuration_says_or_what_is_asked() -> None:
    config = SMALL | {"model_type": "seed_oss", "head_dim": 16, "residual_dropout": 0.0}
    asked = {"gpu": "H100 SXM", "context": 512, "attention": "eager"}
    held = {
        share: plan_model_exactly(config=config | {"attention_dropout": share}, **asked)["memory_bytes"]["total"]
        for share in (0.0, 0.1)
    }
    told = plan_model_exactly(config=config | {"attention_dropout": 0.1}, **asked, dropout=0)["memory_bytes"]["total"]
    assert held[0.1] > held[0.0] == told


# Serving


def test_latents_are_on_each_gpu_and_states_do_not_grow() -> None:
    stack = read_stack(PRESETS["deepseek-v3"].config)
    found = plan_model_exactly(model="deepseek-v3", **SERVED | {"gpus": 16}, weights="8bit")
    assert found["user_bytes"] == 16 * cache_bytes(stack, 8_192)
    assert found["token_bytes"] == 16 * 61 * 576 * 2
    following = plan_model_exactly(model="kimi-linear-48b-a3b", **SERVED)
    assert following["token_bytes"] == 8 * 7 * 576 * 2
    assert following["users_that_fit"] > found["users_that_fit"] > 0


def test_a_bound_by_hand() -> None:
    """gpt-oss 20B on one H100, one user: its active weights, and half of its layers' keys of a short window."""
    asked: dict[str, Any] = {
        "model": "gpt-oss-20b",
        "gpu": "H100 SXM",
        "context": 1_000,
        "users": 1,
        "weights": "16bit",
    }
    found = plan_model_exactly(task="serve", gpu_memory_utilization=0.95, **asked)
    stack = read_stack(PRESETS["gpt-oss-20b"].config)
    active = sum(parameters(stack, active=True).values()) - 201_088 * 2_880
    # of experts on average a token's share of the matrices, and of their biases
    kept = 12 * 2 * 8 * 64 * 2 * (1_000 + 128)
    assert found["token_seconds"] == pytest.approx((2 * active + kept) / 3.35e12, rel=1e-6)
    assert found["user_bytes"] == kept
    assert decode_flops(stack, 1, 1_000) < found["token_seconds"] * 989e12


def test_gpus_have_to_share_all_heads() -> None:
    assert sharing_gpus(read_stack(PRESETS["qwen3-next-80b-a3b"].config)) == [1, 2, 4, 8, 16]
    with pytest.raises(ValueError, match="--gpus: 3 do not share the heads evenly; choose 1, 2, 4, 8, 16"):
        plan_model_exactly(model="qwen3-next-80b-a3b", **SERVED | {"gpus": 3})
    with pytest.raises(ValueError, match="--gpu-bandwidth: serving waits for memory"):
        plan_model_exactly(task="serve", model="gpt-oss-20b", gpu_memory="80GB", gpu_peak="989T")
    with pytest.raises(ValueError, match="--prompt: it is longer than the context of 8192"):
        plan_model_exactly(model="gpt-oss-20b", **SERVED, prompt=9_000)


# The command


def questions_of(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A training and a serving of it."""
    most = max(sharing_gpus(read_stack(PRESETS[name].config))[:4])
    return EIGHT | {"model": name}, SERVED | {"model": name, "gpus": most}


@pytest.mark.parametrize("name", PRESETS)
def test_each_name_is_planned_and_served(name: str) -> None:
    total = sum(parameters(read_stack(PRESETS[name].config)).values())
    for asked in questions_of(name):
        found = plan(meters=False, **asked)
        CHECK.validate(json.loads(json.dumps({"asked": asked, "found": found})))
        assert found["parameters"]["total"] == total
        table = lines_of(**asked)
        assert f"{total:,}" in table and not re.search(r"by published rates +--", table)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", PRESETS)
def test_the_command_answers_a_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what three meters will show, which is what takes long."""
    for asked in questions_of(name):
        status = main([*words(asked), "--json"])
        answer = json.loads(capsys.readouterr().out)
        CHECK.validate(answer)
        assert status == {True: 0, False: 3, None: 4}[answer["found"]["fits"]]
        assert (answer["found"]["meters"] is not None) == (answer["found"].get("peaks_at") is not None)


@pytest.mark.parametrize("name", FOUND)
def test_a_published_configuration_is_planned(name: str, tmp_path: Path) -> None:
    """From its file."""
    config = FOUND[name][3]
    (file := tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    table = lines_of(config=str(file), gpu="H100 SXM", gpus=512, zero=3)
    assert f"{sum(parameters(read_stack(config)).values()):,}" in table
    if config.get("vision_config"):
        assert "vision_config: left out" in table
    if config.get("quantization_config"):
        assert AS_THE_RECIPE in table


@pytest.mark.parametrize("kind", ["llama", "olmo2"])
def test_a_configuration_is_read_from_a_pipe(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which can be read once."""
    reading, writing = os.pipe()
    os.write(writing, json.dumps(SMALL | {"model_type": kind}).encode())
    os.close(writing)
    assert main(["--config", f"/dev/fd/{reading}", "--gpu", "H100 SXM"]) in (0, 4)
    os.close(reading)
    assert "all weights of this model on H100 SXM" in capsys.readouterr().out


def test_what_has_no_end_is_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    (large := tmp_path / "large").write_bytes(b" " * (2**24 + 1))
    for path, why in (
        ("/dev/zero", "'/dev/zero' cannot be read as JSON (it is no file); give a config.json"),
        (large, "it has more than 16,777,216 bytes"),
        (pipe, "--config: it is empty; give a decoder's config.json"),  # to which nobody writes
        (tmp_path, "Is a directory"),
    ):
        assert main(["--config", str(path), "--gpu", "L4"]) == 2
        assert why in capsys.readouterr().err


def test_a_configuration_is_read_as_transformers_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With Infinity, with the mark that Windows' editors begin a file with; of two keys of one name the last stands."""
    file, held = tmp_path / "config.json", json.dumps(SMALL | {"model_type": "olmo2"})
    told = []
    for text in (held, "\ufeff" + held, held[:-1] + ', "time_step_limit": [0.0, Infinity, -Infinity, NaN]}'):
        file.write_text(text, encoding="utf-8")
        main(["--config", str(file), "--gpu", "L4", "--json"])
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1] == told[2]
    file.write_text('{"hidden_size": 1, ' + held[1:], encoding="utf-8")
    main(["--config", str(file), "--gpu", "L4", "--json"])
    assert json.loads(capsys.readouterr().out) == told[0]


def test_what_is_not_understood_is_listed_by_what_it_is_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "config.json").write_text(json.dumps(SMALL | {"model_type": "new", "moe_topk": [8], "mtp": 1}))
    assert main(["--config", str(file), "--gpu", "L4", "--json"]) == 2
    out, err = capsys.readouterr()
    found = json.loads(out)["not_understood"]
    assert [*found.values()] == [["model_type"], ["moe_topk"], ["mtp"]]
    lines = err.splitlines()
    assert lines[0] == "flops-bytes plan: --config: model_type 'new' is not known. No answer, for it is not understood:"
    assert lines[1:-1] == [f"  {about}: {', '.join(keys)}" for about, keys in found.items()]
    assert lines[-1].startswith("A guess, which may be many times off, without these: --shape 'layers=4 d_model=64")


def test_a_mistake_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "config.json").write_text(
        json.dumps(CASES["gpt_oss"][1] | {"model_type": "gpt_oss", "mlp_rank": 4})
    )
    assert main(["--config", str(file), "--gpu", "T4"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("flops-bytes plan: --config: mlp_rank = 4 is not counted here. No answer, for it is not")
    assert (
        "\n  the MLP: mlp_rank\nA guess, which may be many times off, without these and sliding_window: --shape" in told
    )


def test_help_names_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help", "all"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in PRESETS) and "4 if only the least" in " ".join(told.split())


def test_a_model_with_experts_gets_the_method_that_fits() -> None:
    found = plan_model(model="qwen3-30b-a3b", gpu="RTX 4090")
    assert found["trained"] == found["assumed"]["trained"] == "qlora-double" and found["fits"]
    assert "experts: without adapters" in found["estimated"]
    found = plan_model(model="gemma-3-27b", gpu="H100 SXM", gpus=2)
    assert found["trained"] == "lora" and found["verdict"] == "fits with room"
