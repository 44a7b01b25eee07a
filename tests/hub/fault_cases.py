"""Where in a run a request can go wrong, what may go wrong there, and what may come of it."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from fault_family import FULL, MEMBERS
from hub_standin import Fault

Kind = Literal["info", "page", "small", "head", "cdn"]

WEIGHTS = {
    "full": "model.safetensors",
    "sharded": "model-00002-of-00002.safetensors",
    "bin": "pytorch_model.bin",
    "adapter": "adapter_model.safetensors",
}
SMALL = {
    "config": ("full", "/org/full/resolve/"),
    "adapter config": ("adapter", "/adapter_config.json"),
    "shard index": ("sharded", "/model.safetensors.index.json"),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A request of a run.

    Attributes:
        victims: The models that may suffer; no other must.
        path: In the request's path.
        stored: Repository and name of the file, in place of a path, if storage is asked.
        nth: Which of the requests that fit.
    """

    name: str
    kind: Kind
    victims: tuple[str, ...]
    path: str = ""
    stored: tuple[str, str] | None = None
    query: str = ""
    method: str = ""
    nth: int = 1

    def fault(self, hub, trouble, *, lasting):
        """A trouble at this place: the first time only, or from then on."""
        path = self.path
        if self.stored is not None:
            repo, file = self.stored
            path = f"/store/{hashlib.sha256(hub.repos[repo].files[file]).hexdigest()}"
        return Fault(
            path=path,
            query=self.query,
            method=self.method,
            where="cdn" if self.kind == "cdn" else "hub",
            nth=self.nth,
            onward=lasting,
            **trouble,
        )


Round = tuple[Place, ...]
"""Places of one kind whose victims differ, so that one run can suffer at all of them."""


def _alone():
    """What all models need: the listing and the base."""
    yield (Place(name="model info", kind="info", victims=MEMBERS, path="/api/models/org/base"),)
    for name, query, victims in (
        ("first page", "Aorg%2Fbase&", MEMBERS),
        ("second page", "cursor=", MEMBERS),
        ("a child's page", "Aorg%2Ffull&", ("org/child",)),
    ):
        listing = "/api/models"
        yield (Place(name=name, kind="page", victims=victims, path=listing, query=query),)
    stored = ("org/base", "model.safetensors")
    yield (Place(name="base's tensors", kind="cdn", victims=FULL, stored=stored, nth=2),)


def _of_each_form():
    """What each form of model needs for itself."""
    yield tuple(
        Place(name=name, kind="small", victims=(f"org/{form}",), path=path, method="GET")
        for name, (form, path) in SMALL.items()
    )
    repos = {form: f"org/{form}" for form in WEIGHTS}
    yield tuple(
        Place(
            name=f"redirect, {form}",
            kind="head",
            victims=(repo,),
            path=f"/{repo}/resolve/",
            method="HEAD",
        )
        for form, repo in repos.items()
    )
    for nth, part in ((1, "header"), (2, "tensors")):
        yield tuple(
            Place(
                name=f"{part}, {form}",
                kind="cdn",
                victims=(repo,),
                stored=(repo, WEIGHTS[form]),
                nth=nth,
            )
            for form, repo in repos.items()
        )


ROUNDS = (*_of_each_form(), *_alone())
PLACES = tuple(place for together in ROUNDS for place in together)


ALL = ("info", "page", "small", "head", "cdn")
BODIES = ("info", "page", "small", "cdn")
JSON = ("info", "page", "small")

OK = frozenset({"indexed"})
GONE = frozenset({"hub-unreachable"})
BAD = frozenset({"hub-bad-answer"})
LIMITED = frozenset({"rate-limited"})
CHANGED = frozenset({"changed"})
ABSENT = frozenset({"private-or-missing"})
OTHER_BYTES = frozenset({"checksum-mismatch"})
REFUSED = frozenset({"unauthorized"})

Codes = frozenset[str]
Outcomes = tuple[Codes, Codes]
"""Codes for a trouble that passes and for one that lasts."""

PASSING = (OK, GONE)
GARBLED = (OK, BAD)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One way in which an answer goes wrong.

    Attributes:
        at: Kinds of places where it can happen.
        usual: What may come of it.
        special: What may come of it at some kinds of places.
    """

    name: str
    usual: Outcomes
    at: tuple[Kind, ...] = ALL
    special: Mapping[Kind, Outcomes] = field(default_factory=dict)
    fault: Mapping[str, Any] = field(default_factory=dict)

    def allowed(self, kind, *, lasting):
        """Codes that a victim may end with; "indexed" is the right result."""
        allowed = self.special.get(kind, self.usual)[lasting]
        # the base is asked for twice; the first answer only tells how else it is called
        return allowed | OK if kind == "info" and not lasting else allowed


def _status(status, usual, **options):
    headers = options.pop("headers", {})
    shown = "".join(f", {name}: {value}" for name, value in headers.items())
    fault = {"kind": "status", "status": status, "headers": headers}
    return Trouble(name=f"{status}{shown}", usual=usual, fault=fault, **options)


def _kind(kind, usual, *, name="", **options):
    given = {k: options.pop(k) for k in ("after", "body") if k in options}
    return Trouble(name=name or kind, usual=usual, fault={"kind": kind, **given}, **options)


@cache
def bomb():
    """128 MiB of zeros, packed."""
    return gzip.compress(bytes(1 << 27), 1)


SIGNATURE = {"cdn": GARBLED}
"""Storage refuses: a fresh signed address is asked for, once."""

TROUBLES = (
    _status(401, (ABSENT, ABSENT), special=SIGNATURE),
    _status(403, (REFUSED, REFUSED), special=SIGNATURE),
    _status(404, (ABSENT, ABSENT), special=SIGNATURE),
    _status(410, (BAD, BAD), special=SIGNATURE),
    _status(416, (BAD, BAD), special=SIGNATURE),
    _status(418, (BAD, BAD)),
    _status(204, (BAD, BAD), special={"info": GARBLED, "page": GARBLED, "cdn": GARBLED}),
    *(_status(status, PASSING) for status in (408, 500, 501, 502, 503, 504)),
    _status(503, PASSING, headers={"Retry-After": "0"}),
    _status(503, PASSING, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    _status(503, (GONE, GONE), headers={"Retry-After": "900"}),
    _status(429, (OK, LIMITED)),
    _status(429, (OK, LIMITED), headers={"RateLimit": '"api";r=0;t=1'}),
    _status(429, (LIMITED, LIMITED), headers={"RateLimit": '"api";r=0;t=300'}),
    _status(429, (LIMITED, LIMITED), headers={"Retry-After": "9" * 12}),
    _status(429, (OK, LIMITED), headers={"Retry-After": "9" * 5000, "RateLimit": "²"}),
    _kind("stall", PASSING, name="no answer"),
    _kind("lost", PASSING, name="connection closed"),
    _kind("garbage", PASSING, name="not HTTP"),
    _kind("continue", (GONE, GONE), name="100 Continue for ever"),
    _kind("drip-headers", (GONE, GONE), name="headers byte by byte"),
    _kind("endless-headers", PASSING, name="headers without end"),
    _kind("drip", (GONE, GONE), name="body byte by byte", at=BODIES),
    _kind("stall", PASSING, name="body stalls", after=20, at=BODIES),
    _kind("reset", PASSING, name="reset in the body", after=20, at=BODIES),
    _kind("truncate", PASSING, name="body cut short", after=20, at=BODIES),
    _kind("longer", PASSING, name="Content-Length too long", at=BODIES,
          special={"cdn": (OK, OK)}),
    _kind("shorter", (OK, BAD | GONE), name="Content-Length too short", at=BODIES,
          special={"cdn": (OK, OK | GONE | BAD)}),
    _kind("endless", (BAD | GONE, BAD | GONE), name="body without end", at=BODIES),
    _kind("html", (BAD, BAD), name="200 with a web page"),
    _kind("loop", GARBLED, name="redirected to itself", special={"small": (BAD, BAD)}),
    _kind("elsewhere", (BAD, BAD), name="redirected to a stranger",
          special={"info": GARBLED, "cdn": (CHANGED, CHANGED)}),
    _kind("duplicate", GARBLED, name="every header twice",
          special={"info": (OK, OK), "page": (OK, OK), "small": (CHANGED, CHANGED),
                   "head": (CHANGED, CHANGED), "cdn": (OK | CHANGED, BAD | CHANGED)}),
    _kind("gzip", (OK, OK), name="gzip unasked", at=BODIES, special={"cdn": (BAD, BAD)}),
    _kind("bomb", (BAD, BAD), name="gzip bomb", body=bomb(), at=BODIES),
    _kind("encoded", (BAD, BAD), name="said to be gzip", at=BODIES),
    _kind("mangle", GARBLED, name="malformed JSON", body=b'{"id": [', at=JSON),
    _kind("mangle", GARBLED, name="empty body", body=b"", at=JSON),
    _kind("mangle", GARBLED, name="not UTF-8", body=b'{"id": "\xff\xfe"}', at=JSON),
    _kind("mangle", GARBLED, name="deep JSON", body=b"[" * 200_000, at=JSON),
    _kind("mangle", (BAD, BAD), name="other JSON", body=b'{"error": "no"}', at=JSON,
          special={"small": GARBLED}),
    _kind("flip", (OK, OTHER_BYTES), name="one bit of the body changed", after=-200,
          at=("small", "cdn"), special={"small": GARBLED}),
    _kind("whole", (OK | BAD, OK | BAD), name="200 for a range", at=("cdn",)),
    _kind("short", GARBLED, name="206 too short", at=("cdn",)),
    _kind("shifted", GARBLED, name="206 of another range", at=("cdn",)),
    _kind("size", (CHANGED, CHANGED), name="206 of a longer file", at=("cdn",)),
    _kind("etag", (OK | CHANGED, OK | CHANGED), name="another ETag", at=("cdn",)),
    _kind("same-page", (OK, OK | BAD), name="a page links to itself", at=("page",)),
    _kind("endless-pages", (OK, BAD), name="empty pages for ever", at=("page",)),
)  # fmt: skip
