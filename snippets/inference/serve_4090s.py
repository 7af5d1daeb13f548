# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Which Qwen3 do one or two RTX 4090s serve, to how many users, at most how fast? By the planner."""

from typing import Any

from flops_bytes.plan import plan

# --8<-- [start:one]
for model, weights in (("qwen3-8b", "16bit"), ("qwen3-14b", "8bit"), ("qwen3-32b", "4bit")):
    answer = plan(task="serve", model=model, gpu="RTX 4090", gpus=1, context=8_192, weights=weights)
    users, alone = answer["users_that_fit"], answer["alone_per_second"]
    print(f"{model} in {weights}: {users} users of 8,192 tokens; alone, at most {alone:.0f} tokens a second")
# --8<-- [end:one]


CONTEXT, PROMPT = 8_192, 4_096  # tokens of a user, and of these the prompt
PRICE = 2  # yuan for an hour of a card: our example, fill in your own
CHOICES = {  # cards, model, weights
    "4b": (1, "qwen3-4b", "16bit"),
    "8b": (1, "qwen3-8b", "16bit"),
    "8b_8bit": (1, "qwen3-8b", "8bit"),
    "14b_8bit": (1, "qwen3-14b", "8bit"),
    "14b_4bit": (1, "qwen3-14b", "4bit"),
    "30b_a3b_4bit": (1, "qwen3-30b-a3b", "4bit"),
    "32b_4bit": (1, "qwen3-32b", "4bit"),
    "two_14b": (2, "qwen3-14b", "16bit"),
    "two_30b_a3b_8bit": (2, "qwen3-30b-a3b", "8bit"),
    "two_32b_8bit": (2, "qwen3-32b", "8bit"),
    "two_32b_4bit": (2, "qwen3-32b", "4bit"),
}
served: dict[str, dict[str, Any]] = {}
for name, (cards, model, weights) in CHOICES.items():
    answer = plan(
        task="serve",
        model=model,
        gpu="RTX 4090",
        gpus=cards,
        context=CONTEXT,
        prompt=PROMPT,
        weights=weights,
        price=f"¥{PRICE}",
    )
    fits = answer["users_that_fit"] > 0
    served[name] = {
        "card_bytes": answer["memory_bytes"]["weights"],
        "users": answer["users_that_fit"],
        "alone": answer["alone_per_second"] if fits else None,
        "together": answer["tokens_per_second"] if fits else None,
        "yuan": answer["money_a_million"] if fits else None,
        "longest": answer["longest_context"],
    }
    print(name, served[name])
_two, _one = (plan(task="serve", model="qwen3-32b", gpu="RTX 4090", gpus=n, context=CONTEXT) for n in (2, 1))
reached_share = [rate / _one["each_per_second"] for rate in _one["reached_per_second"]]
reached_two_share = [rate / _two["each_per_second"] for rate in _two["reached_per_second"]]
SMALL_SECONDS = 42.56e-6  # of an all-reduce of 8 bytes on eight RTX 4090s, as the page's note says
calls = 2 * 64  # all-reduces of a token: two in each layer of Qwen3 32B
CALLS_MS = 1e3 * calls * SMALL_SECONDS
two_32b_ms = 1e3 / served["two_32b_4bit"]["alone"]
print(reached_share, reached_two_share, f"{CALLS_MS:.1f} ms beside {two_32b_ms:.1f} ms")
assert served["32b_4bit"]["users"] == 0 < served["32b_4bit"]["longest"] < CONTEXT
