"""`deltadex plan`: what indexing a family would take."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from ..terminal.options import Common, option, takes
from .index import FamilySource, Reading, print_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What the hours are computed for."""

    bandwidth: str = option(
        "--bandwidth",
        default="1Gbit",
        metavar="RATE",
        help="Connection of each of the --workers: 1Gbit, 200Mbit, 50MB.",
    )


@click.command()
@takes(FamilySource, Reading, Connection)
def plan(common: Common, source: FamilySource, reading: Reading, connection: Connection) -> None:
    """Say what indexing BASE's family would read, refuse, request and store.

    Reads listings and headers, no weights. --workers counts machines that share the work, each
    with a connection of --bandwidth. `index` takes the listing over within 24 hours.

    \b
    Example:
      deltadex plan bert-base-uncased --hub --budget 20MB --exclude quantized --workers 4
    """
    print_plan(common, asdict(source) | asdict(reading) | asdict(connection))
