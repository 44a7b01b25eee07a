"""What each layer of a causal language model would predict: the logit lens."""

from .lens_report import LayerLens, LensReport, lens_study

__all__ = ["LayerLens", "LensReport", "lens_study"]
