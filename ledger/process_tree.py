"""Ends a process with all that it has started: torchrun's workers have sessions of their own, no group holds them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
PATIENCE_SECONDS = 1.0  # between two looks at whether the asking process lives
WATCHED = {signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM}


def run_and_end_all(work: Callable[[], None]) -> NoReturn:
    """Calls work in a child of this process, and exits as the child does, with no process left that it started.

    At SIGTERM, and when the process that asked for this one dies, the child ends too. This process is the subreaper:
    what loses its parent below becomes its child. Elsewhere than on Linux only the child's own group is ended.
    If this process itself is killed, by the child's doing, the child does not go on alone.
    """
    os.setsid()  # the terminal's Ctrl-C is for the runner, which then sends SIGTERM
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    child = os.fork()
    if child == 0:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        _work_and_exit(work)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS, PATIENCE_SECONDS)
    asked_by, code = parent_process(), None
    while code is None and (asked_by is None or asked_by.is_alive()) and signal.sigwait(WATCHED) != signal.SIGTERM:
        ended, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if ended else None
    code = _end_all(child, code)
    if code < 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _work_and_exit(work: Callable[[], None]) -> NoReturn:
    os.setsid()  # what it starts in its own group can be ended at once
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _end_all(child: int, code: int | None) -> int:
    """Kills the children until there are none: those of a killed one come next. The exit code of `child`."""
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        for other in _children():
            with suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
        try:
            ended, status = os.wait()
        except ChildProcessError:
            return code or 0
        if ended == child:
            code = os.waitstatus_to_exitcode(status)


def _children() -> list[int]:
    """The processes whose parent is this one, by what Linux tells of each."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            after_name = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found
