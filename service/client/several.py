"""Questions that take several requests, or files that are here."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import CODES, ModelError, RequestError, UnknownModel
from ...options import as_kind
from ...questions.add import Add
from ...questions.audit import Audit
from ...questions.backup import Backup
from ...questions.eval import Evaluate
from ...questions.explain import Explain
from ...questions.face.searches import IN_MEMORY, ModelInMemory
from ...questions.face.serving import MapColumns, PageOfModels
from ...questions.find_similar import AcrossTable, FindSimilar, NeighbourTable
from ...questions.find_trained_on.find_trained_on import FindTrainedOn
from ...questions.ls import Models, ModelTable
from ...questions.map.map import Map, draw_columns
from ...questions.show import Show
from ...questions.trace import Trace
from ...results import Table
from .database import RemoteDatabase, Steps
from .operations import changed

PAGE = 500
"""Models of a page, at most; what a service answers at once."""

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

STOPS = ("bad-filter", "empty-catalog", "unknown-base")
"""Codes of problems that no other of several models is free of."""

GIVEN = ("model", "explain", "attached")
"""Fields of `FindSimilar` that are no parameters: a service searches its catalog alone."""

Document = dict[str, Any]


def find_similar(db: RemoteDatabase, asked: FindSimilar) -> NeighbourTable | AcrossTable:
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
    most, base = (
        operation.most.get("queries", 1),
        {} if asked.base is None else {"base": asked.base},
    )
    shared = operation.sending(asked, "db.find_similar", (*GIVEN, "base", "kind")).body or {}
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
    form = operation.sending(asked, "db.find_similar", GIVEN).body or {}
    sending = operation.carrying(form=form, files=_files(db, folder, FindSimilar))
    document: Document = db.connection.ask(sending)
    document["query"]["model"] = name
    return document


def _files(db: RemoteDatabase, folder: Path, question: type[Any]) -> dict[str, tuple[str, bytes]]:
    """The two files of an adapter, as they are sent; `NotServed` for a folder of another kind."""
    places = {"config": folder / CONFIG, "weights": folder / WEIGHTS}
    if not all(place.is_file() for place in places.values()):
        db.refuse(question, f"of folders a service takes adapters ({CONFIG}, {WEIGHTS}) alone")
    return {part: (place.name, place.read_bytes()) for part, place in places.items()}


def find_trained_on(db: RemoteDatabase, asked: FindTrainedOn) -> Document:
    """A kept data set by its name; a file that is here is sent along."""
    file = Path(asked.data)
    if not file.exists():
        return db.document(asked)
    operation = db.operations.at.get(("POST", "trained-on"))
    if operation is None or not file.is_file():
        db.refuse(FindTrainedOn, "of data sets a service takes kept ones, and single files")
    form = operation.sending(asked, "db.data.find_models", ("data",)).body or {}
    files = {"data": (file.name, file.read_bytes())}
    document: Document = db.connection.ask(operation.carrying(form=form, files=files))
    return document


def models(db: RemoteDatabase, asked: Models) -> ModelTable:
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


def draw_map(db: RemoteDatabase, asked: Map) -> Table:
    """The columns of a map, drawn here; a page names no neighbours."""
    asked.check()
    default = Map()
    columns = as_kind(MapColumns, replace(asked, path=default.path, colour=None))
    return Table(draw_columns(asked, db.document(replace(columns, axes=False))))


def evaluate(db: RemoteDatabase, asked: Evaluate) -> Document:
    """One recipe at a time."""
    if len(asked.recipes) > 1:
        db.refuse(Evaluate, "a service evaluates one recipe at a time")
    return db.document(asked, ("recipes",), recipe=next(iter(asked.recipes), None))


def trace(db: RemoteDatabase, asked: Trace) -> Document:
    """A service reads files that it has, and never the Hub: always `offline`."""
    return db.document(asked, ("offline",))


def audit(db: RemoteDatabase, asked: Audit) -> Document:
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


def add(db: RemoteDatabase, asked: Add) -> Document:
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
        sending = operation.carrying(body=body, repeatable=False, private=True)
        documents.append(db.connection.ask(sending))
    if not documents:
        raise RequestError("name a model to add")
    return _summed(documents)


def _sent(
    db: RemoteDatabase, folder: Path, base: str, files: Mapping[str, tuple[str, bytes]]
) -> Document:
    """What became of an adapter, whose id is its folder as it was named, or the folder's name."""
    name = folder.as_posix()
    model = folder.resolve().name if name.startswith(("/", "~")) or ".." in name else name
    form = {"model": model, "base": base}
    sending = db.operation(Add).carrying(form=form, files=files, repeatable=False, private=True)
    try:
        document: Document = db.connection.ask(sending)
    except ModelError as err:
        refused = {"model": model, "code": err.code, "reason": err.reason}
        return {"base": base, "indexed": 0, "failed": [refused]}
    return document


def _summed(documents: Sequence[Document]) -> Document:
    """One report of several: the last one's, with counts and lists of all."""
    summed: Document = dict(documents[-1])
    for name in ("indexed", "unchanged", "skipped"):
        summed[name] = sum(document.get(name, 0) for document in documents)
    for name in ("failed", "skipped_models", "partly_read", "outcomes"):
        summed[name] = [row for document in documents for row in document.get(name, ())]
    return summed


def back_up(db: RemoteDatabase, asked: Backup) -> Table:
    """A copy of the catalog, in a file here."""
    operation = db.operation(Backup)
    sending = operation.carrying(private=operation.private, streams=True)
    return asked.received(lambda place: db.connection.download(sending, place))


IN_STEPS: Steps = {
    Add: add,
    Audit: audit,
    Backup: back_up,
    Evaluate: evaluate,
    FindSimilar: find_similar,
    FindTrainedOn: find_trained_on,
    Map: draw_map,
    Models: models,
    Trace: trace,
}
"""Other questions are one request each, made of their record alone."""
