"""The one place where errors about the world become a line and an exit code."""

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

from ..errors import DeltadexError, RequestError
from ..terminal.text import plain

EXIT_SOME_FAILED, EXIT_NOTHING_DONE = 1, 3
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


class Boundary(click.Group):
    """The group of all commands."""

    def invoke(self, ctx: click.Context) -> Any:
        signals: list[int] = []
        try:
            with _terminable(signals):
                return super().invoke(ctx)
        except RequestError as err:
            raise click.UsageError(plain(str(err)), ctx=None) from err
        except DeltadexError as err:
            _stop(f"Error: {err}", EXIT_NOTHING_DONE)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as err:
            if os.environ.get("DELTADEX_DEBUG"):
                raise
            line = str(err).splitlines()[0] if str(err) else "no message"
            _stop(
                f"Error: a defect in deltadex ({type(err).__name__}: {line}); please report it "
                "with what DELTADEX_DEBUG=1 shows",
                EXIT_NOTHING_DONE,
            )
        except KeyboardInterrupt:
            word, code = (
                ("Terminated", EXIT_TERMINATED) if signals else ("Interrupted", EXIT_INTERRUPTED)
            )
            _stop(f"{word}; what was recorded stays, and the same command continues.", code)


@contextmanager
def _terminable(signals: list[int]) -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, everything closed on the way out; and is noted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        signals.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(line: str, code: int) -> NoReturn:
    click.echo(plain(line), err=True)
    sys.exit(code)
