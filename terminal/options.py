"""Options that several commands share, as decorators; logging is set up on the way in."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .text import PlainFormatter

Command = Callable[..., Any]


def _default_db() -> str:
    from platformdirs import user_data_dir

    return str(Path(user_data_dir("deltadex", appauthor=False)) / "deltadex.duckdb")


def common(command: Command) -> Command:
    """The options of every command; sets up logging before the command runs."""

    @click.option(
        "--db",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="DELTADEX_DB",
        default=_default_db,
        show_default="in the user data folder, or $DELTADEX_DB",
        help="The catalog file.",
    )
    @click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
    @click.option("--quiet", is_flag=True, help="No progress and no notes on stderr.")
    @functools.wraps(command)
    def wrapped(*args: Any, quiet: bool, **kwargs: Any) -> Any:
        level = logging.ERROR if quiet else logging.WARNING
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(PlainFormatter("%(message)s"))
        logging.basicConfig(level=level, handlers=[handler], force=True)
        logging.getLogger("deltadex").setLevel(logging.ERROR if quiet else logging.INFO)
        return command(*args, quiet=quiet, **kwargs)

    return wrapped


def base_option(command: Command) -> Command:
    return click.option("--base", help="Only this family, where the catalog has several.")(command)


def picture_option(command: Command) -> Command:
    return click.option(
        "-o",
        "--output",
        "picture",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Draw it: a .png, .svg or .html file.",
    )(command)


def running_options(command: Command) -> Command:
    """Of commands that run a model over texts."""
    for option in (
        click.option("--device", default="cpu", show_default=True, help="Where the model runs."),
        click.option(
            "--max-tokens",
            type=click.IntRange(min=2),
            default=128,
            show_default=True,
            help="Texts are cut to so many tokens.",
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(min=1),
            default=16,
            show_default=True,
            help="Texts at once.",
        ),
    ):
        command = option(command)
    return command


def recipe_option(command: Command) -> Command:
    return click.option("--recipe", help="Name or id of a recipe.  [default: sketch]")(command)


def filter_options(command: Command) -> Command:
    for option in (
        click.option(
            "--where", metavar="SQL", help="E.g. \"downloads > 100 AND kind = 'adapter'\"."
        ),
        click.option("--author", help="Only models of this author."),
        click.option("--dataset", help="Only models trained on this dataset."),
    ):
        command = option(command)
    return command


def indexing_options(command: Command) -> Command:
    for option in (
        click.option("--retry-failed", is_flag=True, help="Read models again that failed before."),
        click.option("--workers", type=click.IntRange(min=1), help="Models at work at once."),
        click.option(
            "--alias", "aliases", multiple=True, help="Another name that members give the base."
        ),
        click.option("--recipe", "recipes", multiple=True, default=("sketch",), show_default=True),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            help="Where updates are compressed: auto takes a GPU if there is one.",
        ),
        click.option(
            "--budget",
            metavar="SHARE",
            help="Read only this much of every model's layers: 2%, 20MB.  [default: all]",
        ),
        click.option("--rank", type=click.IntRange(min=1), help="Factors kept per matrix."),
        click.option(
            "--labels",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="CSV with columns model,dataset,author,run; overrides what models say.",
        ),
    ):
        command = option(command)
    return command
