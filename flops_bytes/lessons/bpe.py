"""Byte-pair encoding in Python alone, equal to the `tokenizers` library."""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

MARKS = r"!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f\uff00-\uffef"  # also 。，“”
WORD = re.compile(f" ?[^ \t\r\n0-9{MARKS}]+| ?[0-9]+| ?[{MARKS}]+|[ \t\r\n]+")
VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = VISIBLE + [byte for byte in range(256) if byte not in VISIBLE]
NUMBER = {byte: token for token, byte in enumerate(BYTES)}  # in GPT-2's order


def spell(word: str) -> str:
    """A word as tokens of one byte. Token n is written chr(n): Python can search it."""
    return word.encode().decode("latin-1").translate(NUMBER)


def pairs(word: str) -> Iterator[str]:
    return map(str.__add__, word, word[1:])


class Tokenizer:
    """Tokens of one byte, and those that merges make of two."""

    def __init__(self, merges: Iterable[str] = ()) -> None:
        self.tokens = [bytes([byte]) for byte in BYTES]
        self.numbers = {token: number for number, token in enumerate(self.tokens)}
        self.ranks: dict[str, int] = {}  # of pairs, in the order learned
        for pair in merges:
            self.add(pair)

    def add(self, pair: str) -> str:
        """The token that this pair becomes; two pairs may become the same."""
        self.ranks.setdefault(pair, len(self.ranks))
        joined = self.decode(map(ord, pair))
        if joined not in self.numbers:
            self.numbers[joined] = len(self.tokens)
            self.tokens.append(joined)
        return chr(self.numbers[joined])

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Bytes, not text: a token may end within a character."""
        return b"".join(self.tokens[token] for token in tokens)


def encode_word(learned: Tokenizer, word: str) -> list[int]:
    """Of the pairs in a word, the one learned first is merged first."""
    tokens = spell(word)
    while known := [pair for pair in pairs(tokens) if pair in learned.ranks]:
        pair = min(known, key=learned.ranks.__getitem__)
        tokens = tokens.replace(pair, learned.add(pair), 1)
    return [*map(ord, tokens)]


def encode(learned: Tokenizer, data: bytes) -> list[int]:
    """Raises UnicodeDecodeError, with the position, where data is not UTF-8."""
    words = WORD.findall(data.decode("utf-8"))
    known = {word: encode_word(learned, word) for word in set(words)}
    return [token for word in words for token in known[word]]


def learn_plainly(text: str, size: int) -> Tokenizer:
    """Counts all pairs, merges the most frequent, and counts all again."""
    words = Counter(map(spell, WORD.findall(text)))
    learned = Tokenizer()
    while len(learned.tokens) < size:
        counts: Counter[str] = Counter()
        for word, often in words.items():
            for pair in pairs(word):
                counts[pair] += often
        best = min(counts, key=lambda pair: (-counts[pair], pair), default="")
        if counts[best] < 2:
            break  # what stands there once is worth no token
        new = learned.add(best)
        words = Counter({w.replace(best, new): n for w, n in words.items()})
    return learned


def learn(text: str, size: int) -> Tokenizer:
    """The same merges; counts are kept up, and a heap has the largest on top."""
    words = [*Counter(map(spell, WORD.findall(text))).items()]
    learned = Tokenizer()
    counts: Counter[str] = Counter()
    places: defaultdict[str, set[int]] = defaultdict(set)
    for place, (word, often) in enumerate(words):
        for pair in pairs(word):
            counts[pair] += often
            places[pair].add(place)
    heap = sorted((-count, pair) for pair, count in counts.items())
    while heap and len(learned.tokens) < size:
        count, best = heapq.heappop(heap)
        if -count != counts[best]:  # other merges took some: back, with what is left
            heapq.heappush(heap, (-counts[best], best))
            continue
        if -count < 2:
            break
        new, made = learned.add(best), set()
        for place in places.pop(best):  # the only words that change
            word, often = words[place]
            words[place] = word.replace(best, new), often
            near = word[max(word.find(best) - 1, 0) : word.rfind(best) + 3]
            for pair in pairs(near):
                counts[pair] -= often
            for pair in pairs(near.replace(best, new)):
                counts[pair] += often
                if new in pair:
                    places[pair].add(place)
                    made.add(pair)
        for pair in made:
            heapq.heappush(heap, (-counts[pair], pair))
    return learned
