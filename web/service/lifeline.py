"""A pipe by which a process ends with the one that started it, however that one ends."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext


class Lifeline:
    """The starter's side: nothing is ever written, and the pipe ends with this process.

    On Linux the system itself kills the other process at the pipe's end, whatever that process is
    doing: a thread of its own would wait for Python's lock, which a call into C may hold for long.
    The signal that a parent's end sends (PR_SET_PDEATHSIG) would come with the end of the thread
    that started the process. Elsewhere the other process ends as soon as its thread may run.
    """

    def __init__(self, context: BaseContext) -> None:
        self.end, self._start = context.Pipe(duplex=False)

    def tie(self, pid: int) -> None:
        """Tie the process, which was started with `end`, to this one."""
        with suppress(ImportError, AttributeError, OSError):
            from fcntl import F_GETFL, F_SETFL, F_SETOWN, F_SETSIG, fcntl

            # signal-driven input, fcntl(2); flags and owner belong to the pipe, not to a process
            fcntl(self.end, F_SETOWN, pid)
            fcntl(self.end, F_SETSIG, signal.SIGKILL)
            fcntl(self.end, F_SETFL, fcntl(self.end, F_GETFL) | os.O_ASYNC)
        self.end.close()

    def close(self) -> None:
        self._start.close()


def end_with(end: Connection) -> None:
    """End this process when the pipe ends, be it that it has already."""
    threading.Thread(target=_wait, args=(end,), name="deltadex-lifeline", daemon=True).start()


def _wait(end: Connection) -> None:
    with suppress(EOFError, OSError):
        end.recv()
    os._exit(1)
