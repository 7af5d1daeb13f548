# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""What inference costs: bytes and seconds of a token, users that fit, tokens a second. Nothing but Python.

Symbols are those of formulas.py; b users each have T tokens in the cache. Bandwidths are in bytes/s, peaks in FLOP/s.
For several GPUs that share each layer, give the sums of their bandwidths and peaks: what the wire costs is left out.
"""

# --8<-- [start:setup]
import math

from formulas import Decoder, cache_bytes, forward_flops, parameters  # it lies beside this file

# --8<-- [end:setup]


# --8<-- [start:latent]
def latent_cache_bytes(layers: int, latent: int, turned: int, tokens: int, width: int = 2) -> int:
    """Bytes of so many tokens' cache under latent attention: a latent and a rotated key a layer, for all heads.

    DeepSeek-AI 2024, DeepSeek-V2 (arXiv 2405.04434), section 2.1; V2 and V3 have a latent of 512 and a key of 64.
    """
    return layers * (latent + turned) * tokens * width


# --8<-- [end:latent]


# --8<-- [start:weights]
def bits_per_weight(bits: float, group: int = 0, group_bits: int = 0) -> float:
    """Bits that a quantized weight takes, with its share of what each group of weights keeps: scale, zero point."""
    return bits + (group_bits / group if group else 0)


def read_parameters(shape: Decoder, users: int = 1) -> float:
    """Parameters that one decoding step reads: all but the tables in which tokens are looked up.

    Of a layer's experts, those that at least one of the users is sent to, if each choice is as likely as any other.
    """
    count = parameters(shape)
    unread = count["positions"] + (0 if shape.tied else count["embedding"])
    idle = (1 - shape.active_experts / shape.experts) ** users  # the share of experts that nobody is sent to
    return sum(count.values()) - unread - idle * count["mlp"]


# --8<-- [end:weights]


# --8<-- [start:decode]
def decode_bytes(shape: Decoder, users: int, context: int, bits: float = 16, width: int = 2) -> float:
    """Bytes that a decoding step reads: the weights once, for all users, and each user's own keys and values."""
    return read_parameters(shape, users) * bits / 8 + users * cache_bytes(shape, context, width)


def decode_flops(shape: Decoder, users: int, context: int) -> int:
    """FLOPs of a decoding step: a new token for each user, which attends to `context` tokens, itself among them."""
    one = forward_flops(shape, 1)
    return users * (sum(one.values()) + (context - 1) * (one["scores"] + one["values"]))


def decode_seconds(
    shape: Decoder, users: int, context: int, bandwidth: float, peak: float, bits: float = 16, width: int = 2
) -> float:
    """The bound: a step takes no less than its bytes or its FLOPs do (the roofline, Williams et al. 2009)."""
    moving = decode_bytes(shape, users, context, bits, width) / bandwidth
    return max(moving, decode_flops(shape, users, context) / peak)


# --8<-- [end:decode]


# --8<-- [start:prefill]
def prefill_flops(shape: Decoder, prompt: int, users: int = 1) -> int:
    """FLOPs until the first new token: a prompt through all layers, causal, and its last token through the head."""
    flops = forward_flops(shape, prompt, users, causal=True)
    return sum(flops.values()) - flops["head"] + flops["head"] // prompt


def prefill_seconds(
    shape: Decoder, prompt: int, bandwidth: float, peak: float, users: int = 1, bits: float = 16
) -> float:
    """The bound of a prefill: its FLOPs, or the weights where the prompt is short."""
    reading = read_parameters(shape, users * prompt) * bits / 8 / bandwidth
    return max(reading, prefill_flops(shape, prompt, users) / peak)


# --8<-- [end:prefill]


# --8<-- [start:limits]
def ridge_users(bandwidth: float, peak: float, bits: float = 16) -> float:
    """Users at which the products with weights take as long as reading these: 2 FLOPs a user, bits/8 bytes a weight."""
    return peak / bandwidth * bits / 16


def equal_tokens(shape: Decoder, bits: float = 16, width: int = 2) -> float:
    """Tokens, of all users together, whose keys and values are as many bytes as the weights that a step reads."""
    return read_parameters(shape) * bits / 8 / cache_bytes(shape, 1, width)


def tokens_that_fit(shape: Decoder, memory_bytes: float, bits: float = 16, width: int = 2) -> int:
    """Tokens, of all users together, for which there is room beside all the weights; 0 where these do not fit.

    Tables and norms are counted with the bits of the weights. Give the memory less what else is to be there.
    """
    room = memory_bytes - sum(parameters(shape).values()) * bits / 8
    return max(0, math.floor(room / cache_bytes(shape, 1, width)))


def users_within(
    shape: Decoder, seconds: float, context: int, bandwidth: float, peak: float, bits: float = 16, width: int = 2
) -> int:
    """The most users whose step takes no longer than so many seconds, by the bound; 0 if one takes longer."""

    def within(users: int) -> bool:
        return decode_seconds(shape, users, context, bandwidth, peak, bits, width) <= seconds

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
    """Users, latency and tokens a second at a context, if a token may take so many seconds. All are bounds.

    Raises ValueError where one user does not fit, or is not served in time.
    """
    room = tokens_that_fit(shape, memory_bytes, bits, width)
    fit, fast = room // context, users_within(shape, seconds, context, bandwidth, peak, bits, width)
    users = min(fit, fast)
    if not users:
        raise ValueError(f"room for {room:,} tokens, {fast} users in time: fewer bits, a shorter context or more GPUs")
    step = decode_seconds(shape, users, context, bandwidth, peak, bits, width)
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
