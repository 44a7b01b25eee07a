from .layer_classifier import LayerClassifier, fit_classifier, score_classifier
from .layer_rows import LayerRows, collect_rows
from .layers_report import (
    LayersPlan,
    LayersReport,
    layers_study,
    study_network,
)

__all__ = [
    "LayerClassifier",
    "LayerRows",
    "LayersPlan",
    "LayersReport",
    "collect_rows",
    "fit_classifier",
    "layers_study",
    "score_classifier",
    "study_network",
]
