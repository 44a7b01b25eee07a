"""Commands as users run them, over the catalog of a folder."""

import json

from click.testing import CliRunner

from deltadex.cli import main

TEXTS = [" ".join(str(5 + (i * 7 + j) % 50) for j in range(12)) for i in range(24)]


def run(folder, *arguments, **options):
    command = [*map(str, arguments), "--db", str(folder / "c.duckdb")]
    return CliRunner().invoke(main, command, **options)


def document(folder, *arguments):
    result = run(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
