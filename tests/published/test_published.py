"""What others published: sources are whole and were written by the program; a made-up one is extracted and asked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.model.shapes import parameters
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.options import named_shape, read_options
from ledger.book import Book
from ledger.record import Records
from published import readings as published
from published.readings import (
    Compared,
    Reading,
    extract,
    missing,
    nearest_ratio,
    predict,
    read_all,
    read_source,
)
from tests.conftest import ROOT

FOLDER = ROOT / "measurements" / "published"
SOURCES = sorted(FOLDER.glob("*.toml"))
EMPTY = {  # rows whose cell holds no reading: runs out of memory
    ("fms-acceleration", "scenarios"): 39,
    ("fms-acceleration", "Liger's loss"): 61,
    ("litgpt", "LoRA, one GPU, Llama 2"): 3,
    ("ms-swift", "LoRA, lengths"): 2,
    ("ms-swift-2023", "quantization"): 1,
    ("ms-swift-2023", "full, lengths"): 2,
    ("qwen", "7B"): 3,
}
FILE = """# Peaks
| run | memory | tokens/s | MFU | T |
| -- | -- | -- | -- | -- |
| a | 51.5 GiB | 1,200 | 12.5 | 1024 |
| b | OOM | - | - | 2048 |
| c | 61.25 GiB | 1,100 | 11.5 | 4096 |
"""
SETTINGS = 'settings = { model = "llama-3-8b", gpu = "H100 SXM", gpus = 8, zero = 3 }'
PATTERN = r"\| (?:(?P<reserved_gib>[\d.]+) GiB \| (?P<tokens_per_second>[\d,]+)|OOM)"
TABLE = f"""[[tables]]
name = "peaks"
lines = [4, 6]
pattern = '{PATTERN}'
{SETTINGS}
rows = [{{ context = 1024, seen = true }}, {{ context = 2048 }}, {{ context = 4096 }}]
"""


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    return publish(tmp_path, "peaks.md", FILE, TABLE)


def publish(tmp_path: Path, name: str, text: str, tables: str) -> Path:
    """A repository of somebody's, and a source that reads it: <tmp>/clones/some/body, <tmp>/sources/made-up.toml."""
    clone = tmp_path / "clones" / "some" / "body"
    clone.mkdir(parents=True)
    (clone / name).write_text(text, encoding="utf-8")
    git(clone, "init", "-q")
    path = tmp_path / "sources" / "made-up.toml"
    path.parent.mkdir()
    path.write_text(head(commit(clone), name) + tables, encoding="utf-8")
    return path


def git(clone: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Some Body", "-c", "user.email=some@body", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(clone), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(clone: Path) -> str:
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "Peaks")
    return git(clone, "rev-parse", "HEAD")


def head(at: str, name: str = "peaks.md") -> str:
    return f'repository = "some/body"\ncommit = "{at}"\npath = "{name}"\nlicence = "MIT"\n\n'


def clones(path: Path) -> Path:
    return path.parent.parent / "clones"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def literals(path: Path) -> list[tuple[int, int, str, str]]:
    return [(each.row, each.line, each.what, each.literal) for each in read_source(path)[1]]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_is_whole(path: Path) -> None:
    """As far as can be seen without its files: nothing but --extract and --first wrote what stands below the line."""
    source, readings = read_source(path)
    assert readings and re.fullmatch(r"\d{4}-\d\d(-\d\d)?(, \d{4}-\d\d)*", source["when"])
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in source["extracted"]["sha256"].values())
    assert all(each.value > 0 and each.settings is not None for each in readings)
    if "thread" in source:
        assert re.match(r"https://github\.com/[^/]+/[^/]+/(issues|pull)/\d+$", source["thread"])
        assert not any(each.line for each in readings) and not source["extracted"]["sha256"]
    else:
        assert all(each.line > 0 and each.path in source["extracted"]["sha256"] for each in readings)
    assert len({(each.table, each.row, each.what) for each in readings}) == len(readings)
    for table in source["tables"]:
        again = [row for row in published.rows_of(table) if row.get("again")]
        rows, read = source["extracted"]["rows"][table["name"]]
        assert rows - read - len(again) == EMPTY.get((path.stem, table["name"]), 0), table["name"]


SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([BbMm])(?![A-Za-z])")
MEANS = {  # a word of a source, and what is asked where it stands
    r"FULL_SHARD": ("zero", "3"),
    r"SHARD_GRAD_OP": ("zero", "2"),
    r"(?i)\bq?lora\b": ("lora", r"\d"),
    r"(?i)\bqlora\b": ("base", "4bit"),
    r"\b3090\b": ("gpu", "RTX 3090"),
    r"\b4090\b": ("gpu", "RTX 4090"),
}


def told(table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a source calls its rows and the values in them, each with what is asked there."""
    for means in table.get("means", {}).values():
        yield from ((word, asks) for word, asks in means.items() if isinstance(asks, dict))
    for row in published.rows_of(table):
        yield f"{table['name']} {row.get('label', '')}", row


def asked_parameters(settings: dict[str, Any]) -> int:
    """Of the model that is asked; of several the first."""
    for name in ("shape", "model"):
        if first := [settings[name]] if isinstance(settings.get(name), str) else settings.get(name):
            shape = named_shape(read_options({name: first[0].replace("{context}", "2048")}))
            return sum(parameters(shape).values())
    return 0


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_a_source_calls_a_row_is_what_is_asked(path: Path) -> None:
    for words, settings in [pair for table in read_source(path)[0]["tables"] for pair in told(table)]:
        if not settings.keys() & {"missing", "memory_missing"}:
            for word, (option, asks) in MEANS.items():
                if re.search(word, words):
                    assert re.search(asks, str(settings.get(option))), f"{words}: {settings}"
        count = asked_parameters(settings)
        sizes = [
            float(size) * {"b": 1e9, "m": 1e6}[unit.lower()] for size, unit in SIZE.findall(re.sub("[-_]", " ", words))
        ]
        if sizes and count:
            assert any(0.75 < count / size < 1.35 for size in sizes), f"{words}: {count:,} parameters"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_was_extracted_is_as_the_program_writes_it(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(path, tmp_path))
    published.write(copy, *reversed(read_for_writing(copy)))
    assert copy.read_bytes() == path.read_bytes()


def read_for_writing(path: Path) -> tuple[list[Reading], dict[str, str]]:
    source, readings = read_source(path)
    return readings, source["extracted"]["sha256"]


def test_there_is_enough_to_know_an_error_by() -> None:
    readings = read_all(FOLDER)
    told = [each for each in readings if not missing(each)]
    assert len({each.source for each in readings if each.kind == "memory"}) >= 8
    assert len({each.source for each in told if each.kind == "memory"}) >= 8
    assert Counter(each.kind for each in told)["memory"] >= 200 and Counter(each.kind for each in told)["rate"] >= 40


def test_they_are_no_device() -> None:
    assert "published" not in Records.load(Book(ROOT), local=False).by_device and not list(FOLDER.glob("*.json"))


def test_each_match_is_read_where_it_stands(made_up: Path) -> None:
    assert extract(made_up, clones(made_up)) == 4
    first, last = (4, "51.5", "1,200"), (6, "61.25", "1,100")
    expected = [(0, first), (2, last)]
    assert literals(made_up) == [
        (row, line, what, literal)
        for row, (line, *both) in expected
        for what, literal in zip(("reserved_gib", "tokens_per_second"), both, strict=True)
    ]
    (memory, rate, *_) = read_source(made_up)[1]
    assert memory.value == 51.5 * 2**30 and rate.value == 1_200 and memory.path == "peaks.md"
    assert memory.settings == {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 1024}
    assert memory.about == {"seen": True}


def test_the_file_of_the_commit_is_read_not_todays(made_up: Path) -> None:
    """Nor is a later commit's: its lines are read once the source names it."""
    clone = clones(made_up) / "some" / "body"
    (clone / "peaks.md").write_text(FILE.replace("51.5", "47.5"), encoding="utf-8")
    later = commit(clone)
    extract(made_up, clones(made_up))
    assert literals(made_up)[0][3] == "51.5"
    old = read_source(made_up)[0]["extracted"]["sha256"]["peaks.md"]
    made_up.write_text(head(later) + TABLE, encoding="utf-8")
    extract(made_up, clones(made_up))
    assert literals(made_up)[0][3] == "47.5"
    assert read_source(made_up)[0]["extracted"]["sha256"]["peaks.md"] != old


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('path = "peaks.md"', 'path = "valleys.md"', "no valleys.md at"),
        (r"|OOM)", ")", "peaks: 2 are found, 3 have settings"),
        ("{ context = 2048 }, ", "", "peaks: 3 are found, 2 have settings"),
        ("lines = [4, 6]", "lines = [4, 16]", "peaks: peaks.md has 7 lines, not 16"),
        ("{ context = 4096 }", "{ contxt = 4096 }", "peaks, row 2: --contxt: not an option"),
        ("{ context = 4096 }", '{ context = "short" }', "peaks, row 2: --context: 'short'"),
        ('"llama-3-8b"', '"llama-3-9b"', "peaks, row 0: --model: 'llama-3-9b' is not known"),
        ('"H100 SXM"', '"H100 PXM"', "peaks, row 0: --gpu: 'H100 PXM' is not a row"),
        ('"MIT"', '""', "it says no licence"),
        ('commit = "', 'commit = "x', "its commit is not 40 hexadecimal digits"),
        ('repository = "some/body"', "repository = some", "made-up.toml: "),
    ],
)
def test_a_mistake_is_told_with_the_file_and_nothing_is_written(made_up: Path, old: str, new: str, says: str) -> None:
    change(made_up, old, new)
    before = made_up.read_bytes()
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        extract(made_up, clones(made_up))
    assert made_up.name in str(caught.value) or says.startswith("no valleys.md")
    assert made_up.read_bytes() == before


def test_two_tables_of_one_name_are_told(made_up: Path) -> None:
    made_up.write_text(made_up.read_text(encoding="utf-8") + TABLE, encoding="utf-8")
    with pytest.raises(ValueError, match="two tables have one name"):
        extract(made_up, clones(made_up))


def test_rows_that_changed_since_are_told_and_read_anew(made_up: Path) -> None:
    extract(made_up, clones(made_up))
    change(made_up, "lines = [4, 6]", "lines = [4, 5]")
    change(made_up, ", { context = 4096 }", "")
    with pytest.raises(ValueError, match="not what was extracted; --extract"):
        read_source(made_up)
    assert extract(made_up, clones(made_up)) == 2


def test_what_the_planner_said_first_stays(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over a new extraction and new settings; not where another number was read."""
    sources = str(made_up.parent)
    assert published.main([sources, "--extract", str(clones(made_up)), "--first"]) == 0
    (first, *_) = read_source(made_up)[1]
    assert first.first and first.first_on and first.first == predict(first)
    change(made_up, "zero = 3", "zero = 2")
    assert published.main([sources, "--extract", str(clones(made_up)), "--first"]) == 0
    (now, *_) = read_source(made_up)[1]
    assert now.first == first.first != predict(now) and now.first_on == first.first_on
    assert f"(first {now.first[0] / now.value:.3f})" in capsys.readouterr().out
    clone = clones(made_up) / "some" / "body"
    (clone / "peaks.md").write_text(FILE.replace("51.5", "47.5"), encoding="utf-8")
    change(made_up, read_source(made_up)[0]["commit"], commit(clone))
    extract(made_up, clones(made_up))
    kept = {each.literal: each.first for each in read_source(made_up)[1]}
    assert kept["47.5"] is None and kept["61.25"]


def test_settings_are_read_in_the_line(made_up: Path) -> None:
    """A group's word is an option, or has a meaning; {word} stands in a text; an MFU is of the speed beside it."""
    text = head(read_source(made_up)[0]["commit"]) + '[[tables]]\nname = "peaks"\nlines = [4, 6]\ncount = 2\n'
    text += r"pattern = '^\| (?P<size>\w) .* GiB \| (?P<tokens_per_second>[\d,]+) \| (?P<mfu_percent>[\d.]+)"
    text += r" \| (?P<context>\d+)'"
    text += '\nsettings = { gpu = "H100 SXM", gpus = 8, zero = 3 }\n\n[tables.means.size]\n'
    shape = "layers=2 d_model=64 heads=2 kv_heads=2 head_dim=32 d_ff=256 vocab=512 positions={context}"
    text += f'a = {{ shape = "{shape}" }}\nc = {{ model = "llama-3-8b" }}\n'
    made_up.write_text(text, encoding="utf-8")
    assert extract(made_up, clones(made_up)) == 4
    rate, mfu, _, large = read_source(made_up)[1]
    assert rate.settings["shape"] == shape.format(context=1024) and rate.settings["context"] == "1024"
    assert rate.kind == "rate" and mfu.kind == "mfu" and mfu.value == 0.125
    asked: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 4096}
    assert predict(large) == (plan(**asked, tokens_per_second=1_100)["mfu"],) * 2
    assert predict(large._replace(what="tokens_per_second")) == (plan(**asked)["tokens_per_second"],) * 2
    silent = {name: value for name, value in large.settings.items() if name != "tokens_per_second"}
    with pytest.raises(ValueError, match="an MFU, and no speed"):
        predict(large._replace(settings=silent))
    a_gpu = large._replace(settings=silent, found={"tokens_per_second_a_gpu": "1,100"})
    assert predict(a_gpu) == (plan(**asked, tokens_per_second=8_800)["mfu"],) * 2
    change(made_up, "c = { model", "d = { model")
    with pytest.raises(ValueError, match=r"peaks, row 1: size = 'c' has no meaning; add it to means\.size"):
        extract(made_up, clones(made_up))


def test_a_cell_that_spans_lines_and_several_files(made_up: Path) -> None:
    clone = clones(made_up) / "some" / "body"
    for name, peak in (("one.html", "11.5"), ("two.html", "12.5")):
        (clone / name).write_text(f"<tr>\n<td>3.25</td>\n<td>{peak}</td>\n</tr>\n", encoding="utf-8")
    text = head(commit(clone)) + '[[tables]]\nname = "peaks"\npath = ["one.html", "two.html"]\n' + SETTINGS
    text += r"""
pattern = '<td>[\d.]+</td>\s*<td>(?P<allocated_gb>[\d.]+)</td>'
rows = [{ label = "one" }, { label = "two", again = true }]
"""
    made_up.write_text(text, encoding="utf-8")
    assert extract(made_up, clones(made_up)) == 1  # the second is of a run that stands above
    change(made_up, ", again = true", "")
    assert extract(made_up, clones(made_up)) == 2
    assert [(each.path, each.line, each.literal) for each in read_source(made_up)[1]] == [
        ("one.html", 3, "11.5"),
        ("two.html", 3, "12.5"),
    ]


def test_a_discussion_holds_its_readings_itself(tmp_path: Path) -> None:
    path = tmp_path / "thread.toml"
    text = 'thread = "https://github.com/some/body/issues/1"\nwhen = "2025-01"\n[[tables]]\nname = "peaks"\n' + SETTINGS
    path.write_text(text + '\nrows = [{ smi_mib = "81,920", context = 512 }]\n', encoding="utf-8")
    assert extract(path, tmp_path) == 1
    ((reading,),) = read_source(path)[1:]
    assert reading.value == 80 * 2**30 and reading.line == 0 and reading.path.endswith("/issues/1")
    assert "smi_mib" not in reading.settings


def made(what: str, literal: str, about: dict[str, Any] | None = None, **settings: Any) -> Reading:
    asked = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 8192, **settings}
    return Reading("made-up", "peaks", 0, "", 0, what, literal, asked, about or {}, {}, None, None)


def test_a_meter_says_what_it_shows() -> None:
    """Tensors; all of the card; where the meter is not known both, and where a G is not said either in each."""
    lines = plan(**made("reserved_gib", "1").settings)["memory_bytes"]
    whole, tensors = lines["total"], lines["total"] - lines["allowance"]
    assert tensors < whole
    assert predict(made("allocated_gib", "1")) == predict(made("reserved_mib", "1")) == (tensors, tensors)
    assert predict(made("smi_gb", "1")) == (whole, whole)
    assert predict(made("memory_gib", "1")) == (tensors, whole)
    assert predict(made("memory_g", "1")) == (tensors * 1e9 / 2**30, whole)
    assert made("memory_g", "2").value == 2e9 and made("memory_gib", "2").value == 2**31
    assert predict(made("allocated_gib", "1", {"summed_gpus": [2, 8]})) == (2 * tensors, 8 * tensors)


def test_a_setting_that_is_not_known_leaves_an_interval() -> None:
    low, high = predict(made("reserved_gib", "1", context=[2048, 8192]))
    assert low == predict(made("reserved_gib", "1", context=2048))[0]
    assert high == predict(made("reserved_gib", "1"))[0] > low
    assert [nearest_ratio(said, 100) for said in ((90, 110), (120, 130), (70, 80), (100, 100))] == [1, 1.2, 0.8, 1]
    with pytest.raises(ValueError, match="questions, more than"):
        predict(made("reserved_gib", "1", context=list(range(1, 300))))


def test_rates_are_at_the_mfu_that_is_assumed() -> None:
    found = plan(**made("step_seconds", "1").settings)
    said = {"tokens_per_second": found["tokens_per_second"], "step_seconds": found["step_seconds"]}
    said["tokens_per_second_a_gpu"] = found["tokens_per_second"] / 8
    said["run_seconds"] = 1_000_000 / found["tokens_per_second"]
    for what, number in said.items():
        assert predict(made(what, "1", {"run_tokens": 1_000_000}, tokens_per_second=5)) == (number, number)


def test_what_is_missing_counts_as_missing(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(made_up, "{ context = 1024, seen = true }", '{ context = 1024, memory_missing = "a compiler" }')
    change(made_up, "{ context = 4096 }", '{ context = 4096, missing = "a network" }')
    assert published.main([str(made_up.parent), "--extract", str(clones(made_up))]) == 0
    printed = capsys.readouterr().out
    assert "51.5  a compiler\n" in printed and "61.25  a network\n" in printed
    assert "memory: 0 of 2 readings of 1 sources can be asked" in printed
    assert "rate: 1 of 2 readings of 1 sources can be asked" in printed


def test_the_error_is_over_sources_first() -> None:
    exact = predict(made("allocated_bytes", "1"))[0]
    readings = [made("allocated_bytes", str(exact / (1 + error))) for error in (0.5, 0.5, 0.5, 0.1)]
    readings[-1] = readings[-1]._replace(source="other", first=(exact / 2, exact / 2))
    compared = list(published.compare(readings))
    found = published.errors(compared)
    assert found["median_error_share"] == pytest.approx(0.3) and found["within_share"] == 0.25
    assert (found["readings"], found["sources"], found["too_small"], found["too_large"]) == (4, 2, 0, 3)
    assert (found["low_ratio"], found["high_ratio"]) == pytest.approx((1.1, 1.5))
    assert published.errors(compared[-1:], published.at_first)["low_ratio"] == pytest.approx(0.55)


def test_an_interval_holds_its_reading_or_not() -> None:
    said = [(90.0, 110.0), (110.0, 120.0), (100.0, 100.0)]
    compared = [Compared(made("allocated_bytes", "100"), each, "") for each in said]
    found = published.contained(compared)
    assert (found["readings"], found["within"]) == (2, 1) and found["median_width_share"] == pytest.approx(0.15)


def test_a_single_row_can_say_something_else() -> None:
    table = {"rows": [{"context": 1}, {"context": 2}], "columns": [{"zero": 2}, {"zero": 3}]}
    told = published.rows_of({**table, "cells": {"2": {"zero": 1, "label": "two cards"}}})
    assert told[2] == {"context": 2, "zero": 1, "label": "two cards"}
    assert [*told[:2], told[3]] == [*published.rows_of(table)[:2], published.rows_of(table)[3]]


FAR = """[[far]]
where = { row = [1, 2], what = "reserved_gib" }
why = "meter"
en = "What was reserved."
zh = "预留的显存。"
"""


def test_what_is_known_of_a_far_reading_is_printed_with_it(made_up: Path) -> None:
    made_up.write_text(made_up.read_text(encoding="utf-8") + FAR, encoding="utf-8")
    extract(made_up, clones(made_up))
    compared = list(published.compare(read_source(made_up)[1]))
    first, *told = published.told_far(compared, {"made-up": published.read_head(made_up)})
    assert first == "farther off than 15%: 2 readings of memory"
    assert told[0] == "  made-up: nothing is said; write it into its file, under [[far]]" and "51.5" in told[1]
    assert told[2] == "  made-up: meter: What was reserved." and "61.25" in told[3]
    change(made_up, '"meter"', '"because"')
    with pytest.raises(ValueError, match=r"what is far off has `where`, `why` \(lacking, meter"):
        read_source(made_up)


def test_what_is_known_is_of_readings_that_are_far_off_and_of_no_others() -> None:
    """By the record of what their meters show, which counts each; its snippet has a sentence for each such reading."""
    (record,) = list((ROOT / "measurements").glob("intel*/published_meters.json"))
    of_record = {each["en"] for each in json.loads(record.read_text(encoding="utf-8"))["values"]["far"]}
    assert {far["en"] for path in SOURCES for far in published.read_head(path).get("far", [])} == of_record


def test_a_row_without_a_reading_stays_where_its_table_says_what_that_is(made_up: Path) -> None:
    extract(made_up, clones(made_up))
    assert published.read_empty(made_up) == []
    change(made_up, 'name = "peaks"', 'name = "peaks"\nempty = "died"')
    assert extract(made_up, clones(made_up)) == 4
    (dead,) = published.read_empty(made_up)
    assert (dead.row, dead.line, dead.settings["context"]) == (1, 5, 2048)
    assert published.main([str(made_up.parent), "--first"]) == 0 and published.read_empty(made_up) == [dead]


def test_it_is_a_command(made_up: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "published", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    done = run(str(made_up.parent), "--extract", str(clones(made_up)))
    assert done.returncode == 0 and done.stdout.startswith("made-up: 4 readings\n") and not done.stderr
    wrong = run(str(clones(made_up)))
    assert wrong.returncode == 2 and wrong.stderr.startswith("python -m published: ") and "no source" in wrong.stderr
