"""What is sent without comments and spaces means the same to a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import material
import pytest
from playwright.sync_api import Browser

from ledger.site.tight import BETWEEN, KIND, OFF, Used, of_use, tighten
from tests.conftest import ROOT

EACH = """text => {
  const each = (rules) => [...rules].flatMap((rule) => rule.cssRules?.length ? each(rule.cssRules) : [rule.cssText]);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  return each(sheet.cssRules);
}"""
RULES = """text => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  return [...sheet.cssRules].map((rule) => rule.cssText);
}"""


PAGE = """<body class="md-typeset no-js" data-md-color-scheme=slate data-md-color-primary="custom">
<p class='admonition-title'>Class</p></body>"""
SCRIPT = 'let made="md-search__form";add(`tabbed-control--${way}`,"md-version")'


def test_a_tight_style_has_the_rules_of_the_written_one(browser: Browser, tmp_path: Path) -> None:
    written = {name: (ROOT / "docs/overrides/assets" / name).read_text() for name in ("book.css", "book.js")}
    assets = tmp_path / "assets"
    assets.mkdir()
    for name, text in written.items():
        (assets / name).write_text(text)
    tighten(tmp_path)
    page = browser.new_page()
    rules = [page.evaluate(RULES, text) for text in (written["book.css"], (assets / "book.css").read_text())]
    written_rules, tight_rules = (
        [rule.replace(", ", ",") for rule in each] for each in rules
    )  # a property keeps its text
    assert written_rules == tight_rules and len(tight_rules) > 100
    page.evaluate(f"void new Function({json.dumps((assets / 'book.js').read_text())})")  # it is a program still
    page.close()
    for name, text in written.items():
        assert "/*" not in (assets / name).read_text() and len((assets / name).read_text()) < 0.9 * len(text)


SCRIPTS = [*(ROOT / "docs/overrides/assets").glob("[!p]*.js"), ROOT / "docs/overrides/assets/pipeline.js"]
SCRIPTS += (ROOT / "planner").glob("*.js")
TEMPLATE = re.compile(r"`(?:[^`\\]|\\.)*`")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_template_stands_within_another(path: Path) -> None:
    """What rjsmin takes for one ends at the next backtick, and what stands within the inner one for code."""
    templates = TEMPLATE.findall(path.read_text(encoding="utf-8"))
    assert [text for text in templates if text.count("{") != text.count("}")] == []


STYLES = {  # a style, and what is left of it for PAGE and SCRIPT
    "what a page has": ("p,.md-typeset>p{a:b}", "p,.md-typeset>p{a:b}"),
    "what no page has": (".md-typeset .md-banner{a:b}i{c:d}", "i{c:d}"),
    "one of two": (".md-banner,.no-js i{a:b}", ".no-js i{a:b}"),
    "a class in a choice or a denial is not asked for": (
        "p:is(.md-banner,i):not(.x){a:b}",
        "p:is(.md-banner,i):not(.x){a:b}",
    ),
    "a choice is not torn": (".no-js:is(.x,.y) p,.x p{a:b}", ".no-js:is(.x,.y) p{a:b}"),
    "in quotes": (".admonition-title{a:b}", ".admonition-title{a:b}"),
    "what a script makes": (".md-search__form{a:b}", ".md-search__form{a:b}"),
    "what a script puts together": (".tabbed-control--next{a:b}.tabbed-set{a:b}", ".tabbed-control--next{a:b}"),
    "words of a text are no classes": (".Class{a:b}", ""),
    "colours": (
        "[data-md-color-primary=indigo]{a:b}[data-md-color-primary=custom]{c:d}",
        "[data-md-color-primary=custom]{c:d}",
    ),
    "a medium without rules": ("@media print{@media screen{.md-banner{a:b}}}i{a:b}", "i{a:b}"),
    "an import": ('@charset "utf-8";.no-js{a:b}@font-face{src:x}', '@charset "utf-8";.no-js{a:b}@font-face{src:x}'),
    "frames": ("@keyframes up{0%{top:0}to{top:1px}}", "@keyframes up{0%{top:0}to{top:1px}}"),
    "from the right": ("[dir=rtl] p,[dir=rtl] i{a:b}[dir=ltr] p,[dir=rtl] p{c:d}", "[dir=ltr] p{c:d}"),
    "a picture that nothing shows": (
        ":root{--md-a:url('data:;x,<a>');--md-b:url(y)}p{mask:var(--md-b)}",
        ":root{--md-b:url(y)}p{mask:var(--md-b)}",
    ),
    "a picture that only an unused rule shows": (":root{--md-a:url(x);b:c}.md-banner{mask:var(--md-a)}", ":root{b:c}"),
    "the admonitions' pictures": (
        ":root{--md-admonition-icon--note:url(x);b:c}p{d:var(--md-admonition-icon--note)}",
        ":root{b:c}p{d:var(--md-admonition-icon--note)}",
    ),
    "a part that is off": (".md-version,.md-search__form{a:b}.md-annotation__index{c:d}", ".md-search__form{a:b}"),
    "the colour of a kind of notes": (":root{--md-admonition-icon--no-js:url(y)}.no-js>p{a:b}p{c:d}", ":root{}p{c:d}"),
}


@pytest.mark.parametrize("case", STYLES)
def test_of_the_themes_style_only_what_no_page_uses_is_left_out(case: str) -> None:
    written, left = STYLES[case]
    assert of_use(written, Used([PAGE], [SCRIPT])) == left


def is_off(rule: str) -> bool:
    """Of parts of a page alone that the book does not turn on."""
    return all(any(f".{name}" in each for name in OFF) for each in BETWEEN.split(rule.partition("{")[0]))


def test_a_browser_reads_what_is_left_of_the_themes_styles_as_before(browser: Browser) -> None:
    """With every class in use, only what is from the right goes, kinds of notes, parts that are off and pictures; with
    those of one page, much more."""
    styles = Path(material.__file__).parent / "templates/assets/stylesheets"
    page = browser.new_page()
    for name, least in (("main", 35_000), ("palette", 3_000)):
        (theme,) = styles.glob(f"{name}.*.min.css")
        written = theme.read_text(encoding="utf-8")
        names = " ".join(re.findall(r"[\w-]+", written))
        every = Used([f'<p class="{names}">'], [])
        pictures = re.compile(r"--md-[\w-]+: url\(\"[^\"]*\"\);? ?")
        before, after = (
            [pictures.sub("", rule) for rule in page.evaluate(EACH, text)] for text in (written, of_use(written, every))
        )
        of_a_kind = re.compile(rf"\.md-typeset \.(?:admonition\.)?(?:{'|'.join(KIND.findall(written)) or '-'})\b")
        kept = [rule for rule in before if not (is_from_right(rule) or of_a_kind.match(rule) or is_off(rule))]
        assert [body(rule) for rule in after] == [body(rule) for rule in kept] and len(after) > 50
        assert (
            set(page.evaluate(EACH, of_use(written, Used([PAGE], []))))
            and len(written) - len(of_use(written, Used([PAGE], []))) > least
        )
    page.close()
    assert ".admonition-title, summary)::before { display: none; }" in (
        ROOT / "docs/overrides/assets/book.css"
    ).read_text(encoding="utf-8")


def body(rule: str) -> str:
    """What a rule does, and to what: a selector from the right beside others may have gone."""
    selectors, brace, rest = rule.partition("{")
    kept = [part.strip() for part in selectors.split(", ") if '[dir="rtl"]' not in part]
    return ", ".join(kept) + brace + rest


def is_from_right(rule: str) -> bool:
    return all(part.strip().startswith('[dir="rtl"]') for part in rule.partition("{")[0].split(","))
