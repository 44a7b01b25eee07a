"""What stands out among the models of a family: `audit`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING

from ..errors import EmptyCatalog, RequestError, UnknownBase
from ..options import Question, argument, option, record
from ..records import FindingKind
from ..results import Document, Shown, count
from ..store import ModelFilter
from . import terminal
from .face.opened import Opened
from .terminal.command_line import asking
from .terminal.written import SavedTable

if TYPE_CHECKING:
    from ..provenance import Finding
    from ..store import Catalog


class AuditTable(SavedTable):
    """What stands out among models, a row for each finding: `model`, `base`, `kind`, `detail`, `z`.

    A document also has `models`, how many were looked at, `notes`: what was not, and `not_read`:
    the models whose layer matrices were not read, or in part (`model`, `note`).
    """

    columns = ("model", "kind", "detail", "z")
    saved_columns = ("base", *columns)
    _key = "findings"


@record
class Audit(Question):
    """List what stands out among the models of a family, or of one model.

    Copies, frozen parts, edits of a direction or of one matrix, updates below storage rounding,
    outliers, licences in conflict with an ancestor's, cards that name another base or data set than
    the weights do. docs/audit.md has the error rates that were measured, and what it cannot see.

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
        options = AuditOptions(
            kind=self.kind, models=chosen, read=self.read, fetch=self.fetch, track=db._track
        )
        unread = unread_models(catalog, bases, options)
        bases = [family for family in bases if catalog.recipes_of(family)]
        findings, notes, n_models = audit_families(catalog, bases, options)
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
    from ..search.responses import WordNames

    view = catalog.family(base, catalog.find_recipe(None, base), is_current=True)
    family = labelled_models(view)
    suspects, compared = suspect_labels(family)
    ids = [family.ids[suspect.place] for suspect in suspects]
    words = WordNames.of(catalog, view).of_models(ids) if suspects else {}
    findings = []
    for suspect in suspects:
        model = family.ids[suspect.place]
        source = catalog.model(model, base).label_source or "label"
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
    return findings, f"labels compared with the distances: {compared} of {labelled}"


def show_audit(document: Document) -> Shown:
    """A row for each finding, and what was not looked at."""
    findings, models = document["findings"], count(document["models"], "model")
    unread = document.get("not_read", [])
    beside = f"; {count(len(unread), 'model')} not read, or in part" if unread else ""
    if findings:
        yield f"{count(len(findings), 'finding')} among {models}{beside}"
        yield terminal.evidence_table(AuditTable.columns, findings)
    else:
        yield f"no finding among {models}{beside}"
    for row in unread:
        yield f"  {row['model']}: {row['note']}"
    yield from document["notes"]


command = asking(
    Audit,
    show_audit,
    "audit bert-base-uncased --kind edit",
    'audit --where "downloads > 1000" -o findings.md',
)
