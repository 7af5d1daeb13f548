"""The planner's page names what its answers rest on: capacities as sources have them, the messages that it reads."""

from __future__ import annotations

import re

import pytest

from flops_bytes.files.out_of_memory import decode
from planner.answer import answer
from tests.conftest import ROOT, recorded

EXAMPLES = recorded("plan")
PAGES = {language: (ROOT / "docs" / language / "plan.md").read_text(encoding="utf-8") for language in ("en", "zh")}
IN_2019 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity;"
    " 8.57 MiB already allocated; 9.28 GiB free; 4.68 MiB cached)"
)
IN_2020 = (
    "CUDA out of memory. Tried to allocate 10.84 GiB (GPU 0; 23.65 GiB total capacity;"
    " 1.06 GiB already allocated; 10.26 GiB free; 12.53 GiB reserved in total by PyTorch)"
)


def footnote(language: str, name: str) -> str:
    found = re.search(rf"^\[\^{name}\]: (.+)$", PAGES[language], re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize("language", PAGES)
@pytest.mark.parametrize(("name", "value"), [("h200", "H200_REPORTED_BYTES"), ("l40s", "L40S_REPORTED_BYTES")])
def test_a_capacity_is_what_its_source_says(language: str, name: str, value: str) -> None:
    said = re.search(r"(\d+\.\d\d) GiB", footnote(language, name))
    assert said and int(float(said[1]) * 2**30) == EXAMPLES[value]


def test_what_double_quantization_saves_follows_from_its_blocks() -> None:
    """Of 256 blocks of 64 weights: a constant of 4 bytes each, or of 1 byte each and one of 4 bytes for all."""
    weights = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)  # of Llama 3 70B's layers
    saved = weights / (256 * 64) * (256 * 4 - (256 * 1 + 4))
    assert EXAMPLES["double_saves_bytes"] == pytest.approx(saved, abs=1)
    assert EXAMPLES["qlora_double_bytes"] == pytest.approx(
        EXAMPLES["qlora_needs_bytes"] - EXAMPLES["double_saves_bytes"], abs=1
    )


@pytest.mark.parametrize("language", PAGES)
def test_of_messages_it_claims_what_it_reads(language: str) -> None:
    (old,), (newer,) = decode(IN_2019), decode(IN_2020)
    assert dict(old["rows"])["idle"] == "4.7 MiB" and dict(newer["rows"])["idle"] == "11.5 GiB"
    assert "reserved in total" in IN_2020 and "reserved in total" in footnote(language, "allocator")
    assert "4.68 MiB cached" in IN_2019 and "pull/13751" in footnote(language, "cached")
    for refused in ("MPS backend out of memory (MPS allocated: 9 GiB). Tried to allocate 2 GiB", "cudaMallocAsync"):
        assert decode(refused) == [] and refused.split(maxsplit=1)[0] in PAGES[language]


def test_of_the_bound_engines_reach_from_a_quarter_to_four_fifths() -> None:
    shown = answer({"task": "serve", "model": "llama-3-8b", "gpu": "H100 SXM"})["shown"]
    assert (shown["reached_low"], shown["reached_high"]) == ("24", "80")
