# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What GRPO holds on one card while it samples and while it trains, beside others' readings."""

# --8<-- [start:grpo_setup]
import torch
import torch.nn.functional as F
from torch import Tensor

from flops_bytes import stack as decoders
from flops_bytes.configs import read_stack
from flops_bytes.presets import PRESETS
from flops_bytes.trace import Trace, meta

SMI_MIB = {"0_6b": 49_273, "1_7b": 78_147}  # Qwen3 on an A100: TRL issue 3456
ALLOCATED_MB = 902  # a peak on an H100: TRL issue 3678
# --8<-- [end:grpo_setup]


# --8<-- [start:grpo_phases]
SEQUENCES, PROMPT_TOKENS, ANSWER_TOKENS = 4, 2_048, 1_024  # as in the thread; TRL loads in fp32


def grpo_bytes(model: str) -> dict[str, int]:
    """What a GRPO step in fp32 holds, activations aside; its cache and its logits never at once."""
    stack = read_stack(dict(PRESETS[model].config))
    weights = 4 * sum(decoders.parameters(stack).values())
    logits = 4 * SEQUENCES * ANSWER_TOKENS * stack.vocab
    return {
        "policy": weights + weights + 2 * weights,  # weights, gradients, AdamW's moments
        "reference": weights,
        "cache": SEQUENCES * decoders.cache_bytes(stack, PROMPT_TOKENS + ANSWER_TOKENS, width=4),
        "logits": 3 * logits,  # as they come, over the temperature, and their gradient
    }


grpo_held_bytes = {name: grpo_bytes(f"qwen3-{name.replace('_', '.')}") for name in SMI_MIB}
grpo_seen_bytes = {name: mib * 2**20 for name, mib in SMI_MIB.items()}
grpo_state_bytes = {name: held["policy"] + held["reference"] for name, held in grpo_held_bytes.items()}
grpo_rest_bytes = {
    name: seen - grpo_state_bytes[name] - grpo_held_bytes[name]["logits"] for name, seen in grpo_seen_bytes.items()
}
seen_growth_bytes = grpo_seen_bytes["1_7b"] - grpo_seen_bytes["0_6b"]
state_growth_share = round((grpo_state_bytes["1_7b"] - grpo_state_bytes["0_6b"]) / seen_growth_bytes, 4)
print(grpo_held_bytes, grpo_rest_bytes, state_growth_share, sep="\n")
# --8<-- [end:grpo_phases]


# --8<-- [start:grpo_logits]
SCORED, KEPT_LOGITS, VOCAB, CHUNK = 2, 256, 151_665, 128  # of the second thread; rows of a chunk


def log_probabilities(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Of the chosen tokens, and entropies, in the order of TRL in June 2026; logits (b, T + 1, V)."""
    logits = logits[:, :-1]
    logits.div_(0.9)  # the temperature, in place
    chosen = logits.gather(-1, ids[..., None])[..., 0]
    chosen = chosen - torch.stack([torch.logsumexp(sequence, -1) for sequence in logits])
    entropies = []
    for chunk in logits.reshape(-1, VOCAB).split(CHUNK):  # reshape copies: a token was cut off
        logs = F.log_softmax(chunk, -1)
        entropies.append(-(torch.exp(logs) * logs).sum(-1))
    return chosen, torch.cat(entropies)


with torch.no_grad(), Trace() as scoring:
    log_probabilities(meta(SCORED, KEPT_LOGITS + 1, VOCAB), meta(SCORED, KEPT_LOGITS, dtype=torch.long))
one_logits_bytes = 4 * SCORED * KEPT_LOGITS * VOCAB
counted_logits_bytes = scoring.peak_bytes
by_hand_bytes = 4 * VOCAB * (SCORED * (KEPT_LOGITS + 1) + SCORED * KEPT_LOGITS + 3 * CHUNK)
BEFORE_BYTES = 44e6  # allocated before, as the thread says
read_logits_bytes = ALLOCATED_MB * 1e6 - BEFORE_BYTES
logits_read_ratio = round(counted_logits_bytes / read_logits_bytes, 4)
print(f"{by_hand_bytes:,} by hand, {counted_logits_bytes:,} counted, {read_logits_bytes:,.0f} published")
# --8<-- [end:grpo_logits]
assert abs(counted_logits_bytes / by_hand_bytes - 1) < 1e-3
