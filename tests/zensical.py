"""Builds the English site with Zensical and says what differs from MkDocs' build in site/: `make zensical`.

What mkdocs-jupyter does is done before the build here: labs are run and written as Markdown. What is taken along is
made by the same command as for MkDocs. So both could be left out of MkDocs' build on the day that it goes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from ledger.book import Book
from ledger.site.bundle import NAME, bundle
from ledger.site.labs import parts as parts_of
from ledger.snippet import PACKAGES

ROOT = Path(__file__).parent.parent
SOURCES = ("docs", "figures", *PACKAGES, "ledger", "measurements", "planner", "snippets")
COPIED = (*SOURCES, "pyproject.toml", "mkdocs.yml")
COUNTED = {
    "numbers": r"<data\b[^>]*>([^<]*)</data>",
    "code blocks": r'class="language-(\w+)[^"]*highlight"',
    "formulas": r"<math\b[^>]*>(.*?)</math>",
    "drawings": r'<svg role="img" aria-label="([^"]*)"',
    "headings": r'<h[1-6] id="([^"]*)"',
}
# What differs, and why: files by their path, parts of pages by path and part.
REASONS = {
    r"assets/(images|javascripts|stylesheets)/.*": "the theme's own files have other names",
    r"search/.*": "its search has another index",
    r"sitemap.xml.gz": "it writes sitemap.xml alone",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "book"
        root.mkdir()
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
        labs = write_labs(root / "docs" / "en")
        path = os.pathsep.join(filter(None, (str(ROOT / ".cache" / "zensical"), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "LOCAL": "0", "PYTHONPATH": path}
        subprocess.run([sys.executable, "-m", "zensical", "build"], cwd=root, env=environment, check=True)
        for lab in labs:
            (root / "site" / "labs" / lab).rename(root / "site" / "labs" / Path(lab).stem / lab)
        bundle(Book(ROOT), root / "site", os.environ["SITE_URL"], local=False, languages=["en"])
        report(ROOT / "site", root / "site")


def write_labs(docs: Path) -> list[str]:
    """Runs the labs and puts them into the nav as Markdown; the notebooks' names."""
    found = sorted((docs / "labs").glob("*.ipynb"))
    for path in found:
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        NotebookClient(notebook, kernel_name="python3").execute()
        text = "\n\n".join(part for cell in notebook.cells for part in parts_of(cell))
        path.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    for path in (docs.parent.parent / "mkdocs.yml", *docs.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"(labs/[\w-]+)\.ipynb", r"\1.md", text), encoding="utf-8")
    return [path.name for path in found]


def report(ours: Path, theirs: Path) -> None:
    """What differs and has no reason, line by line; then what has, by its reason."""
    files = [path.relative_to(ours) for path in sorted(ours.rglob("*")) if path.is_file()]
    explained: Counter[str] = Counter()
    for name in files:
        if name.parts[0] == "zh" or ".zh." in name.name or name.match(f"downloads/{NAME}.*"):
            continue  # Chinese, or made of a site
        for place, difference in differences(ours / name, theirs / name, str(name)):
            reason = next((why for where, why in REASONS.items() if re.fullmatch(where, place)), None)
            if reason:
                explained[reason] += 1
            else:
                print(f"{place}: {difference}")
    for reason in REASONS.values():
        print(f"{explained[reason]} times: {reason}")


def differences(ours: Path, theirs: Path, name: str) -> list[tuple[str, str]]:
    if not theirs.is_file():
        return [(name, "missing")]
    if ours.name != "index.html":
        return []
    found = []
    before, after = (path.read_text(encoding="utf-8") for path in (ours, theirs))
    for part, pattern in COUNTED.items():
        mine, its = (re.findall(pattern, text, re.DOTALL) for text in (before, after))
        if mine != its:
            told = f"{len(its)} instead of {len(mine)}, {len({*mine} ^ {*its})} of them others"
            found.append((f"{name}: {part}", told))
    return found


if __name__ == "__main__":
    main()
