"""The script that completes commands in a shell: `completion`."""

from __future__ import annotations

from typing import Literal

import click
from click.shell_completion import get_completion_class

from ..options import argument, record
from .terminal.command_line import Common, command_with, print_document

PROGRAM, VARIABLE = "deltadex", "_DELTADEX_COMPLETE"


@record
class Shell:
    """The shell that completes."""

    shell: Literal["bash", "zsh", "fish"] = argument()


@command_with(Shell, prints_table=False)
def command(common: Common, target: Shell) -> None:
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
    document = {"shell": target.shell, "script": script}
    print_document(document, lambda _: click.echo(script), common)
