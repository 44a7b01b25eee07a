"""Processes killed at random moments, and what they leave behind; for `kills.py` and the tests."""

from .child import PREPARE, lowered
from .contents import Contents, Findings, check, read_contents
from .harness import (
    Death,
    Nursery,
    Told,
    ended,
    finish,
    kill_cold,
    kill_once,
    look,
    moments,
    read_trace,
    undisturbed,
)
from .tasks import TASKS, Prepared, Task, prepare_family, step_adding

__all__ = [
    "PREPARE",
    "TASKS",
    "Contents",
    "Death",
    "Findings",
    "Nursery",
    "Prepared",
    "Task",
    "Told",
    "check",
    "ended",
    "finish",
    "kill_cold",
    "kill_once",
    "look",
    "lowered",
    "moments",
    "prepare_family",
    "read_contents",
    "read_trace",
    "step_adding",
    "undisturbed",
]
