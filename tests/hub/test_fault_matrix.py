"""Every network fault at every place of a run: the right vectors, or a code of its own.

The default suite deals some of the faults out to the places; `-m slow` runs all of them at all
places.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, Literal

import pytest
from factories import write_files
from fault_family import BOUND_S, FULL, MEMBERS, PATIENCE, TOKEN, run
from hub_standin import Fault
from running import document

from deltadex.indexer.hub.session import default_session

Kind = Literal["info", "page", "small", "head", "cdn"]

WEIGHTS = {
    "full": "model.safetensors",
    "sharded": "model-00002-of-00002.safetensors",
    "bin": "pytorch_model.bin",
    "adapter": "adapter_model.safetensors",
}
SMALL = [
    ("config", "full", "/org/full/resolve/"),
    ("adapter config", "adapter", "/adapter_config.json"),
    ("shard index", "sharded", "/model.safetensors.index.json"),
]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The nth request of a run that fits, with the models that may suffer; no other must.

    If storage is asked, `stored` is the file's repository and name, in place of a path.
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
        return Fault(
            path=self.path if self.stored is None else hub.stored(*self.stored),
            query=self.query,
            method=self.method,
            where="cdn" if self.kind == "cdn" else "hub",
            nth=self.nth,
            onward=lasting,
            **trouble,
        )


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
        for name, form, path in SMALL
    )
    stored = {form: (f"org/{form}", file) for form, file in WEIGHTS.items()}
    yield tuple(
        Place(
            name=f"redirect, {form}",
            kind="head",
            victims=(repo,),
            path=f"/{repo}/resolve/",
            method="HEAD",
        )
        for form, (repo, _) in stored.items()
    )
    for nth, part in ((1, "header"), (2, "tensors")):
        yield tuple(
            Place(name=f"{part}, {form}", kind="cdn", victims=file[:1], stored=file, nth=nth)
            for form, file in stored.items()
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
    """One way in which an answer goes wrong, where it can, and what may come of it there."""

    name: str
    usual: Outcomes
    at: tuple[Kind, ...] = ALL
    special: Mapping[Kind, Outcomes] = field(default_factory=dict)
    fault: Mapping[str, Any] = field(default_factory=dict)

    def allowed(self, place, *, lasting):
        """Codes that a victim may end with; "indexed" is the right result."""
        allowed = self.special.get(place.kind, self.usual)[lasting]
        # asked for twice: the base, to know how else it is called, and the list, at first for
        # properties that this Hub refuses
        is_asked_again = place.kind == "info" or place.name == "first page"
        return allowed | OK if is_asked_again and not lasting else allowed


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
    _status(416, (BAD, BAD), special=SIGNATURE),
    _status(418, (BAD, BAD)),
    _status(204, (BAD, BAD), special={"info": GARBLED, "page": GARBLED, "cdn": GARBLED}),
    *(_status(status, PASSING) for status in (408, 500, 503)),
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


INDEX = ("index", "org/base", "--hub", "--workers", "4")
ARE_NEVER_SHOWN = (TOKEN, "SECRET", "Signature=", "Traceback", "defect", "internal")


@pytest.fixture(scope="module")
def undisturbed(family_of_module, tmp_path_factory):
    family_of_module.behave()
    return run(tmp_path_factory.mktemp("undisturbed"), *INDEX)


def dealt():
    """Some troubles, each at one form's requests, four forms in a run, passing and lasting in turn;
    and at what all models need, one in a run."""
    forms = [[p for p in PLACES if p.victims == (f"org/{form}",)] for form in WEIGHTS]
    alone = [place for (place, *others) in ROUNDS if not others]
    for i, trouble in enumerate(TROUBLES[::12]):
        together = []
        for k, other in enumerate(TROUBLES[12 * i : 12 * i + 12 : 3]):
            if fits := [place for place in forms[k] if place.kind in other.at]:
                together.append((other, fits[i % len(fits)], (i + k) % 2 == 0))
        if together:
            yield tuple(together)
        fits = [place for place in alone if place.kind in trouble.at]
        yield ((trouble, fits[i % len(fits)], i % 2 == 0),)


def name_of(case):
    """The first sufferings of a case, shortened."""
    trouble, place, lasting = case[0]
    return f"{trouble.name:.30} at {place.name} {'for ever' if lasting else 'once'}"


def suffer(hub, case, folder, undisturbed, *, bound_s=BOUND_S):
    """What came of each suffering, once what must hold in every case was seen to hold."""
    hub.behave()
    hub.faults += [place.fault(hub, trouble.fault, lasting=on) for trouble, place, on in case]

    done = run(folder, *INDEX)

    assert done.seconds < bound_s
    assert not [word for word in ARE_NEVER_SHOWN if word in done.stdout + done.stderr]
    assert TOKEN not in done.log
    assert "SECRET" not in done.log
    assert TOKEN.encode() not in done.file
    assert b"SECRET" not in done.file
    elsewhere = [r for r in hub.log if r.where != "hub"]
    assert not any("authorization" in r.headers for r in elsewhere)
    assert not any(TOKEN in f"{r.path}?{r.query}{r.headers}" for r in elsewhere)
    assert all(done.vectors[id] == undisturbed.vectors[id] for id in done.vectors)
    assert {id for id, code in done.codes.items() if code == "indexed"} == set(done.vectors)
    assert_others_are_spared(done, [place for _, place, _ in case])
    return [outcome_of(done, place) for _, place, _ in case]


def assert_others_are_spared(done, places):
    if done.stopped is not None:
        assert done.codes == {}
        assert places[0].kind in ("info", "page")
        return
    failed = set(done.codes.values()) - {"indexed", "gated", "private-or-missing"}
    assert done.exit_code == (1 if failed else 0), done.stderr
    spared = set(MEMBERS).difference(*(place.victims for place in places))
    assert {id: done.codes.get(id) for id in spared} == dict.fromkeys(spared, "indexed")


def outcome_of(done, place):
    """The code that the victims ended with; "indexed" for the right result."""
    if done.stopped is not None:
        return done.stopped
    if set(place.victims) - set(done.codes):
        assert place.name == "a child's page"
        return done.left_out
    codes = {done.own_code(id) for id in place.victims} - {"indexed"}
    assert len(codes) <= 1, codes
    return codes.pop() if codes else "indexed"


def unexpected(case, outcomes):
    """Outcomes that are not among those allowed."""
    surprises = []
    for (trouble, place, lasting), outcome in zip(case, outcomes, strict=True):
        allowed = trouble.allowed(place, lasting=lasting)
        if outcome not in allowed | ({"needs-base"} if place.victims == FULL else set()):
            surprises.append(f"{trouble.name}, {place.name}: {outcome}, not {sorted(allowed)}")
    return surprises


def test_the_undisturbed_run_indexes_every_form_as_from_folders(family, undisturbed, tmp_path):
    for id, repo in family.repos.items():
        write_files(tmp_path / id, repo.files)
    models = [str(tmp_path / id) for id in MEMBERS]

    (tmp_path / "c").mkdir()
    local = run(tmp_path / "c", "add", *models, "--base", str(tmp_path / "org/base"))

    assert undisturbed.codes == dict.fromkeys(MEMBERS, "indexed")
    assert undisturbed.exit_code == local.exit_code == 0
    assert len(set(undisturbed.vectors.values())) == len(MEMBERS)
    assert set(local.vectors.values()) == set(undisturbed.vectors.values())


@pytest.mark.parametrize("case", list(dealt()), ids=name_of)
def test_a_fault_ends_in_the_right_vectors_or_in_a_code_of_its_own(
    family, undisturbed, tmp_path, case
):
    assert unexpected(case, suffer(family, case, tmp_path, undisturbed)) == []


@pytest.fixture
def on_a_busy_machine():
    """More patience: beside other work an undisturbed answer may take longer than in the suite."""
    session = default_session()
    before, session.patience = session.patience, replace(PATIENCE, read_s=3.0, call_s=10.0)
    yield
    session.patience = before


@pytest.mark.slow
@pytest.mark.usefixtures("on_a_busy_machine")
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: f"{trouble.name:.40}")
def test_every_fault_everywhere(family, undisturbed, tmp_path, trouble):
    wrong = []
    rounds = [together for together in ROUNDS if together[0].kind in trouble.at]
    for i, (together, lasting) in enumerate(product(rounds, (False, True))):
        case = tuple((trouble, place, lasting) for place in together)
        folder = tmp_path / str(i)
        folder.mkdir()
        wrong += unexpected(case, suffer(family, case, folder, undisturbed, bound_s=4 * BOUND_S))
    assert wrong == []


def test_a_wait_that_the_hub_asks_for_is_kept_and_shown_and_one_too_long_is_shown_alone(
    family, tmp_path
):
    for place, headers in (
        ("config", {"RateLimit": '"resolvers";r=0;t=1'}),
        ("adapter config", {"Retry-After": "300"}),
    ):
        (asked,) = (p for p in PLACES if p.name == place)
        trouble = {"kind": "status", "status": 429, "headers": headers}
        family.faults.append(asked.fault(family, trouble, lasting=False))

    done = run(tmp_path, *INDEX)

    assert "the Hub demands a wait of 1 s (org/full: config.json)" in done.stderr
    assert done.codes["org/full"] == "indexed"
    assert done.seconds > 1
    assert done.codes["org/adapter"] == "rate-limited"
    assert "it demands a wait of 300 s" in done.stdout


@pytest.mark.parametrize("id", ["org/full", "org/adapter"])
def test_one_model_that_cannot_be_described_does_not_keep_others_out(
    family, undisturbed, tmp_path, id
):
    place = Place(name="", kind="info", victims=(id,), path=f"/api/models/{id}")
    family.faults.append(place.fault(family, {"kind": "status", "status": 500}, lasting=True))

    done = run(tmp_path, "add", "org/full", "org/adapter", "org/other", "--base", "org/base")

    assert done.exit_code == 1
    assert done.codes.pop(id) == "hub-unreachable"
    assert set(done.codes.values()) == {"indexed"}
    assert all(vector == undisturbed.vectors[other] for other, vector in done.vectors.items())


# one byte changed on the way: read again, or refused; and what the catalog says was compared


VERIFIED = dict.fromkeys(MEMBERS, "sha256")


def flips(hub, names, **options):
    return [Fault(path=hub.stored(*name), kind="flip", **options) for name in names]


def verified(folder):
    return {row["model"]: row["verified"] for row in document(folder, "ls")["models"]}


OWN_FILES = [(f"org/{form}", file) for form, file in WEIGHTS.items()]


def test_a_changed_byte_anywhere_is_read_again(family, undisturbed, tmp_path):
    for nth in (1, 2):
        family.faults += flips(family, OWN_FILES[nth - 1 :: 2], nth=nth, after=5_000)

    done = run(tmp_path, *INDEX)

    assert done.codes == dict.fromkeys(MEMBERS, "indexed")
    assert done.vectors == undisturbed.vectors
    assert verified(tmp_path) == VERIFIED


@pytest.mark.slow
def test_a_budget_leaves_models_unverified_until_they_are_read_whole(family, tmp_path):
    budget = (*INDEX, "--budget", "10%")
    by_rows = run(tmp_path, *budget)
    n_requests = len(family.log)

    before = verified(tmp_path)
    assert before == {**dict.fromkeys(FULL, "unverified"), "org/adapter": "sha256"}
    stats = document(tmp_path, "stats")
    assert stats["verified"] == {"sha256": 1, "unverified": 5}
    unverified = document(tmp_path, "ls", "--where", "verified = 'unverified'")["models"]
    assert {row["model"] for row in unverified} == set(FULL)
    assert document(tmp_path, "show", "org/full")["verified"] == "unverified"

    family.log.clear()
    again = json.loads(run(tmp_path, *budget, "--verify").stdout)
    assert len(family.log) > 0.5 * n_requests
    assert (again["indexed"], again["unchanged"], again["failed"]) == (5, 1, [])
    assert verified(tmp_path) == VERIFIED
    family.log.clear()
    third = run(tmp_path, *budget, "--verify")
    assert json.loads(third.stdout)["unchanged"] == len(MEMBERS)
    assert {r.path for r in family.requests("cdn")} <= {
        family.stored("org/base", "model.safetensors")
    }
    assert third.vectors == by_rows.vectors


@pytest.mark.slow
def test_a_mismatch_found_later_keeps_what_was_indexed_and_says_so(family, tmp_path):
    budget = (*INDEX, "--budget", "10%")
    before = run(tmp_path, *budget)
    family.faults += flips(family, OWN_FILES[:1], nth=0, after=-1)

    again = run(tmp_path, *budget, "--verify")

    (failed,) = json.loads(again.stdout)["failed"]
    assert (failed["model"], failed["code"]) == ("org/full", "checksum-mismatch")
    assert again.vectors == before.vectors
    assert verified(tmp_path)["org/full"] == "unverified"


def test_without_a_budget_each_byte_travels_once(family, tmp_path):
    family.log.clear()

    done = json.loads(run(tmp_path, *INDEX).stdout)

    files = [*OWN_FILES, ("org/sharded", "model-00001-of-00002.safetensors")]
    files += [(repo, "model.safetensors") for repo in ("org/base", "org/other", "org/child")]
    ends = sum(min(len(family.repos[r].files[f]), 65_700) for r, f in files if f.endswith(".bin"))
    sizes = sum(len(family.repos[repo].files[file]) for repo, file in files)
    sent = sum(r.body_bytes for r in family.requests("cdn"))
    assert sizes <= sent <= sizes + ends
    assert done["bytes_read"] >= sizes
