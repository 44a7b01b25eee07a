"""python -m benchmarks.families build|score: families by real training, recipes scored on them."""

from __future__ import annotations

from pathlib import Path

import click

from .build import build
from .derived import DERIVED_KINDS
from .plan import KINDS
from .score import score_adapters, score_families

ALL_KINDS = (*KINDS, *DERIVED_KINDS)
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def main() -> None:
    """Build labelled families by real training, and score every recipe on them."""


@main.command("build")
@click.argument("out", type=FOLDER)
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
    out: Path,
    texts: Path,
    kinds: tuple[str, ...],
    sets: tuple[str, ...],
    runs: int,
    workers: int,
) -> None:
    """Train what is missing under OUT; killed, the same command goes on."""
    build(out, texts, kinds, sets, runs, workers)


@main.command("score")
@click.argument("out", type=FOLDER)
@click.option("--db", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--budget", "budgets", multiple=True, default=("2%", "10%"), show_default=True)
@click.option(
    "--adapters",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of FAMILY/NAME adapters with labels.csv: strangers', scored across authors.",
)
def score_command(out: Path, db: Path, budgets: tuple[str, ...], adapters: Path | None) -> None:
    """Index what was built under every recipe and budget, and print the table."""
    print(score_families(out, db, budgets))
    if adapters is not None:
        print(score_adapters(adapters, db.with_suffix(".adapters.duckdb")))


if __name__ == "__main__":
    main()
