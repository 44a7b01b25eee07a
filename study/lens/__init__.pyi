from .lens_report import LayerLens, LensReport, lens_study

__all__ = ["LayerLens", "LensReport", "lens_study"]
