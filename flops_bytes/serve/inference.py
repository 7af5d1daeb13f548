"""What inference costs: bytes and seconds of a token, users that fit, tokens a second.

Nothing but Python. Symbols are those of memory/formulas.py; b users each have T tokens in the
cache. For several GPUs that share each layer, give the sums of their memories,
bandwidths and peaks: what the wire costs is left out.
"""

from collections.abc import Callable
from typing import NamedTuple

from flops_bytes.memory.formulas import cache_bytes
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import Decoder, parameters


class Server(NamedTuple):
    """What a model is served on, and in how many bits."""

    bandwidth: float  # bytes/s of the memory
    peak: float  # FLOP/s
    weight_bits: float = 16
    cache_itemsize: int = 2  # bytes of a number in the cache
    end_bits: float = 0  # of a weight of embedding and head; 0: as of the others


def latent_cache_bytes(
    layers: int,
    kv_lora_rank: int,
    rope_dim: int,
    tokens: int,
    width: int = 2,
) -> int:
    """Bytes of so many tokens' cache: a latent and a rotated key a layer, for all heads.

    DeepSeek-V2 (arXiv 2405.04434), section 2.1; 512 and 64 numbers in V2 and V3.

    >>> latent_cache_bytes(layers=61, kv_lora_rank=512, rope_dim=64, tokens=1)
    70272
    """
    return layers * (kv_lora_rank + rope_dim) * tokens * width


def bits_per_weight(bits: float, group: int = 0, group_bits: int = 0) -> float:
    """Bits of a quantized weight, and its share of its group's scale and zero point.

    >>> bits_per_weight(4, group=128, group_bits=16 + 16)
    4.25
    """
    return bits + (group_bits / group if group else 0)


def power(base: float, exponent: int) -> float:
    """By squaring, so that it has the same digits wherever it is computed."""
    result = 1.0
    while exponent:
        result *= base if exponent % 2 else 1
        base, exponent = base * base, exponent // 2
    return result


def read_parameters(shape: Decoder, users: int = 1) -> float:
    """Parameters that a decoding step reads: all but tables for looking tokens up.

    Of a layer's experts, those that at least one user is sent to, all being as likely.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> read_parameters(LLAMA_3_8B)
    7504924672.0
    """
    count = parameters(shape)
    unread_parameters = count["positions"] + (0 if shape.tied else count["embedding"])
    # the share of experts that nobody is sent to
    idle_share = power(1 - shape.active_experts / shape.experts, users)
    return sum(count.values()) - unread_parameters - idle_share * count["mlp"]


def weights_bytes(shape: Decoder, bits: float = 16, end_bits: float = 0) -> float:
    """Bytes of all weights; what is quantized are mostly the matrices of the layers.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> weights_bytes(LLAMA_3_8B)
    16060522496.0
    """
    count = parameters(shape)
    end_parameters = count["embedding"] + count["positions"] + count["head"]
    extra_bits = end_parameters * ((end_bits or bits) - bits)
    return sum(count.values()) * bits / 8 + extra_bits / 8


def read_bytes(shape: Decoder, users: int = 1, bits: float = 16, end_bits: float = 0) -> float:
    """Bytes of the weights that a step reads: of the ends, the head alone.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> read_bytes(LLAMA_3_8B, bits=8)
    7504924672.0
    """
    extra_bits = shape.vocab * shape.d_model * ((end_bits or bits) - bits)
    return read_parameters(shape, users) * bits / 8 + extra_bits / 8


def decode_bytes(
    shape: Decoder,
    users: int,
    context: int,
    bits: float = 16,
    width: int = 2,
    end_bits: float = 0,
) -> float:
    """Bytes that a decoding step reads: the weights once, each user's own keys and values.

    Each of `users` has `context` tokens in the cache, of `width` bytes a number. A weight has `bits`; one of the head
    has `end_bits`, or `bits` where that is 0.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> decode_bytes(LLAMA_3_8B, users=8, context=8_192)
    23599783936.0
    """
    weight_bytes = read_bytes(shape, users, bits, end_bits)
    return weight_bytes + users * cache_bytes(shape, context, width)


def decode_flops(shape: Decoder, users: int, context: int) -> int:
    """FLOPs of a step: each user's new token attends to `context`, itself too.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> decode_flops(LLAMA_3_8B, users=8, context=8_192)
    154434273280
    """
    one = forward_flops(shape, 1)
    return users * (sum(one.values()) + (context - 1) * (one["scores"] + one["values"]))


def decode_seconds(shape: Decoder, users: int, context: int, server: Server) -> float:
    """The bound of a step, by its bytes or FLOPs (Williams et al. 2009, Roofline)."""
    bits, end_bits = server.weight_bits, server.end_bits
    moved_bytes = decode_bytes(shape, users, context, bits, server.cache_itemsize, end_bits)
    flops = decode_flops(shape, users, context)
    return max(moved_bytes / server.bandwidth, flops / server.peak)


def prefill_flops(shape: Decoder, prompt: int, users: int = 1) -> int:
    """FLOPs of a prompt through all layers, causal, and of its last token's logits.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> prefill_flops(LLAMA_3_8B, prompt=8_192)
    131944593489920
    """
    flops = forward_flops(shape, prompt, users, causal=True)
    return sum(flops.values()) - flops["head"] + flops["head"] // prompt


def prefill_seconds(shape: Decoder, prompt: int, server: Server) -> float:
    """The bound of a prefill: its FLOPs, or the weights where the prompt is short."""
    weight_bytes = read_bytes(shape, prompt, server.weight_bits, server.end_bits)
    return max(weight_bytes / server.bandwidth, prefill_flops(shape, prompt) / server.peak)


def token_seconds(shape: Decoder, users: int, context: int, server: Server, prompt: int = 0) -> float:
    """The bound of a token, with its share of the prefills that all users wait for.

    While each user gets an answer, of `context` less `prompt` tokens, each one's prompt
    is read once. Without an answer, or a prompt, it is the bound of a step.
    """
    step_seconds = decode_seconds(shape, users, context, server)
    if not 0 < prompt < context:
        return step_seconds
    return step_seconds + users * prefill_seconds(shape, prompt, server) / (context - prompt)


def ridge_users(server: Server) -> float:
    """Users whose products with the weights take as long as reading these.

    A weight is bits / 8 bytes, and 2 FLOPs for each user.

    >>> ridge_users(Server(bandwidth=2e12, peak=600e12))
    300.0
    """
    return server.peak / server.bandwidth * server.weight_bits / 16


def equal_tokens(shape: Decoder, bits: float = 16, width: int = 2) -> float:
    """Tokens, of all users, whose keys and values are as many bytes as the weights."""
    return read_parameters(shape) * bits / 8 / cache_bytes(shape, 1, width)


def tokens_that_fit(
    shape: Decoder,
    memory_bytes: float,
    bits: float = 16,
    width: int = 2,
    end_bits: float = 0,
) -> int:
    """Tokens, of all users, with room beside the weights; 0 where these do not fit.

    Tables and norms are counted as weights. Give the memory without your reserve.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> tokens_that_fit(LLAMA_3_8B, memory_bytes=70e9)
    411525
    """
    room_bytes = memory_bytes - weights_bytes(shape, bits, end_bits)
    return max(0, int(room_bytes / cache_bytes(shape, 1, width)))


def largest(excess_at: Callable[[int], float], limit: int) -> int:
    """The largest number up to the limit by which nothing is exceeded; or 0.

    `excess_at` says by how much something is, 0 or less if not, and falls nowhere. The next number tried is where a
    line through the last two meets 0; from the fourth on, every other time one between what is known to hold and what
    not.
    """
    low, high, tries, number, last_number, last_excess = 0, limit + 1, 0, 1, 0, 0.0
    while high - low > 1:
        excess, tries = excess_at(number), tries + 1
        if excess <= 0:
            low = number
        else:
            high = number
        slope = (excess - last_excess) / (number - last_number)
        if high <= limit and (slope <= 0 or (tries > 3 and tries % 2)):
            next_number = int(float(low * high) ** 0.5) if high > 4 * low else (low + high) // 2
        elif tries == 1:
            next_number = 2
        else:
            next_number = int(number - excess / slope) if slope > 0 else 64 * low
        last_number, last_excess, number = number, excess, min(max(next_number, low + 1), high - 1)
    return low


def users_within(shape: Decoder, seconds: float, context: int, server: Server, prompt: int = 0) -> int:
    """The most users whose token takes so many seconds at most, by the bound; or 0."""

    return largest(lambda users: token_seconds(shape, users, context, server, prompt) - seconds, 2**40)


def plan_serving(
    shape: Decoder,
    memory_bytes: float,
    server: Server,
    context: int,
    seconds: float | None = None,
    prompt: int = 0,
) -> dict[str, float]:
    """How many users fit, how many of them get a token in `seconds`, and how fast.

    Bounds. Where there are no users, times are those that one would have.
    """
    bits, end_bits = server.weight_bits, server.end_bits
    room_tokens = tokens_that_fit(shape, memory_bytes, bits, server.cache_itemsize, end_bits)
    fitting_users = users_in_time = room_tokens // context
    if seconds:
        users_in_time = users_within(shape, seconds, context, server, prompt)
    users = min(fitting_users, users_in_time)
    step_seconds = token_seconds(shape, max(users, 1), context, server, prompt)
    return {
        "users_that_fit": fitting_users,
        "users_in_time": users_in_time,
        "users": users,
        "token_seconds": step_seconds,
        "tokens_per_second": users / step_seconds,
        "prefill_seconds": prefill_seconds(shape, context, server),
        "longest_context": room_tokens // max(users, 1),
    }
