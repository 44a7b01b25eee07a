"""Records of options as click's; how commands ask a catalog, print what it answers, and end."""

from __future__ import annotations

import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from ...options import (
    Option,
    choices_of,
    description_of,
    hints_of,
    is_list,
    option,
    options_of,
    parts_of,
    record,
)
from ...results import Section, Shown, Table
from ...study.registry import record_of
from ..face.opened import Create, Opened, Tabled, Track, open_as
from .text import PlainFormatter, csv_text, json_text
from .written import check_picture_ending, check_table_ending, is_table_file, save_table

Command = Callable[..., None]

Show = Callable[[Any], "Iterable[str | Section] | None"]
"""Says an answer's document in lines and sections, or prints it."""

KEPT = "deltadex.kept"
"""The place in click's context of a call: what a stopped command says of what is saved."""

CONTINUES = "run the same command again to continue."

FINISHED = f"What was finished is saved; {CONTINUES}"


def command_with(
    *records: type[Any],
    group: click.Group | None = None,
    prints_table: bool = True,
    continues: bool = False,
    examples: Sequence[str] = (),
    **settings: Any,
) -> Callable[[Command], click.Command]:
    """A command that is called with a `Common`, then with one object of each of these records.

    Logging is set up before it runs. It has `-o FILE` for its table, unless a record has its own.
    Its help is the docstring of the function, else that of the first record, and the `examples`.
    `continues`: Whether it saves what it does step by step, and goes on there after a stop.
    """
    flags = {flag for kind in records for _, own in options_of(kind).values() for flag in own.flags}
    saves_table = prints_table and "-o" not in flags

    def decorate(function: Command) -> click.Command:
        @functools.wraps(function)
        def called(**values: Any) -> None:
            common: Common = _asked(Common, values if saves_table else {**values, "output": None})
            _set_up_logging(quiet=common.quiet)
            if continues:
                when_stopped(lambda: FINISHED)
            if common.output is not None:
                check_table_ending(common.output)  # before anything is computed
            function(common, *(_asked(record, values) for record in records))

        wrapped: Command = called
        for kind in (Common, *reversed(records)):
            hints = hints_of(kind)
            for name, (entry, declared) in reversed(options_of(kind).items()):
                is_left_out = kind is Common and name == "output" and not saves_table
                if declared.doors != "python" and not is_left_out:
                    wrapped = _parameter(name, hints[name], entry, declared)(wrapped)
        text = function.__doc__ or inspect.getdoc(records[0]) or ""
        says = description_of(records[0], re.split(r"\n\n(?:Returns:|Raises:|>>>)", text)[0])
        if examples:
            says += "\n\n\b\nExample:" + "".join(f"\n  deltadex {line}" for line in examples)
        made: click.Command = (group or click).command(**settings | {"help": says})(wrapped)
        return made

    return decorate


def when_stopped(kept: Callable[[], str]) -> None:
    """What the command says from now on if a signal ends it."""
    click.get_current_context().meta[KEPT] = kept


def _asked(record: type[Any], values: Mapping[str, Any]) -> Any:
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
    settings: dict[str, Any] = {"type": _click_type(hint, declared), "metavar": declared.metavar}
    is_required = entry.default is MISSING and entry.default_factory is MISSING
    if not is_required:
        has_value = entry.default is not MISSING
        settings["default"] = entry.default if has_value else entry.default_factory
    if declared.is_argument:
        if declared.several:
            settings["nargs"] = -1
        return click.argument(name, required=is_required, **settings)
    flags = declared.flags or ("--" + name.replace("_", "-"),)
    settings |= {"help": declared.help, "envvar": declared.envvar}
    if hint is bool:
        settings |= {"is_flag": True, "type": None}
        if any("/" in flag for flag in flags):
            return click.option(*flags, name, show_default=True, **settings)
        turns_off, settings["default"] = settings["default"], False
        if turns_off:
            settings["callback"] = _turned_off
        return click.option(*flags, name, **settings)
    settings["multiple"] = is_list(hint) and not declared.separated
    if not settings["multiple"] and settings.get("default") == ():
        del settings["default"]
    settings["show_default"] = settings.get("default") not in (None, ())
    if declared.shown_default:
        settings["show_default"] = False
        settings["help"] += f"  [default: {declared.shown_default}]"
    return click.option(*flags, name, required=is_required, **settings)


def _turned_off(context: click.Context, parameter: click.Parameter, is_given: bool) -> bool:
    return not is_given


def _click_type(hint: Any, declared: Option) -> Any:
    parts = parts_of(hint)
    if choices := choices_of(hint):
        return click.Choice(choices)
    low: Any = declared.least if declared.above is None else declared.above
    most: Any = declared.most
    if declared.separated:
        return Separated(int if int in parts else str)
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
    """Values with commas between: words, or whole numbers."""

    def __init__(self, kind: type[str] | type[int]) -> None:
        self.name = "numbers" if kind is int else "words"
        self._kind = kind

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        if not isinstance(value, str):
            return tuple(value)
        try:
            return tuple(self._kind(word.strip()) for word in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 10,25,40", param, ctx)


def _set_up_logging(*, quiet: bool) -> None:
    level = logging.ERROR if quiet else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("deltadex").setLevel(logging.ERROR if quiet else logging.INFO)


def _default_db() -> str:
    from platformdirs import user_data_dir

    return str(Path(user_data_dir("deltadex", appauthor=False)) / "deltadex.duckdb")


def output_file(help: str) -> Any:
    """A field for a file that is written beside what is printed."""
    return option("-o", "--output", default=None, file="file", metavar="FILE", help=help)


@record
class Common:
    """The options of every command."""

    _: KW_ONLY
    db: Path = option(
        default=_default_db,
        file="file",
        envvar="DELTADEX_DB",
        shown_default="in the user data folder, or $DELTADEX_DB",
        help="The catalog file.",
    )
    as_json: bool = option("--json", default=False, help="Print one JSON document on stdout.")
    quiet: bool = option(default=False, help="Print no progress and notes on stderr.")
    output: Path | None = output_file("Write the table, too: a .csv, .md or .tex file.")


@record
class Engine:
    """What gives the candidates of searches."""

    _: KW_ONLY
    engine: str = option(
        default="faiss",
        metavar="faiss|qdrant|TARGET",
        help="Take candidates from FAISS, or from an export to Qdrant: the last one, or that at "
        "TARGET (qdrant://HOST[:PORT]/COLLECTION).",
    )


EXIT_SOME_FAILED, EXIT_NOTHING_DONE = 1, 3
"""Exit codes beside 0 (done) and 2 (usage)."""

Thing = TypeVar("Thing")


def open_database(
    common: Common,
    path: Path | None = None,
    *,
    read_only: bool | None = True,
    create: Create = False,
    engine: str = "faiss",
    or_none: bool = False,
) -> Opened:
    """The catalog of `--db`, or another; with `or_none` a temporary one where there is no file;
    raises as `deltadex.open`."""
    path = path or common.db
    if or_none and not path.exists():
        path, read_only, create = None, False, True
    track = tracker(quiet=common.quiet)
    return open_as(Opened, path, read_only=read_only, create=create, engine=engine, track=track)


def tracker(*, quiet: bool) -> Track:
    """Progress on stderr, loaded when something is tracked."""

    def track(things: Iterable[Thing], what: str, *, total: int | None = None) -> Iterator[Thing]:
        from .progress import tracked

        return tracked(things, what, quiet=quiet, total=total)

    return track


def print_answer(common: Common, asked: Tabled, show: Show, **opening: Any) -> Table:
    """Ask the catalog, print the answer and return it; `opening` is passed to `open_database`."""
    with open_database(common, **opening) as db:
        table = db.ask(asked)
    print_document(table, show, common)
    return table


def print_document(
    answer: Table | Mapping[str, Any], show: Show, common: Common, *, wide: bool = False
) -> None:
    """Print an answer: as JSON, or as `show` says or prints it; a table goes into a file, too."""
    if isinstance(answer, Table):
        if common.output is not None:
            save_table(answer, common.output)
        document: Mapping[str, Any] = answer.to_json()
    else:
        document = answer
    if common.as_json:
        click.echo(json_text(document))
    elif (parts := show(document)) is not None:
        from .sections import show_answer

        show_answer(parts, wide=wide)


def asking(
    question: type[Any],
    show: Show,
    *examples: str,
    group: click.Group | None = None,
    prints_table: bool = True,
    **opening: Any,
) -> click.Command:
    """The command that asks a question and prints its answer, named as its examples call it.

    Its help is the record's docstring.

    Args:
        opening: Passed to `open_database`.
    """
    name = examples[0].split()[0 if group is None else 1]

    @command_with(question, group=group, prints_table=prints_table, name=name, examples=examples)
    def run(common: Common, asked: Any) -> None:
        print_answer(common, asked, show, **opening)

    return run


def exit_by(failed: object, done: object) -> None:
    """End the process by what failed: 1 where something was done beside, else 3."""
    if failed:
        sys.exit(EXIT_SOME_FAILED if done else EXIT_NOTHING_DONE)


@record
class Display:
    """How rows are shown."""

    _: KW_ONLY
    as_csv: bool = option("--csv", default=False, help="Print CSV on stdout.")
    wide: bool = option(default=False, help="Do not shorten cells to the width of the terminal.")

    def check(self, common: Common) -> None:
        """Raises `click.UsageError` where two forms are wanted."""
        if self.as_csv and common.as_json:
            raise click.UsageError("give --csv, or --json")

    def print(self, table: Table, show: Show, common: Common) -> None:
        """Print rows: as CSV with a header, as JSON, or as `show` says them."""
        if self.as_csv:
            rows = ([row[name] for name in table.columns] for row in table)
            click.echo(csv_text(table.columns, rows), nl=False)
        print_document(table, (lambda _: None) if self.as_csv else show, common, wide=self.wide)


def show_pairs(document: Mapping[str, Any]) -> Shown:
    """One line per key that has a value."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            value = [f"{name} {entry}" for name, entry in value.items() if entry != {}]
        if value not in (None, ""):
            yield f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}"


@record
class Drawing:
    """The picture of an answer, and what is printed beside it."""

    _: KW_ONLY
    output: Path | None = output_file(
        "Draw it: a .png or .svg file, or a page (.html) with tables of the values (of a lineage "
        "also .dot, for Graphviz); or write these tables: .csv, .md, .tex."
    )
    width: Literal["column", "full"] = option(
        default="full", help="Width of the picture: 85 mm (a column of a page) or 180 mm."
    )
    everything: bool = option("--all", default=False, help="Print everything that the answer has.")


def command_of_study(method: str) -> click.Command:
    """The command of a study, by the name of its method."""
    study = record_of(method)

    @command_with(
        study,
        *([Drawing] if study.has_picture else []),
        name=method.replace("_", "-"),
        examples=study.examples,
    )
    def run(common: Common, asked: Any, drawing: Drawing = Drawing()) -> None:  # noqa: B008
        if drawing.output is not None:
            check_picture_ending(drawing.output)  # before anything is computed
        # the catalog stores studies; a folder can be studied without one
        with open_database(common, read_only=None, create=True, or_none=True) as db:
            table = db.studies.ask(asked)
            document = table.to_json()
            if (target := drawing.output or common.output) is not None:
                if is_table_file(target):
                    save_table(table, target)
                else:
                    document["picture"] = str(table.save_picture(target, width=drawing.width))

        def show(document: Any) -> Shown:
            yield from table.sections(everything=drawing.everything)
            yield from (f"{row['model']}: {row['reason']}" for row in document.get("failed", ()))
            yield from document.get("base_notes", ())

        print_document(document, show, common)
        exit_by(document.get("failed"), True)

    return run


def from_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")
