# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "transformers"]
# ///
"""Every parameter of GPT-2 by hand, then against transformers' own model."""

# --8<-- [start:setup]
from collections import Counter
from typing import NamedTuple

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    OpenAIGPTConfig,
    PreTrainedModel,
)


def counted(model: torch.nn.Module) -> int:
    """How many parameters a model has; a shared one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


# --8<-- [end:setup]


# --8<-- [start:shapes]
class Shape(NamedTuple):
    """What tells one GPT-2 from another."""

    d_model: int  # d, the width
    num_layers: int  # L, the number of blocks
    num_heads: int  # H; they split d, so no count depends on it


VOCABULARY = 256 + 50_000 + 1  # V: bytes, merges, the end of a text
CONTEXT = 1_024  # T, the most tokens it can read
SHAPES = {
    "small": Shape(768, 12, 12),
    "medium": Shape(1_024, 24, 16),
    "large": Shape(1_280, 36, 20),
    "xl": Shape(1_600, 48, 25),
}


def gpt2_config(shape: Shape, tied: bool = True) -> GPT2Config:
    return GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        n_embd=shape.d_model,
        n_layer=shape.num_layers,
        n_head=shape.num_heads,
        tie_word_embeddings=tied,
    )


# --8<-- [end:shapes]


# --8<-- [start:block]
def count_block(d: int) -> dict[str, int]:
    """Parameters of one block: matrices (inputs × outputs) and their biases."""
    return {
        "qkv": d * 3 * d + 3 * d,  # queries, keys and values
        "out": d * d + d,  # the heads' results, mixed
        "up": d * 4 * d + 4 * d,
        "down": 4 * d * d + d,
        "norms": 2 * 2 * d,  # two, of a scale and a shift each
    }


block_parameters = count_block(SHAPES["small"].d_model)
for part, count in block_parameters.items():
    print(f"{part:6}{count:11,}")
print(f"block {sum(block_parameters.values()):11,}")
# --8<-- [end:block]


# --8<-- [start:model]
def count_gpt2(shape: Shape) -> dict[str, int]:
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


part_parameters = {size: count_gpt2(shape) for size, shape in SHAPES.items()}
total_parameters = {size: sum(part_parameters[size].values()) for size in SHAPES}
for part, count in part_parameters["small"].items():
    print(f"{part:11}{count:12,}")
# --8<-- [end:model]


# --8<-- [start:formula]
def formula(
    shape: Shape,
    vocabulary: int = VOCABULARY,
    context: int = CONTEXT,
) -> int:
    """Vd + Td + L(12d² + 13d) + 2d"""
    d, num_layers, _ = shape
    blocks = num_layers * (12 * d**2 + 13 * d)
    return vocabulary * d + context * d + blocks + 2 * d


for size, shape in SHAPES.items():
    print(f"{size:7}{formula(shape):14,}")
# --8<-- [end:formula]


# --8<-- [start:transformers]
def build(config: GPT2Config | LlamaConfig) -> PreTrainedModel:
    """The library's model, on a device where tensors have no data."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


models = {size: build(gpt2_config(shape)) for size, shape in SHAPES.items()}
library_parameters = {size: counted(models[size]) for size in SHAPES}
for size, total in library_parameters.items():
    print(f"{size:7}{total:14,}  {total == formula(SHAPES[size])}")
# --8<-- [end:transformers]


# --8<-- [start:modules]
def show(module: torch.nn.Module, name: str = "", depth: int = 0) -> None:
    """A line for each module, with its parameters; of equal blocks the first."""
    title = "  " * depth + f"{name} {type(module).__name__}".strip()
    print(f"{title:34}{counted(module):12,}")
    for name, part in module.named_children():
        if not name.isdigit() or name == "0":
            show(part, name, depth + 1)


show(models["small"])
# --8<-- [end:modules]


# --8<-- [start:parts]
PART_OF = {  # the library's names
    "wte": "tokens",
    "wpe": "positions",
    "attn": "attention",
    "mlp": "mlp",
    "ln_1": "norms",
    "ln_2": "norms",
    "ln_f": "final_norm",
}


def count_by_part(model: torch.nn.Module) -> dict[str, int]:
    parts: Counter[str] = Counter({"head": 0})
    for name, parameter in model.named_parameters():
        (part,) = (PART_OF[word] for word in name.split(".") if word in PART_OF)
        parts[part] += parameter.numel()
    return dict(parts)


for size, model in models.items():
    assert count_by_part(model) == part_parameters[size]
    print(f"{size:7}every part agrees")
for shape in SHAPES.values():
    per_block = 12 * shape.d_model**2 + 13 * shape.d_model
    assert sum(count_block(shape.d_model).values()) == per_block
    assert formula(shape) == sum(count_gpt2(shape).values())
assert library_parameters == total_parameters
for module in models["small"].modules():
    if type(module).__name__ in ("Dropout", "NewGELUActivation"):
        assert counted(module) == 0
# --8<-- [end:parts]


# --8<-- [start:tree]
block_shapes = {
    name.removeprefix("transformer.h.0."): tuple(parameter.shape)
    for name, parameter in models["small"].named_parameters()
    if ".h.0." in name
}
for name, sides in block_shapes.items():
    print(f"{name:20}{sides}")
assert block_shapes["attn.c_attn.weight"] == (768, 3 * 768)  # inputs × outputs
# --8<-- [end:tree]


# --8<-- [start:final_norm]
width, num_blocks, _ = SHAPES["small"]
blocks_parameters = num_blocks * (12 * width**2 + 13 * width)
without_final_norm_parameters = (VOCABULARY + CONTEXT) * width + blocks_parameters
missing_parameters = library_parameters["small"] - without_final_norm_parameters
print(f"without it {without_final_norm_parameters:,}")
print(f"the model  {library_parameters['small']:,}")
print(f"missing    {missing_parameters:,} = 2d")
assert without_final_norm_parameters != library_parameters["small"]
assert missing_parameters == part_parameters["small"]["final_norm"] == 2 * width
# --8<-- [end:final_norm]


# --8<-- [start:tied]
small = models["small"]
tokens, head = small.get_input_embeddings(), small.get_output_embeddings()
is_tied = head.weight is tokens.weight
untied_parameters = counted(build(gpt2_config(SHAPES["small"], tied=False)))
print(f"one matrix in two places: {is_tied}")
print(f"with a head of its own: {untied_parameters:,}")
assert is_tied
assert untied_parameters == total_parameters["small"] + VOCABULARY * width
# --8<-- [end:tied]


# --8<-- [start:wrong]
# what a count says, and what it is off by
non_embedding_parameters = blocks_parameters + 2 * width
wrong_counts = {
    "final_norm": without_final_norm_parameters,
    "positions": total_parameters["small"] - CONTEXT * width,
    "padded": formula(SHAPES["small"], vocabulary=50_304),
    "head": untied_parameters,
    "embeddings": non_embedding_parameters,
}
off_by = {n: wrong - total_parameters["small"] for n, wrong in wrong_counts.items()}
for name, difference in off_by.items():
    print(f"{name:11}{wrong_counts[name]:12,}{difference:+13,}")
assert off_by["embeddings"] == -(VOCABULARY + CONTEXT) * width
# --8<-- [end:wrong]


# --8<-- [start:paper]
# Radford et al. 2019, table 2
PAPER_MILLIONS = {"small": 117, "medium": 345, "large": 762, "xl": 1_542}

gpt1_vocabulary = OpenAIGPTConfig().vocab_size
with_gpt1_vocabulary_parameters = {  # all else as before
    size: formula(shape, gpt1_vocabulary) for size, shape in SHAPES.items()
}
print(f"V = {gpt1_vocabulary:,}")
for size, total in with_gpt1_vocabulary_parameters.items():
    printed = PAPER_MILLIONS[size]
    print(f"{size:7}{total / 1e6:8.1f}M   the paper: {printed:,}M")
    assert round(total / 1e6) == printed != round(total_parameters[size] / 1e6)
missing_rows = {  # of d numbers, from the exact count to the paper's
    size: (total_parameters[size] - PAPER_MILLIONS[size] * 1e6) / shape.d_model for size, shape in SHAPES.items()
}
rounding_rows = 0.5e6 / width  # of the small one, by the paper's rounding
print("rows missing:", *(f"{rows:,.0f}" for rows in missing_rows.values()))


def fits(vocabulary: int) -> bool:
    """Whether all four counts round to the paper's."""
    return all(round(formula(shape, vocabulary) / 1e6) == PAPER_MILLIONS[size] for size, shape in SHAPES.items())


fitting_vocabularies = {
    "least": min(filter(fits, range(VOCABULARY))),
    "most": max(filter(fits, range(VOCABULARY))),
}
print("vocabularies that fit:", *(f"{V:,}" for V in fitting_vocabularies.values()))
# --8<-- [end:paper]


# --8<-- [start:shares]
part_share = {
    size: {part: count / total_parameters[size] for part, count in parts.items()}
    for size, parts in part_parameters.items()
}
print(f"{'':9}tokens attention   mlp")
for size, shares in part_share.items():
    shown = (shares[part] for part in ("tokens", "attention", "mlp"))
    print(f"{size:7}", *(f"{share:8.1%}" for share in shown))
# --8<-- [end:shares]


# --8<-- [start:llama_shape]
class LlamaShape(NamedTuple):
    """What tells one Llama from another."""

    vocabulary: int  # V
    d_model: int  # d
    num_layers: int  # L
    num_heads: int  # of queries
    num_kv_heads: int  # of keys and values
    hidden: int  # f, the MLP's inner width


LLAMA_3_8B = LlamaShape(128_256, 4_096, 32, 32, 8, 14_336)
# --8<-- [end:llama_shape]


# --8<-- [start:llama]
def count_llama(shape: LlamaShape) -> dict[str, int]:
    """Parameters of each part: no biases, norms without a shift."""
    V, d, L, num_heads, num_kv_heads, f = shape
    d_kv = d // num_heads * num_kv_heads  # GQ
    return {
        "tokens": V * d,
        "positions": 0,  # rotated, not learned
        "attention": L * (2 * d * d + 2 * d * d_kv),  # queries, out; keys, values
        "mlp": L * 3 * d * f,  # gate, up, down
        "norms": L * 2 * d,
        "final_norm": d,
        "head": V * d,
    }


llama_part_parameters = count_llama(LLAMA_3_8B)
llama_parameters = sum(llama_part_parameters.values())
for part, count in llama_part_parameters.items():
    print(f"{part:11}{count:14,}")
print(f"{'together':11}{llama_parameters:14,}")
# --8<-- [end:llama]


# --8<-- [start:llama_check]
def llama_config(shape: LlamaShape) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        intermediate_size=shape.hidden,
        tie_word_embeddings=False,
    )


llama_library_parameters = counted(build(llama_config(LLAMA_3_8B)))
print(f"{llama_library_parameters:,}")
assert llama_library_parameters == llama_parameters
llama_part_share = {part: count / llama_parameters for part, count in llama_part_parameters.items()}
# --8<-- [end:llama_check]


# --8<-- [start:steps]
LLAMA_CONTEXT = 8_192  # of Llama 3 at its release

V, d, L, num_heads, num_kv_heads, f = LLAMA_3_8B
as_gpt2_parameters = formula(Shape(d, L, num_heads), V, LLAMA_CONTEXT)
steps = [
    -LLAMA_CONTEXT * d,  # rotary positions
    -L * (3 * d + d + 4 * d + d),  # no biases
    -L * 2 * d - d,  # RMSNorm: no shift
    -L * 2 * d * (d - d // num_heads * num_kv_heads),  # grouped queries
    L * (3 * d * f - 8 * d * d),  # SwiGLU
    V * d,  # a head of its own
]
print(f"in GPT-2's fashion{as_gpt2_parameters:15,}")
for change in steps:
    print(f"{change:+33,}")
print(f"Llama-3-8B        {as_gpt2_parameters + sum(steps):15,}")
assert as_gpt2_parameters + sum(steps) == llama_parameters
# --8<-- [end:steps]


# --8<-- [start:formats]
BITS = {"float32": 32, "bfloat16": 16, "float8": 8, "int4": 4}

model_parameters = [*total_parameters.values(), llama_parameters]
weight_bytes = [
    {name: bits * parameters // 8 for name, bits in BITS.items()}
    for parameters in model_parameters  # small to xl, then Llama
]
for name, weights in zip((*SHAPES, "Llama"), weight_bytes, strict=True):
    print(f"{name:7}", *(f"{size / 2**30:7.3f} GiB" for size in weights.values()))
# --8<-- [end:formats]


# --8<-- [start:letters]
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
# --8<-- [end:letters]


# --8<-- [start:exercise_1]
GPT3_SHAPE = Shape(12_288, 96, 96)  # Brown et al. 2020, table 2.1
GPT3_CONTEXT = 2_048

gpt3_parameters = formula(GPT3_SHAPE, context=GPT3_CONTEXT)
print(f"{gpt3_parameters:,}")
assert gpt3_parameters == 174_604_259_328
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
PADDED_VOCABULARY = 50_304  # the next multiple of 64

padded_parameters = formula(SHAPES["small"], vocabulary=PADDED_VOCABULARY)
padding_parameters = padded_parameters - total_parameters["small"]
print(f"{padded_parameters:,}, that is {padding_parameters:,} more")
assert PADDED_VOCABULARY == -(-VOCABULARY // 64) * 64
assert padding_parameters == (PADDED_VOCABULARY - VOCABULARY) * width

bias_parameters = num_blocks * 11 * width + width  # 9d of matrices, 2d of norms
nanogpt_parameters = padded_parameters - CONTEXT * width - bias_parameters
print(f"nanoGPT's log: {nanogpt_parameters / 1e6:.2f}M")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def rule(shape: Shape) -> int:
    """12Ld²"""
    return 12 * shape.num_layers * shape.d_model**2


rule_share = {
    size: rule(shape) / total_parameters[size]  # without V, T, 13d, 2d
    for size, shape in SHAPES.items()
}
gpt3_rule_share = rule(GPT3_SHAPE) / gpt3_parameters
print(*(f"{size} {share:.1%}  " for size, share in rule_share.items()))
print(f"GPT-3 {gpt3_rule_share:.1%}")
assert list(rule_share.values()) == sorted(rule_share.values())
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
LLAMA_2_7B = LlamaShape(32_000, 4_096, 32, 32, 32, 11_008)

equal_hidden = 8 * LLAMA_2_7B.d_model / 3  # 3df = 8d²
rounded_hidden = -(-int(equal_hidden) // 256) * 256
llama_2_parameters = sum(count_llama(LLAMA_2_7B).values())
print(f"f = {equal_hidden:,.1f}, in steps of 256: {rounded_hidden:,}")
print(f"{llama_2_parameters:,}")
assert rounded_hidden == LLAMA_2_7B.hidden
assert llama_2_parameters == counted(build(llama_config(LLAMA_2_7B)))
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
all_heads = LLAMA_3_8B._replace(num_kv_heads=LLAMA_3_8B.num_heads)
all_heads_parameters = sum(count_llama(all_heads).values())
more_parameters = all_heads_parameters - llama_parameters
more_share = more_parameters / llama_parameters
cache_ratio = all_heads.num_kv_heads / LLAMA_3_8B.num_kv_heads
print(f"{more_parameters:,} more, {more_share:.1%}")
print(f"keys and values to keep for a token: {cache_ratio:.0f} times as many")
assert all_heads_parameters == counted(build(llama_config(all_heads)))
# --8<-- [end:exercise_5]
