"""What is published goes where the pages say: the notebooks to the branch that "Open in Colab" names."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8"))["jobs"]
TEMPLATE = (ROOT / "docs/theme/main.html").read_text(encoding="utf-8")


def git(*arguments: str, at: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=at, check=True, capture_output=True, text=True).stdout


def test_the_notebooks_replace_what_their_branch_holds(tmp_path: Path) -> None:
    published, tools = tmp_path / "published.git", tmp_path / "bin"
    git("init", "--bare", "--quiet", str(published), at=tmp_path)
    tools.mkdir()
    (tools / "gh").write_text("#!/bin/sh\n")
    (tools / "gh").chmod(0o755)
    (step,) = [step for step in JOBS["notebooks"]["steps"] if "run" in step]
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path), "REPOSITORY_URL": str(published)}
    for names in (["a.en.ipynb", "old.en.ipynb"], ["a.en.ipynb", "b.zh.ipynb"]):
        folder = tmp_path / names[1]
        folder.mkdir()
        for name in names:
            (folder / name).write_text("{}\n")
        subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=environment, check=True)
    (branch,) = re.findall(r"/blob/(\w+)/", TEMPLATE)
    assert git("ls-tree", "--name-only", branch, at=published).split() == ["a.en.ipynb", "b.zh.ipynb"]


def test_no_job_may_do_more_than_it_has_to() -> None:
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "build": {"contents": "read"},
        "notebooks": {"contents": "write"},
        "deploy": {"pages": "write", "id-token": "write"},
    }


@pytest.mark.parametrize("repository", ["https://github.com/someone/book", "https://elsewhere.org/book", ""])
def test_a_page_leads_to_colab_where_colab_finds_the_notebook(repository: str) -> None:
    from jinja2 import Environment

    start = TEMPLATE.index("{% if '<div class=\"language-python")
    end = TEMPLATE.index('<a href="{{ root }}/downloads/measurements.zip"')
    template = Environment().from_string(TEMPLATE[start:end])
    said = {"page": {"content": '<div class="language-python highlight">'}, "name": "timing", "root": ".."}
    config = {"theme": {"language": "zh"}, "extra": {"repository": repository}}
    links = re.findall(r'href="([^"]+)"', template.render(**said, in_chinese=True, config=config))
    colab = ["https://colab.research.google.com/github/someone/book/blob/notebooks/timing.zh.ipynb"]
    assert links == ["../downloads/timing.zh.ipynb", *(colab if "github.com" in repository else [])]
