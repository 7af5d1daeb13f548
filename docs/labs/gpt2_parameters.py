# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slug="lab-gpt2-parameters"
# # Lab: count GPT-2 yourself
#
# How many parameters has GPT-2? Here you build the count matrix by matrix, then ask the library. It is the
# companion of [GPT-2, parameter by parameter](../gpt2-parameters.md), which says why each part is there.
#
# The notebook runs from top to bottom as it is. It needs `%pip install torch transformers`, no GPU, and no download
# of weights. Change anything: the assertions tell what no longer holds.

# %%
import torch
from transformers import AutoModelForCausalLM, GPT2Config

# %% [markdown] slug="sizes"
# ## The four sizes
#
# Width $d$ and depth $L$ tell them apart; all share the vocabulary $V$ and the context $T$. Heads split the width: the
# library must know how many there are, the count need not.

# %%
V, T = 50_257, 1_024
SIZES = {  # d, L, heads
    "small": (768, 12, 12),
    "medium": (1_024, 24, 16),
    "large": (1_280, 36, 20),
    "xl": (1_600, 48, 25),
}

# %% [markdown] slug="linear"
# ## One matrix
#
# A linear layer has a weight for each pair of input and output, and a bias for each output. A LayerNorm has a scale
# and a shift for each feature. Everything in GPT-2 is made of these two and of tables.


# %%
def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def layer_norm(features: int) -> int:
    return 2 * features


weight, bias = torch.nn.Linear(768, 3072, device="meta").parameters()
print(f"{linear(768, 3072):,}")
assert linear(768, 3072) == weight.numel() + bias.numel()

# %% [markdown] slug="block"
# ## One block
#
# Attention: queries, keys and values in one matrix, then the mix of all heads. MLP: four times as wide, and back. A
# norm before each. With $d$ for the width, you should find
#
# $$
# 12d^2 + 13d
# $$


# %%
def attention(d: int) -> int:
    return linear(d, 3 * d) + linear(d, d)


def mlp(d: int) -> int:
    return linear(d, 4 * d) + linear(4 * d, d)


def block(d: int) -> int:
    return attention(d) + mlp(d) + 2 * layer_norm(d)


for size, (d, _, _) in SIZES.items():
    print(f"{size:7}{block(d):12,}")
    assert block(d) == 12 * d**2 + 13 * d

# %% [markdown] slug="model"
# ## The whole model
#
# Below the blocks a table of tokens and one of positions, above them the final norm. The head is the table of
# tokens once more, so it adds nothing:
#
# $$
# N = Vd + Td + L\,(12d^2 + 13d) + 2d
# $$


# %%
def gpt2(d: int, num_layers: int) -> int:
    return V * d + T * d + num_layers * block(d) + layer_norm(d)


by_hand = {size: gpt2(d, num_layers) for size, (d, num_layers, _) in SIZES.items()}
for size, parameters in by_hand.items():
    print(f"{size:7}{parameters:14,}")

# %% [markdown] slug="library"
# ## Ask the library
#
# A configuration is enough. On the device `meta` a tensor has a shape and no data, so even the largest model is
# there at once.


# %%
def from_configuration(d: int, num_layers: int, num_heads: int) -> torch.nn.Module:
    config = GPT2Config(
        vocab_size=V,
        n_positions=T,
        n_embd=d,
        n_layer=num_layers,
        n_head=num_heads,
    )
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


for size, shape in SIZES.items():
    counted = count(from_configuration(*shape))
    print(f"{size:7}{counted:14,}")
    assert counted == by_hand[size]

# %% [markdown] slug="break"
# ## Break it
#
# Two wrong counts that are often seen. What was left out, and what was counted twice? Both differences name their
# cause.

# %%
d, num_layers, _ = SIZES["small"]
for claimed in (124_438_272, 163_037_184):
    difference = claimed - by_hand["small"]
    print(f"{claimed:,} is off by {difference:+,}, or {difference / d:+,.0f} d")

# %% [markdown] slug="your-own"
# ## Your own
#
# Choose a width and a depth. What does doubling each of them do to the count?

# %%
d, num_layers = 512, 8
print(f"d = {d}, L = {num_layers}: {gpt2(d, num_layers):,}")
print(f"twice as deep: × {gpt2(d, 2 * num_layers) / gpt2(d, num_layers):.2f}")
print(f"twice as wide: × {gpt2(2 * d, num_layers) / gpt2(d, num_layers):.2f}")
