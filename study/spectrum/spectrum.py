"""The spectrum study of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING, Literal

from ...errors import DeltadexError
from ...options import option, record
from ...results import Document, Row, Section
from ..study import ModelStudy, OpenCatalog, StudyTable, Subject, find_subject, study

if TYPE_CHECKING:
    from ...records import SlotSpectrum
    from .spectrum_study import SpectrumReport

LAW_FIELDS = ("alpha", "standard_error", "x_min", "distance", "n_tail", "p_value")
"""Of a spectrum's power law; empty in the row of a matrix that has none."""
SYMBOLS = {"update": "ΔW", "weights": "W"}


@record
class Spectrum(ModelStudy):
    """Fit a power law to the largest eigenvalues of ΔW and of W, by layer and role.

    Of an adapter whose base cannot be read, the update alone is measured.

    Returns:
        A row for each matrix: the exponent `alpha` with its standard error, where the tail
        begins (`x_min`), its distance from the law and the p-value; norms and stable rank.

    Raises:
        RequestError: the model cannot be read, or is no fine-tune of its base.
        StudyError: it has no layer matrix.

    >>> study = db.studies.spectrum("imdb-0", draws=0)
    >>> sorted({row["subject"] for row in study})
    ['update', 'weights']
    >>> study[0]["verdict"]  # of 8 eigenvalues
    'too few'
    """

    name = "spectrum"
    examples = ("spectrum ./my-run -o spectrum.png",)

    _: KW_ONLY
    weights: bool = option(
        default=False, stored=False, help="Measure the weights W alone, without ΔW."
    )
    draws: int = option(
        default=100,
        least=0,
        metavar="N",
        help="Test by N draws whether a power law is plausible; 0 leaves the test out.",
    )

    def answer(self, db: OpenCatalog) -> SpectrumTable:
        from .spectrum_study import SpectrumReport

        device = self.usable_device(float64=True)
        subject = find_subject(db.catalog, self.model, self.base)
        subjects = ["weights"] if self.weights else ["update", "weights"]
        settings = self.settings(subjects=subjects, seed=0)
        stored = db.load(subject, self.name, settings)
        if stored is not None:
            report = SpectrumReport.from_json(stored)
        else:
            report = self._measure(db, subject, device)
            # without the base's weights it is not all that these settings ask for
            if list(report.subjects) == subjects:
                db.save(subject, self.name, settings, report.to_json())
        document = report.to_json() | {"failed": []} | subject.base_notes
        return SpectrumTable(document, report, f"Spectra of {report.name}")

    def _measure(self, db: OpenCatalog, subject: Subject, device: str) -> SpectrumReport:
        from ...indexer import update_spectra, weight_spectra
        from .spectrum_study import spectrum_study

        source, base = subject.require_source(), subject.require_base()
        spectra: dict[Literal["update", "weights"], tuple[SlotSpectrum, ...]] = {}
        missing: tuple[str, ...] = ()
        if not self.weights:
            spectra["update"] = update_spectra(db.catalog, source, base, device=device)[1]
        try:
            spectra["weights"] = weight_spectra(db.catalog, source, base, device=device)[1]
        except DeltadexError as err:
            if not spectra:
                raise
            missing = (f"W is not measured: {err}",)
        report = spectrum_study(subject.name, spectra, draws=self.draws, seed=0)
        return replace(report, notes=(*report.notes, *missing))


class SpectrumTable(StudyTable):
    """Eigenvalues of updates and weights, a row for each matrix; the document has curves."""

    columns = ("subject", "stack", "layer", "role", "verdict", "alpha")
    _picture = "draw_spectra"

    def _rows(self) -> Sequence[Row]:
        return [
            {key: value for key, value in matrix.items() if key not in ("curve", "power_law")}
            | (matrix["power_law"] or dict.fromkeys(LAW_FIELDS))
            for matrix in self._document["matrices"]
        ]

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        yield Section(title=f"α of the largest eigenvalues: {document['name']}")
        for stack, depth in document["depths"].items():
            own = [matrix for matrix in document["matrices"] if matrix["stack"] == stack]
            yield Section(
                columns=(stack, "of", *range(depth)),
                rows=[
                    (role, SYMBOLS[subject], *(_alpha(own, subject, role, n) for n in range(depth)))
                    for role in dict.fromkeys(matrix["role"] for matrix in own)
                    for subject in document["subjects"]
                ],
                by_layer=range(2, depth + 2),
                most=8,
                noun="layers",
            )
        yield Section(notes=document["notes"])
        if everything:
            rows = self._rows()
            yield Section.of(tuple(rows[0]), rows)


def _alpha(matrices: Sequence[Document], subject: str, role: str, layer: int) -> str:
    """Of one matrix with its standard error; the mean of a slot's parts."""
    place = (subject, role, layer)
    here = [m for m in matrices if (m["subject"], m["role"], m["layer"]) == place]
    fitted = [m for m in here if m["power_law"]]
    if not fitted:
        return str(here[0]["verdict"]) if here else ""
    alphas = [m["power_law"]["alpha"] for m in fitted]
    shown = f"{sum(alphas) / len(alphas):.1f}"
    if len(fitted) == 1:
        shown += f"±{fitted[0]['power_law']['standard_error']:.1f}"
    doubted = all(m["verdict"] == "no power law" for m in fitted)
    return f"({shown})" if doubted else shown


spectrum = study(Spectrum)
