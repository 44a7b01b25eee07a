"""A service as a `Database`, whose questions are sent there as they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

from ...errors import NotServed, RequestError, ServiceError
from ...options import Answers, answer_of
from ...questions.face.database import ComparedBases, Database, KeptDataSets, PublishedIndexes
from ...questions.face.opened import untracked
from ...results import Table
from ...study.registry import Studies
from .connection import Connection, Sending
from .operations import ELSEWHERE, Operation, Operations

Answer = TypeVar("Answer")

PARTS = {
    "": Database,
    "data.": KeptDataSets,
    "known_bases.": ComparedBases,
    "attached.": PublishedIndexes,
}


Steps: TypeAlias = Mapping[type[Any], Callable[[Any, Any], Any]]


class RemoteDatabase(Database):
    """A catalog that a service holds; `connect` makes one. Threads may share it."""

    def __init__(
        self,
        connection: Connection,
        operations: Operations,
        in_steps: Steps,
        *,
        closes: bool = True,
    ) -> None:
        """`in_steps`: What answers the questions that are more than one request; `closes`: whether
        the connection is closed with this object."""
        self.connection, self.operations, self._in_steps = connection, operations, in_steps
        self._track = untracked
        self._close = weakref.finalize(self, connection.close if closes else lambda: None)

    @property
    def url(self) -> str:
        """The address of the service."""
        return self.connection.url

    @property
    def version(self) -> str:
        """The version of deltadex that serves it."""
        return self.operations.version

    @property
    def path(self) -> Path:
        """Only the service knows it."""
        raise NotServed(
            f"db.path: {self.url} does not say where its file is; db.url is its address"
        )

    @property
    def bases(self) -> list[str]:
        """The bases of the catalog's families, sorted."""
        asked = self.at("GET", "families")
        found = self.connection.ask(Sending(path=asked.path, schema=asked.answer))
        try:
            return sorted(family["base"] for family in found["families"])
        except _NO_ANSWER as err:
            raise ServiceError(f"{self.url}: no service of deltadex answers there") from err

    @property
    def studies(self) -> Studies:
        """A service has none."""
        raise NotServed(f"db.studies: a service runs no models; {ELSEWHERE}")

    def reader(self, *, waits_for_index: bool = True) -> Database:
        """The same service, for another thread."""
        return RemoteDatabase(self.connection, self.operations, self._in_steps, closes=False)

    def ask(self, asked: Answers[Answer]) -> Answer:
        """The answer of a question that is given as its record, by the service.

        Raises:
            NotServed: a service does not answer it, or not with these options.
            ServiceError: the service cannot be reached, or not in time.
        """
        in_steps = self._in_steps.get(type(asked))
        try:
            found = in_steps(self, asked) if in_steps else self.document(asked)
            table = found if isinstance(found, Table) else answer_of(type(asked))(found)
            for row in table:
                for column in table.columns[:1]:
                    row[column]  # a row without what names it is no answer
        except _NO_ANSWER as err:
            raise ServiceError(
                f"{self.url}: not an answer of deltadex: {type(err).__name__} ({err}) in that to "
                f"{name_of(type(asked))}"
            ) from err
        return cast("Answer", table)

    def document(self, asked: Any, but: Collection[str] = (), **given: Any) -> dict[str, Any]:
        """The document that the service answers a record with; see `Operation.sending`."""
        operation, name = self.operation(type(asked)), name_of(type(asked))
        if "{base}" in operation.path and given.get("base", asked.base) is None:
            given = {**given, "base": self.only_base()}
        document: dict[str, Any] = self.connection.ask(operation.sending(asked, name, but, **given))
        return document

    def operation(self, question: type[Any]) -> Operation:
        """The request that answers a question; `NotServed` where there is none."""
        found = self.operations.of.get(question.__name__)
        if found is None:
            self.refuse(question)
        return found

    def at(self, method: str, path: str) -> Operation:
        """The request of that path; `NotServed` where there is none."""
        found = self.operations.at.get((method, path))
        if found is None:
            raise NotServed(f"{method} {path}: this service does not answer it; {ELSEWHERE}")
        return found

    def refuse(self, question: type[Any], why: str = "a service does not do this") -> NoReturn:
        """Raise `NotServed` for a question, or for what it is asked about."""
        raise NotServed(f"{name_of(question)}: {why}; {ELSEWHERE}")

    def only_base(self) -> str:
        """The base of the catalog's only family; `RequestError` where several are."""
        bases = self.bases
        if len(bases) != 1:
            raise RequestError(f"which family? Give base, one of: {', '.join(bases) or 'none yet'}")
        return bases[0]

    def __repr__(self) -> str:
        return f"<deltadex.RemoteDatabase {self.url!r}>"


_NO_ANSWER = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What a document raises that is none of those that `deltadex.open` gives."""


def name_of(question: type[Any]) -> str:
    """What a question is called in Python: `db.data.show`."""
    for part, kind in PARTS.items():
        for name, member in vars(kind).items():
            if getattr(member, "asked", None) is question:
                return f"db.{part}{name}".removesuffix(".__call__")
    return question.__name__
