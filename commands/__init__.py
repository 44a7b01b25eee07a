"""The commands, one file each: a frozen record of options, one call of the face, one document."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

import click

NAMES = (
    "ablation", "add", "attach", "backup", "cka", "cluster", "completion", "components",
    "correlate", "data", "demo", "diff", "doctor", "eval", "export", "failures", "find-data",
    "find-similar", "find-trained-on", "geometry", "index", "label", "layers", "logit-lens", "ls",
    "map", "merge", "plan", "profile", "publish", "rank", "rm", "serve", "show", "spectrum", "sql",
    "stats",
)  # fmt: skip


class _Commands(Mapping[str, click.Command]):
    """Every command by its name; its file is loaded when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in NAMES:
            raise KeyError(name)
        place = name.replace("-", "_")
        command: click.Command = getattr(import_module(f".{place}", __name__), place)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


# click only reads it, and has no type for that
COMMANDS = cast("dict[str, click.Command]", _Commands())
