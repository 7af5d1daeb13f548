"""What is installed is pinned with all that it needs, by the hashes of its files; torch apart."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

PINNED = re.compile(r"^([\w.-]+)==([\w.]+)((?:.*\\\n    --hash=sha256:[0-9a-f]{64})+)(?: \\)?$", re.MULTILINE)
CONSTRAINTS = (ROOT / ".github" / "constraints.txt").read_text(encoding="utf-8")
VERSIONS: dict[str, set[str]] = {}
for name, version, _ in PINNED.findall(CONSTRAINTS):
    VERSIONS.setdefault(canonicalize_name(name), set()).add(version)
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
APART = {"torch"}  # and what comes with it alone


def asked() -> Iterator[Requirement]:
    for group, entries in GROUPS.items():
        yield from (Requirement(entry) for entry in entries if isinstance(entry, str) and group != "torch")


def needed() -> set[str]:
    """All that the groups need here, by what the installed packages say of themselves."""
    found: set[str] = set()
    left = [(each, "") for each in asked()]
    while left:
        requirement, extra = left.pop()
        name = canonicalize_name(requirement.name)
        if (requirement.marker and not requirement.marker.evaluate({"extra": extra})) or name in APART:
            continue
        extras = {"", *requirement.extras}
        if name not in found or requirement.extras:
            found.add(name)
            try:
                left += [(Requirement(each), one) for each in requires(name) or [] for one in extras]
            except PackageNotFoundError:
                continue  # of another Python or system
    return found


def test_all_that_is_needed_is_pinned() -> None:
    assert needed() - {*VERSIONS} == set()
    for requirement in asked():
        if requirement.specifier:
            assert any(requirement.specifier.contains(each) for each in VERSIONS[canonicalize_name(requirement.name)])


def test_each_pin_has_the_hashes_of_its_files() -> None:
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("    --hash=sha256:")]
    assert len(lines) == sum(map(len, VERSIONS.values())) > 100


def test_what_is_built_here_is_pinned_and_so_is_what_builds_it() -> None:
    """jieba and thop are published as source alone."""
    assert {"jieba", "thop", "setuptools", "hatchling"} <= {*VERSIONS}
    asked = subprocess.run(["make", "-Bn", ".venv/ready-auto"], cwd=ROOT, capture_output=True, text=True, check=True)
    (installed,) = [line for line in asked.stdout.splitlines() if "--group snippets" in line]
    assert "--constraint .github/constraints.txt --build-constraint .github/constraints.txt" in installed
