"""Questions of origin: what stands out in where models come from."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import EmptyCatalog, RequestError, UnknownBase
from ..options import Question, argument, option, record
from ..store import ModelFilter
from .tables import AuditTable

if TYPE_CHECKING:
    from ..provenance import Finding
    from ..store import Catalog
    from .opened import Opened

FindingKind: TypeAlias = Literal[
    "duplicate",
    "near-duplicate",
    "base-copy",
    "frozen",
    "edit",
    "rounding",
    "outlier",
    "licence",
    "card-base",
    "card-dataset",
]
"""What an audit looks for."""

NEAR, AGREEING = 5, 2
"""Nearest models, by vectors, whose labels are compared; so many others with one label, at least,
contradict a model's own."""


@record
class Audit(Question):
    """What stands out among models: copies, frozen parts, edits along one direction, updates below
    rounding, outliers, licences and cards in conflict with ancestors and weights.

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
        help="Most models of a family whose weights are read for edits along one direction.",
    )
    fetch: bool = option(
        default=False, doors="local", help="Read models from the Hub too: a third of each."
    )

    def answer(self, db: Opened) -> AuditTable:
        from ..provenance import AuditOptions, audit_families

        catalog = db._catalog
        base, model = self._meaning(catalog)
        bases = [base] if base else catalog.bases()
        if not bases:
            catalog.find_recipe(None)  # says what fills a catalog
        chosen = None
        if model is not None or self.where is not None:
            rows = catalog.models(ModelFilter(id=model, base=base, where=self.where))
            chosen = frozenset(row.id for row in rows)
        bases = [family for family in bases if catalog.recipes_of(family)]
        options = AuditOptions(kind=self.kind, models=chosen, read=self.read, fetch=self.fetch)
        findings, notes, n_models = audit_families(catalog, bases, options, db._track)
        if self.kind in (None, "card-dataset"):
            for family in bases:
                labels = catalog.look(partial(find_other_labels, catalog, family))
                findings += [finding for finding in labels if options.includes(finding.model)]
        return AuditTable(
            {
                "base": base,
                "models": n_models,
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


def find_other_labels(catalog: Catalog, base: str) -> list[Finding]:
    """Models whose label is not that of the models that were likely trained on the same data.

    At least `AGREEING` models of other runs, all that are likely (fdr up to 1 % by the tail of the
    family's strangers), have one label, which shares no more with the model's than some words.
    """
    import numpy as np

    from ..provenance import Finding
    from ..search import labelled_models
    from ..search.family_scores import COPY_COSINE, LIKELY, Calibration

    view = catalog.family(base, catalog.find_recipe(None, base), is_current=True)
    family = labelled_models(view)
    findings: list[Finding] = []
    rows = np.array([r for r, label in enumerate(family.labels) if label], dtype=np.int64)
    if family.source is None or len(rows) <= AGREEING:
        return []
    labels = np.array([label or "" for label in family.labels], dtype=object)
    vectors = family.vectors[rows].astype(np.float32)
    suspects: list[int] = []
    for start in range(0, len(rows), 1024):
        cosines = vectors[start : start + 1024] @ vectors.T
        own = np.arange(start, start + len(cosines))
        cosines[own - start, own] = -np.inf
        near = np.argpartition(-cosines, min(NEAR, len(rows) - 1) - 1, axis=1)[:, :NEAR]
        same = labels[rows[near]] == labels[rows[own]][:, None]
        suspects += rows[own[~same.any(axis=1)]].tolist()
    # rates that labels measured would count a wrong label against its own neighbours
    rate = family.source.family.evidence.calibration(view).rate
    calibration = Calibration(rate, "the null alone", 0, 0)
    for row in suspects:
        pairs = family.pairs_between(np.array([row]), rows)
        z, cosines = pairs.z[0], pairs.cosines[0]
        others = np.flatnonzero((rows != row) & (cosines < COPY_COSINE))
        others = others[np.argsort(-z[others], kind="stable")]
        likely = others[calibration.fdr(z[others], len(others)) <= LIKELY]
        runs: dict[str, dict[Any, float]] = {}
        for place in likely.tolist():
            other = int(rows[place])
            run = family.runs[other] or family.ids[other]
            if run != family.runs[row]:
                runs.setdefault(str(labels[other]), {}).setdefault(run, float(z[place]))
        if len(runs) != 1:
            continue
        ((label, by_run),) = runs.items()
        words, others_words = _words(str(labels[row])), _words(label)
        agree = words <= others_words or others_words <= words
        if len(by_run) >= AGREEING and not agree:
            model, second = family.ids[row], sorted(by_run.values(), reverse=True)[1]
            source = catalog.model(model, base).record.label_source or "label"
            detail = (
                f"its {source} says {labels[row]}; the {len(by_run)} models that were likely "
                f"trained on the same data say {label}"
            )
            findings.append(
                Finding(model=model, base=base, kind="card-dataset", detail=detail, z=second)
            )
    return findings


def _words(label: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", label))
