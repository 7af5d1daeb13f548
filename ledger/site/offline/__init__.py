"""A built site as a folder that works where it lies: opened from the disk without a network, planner and search too.

The theme's own navigation is turned off; the search's index it reads as a script by itself. For all else that a page
may not read from a disk, offline.js stands in, and this module writes what that reads. Links within the site name the
page in the folder. Downloads, which weigh more than all the rest, stay where the site is.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from ledger.book import LedgerError, Problem
from ledger.site.bundle import LANGUAGES, NAME

SCRIPT = Path(__file__).with_name("offline.js")
LEFT_OUT = shutil.ignore_patterns("downloads", "404.html", "*.map", "sitemap*", "lunr")
ASKED_FOR = ("assets/p*.js", "assets/search.js", "assets/javascripts/workers/*.js", "**/devices/*.json")  # by scripts
LINK = re.compile(r'(?<= href=")(?![a-z]+:|#)([^"?#]*)')
CANONICAL = re.compile(r'<link rel="canonical" href="([^"]*)"')
ELSEWHERE = re.compile(r'<link rel="(?:alternate |preload)"[^>]*>')  # the one is on the web, the other cannot be had


def offline(site: Path, target: Path) -> Path:
    """Writes the folder anew, and a zip of it into the site's downloads, which it returns."""
    if target.exists() and not (target / "assets" / SCRIPT.name).is_file():
        raise LedgerError([Problem(target, 0, "is no such copy, and would be replaced: name another folder")])
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(site, target, ignore=LEFT_OUT)
    address = CANONICAL.findall((site / "index.html").read_text(encoding="utf-8"))[0]
    for folder in LANGUAGES.values():
        language, assets = target / folder, target / folder / "assets"
        stemmers = site / folder / "assets" / "javascripts" / "lunr" / "min"
        shutil.copy(SCRIPT, assets)
        index = (language / "search" / "search_index.json").read_text(encoding="utf-8")
        (language / "search" / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
        (assets / "book.js").write_text(_loading((assets / "book.js").read_text(encoding="utf-8")), encoding="utf-8")
        for path in [path for pattern in ASKED_FOR for path in language.glob(pattern)]:
            text = path.read_text(encoding="utf-8")
            if path.parent.name == "workers":
                text = _stemmers(stemmers, json.loads(index)["config"]["lang"]) + text
            elif path.suffix == ".js":
                text = _loading(text).replace("import.meta.url", f'new URL("{path.name}", load.base).href')
            path.with_name(f"{path.name}.js").write_text(f"offline({json.dumps(text)})", encoding="utf-8")
            path.unlink()
        for page in language.rglob("*.html"):
            if language != target or "zh" not in page.relative_to(target).parts:
                page.write_text(_page(page, language, target, address), encoding="utf-8")
    archive = shutil.make_archive(str(site / "downloads" / NAME), "zip", target.parent, target.name)
    return Path(archive)


def _loading(script: str) -> str:
    return re.sub(r"\bimport\(", "load(", script)


def _stemmers(folder: Path, languages: list[str]) -> str:
    """What the search's worker would fetch for these languages."""
    names = [f"lunr.{name}.min.js" for name in ("stemmer.support", *languages) if name != "en"]
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    run = "(...paths) => paths.forEach((path) => (0, eval)(stemmers[path.split('/').pop()]))"
    return f"const stemmers = {json.dumps(texts)}; self.importScripts = {run};\n"


def _page(page: Path, language: Path, site: Path, address: str) -> str:
    """Its text, with links that name files; what did not come along is linked where the site is."""
    up = "../" * len(page.parent.relative_to(language).parts)

    def lead(link: re.Match[str]) -> str:
        path = link[1]
        there = (page.parent / path).resolve()
        if there.is_dir():
            return f"{path.rstrip('/')}/index.html" if path else "index.html"
        return path if there.exists() else f"{address}{there.relative_to(site.resolve())}"

    text = LINK.sub(lead, ELSEWHERE.sub("", page.read_text(encoding="utf-8")))
    text = text.replace("import(words)", "load(words)").replace('"navigation.instant", ', "")
    return text.replace("<head>", f'<head><script src="{up}assets/offline.js"></script>', 1)
