"""How alike the layers of two networks represent the same tokens, up to a rotation."""

from .cka_report import CkaReport, LayerCka, cka_study

__all__ = ["CkaReport", "LayerCka", "cka_study"]
