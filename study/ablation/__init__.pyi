from .ablation_study import ablation_study
from .annotated_words import read_senses, read_tags
from .subsets import AblationReport, AblationStudyReport, Journal, ablation_report

__all__ = [
    "AblationReport",
    "AblationStudyReport",
    "Journal",
    "ablation_report",
    "ablation_study",
    "read_senses",
    "read_tags",
]
