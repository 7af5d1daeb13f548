"""What people write is read: units in words, what a number is of, and models by their names elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flops_bytes.model.presets import PRESETS, known
from flops_bytes.plan import plan, stacks
from flops_bytes.plan.__main__ import main
from flops_bytes.plan.options import EXAMPLES, NOUNS, OPTIONS, currency, read_option

WRITTEN: list[tuple[str, Any, float]] = [
    ("tokens", "15 trillion", 15e12),
    ("tokens", "100 billion", 100e9),
    ("tokens", "1.5 Million tokens", 1.5e6),
    ("tokens", "5T tokens", 5e12),
    ("tokens", "15万亿个词元", 15e12),
    ("context", "8192 tokens", 8192),
    ("context", "128k tokens", 131_072),
    ("days", "30 days", 30),
    ("days", "30d", 30),
    ("days", "30 天", 30),
    ("gpus", "8x", 8),
    ("gpus", "8 张", 8),
    ("gpus", "2k GPUs", 2000),
    ("micro_batch", "4 条", 4),
    ("price", "$2.50/hr", 2.5),
    ("price", "18 元/小时", 18),
    ("price", "USD 2.5 per hour", 2.5),
    ("price", "18 人民币", 18),
    ("price", "0", 0),
    ("mfu", "40", 0.4),
    ("mfu", 40, 0.4),
    ("mfu", "40 percent", 0.4),
    ("mfu", "1", 1),
    ("mfu", "1%", 0.01),
    ("latency", "50 ms", 50),
    ("tokens_per_second", "12k tokens/s", 12_000),
    ("gpu_peak", "989 TFLOP/s", 989e12),
    ("gpu_bandwidth", "3.35TB/s", 3.35e12),
]


@pytest.mark.parametrize(("name", "written", "meant"), WRITTEN)
def test_what_is_plainly_meant_is_read(name: str, written: Any, meant: float) -> None:
    assert read_option(name, written) == meant


def test_a_price_by_the_hour_has_its_currency() -> None:
    assert [currency(text) for text in ("$2.50/hr", "18 元/小时", "2.5/h", "20 dollars")] == ["$", "¥", None, "$"]


@pytest.mark.parametrize(
    ("name", "written"), [("days", "30 tokens"), ("gpus", "8 days"), ("price", "$2/day"), ("tokens", "3 hours")]
)
def test_a_word_of_another_kind_is_refused(name: str, written: str) -> None:
    with pytest.raises(ValueError, match=r"the unit of .* is missing or not known"):
        read_option(name, written)


def test_words_are_of_options_that_there_are_and_examples_are_read() -> None:
    kinds = {option.kind for option in OPTIONS.values() if isinstance(option.kind, str)}
    assert {*NOUNS, *EXAMPLES} <= {*OPTIONS, *kinds}
    for nouns in NOUNS.values():  # one that ends another comes after it
        assert not [1 for n, noun in enumerate(nouns) for later in nouns[n + 1 :] if later.endswith(noun)], nouns
    for name, option in OPTIONS.items():
        examples = EXAMPLES.get(name, EXAMPLES.get(option.kind, "") if isinstance(option.kind, str) else "")
        assert all(read_option(name, example) for example in examples.split(", ") if example)


NAMES = {
    "Qwen/Qwen3-8B": "qwen3-8b",
    "meta-llama/Llama-3.1-8B": "llama-3-8b",
    "meta-llama/Meta-Llama-3-70B-Instruct": "llama-3-70b",
    "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json": "qwen3-8b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "openai-community/gpt2-medium": "gpt2-medium",
    "GPT-2 XL": "gpt2-xl",
    "Llama 3.2 1B": "llama-3.2-1b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
}


@pytest.mark.parametrize("written", NAMES)
def test_a_model_is_known_by_its_names_elsewhere(written: str) -> None:
    name = NAMES[written]
    assert known(written) == name
    asked: dict[str, Any] = {"gpu": "H100 SXM", "context": 512}
    found = plan(meters=False, model=name, **asked)
    assert (
        plan(meters=False, model=written, **asked)
        == plan(meters=False, config=written, **asked)
        == stacks.plan_model(model=written, **asked)
        == found
    )


def test_a_preset_is_known_by_its_repository_and_others_are_not() -> None:
    assert {known(preset.repository) for preset in PRESETS.values()} == {*PRESETS}
    assert [known(text) for text in ("", "gpt-5", "Qwen/Qwen3-8B-FP8", "Qwen/", "./config.json")] == [None] * 5


def test_a_file_of_such_a_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["--gpu", "H100 SXM", "--config", "gpt2"]
    assert main([*asked, "--explain"]) == 0 and "124,439,808" in capsys.readouterr().out
    small = '{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2, "n_positions": 1024, "vocab_size": 100}'
    (tmp_path / "gpt2").write_text(small)
    assert main([*asked, "--explain"]) == 0 and "124,439,808" not in capsys.readouterr().out
    assert plan(config="gpt2", gpu="H100 SXM")["parameters"]["total"] < 10**6
    assert main(["--gpu", "H100 SXM", "--config", "nowhere"]) == 2 and "cannot be read" in capsys.readouterr().err
