"""The peak of a training step that the formula predicts is the one that a trace counts, within one per cent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flops_bytes.counting.counter import counted_peak
from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.shapes import Decoder

SHAPES = {"gpt2": replace(GPT2_SMALL, layers=4), "llama": replace(LLAMA_3_8B, layers=3)}
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "eager": {"fused": False},
    "chunked": {"chunks": 8},
    "selective": {"checkpointing": "selective"},
    "selective_eager": {"checkpointing": "selective", "fused": False, "chunks": 8},
    "full": {"checkpointing": "full"},
    "full_chunked": {"checkpointing": "full", "chunks": 8},
    "accumulated": {"accumulated": True},
}


@pytest.mark.drawn(12)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("recipe", ["fp32", "bf16", "bf16_master"])
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("batch", [1, 8])
def test_the_peak_is_the_predicted_one(shape: Decoder, recipe: str, choice: dict[str, Any], batch: int) -> None:
    moments = decoder_moments(shape, 1024, batch, recipe, update="foreach", **choice)
    predicted = max(sum(lines.values()) for lines in moments.values())
    assert predicted == pytest.approx(counted_peak(shape, 1024, batch, recipe, **choice), rel=0.01)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("shape", [SHAPES["gpt2"], SHAPES["llama"], replace(SHAPES["llama"], tied=True)])
@pytest.mark.parametrize("recipe", ["fp32", "bf16", "bf16_master"])
@pytest.mark.parametrize("accumulated", [False, True])
def test_few_tokens_peak_where_gradients_are_whole(shape: Decoder, recipe: str, accumulated: bool) -> None:
    """AdamW is fused, so the peak is in the backward pass's end, or where master weights get their gradients."""
    moments = decoder_moments(shape, 128, 1, recipe, accumulated=accumulated)
    predicted = {moment: sum(lines.values()) for moment, lines in moments.items()}
    assert max(predicted, key=lambda moment: predicted[moment]) in ("embedding", "update", "head")
    counted = counted_peak(shape, 128, 1, recipe, accumulated=accumulated, foreach=False)
    assert max(predicted.values()) == pytest.approx(counted, rel=0.002)
