"""Command line options as frozen records: a field carries its flags, default, type and help.

`bool` makes a flag, `Literal` a choice, `Path` a path; the help shows every default.

@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    target: Path = argument()
    force: bool = option("--force", help="Replace TARGET if it is there.")

@click.command()
@takes(Copying)
def backup(common: Common, copying: Copying) -> None: ...
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from .text import PlainFormatter

Command = Callable[..., None]

_CLICK = "click"


def option(*flags: str, **settings: Any) -> Any:
    """A field that is an option with these flags; `settings` are those of `click.option`."""
    settings.setdefault("show_default", "default" in settings)

    def parameter(name: str, hint: Any) -> Callable[[Command], Command]:
        typed = {"is_flag": True} if hint is bool else _type_of(hint)
        return click.option(*flags, name, **typed | settings)

    return field(metadata={_CLICK: parameter})


def argument(**settings: Any) -> Any:
    """A field that is an argument; `settings` are those of `click.argument`."""

    def parameter(name: str, hint: Any) -> Callable[[Command], Command]:
        return click.argument(name, **_type_of(hint) | settings)

    return field(metadata={_CLICK: parameter})


def _type_of(hint: Any) -> dict[str, click.ParamType[Any]]:
    """The type of values by an annotation: a choice, a path, or click's own guess."""
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            return {"type": click.Choice(get_args(part))}
        if part is Path:
            return {"type": click.Path(path_type=Path)}
    return {}


def takes(*records: type[Any]) -> Callable[[Command], Command]:
    """Call a command with a `Common`, then with one object of each of these records.

    Logging is set up before the command runs.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            common: Common = _record_of(Common, values)
            _set_up_logging(quiet=common.quiet)
            command(common, *(_record_of(record, values) for record in records))

        for record in (Common, *reversed(records)):
            hints = get_type_hints(record)
            for entry in reversed(fields(record)):
                wrapped = entry.metadata[_CLICK](entry.name, hints[entry.name])(wrapped)
        return wrapped

    return decorate


def _record_of(record: type[Any], values: Mapping[str, Any]) -> Any:
    return record(**{entry.name: values[entry.name] for entry in fields(record)})


def _set_up_logging(*, quiet: bool) -> None:
    level = logging.ERROR if quiet else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("deltadex").setLevel(logging.ERROR if quiet else logging.INFO)


def _default_db() -> str:
    from platformdirs import user_data_dir

    return str(Path(user_data_dir("deltadex", appauthor=False)) / "deltadex.duckdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The options of every command."""

    db: Path = option(
        "--db",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="DELTADEX_DB",
        default=_default_db,
        show_default="in the user data folder, or $DELTADEX_DB",
        help="The catalog file.",
    )
    as_json: bool = option("--json", help="Print one JSON document on stdout.")
    quiet: bool = option("--quiet", help="Print no progress and notes on stderr.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which models of the catalog are meant."""

    dataset: str | None = option("--dataset", help="Only models trained on this dataset.")
    author: str | None = option("--author", help="Only models of this author.")
    where: str | None = option(
        "--where", metavar="SQL", help="E.g. \"downloads > 100 AND kind = 'adapter'\"."
    )


def base_option(also: str = "") -> Any:
    """The family, by the name of its base, and what else it says to a command."""
    return option("--base", help=f"Only this family, where the catalog has several{also}.")


def recipe_option() -> Any:
    """A recipe, by name or id."""
    return option("--recipe", help="Name or id of a recipe.  [default: sketch]")


def engine_option() -> Any:
    """What gives the candidates of a search."""
    return option(
        "--engine",
        default="faiss",
        metavar="faiss|qdrant|TARGET",
        help="Take candidates from FAISS, or from an export to Qdrant: the last one, or that at "
        "TARGET (edge:DIR, qdrant://HOST[:PORT]/COLLECTION).",
    )


def seed_option(help: str) -> Any:
    """The seed of everything random."""
    return option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help=help)
