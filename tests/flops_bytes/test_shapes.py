"""Shapes by name have the parameters of their makers' models; a configuration those of the model that it makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from flops_bytes.model.shapes import SHAPES, Decoder, decoder_from_config, parameters, window
from ledger.site.check import configured_device
from ledger.site.quote import Values, open_source
from tests.tables import BOOK

PUBLISHED = {  # of the checkpoints on Hugging Face
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
}
HEADS = {  # of queries and of keys, and features of each: no count of parameters tells them apart
    "gpt2": (12, 12, 64),
    "gpt2-medium": (16, 16, 64),
    "gpt2-large": (20, 20, 64),
    "gpt2-xl": (25, 25, 64),
    "llama-3-8b": (32, 8, 128),
    "llama-3-70b": (64, 8, 128),
    "llama-3.1-405b": (128, 8, 128),
    "llama-3.2-1b": (32, 8, 64),
    "mistral-7b": (32, 8, 128),
    "mixtral-8x7b": (32, 8, 128),
}
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 3, "vocab_size": 100, "n_positions": 32}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "gpt2, no head of its own": GPT2 | {"tie_word_embeddings": False, "n_inner": 80},
    "llama": SMALL | {"model_type": "llama"},
    "llama, tied": SMALL | {"model_type": "llama", "tie_word_embeddings": True},
    "llama, biased": SMALL | {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 24},
    "mistral": SMALL | {"model_type": "mistral"},
    "qwen2": SMALL | {"model_type": "qwen2"},
    "qwen3": SMALL | {"model_type": "qwen3", "head_dim": 24},
    "mixtral": SMALL | {"model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 3},
}


def test_shapes_by_name_are_those_of_their_makers() -> None:
    assert {name: sum(parameters(shape).values()) for name, shape in SHAPES.items()} == PUBLISHED
    assert {name: (s.heads, s.kv_heads, s.head_dim) for name, s in SHAPES.items()} == HEADS
    assert {name for name, shape in SHAPES.items() if shape.positions} == {name for name in SHAPES if "gpt" in name}
    assert {name: s.active_experts for name, s in SHAPES.items() if s.experts > 1} == {"mixtral-8x7b": 2}
    active = sum(parameters(SHAPES["mixtral-8x7b"], active=True).values())
    assert active == PUBLISHED["mixtral-8x7b"] - 6 * 3 * 32 * 4_096 * 14_336  # six of eight experts


@pytest.mark.parametrize(("model", "name"), [("gpt2", "gpt2"), ("llama", "llama-3-8b")])
def test_the_table_of_letters_has_the_sizes_of_the_shapes(model: str, name: str) -> None:
    values, shape = Values(open_source(BOOK, configured_device(BOOK), local=False)), SHAPES[name]
    letters = values[f"gpt2_parameters.letters.{model}"]
    sizes = {"L": shape.layers, "d": shape.d_model, "H": shape.heads, "G": shape.kv_heads, "Q": shape.head_dim}
    sizes |= {"f": shape.d_ff, "V": shape.vocab}
    assert letters == sizes | {"T": values[f"activations.CONTEXT.{model}"]}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_configuration_has_the_parameters_of_its_model(config: dict[str, Any]) -> None:
    theirs = CONFIG_MAPPING[config["model_type"]](**{k: v for k, v in config.items() if k != "model_type"})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(theirs)
    shape = decoder_from_config(theirs.to_dict(), 16)
    assert sum(parameters(shape).values()) == sum(parameter.numel() for parameter in model.parameters())
    named = dict(model.named_parameters())
    parts = parameters(shape)
    vectors = {name: weight.numel() for name, weight in named.items() if "norm" in name or ".ln_" in name}
    assert parts["norms"] == sum(vectors.values())
    assert parts["head"] == sum(weight.numel() for name, weight in named.items() if name.startswith("lm_head"))
    mlp = [weight for name, weight in named.items() if "mlp" in name and "gate.weight" not in name]
    assert parts["mlp"] == sum(weight.numel() for weight in mlp)
    if config["model_type"] == "mixtral":
        assert (shape.experts, shape.active_experts) == (5, 3)


def test_what_a_configuration_leaves_out_is_what_its_library_takes() -> None:
    configs: list[dict[str, Any]] = [
        {k: v for k, v in SMALL.items() if "key_value" not in k} | {"model_type": "llama"},
        GPT2,
    ]
    for config in configs:
        theirs = CONFIG_MAPPING[config["model_type"]](**{k: v for k, v in config.items() if k != "model_type"})
        assert decoder_from_config(config, 16) == decoder_from_config(theirs.to_dict(), 16)
    assert (
        decoder_from_config(
            {k: v for k, v in SMALL.items() if "key_value" not in k} | {"model_type": "llama"}, 16
        ).kv_heads
        == 4
    )


def test_a_window_is_used_where_its_library_uses_it() -> None:
    for kind, uses in (("mistral", True), ("mixtral", True), ("qwen2", False), ("llama", False)):
        assert window({"model_type": kind, "sliding_window": 512}) == (512 if uses else None)
        assert window({"model_type": kind, "sliding_window": 512, "use_sliding_window": not uses}) != (
            512 if uses else None
        )
    windowed = CONFIGS["mistral"] | {"sliding_window": 512}
    assert isinstance(decoder_from_config(windowed, 512), Decoder)
    with pytest.raises(ValueError, match="--context 512 or less"):
        decoder_from_config(windowed, 513)
