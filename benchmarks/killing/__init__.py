"""Processes killed at random moments, and what they leave behind; for `kills.py` and the tests."""

from .child import lowered
from .contents import check, read_contents
from .harness import (
    Death,
    Nursery,
    finish,
    kill_cold,
    kill_once,
    look,
    moments,
    read_trace,
    undisturbed,
)
from .tasks import TASKS, Prepared, Task, prepare_family

__all__ = [
    "TASKS",
    "Death",
    "Nursery",
    "Prepared",
    "Task",
    "check",
    "finish",
    "kill_cold",
    "kill_once",
    "look",
    "lowered",
    "moments",
    "prepare_family",
    "read_contents",
    "read_trace",
    "undisturbed",
]
