"""The rank study of a model, or of a family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, Literal

from ...errors import RequestError
from ...options import argument, option, record
from ...records import Slot
from ...results import Document, Row, Section
from ..study import (
    BasedStudy,
    OpenCatalog,
    StudyTable,
    Subject,
    family_subjects,
    find_subject,
    study,
)

if TYPE_CHECKING:
    from .rank_study import RankReport


@record
class Rank(BasedStudy):
    """Count the directions of an update, by role and depth, and fit a law to them.

    Returns:
        A row for each weight matrix; the document has curves by role and depth.

    Raises:
        RequestError: neither or both of `model` and `family`.
        StudyError: no model could be studied.

    >>> len(db.studies.rank("imdb-0", thetas=[0.9])) == len(db.show("imdb-0"))
    True
    """

    name = "rank"
    version = 4
    examples = (
        "rank someone/bert-imdb -o ranks.png",
        "rank --family bert-base-uncased --theta 0.9",
    )

    model: str | None = argument(default=None, help="An id, a folder or a Hub id.")
    _: KW_ONLY
    family: str | None = option(
        default=None, stored=False, help="Measure every indexed model of this base, and their mean."
    )
    thetas: Sequence[float] = option(
        "--theta",
        default=(0.5, 0.9, 0.99),
        above=0,
        most=1,
        help="Shares of |ΔW|² to be explained.",
    )
    weights: bool = option(
        default=False, stored=False, help="Measure the weights W themselves, not ΔW."
    )

    def answer(self, db: OpenCatalog) -> RankTable:
        from .rank_study import family_ranks

        if (self.model is None) == (self.family is None):
            raise RequestError("give a MODEL, or --family BASE")
        device = self.usable_device(float64=True)
        said: dict[str, Any] = {"failed": [], "base_notes": []}
        if self.model is not None:
            subject = find_subject(db.catalog, self.model, self.base)
            report = self._ranks(db, subject, device)
            said |= subject.base_notes
        else:
            assert self.family is not None
            reports, said["failed"] = db.each(
                family_subjects(db.catalog, self.family),
                lambda member: self._ranks(db, member, device),
            )
            report = family_ranks(reports, name=self.family)
        title = f"Ranks of {report.name}"
        return RankTable(report.to_json() | said, report, title, thetas=self.thetas)

    def _ranks(self, db: OpenCatalog, subject: Subject, device: str) -> RankReport:
        """One model's ranks, from the catalog where they are stored."""
        from .rank_study import RankReport

        of: Literal["weights", "update"] = "weights" if self.weights else "update"
        settings = self.settings(thetas=sorted(set(self.thetas)), subject=of)
        stored = db.load(subject, "rank", settings)
        if stored is not None:
            return RankReport.from_json(stored)
        report = self._measure(db, subject, device, of)
        db.save(subject, "rank", settings, report.to_json())
        return report

    def _measure(
        self, db: OpenCatalog, subject: Subject, device: str, of: Literal["weights", "update"]
    ) -> RankReport:
        from ...indexer import update_spectra, weight_spectra
        from .rank_study import rank_study

        spectra_of = weight_spectra if self.weights else update_spectra
        base = subject.require_base()
        spectra = spectra_of(db.catalog, subject.require_source(), base, device=device)
        depths: dict[str, int] = {}
        for slot in map(Slot.parse, db.catalog.base(base).shapes):
            depths[slot.stack] = max(depths.get(slot.stack, 0), slot.layer + 1)
        thetas = sorted(set(self.thetas))
        return rank_study(subject.name, spectra, thetas=thetas, n_layers=depths, subject=of)


class RankTable(StudyTable):
    """Ranks of an update, a row for each slot; the document has curves by role and depth."""

    _key = "slots"
    _picture = "draw_ranks"

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        subject = "W" if document["subject"] == "weights" else "ΔW"
        yield Section(title=f"rank of {subject}: {document['name']}")
        for theta in document["thetas"]:
            curves = [curve for curve in document["curves"] if curve["theta"] == theta]
            for stack in dict.fromkeys(curve["stack"] for curve in curves):
                own = [curve for curve in curves if curve["stack"] == stack]
                depth = max(curve["n_layers"] for curve in own)
                more = ("parameters", "p") if everything else ()
                yield Section(
                    columns=(f"θ = {theta:g}, {stack}", *range(depth), "law", *more),
                    rows=[
                        (
                            curve["role"],
                            *_ranks_by_layer(curve, depth),
                            _law(curve["fit"]),
                            *(_law_details(curve["fit"]) if everything else ()),
                        )
                        for curve in own
                    ],
                    by_layer=range(1, depth + 1),
                    noun="layers",
                )
        yield Section(notes=document["notes"])


def _ranks_by_layer(curve: Document, depth: int) -> Iterator[str]:
    by_layer = {point["layer"]: point for point in curve["points"]}
    for layer in range(depth):
        if layer not in by_layer:
            yield ""
            continue
        point = by_layer[layer]
        rank, error = point["rank"], point["standard_error"]
        shown = f"{rank:.0f}" if error is None else f"{rank:.1f}±{error:.1f}"
        yield shown if point["valid"] else f"({shown})"


def _law(fit: Document) -> str:
    best, verdict = fit["best"], str(fit["verdict"])
    if best is None:
        return verdict
    if verdict == "constant":
        scatter = f" ± {fit['scatter']:.2g}" if fit["scatter"] else ""
        return f"constant {best['parameters']['a']['value']:.3g}{scatter}"
    if verdict == "no pattern":
        return f"no pattern, p {fit['p_value']:.2g}"
    if not fit["pattern"]:
        return f"{verdict} ({best['law']}: R² {best['r_squared']:.2f})"
    return f"{verdict}, R² {best['r_squared']:.2f}"


def _law_details(fit: Document) -> Iterator[object]:
    """The parameters of a law that holds, and the p-value."""
    parameters: Row = fit["best"]["parameters"] if fit["best"] and fit["pattern"] else {}
    shown = []
    for name, parameter in parameters.items():
        error = parameter["standard_error"]
        bounds = "" if error is None else f" ± {error:.2g}"
        shown.append(f"{name} = {parameter['value']:.3g}{bounds}")
    yield ", ".join(shown)
    yield fit["p_value"]


rank = study(Rank)
