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
from .trained_on import NearestData, TrainedModels, check_searchable, find_data, find_trained_on

__all__ = [
    "ClusterReport",
    "Evaluation",
    "Explanation",
    "FreshQuery",
    "LabelledModels",
    "Method",
    "NearestData",
    "Neighbour",
    "Neighbours",
    "Placement",
    "Query",
    "Rankings",
    "StoredQuery",
    "TrainedModels",
    "check_searchable",
    "check_ways",
    "cluster_family",
    "evaluate",
    "explain_pair",
    "family_views",
    "find_data",
    "find_similar",
    "find_trained_on",
    "labelled_models",
    "place_models",
    "prepare_search",
    "rankings",
    "read_family",
]
