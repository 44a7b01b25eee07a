"""python -m benchmarks.families COMMAND: families by real training, and scores."""

from __future__ import annotations

from pathlib import Path

import click

from .base import base_folder
from .plan import DERIVED_KINDS, KINDS, PLANS

ALL_KINDS = (*KINDS, *DERIVED_KINDS)
FOLDER = click.Path(file_okay=False, path_type=Path)
BASE = click.option(
    "--base",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The base model's folder.  [default: all-MiniLM-L6-v2 of its package; OUT-base if causal]",
)


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
@BASE
@click.option("--kind", "kinds", type=click.Choice(ALL_KINDS), multiple=True, default=ALL_KINDS)
@click.option("--set", "sets", multiple=True, help="Only these text sets.")
@click.option("--plan", type=click.Choice(list(PLANS)), default="six", show_default=True)
@click.option("--runs", type=click.IntRange(min=1), help="Runs a text set.  [default: the plan's]")
@click.option("--steps", type=click.IntRange(min=1), help="Train no run for more steps.")
@click.option("--workers", default=2, show_default=True, help="Processes of one thread each.")
def build_command(
    out: Path,
    texts: Path,
    base: Path | None,
    kinds: tuple[str, ...],
    sets: tuple[str, ...],
    plan: str,
    runs: int | None,
    steps: int | None,
    workers: int,
) -> None:
    """Train what is missing under OUT; killed, the same command goes on."""
    from .build import build

    build(out, texts, base, kinds, sets, PLANS[plan], runs, steps, workers)


@main.command("score")
@click.argument("out", type=FOLDER)
@BASE
@click.option("--db", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--budget", "budgets", multiple=True, default=("2%", "10%"), show_default=True)
@click.option(
    "--adapters",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of FAMILY/NAME adapters with labels.csv: strangers', scored across authors.",
)
def score_command(
    out: Path, base: Path | None, db: Path, budgets: tuple[str, ...], adapters: Path | None
) -> None:
    """Index what was built under every recipe and budget, and print the table."""
    from .score import score_adapters, score_families

    print(score_families(out, base or base_folder(), db, budgets))
    if adapters is not None:
        print(score_adapters(adapters, db.with_suffix(".adapters.duckdb")))


@main.command("evidence")
@click.argument("dbs", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
@click.option("--fit", is_flag=True, help="Print the coefficients that fit these families.")
def evidence_command(dbs: tuple[Path, ...], fit: bool) -> None:
    """Ask every model of the catalogs DB, with its siblings and without, and print the table."""
    from .evidence import score_evidence

    print(score_evidence(dbs, fit=fit))


@main.command("score-data")
@click.argument("out", type=FOLDER)
@click.option(
    "--texts",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="The folder of SET.csv files that OUT was built from.",
)
@BASE
@click.option("--db", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--plan", type=click.Choice(["twelve", "causal", "llama"]), default="twelve")
@click.option("--examples", "sizes", multiple=True, type=int, default=(64, 128, 512, 2048))
def score_data_command(
    out: Path, texts: Path, base: Path | None, db: Path, plan: str, sizes: tuple[int, ...]
) -> None:
    """Ask for the fine-tunes of each set by examples of its other half, and print the table.

    The queries are kept beside the database, and are not computed again.
    """
    from .data_queries import score_data

    print(score_data(out, texts, base, db, PLANS[plan], sizes))


TEXTS = click.option(
    "--texts", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True
)
FAMILIES = click.option(
    "--family",
    "families",
    type=(click.Path(exists=True, dir_okay=False, path_type=Path), click.Choice(sorted(PLANS))),
    multiple=True,
    required=True,
    help="A database of `score-data`, and its plan.",
)


@main.command("data-evidence")
@TEXTS
@FAMILIES
def data_evidence_command(texts: Path, families: tuple[tuple[Path, str], ...]) -> None:
    """Fit what takes z of a data set to a probability, and ask it of files held out."""
    from .data_queries import fit_evidence

    print(fit_evidence(texts, [(db, PLANS[plan]) for db, plan in families]))


@main.command("score-control")
@click.argument("out", type=FOLDER)
@click.option(
    "--texts",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="The folder of SET.csv files that OUT was built from.",
)
@BASE
@click.option("--db", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--plan", type=click.Choice(["twelve", "causal"]), default="causal")
@click.option("--examples", "sizes", multiple=True, type=int, default=(128, 512))
def score_control_command(
    out: Path, texts: Path, base: Path | None, db: Path, plan: str, sizes: tuple[int, ...]
) -> None:
    """Ask which half of a set each fine-tune saw, with the other half as control.

    `build --plan causal-lora` adds LoRA of each half.
    """
    from .control_queries import score_control

    print(score_control(out, texts, base, db, PLANS[plan], sizes))


if __name__ == "__main__":
    main()
