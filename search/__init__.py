"""Questions to a catalog: nearest models, retrieval precision, explanations, layouts."""

from .evaluate import Evaluation, evaluate
from .explain import explain_pair
from .layout import place_models
from .neighbours import FreshQuery, StoredQuery, nearest

__all__ = [
    "Evaluation",
    "FreshQuery",
    "StoredQuery",
    "evaluate",
    "explain_pair",
    "nearest",
    "place_models",
]
