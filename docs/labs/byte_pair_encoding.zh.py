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

# %% [markdown] slug="lab-bpe"
# # 实验：从零实现字节对编码
#
# 同一份文本，为什么有的分词器切得短，有的切出三倍的词元？本实验从零写一个分词器，看看它分别从英文和中文里学到什么，再与 `tokenizers` 库逐个合并地核对，与[《词元》](../tokens.md)一章配套。
#
# 这个笔记本不用改动，就能从头运行到尾。运行它需要本书的库（《词元》那一页的笔记本在第一个单元格里会安装）和 `tokenizers`。训练文本就是本书的文字，中英文内容相同，每五段留出一段不参加训练。

# %%
import json
from collections import Counter
from itertools import pairwise
from time import perf_counter

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from flops_bytes import bpe
from flops_bytes.parallel_text import split

text = {language: split(language)[0] for language in ("en", "zh")}
held_out = {language: split(language)[1] for language in ("en", "zh")}
for language in text:
    print(f"{language}: {len(text[language]):,} characters, {len(text[language].encode()):,} bytes")

# %% [markdown] slug="pairs"
# ## 统计相邻的字节对
#
# 词表从 256 个字节开始。哪两个最常相邻？合并不跨越单词，所以相同的单词只统计一次。

# %%
Pair = tuple[bytes, bytes]


def words_of(text: str) -> Counter[tuple[bytes, ...]]:
    """每个词拆成字节，以及出现的次数；空格归后面的词。"""
    words = text.replace(" ", "\n ").split("\n")
    return Counter(tuple(bytes([byte]) for byte in word.encode()) for word in words)


words = words_of(text["en"])
counts: Counter[Pair] = Counter()
for word, often in words.items():
    for pair in pairwise(word):
        counts[pair] += often
print(counts.most_common(5))

# %% [markdown] slug="learn"
# ## 合并最常见的一对，再重新统计
#
# 这一对成为新词元，然后从头再找。英文得到的是常见的词头和词尾；中文要先把汉字拼起来，大多数汉字要合并两次。


# %%
def merge(word: tuple[bytes, ...], pair: Pair) -> tuple[bytes, ...]:
    merged: list[bytes] = []
    for token in word:
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return tuple(merged)


def learn(text: str, merges: int) -> list[Pair]:
    """统计全部相邻对，合并最多的一对，再重新统计。"""
    words, learned = words_of(text), []
    for _ in range(merges):
        counts: Counter[Pair] = Counter()
        for word, often in words.items():
            for pair in pairwise(word):
                counts[pair] += often
        learned.append(max(counts, key=lambda pair: (counts[pair], pair)))
        merged: Counter[tuple[bytes, ...]] = Counter()
        for word, often in words.items():
            merged[merge(word, learned[-1])] += often
        words = merged
    return learned


page = {language: text[language][:20_000] for language in text}
learned = {language: learn(page[language], 60) for language in page}
for language, found in learned.items():
    print(language, *(a + b for a, b in found[:12]))

# %% [markdown] slug="encode"
# ## 编码
#
# 先把文本拆成字节，再按次序把所有合并重做一遍。每个字节都有对应的词元，所以任何文本都能编码，只是训练时少见的文字会被切得很碎。


# %%
def encode(text: str, learned: list[Pair]) -> list[bytes]:
    """按学到的先后次序逐次合并。"""
    word = tuple(bytes([byte]) for byte in text.encode())
    for pair in learned:
        word = merge(word, pair)
    return list(word)


question = "Do two tensors share memory? 两个张量是否共用内存？"
for language, found in learned.items():
    tokens = encode(question, found)
    assert b"".join(tokens).decode() == question
    print(language, len(tokens), "tokens:", *tokens[:14])

# %% [markdown] slug="fast"
# ## 只更新有变化的计数
#
# 一次合并只影响含有这对词元的单词。本书的库只从头统计一次，此后只更新计数，并用堆取出最大的一个；过时的条目只会偏大，取出时按当前的计数放回去即可。学到的合并完全相同。

# %%
began = perf_counter()
plain = bpe.learn_plainly(page["en"], 320)
between = perf_counter()
fast = bpe.learn(page["en"], 320)
print(f"counting anew {between - began:.2f} s, counts kept up {perf_counter() - between:.3f} s")
assert [*plain.ranks] == [*fast.ranks]

# %% [markdown] slug="library"
# ## 与 tokenizers 库核对
#
# 切词规则相同时，`tokenizers` 库学到的合并和编码的结果都应该与我们的完全一致，表情符号、多种文字混排的文本和空文本也不例外。

# %%
theirs = tokenizers.Tokenizer(models.BPE())
cut = pre_tokenizers.Split(tokenizers.Regex(bpe.WORD.pattern), "isolated")
to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
theirs.pre_tokenizer = pre_tokenizers.Sequence([cut, to_bytes])
alphabet = to_bytes.alphabet()
trainer = trainers.BpeTrainer(vocab_size=4096, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
both = text["en"] + text["zh"]
began = perf_counter()
theirs.train_from_iterator([both], trainer)
between = perf_counter()
ours = bpe.learn(both, 4096)
seconds = {"learn": (between - began, perf_counter() - between)}

model = json.loads(theirs.to_str())["model"]
number = model["vocab"]
assert [chr(number[a]) + chr(number[b]) for a, b in model["merges"]] == [*ours.ranks]
for each in (*held_out.values(), "👩‍👩‍👧 naïve 모델 λόγος 中English文 １２３", ""):
    assert theirs.encode(each).ids == bpe.encode(ours, each.encode())
print(f"{len(ours.ranks):,} merges and four texts: all equal")

# %% [markdown] slug="speed"
# ## 快慢相差多少
#
# `tokenizers` 库用 Rust 写成，本书的用 Python。上面已经分别记下学出 4,096 个词元的时间。接下来编码没有参加训练的文本。交给 `tokenizers` 的是逐行的列表，它可以用上所有核；本书的实现则对每个不同的单词只编码一次。

# %%
unseen = held_out["en"] + held_out["zh"]
lines = unseen.splitlines(keepends=True)
began = perf_counter()
theirs.encode_batch(lines)
between = perf_counter()
bpe.encode(ours, unseen.encode())
seconds["encode"] = (between - began, perf_counter() - between)
for (what, (library, python)), data in zip(seconds.items(), (both, unseen), strict=True):
    print(f"{what} {len(data.encode()):,} bytes: tokenizers {library:.2f} s, ours {python:.2f} s")

# %% [markdown] slug="rates"
# ## 每词元字节数
#
# 在没有参加训练的文本上，统计用来折算词元数的这个数。

# %%
for language, sample in held_out.items():
    size, count = len(sample.encode()), len(bpe.encode(ours, sample.encode()))
    print(f"{language}: {size / count:.2f} bytes a token, {count:,} tokens")

# %% [markdown] slug="your-own"
# ## 换成你自己的
#
# 只用英文训练，看看中文要多用多少词元。再把 `text` 换成你自己的文本：每词元字节数能达到多少？词表大到什么程度，它就几乎不再增加？
