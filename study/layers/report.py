"""What a layer study found, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .classifier import LayerClassifier
from .contributions import Contributions
from .controls import Control
from .norms import LayerNorms
from .pca import LayerPca


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersReport:
    """The layers of one model on one set of texts.

    Attributes:
        n_texts: Texts in the sample.
        n_tokens: Tokens in the sample; each is a row at every layer.
        n_tokens_seen: Tokens that came by, of which the norms are.
        n_train: Rows that the classifier learned from; the controls count their own.
        n_test: Rows of held-back texts that it was scored on.
        controls: The classifier itself first.
    """

    layers: tuple[int, ...]
    dim: int
    n_texts: int
    n_tokens: int
    n_tokens_seen: int
    n_train: int
    n_test: int
    test_share: float
    seed: int
    norms: LayerNorms
    pca: LayerPca
    pca_unit_norm: LayerPca
    classifier: LayerClassifier
    contributions: Contributions
    controls: tuple[Control, ...]

    @property
    def chance(self) -> float:
        return 1.0 / len(self.layers)

    def control(self, name: str) -> Control | None:
        """The control of that name; None where the study had no data for it."""
        return next((control for control in self.controls if control.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Everything but rows, axes and weights."""
        return {
            "layers": list(self.layers),
            "dim": self.dim,
            "n_texts": self.n_texts,
            "n_tokens": self.n_tokens,
            "n_tokens_seen": self.n_tokens_seen,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "test_share": self.test_share,
            "seed": self.seed,
            "chance": self.chance,
            "norms": self.norms.to_json(),
            "pca": self.pca.to_json(),
            "pca_unit_norm": self.pca_unit_norm.to_json(),
            "classifier": {
                "iterations": self.classifier.iterations,
                "converged": self.classifier.converged,
            },
            "contributions": self.contributions.to_json(),
            "controls": [control.to_json() for control in self.controls],
        }
