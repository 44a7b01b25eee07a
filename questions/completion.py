"""The script that completes commands in a shell: `completion`."""

from __future__ import annotations

from typing import Literal

import click
from click.shell_completion import get_completion_class

from ..options import argument, record
from .terminal.command_line import Common, command_with, print_document

PROGRAM, VARIABLE = "deltadex", "_DELTADEX_COMPLETE"


@record
class Completion:
    """Print the script that completes deltadex's commands and options in SHELL."""

    shell: Literal["bash", "zsh", "fish"] = argument()


@command_with(
    Completion,
    prints_table=False,
    examples=(
        "completion bash > ~/.local/share/bash-completion/completions/deltadex",
        'completion zsh > "${fpath[1]}/_deltadex"',
        "completion fish > ~/.config/fish/completions/deltadex.fish",
    ),
)
def command(common: Common, asked: Completion) -> None:
    completer = get_completion_class(asked.shell)
    assert completer is not None
    group = click.get_current_context().find_root().command
    script = completer(group, {}, PROGRAM, VARIABLE).source()
    document = {"shell": asked.shell, "script": script}
    print_document(document, lambda _: click.echo(script), common)
