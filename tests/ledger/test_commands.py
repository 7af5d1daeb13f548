"""The commands do what their help says: run, record, compare, bundle, status, show; what is fresh is left alone."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown import Markdown

from ledger.__main__ import main
from ledger.book import Book
from ledger.measure import Measurement
from ledger.record import Record, local_folder
from ledger.site import makeExtension
from ledger.snippet import Snippet
from ledger.units import Plain
from tests.conftest import ROOT


def ledger(book: Book, *arguments: str) -> int:
    return main(["--root", str(book.root), *arguments])


def recorded(book: Book) -> Path:
    (path,) = book.measurements.glob("*/good.json")
    return path


def test_help_explains_every_command() -> None:
    command = [sys.executable, "-m", "ledger", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in ("run", "record", "compare", "check", "bundle", "status", "show"):
        assert f"    {name} " in text


def test_what_is_fresh_is_not_run_again(small_book: Book) -> None:
    assert ledger(small_book, "run") == 0
    path = local_folder(small_book) / "good.json"
    first = path.stat().st_mtime_ns
    assert ledger(small_book, "run") == 0
    assert path.stat().st_mtime_ns == first
    (small_book.snippets / "good.py").write_text("size_bytes = 33\n")
    assert ledger(small_book, "run") == 0
    assert Record.read(path).values == {"size_bytes": 33}


def test_an_edit_that_keeps_size_and_time_is_run(small_book: Book) -> None:
    path = small_book.snippets / "good.py"
    for size in (32, 33, 34):
        before = path.stat()
        path.write_text(f"size_bytes = {size}\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert ledger(small_book, "run") == 0
        assert Record.read(local_folder(small_book) / "good.json").values == {"size_bytes": size}


def test_an_edit_of_the_library_that_keeps_size_and_time_is_seen(small_book: Book) -> None:
    (helper := small_book.library / "helper.py").parent.mkdir()
    helper.with_name("__init__.py").touch()
    user = "from flops_bytes.helper import size_bytes as used\nuser_bytes = used\n"
    (small_book.snippets / "user.py").write_text(user)
    for size in (1, 2):
        helper.write_text(f"size_bytes = {size}\n")
        os.utime(helper, (1_000_000_000, 1_000_000_000))
        assert ledger(small_book, "run") == 0
        assert Record.read(local_folder(small_book) / "user.json").values == {"user_bytes": size}


def test_a_snippet_that_is_edited_while_others_run_is_run_next(small_book: Book) -> None:
    good = small_book.snippets / "good.py"
    edit = f"from pathlib import Path\nPath({str(good)!r}).write_text('size_bytes = 33\\n')\n"
    (small_book.snippets / "later.py").write_text(edit)
    for _ in range(2):
        assert ledger(small_book, "run") == 0
    assert Record.read(local_folder(small_book) / "good.json").values == {"size_bytes": 33}


def test_a_snippet_that_is_edited_while_it_runs_is_not_recorded(
    small_book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_book.snippets / "own.py").write_text("size = 1\nopen(__file__, 'a').write('other = 2\\n')\n")
    assert ledger(small_book, "run", "own") == 1
    assert "own.py: was changed while it ran, so it is not recorded; run it again" in capsys.readouterr().err
    assert not (local_folder(small_book) / "own.json").exists()


@pytest.mark.parametrize("command", ["run", "carry good"])
@pytest.mark.parametrize("limit", ["inf", "nan", "-1", "0", "1e300", "soon", "9" * 500])
def test_a_time_limit_that_is_none_is_refused(
    small_book: Book, command: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        ledger(small_book, *command.split(), f"--time-limit={limit}")
    assert caught.value.code == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "--time-limit" in told and "is no time limit; give seconds above 0, up to 604800 (a week)" in told
    assert len(told) < 200


def test_a_folder_or_a_pipe_that_is_called_a_snippet_is_named(
    small_book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_book.snippets / "a_folder.py").mkdir()
    os.mkfifo(small_book.snippets / "a_pipe.py")
    assert ledger(small_book, "run") == 1
    told = [re.sub(".*/", "", line) for line in capsys.readouterr().err.splitlines()]
    mend = "not a file; a snippet is one, so give this another name"
    assert told == [f"a_folder.py: {mend}", f"a_pipe.py: {mend}"]
    assert (local_folder(small_book) / "good.json").exists()


REFUSED = {  # a section that prints what it must not, values that cannot be: the lines at which they are refused
    "a progress bar": (
        "# --8<-- [start:bar]\nprint('1 %\\r2 %')\n# --8<-- [end:bar]\n",
        r":1: outputs\.bar: a text with the character U\+000D, .*; print without it",
    ),
    "colours": (
        "x = 1\n# --8<-- [start:bar]\nprint('\\33[1mbold')\n# --8<-- [end:bar]\n",
        r":2: outputs\.bar: a text with the character U\+001B, .*; print without it",
    ),
    "markup": ("x = 1\nlabel = 'a <b> c'\n", ":2: values.*<"),
    "half a character": ("label = '\\ud800'\n", r":1: values.*U\+D800"),
    "less than nothing": ("x = 1\ny = {'a_seconds': [1, -2]}\n", r":2: y\.a_seconds\.1 is -2, less than nothing"),
    "a negative share": ("saved_share = -0.5\n", r":1: saved_share is -0\.5, less than nothing"),
    "more than the peak": ("mfu = 1.5\n", r":1: mfu is 1\.50: more than 1\.2 times the peak"),
    "too deep": (f"x_bytes = {'[' * 30}{']' * 30}\n", ":1: nested more than 20 deep"),
    "too much": (
        "".join(f"text_{n} = 'x' * 60000\n" for n in range(20)),
        ": its record would be larger than 1048576 bytes; bind or print less",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_record_that_would_be_refused_is_refused_at_the_run(
    small_book: Book, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, message = REFUSED[what]
    (small_book.snippets / "bad.py").write_text(source)
    assert ledger(small_book, "run", "bad", "good") == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert re.search(r"bad\.py" + message, told), told
    assert [path.name for path in local_folder(small_book).glob("*.json")] == ["good.json"]


def wait_until(is_so: Callable[[], bool]) -> None:
    """Others may keep the cores busy for long: only what never comes fails."""
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_watched_snippet_is_run_again_when_it_changes(small_book: Book) -> None:
    command = [sys.executable, "-m", "ledger", "--root", str(small_book.root), "run", "--watch"]
    path = local_folder(small_book) / "good.json"

    def wait_for(size: int) -> None:
        wait_until(lambda: path.exists() and Record.read(path).values.get("size_bytes") == size)

    with subprocess.Popen(command, cwd=ROOT) as watcher:
        try:
            wait_for(32)
            (small_book.snippets / "good.py").write_text("1 / 0\n")  # an error on the way stops nothing
            wait_until((path.parent / ".looked").exists)  # and a preview of the pages hears of it
            (small_book.snippets / "good.py").write_text("size_bytes = 33\n")
            wait_for(33)
        finally:
            watcher.kill()


def test_a_snippet_whose_data_changed_is_run_again(small_book: Book) -> None:
    declared = '# /// script\n# [tool.ledger]\n# data = ["table.txt"]\n# ///\n'
    (small_book.snippets / "reader.py").write_text(
        f"{declared}from pathlib import Path\nread_bytes = len(Path(__file__).with_name('table.txt').read_bytes())\n"
    )
    for text in ("one", "three"):
        (small_book.snippets / "table.txt").write_text(text)
        assert ledger(small_book, "run") == 0
        assert Record.read(local_folder(small_book) / "reader.json").values == {"read_bytes": len(text)}


def test_who_watches_sees_the_library_change_and_survives_its_being_edited(small_book: Book) -> None:
    command = [sys.executable, "-m", "ledger", "--root", str(small_book.root), "run", "--watch"]
    path = local_folder(small_book) / "user.json"
    (helper := small_book.library / "helper.py").parent.mkdir()
    helper.with_name("__init__.py").touch()
    helper.write_text("size_bytes = 1\n")
    user = "from flops_bytes.helper import size_bytes as used\nuser_bytes = used\n"
    (small_book.snippets / "user.py").write_text(user)

    def wait_for(size: int) -> None:
        wait_until(lambda: path.exists() and Record.read(path).values == {"user_bytes": size})

    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as watcher:
        try:
            wait_for(1)
            helper.write_text("size_bytes = = 2\n")
            wait_until((path.parent / ".looked").exists)
            helper.write_text("size_bytes = 2\n")
            wait_for(2)
        finally:
            watcher.kill()
        told = watcher.stderr.read().splitlines() if watcher.stderr else []
    assert [re.sub(".*/", "", line) for line in told] == ["helper.py:1: not Python: invalid syntax"]


@pytest.mark.parametrize("meanwhile", ["size_bytes = 2\n", "size_bytes = = 2\n"])
def test_what_is_edited_while_it_fails_is_tried_again(small_book: Book, meanwhile: str) -> None:
    """The library here, whose code a snippet has loaded already: it fails with the old one, whatever is new."""
    (helper := small_book.library / "helper.py").parent.mkdir()
    helper.with_name("__init__.py").touch()
    helper.write_text("")
    edit = f"import pathlib\nimport flops_bytes.helper as it\npathlib.Path(it.__file__).write_text({meanwhile!r})\n"
    (small_book.snippets / "user.py").write_text(f"{edit}user_bytes = it.size_bytes\n")
    measurement = Measurement.here(small_book, ["user"])
    failed = measurement.run()
    assert failed.keys() == {"user"}
    helper.write_text("size_bytes = 2\n")
    if "= =" not in meanwhile:
        assert measurement.run(failed) == {}
        assert Record.read(measurement.folder / "user.json").values == {"user_bytes": 2}


def test_who_watches_looks_when_an_editor_is_done(small_book: Book) -> None:
    """An edit that comes in the same tick of the clock as a look would not be seen later."""
    measurement = Measurement.here(small_book, [])

    def looks_at_once() -> bool:
        began = time.monotonic()
        (small_book.snippets / "good.py").write_text("size_bytes = 33\n")
        return measurement._times() is not None and time.monotonic() - began < 0.05

    assert not any(looks_at_once() for _ in range(20))
    wait_until(lambda: measurement._times() is not None)


def test_two_at_once_wait_for_each_other_and_measure_once(small_book: Book) -> None:
    runs = small_book.root / "runs"
    for number in range(4):
        (small_book.snippets / f"part_{number}.py").write_text(f"""\
import time
with open({str(runs)!r}, "a") as log:
    log.write("begin {number}\\n")
    log.flush()
    time.sleep(0.3)
    log.write("end {number}\\n")
""")
    command = [sys.executable, "-m", "ledger", "--root", str(small_book.root), "record"]
    both = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(process.communicate()[1], process.returncode) for process in both] == [("", 0), ("", 0)]
    lines = runs.read_text().splitlines()
    assert lines[::2] == [f"begin {number}" for number in range(4)]
    assert lines[1::2] == [f"end {number}" for number in range(4)]


def test_a_full_disk_is_named(small_book: Book, tmp_path_factory: pytest.TempPathFactory) -> None:
    full = tmp_path_factory.mktemp("full")
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(full)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs privileges")
    try:
        (small_book.snippets / "large.py").write_text("text = 'x' * 65000\n")
        device = recorded(small_book).parent
        shutil.rmtree(device)
        device.symlink_to(full)
        command = [sys.executable, "-m", "ledger", "--root", str(small_book.root), "record", "large"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(r".*/large\.json: No space left on device\n", done.stderr)
        assert not list(full.iterdir()), "an unfinished file was left"
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_a_check_needs_nothing_that_it_could_write(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(small_book.cache, ignore_errors=True)
    small_book.cache.write_text("a file, as in a tree that is read alone nothing can be made")
    assert ledger(small_book, "check", "--committed") == 0 and capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written_is_named(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(small_book.measurements)
    small_book.measurements.write_text("a file where a folder should be")
    assert ledger(small_book, "record") == 1
    assert re.search(r"good\.json: (Not a directory|File exists)\n$", capsys.readouterr().err)


def test_another_locale_and_umask_change_nothing(small_book: Book) -> None:
    (small_book.snippets / "good.py").write_text("print('步幅')\ntext = '步幅'\n", encoding="utf-8")
    command = f"umask 077; LC_ALL=C exec {sys.executable} -m ledger --root {small_book.root} record"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert Record.read(recorded(small_book)).values == {"text": "步幅"}


def test_one_broken_snippet_does_not_keep_the_others_from_being_run(
    small_book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_book.snippets / "a_broken.py").write_text("1 / 0\n")
    (small_book.snippets / "b_missing.py").write_text("import no_such_module\n")
    assert ledger(small_book, "run") == 1
    told = capsys.readouterr().err
    assert "a_broken.py:1: the snippet raised" in told
    assert "b_missing: skipped, needs no_such_module, which is not installed" in told
    assert [path.stem for path in local_folder(small_book).glob("*.json")] == ["good"]


TOLD: dict[str, dict[str, Plain]] = {
    "all": {"a_bytes": 1},
    "own": {"a_seconds": 1.0},
    "part": {"measured_b": [1.0, None]},
}


def test_what_no_device_has_told_is_recorded_first_and_what_all_tell_alike_last(
    small_book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(small_book)
    (small_book.snippets / "a_new.py").write_text("raise ValueError('new')\n")
    for name, values in TOLD.items():
        (small_book.snippets / f"{name}.py").write_text(f"raise ValueError({name!r})\n")
        for device in ("far", "near"):
            own: dict[str, Plain] = {"a_seconds": None} if (device, name) == ("near", "own") else values
            of_device = {"id": device, "kind": "cpu", "name": device}
            told = dataclasses.replace(Record.read(path), snippet=name, device=of_device, values=own)
            told.write(small_book.measurements / device / f"{name}.json")

    def tried(*options: str) -> list[str]:
        assert ledger(small_book, "record", *options) == 1
        return re.findall(r"ValueError: (\w+)", capsys.readouterr().err)

    assert tried() == ["part", "new", "own", "all"]
    assert tried("--measuring") == ["part", "new", "own"]
    assert tried("--measuring", "all") == ["all"]
    assert tried("--force", "--measuring") == ["part", "new", "own"]


BESIDE_THE_OTHER = """\
import os
import time

NAME, OTHER = {names!r}
os.mkdir(NAME)
for _ in range({patience}):
    time.sleep(0.01)
    if os.path.exists(OTHER) or os.path.exists(OTHER + "-done"):
        break
is_beside_it = os.path.exists(OTHER)
os.rename(NAME, NAME + "-done")
{last}
"""


@pytest.mark.parametrize(
    ("last", "patience", "together"), [("a_bytes = 1", 3000, True), ("a_seconds = 1.0", 30, False)]
)
def test_only_what_is_known_to_measure_nothing_runs_beside_others(
    small_book: Book, tmp_path: Path, last: str, patience: int, together: bool
) -> None:
    for names in (("one", "two"), ("two", "one")):
        paths = [str(tmp_path / name) for name in names]
        path = small_book.snippets / f"{names[0]}.py"
        path.write_text(BESIDE_THE_OTHER.format(names=paths, last=last, patience=patience))
        value: Plain = 1 if together else 1.0
        of_device = {"id": "far", "kind": "cpu", "name": "far"}
        told = dataclasses.replace(Record.read(recorded(small_book)), snippet=names[0], device=of_device)
        told = dataclasses.replace(told, hash=Snippet.read(path).hash, values={last.split()[0]: value}, outputs={})
        told.write(small_book.measurements / "far" / f"{names[0]}.json")
    assert ledger(small_book, "run", "one", "two") == 0
    found = [Record.read(local_folder(small_book) / f"{name}.json").values["is_beside_it"] for name in ("one", "two")]
    assert any(found) == together  # who is done first has renamed its folder


def test_an_unknown_snippet_is_named(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    assert ledger(small_book, "record", "nosuch") == 1
    assert "nosuch.py: there is no such snippet" in capsys.readouterr().err


def test_status_tells_fresh_stale_and_absent(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    (small_book.snippets / "other.py").write_text("x = 1\n")
    assert ledger(small_book, "status") == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["fresh", "good"],
        ["absent", "other"],
    ]
    (small_book.snippets / "good.py").write_text("size_bytes = 33\n")
    assert ledger(small_book, "status") == 0
    assert ["stale", "good"] in [line.split()[:2] for line in capsys.readouterr().out.splitlines()]


def write_slow(book: Book, source: str) -> None:
    (path := book.snippets / "slow" / "long.py").parent.mkdir()
    path.write_text(source)


def test_slow_snippets_are_run_on_purpose_alone(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    write_slow(small_book, "slow_bytes = 1\n")
    (small_book.snippets / "short.py").write_text("short_bytes = 1\n")
    folder = recorded(small_book).parent

    def there() -> list[str]:
        return sorted(path.stem for path in folder.glob("*.json"))

    assert ledger(small_book, "record") == 0
    assert there() == ["good", "short"]
    assert ledger(small_book, "status") == 0
    assert "  absent long  slow" in capsys.readouterr().out.splitlines()
    assert ledger(small_book, "record", "--slow") == 0
    assert there() == ["good", "long", "short"], "that all others are done says nothing of the slow ones"
    for name in there():
        (folder / f"{name}.json").unlink()
    assert ledger(small_book, "record", "--slow") == 0
    assert there() == ["long"]
    assert ledger(small_book, "record", "long", "--force") == 0
    assert ledger(small_book, "record") == 0
    assert there() == ["good", "long", "short"]
    assert ledger(small_book, "run") == 0
    assert not (local_folder(small_book) / "long.json").exists()
    assert ledger(small_book, "run", "long") == 0
    assert (local_folder(small_book) / "long.json").exists()


def test_a_slow_snippets_time_limit_is_not_that_of_the_others(
    small_book: Book, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ledger.snippet.TIME_LIMIT_SECONDS", 0.3)
    write_slow(small_book, "import time\ntime.sleep(0.6)\n")
    assert ledger(small_book, "record", "--slow") == 0
    assert ledger(small_book, "record", "--slow", "--force", "--time-limit", "0.1") == 1
    assert "long.py: did not end within 0.1 seconds" in capsys.readouterr().err


def test_a_variable_that_changes_results_keeps_a_record_from_being_made(
    small_book: Book, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(small_book).read_text()
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # set to nothing is not set
    assert ledger(small_book, "record", "--force") == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert "NVIDIA_TF32_OVERRIDE=0, PYTORCH_ALLOC_CONF=expandable_segments:True" in told
    assert "env -u NVIDIA_TF32_OVERRIDE -u PYTORCH_ALLOC_CONF python -m ledger record" in told
    assert "OMP_NUM_THREADS" not in told
    assert recorded(small_book).read_text() == before
    assert ledger(small_book, "run") == 0, "a local run only notes it"
    noted = Record.read(local_folder(small_book) / "good.json").software["environment"]
    assert noted == {"NVIDIA_TF32_OVERRIDE": "0", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def test_a_variable_that_chooses_a_kernel_of_torch_is_noted_and_shown(
    small_book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "environment" not in Record.read(recorded(small_book)).software
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    assert ledger(small_book, "record", "--force") == 0
    path = recorded(small_book)
    assert Record.read(path).software["environment"] == {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}
    extension = makeExtension(root=str(small_book.root), default_device=path.parent.name)
    page = Markdown(extensions=[extension]).convert("# Page\n\n{{ good.size_bytes }}\n")
    assert re.search(r"<td>torch [^<]*, TORCH_CUDNN_SDPA_DEPRIORITIZED=1</td>", page)


def timing(seconds: float, spread: float) -> Plain:
    return {"median_seconds": seconds, "spread": spread, "trials": 5}


def test_status_tells_where_a_local_run_and_the_record_disagree(
    small_book: Book, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ledger(small_book, "run") == 0
    path = recorded(small_book)
    here = Record.read(local_folder(small_book) / "good.json")
    ours: dict[str, Plain] = {
        "near": timing(1.0, 0.1),
        "off": [timing(1.0, 0.01)],
        "far": timing(3.0, 0.1),
        "gone": timing(1.0, 0.1),
    }
    theirs: dict[str, Plain] = {"near": timing(1.15, 0.1), "off": [timing(1.05, 0.01)], "far": timing(1.0, 0.1)}
    dataclasses.replace(here, values=ours).write(local_folder(small_book) / "good.json")

    def told(**changes: Any) -> list[str]:
        published = dataclasses.replace(here, values=theirs)
        dataclasses.replace(published, **changes).write(path)
        assert ledger(small_book, "status") == 0
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if "apart" in line or "differs" in line]

    device = path.parent.name
    lines = [
        "this machine differs from its committed records by more than the spreads in 2 timings:",
        f"  good.far: 3.00 s here, 1.00 s in {device}, 3× apart",
        f"  good.off.0: 1.00 s here, 1.05 s in {device}, 1.05× apart",
    ]
    assert told() == lines
    assert told(hash="0" * 64) == [], "another code's"
    with monkeypatch.context() as patch:
        patch.setattr("ledger.compare.MAX_DISAGREEMENTS", 1)
        assert told() == [lines[0].replace("timings:", "timings, the first 1:"), lines[1]]
    moved = path.parent.with_name("other-cpu")
    path.parent.rename(moved)
    path = moved / "good.json"
    assert told(device={**here.device, "id": "other-cpu"}) == [], "another device's"


def test_a_stale_value_is_published_and_marked(small_book: Book) -> None:
    snippet = small_book.snippets / "good.py"
    snippet.write_text(snippet.read_text().replace("0.5", "0.25"))
    extension = makeExtension(root=str(small_book.root), default_device=recorded(small_book).parent.name)
    page = Markdown(extensions=[extension]).convert("{{ good.measured_seconds }}")
    assert 'class="measured stale"' in page and ">500 ms<" in page


def test_another_devices_stale_output_says_nothing_of_a_fresh_one(small_book: Book) -> None:
    fresh = recorded(small_book)
    record = json.loads(fresh.read_text())
    record["device"] |= {"id": "old-cpu", "name": "Old CPU"}
    record["hash"] = "0" * 64
    (small_book.measurements / "old-cpu").mkdir()
    (small_book.measurements / "old-cpu" / "good.json").write_text(json.dumps(record))
    extension = makeExtension(root=str(small_book.root), default_device=fresh.parent.name)
    page = Markdown(extensions=[extension]).convert("/// output | good:count\n///\n")
    labels = re.findall(r'class="output-where"[^>]*>([^<]*)<', page)
    assert ["the code has changed since" in label for label in labels] == [False, True]
    assert "Old CPU" in labels[1] and "Old CPU" not in labels[0]
    assert page.index(labels[0]) < page.index("<template") < page.index(labels[1]), "only what is shown is laid out"


def test_an_output_that_is_equal_wherever_it_was_printed_names_no_device(small_book: Book) -> None:
    """A device that has not printed it says nothing of it."""
    fresh = recorded(small_book)
    record = json.loads(fresh.read_text())
    for name, outputs in (("second-cpu", record["outputs"]), ("third-cpu", {})):
        (small_book.measurements / name).mkdir()
        of_device = record | {"device": record["device"] | {"id": name, "name": name}, "outputs": outputs}
        (small_book.measurements / name / "good.json").write_text(json.dumps(of_device))
    extension = makeExtension(root=str(small_book.root), default_device=fresh.parent.name)
    page = Markdown(extensions=[extension]).convert("/// output | good:count\n///\n")
    assert "<pre" in page and "output-where" not in page


def test_compare_sets_values_side_by_side(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    assert ledger(small_book, "run") == 0
    path = recorded(small_book)
    record = Record.read(path)
    there = dataclasses.replace(record, values={**record.values, "measured_seconds": 0.25, "size_bytes": 31})
    there.write(path)
    assert ledger(small_book, "compare", path.parent.name) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "measured_seconds" in line] == [
        ["measured_seconds", "500", "ms", "250", "ms", "2×"]
    ]
    assert any("size_bytes" in line and "differs, though it is exact" in line for line in lines)
    assert ledger(small_book, "compare", "nosuch") == 1
    assert f"there are: {path.parent.name}" in capsys.readouterr().err


def test_show_prints_what_a_section_prints_now(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    path = small_book.snippets / "good.py"
    path.write_text(path.read_text().replace("4 * 8", "4 * 9"))
    assert ledger(small_book, "show", "good:count") == 0
    assert capsys.readouterr().out == "36\n"
    assert ledger(small_book, "show", "good:nosuch") == 1
    assert "good.py: no section 'nosuch' prints anything; these do: count" in capsys.readouterr().err


def test_a_bundle_holds_a_pages_snippets_and_all_that_they_import(small_book: Book) -> None:
    sources = {
        "snippets/quoted.py": "import torch\nfrom flops_bytes.part.toolkit import peak\n",
        "flops_bytes/__init__.py": "",
        "flops_bytes/part/__init__.py": "",
        "flops_bytes/part/toolkit.py": "from flops_bytes.table import PEAKS\n\n\ndef peak():\n    return PEAKS[0]\n",
        "flops_bytes/table.py": '# /// ledger\n# data = ["table.txt"]\n# ///\nPEAKS = [1]\n',
        "flops_bytes/table.txt": "read by a module\n",
        "flops_bytes/neither.py": "from flops_bytes.table import PEAKS\n",
    }
    for name, source in sources.items():
        (path := small_book.root / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    page = small_book.docs / "en" / "page.md"
    page.write_text(f'{page.read_text()}\n```python\n--8<-- "snippets/quoted.py"\n```\n')
    site = small_book.root / "site"
    (site / "page").mkdir(parents=True)
    (site / "page" / "index.html").write_text("")
    assert ledger(small_book, "bundle", str(site)) == 0
    with zipfile.ZipFile(site / "downloads" / "page.zip") as archive:
        library = [name for name in sources if name.startswith("flops_bytes/") and "neither" not in name]
        assert sorted(archive.namelist()) == sorted(f"page/{name}" for name in ("good.py", "quoted.py", *library))
    with zipfile.ZipFile(site / "downloads" / "measurements.zip") as archive:
        (name,) = archive.namelist()
        assert json.loads(archive.read(name))["snippet"] == "good"


def test_two_bundles_side_by_side_make_what_one_makes(small_book: Book) -> None:
    def bundled(name: str, *runs: list[str]) -> dict[str, bytes]:
        site = small_book.root / name
        for folder in ("page", "zh/page"):
            (site / folder).mkdir(parents=True)
            (site / folder / "index.html").write_text("")
        for options in runs:
            assert ledger(small_book, "bundle", str(site), *options) == 0
        return {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*") if path.is_file()}

    whole = bundled("whole", [])
    assert {"page/index.md", "zh/page/index.md", "downloads/page.en.ipynb", "downloads/page.zh.ipynb"} <= {*whole}
    assert bundled("halves", ["--language", "zh"], ["--language", "en"]) == whole
    assert "page/index.md" not in bundled("chinese", ["--language", "zh"])


def test_recording_needs_torch_and_the_standard_library_alone(small_book: Book) -> None:
    shutil.rmtree(small_book.measurements)
    code = (
        "import sys\n"
        "for name in ('yaml', 'markdown', 'mkdocs', 'pymdownx', 'git', 'numpy'): sys.modules[name] = None\n"
        "from ledger.__main__ import main\n"
        f"sys.exit(main(['--root', {str(small_book.root)!r}, 'record']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [*small_book.measurements.glob("*/good.json")]
