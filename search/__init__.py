"""Questions to a catalog: nearest models, retrieval precision, explanations, maps."""

from .evaluate import evaluate
from .explain import explain_pair
from .families import load_families
from .layout import Layout, place_models
from .neighbours import FreshQuery, StoredQuery, nearest
from .precision import LabelledFamily

__all__ = [
    "FreshQuery",
    "LabelledFamily",
    "Layout",
    "StoredQuery",
    "evaluate",
    "explain_pair",
    "load_families",
    "nearest",
    "place_models",
]
