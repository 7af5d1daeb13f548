"""What is published was checked and goes where the pages say: notebooks to the branch that "Open in Colab" names."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT


def workflow(name: str) -> dict[str, Any]:
    loader = yaml.BaseLoader  # else `on` is true
    found: dict[str, Any] = yaml.load((ROOT / f".github/workflows/{name}").read_text(encoding="utf-8"), loader)
    return found


JOBS: dict[str, Any] = workflow("publish.yml")["jobs"]
TEMPLATE = (ROOT / "docs/overrides/main.html").read_text(encoding="utf-8")


def git(*arguments: str, at: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=at, check=True, capture_output=True, text=True).stdout


def before(job: str, jobs: dict[str, Any] = JOBS) -> set[str]:
    """The jobs without whose success this one does not run."""
    needs = jobs[job].get("needs", [])
    named = {needs} if isinstance(needs, str) else set(needs)
    return named.union(*(before(each, jobs) for each in named))


def test_nothing_is_published_that_was_not_checked() -> None:
    assert JOBS["check"]["uses"] == "./.github/workflows/check.yml"
    assert "workflow_call" in workflow("check.yml")["on"]
    publishing = {name for name, job in JOBS.items() if "write" in job["permissions"].values()}
    assert publishing == {"notebooks", "deploy"}
    for name in publishing | {"build"}:
        assert "check" in before(name)
    for name, job in JOBS.items():  # or it could run after a check that failed
        assert "if" not in job and "continue-on-error" not in job, name


def test_no_other_run_of_the_check_can_cancel_the_one_before_publishing() -> None:
    check, publish = workflow("check.yml"), workflow("publish.yml")
    assert "main" in publish["on"]["push"]["branches"]
    assert "push" not in check["on"], "a second run for the same branch ends the first: they are of one group"
    assert check["concurrency"]["group"] == "check-${{ github.ref }}"
    assert publish["concurrency"]["group"] != check["concurrency"]["group"]


def test_the_book_that_pages_offer_is_built_before_they_are_published() -> None:
    offered = re.findall(r"downloads/(flops-and-bytes[^\"]*)", TEMPLATE)
    assert {name.rpartition(".")[2] for name in offered} == {"{{ kind }}", "zip"} and '("pdf", "epub")' in TEMPLATE
    steps = JOBS["build"]["steps"]
    runs = [step.get("run") or step["uses"].split("@")[0] for step in steps]
    assert [step["env"].get("BOOK") for step in steps if step.get("run") == "make site LOCAL=0"] == ["1"]
    order = ["make site LOCAL=0", "make book offline", "actions/upload-pages-artifact"]
    assert [run for run in runs if run in order] == order


@pytest.mark.parametrize("can_check", [True, False])
def test_records_are_proposed_with_a_check_that_was_started(tmp_path: Path, can_check: bool) -> None:
    propose = workflow("record.yml")["jobs"]["propose"]
    assert propose["permissions"] == {"contents": "write", "pull-requests": "write", "actions": "write"}
    assert "workflow_dispatch" in workflow("check.yml")["on"]
    (step,) = [step for step in propose["steps"] if "run" in step]
    published, tools, checkout = tmp_path / "published.git", tmp_path / "bin", tmp_path / "checkout"
    git("init", "--bare", "--quiet", str(published), at=tmp_path)
    git("clone", "--quiet", str(published), str(checkout), at=tmp_path)
    (checkout / "measurements").mkdir()
    (checkout / "measurements" / "new.json").write_text("{}\n")
    tools.mkdir()
    refuse = "" if can_check else '[ "$1" = workflow ] && exit 1'
    (tools / "gh").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{refuse}\nexit 0\n')
    (tools / "gh").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path), "BRANCH": "records-1"}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=checkout, env=environment, capture_output=True)
    asked = (tmp_path / "asked").read_text().splitlines()
    proposed = ["pr create --fill --base main --head records-1"] if can_check else []
    assert asked == ["auth setup-git", "workflow run check.yml --ref records-1", *proposed]
    assert (done.returncode == 0) == can_check
    assert git("ls-tree", "-r", "--name-only", "records-1", at=published).split() == ["measurements/new.json"]


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


# What a workflow is there for: the commands of its jobs, but for those that ask the hosts of git and of packages.
COMMANDS = {
    "check.yml": ["make site", ".ci/run"],
    "nightly.yml": ["python -m tests.ends", ".ci/run SLOW=1"],
    "publish.yml": ["make site LOCAL=0", "make book offline"],
    "record.yml": ["make record", ".venv/bin/python -m ledger record --slow"],
    "release.yml": ["make site LOCAL=0", "make book offline"],
    "weekly.yml": ["make zensical"],
}


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / ".github/workflows").glob("*.yml")))
def test_a_workflow_runs_what_it_is_there_for(name: str) -> None:
    runs = [step.get("run", "") for job in workflow(name)["jobs"].values() for step in job.get("steps", [])]
    assert [run for run in runs if re.match(r"(make|\.ci|\.venv|python -m)[^|]*$", run)] == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_job_waits_for_all_who_hand_it_something(name: str) -> None:
    jobs = workflow(name)["jobs"]

    def handed(job: str, action: str) -> list[str | None]:
        steps = [step for step in jobs[job].get("steps", []) if f"/{action}-artifact@" in step.get("uses", "")]
        return [step.get("with", {}).get("name") for step in steps]

    for job in jobs:
        for wanted in handed(job, "download"):  # of no name: all that there are
            uploaded = {maker: handed(maker, "upload") for maker in jobs}
            makers = {maker for maker, names in uploaded.items() if (wanted in names if wanted else names)}
            assert makers and makers <= before(job, jobs), f"{name}: {job}"


def test_no_job_may_do_more_than_it_has_to() -> None:
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "check": {"contents": "read"},
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


def test_a_snippet_that_fails_costs_no_other_one_its_record() -> None:
    jobs = workflow("record.yml")["jobs"]
    (first, *later) = [step for step in jobs["measure"]["steps"] if "checkout" not in step.get("uses", "")]
    assert first["run"] == "make record" and len(later) == 2
    assert all(step["if"] == "${{ !cancelled() }}" for step in later)
    assert jobs["propose"]["needs"] == "measure"
    conditions = [re.sub(r"[${}]", "", jobs[job]["if"]).split("&&") for job in ("measure", "propose")]
    on_main = "github.ref == 'refs/heads/main'"
    assert [[part.strip() for part in each] for each in conditions] == [[on_main], ["!cancelled()", on_main]]


WORKFLOWS = sorted(path.name for path in (ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_actions_by_their_hash_and_nothing_of_a_stranger_with_a_token(name: str) -> None:
    of = workflow(name)
    assert "pull_request_target" not in of["on"], "it runs a stranger's code with the repository's token"
    assert of["permissions"] == {}, "a job says what it may"
    for job in of["jobs"].values():
        steps = job.get("steps", [])
        for checkout in [step for step in steps if "actions/checkout" in step.get("uses", "")]:
            assert checkout["with"]["persist-credentials"] == "false", "the token stays in the folder"
        for action in [step["uses"] for step in steps if "uses" in step]:
            assert action.startswith("./") or re.search(r"@[0-9a-f]{40}$", action), action
        if job["permissions"].get("attestations") == "write":
            assert not any("run" in step for step in steps), "what attests runs nothing that could be changed"


def test_what_builds_the_release_is_pinned() -> None:
    (step,) = [step for step in workflow("release.yml")["jobs"]["build"]["steps"] if "run" in step]
    assert "--constraint .github/constraints.txt" in step["run"] and "--no-build-isolation" in step["run"]
