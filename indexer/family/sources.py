"""Where members come from: a folder, a list, one id or path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...errors import ModelError
from ...records import ModelRecord
from ..words import shown
from .hub import hub_member
from .local import find_models, read_member
from .member import Member
from .paths import folder_at, resolved, storable
from .text_file import read_text_file


def folder_members(folder: Path, base: str, *, leave_out: Path | None) -> Iterator[Member]:
    """Every model below `folder`, by path; ids are paths relative to it.

    Args:
        leave_out: The base's own folder.

    Raises:
        SourceError: the folder cannot be listed.
    """
    root = folder.resolve()
    for path in find_models(folder):
        relative = path.relative_to(folder)
        place = root / relative
        if place != leave_out:
            name = relative.as_posix()
            yield read_member(place, id=name if name != "." else root.name, base=base)


def listed_members(list_file: Path, base: str) -> Iterator[Member]:
    """The models of a file with one id or path a line; `#` begins a comment.

    Paths are relative to the file's own folder, or to the current one.

    Raises:
        SourceError: the file cannot be read.
    """
    for line in read_text_file(list_file, "a list of models").splitlines():
        text = line.split("#", 1)[0].strip()
        if text:
            beside = folder_at(list_file.parent / text)
            yield one_member(str(beside or text), base, id=text)


def one_member(model: str, base: str, *, id: str | None = None) -> Member:
    """The model at a path, or of that id on the Hub."""
    path = folder_at(model)
    if path is not None:
        return read_member(path.resolve(), id=id or _path_id(model), base=base)
    model = storable(model)
    if model.startswith((".", "/", "~")):
        refusal = ModelError("not-found", f"{shown(model)}: no such folder")
        return Member(record=ModelRecord(id=id or _path_id(model), base=base), refusal=refusal)
    return hub_member(model, base)


def _path_id(path: str) -> str:
    """A path below the current folder as it is from there; any other by its last name."""
    place, here = resolved(path) or Path(path), Path.cwd().resolve()
    return place.relative_to(here).as_posix() if here in place.parents else place.name
