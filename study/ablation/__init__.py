"""What each term of an embedding is worth: predictions from every subset of the terms."""

from .masked_tokens import masked_accuracy, module_head, trained_masked_accuracy
from .masking import mask_tokens
from .study import AblationReport, ablation_report
from .tagging import tagging_probe
from .word_senses import word_sense_knn
from .words import word_terms

__all__ = [
    "AblationReport",
    "ablation_report",
    "mask_tokens",
    "masked_accuracy",
    "module_head",
    "tagging_probe",
    "trained_masked_accuracy",
    "word_sense_knn",
    "word_terms",
]
