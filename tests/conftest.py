"""What several tests need: a small book to break, and the real site, built once from the committed records."""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import gc
import multiprocessing.forkserver
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect, sync_playwright

from ledger.book import Book
from ledger.environment import CHANGE_RESULTS
from ledger.record import Record
from ledger.run import run
from ledger.site.bind import CHROMIUM, FLAGS
from ledger.site.bundle import Texts, bundle
from ledger.site.check import configured_device
from ledger.snippet import PACKAGES, Snippet
from ledger.units import is_device_value, is_share_of_peak
from tests.draw import ALL

ROOT = Path(__file__).parent.parent
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in whose background it is ignored passes that on
for variable in CHANGE_RESULTS:  # or nothing could be recorded in a small book
    os.environ.pop(variable, None)


def recorded(snippet: str) -> dict[str, Any]:
    """What a snippet binds, from a committed record; that it still does, tests/ledger/test_records.py sees."""
    (path, *_) = sorted(ROOT.glob(f"measurements/*/{snippet}.json"), reverse=True)
    return Record.read(path).values


# Several processes


class Shared(NamedTuple):
    """What all processes of a test run have in common."""

    folder: Path
    address: str  # where folder/site is served


SHARED = pytest.StashKey[Shared]()


def pytest_configure(config: pytest.Config) -> None:
    """The first process makes a folder and serves the site that will lie there, for all others too."""
    config.addinivalue_line("markers", "fresh: what is fetched, how long it takes, or a route: no tab of the window")
    config.addinivalue_line("markers", "metered: the form's three meters and ways that fit are looked at, or move it")
    if hasattr(config, "workerinput"):
        folder, address = config.workerinput["shared"]
        config.stash[SHARED] = Shared(Path(folder), address)
        compute_on_one_thread()
        return
    made = tempfile.TemporaryDirectory(prefix="book-tests-")
    config.add_cleanup(made.cleanup)
    serving = serve(Path(made.name) / "site")
    config.stash[SHARED] = Shared(Path(made.name), serving.__enter__())
    config.add_cleanup(partial(leave, serving))


def leave(serving: AbstractContextManager[str]) -> None:
    serving.__exit__(None, None, None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    folder, address = node.config.stash[SHARED]
    node.workerinput["shared"] = (str(folder), address)


def compute_on_one_thread() -> None:
    """What this process forks for pages and snippets: others want the cores too. What it starts has all threads, which
    wait without turning round and round."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["OMP_NUM_THREADS"] = "1"
    multiprocessing.forkserver.set_forkserver_preload(["tests.one_thread", "ledger.preload"])
    multiprocessing.forkserver.ensure_running()
    del os.environ["OMP_NUM_THREADS"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests and the modules that they import stay to the end: no collection of garbage looks at them.

    Where several processes share the cores, each computes on one thread.
    """
    if hasattr(session.config, "workerinput") and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a file's tests leave behind, modules and caches, is not looked at again either."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> Shared:
    return pytestconfig.stash[SHARED]


GOOD_SNIPPET = """\
# --8<-- [start:count]
size_bytes = 4 * 8
print(size_bytes)
# --8<-- [end:count]
measured_seconds = 0.5
sizes = {"small": 1, "large": [2, 3]}
"""
GOOD_PAGE = """\
# Page {#page}

It takes {{ good.size_bytes }}.

```python
--8<-- "snippets/good.py:count"
```
/// output | good:count
///
"""


@pytest.fixture(scope="session")
def book() -> Book:
    return Book(ROOT)


@pytest.fixture
def small_book(tmp_path: Path) -> Book:
    """One good snippet with its record, one good page in each language."""
    book = Book(tmp_path)
    for folder in (book.snippets, book.docs / "en", book.docs / "zh", tmp_path / "figures"):
        folder.mkdir(parents=True)
    (book.snippets / "good.py").write_text(GOOD_SNIPPET)
    for language in ("en", "zh"):
        (book.docs / language / "page.md").write_text(GOOD_PAGE)
    snippet = Snippet.read(book.snippets / "good.py")
    record = Record.of(snippet, run(snippet))
    record.write(book.measurements / record.device["id"] / "good.json")
    return book


@pytest.fixture
def write_snippet(tmp_path: Path) -> Callable[[str], Path]:
    def write(source: str) -> Path:
        path = tmp_path / "broken.py"
        path.write_text(source)
        return path

    return write


def free_port() -> int:
    """A port of this machine that nothing uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="session")
def address(shared: Shared) -> str:
    """Where the built site is served: known before the build, and instant navigation works at this one alone."""
    return shared.address


@pytest.fixture(scope="session")
def site(shared: Shared) -> Path:
    """Both languages, built strictly from the committed records alone, by the process that asks first."""
    folder, built = shared.folder / "site", shared.folder / "built"
    with (shared.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            build(ROOT, folder, shared.address)
            built.touch()
    return folder


def build(root: Path, folder: Path, url: str) -> None:
    """The whole site of the book at root, in both languages, for that address."""
    chinese = folder.with_name(f"{folder.name}-zh")  # the English build empties its folder first
    builds = []
    for config, target, suffix in (("mkdocs.yml", folder, ""), ("mkdocs.zh.yml", chinese, "zh/")):
        environment = {**os.environ, "LOCAL": "0", "SITE_URL": url + suffix, "NO_MKDOCS_2_WARNING": "1"}
        environment |= {"LAB_OUTPUTS": str(folder.with_name("lab-outputs")), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", str(target)]
        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        builds.append(subprocess.Popen(command, cwd=root, env=environment, stdout=pipe, stderr=merged, text=True))
    told = [built.communicate()[0] for built in builds]
    assert not any(built.returncode for built in builds), "\n".join(told)
    chinese.rename(folder / "zh")
    bundle(Book(root), folder, url, local=False)


# A book with many devices


PUBLISHED = configured_device(Book(ROOT))
MADE_UP = "made-up-gpu"  # for tests alone: its numbers are those of the published device times a thousand
MADE_UP_NAME = "MADE-UP GPU <b>no measurement</b>"
NUM_DEVICES = 10


def times(factor: float, value: Any, path: tuple[str, ...] = ()) -> Any:
    """A record's values, with what was measured multiplied."""
    if isinstance(value, dict):
        return {key: times(factor, item, (*path, key)) for key, item in value.items()}
    measured = path and is_device_value(list(path)) and isinstance(value, float) and not is_share_of_peak(list(path))
    return value * factor if measured else value


class Served(NamedTuple):
    url: str
    folder: Path


SWITCHED = {"storage-and-strides", "gradients", "measure-your-gpu", "glossary"}  # the last for its terms
NUM_HEAVIEST = 4 if ALL else 2


def heaviest(site: Path) -> list[str]:
    """The chapters whose pages in either language are the heaviest of the site."""
    weights = {
        stem: max((site / language / place / "index.html").stat().st_size for language in ("", "zh"))
        for path in (ROOT / "docs" / "en").glob("*.md")
        for stem, place in [(path.stem, "" if path.stem == "index" else path.stem)]
    }
    return sorted(weights, key=lambda stem: -weights[stem])[:NUM_HEAVIEST]


def book_of_few(root: Path, stems: set[str]) -> None:
    """A copy of the book with these chapters alone; what leads to others leads nowhere."""
    unwanted = [f"{path.stem}.md" for path in (ROOT / "docs" / "en").glob("*.md") if path.stem not in stems]
    shutil.copytree(
        ROOT / "docs", root / "docs", symlinks=True, ignore=shutil.ignore_patterns("labs", "*.ipynb", *unwanted)
    )
    shutil.copytree(ROOT / "measurements", root / "measurements")
    for name in ("ledger", "planner", "snippets", *PACKAGES, "figures", "pyproject.toml"):
        (root / name).symlink_to(ROOT / name)
    for name in ("mkdocs.yml", "mkdocs.zh.yml"):
        config = (ROOT / name).read_text(encoding="utf-8").partition("\nnav:")[0]
        (root / name).write_text(config.replace("strict: true", "strict: false") + "\n", encoding="utf-8")


def snippets_of(stems: set[str]) -> set[str]:
    """The snippets whose values these chapters show: each record of another device is read by each process."""
    texts = Texts(Book(ROOT), local=False)
    paths = [ROOT / "docs" / language / f"{stem}.md" for language in ("en", "zh") for stem in stems]
    return {Path(file).stem for path in paths for file in texts.of(path, path.parent.name).files}


@pytest.fixture(scope="session")
def many_devices(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[Served]:
    """A few pages with ten devices, served; the made-up one has no record of two snippets."""
    root, stems = tmp_path_factory.mktemp("book"), SWITCHED | {*heaviest(site)}
    book_of_few(root, stems)
    shown = snippets_of(stems)
    others = [(f"{MADE_UP}-{number}", f"{MADE_UP_NAME} {number}") for number in range(2, NUM_DEVICES)]
    recorded = {path.parent for path in (ROOT / "measurements").glob("*/*.json")}
    devices = [(MADE_UP, MADE_UP_NAME), *others][: NUM_DEVICES - len(recorded)]
    for number, (device, device_name) in enumerate(devices):
        for path in sorted((root / "measurements" / PUBLISHED).glob("*.json")):
            lacks = device == MADE_UP and path.stem in ("measure_your_gpu", "index")
            if path.stem not in shown or lacks:
                continue
            record = Record.read(path)
            dataclasses.replace(
                record,
                values={name: times(1000 + number, value, (name,)) for name, value in record.values.items()},
                outputs={name: f"{text}\nMADE UP {number or ''}" for name, text in record.outputs.items()},
                device={**record.device, "id": device, "name": device_name},
            ).write(root / "measurements" / device / path.name)
    site = root / "site"
    with serve(site) as url:
        build(root, site, url)
        yield Served(url, site)


# The browser


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(folder: Path, port: int = 0) -> Iterator[str]:
    """Serves a folder on this machine, at a port of the system's choice if none is given."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: install Debian's package chromium")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, "--process-per-site"])
        expect.set_options(timeout=PATIENCE_MS)
        yield browser
        browser.close()


PATIENCE_MS = 120_000  # others may keep all cores busy
PERMISSIONS = ["clipboard-read", "clipboard-write"]


@pytest.fixture(scope="session")
def window(browser: Browser, shared: Shared) -> Iterator[BrowserContext]:
    """Its tabs share one process, which has compiled the scripts already; a tab that stays open keeps it alive."""
    context = browser.new_context(permissions=PERMISSIONS)
    context.set_default_timeout(PATIENCE_MS)
    context.new_page().goto(shared.address + "nothing-is-here")
    yield context
    context.close()


def forget(page: Page, address: str) -> None:
    """What the pages at this address have stored."""
    session = page.context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": address.rstrip("/"), "storageTypes": "all"})
    session.detach()


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Browser, window: BrowserContext, address: str) -> Iterator[Page]:
    """A page that fails its test on any error in the console and any request to another host: in a tab of the window,
    or, of a test marked fresh, in a browser that has loaded nothing yet.

    The planner's meters and ways take seconds at each question, in a worker that no answer waits for: they come to
    tests marked metered, and to fresh ones, alone.
    """
    fresh = request.node.get_closest_marker("fresh") is not None
    context = browser.new_context(permissions=PERMISSIONS) if fresh else window
    page = context.new_page()
    forget(page, address)
    mistakes = mistakes_of(page, address)
    if not fresh:
        page.goto = partial(open_and_wait, page, page.goto)  # type: ignore[method-assign]
        if request.node.get_closest_marker("metered") is None:
            page.add_init_script(WITHOUT_METERS)
    yield page
    (context if fresh else page).close()
    assert mistakes == []


WITHOUT_METERS = """
const own = window.Worker, silent = { postMessage() {}, terminate() {} };
window.Worker = function (address, told) { return told?.name === "meters" ? silent : new own(address, told); };
"""
LISTENS = "!document.querySelector('[data-md-component]') || 'component$' in window"  # the theme's script is done


def open_and_wait(page: Page, goto: Callable[..., Response | None], url: str, **options: Any) -> Response | None:
    """Opens a page; keys and clicks that come before its scripts listen would be lost."""
    response = goto(url, **options)
    page.wait_for_function(LISTENS)
    return response


def mistakes_of(page: Page, address: str) -> list[str]:
    """Grows with every error in the page's console and every request to another host."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("response", lambda r: found.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else found.append(r.url))
    return found
