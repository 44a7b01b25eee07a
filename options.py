"""Questions as frozen records: a field has its flag, type, default, limits and help, once.

Derived from a record are the options of a command (`questions/terminal/command_line.py`), the
parameters of a request (`service/api/schemas.py`), a call in Python with its signature and
docstring (`question`), and what a study stores of its settings.
docs/architecture.md has a question of thirty lines.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path, PurePath
from types import NoneType
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    runtime_checkable,
)

from .errors import RequestError

P = ParamSpec("P")
Kind = TypeVar("Kind")
Answer_co = TypeVar("Answer_co", covariant=True)

Place = str | Path
"""A file or folder."""

Doors = Literal["all", "local", "python"]
Stability = Literal["stable", "provisional"]
FileKind = Literal["any", "existing", "existing or address", "existing file", "file"]

_KEY = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What a field of a question says of itself.

    Attributes:
        help: A sentence, or a phrase with a noun.
        flags: As typed on the command line; empty for an argument, and for what only Python has.
        is_argument: Given by its place in the command, not by a flag.
        several: An argument of any number of values.
        doors: Where it can be given; `local` is a command and Python, `all` requests too.
        least, above, most: Limits of a number, or of each of several.
        separated: Several values are one on the command line, with commas between.
        file: Which file a path may name; None for what is no path.
        metavar, shown_default: What help shows for the value, and for a default that is None.
        stored: Whether it decides the numbers of a study, and is stored with them.
    """

    help: str = ""
    flags: tuple[str, ...] = ()
    is_argument: bool = False
    several: bool = False
    doors: Doors = "all"
    least: int | float | None = None
    above: int | float | None = None
    most: int | float | None = None
    separated: bool = False
    file: FileKind | None = None
    metavar: str | None = None
    shown_default: str | None = None
    envvar: str | None = None
    stored: bool = True


def option(*flags: str, default: Any = MISSING, help: str, **rest: Any) -> Any:
    """A field that is an option; without `flags` `--` and its name. See `Option` for the rest.

    A `bool` that is on by default is turned off by its flag: `--no-…`, `--without-…`.
    """
    metadata = {_KEY: Option(help=help, flags=flags, **rest)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def argument(*, default: Any = MISSING, help: str = "", **rest: Any) -> Any:
    """A field that a command takes by its place."""
    return option(default=default, help=help, is_argument=True, **rest)


@dataclass_transform(frozen_default=True, field_specifiers=(option, argument))
def record(kind: type[Kind]) -> type[Kind]:
    """A frozen dataclass; fields behind `_: KW_ONLY` are given by name."""
    return dataclass(frozen=True)(kind)


def options_of(record: Any) -> dict[str, tuple[Field[Any], Option]]:
    """The fields of a record, or of an object of it, that are options, by name.

    Those of the record itself come first, then those that it shares with others.
    """
    kind = record if isinstance(record, type) else type(record)
    known = {entry.name: entry for entry in fields(kind) if _KEY in entry.metadata}
    names = (name for owner in kind.__mro__ for name in inspect.get_annotations(owner))
    return {
        name: (known[name], known[name].metadata[_KEY])
        for name in dict.fromkeys(names)
        if name in known
    }


def as_kind(record: type[Kind], asked: Any) -> Kind:
    """A record of another kind, with what an object has of its fields."""
    names = (entry.name for entry in fields(cast("Any", record)))
    return record(**{name: getattr(asked, name) for name in names if hasattr(asked, name)})


def choices_of(hint: Any) -> tuple[Any, ...]:
    """The values that an annotation allows; empty where it names none."""
    return next((get_args(part) for part in parts_of(hint) if get_origin(part) is Literal), ())


def parts_of(hint: Any) -> list[Any]:
    """An annotation, the types that it is of, and the types of its entries."""
    inner = (part for own in get_args(hint) for part in get_args(own))
    return [hint, *get_args(hint), *inner]


def is_list(hint: Any) -> bool:
    """Whether a value is several, and cannot be one."""
    parts = [hint] if get_origin(hint) in (tuple, list, Sequence) else get_args(hint)
    kinds = [part for part in parts if part is not NoneType]
    return bool(kinds) and all(get_origin(kind) in (tuple, list, Sequence) for kind in kinds)


@functools.cache
def hints_of(record: Any) -> dict[str, Any]:
    """The annotation of each field of a record; `Any` for one that only type checkers know."""
    hints = {}
    for owner in reversed(record.__mro__):
        names = vars(sys.modules[owner.__module__])
        for name, annotation in inspect.get_annotations(owner).items():
            try:
                is_text = isinstance(annotation, str)
                hints[name] = eval(annotation, names) if is_text else annotation
            except (NameError, TypeError):  # known to type checkers alone, or a text
                hints[name] = Any
    return hints


def answer_of(record: type[Any]) -> Any:
    """The class of a question's answers, as its method `answer` is annotated."""
    owner: Any = next(kind for kind in record.__mro__ if "answer" in vars(kind))
    said = inspect.get_annotations(owner.answer)["return"]
    return eval(said, vars(sys.modules[owner.__module__])) if isinstance(said, str) else said


PROVISIONAL = "Provisional: options, answers and their keys may change in a minor version."


class Question:
    """The base of every record that is asked; `RequestError` for a value that no field allows.

    Attributes:
        stability: What docs/stability.md promises of its options and of its answer.
    """

    stability: ClassVar[Stability] = "stable"

    def __post_init__(self) -> None:
        hints = hints_of(cast("Any", type(self)))
        for name, (_, declared) in options_of(self).items():
            value = getattr(self, name)
            values = value if isinstance(value, list | tuple) else (value,)
            choices = choices_of(hints[name])
            for one in values:
                if choices and one is not None and one not in choices:
                    allowed = ", ".join(map(str, choices))
                    raise RequestError(f"{name} must be one of {allowed}; got {one!r}")
                check_name(name, one)
                _check_limits(name, one, declared)


def check_name(field: str, value: object) -> None:
    """Refuse, with a `RequestError`, a text that is no name of a model or file on any system."""
    if not isinstance(value, str | PurePath):
        return
    try:
        is_name = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise RequestError(f"{field}: {str(value)[:40]!a} holds a character that no name has")


def _check_limits(name: str, value: Any, declared: Option) -> None:
    if not isinstance(value, int | float):
        return
    if declared.least is not None and not value >= declared.least:
        raise RequestError(f"{name} must be at least {declared.least:g}, got {value}")
    if declared.above is not None and not value > declared.above:
        raise RequestError(f"{name} must be above {declared.above:g}, got {value}")
    if declared.most is not None and not value <= declared.most:
        raise RequestError(f"{name} must be at most {declared.most:g}, got {value}")


@runtime_checkable
class Answers(Protocol[Answer_co]):
    """A record that can be asked."""

    def answer(self, db: Any) -> Answer_co: ...


def question(record: Callable[P, Answers[Answer_co]]) -> Callable[Concatenate[Any, P], Answer_co]:
    """A method that makes the record of its arguments and asks it.

    Its signature is that of the record, its docstring the record's with a line for each argument.
    """
    parameters = inspect.signature(record).parameters.values()
    return _method(record, list(parameters))


def question_of_several(
    record: Callable[Concatenate[tuple[Kind, ...], P], Answers[Answer_co]],
) -> Callable[..., Answer_co]:
    """The same, where the first field takes any number of values: `ask(*values, …)`.

    No type can say so of a record's signature, so that type checkers see its answer alone.
    """
    first, *rest = inspect.signature(record).parameters.values()
    several = first.replace(kind=inspect.Parameter.VAR_POSITIONAL, default=inspect.Parameter.empty)
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in rest]
    return _method(record, [several, *named], several=True)


def _method(
    record: Callable[..., Answers[Answer_co]],
    parameters: list[inspect.Parameter],
    *,
    several: bool = False,
) -> Callable[..., Answer_co]:
    def ask(db: Any, *args: Any, **kwargs: Any) -> Answer_co:
        try:
            bound = signature.bind(db, *args, **kwargs)
        except TypeError as err:
            raise TypeError(f"{ask.__qualname__}() {err}") from None
        args = (bound.args[1:],) if several else bound.args[1:]
        # of a part of a `Database`, such as `db.data`, its database
        whole, asked = getattr(db, "_db", db), record(*args, **bound.kwargs)
        answer: Callable[[Any], Answer_co] | None = getattr(whole, "ask", None)
        return asked.answer(whole) if answer is None else answer(asked)

    method = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    answer = inspect.get_annotations(inspect.getattr_static(record, "answer"))
    signature = inspect.Signature([method, *parameters], return_annotation=answer["return"])
    vars(ask).update(__signature__=signature, asked=record)
    ask.__doc__ = _docstring(record)
    return _Named(ask)


class _Named:
    """Gives way to a function, once a class has a name for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __set_name__(self, owner: type[Any], name: str) -> None:
        function = self._function
        function.__name__, function.__module__ = name, owner.__module__
        function.__qualname__ = f"{owner.__qualname__}.{name}"
        setattr(owner, name, function)


def description_of(record: Any, text: str | None = None) -> str:
    """The docstring of a record, or another text on it, which says where it is provisional."""
    text = inspect.cleandoc(text) if text else inspect.getdoc(record) or ""
    if getattr(record, "stability", "stable") == "stable":
        return text
    first, gap, rest = text.partition("\n\n")
    return f"{first}\n\n{PROVISIONAL}{gap}{rest}"


def _docstring(record: Any) -> str:
    text = description_of(record)
    lines = [
        textwrap.fill(
            f"{name}: {declared.help}", 92, initial_indent="    ", subsequent_indent=" " * 8
        )
        for name, (_, declared) in options_of(record).items()
        if declared.help
    ]
    if not lines:
        return text
    arguments = "\n".join(["Args:", *lines])
    rest = re.search(r"\n\n(Returns:|Raises:|>>>)|$", text)
    assert rest is not None
    return f"{text[: rest.start()]}\n\n{arguments}{text[rest.start() :]}"
