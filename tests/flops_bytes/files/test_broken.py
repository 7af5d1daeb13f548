"""Broken files, drawn from the collected ones, are read, or end in an error that names the file: no traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.files.command import main
from tests.flops_bytes.files.cases import CASES, content, name_of

PIECES = ["", "\x00", "\t", "&a ", "*a", "<<: ", "!!python/name:os.x ", "[", "{", "}", "]", '"', "'", ": ", "- ", "= "]
PIECES += ["\n", "010", "1e999", "-1", "nan", "null", "auto", "99999999999999999999", "\ud7ff", "é", "#", "|", ">", "%"]
PIECES += ["a.b.c: 1\n", "[a.b]\n", "{}", "[[]]", "true", "CUDA out of memory. Tried to allocate 1 GiB", "x" * 5_000]


def broken(draw: random.Random, text: str) -> str:
    """A text with one to four cuts, doubles or insertions."""
    for _ in range(draw.randint(1, 4)):
        at, to = sorted(draw.randint(0, len(text)) for _ in range(2))
        what = draw.randint(0, 3)
        if what == 0:
            text = text[:at] + draw.choice(PIECES) + text[at:]
        elif what == 1:
            text = text[:at] + text[min(to, at + 40) :]
        elif what == 2:
            text = text[:at] + draw.choice(PIECES) + text[min(to, at + 12) :]
        else:
            text = text[:to] + text[at:to][:200] + text[to:]
    return text


DRAWS = 6  # of 50 files each


@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_broken_file_is_read_or_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    draw = random.Random(seed)
    cases: list[dict[str, Any]] = list(CASES.values())
    for n in range(50):
        case = draw.choice(cases)
        path = tmp_path / f"{n}-{name_of(case)}"
        path.write_bytes(broken(draw, case["text"]).encode("utf-8", "surrogatepass")[draw.randint(0, 1) * n % 3 :])
        status = main([str(path)])
        said = capsys.readouterr()
        assert status in (0, 2), said.err
        assert status == 0 or said.err.startswith("flops-bytes: "), said.err
        if "as read" not in said.out:
            assert str(path) in said.err and "Traceback" not in said.err


VALUES: list[Any] = [None, True, False, 0, -1, 3, 1.5, 1e30, float("nan"), float("inf"), 10**30, "", "auto", "010"]
VALUES += ["x" * 300, [], [1, "a"], {}, {"a": 1}, "中", "--gpu", "!x", "$y", "@z", "~", "full", "4"]


@pytest.mark.parametrize("seed", range(2))
def test_a_file_with_other_values_is_read_or_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        case = draw.choice(list(CASES.values()))
        table = dict(content(tmp_path, case["text"], name_of(case)).table)
        for key in draw.sample([*table], min(3, len(table))):
            inner = table[key]
            if isinstance(inner, dict) and inner and draw.randint(0, 3):
                table[key] = inner | {draw.choice([*inner]): draw.choice(VALUES)}
            else:
                table[key] = draw.choice(VALUES)
        path = tmp_path / "file.json"
        path.write_text(json.dumps(table, default=str))
        status = main([str(path), "--model", "gpt2"])
        said = capsys.readouterr()
        assert status == 2 and said.err.startswith("flops-bytes: ") and "Traceback" not in said.err
