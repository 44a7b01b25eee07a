"""`deltadex.connect`: a service as a `Database`, whose questions are sent there as they are."""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from ...errors import CODES, ModelError, NotServed, RequestError, ServiceError, UnknownModel
from ...options import Answers, answer_of, as_kind
from ...questions.add import Add
from ...questions.audit import Audit
from ...questions.backup import Backup
from ...questions.eval import Evaluate
from ...questions.explain import Explain
from ...questions.face.database import Database
from ...questions.face.opened import untracked
from ...questions.face.searches import IN_MEMORY, ModelInMemory
from ...questions.face.serving import MapColumns, PageOfModels
from ...questions.find_similar import AcrossTable, FindSimilar, NeighbourTable
from ...questions.find_trained_on.find_trained_on import FindTrainedOn
from ...questions.ls import Models, ModelTable
from ...questions.map.map import Map, draw_columns
from ...questions.show import Show
from ...questions.trace import Trace
from ...results import Table
from ...study.registry import Studies
from .connection import Connection, Sending
from .operations import ELSEWHERE, Operation, Operations, changed, name_of

Answer = TypeVar("Answer")
Document = dict[str, Any]

TIMEOUT_S = 600.0


def connect(url: str, *, token: str | None = None, timeout: float = TIMEOUT_S) -> RemoteDatabase:
    """Connect to the service at an address; its methods and results are those of `open`.

    What a service does not do raises `NotServed`: to index folders, to run models, to write files
    for others. It names models by their whole ids. An adapter that is a folder here, or is in
    memory, and a data set in one file are sent along.

    Args:
        url: Where the service is: `http://127.0.0.1:8321`.
        token: What changes and copies of the catalog need; None takes $DELTADEX_TOKEN.
        timeout: Seconds until an answer, with pauses of a busy service and jobs.

    Raises:
        ServiceError: no service of deltadex can be reached there.

    >>> with dx.connect(url) as family:
    ...     len(family.models())
    4
    """
    token = token or os.environ.get("DELTADEX_TOKEN") or None
    connection = Connection(url, token and token.strip(), timeout)
    try:
        document = connection.ask(Sending(path="openapi.json", tries=1))
        operations = Operations.parse(document, connection.url)
    except BaseException:
        connection.close()
        raise
    return RemoteDatabase(connection, operations)


class RemoteDatabase(Database):
    """A catalog that a service holds; `connect` makes one. Threads may share it."""

    def __init__(
        self, connection: Connection, operations: Operations, *, closes: bool = True
    ) -> None:
        """`closes`: whether the connection is closed with this object."""
        self.connection, self.operations = connection, operations
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
        found = self.connection.ask(self.at("GET", "families").carrying())
        try:
            return sorted(family["base"] for family in found["families"])
        except _NO_ANSWER as err:
            raise ServiceError(f"{self.url}: no service of deltadex answers there") from err

    @property
    def studies(self) -> Studies:
        """A service has none."""
        raise NotServed(f"db.studies: a service runs no models; {ELSEWHERE}")

    def reader(self, *, waits_for_index: bool = True) -> RemoteDatabase:
        """The same service, for another thread."""
        return RemoteDatabase(self.connection, self.operations, closes=False)

    def ask(self, asked: Answers[Answer]) -> Answer:
        """The answer of a question that is given as its record, by the service.

        Raises:
            NotServed: a service does not answer it, or not with these options.
            ServiceError: the service cannot be reached, or not in time.
        """
        in_steps = IN_STEPS.get(type(asked))
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
        operation = self.operation(type(asked))
        if "{base}" in operation.path and given.get("base", asked.base) is None:
            given = {**given, "base": self.only_base()}
        return self.connection.ask(operation.sending(asked, but, **given))

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


PAGE = 500
"""Models of a page, at most; what a service answers at once."""

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

STOPS = ("bad-filter", "empty-catalog", "unknown-base")
"""Codes of problems that no other of several models is free of."""

GIVEN = ("model", "explain", "attached")
"""Fields of `FindSimilar` that are no parameters: a service searches its catalog alone."""


def _find_similar(db: RemoteDatabase, asked: FindSimilar) -> NeighbourTable | AcrossTable:
    """One model by its id, or sent along; several, and vectors, as a batch."""
    asked.check()
    if isinstance(asked.model, list | tuple) and all(
        isinstance(name, str | Path) for name in asked.model
    ):
        return NeighbourTable(_similar_each(db, asked, [str(name) for name in asked.model]))
    document = _similar(db, asked)
    if asked.across:
        return AcrossTable(document)
    if asked.explain:
        query = document["query"]["model"]
        document["explanations"] = [
            db.document(Explain(query, near["model"], recipe=asked.recipe, base=near["base"]))
            for near in document["neighbours"]
            if near["source"] is None
        ]
    return NeighbourTable(document)


def _similar(db: RemoteDatabase, asked: FindSimilar) -> Document:
    model = asked.model
    if isinstance(model, ModelInMemory):
        with tempfile.TemporaryDirectory(prefix="deltadex-") as folder:
            model.save_pretrained(folder, save_embedding_layers=False)
            return _of_adapter(db, asked, Path(folder), IN_MEMORY)
    if isinstance(model, str | Path):
        try:
            return db.document(replace(asked, explain=False, attached=True, model=str(model)))
        except UnknownModel:
            if not Path(model).is_dir():
                raise
        return _of_adapter(db, asked, Path(model), str(model))
    [answer] = _batch(db, asked, [{"vector": _numbers(db, model), "kind": asked.kind}])
    if problem := answer.get("problem"):
        raise _raised(problem)
    return answer


def _numbers(db: RemoteDatabase, vector: Any) -> list[float]:
    try:
        numbers = [float(value) for value in vector]
    except (TypeError, ValueError):
        db.refuse(FindSimilar, "a service takes an id, an adapter or a vector")
    if not all(map(math.isfinite, numbers)):
        raise RequestError("vector: its length is zero or out of range")
    return numbers


def _similar_each(db: RemoteDatabase, asked: FindSimilar, names: Sequence[str]) -> Document:
    answers, failed = [], []
    for name, answer in zip(
        names, _batch(db, asked, [{"model": name} for name in names]), strict=True
    ):
        problem = answer.get("problem")
        if problem is None:
            answers.append(answer)
        elif problem["code"] in STOPS:
            raise _raised(problem)
        elif problem["code"] == "unknown-model" and Path(name).is_dir():
            try:
                answers.append(_of_adapter(db, asked, Path(name), name))
            except (RequestError, ModelError) as err:
                failed.append({"model": name, "reason": str(err)})
        else:
            failed.append({"model": name, "reason": problem["detail"]})
    return {"queries": answers, "failed": failed}


def _batch(
    db: RemoteDatabase, asked: FindSimilar, queries: Sequence[Mapping[str, Any]]
) -> Iterator[Document]:
    operation = db.at("POST", "similar")
    most = operation.most.get("queries", 1)
    base = {} if asked.base is None else {"base": asked.base}
    shared = operation.sending(asked, (*GIVEN, "base", "kind")).body or {}
    for start in range(0, len(queries), most):
        some = [{**query, **base} for query in queries[start : start + most]]
        sending = operation.carrying(body={**shared, "queries": some})
        yield from db.connection.ask(sending)["results"]


def _raised(problem: Mapping[str, Any]) -> Exception:
    kind = CODES.get(problem["code"], RequestError)
    return kind(problem["detail"])


def _of_adapter(db: RemoteDatabase, asked: FindSimilar, folder: Path, name: str) -> Document:
    """The neighbours of an adapter that is a folder here."""
    operation = db.at("POST", "similar/adapter")
    sending = operation.sending(asked, GIVEN)
    document = db.connection.ask(replace(sending, files=_files(db, folder, FindSimilar)))
    document["query"]["model"] = name
    return document


def _files(db: RemoteDatabase, folder: Path, question: type[Any]) -> dict[str, tuple[str, bytes]]:
    """The two files of an adapter, as they are sent; `NotServed` for a folder of another kind."""
    places = {"config": folder / CONFIG, "weights": folder / WEIGHTS}
    if not all(place.is_file() for place in places.values()):
        db.refuse(question, f"of folders a service takes adapters ({CONFIG}, {WEIGHTS}) alone")
    return {part: (place.name, place.read_bytes()) for part, place in places.items()}


def _find_trained_on(db: RemoteDatabase, asked: FindTrainedOn) -> Document:
    """A kept data set by its name; a file that is here is sent along."""
    file = Path(asked.data)
    if not file.exists():
        return db.document(asked)
    operation = db.operations.at.get(("POST", "trained-on"))
    if operation is None or not file.is_file():
        db.refuse(FindTrainedOn, "of data sets a service takes kept ones, and single files")
    sending = operation.sending(asked, ("data",))
    return db.connection.ask(replace(sending, files={"data": (file.name, file.read_bytes())}))


def _models(db: RemoteDatabase, asked: Models) -> ModelTable:
    """Pages of models, until there are as many as are asked for."""
    asked.arranged([], 0)  # refuses unknown columns before anything is read
    rows: list[Document] = []
    total: int | None = None  # of the first page: a service may go on for ever
    page = PageOfModels(**{name: getattr(asked, name) for name in changed(asked, *ARRANGED)})
    in_order = asked.sort is None and not asked.reverse
    first = in_order and (asked.base is not None or len(db.bases) < 2)
    wanted = asked.limit if first and asked.limit is not None else math.inf
    while True:
        most = int(min(PAGE, wanted - len(rows)))
        document = db.document(replace(page, limit=most, offset=len(rows)))
        rows += document["models"]
        total = document["total"] if total is None else total
        if not document["models"] or len(rows) >= min(wanted, total):
            break
    rows.sort(key=lambda row: (row["base"], row["model"]))
    return asked.arranged(rows, total)


ARRANGED = ("columns", "sort", "reverse", "limit")
"""Fields of `Models` that only order what there is."""


def _draw_map(db: RemoteDatabase, asked: Map) -> Table:
    """The columns of a map, drawn here; a page names no neighbours."""
    asked.check()
    columns = as_kind(MapColumns, replace(asked, path=Map().path, colour=None))
    return Table(draw_columns(asked, db.document(replace(columns, axes=False))))


def _evaluate(db: RemoteDatabase, asked: Evaluate) -> Document:
    """One recipe at a time."""
    if len(asked.recipes) > 1:
        db.refuse(Evaluate, "a service evaluates one recipe at a time")
    return db.document(asked, ("recipes",), recipe=next(iter(asked.recipes), None))


def _audit(db: RemoteDatabase, asked: Audit) -> Document:
    """Of a family, or of one model of it; a service reads no weights."""
    base, model = asked.base, None
    if asked.subject is not None and asked.subject not in db.bases:
        model = asked.subject
        base = db.document(Show(model, base=base))["base"]
    elif asked.subject is not None:
        if base not in (None, asked.subject):
            raise RequestError(f"{asked.subject} is another family than {base}")
        base = asked.subject
    return db.document(asked, ("subject", "read"), base=base or db.only_base(), model=model)


def _add(db: RemoteDatabase, asked: Add) -> Document:
    """Adapters that are folders here are sent along; other names are ids of the Hub."""
    if others := changed(asked, "models", "base"):
        db.refuse(Add, f"a service takes no {others[0]}")
    operation = db.operation(Add)
    folders = [place for place in map(Path, asked.models) if place.is_dir()]
    ids = [str(model) for model in asked.models if not Path(model).is_dir()]
    files = {place: _files(db, place, Add) for place in folders}
    documents = [_sent(db, place, str(asked.base), files[place]) for place in folders]
    most = operation.most.get("models", 1)
    for start in range(0, len(ids), most):
        body = {"models": ids[start : start + most], "base": str(asked.base)}
        documents.append(db.connection.ask(operation.carrying(body=body)))
    if not documents:
        raise RequestError("name a model to add")
    return _summed(documents)


def _sent(
    db: RemoteDatabase, folder: Path, base: str, files: Mapping[str, tuple[str, bytes]]
) -> Document:
    """What became of an adapter, whose id is its folder as it was named, or the folder's name."""
    name = folder.as_posix()
    model = folder.resolve().name if name.startswith(("/", "~")) or ".." in name else name
    sending = db.operation(Add).carrying(body={"model": model, "base": base}, files=files)
    try:
        return db.connection.ask(sending)
    except ModelError as err:
        refused = {"model": model, "code": err.code, "reason": err.reason}
        return {"base": base, "indexed": 0, "failed": [refused]}


def _summed(documents: Sequence[Document]) -> Document:
    """One report of several: the last one's, with counts and lists of all."""
    summed: Document = dict(documents[-1])
    for name in ("indexed", "unchanged", "skipped"):
        summed[name] = sum(document.get(name, 0) for document in documents)
    for name in ("failed", "skipped_models", "partly_read", "outcomes"):
        summed[name] = [row for document in documents for row in document.get(name, ())]
    return summed


def _back_up(db: RemoteDatabase, asked: Backup) -> Table:
    """A copy of the catalog, in a file here."""
    sending = db.operation(Backup).carrying(streams=True)
    return asked.received(lambda place: db.connection.download(sending, place))


IN_STEPS: Mapping[type[Any], Callable[[RemoteDatabase, Any], Any]] = {
    Add: _add,
    Audit: _audit,
    Backup: _back_up,
    Evaluate: _evaluate,
    FindSimilar: _find_similar,
    FindTrainedOn: _find_trained_on,
    Map: _draw_map,
    Models: _models,
    # a service reads files that it has, and never the Hub
    Trace: lambda db, asked: db.document(asked, ("offline",)),
}
"""Other questions are one request each, made of their record alone."""
