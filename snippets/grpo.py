# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What GRPO holds on one card while it samples, scores and trains, what each costs, and others' readings."""

# --8<-- [start:setup]
import torch
import torch.nn.functional as F
from torch import Tensor

from flops_bytes.lessons.trace import Trace, meta
from flops_bytes.model import stack as decoders
from flops_bytes.model.config import read_stack
from flops_bytes.model.presets import PRESETS
from flops_bytes.model.stack import Stack
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.time.gpus import GPUS, capacity_bytes

# --8<-- [end:setup]


# --8<-- [start:held]
SEQUENCES, PROMPT_TOKENS, ANSWER_TOKENS = 4, 2_048, 1_024
TOKENS = PROMPT_TOKENS + ANSWER_TOKENS
STACKS = {size: read_stack(dict(PRESETS[f"qwen3-{size}"].config)) for size in ("0.6b", "1.7b", "4b")}


def held(stack: Stack) -> dict[str, int]:
    """Bytes of the parts of a GRPO step in fp32, activations aside."""
    weights = 4 * sum(decoders.parameters(stack).values())
    return {
        "weights": weights,
        "moments": 2 * weights,
        "gradients": weights,
        "reference": weights,
        "cache": SEQUENCES * decoders.cache_bytes(stack, TOKENS, width=4),
        "logits": 4 * SEQUENCES * ANSWER_TOKENS * stack.vocab,  # once
    }


held_bytes, phase_bytes = {}, {}
for size in ("0.6b", "1.7b"):
    parts = held_bytes[size.replace(".", "_")] = held(STACKS[size])
    always = parts["weights"] + parts["moments"] + parts["reference"]
    phase_bytes[size.replace(".", "_")] = {
        "sampling": always + parts["cache"],
        "scoring": always + 2 * parts["logits"],
        "training": always + parts["gradients"] + 3 * parts["logits"],
    }
    print(size, {phase: f"{n / 2**30:.2f} GiB" for phase, n in phase_bytes[size.replace(".", "_")].items()})
# --8<-- [end:held]


SEEN_MIB = {"0_6b": 49_273, "1_7b": 78_147}  # Qwen3 on an A100: TRL issue 3456
seen_bytes = {size: mib * 2**20 for size, mib in SEEN_MIB.items()}
rest_bytes = {size: seen - phase_bytes[size]["training"] for size, seen in seen_bytes.items()}
growth_bytes = 5 * (held_bytes["1_7b"]["weights"] - held_bytes["0_6b"]["weights"])  # all but the logits
growth_share = round(growth_bytes / (seen_bytes["1_7b"] - seen_bytes["0_6b"]), 4)


# --8<-- [start:flops]
A100 = GPUS["A100 80GB SXM"]
BANDWIDTH, PEAK = A100.bandwidth_bytes_per_second, A100.peak_flop_per_second["bfloat16"]
STACK = STACKS["1.7b"]
CONTEXTS = range(PROMPT_TOKENS + 1, TOKENS)  # of the decoding steps; the prefill gives the first token

forward = decoders.forward_flops(STACK, TOKENS, causal=True)
forward["head"] = forward["head"] * ANSWER_TOKENS // TOKENS  # logits of the answer alone
scoring_flops = sum(forward.values())
prefill_flops = decoders.prefill_flops(STACK, PROMPT_TOKENS)
sampling_flops = prefill_flops + sum(decoders.decode_flops(STACK, 1, context) for context in CONTEXTS)
training_flops = 3 * scoring_flops
sampled_share = sampling_flops / (sampling_flops + scoring_flops + training_flops)
print(f"sampling over scoring: {sampling_flops / scoring_flops:.4f}, of all {sampled_share:.3f}")


def step_ms(answers: int, context: int) -> float:
    """The bound of a decoding step in bf16: its bytes or its FLOPs."""
    moved = decoders.decode_bytes(STACK, answers, context)
    return 1e3 * max(moved / BANDWIDTH, decoders.decode_flops(STACK, answers, context) / PEAK)


at_once = {}
for answers in (1, 8, 64):
    sampling = answers * prefill_flops / PEAK + sum(step_ms(answers, context) for context in CONTEXTS) / 1e3
    others = answers * (scoring_flops + training_flops) / PEAK
    at_once[answers] = {"sampling": sampling, "others": others, "total": sampling + others}
    at_once[answers]["share"] = sampling / (sampling + others)
    print(f"{answers:3} answers: {sampling:5.2f} s and {others:4.2f} s, {at_once[answers]['share']:.0%} is sampling")
# --8<-- [end:flops]


SLEPT = {"backed_up": 7.56, "dropped": 26.51, "left": 1.19}  # GiB, Qwen3 4B: vLLM issue 28714
engine_weights_bytes = 2 * sum(decoders.parameters(STACKS["4b"]).values())
backed_up_ratio = round(SLEPT["backed_up"] * 2**30 / engine_weights_bytes, 4)


# --8<-- [start:plan]
CARD_BYTES = capacity_bytes("A100 80GB SXM", GPUS["A100 80GB SXM"])
engine_bytes = round(0.3 * CARD_BYTES)  # TRL's default share for vLLM
run = {"model": "qwen3-4b", "gpu": "A100 80GB SXM", "recipe": "autocast"}
answer = plan(**run, checkpointing="full", context=3_072, accumulation=8)
training_bytes = answer["memory_bytes"]["total"]
asleep_bytes = 1.19 * 2**30  # what another vLLM still held
print(f"training alone: {training_bytes / 2**30:.1f} GiB")
for engine, engine_held in (("awake", engine_bytes), ("asleep", asleep_bytes)):
    together = training_bytes + engine_held
    print(f"engine {engine}: {together / 2**30:.1f} of {CARD_BYTES / 2**30:.1f} GiB")
# --8<-- [end:plan]
in_training = answer["memory_bytes"]
training_parts_bytes = {name: in_training[name] for name in ("copies", "activations", "logits", "allowance")}
training_parts_bytes["state"] = sum(in_training[name] for name in ("weights", "gradients", "optimizer"))
assert sum(training_parts_bytes.values()) == training_bytes - in_training["batch"]
del answer, in_training
ENGINE_SHARE = 0.3  # of the card: TRL's vllm_gpu_memory_utilization
parts_bytes = {
    "trainer": {  # sampling: weights and moments
        "sampling": 12 * sum(decoders.parameters(STACKS["4b"]).values()),
        "awake": training_bytes,
        "asleep": training_bytes,
    },
    "engine": {"sampling": engine_bytes, "awake": engine_bytes, "asleep": asleep_bytes},
}
planned_bytes = {phase: sum(parts[phase] for parts in parts_bytes.values()) for phase in parts_bytes["engine"]}


# --8<-- [start:score]
SCORED, KEPT_LOGITS, VOCAB, CHUNK = 2, 256, 151_665, 128  # of TRL issue 3678; rows of a chunk


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


# --8<-- [end:score]


# --8<-- [start:logits]
with torch.no_grad(), Trace() as scoring:
    log_probabilities(meta(SCORED, KEPT_LOGITS + 1, VOCAB), meta(SCORED, KEPT_LOGITS, dtype=torch.long))
one_logits_bytes = 4 * SCORED * KEPT_LOGITS * VOCAB
counted_logits_bytes = scoring.peak_bytes
by_hand_bytes = 4 * VOCAB * (SCORED * (KEPT_LOGITS + 1) + SCORED * KEPT_LOGITS + 3 * CHUNK)
read_logits_bytes = 902_000_000 - 44_000_000  # the peak on an H100, and what was there before
logits_read_ratio = round(counted_logits_bytes / read_logits_bytes, 4)
print(f"{by_hand_bytes:,} by hand, {counted_logits_bytes:,} counted, {read_logits_bytes:,} published")
assert abs(counted_logits_bytes / by_hand_bytes - 1) < 1e-3
# --8<-- [end:logits]


# --8<-- [start:exercise_1]
larger_parameters = sum(decoders.parameters(STACKS["4b"]).values())
of_4b = held(STACKS["4b"])
larger_bytes = {"without": 4 * of_4b["weights"] + 3 * of_4b["logits"]}
larger_bytes["with"] = larger_bytes["without"] + of_4b["reference"]
larger_room_bytes = CARD_BYTES - larger_bytes["without"]
print({which: f"{size / 2**30:.1f} GiB" for which, size in larger_bytes.items()}, f"of {CARD_BYTES / 2**30:.1f}")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
MIDDLE = PROMPT_TOKENS + ANSWER_TOKENS // 2  # tokens of an answer's cache, half way
weights_read_bytes = round(decoders.decode_bytes(STACK, 1, 0))
answer_read_bytes = decoders.cache_bytes(STACK, MIDDLE)
token_bytes = decoders.cache_bytes(STACK, 1)
equal_answers = weights_read_bytes / answer_read_bytes
first_answers = int(equal_answers) + 1
print(f"{weights_read_bytes / 1e9:.2f} GB of weights, {answer_read_bytes / 1e9:.3f} an answer: {equal_answers:.1f}")
# --8<-- [end:exercise_2]
