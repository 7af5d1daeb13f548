"""The trainer goes on where it was stopped, with the losses that it would have had, and says what it cannot read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from flops_bytes.lessons import train as trainer
from flops_bytes.lessons.train import choose, read_tokens, train


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # sums keep their order


def test_a_resumed_run_has_the_losses_of_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(choose([]))
    options = choose(["--checkpoint", str(tmp_path / "run.pt")])
    save = trainer.save

    def save_and_stop(options: Any, step: int, *rest: Any) -> None:
        save(options, step, *rest)
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train(options)
    monkeypatch.setattr(trainer, "save", save)
    assert train(options) == whole[options.report :]
    assert whole[-1] < whole[0] - 0.1, "it learns"
    with pytest.raises(ValueError, match="has width 64, this run 32"):
        train(choose(["--checkpoint", str(tmp_path / "run.pt"), "--width", "32"]))


def test_tokens_are_two_bytes_or_one(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(torch.tensor([50_256, 7, 300], dtype=torch.uint16).numpy().tobytes())
    (tmp_path / "text.md").write_bytes("é!".encode())
    tokens, vocab = read_tokens(tmp_path / "tokens.bin", 2)
    assert (tokens.tolist(), vocab) == ([50_256, 7, 300], 50_304)
    tokens, vocab = read_tokens(tmp_path / "text.md", 2)
    assert (tokens.tolist(), vocab) == ([0xC3, 0xA9, 0x21], 256)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.bin", None, "missing.bin is no file"),
        ("short.txt", b"too short", "9 tokens and 0 bytes, where whole tokens, at least 33, go"),
        ("odd.bin", b"x" * 101, "50 tokens and 1 bytes"),
        ("other.bin", b"\xff\xff" * 200, r"token 65535 is not among 50304: is .*other.bin uint16"),
    ],
)
def test_what_it_cannot_read_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    toy = [f"--{option}={size}" for option, size in trainer.TOY.items()]
    with pytest.raises(ValueError, match=message):
        train(choose([str(path), *toy]))
