"""The command line: the group of all commands, and the one place where errors end a process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from . import __version__
from .commands import COMMANDS, GROUPS
from .commands.command_line import EXIT_NOTHING_DONE
from .errors import DeltadexError, RequestError
from .terminal.text import plain, write_every_character, write_no_more

EXIT_INTERRUPTED, EXIT_UNREAD, EXIT_TERMINATED = 130, 141, 143
"""Exit codes of a process that SIGINT, SIGPIPE or SIGTERM ends."""

OF_THE_MACHINE = ("home directory", "Symlink loop", "out of memory", "can't allocate memory")
"""In a `RuntimeError` that is no defect: words of Python about paths, of torch about memory."""


class Interruption:
    """Which signal ended a command: Ctrl-C, or else SIGTERM."""

    word, exit_code = "Interrupted", EXIT_INTERRUPTED

    @contextmanager
    def by_sigterm(self) -> Iterator[None]:
        """SIGTERM ends the block as Ctrl-C does, with everything closed on the way out."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def terminate(number: int, frame: FrameType | None) -> NoReturn:
            self.word, self.exit_code = "Terminated", EXIT_TERMINATED
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


class Boundary(click.Group):
    """The group of all commands: an error about the world becomes one line and an exit code."""

    def main(self, *args: Any, **settings: Any) -> Any:
        write_every_character()
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
            with interruption.by_sigterm():
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
            _stop(
                f"{interruption.word}. Progress is saved; run the same command again to continue.",
                interruption.exit_code,
            )


def _in_words(err: Exception) -> str:
    """What the machine refuses; anything else is a defect."""
    line = str(err).splitlines()[0] if str(err) else "no message"
    if isinstance(err, FileNotFoundError) and err.filename is None:
        return "the current folder is not there any more; change to another"
    if isinstance(err, OSError):
        about = f"{err.filename}: " if err.filename else "the system refuses to read or write: "
        return about + (err.strerror or line)
    if isinstance(err, MemoryError):
        return f"not enough memory ({line})"
    if isinstance(err, RuntimeError) and any(words in line for words in OF_THE_MACHINE):
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
