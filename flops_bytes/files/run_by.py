"""A question without files, as a software runs it: what a file of its own says of the options, and its defaults."""

from collections.abc import Mapping
from typing import Any

from flops_bytes.files.interpret import Part, interpret
from flops_bytes.files.run import Run, asked_of
from flops_bytes.files.software import NAMES, softwares
from flops_bytes.files.write import NOT_WRITTEN, REMOVED, change_of, sayable
from flops_bytes.model.shapes import quoted
from flops_bytes.plan.options import OPTIONS, read_option
from flops_bytes.plan.parallel import PARALLEL, read_own

RUNNERS = tuple(name for name in NAMES if name != "config")  # a model's, which runs nothing


def software_named(written: str) -> str:
    """The software that somebody names, however it is hyphenated. Raises ValueError with the mend."""
    found = {short(name): name for name in RUNNERS}
    if short(written) not in found:
        names = ", ".join([name.replace("_", "-") for name in RUNNERS])
        raise ValueError(f"--run-by: {quoted(written)} is not known; choose {names}")
    return found[short(written)]


def short(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def run_by(software: str, given: Mapping[str, Any]) -> tuple[Run, Run]:
    """A run of which only options are `given`: as the software's file with lines that say them, and as an empty one."""
    data = softwares()
    if given.get("task", "train") != "train":
        raise ValueError("--run-by: it is of trainings; leave it out")
    written_in = data[software].get("written_in", "yaml")
    file = f"{software}.{written_in}"
    empty = Part(file, software, {})
    change = change_of([empty], data, {}, said_by(empty, given))
    held = {edit.key: edit.value for edit in change.edits if edit.value != REMOVED}
    reading = interpret([empty._replace(held=held)], data, {})
    counted = given if "gpus" in given or "days" in given else {**given, "gpus": 1}  # which stands if nobody says it
    asked = asked_of(reading, None, [], counted)
    whole = Run([empty._replace(held=held)], None, {}, reading, asked, {file: ""}, {file: written_in})
    return whole, whole._replace(parts=[empty])


def said_by(part: Part, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options those that the software's files can say, as they are planned with."""
    own = sayable([part], softwares())
    return {name: read(name, value) for name, value in given.items() if name in own and name not in NOT_WRITTEN}


def read(name: str, value: Any) -> Any:
    """An option as it is planned with."""
    if name in OPTIONS:
        return read_option(name, value)
    return read_own(name, value) if name in PARALLEL else value
