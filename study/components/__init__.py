"""What hidden states are made of, and which parts of a network a fine-tune edited."""

from .components_report import ComponentsReport, StackComponents, components_study

__all__ = ["ComponentsReport", "StackComponents", "components_study"]
