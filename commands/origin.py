"""Where models come from: trace, and the bases that they are compared with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from .. import database, terminal
from ..terminal.text import plain
from .command_line import (
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    Common,
    command,
    print_answer,
)


@command(database.Trace)
def trace(common: Common, asked: database.Trace) -> None:
    """Find the base that MODEL comes from: an indexed id, a folder or a Hub id.

    Its weights are compared with those of every known base (`deltadex bases ls`): fine-tunes,
    continued pretraining, quantised and pruned copies, layers dropped, duplicated and moved,
    vocabularies grown and cut. p is how likely unrelated weights agree as much; where it is above
    1e-6 the answer is "unknown".

    \b
    Example:
      deltadex trace someone/bert-imdb
      deltadex trace ./my-model --json
    """
    print_answer(common, asked, lambda document: terminal.show_trace(document), read_only=None)


@click.group()
def bases() -> None:
    """List and add the bases that `trace` compares models with.

    \b
    Example:
      deltadex bases add google-bert/bert-base-uncased
      deltadex bases ls
    """


@command(database.AddBases, group=bases)
def add(common: Common, asked: database.AddBases) -> None:
    """Register BASE: a folder or a Hub id. At most 2 MB of each is kept.

    \b
    Example:
      deltadex bases add google-bert/bert-base-uncased ./our-base
    """
    if not asked.bases:
        raise click.UsageError("no base given: name a folder or a Hub id")
    table = print_answer(common, asked, _show_bases, read_only=False, create="late")
    if table.to_json()["failed"]:
        sys.exit(EXIT_SOME_FAILED if len(table) else EXIT_NOTHING_DONE)


@command(database.KnownBases, group=bases)
def ls(common: Common, asked: database.KnownBases) -> None:
    """List the known bases; those of families are read now, where they were not before.

    \b
    Example:
      deltadex bases ls
    """
    print_answer(common, asked, _show_bases, read_only=None)


def _show_bases(document: Mapping[str, Any]) -> None:
    terminal.show_bases(document)
    for row in document["failed"]:
        click.echo(plain(f"{row['base']}: {row['reason']}"), err=True)
