"""The catalog: models, fingerprints, slots and families in one DuckDB file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors
from ..records import Indexed, ModelRecord, Outcome, Recipe, Slot, SlotStats
from .files import file_size
from .holding import Access
from .opening import Create, connect
from .session import Session
from .tables.documents import Attachments, Listings, Signatures, StudyResult, StudyResults
from .tables.filters import Condition, Filters, ModelFilter
from .tables.models import (
    LABELS,
    ModelRow,
    Page,
    Stored,
    count_models,
    count_values,
    select_abbreviated,
    select_models,
    update_models,
)
from .tables.recipes import (
    BaseRecord,
    count_by_recipe,
    replace_base,
    select_base,
    select_bases,
    select_recipes,
)

if TYPE_CHECKING:
    from .derived.footprint_bits import FootprintBits
    from .family import FamilyView
    from .tables.footprints import Footprints
    from .tables.outcomes import DataSets

T = TypeVar("T")

DEFAULT_RECIPE = "sketch"

MOST_ALIKE = 1_000
"""Names that are compared with a wrong one, of a large catalog."""


class Catalog(Session):
    """An open catalog file, and a session on it; a context manager. One thread at a time: others
    take a `reader`.

    Searches see the catalog as it is now; or, unless it `waits_for_index`, as it was when the index
    was last caught up, by a reader that waits.
    """

    def __init__(
        self,
        access: Access,
        path: Path,
        *,
        read_only: bool,
        is_reader: bool = False,
        waits_for_index: bool = True,
    ) -> None:
        super().__init__(access, about=path, read_only=read_only)
        self._is_reader, self.waits_for_index = is_reader, waits_for_index
        self._is_closed = False
        self._remembered: tuple[str, dict[Callable[[Session], Any], Any]] = ("", {})

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        read_only: bool = False,
        create: Create = True,
        cache: str | None = None,
        repairs: bool = True,
    ) -> Catalog:
        """The catalog in the file `path`; arguments and errors as of `connect`. `cache` is how much
        memory DuckDB may take, as it has it: `2GB`, `10%`."""
        access = connect(path, read_only=read_only, create=create, cache=cache, repairs=repairs)
        return cls(access, path, read_only=read_only)

    def reader(self, *, waits_for_index: bool = True) -> Catalog:
        """The same catalog for another thread. Close it before this one."""
        access, path, read_only = self.access, self.path, self.read_only
        return Catalog(
            access, path, read_only=read_only, is_reader=True, waits_for_index=waits_for_index
        )

    def shed_memory(self) -> None:
        """Free the memory of DuckDB's cached pages."""
        self.access.shed()

    def close(self) -> None:
        super().close()
        if not (self._is_reader or self._is_closed):
            self.access.close()
        self._is_closed = True

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # writing

    def record(self, outcome: Outcome) -> None:
        """Write all of a model's outcome, or nothing, in place of its last outcome."""
        self.record_all([outcome])

    def record_all(
        self, outcomes: Sequence[Outcome], at: str | None = None, *, checked: bool = False
    ) -> None:
        """Write several models, all of them or none; `at` is when they were read: UTC, ISO 8601;
        None for now. `checked`: raises `StoreDamaged` if their rows are not what a run writes."""
        from .tables.outcomes import check_outcomes, write_outcomes

        def write(session: Session) -> None:
            write_outcomes(session, outcomes, at)
            if checked:
                check_outcomes(session, outcomes)

        self.write(write)

    def settle_copies(self, base: str) -> None:
        """Make the models of a family that have the same weight files copies of the oldest of them,
        of the first id where their age is unknown: whichever was read first."""
        sql = (
            "WITH originals AS ("
            "  SELECT content_sha256, arg_min(id, (coalesce(created_at, '~'), id)) AS original "
            "  FROM models WHERE base = $1 AND status = 'indexed' AND content_sha256 IS NOT NULL "
            "  GROUP BY content_sha256"
            "), settled AS ("
            "  SELECT key, CASE WHEN original <> id THEN original END AS twin FROM models "
            "  LEFT JOIN originals USING (content_sha256) WHERE base = $1 AND status = 'indexed'"
            ") UPDATE models SET duplicate_of = twin FROM settled "
            "WHERE models.key = settled.key AND duplicate_of IS DISTINCT FROM twin"
        )
        self.write(lambda s: s.execute(sql, [base]))

    def remove(self, id: str, base: str | None = None) -> ModelRow:
        """Remove a model; returns its last row."""
        from .tables.outcomes import delete_models

        row = self.model(id, base)
        self.write(lambda s: delete_models(s, [row.key]))
        return row

    def relabel(self, base: str, records: Sequence[ModelRecord]) -> None:
        """Bring labels, authors and runs of models up to date; models without a row are passed
        over."""
        rows = [
            {"base": base} | {name: getattr(record, name) for name in ("id", *LABELS)}
            for record in records
        ]
        if rows:
            self.write(lambda s: update_models(s, rows, ("base", "id")))

    def label(
        self,
        id: str,
        base: str | None = None,
        *,
        dataset: str | None = None,
        author: str | None = None,
        run: str | None = None,
    ) -> tuple[ModelRow, ModelRow]:
        """Label a model as a labels file would; returns its row before and after.

        Args:
            dataset: "" makes the model unlabelled; None leaves the dataset as it is.
            author, run: None leaves them as they are.
        """
        before = self.model(id, base)
        after = before.labelled(dataset, author, run)
        self.relabel(after.base, [after])
        return before, after

    def save_base(self, record: BaseRecord) -> None:
        """Store what is known of a base; what the record lacks stays as it is stored."""
        record = record.completed(self.base(record.base))
        self.write(lambda s: replace_base(s, record))

    def save_family(self, record: BaseRecord) -> None:
        """The same, with the shapes that the base's models changed."""
        shapes = {str(slot): shape for slot, shape in self.shapes(record.base).items()}
        self.save_base(replace(record, shapes=shapes))

    # beside the models

    def listings(self, base: str) -> Listings:
        """The walk of the Hub that starts at `base`."""
        return Listings(self, base)

    @property
    def data_sets(self) -> DataSets:
        """Data sets that were kept as queries."""
        from .tables.outcomes import DataSets

        return DataSets(self)

    @property
    def footprints(self) -> Footprints:
        """Which tokens models were trained on, and the tokenizers that name them."""
        from .tables.footprints import Footprints

        return Footprints(self)

    def footprint_bits(self, base: str) -> FootprintBits:
        """The touched tokens of a family's models as bits, from a file that is made if need be."""
        from .derived.footprint_bits import FootprintBits

        return self.look(lambda: FootprintBits.read(self, base))

    @property
    def attachments(self) -> Attachments:
        """Published indexes that are searched beside the models."""
        return Attachments(self)

    @property
    def signatures(self) -> Signatures:
        """By what bases are recognised in models' weights."""
        return Signatures(self)

    def studies(self, key: int) -> StudyResults:
        """The studies of the model with this key."""
        return StudyResults(self, key)

    def study_results(
        self, study: str, base: str | None = None, model: str | None = None
    ) -> list[StudyResult]:
        """The stored results of a study, of all models or of one, by model and time."""
        rows = self.execute(
            "SELECT base, model, settings, results, made_at::VARCHAR FROM study_results "
            "WHERE study = $1 AND ($2 IS NULL OR base = $2) AND ($3 IS NULL OR model = $3) "
            "ORDER BY base, model, made_at",
            [study, base, model],
        )
        return [
            StudyResult(base, model, settings, json.loads(results), at)
            for base, model, settings, results, at in rows
        ]

    def study_names(self) -> list[str]:
        """The studies that have a stored result."""
        return self.column("SELECT DISTINCT study FROM studies ORDER BY 1")

    # models

    def known(self, base: str) -> dict[str, ModelRow]:
        """Every model of a family by id: what a second run compares with its files."""
        return {row.id: row for row in self.models(base=base)}

    def models(self, wanted: Filters | None = None, **equal: str | None) -> list[ModelRow]:
        """The models that pass a filter, or that have these values, by base and id; `BadFilter`
        where `where` is not understood."""
        return self._select(*(wanted or ModelFilter(**equal)).conditions())

    def page_of_models(self, wanted: ModelFilter, page: Page) -> tuple[list[ModelRow], int]:
        """One page of the models that pass, and how many pass altogether."""
        conditions = wanted.conditions()
        return self.look(
            lambda: (select_models(self, conditions, page), count_models(self, conditions))
        )

    def value_counts(
        self, wanted: ModelFilter, columns: Sequence[str], most: int
    ) -> tuple[int, dict[str, list[tuple[Any, int]]]]:
        """How many models pass, and by column how many of them have each of its values."""
        conditions = wanted.conditions()
        return self.look(
            lambda: (
                count_models(self, conditions),
                {name: count_values(self, conditions, name, most) for name in columns},
            )
        )

    def stored_models(self, id: str, base: str | None = None) -> list[Stored]:
        """The indexed models of exactly that id, at most one per family."""
        rows = self.execute(
            "SELECT key, base, kind, dataset FROM models "
            "WHERE id = ? AND status = 'indexed' AND (base = ? OR ? IS NULL)",
            [id, base, base],
        )
        return [Stored(key, id, *rest) for key, *rest in rows]

    def stored(self, id: str, base: str | None = None) -> Stored:
        """The columns that a search needs of the indexed model of that id, or in that folder.

        Raises:
            UnknownModel: with the nearest ids.
            RequestError: several families have one, or it is not indexed.
        """
        stored = self.stored_models(id, base)
        if len(stored) == 1:
            return stored[0]
        row = self.model(id, base)
        if row.status != "indexed":
            raise errors.RequestError(
                f"{row.id} is not indexed ({row.code}: {row.reason}): "
                "`deltadex ls --status indexed` lists indexed models"
            )
        return Stored(row.key, row.id, row.base, row.kind, row.dataset)

    def model(self, id: str, base: str | None = None) -> ModelRow:
        """The model of that id, or whose files are in that folder, or the only one whose id the
        text begins or ends. A text with a slash may be a Hub id, and does so for no Hub model.

        Raises:
            UnknownModel: with the nearest ids, or those that the text begins or ends.
            RequestError: several families have one.
        """
        exact: list[ModelRow] = []
        for column, value in (("id", id), ("source", os.path.realpath(id))):
            # of one condition only, for DuckDB to use the index
            rows = [] if exact else self._select(Condition(f"m.{column} = ?", (value,)))
            exact += [row for row in rows if base in (None, row.base)]
        exact = [row for row in exact if row.status == "indexed"] or exact
        if len(exact) > 1:
            families = sorted({row.base for row in exact})
            if len(families) == 1:
                names = ", ".join(row.id for row in exact)
                raise errors.RequestError(
                    f"{id}: several models have these files; name one: {names}"
                )
            raise errors.RequestError(
                f"{id}: several families have it; add --base, one of: {', '.join(families)}"
            )
        if exact:
            return exact[0]
        family = self.find_base(base)
        ids = self.alike("id", id, family)
        if not ids:
            raise self._empty()
        is_short = id and not os.path.exists(id)
        fitting = select_abbreviated(self, id, family, errors.OFFERED + 1) if is_short else []
        if len(fitting) == 1:
            return self.model(fitting[0], base)
        if fitting:
            more = ", …" if len(fitting) > errors.OFFERED else ""
            some = ", ".join(fitting[: errors.OFFERED]) + more
            named = f"begins or ends several ids of {self.path.name}: {some}"
            raise errors.UnknownModel(f"'{id}' {named}")
        near = errors.offered(id, ids, None) or "; `deltadex ls` lists them"
        raise errors.UnknownModel(f"no model '{id}' in {self.path.name}{near}")

    def alike(self, column: str, text: str, base: str | None = None) -> list[str]:
        """Different ids or labels of the models, those first that are most like a text; of a large
        catalog not all."""
        return self.column(
            f"SELECT DISTINCT {column} AS value, contains(lower(value), lower($1)) AS holds, "
            "greatest(jaro_winkler_similarity(lower(value), lower($1)), jaro_winkler_similarity("
            "lower(split_part(value, '/', -1)), lower(split_part($1, '/', -1)))) AS likeness "
            "FROM models WHERE value IS NOT NULL AND ($2 IS NULL OR base = $2) "
            f"ORDER BY holds DESC, likeness DESC, value LIMIT {MOST_ALIKE}",
            [text, base],
        )

    def describe(self, id: str, base: str | None = None) -> dict[str, Any]:
        """All columns of a model, and what it changed in each matrix, in slot order, for JSON;
        without NumPy, whose import takes as long as `show`."""
        row = self.model(id, base)
        measured = "fro_norm, relative_norm, sigma, energy, stable_rank, noise_floor, zero_share"
        rows = self.execute(
            f"SELECT stack, layer, role, rows, columns, {measured} FROM slot_statistics "
            "WHERE model = ?",
            [row.key],
        )
        names = measured.split(", ")
        slots = [
            {"slot": str(slot), "shape": list(values[:2])}
            | dict(zip(names, values[2:], strict=True))
            for slot, values in sorted((Slot(*row[:3]), row[3:]) for row in rows)
        ]
        return {**row.to_json(), "slots": slots}

    def tells_words(self, base: str, id: str) -> bool:
        """Whether anything is stored that may tell words of a model: touched tokens, or what its
        update answers to."""
        sql = (
            "SELECT 1 FROM footprints f JOIN models m ON m.key = f.model WHERE m.base = ? "
            "AND m.id = ? AND (f.touched > 0 OR f.responses IS NOT NULL)"
        )
        return bool(self.execute(sql, [base, id]))

    def slots(self, key: int, recipe: str | None = None) -> list[SlotStats]:
        """What the model with this key changed, slot by slot; with a recipe's sketches."""
        from .tables.outcomes import select_slots

        return select_slots(self, key, recipe)

    # fingerprints

    def recipes(self) -> dict[str, Recipe]:
        """Every recipe by id."""
        return self._remember(select_recipes)

    def recipes_of(self, base: str | None) -> list[Recipe]:
        """The recipes that models of a family, or of any, have vectors of; those of most models
        first."""
        totals: Counter[str] = Counter()
        for id, family, n in self._remember(count_by_recipe):
            totals[id] += n if base in (None, family) else 0
        recipes = [recipe for id, recipe in self.recipes().items() if totals[id]]
        return sorted(recipes, key=lambda r: (-totals[r.id], -r.version, r.id))

    def find_recipe(self, name: str | None, base: str | None = None) -> Recipe:
        """The recipe of that name or id that most models of the base have.

        Raises:
            EmptyCatalog: nothing is fingerprinted.
            UnknownRecipe: lists what there is.
        """
        ranked = self.recipes_of(base)
        if not ranked:
            raise errors.EmptyCatalog(
                f"{self.path}: nothing fingerprinted yet; `deltadex index` does that"
            )
        wanted = name or DEFAULT_RECIPE
        chosen = [recipe for recipe in ranked if wanted in (recipe.id, recipe.name)]
        if chosen or name is None:
            return (chosen or ranked)[0]
        names = errors.offered(name, sorted(recipe.name for recipe in ranked), "recipes here")
        raise errors.UnknownRecipe(f"no model is fingerprinted under {name!r}{names}")

    def family(
        self,
        base: str,
        recipe: Recipe,
        *,
        prepare: Callable[[FamilyView], object] | None = None,
        is_current: bool = False,
    ) -> FamilyView:
        """The models of `base` with a vector under a recipe, made once for every version of the
        catalog: of this moment, where it `is_current` or this reader waits for its index. `prepare`
        is called with a new view before other threads have it."""
        from .family import FamilyMoments

        return self.access.derived(FamilyMoments).view(
            self,
            base,
            recipe,
            is_current=self.waits_for_index or is_current,
            publishes=self.waits_for_index,
            prepare=prepare,
        )

    def outcome_of_copy(
        self, base: str, twin: str, model: ModelRecord, recipes: Sequence[str]
    ) -> Indexed:
        """What indexing a byte-identical copy of `twin` would give, under these recipe ids."""
        from .tables.outcomes import outcome_of_copy

        row, by_id = self.model(twin, base), self.recipes()
        record = model.as_copy_of(row)
        return outcome_of_copy(self, row.key, record, [by_id[id] for id in recipes])

    # the whole

    def bases(self) -> list[str]:
        """Names of the families, sorted."""
        return list(self._remember(select_bases))

    def find_base(self, spelling: str | None) -> str | None:
        """The family's name in the catalog: its exact name, its folder, or its name without the
        owner or folder where that is one family's only; None for None.

        Raises:
            EmptyCatalog: there is no family at all.
            UnknownBase: lists what there is.
        """
        if spelling is None:
            return None
        bases = self.bases()
        if not bases:
            raise self._empty()
        if spelling in bases:
            return spelling
        if (folder := os.path.realpath(os.path.expanduser(spelling))) in bases:
            return folder
        last = spelling.rstrip("/").rsplit("/", 1)[-1].lower()
        alike = [base for base in bases if base.rsplit("/", 1)[-1].lower() == last]
        if len(alike) == 1:
            return alike[0]
        raise errors.UnknownBase(f"no family of {spelling!r}{errors.offered(spelling, bases)}")

    def base(self, base: str) -> BaseRecord:
        """What is known of a base."""
        return select_base(self, base)

    def licence_conflicts(self, base: str) -> list[tuple[str, str, str, str, str]]:
        """Model, its licence, the ancestor, that one's licence and what it asks, of each conflict
        that `licence_rules` shows in a family."""
        return self.execute(
            "SELECT model, license, ancestor, ancestor_license, says FROM licence_conflicts "
            "WHERE base = ? AND verdict = 'conflict' ORDER BY ALL",
            [base],
        )

    def shapes(self, base: str) -> dict[Slot, tuple[int, int]]:
        """(out, in) of every slot that a model of the family changed."""
        rows = self.execute(
            "SELECT s.stack, s.layer, s.role, arg_max(s.rows, s.model), arg_max(s.columns, s.model)"
            " FROM slots s JOIN models m ON m.key = s.model WHERE m.base = ? "
            "GROUP BY ALL ORDER BY ALL",
            [base],
        )
        return {Slot(*slot): (n_out, n_in) for *slot, n_out, n_in in rows}

    def failures(self, base: str | None = None) -> list[dict[str, Any]]:
        """Models that are not indexed, by reason code, the most frequent first."""
        groups: dict[str, dict[str, Any]] = {}
        for row in self.models(base=base, where="status <> 'indexed'"):
            code = row.code or "internal"
            meaning = errors.REASONS[code].meaning if code in errors.REASONS else ""
            empty = {"code": code, "status": row.status, "meaning": meaning, "models": []}
            group = groups.setdefault(code, empty)
            reason = (row.reason or "").removeprefix(f"{row.id}: ")
            names = {"model": row.id, "base": row.base, "base_raw": row.base_raw}
            group["models"].append(names | {"reason": reason, "source": row.source})
        return sorted(groups.values(), key=lambda g: (-len(g["models"]), g["code"]))

    def stats(self) -> dict[str, Any]:
        """Counts of models, labels and data sets by base; of models by base and recipe, by status,
        and by how their bytes were compared (`verified`: see `ModelRecord`); the file's bytes."""
        with self.snapshot():
            by_id = self.recipes()
            bases = self.rows("SELECT base, models, indexed, labelled, datasets FROM coverage")
            recipes = [
                {"base": base, "id": id, "rank": by_id[id].rank, "dim": by_id[id].dim, "models": n}
                for id, base, n in count_by_recipe(self)
            ]
            statuses = self.execute(
                "SELECT status, count(*) FROM models GROUP BY status ORDER BY status"
            )
            verified = self.execute(
                "SELECT coalesce(verified, 'nothing listed') AS way, count(*) FROM models "
                "WHERE status = 'indexed' GROUP BY way ORDER BY way"
            )
        counts = {"statuses": dict(statuses), "verified": dict(verified)}
        file = {"path": str(self.path), "bytes": file_size(self.path)}
        return {**file, "bases": bases, "recipes": recipes, **counts}

    def cost(self, recipes: Sequence[str]) -> dict[str, Any]:
        """Seconds and bytes that one model's fingerprint took, on average, in the run that indexed
        the model, under these recipe ids. None where unknown."""
        marks = ", ".join("?" * len(recipes))
        seconds, n_bytes = self.execute(
            "SELECT avg(m.seconds), avg(m.bytes_read) FROM recipes r "
            "JOIN (SELECT DISTINCT base, model, recipe FROM fingerprints) f ON f.recipe = r.id "
            f"JOIN models m ON m.base = f.base AND m.id = f.model WHERE r.id IN ({marks})",
            list(recipes),
        )[0]
        return {
            "seconds_per_model": seconds,
            "bytes_per_model": None if n_bytes is None else int(n_bytes),
        }

    def _empty(self) -> errors.EmptyCatalog:
        return errors.EmptyCatalog(
            f"{self.path}: no models yet; `deltadex index BASE FOLDER` adds them"
        )

    def _select(self, *conditions: Condition) -> list[ModelRow]:
        return self.look(lambda: select_models(self, conditions))

    def _remember(self, select: Callable[[Session], T]) -> T:
        """The result of `select`, which runs again only after a change."""
        changes = self.changes
        if self._remembered[0] != changes:
            self._remembered = (changes, {})
        if select not in (answers := self._remembered[1]):
            answers[select] = select(self)
        answer: T = answers[select]
        return answer
