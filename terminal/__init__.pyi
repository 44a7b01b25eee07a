from .cluster_tables import show_clusters
from .data_tables import (
    show_data_scores,
    show_data_set,
    show_data_sets,
    show_nearest_data,
    show_trained_models,
)
from .demo_screen import DemoScreen
from .evaluation_tables import show_evaluation, show_evaluations
from .plan_table import show_plan
from .progress import RunProgress, tracked
from .studies.ablation_table import show_ablation
from .studies.cka_table import show_cka
from .studies.components_table import show_components
from .studies.correlate_table import show_correlations
from .studies.layers_table import show_layers
from .studies.logit_lens_table import show_logit_lens
from .studies.profile_table import show_profiles
from .studies.shared import show_base_notes
from .studies.spectrum_table import show_spectra
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
    "show_ablation",
    "show_base_notes",
    "show_cka",
    "show_clusters",
    "show_components",
    "show_correlations",
    "show_data_scores",
    "show_data_set",
    "show_data_sets",
    "show_diff",
    "show_evaluation",
    "show_evaluations",
    "show_explanation",
    "show_failures",
    "show_layers",
    "show_logit_lens",
    "show_model",
    "show_models",
    "show_nearest_data",
    "show_neighbours",
    "show_plan",
    "show_profiles",
    "show_report",
    "show_rows",
    "show_spectra",
    "show_stats",
    "show_study",
    "show_trained_models",
    "tracked",
]
