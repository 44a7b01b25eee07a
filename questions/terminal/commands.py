"""The commands by name: each is the `command` of the file, or the folder, that is called after it.

A command that no group names is one of the others: a new file needs no line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

import click

from ...study.registry import STUDIES

GROUPS = {
    "index": ("index", "plan", "add", "label", "rm"),
    "ask": (
        "words", "search", "find-similar", "explain", "ls", "show", "eval", "cluster", "map",
        "diff", "stats", "failures", "sql",
    ),
    "data": ("find-trained-on", "find-data", "data"),
    "origin": ("trace", "lineage", "audit", "extract-adapter", "bases"),
    "studies": tuple(name.replace("_", "-") for name in STUDIES),
    "share": ("serve", "mcp", "export", "publish", "attach", "merge"),
    "care": ("doctor", "backup", "completion", "demo"),
}  # fmt: skip
"""Commands by group, as `deltadex --help` lists them."""

QUESTIONS = (__package__ or "").rpartition(".")[0]
PLACES = {"serve": "...service.serve", "mcp": "...service.mcp"}
"""Modules of commands that are no questions."""

NO_COMMANDS = {"face", "terminal"}
"""What is in the folder beside commands."""


class Commands(Mapping[str, click.Command]):
    """Every command; its module is loaded when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        if name in NO_COMMANDS or not name.replace("-", "").isalpha():
            raise KeyError(name)
        place = name.replace("-", "_")
        if place in STUDIES:
            from .command_line import command_of_study

            return command_of_study(place)
        module = PLACES.get(name, f"{QUESTIONS}.{place}")
        try:
            found = import_module(module, __package__)
        except ModuleNotFoundError as err:
            if err.name != module:
                raise
            raise KeyError(name) from None
        if hasattr(found, "__path__"):
            found = import_module(f"{module}.{place}")
        return cast("click.Command", found.command)

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The names by group; one of others, where there are some."""
        named = {name for names in GROUPS.values() for name in names}
        files = iter_modules(import_module(QUESTIONS).__path__)
        others = {file.name.replace("_", "-") for file in files} - named - NO_COMMANDS
        return GROUPS | ({"others": tuple(sorted(others))} if others else {})

    def __iter__(self) -> Iterator[str]:
        return (name for names in self.groups.values() for name in names)

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))


COMMANDS = Commands()
