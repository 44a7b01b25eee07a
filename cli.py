"""The command line: the group of all commands, and the one place where errors end a process."""

from __future__ import annotations

import errno
import math
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, cast

import click

from . import __version__
from .errors import DeltadexError, RequestError
from .questions.terminal.command_line import EXIT_NOTHING_DONE, KEPT
from .questions.terminal.commands import COMMANDS
from .questions.terminal.text import open_streams, plain, write_every_character, write_no_more
from .results import size

EXIT_INTERRUPTED, EXIT_UNREAD, EXIT_TERMINATED = 130, 141, 143
"""Exit codes of a process that SIGINT, SIGPIPE or SIGTERM ends."""

ENDING = (signal.SIGINT, signal.SIGTERM)
ONE_PRESS_S = 2

UNFINISHED = "What was not finished is not saved; run the same command again."

OF_PATHS = ("home directory", "Symlink loop")
"""In a `RuntimeError` that is no defect: Python's words."""

OF_MEMORY = (
    *("failed to map segment", "cannot allocate memory", "can't allocate memory"),
    *("out of memory", "bad_alloc", "can't start new thread"),
)
"""In an error that is no defect: words of the loader and the system, of torch, C++ and Python."""

WITHOUT_MEMORY = "not enough memory"

LONGEST_STOP_S = 30
"""Below a limit of memory, what does not act on a signal by then is killed: OpenBLAS may ask for
memory again and again while it is loaded."""

SLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""GNU's OpenMP, LLVM's and Intel's read these when they are loaded. On cores that are shared,
threads that wait in a loop take ten times the processor time of their work."""


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
        self.is_own_process = not args and not settings
        if self.is_own_process:
            open_streams()
        write_every_character()
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.update(SLEEP | os.environ)
        # its threads can only wait in a loop, and each has 32 MiB
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if self.is_own_process and (limit := _memory_limit()) is not None:
            _watch(super().main, limit)
        try:
            return super().main(*args, **settings)
        except OSError as err:  # of what click writes before a command: help, the version
            _stop(f"Error: {_in_words(err)}", EXIT_NOTHING_DONE)

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*args, **more)
        except click.UsageError as err:
            _stop(err, err.exit_code)
        except BrokenPipeError:  # of help, or the version
            write_no_more()
            sys.exit(EXIT_UNREAD)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        for group, names in COMMANDS.groups.items():
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
            _stop(click.UsageError(plain(str(err))), click.UsageError.exit_code)
        except DeltadexError as err:
            is_said = WITHOUT_MEMORY in str(err) or _memory_refused(err) is None
            _stop(f"Error: {err if is_said else _in_words(err)}", EXIT_NOTHING_DONE)
        except click.ClickException as err:
            _stop(err, err.exit_code)
        except (click.exceptions.Exit, click.Abort):
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


def _memory_limit() -> int | None:
    """The bytes that `ulimit -v` or `-d` allows this process; other systems do not hold to them."""
    if sys.platform != "linux":
        return None
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def _watch(command: Callable[[], Any], limit: int) -> NoReturn:
    """Run the command in a process of its own: where memory is refused, C++ and OpenBLAS end a
    process without an exception. What libraries write is shown at the end if something was done."""
    told, written = mmap.mmap(-1, 1), os.memfd_create("stderr")
    child = os.fork()
    if not child:
        screen = os.dup(sys.stderr.fileno())
        sys.stderr = open(screen, "w", 1, sys.stderr.encoding, "escaped")  # noqa: SIM115
        os.dup2(written, 2)
        sys.unraisablehook = lambda _: None  # errors of destructors, without memory
        ended: str | int | None = 1
        try:
            command()
        except SystemExit as end:
            ended = end.code
            raise
        finally:
            told[0] = 1 + int(ended or 0)
            if ended == EXIT_NOTHING_DONE:  # what Python writes at its end, without memory
                write_no_more()

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)
        signal.alarm(LONGEST_STOP_S)

    signal.signal(signal.SIGINT, pass_on)
    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not told[0] and status != -signal.SIGTERM:
        why = f"this process is limited to {size(limit)}, by ulimit -v or -d"
        _stop(f"Error: {WITHOUT_MEMORY}: {why}", EXIT_NOTHING_DONE)
    code = told[0] - 1 if told[0] else 128 - status
    if code != EXIT_NOTHING_DONE:
        os.lseek(written, 0, os.SEEK_SET)
        os.sendfile(2, written, None, os.fstat(written).st_size)
    sys.exit(code)


def _memory_refused(err: BaseException) -> str | None:
    """What an error, or the one that it came from, says of memory that the machine refuses."""
    lines = str(err).splitlines()
    said = next((s for s in lines if any(words in s.lower() for words in OF_MEMORY)), "")
    if said or isinstance(err, MemoryError):
        return said or str(err)
    before = err.__cause__ or err.__context__
    return None if before is None else _memory_refused(before)


def _in_words(err: Exception) -> str:
    """What the machine refuses; anything else is a defect."""
    line = next((line for line in str(err).splitlines() if line.strip()), "no message")
    if isinstance(err, FileNotFoundError) and err.filename is None:
        return "the current folder is not there any more; change to another"
    if (refused := _memory_refused(err)) is not None:
        return f"{WITHOUT_MEMORY} ({refused})" if refused else WITHOUT_MEMORY
    if isinstance(err, SystemError) and _memory_limit() is not None:
        return f"{WITHOUT_MEMORY} ({line})"  # C that was refused some, and says nothing of it
    if isinstance(err, OSError):
        about = f"{err.filename}: " if err.filename else "the system refuses to read or write: "
        return about + (err.strerror or line)
    if (full := os.strerror(errno.ENOSPC)) in line:  # of a library that has errors of its own
        return f"the system refuses to write: {full}"
    if isinstance(err, RuntimeError) and any(words in line for words in OF_PATHS):
        return line
    return (
        f"a defect in deltadex ({type(err).__name__}: {line}); please report it with what "
        "DELTADEX_DEBUG=1 shows"
    )


def _stop(end: str | click.ClickException, code: int) -> NoReturn:
    try:
        click.echo(plain(end), err=True) if isinstance(end, str) else end.show()
        click.echo(nl=False)  # flushes stdout, if there is one
    except OSError:
        write_no_more()
    sys.exit(code)


@click.group(
    cls=Boundary,
    commands=cast("dict[str, click.Command]", COMMANDS),  # click only reads it
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="deltadex")
def main() -> None:
    """A vector database of fine-tuned models.

    Index the fine-tunes of a base model by what changed in their weights; then find those
    trained on the same data.
    """
