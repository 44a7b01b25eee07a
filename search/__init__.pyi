from .clusters import ClusterReport, cluster_family
from .evaluate import evaluate
from .explain import explain_pair
from .families import load_families
from .layout import Layout, Method, place_models
from .neighbours import FreshQuery, StoredQuery, nearest, prepare_search
from .precision import LabelledFamily

__all__ = [
    "ClusterReport",
    "FreshQuery",
    "LabelledFamily",
    "Layout",
    "Method",
    "StoredQuery",
    "cluster_family",
    "evaluate",
    "explain_pair",
    "load_families",
    "nearest",
    "place_models",
    "prepare_search",
]
