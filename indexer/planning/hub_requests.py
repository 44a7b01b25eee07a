"""Requests that a run sends to the Hub, and what the Hub accepts in five minutes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..checkpoint import choose_weights
from ..family import Member, file_names, needs_card
from ..hub import RateLimit, RequestKind

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRule:
    """What a file costs.

    Attributes:
        small_file: Requests for a small file: 2 where the Hub redirects to its cache.
    """

    small_file: int = 1

    def of_model(self, member: Member) -> Requests:
        """Requests for one model of the Hub that is read; ranges on signed addresses apart."""
        counts: Counter[RequestKind] = Counter()
        model = member.hub
        if model is None or member.refusal is not None:
            return counts
        if model.files is None or not model.sha:
            counts["api"] += 1
        names = file_names(member) or ()
        config = "adapter_config.json" if member.is_adapter else "config.json"
        small_files = (not names or config in names) + needs_card(member)
        weights = choose_weights([n for n in names if "/" not in n], adapter=member.is_adapter)
        if weights is not None and weights.endswith(".index.json"):
            # once for the hashes of the shards, once to open them
            small_files += 2
            counts["resolve"] += _n_shards(names, weights)
        else:
            counts["resolve"] += 1
        counts["resolve"] += self.small_file * small_files
        return counts

    def of_models(self, members: Iterable[Member]) -> dict[RequestKind, int]:
        """Requests for all of them."""
        total: Counter[RequestKind] = Counter({"api": 0, "resolve": 0})
        for member in members:
            total.update(self.of_model(member))
        return dict(total)


def _n_shards(names: Iterable[str], index: str) -> int:
    """The shards of an index, by their names."""
    ending = index.removesuffix(".index.json").rsplit(".", 1)[-1]
    shards = [match for name in names if (match := _SHARD.search(name)) and match[2] == ending]
    return max(1, len(shards))


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
