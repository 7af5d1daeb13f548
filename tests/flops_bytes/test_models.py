"""Our GPT-2 and Llama are transformers' models: as many parameters, and with the same weights the same logits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedModel

from flops_bytes.lessons.models import (
    GPT2_LARGE,
    GPT2_MEDIUM,
    GPT2_SMALL,
    GPT2_XL,
    LLAMA_3_1_405B,
    LLAMA_3_2_1B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    ROTARY_BASE,
    build,
    eager,
    fused,
    llama,
)
from flops_bytes.model.shapes import Decoder, parameters

if TYPE_CHECKING:  # it takes seconds to load: only those who run these tests need it
    from transformers import GPT2Config, LlamaConfig, PreTrainedModel

SHAPES = {  # and the parameters that their makers' checkpoints hold
    "gpt2": (GPT2_SMALL, 124_439_808),
    "gpt2_medium": (GPT2_MEDIUM, 354_823_168),
    "gpt2_large": (GPT2_LARGE, 774_030_080),
    "gpt2_xl": (GPT2_XL, 1_557_611_200),
    "llama_3_8b": (LLAMA_3_8B, 8_030_261_248),
    "llama_3_70b": (LLAMA_3_70B, 70_553_706_496),
    "llama_3_1_405b": (LLAMA_3_1_405B, 405_853_388_800),
    "llama_3_2_1b": (LLAMA_3_2_1B, 1_235_814_400),
}
SMALL_LLAMA = replace(llama(64, 3, 4, 96, head_dim=16), kv_heads=2, vocab=101)
OUR_NAMES = {  # of transformers' modules
    "transformer.wte": "embedding",
    "transformer.wpe": "positions",
    "transformer.h": "blocks",
    "transformer.ln_f": "norm",
    "ln_1": "attention_norm",
    "attn.c_attn": "qkv",
    "attn.c_proj": "out",
    "ln_2": "mlp_norm",
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
    "lm_head": "head",
    "model.embed_tokens": "embedding",
    "model.layers": "blocks",
    "model.norm": "norm",
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "out",
    "post_attention_layernorm": "mlp_norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}


def config(shape: Decoder) -> GPT2Config | LlamaConfig:
    from transformers import GPT2Config, LlamaConfig

    if shape.positions:
        return GPT2Config(
            vocab_size=shape.vocab,
            n_positions=shape.positions,
            n_embd=shape.d_model,
            n_layer=shape.layers,
            n_head=shape.heads,
        )
    return LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.d_ff,
        tie_word_embeddings=shape.tied,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE},
    )


def library_model(shape: Decoder, device: str) -> PreTrainedModel:

    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config(shape))
    model.eval()
    return model


def carried_over(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Its weights under our names; GPT-2's are (inputs, outputs) there."""
    weights = {}
    for name, weight in model.state_dict().items():
        transposed = weight.dim() == 2 and any(part in name for part in ("c_attn", "c_proj", "c_fc"))
        for theirs, ours in OUR_NAMES.items():
            name = name.replace(theirs, ours)
        weights[name] = weight.T if transposed else weight
    return weights


@pytest.mark.parametrize(("shape", "published"), SHAPES.values(), ids=SHAPES)
def test_it_has_as_many_parameters(shape: Decoder, published: int) -> None:
    ours = sum(parameter.numel() for parameter in build(shape).parameters())
    theirs = sum(parameter.numel() for parameter in library_model(shape, "meta").parameters())
    assert ours == theirs == published == sum(parameters(shape).values())


@pytest.mark.drawn(1)
@pytest.mark.parametrize("shape", [GPT2_SMALL, SMALL_LLAMA], ids=["gpt2", "llama"])
def test_with_the_same_weights_it_gives_the_same_logits(shape: Decoder) -> None:
    torch.manual_seed(0)
    theirs = library_model(shape, "cpu")
    for name, parameter in theirs.named_parameters():
        if parameter.dim() == 1:  # norms and biases are 1 and 0 at first, which would hide a mistake
            torch.nn.init.normal_(parameter.data, mean=float("ln" in name or "norm" in name), std=0.1)
    tokens = torch.randint(shape.vocab, (2, 64))
    with torch.no_grad():
        expected = theirs(tokens).logits
        for attend in (fused, eager):
            ours = build(shape, attend)
            ours.load_state_dict(carried_over(theirs), assign=True)
            torch.testing.assert_close(ours(tokens), expected, rtol=1e-5, atol=1e-5)
