"""How a network's states change from layer to layer, and what tells the layers apart."""

from .classifier import LayerClassifier, Score, fit_classifier, score_classifier
from .report import LayersReport
from .rows import LayerRows, collect_rows
from .study import layers_study

__all__ = [
    "LayerClassifier",
    "LayerRows",
    "LayersReport",
    "Score",
    "collect_rows",
    "fit_classifier",
    "layers_study",
    "score_classifier",
]
