"""The rank study of a model, or of a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from .calls import StudyCalls, usable_device
from .subject import Subject, family_subjects, find_subject
from .tables import RankStudy

if TYPE_CHECKING:
    from ...study.rank import RankReport
    from .settings import RankSettings

EARLIER_LAWS = 2
"""Version of stored settings: the same ranks, with laws that were chosen by fewer tests."""


class RankCall(StudyCalls):
    """`rank`."""

    def rank(
        self,
        model: str | None = None,
        *,
        family: str | None = None,
        thetas: Sequence[float] = (0.5, 0.9, 0.99),
        weights: bool = False,
        base: str | None = None,
        device: str = "cpu",
    ) -> RankStudy:
        """How many directions an update ΔW has, by role and depth, and what law that follows.

        Args:
            model: An id, a folder or a Hub id; or a `family`, whose models' mean is given.
            thetas: Shares of |ΔW|² to be explained, above 0 and up to 1.
            weights: Whether the ranks are of the weights W themselves.
            device: Where Gram matrices are computed, as torch names it.

        Returns:
            A row for each weight matrix; the document has curves by role and depth.

        Raises:
            RequestError: neither or both of `model` and `family`.
            StudyError: no model could be studied.

        >>> len(db.rank("imdb-0", thetas=[0.9])) == len(db.show("imdb-0"))
        True
        """
        from ... import pictures
        from ...study.rank import family_ranks
        from .settings import RankSettings

        if (model is None) == (family is None):
            raise RequestError("give a MODEL, or --family BASE")
        device = usable_device(device, float64=True)
        settings = RankSettings(
            thetas=sorted(set(thetas)), subject="weights" if weights else "update"
        )
        said: dict[str, Any] = {"failed": [], "base_notes": []}
        if model is not None:
            subject = find_subject(self._catalog, model, base)
            report = self._ranks(subject, settings, device)
            said |= subject.base_notes
        else:
            assert family is not None
            subjects = family_subjects(self._catalog, family)
            reports, said["failed"] = self._each(
                subjects, lambda member: self._ranks(member, settings, device)
            )
            report = family_ranks(reports, name=family)

        return RankStudy(
            report.to_json() | said,
            f"Ranks of {report.name}",
            partial(pictures.draw_ranks, report, tuple(thetas)),
        )

    def _ranks(self, subject: Subject, settings: RankSettings, device: str) -> RankReport:
        """One model's ranks, from the catalog where they are stored; laws are fitted again to those
        that an earlier version stored."""
        from ...study.rank import RankReport, with_laws

        stored = self._load(subject, "rank", asdict(settings))
        if stored is not None:
            return RankReport.from_json(stored)
        earlier = self._load(subject, "rank", asdict(replace(settings, version=EARLIER_LAWS)))
        if earlier is not None:
            report = with_laws(RankReport.from_json(earlier))
        else:
            report = self._measure_ranks(subject, settings, device)
        self._save(subject, "rank", asdict(settings), report.to_json())
        return report

    def _measure_ranks(self, subject: Subject, settings: RankSettings, device: str) -> RankReport:
        from ...indexer import update_spectra, weight_spectra
        from ...study.rank import rank_study

        spectra_of = weight_spectra if settings.subject == "weights" else update_spectra
        base = subject.require_base()
        _, spectra = spectra_of(self._catalog, subject.require_source(), base, device=device)
        shapes = self._catalog.base(base).shapes
        depths: dict[str, int] = {}
        for stack, layer in (
            *((s.slot.stack, s.slot.layer) for s in spectra),
            *((name.split(".")[0], int(name.split(".")[1])) for name in shapes),
        ):
            depths[stack] = max(depths.get(stack, 0), layer + 1)
        return rank_study(
            subject.name, spectra, thetas=settings.thetas, n_layers=depths, subject=settings.subject
        )
