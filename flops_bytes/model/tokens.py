"""What a text costs: from bytes or characters to tokens, disk and bits a byte. Numbers in, numbers out."""

from math import log

BYTES_A_CHARACTER = {"en": 1, "zh": 3}  # in UTF-8: of a letter, of a Chinese character
BYTES_A_TOKEN = {
    # this book's prose, held out, by vocabulary; trained on both languages
    256: {"en": 1.0, "zh": 1.0},
    1_024: {"en": 2.38, "zh": 2.43},
    4_096: {"en": 3.54, "zh": 3.75},
    8_192: {"en": 3.81, "zh": 4.25},
}


def text_tokens(text_bytes: float, bytes_a_token: float) -> float:
    """Tokens of a text of so many bytes, at so many bytes a token (BYTES_A_TOKEN has this book's own).

    >>> text_tokens(1e9, bytes_a_token=4)
    250000000.0
    """
    return text_bytes / bytes_a_token


def disk_bytes(tokens: float, vocab: int) -> float:
    """Bytes of a file of token ids: 2 bytes a token up to a vocabulary of 65,536, else 4.

    >>> disk_bytes(tokens=1_000_000_000, vocab=50_257)
    2000000000
    >>> disk_bytes(tokens=1_000_000_000, vocab=128_256)
    4000000000
    """
    return tokens * (2 if vocab <= 2**16 else 4)


def bits_a_byte(nats_a_token: float, bytes_a_token: float) -> float:
    """Bits a byte of text, from a loss in nats a token: a loss that does not depend on the tokenizer.

    >>> from math import log
    >>> bits_a_byte(nats_a_token=4 * log(2), bytes_a_token=4)  # a loss of four bits a token
    1.0
    """
    return nats_a_token / (log(2) * bytes_a_token)
