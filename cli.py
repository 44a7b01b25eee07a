"""The command line: the group of all commands, and the one place where errors end a process."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from . import __version__
from .commands import COMMANDS, GROUPS
from .commands.command_line import EXIT_NOTHING_DONE, KEPT
from .errors import DeltadexError, RequestError
from .terminal.text import plain, write_every_character, write_no_more

EXIT_INTERRUPTED, EXIT_UNREAD, EXIT_TERMINATED = 130, 141, 143
"""Exit codes of a process that SIGINT, SIGPIPE or SIGTERM ends."""

ENDING = (signal.SIGINT, signal.SIGTERM)
ONE_PRESS_S = 2

UNFINISHED = "What was not finished is not saved; run the same command again."

OF_PATHS = ("home directory", "Symlink loop")
"""In a `RuntimeError` that is no defect: Python's words."""

OF_MEMORY = ("allocate memory", "out of memory", "bad_alloc", "can't start new thread")
"""In an error that is no defect: words of the system, of torch, C++ and Python."""

SLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""GNU's OpenMP, LLVM's and Intel's, and OpenBLAS read these when they are loaded. On cores that are
shared, threads that wait in a loop take ten times the processor time of their work."""


class Interruption:
    """Which signal ended a command: Ctrl-C, or else SIGTERM."""

    word, exit_code = "Interrupted", EXIT_INTERRUPTED

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Either signal ends the block, with everything closed on the way out. Another within
        `ONE_PRESS_S` is the same one: raised in a destructor, it would only be printed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        raised_at = -math.inf

        def end(number: int, frame: FrameType | None) -> None:
            nonlocal raised_at
            if time.monotonic() - raised_at < ONE_PRESS_S:
                return
            raised_at = time.monotonic()
            if number == signal.SIGTERM:
                self.word, self.exit_code = "Terminated", EXIT_TERMINATED
            raise KeyboardInterrupt

        before = {number: signal.getsignal(number) for number in ENDING}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN or number == signal.SIGTERM:
                signal.signal(number, end)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: another library's, in C


class Boundary(click.Group):
    """The group of all commands: an error about the world becomes one line and an exit code."""

    is_own_process = False

    def main(self, *args: Any, **settings: Any) -> Any:
        write_every_character()
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.update(SLEEP | os.environ)
        self.is_own_process = not args and not settings
        return super().main(*args, **settings)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        for group, names in GROUPS.items():
            room = formatter.width - 6 - widest
            with formatter.section(group.capitalize()):
                formatter.write_dl(
                    [
                        (name.ljust(widest), self.commands[name].get_short_help_str(room))
                        for name in names
                    ]
                )

    def invoke(self, ctx: click.Context) -> Any:
        interruption = Interruption()
        try:
            with interruption.by_signals():
                return super().invoke(ctx)
        except RequestError as err:
            raise click.UsageError(plain(str(err)), ctx=None) from err
        except DeltadexError as err:
            _stop(f"Error: {err}", EXIT_NOTHING_DONE)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            write_no_more()
            sys.exit(EXIT_UNREAD)
        except Exception as err:
            if os.environ.get("DELTADEX_DEBUG"):
                raise
            _stop(f"Error: {_in_words(err)}", EXIT_NOTHING_DONE)
        except KeyboardInterrupt:
            if self.is_own_process:  # the next one would end it while Python closes, with no line
                for number in ENDING:
                    signal.signal(number, signal.SIG_IGN)
            kept: Callable[[], str] = ctx.meta.get(KEPT, lambda: UNFINISHED)
            _stop(f"{interruption.word}. {kept()}", interruption.exit_code)


def _in_words(err: Exception) -> str:
    """What the machine refuses; anything else is a defect."""
    line = next((line for line in str(err).splitlines() if line.strip()), "no message")
    if isinstance(err, FileNotFoundError) and err.filename is None:
        return "the current folder is not there any more; change to another"
    if isinstance(err, MemoryError) or any(words in str(err).lower() for words in OF_MEMORY):
        return f"not enough memory ({line})"
    if isinstance(err, OSError):
        about = f"{err.filename}: " if err.filename else "the system refuses to read or write: "
        return about + (err.strerror or line)
    if isinstance(err, RuntimeError) and any(words in line for words in OF_PATHS):
        return line
    return (
        f"a defect in deltadex ({type(err).__name__}: {line}); please report it with what "
        "DELTADEX_DEBUG=1 shows"
    )


def _stop(line: str, code: int) -> NoReturn:
    try:
        click.echo(plain(line), err=True)
    except OSError:
        write_no_more()
    sys.exit(code)


@click.group(
    cls=Boundary,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="deltadex")
def main() -> None:
    """A vector database of fine-tuned models.

    Index the fine-tunes of a base model by what changed in their weights; then find those
    trained on the same data.
    """
