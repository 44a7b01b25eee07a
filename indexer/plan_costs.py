"""What a run costs: requests that the Hub accepts, bytes of files, disk, hours."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Literal

from ..errors import ModelError, RequestError
from ..records import Recipe
from .checkpoint import choose_weights
from .family import Format, Kind, Member, file_names, format_of, kind_of, needs_card
from .hub import HubSession, RateLimit, RequestKind, request_bytes, stated_bytes
from .known_family import linear_numbers, recipe_bytes

Requests = Mapping[RequestKind, int]

WINDOW_S = 300

LIMITS: dict[str, dict[RequestKind, RateLimit]] = {
    user: {"api": RateLimit(api, WINDOW_S), "resolve": RateLimit(resolve, WINDOW_S)}
    for user, api, resolve in (
        ("anonymous", 500, 3_000),
        ("free", 1_000, 5_000),
        ("pro", 2_500, 12_000),
    )
}
"""By account; huggingface.co/docs/hub/rate-limits, September 2025."""

_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.(safetensors|bin)$")


def count_requests(members: Iterable[Member], small_file: int = 1) -> Counter[RequestKind]:
    """Requests for the models of the Hub that are read, ranges on signed addresses apart; a small
    file takes two where the Hub redirects to its cache."""
    counts: Counter[RequestKind] = Counter({"api": 0, "resolve": 0})
    for member in members:
        model = member.hub
        if model is None or member.refusal is not None:
            continue
        if model.files is None or not model.sha:
            counts["api"] += 1
        names = file_names(member) or ()
        config = "adapter_config.json" if member.is_adapter else "config.json"
        small_files = (not names or config in names) + needs_card(member)
        weights = choose_weights(names, adapter=member.is_adapter)
        n_weights = 1
        if weights is not None and weights.endswith(".index.json"):
            # once for the hashes of the shards, once to open them
            small_files += 2
            ending = weights.removesuffix(".index.json").rsplit(".", 1)[-1]
            shards = [match[2] for match in map(_SHARD.search, names) if match]
            n_weights = max(1, shards.count(ending))
        counts["resolve"] += n_weights + small_file * small_files
    return counts


def minutes(requests: Requests, limits: Mapping[RequestKind, RateLimit]) -> float:
    """How long the Hub makes requests wait: none within the first window."""
    waits = [
        max(0.0, n / limit.requests - 1) * limit.window_s
        for kind, n in requests.items()
        if (limit := limits.get(kind)) is not None
    ]
    return max(waits, default=0.0) / 60


Limits = tuple[str, Mapping[RequestKind, RateLimit]]
"""Whose they are, and the limits."""


def stated_limits(stated: Mapping[RequestKind, RateLimit], *, has_token: bool) -> Limits:
    """The limits that hold: those that the Hub's answers state, else those of the account."""
    account = "free" if has_token else "anonymous"
    if not stated:
        return account, LIMITS[account]
    return "stated by the Hub", {**LIMITS[account], **stated}


ROW_BYTES = 1_000
"""A model's row, with its keys."""

SLOT_ROW_BYTES = 200
"""A slot's row beside its sketch: statistics, singular values."""

MEASURED = "benchmarks/catalog_bytes.py: made models of 12, 72 and 224 slots, within 8 % of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogBytes:
    """What the catalog and its derived files grow by.

    Attributes:
        derived_per_model: Bytes of the index and of mapped files, made by the first search.
    """

    models: int
    slots: int
    per_model: int
    derived_per_model: int

    @property
    def total(self) -> int:
        return self.models * (self.per_model + self.derived_per_model)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "total": self.total, "measured": MEASURED}


def catalog_bytes(recipes: Sequence[Recipe], models: int, slots: int, layers: int) -> CatalogBytes:
    """By the recipes, for models with so many slots in so many layers."""
    per_model, derived = ROW_BYTES + SLOT_ROW_BYTES * slots, 0
    for recipe in recipes:
        with_linear = recipe_bytes(recipe, slots, layers)
        per_model += with_linear
        derived += with_linear - 4 * linear_numbers(recipe, layers)
    return CatalogBytes(models=models, slots=slots, per_model=per_model, derived_per_model=derived)


SAMPLE = 16
"""Members of one kind and format whose sizes are requested, where the listing has none."""

Origin = Literal["files", "parameters", "requested", "sample", "base", "unknown"]
"""Where a size is from: the file system; the parameters that the listing counts, without headers; a
request; the mean of those that were requested; the base; nowhere."""


@dataclass(frozen=True, slots=True)
class SizedMember:
    """A member, and the bytes of its weight files; 0 where they are not known."""

    member: Member
    kind: Kind
    format: Format
    bytes: int
    origin: Origin


def size_members(
    members: Sequence[Member], session: HubSession, base_bytes: int
) -> list[SizedMember]:
    """Every member with its size, in order; at most `SAMPLE` requests a kind and format."""
    sizes: dict[int, tuple[int, Origin]] = {}
    unsized: dict[tuple[Kind, Format], list[int]] = defaultdict(list)
    for i, member in enumerate(members):
        known = _known_size(member)
        if known is not None:
            sizes[i] = known
        else:
            unsized[kind_of(member), format_of(member)].append(i)
    for (kind, _), places in unsized.items():
        requested = _request_some([members[i] for i in places], session)
        rest: tuple[int, Origin] = (0, "unknown")
        if requested:
            rest = (round(mean(requested.values())), "sample")
        elif kind in ("full", "merge") and base_bytes:
            rest = (base_bytes, "base")
        for i in places:
            own = requested.get(members[i].record.id)
            sizes[i] = rest if own is None else (own, "requested")
    return [
        SizedMember(member, kind_of(member), format_of(member), *sizes[i])
        for i, member in enumerate(members)
    ]


def _known_size(member: Member) -> tuple[int, Origin] | None:
    """A size that needs no request; of a model that is refused none is needed."""
    if member.hub is None:
        size = member.record.bytes_total
        return size, "files" if size else "unknown"
    stated = stated_bytes(member.hub)
    if stated is not None:
        return stated, "parameters"
    return None if member.refusal is None else (0, "unknown")


def _request_some(members: Sequence[Member], session: HubSession) -> dict[str, int]:
    """Sizes by id, of members evenly spread over all; those that fail are left out."""
    n = min(SAMPLE, len(members)) if not session.offline else 0
    sizes = {}
    for i in range(n):
        member = members[i * len(members) // n]
        assert member.hub is not None
        try:
            sizes[member.record.id] = request_bytes(member.hub, session)
        except ModelError:
            continue
    return sizes


_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG])(bit|B)(?:/s)?\s*")
_SCALES = {"k": 1e3, "m": 1e6, "g": 1e9}

PROCESSOR_NS = 6.6
"""Processor time for each parameter of the layer matrices that is read (docs/benchmarks.md,
BERT-base in float32, one thread)."""

START_S, SLOT_S, REQUEST_S = 4.0, 0.004, 0.004
"""Processor time of a run without models, for each slot of a model, and for each request: fits of
the measurements in docs/plan.md."""

ADAPTER_SLOTS = 36
"""Slots of an adapter of which nothing is known: three matrices of twelve layers."""


def parse_bandwidth(text: str) -> float:
    """Bits a second: `1Gbit`, `200Mbit`, or bytes, `50MB`.

    Raises:
        RequestError: not understood.
    """
    match = _TEXT.fullmatch(text)
    value = float(match[1]) * _SCALES[match[2].lower()] if match else 0.0
    if match is None or not value:
        raise RequestError(f"bandwidth {text!r}: expected a rate such as 1Gbit, 200Mbit or 50MB")
    return value if match[3] == "bit" else 8 * value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHours:
    """Hours of a run; once it has started, bytes, requests and arithmetic go on at the same time.

    Attributes:
        start: Until the first model is read.
        bandwidth: To fetch all bytes, of each worker's share.
        requests: That the Hub's limits make all workers wait together.
        processor: Of arithmetic, of each worker's share.
    """

    start: float
    bandwidth: float
    requests: float
    processor: float

    @property
    def total(self) -> float:
        return self.start + max(self.bandwidth, self.requests, self.processor)

    def to_json(self) -> dict[str, object]:
        """Hours by cause, the total, and the cause that decides it."""
        hours: dict[str, float] = asdict(self)
        return {**hours, "total": self.total, "binds": max(hours, key=hours.__getitem__)}
