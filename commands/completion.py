"""`deltadex completion`: the shell's own completion of commands and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import click
from click.shell_completion import get_completion_class

from ..terminal.options import Common, argument, takes
from .output import print_document

PROGRAM, VARIABLE = "deltadex", "_DELTADEX_COMPLETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The shell that completes."""

    shell: Literal["bash", "zsh", "fish"] = argument()


@click.command()
@takes(Shell)
def completion(common: Common, target: Shell) -> None:
    """Print the script that completes deltadex's commands and options in SHELL.

    \b
    Example:
      deltadex completion bash > ~/.local/share/bash-completion/completions/deltadex
      deltadex completion zsh > "${fpath[1]}/_deltadex"
      deltadex completion fish > ~/.config/fish/completions/deltadex.fish
    """
    completer = get_completion_class(target.shell)
    assert completer is not None
    group = click.get_current_context().find_root().command
    script = completer(group, {}, PROGRAM, VARIABLE).source()
    print_document({"shell": target.shell, "script": script}, _show, common)


def _show(document: Mapping[str, Any]) -> None:
    click.echo(document["script"])
