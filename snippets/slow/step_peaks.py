# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""The peak of a training step at full size, counted without memory, beside the one that the formula predicts."""

# --8<-- [start:setup]
from typing import Any

from flops_bytes.counter import counted_peak
from flops_bytes.models import GPT2_SMALL, LLAMA_3_8B
from flops_bytes.peak import peak_bytes

# --8<-- [end:setup]


# --8<-- [start:compare]
MODELS = {"gpt2": (GPT2_SMALL, 1_024, 4), "llama": (LLAMA_3_8B, 8_192, 1)}  # and T, b
CHOICES: dict[str, dict[str, Any]] = {
    "fp32": {"recipe": "fp32"},
    "bf16": {"recipe": "bf16"},
    "bf16_master": {"recipe": "bf16_master"},
    "eager": {"recipe": "bf16", "fused": False},
    "selective": {"recipe": "bf16", "fused": False, "checkpointing": "selective"},
    "full": {"recipe": "bf16", "checkpointing": "full"},
    "chunked": {"recipe": "bf16", "chunks": 16},
    "accumulated": {"recipe": "bf16", "accumulated": True},
}


def compare(model: str, choice: str, batch: int | None = None) -> dict[str, Any]:
    """The predicted moment and bytes of the peak, the counted bytes, their ratio."""
    shape, seq_len, usual = MODELS[model]
    options = {"seq_len": seq_len, "batch": batch or usual} | CHOICES[choice]
    moments = peak_bytes(shape, foreach=True, **options)
    at = {moment: sum(lines.values()) for moment, lines in moments.items()}
    moment = max(at, key=lambda name: at[name])
    counted = counted_peak(shape, **options)
    return {
        "moment": moment,
        "formula_bytes": at[moment],
        "counted_bytes": counted,
        "ratio": counted / at[moment],
    }


# --8<-- [end:compare]


# --8<-- [start:one]
one = compare("gpt2", "bf16")
print(f"formula {one['formula_bytes']:,} B, at the {one['moment']}")
print(f"counted {one['counted_bytes']:,} B")
assert abs(one["ratio"] - 1) < 0.01
# --8<-- [end:one]


# --8<-- [start:table]
if __name__ == "__main__":
    peaks = {model: {choice: compare(model, choice) for choice in CHOICES} for model in MODELS}
    for model, rows in peaks.items():
        for choice, row in rows.items():
            print(f"{model:6}{choice:12}{row['counted_bytes'] / 2**30:9.2f} GiB, over the formula {row['ratio']:.4f}")
            assert abs(row["ratio"] - 1) < 0.01
# --8<-- [end:table]
