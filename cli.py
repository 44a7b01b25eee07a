"""The command line: the group of all commands, and the one place where errors end a process."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from . import __version__
from .commands import COMMANDS
from .commands.exits import EXIT_NOTHING_DONE, Interruption
from .errors import DeltadexError, RequestError
from .terminal.text import plain


class Boundary(click.Group):
    """The group of all commands: an error about the world becomes one line and an exit code."""

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
            _stop(
                f"{interruption.word}. Progress is saved; run the same command again to continue.",
                interruption.exit_code,
            )


def _stop(line: str, code: int) -> NoReturn:
    click.echo(plain(line), err=True)
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
