"""A snippet runs in a fresh process, output goes to its sections, one that misbehaves is named by file and line."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ledger.book import LedgerError
from ledger.run import MissingImport, parse, run
from ledger.snippet import Snippet
from tests.conftest import ROOT

Write = Callable[[str], Path]


def test_values_and_outputs(write_snippet: Write) -> None:
    source = """\
from __future__ import annotations
import os, subprocess, sys
from typing import NamedTuple
# --8<-- [start:outer]
class Timing(NamedTuple):
    median_seconds: float
    trials: int
print("outer")
# --8<-- [start:inner]
os.write(1, b"from the descriptor\\n")
subprocess.run(["echo", "from a child"])
# --8<-- [end:inner]
print("outer again", file=sys.stdout)
print("a warning", file=sys.stderr)
# --8<-- [end:outer]
print("in no section")
copy_timing = Timing(0.25, 3)
table = {1: (1, 2.5), "b": [True, None]}
a_function = print
_private = 1
for each in range(3):
    pass
if __name__ == "__main__":
    ran_as_script = True
"""
    result = run(Snippet.read(write_snippet(source)))
    assert result.outputs == {"outer": "outer\nouter again", "inner": "from the descriptor\nfrom a child"}
    assert result.values == {
        "copy_timing": {"median_seconds": 0.25, "trials": 3},
        "table": {"1": [1, 2.5], "b": [True, None]},
        "ran_as_script": True,
    }
    assert result.warnings == "a warning\n"


def test_data_loader_workers(write_snippet: Write) -> None:
    source = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
total = sum(int(x.sum()) for (x,) in DataLoader(TensorDataset(torch.arange(8)), batch_size=2, num_workers=1))
"""
    assert run(Snippet.read(write_snippet(source))).values["total"] == 28


def test_each_run_is_fresh(write_snippet: Write) -> None:
    path = write_snippet(
        "import torch\nbefore = torch.get_default_dtype() == torch.float32\ntorch.set_default_dtype(torch.float64)\n"
    )
    assert [run(Snippet.read(path)).values["before"] for _ in range(2)] == [True, True]


RUNTIME_MISTAKES = {
    "raises": (
        "import torch\n# --8<-- [start:part]\ndef f():\n    return 1 / 0\nf()\n# --8<-- [end:part]\n",
        r"broken\.py:4: the snippet raised in section 'part':(.|\n)*line 5, in <module>(.|\n)*ZeroDivisionError",
    ),
    "exits": ("import sys\nsys.exit(0)\n", r"broken\.py:2: the snippet raised:(.|\n)*called exit\(0\)"),
    "dies": ("import os\nos._exit(3)\n", r"broken\.py: the process died without a report \(exit code 3\)"),
    "prints megabytes": (
        "# --8<-- [start:loud]\nwhile True:\n    print('x' * 1000)\n# --8<-- [end:loud]\n",
        r"broken\.py: printed more than 262144 bytes \(now in section 'loud'\)",
    ),
    "not plain data": ("import torch\nx_bytes = torch.ones(1)\n", r"broken\.py:2: the value of 'x_bytes' is a Tensor"),
    "NaN": ("x_seconds = float('nan')\n", r"broken\.py:1: the value of 'x_seconds' is nan"),
    "infinite, inside": ("x_ratio = {'a': [float('inf')]}\n", r"broken\.py:1: the value of 'x_ratio' is inf"),
    "an int beyond floats": (
        "x_flops = 10**400\n",
        r"broken\.py:1: the value of 'x_flops' is an int beyond the largest",
    ),
    "holds itself": (
        "x_bytes = []\nx_bytes.append(x_bytes)\n",
        r"broken\.py:1: the value of 'x_bytes' .*recursion",
    ),
    "kills what watches over it": (
        "import os, signal\nx = 1\nos.kill(os.getppid(), signal.SIGKILL)\n",
        r"broken\.py: the process (died without a report|that watched over it was ended) \(exit code -9\)",
    ),
    "too large": ("x_bytes = list(range(100000))\n", r"broken\.py:1: the value of 'x_bytes' takes more than"),
}


@pytest.mark.parametrize("mistake", RUNTIME_MISTAKES)
def test_a_mistake_while_running_is_named(write_snippet: Write, mistake: str) -> None:
    source, message = RUNTIME_MISTAKES[mistake]
    with pytest.raises(LedgerError) as caught:
        run(Snippet.read(write_snippet(source)))
    assert re.search(message, str(caught.value)), caught.value


@pytest.mark.parametrize("what", ['print("中" * 30000)', r'os.write(1, b"\xff\xfe" * 40000)'])
def test_output_is_cut_anywhere(write_snippet: Write, what: str) -> None:
    assert run(Snippet.read(write_snippet(f"import os\n{what}\nx = 1\n"))).values["x"] == 1


def test_a_message_quotes_no_output_as_a_section(write_snippet: Write) -> None:
    with pytest.raises(LedgerError) as caught:
        run(Snippet.read(write_snippet("while True:\n    print('x' * 1000, end='')\n")))
    assert str(caught.value).endswith("broken.py: printed more than 262144 bytes")


def test_a_long_error_is_shortened_in_its_middle(write_snippet: Write) -> None:
    with pytest.raises(LedgerError) as caught:
        run(Snippet.read(write_snippet("raise ValueError('begins' + 'x' * 10**7 + 'ends')\n")))
    message = str(caught.value)
    assert len(message) < 10_000 and "begins" in message and message.endswith("ends")


def test_a_fork_that_goes_on_reports_nothing(write_snippet: Write) -> None:
    source = "import os, time\nwho = 'parent' if os.fork() else 'child'\nif who == 'parent':\n    time.sleep(0.3)\n"
    assert run(Snippet.read(write_snippet(source))).values == {"who": "parent"}


@pytest.mark.parametrize(
    "raw", [b"\0\0\0\2{}" * 2, b"\0\0\0\3{}", b"\0\0\0\1{}", b"\0", b"\0\0\0\2[]", b"\0\0\0\2\xff}"]
)
def test_a_report_that_is_not_whole_is_refused(write_snippet: Write, raw: bytes) -> None:
    snippet = Snippet.read(write_snippet("x = 1\n"))
    assert parse(snippet, b"\0\0\0\2{}") == {}
    with pytest.raises(LedgerError, match=r"broken\.py: its report is not whole, or not the only one"):
        parse(snippet, raw)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose child a process is")
def test_a_snippet_that_ends_the_server_spoils_no_other_run(write_snippet: Write) -> None:
    source = """\
import os, signal
from pathlib import Path
watcher = Path(f"/proc/{os.getppid()}/stat").read_text()
os.kill(int(watcher.rpartition(")")[2].split()[1]), signal.SIGKILL)
"""
    with pytest.raises(LedgerError, match=r"that watched over it was ended"):
        run(Snippet.read(write_snippet(source)))
    assert run(Snippet.read(write_snippet("x = 1\n"))).values["x"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process when its parent dies")
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_a_snippet_does_not_outlive_what_watches_over_it(
    write_snippet: Write, tmp_path: Path, signal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.run.PATIENCE_SECONDS", 0.3)
    alive = tmp_path / "alive"
    source = f"""\
import os, signal, time
os.kill(os.getppid(), signal.{signal})
while True:
    with open({str(alive)!r}, "a") as file:
        file.write(".")
    time.sleep(0.05)
"""
    with pytest.raises(LedgerError, match=r"died without a report|did not end within 1 seconds"):
        run(Snippet.read(write_snippet(source)), time_limit=1)
    size = alive.stat().st_size if alive.exists() else 0
    time.sleep(0.3)
    assert (alive.stat().st_size if alive.exists() else 0) == size


VANISHES = """\
import os
from multiprocessing.forkserver import connect_to_new_process, read_signed
from ledger.run import start_server
start_server()
answers, asks = connect_to_new_process([])
read_signed(answers)  # the fork's id: it waits to hear what it shall do
os.close(asks)
read_signed(answers)  # its exit code
"""


def test_nothing_is_told_of_a_runner_that_was_killed() -> None:
    root = ROOT
    done = subprocess.run([sys.executable, "-c", VANISHES], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_a_snippet_that_hangs_is_ended_with_its_children(write_snippet: Write, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    source = f"""\
import subprocess
child = subprocess.Popen(["sh", "-c", "while true; do date >> {alive}; sleep 0.05; done"])
# --8<-- [start:endless]
while True:
    subprocess.time.sleep(0.1)
# --8<-- [end:endless]
"""
    with pytest.raises(LedgerError, match=r"broken\.py: did not end within 4 seconds \(now in section 'endless'\)"):
        run(Snippet.read(write_snippet(source)), time_limit=4)
    size = alive.stat().st_size
    time.sleep(0.3)
    assert alive.stat().st_size == size


STARTS_ITS_OWN_SESSIONS = """\
import subprocess, time
inner = "while true; do date >> {alive}; sleep 0.05; done"
outer = ["sh", "-c", f"setsid sh -c '{{inner}}' & setsid sh -c '{{inner}}'"]
subprocess.Popen(outer, start_new_session=True)
while not subprocess.os.path.exists("{alive}"):
    time.sleep(0.01)
{then}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to a process above them")
@pytest.mark.parametrize("then", ["x = 1", "1 / 0", "subprocess.os._exit(3)", "time.sleep(60)"])
def test_whatever_a_snippet_started_ends_with_it(write_snippet: Write, tmp_path: Path, then: str) -> None:
    alive = tmp_path / "alive"
    path = write_snippet(STARTS_ITS_OWN_SESSIONS.format(alive=alive, then=then))
    with suppress(LedgerError):
        run(Snippet.read(path), time_limit=5)
    size = alive.stat().st_size
    time.sleep(0.3)
    assert alive.stat().st_size == size


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_snippet_ends_with_the_runner(write_snippet: Write, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    path = write_snippet(STARTS_ITS_OWN_SESSIONS.format(alive=alive, then="time.sleep(60)"))
    code = f"from pathlib import Path; from ledger.run import *; run(Snippet.read(Path({str(path)!r})))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as runner:
        while not alive.exists():
            time.sleep(0.01)
        runner.kill()
    until = time.monotonic() + 300
    size = -1
    while size != alive.stat().st_size and time.monotonic() < until:
        size = alive.stat().st_size
        time.sleep(0.3)
    assert alive.stat().st_size == size


def test_a_slow_snippet_has_a_time_limit_of_its_own(write_snippet: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.snippet.TIME_LIMIT_SECONDS", 0.3)
    sleeps = "import time\ntime.sleep(0.6)\nx = 1\n"
    with pytest.raises(LedgerError, match=r"did not end within 0\.3 seconds"):
        run(Snippet.read(write_snippet(sleeps)))
    path = write_snippet(sleeps)
    (moved := path.parent / "slow" / path.name).parent.mkdir()
    slow = Snippet.read(path.rename(moved))
    assert run(slow).values["x"] == 1
    with pytest.raises(LedgerError, match=r"did not end within 0\.2 seconds"):
        run(slow, time_limit=0.2)


def test_a_missing_import_is_told_apart(write_snippet: Write) -> None:
    with pytest.raises(MissingImport, match="no_such_module"):
        run(Snippet.read(write_snippet("import no_such_module\n")))


@pytest.mark.parametrize(
    ("needs", "lacks"),
    [
        (["torch>=2.11"], ""),
        (["torch>=99", "no_such_module"], "torch>=99"),
        (["torch>=2.11", "torch >= 2.999.1"], "torch >= 2.999.1"),
        (["no_such_module>=1"], ""),  # its import says so
    ],
)
def test_what_the_metadata_wants_newer_is_told_apart_and_nothing_runs(
    write_snippet: Write, needs: list[str], lacks: str
) -> None:
    never = "raise ValueError" if lacks else ""
    snippet = Snippet.read(write_snippet(f"# /// script\n# dependencies = {needs}\n# ///\nx = 1\n{never}\n"))
    assert snippet.too_old == lacks
    if lacks:
        with pytest.raises(MissingImport, match=lacks):
            run(snippet)
    else:
        assert run(snippet).values == {"x": 1}


STATIC_MISTAKES = {
    "bound twice": ("x_bytes = 1\nx_bytes = 2\n", r"broken\.py:1: 'x_bytes' is bound 2 times"),
    "changed in place": ("x_bytes = 1\nx_bytes += 2\n", r"broken\.py:1: 'x_bytes' is bound 2 times"),
    "bound in a loop": ("for i in range(2):\n    x_bytes = i\n", r"broken\.py:2: 'x_bytes' is bound in a loop"),
    "bound by a function": ("x_bytes = 1\ndef f():\n    global x_bytes\n", r"broken\.py:1: 'x_bytes' is bound 2 times"),
    "bound in a line": ("x_bytes = 1\ndef f(): global x_bytes\n", r"broken\.py:1: 'x_bytes' is bound 2 times"),
    "section unclosed": ("# --8<-- [start:a]\n", r"broken\.py:1: section 'a' is never closed"),
    "section not started": ("# --8<-- [end:a]\n", r"broken\.py:1: section 'a' ends here but was not started"),
    "section twice": (
        "# --8<-- [start:a]\n# --8<-- [end:a]\n# --8<-- [start:a]\n",
        r"broken\.py:3: section 'a' is defined twice",
    ),
    "marker malformed": ("# --8<-- [start;a]\n", r"broken\.py:1: malformed marker"),
    "no Python": ("x = = 1\n", r"broken\.py:1: not Python: invalid syntax"),
    "setting unknown": (
        "# /// script\n# [tool.ledger]\n# slow = true\n# ///\n",
        r"broken\.py:3: \[tool\.ledger\] knows no 'slow'; it knows unhashed, data",
    ),
    "setting of another type": (
        '# /// script\n# [tool.ledger]\n# unhashed = []\n# data = "yes"\n# ///\n',
        r"broken\.py:4: \[tool\.ledger\]: 'data' is a str, not a list",
    ),
    "data that is not there": (
        '# /// script\n# [tool.ledger]\n# data = ["nosuch.txt"]\n# ///\n',
        r"broken\.py:3: \[tool\.ledger\]: there is no file 'nosuch\.txt' beside it",
    ),
    "data elsewhere": (
        '# /// script\n# [tool.ledger]\n# data = ["../broken/broken.py"]\n# ///\n',
        r"broken\.py:3: \[tool\.ledger\]: there is no file '\.\./broken/broken\.py' in the book's",
    ),
    "published data that are not there": (
        '# /// script\n# [tool.ledger]\n# data = ["measurements/published/*.toml"]\n# ///\n',
        r"broken\.py:3: \[tool\.ledger\]: there is no file 'measurements/published/\*\.toml' in the book's "
        "measurements/published",
    ),
    "a null byte": ("x = 1\0\n", r"broken\.py(:1)?: not Python: .*null bytes"),
    "nested too deeply": (f"x = {'-' * 100_000}1\n", r"broken\.py(:1)?: not Python: .*(too|depth|overflow)"),
    "not UTF-8": ("x = 1\ny = '\udcff'\n", r"broken\.py:2: not UTF-8"),
    "metadata no TOML": ("# /// script\n# dependencies = [\n# ///\n", r"broken\.py:1: the script metadata is not TOML"),
}


@pytest.mark.parametrize("mistake", STATIC_MISTAKES)
def test_a_mistake_in_the_text_is_named(write_snippet: Write, mistake: str) -> None:
    source, message = STATIC_MISTAKES[mistake]
    path = write_snippet("")
    path.write_bytes(source.encode(errors="surrogateescape"))
    with pytest.raises(LedgerError) as caught:
        Snippet.read(path)
    assert re.search(message, str(caught.value)), caught.value


def test_a_modules_data_that_is_not_there_is_named_there(write_snippet: Write) -> None:
    path = write_snippet("from flops_bytes.helper import x\n")
    (module := path.with_name("flops_bytes") / "helper.py").parent.mkdir()
    module.with_name("__init__.py").touch()
    module.write_text('# /// ledger\n# data = ["nosuch.txt"]\n# ///\nx = 1\n')
    with pytest.raises(LedgerError, match=r"helper\.py:2: \[tool\.ledger\]: there is no file 'nosuch\.txt' beside it"):
        Snippet.read(path)


def test_a_snippet_and_what_it_starts_find_the_library_of_their_checkout(write_snippet: Write) -> None:
    source = """\
import subprocess, sys
from flops_bytes.helper import size_bytes as used
own_bytes = used
_ask = [sys.executable, "-c", "from flops_bytes.helper import size_bytes; print(size_bytes)"]
childs = subprocess.run(_ask, cwd="/", capture_output=True, text=True, check=True).stdout
"""
    path = write_snippet(source)
    (module := path.with_name("flops_bytes") / "helper.py").parent.mkdir()
    module.with_name("__init__.py").touch()
    module.write_text("size_bytes = 12\n")
    assert run(Snippet.read(path)).values == {"own_bytes": 12, "childs": "12\n"}


@pytest.mark.parametrize("module", ["flops_bytes.nosuch", "flops_bytes"])
def test_a_library_that_is_not_there_is_an_error_and_skips_nothing(write_snippet: Write, module: str) -> None:
    (library := write_snippet("").with_name("flops_bytes")).mkdir()
    library.joinpath("__init__.py").touch()
    with pytest.raises(
        LedgerError, match=r"(?s)broken\.py:1: the snippet raised:.*(No module named|cannot import name)"
    ):
        run(Snippet.read(write_snippet(f"from {module} import nosuch\n")))


def test_a_mistake_in_the_library_is_named_there(write_snippet: Write) -> None:
    path = write_snippet("from flops_bytes.helper import x\n")
    (module := path.with_name("flops_bytes") / "helper.py").parent.mkdir()
    module.with_name("__init__.py").touch()
    module.write_text("fine = 1\nx = = 1\n")
    with pytest.raises(LedgerError, match=r"helper\.py:2: not Python: invalid syntax"):
        Snippet.read(path)
