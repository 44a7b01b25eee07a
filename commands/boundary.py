"""The one place where errors about the world become a line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from ..errors import DeltadexError, RequestError

EXIT_SOME_FAILED, EXIT_NOTHING_DONE, EXIT_INTERRUPTED = 1, 3, 130


class Boundary(click.Group):
    """The group of all commands."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RequestError as err:
            raise click.UsageError(str(err), ctx=None) from err
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
                "Interrupted; what was recorded stays, and the same command continues.",
                EXIT_INTERRUPTED,
            )


def _stop(line: str, code: int) -> NoReturn:
    click.echo(line, err=True)
    sys.exit(code)
