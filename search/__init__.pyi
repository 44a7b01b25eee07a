from .attached import attached_query, search_with
from .clusters import ClusterReport, cluster_family
from .evaluate import check_ways, evaluate
from .evaluation import Evaluation
from .explain import Explanation, explain_pair
from .kept_data import KeptData, compare_kept, kept_data_sets, nearest_to_kept
from .labelled import LabelledModels, family_views, labelled_models, read_family
from .layout import Placement, place_models
from .neighbours import (
    FreshQuery,
    Neighbour,
    Neighbours,
    Query,
    StoredQuery,
    find_similar,
    pair_cosine,
    prepare_search,
)
from .rankings import Rankings, rankings
from .scoring.published_scores import measure_published
from .trained_on import (
    NearestData,
    TrainedModel,
    TrainedModels,
    check_searchable,
    find_data,
    find_trained_on,
)
from .trained_on_each import TrainedModelsOfEach, find_trained_on_each

__all__ = [
    "ClusterReport",
    "Evaluation",
    "Explanation",
    "FreshQuery",
    "KeptData",
    "LabelledModels",
    "NearestData",
    "Neighbour",
    "Neighbours",
    "Placement",
    "Query",
    "Rankings",
    "StoredQuery",
    "TrainedModel",
    "TrainedModels",
    "TrainedModelsOfEach",
    "attached_query",
    "check_searchable",
    "check_ways",
    "cluster_family",
    "compare_kept",
    "evaluate",
    "explain_pair",
    "family_views",
    "find_data",
    "find_similar",
    "find_trained_on",
    "find_trained_on_each",
    "kept_data_sets",
    "labelled_models",
    "measure_published",
    "nearest_to_kept",
    "pair_cosine",
    "place_models",
    "prepare_search",
    "rankings",
    "read_family",
    "search_with",
]
