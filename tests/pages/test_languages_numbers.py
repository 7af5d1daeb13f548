"""In both languages a section has the same numbers and formulas: 10 billion is 100 亿, an eighth is 八分之一."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

import pytest

from ledger.book import Book
from ledger.site.chapter import INLINE, Chapter
from tests import tables
from tests.conftest import ROOT

BOOK = Book(ROOT)
NAMES = sorted(path.name for path in (BOOK.docs / "en").glob("*.md"))
SCALES = {
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
    "千": 1e3,
    "万": 1e4,
    "亿": 1e8,
    "万亿": 1e12,
}
SCALES |= {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "": 1}
NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.^])(?P<sign>[−-](?=\d))?(?P<digits>\d[\d,]*(?:\.\d+)?)(?!\d*(?:st|nd|rd|th)\b)"
    r"(?:(?P<letter>[KMBT])(?![A-Za-z0-9/])|\s*(?P<word>thousand|million|billion|trillion|万亿|[千万亿]))?"
)
IN_WORDS = dict(enumerate(["零", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"]))
IN_ENGLISH = {
    **dict(
        enumerate(
            ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
        )
    ),
    0: "zeros?|no",
    1: "one|first|a|an|once",
    2: "two|twice|second|double|both|half|halves|pair",
    3: "three|thirds?",
    4: "four|fourth|quarters?",
}
IN_CHINESE = {**IN_WORDS, 2: "二|两|半|倍"}
Said = set[float]
SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
ENGLISH = {word: n for n, word in enumerate(f"{SMALL} eighteen nineteen".split())}
ENGLISH |= {word: 10 * n for n, word in enumerate(TENS.split(), 2)}
ENGLISH |= {"third": 3, "fourth": 4, "quarter": 4, "fifth": 5, "eighth": 8, "ninth": 9, "twentieth": 20, "fiftieth": 50}
SPELLED = re.compile(
    rf"\b({'|'.join(ENGLISH)}|(?:six|seven|ten)(?=th))(?:th)?s?(?:-(\w+))?\b(?! [mb]illion| hundred)", re.IGNORECASE
)
DIGITS = "零一二三四五六七八九"
HAN = re.compile(
    rf"四舍五入|四分位|三角|十进制|(?:([{DIGITS[1:]}]?)(十)([{DIGITS[1:]}]?)|([{DIGITS[3:]}])(成?))(?![百千万亿十]|\d)"
)

COUNTS = {word: n for n, word in enumerate(SMALL.split())}
PARTS = {"third": 3, "quarter": 4, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12, "twentieth": 20, "fiftieth": 50}
PARTS |= {f"{word}th": n for word, n in COUNTS.items() if n in (6, 7, 10, 11, *range(13, 18))}
PARTS |= {"hundredth": 100, "thousandth": 1000, "millionth": 10**6}
SHARE = re.compile(rf"(?i)\b(an?|{'|'.join(COUNTS)})[ -](?:({'|'.join(COUNTS)})-)?({'|'.join(PARTS)})s?\b")
HAN_SHARE = re.compile(rf"(?<![几数])([{DIGITS[1:]}两十百千]+)分之([{DIGITS[1:]}])|([{DIGITS[1:]}])成")
HAN_SCALES = {"": 1, "十": 10, "百": 100, "千": 1000}

TIMES = {3: "tripl\\w+|thrice", 4: "quadrupl\\w+"} | dict.fromkeys(range(5, 11), "(?!)")
# A multiple from three up that one language alone says.
TIMES_OTHERWISE: dict[str, Said] = {
    "compute-for-memory.md#idea": {3},
    "experts.md#look-up": {4},
    "formulas.md#formulas": {6},
    "gradients.md#exercises": {3, 4},
    "gradients.md#two-products": {3},
    "grpo.md#phases": {3},
    "measure-your-gpu.md#again": {3},
    "mixed-precision.md#speed": {8},
    "one-card.md#exercises": {3},
    "open-questions.md#cards": {10},
    "optimizers.md#sgd": {10},
    "parallelism.md#decide": {4},
    "storage-and-strides.md#views": {3, 5},
    "study-tasks.md#study-tasks": {4},
    "two-questions.md#how-big": {8},
}
# A number from three up that one language alone says, in words: it speaks otherwise there.
SAID_OTHERWISE: dict[str, Said] = {
    "count-your-step.md#ranks": {3},
    "capstones.md#after": {10},
    "cs336.md#bound": {6},
    "cs336.md#map": {3},
    "evidence.md#time": {10, 4, 5},
    "experts.md#flops": {3},
    "full-ledger.md#look-up": {7},
    "full-ledger.md#remember": {3},
    "hardware.md#china": {5},
    "how-far-off.md#published": {3},
    "how-far-off.md#split": {10},
    "many-gpus.md#gathered": {6},
    "many-gpus.md#look-up": {5, 10},
    "number-formats.md#tf32": {7},
    "one-card.md#exercises": {10},
    "open-questions.md#cards": {10},
    "optimizers.md#traffic": {4},
    "parallelism.md#layouts": {10},
    "parallelism.md#worked": {7},
    "study-tasks.md#after": {10},
    "timing.md#recipe": {10},
    "traces.md#lines": {4},
    "traces.md#traces": {4},
    "transformer-flops.md#exercises": {10},
}
# A share that one language alone says, in words: "nine of ten", or a third one.
SHARES_OTHERWISE: dict[str, set[str]] = {
    "activations.md#variants": {"1/3"},
    "compute-for-memory.md#chunks": {"5/8"},
    "counting-flops.md#count-or-speed": {"1/3"},
    "cs336.md#map": {"1/3"},
    "full-ledger.md#memory": {"1/3"},
    "glossary.md#transformers": {"1/3"},
    "gpt2-parameters.md#llama": {"1/3"},
    "hardware.md#derive": {"1/100"},
    "how-far-off.md#days": {"4/5"},
    "how-far-off.md#ours": {"1/100"},
    "how-far-off.md#room": {"1/20", "9/10"},
    "how-far-off.md#split": {"1/5"},
    "many-gpus.md#look-up": {"1/5", "4/5"},
    "many-gpus.md#memory": {"1/4"},
    "many-gpus.md#wire": {"3/4"},
    "mfu.md#tiles": {"1/10", "1/3"},
    "number-formats.md#fields": {"1/2"},
    "number-formats.md#resolution": {"1/3"},
    "one-card.md#fits": {"9/10"},
    "one-card.md#mirrors": {"1/3"},
    "optimizers.md#rmsprop": {"1/100"},
    "parallelism.md#tensor": {"1/8"},
    "plan.md#examples": {"9/10"},
    "plan.md#reading": {"9/10"},
    "study-tasks.md#parameters": {"1/50"},
    "timing.md#exercises": {"1/100"},
    "timing.md#recipe": {"1/10000"},
}
# What one language says with a number and the other in words, by the section where it does.
NUMBERS_IN_WORDS: dict[str, Said] = {
    "activations.md#why": {1e3, 1e6, 2e6, 8e6},  # "two million bytes"
    "gpt2-parameters.md#block": {700},
    "gpt2-parameters.md#llama": {4000},
    "gpt2-parameters.md#model": {124, 1.24e8},  # "from 124 to 1,558 million"
    "gpu-memory.md#luck": {512},
    "number-formats.md#limits": {0.5},
}
# A formula that the other language gives in another form, or leaves out.
FORMULAS_IN_WORDS: dict[str, set[str]] = {
    "activations.md#variants": {"2\\,bTd"},
    "activations.md#exercises": {"T>16\\,d/H", "16\\,d/H"},
    "many-gpus.md#time": {"T^*"},
}


def plain(text: str) -> str:
    """A text without what is no prose: code, formulas, placeholders, addresses, footnotes' marks."""
    text = re.sub(r"\[\^[\w-]+\]:?|https?://\S+|(?<=\*\*)\d+\.(?= )|\d+ 月", " ", text)
    return INLINE.sub(lambda match: match[0] if match.lastgroup == "escape" else " ¶ ", text)


def texts(chapter: Chapter) -> Iterator[tuple[str, str]]:
    """All that a page says, each with the heading that it stands under; footnotes and sources aside."""
    lines = [(line, text) for line, text in chapter.paragraphs if not text.startswith("[^")]
    for block in chapter.blocks:
        if block.kind == "table" and not block.argument:
            lines += [(block.line, text) for text in tables.words(block.options)]
        labels = block.options.get("labels") or {}
        lines += [(block.line, str(text)) for text in (block.options.get("alt", ""), *labels.values())]
    for line, text in [*lines, *((heading.line, heading.text) for heading in chapter.headings)]:
        yield under(chapter, line), plain(text)


def under(chapter: Chapter, line: int) -> str:
    headings = [heading.id or "" for heading in chapter.headings if heading.line <= line]
    return f"{chapter.path.name}#{headings[-1] if headings else ''}"


def numbers(text: str) -> Said:
    found = set()
    for match in NUMBER.finditer(text):
        factor = SCALES[match["letter"] or match["word"] or ""]
        found.add(round(float(match["digits"].rstrip(",").replace(",", "")) * factor, 9) * (-1 if match["sign"] else 1))
    return found


def said(chapter: Chapter) -> dict[str, str]:
    found: dict[str, str] = {}
    for section, text in texts(chapter):
        found[section] = f"{found.get(section, '')}\n{text}"
    return found


def spelled(text: str) -> Said:
    """The numbers from three up that English says in words, parts such as eighths too."""
    found = set()
    for word, more in SPELLED.findall(text):
        number = ENGLISH[word.lower()]
        found.add(number + (ENGLISH.get(more.lower().removesuffix("s"), 0) if number >= 20 else 0))
    return {float(number) for number in found if number >= 3}


def in_han(text: str) -> Said:
    """The same of Chinese; 九成 are nine tenths."""
    found = set()
    for tens, ten, ones, digit, tenths in HAN.findall(text):
        if ten:
            found.add(10 * (DIGITS.find(tens) if tens else 1) + (DIGITS.find(ones) if ones else 0))
        elif digit:
            found |= {DIGITS.find(digit)} | ({10} if tenths else set())
    return {float(number) for number in found}


def shares(text: str) -> set[Fraction]:
    """The parts of a whole that English says in words: three quarters, a two-thousandth."""
    counts = COUNTS | {"a": 1, "an": 1, "": 1}
    found = SHARE.findall(text)
    return {Fraction(counts[n.lower()], PARTS[part.lower()] * counts[of.lower()]) for n, of, part in found}


def shares_in_han(text: str) -> set[Fraction]:
    """The same of Chinese."""
    found = set()
    for whole, part, tenths in HAN_SHARE.findall(text):
        digits = re.findall(rf"([{DIGITS[1:]}两]?)([十百千]?)", whole)
        parts = sum(
            DIGITS.find((n or "一").replace("两", "二")) * HAN_SCALES[scale] for n, scale in digits if n or scale
        )
        found.add(Fraction(DIGITS.find(tenths), 10) if tenths else Fraction(DIGITS.find(part), parts))
    return found


def multiples(text: str) -> tuple[Said, Said]:
    """Three times and more, as either language says it."""
    words = SMALL.split()
    english = {n for n, said in TIMES.items() if re.search(rf"(?i)\b(?:{said}|{words[n]}(?: times|fold))\b", text)}
    chinese = {10 if digit == "十" else DIGITS.find(digit) for digit in re.findall(rf"([{DIGITS[3:]}十])倍", text)}
    return {float(n) for n in english}, {float(n) for n in chinese}


def is_in_words(number: float, text: str) -> bool:
    if abs(number) not in IN_WORDS:
        return False
    english = rf"(?ai)\b(?:{IN_ENGLISH[int(abs(number))]})\b"
    return bool(re.search(english, text) or re.search(IN_CHINESE[int(abs(number))], text))


def formulas(chapter: Chapter) -> dict[str, set[str]]:
    """By section, what stands between dollar signs and is more than a letter, without spaces and words."""
    found: dict[str, set[str]] = {}
    inline = [
        (first + text.count("\n", 0, match.start()), match[0])
        for first, text in chapter.paragraphs
        for match in INLINE.finditer(text)
        if match.lastgroup == "math"
    ]
    for line, text in [*inline, *((line, "".join(lines)) for line, lines in chapter.formulas)]:
        formula = re.sub(r"\\text\{[^}]*\}|\{,\}|\s|\$", "", text)  # Chinese writes 1024 without a comma
        if re.search(r"[\d^+/=-]|\\", formula):
            found.setdefault(under(chapter, line), set()).add(formula)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_type_the_same_numbers(name: str) -> None:
    english, chinese = (said(Chapter.read(BOOK.docs / language / name)) for language in ("en", "zh"))
    for section in english.keys() | chinese.keys():
        ours, theirs = english.get(section, ""), chinese.get(section, "")
        apart = (numbers(ours) ^ numbers(theirs)) - NUMBERS_IN_WORDS.get(section, set())
        apart = {n for n in apart if not is_in_words(n, theirs if n in numbers(ours) else ours)}
        assert not apart, f"docs/*/{section}: only one language has {sorted(apart)}"


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_say_the_same_numbers_in_words(name: str) -> None:
    english, chinese = (said(Chapter.read(BOOK.docs / language / name)) for language in ("en", "zh"))
    for section in english.keys() | chinese.keys():
        ours, theirs = english.get(section, ""), chinese.get(section, "")
        apart = (spelled(ours) - in_han(theirs) - numbers(theirs)) | (in_han(theirs) - spelled(ours) - numbers(ours))
        assert apart == SAID_OTHERWISE.get(section, set()), f"docs/*/{section}"
        assert multiples(ours)[0] ^ multiples(theirs)[1] == TIMES_OTHERWISE.get(section, set()), f"docs/*/{section}"


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_say_the_same_shares_in_words(name: str) -> None:
    english, chinese = (said(Chapter.read(BOOK.docs / language / name)) for language in ("en", "zh"))
    for section in english.keys() | chinese.keys():
        apart = {*map(str, shares(english.get(section, "")) ^ shares_in_han(chinese.get(section, "")))}
        assert apart == SHARES_OTHERWISE.get(section, set()), f"docs/*/{section}"


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_formulas(name: str) -> None:
    english, chinese = (formulas(Chapter.read(BOOK.docs / language / name)) for language in ("en", "zh"))
    for section in english.keys() | chinese.keys():
        apart = english.get(section, set()) ^ chinese.get(section, set())
        assert not apart - FORMULAS_IN_WORDS.get(section, set()), f"docs/*/{section}: {apart}"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("a run of 10 billion tokens", "100 亿个词元"),
        ("124M", "1.24 亿"),
        ("about −3.5, 1,024 and twelve", "约 −3.5、1024 和 12"),
        ("15 trillion `x = 7` {{ a.b:.3f }} $8^9$", "15 万亿 `x = 8`"),
    ],
)
def test_what_is_the_same_number(english: str, chinese: str) -> None:
    apart = numbers(plain(english)) ^ numbers(plain(chinese))
    assert all(is_in_words(number, english + chinese) for number in apart)


def test_what_is_the_same_share() -> None:
    english = "an eighth, three quarters, a two-thousandth, a hundredth, nine tenths"
    assert shares(english) == shares_in_han("八分之一、四分之三、两千分之一、百分之一、九成，还有几十分之一")
    assert shares("a two-hundredth") != shares_in_han("两千分之一")


def test_another_number_is_another() -> None:
    assert numbers("−3.5") != numbers("3.5") and numbers("1.5 亿") != numbers("1.5 万")
    assert not is_in_words(8, "nine 九 9")
