"""`deltadex find-similar`: the nearest models of a family."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import click

from .. import terminal
from ..database import FindSimilar
from ..terminal.options import Common, engine_option, takes
from ..terminal.text import plain
from .exits import EXIT_NOTHING_DONE, EXIT_SOME_FAILED
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Where candidates come from."""

    engine: str = engine_option()


@click.command("find-similar")
@takes(FindSimilar, Candidates)
def find_similar(common: Common, wanted: FindSimilar, candidates: Candidates) -> None:
    """Find the models nearest to MODEL: an indexed id, a folder or a Hub id.

    A model that is not in the catalog is fingerprinted on the fly and not stored. Several models
    are answered one after the other; `-` stands for models on stdin, one per line.

    The verdict of a neighbour is "copy", "likely the same data" (fdr up to 1 %) or "perhaps" (up
    to 5 %). z counts standard deviations above the family's strangers; fdr is the share of
    such answers that are expected to be wrong.

    \b
    Example:
      deltadex find-similar someone/bert-imdb -k 5 --explain
      deltadex ls --where "dataset IS NULL" --csv --columns model | tail -n +2 |
        deltadex find-similar - -k 1 --json
    """
    typed = cast("tuple[str, ...]", wanted.model)
    models = _named(typed)
    is_one = typed == models and len(models) == 1
    with open_database(common, engine=candidates.engine) as db:
        table = replace(wanted, model=models[0] if is_one else models).answer(db)
    print_table(table, _show if is_one else _show_all, common)
    if table.failed:
        sys.exit(EXIT_SOME_FAILED if len(table.failed) < len(models) else EXIT_NOTHING_DONE)


def _named(models: Sequence[str]) -> tuple[str, ...]:
    """The models, those on stdin in the place of `-`; each once."""
    names: list[str] = []
    for model in models:
        if model == "-":
            lines = sys.stdin.buffer.read().decode("utf-8-sig", "replace").splitlines()
            names += [name for line in lines if (name := line.strip())]
        else:
            names.append(model)
    if not names:
        raise click.UsageError("no model on stdin: one id or path per line")
    return tuple(dict.fromkeys(names))


def _show(document: Mapping[str, Any]) -> None:
    terminal.show_neighbours(document)
    for explanation in document.get("explanations", ()):
        terminal.show_explanation(explanation)


def _show_all(document: Mapping[str, Any]) -> None:
    for place, query in enumerate(document["queries"]):
        if place:
            click.echo()
        _show(query)
    for refused in document["failed"]:
        click.echo(plain(f"{refused['model']}: {refused['reason']}"), err=True)
