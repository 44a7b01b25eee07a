"""`deltadex index`: a whole family; what `add` shares with it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import REASONS
from ..terminal.options import Common, Indexing, Strictness, argument, option, takes
from .exits import EXIT_NOTHING_DONE, EXIT_SOME_FAILED
from .output import print_document

if TYPE_CHECKING:
    from ..indexer import IndexOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySource:
    """Where the members of a family are."""

    base: str = argument()
    folder: Path | None = argument(required=False, type=click.Path(exists=True, path_type=Path))
    hub: bool = option(
        "--hub", is_flag=True, help="Index the base's whole family on the Hugging Face Hub."
    )
    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Index at most N models."
    )


@click.command()
@takes(FamilySource, Indexing, Strictness)
def index(common: Common, source: FamilySource, indexing: Indexing, strictness: Strictness) -> None:
    """Fingerprint the fine-tunes of BASE in FOLDER (or on the Hub).

    BASE is a Hub id or a folder; a mere name will do when all members are adapters. FOLDER
    holds models at any depth, or is a file with one id or path per line. A second run reads
    only what is new.

    \b
    Example:
      deltadex index bert-base-uncased ./my-fine-tunes --labels labels.csv
    """
    from ..indexer import IndexOptions

    run_index(common, IndexOptions(**asdict(source), **asdict(indexing)), strictness)


def run_index(common: Common, options: IndexOptions, strictness: Strictness) -> None:
    """Index, print the report, and exit by what failed."""
    from ..indexer import index_family
    from ..store import Catalog
    from ..terminal import RunProgress, show_report

    with Catalog.open(common.db) as catalog, RunProgress(quiet=common.quiet) as progress:
        report = index_family(catalog, options, progress)
    document = report.to_json()
    print_document(document, show_report, common)
    if any(strictness.strict or REASONS[r.code].is_failure for r in report.refused):
        done = report.indexed + report.unchanged
        sys.exit(EXIT_SOME_FAILED if done else EXIT_NOTHING_DONE)
