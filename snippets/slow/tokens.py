# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "tokenizers>=0.23"]
# ///
"""What a token is and what it costs, in English and in Chinese."""

# --8<-- [start:setup]
import json
from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import replace
from math import fsum, log

import tokenizers
from tokenizers import models as library_models
from tokenizers import pre_tokenizers, trainers

from flops_bytes.bpe import WORD, Tokenizer, encode, learn, learn_plainly
from flops_bytes.flops import forward_flops, training_seconds
from flops_bytes.gpus import GPUS
from flops_bytes.measure import time_call
from flops_bytes.memory import logits_bytes
from flops_bytes.models import GPT2_SMALL, LLAMA_3_8B, build, fused
from flops_bytes.parallel_text import LANGUAGES, paragraphs, split
from flops_bytes.shapes import Decoder, parameters
from flops_bytes.tokens import BYTES_A_TOKEN, bits_a_byte, disk_bytes, text_tokens

# --8<-- [end:setup]


# --8<-- [start:characters]
SAMPLES = ("memory", "显存", "é", "👍🏽")
sample_sizes = {text: (len(text), len(text.encode())) for text in SAMPLES}
for text, (characters, size) in sample_sizes.items():
    print(f"{characters} characters, {size} bytes: {text}")
# --8<-- [end:characters]


# --8<-- [start:published]
# tokens of the same 2,009 sentences of FLORES-200 in English and in Chinese
PUBLISHED = {
    "gpt2": {"en": 52_567, "zh": 168_850},
    "llama_2": {"en": 60_621, "zh": 121_054},
    "cl100k": {"en": 52_835, "zh": 101_138},
    "qwen": {"en": 53_726, "zh": 57_735},
    "bloom": {"en": 53_174, "zh": 50_330},
}
SENTENCES = 2_009
FLORES_BYTES = {"en": 259_396, "zh": 240_075}
FLORES_CHARACTERS = {"en": 259_170, "zh": 87_445}

published_rate = {
    name: {lang: FLORES_BYTES[lang] / tokens[lang] for lang in LANGUAGES} for name, tokens in PUBLISHED.items()
}
published_characters = {
    name: {lang: FLORES_CHARACTERS[lang] / tokens[lang] for lang in LANGUAGES} for name, tokens in PUBLISHED.items()
}
published_ratio = {name: tokens["zh"] / tokens["en"] for name, tokens in PUBLISHED.items()}
# --8<-- [end:published]


# --8<-- [start:costs]
CONTENT_BYTES = 1e12  # of English; the same content in Chinese has other bytes
SHAPE, CONTEXT = LLAMA_3_8B, 8_192
GPUS_USED, MFU, DOLLARS = 64, 0.4, 3.0  # an hour of one H100: put in your own
PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
token_flops = 3 * sum(forward_flops(SHAPE, CONTEXT).values()) / CONTEXT
share = {lang: FLORES_BYTES[lang] / FLORES_BYTES["en"] for lang in LANGUAGES}


def costs(lang: str, rate: float) -> dict[str, float]:
    tokens = text_tokens(CONTENT_BYTES * share[lang], rate)
    seconds = training_seconds(tokens * token_flops, GPUS_USED, PEAK, MFU)
    return {
        "tokens": tokens,
        "run_flops": tokens * token_flops,
        "days": seconds / 86_400,
        "dollars": seconds / 3_600 * GPUS_USED * DOLLARS,
        "context_bytes": CONTEXT * rate / share[lang],  # of content, in English
    }


# --8<-- [end:costs]


# --8<-- [start:bill]
bill = {name: {lang: costs(lang, rate[lang]) for lang in LANGUAGES} for name, rate in published_rate.items()}
english_run_flops = bill["qwen"]["en"]["run_flops"]
for name in ("gpt2", "qwen"):
    days = (f"{lang} {bill[name][lang]['days']:.1f} days" for lang in LANGUAGES)
    print(name, *days, sep="  ")
# --8<-- [end:bill]


# --8<-- [start:first]
for lang in LANGUAGES:
    opening = "".join(paragraphs(lang)[:12])
    print(lang, *learn_plainly(opening, 256 + 8).tokens[256:])
# --8<-- [end:first]


# --8<-- [start:corpus]
text_bytes = {lang: len("".join(paragraphs(lang)).encode()) for lang in LANGUAGES}
text_characters = {lang: len("".join(paragraphs(lang))) for lang in LANGUAGES}
text_paragraphs = len(paragraphs("en"))
content_ratio = text_bytes["zh"] / text_bytes["en"]  # the same content
character_bytes = {
    "flores": FLORES_BYTES["zh"] / FLORES_CHARACTERS["zh"],
    "book": text_bytes["zh"] / text_characters["zh"],
}  # of Chinese text
character_ratio = text_characters["zh"] / text_characters["en"]
for lang in LANGUAGES:
    print(f"{lang}: {text_characters[lang]:,} characters, {text_bytes[lang]:,} bytes")
assert len(paragraphs("zh")) == text_paragraphs
# --8<-- [end:corpus]


# --8<-- [start:train]
SIZE = 8_192  # tokens, or as many as occur twice
held_out = {lang: split(lang)[1] for lang in LANGUAGES}
train_text = {lang: split(lang)[0] for lang in LANGUAGES}
train_text["both"] = train_text["en"] + train_text["zh"]
learned = {name: learn(text, SIZE) for name, text in train_text.items()}
vocabulary_size = {name: len(each.tokens) for name, each in learned.items()}
print("tokens learned:", vocabulary_size)
# --8<-- [end:train]


# --8<-- [start:library]
def library_learn(text: str, size: int) -> tokenizers.Tokenizer:
    """The same words, bytes and order of merges, in the library."""
    tokenizer = tokenizers.Tokenizer(library_models.BPE())
    words = pre_tokenizers.Split(tokenizers.Regex(WORD.pattern), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, to_bytes])
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=to_bytes.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def library_merges(tokenizer: tokenizers.Tokenizer) -> list[str]:
    model = json.loads(tokenizer.to_str())["model"]
    number = model["vocab"]
    return [chr(number[left]) + chr(number[right]) for left, right in model["merges"]]


# --8<-- [end:library]


# --8<-- [start:equal]
both, theirs = learned["both"], library_learn(train_text["both"], SIZE)
assert library_merges(theirs) == [*both.ranks]

HARD = "👩‍👩‍👧 naïve 모델 λόγος\t中English文  \r\n １２３ \u200b\0".encode()
for data in (*(text.encode() for text in held_out.values()), HARD, b""):
    assert theirs.encode(data.decode()).ids == encode(both, data)
    assert both.decode(encode(both, data)) == data
merge_count = len(both.ranks)
print(f"{merge_count:,} merges and four texts: all equal")
# --8<-- [end:equal]


# --8<-- [start:invalid]
whole = "显存".encode()
try:
    encode(both, whole[:-1])
except UnicodeDecodeError as error:
    invalid_at = error.start
    print(error)
# --8<-- [end:invalid]


# --8<-- [start:speed]
SAMPLE_PARAGRAPHS, SAMPLE_SIZE = 40, 384


def beginning() -> str:
    return "".join(paragraphs("en")[:SAMPLE_PARAGRAPHS])


learn_timing = {
    "plain": time_call(lambda: learn_plainly(beginning(), SAMPLE_SIZE), 2),
    "heap": time_call(lambda: learn(beginning(), SAMPLE_SIZE), 2),
    "library": time_call(lambda: library_learn(beginning(), SAMPLE_SIZE), 2),
}
whole_timing = {
    "heap": time_call(lambda: learn(train_text["en"], SIZE), 2),
    "library": time_call(lambda: library_learn(train_text["en"], SIZE), 2),
}
measured_seconds = {name: each.median_seconds for name, each in learn_timing.items()}
measured_heap_ratio = measured_seconds["plain"] / measured_seconds["heap"]
whole_seconds = {name: each.median_seconds for name, each in whole_timing.items()}
measured_library_ratio = whole_seconds["heap"] / whole_seconds["library"]
# --8<-- [end:speed]


# --8<-- [start:curve]
SIZES = (256, 512, 1_024, 2_048, 4_096, 8_192)


def of_size(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """Its first merges: what one would have learned for a smaller vocabulary."""
    return Tokenizer([*tokenizer.ranks][: size - 256])


def measure(name: str, size: int) -> dict[str, float]:
    """Bytes a token of the held-out text, in both languages."""
    tokenizer = of_size(learned[name], size)
    found = {}
    for lang, text in held_out.items():
        found[lang] = len(text.encode()) / len(encode(tokenizer, text.encode()))
    return found


bytes_a_token = {
    name: {size: measure(name, size) for size in sorted({min(V, most) for V in SIZES})}
    for name, most in vocabulary_size.items()
}
rates = {name: bytes_a_token[name][most] for name, most in vocabulary_size.items()}
for name, rate in rates.items():
    print(f"{name:5}", *(f"{lang} {rate[lang]:.2f}" for lang in LANGUAGES))
# --8<-- [end:curve]


# --8<-- [start:same_size]
SAME_SIZE = min(vocabulary_size.values())
same_size = {name: of_size(each, SAME_SIZE) for name, each in learned.items()}


def count_held_out(tokenizer: Tokenizer) -> dict[str, int]:
    return {lang: len(encode(tokenizer, text.encode())) for lang, text in held_out.items()}


held_tokens = {name: count_held_out(each) for name, each in same_size.items()}
chinese_ratio = {name: tokens["zh"] / tokens["en"] for name, tokens in held_tokens.items()}
held_characters = {
    name: {lang: len(held_out[lang]) / tokens[lang] for lang in LANGUAGES} for name, tokens in held_tokens.items()
}  # a token
same_rate = {
    name: {lang: len(held_out[lang].encode()) / tokens[lang] for lang in LANGUAGES}
    for name, tokens in held_tokens.items()
}
# --8<-- [end:same_size]


# --8<-- [start:cuts]
SENTENCE = {"en": "Do two tensors share memory?", "zh": "两个张量是否共用内存？"}
for lang, sentence in SENTENCE.items():
    assert sentence in held_out[lang]


def cut(tokenizer: Tokenizer, text: str) -> list[int]:
    """Bytes of each token."""
    return [len(tokenizer.tokens[token]) for token in encode(tokenizer, text.encode())]


cuts = {name: {lang: cut(tokenizer, SENTENCE[lang]) for lang in LANGUAGES} for name, tokenizer in same_size.items()}
question_tokens = {name: len(lengths["zh"]) for name, lengths in cuts.items()}
# --8<-- [end:cuts]


# --8<-- [start:shares]
SHARES = (0, 5, 10, 25, 50, 100)  # of a hundred Chinese paragraphs, so many are used


def thinned(text: str, percent: int) -> str:
    """So many of a hundred lines, evenly spread."""
    lines = text.splitlines(keepends=True)
    return "".join(line for n, line in enumerate(lines) if (n + 1) * percent // 100 > n * percent // 100)


mixed_tokens = {
    percent: count_held_out(of_size(learn(train_text["en"] + thinned(train_text["zh"], percent), SIZE), SAME_SIZE))
    for percent in SHARES
}
mixed_rate = {
    percent: {lang: len(held_out[lang].encode()) / tokens[lang] for lang in LANGUAGES}
    for percent, tokens in mixed_tokens.items()
}
mixed_ratio = {percent: tokens["zh"] / tokens["en"] for percent, tokens in mixed_tokens.items()}
more_english_share = mixed_tokens[100]["en"] / mixed_tokens[0]["en"] - 1
assert mixed_ratio[0] == chinese_ratio["en"] and mixed_ratio[100] == chinese_ratio["both"]
# --8<-- [end:shares]


# --8<-- [start:vocabulary]
VOCABULARIES = (256, 8_192, 50_257, 128_256)


def vocabulary_costs(shape: Decoder, vocab: int) -> dict[str, float]:
    """What of a model's parameters, FLOPs and bytes is the vocabulary's."""
    changed = replace(shape, vocab=vocab)
    count, flops = parameters(changed), forward_flops(changed, 1_024)
    matrices = count["embedding"] + count["head"]
    return {
        "matrix_parameters": matrices,
        "parameter_share": matrices / sum(count.values()),
        "head_share": flops["head"] / sum(flops.values()),
        "logits_bytes": sum(logits_bytes(changed, 1).values()),  # a token
    }


vocabulary_cost = {
    name: {vocab: vocabulary_costs(shape, vocab) for vocab in VOCABULARIES}
    for name, shape in {"gpt2": GPT2_SMALL, "llama": LLAMA_3_8B}.items()
}
head_flops = 2 * GPT2_SMALL.vocab * GPT2_SMALL.d_model  # a token, forward
# --8<-- [end:vocabulary]


# --8<-- [start:grown]
def count_parameters(vocab: int) -> int:
    model = build(replace(GPT2_SMALL, vocab=vocab), fused)  # on meta
    return sum(parameter.numel() for parameter in model.parameters())


added_parameters = (128_256 - 50_257) * GPT2_SMALL.d_model  # its head is tied
counted_added_parameters = count_parameters(128_256) - count_parameters(50_257)
assert added_parameters == counted_added_parameters
# --8<-- [end:grown]


# --8<-- [start:best]
TINY = replace(GPT2_SMALL, layers=2, d_model=256, heads=4, kv_heads=4, d_ff=1_024)


def flops_a_byte(shape: Decoder, vocab: int, rate: float) -> float:
    """FLOPs of training on a byte of English."""
    forward = sum(forward_flops(replace(shape, vocab=vocab), 1_024).values())
    return 3 * forward / 1_024 / rate


english_rate = {V: rate["en"] for V, rate in bytes_a_token["both"].items()}
byte_flops = {
    name: {V: flops_a_byte(shape, V, rate) for V, rate in english_rate.items()}
    for name, shape in {"tiny": TINY, "gpt2": GPT2_SMALL}.items()
}
for V in english_rate:
    millions = (f"{name} {each[V] / 1e6:6.1f}" for name, each in byte_flops.items())
    print(f"{V:5} tokens:", *millions, "MFLOPs a byte")
best_size = {name: min(each, key=each.__getitem__) for name, each in byte_flops.items()}
# --8<-- [end:best]


# --8<-- [start:disk]
tokens_a_byte = text_tokens(1, rates["both"]["en"])
disk_share = {V: disk_bytes(tokens_a_byte, V) for V in (65_536, 65_537)}
print(disk_share)
# --8<-- [end:disk]


# --8<-- [start:bits]
def surprise(tokenizer: Tokenizer) -> tuple[float, int]:
    """Nats of the held-out text, and its tokens; the model: how often each was seen."""
    seen = Counter(encode(tokenizer, train_text["en"].encode()))
    total = seen.total() + len(tokenizer.tokens)  # each once more: none is impossible
    tokens = encode(tokenizer, held_out["en"].encode())
    return -fsum(log((seen[token] + 1) / total) for token in tokens), len(tokens)


LOSS_SIZES = (256, 1_024, 3_525)
nats = {size: surprise(of_size(learned["en"], size)) for size in LOSS_SIZES}
losses = {size: total / tokens for size, (total, tokens) in nats.items()}
own_rate = {size: bytes_a_token["en"][size]["en"] for size in LOSS_SIZES}
bits = {size: bits_a_byte(losses[size], own_rate[size]) for size in LOSS_SIZES}
for size, loss in losses.items():
    print(f"{size:5} tokens: {loss:.3f} nats a token, {bits[size]:.3f} bits a byte")
foretold_bits = bits[1_024]
counted_bits = nats[1_024][0] / log(2) / len(held_out["en"].encode())
# --8<-- [end:bits]


# --8<-- [start:yours]
def measure_rate(text: str, encode: Callable[[str], Sized]) -> float:
    """Bytes a token. The second argument is your tokenizer's function."""
    return len(text.encode()) / len(encode(text))


lines = held_out["zh"].splitlines(keepends=True)
sample, rest = "".join(lines[::2]), "".join(lines[1::2])
sample_rate = measure_rate(sample, lambda text: encode(both, text.encode()))
foretold_tokens = text_tokens(len(rest.encode()), sample_rate)
counted_tokens = len(encode(both, rest.encode()))
foretold_ratio = foretold_tokens / counted_tokens
print(f"{foretold_tokens:,.0f} tokens foretold, {counted_tokens:,} counted")
# --8<-- [end:yours]


# --8<-- [start:rates]
# what flops_bytes.tokens has, in two decimals
for vocab, rate_of in BYTES_A_TOKEN.items():
    found = bytes_a_token["both"][vocab]
    assert {lang: round(rate, 2) for lang, rate in found.items()} == rate_of
# --8<-- [end:rates]


# --8<-- [start:exercise_1]
YOUR_CHARACTERS = 500e6  # of Chinese
your_tokens = {name: YOUR_CHARACTERS / characters["zh"] for name, characters in published_characters.items()}
your_hours = {
    name: training_seconds(tokens * token_flops, 1, PEAK, MFU) / 3_600 for name, tokens in your_tokens.items()
}
for name in ("gpt2", "qwen"):
    print(f"{name}: {your_tokens[name]:.3g} tokens, {your_hours[name]:.1f} hours of one H100")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
foreign_context_characters = CONTEXT * held_characters["en"]["zh"]
own_context_characters = CONTEXT * held_characters["zh"]["zh"]
print(f"{foreign_context_characters:,.0f} or {own_context_characters:,.0f} characters")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
RUNS = {"A": (2.9, 3.6), "B": (3.1, 4.2)}  # nats a token, bytes a token
run_bits = {run: bits_a_byte(*numbers) for run, numbers in RUNS.items()}
print(run_bits)
assert run_bits["B"] < run_bits["A"]
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
head_share = {V: cost["head_share"] for V, cost in vocabulary_cost["gpt2"].items()}
grown_ratio = (1 - head_share[50_257]) / (1 - head_share[128_256])
print(f"a token costs {grown_ratio:.3f} × as many FLOPs")
# --8<-- [end:exercise_4]
