"""A file's tokens beside the footprints of models: `find-trained-on` without a gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...results import count
from ...store import Filters

if TYPE_CHECKING:
    from ...data import ExampleSet
    from ...search.footprint_match import FileMatch
    from ...store import Catalog, ModelRow


Row = dict[str, Any]

MOST_EXAMPLES = 200_000
"""Rows of a file whose tokens are compared; a larger one is sampled, and the answer says so."""


@dataclass(frozen=True, slots=True)
class WordMatches:
    """How a file's tokens match models; how many of each base have a footprint that was compared,
    and how many were not compared, by the kind of theirs: `unread` has none, `other` is in a
    note."""

    matches: Mapping[tuple[str, str], FileMatch]
    rows: Mapping[tuple[str, str], ModelRow]
    compared: Mapping[str, int]
    without: Mapping[str, int]
    notes: tuple[str, ...]

    def best_of(self, base: str, k: int) -> list[str]:
        """The `k` models of a base that the file fits best, of those that were trained on it."""
        rows = (row for row in ranked_by_words(self) if row["base"] == base)
        return [row["model"] for row in rows if row["probability"] is not None][:k]

    @property
    def is_complete(self) -> bool:
        """Whether every model could be compared."""
        return not self.without and bool(self.matches)


def texts_of(examples: ExampleSet) -> list[str]:
    """All texts of a data set that a model may have been trained on, each once."""
    texts: dict[str, None] = {}
    for example in examples.examples:
        parts = (example.text, example.pair, example.completion, example.label)
        texts |= {part: None for part in parts if part and isinstance(part, str)}
    return list(texts)


def match_words(
    catalog: Catalog, bases: Sequence[str], filters: Filters, texts: Sequence[str]
) -> WordMatches:
    """Of every model of the bases that passes the filters."""
    from ...search.footprints import FamilyFootprints

    matches: dict[tuple[str, str], FileMatch] = {}
    rows: dict[tuple[str, str], ModelRow] = {}
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
        matches |= {(base, id): match for id, match in found.items()}
        rows |= {(base, row.id): row for row in wanted.values() if row.id in found}
        compared[base] = len(known)
        kinds = dict.fromkeys(family.keys, "other") | catalog.footprints.wordless(base)
        left = (k for k, r in wanted.items() if r.status == "indexed" and k not in known)
        without.update(kinds.get(key, "unread") for key in left)
    return WordMatches(matches, rows, compared, dict(without.most_common()), tuple(notes))


def _reasons(refused: Mapping[str, str]) -> list[str]:
    """Each reason once, with the models that have it where others have another."""
    models = {why: [id for id in refused if refused[id] == why] for why in refused.values()}
    if len(models) == 1:
        return list(models)
    others = {why: count(len(ids) - 1, "other") for why, ids in models.items()}
    return [
        f"{ids[0]}{f' and {others[why]}' * (len(ids) > 1)}: {why}" for why, ids in models.items()
    ]


def match_columns(match: FileMatch | None) -> Row:
    """What a row of an answer gains."""
    names = ("touched", "missing", "missing_by_chance", "accident")
    return {name: getattr(match, name, None) for name in names}


def ranked_by_words(words: WordMatches) -> list[Row]:
    """Rows of the models that a file's tokens fit best, those that were trained on it first."""
    order = sorted(
        words.matches.items(), key=lambda item: (not item[1].is_trained_on, item[1].ratio, item[0])
    )
    rows = []
    for rank, ((base, id), match) in enumerate(order, start=1):
        record = words.rows[base, id]
        rows.append(
            {
                "rank": rank,
                "model": id,
                **dict.fromkeys(("cosine", "score", "z", "z_error", "fdr")),
                "probability": 1 - match.accident if match.is_trained_on else None,
                "verdict": match.verdict(),
                "dataset": record.dataset,
                "author": record.author,
                "run": record.run,
                "base": base,
                **match_columns(match),
            }
        )
    return rows


MEANING = (
    "trained on this file, or on one that contains it, where no token that training touched is "
    "missing from it. Two files of the same words cannot be told apart."
)


def words_answer(words: WordMatches, examples: ExampleSet, k: int) -> Row:
    """The document of an answer by words alone."""
    neighbours = ranked_by_words(words)[:k]
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
        "meaning": MEANING,
    }


def with_words(neighbours: Sequence[Row], words: WordMatches) -> list[Row]:
    """The rows of a gradient's answer with what footprints say; models that were trained on the
    file stand above all others."""
    proven = [row for row in ranked_by_words(words) if row["probability"] is not None]
    known = {(row["base"], row["model"]): row for row in neighbours}
    first = []
    for row in proven:
        of_gradient = known.pop((row["base"], row["model"]), {})
        kept = {key: of_gradient.get(key, row[key]) for key in ("cosine", "score", "z", "z_error")}
        first.append({**of_gradient, **row, **kept})
    rest = [
        {**row, **match_columns(words.matches.get((row["base"], row["model"])))}
        for row in known.values()
    ]
    every = [*first, *rest]
    rates = [row["fdr"] for row in every]
    if first:  # they were of the rows in another order
        from ...search.neighbours import falling_rates

        rates = falling_rates((row["probability"], row["fdr"]) for row in every)
    numbered = enumerate(zip(every, rates, strict=True), start=1)
    return [{**row, "rank": rank, "fdr": rate} for rank, (row, rate) in numbered]
