from .components_study import components_study, most_edited

__all__ = ["components_study", "most_edited"]
