"""Every network fault at every place of a run: the right vectors, or a code of its own.

The default suite deals half of the faults out to the places; `-m slow -s` runs all of them at all
places and prints the table of what came of each.
"""

import sys
from dataclasses import replace

import pytest
from fault_cases import PLACES, ROUNDS, TROUBLES, WEIGHTS, Place, Trouble
from fault_family import (
    BOUND_S,
    FULL,
    MEMBERS,
    PATIENCE,
    TOKEN,
    family_hub,
    run,
)

from deltadex.indexer.hub.session import default_session

INDEX = ("index", "org/base", "--hub", "--workers", "4")
ARE_NEVER_SHOWN = (TOKEN, "SECRET", "Signature=", "Traceback", "defect", "internal")

CONFIG = next(place for place in PLACES if place.name == "config")

Case = tuple[tuple[Trouble, Place, bool], ...]
"""Troubles of one run, each at a place with victims of its own, passing or lasting."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with family_hub(tmp_path_factory.mktemp("family")) as hub:
        yield hub


@pytest.fixture(scope="module")
def undisturbed(hub, tmp_path_factory):
    hub.behave()
    return run(tmp_path_factory.mktemp("undisturbed"), *INDEX)


@pytest.fixture(scope="module")
def table():
    lines = ["| fault | place | once | lasting |", "| --- | --- | --- | --- |"]
    yield lines
    sys.stderr.write("\n" + "\n".join([*lines, ""]) if len(lines) > 2 else "")


def at_every_form():
    """Every trouble at one form's requests, four forms in each run, passing and lasting in turn."""
    forms = [[p for p in PLACES if p.victims == (f"org/{form}",)] for form in WEIGHTS]
    alike = [t for t in TROUBLES if not {"small", "head", "cdn"}.isdisjoint(t.at)]
    for i, four in enumerate(zip(*(alike[k:] + alike[:k] for k in range(4)), strict=True)):
        if i % 4 == 0:
            yield tuple(
                (trouble, fits[(i // 4) % len(fits)], (i // 4 + k) % 2 == 0)
                for k, trouble in enumerate(four)
                if (fits := [place for place in forms[k] if place.kind in trouble.at])
            )


def at_what_all_need():
    """Some troubles, one at a time, where the whole run hangs on one answer."""
    alone = [place for (place, *others) in ROUNDS if not others]
    listed = [t for t in TROUBLES if t.at != ("cdn",)]
    for i, trouble in enumerate(listed[::6] + listed[-2:]):
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
    assert done.exit_code == (1 if set(done.codes.values()) - {"indexed"} else 0), done.stderr
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
        allowed = trouble.allowed(place.kind, lasting=lasting)
        if outcome not in allowed | ({"needs-base"} if place.victims == FULL else set()):
            surprises.append(f"{trouble.name}, {place.name}: {outcome}, not {sorted(allowed)}")
    return surprises


def test_the_undisturbed_run_indexes_every_form(undisturbed):
    assert undisturbed.codes == dict.fromkeys(MEMBERS, "indexed")
    assert len(set(undisturbed.vectors.values())) == len(MEMBERS)
    assert undisturbed.exit_code == 0


def some_now():
    """Every second case; the others when there is time."""
    for i, case in enumerate((*at_every_form(), *at_what_all_need())):
        yield pytest.param(case, id=name_of(case), marks=[pytest.mark.slow] if i % 2 else [])


@pytest.mark.parametrize("case", [*some_now()])
def test_a_fault_ends_in_the_right_vectors_or_in_a_code_of_its_own(
    hub, undisturbed, tmp_path, case
):
    assert unexpected(case, suffer(hub, case, tmp_path, undisturbed)) == []


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
def test_every_fault_everywhere(hub, undisturbed, tmp_path, table, trouble):
    wrong = []
    for i, together in enumerate(ROUNDS):
        if together[0].kind not in trouble.at:
            continue
        came = []
        for lasting in (False, True):
            case = tuple((trouble, place, lasting) for place in together)
            folder = tmp_path / f"{i}-{lasting}"
            folder.mkdir()
            came.append(suffer(hub, case, folder, undisturbed, bound_s=4 * BOUND_S))
            wrong += unexpected(case, came[-1])
        table += [
            f"| {trouble.name:.60} | {place.name} | {once} | {always} |"
            for place, once, always in zip(together, *came, strict=True)
        ]
    assert wrong == []


def test_signatures_that_serve_once_only_cost_nothing_but_requests(hub, undisturbed, tmp_path):
    hub.behave()
    hub.signature_uses = 1

    assert run(tmp_path, *INDEX).vectors == undisturbed.vectors


def test_a_wait_that_the_hub_asks_for_is_kept_and_shown(hub, tmp_path):
    hub.behave()
    headers = {"RateLimit": '"resolvers";r=0;t=1'}
    trouble = {"kind": "status", "status": 429, "headers": headers}
    hub.faults.append(CONFIG.fault(hub, trouble, lasting=False))

    done = run(tmp_path, *INDEX)

    assert "the Hub demands a wait of 1 s (org/full: config.json)" in done.stderr
    assert done.codes["org/full"] == "indexed"
    assert done.seconds > 1


def test_a_wait_that_is_too_long_is_not_begun_but_shown(hub, tmp_path):
    hub.behave()
    trouble = {"kind": "status", "status": 429, "headers": {"Retry-After": "300"}}
    hub.faults.append(CONFIG.fault(hub, trouble, lasting=False))

    done = run(tmp_path, *INDEX)

    assert done.codes["org/full"] == "rate-limited"
    assert "it demands a wait of 300 s" in done.stdout


@pytest.mark.parametrize("id", ["org/full", "org/adapter"])
def test_one_model_that_cannot_be_described_does_not_keep_others_out(
    hub, undisturbed, tmp_path, id
):
    hub.behave()
    place = Place(name="", kind="info", victims=(id,), path=f"/api/models/{id}")
    hub.faults.append(place.fault(hub, {"kind": "status", "status": 500}, lasting=True))

    done = run(tmp_path, "add", "org/full", "org/adapter", "org/other", "--base", "org/base")

    assert done.exit_code == 1
    assert done.codes.pop(id) == "hub-unreachable"
    assert set(done.codes.values()) == {"indexed"}
    assert all(vector == undisturbed.vectors[other] for other, vector in done.vectors.items())
