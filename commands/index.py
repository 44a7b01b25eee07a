"""`deltadex index`: a whole family; what `add` shares with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import click

from .. import terminal
from ..errors import REASONS
from ..terminal.options import Common, argument, option, takes
from .exits import EXIT_NOTHING_DONE, EXIT_SOME_FAILED
from .opening import open_database
from .output import print_table

if TYPE_CHECKING:
    from ..database import Database, IndexReport
    from ..terminal import RunProgress


Exclusion = Literal["adapters", "bin", "full", "gguf", "merges", "quantized"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySource:
    """Where the members of a family are."""

    base: str = argument()
    source: Path | None = argument(
        required=False, metavar="[FOLDER]", type=click.Path(exists=True, path_type=Path)
    )
    hub: bool = option("--hub", help="Index the base's whole family on the Hugging Face Hub.")
    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Index at most N models."
    )
    depth: int | None = option(
        "--depth",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --hub: only N generations below the base; 1 = its own children.",
    )
    exclude: tuple[Exclusion, ...] = option(
        "--exclude", multiple=True, help="Leave these models out; may be repeated."
    )
    min_downloads: int | None = option(
        "--min-downloads",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --hub: only models with at least N downloads.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read of models, and under which recipes."""

    labels: Path | None = option(
        "--labels",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Table with columns model,dataset,author,run, separated by commas, semicolons or "
        "tabs; overrides what models say.",
    )
    rank: int | None = option(
        "--rank", type=click.IntRange(min=1), help="Keep this many factors per matrix."
    )
    budget: str | None = option(
        "--budget",
        metavar="SHARE",
        help="Read only this much of every model's layers: 2%, 20MB.  [default: all]",
    )
    recipes: tuple[str, ...] = option(
        "--recipe",
        multiple=True,
        help="Name of a recipe, of its newest version; may be repeated.  [default: the family's, "
        "or sketch]",
    )
    aliases: tuple[str, ...] = option(
        "--alias", multiple=True, help="Another name that members give the base."
    )
    workers: int = option(
        "--workers",
        type=click.IntRange(min=0),
        default=0,
        show_default=False,
        help="Index N models in parallel.  [default: chosen by what is read]",
        metavar="N",
    )
    retry_failed: bool = option("--retry-failed", help="Read models again that failed before.")
    verify: bool = option(
        "--verify",
        help="Read unverified models again, whole, and compare them with their listed SHA-256.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """Many processes or machines."""

    ray: str | None = option(
        "--ray",
        metavar="ADDRESS|local",
        help="Read with the workers of a Ray cluster, --workers of them.",
    )
    parts: str | None = option(
        "--parts",
        metavar="DIR",
        help="Write Parquet parts into DIR, a folder or an fsspec address; without --ray in place "
        "of the catalog. `deltadex merge DIR --db CATALOG` takes them.",
    )
    share: str | None = option(
        "--share", metavar="N/OF", help="Index only share N of OF equal shares of the models."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexing(Reading):
    """How models are fingerprinted."""

    device: str = option(
        "--device",
        default="auto",
        help="Compress updates on this device; auto takes a GPU if there is one.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Strictness:
    """What counts as a failure."""

    strict: bool = option(
        "--strict",
        help="Exit 1 also for models that are skipped, equal to the base, or refused by nature.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Nothing is done."""

    dry_run: bool = option("--dry-run", help="Print what would be done, as `plan` does.")


@click.command()
@takes(FamilySource, Indexing, FanOut, Strictness, Rehearsal)
def index(
    common: Common,
    source: FamilySource,
    indexing: Indexing,
    fan_out: FanOut,
    strictness: Strictness,
    rehearsal: Rehearsal,
) -> None:
    """Fingerprint the fine-tunes of BASE in FOLDER (or on the Hub).

    BASE is a Hub id or a folder; where all members are adapters, any name. FOLDER
    holds models at any depth, or is a file with one id or path per line. A second run reads
    only what is new.

    \b
    Example:
      deltadex index bert-base-uncased ./my-fine-tunes --labels labels.csv
    """
    writes_catalog = fan_out.parts is None or fan_out.ray is not None
    if rehearsal.dry_run:
        places = {"parts": fan_out.parts, "share": fan_out.share}
        print_plan(
            common, asdict(source) | asdict(indexing) | places, writes_catalog=writes_catalog
        )
        return
    run_indexing(
        common,
        strictness,
        lambda db, progress: db.index(
            **asdict(source), **asdict(indexing), **asdict(fan_out), progress=progress
        ),
        writes_catalog=writes_catalog,
        whole_family=source.hub,
    )


def print_plan(common: Common, settings: dict[str, Any], *, writes_catalog: bool = True) -> None:
    """Print what indexing with these settings would take."""
    with _opened(common, writes_catalog=writes_catalog) as db:
        table = db.plan(**settings)
    print_table(table, terminal.show_plan, common)


@contextmanager
def _opened(common: Common, *, writes_catalog: bool) -> Iterator[Database]:
    """The catalog; a temporary one where there is none and none is written."""
    with ExitStack() as opened:
        place = common.db
        if not writes_catalog and not place.exists():
            place = Path(opened.enter_context(TemporaryDirectory())) / "none.duckdb"
        yield opened.enter_context(open_database(common, place, read_only=False, create="late"))


def run_indexing(
    common: Common,
    strictness: Strictness,
    run: Callable[[Database, RunProgress], IndexReport],
    *,
    writes_catalog: bool = True,
    whole_family: bool = False,
) -> None:
    """Index with progress, print the report, and exit by what failed.

    A run that writes parts alone reads the catalog, if there is one. Of a whole family on the Hub
    nobody named the models that others may not read.
    """
    with (
        _opened(common, writes_catalog=writes_catalog) as db,
        terminal.RunProgress(quiet=common.quiet) as progress,
    ):
        report = run(db, progress)
    print_table(report, terminal.show_report, common)
    document = report.to_json()
    done = document["indexed"] + document["unchanged"]
    reasons = [REASONS[row["code"]] for row in report]
    if whole_family and done:
        reasons = [reason for reason in reasons if strictness.strict or not reason.by_rights]
    if any(strictness.strict or reason.is_failure for reason in reasons):
        sys.exit(EXIT_SOME_FAILED if done else EXIT_NOTHING_DONE)
