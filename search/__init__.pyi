from .clusters import ClusterReport, cluster_family
from .evaluate import check_ways, evaluate
from .evaluation import Evaluation
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
from .rankings import Rankings, rankings

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
    "Rankings",
    "StoredQuery",
    "check_ways",
    "cluster_family",
    "evaluate",
    "explain_pair",
    "family_views",
    "find_similar",
    "labelled_models",
    "place_models",
    "prepare_search",
    "rankings",
    "read_family",
]
