# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "transformers"]
# ///
"""Every parameter of GPT-2 by hand, then against transformers' own model."""

from collections import Counter
from typing import NamedTuple

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    OpenAIGPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

# --8<-- [start:formula]
VOCABULARY = 256 + 50_000 + 1  # V: bytes, merges, the end of a text
CONTEXT = 1_024  # T, the most tokens that it can read


def count_gpt2(d: int, L: int, V: int = VOCABULARY, T: int = CONTEXT) -> int:
    """Vd + Td + L(12d² + 13d) + 2d"""
    attention = (d * 3 * d + 3 * d) + (d * d + d)  # queries, keys, values; output
    mlp = (d * 4 * d + 4 * d) + (4 * d * d + d)  # up; down
    norms = 2 * 2 * d  # two, of a scale and a shift each
    return V * d + T * d + L * (attention + mlp + norms) + 2 * d


print(f"GPT-2 small: {count_gpt2(d=768, L=12):,}")
# --8<-- [end:formula]


class Shape(NamedTuple):
    """What tells one GPT-2 from another."""

    d_model: int  # d, the width
    num_layers: int  # L, the number of blocks
    num_heads: int  # H; they split d, so no count depends on it


SHAPES = {
    "small": Shape(768, 12, 12),
    "medium": Shape(1_024, 24, 16),
    "large": Shape(1_280, 36, 20),
    "xl": Shape(1_600, 48, 25),
}


def count_block(d: int) -> dict[str, int]:
    """Parameters of one block: matrices (inputs × outputs) and their biases."""
    return {
        "qkv": d * 3 * d + 3 * d,  # queries, keys and values
        "out": d * d + d,  # the heads' results, mixed
        "up": d * 4 * d + 4 * d,
        "down": 4 * d * d + d,
        "norms": 2 * 2 * d,  # two, of a scale and a shift each
    }


def count_by_formula(shape: Shape, vocabulary: int = VOCABULARY, context: int = CONTEXT) -> int:
    return count_gpt2(shape.d_model, shape.num_layers, vocabulary, context)


def count_parts(shape: Shape) -> dict[str, int]:
    """Parameters of each part of a GPT-2."""
    d, num_layers, _ = shape
    block = count_block(d)
    return {
        "tokens": VOCABULARY * d,
        "positions": CONTEXT * d,
        "attention": num_layers * (block["qkv"] + block["out"]),
        "mlp": num_layers * (block["up"] + block["down"]),
        "norms": num_layers * block["norms"],
        "final_norm": 2 * d,
        "head": 0,  # tied: it is the matrix of tokens once more
    }


block_parameters = count_block(SHAPES["small"].d_model)
part_parameters = {size: count_parts(shape) for size, shape in SHAPES.items()}
total_parameters = {size: sum(part_parameters[size].values()) for size in SHAPES}


# --8<-- [start:transformers]
def build(config: PretrainedConfig) -> PreTrainedModel:
    """The library's model, on a device where tensors have no data."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


def counted(model: torch.nn.Module) -> int:
    """How many parameters a model has; a shared one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


for d, L, H in ((768, 12, 12), (1_024, 24, 16), (1_280, 36, 20), (1_600, 48, 25)):
    library = counted(build(GPT2Config(n_embd=d, n_layer=L, n_head=H)))
    print(f"{library:13,}  {library == count_gpt2(d, L)}")
# --8<-- [end:transformers]


# --8<-- [start:parts]
parts: Counter[str] = Counter()
for name, parameter in build(GPT2Config()).named_parameters():
    parts[name.split(".")[1]] += parameter.numel()
print(dict(parts))
# --8<-- [end:parts]
assert sum(parts.values()) == count_gpt2(d=768, L=12) and parts["h"] == 12 * (12 * 768**2 + 13 * 768)


def gpt2_config(shape: Shape, tied: bool = True) -> GPT2Config:
    return GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        n_embd=shape.d_model,
        n_layer=shape.num_layers,
        n_head=shape.num_heads,
        tie_word_embeddings=tied,
    )


models = {size: build(gpt2_config(shape)) for size, shape in SHAPES.items()}
library_parameters = {size: counted(models[size]) for size in SHAPES}

PART_OF = {  # the library's names
    "wte": "tokens",
    "wpe": "positions",
    "attn": "attention",
    "mlp": "mlp",
    "ln_1": "norms",
    "ln_2": "norms",
    "ln_f": "final_norm",
}


def count_by_part(model: torch.nn.Module, part_of: dict[str, str] = PART_OF) -> dict[str, int]:
    found: Counter[str] = Counter({"head": 0})
    for name, parameter in model.named_parameters():
        (part,) = (part_of[word] for word in name.split(".") if word in part_of)
        found[part] += parameter.numel()
    return dict(found)


for size, model in models.items():
    assert count_by_part(model) == part_parameters[size]
for shape in SHAPES.values():
    per_block = 12 * shape.d_model**2 + 13 * shape.d_model
    assert sum(count_block(shape.d_model).values()) == per_block
    assert count_by_formula(shape) == sum(count_parts(shape).values())
assert library_parameters == total_parameters
for module in models["small"].modules():
    if type(module).__name__ in ("Dropout", "NewGELUActivation"):
        assert counted(module) == 0

block_shapes = {
    name.removeprefix("transformer.h.0."): tuple(parameter.shape)
    for name, parameter in models["small"].named_parameters()
    if ".h.0." in name
}
assert block_shapes["attn.c_attn.weight"] == (768, 3 * 768)  # inputs × outputs
width, num_blocks, _ = SHAPES["small"]
blocks_parameters = num_blocks * (12 * width**2 + 13 * width)
without_final_norm_parameters = (VOCABULARY + CONTEXT) * width + blocks_parameters
missing_parameters = library_parameters["small"] - without_final_norm_parameters
assert without_final_norm_parameters != library_parameters["small"]
assert missing_parameters == part_parameters["small"]["final_norm"] == 2 * width

small = models["small"]
tokens, head = small.get_input_embeddings(), small.get_output_embeddings()
is_tied = head.weight is tokens.weight
untied_parameters = counted(build(gpt2_config(SHAPES["small"], tied=False)))
assert is_tied
assert untied_parameters == total_parameters["small"] + VOCABULARY * width

# what a count says, and what it is off by
non_embedding_parameters = blocks_parameters + 2 * width
wrong_counts = {
    "final_norm": without_final_norm_parameters,
    "positions": total_parameters["small"] - CONTEXT * width,
    "padded": count_by_formula(SHAPES["small"], vocabulary=50_304),
    "head": untied_parameters,
    "embeddings": non_embedding_parameters,
}
off_by = {n: wrong - total_parameters["small"] for n, wrong in wrong_counts.items()}
assert off_by["embeddings"] == -(VOCABULARY + CONTEXT) * width

part_share = {
    size: {part: count / total_parameters[size] for part, count in parts.items()}
    for size, parts in part_parameters.items()
}


# --8<-- [start:llama]
def count_llama(V: int, d: int, L: int, H: int, G: int, f: int) -> int:
    """2Vd + L(2dHQ + 2dGQ + 3df + 2d) + d"""
    Q = d // H
    attention = 2 * d * H * Q + 2 * d * G * Q  # queries, output; keys, values
    mlp = 3 * d * f  # gate, up, down
    return V * d + L * (attention + mlp + 2 * d) + d + V * d


llama_parameters = count_llama(V=128_256, d=4_096, L=32, H=32, G=8, f=14_336)
print(f"Llama 3 8B: {llama_parameters:,}")
# --8<-- [end:llama]


class LlamaShape(NamedTuple):
    """What tells one Llama from another."""

    vocabulary: int  # V
    d_model: int  # d
    num_layers: int  # L
    num_heads: int  # of queries
    num_kv_heads: int  # of keys and values
    hidden: int  # f, the MLP's inner width


LLAMA_3_8B = LlamaShape(128_256, 4_096, 32, 32, 8, 14_336)


def llama_config(
    shape: LlamaShape, family: type[PretrainedConfig] = LlamaConfig, tied: bool = False
) -> PretrainedConfig:
    return family(
        vocab_size=shape.vocabulary,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        intermediate_size=shape.hidden,
        tie_word_embeddings=tied,
    )


llama_model = build(llama_config(LLAMA_3_8B))
llama_library_parameters = counted(llama_model)
assert llama_library_parameters == llama_parameters

LLAMA_CONTEXT = 8_192  # of Llama 3 at its release

V, d, L, num_heads, num_kv_heads, f = LLAMA_3_8B
as_gpt2_parameters = count_gpt2(d, L, V, LLAMA_CONTEXT)
steps = [
    -LLAMA_CONTEXT * d,  # rotary positions
    -L * (3 * d + d + 4 * d + d),  # no biases
    -L * 2 * d - d,  # RMSNorm: no shift
    -L * 2 * d * (d - d // num_heads * num_kv_heads),  # grouped queries
    L * (3 * d * f - 8 * d * d),  # SwiGLU
    V * d,  # a head of its own
]
assert as_gpt2_parameters + sum(steps) == llama_parameters

Q = d // num_heads
LLAMA_PART_OF = {  # the library's names
    "embed_tokens": "tokens",
    "q_proj": "qkv",
    "k_proj": "qkv",
    "v_proj": "qkv",
    "o_proj": "out",
    "gate_proj": "up",
    "up_proj": "up",
    "down_proj": "down",
    "input_layernorm": "norms",
    "post_attention_layernorm": "norms",
    "norm": "final_norm",
    "lm_head": "head",
}
llama_part_parameters = {
    "tokens": V * d,
    "qkv": L * d * (num_heads + 2 * num_kv_heads) * Q,
    "out": L * num_heads * Q * d,
    "up": L * 2 * d * f,
    "down": L * f * d,
    "norms": L * 2 * d,
    "final_norm": d,
    "head": V * d,
}
assert count_by_part(llama_model, LLAMA_PART_OF) == llama_part_parameters

RANK = 16  # r
MATRICES = (  # of a layer: inputs, outputs
    (d, num_heads * Q),
    (d, num_kv_heads * Q),
    (d, num_kv_heads * Q),
    (num_heads * Q, d),
    (d, f),
    (d, f),
    (f, d),
)
varied_by = {  # what the count of Llama 3 8B would grow by
    "biases": L * (num_heads + 2 * num_kv_heads) * Q,
    "norms": L * 2 * Q,
    "tied": -V * d,
    "lora": L * sum(RANK * (a + b) for a, b in MATRICES),
}
for variant, config in {
    "biases": llama_config(LLAMA_3_8B, Qwen2Config),
    "norms": llama_config(LLAMA_3_8B, Qwen3Config),
    "tied": llama_config(LLAMA_3_8B, tied=True),
}.items():
    assert counted(build(config)) == llama_parameters + varied_by[variant]

BITS = {"float32": 32, "bfloat16": 16, "float8": 8, "int4": 4}
model_parameters = [*total_parameters.values(), llama_parameters]
weight_bytes = [
    {name: bits * parameters // 8 for name, bits in BITS.items()}
    for parameters in model_parameters  # small to xl, then Llama
]

letters = {
    "gpt2": {
        "T": CONTEXT,
        "L": num_blocks,
        "d": width,
        "H": SHAPES["small"].num_heads,
        "G": SHAPES["small"].num_heads,
        "Q": width // SHAPES["small"].num_heads,
        "f": 4 * width,
        "V": VOCABULARY,
    },
    "llama": {
        "T": LLAMA_CONTEXT,
        "L": LLAMA_3_8B.num_layers,
        "d": LLAMA_3_8B.d_model,
        "H": LLAMA_3_8B.num_heads,
        "G": LLAMA_3_8B.num_kv_heads,
        "Q": LLAMA_3_8B.d_model // LLAMA_3_8B.num_heads,
        "f": LLAMA_3_8B.hidden,
        "V": LLAMA_3_8B.vocabulary,
    },
}


# --8<-- [start:exercise_1]
gpt3_parameters = count_gpt2(d=12_288, L=96, T=2_048)
print(f"{gpt3_parameters:,}")
# --8<-- [end:exercise_1]
GPT3_SHAPE = Shape(12_288, 96, 96)  # Brown et al. 2020, table 2.1
GPT3_CONTEXT = 2_048
assert gpt3_parameters == count_by_formula(GPT3_SHAPE, context=GPT3_CONTEXT) == 174_604_259_328


# --8<-- [start:exercise_2]
PADDED_VOCABULARY = -(-50_257 // 64) * 64  # the next multiple of 64

d, L = 768, 12
padded_parameters = count_gpt2(d, L, V=PADDED_VOCABULARY)
padding_parameters = padded_parameters - count_gpt2(d, L)
print(f"{padded_parameters:,}, that is {padding_parameters:,} more")

bias_parameters = L * 11 * d + d  # 9d of matrices, 2d of norms
nanogpt_parameters = padded_parameters - CONTEXT * d - bias_parameters
print(f"nanoGPT's log: {nanogpt_parameters / 1e6:.2f}M")
# --8<-- [end:exercise_2]
assert PADDED_VOCABULARY == 50_304


# --8<-- [start:exercise_3]
for name, (d, L, T) in {"small": (768, 12, 1_024), "xl": (1_600, 48, 1_024), "GPT-3": (12_288, 96, 2_048)}.items():
    print(f"{name}: {12 * L * d**2 / count_gpt2(d, L, T=T):.1%}")
# --8<-- [end:exercise_3]
rule_share = {size: 12 * shape.num_layers * shape.d_model**2 / total_parameters[size] for size, shape in SHAPES.items()}
gpt3_rule_share = 12 * 96 * 12_288**2 / gpt3_parameters
assert list(rule_share.values()) == sorted(rule_share.values())


# --8<-- [start:exercise_4]
equal_hidden = 8 * 4_096 / 3  # 3df = 8d²
rounded_hidden = -(-int(equal_hidden) // 256) * 256
llama_2_parameters = count_llama(V=32_000, d=4_096, L=32, H=32, G=32, f=rounded_hidden)
print(f"f = {equal_hidden:,.1f}, in steps of 256: {rounded_hidden:,}")
print(f"{llama_2_parameters:,}")
# --8<-- [end:exercise_4]
LLAMA_2_7B = LlamaShape(32_000, 4_096, 32, 32, 32, 11_008)
assert rounded_hidden == LLAMA_2_7B.hidden
assert llama_2_parameters == counted(build(llama_config(LLAMA_2_7B)))


# --8<-- [start:exercise_5]
all_heads_parameters = count_llama(V=128_256, d=4_096, L=32, H=32, G=32, f=14_336)
more_parameters = all_heads_parameters - llama_parameters
more_share = more_parameters / llama_parameters
cache_ratio = 32 / 8
print(f"{more_parameters:,} more, {more_share:.1%}")
print(f"keys and values to keep for a token: {cache_ratio:.0f} times as many")
# --8<-- [end:exercise_5]
assert all_heads_parameters == counted(build(llama_config(LLAMA_3_8B._replace(num_kv_heads=32))))


# --8<-- [start:exercise_6]
PAPER = {"small": (768, 12, 117), "medium": (1_024, 24, 345), "large": (1_280, 36, 762), "XL": (1_600, 48, 1_542)}
for size, (d, L, millions) in PAPER.items():
    rows = (count_gpt2(d, L) - millions * 1e6) / d
    print(f"{size:7}{rows:6,.0f} rows of d missing; with V = 40,478 {count_gpt2(d, L, V=40_478) / 1e6:,.0f}M")
# --8<-- [end:exercise_6]
assert OpenAIGPTConfig().vocab_size == 40_478


def fits(vocabulary: int) -> bool:
    """Whether all four counts round to the paper's."""
    return all(round(count_gpt2(d, L, vocabulary) / 1e6) == millions for d, L, millions in PAPER.values())


fitting_vocabularies = {
    "least": min(filter(fits, range(VOCABULARY))),
    "most": max(filter(fits, range(VOCABULARY))),
}
