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
# # Lab: byte-pair encoding from scratch
#
# Why is the same text short for one tokenizer and three times as long for another? Here you write the tokenizer
# yourself, see what it learns from English and from Chinese, and hold it against the `tokenizers` library, merge by
# merge. It is the companion of [Tokens](../tokens.md).
#
# The notebook runs from top to bottom as it is. It needs this book's library, which the first cell of that page's
# notebook installs, and `tokenizers`. The text is this book's own, the same in both languages; every fifth paragraph
# is held out.

# %%
import json
from collections import Counter
from itertools import pairwise
from time import perf_counter

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from flops_bytes.lessons import bpe
from flops_bytes_data.parallel_text import split

text = {language: split(language)[0] for language in ("en", "zh")}
held_out = {language: split(language)[1] for language in ("en", "zh")}
for language in text:
    print(f"{language}: {len(text[language]):,} characters, {len(text[language].encode()):,} bytes")

# %% [markdown] slug="pairs"
# ## Count the pairs of neighbours
#
# The vocabulary begins with the 256 bytes. Which two stand beside each other most often? No pair reaches across words,
# so equal words are counted once.

# %%
Pair = tuple[bytes, bytes]


def words_of(text: str) -> Counter[tuple[bytes, ...]]:
    """Each word as its bytes, and how often it stands there; a space belongs to the word after it."""
    words = text.replace(" ", "\n ").split("\n")
    return Counter(tuple(bytes([byte]) for byte in word.encode()) for word in words)


words = words_of(text["en"])
counts: Counter[Pair] = Counter()
for word, often in words.items():
    for pair in pairwise(word):
        counts[pair] += often
print(counts.most_common(5))

# %% [markdown] slug="learn"
# ## Merge the most frequent, and count again
#
# The pair becomes a new token, and the search begins anew. English gets beginnings and ends of words; Chinese
# first has to put its characters together, two merges for most of them.


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
    """Counts all pairs, merges the most frequent, and counts all again."""
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
# ## Encode
#
# A text is split into its bytes, and all merges are done again in their order. Any text can be encoded, since each byte
# is a token; but what was rare in the training text stays in pieces.


# %%
def encode(text: str, learned: list[Pair]) -> list[bytes]:
    """The merges in the order in which they were learned."""
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
# ## Keep the counts up
#
# A merge changes only the words that hold the pair. The library of this book counts once, then updates the counts, with
# a heap that has the largest on top: an entry that has gone out of date can only be too large, and goes back with its
# true count. It learns the same merges.

# %%
began = perf_counter()
plain = bpe.learn_plainly(page["en"], 320)
between = perf_counter()
fast = bpe.learn(page["en"], 320)
print(f"counting anew {between - began:.2f} s, counts kept up {perf_counter() - between:.3f} s")
assert [*plain.ranks] == [*fast.ranks]

# %% [markdown] slug="library"
# ## Is it right?
#
# The `tokenizers` library, given the same rule for words, has to learn the same merges and give the same tokens, also
# for emoji, mixed scripts and an empty text.

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
# ## How fast is it?
#
# The library is written in Rust, ours in Python. Above we timed how long each took to learn 4,096 tokens. Now they
# encode what nobody learned from. The library gets a list of lines, so it can use all cores; ours encodes each
# different word once.

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
# ## Bytes a token
#
# The number that turns bytes into tokens, on text that nobody learned from.

# %%
for language, sample in held_out.items():
    size, count = len(sample.encode()), len(bpe.encode(ours, sample.encode()))
    print(f"{language}: {size / count:.2f} bytes a token, {count:,} tokens")

# %% [markdown] slug="your-own"
# ## Your own
#
# Learn from English alone, and see what Chinese costs. Then put a text of your own in place of `text`: how many bytes a
# token does it reach, and from which vocabulary on does it hardly grow any more?
