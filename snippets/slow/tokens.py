# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What a token is and what it costs, in English and in Chinese."""

from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import replace
from math import fsum, log

from flops_bytes.lessons.bpe import Tokenizer, encode, learn, learn_plainly
from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, build, fused
from flops_bytes.memory.formulas import logits_bytes
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.model.tokens import BYTES_A_TOKEN, bits_a_byte, text_tokens
from flops_bytes.time.gpus import GPUS
from flops_bytes_data.parallel_text import LANGUAGES, paragraphs, split

# --8<-- [start:characters]
for text in ("memory", "显存", "é", "👍🏽"):
    print(f"{len(text)} characters, {len(text.encode())} bytes: {text}")
# --8<-- [end:characters]


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


# --8<-- [start:bill]
CONTEXT, GPUS_USED, MFU, DOLLARS = 8_192, 64, 0.3, 2.5  # dollars an hour of one H100
PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
token_flops = 3 * sum(forward_flops(LLAMA_3_8B, CONTEXT).values()) / CONTEXT  # C₁


def costs(text_bytes: float, rate: float) -> dict[str, float]:
    """One pass over a text, at so many bytes a token."""
    tokens = text_bytes / rate
    hours = tokens * token_flops / (GPUS_USED * PEAK * MFU) / 3_600
    return {"tokens": tokens, "days": hours / 24, "dollars": hours * GPUS_USED * DOLLARS}


for tokenizer, rate in {"GPT-2": 1.42, "Qwen": 4.16}.items():  # Chinese, from the table
    print(f"{tokenizer}: {costs(926e9, rate)['days']:.1f} days")
# --8<-- [end:bill]

CONTENT_BYTES = 1e12  # of English; the same content in Chinese has other bytes
share = {lang: FLORES_BYTES[lang] / FLORES_BYTES["en"] for lang in LANGUAGES}
assert round(CONTENT_BYTES * share["zh"], -9) == 926e9
bill = {
    name: {
        lang: costs(CONTENT_BYTES * share[lang], each[lang])
        | {"context_bytes": CONTEXT * each[lang] / share[lang]}  # of content, in English
        for lang in LANGUAGES
    }
    for name, each in published_rate.items()
}
context_characters = {name: CONTEXT * published_characters[name]["zh"] for name in ("gpt2", "qwen")}
english_run_flops = bill["qwen"]["en"]["tokens"] * token_flops


# --8<-- [start:first]
for lang in ("en", "zh"):
    opening = "".join(paragraphs(lang)[:12])
    print(lang, *learn_plainly(opening, 256 + 8).tokens[256:])
# --8<-- [end:first]

text_bytes = {lang: len("".join(paragraphs(lang)).encode()) for lang in LANGUAGES}
text_characters = {lang: len("".join(paragraphs(lang))) for lang in LANGUAGES}
character_bytes = {
    "flores": FLORES_BYTES["zh"] / FLORES_CHARACTERS["zh"],
    "book": text_bytes["zh"] / text_characters["zh"],
}  # of Chinese text

SIZE = 8_192  # tokens, or as many as occur twice
held_out = {lang: split(lang)[1] for lang in LANGUAGES}
train_text = {lang: split(lang)[0] for lang in LANGUAGES}
train_text["both"] = train_text["en"] + train_text["zh"]
learned = {name: learn(text, SIZE) for name, text in train_text.items()}
vocabulary_size = {name: len(each.tokens) for name, each in learned.items()}

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

SAME_SIZE = min(vocabulary_size.values())
same_size = {name: of_size(each, SAME_SIZE) for name, each in learned.items()}


def count_held_out(tokenizer: Tokenizer) -> dict[str, int]:
    return {lang: len(encode(tokenizer, text.encode())) for lang, text in held_out.items()}


held_tokens = {name: count_held_out(each) for name, each in same_size.items()}
chinese_ratio = {name: tokens["zh"] / tokens["en"] for name, tokens in held_tokens.items()}

SENTENCE = {"en": "Do two tensors share memory?", "zh": "两个张量是否共用内存？"}
for lang, sentence in SENTENCE.items():
    assert sentence in held_out[lang]


def cut(tokenizer: Tokenizer, text: str) -> list[int]:
    """Bytes of each token."""
    return [len(tokenizer.tokens[token]) for token in encode(tokenizer, text.encode())]


cuts = {name: {lang: cut(tokenizer, SENTENCE[lang]) for lang in LANGUAGES} for name, tokenizer in same_size.items()}
question_tokens = {name: len(lengths["zh"]) for name, lengths in cuts.items()}

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


def count_parameters(vocab: int) -> int:
    model = build(replace(GPT2_SMALL, vocab=vocab), fused)  # on meta
    return sum(parameter.numel() for parameter in model.parameters())


added_parameters = (128_256 - 50_257) * GPT2_SMALL.d_model  # its head is tied
counted_added_parameters = count_parameters(128_256) - count_parameters(50_257)
assert added_parameters == counted_added_parameters

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
best_size = {name: min(each, key=each.__getitem__) for name, each in byte_flops.items()}


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
foretold_bits = bits[1_024]
counted_bits = nats[1_024][0] / log(2) / len(held_out["en"].encode())


# --8<-- [start:yours]
def measure_rate(text: str, encode: Callable[[str], Sized]) -> float:
    """Bytes a token. The second argument is your tokenizer's function."""
    return len(text.encode()) / len(encode(text))


text, sample = split("zh")  # put in a sample of your text
mine = learn(text, 4_096)  # and your tokenizer
sample_rate = measure_rate(sample, lambda text: encode(mine, text.encode()))
print(f"{sample_rate:.2f} bytes a token: {1e9 / sample_rate / 1e6:.0f} million tokens a gigabyte")
# --8<-- [end:yours]

# Does half of a text foretell the tokens of the other?
lines = held_out["zh"].splitlines(keepends=True)
half, rest = "".join(lines[::2]), "".join(lines[1::2])
half_rate = measure_rate(half, lambda text: encode(learned["both"], text.encode()))
foretold_tokens = text_tokens(len(rest.encode()), half_rate)
counted_tokens = len(encode(learned["both"], rest.encode()))
foretold_ratio = foretold_tokens / counted_tokens

# what flops_bytes.model.tokens has, in two decimals
for vocab, rate_of in BYTES_A_TOKEN.items():
    found = bytes_a_token["both"][vocab]
    assert {lang: round(rate, 2) for lang, rate in found.items()} == rate_of


# --8<-- [start:exercise_1]
YOUR_CHARACTERS = 500e6  # of Chinese
TOKENS_A_CHARACTER = {"gpt2": 168_850 / 87_445, "qwen": 57_735 / 87_445}  # of the table's sentences
your_tokens = {name: YOUR_CHARACTERS * each for name, each in TOKENS_A_CHARACTER.items()}
your_hours = {name: tokens * token_flops / (PEAK * MFU) / 3_600 for name, tokens in your_tokens.items()}
for name, tokens in your_tokens.items():
    print(f"{name}: {tokens:.3g} tokens, {your_hours[name]:.1f} hours of one H100")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
RUNS = {"A": (2.9, 3.6), "B": (3.1, 4.2)}  # nats a token, bytes a token
run_bits = {run: bits_a_byte(*numbers) for run, numbers in RUNS.items()}
print(run_bits)
assert run_bits["B"] < run_bits["A"]
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def forward(vocab: int) -> float:
    """FLOPs of GPT-2 small on one sequence, with another vocabulary."""
    return sum(forward_flops(replace(GPT2_SMALL, vocab=vocab), 1_024).values())


grown_ratio = forward(128_256) / forward(50_257)
print(f"a token costs {grown_ratio:.3f} × as many FLOPs")
# --8<-- [end:exercise_3]
