"""A plan: what indexing a family would read, refuse, request and store, and how long it takes.

Made from listings, small files and headers alone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Literal

from ..errors import REASONS, BaseError, ModelError, RequestError, SourceError
from ..records import LINEAR_DIM, LINEAR_LAYER_DIM, Recipe
from ..results import count
from ..store import Catalog, PartFolder, block_dims, sketch_bytes
from . import family
from .base import REMOTE_MEMORY, Base, BaseWeights, wanted_base
from .checkpoint import FEW_BYTES, choose_weights
from .hub import HubSession, RateLimit, RequestKind, WalkCounts, request_bytes
from .index import list_members, meant_base, nothing_found, run_recipes
from .job import WantedBytes, cpu_count
from .lexicon import may_answer
from .options import IndexOptions
from .run import Report, share_of
from .tokenizer import files_of

WINDOW_S = 300

LIMITS: dict[str, dict[RequestKind, RateLimit]] = {
    user: {"api": RateLimit(api, WINDOW_S), "resolve": RateLimit(files, WINDOW_S)}
    for user, api, files in (("anonymous", 500, 3000), ("free", 1000, 5000), ("pro", 2500, 12000))
}
"""By account; huggingface.co/docs/hub/rate-limits, September 2025."""

_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.(safetensors|bin)$")


def count_requests(
    members: Iterable[family.Member], small_file: int = 1, *, whole: bool = True
) -> Counter[RequestKind]:
    """`whole`: of models that are read, and not of their embeddings alone."""
    counts: Counter[RequestKind] = Counter({"api": 0, "resolve": 0})
    for member in members:
        model = member.hub
        if model is None or not (member.refusal is None or member.may_tell_words):
            continue
        if model.files is None or not model.sha:
            counts["api"] += 1
        names = family.file_names(member) or ()
        config = "adapter_config.json" if member.is_adapter else "config.json"
        small_files = (not names or config in names) + (whole and family.needs_card(member))
        weights = choose_weights(names, adapter=member.is_adapter)
        n_weights = 1
        if weights is not None and weights.endswith(".index.json"):
            # once for the hashes of the shards, once to open them
            small_files += 2 if whole else 1
            ending = weights.removesuffix(".index.json").rsplit(".", 1)[-1]
            shards = [match[2] for match in map(_SHARD.search, names) if match]
            n_weights = max(1, shards.count(ending))
        counts["resolve"] += n_weights + small_file * small_files
    return counts


def minutes(requests: Mapping[RequestKind, int], limits: Mapping[RequestKind, RateLimit]) -> float:
    """How long the Hub makes requests wait: none within the first window."""
    waits = [
        max(0.0, n / limit.requests - 1) * limit.window_s
        for kind, n in requests.items()
        if (limit := limits.get(kind)) is not None
    ]
    return max(waits, default=0.0) / 60


ROW_BYTES = 1_000
"""A model's row, with its keys."""

SLOT_ROW_BYTES = 200
"""A slot's row beside its sketch: statistics, singular values."""

WORDS_BYTES = 10_000
"""A footprint, and what a model answers to words."""

MEASURED = "benchmarks/catalog_bytes.py: made models of 12 to 224 slots, within 10 % of it"


def catalog_bytes(
    recipes: Sequence[Recipe], models: int, slots: int, layers: int
) -> dict[str, int]:
    """What the catalog keeps: rows, vectors, sketches, linear sketches; all but the first and the
    last are in derived files, too."""
    per_model, derived = ROW_BYTES + WORDS_BYTES + SLOT_ROW_BYTES * slots, 0
    for recipe in recipes:
        dims = block_dims(recipe)
        derived += 4 * recipe.dim + (slots * sketch_bytes(dims) if dims else 0)
        if recipe.has_linear_sketch:
            per_model += 4 * (LINEAR_DIM + LINEAR_LAYER_DIM * layers)
    per_model += derived
    return {
        "models": models,
        "slots": slots,
        "per_model": per_model,
        "derived_per_model": derived,
        "total": models * (per_model + derived),
    }


SAMPLE = 16
"""Members of one kind and format whose sizes are requested, where the listing has none."""

Origin = Literal["files", "parameters", "requested", "sample", "base", "unknown"]
"""Where a size is from: the file system; the parameters that the listing counts, without headers; a
request; the mean of those that were requested; the base; nowhere."""


@dataclass(slots=True)
class SizedMember:
    member: family.Member
    kind: family.Kind
    format: family.Format
    bytes: int
    origin: Origin


def size_members(
    members: Sequence[family.Member], session: HubSession, base_bytes: int
) -> list[SizedMember]:
    sized = []
    unsized: dict[tuple[family.Kind, family.Format], list[SizedMember]] = defaultdict(list)
    for member in members:
        known, kind, form = member.stated_bytes, family.kind_of(member), family.format_of(member)
        origin: Origin = "files" if member.hub is None else "parameters"
        sized.append(SizedMember(member, kind, form, known, origin if known else "unknown"))
        if not known and member.hub and not member.refusal:
            unsized[kind, form].append(sized[-1])
    for (kind, _), entries in unsized.items():
        requested = _request_some([entry.member for entry in entries], session)
        rest: tuple[int, Origin] = (0, "unknown")
        if requested:
            rest = (round(mean(requested.values())), "sample")
        elif kind in ("full", "merge") and base_bytes:
            rest = (base_bytes, "base")
        for entry in entries:
            own = requested.get(entry.member.record.id)
            entry.bytes, entry.origin = rest if own is None else (own, "requested")
    return sized


def _request_some(members: Sequence[family.Member], session: HubSession) -> dict[str, int]:
    n = min(SAMPLE, len(members)) if not session.offline else 0
    sizes = {}
    for i in range(n):
        member = members[i * len(members) // n]
        assert member.hub is not None
        with suppress(ModelError):
            sizes[member.record.id] = request_bytes(member.hub, session)
    return sizes


_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG])(bit|B)(?:/s)?\s*")
_SCALES = {"k": 1e3, "m": 1e6, "g": 1e9}

PROCESSOR_NS = 6.6
"""Processor time for each parameter of the layer matrices that is read (docs/benchmarks.md,
BERT-base in float32, one thread)."""

START_S, SLOT_S, REQUEST_S = 4.0, 0.004, 0.004
"""Processor time of a run without models, for each slot of a model, and for each request: fits of
the measurements in docs/plan.md."""

AT_MOST = 2.0
"""Of the estimate: reading words of the base, and what idle cores took beyond it."""

ADAPTER_SLOTS = 36
"""Slots of an adapter of which nothing is known: three matrices of twelve layers."""


def parse_bandwidth(text: str) -> float:
    """Bits a second: `1Gbit`, `200Mbit`, or bytes, `50MB`; or a `RequestError`."""
    match = _TEXT.fullmatch(text)
    value = float(match[1]) * _SCALES[match[2].lower()] if match else 0.0
    if match is None or not value:
        raise RequestError(f"bandwidth {text!r}: expected a rate such as 1Gbit, 200Mbit or 50MB")
    return value if match[3] == "bit" else 8 * value


Track = Callable[[Iterable[family.Member]], Iterable[family.Member]]


EXAMPLES = 3
"""Models that are named beside the count of those with the same code."""


def make_plan(
    catalog: Catalog, options: IndexOptions, bandwidth: str, track: Track = iter
) -> PlannedRun:
    """What `index_family` with the same options would do, from listings and headers alone. The
    finished listing stays in the catalog for the run, unless the catalog is only read.
    `options.workers` are machines, each with a connection of this `bandwidth`: `1Gbit`, `50MB`."""
    bits_per_s = parse_bandwidth(bandwidth)
    base = meant_base(catalog, options)
    walk = WalkCounts()
    unlimited = replace(options, limit=None, exclude=(), min_downloads=None)
    listed = list_members(unlimited, base, catalog.listings(base.name), walk)
    members, excluded = _split(track(listed), options)
    if not members:
        raise SourceError(nothing_found(options, base, walk, catalog))
    weights, failure = None, None
    compares = (
        not m.is_adapter and (m.refusal is None or (options.footprints and m.may_tell_words))
        for m in members
    )
    if base.folder is not None or any(compares):
        base.plan = FEW_BYTES
        try:
            weights = base.weights()
        except BaseError as err:
            failure = str(err)
    if options.labels is not None:
        labels = family.read_labels(Path(options.labels))
        members = [replace(m, record=labels.apply(m.record, m.folder)) for m in members]
    wanted = wanted_base(base)
    members = [family.refuse_strangers(member, wanted) for member in members]
    recipes, _ = run_recipes(catalog, base, members, options)
    members = share_of(members, options.share)
    known = catalog.known(base.name)
    if options.parts is not None:
        known |= PartFolder(str(options.parts)).known(base.name)
    earlier = Report(base=base.name, recipes=recipes)
    has_footprint = catalog.footprints.ids(base.name) if options.footprints else known
    asks_words = options.footprints and options.parts is None and may_answer(catalog, base)
    answered = catalog.footprints.answered(base.name) if asks_words else known
    fresh = earlier.unread(members, known, options, has_footprint, answered)
    fresh += earlier.unanswered
    if failure is not None:
        no_base = ModelError("needs-base", failure)
        fresh = [m if m.is_adapter or m.refusal else replace(m, refusal=no_base) for m in fresh]
    base_bytes = weights.checkpoint.bytes_total if weights else 0
    return PlannedRun(
        options=options,
        base=base,
        weights=weights,
        base_failure=failure,
        recipes=recipes,
        earlier=earlier,
        listed=len(members) + excluded,
        excluded=excluded,
        walk=walk,
        sized=size_members(fresh, base.session, base_bytes),
        bandwidth=bits_per_s,
        stored_slots=len(catalog.shapes(base.name)),
    )


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run that has not begun. `earlier`: what is said of members that need not be read; `sized`:
    members that are new or changed, refused ones included."""

    options: IndexOptions
    base: Base
    weights: BaseWeights | None
    base_failure: str | None
    recipes: Sequence[Recipe]
    earlier: Report
    listed: int
    excluded: int
    walk: WalkCounts
    sized: Sequence[SizedMember]
    bandwidth: float
    stored_slots: int

    @cached_property
    def to_read(self) -> list[SizedMember]:
        return [entry for entry in self.sized if entry.member.refusal is None]

    @cached_property
    def words_alone(self) -> list[family.Member]:
        """Members of which the input embedding is read and no layer: refused ones, and indexed ones
        without a footprint."""
        if not self.options.footprints or self.weights is None:
            return []
        refused = [entry.member for entry in self.sized if entry.member.may_tell_words]
        return [*refused, *self.earlier.lacking]

    @cached_property
    def refused(self) -> list[tuple[str, str]]:
        new = [(e.member.record.id, e.member.refusal.code) for e in self.sized if e.member.refusal]
        return new + [(row.model.id, row.code) for row in self.earlier.refused]

    @cached_property
    def rule(self) -> WantedBytes:
        share = 1.0 if self.options.verify else self.recipes[0].share
        return WantedBytes.by(self.weights, share, footprints=self.options.footprints)

    @property
    def n_full(self) -> int:
        return sum(entry.kind != "adapter" for entry in self.to_read)

    @property
    def fetches_base(self) -> bool:
        weights = self.weights
        n_compared = self.n_full + sum(not member.is_adapter for member in self.words_alone)
        return n_compared > 0 and weights is not None and not weights.checkpoint.concurrent

    @property
    def base_again(self) -> int:
        """Bytes of a large base that are fetched again for every model, in all."""
        if not self.fetches_base or self.rule.share < 1:
            return 0
        return max(0, self.rule.layer_bytes - REMOTE_MEMORY) * self.n_full

    @cached_property
    def requests(self) -> dict[RequestKind, int]:
        """Requests to the Hub for the models and the base; the listing is there."""
        traffic = self.base.session.traffic
        small_file = 2 if traffic.redirects_small_files else 1
        requests = count_requests((entry.member for entry in self.to_read), small_file)
        requests.update(count_requests(self.words_alone, small_file, whole=False))
        if self.fetches_base:
            requests["api"] += 1
            requests["resolve"] += 1 + small_file
            if self.options.footprints and self.weights is not None:
                named = self.base.description().files or ()
                requests["resolve"] += small_file * len(files_of(named))
        if self.options.hub:
            requests["api"] += 1
        return requests

    def _hours(self) -> dict[str, object]:
        """Once a run has started, bytes, requests and arithmetic go on at the same time."""
        workers = self.options.workers or 1
        remote = _wanted(self.rule, (e for e in self.to_read if e.member.hub is not None))
        remote += self._bytes_of_words
        base_bytes = self.rule.of("full", 0) if self.fetches_base else 0
        a_worker = (remote + self.base_again) / workers + base_bytes
        weights = self.weights
        placements = weights.placed.placements if weights else ()
        parameters = sum(p.shape[0] * p.shape[1] for p in placements) * self.rule.share
        n_slots = self.disk["slots"] or ADAPTER_SLOTS
        n_adapters = len(self.to_read) - self.n_full
        slots = n_slots * self.n_full + min(n_slots, ADAPTER_SLOTS) * n_adapters
        arithmetic_s = 1e-9 * PROCESSOR_NS * parameters * self.n_full / cpu_count()
        processor_s = arithmetic_s + SLOT_S * slots + REQUEST_S * sum(self.requests.values())
        _, limits = self._limits()
        hours = {
            "bandwidth": 8 * a_worker / self.bandwidth / 3600,
            "requests": minutes(self.requests, limits) / 60,
            "processor": processor_s / workers / 3600,
        }
        total = START_S / 3600 + max(hours.values())
        hours = {"start": START_S / 3600, **hours}
        return {
            "workers": workers,
            "bandwidth_bits_per_s": self.bandwidth,
            "cores_per_worker": cpu_count(),
            **hours,
            "total": total,
            "at_most": AT_MOST * total,
            "binds": max(hours, key=hours.__getitem__),
        }

    @property
    def disk(self) -> dict[str, int]:
        slots, layers = self.stored_slots, 0
        if self.weights is not None:
            placed = {p.slot for p in self.weights.placed.placements}
            slots, layers = len(placed), len({(slot.stack, slot.layer) for slot in placed})
        return catalog_bytes(self.recipes, len(self.to_read), slots, layers)

    def to_json(self) -> dict[str, object]:
        return {
            "base": self.base.name,
            "recipe": self.recipes[0].name,
            "recipes": [recipe.id for recipe in self.recipes],
            "budget": self.options.budget,
            "share": self.rule.share,
            "models": {
                "listed": self.listed,
                "excluded": self.excluded,
                "in_catalog": self.earlier.unchanged,
                "refused": len(self.refused),
                "to_read": len(self.to_read),
            },
            "groups": self._groups(),
            "refused": self._refusals(),
            "bytes": {
                "files": sum(entry.bytes for entry in self.to_read),
                "to_read": _wanted(self.rule, self.to_read) + self._bytes_of_words,
                "to_read_whole": _wanted(WantedBytes.by(self.weights, 1.0), self.to_read),
                "base": self.rule.of("full", 0) if self.fetches_base else 0,
                "base_again": self.base_again,
                "sizes_from": dict(Counter(entry.origin for entry in self.to_read)),
            },
            "requests": self._requests(),
            "walk": asdict(self.walk) if self.options.hub else None,
            "hours": self._hours(),
            "disk": {**self.disk, "measured": MEASURED},
            "notes": self._notes(),
        }

    def _groups(self) -> list[dict[str, object]]:
        groups: dict[tuple[str, str], list[SizedMember]] = defaultdict(list)
        for entry in self.to_read:
            groups[entry.kind, entry.format].append(entry)
        return [
            {
                "kind": kind,
                "format": form,
                "models": len(group),
                "bytes_files": sum(entry.bytes for entry in group),
                "bytes_to_read": _wanted(self.rule, group),
                "estimated": sum(entry.origin not in ("files", "requested") for entry in group),
            }
            for (kind, form), group in sorted(groups.items())
        ]

    def _refusals(self) -> list[dict[str, object]]:
        ids: dict[str, list[str]] = defaultdict(list)
        for id, code in self.refused:
            ids[code].append(id)
        return [
            {
                "code": code,
                "status": REASONS[code].status,
                "meaning": REASONS[code].meaning,
                "models": len(ids[code]),
                "examples": ids[code][:EXAMPLES],
            }
            for code in sorted(ids, key=lambda code: (-len(ids[code]), code))
        ]

    @property
    def _bytes_of_words(self) -> int:
        n_full = sum(m.hub is not None and not m.is_adapter for m in self.words_alone)
        return n_full * (self.rule.embedding_bytes + self.rule.header_bytes)

    def _limits(self) -> tuple[str, Mapping[RequestKind, RateLimit]]:
        """Whose they are, and the limits: as the Hub's answers state them, else the account's."""
        account = "free" if self.base.session.has_token else "anonymous"
        stated = self.base.session.traffic.limits
        return "stated by the Hub" if stated else account, {**LIMITS[account], **stated}

    def _requests(self) -> dict[str, object]:
        account, limits = self._limits()
        return {
            "plan": dict(self.base.session.traffic.counts),
            "run": self.requests,
            "limits": {kind: asdict(limit) for kind, limit in limits.items()},
            "limits_of": account,
            "minutes": minutes(self.requests, limits),
            "minutes_by_account": {
                name: minutes(self.requests, table) for name, table in LIMITS.items()
            },
        }

    def _notes(self) -> list[str]:
        unknown = sum(entry.origin == "unknown" for entry in self.to_read)
        unnamed = sum(e.member.is_adapter and not e.member.claims for e in self.to_read)
        is_remote = any(entry.member.hub is not None for entry in self.to_read)
        unlisted = sum(self.walk.unlisted.values())
        notes = {
            f"of {count(unknown, 'model')} the size is not known, and counts as 0": unknown,
            f"{count(unnamed, 'adapter')} without a base's name: shapes decide in the run": unnamed,
            "the base is not read, so that slots and their disk are not known": not self.disk[
                "slots"
            ],
            f"the base cannot be opened: {self.base_failure}": self.base_failure,
            "the base is larger than what stays in memory: download it first": self.base_again,
            "copies of an indexed model are not read; a listing does not show them": is_remote,
            "the Hub does not say how many children a model has; a listing is made for "
            f"{count(self.walk.uncounted, 'model')}, none with --depth 1": self.walk.uncounted,
            f"{count(self.walk.below_depth, 'model')} at --depth may have children: listing them "
            "costs at least a request each": self.walk.below_depth,
            f"the Hub counts {count(unlisted, 'child')} more than it lists": unlisted,
        }
        return [note for note, holds in notes.items() if holds]


def _wanted(rule: WantedBytes, entries: Iterable[SizedMember]) -> int:
    return sum(rule.of(entry.kind, entry.bytes) for entry in entries)


def _split(
    members: Iterable[family.Member], options: IndexOptions
) -> tuple[list[family.Member], int]:
    """Those that are wanted, up to the limit, and how many others came before."""
    chosen: list[family.Member] = []
    n_others = 0
    for member in members:
        if not family.is_wanted(member, options):
            n_others += 1
            continue
        chosen.append(member)
        if len(chosen) == options.limit:
            break
    return chosen, n_others
