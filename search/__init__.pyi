from .clusters import ClusterReport, cluster_family
from .evaluation import Rankings, check_ways, evaluate, rankings
from .explain import Explanation, explain_pair
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
from .trained_on import (
    KeptData,
    NearestData,
    TrainedModel,
    TrainedModels,
    TrainedModelsOfEach,
    check_searchable,
    compare_kept,
    find_data,
    find_trained_on,
    find_trained_on_each,
    kept_data_sets,
    nearest_to_kept,
)
from .vector_scores import measure_published

__all__ = [
    "ClusterReport",
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
]
