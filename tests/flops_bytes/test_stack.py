"""A stack of layers has the parameters, FLOPs and cache of transformers' own module, for each kind of config.json."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM, DynamicCache, PreTrainedModel
from transformers.masking_utils import (
    causal_mask_function,
    chunked_causal_mask_function,
    sliding_window_causal_mask_function,
)
from transformers.modeling_layers import MtpModel

from flops_bytes.memory import formulas as memory
from flops_bytes.model import flops, shapes
from flops_bytes.model.config import FAMILIES, RENAMED, decoder_of, is_read, left_out, read_stack
from flops_bytes.model.presets import PRESETS, SAME, preset_of
from flops_bytes.model.stack import (
    CHUNK,
    Attention,
    Dense,
    Experts,
    GatedDelta,
    LatentAttention,
    Layer,
    Stack,
    as_decoder,
    cache_bytes,
    decode_bytes,
    decode_flops,
    expanded_cache_bytes,
    forward_flops,
    mtp_parameters,
    pairs,
    parameters,
    prefill_flops,
    read_parameters,
    stack_of,
    weights_bytes,
    with_shared_heads,
)
from flops_bytes.serve import inference as serving
from tests import draw
from tests.flops_bytes.stack_cases import CASES, FOUND, SMALL, Config

LENGTH, USERS = 2 * CHUNK, 2
logging.getLogger("transformers").setLevel(logging.ERROR)  # small vocabularies lack the tokens that end a text

every_kind = pytest.mark.parametrize("case", CASES)


def library(kind: str, config: Config) -> Any:
    """The library's own reading of a configuration. It has no kimi_k2, which is a deepseek_v3."""
    kind = {"kimi_k2": "deepseek_v3"}.get(kind, kind)
    told = {key: value for key, value in config.items() if key not in ("model_type", "vision_config")}
    return CONFIG_MAPPING[kind](**{"pad_token_id": 0} | told)


def module(config: Any) -> nn.Module:
    with torch.device("meta"):
        made: nn.Module = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="eager", experts_implementation="batched_mm"
        )
    return made.eval()


def own(case: str) -> tuple[Any, Stack]:
    kind, config = CASES[case]
    return library(kind, config), read_stack(config | {"model_type": kind})


def numbers(model: nn.Module, *parts: str, without: str = "nothing") -> int:
    named = model.named_parameters()
    return sum(weight.numel() for name, weight in named if any(part in name for part in parts) and without not in name)


# Parameters


@every_kind
def test_parameters_are_those_of_its_module(case: str) -> None:
    config, stack = own(case)
    model, counts = module(config), parameters(stack)
    assert sum(counts.values()) == numbers(model, "")
    assert counts["embedding"] == numbers(model, "embed_tokens")
    assert counts["head"] == numbers(model, "lm_head")
    assert counts.get("experts", 0) == numbers(model, ".experts.")
    beside = (".mlp.",) if case == "gemma4, experts" else (".shared_expert.", ".shared_experts.")
    assert counts.get("shared_experts", 0) == numbers(model, *beside)
    assert counts.get("indexer", 0) == numbers(model, ".indexer.", without="norm")
    routers = (".mlp.gate.", ".router.", ".shared_expert_gate.", ".block_sparse_moe.gate.")
    assert counts.get("router", 0) == numbers(model, *routers)
    assert counts.get("convolution", 0) == numbers(model, "conv1d")


@every_kind
def test_a_token_meets_its_experts_and_all_else(case: str) -> None:
    config, stack = own(case)
    model, active = module(config), sum(parameters(stack, active=True).values())
    experts = numbers(model, ".experts.")
    if not experts:
        assert active == numbers(model, "")
        return
    of_layer = config.num_local_experts if hasattr(config, "num_local_experts") else config.num_experts
    active_ones = ("num_experts_per_tok", "top_k_experts", "moe_k")
    idle = of_layer - next(getattr(config, key) for key in active_ones if hasattr(config, key))
    assert active == numbers(model, "") - experts // of_layer * idle


@every_kind
def test_the_librarys_own_words_say_the_same(case: str) -> None:
    config, stack = own(case)
    assert read_stack(config.to_dict()) == stack


@every_kind
def test_what_a_configuration_leaves_out_is_what_its_library_takes(case: str) -> None:
    """Or it is refused, by the key."""
    kind, config = CASES[case]
    for key in config:
        rest = {name: value for name, value in config.items() if name != key}
        told = read_or_why(rest | {"model_type": kind})
        if isinstance(told, str) and key in told.partition(" = None")[0].split():
            continue
        try:
            theirs = library(kind, rest).to_dict()
        except ValueError:  # its own default does not go with the small sizes
            continue
        assert told == read_or_why(theirs), key


def read_or_why(config: Config) -> Stack | str:
    try:
        return read_stack(config)
    except ValueError as refusal:
        return str(refusal).partition(";")[0]


def test_all_kinds_are_here() -> None:
    """But for the one that is read as another, and has no class of its own."""
    assert {kind for kind, _ in CASES.values()} == set(FAMILIES) - {"kimi_k2"}
    assert all(kind in CONFIG_MAPPING for kind, _ in CASES.values())


@pytest.mark.parametrize("kind", ["deepseek_v3", "glm4_moe"])
def test_layers_that_predict_further_tokens_are_those_of_the_library(kind: str) -> None:
    config = library(*CASES[kind])
    model = module(config)
    with torch.device("meta"):
        further = MtpModel(cast(PreTrainedModel, model), 2)
    stack = replace(read_stack(config.to_dict()), mtp_layers=2)
    assert mtp_parameters(stack) == numbers(further, "layers.") > 0
    assert mtp_parameters(replace(stack, mtp_layers=0)) == 0


# FLOPs


def corrected(case: str, stack: Stack, seq_len: int) -> int:
    """What PyTorch's counter does not see, less what the module does more than it has to; of all sequences, by hand."""
    more = 0
    for layer, times in stack.layers:
        mixer, mlp = layer.mixer, layer.mlp
        if isinstance(mixer, Attention) and 0 < mixer.window < seq_len:
            # all scores are made, then masked: of T² pairs each token needs 8, LENGTH being a multiple of 8
            more -= times * (seq_len**2 - 8 * seq_len) * 2 * 2 * mixer.heads * mixer.head_dim
        # made too, where the indexer leaves out
        if isinstance(mixer, LatentAttention) and 0 < mixer.index_topk < seq_len:
            fewer = pairs(seq_len, causal=False) - pairs(seq_len, mixer.index_topk, causal=False)
            more -= times * fewer * 2 * mixer.heads * (mixer.nope_dim + mixer.rope_dim + mixer.v_head_dim)
        if isinstance(mixer, GatedDelta):
            features = 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
            more -= times * 2 * (4 - 1) * features * 4  # the convolution goes on for three tokens behind the last
            head = 2 * mixer.value_heads * seq_len * CHUNK  # a product of a chunk's square with so many features
            # a triangular system for keys and for values, or two scores by multiplying and adding up
            more += times * head * (2 * mixer.key_dim if mixer.decay_per_feature else mixer.key_dim + mixer.value_dim)
        if isinstance(mlp, Experts) and case == "llama4":  # which runs all experts on all tokens
            more -= times * seq_len * (mlp.experts - mlp.active) * 3 * 2 * stack.d_model * mlp.d_ff
    return USERS * more


@pytest.mark.drawn(10)
@every_kind
def test_flops_are_those_of_its_module(case: str) -> None:
    config, stack = own(case)
    model = module(config)
    mask = torch.ones(USERS, 1, LENGTH, LENGTH, dtype=torch.bool, device="meta")
    words = torch.zeros(USERS, LENGTH, dtype=torch.int64, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(words, attention_mask=mask, use_cache=False)
    counted = counter.get_total_flops() + corrected(case, stack, LENGTH)
    assert sum(forward_flops(stack, LENGTH, USERS).values()) == counted


MASKS: dict[str, tuple[Callable[..., Any], tuple[int, bool]]] = {
    "all before": (causal_mask_function, (0, False)),
    "a window": (sliding_window_causal_mask_function(5), (5, False)),
    "a chunk": (chunked_causal_mask_function(5, torch.zeros(1, dtype=torch.int64)), (5, True)),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("seq_len", [1, 4, 5, 6, 10, 23])
def test_the_pairs_that_a_mask_leaves_are_those_of_the_librarys_mask(name: str, seq_len: int) -> None:
    mask, (reach, chunked) = MASKS[name]  # of tokens as tensors
    tokens = torch.arange(seq_len)
    seen = mask(0, 0, tokens[:, None], tokens).expand(seq_len, seq_len).tolist()
    assert pairs(seq_len, reach, chunked) == sum(map(sum, seen))
    attention = Attention(1, 1, 1, reach, chunked)
    assert attention.attended_tokens(seq_len) == max(map(sum, seen))


def test_pairs_of_papers_are_a_square_or_a_band() -> None:
    assert [pairs(10, causal=False), pairs(10, 4, causal=False), pairs(10, 4, True, causal=False)] == [100, 40, 36]
    assert pairs(3, 4, causal=False) == pairs(3, 4, True, causal=False) == 9


# What is kept, and a step


def cached(config: Any, model: nn.Module, length: int) -> DynamicCache:
    cache = DynamicCache(config=config)
    words = torch.zeros(USERS, length, dtype=torch.int64, device="meta")
    mask = torch.ones(USERS, 1, length, length, dtype=torch.bool, device="meta")
    with torch.no_grad():
        model(words, attention_mask=mask, past_key_values=cache, use_cache=True)
    return cache


def kept_bytes(cache: DynamicCache) -> int:
    tensors: list[Any] = []
    for layer in cache.layers:
        for name in ("keys", "values", "indexer_keys", "conv_states", "recurrent_states"):
            held = getattr(layer, name, None)
            tensors += held.values() if isinstance(held, dict) else held if isinstance(held, list) else [held]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


@pytest.mark.drawn(16)
@every_kind
@pytest.mark.parametrize("length", [5, 29])
def test_the_cache_is_that_of_its_module(case: str, length: int) -> None:
    """Of a window the library keeps one token less between two steps, which the next one adds."""
    config, stack = own(case)
    less = sum(
        times * 2 * 2 * mixer.kv_heads * mixer.head_dim
        for mixer, times in stack.mixers()
        if isinstance(mixer, Attention) and 0 < mixer.window <= length
    )
    assert USERS * (cache_bytes(stack, length) - less) == kept_bytes(cached(config, module(config), length))


@pytest.mark.drawn(10)
@every_kind
def test_the_flops_of_a_step_are_those_of_its_module(case: str) -> None:
    """One token more, without absorbing; of what is kept of a window, all that is there."""
    config, stack = own(case)
    model = module(config)
    cache = cached(config, model, CHUNK - 1)
    words = torch.zeros(USERS, 1, dtype=torch.int64, device="meta")
    masks = torch.ones(USERS, 1, 1, CHUNK, dtype=torch.bool, device="meta")
    windows = [mixer.window for mixer, _ in stack.mixers() if isinstance(mixer, Attention) and mixer.window]
    window = torch.ones(USERS, 1, 1, min([CHUNK, *windows]), dtype=torch.bool, device="meta")
    by_kind = {"full_attention": masks, "sliding_attention": window, "chunked_attention": window}
    only = (
        window
        if windows and all(isinstance(mixer, Attention) and mixer.window for mixer, _ in stack.mixers())
        else masks
    )
    mixed = windows and only is masks
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(words, attention_mask=by_kind if mixed else only, past_key_values=cache, use_cache=True)
    by_hand = 0
    for layer, times in stack.layers:
        if isinstance(mixer := layer.mixer, GatedDelta):  # three products with the state, which are written as sums
            by_hand += times * 3 * 2 * mixer.value_heads * mixer.key_dim * mixer.value_dim
            features = 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
            by_hand -= times * 2 * features * 4  # the convolution makes the token before again
        if isinstance(mixer, LatentAttention) and 0 < mixer.index_topk < CHUNK:
            features = mixer.nope_dim + mixer.rope_dim + mixer.v_head_dim
            by_hand -= times * 2 * (CHUNK - mixer.index_topk) * mixer.heads * features
        if isinstance(layer.mlp, Experts) and case == "llama4":
            by_hand -= times * (layer.mlp.experts - layer.mlp.active) * 3 * 2 * stack.d_model * layer.mlp.d_ff
    assert decode_flops(stack, USERS, CHUNK, absorbed=False) == counter.get_total_flops() + USERS * by_hand


def test_an_absorbed_step_by_hand() -> None:
    """DeepSeek-V3 at 4,096 tokens: 128 heads, a latent of 512 numbers, 64 that are turned, 61 layers."""
    stack = read_stack(PRESETS["deepseek-v3"].config)
    of_weights = decode_flops(stack, 1, 0)
    assert decode_flops(stack, 1, 4_096) - of_weights == 61 * 4_096 * 128 * 2 * (512 + 64 + 512)
    expanded = 61 * (4_096 * 128 * 2 * (128 + 64 + 128) + 4_095 * 2 * 512 * 128 * (128 + 128))
    assert decode_flops(stack, 1, 4_096, absorbed=False) - of_weights == expanded
    assert cache_bytes(stack, 1) == 61 * (512 + 64) * 2 == serving.latent_cache_bytes(61, 512, 64, 1)
    assert expanded_cache_bytes(stack, 1) == 61 * 128 * (128 + 64 + 128) * 2
    assert cache_bytes(stack, 10, width=1) == 61 * 576 * 10


def test_a_step_reads_what_an_indexer_chooses_by_hand() -> None:
    """DeepSeek-V3.2 at 131,072 tokens: 64 narrow heads score them all by a key of 128, and 2,048 are attended to."""
    stack, dense = (read_stack(PRESETS[name].config) for name in ("deepseek-v3.2", "deepseek-v3"))
    context, few = 131_072, 2_048
    assert cache_bytes(stack, context) == 61 * context * (512 + 64 + 128) * 2
    weights = 2 * read_parameters(stack)
    assert decode_bytes(stack, 1, context) - weights == 61 * 2 * (few * (512 + 64) + context * 128)
    of_weights = decode_flops(stack, 1, 0)
    scored, attended = context * 64 * 2 * (128 + 1), few * 128 * 2 * (512 + 64 + 512)
    assert decode_flops(stack, 1, context) - of_weights == 61 * (scored + attended)
    indexer = 1_536 * 64 * 128 + 7_168 * (128 + 64) + 2 * 128
    assert sum(parameters(stack).values()) - sum(parameters(dense).values()) == 61 * indexer
    listed = read_stack(PRESETS["glm-5.2"].config)
    assert (
        sum(times for mixer, times in listed.mixers() if isinstance(mixer, LatentAttention) and mixer.index_heads) == 21
    )


def test_a_window_and_a_state_stop_growing() -> None:
    gemma = read_stack(PRESETS["gemma-3-27b"].config)
    full, windowed = 10, 52
    each = 2 * 16 * 128 * 2
    assert cache_bytes(gemma, 131_072) == each * (full * 131_072 + windowed * 1_024)
    following = read_stack(PRESETS["qwen3-next-80b-a3b"].config)
    state = 36 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 4 * 2)
    assert cache_bytes(following, 1_000) == 12 * 2 * 2 * 256 * 2 * 1_000 + state
    assert cache_bytes(following, 1_000, width=1) == 12 * 2 * 2 * 256 * 1_000 + state, "states keep their formats"


def test_gpus_that_share_heads_have_a_key_value_head_each_and_all_latents() -> None:
    qwen, deepseek = (read_stack(PRESETS[name].config) for name in ("qwen3-30b-a3b", "deepseek-v3"))
    assert cache_bytes(with_shared_heads(qwen, 4), 9) == cache_bytes(qwen, 9)
    assert cache_bytes(with_shared_heads(qwen, 8), 9) == 2 * cache_bytes(qwen, 9)
    assert cache_bytes(with_shared_heads(deepseek, 8), 9) == 8 * cache_bytes(deepseek, 9)


def test_a_step_reads_the_experts_that_somebody_is_sent_to() -> None:
    stack = read_stack(PRESETS["qwen3-30b-a3b"].config)
    counts = parameters(stack)
    rest = sum(counts.values()) - counts["experts"] - counts["embedding"]
    assert read_parameters(stack) == pytest.approx(rest + counts["experts"] * 8 / 128)
    assert read_parameters(stack, 2) == pytest.approx(rest + counts["experts"] * (1 - (120 / 128) ** 2))
    assert weights_bytes(stack, 4, 16) == (4 * (rest + counts["experts"] - counts["head"]) + 32 * counts["head"]) / 8
    one = decode_bytes(stack, 1, 100)
    assert one == pytest.approx(2 * read_parameters(stack) + cache_bytes(stack, 100))


# The simple case


@pytest.mark.parametrize("case", ["llama", "qwen2", "qwen3", "mistral, no window", "mixtral"])
def test_layers_all_alike_are_as_a_decoder(case: str) -> None:
    config, stack = own(case)
    decoder = shapes.decoder_from_config(config.to_dict(), 16)
    assert sum(parameters(stack).values()) == sum(shapes.parameters(decoder).values())
    for causal in (False, True):
        ours, theirs = forward_flops(stack, 37, 3, causal), flops.forward_flops(decoder, 37, 3, causal)
        assert sum(ours.values()) == sum(theirs.values())
        assert (ours["scores"], ours["head"]) == (theirs["scores"], theirs["head"])
    assert cache_bytes(stack, 37) == memory.cache_bytes(decoder, 37)
    assert decode_flops(stack, 3, 37) == serving.decode_flops(decoder, 3, 37)
    assert decode_bytes(stack, 3, 37, 4, 1, 16) == pytest.approx(serving.decode_bytes(decoder, 3, 37, 4, 1, 16))
    assert prefill_flops(stack, 37, 3) == serving.prefill_flops(decoder, 37, 3)
    assert as_decoder(stack) == decoder and stack_of(decoder) == stack


# By name


# Of the checkpoints on Hugging Face, by the sizes of their tensors; these hold the routers' corrections too, which are
# no parameters in the library, one for each expert.
PUBLISHED = {
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "deepseek-v3": 671_026_419_200 - 58 * 256,
    "kimi-k2": 1_026_408_232_448 - 60 * 384,
    "kimi-linear-48b-a3b": 49_122_681_728 - 26 * 256,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,
    "gemma-3-12b": 11_765_788_416 + 64 * 3_840,  # of a vocabulary of 262,144, to which the checkpoint adds 64
    "llama-4-scout": 107_769_861_120,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "smollm3-3b": 3_075_098_624,
    "mistral-small-24b": 23_572_403_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.2-3b": 3_212_749_824,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-6b": 6_061_035_520,
    "yi-9b": 8_829_407_232,
    "yi-34b": 34_388_917_248,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "phi-3.5-mini": 3_821_079_552,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mixtral-8x22b": 140_620_634_112,
}
# With a layer that predicts the token after the next; GLM's has an embedding and a head of its own in the file.
WITH_PREDICTING = {
    "qwen3-next-80b-a3b": (81_324_862_720, 0),
    "glm-4.5": (358_337_791_296, 2 * 151_552 * 5_120 + 90 * 160),
    "glm-4.5-air": (110_468_824_832, 2 * 151_552 * 4_096 + 46 * 128),
}
# Of these nobody's count was found, or a part of it is of modules that the planner leaves out, such as a vision tower.
WITHOUT_A_COUNT = {
    *("deepseek-v3.2", "gemma-3-27b", "gemma-4-26b-a4b", "gemma-4-31b", "glm-4.6", "glm-5.2", "llama-4-maverick")
}
ACTIVE = {  # as their makers round it, without the embedding, in billions
    "qwen3-30b-a3b": 3.0,
    "qwen3-235b-a22b": 21.6,
    "deepseek-v3": 36.6,
    "kimi-k2": 31.7,
    "gpt-oss-20b": 3.61,
    "gpt-oss-120b": 5.13,
}


def test_models_by_name_have_the_parameters_of_their_checkpoints() -> None:
    stacks = {name: read_stack(preset.config) for name, preset in PRESETS.items()}
    totals = {name: sum(parameters(stack).values()) for name, stack in stacks.items()}
    assert {name: totals[name] for name in PUBLISHED} == PUBLISHED
    assert {*PRESETS} == {*PUBLISHED} | {*WITH_PREDICTING} | WITHOUT_A_COUNT
    for name, (published, beside) in WITH_PREDICTING.items():
        further = mtp_parameters(replace(stacks[name], mtp_layers=1))
        assert totals[name] + further + beside == published, name
    for name, billions in ACTIVE.items():
        counts = parameters(stacks[name], active=True)
        digits = len(str(billions).partition(".")[2])
        assert round((sum(counts.values()) - counts["embedding"]) / 1e9, digits) == billions, name


def test_no_name_is_taken_and_each_says_its_source() -> None:
    assert not PRESETS.keys() & shapes.SHAPES.keys()
    assert all(preset.source.endswith("/config.json") and is_read(preset.config) for preset in PRESETS.values())
    assert all(name == name.lower() for name in PRESETS)


def test_a_model_is_known_by_its_repository_and_by_what_others_call_it() -> None:
    calls = {
        "meta-llama/Llama-2-7b-hf": "llama-2-7b",
        "meta-llama/Llama-2-7b-chat-hf": "llama-2-7b",
        "meta-llama/Meta-Llama-3-8B-Instruct": "llama-3-8b",
        "meta-llama/Llama-3.1-8B": "llama-3-8b",
        "unsloth/Llama-3.2-1B-Instruct": "llama-3.2-1b",
        "Qwen/Qwen2.5-Coder-7B-Instruct": "qwen2.5-7b",
        "Qwen/Qwen2-7B": "qwen2.5-7b",
        "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
        "deepseek-ai/DeepSeek-R1": "deepseek-v3",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": "deepseek-r1-distill-qwen-1.5b",
        "mistralai/Mistral-7B-v0.1": "mistral-7b",
        "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3",  # of a larger vocabulary
        "Llama 3 8B": "llama-3-8b",
        "gpt2": "gpt2",
    }
    assert {name: preset_of(name) for name in calls} == calls
    for name in ("Qwen/Qwen3-8B-FP8", "somebody/anything", "llama-2-7b-awq"):  # other bits, or not known
        assert preset_of(name) == name.lower()
    assert {*SAME.values()} <= PRESETS.keys() | shapes.SHAPES.keys() and not SAME.keys() & PRESETS.keys()
    for preset in PRESETS.values():
        assert preset_of(preset.repository) in PRESETS


@pytest.mark.parametrize("name", [name for name in PRESETS if not name.startswith(("qwen3-next", "kimi-linear"))])
def test_a_token_multiplies_with_its_active_parameters_but_not_with_a_table_that_is_looked_up(name: str) -> None:
    """All but vectors, that is norms and biases. Linear attention, left out, works in chunks of tokens."""
    stack = read_stack(dict(PRESETS[name].config))
    active = parameters(stack, active=True)
    one, two = (sum(forward_flops(stack, seq_len).values()) / seq_len for seq_len in (1, 2))
    multiplied = (2 * one - two) / 2  # attention grows by as much from one token to two as from none to one
    looked_up = 0 if stack.tied else active["embedding"]
    assert multiplied == pytest.approx(sum(active.values()) - looked_up, rel=4e-4)
    assert multiplied < sum(active.values()) - looked_up


@pytest.mark.skipif(not draw.ALL, reason="each model is made whole, without memory: make test SLOW=1")
@pytest.mark.parametrize("name", PRESETS)
def test_a_model_by_name_is_its_module(name: str) -> None:
    """Its parameters, and the FLOPs of a short text."""
    config = PRESETS[name].config
    stack, model = read_stack(config), module(library(config["model_type"], dict(config)))
    assert sum(parameters(stack).values()) == numbers(model, "")
    seq_len = 128  # no window is shorter
    words = torch.zeros(1, seq_len, dtype=torch.int64, device="meta")
    mask = torch.ones(1, 1, seq_len, seq_len, dtype=torch.bool, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(words, attention_mask=mask, use_cache=False)
    case = "llama4" if "llama-4" in name else name
    counted = counter.get_total_flops() + corrected(case, stack, seq_len) // USERS
    assert sum(forward_flops(stack, seq_len).values()) == counted


@pytest.mark.parametrize("name", FOUND)
def test_a_published_configuration_has_the_parameters_of_its_module(name: str) -> None:
    repository, commit, path, config = FOUND[name]
    assert repository.count("/") == 1 and len(commit) == 40 and path
    text = decoder_of(config)
    model = module(library(str(text["model_type"]), dict(text)))
    assert sum(parameters(read_stack(config)).values()) == numbers(model, "")
    assert left_out(config) == [key for key in ("vision_config",) if config.get(key)]


@pytest.mark.parametrize(("kind", "read_as"), RENAMED.items())
def test_a_decoder_in_a_larger_model_is_the_kind_that_it_is_read_as(kind: str, read_as: str) -> None:
    """By its module, where the library has one of that name."""
    if kind not in CONFIG_MAPPING:  # EXAONE 4.5's library reads the decoder as exaone4 itself
        assert CONFIG_MAPPING["exaone4_5"]().text_config.model_type == read_as
        return
    own = CASES[read_as][1]
    with torch.device("meta"):
        model = AutoModel.from_config(library(kind, own), dtype=torch.bfloat16)
    counts = parameters(
        read_stack({"model_type": kind.removesuffix("_text"), "text_config": own | {"model_type": kind}})
    )
    assert sum(counts.values()) - counts["head"] == numbers(model, "")


def test_found_and_named_are_the_same() -> None:
    pairs = {"Kimi K2": "kimi-k2", "Kimi K2.5": "kimi-k2", "Qwen3-Next 80B": "qwen3-next-80b-a3b"}
    pairs |= {"gpt-oss 20B": "gpt-oss-20b", "Qwen3 30B": "qwen3-30b-a3b", "Qwen3 8B": "qwen3-8b"}
    for found, name in pairs.items():
        assert read_stack(FOUND[found][3]) == read_stack(PRESETS[name].config), found
    glm = read_stack(FOUND["GLM-4.7 Flash"][3])
    further = mtp_parameters(replace(glm, mtp_layers=1)) + 2 * 154_880 * 2_048 + 47 * 64
    assert sum(parameters(glm).values()) + further == 31_221_488_576  # of its checkpoint


# What is refused


REFUSED: dict[str, tuple[Config, str]] = {
    "a kind that is not read": (
        {"model_type": "mamba2"},
        "model_type 'mamba2' is not known; not understood: the kind, which",
    ),
    "a kind that is no word": (
        {"model_type": {"is": "llama"}},
        "model_type {'is': 'llama'} is not known; not understood",
    ),
    "a kind that stands beside the decoder": (
        {"model_type": "seen_vl", "text_config": {"hidden_size": 64}, "moe_layer_freq": 2},
        "the kind, which tells whether the MLP is gated, and which biases and norms there are: model_type | "
        "experts, which are most of the weights: moe_layer_freq",
    ),
    "a kind of layer": (
        SMALL | {"model_type": "olmo3", "layer_types": ["full_attention"] * 3 + ["mamba"]},
        "layer_types has 'mamba', which is not counted here",
    ),
    "too few layers": (
        SMALL | {"model_type": "olmo3", "layer_types": ["full_attention"]},
        "an entry for each of 4 layers",
    ),
    "a key of a newer kind": (
        SMALL | {"model_type": "llama", "kv_shared_layers": 2},
        "kv_shared_layers = 2 is not counted here",
    ),
    "experts of a dense kind": (
        SMALL | {"model_type": "qwen3", "num_experts": 8},
        "num_experts = 8 is not counted here",
    ),
    "another frequency of experts": (
        CASES["deepseek_v3"][1] | {"model_type": "deepseek_v3", "moe_layer_freq": 2},
        "moe_layer_freq = 2 is not counted here",
    ),
    "more active than there are": (
        CASES["mixtral"][1] | {"model_type": "mixtral", "num_experts_per_tok": 7},
        "num_experts_per_tok = 7, of 6 experts",
    ),
    "a layer that no list names": (
        CASES["kimi_linear"][1]
        | {"model_type": "kimi_linear", "layer_types": None}
        | {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}},
        "does not list each of 4 layers once",
    ),
    "heads that do not divide": (
        SMALL | {"model_type": "olmo2", "num_key_value_heads": 3},
        "3 key-value heads do not share",
    ),
    "a width that they do not share": (
        SMALL | {"model_type": "phi3", "hidden_size": 66},
        "4 heads do not share 66 features",
    ),
    "so many layers that no memory holds a list of them": (
        CASES["gpt_oss"][1] | {"model_type": "gpt_oss", "num_hidden_layers": 999_999_999},
        "it says 999999999 layers, and 10000 are the most that are read",
    ),
    "a list as long": (
        SMALL | {"model_type": "olmo3", "layer_types": ["full_attention"] * 10_001},
        "it says 10001 layers",
    ),
    "an encoder": ({"model_type": "bert", "hidden_size": 64}, "model_type 'bert' is an encoder; decoders alone"),
    "an encoder, by what it is made for": (
        SMALL | {"model_type": "newer", "architectures": ["NewerForMaskedLM"]},
        "model_type 'newer' is an encoder; decoders alone",
    ),
    "an encoder and a decoder": (
        SMALL | {"model_type": "llama", "is_encoder_decoder": True},
        "model_type 'llama' is an encoder and a decoder; decoders alone are planned: count its step",
    ),
    "no size": (SMALL | {"model_type": "phi3", "hidden_size": None}, "hidden_size = None; a phi3 needs a whole number"),
    "no number": (
        SMALL | {"model_type": "phi3", "vocab_size": "100"},
        "vocab_size = '100'; a phi3 needs a whole number",
    ),
    "no truth": (SMALL | {"model_type": "olmo2", "attention_bias": 1}, "attention_bias = 1; write true or false"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_counted_is_refused_by_its_key(case: str) -> None:
    config, says = REFUSED[case]
    assert is_read(config) in (True, False)
    with pytest.raises(ValueError) as refusal:
        read_stack(config)
    assert str(refusal.value).startswith("--config: ") and says in str(refusal.value)


def test_keys_that_say_nothing_of_a_shape_are_let_be() -> None:
    for kind, config in CASES.values():
        beside = {"rms_norm_eps": 1e-6, "rope_theta": 10_000, "auto_map": {}, "pretraining_tp": 1, "scale_emb": 12}
        assert read_stack(config | beside | {"model_type": kind}) == read_stack(config | {"model_type": kind})
    of_minimax: Config = {
        "layernorm_mlp_beta": 1.0,
        "mlp_intermediate_size": 8_192,
        "mtp_transformer_layers": 1,
        "rotary_dim": 64,
    }
    of_minimax |= {
        "num_mtp_modules": 3,
        "shared_moe_mode": "sigmoid",
        "use_routing_bias": True,
        "qk_norm_type": "per_layer",
    }
    config = CASES["minimax_m2"][1] | {"model_type": "minimax_m2"}
    assert read_stack(config | of_minimax) == read_stack(config)


def test_a_stack_may_be_written_by_hand() -> None:
    """Two kinds of layer, each with half of the other."""
    mixers, mlps = (Attention(4, 2, 8), LatentAttention(4, 0, 6, 4, 2, 4)), (Dense(16), Experts(4, 2, 8))
    layers = tuple((Layer(mixer, mlp), 3) for mixer in mixers for mlp in mlps)
    stack = Stack(32, 10, layers, tied=True)
    assert stack.depth == 12
    attention = 32 * (4 + 2 + 2) * 8 + 4 * 8 * 32
    latent = 32 * 4 * 6 + 32 * (6 + 2) + 6 * 4 * 8 + 4 * 4 * 32
    dense, experts, router = 3 * 32 * 16, 4 * 3 * 32 * 8, 32 * 4
    counts = parameters(stack)
    assert counts["attention"] == 6 * (attention + latent)
    assert (counts["mlp"], counts["experts"], counts["router"]) == (6 * dense, 6 * experts, 6 * router)
    assert (counts["norms"], counts["embedding"], counts["head"]) == (32 + 12 * 2 * 32 + 6 * 6, 320, 0)
