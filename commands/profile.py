"""`deltadex profile`: one probe over every model of a family."""

from __future__ import annotations

from dataclasses import dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, option, takes
from .studying import open_for_study, print_studies, studied_base


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """Which models are probed."""

    models: tuple[str, ...] = argument(nargs=-1, metavar="MODEL...")
    family: str | None = option("--family", help="Probe every indexed model of this base.")
    again: bool = option("--again", is_flag=True, help="Recompute stored profiles.")
    device: str = option(
        "--device", default="cpu", show_default=True, help="Run models on this device."
    )
    base: str | None = studied_base()


@click.command()
@takes(Profiling)
def profile(common: Common, profiling: Profiling) -> None:
    """Run one probe over each MODEL, and store its activation shifts as fingerprints.

    The shifts are recipes of the catalog: `deltadex eval --recipe activation-shift`.

    \b
    Example:
      deltadex profile --family bert-base-uncased
    """
    with open_for_study(common) as db:
        table = db.profile(
            *profiling.models,
            family=profiling.family,
            again=profiling.again,
            device=profiling.device,
            base=profiling.base,
        )
    print_studies(table.to_json(), terminal.show_profiles, common)
