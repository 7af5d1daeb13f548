"""Every record is valid, sane, and fresh or known to be stale; one that is not is refused with its file."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ledger.book import Book, LedgerError
from ledger.compare import misprinted, moved
from ledger.record import Record, Records, is_stale
from ledger.run import run
from ledger.site import makeExtension
from ledger.snippet import SLOW, Snippet
from ledger.units import Plain, is_device_value
from tests import draw
from tests.conftest import ROOT

BOOK = Book(ROOT)
COMMITTED = sorted(BOOK.measurements.glob("*/*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_committed_records_are_valid_and_have_their_provenance(path: Path) -> None:
    record = Record.read(path)
    assert record.device["id"] == path.parent.name
    assert record.snippet in BOOK.snippet_names()
    private = re.compile(r"/root/|/home/|/Users/|hostname", re.IGNORECASE)
    assert not private.search(path.read_text()), "a record names no user, host or path of a machine"


@cache
def committed() -> Records:
    return Records.load(BOOK, local=False)


def test_every_snippet_has_a_fresh_record_somewhere() -> None:
    records = committed()
    stale = []
    for name, path in BOOK.snippet_files().items():
        snippet = Snippet.read(path)
        found = {device: records.get(device, name) for device in records.by_device}
        if all(is_stale(record, snippet) for record in found.values()):
            stale.append(name)
    assert not stale, f"python -m ledger carry {' '.join(stale)}, or record where what is measured has changed"


def fresh_records(records: Records, snippet: Snippet) -> dict[str, Record]:
    """Those of a snippet as it is now, by device."""
    found = records.by_device
    fresh = {device: record for device in found if (record := found[device].get(snippet.name))}
    return {device: record for device, record in fresh.items() if not is_stale(record, snippet)}


def is_run(records: Records, snippet: Snippet, chosen: bool) -> bool:
    """Whether a snippet is run again: one that is chosen, and where no record is of the code as it is."""
    return chosen or not fresh_records(records, snippet)


FAST = [name for name, path in BOOK.snippet_files().items() if path.parent.name != SLOW]
CHOSEN = BOOK.snippet_names() if draw.ALL else draw.drawn(FAST, len(FAST) // 8)


@pytest.mark.parametrize("name", BOOK.snippet_names())
def test_a_fresh_run_gives_the_exact_values_and_prints_of_every_fresh_record(name: str) -> None:
    """Of code that has not changed since its record, which a run confirmed then, a part is run: machines differ."""
    snippet = Snippet.read(BOOK.snippet_file(name))
    if not is_run(committed(), snippet, name in CHOSEN):
        pytest.skip("its record is of this code, and it is not drawn: make test SLOW=1")
    now = run(snippet)
    for device, record in fresh_records(committed(), snippet).items():
        assert [*moved(record.values, now.values)] == [], device
        assert [*misprinted(snippet, record.outputs, record.values, now.outputs, now.values)] == [], device


def test_a_snippet_is_run_again_on_request_and_once_it_has_changed(small_book: Book) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    script = small_book.snippets / "good.py"
    slow, source = small_book.snippets / "slow" / "good.py", script.read_text()

    def runs(script: Path, source: str, chosen: bool = False) -> bool:
        script.write_text(source)
        return is_run(Records.load(small_book, local=False), Snippet.read(script), chosen)

    assert not runs(script, source) and runs(script, source, chosen=True)
    slow.parent.mkdir()
    script.rename(slow)
    assert not runs(slow, source), "its record is of this code: where it lies is no part of it"
    assert runs(slow, source.replace("4 * 8", "4 * 9"))
    path.unlink()
    assert runs(slow, source), "no record at all"


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_only_a_gpu_has_is_not_called_exact(path: Path) -> None:
    values = Record.read(path).values
    absent = [name for name, value in values.items() if value is None and not is_device_value([name])]
    assert absent == [], "begin their names with measured_ or predicted_"


THERE: dict[str, Any] = {
    "size_bytes": 8,
    "rows": [{"share": 0.5, "measured_ratio": 2.0}, {}],
    "sizes": {"small": 1},
    "best_seconds": {"a": 1.0},
}
MOVED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "what depends on the device": (
        {"best_seconds": {"b": 2.0}, "rows": [{"share": 0.5, "measured_ratio": 3.0}, {}]},
        [],
    ),
    "a number": ({"size_bytes": 9}, ["size_bytes: 8 there, 9 here"]),
    "the last digit of a sum": ({"rows": [{"share": math.nextafter(0.5, 1), "measured_ratio": 2.0}, {}]}, []),
    "a digit that is printed": (
        {"rows": [{"share": 0.5000000001, "measured_ratio": 2.0}, {}]},
        ["rows.0.share: 0.5 there, 0.5000000001 here"],
    ),
    "one in a list": ({"rows": [{"share": 0.25}, {}]}, ["rows.0.share: 0.5 there, 0.25 here"]),
    "an object that holds nothing": ({"rows": [{"share": 0.5}, []]}, ["rows.1: {} there, [] here"]),
    "a longer list": ({"rows": [{"share": 0.5}, {}, {}]}, ["rows.2: nothing there, {} here"]),
    "a key": (
        {"sizes": {"large": 1}},
        ["sizes.large: nothing there, 1 here", "sizes.small: 1 there, nothing here"],
    ),
    "nothing, where a number was": ({"size_bytes": None}, ["size_bytes: 8 there, None here"]),
}


@pytest.mark.parametrize("change", MOVED)
def test_an_exact_value_that_moves_is_named_with_both_values(change: str) -> None:
    here, lines = MOVED[change]
    assert [*moved(THERE, THERE | here)] == lines


@pytest.mark.parametrize(
    ("prints", "asks"), [("4 * 8", False), ("torch.cuda.device_count()", True), ("measured_rate", True)]
)
def test_a_section_that_asks_for_the_device_may_print_another(
    write_snippet: Callable[[str], Path], prints: str, asks: bool
) -> None:
    snippet = Snippet.read(write_snippet(f"# --8<-- [start:told]\nprint({prints})\n# --8<-- [end:told]\n"))
    there: dict[str, Plain] = {"measured_rate": 1.0}
    here: dict[str, Plain] = {"measured_rate": 2.0}
    found = [*misprinted(snippet, {"told": "0"}, there, {"told": "1"}, here)]
    assert found == ([] if asks else ["section 'told' prints other numbers, though it uses nothing that was measured"])


# Bad records

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "MFU over 1.2": ({"values": {"mfu": {"bf16": 1.21}}}, r"mfu\.bf16 is 1\.21: more than 1\.2 times the peak"),
    "more than the peak": (
        {"values": {"copies": {"peak_share": 1.21}}},
        r"copies\.peak_share is 1\.21: more than 1\.2 times the peak",
    ),
    "more than the peak, below": ({"values": {"x_peak_share": {"fp8": 1.3}}}, r"x_peak_share\.fp8 is 1\.30"),
    "less than nothing": ({"values": {"x_bytes": [-1]}}, r"x_bytes\.0 is -1, less than nothing"),
    "wrong type": ({"values": []}, r"'values' is a list"),
    "a key too many": ({"code": "import os"}, r"'code' does not belong in a record"),
    "another snippet's": ({"snippet": "other"}, r"is named 'good' but is a record of 'other'"),
    "another format": ({"format": 2}, r"format 2; this ledger reads format 1"),
    "no hash": ({"hash": "abc"}, r"'hash' is no SHA-256"),
    "no date": ({"measured_at": "yesterday"}, r"'measured_at' is no date"),
    "an environment of no texts": (
        {"software": {"torch": "2", "python": "3", "environment": {"X": 1}}},
        r"software\.environment is no object of texts",
    ),
    "no such kind": ({"device": {"id": "x", "kind": "abacus", "name": "x"}}, r"device\.kind is 'abacus'"),
    "a long name": (
        {"device": {"id": "x", "kind": "cpu", "name": "x" * 101}},
        r"device\.name is missing or no short text",
    ),
}


@pytest.mark.parametrize("mistake", BAD)
def test_a_bad_record_is_refused(small_book: Book, mistake: str) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    change, message = BAD[mistake]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(LedgerError) as caught:
        Record.read(path)
    assert re.search(r"good\.json: " + message, str(caught.value)), caught.value


def test_a_clock_above_the_datasheets_is_no_mistake_and_is_told(small_book: Book) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    values = {"mfu": 1.1, "copies": {"peak_share": 1.2}, "peak_share": 0.9, "busy_share": 1.1, "x_ratio": 2.0}
    path.write_text(json.dumps({**json.loads(path.read_text()), "values": values}))
    assert Record.read(path).over_peak() == ["mfu", "copies.peak_share"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1,', r"good\.json:1: not a record, or a truncated one"),
        ("[1]", r"good\.json:1: not a record: a JSON list"),
        ('{"format": 1, "seconds": NaN}', "NaN is no number of JSON"),
        ("", "truncated"),
        ("[" * 99999, "truncated"),
    ],
)
def test_what_is_no_record_is_refused(small_book: Book, text: str, message: str) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    path.write_text(text)
    with pytest.raises(LedgerError) as caught:
        Record.read(path)
    assert re.search(message, str(caught.value)), caught.value


def test_a_record_in_another_devices_folder_is_refused(small_book: Book) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    moved = small_book.measurements / "nvidia-h200" / "good.json"
    moved.parent.mkdir()
    path.rename(moved)
    with pytest.raises(LedgerError, match=r"good\.json: comes from .* but lies in 'nvidia-h200'"):
        Records.load(small_book)


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_record_of_a_stand_in_is_refused(small_book: Book, when: str) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    record = json.loads(path.read_text())
    record["device"][when] = {"driver": "580.1"}
    path.write_text(json.dumps(record))
    assert Records.load(small_book).by_device
    record["device"][when] = {"driver": "stand-in"}
    path.write_text(json.dumps(record))
    with pytest.raises(LedgerError, match=r"good\.json: rehearsed on a stand-in GPU, not measured"):
        Records.load(small_book)


def test_the_widest_spread_is_told_with_its_own_trials(small_book: Book) -> None:
    from markdown import Markdown

    (path,) = small_book.measurements.glob("*/good.json")
    record = json.loads(path.read_text())
    steady, wide, absent = ((1.0, 0.01, 3), (1.0, 0.2, 9), (None, 0.9, 1))
    many = (1.0, 0.1, 50)
    record["values"] |= {
        name: dict(zip(("median_seconds", "spread", "trials"), timing, strict=True))
        for name, timing in (("steady", steady), ("wide", wide), ("many", many), ("absent", absent))
    }
    path.write_text(json.dumps(record))
    assert Record.read(path).largest_spread == (0.2, 9)
    extension = makeExtension(root=str(small_book.root), default_device=path.parent.name)
    page = Markdown(extensions=[extension]).convert("# Page\n\n{{ good.size_bytes }}\n")
    assert "<td>20.0 % (9 trials)</td>" in page


def test_markup_in_a_devices_name_is_escaped(small_book: Book) -> None:
    from markdown import Markdown

    (path,) = small_book.measurements.glob("*/good.json")
    record = json.loads(path.read_text())
    record["device"]["name"] = "<img src=x onerror=alert(1)>"
    record["outputs"]["count"] = "</code><script>alert(1)</script>"
    path.write_text(json.dumps(record))
    extension = makeExtension(root=str(small_book.root), default_device=path.parent.name)
    page = Markdown(extensions=[extension]).convert("{{ good.measured_seconds }}\n\n/// output | good:count\n///\n")
    assert "&lt;img" in page and "<img" not in page
    assert "&lt;script" in page and "<script>alert" not in page


# The hash


def hash_in(folder: Path, source: str, **modules: str) -> str:
    """Of a snippet beside a library of these modules; a package's name ends in an underscore."""
    (folder / "snippets").mkdir(parents=True, exist_ok=True)
    for name, text in {"__init__": "", **modules}.items():
        place = f"{name}/__init__" if name.endswith("_") and name != "__init__" else name
        path = folder / "flops_bytes" / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (path := folder / "snippets" / "it.py").write_text(source)
    return Snippet.read(path).hash


def test_the_hash_ignores_what_changes_no_result(tmp_path: Path) -> None:
    def hash_of(source: str, helper: str) -> str:
        return hash_in(tmp_path, source, measure=helper)

    helper = "SIZE = 2\ndef used():\n    return SIZE\ndef unused():\n    return 1\n"
    source = 'from flops_bytes.measure import used\nx = used()\ntext = "a # b"\n'
    first = hash_of(source, helper)
    assert hash_of("# a comment\n\n" + source.replace("used()\n", "used()  # why\n"), helper) == first
    assert hash_of(source, helper.replace("return 1", "return 2")) == first
    assert hash_of(source, helper + "\n\ndef new():\n    return 2\n") == first
    assert (
        hash_of('"""What it is."""\n' + source, helper.replace("used():", 'used():\n    """Two\n\n    lines."""'))
        == first
    )
    assert hash_of(source + "'a text'\n", helper) != first, "no docstring"
    assert hash_of(source, helper.replace("SIZE = 2", "SIZE = 3")) != first
    assert hash_of(source, helper.replace("return SIZE", "return SIZE + 1")) != first
    assert hash_of(source.replace("# b", "# c"), helper) != first
    assert hash_of("# --8<-- [start:a]\n" + source + "# --8<-- [end:a]\n", helper) != first


def test_the_hash_holds_a_docstring_that_its_module_asks_for(tmp_path: Path) -> None:
    source = '"""Usage."""\nprint(__doc__)\n'
    assert hash_in(tmp_path, source) != hash_in(tmp_path, source.replace("Usage", "Use"))


MODULES = {
    "helper": "from flops_bytes import further\nfrom flops_bytes.further import TEN as TWICE_FIVE\n"
    "@further.wrap(1)\ndef used():\n    return further.SIZE + TWICE_FIVE\ndef unused():\n    return further.UNUSED\n",
    "further": "SIZE = 2\nSIZE += 1\nOTHER = 3\nTEN = 10\nUNUSED = 5\ndef wrap(n):\n    return lambda f: f\n",
    "package_": "from flops_bytes.helper import used as passed_on\n",
}
CHANGES = {  # a module, what it says, what it says then, and whether another hash follows
    "what is used as module.name": ("helper", "return further.SIZE", "return 2 + further.SIZE", True),
    "a decorator": ("helper", "wrap(1)", "wrap(2)", True),
    "a module's module": ("further", "SIZE = 2", "SIZE = 3", True),
    "the second time that a name is bound": ("further", "SIZE += 1", "SIZE += 2", True),
    "a module's module, by another name": ("further", "TEN = 10", "TEN = 11", True),
    "a module's module that decorates": ("further", "return lambda", "return lambda g: lambda", True),
    "a module's module that is used here too": ("further", "OTHER = 3", "OTHER = 4", True),
    "what nobody uses": ("helper", "return further.UNUSED", "return 2 + further.UNUSED", False),
    "what only that uses": ("further", "UNUSED = 5", "UNUSED = 6", False),
}
USES = {
    "a name": "from flops_bytes.helper import used\nx = used()\n",
    "a module": "from flops_bytes import helper\nx = helper.used()\n",
    "a module by another name": "from flops_bytes import helper as h\nx = h.used()\n",
    "a module, whole": "import flops_bytes.helper as h\nx = h.used()\n",
    "a name that a package passes on": "from flops_bytes.package_ import passed_on\nx = passed_on()\n",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("use", USES)
def test_the_hash_follows_what_is_used_of_the_library(tmp_path: Path, use: str, change: str) -> None:
    source = f"from flops_bytes.further import OTHER\n{USES[use]}"
    name, old, new, is_followed = CHANGES[change]
    assert old in MODULES[name]
    before = hash_in(tmp_path / "before", source, **MODULES)
    after = hash_in(tmp_path / "after", source, **MODULES | {name: MODULES[name].replace(old, new)})
    assert (before != after) is is_followed


FLAT = {
    "source": "from flops_bytes import helper\nfrom flops_bytes.one import same\nfrom flops_bytes.two import other\n"
    "x = helper.late(), same(), other()\n",
    "helper": "def late():\n    from flops_bytes.two import other, same as twin\n    return twin(), other()\n",
    "one": "def same():\n    return 1\n",
    "two": "def same():\n    return 2\ndef other():\n    return 3\n",
}
IN_ROOMS = {
    "source": "from flops_bytes.room_ import (\n    aid as helper,\n    same,\n)\nfrom flops_bytes.a import other\n"
    "x = helper.late(), same(), other()\n",
    "room_": FLAT["one"],
    "room_/aid": FLAT["helper"].replace(
        "from flops_bytes.two import other, same as twin",
        "from flops_bytes.room_.two import same as twin\n    from flops_bytes.a import other",
    ),
    "room_/two": "def same():\n    return 2\n",
    "a": "def other():\n    return 3\n",
}
EXCHANGED = {  # what says so, and what it says then: of two functions of one name, that the hash holds both, the other
    "in a snippet": ("source", "one import same", "two import same"),
    "inside a function": (
        "helper",
        "two import other, same as",
        "one import same as twin\n    from flops_bytes.two import other #",
    ),
    "of a whole module": ("source", "import helper", "import other as helper"),
}


def test_where_the_library_keeps_a_definition_is_no_part_of_the_hash(tmp_path: Path) -> None:
    """Neither the module's path nor which one it is, nor the order of those that are imported."""
    assert hash_in(tmp_path / "here", **FLAT) == hash_in(tmp_path / "there", **IN_ROOMS)


@pytest.mark.parametrize("way", EXCHANGED)
def test_which_of_two_is_imported_is_a_part_of_the_hash(tmp_path: Path, way: str) -> None:
    name, old, new = EXCHANGED[way]
    modules = FLAT | {"other": FLAT["helper"].replace("twin(), other()", "other(), twin()")}
    both = ("helper import late as a", "other import late as b", "one import same as c", "two import same as d")
    modules["source"] += "".join(f"from flops_bytes.{each}\n" for each in both) + "y = a(), b(), c(), d()\n"
    exchanged = modules | {name: modules[name].replace(old, new)}
    assert hash_in(tmp_path / "one", **modules) != hash_in(tmp_path / "other", **exchanged)


def test_modules_that_import_each_other_have_a_hash(tmp_path: Path) -> None:
    one, other = "from flops_bytes.other import b\na = 1\n", "from flops_bytes.one import a\nb = lambda: a\n"
    assert hash_in(tmp_path, "from flops_bytes.other import b\n", one=one, other=other)
    one, other = "from flops_bytes.other import a\n", "from flops_bytes.one import a\n"
    assert hash_in(tmp_path, "from flops_bytes.other import a\n", one=one, other=other), "what neither has"


UNFOLLOWED = {
    "another snippet": ("import other\n", r"it\.py:1: imports the snippet 'other'; .* belongs in flops_bytes/"),
    "a name of another snippet": ("x = 1\nfrom other import y\n", r"it\.py:2: imports the snippet 'other'"),
    "a module by its dotted name": ("import flops_bytes.helper\n", r"it\.py:1: write `from flops_bytes import …`"),
    "a relative import": ("from flops_bytes.near import x\n", r"near\.py:1: write `from flops_bytes\.… import …`"),
}


@pytest.mark.parametrize("way", UNFOLLOWED)
def test_what_the_hash_cannot_follow_is_refused(tmp_path: Path, way: str) -> None:
    source, message = UNFOLLOWED[way]
    hash_in(tmp_path, "x = 1\n", near="from .helper import used as x\n", **MODULES)
    (tmp_path / "snippets" / "other.py").write_text("y = 1\n")
    with pytest.raises(LedgerError, match=message):
        hash_in(tmp_path, source)


def test_the_hash_leaves_out_what_a_module_declares_unhashed(tmp_path: Path) -> None:
    """Wherever it is used: there, in a module that passes it on, or in the snippet."""

    def hash_with(table: str) -> str:
        gpus = f'# /// ledger\n# unhashed = ["PEAKS"]\n# ///\n{table}\ndef peak():\n    return PEAKS, WIDTH\n'
        return hash_in(tmp_path, source, gpus=gpus, measure=measure)

    source = "from flops_bytes.measure import PEAKS, peak, peaks\nx = peak(), peaks(), PEAKS\n"
    measure = "from flops_bytes.gpus import PEAKS, peak\ndef peaks():\n    return PEAKS\n"
    first = hash_with("PEAKS = {}\nWIDTH = 1")
    assert hash_with("PEAKS = {1: 2}\nWIDTH = 1") == first
    assert hash_with("PEAKS = {}\nWIDTH = 2") != first


def test_the_hash_follows_the_data_that_is_read(tmp_path: Path) -> None:
    """By the snippet, or by a module that it uses; bytes that are the same change nothing."""

    def hash_with(data: str) -> str:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(data)
        return hash_in(tmp_path, source, **modules)

    place, modules = tmp_path / "snippets" / "text.en.txt", {}
    source = '# /// script\n# [tool.ledger]\n# data = ["text.en.txt"]\n# ///\nx = 1\n'
    first = hash_with("one")
    assert hash_with("two") != first == hash_with("one")
    place = tmp_path / "flops_bytes" / "text.en.txt"
    modules = {"text": '# /// ledger\n# data = ["text.en.txt"]\n# ///\nx = 1\n'}
    source = "from flops_bytes.text import x\ny = x\n"
    first = hash_with("one")
    assert hash_with("two") != first == hash_with("one")


def test_the_hash_follows_published_readings(tmp_path: Path) -> None:
    """Each that the pattern finds, one that is added too; a record of a device is none."""
    folder = tmp_path / "measurements" / "published"
    folder.mkdir(parents=True)
    (folder.parent / "some-gpu").mkdir()
    pattern = "measurements/published/*.toml"

    def hash_now() -> str:
        return hash_in(tmp_path, f'# /// script\n# [tool.ledger]\n# data = ["{pattern}"]\n# ///\nx = 1\n')

    (folder / "a.toml").write_text("one")
    first = hash_now()
    (folder / "a.toml").write_text("two")
    second = hash_now()
    (folder / "b.toml").write_text("one")
    assert len({first, second, hash_now()}) == 3
    (folder / "b.toml").unlink()
    assert hash_now() == second
    (folder / "estimators").mkdir()
    (folder / "estimators" / "a.toml").write_text("one")
    assert hash_now() == second
    pattern = "measurements/published/estimators/*.toml"
    third = hash_now()
    (folder / "estimators" / "a.toml").write_text("three")
    assert len({second, third, hash_now()}) == 3
    (folder.parent / "some-gpu" / "a.toml").write_text("one")
    pattern = "measurements/some-gpu/*.toml"
    with pytest.raises(LedgerError, match="there is no file"):
        hash_now()


def other_pythons() -> list[str]:
    """Other supported Pythons on this machine, by version."""
    import shutil

    names = [f"python3.{minor}" for minor in (11, 12, 13) if minor != sys.version_info.minor]
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.1[1-3].*/bin/python"))
    return [path for path in map(shutil.which, names) if path] + [
        str(p) for p in pyenv if p.parent.parent.name[:4] != sys.version[:4]
    ]


def test_the_hash_is_the_same_on_another_python() -> None:
    pythons = [
        python for python in other_pythons() if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
    ]
    if not pythons:
        pytest.skip("there is no second Python on this machine")
    code = (
        "import sys; from pathlib import Path; from ledger.snippet import Snippet\n"
        "for path in sys.argv[1:]: print(Snippet.read(Path(path)).hash)"
    )
    paths = [str(path) for path in draw.drawn(BOOK.snippet_files().values(), 10)]
    for python in pythons:
        theirs = subprocess.run(
            [python, "-c", code, *paths], cwd=BOOK.root, capture_output=True, text=True, check=True
        ).stdout.split()
        assert theirs == [Snippet.read(Path(path)).hash for path in paths], python
