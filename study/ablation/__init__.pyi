from .ablation_study import AblationOptions, AblationStudyReport, ablation_study
from .annotated_words import read_senses, read_tags
from .journal import Journal
from .masked_tokens import mask_tokens, masked_accuracy, module_head, trained_masked_accuracy
from .sense_probes import word_sense_probe, word_sense_probes_of_lemmas
from .subset_scores import AblationReport, ablation_report
from .tagging import tagging_probe
from .word_pieces import word_terms
from .word_senses import word_sense_knn

__all__ = [
    "AblationOptions",
    "AblationReport",
    "AblationStudyReport",
    "Journal",
    "ablation_report",
    "ablation_study",
    "mask_tokens",
    "masked_accuracy",
    "module_head",
    "read_senses",
    "read_tags",
    "tagging_probe",
    "trained_masked_accuracy",
    "word_sense_knn",
    "word_sense_probe",
    "word_sense_probes_of_lemmas",
    "word_terms",
]
