"""Where a model comes from: stages that compare it with every known base, one after the other.

A stage takes a `TraceSubject` and the `TracedModel` so far, and may change it. What a stage cannot
show, it leaves to the next; what none shows is "unknown".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ... import indexer
from ...errors import EmptyCatalog, ModelError, RequestError, UnknownModel
from ...results import JsonRecord, count
from ...store import Catalog, ModelRow, Track, write_user_file
from ..lineage.forms import Overlap
from ..merges.mergekit_config import mergekit_config
from ..merges.merges import HUB, NO_MERGE, FoundMerge, find_merge, source_of
from . import changes
from .invariants import Transformation, find_transformation
from .opened_model import OpenedModel, open_model
from .signatures import KnownBase, closest, known_bases

log = logging.getLogger(__name__)

Verdict = Literal["fine-tune", "merge", "copy", "transformed", "unknown"]

AS_CLOSE = 0.02
"""Bases whose distances to the model differ by this share of the smaller one, or less, are equally
close."""


LIKE_COSINE = 0.01
"""Bases whose cosine with a transformed model is so much less than the largest are as close."""


@dataclass(slots=True, kw_only=True)
class TracedModel(JsonRecord):
    """What is known so far of where a model comes from; `to_json` is the document.

    Attributes:
        p: That the weights are related to the base's so closely by chance; None where no weights
            were compared.
        layers: (layer of the model, layer of the base), of the largest stack.
        distance: |model − base| / |base| over the sampled entries of the layers.
        alternatives: Other bases that the weights fit too.
        merge: What is known of it as a merge, in words; empty where nothing was compared.
        reason: Why the verdict is "unknown", in one line.
        unread: The tensors of its layers that were compared with none of the base's.
        bases: How many bases the model was compared with.
        found: The merge, for its config file; no part of the document.
        merged: What the document says of it, by key. Of each parent, and of related models,
            `touched` and `missing`, where both footprints tell: tokens of the parent, and how many
            of them the model lacks.
        not_compared: Which tensors were not, and why; in the sentence and the notes.
    """

    model: str
    base: str | None = None
    verdict: Verdict = "unknown"
    p: float | None = None
    layers: list[list[int]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    merge: str = ""
    distance: float | None = None
    correlations: dict[str, float] = field(default_factory=dict)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reason: str = ""
    unread: list[str] = field(default_factory=list)
    bases: int = 0
    bytes_read: int = 0
    bytes_total: int = 0
    found: FoundMerge | None = field(default=None, repr=False)
    merged: dict[str, Any] = field(default_factory=NO_MERGE.to_json, repr=False)
    not_compared: str = field(default="", repr=False)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.verdict == "unknown" or self.base is None:
            return f"{self.model}: unknown: {self.reason or 'its weights are none of a known base'}"
        if self.verdict == "merge":
            return f"{self.model}: {self.merge}; base {self.base}{self._beside}"
        is_changed = self.verdict == "transformed"
        what = "a changed copy" if is_changed else f"a {self.verdict}"
        if self.not_compared and self.verdict == "copy":
            what = "in the sampled entries of its layers a copy"
        inside = [*self.changes, self.merge] if is_changed else []
        said = "; ".join(filter(None, [*inside, self.not_compared]))
        beside = f" ({said})" if said else ""
        return f"{self.model}: {what} of {self.base}{beside}{self._beside}"

    @property
    def _beside(self) -> str:
        """The end of a sentence that rests on part of the layers."""
        if not self.unread:
            return ""
        return (
            f"; {count(len(self.unread), 'tensor')} of its layers not read: "
            + indexer.name_some(self.unread)
        )

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | self.merged | {"sentence": self.sentence}


@dataclass(frozen=True, kw_only=True)
class TraceSubject:
    """A model, open, and what it is compared with.

    Attributes:
        bases: The bases that have a signature, by name.
        row: The model's row, where it is indexed.
        maps: The layer map to each base, by name; the aligned stage fills it.
    """

    catalog: Catalog
    model: OpenedModel
    bases: Mapping[str, KnownBase]
    row: ModelRow | None = None
    maps: dict[str, indexer.LayerMap] = field(default_factory=dict)


Stage = Callable[[TraceSubject, TracedModel], None]


def align(subject: TraceSubject, trace: TracedModel) -> None:
    """The base whose layers the model's lie along entry by entry, and what was done to it."""
    shapes = {s.shape for base in subject.bases.values() for s in base.samples}
    if not any(matrix.shape in shapes for matrix in subject.model.matrices):
        return  # of other shapes than all bases: nothing of it need be read
    for name, base in subject.bases.items():
        found = indexer.find_layer_map(
            subject.model.samples, base.samples, among=len(subject.bases)
        )
        if found is not None:
            subject.maps[name] = found
    fitting = {base: m for base, m in subject.maps.items() if m.is_significant}
    trace.p = min((m.p for m in subject.maps.values()), default=None)
    if not fitting:
        return
    nearest = min(m.distance for m in fitting.values())
    near = [b for b, m in fitting.items() if m.distance <= nearest * (1 + AS_CLOSE) + 1e-9]
    chosen = closest([subject.bases[base] for base in near])[0]
    trace.alternatives = [
        {"base": base, "p": m.p, "distance": round(m.distance, 6), "as_close": base in near}
        for base, m in sorted(fitting.items(), key=lambda item: (item[1].distance, item[0]))
        if base != chosen.base
    ]
    explain_map(subject, trace, chosen, fitting[chosen.base])


def explain_map(
    subject: TraceSubject, trace: TracedModel, base: KnownBase, found: indexer.LayerMap
) -> None:
    """Write what a map to a base shows into the trace."""
    trace.base, trace.p = base.base, found.p
    trace.distance = round(found.distance, 6)
    trace.correlations = {group: round(c, 4) for group, c in found.correlations.items()}
    stacks = [stack for stack, _, _ in found.layers]
    largest = max(sorted(set(stacks)), key=stacks.count, default="")
    trace.layers = [[child, own] for stack, child, own in found.layers if stack == largest]
    structure = indexer.describe_layers(found)
    vocabulary = changes.describe_vocabulary(subject.model, base.facts)
    values = changes.describe_values(found.pairs)
    roles = changes.describe_roles(found.correlations)
    shapes = changes.describe_shapes(found, subject.model.matrices, base.samples)
    trace.changes = [*structure, *shapes, *roles, *vocabulary, *values]
    trace.changes += changes.describe_storage(found.pairs)
    if not found.by_name:
        trace.changes.append("tensors renamed")
    if structure or shapes or roles:
        trace.verdict = "transformed"
    elif changes.is_copy(found.pairs):
        trace.verdict = "transformed" if vocabulary else "copy"
    else:
        trace.verdict = "transformed" if values else "fine-tune"


def recognise(subject: TraceSubject, trace: TracedModel) -> None:
    """The base whose layers the model's are in another basis or order, where they do not align
    with one, or not in all roles."""
    found = subject.maps.get(trace.base or "")
    if found is not None and not (changes.describe_roles(found.correlations) or found.unmatched):
        return
    rows = subject.model.rows
    if rows is None:
        return
    recognised = {}
    for base in subject.bases.values():
        invariants = base.invariants if trace.base in (None, base.base) else None
        transformation = find_transformation(rows, invariants) if invariants else None
        if transformation is None:
            continue
        p = min(1.0, max(indexer.LEAST_P, transformation.p * len(subject.bases)))
        trace.p = p if trace.p is None else min(trace.p, p)
        if transformation.layers and p <= indexer.SIGNIFICANT:
            recognised[base.base] = transformation
        elif trace.base is None:
            trace.notes.append(f"{base.base}: {'; '.join(transformation.changes)}")
    if not recognised:
        return
    nearest = max(transformation.cosine for transformation in recognised.values())
    alike = [base for base, t in recognised.items() if t.cosine >= nearest - LIKE_COSINE]
    chosen = closest([subject.bases[base] for base in alike])[0]
    if trace.base is None:
        trace.alternatives = [
            {"base": base, "p": indexer.LEAST_P, "distance": None, "as_close": base in alike}
            for base in sorted(recognised)
            if base != chosen.base
        ]
    explain_transformation(subject, trace, chosen, recognised[chosen.base])


def explain_transformation(
    subject: TraceSubject, trace: TracedModel, base: KnownBase, found: Transformation
) -> None:
    """Write what a base in another basis shows into the trace."""
    layers = dict(found.layers)
    if trace.base is not None and len(layers) < len(trace.layers):
        return  # by entries more of it is explained
    rows = subject.model.rows
    assert rows is not None
    assert base.invariants is not None
    trace.base, trace.verdict, trace.notes = base.base, "transformed", []
    trace.layers = [[child, own] for child, own in sorted(layers.items())]
    new = [layer for layer in rows.layers if layer not in layers]
    structure = indexer.describe_stack(found.layers, new, base.invariants.layers)
    vocabulary = changes.describe_vocabulary(subject.model, base.facts)
    own = {(s.group, s.layer): s for s in base.samples}
    pairs = [
        (sample, own[sample.group, layers[sample.layer]])
        for sample in subject.model.samples
        if sample.layer in layers and (sample.group, layers[sample.layer]) in own
    ]
    values = changes.describe_values(pairs)
    trace.changes = [*structure, *found.changes, *vocabulary, *values]
    trace.changes += changes.describe_storage(pairs)


def compare_others(subject: TraceSubject, trace: TracedModel) -> None:
    """Whether a model whose sampled entries are the base's is the base in all its tensors."""
    found = subject.maps.get(trace.base or "")
    if trace.base is None or found is None or not changes.is_copy(found.pairs):
        return
    stored = subject.bases[trace.base].stored
    assert stored is not None
    compared = changes.compare_with_folder(subject.model, stored.source, found)
    if isinstance(compared, str):
        trace.not_compared = compared
        trace.notes.append(trace.not_compared)
        return
    trace.changes += compared
    if compared:
        trace.verdict = "transformed"


def check_unread(subject: TraceSubject, trace: TracedModel) -> None:
    """Name what is in the model's layers and was not compared; what may differ there is no copy."""
    found = subject.maps.get(trace.base or "")
    if found is None:
        return
    compared = {child.tensor for child, _ in found.pairs}
    new = set(found.unmatched)  # layers that are none of the base's have been said
    compared |= {
        m.tensor for m in subject.model.matrices if (indexer.stack_of(m.group), m.layer) in new
    }
    trace.unread = subject.model.unread_beside(compared)
    has_factors = changes.is_copy(found.pairs) and any(map(indexer.is_wrapped, trace.unread))
    if trace.unread and (trace.verdict == "copy" or has_factors):
        trace.reason = f"not-read: what was read of it equals {trace.base}{trace._beside}"
        trace.base, trace.verdict, trace.layers, trace.changes = None, "unknown", [], []


def check_claims(subject: TraceSubject, trace: TracedModel) -> None:
    """Say where the model's own files name another base than its weights show."""
    model = subject.model
    claims = model.member.claims
    if {model.member.record.id, model.source} & set(claims):
        trace.notes.append("its card names the model itself as its base")
    if trace.base is None:
        return
    named = _named(list(subject.bases), claims)
    fits = {trace.base, *(row["base"] for row in trace.alternatives)}
    if named and not fits & set(named):
        trace.notes.append(f"its files name {', '.join(named)}; its weights show {trace.base}")


def say_layers(subject: TraceSubject, trace: TracedModel) -> None:
    """Say of layers in another number or order that they may be several models'."""
    found = subject.maps.get(trace.base or "")
    if trace.verdict != "transformed" or found is None or changes.is_copy(found.pairs):
        return
    if indexer.describe_layers(found):
        trace.merge = "whether its layers are of several models was not looked for"


def _named(bases: Sequence[str], claims: Sequence[str]) -> list[str]:
    names = list(map(indexer.BaseName.of, claims))
    return [base for base in bases if any(map(indexer.BaseName.of(base).fits, names))]


def add_parents(subject: TraceSubject, trace: TracedModel) -> None:
    """The models of its base's family that it was merged from."""
    if trace.verdict != "fine-tune" or trace.base not in subject.catalog.bases():
        return
    member = subject.model.member
    if subject.row is None and member.folder is None:
        trace.merge = "parents of a merge are looked for in indexed models: index it"
        return
    _say_merge(trace, subject.catalog, subject.row, subject.model.source)


def _say_merge(
    trace: TracedModel, catalog: Catalog, row: ModelRow | None, source: str | None
) -> None:
    """What it was merged from; how many tokens training touched in each parent, and how many of
    them an indexed model lacks: not of models of another stored type, which may hide some."""
    assert trace.base is not None
    row = row if row is not None and row.base == trace.base else None
    try:
        merge = find_merge(catalog, trace.base, trace.model, row, source)
    except RequestError as err:
        trace.notes.append(f"parents of a merge were not looked for: {err}")
        return
    if merge is None:
        return
    trace.found, trace.merged, trace.merge = merge, merge.to_json(), merge.sentence
    if merge.is_merge:
        trace.verdict = "merge"
    trace.notes += merge.notes
    if row is None or row.kind != "full":
        return
    own = catalog.footprints.of(row.key)
    for named in (*trace.merged["parents"], *trace.merged["related"]):
        parent = catalog.model(named["model"], row.base)
        tokens = Overlap.of(own, catalog.footprints.of(parent.key))
        if tokens is not None and parent.dtype == row.dtype:
            named |= {"touched": tokens.touched, "missing": tokens.missing}


STAGES: tuple[Stage, ...] = (
    align,
    recognise,
    check_unread,
    compare_others,
    check_claims,
    say_layers,
    add_parents,
)


def trace_model(
    catalog: Catalog,
    model: str,
    family: str | None = None,
    *,
    track: Track,
    offline: bool = False,
    mergekit: Path | None = None,
) -> dict[str, Any]:
    """The document of `trace`: which base a model comes from, and what was done to it. `family`:
    the base of an indexed id, where several families have it.

    Raises:
        UnknownModel: there is none.
        RequestError: it cannot be read, no base is known, or a config file is wanted of what is no
            merge.
    """
    row, member = _find(catalog, model, family, offline=offline)
    known = known_bases(catalog, track, offline=offline)
    trace = TracedModel(model=row.id if row else model)
    if member is None:
        assert row is not None
        _by_catalog(trace, catalog, row)
    elif member.is_adapter:
        _by_shapes(trace, member, [base for base in known if base.stored is not None])
    else:
        _by_weights(trace, catalog, row, member, known, track)
    if trace.verdict == "unknown" and not trace.reason:
        trace.reason = "its weights are none of the " + (
            f"{trace.bases} known bases'" if trace.bases > 1 else "only known base's"
        )
    document = trace.to_json()
    if mergekit is not None:
        if trace.found is None or not trace.found.is_merge:
            raise RequestError(f"{trace.model}: no config file: {trace.merge or trace.sentence}")
        write_user_file(mergekit, mergekit_config(trace.found).encode())
        document["written"] = str(mergekit)
    return document


def _by_weights(
    trace: TracedModel,
    catalog: Catalog,
    row: ModelRow | None,
    member: indexer.Member,
    known: Sequence[KnownBase],
    track: Track,
) -> None:
    bases = {base.base: base for base in known if base.stored is not None}
    unread = [f"{k.base} was not compared: {k.reason}" for k in known if k.stored is None]
    if not bases:
        line = "no base is known: `deltadex bases add BASE`, or index a family"
        raise RequestError("; ".join([line, *unread]))
    trace.bases = len(bases)
    trace.notes += unread
    try:
        with open_model(member) as opened:
            subject = TraceSubject(catalog=catalog, model=opened, bases=bases, row=row)
            for stage in track(STAGES, "comparing weights"):
                stage(subject, trace)
            trace.bytes_read = opened.checkpoint.bytes_read
            trace.bytes_total = opened.checkpoint.bytes_total
    except ModelError as err:
        raise RequestError(f"{trace.model}: {err}") from err


def _find(
    catalog: Catalog, model: str, family: str | None, *, offline: bool
) -> tuple[ModelRow | None, indexer.Member | None]:
    """The row of an indexed model, and where the files are; None where they are not any more.

    A model that is nowhere is told with the reason of the catalog, which names those like it.
    """
    try:
        row = catalog.model(model, family)
    except (UnknownModel, EmptyCatalog) as err:
        if indexer.folder_at(model) is None and (offline or not indexer.is_model_path(model)):
            line = f"{model}: no model of the catalog and no folder ({err})"
            raise UnknownModel(line) from err
        return None, indexer.find_member(model, "")
    is_remote = row.place == HUB
    source = None if is_remote and offline else source_of(row)
    if source is None:
        return row, None
    member = indexer.find_member(source, row.base, id=row.id)
    return row, None if is_remote and member.refusal is not None else member


def _by_catalog(trace: TracedModel, catalog: Catalog, row: ModelRow) -> None:
    """What the catalog says of a model whose files are not there."""
    if row.status != "indexed":
        trace.reason = f"its files are not there, and it is not indexed ({row.code}: {row.reason})"
        return
    trace.base = row.base
    if row.kind == "adapter":
        trace.reason = f"{NO_PROOF}; it is indexed as one of {row.base}"
        return
    trace.verdict, trace.not_compared = "fine-tune", "as indexed: its files are not there"
    trace.notes += [row.partly_read] if row.partly_read else []
    trace.notes.append(
        "its files are not there: its weights were compared with this base when it was indexed, "
        "and p is not known"
    )
    _say_merge(trace, catalog, row, None)


NO_PROOF = "an adapter's weights do not show its base"


def _by_shapes(trace: TracedModel, member: indexer.Member, bases: Sequence[KnownBase]) -> None:
    """The base that an adapter names, where it is known and its shapes fit: no proof."""
    try:
        member = member.with_config()
        changed = indexer.adapter_placements(member)
    except ModelError as err:
        raise RequestError(f"{trace.model}: {err}") from err
    trace.bases = len(bases)
    fitting = [base.base for base in bases if _fits(changed, base.samples)]
    named = _named(fitting, member.claims)
    trace.alternatives = [
        {"base": base, "p": None, "distance": None, "as_close": True}
        for base in fitting
        if base not in named
    ]
    says = f"its config or card names {', '.join(map(repr, member.claims[:2])) or 'no base'}"
    if len(named) == 1:
        trace.base, trace.verdict = named[0], "fine-tune"
        trace.notes.append(f"{NO_PROOF}: {says}, and its shapes fit; p is not known")
        return
    fits = f"its shapes fit {', '.join(fitting)}" if fitting else "its shapes fit no known base"
    trace.reason = f"{NO_PROOF}; {says}, {fits}"


def _fits(changed: Sequence[indexer.Placement], base: Sequence[indexer.MatrixSample]) -> bool:
    """Whether a base has every matrix that an adapter changes; of fused ones, their inputs. What
    the adapter has as `qkv` is a fused one of the base, where its config tells its rows."""
    stored: dict[tuple[int, str], tuple[int, int]] = {}
    for matrix in base:
        roles = matrix.group.partition(".")[2].split(".")[0].split("+")
        names = [*roles, "qkv"] if "v" in roles[1:] else roles
        stored |= {(matrix.layer, name): matrix.shape for name in names}
    shapes = ((p.shape, stored.get((p.slot.layer, p.slot.role))) for p in changed)
    fits = (own is not None and ({*own} == {*shape} or shape[1] in own) for shape, own in shapes)
    return bool(changed) and all(fits)
