"""What the page's box does with pasted files: the same reading as the terminal's, and the fields that it fills.

Translated to the script that is fetched when somebody pastes. Keys and values come from the page's own parsers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flops_bytes.files.content import Content
from flops_bytes.files.interpret import Software, interpret
from flops_bytes.files.out_of_memory import decode
from flops_bytes.files.run import SMALL, Row, asked_of, facts_beside, flags, parts_of, problems_of, rows_of
from flops_bytes.plan.options import OPTIONS, TRAINED
from flops_bytes.plan.parallel import PARALLEL

OF_THE_FORM = ("no card", "no count", "no model", "unknown model")  # what the form's own fields say, or it refuses


def loaded(text: str) -> Any:
    """What a text of JSON holds."""
    return json.loads(text)


def read_files(files: list[dict[str, Any]], data: Mapping[str, Software], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was read of files, sentence by sentence, and the form's fields that say it; `given` was typed there.

    Raises ValueError that names the file.
    """
    contents = [Content(each["path"], each["kind"], each["text"], each["table"]) for each in files]
    told = [one for each in contents if each.kind == "message" for one in decode(each.text)]
    parts, config = parts_of([each for each in contents if each.kind == "table"], data)
    reading = interpret(parts, data, facts_beside(parts, config))
    texts = {each.path: each.text for each in contents}
    asked = asked_of(reading, config, told, {name: value for name, value in given.items() if name == "gpu"})
    problems = list(problems_of(parts, reading, asked, given, texts, data))
    fields = fields_of(asked, all(row.sentence != "unknown model" for row in problems))
    return {
        "rows": [as_table(row) for row in rows_of(parts, reading, config, asked, texts, data)],
        "problems": [as_table(row) for row in problems if row.sentence not in OF_THE_FORM],
        "fields": fields | ({"config": config.text} if config else {}),
        "flags": {name: flags({name: value}, config) for name, value in asked.items() if matters(name, value)},
        "small": [name for name in asked if name in SMALL],
        "layout": [name for name in asked if name in PARALLEL],
        "alone": "gpus" not in asked and asked.get("zero", "0") == "0",
        "read": len(parts) > 0 or config is not None,
    }


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
