"""The planner's page answers on a phone what people ask first, keeps what was asked, and says which field to mend."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, Page, Worker, expect

from flops_bytes.plan import plan
from planner import words
from planner.meters import shown_meters
from tests.conftest import recorded
from tests.flops_bytes.plan.test_plan import REFUSED, SHAPED

EXAMPLES = recorded("plan")


pytestmark = pytest.mark.usefixtures("site")


@pytest.fixture
def phone(page: Page) -> Page:
    page.set_viewport_size({"width": 390, "height": 844})
    return page


def put(page: Page, **fields: str) -> None:
    """Fills in fields by their names, and waits for the answer; a question may need five of them."""
    assert len(fields) <= 5
    for name, value in fields.items():
        if name == "task":
            page.locator(f".planner [name=task][value={value}]").check()
            continue
        field = page.locator(f".planner [name={name}]")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    settle(page)


def settle(page: Page) -> None:
    """Waits until the script has answered what the fields ask."""
    expect(page.locator("form.planner [aria-busy=false]")).to_have_count(1)


def gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


MEMORY, TIME, SCALE, WAYS = (f".planner-answer [data-group={name}]" for name in ("memory", "time", "scale", "ways"))
QUESTIONS: dict[str, tuple[dict[str, str], dict[str, str]]] = {  # what is filled in, and what stands where then
    "does Llama 3 8B train on one H200?": (
        {"gpu": "H200 SXM", "gpus": "1"},
        {
            ".planner-verdict": f"Fits on paper (all weights): needs {gib(EXAMPLES['h200_needs_bytes'])}",
            f"{WAYS} tr": "8-bit AdamW",
        },
    ),
    "with which micro-batch on eight 80 GB cards at 8k?": (
        {"gpu": "H100 SXM", "gpus": "8", "context": "8192", "zero": "3", "checkpointing": "none"},
        {".planner-facts": f"micro-batch up to {EXAMPLES['eight_micro_batch']['none']}"},
    ),
    "how many days for 100B tokens, how much money?": (
        {"tokens": "100B", "price": "$2.5"},
        {
            ".planner-run": f"100B tokens on 8 × H100 SXM take {EXAMPLES['days_for_tokens']:.1f} days, $12,615 if all"
            f" steps are good ones (assumed MFU 40 % before recomputing), and {EXAMPLES['days_for_run']:.0f} days"
        },
    ),
    "what does full checkpointing free and cost?": (
        {},
        {
            TIME: f"frees {gib(EXAMPLES['recomputing_frees_bytes'])}, adds"
            f" {100 * EXAMPLES['recomputing_costs_share']:.0f} % to the FLOPs of a step"
        },
    ),
    "what MFU is 12,000 tokens/s a GPU?": (
        {"speed": "12000", "speed_in": "each", "checkpointing": "none"},
        {".planner-run": f"at {100 * EXAMPLES['implied_share']:.1f} % MFU"},
    ),
    "how long for a terabyte of Chinese text?": (
        {"tokens": "1TB", "tokens_in": "zh", "price": ""},
        {
            ".planner-run": f"{EXAMPLES['text_days']:.1f} days",
            SCALE: f"1 TB at {EXAMPLES['text_rate']} bytes a token",
        },
    ),
    "do matmuls hide communication on 64 GPUs?": (
        {"gpus": "64", "context": "1024", "checkpointing": "none"},
        {".planner-facts": "a step for communication", ".planner-answer": "over 400 Gb/s at 320 GB/s"},
    ),
    "how many users does a 70B in 8 bits serve on two H100s at 8k, how fast?": (
        {"task": "serve", "model": "llama-3-70b", "gpus": "2", "weights": "8bit"},
        {
            ".planner-verdict": f"Fits with room: serves {EXAMPLES['served_users']} at once",
            ".planner-facts": f"up to {EXAMPLES['served_rates']['each']:.3g} tokens/s for each"
            f"{EXAMPLES['served_rates']['all']:,.0f} for allfirst token after {EXAMPLES['served_first_ms']:.0f} ms",
            TIME: "What fewer bits bring",
        },
    ),
    "and if a token may take 15 ms?": (
        {"task": "serve", "model": "llama-3-70b", "gpus": "2", "weights": "8bit", "latency": "15"},
        {".planner-verdict": "Fits with room: serves 11 at once", TIME: "Users served in time"},
    ),
    "does a 70B serve on one H100?": (
        {"task": "serve", "model": "llama-3-70b", "gpus": "1"},
        {".planner-verdict": "Does not fit", ".planner-facts": "users that fit: 0GPUs needed: 2"},
    ),
    "does a 70B QLoRA fit on 48 GB?": (
        {"model": "llama-3-70b", "gpu": "L40S", "gpus": "1", "context": "1024", "trained": "qlora"},
        {".planner-verdict": "Does not fit", ".planner-bar": ""},
    ),
    "and with double quantization?": (
        {"model": "llama-3-70b", "gpu": "L40S", "gpus": "1", "context": "1024", "trained": "qlora-double"},
        {
            ".planner-verdict": f"Fits on paper (double-quantized QLoRA): needs {gib(EXAMPLES['qlora_double_bytes'])}",
        },
    ),
}


LATE = ("does Llama 3 8B train on one H200?", "what does full checkpointing free and cost?")  # come with the meters
ASKED_FIRST = [
    pytest.param(*each, id=name, marks=[pytest.mark.metered] if name in LATE else [])
    for name, each in QUESTIONS.items()
]


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("fields", "answers"), ASKED_FIRST)
def test_what_people_ask_first_is_answered_on_a_phone(
    phone: Page, address: str, fields: dict[str, str], answers: dict[str, str]
) -> None:
    phone.goto(address + "plan/")
    phone.locator(".planner-verdict").wait_for()
    put(phone, **fields)
    for place, text in answers.items():
        expect(phone.locator(place).filter(has_text=text).first).to_be_attached()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.metered
@pytest.mark.parametrize("path", ["plan/", "zh/plan/", "", "zh/"])
def test_the_answer_stays_in_sight_while_one_types(phone: Page, address: str, path: str) -> None:
    phone.goto(address + path)
    settle(phone)
    if "plan" in path:
        expect(phone.locator(".planner-meters b")).to_have_text([re.compile("GiB")] * 3)
    for field in phone.locator(".planner-fields > .planner-field:not([hidden]) > [name]").all():
        field.focus()
        strip, box = phone.locator(".planner-strip").bounding_box(), field.bounding_box()
        assert strip and box
        assert strip["y"] >= 0 and strip["y"] + strip["height"] <= box["y"] < 844


@pytest.mark.metered
@pytest.mark.parametrize("path", ["plan/#out-of-memory", "zh/plan/#reading"])
def test_what_an_address_leads_to_stands_at_the_top_when_the_answer_is_there(
    page: Page, address: str, path: str
) -> None:
    page.goto(address + path)
    expect(page.locator(TIME).locator("tr").last).to_contain_text("39.0 GiB")  # what comes last, by what it frees
    page.wait_for_function("Math.abs(document.querySelector(location.hash).getBoundingClientRect().top - 68) < 5")


@pytest.mark.parametrize("path", ["", "plan/"])
def test_the_examples_data_and_price_are_not_those_of_a_finetuning(page: Page, address: str, path: str) -> None:
    page.goto(address + path)
    put(page, model="qwen3-8b", gpu="RTX 4090", gpus="1")
    expect(page.locator(".planner-verdict")).to_contain_text("QLoRA")
    expect(page.locator("#planner-tokens")).to_have_value("")
    expect(page.locator(".planner-strip")).not_to_contain_text("days")
    page.wait_for_function("!/tokens|price/.test(location.search)")
    page.goto(address + path)
    put(page, tokens="1B", model="qwen3-8b", gpu="RTX 4090", gpus="1")
    expect(page.locator(".planner-strip")).to_contain_text("days")


@pytest.mark.parametrize("model", ["qwen3-8b", "deepseek-v3"])
def test_what_nobody_asked_about_has_no_row(page: Page, address: str, model: str) -> None:
    page.goto(f"{address}plan/?model={model}&gpu=H20&gpus=8")
    expect(page.locator(f"{SCALE} tr").first).to_be_visible()
    rows = page.locator(".planner-answer tr").all_inner_texts()
    assert rows and not [row for row in rows if row.strip().count("\t") == 0]


def test_what_is_published_in_few_bits_is_served_so_by_its_name(page: Page, address: str) -> None:
    page.goto(address + "zh/plan/?task=serve&model=deepseek-v3&gpu=H20&gpus=8")
    expect(page.locator(".planner-verdict")).to_contain_text("放得下且有余量")
    expect(page.locator(".planner-chosen")).to_contain_text("权重 8 位")


def test_by_keyboard_alone(page: Page, address: str) -> None:
    page.goto(address + "plan/")
    page.locator(".planner-verdict").wait_for()
    page.locator("#planner-gpus").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("16")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "context"
    expect(page.locator(TIME)).to_contain_text("131,072 tokens")


def test_typing_waits_for_no_answer(page: Page, address: str) -> None:
    """A worker computes it: where none answers, what stood there stands, and the fields take what is typed."""
    page.add_init_script("window.Worker = class extends EventTarget { postMessage() {} }")
    page.goto(address + "plan/")
    field, run = page.locator("#planner-gpus"), page.locator(".planner-run")
    expect(run).to_have_text(re.compile("days"), use_inner_text=True)
    before = run.inner_text()
    field.fill("16")
    page.locator("#planner-model").select_option("shape")
    expect(page.locator("#planner-shape")).to_be_visible()  # which needs no answer
    assert field.input_value() == "16" and run.inner_text() == before


@pytest.mark.metered
@pytest.mark.parametrize("language", ["en", "zh"])
def test_three_meters_show_what_python_reads_and_wait_for_no_earlier_question(
    page: Page, address: str, language: str
) -> None:
    started = list[Worker]()
    page.on("worker", lambda worker: started.append(worker))
    large = "?model=llama-3-8b&gpu=H100+SXM&gpus=8&trained=all&checkpointing=none&lengths=64-8192"  # for many seconds
    page.goto(address + ("zh/" if language == "zh" else "") + "plan/" + large)
    names, sizes = page.locator(".planner-meters span"), page.locator(".planner-meters b")
    expect(sizes).to_have_text([re.compile("GiB"), "…", "…"])
    small = {"shape": "layers=2 d_model=256 heads=4 head_dim=64 d_ff=999 vocab=9000", "gpu": "RTX 4090", "gpus": "1"}
    put(page, model="shape", **small, context="512")
    asked_too = {"context": 512, "trained": "all", "checkpointing": "none", "lengths": "64-8192"}
    read = shown_meters(plan(**small, **asked_too)["meters"])
    expect(sizes).to_have_text([read["allocated"], read["reserved"], read["smi"]])
    for n, name in enumerate(words(language)["meters"]):
        expect(names.nth(n)).to_contain_text(name)
    expect(page.locator(".planner-strip")).to_contain_text(words(language)["metered"]["drawn"].format(draws=5))
    assert len(started) > 2  # one that answers, one that measured at first, one that it made room for


@pytest.mark.metered
def test_a_press_on_a_way_that_fits_fills_it_in(page: Page, address: str) -> None:
    page.goto(address + "plan/?model=qwen3-8b&gpu=RTX+4090")
    ways, verdict = page.locator(".planner-way"), page.locator(".planner-verdict")
    adapters = ways.filter(has_text="LoRA, checkpointing of every layer")
    expect(adapters).to_have_attribute("aria-pressed", "false")
    number, needs = ways.count(), page.locator("[data-group=ways] tr", has=adapters).locator("td").first.inner_text()
    adapters.press("Enter")
    expect(verdict).to_contain_text(needs.partition(",")[0])
    expect(adapters).to_have_attribute("aria-pressed", "true")
    assert ways.count() == number > 2  # the others stay listed
    expect(page.locator("#planner-trained")).to_have_value("lora")
    put(page, gpus="2")
    expect(page.locator("#planner-trained")).to_have_value("lora")


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlparse(page.url).query)


def test_whoever_changes_the_language_at_once_takes_the_question_along(page: Page, address: str) -> None:
    page.add_init_script("window.setTimeout = () => 0")  # nothing that comes later
    page.goto(address + "plan/?gpus=96", wait_until="commit")
    expect(page.locator(".language-switch")).to_have_attribute("href", re.compile("gpus=96"))


def test_what_was_asked_survives_links_language_and_back(page: Page, address: str) -> None:
    page.goto(address + "plan/")
    page.locator(".planner-verdict").wait_for()
    put(page, model="llama-3-70b", gpus="96", tokens="２Ｔ")
    expect(page.locator(".planner-run")).to_have_text(re.compile("^2.* on 96 "))
    page.wait_for_function("location.search.includes('gpus=96') && !location.search.includes('tokens=100B')")
    verdict = page.locator(".planner-verdict").inner_text()

    def same() -> None:
        expect(page.locator("#planner-gpus")).to_have_value("96")
        expect(page.locator("#planner-model")).to_have_value("llama-3-70b")
        assert asked(page)["gpus"] == ["96"] and asked(page)["tokens"] == ["２Ｔ"]

    page.locator(".md-nav--secondary a[href$='#examples']").locator("visible=true").click()
    expect(page).to_have_url(re.compile("#examples$"))
    same()
    page.locator(".footnote-ref").first.click()
    expect(page).to_have_url(re.compile("#fn"))
    same()
    page.get_by_role("link", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    page.locator(".planner-verdict").wait_for()
    same()
    page.get_by_role("link", name="English").click()
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.locator(".planner-verdict")).to_have_text(verdict)
    page.locator(".planner-answer a", has_text="logits").click()
    expect(page).to_have_url(address + "activations/#logits")
    expect(page.locator(".language-switch")).to_have_attribute("href", re.compile("^/zh/activations/"))
    page.go_back()
    expect(page.locator(".planner-verdict")).to_have_text(verdict)
    same()
    page.reload()
    expect(page.locator(".planner-verdict")).to_have_text(verdict)


def test_each_task_has_its_fields_and_keeps_them_in_the_address(page: Page, address: str) -> None:
    page.goto(address + "plan/?task=serve&model=llama-3-70b&gpu=H200+SXM&gpus=1&context=8192&weights=4bit&users=7")
    expect(page.locator(".planner-verdict")).to_contain_text("Fits with room: serves 7 at once")
    expect(page.locator("#planner-zero")).to_be_hidden()
    put(page, latency="1")
    expect(page.locator(".planner-verdict")).to_contain_text("Too slow: ")
    page.wait_for_function("location.search.includes('latency=1')")
    told = {"task": "serve", "model": "llama-3-70b", "gpu": "H200 SXM", "gpus": "1", "context": "8192"}
    told |= {"weights": "4bit", "users": "7", "latency": "1"}
    assert asked(page) == {name: [value] for name, value in told.items()}
    page.get_by_role("link", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    expect(page.locator(".planner-verdict")).to_contain_text("太慢：")
    put(page, task="train")
    expect(page.locator("#planner-zero")).to_be_visible()
    expect(page.locator("#planner-users")).to_be_hidden()
    page.wait_for_function("!location.search.includes('task')")
    put(page, task="serve", gpus="5")
    expect(page.locator(".planner-verdict")).to_contain_text("GPU 张数：5 张 GPU 分不匀各层的头")
    expect(page.locator("#planner-gpus")).to_have_attribute("aria-invalid", "true")


def test_the_front_page_hands_its_question_on(phone: Page, address: str) -> None:
    phone.goto(address)
    phone.locator(".planner-verdict").wait_for()
    put(phone, model="gpt2-xl", gpu="L4", gpus="2", context="1024")
    verdict = phone.locator(".planner-verdict").inner_text()
    phone.wait_for_function("document.querySelector('.planner-all').href.includes('context=1024')")
    phone.locator(".planner-all").click()
    expect(phone).to_have_url(re.compile("/plan/.*gpt2-xl"))
    expect(phone.locator(".planner-verdict")).to_have_text(verdict)


def test_an_address_may_hold_anything(page: Page, address: str) -> None:
    for query, text in (
        ("?model=llama-3-8b&gpu=B999", "GPU: 'B999' is not known"),
        ("?model=llama-3-8b&gpu=L4&trained=all&tokens=7e+10#%E0%A4%A", "Does not fit"),
        ("?model=%3Cb%3E&gpu=L4", "Model: '<b>' is not known"),
    ):
        page.goto("about:blank")
        page.goto(address + "plan/" + query)
        expect(page.locator(".planner-verdict")).to_contain_text(text)


SEVEN = SHAPED.replace("kv_heads=8", "kv_heads=7")
ERRORS = [  # as it was asked before: each was taken, or refused without a name
    ({"tokens": "1,5"}, "tokens", "Training data: in '1,5' the comma", "训练数据量：'1,5' 里的逗号"),
    ({"speed": "500"}, "speed", "Speed: '500' is more than the whole", "速度：'500' 超过了整体"),
    ({"price": "1e308"}, "price", "Price of a GPU-hour: '1e308' does not lie", "每卡每小时单价：'1e308' 不在"),
    ({"context": "8q"}, "context", "Context, tokens: the unit of '8q' is missing", "序列长度（词元）：'8q' 缺单位"),
    (
        {"price": "₹200"},
        "price",
        "Price of a GPU-hour: '₹200' is not a number",
        "每卡每小时单价：'₹200' 不是大于 0 的数",
    ),
    ({"model": "shape", "shape": SEVEN}, "shape", "Shape: 7 key-value heads do not share 32", "形状：7 个键值头分不匀"),
    ({"model": "shape", "shape": f"{SHAPED} tied=32"}, "shape", "Shape: tied=32; write yes", "形状：tied=32；请填 yes"),
    (
        {"gpu": "T4", "recipe": "bf16"},
        "recipe",
        "Recipe of formats: T4 multiplies no bfloat16",
        "精度方案：T4 没有 bfloat16",
    ),
    ({"model": "config", "config": "{"}, "config", "config.json: this is not JSON", "config.json：这不是 JSON"),
    (
        {"tokens": "15T", "tokens_in": "zh"},
        "tokens",
        "Training data: the unit of '15T'",
        "训练数据量：'15T' 缺单位",
    ),
    ({"model": "shape", "shape": "layers=2"}, "shape", "Shape: d_model=; give a whole number", "形状：d_model="),
]


@pytest.mark.parametrize("language", ["", "zh/"])
def test_an_error_names_the_field_in_the_pages_language(page: Page, address: str, language: str) -> None:
    page.goto(address + language + "plan/")
    for fields, name, english, chinese in ERRORS:
        before = {field: page.locator(f"#planner-{field}").input_value() for field in fields}
        put(page, **fields)
        expect(page.locator(".planner-verdict")).to_contain_text(chinese if language else english)
        field = page.locator(f"#planner-{name}")
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_attribute("aria-describedby", f"planner-error planner-{name}-help")
        put(page, **dict(reversed(before.items())))  # a field is there while it is chosen
        expect(page.locator("[aria-invalid]")).to_have_count(0)


@pytest.mark.parametrize("language", ["", "zh/"])
def test_money_days_and_what_is_ignored_are_said(page: Page, address: str, language: str) -> None:
    page.goto(address + language + "plan/?days=14")
    facts, run = page.locator(".planner-facts"), page.locator(".planner-run")
    told = words("zh" if language else "en")
    expect(run).to_contain_text("14 天" if language else "14 days")
    put(page, tokens="15万亿", price="¥18", speed="40%")
    expect(run).to_contain_text("15 万亿词元" if language else "15T tokens take")
    expect(facts).to_contain_text("14 天内做完要" if language else "GPUs do it in 14 days")
    expect(run).to_contain_text(re.compile(r"天、[\d,]+ 元。" if language else r"MFU, ¥[\d,]+\.$"))
    put(page, price="18")
    expect(run).to_contain_text(told["currencies"]["none"].removeprefix("{sum}"))
    expect(page.locator(SCALE)).to_contain_text("8.69 × 10²³")
    put(page, gpus="", days="30 天")
    expect(run).to_contain_text(re.compile(r"30 天内.*要 847 张 H100 SXM" if language else "in 30 days take 847 × H"))
    expect(page.locator(SCALE)).to_contain_text("30 天要 847 张" if language else "847 for 30 days")
    put(page, tokens="", gpus="8")
    expect(run).to_contain_text("30 天" if language else "30 days")
    expect(facts).not_to_contain_text(told["ignored"]["zero"])
    put(page, zero="3", days="")
    put(page, gpus="1")
    for name in ("zero", "price"):
        expect(facts).to_contain_text(told["ignored"][name])


def test_every_error_of_the_planner_has_its_chinese() -> None:
    told = words("zh")
    sentences = [sentence for sentence in said_by_plan() if not re.match("--(tensor|pipeline|zeor)", sentence)]
    assert len(sentences) > 30
    for sentence in sentences:
        name, text = re.fullmatch(r"--([\w-]+): (.*)", sentence, re.DOTALL).groups()  # type: ignore[union-attr]
        assert name.replace("-", "_") in told["fields"] or name in (
            "mfu",
            "tokens-per-second",
            "step-seconds",
            "base",
            "dropout",
            "checkpoint-every",
        )
        text = text.partition("; not understood: ")[0]  # what follows is listed
        known = [pattern for pattern, _ in told["errors"] if re.search(pattern.replace("[^]", r"[\s\S]"), text)]
        assert known, sentence


def said_by_plan() -> Iterator[str]:
    """What plan() says of each thing that it refuses."""
    from flops_bytes.plan import plan
    from tests.flops_bytes.plan.test_plan import CONFIG, SMALL

    for asked, _ in REFUSED.values():
        try:
            plan(**(SMALL | asked), meters=False)  # type: ignore[operator]
        except ValueError as error:
            yield str(error)
    changes: list[dict[str, Any]] = [{"model_type": "mamba"}, {"hidden_size": None}, {"hidden_size": 66}]
    changes += [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"tie_word_embeddings": "no"},
        {"quantization_config": {}},
    ]
    changes += [
        {"quantization_config": {"bits": 4}},
        {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 9},
    ]
    for change in changes:
        try:
            plan(gpu="L4", context=1024, config={**CONFIG, **change})
        except ValueError as error:
            yield str(error)


def test_both_languages_have_the_same_words() -> None:
    def keys(value: Any) -> Any:
        return {key: keys(each) for key, each in value.items()} if isinstance(value, dict) else None

    english, chinese = ({**words(language), "errors": None} for language in ("en", "zh"))
    chinese["files"] = {name: told for name, told in chinese["files"].items() if name not in ("patterns", "reasons")}
    assert keys(english) == keys(chinese)
    held = [re.findall(r"\{\w+\}", json.dumps(told, ensure_ascii=False)) for told in (english, chinese)]
    assert sorted(held[0]) == sorted(held[1])


@pytest.mark.parametrize("path", ["plan/", "zh/plan/"])
def test_without_scripts_there_are_worked_examples(browser: Browser, address: str, path: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + path)
    expect(page.locator(".planner-fields")).to_be_hidden()
    expect(page.locator(".planner-verdict")).to_have_text(
        re.compile(r"^(Fits with room \(all weights\): needs|放得下且有余量（训练全部权重）：需要) [0-9.]+ GiB")
    )
    expect(page.locator(".planner-run")).to_contain_text("H100 SXM")
    expect(page.locator(".planner-answer tr").last).to_contain_text(" GiB")
    expect(page.locator("h2#examples ~ div table tbody tr, h2#examples ~ table tbody tr").first).to_be_visible()
    expect(page.locator("tbody tr", has_text=gib(EXAMPLES["qlora_double_bytes"]))).to_be_visible()
    context.close()


@pytest.mark.parametrize(("path", "text"), [("plan/", "Try first: nvidia-smi"), ("zh/plan/", "先试：nvidia-smi")])
def test_an_out_of_memory_message_is_explained(phone: Page, address: str, path: str, text: str) -> None:
    from tests.planner.test_planner_memory import FULL, MAC, SHARED

    phone.goto(address + path)
    phone.locator("#planner-message").fill(SHARED)
    expect(phone.locator(".planner-first")).to_contain_text(text)
    causes, parts = (phone.locator(".planner-memory table").nth(n).locator("tr") for n in (0, 1))
    expect(causes).to_have_text([re.compile("20.1 GiB.*3652628"), re.compile("57.8 MiB")])
    expect(parts).to_have_count(9)
    expect(phone.locator(".planner-memory .planner-title")).to_have_count(0)
    phone.locator("#planner-message").fill(f"{FULL}\n{SHARED}\n{FULL}")
    expect(phone.locator(".planner-memory .planner-title")).to_have_text(["GPU 1", "GPU 3"])
    expect(phone.locator(".planner-memory .planner-first").last).to_contain_text(text)
    for other, answer in (("a segmentation fault", "Tried to allocate"), (MAC, "MPS")):
        phone.locator("#planner-message").fill(other)
        expect(phone.locator(".planner-memory .planner-answer")).to_contain_text(answer)
        expect(phone.locator(".planner-memory tr")).to_have_count(0)


@pytest.mark.fresh
def test_who_has_no_form_before_him_does_not_load_the_planner(page: Page, address: str) -> None:
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(urlparse(request.url).path))
    page.goto(address + "gradients/", wait_until="networkidle")
    assert "/assets/book.js" in fetched and "/assets/planner.js" not in fetched


# What a hand meets


@pytest.mark.parametrize("path", ["", "zh/"])
def test_the_front_page_leads_to_fields_that_it_has_not(page: Page, address: str, path: str) -> None:
    """With what was chosen there; and its own context gives way to a model that has fewer positions."""
    page.goto(address + path)
    verdict, chosen = page.locator(".planner-verdict"), page.locator(".planner-chosen")
    verdict.wait_for()
    put(page, model="gpt2", gpus="1")
    expect(verdict).to_have_class(re.compile("fits"))
    expect(chosen).to_contain_text("1,024")
    expect(page.locator(".planner-facts")).not_to_contain_text("ZeRO")  # which nobody chose here
    put(page, model="qwen3-8b")
    expect(chosen).to_contain_text("8,192")
    page.locator("#planner-context").fill("4096")
    put(page, model="gpt2")
    expect(verdict).to_contain_text(re.compile("1,?024"))  # what somebody typed is theirs to mend
    put(page, model="config", gpus="16")
    page.locator(".planner-verdict a").click()
    expect(page).to_have_url(re.compile(f"^{address}{path}plan/.*model=config.*gpus=16.*#planner-config$"))
    expect(page.locator("#planner-config")).to_be_visible()
    page.locator("#planner-config").fill("Qwen/Qwen3-8B")
    expect(page.locator(SCALE)).to_contain_text("8,190,735,360")
    expect(page.locator(".planner-command code").first).to_contain_text("--model Qwen/Qwen3-8B")


def test_help_lies_upon_no_link(page: Page, address: str) -> None:
    for size in ({"width": 1280, "height": 900}, {"width": 390, "height": 844}):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        page.goto(address)
        page.locator(".planner-facts span").first.wait_for()
        for name in ("tokens", "price"):
            page.locator(".planner-all").scroll_into_view_if_needed()
            page.locator(f"#planner-{name}").focus()
            expect(page.locator(f"#planner-{name}-help")).to_be_visible()
            box = page.locator(".planner-all").bounding_box()
            assert box
            middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            assert page.evaluate("([x, y]) => document.elementFromPoint(x, y).className", [*middle]) == "planner-all"


@pytest.mark.fresh
def test_the_answer_stands_before_its_script_has_come(page: Page, address: str) -> None:
    """But not where the address asks something else."""
    page.context.route("**/planner.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
    for query, seen in (("", True), ("?model=gpt2", False)):
        page.goto(address + "plan/" + query)
        for place in (".planner-verdict", "#planner-gpus", "form.planner + .planner-answer th >> nth=0"):
            expect(page.locator(place)).to_be_visible(visible=seen)


def test_the_command_can_be_copied_and_is_not_cut(phone: Page, address: str) -> None:
    phone.goto(address + "plan/")
    command = phone.locator(".planner-command").first
    command.locator("code").wait_for()
    text = command.locator("code").inner_text()
    assert command.locator("button").get_attribute("data-clipboard-text") == text and "--price" in text
    assert command.locator("code").evaluate("code => code.scrollWidth <= code.clientWidth")


@pytest.mark.parametrize("path", ["plan/", "zh/plan/"])
def test_a_message_leads_to_the_form_with_ones_own_model_and_card(page: Page, address: str, path: str) -> None:
    from tests.planner.test_planner_memory import BARE, FULL, TRACEBACKS

    page.goto(address + path)
    page.locator("#planner-message").fill(f"{TRACEBACKS['loss']}\n{FULL}")
    said = page.locator(".planner-memory .planner-answer")
    expect(page.locator("#planner-memory-gpu")).to_have_value("H100 NVL")  # 93 GiB
    expect(said.locator("a").first).to_have_attribute("href", "../compute-for-memory/#chunks")
    page.locator("#planner-memory-model").select_option(label="Qwen3 8B")
    link = said.locator("a[href^='?']")
    expect(link).to_contain_text("Qwen3 8B")
    page.locator("#planner-memory-gpu").select_option(label="L40S")
    expect(link).to_contain_text("L40S")
    page.locator("#planner-message").fill(BARE["serve, vLLM"])
    expect(link).to_have_attribute("href", re.compile("task=serve&context=5808&model=qwen3-8b&gpu=L40S&gpus=1"))
    page.locator("#planner-message").fill(FULL)
    link.click()
    expect(page.locator("#planner-model")).to_have_value("qwen3-8b")
    expect(page.locator("#planner-gpu")).to_have_value("L40S")
    expect(page.locator(".planner-verdict")).to_contain_text("44.4 GiB")
