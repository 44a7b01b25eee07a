from .layer_classifier import LayerClassifier, fit_classifier, score_classifier
from .layer_rows import LayerRows, collect_rows
from .layers_report import LayersReport, layers_study

__all__ = [
    "LayerClassifier",
    "LayerRows",
    "LayersReport",
    "collect_rows",
    "fit_classifier",
    "layers_study",
    "score_classifier",
]
