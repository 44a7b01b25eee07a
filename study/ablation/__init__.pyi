from .masked_tokens import mask_tokens, masked_accuracy, module_head, trained_masked_accuracy
from .subset_scores import AblationReport, ablation_report
from .trained_probe import tagging_probe
from .word_pieces import word_terms
from .word_senses import word_sense_knn

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
