"""The studies, a line each: `db.studies.rank("imdb-0")`, `deltadex rank imdb-0`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .study import OpenCatalog, Study, StudyTable

if TYPE_CHECKING:
    from ..store import Catalog

Answer = TypeVar("Answer", bound=StudyTable)


class Studies:
    """Every study that there is: `db.studies`."""

    def __init__(self, catalog: Catalog, track: Any) -> None:
        self._db = OpenCatalog(catalog, track)

    from .ablation.ablation import ablation
    from .cka.cka import cka
    from .components.components import components
    from .correlation.correlate import correlate
    from .geometry.geometry import geometry
    from .layers.layers import layers
    from .lens.logit_lens import logit_lens
    from .profile.profile import profile
    from .rank.rank import rank
    from .spectrum.spectrum import spectrum

    def ask(self, study: Study) -> StudyTable:
        """The answer of a study whose options are given as its record."""
        answer: StudyTable = study.answer(self._db)  # type: ignore[attr-defined]
        return answer


STUDIES: dict[str, Any] = {
    name: method.asked for name, method in vars(Studies).items() if hasattr(method, "asked")
}
"""The record of each study by the name of its method."""
