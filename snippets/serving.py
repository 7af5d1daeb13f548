# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""What inference costs: bytes and seconds of a token, users that fit, tokens a second.

Nothing but Python. Symbols are those of formulas.py; b users each have T tokens in the
cache. Bandwidths are in bytes/s, peaks in FLOP/s, bits those of a weight, widths the
bytes of a number in the cache. For several GPUs that share each layer, give the sums of
their bandwidths and peaks: what the wire costs is left out.
"""

# --8<-- [start:setup]
import math

# formulas.py, the book's arithmetic, lies beside this file
from formulas import Decoder, cache_bytes, forward_flops, parameters

# --8<-- [end:setup]


# --8<-- [start:latent]
def latent_cache_bytes(
    layers: int,
    latent: int,
    turned: int,
    tokens: int,
    width: int = 2,
) -> int:
    """Bytes of so many tokens' cache: a latent and a rotated key a layer, for all heads.

    DeepSeek-V2 (arXiv 2405.04434), section 2.1; 512 and 64 numbers in V2 and V3.
    """
    return layers * (latent + turned) * tokens * width


# --8<-- [end:latent]


# --8<-- [start:weights]
def bits_per_weight(bits: float, group: int = 0, group_bits: int = 0) -> float:
    """Bits of a quantized weight, and its share of its group's scale and zero point."""
    return bits + (group_bits / group if group else 0)


def read_parameters(shape: Decoder, users: int = 1) -> float:
    """Parameters that a decoding step reads: all but tables for looking tokens up.

    Of a layer's experts, those that at least one user is sent to, all being as likely.
    """
    count = parameters(shape)
    unread = count["positions"] + (0 if shape.tied else count["embedding"])
    # the share of experts that nobody is sent to
    idle = (1 - shape.active_experts / shape.experts) ** users
    return sum(count.values()) - unread - idle * count["mlp"]


# --8<-- [end:weights]


# --8<-- [start:decode]
def decode_bytes(
    shape: Decoder,
    users: int,
    context: int,
    bits: float = 16,
    width: int = 2,
) -> float:
    """Bytes that a step reads: the weights once, each user's own keys and values."""
    weights = read_parameters(shape, users) * bits / 8
    return weights + users * cache_bytes(shape, context, width)


def decode_flops(shape: Decoder, users: int, context: int) -> int:
    """FLOPs of a step: each user's new token attends to `context`, itself too."""
    one = forward_flops(shape, 1)
    return users * (sum(one.values()) + (context - 1) * (one["scores"] + one["values"]))


# --8<-- [end:decode]


# --8<-- [start:bound]
def decode_seconds(
    shape: Decoder,
    users: int,
    context: int,
    bandwidth: float,
    peak: float,
    bits: float = 16,
    width: int = 2,
) -> float:
    """The bound of a step, by its bytes or FLOPs (Williams et al. 2009, Roofline)."""
    moving = decode_bytes(shape, users, context, bits, width) / bandwidth
    return max(moving, decode_flops(shape, users, context) / peak)


# --8<-- [end:bound]


# --8<-- [start:prefill]
def prefill_flops(shape: Decoder, prompt: int, users: int = 1) -> int:
    """FLOPs of a prompt through all layers, causal, and of its last token's logits."""
    flops = forward_flops(shape, prompt, users, causal=True)
    return sum(flops.values()) - flops["head"] + flops["head"] // prompt


def prefill_seconds(
    shape: Decoder,
    prompt: int,
    bandwidth: float,
    peak: float,
    users: int = 1,
    bits: float = 16,
) -> float:
    """The bound of a prefill: its FLOPs, or the weights where the prompt is short."""
    reading = read_parameters(shape, users * prompt) * bits / 8 / bandwidth
    return max(reading, prefill_flops(shape, prompt, users) / peak)


# --8<-- [end:prefill]


# --8<-- [start:limits]
def ridge_users(bandwidth: float, peak: float, bits: float = 16) -> float:
    """Users whose products with the weights take as long as reading these.

    A weight is bits / 8 bytes, and 2 FLOPs for each user.
    """
    return peak / bandwidth * bits / 16


def equal_tokens(shape: Decoder, bits: float = 16, width: int = 2) -> float:
    """Tokens, of all users, whose keys and values are as many bytes as the weights."""
    return read_parameters(shape) * bits / 8 / cache_bytes(shape, 1, width)


def tokens_that_fit(
    shape: Decoder,
    memory_bytes: float,
    bits: float = 16,
    width: int = 2,
) -> int:
    """Tokens, of all users, with room beside the weights; 0 where these do not fit.

    Tables and norms are counted as weights. Give the memory without your reserve.
    """
    room = memory_bytes - sum(parameters(shape).values()) * bits / 8
    return max(0, math.floor(room / cache_bytes(shape, 1, width)))


def users_within(
    shape: Decoder,
    seconds: float,
    context: int,
    bandwidth: float,
    peak: float,
    bits: float = 16,
    width: int = 2,
) -> int:
    """The most users whose step takes so many seconds at most, by the bound; or 0."""
    last = bandwidth, peak, bits, width

    def within(users: int) -> bool:
        return decode_seconds(shape, users, context, *last) <= seconds

    low, high = 0, 1
    while within(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


# --8<-- [end:limits]


# --8<-- [start:plan]
def plan_serving(
    shape: Decoder,
    memory_bytes: float,
    bandwidth: float,
    peak: float,
    context: int,
    seconds: float,
    bits: float = 16,
    width: int = 2,
) -> dict[str, float]:
    """Bounds of users, latency and tokens a second, if a token may take `seconds`.

    Raises ValueError where one user does not fit, or is not served in time.
    """
    room = tokens_that_fit(shape, memory_bytes, bits, width)
    last = bandwidth, peak, bits, width
    fit, fast = room // context, users_within(shape, seconds, context, *last)
    users = min(fit, fast)
    if not users:
        room_for = f"room for {room:,} tokens, {fast} users in time"
        raise ValueError(f"{room_for}: fewer bits, a shorter context or more GPUs")
    step = decode_seconds(shape, users, context, *last)
    return {
        "users_that_fit": fit,
        "users_in_time": fast,
        "users": users,
        "token_seconds": step,
        "tokens_per_second": users / step,
        "prefill_seconds": prefill_seconds(shape, context, bandwidth, peak, 1, bits),
        "longest_context": room // users,
    }


# --8<-- [end:plan]
