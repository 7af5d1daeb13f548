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
# # 实验：亲手数清 GPT-2
#
# GPT-2 有多少参数？在这里，你一个矩阵一个矩阵地数出来，再与 transformers 库核对。本实验与[《逐项数清 GPT-2》](../gpt2-parameters.md)一章配套，各部分的来由请看那里。
#
# 这个笔记本可以原样从头运行到尾，需要先 `%pip install torch transformers`，不需要 GPU，也不下载权重。代码可以随意改动，如果哪里不再成立，断言会报错。

# %%
import torch
from transformers import AutoModelForCausalLM, GPT2Config

# %% [markdown] slug="sizes"
# ## 四种规模
#
# 宽度 $d$ 和层数 $L$ 各不相同，词表大小 $V$ 和最大长度 $T$ 都一样。各个头只是分摊宽度，建模型时要给出头数，统计参数时用不到。

# %%
V, T = 50_257, 1_024
SIZES = {  # d、L、头数
    "small": (768, 12, 12),
    "medium": (1_024, 24, 16),
    "large": (1_280, 36, 20),
    "xl": (1_600, 48, 25),
}

# %% [markdown] slug="linear"
# ## 一个矩阵
#
# 线性层里，每一对输入和输出有一个权重，每个输出有一个偏置。LayerNorm 里，每个特征有一个缩放、一个平移。GPT-2 的全部参数就是这两种，再加上嵌入表。


# %%
def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def layer_norm(features: int) -> int:
    return 2 * features


weight, bias = torch.nn.Linear(768, 3072, device="meta").parameters()
print(f"{linear(768, 3072):,}")
assert linear(768, 3072) == weight.numel() + bias.numel()

# %% [markdown] slug="block"
# ## 一个块
#
# GPT-2 的每一层是一个块（block）。注意力（attention）用一个矩阵算出查询、键和值，再用一个矩阵混合各个头。MLP 先变宽到四倍，再变回来。两者之前各有一个 LayerNorm。设宽度为 $d$，你数出来的应该是
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
# ## 整个模型
#
# 各块之下是词元（token）嵌入表和位置嵌入表，之上是最后的 LayerNorm。输出头用的还是词元嵌入表，不另外增加：
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
# ## 与 transformers 库核对
#
# 有配置就够了。`meta` 设备上的张量（tensor）有形状而没有数据，所以再大的模型也立刻就能建好。


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
# ## 两个错误答案
#
# 下面两个错误的数都很常见。哪个漏了什么，哪个把什么数了两遍？看看差多少，原因就清楚了。

# %%
d, num_layers, _ = SIZES["small"]
for claimed in (124_438_272, 163_037_184):
    difference = claimed - by_hand["small"]
    print(f"{claimed:,} is off by {difference:+,}, or {difference / d:+,.0f} d")

# %% [markdown] slug="your-own"
# ## 换成你自己的
#
# 选一个宽度，选一个深度。如果分别翻一倍，参数个数会怎样？

# %%
d, num_layers = 512, 8
print(f"d = {d}, L = {num_layers}: {gpt2(d, num_layers):,}")
print(f"twice as deep: × {gpt2(d, 2 * num_layers) / gpt2(d, num_layers):.2f}")
print(f"twice as wide: × {gpt2(2 * d, num_layers) / gpt2(d, num_layers):.2f}")
