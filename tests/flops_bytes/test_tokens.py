"""The byte-pair encoder learns the library's merges and gives its tokens, on any text, and refuses what is no UTF-8."""

from __future__ import annotations

import ast
import json
import random
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from flops_bytes.lessons import bpe
from flops_bytes.model.tokens import bits_a_byte, disk_bytes, text_tokens
from flops_bytes_data import parallel_text

ALPHABETS = {
    "two letters": "ab",
    "runs": "aaab ",
    "mixed scripts": "aé ñЖ中文字あ한ع ,。“”",
    "emoji": "👩‍👧🏽😀🇨🇳 a\u200d\ufe0f",
    "space": " \t\r\n\u00a0\u3000\u2028\x1c\x85a",
    "marks and numbers": "1２٣½.,!_-—…（）a",
}
CASES = [(name, seed) for name in ALPHABETS for seed in range(40)]


def library(sample: str, size: int) -> tokenizers.Tokenizer:
    """As the library is set up by hand, not by the chapter."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    words = pre_tokenizers.Split(tokenizers.Regex(bpe.WORD.pattern), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, to_bytes])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([sample], trainer)
    return tokenizer


def merges(tokenizer: tokenizers.Tokenizer) -> list[str]:
    model = json.loads(tokenizer.to_str())["model"]
    return [chr(model["vocab"][left]) + chr(model["vocab"][right]) for left, right in model["merges"]]


def random_text(alphabet: str, seed: int) -> str:
    draw = random.Random(seed)
    return "".join(draw.choice(alphabet) for _ in range(draw.randrange(200)))


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_random_texts_have_the_librarys_merges_and_tokens(name: str, seed: int) -> None:
    sample, other = random_text(ALPHABETS[name], seed), random_text("".join(ALPHABETS.values()), seed)
    size = 256 + seed
    theirs, learned = library(sample, size), bpe.learn(sample, size)
    assert [*learned.ranks] == merges(theirs) == [*bpe.learn_plainly(sample, size).ranks]
    for each in (sample, other, ""):
        tokens = bpe.encode(learned, each.encode())
        assert tokens == theirs.encode(each).ids
        assert learned.decode(tokens) == each.encode()


@pytest.mark.parametrize("language", parallel_text.LANGUAGES)
def test_prose_has_the_librarys_merges_and_tokens(language: str) -> None:
    training, held_out = (part[:20_000] for part in parallel_text.split(language))
    theirs, learned = library(training, 1_000), bpe.learn(training, 1_000)
    assert len(learned.tokens) == 1_000
    assert [*learned.ranks] == merges(theirs)
    assert bpe.encode(learned, held_out.encode()) == theirs.encode(held_out).ids


def test_every_character_of_the_basic_plane_is_cut_alike() -> None:
    learned, theirs = bpe.Tokenizer(), library("", 256)
    for first in range(0, 0xD800, 0x400):
        block = "a ".join(map(chr, range(first, first + 0x400)))
        assert bpe.encode(learned, block.encode()) == theirs.encode(block).ids
        cut = theirs.pre_tokenizer.pre_tokenize_str(block) if theirs.pre_tokenizer else []
        assert [block[start:end] for _, (start, end) in cut] == bpe.WORD.findall(block)


@pytest.mark.parametrize(
    ("data", "at"),
    [(b"\xff", 0), (b"memory \x80", 7), ("显存".encode()[:-1], 3), (b"a\xed\xa0\x80", 1), (b"ok\xc0\xaf", 2)],
)
def test_bytes_that_are_no_text_are_refused_with_their_place(data: bytes, at: int) -> None:
    with pytest.raises(UnicodeDecodeError, match=f"in position {at}") as caught:
        bpe.encode(bpe.Tokenizer(), data)
    assert caught.value.start == at


def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one() -> None:
    sample = parallel_text.split("zh")[0][:6_000]
    assert [*bpe.learn(sample, 600).ranks][:64] == [*bpe.learn(sample, 320).ranks]


def test_the_plain_encoder_has_at_most_80_lines() -> None:
    """Its code: all but the faster way to learn, comments, docstrings and blank lines."""
    tree = ast.parse(Path(str(bpe.__file__)).read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == "learn")]
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            lines.update(range(node.lineno, (body[0].lineno if body else (node.end_lineno or 0) + 1)))
    assert 50 < len(lines) <= 80


def test_both_languages_have_the_same_paragraphs() -> None:
    english, chinese = (parallel_text.paragraphs(language) for language in parallel_text.LANGUAGES)
    assert len(english) == len(chinese)
    for lines in (english, chinese):
        assert all(line.strip() for line in lines) and len(set(lines)) == len(lines)
    for language, lines in zip(parallel_text.LANGUAGES, (english, chinese), strict=True):
        training, held_out = parallel_text.split(language)
        assert sorted((training + held_out).splitlines(True)) == sorted(lines)
        assert held_out.splitlines(True) == lines[4::5]


def test_text_is_converted_as_by_hand() -> None:
    assert text_tokens(8_000, 4) == 2_000
    assert (disk_bytes(10, 65_536), disk_bytes(10, 65_537)) == (20, 40)
    assert bits_a_byte(0.6931471805599453 * 8, 4) == pytest.approx(2)
