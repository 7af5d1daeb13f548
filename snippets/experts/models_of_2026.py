# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Six models side by side: what they are, compute, keep and send, from their configurations."""

from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.step import kept_bytes
from flops_bytes.model.config import read_stack
from flops_bytes.model.presets import PRESETS
from flops_bytes.model.stack import cache_bytes, forward_flops, largest_layer_parameters, parameters
from flops_bytes.parallel.sharding import sent_parts

RECIPE = "bf16_master"  # bf16 weights and gradients, fp32 master weights and moments
NUM_GPUS, STAGE = 256, 3  # ZeRO-3
SEQ_LEN = 4_096  # tokens of a training sequence
CACHED_TOKENS = 32_768  # tokens that a cache holds
LLAMA_CONFIG = {  # https://huggingface.co/meta-llama/Meta-Llama-3-8B/blob/main/config.json
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4_096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "tie_word_embeddings": False,
}
NAMED = ("qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b")
CONFIGS = {"llama-3-8b": LLAMA_CONFIG} | {
    name: {key: told for key, told in PRESETS[name].config.items() if key != "quantization_config"} for name in NAMED
}
STACKS = {name: read_stack(config) for name, config in CONFIGS.items()}
KINDS = {name: str(config["model_type"]) for name, config in CONFIGS.items()}


# --8<-- [start:compare]
for name in ("qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3"):
    model = read_stack(PRESETS[name].config)
    held = sum(parameters(model).values())
    met = sum(parameters(model, active=True).values())
    forward = sum(forward_flops(model, 4_096, causal=True).values())
    print(f"{name}: {held / 1e9:.1f}B held, {met / 1e9:.1f}B met,")
    print(f"    {16 * held / 2**30:,.0f} GiB of state, {3 * forward / 4_096 / 1e9:.0f} GFLOPs a token")
# --8<-- [end:compare]


all_parameters = {name: sum(parameters(stack).values()) for name, stack in STACKS.items()}
active_parameters = {name: sum(parameters(stack, active=True).values()) for name, stack in STACKS.items()}
state_bytes = {name: sum(RECIPES[RECIPE]) * total for name, total in all_parameters.items()}

# matmuls of one token of a sequence of SEQ_LEN, each of which sees those before it
forward_token_flops = {
    name: sum(forward_flops(stack, SEQ_LEN, causal=True).values()) // SEQ_LEN for name, stack in STACKS.items()
}
training_token_flops = {name: 3 * flops for name, flops in forward_token_flops.items()}

# the whole cache of a sequence in bf16
context_cache_bytes = {name: cache_bytes(stack, CACHED_TOKENS) for name, stack in STACKS.items()}

# kept for the backward pass of one sequence, in bf16, as transformers writes its layers, attention in one kernel
DERIVED_NAMES = [name for name in STACKS if name != "qwen3-next-80b-a3b"]  # whose linear attention is not derived
activation_bytes = {name: sum(kept_bytes(STACKS[name], KINDS[name], SEQ_LEN).values()) for name in DERIVED_NAMES}
checkpointed_bytes = {
    name: sum(kept_bytes(STACKS[name], KINDS[name], SEQ_LEN, checkpointing="full").values()) for name in DERIVED_NAMES
}

# of one GPU in a step with ZeRO-3: what it holds of its fullest layer while that is gathered, and what it sends
gathered_layer_bytes = {
    name: RECIPES[RECIPE].weights * largest_layer_parameters(stack) for name, stack in STACKS.items()
}
deepseek = CONFIGS["deepseek-v3"]
routed_layer = 3 * deepseek["hidden_size"] * deepseek["moe_intermediate_size"] * deepseek["n_routed_experts"]
apart_layer_bytes = {  # the same of DeepSeek-V3 where each of R ranks holds E/R of its experts
    ranks: gathered_layer_bytes["deepseek-v3"] - RECIPES[RECIPE].weights * (routed_layer - routed_layer // ranks)
    for ranks in (8, 64)
}
sent_step_bytes = {
    name: int(sum(sent_parts(stack, RECIPE, NUM_GPUS, STAGE).values())) for name, stack in STACKS.items()
}


qwen = CONFIGS["qwen3-30b-a3b"]
V, d, f, L = (qwen[key] for key in ("vocab_size", "hidden_size", "moe_intermediate_size", "num_hidden_layers"))
E, k = qwen["num_experts"], qwen["num_experts_per_tok"]
HQ, GQ = (qwen[key] * qwen["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
expert_layer_parameters = {
    "attention": 2 * d * HQ + 2 * d * GQ,  # queries, output; keys, values
    "norms": 2 * d + 2 * qwen["head_dim"],  # two of the layer; one of queries, one of keys
    "router": d * E,
    "experts": E * 3 * d * f,  # gate, up, down
}
active_layer_parameters = expert_layer_parameters | {"experts": k * 3 * d * f}
layer_parameter_counts = [sum(parts.values()) for parts in (expert_layer_parameters, active_layer_parameters)]
for models, layer in zip((all_parameters, active_parameters), layer_parameter_counts, strict=True):
    assert 2 * V * d + d + L * layer == models["qwen3-30b-a3b"]  # embedding, head, the last norm
