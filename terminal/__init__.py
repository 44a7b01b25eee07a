"""What the command line shows people: tables on stdout, progress on stderr."""

from .demo_screen import DemoScreen
from .progress import RunProgress
from .tables import (
    show_evaluation,
    show_explanation,
    show_failures,
    show_model,
    show_models,
    show_neighbours,
    show_report,
    show_stats,
)

__all__ = [
    "DemoScreen",
    "RunProgress",
    "show_evaluation",
    "show_explanation",
    "show_failures",
    "show_model",
    "show_models",
    "show_neighbours",
    "show_report",
    "show_stats",
]
