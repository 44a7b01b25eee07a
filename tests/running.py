"""Commands as users run them, over a catalog's file, or the `c.duckdb` of a folder."""

import json
import resource
import subprocess
import sys
from contextlib import contextmanager

import click
from click.testing import CliRunner

from deltadex.cli import main

TEXTS = [" ".join(str(5 + (i * 7 + j) % 50) for j in range(12)) for i in range(24)]


def run(place, *arguments, **options):
    db = place if place.suffix == ".duckdb" else place / "c.duckdb"
    command = [*map(str, arguments), "--db", str(db)]
    return CliRunner().invoke(main, command, **options)


def document(place, *arguments):
    result = run(place, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def printed(*command, **options):
    """What a command that ends well writes to standard output."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    ended = subprocess.run(list(map(str, command)), text=True, **pipes, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@contextmanager
def started(*arguments):
    """`deltadex ARGUMENTS` in a process of its own, which is ended."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-m", "deltadex", *map(str, arguments)]
    process = subprocess.Popen(command, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def every_command(group=main, path=()):
    """Each command, and each group of some, with its words."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


@contextmanager
def short_files(n_bytes):
    """No file of this process may become longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
