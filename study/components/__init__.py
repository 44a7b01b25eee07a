"""What hidden states are made of, and which parts of a network a fine-tune edited."""

from .components_report import ComponentsReport, HeadShares, StackComponents, most_edited
from .components_study import components_study

__all__ = [
    "ComponentsReport",
    "HeadShares",
    "StackComponents",
    "components_study",
    "most_edited",
]
