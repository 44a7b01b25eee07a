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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import click

from ..options import Option, choices_of, hints_of, options_of
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
        def called(**values: Any) -> None:
            common: Common = _record_of(Common, values)
            _set_up_logging(quiet=common.quiet)
            command(common, *(_record_of(record, values) for record in records))

        wrapped: Command = called
        for record in (Common, *reversed(records)):
            hints = hints_of(record)
            for entry in reversed(fields(record)):
                if _CLICK in entry.metadata:
                    wrapped = entry.metadata[_CLICK](entry.name, hints[entry.name])(wrapped)
            for name, (entry, declared) in reversed(options_of(record).items()):
                if declared.doors != "python":
                    wrapped = _parameter(name, hints[name], entry, declared)(wrapped)
        return wrapped

    return decorate


def _record_of(record: type[Any], values: Mapping[str, Any]) -> Any:
    """What was typed; the record has its own defaults for the rest."""
    typed = {entry.name: values[entry.name] for entry in fields(record) if entry.name in values}
    for entry in fields(record):
        if entry.default is not MISSING and typed.get(entry.name, ()) is None:
            del typed[entry.name]
    return record(**typed)


def _parameter(
    name: str, hint: Any, entry: Field[Any], declared: Option
) -> Callable[[Command], Command]:
    """The argument or option of a command that a field of a question declares."""
    settings: dict[str, Any] = {"type": _click_type(hint, declared)}
    settings |= {key: getattr(declared, key) for key in ("metavar", "envvar")}
    is_required = entry.default is MISSING and entry.default_factory is MISSING
    if not is_required:
        has_value = entry.default is not MISSING
        settings["default"] = entry.default if has_value else entry.default_factory
    if declared.is_argument:
        del settings["envvar"]
        if declared.several:
            settings["nargs"] = -1
        return click.argument(name, required=is_required, **settings)
    flags = declared.flags or ("--" + name.replace("_", "-"),)
    settings["help"] = declared.help
    if hint is bool:
        settings |= {"is_flag": True, "type": None}
        if any("/" in flag for flag in flags):
            return click.option(*flags, name, show_default=True, **settings)
        turns_off, settings["default"] = settings["default"], False
        if turns_off:
            settings["callback"] = _turned_off
        return click.option(*flags, name, **settings)
    settings["multiple"] = _is_list(hint) and not declared.separated
    if not settings["multiple"] and settings.get("default") == ():
        del settings["default"]
    settings["show_default"] = settings.get("default") not in (None, ())
    if declared.shown_default:
        settings["show_default"] = False
        settings["help"] += f"  [default: {declared.shown_default}]"
    return click.option(*flags, name, required=is_required, **settings)


def _turned_off(context: click.Context, parameter: click.Parameter, is_given: bool) -> bool:
    return not is_given


def _is_list(hint: Any) -> bool:
    """Whether a value is several, and cannot be one."""
    parts = [hint] if get_origin(hint) in (tuple, Sequence) else get_args(hint)
    return bool(parts) and all(
        part is NoneType or get_origin(part) in (tuple, Sequence) for part in parts
    )


def _click_type(hint: Any, declared: Option) -> Any:
    """The click type of a value, or of each of several."""
    parts = [hint, *get_args(hint), *(inner for part in get_args(hint) for inner in get_args(part))]
    if choices := choices_of(hint) or next(filter(None, map(choices_of, parts)), ()):
        return click.Choice(choices)
    low: Any = declared.least if declared.above is None else declared.above
    most: Any = declared.most
    if declared.separated:
        return Separated(int(low or 0) if int in parts else None)
    if declared.file is not None:
        return (PathOrAddress if "address" in declared.file else click.Path)(
            path_type=Path,
            exists=declared.file.startswith("existing"),
            dir_okay=not declared.file.endswith("file"),
        )
    for kind, ranged in ((float, click.FloatRange), (int, click.IntRange)):
        if kind in parts:
            has_limits = low is not None or most is not None
            is_open = declared.above is not None
            return ranged(low, most, min_open=is_open) if has_limits else kind
    return str


class PathOrAddress(click.Path):
    """A path, or an address (`https://…`), of which nothing here knows whether it exists."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


class Separated(click.ParamType[tuple[Any, ...]]):
    """Values with commas between: whole numbers where there is a least one, or words."""

    def __init__(self, least: int | None) -> None:
        self.name = "words" if least is None else "numbers"
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        if not isinstance(value, str):
            return tuple(value)
        words = tuple(map(str.strip, value.split(",")))
        if self._least is None:
            return words
        try:
            numbers = tuple(map(int, words))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 10,25,40", param, ctx)
        if min(numbers) < self._least:
            self.fail(f"{min(numbers)} is less than {self._least}", param, ctx)
        return numbers


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
