"""The form says what each field is, to the keyboard and to the finger; what it answers stands in plain words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from flops_bytes.model.shapes import KNOWN, SHAPES, decoder_from_config, estimate
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.__main__ import unread
from planner import DECIMALS, DIGITS, FIRST, FOLDED, SHOWN, form, words
from planner.answer import COUNTED, amount, answer
from tests.conftest import WITHOUT_METERS
from tests.planner.test_planner_page import MEMORY, SCALE, TIME, put

pytestmark = pytest.mark.usefixtures("site")
LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])


def without_and_with_scripts(browser: Browser, url: str, place: str) -> Iterator[Page]:
    """A page as it stands without scripts, then as it is once its script has written what is at `place`."""
    for scripts in (False, True):
        context = browser.new_context(java_script_enabled=scripts)
        context.add_init_script(WITHOUT_METERS)
        page = context.new_page()
        page.goto(url)
        if scripts:
            page.locator(place).wait_for()
        yield page
        context.close()


class Elements(HTMLParser):
    """Of a form: each element with its attributes, and the text in those that have an id or are labels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, str] = {}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attributes}
        self.all.append((tag, told))
        self.open = told.get("id") or (f"for {told['for']}" if tag == "label" and "for" in told else self.open)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("label", "small"):
            self.open = ""

    def handle_data(self, data: str) -> None:
        self.texts[self.open] = self.texts.get(self.open, "") + data.strip()


@LANGUAGES
@pytest.mark.parametrize("kind", ["full", "short"])
def test_each_field_has_a_name_and_a_sentence_of_help(kind: str, language: str) -> None:
    found = Elements(form(kind, language))
    controls = [told for tag, told in found.all if tag in ("input", "select", "textarea") and told.get("id")]
    assert len(controls) > (30 if kind == "full" else 5)
    for told in controls:
        help_text = found.texts[told["aria-describedby"]]
        assert found.texts[f"for {told['id']}"] and len(help_text) < (70 if language == "zh" else 110), told["id"]
        assert help_text.endswith("." if language == "en" else "。")


def test_a_phone_shows_the_keys_that_a_field_needs() -> None:
    found = {
        told["name"]: told.get("inputmode") for tag, told in Elements(form("full", "en")).all if "inputmode" in told
    }
    assert found["context"] == found["prompt"] == found["tokens"] == "text"  # 128k, 15T
    assert found["gpus"] == found["micro_batch"] == "numeric" and found["days"] == found["latency"] == "decimal"
    assert {name for name, mode in found.items() if mode != "text"} == {*DIGITS, *DECIMALS} & {*SHOWN, *FOLDED}


@pytest.mark.parametrize("path", ["plan/", "zh/plan/"])
def test_help_comes_with_the_focus_and_goes_with_escape(page: Page, address: str, path: str) -> None:
    for size in ({"width": 1280, "height": 900}, {"width": 390, "height": 844}):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        page.goto(address + path)
        page.locator(SCALE).wait_for()
        help_text = page.locator("#planner-zero-help")
        expect(help_text).to_be_hidden()
        page.locator("#planner-zero").focus()
        expect(help_text).to_be_visible()
        box = help_text.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= size["width"]
        page.keyboard.press("Escape")
        expect(help_text).to_be_hidden()
        page.keyboard.press("Tab")
        expect(page.locator(".planner-field small:visible")).to_have_count(1)
        expect(help_text).to_be_hidden()


def test_the_form_is_six_keys_away(page: Page, address: str) -> None:
    page.goto(address + "plan/")
    page.locator(SCALE).wait_for()  # no form stands before: the sentence does
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # to the content, where the browser begins anew once it has drawn it
    page.wait_for_function("location.hash && document.activeElement === document.body")
    for _ in range(4):  # the last but one is the box for files
        page.keyboard.press("Tab")
    page.wait_for_function("document.activeElement.name === 'task'")


@LANGUAGES
def test_what_stands_without_scripts_is_what_the_script_says_first(
    browser: Browser, address: str, language: str
) -> None:
    told = []
    for page in without_and_with_scripts(browser, address + ("zh/" if language == "zh" else "") + "plan/", SCALE):
        lines = page.locator(".planner-answer section").first.locator("table").first.locator("tr").all_inner_texts()
        strip = [page.locator(place).inner_text() for place in (".planner-verdict", ".planner-run")]
        told.append([*strip, *("".join(line.split()) for line in lines)])
    assert told[0] == told[1] and len(told[0]) > 8


@LANGUAGES
@pytest.mark.parametrize(
    "question", ["?days=20&trained=all&lora=8&price=3", "?task=serve&model=llama-3-70b&gpu=H200+SXM&gpus=2"]
)
def test_the_answer_is_in_three_groups_without_words_of_code(
    page: Page, address: str, language: str, question: str
) -> None:
    page.goto(address + ("zh/" if language == "zh" else "") + "plan/" + question)
    for group in (MEMORY, TIME, SCALE):
        rows = page.locator(f"{group} tr")
        rows.first.wait_for()
        notes = page.locator(f"{group} .planner-note").all_inner_texts()
        for text in [*rows.all_inner_texts(), *notes, page.locator(f"{group} .planner-title").inner_text()]:
            assert not re.search(r"--\w|\w_\w|undefined|null|\{|\}|\[object", text), text
    if "days" in question:
        expect(page.locator(f"{SCALE} tr").first).to_contain_text(words(language)["details"]["scale"]["money"][0])
        expect(page.locator(".planner-facts")).to_contain_text(words(language)["ignored"]["lora"])


def test_tokens_are_counted_as_each_language_counts() -> None:
    cases: dict[int, tuple[str, str]] = {
        15 * 10**12: ("15T", "15 万亿"),
        100 * 10**9: ("100B", "1,000 亿"),
        2_050_000_000: ("2.05B", "20.5 亿"),
        40_000_000: ("40M", "4,000 万"),
        900: ("900", "900 "),  # a unit follows
    }
    assert {n: (amount(n, COUNTED["en"]), amount(n, COUNTED["zh"])) for n in cases} == cases


def test_what_changes_nothing_is_named() -> None:
    asked = {"model": "gpt2", "gpu": "H100 SXM", "gpus": "1"}
    for more, expected in (
        ({"lora": "8"}, []),  # which is trained then
        ({"lora": "8", "trained": "all"}, ["lora"]),
        ({"lora": "8", "trained": "lora"}, []),
        ({"price": "2"}, ["price"]),
        ({"price": "2", "days": "3"}, []),
        ({"link": "NVLink 4", "zero": "2"}, ["zero", "link"]),
        ({"link": "NVLink 4", "zero": "2", "gpus": "2"}, []),
    ):
        assert answer(asked | more)["ignored"] == expected, more
    assert all({"zero", "link", "lora", "price"} <= words(language)["ignored"].keys() for language in ("en", "zh"))


# Configurations of types that are not known

PHI_3 = {"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32}
PHI_3 |= {"num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "tie_word_embeddings": False}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61}
DEEPSEEK |= {"moe_intermediate_size": 2048, "num_attention_heads": 128, "num_key_value_heads": 128, "v_head_dim": 128}
DEEPSEEK |= {"kv_lora_rank": 512, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8}
DEEPSEEK |= {"first_k_dense_replace": 3, "moe_layer_freq": 1, "vocab_size": 129280, "tie_word_embeddings": False}
GEMMA_3: dict[str, Any] = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "head_dim": 256}
GEMMA_3 |= {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "sliding_window": 1024}
GEMMA_3 = {"model_type": "gemma3", "text_config": GEMMA_3, "vision_config": {"hidden_size": 1152}}
PYTHIA = {"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32}
PYTHIA |= {"num_attention_heads": 32, "vocab_size": 50688, "tie_word_embeddings": False}
MAMBA = {"model_type": "mamba", "hidden_size": 2560, "n_layer": 64, "vocab_size": 50280, "state_size": 16}
ODD = {"model_type": "odd", "hidden_size": 64, "num_attention_heads": [8, 4], "num_hidden_layers": True}
PUBLISHED = {  # parameters by their model cards, by how much the guess may be off, and the keys that it leaves out
    "phi3": (PHI_3, 3.82e9, 0.001, []),
    "pythia": (PYTHIA, 6.86e9, 0.001, []),
    "gemma": (GEMMA_3, 4.3e9, 0.07, ["sliding_window", "vision_config"]),
    "deepseek": (
        DEEPSEEK,
        671e9,
        0.08,
        ["intermediate_size", "kv_lora_rank", "n_shared_experts", "first_k_dense_replace", "moe_layer_freq"],
    ),
}


@pytest.mark.parametrize(("config", "parameters", "off", "lacking"), PUBLISHED.values(), ids=PUBLISHED)
def test_an_unknown_type_has_no_answer_and_a_guess_to_copy(
    config: dict[str, Any], parameters: float, off: float, lacking: list[str]
) -> None:
    with pytest.raises(ValueError, match=f"--config: model_type '{config['model_type']}' is not known; not un") as told:
        decoder_from_config(config, 1_024)
    named = [key for keys in unread(str(told.value)).values() for key in keys]
    assert sorted(named) == sorted(["model_type", *lacking])
    shape = re.search(r"a guess, without these: --shape '(.*?)'$", str(told.value))
    assert shape
    found = plan(shape=shape[1], gpu="H200 SXM")["parameters"]["total"]
    assert found == pytest.approx(parameters, rel=off)


def test_what_a_configuration_lacks_is_said_and_nothing_is_guessed() -> None:
    for config in (MAMBA, ODD):  # no heads, or a list of them
        assert "--shape" not in estimate(config)
    assert "layers with a state or a convolution: state_size" in estimate(MAMBA)
    assert "attention, and the keys and values that are kept: num_attention_heads" in estimate(ODD)
    shared = {"num_kv_shared_layers": 15, "hidden_size_per_layer_input": 256}
    gemma_3n = {"model_type": "gemma3n", "text_config": PHI_3 | shared, "audio_config": {"hidden_size": 1536}}
    for key in (*shared, "audio_config"):
        assert key in estimate(gemma_3n), key
    assert "ssm_cfg" in estimate(PHI_3 | {"ssm_cfg": {"d": 1}})
    assert "odd\\nkey | x" in estimate(PHI_3 | {"odd\nkey | x": 1})  # and no line of its own
    many = {f"odd_{number}": 1 for number in range(1_000)}
    assert estimate(PHI_3 | many).count("odd_") < 50


def test_what_says_nothing_of_a_shape_is_not_named() -> None:
    silent: dict[str, Any] = {"rope_scaling": {"factor": 8.0}, "eos_token_id": [1, 2], "attention_dropout": 0.1}
    silent |= {"time_step_limit": [0.0, float("inf")], "transformers_version": "5", "n_new_experts": 0}
    assert estimate(PHI_3 | silent) == estimate(PHI_3)


CHATGLM_2: dict[str, Any] = {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "kv_channels": 128}
CHATGLM_2 |= {"num_attention_heads": 32, "multi_query_group_num": 2, "ffn_hidden_size": 13696}
CHATGLM_2 |= {"padded_vocab_size": 65024, "tie_word_embeddings": False}
BLOOM = {"model_type": "bloom", "hidden_size": 2560, "n_head": 32, "n_inner": None, "n_layer": 30, "vocab_size": 250880}
FALCON = {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32}
FALCON |= {"multi_query": True, "vocab_size": 65024}
WRITTEN_BY_DEEPSEEK: dict[str, Any] = {"vocab_size": 129280, "dim": 7168, "inter_dim": 18432, "moe_inter_dim": 2048}
WRITTEN_BY_DEEPSEEK |= {"n_layers": 61, "n_dense_layers": 3, "n_heads": 128, "n_routed_experts": 256}
WRITTEN_BY_DEEPSEEK |= {"n_shared_experts": 1, "n_activated_experts": 8, "kv_lora_rank": 512, "v_head_dim": 128}
GLM_4 = CHATGLM_2 | {"num_layers": 40, "padded_vocab_size": 151552, "add_qkv_bias": True}
OTHER_NAMES = {  # of the same sizes, in files that people have: parameters by their papers, and how far off at most
    "ChatGLM2-6B": (CHATGLM_2, 6.24e9, 0.001),
    "GLM-4-9B": (GLM_4, 9_399_951_360, 1e-9),
    "BLOOM 3B": (BLOOM | {"tie_word_embeddings": True}, 3.0e9, 0.001),
    "Falcon 7B": (FALCON | {"tie_word_embeddings": True}, 6.92e9, 0.001),
    "DeepSeek-V3, its own": (WRITTEN_BY_DEEPSEEK, 671e9, 0.08),
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_sizes_are_found_under_other_names_too(name: str) -> None:
    config, parameters, off = OTHER_NAMES[name]
    told = estimate(config)
    found = plan(shape=told.split("'")[1], gpu="H200 SXM")["parameters"]["total"]
    assert found == pytest.approx(parameters, rel=off)


@LANGUAGES
def test_what_is_no_models_configuration_is_told_so(page: Page, address: str, language: str) -> None:
    page.goto(address + ("zh/" if language == "zh" else "") + "plan/")
    page.locator(SCALE).wait_for()
    put(page, model="config", config=json.dumps({"emb_size": 896, "hidden_size": 896, "heads_num": 14}))
    expect(page.locator(".planner-strip")).to_contain_text("model_type")
    expect(page.locator(".planner-strip")).to_contain_text("Hugging Face")
    expect(page.locator("#planner-model")).to_have_value("config")


@LANGUAGES
def test_a_gpt2_by_its_name_says_whose_it_is(page: Page, address: str, language: str) -> None:
    asked = address + ("zh/" if language == "zh" else "") + "plan/?model="
    facts, note = page.locator(".planner-facts"), words(language)["facts"]["gpt2"]
    page.goto(asked + "gpt2-medium")
    expect(facts).to_contain_text(note)
    for other in ("gpt2-medium&layers=composed", "llama-3-8b"):
        page.goto(asked + other)
        expect(facts.locator("span").first).to_be_visible()
        expect(facts).not_to_contain_text(note)


@LANGUAGES
def test_a_pasted_configuration_of_an_unknown_type_has_no_answer(page: Page, address: str, language: str) -> None:
    page.goto(address + ("zh/" if language == "zh" else "") + "plan/")
    page.locator(SCALE).wait_for()
    hunyuan = {"model_type": "hunyuan_v9", "moe_topk": [8] * 32, "time_step_limit": [0.0, float("inf")]}
    put(page, model="config", config=json.dumps(PHI_3 | hunyuan))
    told, strip = words(language)["not_understood"], page.locator(".planner-strip.wrong")
    expect(strip).to_contain_text("hunyuan_v9")
    expect(strip).to_contain_text(told["no_answer"])
    about = "experts, which are most of the weights"
    expect(strip.locator("li").last).to_have_text(
        told["about"].format(about=told["reasons"].get(about, about), keys="moe_topk")
    )
    expect(strip).not_to_contain_text("layers=")
    expect(page.locator(".planner-run, .planner-bar, .planner-facts")).to_have_count(0)
    expect(page.locator("#planner-model")).to_have_value("config")
    expect(page.locator("#planner-config")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#planner-shape")).to_have_value("")
    put(page, model="config", config=json.dumps({"model_type": "bert", "hidden_size": 1024}))
    expect(strip).to_contain_text("flops-bytes count")
    expect(strip.locator("li")).to_have_count(0)
    expect(strip.locator("a[href='../count-your-step/#count-your-step']")).to_be_visible()
    put(page, model="gpt2", context="1024", checkpointing="none")
    expect(page.locator(".planner-verdict")).to_contain_text("Fits" if language == "en" else "放得下")


def test_known_types_are_read_as_before() -> None:
    assert "phi3" not in KNOWN and "llama" in KNOWN
    llama = {**PHI_3, "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8}
    found = plan(config=llama | {"vocab_size": 128256}, gpu="H200 SXM")["parameters"]["total"]
    assert found == plan(model="llama-3-8b", gpu="H200 SXM")["parameters"]["total"] and "llama-3-8b" in SHAPES


# What the page has no need of


def test_where_no_number_varies_no_device_is_chosen(page: Page, address: str) -> None:
    page.goto(address + "plan/")
    page.locator(SCALE).wait_for()
    expect(page.locator("#device-choice")).to_have_count(0)
    expect(page.locator("#provenance tbody tr").first).to_be_attached()
    page.goto(address + "timing/")
    expect(page.locator("#device-choice[data-shown]")).to_have_count(1)


def test_what_decides_the_verdict_is_asked_in_the_open() -> None:
    """And attention alone, whose checkpoints free next to nothing beside fused kernels, is not offered."""
    assert {"trained", "recipe", "checkpointing", "loss", "zero"} <= {*SHOWN} and not {*SHOWN} & {*FOLDED}
    for language in ("en", "zh"):
        choices = words(language)["choices"]
        assert [*choices["checkpointing"]] == ["", "none", "per-op", "full"]
        assert [*choices["loss"]] == ["plain", "compiled", "chunked", "fused"]


def test_the_opening_example_is_a_run_that_somebody_would_do() -> None:
    found = answer(FIRST)["found"]
    assert found["fits"] and 0.2 < found["days"] < 60


# What was served elsewhere


@LANGUAGES
def test_a_latency_that_no_engine_reached_has_their_speed_beside_it(page: Page, address: str, language: str) -> None:
    asked = "?task=serve&model=llama-3-8b&gpu=L40S&gpus=1&context=8192&users=50&weights=8bit&cache=8bit&latency="
    engines = words(language)["serving"]["facts"]["reached"].partition("{")[0].strip()
    for latency, so in (("50", True), ("500", False)):
        page.goto(address + ("zh/" if language == "zh" else "") + "plan/" + asked + latency)
        expect(page.locator(".planner-verdict.fits")).to_be_visible()
        expect(page.locator(".planner-facts", has_text=engines)).to_have_count(int(so))
