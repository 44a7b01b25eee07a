from .components_report import ComponentsReport, HeadShares, StackComponents, most_edited
from .components_study import components_study

__all__ = [
    "ComponentsReport",
    "HeadShares",
    "StackComponents",
    "components_study",
    "most_edited",
]
