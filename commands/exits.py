"""Exit codes beside 0 (done) and 2 (usage), and the signals that end a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

EXIT_SOME_FAILED, EXIT_NOTHING_DONE = 1, 3
EXIT_INTERRUPTED, EXIT_UNREAD, EXIT_TERMINATED = 130, 141, 143
"""As of a process that SIGINT, SIGPIPE or SIGTERM ends."""


class Interruption:
    """Which signal ended a command: SIGTERM, or else Ctrl-C."""

    def __init__(self) -> None:
        self._is_terminated = False

    @property
    def word(self) -> str:
        return "Terminated" if self._is_terminated else "Interrupted"

    @property
    def exit_code(self) -> int:
        return EXIT_TERMINATED if self._is_terminated else EXIT_INTERRUPTED

    @contextmanager
    def by_sigterm(self) -> Iterator[None]:
        """SIGTERM ends the block as Ctrl-C does, with everything closed on the way out."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def terminate(number: int, frame: FrameType | None) -> NoReturn:
            self._is_terminated = True
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
