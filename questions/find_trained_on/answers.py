"""What models answer to a data set, and the documents of it: by the gradients of one family or of
every family, by a file's tokens beside the footprints of models, or by both.

What families answer differently is null in a document of several, and stands in `families`, which
has a row for each.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...errors import DataError, ModelError, RequestError, StudyError
from ...records import DataSet
from ...results import count
from ...store import Filters
from ..face.opened import find_family

if TYPE_CHECKING:
    from ...data import ExampleSet
    from ...search import TrainedModels
    from ...search.footprints import FileMatch
    from ...store import Catalog, ModelRow


Row = dict[str, Any]

REFUSALS = (DataError, ModelError, RequestError, StudyError, MemoryError)
"""What one family may raise, and another answer."""

MOST_EXAMPLES = 200_000
"""Rows of a file whose tokens are compared; a larger one is sampled, and the answer says so."""

OF_MATCHES = ("touched", "missing", "missing_by_chance", "accident")
"""What a row of an answer gains of a footprint."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FamilyMatch:
    """What one family answers to a data set, and its seconds; what was said of the reading, and of
    examples that the data set and its control lost."""

    data: DataSet
    found: TrainedModels
    reading: str
    lost: tuple[str, ...]
    seconds: float


def ask_families(
    catalog: Catalog,
    answer: Callable[[str], FamilyMatch],
    *,
    base: str | None,
    recipe: str | None,
    filters: Filters,
) -> tuple[list[FamilyMatch], list[Row]]:
    """What the family of a base, or every family of a catalog, answers to its base; `base` and
    `reason` of those that could not be asked. Nothing that one loads is held while the next is
    asked.

    Raises:
        DataError: several families refuse, for different reasons, and none has an answer. The one
            reason of all, and what a single family raises, is raised as it is.
    """
    from ...search import check_searchable

    bases = catalog.bases() if base is None else []
    bases = bases if len(bases) > 1 else [find_family(catalog, base)]
    are_several = len(bases) > 1
    answers: list[FamilyMatch] = []
    errors: dict[str, Exception] = {}

    def check(base: str) -> None:
        n = check_searchable(catalog, base, recipe=recipe, filters=filters)
        if not n and are_several:
            raise RequestError("no model of it passes the filters")

    def ask(base: str) -> None:
        answers.append(answer(base))

    for step in (check, ask):
        for base in [base for base in bases if base not in errors]:
            try:
                step(base)
            except REFUSALS as err:
                if not are_several:
                    raise
                # what its frames hold is a loaded base
                err.__cause__ = err.__context__ = None
                errors[base] = err.with_traceback(None)
                log.warning("%s is not asked: %s", base, _line(err))
            if are_several and step is ask:
                gc.collect()  # modules of transformers refer to one another
    left_out = [{"base": base, "reason": _line(err)} for base, err in errors.items()]
    if not answers and len({row["reason"] for row in left_out}) == 1:
        raise errors.popitem()[1]
    if not answers:
        listed = "; ".join(f"{row['base']}: {row['reason']}" for row in left_out)
        raise DataError(f"none of {count(len(bases), 'family')} can be asked: {listed}")
    return answers, left_out


def _line(err: Exception) -> str:
    return str(err).splitlines()[0] if str(err) else "not enough memory"


def joint_answer(
    answers: Sequence[FamilyMatch], left_out: Sequence[Row], k: int, words: WordMatches | None
) -> Row:
    """The document of `find-trained-on`: the `k` models of all families, and a row for each."""
    from ...search import judge_jointly, rank_jointly

    judged = judge_jointly([answer.found for answer in answers])
    ranked = [asdict(model) for model in rank_jointly(judged)]
    if words is not None and words.ranked:
        ranked = _with_words(ranked, words)
    models = ranked[:k]
    families = []
    for answer, own in zip(answers, judged, strict=True):
        row = described(answer.data) | own.to_json() | {"control": own.control_json()}
        nearest = next((one for one in ranked if one["base"] == row["base"]), {})
        row |= {key: nearest.get(key) for key in ("z", "probability")}
        row["verdict"] = nearest.get("verdict", own.verdict)
        row |= {"nearest": nearest.get("model"), "reading": answer.reading}
        row["seconds"] = answer.seconds
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


@dataclass(frozen=True, slots=True)
class WordMatches:
    """How a file's tokens match models: rows of an answer, those of models that were trained on it
    first, which alone have a probability; how many of each base have a footprint that was compared,
    and how many were not compared, by the kind of theirs: `unread` has none, `other` is in a
    note."""

    ranked: Sequence[Row]
    compared: Mapping[str, int]
    without: Mapping[str, int]
    notes: Sequence[str]

    @property
    def trained(self) -> list[Row]:
        """The rows of models that were trained on the file."""
        return [row for row in self.ranked if row["probability"] is not None]


def match_words(
    catalog: Catalog, bases: Sequence[str], filters: Filters, examples: ExampleSet
) -> WordMatches:
    """Of every model of the bases that passes the filters."""
    from ...search.footprints import FamilyFootprints

    texts = _texts_of(examples)
    matches: list[tuple[ModelRow, FileMatch]] = []
    compared: dict[str, int] = {}
    notes: list[str] = []
    without: Counter[str] = Counter()
    models = catalog.models(filters)
    for base in bases:
        wanted = {row.key: row for row in models if row.base == base}
        family = FamilyFootprints.read(catalog, base)
        known = set(family.keys) & wanted.keys()
        try:
            found, refused = family.match(texts, known)
        except RequestError as err:
            found, refused, known = {}, {"": str(err)}, set()
        notes += _reasons(refused)
        known -= {key for key in known if wanted[key].id in refused}
        matches += [(row, found[row.id]) for row in wanted.values() if row.id in found]
        compared[base] = len(known)
        kinds = dict.fromkeys(family.keys, "other") | catalog.footprints.wordless(base)
        left = (k for k, r in wanted.items() if r.status == "indexed" and k not in known)
        without.update(kinds.get(key, "unread") for key in left)
    matches.sort(key=lambda m: (not m[1].is_trained_on, m[1].ratio, m[0].base, m[0].id))
    ranked = [_matched_row(rank, *match) for rank, match in enumerate(matches, start=1)]
    return WordMatches(ranked, compared, dict(without.most_common()), notes)


def _texts_of(examples: ExampleSet) -> list[str]:
    """All texts of a data set that a model may have been trained on, each once."""
    texts: dict[str, None] = {}
    for example in examples.examples:
        parts = (example.text, example.pair, example.completion, example.label)
        texts |= {part: None for part in parts if part and isinstance(part, str)}
    return list(texts)


def _reasons(refused: Mapping[str, str]) -> list[str]:
    """Each reason once, with the models that have it where others have another."""
    models = {why: [id for id in refused if refused[id] == why] for why in refused.values()}
    if len(models) == 1:
        return list(models)
    others = {why: count(len(ids) - 1, "other") for why, ids in models.items()}
    return [
        f"{ids[0]}{f' and {others[why]}' * (len(ids) > 1)}: {why}" for why, ids in models.items()
    ]


def _matched_row(rank: int, model: ModelRow, match: FileMatch) -> Row:
    return {
        "rank": rank,
        "model": model.id,
        **dict.fromkeys(("cosine", "score", "z", "z_error", "fdr")),
        "probability": 1 - match.accident if match.is_trained_on else None,
        "verdict": match.verdict(),
        "dataset": model.dataset,
        "author": model.author,
        "run": model.run,
        "base": model.base,
        **{name: getattr(match, name) for name in OF_MATCHES},
    }


MEANING_OF_WORDS = (
    "trained on this file, or on one that contains it, where no token that training touched is "
    "missing from it. Two files of the same words cannot be told apart."
)


def words_answer(words: WordMatches, examples: ExampleSet, k: int) -> Row:
    """The document of an answer by words alone."""
    neighbours = words.ranked[:k]
    bases = sorted(base for base, n in words.compared.items() if n)
    n_read = len(examples.examples)
    reading = f"{examples.source}: words of {n_read:,} of {count(examples.rows, 'row', form=',')}"
    query = {"texts": examples.source, "n_texts": n_read, "sha256": examples.sha256}
    query |= {"base": bases[0] if len(bases) == 1 else None, "loss": None, "control": None}
    families = [{"base": base, "compared": words.compared[base]} for base in bases]
    return {
        "query": {**query, "counts": None, "settings": None, "reading": reading},
        **dict.fromkeys(("recipe", "recipe_id", "references", "calibration", "comparison")),
        "verdict": neighbours[0]["verdict"] if neighbours else "no model has a footprint",
        "compared": sum(words.compared.values()),
        "without_footprint": sum(words.without.values()),
        "without_words": dict(words.without),
        "neighbours": neighbours,
        "families": families,
        "left_out": [{"base": None, "reason": note} for note in words.notes],
        "meaning": MEANING_OF_WORDS,
    }


def _with_words(neighbours: Sequence[Row], words: WordMatches) -> list[Row]:
    """The rows of a gradient's answer with what footprints say; models that were trained on the
    file stand above all others."""
    known = {(row["base"], row["model"]): row for row in neighbours}
    first = []
    for row in words.trained:
        of_gradient = known.pop((row["base"], row["model"]), {})
        kept = {key: of_gradient.get(key) for key in ("cosine", "score", "z", "z_error")}
        first.append({**of_gradient, **row, **kept})
    matched = {(row["base"], row["model"]): row for row in words.ranked}
    rest = [
        {**row, **{name: matched.get(key, {}).get(name) for name in OF_MATCHES}}
        for key, row in known.items()
    ]
    every = [*first, *rest]
    rates = [row["fdr"] for row in every]
    if first:  # they were of the rows in another order
        from ...search.neighbours import falling_rates

        rates = falling_rates((row["probability"], row["fdr"]) for row in every)
    numbered = enumerate(zip(every, rates, strict=True), start=1)
    return [{**row, "rank": rank, "fdr": rate} for rank, (row, rate) in numbered]
