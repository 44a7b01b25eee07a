"""Questions about models and families: find-similar, ls, show, eval, cluster, map, diff, ….

Each is a record of the face that is answered there (`database/`); here it is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import click

from .. import database, terminal
from ..options import argument, option, record
from ..terminal.text import plain
from .command_line import (
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    Common,
    Display,
    Engine,
    asking,
    command,
    open_database,
    print_answer,
)


@command(database.FindSimilar, Engine)
def find_similar(common: Common, asked: database.FindSimilar, candidates: Engine) -> None:
    """Find the models nearest to MODEL: an indexed id, a folder or a Hub id.

    A model that is not in the catalog is fingerprinted on the fly and not stored. Several models
    are answered one after the other; `-` stands for models on stdin, one per line.

    The verdict of a neighbour is "copy", "likely the same data" (probability from 0.95) or
    "perhaps" (from 0.6, or more where over 5 % of queries without a sibling reach that). z counts
    standard deviations above the family's strangers; fdr is the share of all answers up to a row
    that are expected to be wrong.

    --across finds models of other bases, by the words that models were trained on.

    \b
    Example:
      deltadex find-similar someone/bert-imdb -k 5 --explain
      deltadex find-similar someone/bert-imdb --across
      deltadex ls --where "dataset IS NULL" --csv --columns model | tail -n +2 |
        deltadex find-similar - -k 1 --json
    """
    typed = cast("tuple[str, ...]", asked.model)
    models = _named(typed)
    is_one = typed == models and len(models) == 1
    if asked.across:
        if len(models) > 1:
            raise click.UsageError(f"--across takes one MODEL, and {len(models)} are named")
        if asked.explain or candidates.engine != Engine.engine:
            raise click.UsageError("--across takes no --explain and no --engine")
        print_answer(common, replace(asked, model=models[0]), terminal.show_across)
        return
    wanted = replace(asked, model=models[0] if is_one else models)
    table = print_answer(
        common, wanted, _show_neighbours if is_one else _show_several, engine=candidates.engine
    )
    if failed := table.to_json().get("failed"):
        sys.exit(EXIT_SOME_FAILED if len(failed) < len(models) else EXIT_NOTHING_DONE)


def _named(models: Sequence[str]) -> tuple[str, ...]:
    """The models, those on stdin in the place of `-`; each once."""
    names: list[str] = []
    for model in models:
        if model == "-":
            lines = _from_stdin().splitlines()
            names += [name for line in lines if (name := line.strip())]
        else:
            names.append(model)
    if not names:
        raise click.UsageError("no model on stdin: one id or path per line")
    return tuple(dict.fromkeys(names))


def _from_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")


def _show_neighbours(document: Mapping[str, Any]) -> None:
    terminal.show_neighbours(document)
    for explanation in document.get("explanations", ()):
        terminal.show_explanation(explanation)


def _show_several(document: Mapping[str, Any]) -> None:
    for place, query in enumerate(document["queries"]):
        if place:
            click.echo()
        _show_neighbours(query)
    for refused in document["failed"]:
        click.echo(plain(f"{refused['model']}: {refused['reason']}"), err=True)


words = asking(
    database.Words,
    "show_words",
    """Show the words that MODEL was trained on.

    A token that never occurs in training leaves its row of the input embedding as it was, so the
    rows that moved are the vocabulary of the training data. The embedding alone is read; nothing is
    run. What looks like a personal name, a number or a secret is shown with --all.
    """,
    "words someone/bert-imdb",
    "words ./my-fine-tune --against someone/bert-imdb",
)


search = asking(
    database.Search,
    "show_text_search",
    "Show the models whose training data is about TEXT.",
    'search "my bank card was declined"',
    'search "refugees and migration" -k 20 --base bert-base-uncased',
)


@command(database.Models, Display)
def ls(common: Common, asked: database.Models, display: Display) -> None:
    """List the models of the catalog.

    Columns are the keys that --json prints. Of models that are not indexed one line on the screen
    has the reasons, unless --status, --where or --columns asks for them.

    \b
    Example:
      deltadex ls --where "dataset IS NULL AND status = 'indexed'"
      deltadex ls --columns model,downloads --sort downloads --reverse --limit 20
    """
    display.check(common)
    with open_database(common) as db:
        table = asked.answer(db)
    is_plain = all(choice is None for choice in (asked.status, asked.where, asked.columns))
    show = partial(
        terminal.show_models, columns=table.columns, wide=display.wide, counts_rest=is_plain
    )
    display.print(table, table.columns, show, common)


show = asking(
    database.Show,
    "show_model",
    "Show everything known of MODEL, and what it changed, slot by slot.",
    "show someone/bert-imdb",
)


eval = asking(
    database.Evaluate,
    "show_evaluation",
    "Measure how often nearest neighbours share their dataset, against chance.",
    "eval --exclude author",
    "eval --recipe sketch --recipe mean-factors",
    "eval --compare raw,normalised -o purity.tex",
)


cluster = asking(
    database.Cluster,
    "show_clusters",
    """Group models that lie close together, and suggest datasets for unlabelled models.

    At most 20 % of the suggestions are expected to be wrong; weaker evidence is shown as a hint.
    """,
    "cluster --base bert-base-uncased --min-size 4",
)


def _show_map(document: Mapping[str, Any]) -> None:
    for key in ("written", "models", "layout"):
        click.echo(f"{key}: {document[key]}")


map = asking(
    database.Map,
    _show_map,
    "Draw a family as one HTML file or a picture: similar models lie near each other.",
    "map -o family.html",
    "map -o figure.svg --layout umap --colour author",
)


diff = asking(
    database.Diff,
    "show_diff",
    "Compare two indexed models of a family.",
    "diff someone/bert-imdb someone/bert-sst2",
)


explain = asking(
    database.Explain,
    "show_explanation",
    "Show which roles, layers and matrices carry the cosine of MODEL and OTHER.",
    "explain someone/bert-imdb someone/bert-reviews",
)


stats = asking(
    database.Stats,
    "show_stats",
    "Count the models, datasets and recipes of the catalog.",
    "stats",
)


failures = asking(
    database.Failures,
    "show_failures",
    "List the models that are not indexed, by reason.",
    "failures",
)


@record
class Statement:
    """Where a statement comes from."""

    query: str | None = argument(default=None, metavar="[QUERY]")
    _: KW_ONLY
    file: Path | None = option(
        "-f", "--file", default=None, file="existing file", help="Read QUERY from a file."
    )

    def text(self) -> str:
        """The statement; `click.UsageError` where there is none, or two."""
        if (self.query is None) == (self.file is None):
            raise click.UsageError("give QUERY, `-` for standard input, or --file FILE")
        if self.file is not None:
            return self.file.read_text("utf-8-sig", "replace")
        return _from_stdin() if self.query == "-" else str(self.query)


@command(Statement, Display)
def sql(common: Common, statement: Statement, display: Display) -> None:
    """Print what a SELECT gives, from the tables of the catalog.

    QUERY is DuckDB's SQL: one SELECT, which cannot write and reads no file; `-` reads it from
    standard input. It is answered also while a service or an indexing run holds the catalog.
    Tables and views: docs/catalog.md, or "SHOW TABLES".

    \b
    Example:
      deltadex sql "SELECT dataset, count(*) AS models FROM models GROUP BY ALL ORDER BY 2 DESC"
      deltadex sql "FROM coverage" --csv
      deltadex sql -f families.sql -o families.md
    """
    display.check(common)
    table = database.Select(statement.text()).of(common.db)
    rows = ([row[name] for name in table.names] for row in table)
    show = partial(terminal.show_rows, table.names, rows, wide=display.wide)
    display.print(table, table.names, lambda _: show(), common)
