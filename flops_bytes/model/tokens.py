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
    return text_bytes / bytes_a_token


def disk_bytes(tokens: float, vocab: int) -> float:
    """2 bytes a token up to a vocabulary of 65,536, else 4."""
    return tokens * (2 if vocab <= 2**16 else 4)


def bits_a_byte(nats_a_token: float, bytes_a_token: float) -> float:
    """A loss that does not depend on the tokenizer."""
    return nats_a_token / (log(2) * bytes_a_token)
