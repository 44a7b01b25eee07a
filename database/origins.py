"""Questions of origin: where a model comes from, and what can be made of its update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import EmptyCatalog, RequestError, UnknownBase
from ..options import Place, Question, argument, option, record
from ..records import FindingKind
from ..store import ModelFilter, write_user_file
from .opened import find_family
from .tables import AuditTable, KnownBaseTable, Table, TraceTable
from .written import check_ending, is_table_file, save_table

if TYPE_CHECKING:
    from ..pictures import Width
    from ..provenance import Finding
    from ..store import Catalog
    from .opened import Opened


@record
class Trace(Question):
    """Which base a model comes from, and what was done to it; "unknown" where nothing shows it.

    Its weights are compared with those of every base that the catalog knows: of its families, and
    of those that `bases.add` registered. Of a plain fine-tune on the Hub at most 1 MiB is read.

    Returns:
        A document: `model`, `base`, `verdict`, `p`, `layers`, `changes`, `parents`, `method`,
        `reconstructed_share`; and a row for each pair of layers.

    Raises:
        UnknownModel: there is no such model.
        RequestError: it cannot be read, or no base is known.

    >>> db.trace("imdb-0").to_json()["verdict"]
    'fine-tune'
    """

    stability = "provisional"

    model: str = argument(help="An indexed id, a folder, or a Hub id.")
    _: KW_ONLY
    base: str | None = option(default=None, help="Family of an indexed id that several have.")
    offline: bool = option(default=False, help="Read only files that are on this machine.")
    mergekit: Place | None = option(
        default=None,
        metavar="FILE",
        doors="local",
        file="file",
        help="Write the config file with which mergekit makes the same merge.",
    )

    def answer(self, db: Opened) -> TraceTable:
        from ..provenance import trace_model

        catalog = db._catalog
        document = trace_model(
            catalog,
            str(self.model),
            catalog.find_base(self.base),
            offline=self.offline,
            mergekit=None if self.mergekit is None else Path(self.mergekit),
        )
        return TraceTable(document)


@record
class AddBases(Question):
    """Register bases that models are compared with, beside those of the families.

    Returns:
        A row for each base that was read, and `failed`: `base` and `reason` of the others.

    >>> len(db.known_bases.add("base"))
    1
    """

    stability = "provisional"

    bases: tuple[Place, ...] = argument(
        several=True, metavar="BASE...", help="Folders, or ids of models on the Hub."
    )

    def answer(self, db: Opened) -> KnownBaseTable:
        from ..provenance import register

        rows, failed = [], []
        for base in self.bases:
            try:
                rows.append(register(db._catalog, str(base)).to_json())
            except RequestError as err:
                failed.append({"base": str(base), "reason": str(err)})
        return KnownBaseTable({"bases": rows, "failed": failed})


@record
class KnownBases(Question):
    """The bases that models are compared with, and those that could not be read.

    >>> [row["state"] for row in db.known_bases()]
    ['known']
    """

    stability = "provisional"

    _: KW_ONLY
    offline: bool = option(default=False, help="Read only files that are on this machine.")

    def answer(self, db: Opened) -> KnownBaseTable:
        from ..provenance import known_bases

        known = known_bases(db._catalog, offline=self.offline)
        return KnownBaseTable({"bases": [base.to_json() for base in known], "failed": []})


class ExtractionTable(Table):
    """An extracted adapter: `slot`, `module`, `rank` and `error` of every layer module that the
    model changed. A document also has `path`, `bytes` and `error` of the whole, `dtype`, `task`,
    `saved` (modules that are in it whole), `biases` (how they are written) and `notes`."""

    columns = ("slot", "module", "rank", "error")
    _key = "slots"


@record
class ExtractAdapter(Question):
    """Write a LoRA adapter that turns the base into a full fine-tune, as a folder that PEFT loads.

    Layer matrices become low-rank factors; all else that differs from the base is saved whole.

    Returns:
        A row for each layer module that changed: `slot`, `module`, `rank`, and `error`, the share
        of |ΔW| that is left out (0…1), as measured on what is written.

    Raises:
        RequestError: the model has no base that is known, is an adapter already, equals its base,
            or cannot be read; the budget is too small; the folder is not empty.
        StoreFull: the folder cannot be written.

    >>> db.extract_adapter("imdb-0", "imdb-0-lora", rank=2)[0]["rank"]
    2
    """

    stability = "provisional"

    model: str = argument(help="an id, a folder or a Hub id of a full fine-tune.")
    output: Place = option("-o", "--output", help="The folder to write.", file="any")
    _: KW_ONLY
    rank: int | None = option(
        default=None,
        least=1,
        help="Rank of every layer matrix.",
        shown_default="16, without --bytes",
    )
    bytes: str | None = option(
        default=None,
        help="Size of the folder, such as 20MB; ranks are dealt out to the layers that gain most.",
    )
    dtype: Literal["float32", "float16", "bfloat16"] = option(
        default="float32", help="Type of the factors; half of float32 buys twice the ranks."
    )
    base: str | None = option(default=None, help="The base: its name, a Hub id or a folder.")
    force: bool = option(default=False, help="Replace the adapter that is in the folder.")

    def answer(self, db: Opened) -> ExtractionTable:
        from ..indexer import open_update
        from ..provenance import MATRIX_BYTES, extract_adapter, parse_bytes
        from ..study.study import find_subject

        if self.rank is not None and self.bytes is not None:
            raise RequestError("give --rank or --bytes, not both")
        budget = None if self.bytes is None else parse_bytes(self.bytes)
        subject = find_subject(db._catalog, self.model, self.base)
        source, base = subject.require_source(), subject.require_base()
        with open_update(db._catalog, source, base, matrix_bytes=MATRIX_BYTES) as update:
            document = extract_adapter(
                update,
                Path(self.output),
                rank=self.rank,
                budget=budget,
                dtype=self.dtype,
                replaces=self.force,
                track=db._track,
            )
        return ExtractionTable(document | {"model": subject.name})


@record
class Lineage(Question):
    """Who descends from whom inside a family, by weights and times.

    Returns:
        A row for each edge: `parent` (the base, where no indexed model is likely enough), `child`,
        `probability`, `kind` (`fine-tune`, `duplicate`, `quantised`, `merge`), `weight` (of a
        parent of a merge), `explained` (share of the child's update) and `cosine`; `touched`,
        `missing` and `kept` (tokens of the parent's training, those that the child lacks, and those
        that moved as far in it); `words` (of the child's training data). The document also has
        `claims`: what cards say beside it.

    Raises:
        UnknownRecipe: the recipe keeps no linear sketches.

    >>> [(row["child"], row["kind"]) for row in db.lineage()][0]
    ('imdb-0', 'fine-tune')
    """

    stability = "provisional"

    base: str | None = argument(
        default=None, metavar="[BASE]", help="The family, where the catalog has several."
    )
    _: KW_ONLY
    recipe: str | None = option(
        default=None, shown_default="sketch", help="Name or id of a recipe."
    )

    def answer(self, db: Opened) -> LineageTable:
        from ..provenance import trace_lineage

        catalog = db._catalog
        base = find_family(catalog, self.base)

        def answer() -> dict[str, Any]:
            document = trace_lineage(catalog, base, self.recipe)
            return document | {"edges": _with_words(catalog, base, document["edges"])}

        return LineageTable(catalog.look(answer))


def _with_words(
    catalog: Catalog, base: str, edges: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    from ..search.word_names import WordNames

    view = catalog.family(base, catalog.find_recipe(None, base))
    words = WordNames.of(catalog, view).of_models([edge["child"] for edge in edges])
    return [{**edge, "words": words.get(edge["child"], [])} for edge in edges]


def check_lineage_ending(path: Place) -> None:
    """Raises `RequestError` for a file name of no table, and no picture of a lineage."""
    from ..pictures import check_lineage_ending

    check_ending(path, check_lineage_ending)


class LineageTable(Table):
    """The edges of a lineage, in order of child.

    A document also has `base`, `models`, `without_parent` (models that hang at the base), `level`
    (the probability below which they do), `claims` (`model`, `card`, `weights`, `says`, `note`),
    `not_compared` (`model`, `reason`) and `times`.
    """

    columns = ("child", "parent", "kind", "probability", "weight")
    _key = "edges"

    def save(self, path: Place, *, width: Width = "full") -> Path:
        """Draw the tree into a .svg, .png or .html file, write it for Graphviz (.dot), or its edges
        as a table (.csv, .md, .tex).

        Raises:
            RequestError: another ending, or there is no such folder.
            StoreFull: the file cannot be written.
        """
        from ..pictures import check_lineage_ending, draw_lineage, graphviz_lineage, save_picture

        target, document = Path(path), self.to_json()
        if is_table_file(target):
            return save_table(self, target)
        check_lineage_ending(target)
        if target.suffix.lower() == ".dot":
            write_user_file(target, graphviz_lineage(document).encode("utf-8", "replace"))
            return target
        draw = partial(draw_lineage, document, width)
        return save_picture(draw, target, title=f"Lineage of {document['base']}")


@record
class Audit(Question):
    """What stands out among models: copies, frozen parts, edits of a direction or of one matrix,
    updates below rounding, outliers, licences and cards in conflict with ancestors and weights.

    Returns:
        A row for each finding: `model`, `base`, `kind`, `detail` (a sentence), `z` (standard
        deviations from what is ordinary, or None). A document also has `models`, how many were
        looked at, and `notes`: what was not.

    Raises:
        UnknownModel: the name is no base and no model.
        BadFilter: `where` is not understood.

    >>> db.audit(kind="duplicate").to_json()["findings"]
    []
    """

    stability = "provisional"

    subject: str | None = argument(
        default=None, metavar="[BASE|MODEL]", help="A family's base, or an indexed model."
    )
    _: KW_ONLY
    kind: FindingKind | None = option(default=None, help="Only findings of this kind.")
    base: str | None = option(default=None, doors="local", help="Only this family.")
    where: str | None = option(
        default=None, metavar="SQL", help="Only models that pass a condition over columns of `ls`."
    )
    read: int = option(
        default=64,
        doors="local",
        least=0,
        help="Most models of a family whose weights are read: of copies, and of possible edits.",
    )
    fetch: bool = option(
        default=False, doors="local", help="Read models from the Hub too: a third of each."
    )

    def answer(self, db: Opened) -> AuditTable:
        from ..provenance import AuditOptions, audit_families, unread_models

        catalog = db._catalog
        base, model = self._meaning(catalog)
        bases = [base] if base else catalog.bases()
        if not bases:
            catalog.find_recipe(None)  # says what fills a catalog
        chosen = None
        if model is not None or self.where is not None:
            rows = catalog.models(ModelFilter(id=model, base=base, where=self.where))
            chosen = frozenset(row.id for row in rows)
        options = AuditOptions(kind=self.kind, models=chosen, read=self.read, fetch=self.fetch)
        unread = unread_models(catalog, bases, options)
        bases = [family for family in bases if catalog.recipes_of(family)]
        findings, notes, n_models = audit_families(catalog, bases, options, db._track)
        if self.kind in (None, "card-dataset"):
            for family in bases:
                labels, note = catalog.look(partial(find_other_labels, catalog, family))
                findings += [finding for finding in labels if options.includes(finding.model)]
                if note is not None:
                    notes.append(note if len(bases) == 1 else f"{family}: {note}")
        return AuditTable(
            {
                "base": base,
                "models": n_models,
                "not_read": unread,
                "findings": [finding.to_json() for finding in findings],
                "notes": notes,
            }
        )

    def _meaning(self, catalog: Catalog) -> tuple[str | None, str | None]:
        """The base and the model that are meant."""
        base = catalog.find_base(self.base)
        if self.subject is None:
            return base, None
        try:
            named = catalog.find_base(self.subject)
        except (UnknownBase, EmptyCatalog):
            row = catalog.model(self.subject, base)
            return row.base, row.id
        if base not in (None, named):
            raise RequestError(f"{self.subject} is another family than --base {base}")
        return named, None


def find_other_labels(catalog: Catalog, base: str) -> tuple[list[Finding], str | None]:
    """Models whose labels contradict the distances, and a note where labels were not compared."""
    from ..provenance import Finding
    from ..search import labelled_models, suspect_labels
    from ..search.word_names import WordNames

    view = catalog.family(base, catalog.find_recipe(None, base), is_current=True)
    family = labelled_models(view)
    suspects, compared = suspect_labels(family)
    ids = [family.ids[suspect.place] for suspect in suspects]
    words = WordNames.of(catalog, view).of_models(ids) if suspects else {}
    findings = []
    for suspect in suspects:
        model = family.ids[suspect.place]
        source = catalog.model(model, base).record.label_source or "label"
        detail = (
            f"its {source} {'say' if source.endswith('s') else 'says'} {suspect.dataset}, whose "
            f"other models are far (z {suspect.own_z:.1f}); near are models of {suspect.nearer} "
            f"(z {suspect.z:.1f})"
        )
        if words.get(model):
            detail += f"; its words are {', '.join(words[model])}"
        findings.append(
            Finding(model=model, base=base, kind="card-dataset", detail=detail, z=suspect.z)
        )
    labelled = sum(label is not None for label in family.labels)
    if compared == labelled:
        return findings, None
    return findings, f"{compared} of {labelled} labels were compared with the distances"
