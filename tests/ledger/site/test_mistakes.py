"""A mistake that is made while a page is edited ends its build with file and line, not with a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from mkdocs.__main__ import cli

from ledger.book import Book
from tests.conftest import ROOT, free_port

CONFIG = f"""\
site_name: Small
docs_dir: docs/en
theme: material
hooks: [{ROOT}/ledger/site/reuse.py, {ROOT}/ledger/site/mistakes.py]
plugins: {{ search: {{}} }}
markdown_extensions:
  pymdownx.superfences: {{}}
  pymdownx.snippets: {{ base_path: ["."], check_paths: true, dedent_subsections: true }}
  pymdownx.arithmatex: {{ generic: true }}
  ledger.site.math: {{}}
  ledger.site: {{ default_device: none, language: en, local: LOCAL }}
"""
DRAWING = "\n/// figure | small.drawing\n    alt: A drawing.\n///\n"

# By mistake: the file, what is replaced in it, by what, and what is told
MISTAKES = {
    "snippet": ("snippets/good.py", "4 * 8", "4 * = 8", r"snippets/good\.py:2: not Python: invalid syntax"),
    "section": (
        "snippets/good.py",
        "# --8<-- [end:count]\n",
        "",
        r"snippets/good\.py:1: section 'count' is never closed",
    ),
    "placeholder": ("docs/en/page.md", "size_bytes", "size", r"docs/en/page\.md:3: good\.size cannot be quoted"),
    "include": ("docs/en/page.md", "good.py:count", "good.py:nosuch", r"docs/en/page\.md:6: .*no section 'nosuch'"),
    "formula": ("docs/en/page.md", "It takes", "$\\nosuch$", r"docs/en/page\.md:3: KaTeX .*\\nosuch.*Undefined"),
    "figure": ("docs/en/page.md", "# Page {#page}", f"# Page {{#page}}\n{DRAWING}", r"figures/small\.py:2: not Python"),
    "record": ("measurements/*/good.json", '"format": 1', '"format": 2', r"good\.json: format 2; this ledger reads"),
}


@pytest.fixture
def project(small_book: Book) -> Path:
    root = small_book.root
    (root / "mkdocs.yml").write_text(CONFIG.replace("LOCAL", "true"))
    (root / "figures" / "small.py").write_text("def drawing(values, labels):\n    return = '<svg></svg>'\n")
    return root


def make(project: Path, mistake: str) -> str:
    """Puts a mistake in; returns what it has to be told as."""
    pattern, old, new, message = MISTAKES[mistake]
    (path,) = project.glob(pattern)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return message


ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_build_ends_with_a_line(project: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    message = make(project, mistake)
    monkeypatch.chdir(project)
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    built = CliRunner().invoke(cli, ["build", "--quiet"])
    told = built.output
    assert built.exit_code == 1
    assert isinstance(built.exception, SystemExit), "any other would show as a traceback"
    assert re.search(message, told), told
    assert "Traceback" not in told and len(told.splitlines()) <= 4, told


def test_a_live_preview_goes_on_after_a_mistake(project: Path) -> None:
    page = project / "docs" / "en" / "page.md"
    command = [sys.executable, "-m", "mkdocs", "serve", "-a", f"127.0.0.1:{free_port()}"]
    log = project / "log"

    def wait_for(pattern: str) -> None:
        deadline = time.monotonic() + 600
        while not re.search(pattern, log.read_text()):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    with (
        log.open("w") as output,
        subprocess.Popen(command, cwd=project, env=ENVIRONMENT, stdout=output, stderr=output) as serving,
    ):
        try:
            wait_for("Serving on")
            good = page.read_text()
            wait_for_message = make(project, "placeholder")
            wait_for(wait_for_message)
            wait_for("An error happened")
            page.write_text(good)
            wait_for("Reloading browsers")
        finally:
            serving.send_signal(signal.SIGINT)
            serving.wait()
    assert "Traceback" not in log.read_text()
