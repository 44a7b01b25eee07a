from .data_tables import (
    show_data_scores,
    show_data_set,
    show_data_sets,
    show_nearest_data,
    show_trained_models,
)
from .family_tables import DemoScreen, show_clusters, show_evaluation, show_evaluations, show_plan
from .progress import RunProgress, tracked
from .tables import (
    show_diff,
    show_explanation,
    show_failures,
    show_model,
    show_models,
    show_neighbours,
    show_report,
    show_rows,
    show_stats,
    show_study,
)

__all__ = [
    "DemoScreen",
    "RunProgress",
    "show_clusters",
    "show_data_scores",
    "show_data_set",
    "show_data_sets",
    "show_diff",
    "show_evaluation",
    "show_evaluations",
    "show_explanation",
    "show_failures",
    "show_model",
    "show_models",
    "show_nearest_data",
    "show_neighbours",
    "show_plan",
    "show_report",
    "show_rows",
    "show_stats",
    "show_study",
    "show_trained_models",
    "tracked",
]
