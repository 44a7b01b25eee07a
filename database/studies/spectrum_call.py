"""The spectrum study of a model."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from ...errors import DeltadexError, RequestError
from ...study.study import Subject, find_subject
from .calls import StudyCalls, usable_device
from .tables import SpectrumStudy

if TYPE_CHECKING:
    from ...records import SlotSpectrum
    from ...study.spectrum import SpectrumReport
    from .settings import SpectrumSettings


class SpectrumCall(StudyCalls):
    """`spectrum`."""

    def spectrum(
        self,
        model: str,
        *,
        weights: bool = False,
        draws: int = 100,
        base: str | None = None,
        device: str = "cpu",
    ) -> SpectrumStudy:
        """The eigenvalues of an update ΔW and of the weights W, and the power law of each tail.

        Args:
            model: An id, a folder or a Hub id. Of an adapter whose base cannot be read, the
                update alone is measured.
            weights: Whether only the weights are measured; else the update beside them.
            draws: Of the test whether a power law is plausible; 0 leaves it out.
            device: Where Gram matrices are computed, as torch names it.

        Returns:
            A row for each matrix: the exponent `alpha` with its standard error, where the tail
            begins (`x_min`), its distance from the law and the p-value; norms and stable rank.

        Raises:
            RequestError: the model cannot be read, or is no fine-tune of its base.
            StudyError: it has no layer matrix.

        >>> study = db.spectrum("imdb-0", draws=0)
        >>> sorted({row["subject"] for row in study})
        ['update', 'weights']
        >>> study[0]["verdict"]  # of 8 eigenvalues
        'too few'
        """
        from ...study import pictures
        from ...study.spectrum import SpectrumReport
        from .settings import SpectrumSettings

        if draws < 0:
            raise RequestError(f"draws must be 0 or more, got {draws}")
        device = usable_device(device, float64=True)
        subject = find_subject(self._catalog, model, base)
        settings = SpectrumSettings(
            subjects=["weights"] if weights else ["update", "weights"], draws=draws
        )
        stored = self._load(subject, "spectrum", asdict(settings))
        if stored is not None:
            report = SpectrumReport.from_json(stored)
        else:
            report = self._measure_spectra(subject, settings, device)
            # without the base's weights it is not all that these settings ask for
            if list(report.subjects) == settings.subjects:
                self._save(subject, "spectrum", asdict(settings), report.to_json())
        return SpectrumStudy(
            report.to_json() | {"failed": []} | subject.base_notes,
            f"Spectra of {report.name}",
            partial(pictures.draw_spectra, report),
        )

    def _measure_spectra(
        self, subject: Subject, settings: SpectrumSettings, device: str
    ) -> SpectrumReport:
        from ...indexer import update_spectra, weight_spectra
        from ...study.spectrum import spectrum_study

        source, base = subject.require_source(), subject.require_base()
        spectra: dict[Literal["update", "weights"], tuple[SlotSpectrum, ...]] = {}
        missing: tuple[str, ...] = ()
        if "update" in settings.subjects:
            spectra["update"] = update_spectra(self._catalog, source, base, device=device)[1]
        try:
            spectra["weights"] = weight_spectra(self._catalog, source, base, device=device)[1]
        except DeltadexError as err:
            if not spectra:
                raise
            missing = (f"W is not measured: {err}",)
        report = spectrum_study(subject.name, spectra, draws=settings.draws, seed=settings.seed)
        return replace(report, notes=(*report.notes, *missing))
