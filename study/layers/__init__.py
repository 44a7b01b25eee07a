"""How a network's states change from layer to layer, and what tells the layers apart."""

from .context_sweep import context_sweep
from .layer_classifier import LayerClassifier, fit_classifier, score_classifier
from .layer_rows import LayerRows, collect_rows, split_by_text
from .layer_sweeps import ModelPoint
from .layers_report import LayersReport, layers_study
from .punctuation import PunctuationTokens

__all__ = [
    "LayerClassifier",
    "LayerRows",
    "LayersReport",
    "ModelPoint",
    "PunctuationTokens",
    "collect_rows",
    "context_sweep",
    "fit_classifier",
    "layers_study",
    "score_classifier",
    "split_by_text",
]
