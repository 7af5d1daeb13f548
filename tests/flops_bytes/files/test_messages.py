"""Each collected message is read to its cause, and to whose card it is of."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from flops_bytes.files.out_of_memory import decode
from tests.flops_bytes.files.cases import FOLDER

MESSAGES = tomllib.loads((FOLDER / "held_out_messages.toml").read_text(encoding="utf-8"))["message"]


@pytest.mark.parametrize("message", MESSAGES, ids=[message["text"][:80] for message in MESSAGES])
def test_a_collected_message_says_its_cause(message: dict[str, Any]) -> None:
    (told,) = decode(message["text"])
    causes = [name for name, _ in told["causes"]] or [told["first"]]  # one that is cut off or bare has none
    assert (causes[0], told["smi"]) == (message["cause"], message["smi"])
