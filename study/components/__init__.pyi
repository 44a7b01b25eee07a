from .components_study import components_study

__all__ = ["components_study"]
