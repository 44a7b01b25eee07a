"""One byte changed on the way: read again, or refused; and what the catalog says was compared."""

import hashlib
import json

import pytest
from click.testing import CliRunner
from fault_cases import WEIGHTS
from fault_family import FULL, MEMBERS, family_hub, run
from hub_standin import Fault

from deltadex.cli import main

INDEX = ("index", "org/base", "--hub", "--workers", "2")
SLOW = pytest.mark.slow
VERIFIED = dict.fromkeys(MEMBERS, "sha256")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with family_hub(tmp_path_factory.mktemp("family")) as hub:
        yield hub


@pytest.fixture(scope="module")
def undisturbed(hub, tmp_path_factory):
    hub.behave()
    return run(tmp_path_factory.mktemp("undisturbed"), *INDEX)


def store(hub, repo, file):
    return f"/store/{hashlib.sha256(hub.repos[repo].files[file]).hexdigest()}"


def flips(hub, names, **options):
    return [Fault(path=store(hub, *name), kind="flip", **options) for name in names]


def ask(folder, *arguments):
    """The JSON that a command prints of the catalog in `folder`."""
    db = ("--db", str(folder / "catalog.duckdb"), "--json")
    done = CliRunner().invoke(main, [*arguments, *db])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def verified(folder):
    return {row["model"]: row["verified"] for row in ask(folder, "ls")["models"]}


OWN_FILES = [(f"org/{form}", file) for form, file in WEIGHTS.items()]


@pytest.mark.parametrize(
    "place", [pytest.param(9, marks=SLOW), 5_000, pytest.param(-1, marks=SLOW)]
)
def test_a_changed_byte_anywhere_is_read_again(hub, undisturbed, tmp_path, place):
    hub.behave()
    for nth in (1, 2):
        hub.faults += flips(hub, OWN_FILES[nth - 1 :: 2], nth=nth, after=place)

    done = run(tmp_path, *INDEX)

    assert done.codes == dict.fromkeys(MEMBERS, "indexed")
    assert done.vectors == undisturbed.vectors
    assert verified(tmp_path) == VERIFIED


def test_bytes_that_are_always_changed_refuse_each_form_of_model(hub, undisturbed, tmp_path):
    hub.behave()
    for repo, file in OWN_FILES:
        place = 1000 if file.endswith(".bin") else -40
        hub.faults += flips(hub, [(repo, file)], nth=2, onward=True, after=place)

    done = run(tmp_path, *INDEX)

    refused = {repo for repo, _ in OWN_FILES}
    assert {id for id, code in done.codes.items() if code == "checksum-mismatch"} == refused
    assert {id for id, code in done.codes.items() if code == "indexed"} == set(MEMBERS) - refused
    assert all(done.vectors[id] == undisturbed.vectors[id] for id in done.vectors)
    assert done.exit_code == 1


@pytest.mark.parametrize("lasting", [False, True])
def test_a_changed_byte_of_the_base_spoils_no_model(hub, undisturbed, tmp_path, lasting):
    hub.behave()
    base = [("org/base", "model.safetensors")]
    hub.faults += flips(hub, base, nth=2, onward=lasting, after=70_001)

    done = run(tmp_path, *INDEX)

    expected = dict.fromkeys(FULL, "checksum-mismatch" if lasting else "indexed")
    assert {id: done.own_code(id) for id in FULL} == expected
    assert all(done.vectors[id] == undisturbed.vectors[id] for id in done.vectors)


@pytest.mark.slow
def test_a_budget_leaves_models_unverified_until_they_are_read_whole(hub, tmp_path):
    hub.behave()
    budget = (*INDEX, "--budget", "10%")
    by_rows = run(tmp_path, *budget)
    n_requests = len(hub.log)

    before = verified(tmp_path)
    assert before == {**dict.fromkeys(FULL, "unverified"), "org/adapter": "sha256"}
    stats = ask(tmp_path, "stats")
    assert stats["verified"] == {"sha256": 1, "unverified": 5}
    unverified = ask(tmp_path, "ls", "--where", "verified = 'unverified'")["models"]
    assert {row["model"] for row in unverified} == set(FULL)
    assert ask(tmp_path, "show", "org/full")["verified"] == "unverified"

    hub.log.clear()
    again = json.loads(run(tmp_path, *budget, "--verify").stdout)
    assert len(hub.log) > 0.5 * n_requests
    assert (again["indexed"], again["unchanged"], again["failed"]) == (5, 1, [])
    assert verified(tmp_path) == VERIFIED
    hub.log.clear()
    third = run(tmp_path, *budget, "--verify")
    assert json.loads(third.stdout)["unchanged"] == len(MEMBERS)
    assert {r.path for r in hub.requests("cdn")} <= {store(hub, "org/base", "model.safetensors")}
    assert third.vectors == by_rows.vectors


@pytest.mark.slow
def test_a_mismatch_found_later_keeps_what_was_indexed_and_says_so(hub, tmp_path):
    hub.behave()
    budget = (*INDEX, "--budget", "10%")
    before = run(tmp_path, *budget)
    hub.faults += flips(hub, OWN_FILES[:1], nth=0, after=-1)

    again = run(tmp_path, *budget, "--verify")

    (failed,) = json.loads(again.stdout)["failed"]
    assert (failed["model"], failed["code"]) == ("org/full", "checksum-mismatch")
    assert again.vectors == before.vectors
    assert verified(tmp_path)["org/full"] == "unverified"


def test_without_a_budget_each_byte_travels_once(hub, tmp_path):
    hub.behave()
    hub.log.clear()

    done = json.loads(run(tmp_path, *INDEX).stdout)

    files = [*OWN_FILES, ("org/sharded", "model-00001-of-00002.safetensors")]
    files += [(repo, "model.safetensors") for repo in ("org/base", "org/other", "org/child")]
    ends = sum(min(len(hub.repos[r].files[f]), 65_700) for r, f in files if f.endswith(".bin"))
    sizes = sum(len(hub.repos[repo].files[file]) for repo, file in files)
    sent = sum(r.body_bytes for r in hub.requests("cdn"))
    assert sizes <= sent <= sizes + ends
    assert done["bytes_read"] >= sizes
