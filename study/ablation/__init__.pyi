from .ablation_study import AblationOptions, ablation_study
from .annotated_words import read_senses, read_tags
from .journal import Journal
from .subset_scores import AblationReport, AblationStudyReport, ablation_report

__all__ = [
    "AblationOptions",
    "AblationReport",
    "AblationStudyReport",
    "Journal",
    "ablation_report",
    "ablation_study",
    "read_senses",
    "read_tags",
]
