# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""The twelve formulas of every day, on numbers that are easy to check in the head."""

# --8<-- [start:sizes]
N, D = 8e9, 1e12  # parameters; tokens to train on
R, P, MFU = 1_000, 1e15, 0.4  # GPUs; peak FLOP/s of one; share of it that the run reaches
b, T = 1, 8_192  # sequences; tokens in each
L, d, H, G, Q, f, V = 32, 4_096, 32, 8, 128, 14_336, 128_000  # about those of Llama 3 8B
B_MEMORY, B_LINK = 3e12, 450e9  # bytes a second, of a GPU's memory and of its link
TOKENS_A_SECOND = 8_000  # of one GPU
CARDS = 8  # that exchange gradients
BYTES_A_LOGIT = 12  # at the loss
# --8<-- [end:sizes]


# --8<-- [start:daily]
training_flops = 6 * N * D
token_flops = 6 * N
attention_flops = 12 * L * H * Q * T  # a token
run_hours = training_flops / (R * P * MFU) / 3600
logged_share = 6 * N * TOKENS_A_SECOND / P  # MFU

state_bytes = 16 * N
layer_bytes = b * T * (8 * d + 4 * H * Q + 4 * G * Q + 8 * f)
activations_bytes = L * layer_bytes
logits_bytes = BYTES_A_LOGIT * b * T * V

ridge_flops_a_byte = P / B_MEMORY
sent_bytes = 2 * (2 * N) * (CARDS - 1) / CARDS  # of gradients in bf16, all-reduced
step_ms = {"matmuls": 6 * N * b * T / (P * MFU) * 1e3, "all_reduce": sent_bytes / B_LINK * 1e3}
longer_ms = max(step_ms.values())

cache_bytes = 2 * L * G * Q * 2  # a token
cached_bytes = T * cache_bytes
decode_ms = (2 * N + cached_bytes) / B_MEMORY * 1e3

print(f"{training_flops:.1e} FLOPs, {run_hours:.0f} hours; {longer_ms:.0f} ms a step; {decode_ms:.1f} ms a token")
# --8<-- [end:daily]
