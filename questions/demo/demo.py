"""A small family, trained, indexed, scored and drawn: `demo`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...options import argument, record
from ...results import count
from .. import terminal
from ..terminal.command_line import CONTINUES, Common, command_with, print_document, when_stopped
from .screen import DemoScreen


@record
class DemoFolder:
    """Where the demo writes."""

    folder: Path = argument(default="demo-output", file="any")


@command_with(DemoFolder, prints_table=False)
def command(common: Common, target: DemoFolder) -> None:
    """Train a small family, index it, score it, map it; no network.

    Models and map go into FOLDER; a model that is there whole is not trained again. Needs
    `pip install 'deltadex[demo]'`.

    \b
    Example:
      deltadex demo
    """
    when_stopped(lambda: _kept(target.folder))
    quiet = common.quiet or common.as_json
    with terminal.RunProgress(quiet=quiet) as progress:
        screen = DemoScreen(progress, quiet=quiet)
        screen.heading("Loading torch, transformers and PEFT")
        run_demo = _load_demo()
        document = run_demo(target.folder, common.db, screen)
    print_document(document, lambda _: None, common)


def _load_demo() -> Callable[[Path, Path, DemoScreen], dict[str, Any]]:
    try:
        from .family import run_demo
    except ModuleNotFoundError as err:
        if err.name is None:  # transformers could not load its own
            raise
        raise click.UsageError(f"the demo needs {err.name}: pip install 'deltadex[demo]'") from err
    return run_demo


def _kept(folder: Path) -> str:
    if not (folder / "base" / "model.safetensors").exists():
        return "No model is saved yet; run the same command again."
    weights, settings = (
        {path.parent for path in (folder / "models").glob(f"*/{name}")}
        for name in ("*.safetensors", "*config.json")
    )
    saved = count(len(weights & settings), "fine-tune")
    return f"The base and {saved} are saved in {folder}; {CONTINUES}"
