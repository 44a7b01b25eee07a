"""Data sets asked of one family or of every family of a catalog, and the documents of the answers.

What families answer differently is null in a document of several, and stands in `families`, which
has a row for each.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import DataError, ModelError, RequestError, StudyError
from ...records import DataSet
from ...results import count
from ..face.opened import find_family
from .data_words import WordMatches, with_words

if TYPE_CHECKING:
    from ...search import TrainedModels
    from ...store import Catalog, Filters


Row = dict[str, Any]

Thing = TypeVar("Thing")

REFUSALS = (DataError, ModelError, RequestError, StudyError, MemoryError)
"""What one family may raise, and another answer."""

log = logging.getLogger(__name__)


def ask_families(
    catalog: Catalog,
    answer: Callable[[str], Thing],
    *,
    base: str | None,
    recipe: str | None,
    filters: Filters,
) -> tuple[list[tuple[Thing, float]], list[Row]]:
    """What the family of a base, or every family of a catalog, answers to its base, and its
    seconds; `base` and `reason` of those that could not be asked. Nothing that one loads is held
    while the next is asked.

    Raises:
        DataError: several families refuse, for different reasons, and none has an answer. The one
            reason of all, and what a single family raises, is raised as it is.
    """
    from ...search import check_searchable

    bases = catalog.bases() if base is None else []
    bases = bases if len(bases) > 1 else [find_family(catalog, base)]
    are_several = len(bases) > 1
    errors: dict[str, Exception] = {}

    def attempt(base: str, work: Callable[[str], None]) -> None:
        try:
            work(base)
        except REFUSALS as err:
            if not are_several:
                raise
            # what its frames hold is a loaded base
            err.__cause__ = err.__context__ = None
            errors[base] = err.with_traceback(None)
            log.warning("%s is not asked: %s", base, _line(err))

    def check(base: str) -> None:
        n = check_searchable(catalog, base, recipe=recipe, filters=filters)
        if not n and are_several:
            raise RequestError("no model of it passes the filters")

    answers: list[tuple[Thing, float]] = []

    def ask(base: str) -> None:
        start = time.monotonic()
        answers.append((answer(base), time.monotonic() - start))

    for base in bases:
        attempt(base, check)
    for base in [base for base in bases if base not in errors]:
        attempt(base, ask)
        if are_several:
            gc.collect()  # modules of transformers refer to one another
    reasons = {_line(err): err for err in errors.values()}
    if not answers and len(reasons) == 1:
        raise next(iter(reasons.values()))
    left_out = [{"base": base, "reason": _line(err)} for base, err in errors.items()]
    if not answers:
        listed = "; ".join(f"{row['base']}: {row['reason']}" for row in left_out)
        raise DataError(f"none of {count(len(bases), 'family')} can be asked: {listed}")
    return answers, left_out


def _line(err: Exception) -> str:
    return str(err).splitlines()[0] if str(err) else "not enough memory"


@dataclass(frozen=True, slots=True)
class FamilyMatch:
    """What one family answers to a data set; what was said of the reading, and of examples that
    the data set and its control lost."""

    data: DataSet
    found: TrainedModels
    reading: str
    lost: tuple[str, ...]


def joint_answer(
    asked: Sequence[tuple[FamilyMatch, float]],
    left_out: Sequence[Row],
    k: int,
    words: WordMatches | None,
) -> Row:
    """The document of `find-trained-on`: the `k` models of all families, and a row for each."""
    from ...search import judge_jointly, rank_jointly

    answers = [answer for answer, _ in asked]
    judged = judge_jointly([answer.found for answer in answers])
    ranked = [asdict(model) for model in rank_jointly(judged)]
    if words is not None and words.matches:
        ranked = with_words(ranked, words)
    models = ranked[:k]
    families = []
    for (answer, seconds), own in zip(asked, judged, strict=True):
        row = described(answer.data) | own.to_json() | {"control": own.control_json()}
        nearest = next((one for one in ranked if one["base"] == row["base"]), {})
        row |= {key: nearest.get(key) for key in ("z", "probability")}
        row["verdict"] = nearest.get("verdict", own.verdict)
        row |= {"nearest": nearest.get("model"), "reading": answer.reading, "seconds": seconds}
        del row["data"], row["neighbours"]
        comparison = (own.comparison or {}).items()
        row["comparison"] = {key: value for key, value in comparison if key != "models"} or None
        families.append(row)
    query = {"texts": answers[0].data.name, "n_texts": max(row["examples"] for row in families)}
    query |= _shared(families, "base", "loss", "sha256", "control", "counts", "settings", "reading")
    return {
        "query": query,
        **_shared(families, "recipe", "recipe_id"),
        "verdict": models[0]["verdict"] if models else "no model stands out",
        "compared": sum(row["compared"] for row in families),
        **_shared(families, "references", "calibration"),
        "comparison": _joint_comparison(answers, models),
        "neighbours": models,
        "families": families,
        "left_out": list(left_out),
    }


def _joint_comparison(answers: Sequence[FamilyMatch], models: Sequence[Row]) -> Row | None:
    """The ranked models beside the control, by the comparison of their families."""
    compared = {answer.data.base: answer.found.comparison for answer in answers}
    documents = {base: found for base, found in compared.items() if found is not None}
    if not documents:
        return None
    effects = {
        (base, effect["model"]): {**effect, "base": base}
        for base, document in documents.items()
        for effect in document["models"]
    }
    return {
        **_shared(list(documents.values()), "control", "examples", "groups", "others"),
        "models": [
            effects[key] for row in models if (key := (row["base"], row["model"])) in effects
        ],
        "left_out": [*dict.fromkeys(sentence for answer in answers for sentence in answer.lost)],
    }


def _shared(rows: Sequence[Row], *keys: str) -> Row:
    """What all rows say; None where they differ."""
    return {
        key: rows[0][key] if all(row[key] == rows[0][key] for row in rows) else None for key in keys
    }


def described(data: DataSet) -> Row:
    """What is kept of a data set, but its numbers."""
    settings = {key: value for key, value in data.settings.items() if value not in (None, "", {})}
    return {
        "data": data.name,
        "base": data.base,
        "loss": data.loss,
        "examples": data.examples,
        "sha256": data.sha256,
        "counts": dict(data.counts),
        "settings": settings,
    }
