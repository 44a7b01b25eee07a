from .annotated_words import read_senses, read_tags
from .subset_study import ablation_study
from .subsets import AblationReport, AblationStudyReport, ablation_report

__all__ = [
    "AblationReport",
    "AblationStudyReport",
    "ablation_report",
    "ablation_study",
    "read_senses",
    "read_tags",
]
