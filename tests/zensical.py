"""Builds the English site with Zensical and reports what differs from MkDocs' build in site/: `make zensical`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
COUNTED = {
    "numbers": r"<data\b[^>]*>([^<]*)</data>",
    "code blocks": r'class="language-(\w+)[^"]*highlight"',
    "formulas": r'encoding="application/x-tex">([^<]*)<',
    "drawings": r'<svg role="img" aria-label="([^"]*)"',
    "headings": r'<h[1-6] id="([^"]*)"',
}


def parts(page: Path) -> dict[str, list[str]]:
    text = page.read_text(encoding="utf-8")
    return {name: re.findall(pattern, text) for name, pattern in COUNTED.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "book"
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "site", ".cache"))
        command = [sys.executable, "-m", "zensical", "build"]
        built = subprocess.run(command, cwd=root, env={**os.environ, "LOCAL": "0"}, capture_output=True, text=True)
        print(built.stdout + built.stderr)
        theirs = root / "site"
        for ours in sorted((ROOT / "site").rglob("index.html")):
            name = ours.relative_to(ROOT / "site")
            if name.parts[0] == "zh":
                continue
            if not (theirs / name).is_file():
                print(f"{name}: missing")
                continue
            for part, expected in parts(ours).items():
                found = parts(theirs / name)[part]
                print(
                    f"{name}: {part}: {'the same' if found == expected else f'{len(found)} instead of {len(expected)}'}"
                )


if __name__ == "__main__":
    main()
