from .layer_classifier import LayerClassifier, fit_classifier, score_classifier
from .layer_rows import LayerRows, collect_rows
from .layers_report import (
    LayersPlan,
    LayersReport,
    ModelPoint,
    layers_study,
    measure_model,
    studied_model,
    study_network,
    sweep_contexts,
)

__all__ = [
    "LayerClassifier",
    "LayerRows",
    "LayersPlan",
    "LayersReport",
    "ModelPoint",
    "collect_rows",
    "fit_classifier",
    "layers_study",
    "measure_model",
    "score_classifier",
    "studied_model",
    "study_network",
    "sweep_contexts",
]
