"""Each collected file is known by what it holds, is read to its options, and drops nothing without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from py_mini_racer import MiniRacer

from flops_bytes.files.formats import flatten
from flops_bytes.files.interpret import interpret
from flops_bytes.files.run import facts_beside, parts_of
from flops_bytes.files.software import softwares
from planner import engine
from tests.flops_bytes.files.cases import CASES, content, name_of, read, warned

KEPT = {"option", "nothing", "no effect", "not planned", "unknown"}


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_a_collected_file_says_its_options(tmp_path: Path, case: dict[str, Any]) -> None:
    one = content(tmp_path, case["text"], name_of(case))
    parts, _ = parts_of([one], softwares())
    assert [part.software for part in parts] == [case["software"]]
    reading = read(one)
    assert reading.options == case["options"]
    assert warned(reading) == case["not_planned"]
    assert [said.key for said in reading.refused] == case.get("refused", [])


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_no_key_is_dropped_without_a_word(tmp_path: Path, case: dict[str, Any]) -> None:
    one = content(tmp_path, case["text"], name_of(case))
    reading = read(one)
    said = [each.key for each in [*reading.said, *reading.refused] if each.file]
    _, config = parts_of([one], softwares())
    table = config.path.partition(", ")[2] if config else " "  # which is handed on as the model's config.json
    keys = [key for key in flatten(one.table) if not key.startswith(f"{table}.")]
    assert [key for key in keys if not {key, key.split(".")[-1]} & {*said}] == []
    assert {each.kind for each in reading.said} <= {*KEPT, "default"}


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_a_file_is_known_by_what_it_holds(tmp_path: Path, case: dict[str, Any]) -> None:
    """Not by its name: without one it is read the same."""
    assert read(content(tmp_path, case["text"], "file")).options == case["options"]


def test_the_page_would_read_them_as_python_does(tmp_path: Path) -> None:
    """The interpreter is written in the Python that planner/translate.py takes."""
    context = MiniRacer()
    context.eval(engine(wanted={"flops_bytes.files.interpret": ["Part", "interpret"]}))
    context.eval(f"const data = {loaded(softwares())}; undefined")
    for case in CASES.values():
        parts, config = parts_of([content(tmp_path, case["text"], name_of(case))], softwares())
        more = facts_beside(parts, config)
        reading = interpret(parts, softwares(), more)
        made = ", ".join(f'Part("", "{part.software}", {loaded(part.held)})' for part in parts)
        context.eval(f"const found = interpret([{made}], data, {loaded(more)}); undefined".replace("const", "var"))
        assert context.eval("$repr(found.options)") == repr(reading.options)
        assert context.eval("found.said.length") == len(reading.said)
    context.close()


def loaded(value: Any) -> str:
    """A value as the page has it."""
    return f"$json_loads({json.dumps(json.dumps(value, default=str))})"
