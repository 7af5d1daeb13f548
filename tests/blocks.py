"""The child's side of a page: runs one block of its code after the other, as the cells of a notebook.

Needs the standard library alone, so that a page's process starts at once.
"""

from __future__ import annotations

import linecache
import multiprocessing
import os
import sys
import traceback
import types
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def run_blocks(folder: str, library: str, pipe: Connection) -> None:
    """In a process of its own, as a notebook would; answers each block with what went wrong, "" if nothing did.

    With a library, there is nothing else of the book to import but that and what lies in the folder.
    """
    os.chdir(folder)
    if library:
        elsewhere = [path for path in sys.path if not path.startswith(str(ROOT)) or "site-packages" in path]
        sys.path[:] = ["", library, *elsewhere]
        os.environ["PYTHONPATH"] = library  # of what it starts
        for name in [name for name, module in sys.modules.items() if _is_ours(module)]:
            del sys.modules[name]
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # what it prints is the site's to show
    os.dup2(silence, 2)
    multiprocessing.set_start_method("fork", force=True)  # as in a new process: DataLoader's workers
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    hidden: dict[str, Any] = {}  # what blocks that wait have bound
    while True:
        try:
            source, place, waits = pipe.recv()
        except EOFError:  # nobody wants more
            return
        linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
        namespace = main.__dict__
        if waits:
            before = dict(namespace)
            namespace = {**namespace, **hidden}
        try:
            exec(compile(source, place, "exec", dont_inherit=True), namespace)
        except BaseException as error:
            frames = error.__traceback__.tb_next if error.__traceback__ else None
            pipe.send("".join(traceback.format_exception(type(error), error, frames)))
        else:
            pipe.send("")
        if waits:
            hidden = {name: value for name, value in namespace.items() if before.get(name, pipe) is not value}


def _is_ours(module: types.ModuleType) -> bool:
    """Whether it comes from the book's own folders, and a notebook would not find it."""
    path = str(getattr(module, "__file__", None) or "")
    return path.startswith(str(ROOT)) and "site-packages" not in path
