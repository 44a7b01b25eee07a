from .cka_report import CkaReport, LayerCka, cka_study

__all__ = ["CkaReport", "LayerCka", "cka_study"]
