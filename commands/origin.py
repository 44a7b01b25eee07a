"""Where models come from, and what can be made of their updates."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

import click

from .. import database, terminal
from ..options import option, record
from ..terminal.text import plain
from .command_line import (
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    Common,
    asking,
    command,
    open_database,
    output_file,
    print_answer,
    print_document,
    tracker,
)

trace = asking(
    database.Trace,
    "show_trace",
    """Find the base that MODEL comes from: an indexed id, a folder or a Hub id.

    Its weights are compared with those of every known base (`deltadex bases ls`): fine-tunes,
    continued pretraining, quantised and pruned copies, layers dropped, duplicated and moved,
    vocabularies grown and cut. p is how likely unrelated weights agree as much; where it is above
    1e-6 the answer is "unknown".
    """,
    "trace someone/bert-imdb",
    "trace ./my-model --json",
    read_only=None,
)


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
    """Register BASE: a folder or a Hub id. At most 2 MiB of each is kept.

    \b
    Example:
      deltadex bases add google-bert/bert-base-uncased ./our-base
    """
    if not asked.bases:
        raise click.UsageError("no base given: name a folder or a Hub id")
    table = print_answer(common, asked, _show_bases, read_only=False, create="late")
    if table.to_json()["failed"]:
        sys.exit(EXIT_SOME_FAILED if len(table) else EXIT_NOTHING_DONE)


def _show_bases(document: Mapping[str, Any]) -> None:
    terminal.show_bases(document)
    for row in document["failed"]:
        click.echo(plain(f"{row['base']}: {row['reason']}"), err=True)


ls = asking(
    database.KnownBases,
    _show_bases,
    "List the known bases; those of families are read now, where they were not before.",
    "bases ls",
    group=bases,
    read_only=None,
)


@command(database.ExtractAdapter)
def extract_adapter(common: Common, asked: database.ExtractAdapter) -> None:
    """Write a LoRA adapter that turns the base into MODEL, as a folder that PEFT loads.

    Layer matrices become low-rank factors; norms, heads, grown embeddings and all else that differs
    from the base are saved whole. The error is what the factors leave out of the update.

    \b
    Example:
      deltadex extract-adapter someone/bert-imdb -o bert-imdb-lora --rank 16
      deltadex extract-adapter ./my-run -o my-lora --bytes 20MB --dtype bfloat16
    """
    # a folder is extracted without a catalog, too
    path = common.db if common.db.exists() else None
    with database.open(path, read_only=path is not None, track=tracker(quiet=common.quiet)) as db:
        table = asked.answer(db)
    print_document(table, lambda document: terminal.show_extraction(document), common)


@record
class LineageFile:
    """The picture of a lineage, and how much of it is printed."""

    _: KW_ONLY
    output: Path | None = output_file(
        "Draw the tree: .svg, .png, .html, or .dot for Graphviz; or write its edges: .csv, .md, "
        ".tex."
    )
    everything: bool = option("--all", default=False, help="Print every model and every claim.")


@command(database.Lineage, LineageFile)
def lineage(common: Common, asked: database.Lineage, file: LineageFile) -> None:
    """Show which models of a family were trained from which.

    Every edge has a probability; a model of which none is likely enough hangs at BASE. Cards are
    no evidence: what they say is shown beside it.

    \b
    Example:
      deltadex lineage bert-base-uncased
      deltadex lineage bert-base-uncased -o tree.svg
      deltadex lineage --json
    """
    if file.output is not None:
        database.check_lineage_ending(file.output)
    with open_database(common) as db:
        table = asked.answer(db)
    document = table.to_json()
    if file.output is not None:
        document["picture"] = str(table.save(file.output))

    def show(document: Any) -> None:
        terminal.show_lineage(document, everything=file.everything)

    print_document(document, show, common)


audit = asking(
    database.Audit,
    "show_audit",
    """List what stands out among the models of a family, or of one model.

    Copies, frozen parts, edits of a direction or of one matrix, updates below storage rounding,
    outliers, licences in conflict with an ancestor's, cards that name another base or data set than
    the weights do. docs/audit.md has the error rate of each, and what it cannot see.
    """,
    "audit bert-base-uncased --kind edit",
    'audit --where "downloads > 1000" -o findings.md',
)
