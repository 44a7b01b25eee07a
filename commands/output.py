"""How a command ends: picture, document, exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ModelError, RequestError, StudyError
from ..terminal.text import json_text
from .boundary import EXIT_SOME_FAILED
from .subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def each(
    subjects: Iterable[Subject], study: Callable[[Subject], Any], *, quiet: bool
) -> tuple[list[Any], list[dict[str, str]]]:
    """A study of each model; those that cannot be studied are listed, and stop nobody.

    Raises:
        RequestError: none could be.
    """
    from ..terminal import tracked

    found, failed = [], []
    for subject in tracked(list(subjects), "models", quiet=quiet):
        try:
            found.append(study(subject))
        except (StudyError, RequestError, ModelError) as err:
            failed.append({"model": subject.name, "reason": str(err)})
    if not found:
        first = failed[0]
        raise StudyError(f"no model could be studied; {first['reason']}")
    return found, failed


def check_picture(picture: Path | None) -> None:
    if picture is not None:
        from ..study.pictures import check_ending

        check_ending(picture)


def finish(
    document: Mapping[str, Any],
    draw: Callable[[], Figure],
    picture: Path | None,
    title: str,
    as_json: bool,
    show: Callable[[Any], None],
) -> None:
    """Draw what is to be drawn, print the document, and leave with the right code."""
    if picture is not None:
        from ..study.pictures import save_picture

        save_picture(draw, picture, title=title)
        document = dict(document) | {"picture": str(picture)}
    print_some(document, show, as_json)


def print_some(document: Mapping[str, Any], show: Callable[[Any], None], as_json: bool) -> None:
    """Print the document; where it lists models that failed, leave with the code that says so."""
    print_document(document, show, as_json)
    if document.get("failed"):
        sys.exit(EXIT_SOME_FAILED)


def print_document(document: Mapping[str, Any], show: Callable[[Any], None], as_json: bool) -> None:
    if as_json:
        click.echo(json_text(document))
    else:
        show(document)
