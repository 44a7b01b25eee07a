"""`deltadex rank`: how many directions an update has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ..terminal.options import Common, argument, base_option, option, picture_option, takes
from .output import check_picture, finish_study
from .studies import load_study, save_study, study_each
from .subject import Subject, family_subjects, find_subject, reading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..study.rank import RankReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """Whose rank, of what."""

    model: str | None = argument(required=False)
    family: str | None = option(
        "--family", help="Every indexed model of this base, and their mean."
    )
    thetas: tuple[float, ...] = option(
        "--theta",
        type=click.FloatRange(0, 1, min_open=True),
        multiple=True,
        default=(0.5, 0.9, 0.99),
        show_default=True,
        help="Shares of |ΔW|² to be explained; the first is drawn.",
    )
    weights: bool = option(
        "--weights", is_flag=True, help="Of the weights W themselves, not of ΔW."
    )
    output: Path | None = picture_option()
    base: str | None = base_option()

    @property
    def settings(self) -> RankSettings:
        """What decides the numbers."""
        return RankSettings(
            thetas=sorted(set(self.thetas)), subject="weights" if self.weights else "update"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """What decides a rank study's numbers; stored with them."""

    thetas: list[float]
    subject: Literal["weights", "update"]
    version: int = 1


@click.command()
@takes(RankOptions)
def rank(common: Common, options: RankOptions) -> None:
    """How many directions the update has, by role and depth, and what law that follows.

    \b
    Example:
      deltadex rank someone/bert-imdb -o ranks.png
      deltadex rank --family bert-base-uncased --theta 0.9
    """
    from ..terminal import show_ranks

    if (options.model is None) == (options.family is None):
        raise click.UsageError("give a MODEL, or --family BASE")
    check_picture(options.output)
    report, failed = _study(common, options)

    def draw() -> Figure:
        from ..study.pictures.rank import draw_ranks

        return draw_ranks(report, options.thetas[0])

    document = report.to_json() | {"failed": failed}
    finish_study(document, draw, options.output, f"Ranks of {report.name}", show_ranks, common)


def _study(common: Common, options: RankOptions) -> tuple[RankReport, list[dict[str, str]]]:
    """The ranks of one model, or of a family and the models that failed."""
    from ..study.rank import family_ranks

    if options.model is not None:
        subject = find_subject(common.db, options.model, options.base)
        return _ranks(common.db, subject, options.settings), []
    assert options.family is not None
    subjects = family_subjects(common.db, options.family)
    reports, failed = study_each(
        subjects,
        lambda subject: _ranks(common.db, subject, options.settings),
        quiet=common.quiet,
    )
    return family_ranks(reports, name=options.family), failed


def _ranks(db: Path, subject: Subject, settings: RankSettings) -> RankReport:
    """One model's ranks, from the catalog where they are stored."""
    from ..study.rank import RankReport

    stored = load_study(db, subject, "rank", asdict(settings))
    if stored is not None:
        return RankReport.from_json(stored)
    report = _measure(db, subject, settings)
    save_study(db, subject, "rank", asdict(settings), report.to_json())
    return report


def _measure(db: Path, subject: Subject, settings: RankSettings) -> RankReport:
    from ..indexer import update_spectra, weight_spectra
    from ..study.rank import rank_study

    spectra_of = weight_spectra if settings.subject == "weights" else update_spectra
    with reading(db) as catalog:
        _, spectra = spectra_of(catalog, subject.require_source(), subject.require_base())
        family = catalog.base(subject.require_base())
        shapes = family.slots.get("shapes", {}) if family else {}
    depths: dict[str, int] = {}
    for stack, layer in (
        *((s.slot.stack, s.slot.layer) for s in spectra),
        *((name.split(".")[0], int(name.split(".")[1])) for name in shapes),
    ):
        depths[stack] = max(depths.get(stack, 0), layer + 1)
    return rank_study(
        subject.name, spectra, thetas=settings.thetas, n_layers=depths, subject=settings.subject
    )
