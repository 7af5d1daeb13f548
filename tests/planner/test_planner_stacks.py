"""For models whose layers differ the page asks a second script, which computes and writes what the library does."""

from __future__ import annotations

import ast
import itertools
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from py_mini_racer import MiniRacer

import planner
from flops_bytes.model.presets import PRESETS, known
from flops_bytes.model.shapes import SHAPES
from flops_bytes.plan import options as plan_options
from flops_bytes.plan.options import OPTIONS, ROWS
from planner import words
from planner.answer import answer
from planner.stacks import answer_any
from tests.draw import drawn as part_of
from tests.flops_bytes.stack_cases import CASES, FOUND
from tests.planner.scripts import sent_script, whole
from tests.planner.test_planner_doors import ALL
from tests.planner.test_planner_page import MEMORY, SCALE, put
from tests.planner.test_planner_script import BRIDGE, Pasted, number, same, tell
from tests.planner.test_planner_shorten import pairs

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
# As the page asks: first what is known there, and of a model that is not, the other script.
ASK = """
const asked = (text) => JSON.stringify(JSON.parse(text).map((told) => {
  const fields = new Map(Object.entries(told));
  try {
    try { return tell(answer(fields)); } catch (error) {
      if (!/^--(model|config):/.test(error.message)) throw error;
      return tell(answer_any(fields));
    }
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    return error.message;
  }
}));
"""
SENT = """
const own = (x) => x instanceof Map ? [...x].map(([name, each]) => [String(name), own(each)])
  : Array.isArray(x) ? x.map(own) : typeof x === "bigint" ? String(x) : x ?? null;
const asked = (text) => JSON.stringify(JSON.parse(text).map((told) => {
  const { said, error } = sent(new Map(Object.entries(told)));
  return error ?? own(said.get("shown"));
}));
"""


def configs() -> list[dict[str, Any]]:
    """A small one of each kind, and those that somebody has published."""
    small = [{"model_type": kind} | config for kind, config in CASES.values()]
    return small + [config for *_, config in FOUND.values()]


def as_python_writes() -> list[str]:
    """With Infinity, and the mark that Windows' editors begin a file with; and what Python refuses as well."""
    endless = [0.0, float("inf"), float("-inf"), float("nan")]
    text = json.dumps({"model_type": "olmo2"} | CASES["olmo2"][1] | {"time_step_limit": endless})
    assert "[0.0, Infinity, -Infinity, NaN]" in text
    others = [text.replace("-Infinity", wrong) for wrong in ("-NaN", "1NaN", "Infinityx", "infinity")]
    sizes = text.replace('"hidden_size": 64', '"hidden_size": Infinity')
    unknown = text.replace("olmo2", "olmo9").replace("{", '{"moe_topk": [8], "kind | of\\n": 2, ', 1)
    return [text, "\ufeff" + text, sizes, unknown, *others]


def forms() -> list[dict[str, str]]:
    """Each preset and each kind, to be trained and served; and models of all kinds, with fields as people fill them."""
    drawn = random.Random(26)
    models = [{"model": name} for name in PRESETS]
    models += [{"model": "config", "config": json.dumps(config)} for config in configs()]
    others = [{"model": "config", "config": text} for text in as_python_writes()]
    others += [{"model": name} for name in ("meta-llama/Llama-2-7b-hf", "DeepSeek-R1", "somebody/anything")]
    made = [{**asked} for asked in ALL]  # nothing but a model and cards
    for model in models + others:
        made.append(model | {"gpu": "H200 SXM", "gpus": "8", "zero": "3", "context": "4096", "tokens": "15T"})
        made.append(model | {"gpu": "H100 SXM", "gpus": "4", "task": "serve", "context": "8192", "prompt": "1000"})
    for _ in range(300):
        fields = drawn.choice(models) | {"gpu": drawn.choice([*ROWS]), "gpus": str(2 ** drawn.randint(0, 6))}
        fields["context"] = drawn.choice(["", "5", "300", "1000", "8192", "128k", "1M"])
        serves = drawn.random() < 0.5
        names = (
            ["users", "latency", "prompt", "price"] if serves else ["tokens", "price", "accumulation", "micro_batch"]
        )
        for name in drawn.sample(names, 2):
            fields[name] = number(drawn, str(OPTIONS[name].kind)) if drawn.random() < 0.5 else str(drawn.randint(1, 99))
        chosen = ["weights", "cache"] if serves else ["recipe", "zero", "checkpointing", "pairs", "attention", "loss"]
        for name in chosen:
            if drawn.random() < 0.4:
                unasked = planner.UNASKED_VALUES.get(name, ())
                fields[name] = drawn.choice([value for value in OPTIONS[name].kind if value not in unasked])
        if not serves and drawn.random() < 0.5:
            more = [("trained", "qlora"), ("trained", "lora"), ("offload", "yes"), ("optimizer", "adamw-8bit")]
            fields |= dict(drawn.sample([*more, ("dropout", "0.1"), ("checkpoint_every", "2")], 2))
        if drawn.random() < 0.2 and "config" in fields:
            config = json.loads(fields["config"])
            sizes = [key for key, value in config.items() if isinstance(value, int)]
            config[drawn.choice(sizes)] = drawn.choice([None, 0, 1, 7, 2**40, True, "x'y", [1, 2], {"a": 1}])
            fields["config"] = json.dumps(config | drawn.choice([{}, {"vision_config": {"a": 1}}, {"new_expert": 5}]))
        made.append(fields | ({"task": "serve"} if serves else {}))
    return made


def answered(fields: dict[str, str]) -> dict[str, Any] | str:
    """As the page asks; where there is an answer, it is the command's."""
    try:
        found = answer(fields)
    except ValueError as error:
        if not re.match("--(model|config):", str(error)):
            return str(error)
        try:
            return answer_any(fields)
        except ValueError as of_the_other:
            return str(of_the_other)
    assert tell(found) == tell(answer_any(fields))
    return found


@pytest.fixture(scope="module")
def told() -> Iterator[list[tuple[dict[str, str], dict[str, Any] | str]]]:
    """What Python says to each form, where a file is the text that was pasted."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_options, "Path", Pasted)
        yield [(fields, answered(fields)) for fields in part_of(forms(), 150)]


Told = list[tuple[dict[str, str], dict[str, Any] | str]]


def test_the_page_answers_what_the_library_answers_to_the_last_digit(told: Told) -> None:
    context = MiniRacer()
    context.eval(whole() + BRIDGE + ASK)
    theirs = json.loads(str(context.call("asked", json.dumps([fields for fields, _ in told]))))
    context.close()
    ours = [found if isinstance(found, str) else tell(found) for _, found in told]
    different = [(f, a, b) for (f, _), a, b in zip(told, ours, theirs, strict=True) if not same(a, b)]
    assert not different, different[:2]
    found, share = [found["found"] for _, found in told if isinstance(found, dict)], 0.4 * len(told) / len(forms())
    assert sum(each.get("fits") is None for each in found) > share * 30  # at least so much, and activations
    assert sum("users" in each for each in found) > share * 120
    assert sum(isinstance(said, str) for said in ours) > share * 20


def test_the_script_that_is_sent_writes_what_python_writes(told: Told) -> None:
    script = sent_script("planner-stacks.js")
    assert script.count("export default") == 1
    context = MiniRacer()
    context.eval(script.partition("export const")[0].replace("export default", "let sent=") + SENT)
    known = [(fields, found) for fields, found in told if isinstance(found, dict)]
    theirs = json.loads(str(context.call("asked", json.dumps([fields for fields, _ in known]))))
    context.close()
    assert theirs == json.loads(json.dumps([pairs(found["shown"]) for _, found in known]))
    assert len(known) > len(told) / 2


# What stands where an error fills something in that no text of its function says
FILLED = ("7", "'x'", "x", "estimate it by --shape 'x'")


def test_each_error_that_the_page_can_raise_has_its_chinese() -> None:
    patterns = [re.compile(pattern.replace("[^]", r"[\s\S]")) for pattern, _ in words("zh")["errors"]]
    script = sent_script("planner-stacks.js")
    raised = [error for path in sorted(planner.LIBRARY.rglob("*.py")) for error in errors(ast.parse(path.read_bytes()))]
    of_the_page = [
        [*ways(parts)] for each in raised if (parts := sent(each, script)) and len(said_of("".join(flat(parts)))) > 9
    ]
    assert len(of_the_page) > 45
    lacking = []
    for texts in of_the_page:
        said = [said_of(text) for text in texts]
        if not any(pattern.search(text) for pattern in patterns for text in said):
            lacking.append(said[0])
    assert lacking == []


Parts = list[str | list["Parts"]]  # of an error: its own texts, and the ways to fill in what stands between


def errors(tree: ast.Module) -> Iterator[Parts]:
    """The texts of the errors that a module raises."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Raise(
                    exc=ast.Call(func=ast.Name(id="ValueError"), args=[ast.Constant() | ast.JoinedStr() as said])
                ):
                    yield parts_of(said, function)


def said_of(error: str) -> str:
    """What an error says of an option."""
    return re.sub(r"^-*[\w-]*: ", "", error)


def parts_of(said: ast.expr, function: ast.FunctionDef) -> Parts:
    if isinstance(said, ast.Constant):
        return [str(said.value)]
    if isinstance(said, ast.JoinedStr):
        return [part for value in said.values for part in parts_of(value, function)]
    if isinstance(said, ast.FormattedValue) and isinstance(said.value, ast.Name):
        bound = [text for node in ast.walk(function) for text in texts_bound(node, said.value.id)]
        if bound:
            return [[parts_of(text, function) for text in bound]]
    return [[[text] for text in FILLED]]


def texts_bound(node: ast.AST, name: str) -> list[ast.expr]:
    """The texts that a statement binds to a name."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = [*zip(names, values, strict=True)]
        case ast.Assign(targets=[target], value=value):
            pairs = [(target, value)]
        case _:
            return []
    found = [value for target, value in pairs if isinstance(target, ast.Name) and target.id == name]
    both = [
        each for value in found for each in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))
    ]
    return [each for each in both if isinstance(each, ast.JoinedStr | ast.Constant)]


def sent(parts: Parts, script: str) -> Parts | None:
    """The same without ways to fill in that the page does not have; None if it does not have the error."""
    kept: Parts = []
    for part in parts:
        if isinstance(part, str):
            if said_of(part) not in script and part not in FILLED:
                return None
            kept.append(part)
        else:
            kept.append([way for each in part if (way := sent(each, script)) is not None])
    return kept if all(kept) else None


def ways(parts: Parts) -> Iterator[str]:
    """Each text that the parts can make."""
    choices = [[part] if isinstance(part, str) else [text for way in part for text in ways(way)] for part in parts]
    return map("".join, itertools.product(*choices))


def flat(parts: Parts) -> Iterator[str]:
    """The function's own texts, of several ways the longest."""
    for part in parts:
        if isinstance(part, list):
            yield max(("".join(flat(way)) for way in part), key=len)
        elif part not in FILLED:
            yield part


def test_all_models_that_are_known_by_name_are_offered() -> None:
    offered = [known(planner.called(name)) for names in planner.PRESETS.values() for name in names]
    assert {*offered} == {*PRESETS, *SHAPES}
    assert {planner.called(name) for names in planner.PRESETS.values() for name in names} >= {*PRESETS, *SHAPES}


@LANGUAGES
def test_lists_begin_with_what_people_have_and_end_with_what_is_not_in_them(language: str) -> None:
    """Small models of today first, and one spelling; the whole form and the front page offer the same."""
    for kind in ("full", "short"):
        models, cards = (lists_of(planner.form(kind, language))[name] for name in ("model", "gpu"))
        assert models[0] == "Qwen3 0.6B" and models[-2:] == [*words(language)["choices"]["model"].values()]
        assert cards[0].startswith("RTX") and cards[-1] == words(language)["choices"]["gpu"]["other"]
        assert {*cards[:-1]} == {*ROWS} and len({*models}) == len(models)
        assert not [name for name in models[:-2] if re.match("[a-z]", name) and not name.startswith("gpt-oss")]


def lists_of(form: str) -> dict[str, list[str]]:
    """What each list of a form offers."""
    lists = re.findall(r'<select name="(\w+)".*?</select>', form)
    return {
        name: re.findall(r"<option[^>]*>([^<]*)", form.partition(f'<select name="{name}"')[2].partition("</select>")[0])
        for name in lists
    }


def test_the_first_script_says_no_more_of_a_model_than_it_needs() -> None:
    """What a configuration lacks is said by the second."""
    only = "layers with a state or a convolution"
    assert only not in sent_script("planner.js") and only in sent_script("planner-stacks.js")


KIMI = json.dumps({"model_type": "kimi_linear"} | dict(PRESETS["kimi-linear-48b-a3b"].config))


@pytest.mark.usefixtures("site")
@LANGUAGES
def test_a_model_by_name_and_a_pasted_one_are_answered(page: Page, address: str, language: str) -> None:
    told, fetched = words(language), []
    page.on("request", lambda request: fetched.append(request.url))
    here = address + ("zh/" if language == "zh" else "") + "plan/"
    page.goto(here)
    page.locator(SCALE).wait_for()
    assert not [url for url in fetched if "planner-stacks" in url]
    verdict = page.locator(".planner-verdict")
    put(page, model="qwen3-30b-a3b", gpu="H200 SXM")
    expect(verdict).to_contain_text("139.8 GiB")  # an H200's: the second field is answered too
    expect(verdict).not_to_contain_text(told["stack"]["least"].partition("{")[0])  # with the activations
    assert [url for url in fetched if "planner-stacks" in url]
    expect(page.locator(SCALE)).to_contain_text("30,532,122,624")
    expect(page.locator(".planner-facts")).to_contain_text(told["facts"]["micro_batch"].partition("{")[0])
    assert told["details"]["memory"]["fewest"][0] in page.locator(MEMORY).inner_text()
    said = verdict.inner_text()
    page.wait_for_function("location.search.includes('H200')")
    page.reload()
    expect(verdict).to_have_text(said)
    expect(page.locator("#planner-model")).to_have_value("qwen3-30b-a3b")
    put(page, task="serve", model="config", config=KIMI)
    expect(page.locator(SCALE)).to_contain_text("49,122,675,072")
    shown = page.locator("form.planner + .planner-answer").inner_text()
    assert told["stack"]["estimates"]["latents on each GPU, absorbed"] in shown
    assert not re.search(r"undefined|null|\{|\}|\[object", shown.replace(page.locator("pre").last.inner_text(), ""))


@pytest.mark.fresh
@pytest.mark.usefixtures("site")
@LANGUAGES
def test_a_script_that_cannot_be_fetched_is_said(page: Page, address: str, language: str) -> None:
    page.context.route("**/planner-stacks.js", lambda route: route.abort())
    page.goto(address + ("zh/" if language == "zh" else "") + "plan/?model=deepseek-v3")
    text = "could not be fetched" if language == "en" else "没能取到"
    expect(page.locator(".planner-verdict")).to_contain_text(text)
    put(page, model="llama-3-8b", gpu="H200 SXM")
    expect(page.locator(".planner-verdict")).not_to_contain_text(text)
