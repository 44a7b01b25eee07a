from .components_study import (
    ComponentsReport,
    HeadShares,
    StackComponents,
    components_study,
    most_edited,
)

__all__ = [
    "ComponentsReport",
    "HeadShares",
    "StackComponents",
    "components_study",
    "most_edited",
]
