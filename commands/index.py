"""Models come into a catalog, get labels, and leave: index, plan, add, label, rm."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import KW_ONLY, replace
from typing import Any

import click

from .. import terminal
from ..database import Add, Index, Label, Opened, Plan, Remove, open_as
from ..errors import REASONS
from ..options import as_kind, option, record
from ..terminal.text import count, plain
from .command_line import (
    CONTINUES,
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    Common,
    asking,
    command,
    print_document,
    show_pairs,
    tracker,
    when_stopped,
)


@record
class Strictness:
    """What counts as a failure."""

    _: KW_ONLY
    strict: bool = option(
        default=False,
        help="Exit 1 also for models that are skipped, equal to the base, or refused by nature.",
    )


@record
class Rehearsal:
    """Nothing is done."""

    _: KW_ONLY
    dry_run: bool = option(default=False, help="Print what would be done, as `plan` does.")


@command(Index, Strictness, Rehearsal)
def index(common: Common, asked: Index, strictness: Strictness, rehearsal: Rehearsal) -> None:
    """Fingerprint the fine-tunes of BASE in FOLDER (or on the Hub).

    BASE is a Hub id or a folder; where all members are adapters, any name. FOLDER
    holds models at any depth, or is a file with one id or path per line. A second run reads
    only what is new. FOLDER alone is indexed family by family, by the bases that its models
    name.

    \b
    Example:
      deltadex index bert-base-uncased ./my-fine-tunes --labels labels.csv
      deltadex index ./all-my-fine-tunes
    """
    writes_catalog = asked.parts is None or asked.ray is not None
    if rehearsal.dry_run:
        _print_plan(common, as_kind(Plan, asked), writes_catalog=writes_catalog)
    else:
        _run(common, asked, strictness, writes_catalog=writes_catalog, whole_family=asked.hub)


@command(Plan)
def plan(common: Common, asked: Plan) -> None:
    """Say what indexing BASE's family would read, refuse, request and store.

    Reads listings and headers, no weights. --workers counts machines that share the work, each
    with a connection of --bandwidth. `index` takes the listing over within 24 hours.

    \b
    Example:
      deltadex plan bert-base-uncased --hub --budget 20MB --exclude quantized --workers 4
    """
    _print_plan(common, asked)


@command(Add, Strictness)
def add(common: Common, asked: Add, strictness: Strictness) -> None:
    """Add single models: Hub ids or folders.

    \b
    Example:
      deltadex add someone/bert-imdb ./my-run --base bert-base-uncased
    """
    _run(common, asked, strictness)


rm = asking(
    Remove,
    show_pairs,
    "Forget MODEL. Its files are not touched.",
    "rm someone/bert-imdb",
    prints_table=False,
    read_only=False,
)


def _print_plan(common: Common, asked: Plan, *, writes_catalog: bool = True) -> None:
    with _opened(common, writes_catalog=writes_catalog) as db:
        table = asked.answer(db)
    print_document(table, terminal.show_plan, common)


def _opened(common: Common, *, writes_catalog: bool) -> Opened:
    """The catalog; a temporary one where there is none and none is written."""
    path = common.db if writes_catalog or common.db.exists() else None
    track = tracker(quiet=common.quiet)
    return open_as(Opened, path, read_only=False, create="late", track=track)


def _run(
    common: Common,
    asked: Index | Add,
    strictness: Strictness,
    *,
    writes_catalog: bool = True,
    whole_family: bool = False,
) -> None:
    """Index with progress, print the report, and exit by what failed."""
    progress = terminal.RunProgress(quiet=common.quiet)
    when_stopped(lambda: _kept(progress.n_outcomes))
    with _opened(common, writes_catalog=writes_catalog) as db, progress:
        report = replace(asked, progress=progress).answer(db)
    print_document(report, terminal.show_report, common)
    document = report.to_json()
    done = document["indexed"] + document["unchanged"]
    reasons = [REASONS[row["code"]] for row in report]
    if whole_family and done:  # nobody named the models that others may not read
        reasons = [reason for reason in reasons if strictness.strict or not reason.by_rights]
    if any(strictness.strict or reason.is_failure for reason in reasons):
        sys.exit(EXIT_SOME_FAILED if done else EXIT_NOTHING_DONE)


def _kept(n_models: int) -> str:
    if n_models:
        return f"Progress is saved: {count(n_models, 'model')}; {CONTINUES}"
    return "No model was finished yet; run the same command again."


def _show_label(document: Mapping[str, Any]) -> None:
    click.echo(plain(document["model"]))
    for name in ("dataset", "author", "run"):
        value, before = document[name] or "–", document["before"][name] or "–"
        change = "" if value == before else f"  (was {before})"
        click.echo(plain(f"  {name}: {value}{change}"))


label = asking(
    Label,
    _show_label,
    """Label the indexed MODEL: it was trained on DATASET.

    The label counts as one from a labels file: it overrides what the model says of itself, and
    stays when the model is indexed again.
    """,
    "label someone/bert-imdb imdb",
    "label someone/mystery --clear",
    prints_table=False,
    read_only=False,
)
