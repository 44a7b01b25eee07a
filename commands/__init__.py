"""The commands: a file a group; `command_line.py` makes those of studies, and what all share."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

import click

from ..study.registry import STUDIES

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

_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


class _Commands(Mapping[str, click.Command]):
    """Every command by its name; its file is loaded when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        group, place = _GROUP_OF[name], name.replace("-", "_")
        if group == "studies":
            from .command_line import command_of

            return command_of(place)
        command: click.Command = getattr(import_module(f".{group}", __name__), place)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_GROUP_OF)

    def __len__(self) -> int:
        return len(_GROUP_OF)


# click only reads it, and has no type for that
COMMANDS = cast("dict[str, click.Command]", _Commands())
