"""The catalog kept well, and first steps: doctor, backup, completion, demo."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, Literal

import click
from click.shell_completion import get_completion_class

from .. import database, terminal
from ..options import argument, option, record
from ..terminal.text import count, plain, size
from .command_line import (
    CONTINUES,
    EXIT_SOME_FAILED,
    Common,
    asking,
    command,
    print_document,
    tracker,
    when_stopped,
)

PROGRAM, VARIABLE = "deltadex", "_DELTADEX_COMPLETE"


@record
class Examination:
    """What the doctor looks at, and what it may do."""

    file: Path | None = argument(default=None, file="any")
    _: KW_ONLY
    check: bool = option(default=False, help="Repair nothing.")
    quick: bool = option(
        default=False, help="Leave out what reads the whole file; a line says what that is."
    )


@command(Examination)
def doctor(common: Common, examination: Examination) -> None:
    """Check the catalog and its folder; or the catalog or backup FILE.

    Reads the whole file once. Files that nothing reads are removed, and named. Nothing else is
    changed: a line names the command that repairs it. Exit code 1 if a problem remains. A service
    or an indexing run goes on.

    \b
    Example:
      deltadex doctor
      deltadex doctor --check --json
      deltadex doctor family-monday.duckdb --check
    """
    table = database.doctor(
        examination.file or common.db,
        check=examination.check,
        quick=examination.quick,
        track=tracker(quiet=common.quiet),
        report=None if common.as_json else _show_finding,
    )
    print_document(table, _show_counts, common)
    if table.problems:
        sys.exit(EXIT_SOME_FAILED)


def _show_finding(finding: Mapping[str, Any]) -> None:
    _say_in_lines(f"{finding['state']:<9} {finding['check']:<10} ", finding["detail"])
    if finding["advice"]:
        _say_in_lines(f"{'':<20} → ", finding["advice"])


def _say_in_lines(heading: str, text: str) -> None:
    """A heading and, right of it, a text in as many lines as the terminal needs."""
    room = max(terminal.screen().width - len(heading), 20)
    lines = textwrap.wrap(plain(text), room, break_long_words=False, break_on_hyphens=False)
    for n, line in enumerate(lines or [""]):
        click.echo((" " * len(heading) if n else heading) + line)


def _show_counts(document: Mapping[str, Any]) -> None:
    repaired, problems = document["repaired"], document["problems"]
    rest = f"{problems} to be repaired by hand" if problems else "no problems"
    click.echo(f"{repaired} repaired, {rest}" if repaired else rest)


def _show_backup(document: Mapping[str, Any]) -> None:
    click.echo(f"written: {document['written']}")
    holds = f"{count(document['models'], 'model')}, {size(document['bytes'])}"
    click.echo(f"{holds}, {document['seconds']:.1f} s")
    click.echo(f"SHA-256 {document['sha256']}")


backup = asking(
    database.Backup,
    _show_backup,
    """Copy the catalog as it is now into the file TARGET.

    A service goes on meanwhile, and who writes waits. The copy is a catalog: ask it with --db, or
    put it in the catalog's place.
    """,
    "backup family-monday.duckdb",
    prints_table=False,
    read_only=None,
)


@record
class Shell:
    """The shell that completes."""

    shell: Literal["bash", "zsh", "fish"] = argument()


@command(Shell, prints_table=False)
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
    document = {"shell": target.shell, "script": script}
    print_document(document, lambda _: click.echo(script), common)


@record
class DemoFolder:
    """Where the demo writes."""

    folder: Path = argument(default="demo-output", file="any")


@command(DemoFolder, prints_table=False)
def demo(common: Common, target: DemoFolder) -> None:
    """Train a small family, index it, score it, map it; no network.

    Models and map go into FOLDER; a model that is there whole is not trained again. Needs
    `pip install 'deltadex[demo]'`.

    \b
    Example:
      deltadex demo
    """
    when_stopped(lambda: _kept(target.folder))
    quiet = common.quiet or common.as_json
    with terminal.RunProgress(quiet=quiet) as progress:
        screen = terminal.DemoScreen(progress, quiet=quiet)
        screen.heading("Loading torch, transformers and PEFT")
        run_demo = _load_demo()
        document = run_demo(target.folder, common.db, screen)
    print_document(document, lambda _: None, common)


def _load_demo() -> Callable[[Path, Path, terminal.DemoScreen], dict[str, Any]]:
    try:
        from ..demo import run_demo
    except ModuleNotFoundError as err:
        if err.name is None:  # transformers could not load its own
            raise
        raise click.UsageError(f"the demo needs {err.name}: pip install 'deltadex[demo]'") from err
    return run_demo


def _kept(folder: Path) -> str:
    if not (folder / "base" / "model.safetensors").exists():
        return "No model is saved yet; run the same command again."
    weights, settings = (
        {path.parent for path in (folder / "models").glob(f"*/{name}")}
        for name in ("*.safetensors", "*config.json")
    )
    saved = count(len(weights & settings), "fine-tune")
    return f"The base and {saved} are saved in {folder}; {CONTINUES}"
