"""What the page's box does with pasted files: the same reading as the terminal's, and the fields that it fills.

Translated to the script that is fetched when somebody pastes. Keys and values come from the page's own parsers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flops_bytes.files.content import Content
from flops_bytes.files.interpret import Part, Software
from flops_bytes.files.run import SMALL, Row, Run, flags, problems_of, read_run, rows_of
from flops_bytes.files.write import NOT_WRITTEN, REMOVED, change_of, lines_of, sayable
from flops_bytes.plan.options import OPTIONS, TRAINED, read_option
from flops_bytes.plan.parallel import PARALLEL

OF_THE_FORM = ("no card", "no count", "no model", "unknown model")  # what the form's own fields say, or it refuses


def loaded(text: str) -> Any:
    """What a text of JSON holds."""
    return json.loads(text)


def read_files(files: list[dict[str, Any]], data: Mapping[str, Software], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was read of files, sentence by sentence, and the form's fields that say it; `given` was typed there.

    Raises ValueError that names the file.
    """
    run = run_of(files, data, {name: value for name, value in given.items() if name == "gpu"})
    asked, config, problems = run.asked, run.config, list(problems_of(run, given, data))
    fields = fields_of(asked, all(row.sentence != "unknown model" for row in problems))
    return {
        "rows": [as_table(row) for row in rows_of(run, data)],
        "problems": [as_table(row) for row in problems if row.sentence not in OF_THE_FORM],
        "fields": fields | ({"config": config.text} if config else {}),
        "config": config.table if config and not config.text else {},  # which stands in another's file
        "flags": {name: flags({name: value}, config) for name, value in asked.items() if matters(name, value)},
        "small": [name for name in asked if name in SMALL],
        "layout": [name for name in asked if name in PARALLEL],
        "alone": "gpus" not in asked and asked.get("zero", "0") == "0",
        "read": len(run.parts) > 0 or config is not None,
    }


def run_of(files: list[dict[str, Any]], data: Mapping[str, Software], given: Mapping[str, Any]) -> Run:
    """The run of files as the page has them; a message has no format."""
    contents = [
        Content(each["path"], each["kind"], each["text"], each["table"], each.get("format", "")) for each in files
    ]
    return read_run(contents, data, given)


def write_files(
    files: list[dict[str, Any]], data: Mapping[str, Software], fields: Mapping[str, str]
) -> dict[str, Any] | None:
    """The lines of each file that ask for what the form's fields ask, where that is not what the files do; and what
    they cannot say, and what else follows. None where the form asks for no more than they do."""
    run = run_of([each for each in files if each["kind"] == "table"], data, {})
    before = fields_of(run.asked, is_known=True)
    changed = changed_options(fields, before, sayable([Part("", name, {}) for name in data], data))
    if not run.parts or not changed:
        return None
    change = change_of(run.parts, data, run.more, changed)
    told = []
    for each in files:
        mine = [edit for edit in change.edits if edit.file == each["path"]]
        if mine:
            removed = [edit.key for edit in mine if edit.value == REMOVED]
            told.append({"file": each["path"], "lines": lines_of(run.formats[each["path"]], mine), "removed": removed})
    return {"files": told, "cannot": flags(change.unsaid, None), "beside": flags(change.beside, None)}


def changed_options(fields: Mapping[str, str], before: Mapping[str, str], own: list[str]) -> dict[str, Any]:
    """Options that files can say and that the form asks otherwise than they do."""
    found: dict[str, Any] = {}
    for name, text in fields.items():
        if name not in OPTIONS or name not in own or name in NOT_WRITTEN:
            continue
        stands = before.get(name, "" if OPTIONS[name].default is None else str(OPTIONS[name].default))
        is_of_adapters = name in ("lora", "lora_on") and fields.get("trained") == "all"
        if text and text != stands and not is_of_adapters:
            found[name] = read_option(name, text)
    return found


def as_table(row: Row) -> dict[str, Any]:
    return {
        "sentence": row.sentence,
        "file": row.file,
        "line": row.line,
        "key": row.key,
        "means": row.means,
        "why": row.why,
    }


def matters(name: str, value: Any) -> bool:
    """Whether an option says more than what stands if nobody says it."""
    return name not in OPTIONS or value != OPTIONS[name].default


def fields_of(asked: Mapping[str, Any], is_known: bool) -> dict[str, str]:
    """The form's fields for options of the planner: one for what is trained, one for a model that it does not list."""
    fields = {name: str(value) for name, value in asked.items() if name not in ("config", "base")}
    if "lora" in asked:
        fields["trained"] = TRAINED[asked.get("base", "as-recipe")]
    if "model" in asked and not is_known:
        fields["config"] = fields["model"]
    if "config" in asked or "config" in fields:
        fields["model"] = "config"
    return fields
