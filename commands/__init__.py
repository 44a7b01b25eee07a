"""The commands: a file each, but for the studies, which `studies.py` makes of the registry."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

import click

NAMES = (
    "add", "attach", "backup", "cluster", "completion", "data", "demo", "diff", "doctor", "eval",
    "export", "failures", "find-data", "find-similar", "find-trained-on", "index", "label", "ls",
    "map", "merge", "plan", "publish", "rm", "serve", "show", "sql", "stats",
)  # fmt: skip


class _Commands(Mapping[str, click.Command]):
    """Every command by its name; its file is loaded when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        place = name.replace("-", "_")
        if name not in NAMES:
            from .studies import command_of

            return command_of(place)
        command: click.Command = getattr(import_module(f".{place}", __name__), place)
        return command

    def __iter__(self) -> Iterator[str]:
        from ..study.registry import STUDIES

        return iter((*NAMES, *(place.replace("_", "-") for place in STUDIES)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


# click only reads it, and has no type for that
COMMANDS = cast("dict[str, click.Command]", _Commands())
