"""A copy of the catalog as it is: `backup`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from ..options import Place, Question, argument, option, record
from ..results import Shown, Table, count, size
from .face.opened import Opened
from .terminal.command_line import asking


@record
class Backup(Question):
    """Copy the catalog as it is now into a file.

    A service goes on meanwhile, and who writes waits. The copy is a catalog: ask it with --db, or
    put it in the catalog's place.

    Returns:
        One row: `written`, `models`, `bytes`, `sha256`, `seconds`.

    Raises:
        RequestError: the target is there already, or has no folder.

    >>> db.backup("copy.duckdb")[0]["models"]
    4
    """

    target: Place = argument(file="any", help="The file to write.")
    _: KW_ONLY
    force: bool = option(default=False, help="Replace TARGET if it is there.")

    def answer(self, db: Opened) -> Table:
        from ..store import back_up

        return Table(back_up(db._catalog, Path(self.target), replace=self.force).to_json())

    def received(self, receive: Callable[[Path], str]) -> Table:
        """The same of a copy that another machine made: `receive` writes its file, and returns its
        SHA-256."""
        from ..store import receive_backup

        return Table(receive_backup(Path(self.target), receive, replace=self.force).to_json())


def _show_backup(document: Mapping[str, Any]) -> Shown:
    yield f"written: {document['written']}"
    holds = f"{count(document['models'], 'model')}, {size(document['bytes'])}"
    yield f"{holds}, {document['seconds']:.1f} s"
    yield f"SHA-256 {document['sha256']}"


command = asking(
    Backup, _show_backup, "backup family-monday.duckdb", prints_table=False, read_only=None
)
