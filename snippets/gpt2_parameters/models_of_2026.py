# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Six models side by side: what they are, compute, keep and send, from their configurations."""

# --8<-- [start:setup]
from flops_bytes.configs import read_stack
from flops_bytes.memory import RECIPES
from flops_bytes.presets import PRESETS
from flops_bytes.stack import cache_bytes, forward_flops, parameters
from flops_bytes.stack_step import kept_bytes, layer_parameters, sent_bytes

RECIPE = "bf16_master"  # bf16 weights and gradients, fp32 master weights and moments
NUM_GPUS, STAGE = 64, 3  # ZeRO-3
SEQ_LEN = 4_096  # tokens of a training sequence
CONTEXT = 32_768  # tokens that a cache holds
LLAMA_3_8B = {  # https://huggingface.co/meta-llama/Meta-Llama-3-8B/blob/main/config.json
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4_096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "tie_word_embeddings": False,
}
NAMES = ("qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b")
CONFIGS = {"llama-3-8b": LLAMA_3_8B} | {name: dict(PRESETS[name].config) for name in NAMES}
STACKS = {name: read_stack(config) for name, config in CONFIGS.items()}
KINDS = {name: str(config["model_type"]) for name, config in CONFIGS.items()}
# --8<-- [end:setup]


# --8<-- [start:table]
total_parameters = {name: sum(parameters(stack).values()) for name, stack in STACKS.items()}
active_parameters = {name: sum(parameters(stack, active=True).values()) for name, stack in STACKS.items()}
weights_bytes = {name: RECIPES[RECIPE].weights * total for name, total in total_parameters.items()}
state_bytes = {name: sum(RECIPES[RECIPE]) * total for name, total in total_parameters.items()}

# matmuls of one token of a sequence of SEQ_LEN, each of which sees those before it
forward_token_flops = {
    name: sum(forward_flops(stack, SEQ_LEN, causal=True).values()) // SEQ_LEN for name, stack in STACKS.items()
}
training_token_flops = {name: 3 * flops for name, flops in forward_token_flops.items()}

# a token's growth of a cache in bf16, and the whole cache
token_cache_bytes = {
    name: cache_bytes(stack, CONTEXT) - cache_bytes(stack, CONTEXT - 1) for name, stack in STACKS.items()
}
context_cache_bytes = {name: cache_bytes(stack, CONTEXT) for name, stack in STACKS.items()}

# kept for the backward pass of one sequence, in bf16, as transformers writes its layers, attention in one kernel
DERIVED_NAMES = [name for name in STACKS if name != "qwen3-next-80b-a3b"]  # whose linear attention is not derived
activation_bytes = {name: sum(kept_bytes(STACKS[name], KINDS[name], SEQ_LEN).values()) for name in DERIVED_NAMES}
checkpointed_bytes = {
    name: sum(kept_bytes(STACKS[name], KINDS[name], SEQ_LEN, checkpointing="full").values()) for name in DERIVED_NAMES
}

# of one GPU in a step with ZeRO-3: what it holds of its fullest layer while that is gathered, and what it sends
gathered_layer_bytes = {name: RECIPES[RECIPE].weights * layer_parameters(stack) for name, stack in STACKS.items()}
sent = {name: sent_bytes(stack, RECIPE, NUM_GPUS, STAGE) for name, stack in STACKS.items()}
sent_weights_bytes = {name: int(parts["gathered"]) for name, parts in sent.items()}
sent_gradients_bytes = {name: int(parts["reduced"]) for name, parts in sent.items()}
# --8<-- [end:table]
