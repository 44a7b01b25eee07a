"""What the study commands share: the model, texts, how it is run, how the command ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from .. import terminal
from ..terminal.options import Common, argument, base_option, option
from .exits import EXIT_SOME_FAILED
from .opening import tracker
from .output import print_document

if TYPE_CHECKING:
    from ..database import Database, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The picture of a study."""

    output: Path | None = option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Draw it: a .png or .svg file, or a page (.html) with a table of the values.",
    )
    width: Literal["column", "full"] = option(
        "--width",
        default="full",
        help="Width of the picture: 85 mm (a column of a page) or 180 mm.",
    )


def studied_base() -> Any:
    """The family, or what a model of none is studied on."""
    return base_option("; of a model that is not indexed, its base, whatever its files name")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiedModel(Drawing):
    """The model that a study is about, and the picture of it."""

    model: str = argument()
    base: str | None = studied_base()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiedTexts:
    """The texts that it is run over."""

    texts: Path = option(
        "--texts",
        type=click.Path(exists=True, path_type=Path),
        required=True,
        help="One text per line; or CSV, TSV, JSONL with text, group, id; or FLORES files.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How a model is run over texts."""

    batch_size: int = option(
        "--batch-size",
        type=click.IntRange(min=1),
        default=16,
        show_default=True,
        help="Run N texts at once.",
        metavar="N",
    )
    max_tokens: int = option(
        "--max-tokens",
        type=click.IntRange(min=2),
        default=128,
        show_default=True,
        help="Cut texts to N tokens.",
        metavar="N",
    )
    device: str = option(
        "--device", default="cpu", show_default=True, help="Run the model on this device."
    )


def open_for_study(common: Common) -> Database:
    """The catalog of `--db`, which stores studies where it may be written; a temporary one where
    there is none, since a folder can be studied without."""
    from ..database import open

    path = common.db if common.db.exists() else None
    read_only = None if path else False
    return open(path, read_only=read_only, track=tracker(quiet=common.quiet))


def print_studies(document: Mapping[str, Any], show: Callable[[Any], None], common: Common) -> None:
    """Print the document; exit 1 where it lists models that could not be studied."""

    def show_all(document: Mapping[str, Any]) -> None:
        show(document)
        terminal.show_base_notes(document)

    print_document(document, show_all, common)
    if document.get("failed"):
        sys.exit(EXIT_SOME_FAILED)


def run_study(
    common: Common,
    drawing: Drawing,
    show: Callable[[Any], None],
    study_of: Callable[[Database], Study],
) -> None:
    """Make a study, draw the picture if there is to be one, then `print_studies`.

    Raises:
        StudyError: no picture can have that file name; checked before anything is computed.
    """
    if drawing.output is not None:
        from ..database import check_picture_ending

        check_picture_ending(drawing.output)
    with open_for_study(common) as db:
        study = study_of(db)
        document = study.to_json()
        if drawing.output is not None:
            picture = study.save_picture(drawing.output, width=drawing.width)
            document["picture"] = str(picture)
        print_studies(document, show, common)
