"""A built site becomes a PDF and an EPUB that lack nothing of its pages, and whose links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pikepdf
import pytest

from ledger.site.bind import CHROMIUM
from ledger.site.bind.pdf import places
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
OVERRIDES = ROOT / "docs" / "overrides"
ADDRESS = "https://book.invalid/"
PAGE = """<!doctype html><html lang="en"><head><title>Small</title><meta name="description" content="A small book.">
<link rel="canonical" href="{address}"></head><body>
<nav class="md-nav--primary"><ul class="md-nav__list">
<li><a class="md-nav__link" href=".">Start</a></li>
<li class="md-nav__item--section"><label>Part &amp; whole</label><nav><ul>
<li><a class="md-nav__link" href="costs/">Costs</a></li></ul></nav></li></ul></nav>
<article class="md-content__inner md-typeset">{article}</article></body></html>"""
FRONT = """<h1 id="small">Small<a class="headerlink" href="#small">¶</a></h1>
<div class="device-line"><select id="device-choice"><option>A GPU</option></select></div>
<p>What it <a href="costs/#sum">costs</a>, in <a href="snippets/costs.py">code</a>,
or <a href="costs/?model=x">asked</a>.</p>
<form class="planner" aria-label="Plan"><div class="planner-strip">fits</div>
<div class="planner-fields">field</div></form>
<details class="provenance"><summary>Where</summary><table><tr><td>line 7</td></tr></table></details>"""
COSTS = """<h1 id="costs">Costs</h1><h2 id="sum">The sum 总和</h2>
<p>Each <math><mi>N</mi></math> takes <data class="measured" data-quote="x" value="7">7 s</data>.<sup id="fnref:a"><a
href="#fn:a">1</a></sup></p><div class="tabbed-set"><input type="radio"><div class="tabbed-labels"><label>One</label>
<label>Two</label></div><div class="tabbed-content"><div class="tabbed-block"><p>first tab</p></div>
<div class="tabbed-block"><pre><code>second = 1 &lt; 2</code></pre></div></div></div>
<details><summary>Folded</summary><figure><svg role="img" aria-label="drawn" viewBox="0 0 9 9" width="9" height="9">
<rect class="fill-0" width="9" height="9" /></svg><figcaption>A drawing.</figcaption></figure></details>
<p id="fn:a">See <a href="../#small">the start</a>, or <a href="https://other.invalid/">others</a>.</p>"""


def small_site(folder: Path, costs: str = COSTS) -> Path:
    shutil.copytree(OVERRIDES / "math", folder / "math")
    for name in ("assets/stylesheets", "downloads", "costs"):
        (folder / name).mkdir(parents=True)
    shutil.copy(OVERRIDES / "assets" / "book.css", folder / "assets")
    (folder / "index.html").write_text(PAGE.format(address=ADDRESS, article=FRONT), encoding="utf-8")
    page = PAGE.format(address=f"{ADDRESS}costs/", article=costs)
    (folder / "costs" / "index.html").write_text(page, encoding="utf-8")
    return folder


def bind(site: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the browser of other tests may be open in this one."""
    return subprocess.run([sys.executable, "-m", "ledger", "bind", str(site)], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    site = small_site(tmp_path_factory.mktemp("bind") / "site")
    done = bind(site)
    assert done.returncode == 0, done.stderr
    return [site / "downloads" / f"flops-and-bytes.en.{ending}" for ending in ("epub", "pdf")]


def test_the_epub_holds_all_of_each_page_and_its_links_lead_somewhere(made: list[Path]) -> None:
    with zipfile.ZipFile(made[0]) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(("ml", ".opf"))}
        assert archive.namelist()[0] == "mimetype"
        assert archive.getinfo("mimetype").compress_type == zipfile.ZIP_STORED
        listed = re.findall(r'<item [^>]*href="([^"]*)"', files["book/book.opf"])
        assert {f"book/{name}" for name in listed} == {name for name in archive.namelist()[2:] if name[-4:] != ".opf"}
    for text in files.values():
        ElementTree.fromstring(text)
    costs = files["book/costs.xhtml"]
    for there in ("<math", 'viewBox="0 0 9 9"', "first tab", "second = 1 &lt; 2", "Folded", "A drawing.", "7 s"):
        assert there in costs
    assert "line 7" not in files["book/index.xhtml"] and "field" not in files["book/index.xhtml"]
    ids = {f"{Path(name).name}#{found}" for name, text in files.items() for found in re.findall(r' id="([^"]+)"', text)}
    links = {link for name, text in files.items() for link in re.findall(r'<a [^>]*?href="([^"]+)"', text)}
    outside = {link for link in links if "://" in link}
    assert links - outside <= ids and "costs.xhtml#costs.sum" in links
    assert outside == {f"{ADDRESS}{path}" for path in ("", "snippets/costs.py", "costs/?model=x")} | {
        "https://other.invalid/"
    }


def test_the_pdf_has_page_numbers_outline_links_and_embedded_fonts(made: list[Path]) -> None:
    with pikepdf.open(made[1]) as pdf, pdf.open_outline() as outline:
        assert [(item.title, [inner.title for inner in item.children]) for item in outline.root] == [
            ("Small", []),
            ("Contents", []),
            ("Small", []),
            ("Part & whole", ["Costs"]),
        ]
        pages = places(pdf)
        assert (pages["index"], pages["costs"], pages["costs.sum"]) == (3, 4, 4)
        links = [note for page in pdf.pages for note in page.get("/Annots", [])]
        inside = [str(note.Dest)[1:] for note in links if "/Dest" in note]
        assert "costs.sum" in inside and set(inside) <= set(pages)
        fonts = [font for page in pdf.pages for font in page.Resources.get("/Font", {}).values()]
        for font in fonts:
            if font.Subtype != "/Type3":  # which holds its own glyphs, and no others
                (of,) = font.get("/DescendantFonts", [font])
                assert any(key in of.FontDescriptor for key in ("/FontFile2", "/FontFile3")), font
                assert re.match(r"/[A-Z]{6}\+", str(font.BaseFont)), "not a subset"
        assert str(pdf.docinfo["/Title"]) == "Small"


@pytest.mark.parametrize(
    "costs, told",
    [
        (COSTS.replace("<figure>", '<figure style="display: none">'), "pdf: 0 <svg> of 1"),
        (COSTS.replace("../#small", "../#gone"), "index.gone"),
    ],
)
def test_what_is_lost_is_an_error(tmp_path: Path, costs: str, told: str) -> None:
    done = bind(small_site(tmp_path / "site", costs))
    assert done.returncode == 1
    assert told in done.stderr and "Traceback" not in done.stderr
