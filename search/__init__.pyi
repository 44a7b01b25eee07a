from .clusters import ClusterReport, cluster_family
from .evaluate import Evaluation, evaluate
from .explain import Explanation, explain_pair
from .labelled import LabelledModels, family_views, labelled_models, read_family
from .layout import Method, Placement, place_models
from .neighbours import (
    FreshQuery,
    Neighbour,
    Neighbours,
    Query,
    StoredQuery,
    find_similar,
    prepare_search,
)

__all__ = [
    "ClusterReport",
    "Evaluation",
    "Explanation",
    "FreshQuery",
    "LabelledModels",
    "Method",
    "Neighbour",
    "Neighbours",
    "Placement",
    "Query",
    "StoredQuery",
    "cluster_family",
    "evaluate",
    "explain_pair",
    "family_views",
    "find_similar",
    "labelled_models",
    "place_models",
    "prepare_search",
    "read_family",
]
