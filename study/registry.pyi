from typing import Any

from ..store import Catalog
from .study import Study, StudyTable

class Studies:
    from .ablation.ablation import ablation
    from .cka.cka import cka
    from .components.components import components
    from .correlation.correlate import correlate
    from .geometry.geometry import geometry
    from .layers.layers import layers
    from .lens.logit_lens import logit_lens
    from .rank.rank import rank
    from .spectrum.spectrum import spectrum

    def __init__(self, catalog: Catalog, track: Any) -> None: ...
    def ask(self, study: Study) -> StudyTable: ...

STUDIES: tuple[str, ...]

def record_of(name: str) -> type[Study]: ...
