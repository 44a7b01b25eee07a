"""python -m benchmarks.families build|score: families by real training, recipes scored on them."""

from __future__ import annotations

from pathlib import Path

import click

from .build import build
from .derived import DERIVED_KINDS
from .plan import KINDS

ALL_KINDS = (*KINDS, *DERIVED_KINDS)


@click.group()
def main() -> None:
    """Build labelled families by real training, and score every recipe on them."""


@main.command("build")
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--texts",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder of SET.csv files with the columns text and label.",
)
@click.option("--kind", "kinds", type=click.Choice(ALL_KINDS), multiple=True, default=ALL_KINDS)
@click.option("--set", "sets", multiple=True, help="Only these text sets.")
@click.option("--runs", default=4, show_default=True, help="Runs a text set.")
@click.option("--workers", default=2, show_default=True, help="Processes of one thread each.")
def build_command(
    out: Path, texts: Path, kinds: tuple[str, ...], sets: tuple[str, ...], runs: int, workers: int
) -> None:
    """Train what is missing under OUT; killed, the same command goes on."""
    build(out, texts, kinds, sets, runs, workers)


if __name__ == "__main__":
    main()
