"""The scripts that a reader is sent are short, and do and say what the long ones do."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from py_mini_racer import JSEvalException, MiniRacer

import planner
from flops_bytes.plan.options import SPEEDS
from planner.answer import answer
from planner.shorten import NAMES, UNSEEN, bound, reached
from planner.translate import RESERVED, RUNTIME, SHORT
from tests.draw import ALL, SEED
from tests.planner.scripts import engine_of, sent_script
from tests.planner.test_planner_script import answered, draw

ASK = """
const own = (x) => x instanceof Map ? [...x].map(([name, each]) => [String(name), own(each)])
  : Array.isArray(x) ? x.map(own) : typeof x === "bigint" ? String(x) : x ?? null;
const ask = (text) => JSON.stringify(JSON.parse(text).map((fields) => {
  try { return own(answer(new Map(Object.entries(fields))).get("shown")) } catch (error) { return error.message }
}));
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[MiniRacer]:
    context = MiniRacer()
    context.eval(engine_of("planner.js") + ASK)
    yield context
    context.close()


def pairs(value: object) -> object:
    if isinstance(value, dict):
        return [[str(name), pairs(each)] for name, each in value.items()]
    return [pairs(each) for each in value] if isinstance(value, list | tuple) else value


ENOUGH, MOST = 15, 400  # answers and refusals that are compared, and forms that are drawn for them


def answered_and_refused(drawn: random.Random) -> list[tuple[dict[str, str], object]]:
    """Forms with what Python says of them: 80 drawn ones, and as many more as it takes to have enough of both kinds."""
    asked: list[tuple[dict[str, str], object]] = []
    for number in range(MOST):
        refused = sum(isinstance(told, str) for _, told in asked)
        if number >= 80 and min(refused, len(asked) - refused) > ENOUGH:
            break
        fields = draw(drawn)
        told = answered(fields)
        if "cannot be read as JSON" not in str(told):  # in its words
            asked.append((fields, told))
    return asked


def test_the_script_that_is_sent_says_what_python_says(engine: MiniRacer) -> None:
    asked = answered_and_refused(random.Random(SEED))
    forms = [fields for fields, _ in asked]
    ours = [told if isinstance(told, str) else pairs(answer(fields)["shown"]) for fields, told in asked]
    ours = ["" if isinstance(told, str) and any(part in told for part in UNSEEN) else told for told in ours]
    ours = [
        told.partition("not understood: ")[0] if isinstance(told, str) else told for told in ours
    ]  # of another script
    theirs = json.loads(str(engine.call("ask", json.dumps(forms))))
    assert theirs == json.loads(json.dumps(ours))
    assert min(sum(isinstance(each, kind) for each in ours) for kind in (str, list)) > ENOUGH


def test_of_an_errors_words_only_those_for_translators_are_left_out() -> None:
    script = sent_script("planner.js")
    assert "write it plainer" not in script and "is no number" not in script
    assert "cannot be read as JSON" in script and "does not lie between" in script
    sources = "".join(path.read_text("utf-8") for path in (planner.LIBRARY / "plan").glob("*.py"))
    for part in UNSEEN:
        assert part not in script and sources.count(part) == 1, part


def test_no_form_raises_an_error_whose_words_are_left_out() -> None:
    """Whatever is filled in beside what is chosen, and whatever an address asks."""
    drawn, told = random.Random(SEED), []
    for _ in range(300 if ALL else 100):
        drawn_fields = {name: text for name, text in draw(drawn).items() if name not in SPEEDS}  # of which it has one
        fields = drawn_fields | {"gpus": drawn.choice(("1", "8")), "zero": drawn.choice(("", "0", "3"))}
        fields |= {"trained": drawn.choice(("all", "lora", "qlora", "")), "lora": drawn.choice(("", "8"))}
        fields |= {"lora_on": drawn.choice(("", "all", "attention")), "users": "4", "latency": "20", "unknown": "1"}
        fields |= {"gpu_memory": "80GB", "gpu_peak": "100T", "shape": "layers=2", "checkpointing": "none"}
        fields |= {"speed": drawn.choice(("", "50%")), "speed_in": drawn.choice(("mfu", "each", "step_seconds"))}
        try:
            answer(fields)
        except ValueError as error:
            told.append(str(error))
    assert len(told) > 5 and not [text for text in told for part in UNSEEN if part in text]


def test_what_nothing_needs_is_not_sent() -> None:
    runtime = "const $a = 1;\nconst $b = $a;\nfunction $c() {}\nconst $d = 2, $e = 3;"
    assert reached(runtime, "$b + $e") == ["const $a = 1;", "const $b = $a;", "const $d = 2, $e = 3;"]
    assert bound("const $d = 2, $e = 3;") == ["$d", "$e"]
    whole = RUNTIME.read_text(encoding="utf-8")
    assert 10 < len(reached(whole, "$add(a, b)")) < len(whole.splitlines()) / 4


def test_no_short_name_is_taken_twice() -> None:
    assert len(NAMES) == len(set(NAMES)) and not set(NAMES) & set(SHORT)
    assert not set(NAMES) & set(
        re.findall(r"\b[A-Z]\w?\b", re.sub(r'".*?"|`.*?`|/.*?/', "", RUNTIME.read_text("utf-8")))
    )
    assert not {"if", "in", "do"} & set(SHORT) - RESERVED


def test_the_scripts_are_light() -> None:
    """As a host sends them; that of error messages comes only to whoever has one."""
    weights = {name: len(gzip.compress(sent_script(name).encode())) for name in planner.SCRIPTS}
    assert weights["planner.js"] < 47_000 and weights["planner-memory.js"] < 13_200
    assert weights["planner-files.js"] < 56_500  # for files that somebody brings, with the softwares' data
    assert weights["planner-stacks.js"] < 60_500  # fetched for a model whose layers differ, with its engine
    assert weights["planner-meters.js"] < 15_500 and weights["planner-stacks-meters.js"] < 12_450  # after an answer


def test_an_error_that_is_none_of_the_readers_is_one_still(engine: MiniRacer) -> None:
    with pytest.raises(JSEvalException):
        engine.eval("answer(new Map([['model', 5n]]))")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of scripts as they are made, of a planner that has one source, library/it.py."""
    names: list[str] = []
    for folder in ("library", "page", "assets"):
        (tmp_path / folder).mkdir()
    (tmp_path / "library" / "it.py").write_text("")

    def script(name: str, stamp: int) -> str:
        names.append(name)
        time.sleep(0.01)
        return f"{name} {stamp}"

    monkeypatch.setattr(planner, "PLANNER", tmp_path / "page")
    monkeypatch.setattr(planner, "LIBRARY", tmp_path / "library")
    monkeypatch.setattr(planner, "ASSETS", tmp_path / "assets")
    monkeypatch.setattr(planner, "words", lambda language: dict.fromkeys(("errors", "not_understood", "fields"), ""))
    monkeypatch.setattr(planner, "script", script)
    return names


def test_scripts_are_made_again_once_a_source_has_changed(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a source that has changed since this process began, by the next process too: this one runs old code."""

    def written(began: float) -> int:
        """How many scripts are made by a process that began then."""
        monkeypatch.setattr(planner, "STARTED", began)
        made.clear()
        planner.write_scripts()
        return len(made)

    before, after, every = 0, float("inf"), len(planner.SCRIPTS)
    assert [written(after), written(after)] == [every, 0]
    os.utime(tmp_path / "library" / "it.py", ns=(2 * time.time_ns(),) * 2)
    assert [written(before), written(after), written(after)] == [every, every, 0]


def test_of_two_builds_at_a_time_one_makes_the_scripts(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "STARTED", float("inf"))
    builds = [threading.Thread(target=planner.write_scripts) for _ in range(2)]
    for build in builds:
        build.start()
    for build in builds:
        build.join()
    assert made == list(planner.SCRIPTS)
