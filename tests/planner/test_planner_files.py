"""Files in the page's box: the page's parsers and its translated interpreter read them as the terminal does."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from py_mini_racer import MiniRacer

import planner
from flops_bytes.files.formats import formats_of
from flops_bytes.files.parse import parse_yaml
from flops_bytes.files.software import sentences, softwares
from planner.files import read_files
from tests.flops_bytes.files.cases import CASES, content, name_of
from tests.flops_bytes.files.test_command import MESSAGE
from tests.flops_bytes.files.test_parse import HOSTILE, TRAPS
from tests.planner.scripts import sent_script

ENCODE = """
const kinds = { bigint: (x) => `${x}`, number: (x) => ["~", x], string: (x) => `'${x}`, boolean: (x) => x };
const inner = (x) => x instanceof Map ? Object.fromEntries([...x].map(([key, each]) => [key, encoded(each)]))
  : Array.isArray(x) ? x.map(encoded) : null;
const encoded = (x) => (kinds[typeof x] ?? inner)(x);
const tried = async (made) => {
  try {
    return JSON.stringify(encoded(await made()));
  } catch (error) {
    return JSON.stringify(`!${error.message}`);
  }
};
"""


def encoded(value: Any) -> Any:
    """A value as ENCODE has it: an int and a float apart, keys in any order."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return ["~", value]
    if isinstance(value, dict):
        return {str(key): encoded(each) for key, each in value.items()}
    return [encoded(each) for each in value] if isinstance(value, list | tuple) else f"'{value}"


def script_with_parsers() -> Any:
    """The script as it is sent, without a page, and its parsers."""
    script = sent_script("planner-files.js").replace("export default function", "const take=function")
    script = script.replace("import(`./planner-${name}.js`)", "Promise.resolve({default: MODULES[name]})")
    context = MiniRacer()
    for file in planner.PARSERS.values():
        name = "yaml" if "yaml" in file else "toml"
        module = planner.parser(file).replace("export default exports", "return exports")
        context.eval(f"globalThis.MODULES ??= {{}}; MODULES.{name} = (() => {{{module}}})(); undefined")
    context.eval(script + ENCODE + "undefined")
    return context


@pytest.fixture(scope="module")
def box() -> Any:
    """Runs a line in it, in a thread of its own: MiniRacer waits for a promise on the loop of the thread that made it,
    and the loop that a browser's tests leave in theirs stands still."""
    with ThreadPoolExecutor(1) as apart:
        context = apart.submit(script_with_parsers).result()

        def settled(made: str) -> Any:
            promise: Any = context.eval(f"tried(async () => {made})")
            return promise.get()

        yield lambda made: json.loads(apart.submit(settled, made).result())
        apart.submit(context.close).result()


def as_js(value: Any) -> str:
    return json.dumps(json.dumps(value)) if not isinstance(value, str) else json.dumps(value)


FORMAT = {"json": "json", "toml": "toml", "yaml": "yaml", "yml": "yaml"}


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_both_parsers_read_a_collected_file_alike_and_say_the_same_of_it(
    tmp_path: Path, box: Any, case: dict[str, Any]
) -> None:
    one = content(tmp_path, case["text"], name_of(case))
    file = {"path": name_of(case), "kind": "table", "text": case["text"], "table": dict(one.table)}
    formats = box(f"formats_of({as_js(file['path'])}, {as_js(file['text'])})")
    assert formats == encoded(formats_of(file["path"], file["text"]))
    parsed = f"await parsed({as_js(formats[0][1:])}, {as_js(file['text'])})"
    assert box(parsed) == encoded(file["table"])
    told = f"path: {as_js(file['path'])}, kind: 'table', text: {as_js(file['text'])}, table: {parsed}"
    assert box(f"read_files([new Map(Object.entries({{{told}}}))], DATA, new Map())") == encoded(
        read_files([file], softwares(), {})
    )


@pytest.mark.parametrize("text", TRAPS, ids=[*TRAPS])
def test_one_table_reads_the_scalars_of_both(box: Any, text: str) -> None:
    assert box(f"parsed('yaml', {as_js(f'key: {text}')})") == encoded({"key": TRAPS[text]})


def test_anchors_merges_and_tags_are_read_alike(box: Any) -> None:
    for text in (
        "base: &b {lr: 1, batch: 2}\nrun:\n  <<: *b\n  batch: 3\nlist: [*b, 4]\n",
        "a: &x {p: 1}\nb: &y {p: 2, q: 3}\nc:\n  <<: [*x, *y]\n",
        "a: !!python/object/apply:os.system ['touch x']\nb: !own 5\nc: |\n  010\n  yes\nd: >-\n  a\n  b\non: 1\n1: 2\n",
    ):
        assert box(f"parsed('yaml', {as_js(text)})") == encoded(parse_yaml(text))


@pytest.mark.parametrize("name", [*HOSTILE])
def test_hostile_yaml_ends_named(box: Any, name: str) -> None:
    assert re.match("'?!.*not YAML", box(f"parsed('yaml', {as_js(HOSTILE[name])})"))


@pytest.mark.parametrize("format", ["yaml", "json", "toml"])
def test_the_line_of_a_mistake_is_named(box: Any, format: str) -> None:
    text = {"yaml": "a: 1\nb: [1, 2\nc: 3\n", "json": '{\n"a": 1,\n"b": oops\n}', "toml": "a = 1\nb = 2\nc = = 3\n"}
    assert re.match(f"!line 3: not {format.upper()}: ", box(f"parsed('{format}', {as_js(text[format])})"))
    for hostile in ("[" * 10**5, '{"a":' * 10**5, "a = " + "[" * 10**5, "a" + ".a" * 500 + " = = 1"):
        assert f"not {format.upper()}" in box(f"parsed('{format}', {as_js(hostile)})")


def test_both_languages_have_every_sentence() -> None:
    english, chinese = (planner.words(language)["files"] for language in ("en", "zh"))
    of_the_terminal = {"no model", "no card", "no count", "unknown model", "ways", "way", "as it is", "asked"}
    of_the_terminal |= {"run by", "written"}
    assert {*chinese} - {*english} == {"patterns", "reasons"} and {*english} < {*chinese}
    assert {*sentences()} - {*english} == of_the_terminal
    for name, text in chinese.items():
        if isinstance(text, str):
            assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", english[name])), name


def test_every_reason_of_the_data_is_said_in_chinese() -> None:
    told = set[str]()
    for data in softwares().values():
        told |= {*data.get("not_planned", {}).values()}
        for own in data.get("keys", {}).values():
            told |= {own["not_planned"]} if "not_planned" in own else set()
            told |= {value[1:].strip() for value in own.get("values", {}).values() if str(value).startswith("!")}
        implied = [str(value) for rule in data.get("implies", []) for value in rule["then"].values()]
        told |= {value[1:].strip() for value in implied if value.startswith("!")}
    assert told == {*planner.words("zh")["files"]["reasons"]}


# In a browser

LORA = CASES["llama_factory: hiyouga/LLaMA-Factory/qwen3_lora_sft.yaml"]["text"]
FULL = CASES["llama_factory: hiyouga/LLaMA-Factory/qwen3_full_sft.yaml"]["text"]
OFFLOAD = CASES["deepspeed: hiyouga/LLaMA-Factory/ds_z3_offload_config.json"]["text"]
TITAN = CASES["torchtitan: pytorch/torchtitan/llama3_8b.toml"]["text"]


def paste(page: Page, text: str, place: int = 0) -> None:
    """Puts a text into the box's first field, or another, and waits until it is read and answered."""
    if not page.locator(".planner-files[data-started]").count():
        page.locator(".planner-files summary").first.click()
    page.locator(".planner-files textarea").nth(place).fill(text)
    page.wait_for_timeout(300)  # which the box waits for more that is typed
    expect(page.locator(".planner-read[aria-busy=false]")).to_have_count(1)
    expect(page.locator("form.planner [aria-busy=false]")).to_have_count(1)


def marked(page: Page) -> set[str]:
    fields = page.locator(".planner-field:has(.planner-mark)").all()
    return {str(field.get_attribute("data-name")) for field in fields}


def value(page: Page, name: str) -> str:
    return page.locator(f".planner [name={name}]").input_value()


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("path", ["plan/", "zh/plan/"])
def test_what_is_pasted_fills_the_form_and_is_marked(page: Page, address: str, path: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(address + path)
    page.locator(".planner-verdict").wait_for()
    paste(page, FULL)
    asked = {"model": "qwen3-4b", "trained": "all", "micro_batch": "1", "accumulation": "2", "context": "2048"}
    asked |= {"zero": "3", "checkpointing": "full", "recipe": "bf16-master", "optimizer": "adamw", "layers": "composed"}
    assert {name: value(page, name) for name in asked} == asked and marked(page) == {*asked}
    assert (value(page, "tokens"), value(page, "price"), value(page, "gpus")) == ("", "", "8")
    paste(page, OFFLOAD, 1)
    assert value(page, "offload") == "all" and "offload" in marked(page)
    read = page.locator(".planner-read")
    expect(read).to_contain_text("zero_optimization.stage3_prefetch_bucket_size: auto")
    expect(read).to_contain_text("lr_scheduler_type")
    expect(page.locator(".planner-verdict").first).to_contain_text(re.compile("with room|有余量"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".planner [name=micro_batch]").fill("4")
    assert "micro_batch" not in marked(page) and "accumulation" in marked(page)
    expect(page.locator(".planner-written code")).to_have_text("per_device_train_batch_size: 4")
    page.locator(".planner [name=offload]").select_option("yes")
    expect(page.locator(".planner-written")).to_contain_text('"device": "none"')
    paste(page, LORA)
    assert value(page, "trained") == "lora" and value(page, "lora") == "8", "of the file that stands there now"
    assert value(page, "micro_batch") == "1"
    expect(page.locator(".planner-written code")).to_have_count(0)


@pytest.mark.metered
@pytest.mark.usefixtures("site")
def test_a_way_that_fits_is_written_down_for_the_file(page: Page, address: str) -> None:
    """What a file says of methods is open to ways; the line that asks for the way is the software's own."""
    page.goto(address + "plan/?model=qwen3-8b&gpu=RTX+4090&gpus=1")
    page.locator(".planner-verdict").wait_for()
    paste(page, LORA.replace("Qwen3-4B", "Qwen3-8B"))
    way = page.locator(".planner-way").filter(has_text="QLoRA").first
    way.click()
    expect(page.locator(".planner [name=trained]")).to_have_value("qlora-double")
    expect(page.locator(".planner-written code").first).to_contain_text("quantization_bit: 4")
    expect(page.locator(".planner-verdict").first).to_contain_text("QLoRA")


@pytest.mark.usefixtures("site")
def test_a_model_that_stands_in_a_file_fills_the_form(page: Page, address: str) -> None:
    page.goto(address + "plan/")
    page.locator(".planner-verdict").wait_for()
    paste(page, CASES["nanotron: ratschlab/nanotron-petagraph/config_petagraph_multi_node.yaml"]["text"])
    config = json.loads(value(page, "config"))
    assert value(page, "model") == "config" and (config["model_type"], config["hidden_size"]) == ("llama", 1024)
    expect(page.locator(".planner-read")).to_contain_text("pasted-1, model.model_config: the model's config.json")
    expect(page.locator(".planner-verdict").first).to_contain_text(re.compile("[Ff]its|fit"))


@pytest.mark.usefixtures("site")
def test_a_mistake_is_named_with_its_line_and_nothing_is_lost(page: Page, address: str) -> None:
    page.goto(address + "plan/")
    page.locator(".planner-verdict").wait_for()
    paste(page, LORA)
    before = page.locator(".planner").evaluate("form => form.elements.lora.value")
    broken = LORA.replace("stage: sft", "stage: [sft")
    paste(page, broken)
    expect(page.locator(".planner-refused")).to_contain_text(re.compile(r"pasted-1: line \d+: not YAML: "))
    assert page.locator(".planner-files textarea").first.input_value() == broken
    assert page.locator(".planner").evaluate("form => form.elements.lora.value") == before
    paste(page, LORA.replace("stage: sft", "stage: dpo"))
    expect(page.locator(".planner-refused")).to_contain_text("pasted-1, line 3, stage: dpo: DPO has a second model")


@pytest.mark.usefixtures("site")
def test_files_are_chosen_or_dropped_and_go_where_they_are_read(page: Page, address: str, tmp_path: Path) -> None:
    page.goto(address + "plan/")
    page.locator(".planner-verdict").wait_for()
    page.locator(".planner-files summary").first.click()
    for name, text in (("llama3_8b.toml", TITAN), ("error.log", MESSAGE)):
        (tmp_path / name).write_text(text)
    page.locator("#planner-chosen-files").set_input_files([tmp_path / "llama3_8b.toml", tmp_path / "error.log"])
    expect(page.locator(".planner [name=checkpointing]")).to_have_value("per-op")
    expect(page.locator(".planner [name=gpu]")).to_have_value("RTX 4090")
    expect(page.locator(".planner-read")).to_contain_text("llama3_8b.toml: torchtitan")
    expect(page.locator(".planner-memory .planner-first")).to_contain_text("Try first")
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04")
    page.locator("#planner-chosen-files").set_input_files([tmp_path / "snapshot.pickle"])
    expect(page.locator(".planner-refused")).to_contain_text("flops-bytes snapshot snapshot.pickle")


@pytest.mark.usefixtures("site")
@pytest.mark.fresh
def test_whoever_brings_nothing_fetches_nothing_and_the_keyboard_is_enough(page: Page, address: str) -> None:
    fetched = list[str]()
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(address + "plan/")
    page.locator(".planner-verdict").wait_for()
    page.locator(".planner-files summary").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "planner-paste"
    assert not [url for url in fetched if re.search("planner-(files|yaml|toml)", url)]
    page.keyboard.insert_text(TITAN)
    expect(page.locator(".planner [name=checkpointing]")).to_have_value("per-op")
    assert [url for url in fetched if "planner-toml" in url] and not [url for url in fetched if "planner-yaml" in url]


@pytest.mark.usefixtures("site")
def test_without_scripts_the_command_stands_there(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + "plan/")
    expect(page.locator("noscript code")).to_be_visible()
    expect(page.locator(".planner-files")).to_be_hidden()
    context.close()
