"""`deltadex demo`: a family from nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from .. import terminal
from ..terminal.options import Common, argument, takes
from .output import print_document


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFolder:
    """Where the demo writes."""

    folder: Path = argument(default="demo-output")


@click.command()
@takes(DemoFolder)
def demo(common: Common, target: DemoFolder) -> None:
    """Train a small family, index it, score it, map it; no network.

    Models and map go into FOLDER. Needs `pip install 'deltadex[demo]'`.

    \b
    Example:
      deltadex demo
    """
    try:
        from ..demo import run_demo
    except ModuleNotFoundError as err:
        raise click.UsageError(f"the demo needs {err.name}: pip install 'deltadex[demo]'") from err
    quiet = common.quiet or common.as_json
    with terminal.RunProgress(quiet=quiet) as progress:
        screen = terminal.DemoScreen(progress, quiet=quiet)
        document = run_demo(target.folder, common.db, screen)
    print_document(document, lambda _: None, common)
