"""Studies that read weights alone: rank, diff."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ..terminal.options import base_option, common, picture_option
from .output import check_picture, each, finish, print_document
from .subject import Subject, family_subjects, find_subject, keep, reading, recall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..study.rank import RankReport


@click.command()
@click.argument("model", required=False)
@click.option("--family", help="Every indexed model of this base, and their mean.")
@click.option(
    "--theta",
    "thetas",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    default=(0.5, 0.9, 0.99),
    show_default=True,
    help="Shares of |ΔW|² to be explained; the first is drawn.",
)
@click.option("--weights", is_flag=True, help="Of the weights W themselves, not of ΔW.")
@picture_option
@base_option
@common
def rank(
    db: Path,
    as_json: bool,
    quiet: bool,
    model: str | None,
    family: str | None,
    thetas: tuple[float, ...],
    weights: bool,
    picture: Path | None,
    base: str | None,
) -> None:
    """How many directions the update has, by role and depth, and what law that follows.

    \b
    Example:
      deltadex rank someone/bert-imdb -o ranks.png
      deltadex rank --family bert-base-uncased --theta 0.9
    """
    from ..study.rank import family_ranks
    from ..terminal import show_ranks

    if (model is None) == (family is None):
        raise click.UsageError("give a MODEL, or --family BASE")
    check_picture(picture)
    if model is not None:
        report: RankReport = _ranks(db, find_subject(db, model, base), thetas, weights=weights)
        failed: list[dict[str, str]] = []
    else:
        assert family is not None
        subjects = family_subjects(db, family)
        reports, failed = each(
            subjects, lambda one: _ranks(db, one, thetas, weights=weights), quiet=quiet
        )
        report = family_ranks(reports, name=family)
    document = report.to_json() | {"failed": failed}

    def draw() -> Figure:
        from ..study.pictures.rank import draw_ranks

        return draw_ranks(report, thetas[0])

    finish(document, draw, picture, f"Ranks of {report.name}", as_json, show_ranks)


def _ranks(db: Path, subject: Subject, thetas: tuple[float, ...], *, weights: bool) -> RankReport:
    """One model's ranks, from the catalog where they are known."""
    from ..indexer import update_spectra, weight_spectra
    from ..study.rank import RankReport, rank_study

    kind: Literal["weights", "update"] = "weights" if weights else "update"
    settings = {"thetas": sorted(set(thetas)), "subject": kind, "version": 1}
    known = recall(db, subject, "rank", settings)
    if known is not None:
        return RankReport.from_json(known)
    with reading(db) as catalog:
        spectra_of = weight_spectra if weights else update_spectra
        _, spectra = spectra_of(catalog, subject.require_source(), subject.require_base())
        family = catalog.family(subject.require_base())
        shapes = family.slots.get("shapes", {}) if family else {}
    depths: dict[str, int] = {}
    for stack, layer in (
        *((s.slot.stack, s.slot.layer) for s in spectra),
        *((name.split(".")[0], int(name.split(".")[1])) for name in shapes),
    ):
        depths[stack] = max(depths.get(stack, 0), layer + 1)
    report = rank_study(
        subject.name, spectra, thetas=sorted(set(thetas)), n_layers=depths, subject=kind
    )
    keep(db, subject, "rank", settings, report.to_json())
    return report


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@base_option
@common
def diff(db: Path, as_json: bool, quiet: bool, first: str, second: str, base: str | None) -> None:
    """What differs between two indexed models of a family, in a screen.

    \b
    Example:
      deltadex diff someone/bert-imdb someone/bert-sst2
    """
    from ..study.diff import diff_models
    from ..terminal import show_diff

    with reading(db) as catalog:
        document = diff_models(catalog, first, second, base).to_json()
    print_document(document, show_diff, as_json)
