"""An exercise's answer follows from the numbers of its question: worked out here again from the question's own.

The snippets work them out too, from constants; a constant that was changed and recorded anew is found here.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist

import pytest

from ledger.site.chapter import Chapter
from ledger.site.check import configured_device
from ledger.site.quote import Quote, Values, open_source
from tests.conftest import ROOT
from tests.tables import BOOK

H100, A100 = 989.4e12, 312e12  # FLOP/s in bf16


def gpt2_parameters(d: int, layers: int, vocabulary: int, context: int) -> int:
    return vocabulary * d + context * d + layers * (12 * d * d + 13 * d) + 2 * d


def llama_matrices(d: int, layers: int, kv: int, f: int, vocabulary: int) -> int:
    return layers * (2 * d * d + 2 * d * kv + 3 * d * f) + d * vocabulary


def qwen_parameters(d: int, layers: int, heads: int, f: int) -> int:
    """Of a small Qwen3: tied, with 8 heads of 128 for keys, and norms of queries and keys."""
    return 151_936 * d + layers * (2 * d * 128 * (heads + 8) + 3 * d * f + 2 * d + 2 * 128) + d


def layer_seconds(tokens: int, peak: float, cast_bytes: int) -> float:
    """Of the three products of 2,048 inputs and 8,192 outputs, and of casts at an H100's bandwidth."""
    inputs, outputs = 2048, 8192
    numbers = tokens * inputs + inputs * outputs + tokens * outputs
    return 6 * tokens * inputs * outputs / peak + cast_bytes * numbers / 3.35e12


LLAMA_8B_MATRICES = llama_matrices(4096, 32, 1024, 14336, 128_256)
LLAMA_8B = LLAMA_8B_MATRICES + 4096 * 128_256 + (2 * 32 + 1) * 4096
LLAMA_8B_TOKEN_FLOPS = 6 * LLAMA_8B_MATRICES + 12 * 32 * 4096 * 8192
LLAMA_70B_MATRICES = llama_matrices(8192, 80, 1024, 28672, 128_256)
LLAMA_70B = LLAMA_70B_MATRICES + 8192 * 128_256 + (2 * 80 + 1) * 8192
QWEN_1_7B, QWEN_4B = qwen_parameters(2048, 28, 16, 6144), qwen_parameters(2560, 36, 32, 9728)
QWEN_0_6B_MATRICES = 28 * (2 * 1024 * 128 * (16 + 8) + 3 * 1024 * 3072) + 1024 * 151_936
MPT_3B = 12 * 32 * 2560**2 + (50_368 + 8192) * 2560 + 65 * 2560  # without biases
MPT_3B_TOKEN_FLOPS = 6 * MPT_3B + 12 * 32 * 2560 * 8192
GPT2_MATRICES = 12 * 12 * 768**2 + 50_257 * 768
GPT2_TOKEN_FLOPS = 6 * GPT2_MATRICES + 12 * 12 * 768 * 1024


def mixtral_read(users: int) -> float:
    """Parameters that a step reads: of eight experts, two for each token, those that somebody is sent to."""
    attention, experts = 2 * 4096 * (4096 + 1024) + 4096 * 8 + 2 * 4096, 8 * 3 * 4096 * 14336
    return 32 * (attention + experts * (1 - (6 / 8) ** users)) + 4096 * 32_000 + 4096


ADAPTED = 36 * (2 * 4096 + 2 * (4096 + 1024) + 2 * 4096 + 3 * (4096 + 12288))  # of rank 1, in Qwen3 8B
BACKWARD = 4 * 1024 * GPT2_MATRICES + 8 * 1024**2 * 768 * 12  # FLOPs of GPT-2 small, eager
SCORES_FLOPS = 12 * 8 * 12 * 4 * 3137**2 * 64  # of TimeSformer's attention


def chunked_peak(inputs: int) -> int:
    """When the last of eight chunks of GPT-2's loss goes backward, in bf16 but for the loss: inputs of layers, of the
    last norm, with two statistics, and of the head; gradients of seven chunks and of the head; 12 bytes a logit of a
    chunk; the loss, its sum and its gradient, the number of tokens, and what cross_entropy divides by."""
    features, tokens = 2 * 8192 * 768, 8192 // 8
    kept = (inputs + 2) * features + 2 * 4 * 8192
    return kept + 7 * features // 8 + 2 * 50_257 * 768 + 12 * tokens * 50_257 + 20


def script_peak(divided: int = 1, sharded: int = 1, recomputed: bool = False) -> int:
    """When the loss of the script in "Count a step of your own" goes backward; so many ranks divide a layer's matrices
    and heads, so many shard all weights, and embedding and head are gathered then."""
    d, tokens, logits, ends = 768, 8192, 50_304, 2 * 50_304 * 768 + 50_304
    layer = (12 * d * d + 7 * d) // divided + 6 * d  # parameters; of all ranks are the norms, and biases behind sums
    state = 12 * (ends + 12 * layer) // sharded + 4 * 195 + (4 * ends if sharded > 1 else 0)  # 195 counts of steps
    # of a token: inputs of norms in fp32; in bf16 their results, the first three times, then q, k and v, heads, the MLP
    whole, divisible = 2 * 4 * d + 2 * (3 + 1) * d + 16, 2 * (3 + 1 + 4 + 4) * d + 48  # statistics; logsumexps
    layers = 12 * 4 * d * tokens if recomputed else 12 * ((whole + divisible // divided) * tokens + 24)  # 24: a seed
    copies = 2 * d * logits + (0 if recomputed else 2 * 12 * 12 * d * d // divided)
    # a logit, its log-probability in bf16 and fp32, and that one's gradient; what enters the head; ids; three scalars
    return state + layers + copies + tokens * ((2 + 2 + 4 + 4) * logits + 2 * d + 8) + 3 * 4


# What torchinfo says of GPT-2 small: the head's matrix counts twice, and Conv1D's numbers once for each output.
TORCHINFO = 2 * (
    12 * sum((rows + 1) * columns**2 for rows, columns in ((768, 2304), (768, 768), (768, 3072), (3072, 768)))
    + (2 * 50_257 + 1024 + 25 * 2) * 768
)
GPT2_HALF = GPT2_MATRICES / (4 * 12 * 768)  # half of the context at which attention takes half
H200_BYTES, H200_BESIDE = 139.81 * 2**30, 726_466_560  # by CUDA; context and kernels, as recorded
LLAMA_8B_READ = LLAMA_8B - 128_256 * 4096  # by a decoding step, which looks the embedding up
LLAMA_70B_BESIDE = H200_BESIDE + 2 * 8192 * (2 * 8192 + 3 * 28672)  # and 8,192 tokens in an MLP
LONG_BYTES = 80 * 131_072 * (8 * 8192 + 4 * 8192 + 4 * 1024 + 8 * 28672 + 4 * 64 + 8) // 8  # tensor parallel on 8 ranks
LLAMA_70B_USER = 8192 * 2 * 2 * 80 * 8 * 128  # bytes of cache
LLAMA_UPDATE = 18 * LLAMA_8B + 2 * 128_256 * 4096 + 2 * 8 * 8192  # the largest gradient waits in bf16; ids, targets
# Beside a 70B model's state, at the loss: inputs of layers, last norm and head, rotary tables, a norm's statistics,
# 12 bytes a logit; gathered ends and two layers; what lies outside PyTorch.
LLAMA_70B_WHOLE = (
    (80 + 2) * 2 * 8192 * 8192 + 2 * 2 * 8192 * 128 + 4 * 8192 + 12 * 8192 * 128_256
    + 2 * (2 * 128_256 * 8192 + 2 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192)) + 1.2e9
)  # fmt: skip
GPT2_PAPER = ((768, 12, 117), (1024, 24, 345), (1280, 36, 762), (1600, 48, 1542))  # millions of parameters


def vocabulary(d: int, layers: int, millions: float, more: float) -> float:
    return ((millions + more) * 1e6 - gpt2_parameters(d, layers, 0, 1024)) / d


RECORDED = json.loads((ROOT / "flops_bytes_data" / "step_memory.json").read_text())[
    "counts"
]  # by PyTorch's own counters

ANSWERS: dict[str, float] = {
    "activations.crossing_len.gpt2": (32 * 768 + 16) / (2 * 12),
    "activations.first_longer_len.gpt2": (32 * 768 + 16) // (2 * 12) + 1,
    "activations.first_longer_len.llama": (2 * 4096 * (2 + 1 + 2 + 1 + 2) + 4 * 2 * 14336 + 8) // (2 * 32) + 1,
    "activations.logits_to_layer_ratio.gpt2": 4 * 50_257 / (2 * 768 * 16 + 4 * 12 + 16),
    "activations.logits_to_layer_ratio.llama": 4 * 128_256 / (2 * (6 * 4096 + 2 * 1024 + 4 * 14336) + 4 * 32 + 8),
    "activations.more_gelu_share": 3 * 2 * 3072 / (32 * 768 + 4 * 12 + 16),
    "activations.tiny_bytes": 4 * (2 * 4 + 2 * 4 + 2),
    "activations.tiny_claimed_bytes": 2 * 4 * 2 * 4,
    "activations.tiny_total_bytes.claimed": 3 * 4 * (4 * 4 + 4 * 4 + 4) + 4 * (2 * 4 + 2 * 4),
    "activations.tiny_total_bytes.counted": 3 * 4 * (4 * 4 + 4 * 4 + 4) + 4 * (2 * 4 + 2 * 4 + 2),
    "activations.tiny_with_data_bytes": 4 * (2 * 4 + 2 * 4 + 2 + 2 * 4 + 2),
    "capstones.gpt2_days.whole": 300e9 * GPT2_TOKEN_FLOPS / (8 * 0.3 * A100 * 86_400),
    "capstones.gpt2_dollars.good": 300e9 * GPT2_TOKEN_FLOPS / (8 * 0.4 * A100 * 3_600) * 8 * 1.5,
    "capstones.gpt2_parameters": gpt2_parameters(768, 12, 50_257, 1024),
    "capstones.logits_bytes": 2 * 8192 * 151_936 * 3 * 4,
    "capstones.state_bytes": 16 * LLAMA_70B / 64,
    "capstones.token_flops": GPT2_TOKEN_FLOPS,
    "compute_for_memory.best_group": max(1, round(math.sqrt(12 * 2 / 32))),
    "compute_for_memory.fewest_cards": math.ceil(16 * LLAMA_8B / 80e9),
    "compute_for_memory.master_state_bytes": 16 * LLAMA_8B,
    "compute_for_memory.mean_of_means": ((4 + 1) / 2 + (5 * 1 + 2) / 6) / 2,
    "compute_for_memory.reported_mfu_share": 0.52 * 3 / 4,
    "compute_for_memory.true_mean": (4 + 6 * 1 + 2) / 8,
    "compute_for_memory.whole_steps.of_1_bytes": chunked_peak(12),
    "compute_for_memory.whole_steps.of_2_bytes": chunked_peak(12 // 2),
    "count_your_step.light_bytes": script_peak(recomputed=True),
    "count_your_step.needed_bytes": script_peak(),
    "count_your_step.of_64_bytes": script_peak(divided=2, sharded=32),
    "count_your_step.of_64_ratio": (4 + 4 + 2 + 2) / (4 * 2),  # q, k and v together; up; the results of out and down
    "count_your_step.rank_bytes": script_peak(divided=2, sharded=4),
    "count_your_step.sent_ratio.all_reduce": (3 * 4 + 4 + 2 + 2) / (4 * 2),
    "counting_flops.large_first_flops": 2 * (2 * 10 * 60 + 10 * 2 * 60),
    "counting_flops.order_ratio": (8192 + 1) / 2,
    "counting_flops.scores_flops": 2 * 8 * 12 * 1024**2 * 64,
    "counting_flops.small_first_flops": 2 * (10 * 2 * 10 + 10 * 10 * 60),
    "counting_tools.accident": math.ceil(math.sqrt(GPT2_HALF**2 + TORCHINFO / (4 * 12 * 768)) - GPT2_HALF),
    "counting_tools.flops_ratio.torchinfo.1024": TORCHINFO / (1024 * GPT2_TOKEN_FLOPS / 3),
    "counting_tools.reported_share.thop": 0.4 * 2 * (50_257 + 25 * 4) * 768 / (GPT2_TOKEN_FLOPS / 3),
    "counting_tools.reported_share.torchinfo": 0.4 * TORCHINFO / (1024 * GPT2_TOKEN_FLOPS / 3),
    "counting_tools.undoubled_share": 0.4 * (50_257 + 25 * 4) * 768 / (GPT2_TOKEN_FLOPS / 3),
    "data_loading.epoch_unseen_share": 1 / math.e,
    "expert_flops.dropless_factor": 2600 / 2048,
    "expert_flops.dropped": 2600 - 1.25 * 2048,
    "expert_flops.six.frozen": 6 - 2,
    "expert_flops.six.shared": 6 * 12,
    "fp8.few_ratio.512": round(layer_seconds(512, 989.4e12, 0) / layer_seconds(512, 1978.9e12, 6), 3),
    "fp8.few_ratio.4096": round(layer_seconds(4096, 989.4e12, 0) / layer_seconds(4096, 1978.9e12, 6), 3),
    "fp8.four_bits": 4.25,
    "fp8.four_bytes": 32 * (2 * 4096 * 5120 + 3 * 4096 * 14336) * 4.25 / 8,
    "fp8.layers_parameters": 32 * (2 * 4096 * 5120 + 3 * 4096 * 14336),
    "full_ledger.extra_bytes": 4 * gpt2_parameters(768, 12, 50_257, 1024),
    "full_ledger.llama_left_bytes": int(H200_BYTES) - H200_BESIDE - LLAMA_UPDATE,
    "full_ledger.llama_peak_bytes": LLAMA_UPDATE,
    "full_ledger.llama_state_bytes": 2 + 4 + 4 + 4 + 4,
    "gpt2_parameters.cache_ratio": 32 / 8,
    "gpt2_parameters.equal_hidden": 8 * 4096 / 3,
    "gpt2_parameters.fitting_vocabularies.least": max(math.ceil(vocabulary(*row, -0.5)) for row in GPT2_PAPER),
    "gpt2_parameters.fitting_vocabularies.most": min(math.floor(vocabulary(*row, 0.5)) for row in GPT2_PAPER),
    "gpt2_parameters.gpt3_parameters": gpt2_parameters(12288, 96, 50_257, 2048),
    "gpt2_parameters.gpt3_rule_share": 12 * 96 * 12288**2 / gpt2_parameters(12288, 96, 50_257, 2048),
    "gpt2_parameters.llama_2_parameters": llama_matrices(4096, 32, 4096, 11008, 32_000) + 4096 * 32_000 + 65 * 4096,
    "gpt2_parameters.more_parameters": 32 * 2 * 4096 * (4096 - 1024),
    "gpt2_parameters.more_share": 32 * 2 * 4096 * (4096 - 1024) / LLAMA_8B,
    "gpt2_parameters.nanogpt_parameters": gpt2_parameters(768, 12, 50_304, 0) - 12 * 11 * 768 - 768,
    "gpt2_parameters.padded_parameters": gpt2_parameters(768, 12, 50_304, 1024),
    "gpt2_parameters.padding_parameters": (50_304 - 50_257) * 768,
    "gpt2_parameters.rounded_hidden": 256 * math.ceil(8 * 4096 / 3 / 256),
    "gpt2_parameters.rule_share.small": 12 * 12 * 768**2 / gpt2_parameters(768, 12, 50_257, 1024),
    "gpu_memory.SMALL_SEGMENT_BYTES": 2 * 2**20,
    "gpu_memory.alone_bytes.0": 18 * 2**20 + 1,
    "gpu_memory.alone_bytes.1": 20 * 2**20,
    "gpu_memory.losses.allocated_bytes": 1000 * 512,
    "gpu_memory.losses.requested_bytes": 1000 * 4,
    "gpu_memory.losses_bytes_ratio": 512 / 4,
    "gpu_memory.roomy_reserved_bytes": (12 + 14 + 16) * 2**20,
    "gpu_memory.sharing_bytes.0": 2**20 + 1,
    "gpu_memory.sharing_bytes.1": 10 * 2**20 - 512,
    "gpu_memory.small_kept_bytes": 8 * 4 * 1024**2 + 5 * 4 * 256 * 1024,
    "gpu_memory.small_peak_bytes": 8 * 4 * 1024**2 + 4 * 4 * 256 * 1024,
    "gpu_memory.tight_reserved_bytes": 16 * 2**20,
    "gradients.first_flops": 2 * 1024 * 768 * 3 * 768,
    "gradients.full_gradient_bytes": 4 * 32 * 4096**2,
    "gradients.lora_gradient_bytes": 4 * 32 * 2 * 8 * 4096,
    "gradients.lora_step_share": (2 + 2) / 6,
    "gradients.saved_share": 2 * 1024 * 50_257 * 768 / BACKWARD,
    "grpo.MIDDLE": 2048 + 1024 // 2,
    "grpo.answer_read_bytes": (2048 + 512) * 2 * 28 * 8 * 128 * 2,
    "grpo.first_answers": math.ceil(2 * QWEN_1_7B / ((2048 + 512) * 114_688)),
    "grpo.larger_bytes.with": 20 * QWEN_4B + 3 * 4 * 4 * 1024 * 151_936,
    "grpo.larger_bytes.without": 16 * QWEN_4B + 3 * 4 * 4 * 1024 * 151_936,
    "grpo.larger_parameters": QWEN_4B,
    "grpo.larger_room_bytes": 81_152 * 2**20 - 16 * QWEN_4B - 3 * 4 * 4 * 1024 * 151_936,
    "grpo.rest_bytes.1_7b": 78_147 * 2**20 - 20 * QWEN_1_7B - 3 * 4 * 4 * 1024 * 151_936,
    "grpo.token_bytes": 2 * 28 * 8 * 128 * 2,
    "grpo.weights_read_bytes": 2 * QWEN_1_7B,
    "hardware.h100_share": 1.04 * A100 / H100,
    "hardware.mi350x_share": 1.52 * A100 / 2300e12,
    "hardware.slice_teraflops": 16 * 4 * 512 * 2 * 1830e6 / 1e12,
    "hardware.throttled_share": 132 * 4 * 512 * 2 * 1500e6 / H100,
    "hardware.throttled_teraflops": 132 * 4 * 512 * 2 * 1500e6 / 1e12,
    "hardware.whole_to_slice_ratio": H100 / (16 * 4 * 512 * 2 * 1830e6),
    "inference.cache_of_bytes.grouped": 8192 * 2 * 32 * 8 * 128 * 2,
    "inference.cache_of_bytes.single": 8192 * 2 * 32 * 1 * 128 * 2,
    "inference.cache_of_bytes.ungrouped": 8192 * 2 * 32 * 32 * 128 * 2,
    "inference.exercise_context": 8192,
    "inference.int8_users": int((0.02 * 3.35e12 - LLAMA_8B_READ) / (8192 * 2 * 2 * 32 * 8 * 128)),
    "inference.large_beside_bytes": LLAMA_70B_BESIDE,
    "inference.large_bytes": 2 * LLAMA_70B,
    "inference.large_fit.8": int((0.9 * H200_BYTES - LLAMA_70B_BESIDE - LLAMA_70B) / LLAMA_70B_USER),
    "inference.large_room_bytes": 0.9 * H200_BYTES - LLAMA_70B_BESIDE,
    "inference.narrow_users": int((0.02 * 3.35e12 - 2 * LLAMA_8B_READ) / (8192 * 2 * 32 * 8 * 128)),
    "inference.touched_share.1": mixtral_read(1) / mixtral_read(64),
    "inference.touched_share.8": mixtral_read(8) / mixtral_read(64),
    "inference.whole_card_fit": int((H200_BYTES - LLAMA_70B_BESIDE - 2 * LLAMA_70B) / LLAMA_70B_USER),
    "many_gpus.between_share": (3 / 4) / (31 / 32),
    "many_gpus.smallest.ZeRO-2": math.ceil(12 * LLAMA_8B / (40e9 - 4 * LLAMA_8B)),
    "many_gpus.smallest.ZeRO-3": math.ceil(16 * LLAMA_8B / 40e9),
    "measure_your_gpu.IMPLIED_FLOP_PER_SECOND": 2 * 1024**3 / 0.04,
    "measure_your_gpu.matmul_flops": 2 * 1024**3,
    "measure_your_gpu.strict_chance_share": 1 / 1024,
    "measure_your_gpu.strict_rounds": 11,  # the first sets the side, ten more agree
    "mfu.EXPECTED_SECONDS": 2 * 16384 * 32768 * 8192 / 794.5e12,
    "mfu.TRACE_FLOP_PER_SECOND": 11_739_062_719,
    "mfu.against_bf16_share": 0.4031 * 153_174 / 132_626,
    "mfu.against_fp8_share": 0.4031 * 153_174 / 132_626 * 989.4 / 1978.9,
    "mfu.by_median_share": 2 * 1024 * 512 * 1705 / ((150e-6 + 24e-6) / 2) / 15.7e12,
    "mfu.by_sum_share": 2 * 1024 * 512 * 1705 / (150e-6 + 24e-6) / 15.7e12,
    "mfu.fp8_speedup_ratio": 153_174 / 132_626,
    "mfu.headline_share": 2 * 16384 * 32768 * 8192 / 0.03 / (2 * H100),
    "mfu.lecture_share.bfloat16": 2 * 16384 * 32768 * 8192 / 0.03 / H100,
    "mfu.lecture_share.float32": 2 * 16384 * 32768 * 8192 / 0.16 / 66.9e12,
    "mfu.printed_share.bfloat16": 132_626 / 8 * MPT_3B_TOKEN_FLOPS / H100,
    "mfu.printed_share.float8": 153_174 / 8 * MPT_3B_TOKEN_FLOPS / (2 * H100),
    "mfu.six_calls_share": 2 * 1024 * 512 * 1705 / 181e-6 / 15.7e12,  # both kernels, the median of the published calls
    "mfu.step_share": 0.7 * 0.8,
    "mfu.trace_share": 11_739_062_719 / 66.9e12,
    "mfu.vocabularies.unpadded.tiles": 8192 // 128 * math.ceil(50_304 / 256),
    "mfu.vocabularies.unpadded.waves": math.ceil(8192 // 128 * math.ceil(50_304 / 256) / 132),
    "mfu.without_waiting_share": 0.7 * 0.8 / (1 - 0.1),
    "mixed_precision.cards_needed.megatron": math.ceil(8e9 * 18 / 80e9),
    "mixed_precision.config_bytes.megatron": 8e9 * (2 + 4 + 4 + 4 + 4),
    "mixed_precision.config_bytes.torchtitan": 8e9 * (4 + 4 + 4 + 4),
    "mixed_precision.config_bytes.torchtitan_bf16": 8e9 * (2 + 2 + 2 + 2),
    "mixed_precision.room_bytes": 80e9 - 8e9 * 8,
    "mixed_precision.standing_share.1e-4": 2 * NormalDist(0, 0.02).cdf(-(2**-5)),  # 0.0256 rounded up
    "mixed_precision.standing_share.1e-5": 2 * NormalDist(0, 0.02).cdf(-(2**-8)),  # 0.00256
    "mixed_precision.torch_bytes.bf16": 2 + 2 + 2 + 2,
    "models_and_initialization.found_parameters": 2 * 64 * 64,
    "models_and_initialization.hidden_parameters": 0,
    "models_and_initialization.lecun_relu_scale": 2**-4,
    "muon.square_flops": 5 * 6 * 4096,
    "muon.square_tokens": 5 * 6 * 4096 / (6 * 0.01),
    "named_dimensions.num_patches": (224 // 16) ** 2,
    "named_dimensions.patch_numbers": 3 * 16 * 16,
    "number_formats.bf16_to_mxfp4_ratio": 16 / (4 + 8 / 32),
    "number_formats.fp16_overflows_from": 65_520 / 2**13,
    "number_formats.last_counts.bf16": 2 ** (7 + 1),
    "number_formats.last_counts.fp32": 2 ** (23 + 1),
    "number_formats.mxfp4_bits": 4 + 8 / 32,
    "number_formats.mxfp4_matrix_bytes": 12288 * 49152 * (4 + 8 / 32) / 8,
    "number_formats.scale_powers.bf16": math.ceil(math.log2(2**-126 / 1e-8)),
    "one_card.adapter_bytes.8": 8 * (4 + 8) * ADAPTED,
    "one_card.adapter_bytes.16": 16 * (4 + 8) * ADAPTED,
    "one_card.adapter_bytes.64": 64 * (4 + 8) * ADAPTED,
    "one_card.adapter_bytes.256": 256 * (4 + 8) * ADAPTED,
    "one_card.grown_bytes": (64 - 8) * (4 + 8) * ADAPTED,
    "one_card.logits_of_bytes.llama_2": 12 * 32_000 * 8192,
    "one_card.logits_of_bytes.llama_3": 12 * 128_256 * 8192,
    "one_card.logits_of_bytes.qwen_3": 12 * 151_936 * 8192,
    "one_card.rent_yuan": 3 * 50e6 / 2000 / 3600 * 2.5,
    "one_card.rented_hours": 3 * 50e6 / 2000 / 3600,
    "one_card.state_bytes.full_8bit": 6 * 8_190_735_360,
    "one_card.state_bytes.full_amp": 16 * 8_190_735_360,
    "one_card.state_bytes.full_bf16": 8 * 8_190_735_360,
    "one_card.weights_bytes": 2 * 8_190_735_360,
    "optimizer_costs.gpu_bytes": 80e9,
    "optimizer_costs.largest_parameters.adamw_bf16": 80e9 / 8,
    "optimizer_costs.llama_state_bytes": LLAMA_8B * 8,
    "optimizer_costs.more_bytes.foreach.many": 0,
    "optimizer_costs.more_bytes.zeros.few": 50_257 * 768 * 4,
    "optimizer_costs.more_bytes.zeros.many": gpt2_parameters(768, 12, 50_257, 1024) * 4,
    "optimizer_costs.needed_bytes.adamw.seven_b": 7_000_000_000 * (4 + 4 + 8),
    "optimizer_costs.needed_bytes.momentum.gpt2": gpt2_parameters(768, 12, 50_257, 1024) * (4 + 4 + 4),
    "optimizer_costs.update_milliseconds.h100.llama": LLAMA_8B * 28 / 3.35e12 * 1e3,
    "optimizer_costs.update_milliseconds.rtx_4090.gpt2": gpt2_parameters(768, 12, 50_257, 1024) * 28 / 1.008e12 * 1e3,
    "optimizers.remaining_bfloat16": round(0.999 * 2**8) / 2**8,
    "parallelism.long_bytes.1": LONG_BYTES,
    "parallelism.most_ranks": 16 * 2**20 // 8192,
    "parallelism.narrower_share": (4 * 4096 * 7 / (llama_matrices(4096, 1, 1024, 14336, 0))) * 0.4 * H100 / 360e9,
    "parallelism.plain_share": 15 / (16 + 15),
    "parallelism.smallest_context": 2 ** math.ceil(math.log2(LONG_BYTES / 40e9)),
    "parallelism.thin_share": 15 / (8 * 16 + 15),
    "pipeline_orders.needed.1": 9 * 7,
    "pipeline_orders.needed.2": 8 * math.ceil(9 * 7 / 2 / 8),
    "roofline.cache_intensity": 32 / 8,
    "roofline.chain_operations": 5 + 4,  # on one matrix, and on two
    "roofline.eager_layer_share": 1 / (1 + (5 * 2 + 4 * 3) * 989.4 / 3.35 / (2 * 4096)),
    "roofline.eight_bit_tokens": 1 / (2 * (3.35 / 989.4 - 1 / 4096 - 1 / 14336)),
    "roofline.fused_layer_share": 1 / (1 + 2 * 989.4 / 3.35 / (2 * 4096)),
    "roofline.relu_to_matmul_share.1024": 2 * 989.4e12 / 3.35e12 / 1024,
    "roofline.relu_to_matmul_share.16384": 2 * 989.4e12 / 3.35e12 / 16384,
    "roofline.right_bytes": 3 * 16384 * 4,
    "roofline.wrong_bytes": (16384 * 16384 + 2 * 16384) * 4,
    "roofline.wrong_ratio": (16384 + 2) / 3,
    "snapshots.foreseen_bytes": RECORDED["chunks"]["reserved_bytes"],
    "snapshots.largest_bytes": 16 * 1024 * 50_304 * 4,
    "snapshots.page_bytes": 20 * 2**20,
    "snapshots.peak_bytes": RECORDED["out_of_memory"]["allocated_bytes"],
    "storage_and_strides.batch_held_bytes": 64 * 1024 * 8,
    "storage_and_strides.keys_bytes": 8192 * 8 * 128 * 2,
    "storage_and_strides.merge_moved_bytes": 2 * 8 * 1024 * 768 * 2,
    "storage_and_strides.repeated_bytes": 8192 * 32 * 128 * 2,
    "storage_and_strides.windows_held_bytes": 1_000_000 * 8,
    "storage_and_strides.windows_reported_bytes": (1_000_000 - 1024 + 1) * 1024 * 8,
    "tensor_operations.bool_mask_bytes": 8192 * 8192,
    "tensor_operations.broadcast_bytes": 8 * 32 * 8192 * 128 * 2 + 8 * 32 * 8192 * 2,
    "tensor_operations.five_operations_peak_bytes": 3 * 8192 * 8192 * 4,
    "tensor_operations.float_mask_bytes": 8192 * 8192 * 4,
    "tensor_operations.gelu_by_hand.allocated_bytes": 8 * 8192 * 8192 * 4,
    "tensor_operations.gelu_by_hand.peak_bytes": 3 * 8192 * 8192 * 4,
    "tensor_operations.gelu_fused.peak_bytes": 8192 * 8192 * 4,
    "tensor_operations.keys_bytes": 8 * 8192 * 128 * 2,
    "tensor_operations.repeated_mask_bytes": 8 * 32 * 8192 * 8192,
    "timing.SHORTEST_SECONDS": 0.5e-6 / 0.005,
    "timing.alternating_share": 0.01 * 10 / sum(1 + 0.01 * n for n in range(0, 20, 2)),
    "timing.calls_needed": math.ceil((106 - 11.1) / (0.01 * 11.1)),
    "timing.five_mean": (106 + 11.1 + 11.0 + 11.2 + 11.1) / 5,
    "timing.five_median": sorted((106, 11.1, 11.0, 11.2, 11.1))[2],
    "timing.in_turn_share": sum(1 + 0.01 * n for n in range(10, 20)) / sum(1 + 0.01 * n for n in range(10)) - 1,
    "timing.per_kernel": math.ceil(8 * (math.pi / 2) * (0.02 / 1.349 / 0.01) ** 2),
    "timing.tolerable_share": 0.01 / (2 * math.sqrt(2)),
    "tokens.grown_ratio": 1
    + 2 * 768 * (128_256 - 50_257) / (24 * 12 * 768**2 + 2 * 768 * 50_257 + 4 * 1024 * 768 * 12),
    "tokens.run_bits.A": 2.9 / (3.6 * math.log(2)),
    "tokens.run_bits.B": 3.1 / (4.2 * math.log(2)),
    "tokens.your_hours.gpt2": 500e6 * 168_850 / 87_445 * LLAMA_8B_TOKEN_FLOPS / (0.3 * H100 * 3_600),
    "tokens.your_hours.qwen": 500e6 * 57_735 / 87_445 * LLAMA_8B_TOKEN_FLOPS / (0.3 * H100 * 3_600),
    "tokens.your_tokens.gpt2": 500e6 * 168_850 / 87_445,
    "tokens.your_tokens.qwen": 500e6 * 57_735 / 87_445,
    "traces.after_ms": 160 - 127.4 + SCORES_FLOPS / 90.2e9,
    "traces.fused_ms": SCORES_FLOPS / 90.2e9,
    "traces.fused_ratio": 160 / (160 - 127.4 + SCORES_FLOPS / 90.2e9),
    "traces.moved.2.end": 100 - 15,
    "traces.moved.2.start": 70 - 15,
    "traces.moved_us": 60 - 55,
    "traces.no_gaps_ratio": 3.908 / 0.309,
    "traces.replaced_ms": 43.2 + 15.5 + 68.7,
    "traces.score_flops": SCORES_FLOPS,
    "traces.shorter_us": 100 - 90,
    "traces.size_ratio": 31_502_336 / 8_196_000,
    "traces.time_ratio": 2.674 / 3.307,
    "transformer_flops.by_width_ratio": (6 * QWEN_0_6B_MATRICES + 12 * 28 * 1024 * 32_768)
    / (6 * QWEN_0_6B_MATRICES + 12 * 28 * 2048 * 32_768),
    "transformer_flops.counted_70b_share": 331 * (6 * LLAMA_70B_MATRICES + 12 * 80 * 8192 * 8192) / A100,
    "transformer_flops.crossing_70b": LLAMA_70B_MATRICES / (2 * 80 * 64 * 128),
    "transformer_flops.reported_share": 331 * (6 * LLAMA_70B + 12 * 80 * 8192 * 8192) / A100,
    "transformer_flops.small_head_share": 2 * 2048 * 128_256
    / (2 * llama_matrices(2048, 16, 8 * 64, 8192, 128_256) + 4 * 8192 * 16 * 32 * 64),
    "two_questions.all_state_bytes": 70e9 * 16,
    "two_questions.d_in": 512,
    "two_questions.d_out": 256,
    "two_questions.doubling_seq_len": 70e9 / (80 * 64 * 128),
    "two_questions.forward_flops": 2 * 4096 * 512 * 256,
    "two_questions.gpt_3_days": 6 * 175e9 * 300e9 / (1024 * A100 * 0.3) / 86_400,
    "two_questions.gpt_3_ratio": 6 * 175e9 * 300e9 / 3.14e23,
    "two_questions.llama_65b_days": 6 * 65e9 * 1.4e12 / (2048 * A100 * 0.3) / 86_400,
    "two_questions.llama_65b_share": 6 * 65e9 * 1.4e12 / (2048 * A100 * 21 * 86_400),
    "two_questions.napkin_gpus": 70e9 * 16 / 80e9,
    "two_questions.planned_gpus": math.ceil(14 * LLAMA_70B / (80e9 - LLAMA_70B_WHOLE)),
    "two_questions.points": 4096,
    "two_questions.run_to_eu_share": 6 * 70e9 * 15e12 / 1e25,
    "two_questions.run_with_attention_to_eu_share": (6 * 70e9 + 12 * 80 * 8192 * 8192) * 15e12 / 1e25,
    "two_questions.thresholds.california.flops": 1e26,
    "two_questions.weights_only_bytes": 70e9 * 4,
}  # fmt: skip


VALUES = Values(open_source(BOOK, configured_device(BOOK), local=False))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_follows_from_its_question(name: str) -> None:
    found = VALUES[name]
    assert found == pytest.approx(ANSWERS[name], rel=2e-3 if isinstance(found, float) else 0)


# Exact values in exercises, beside constants of a question, that are not worked out again.
WITHOUT_SECOND_WORKING = {
    "published_steps.flash_saves_share",  # of milliseconds that the planner adds up, by published rates
    "snapshots.growing_bytes",  # where blocks lie in segments that grow, the allocator's rules alone say
    "snapshots.late_peak_bytes",  # how large freed blocks were, the same rules
    "snapshots.reserved_by_lengths_bytes.many.least",  # steps that the planner draws
    "snapshots.reserved_by_lengths_bytes.many.most",
    "snapshots.reserved_by_lengths_bytes.packed.most",
}


def exact_values(path: Path) -> set[str]:
    """Those that a page's exercises quote."""
    chapter = Chapter.read(path)
    begins = next((heading.line for heading in chapter.headings if heading.id == "exercises"), 10**9)
    ends = next((heading.line for heading in chapter.headings if heading.line > begins), 10**9)
    quotes = [Quote.parse(text) for line, text in chapter.placeholders if begins < line < ends]
    return {f"{each.snippet}.{'.'.join(each.path)}" for each in quotes if not each.is_device_value}


def test_every_answer_is_worked_out_here_too() -> None:
    quoted = {name for path in (BOOK.docs / "en").glob("*.md") for name in exact_values(path)}
    assert {name for name in quoted if not name.split(".")[1].isupper()} - {*ANSWERS} == WITHOUT_SECOND_WORKING
