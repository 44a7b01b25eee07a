"""A plan of a Hub family against the run that follows it, on the wire."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import duckdb
import pytest
import torch
from running import run
from safetensors.torch import load, save

import deltadex as dx
from deltadex.indexer.hub import LocalBudget
from deltadex.indexer.hub.session import default_session

HUB = ("org/base", "--hub")


@pytest.fixture(scope="module")
def family(family_of_module):
    hub, base = family_of_module, ("org/base",)
    hub.add("org/gguf", {"m.Q4_K_M.gguf": b""}, parents=base, relation="quantized", downloads=5)
    types = {"parameters": {"I32": 7, "F16": 3}}
    hub.add("org/awq", awq_files(hub), parents=base, tags=["awq"], safetensors=types)
    hub.add("org/empty", {"README.md": b""}, parents=base)
    hub.add("org/gone", {"model.safetensors": b""}, parents=base, disabled=True)
    return hub


MOVED = {3, 5, 8, 13, 21, 34, 55, 63}


def awq_files(hub):
    """Layers in 32-bit words, and an embedding in half precision of which some rows moved."""
    base = hub.repos["org/base"].files
    tensors = load(base["model.safetensors"])
    (name,) = [n for n in tensors if n.endswith("word_embeddings.weight")]
    rows = tensors[name].clone()
    rows[list(MOVED)] *= 1.5
    packed = torch.zeros(64, 8, dtype=torch.int32)
    layers = {f"encoder.layer.{n}.output.dense.qweight": packed.clone() for n in range(4)}
    return {
        "config.json": base["config.json"],
        "model.safetensors": save({name: rows.half()} | layers),
    }


@pytest.fixture
def hub(family):
    family.behave()
    yield family
    family.counts_children = family.redirects_small_files = False
    family.limits = {}
    # what the stated limits leave is of one Hub's user, and not of the next test's
    default_session().budget = LocalBudget()


def printed(folder, *arguments):
    """The document that a command prints."""
    done = run(folder, *arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


def sent(hub):
    """Requests to the Hub by kind, as its log has them."""
    return Counter(
        "resolve" if "/resolve/" in r.path or "/resolve-cache/" in r.path else "api"
        for r in hub.requests("hub")
    )


def rehearse(hub, folder, *options):
    """A plan, the run after it on the same catalog, and what both sent."""
    hub.behave()
    plan = printed(folder, "plan", *HUB, *options)
    by_plan, storage = sent(hub), hub.requests("cdn")
    hub.behave()
    report = printed(folder, "index", *HUB, *options)
    return SimpleNamespace(
        folder=folder,
        plan=plan,
        report=report,
        sent_by_plan=by_plan,
        sent_by_run=sent(hub),
        listed_by_run=sum(r.path == "/api/models" for r in hub.log),
        storage=storage,
    )


@pytest.fixture(scope="module")
def whole(family, tmp_path_factory):
    """Without a budget, on a Hub that does not count children."""
    return rehearse(family, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def budgeted(family, tmp_path_factory):
    """Under a budget, on a Hub that counts children and redirects small files."""
    family.counts_children = family.redirects_small_files = True
    folder = tmp_path_factory.mktemp("budgeted")
    done = rehearse(family, folder, "--budget", "20%", "--exclude", "bin")
    family.counts_children = family.redirects_small_files = False
    return done


@pytest.mark.parametrize("name", ["whole", "budgeted"])
def test_the_run_sends_the_requests_that_were_planned(name, request):
    done = request.getfixturevalue(name)
    planned = done.plan["requests"]

    assert planned["plan"] == {**done.sent_by_plan, "storage": len(done.storage)}
    assert planned["run"] == done.sent_by_run
    assert done.listed_by_run == 0
    assert done.plan["models"]["to_read"] == done.report["indexed"]


def test_a_plan_reads_no_weights_and_requests_the_sizes_that_the_listing_lacks(hub, whole):
    (digest,) = {request.path.rsplit("/", 1)[-1] for request in whole.storage}
    assert hub.content(digest) == hub.repos["org/base"].files["model.safetensors"]
    assert sum(request.body_bytes for request in whole.storage) < 20_000
    # the index of its shards says that their tensors take 0 bytes, so it is taken to be typical
    full = ("org/full", "org/other", "org/child")
    typical = sum(len(hub.repos[id].files["model.safetensors"]) for id in full) / len(full)
    sharded = hub.repos["org/sharded"].files
    in_shards = sum(len(content) for name, content in sharded.items() if "-of-" in name)
    planned, report = whole.plan["bytes"], whole.report

    assert planned["sizes_from"] == {"requested": 5, "sample": 1}
    assert planned["files"] - typical + in_shards == pytest.approx(report["bytes_total"], rel=0.01)
    assert report["bytes_wanted"] == pytest.approx(report["bytes_total"], rel=0.01)
    assert planned["base"] == report["base_bytes_read"]


def test_a_budget_is_planned_beside_what_it_saves(budgeted):
    plan, report = budgeted.plan, budgeted.report

    read = report["bytes_read"] - report["base_bytes_read"]
    assert (plan["walk"]["parents"], plan["walk"]["uncounted"]) == (2, 0)  # children are counted
    assert plan["share"] == 0.2
    assert plan["bytes"]["to_read"] < plan["bytes"]["to_read_whole"]
    assert plan["bytes"]["to_read"] == pytest.approx(read, rel=0.1)
    assert report["bytes_wanted"] == pytest.approx(read, rel=0.1)
    assert report["bytes_wanted"] < report["bytes_total"]


def test_what_is_refused_is_refused_by_the_run_with_the_same_codes(whole):
    planned = {row["code"]: row["models"] for row in whole.plan["refused"]}

    rows = whole.report["failed"] + whole.report["skipped_models"]
    assert planned == Counter(row["code"] for row in rows)
    assert planned == {"quantized": 2, "disabled": 1, "no-weights": 1}


@pytest.mark.parametrize("name", ["whole", "budgeted"])
def test_a_quantised_model_on_the_hub_is_refused_and_has_a_footprint(name, request):
    with dx.open(request.getfixturevalue(name).folder / "c.duckdb", read_only=True) as db:
        document = db.words("org/awq").to_json()

    assert document["kind"] == "exact"
    assert document["touched"] == (len(MOVED) if name == "whole" else pytest.approx(3, abs=3))


def test_a_family_without_footprints_is_planned_and_completed_by_embeddings(hub, tmp_path):
    printed(tmp_path, "index", *HUB, "--no-footprints")
    hub.behave()
    plan = printed(tmp_path, "plan", *HUB)
    hub.behave()
    report = printed(tmp_path, "index", *HUB)

    assert plan["models"]["to_read"] == report["indexed"] == 0
    assert plan["requests"]["run"] == sent(hub)
    assert 0 < report["bytes_read"] <= plan["bytes"]["to_read"] + plan["bytes"]["base"]


def test_what_is_in_the_catalog_is_not_planned_again(hub, budgeted):
    plan = printed(budgeted.folder, "plan", *HUB, "--budget", "20%", "--exclude", "quantized")

    assert plan["models"] == {
        "listed": 10, "excluded": 2, "in_catalog": 5, "refused": 2, "to_read": 1,
    }  # fmt: skip
    assert [(row["kind"], row["format"]) for row in plan["groups"]] == [("full", "bin")]


@pytest.mark.parametrize(
    ("options", "to_read", "refused", "excluded"),
    [
        (("--exclude", "adapters", "--exclude", "gguf"), 5, 3, 2),
        (("--min-downloads", "1"), 0, 1, 9),
        (("--limit", "3"), 0, 3, 0),
    ],
)
def test_a_plan_is_of_the_models_that_are_wanted(
    hub, tmp_path, options, to_read, refused, excluded
):
    plan = printed(tmp_path, "plan", *HUB, *options)

    counts = [plan["models"][key] for key in ("to_read", "refused", "excluded")]
    assert counts == [to_read, refused, excluded]


def test_a_plan_indexes_nothing_and_an_old_listing_is_not_taken_over(hub, tmp_path):
    printed(tmp_path, "plan", *HUB)

    again = printed(tmp_path, "plan", *HUB)

    assert again["walk"]["remembered"] == again["walk"]["parents"]
    with dx.open(tmp_path / "c.duckdb", read_only=True) as db:
        assert db.models().to_json()["total"] == 0
    with duckdb.connect(str(tmp_path / "c.duckdb")) as connection:
        connection.execute("UPDATE listings SET listed_at = listed_at - INTERVAL 25 HOUR")
    hub.behave()
    assert printed(tmp_path, "plan", *HUB)["walk"]["remembered"] == 0
    assert [r for r in hub.log if r.path == "/api/models"]


def test_limits_are_those_that_the_hub_states(hub, tmp_path):
    assumed = printed(tmp_path, "plan", *HUB)["requests"]
    hub.limits = {"api": 2, "resolve": 4}

    stated = printed(tmp_path, "plan", *HUB)["requests"]

    assert (assumed["limits_of"], assumed["limits"]["api"]["requests"]) == ("free", 1_000)
    assert stated["limits_of"] == "stated by the Hub"
    assert stated["limits"]["resolve"] == {"requests": 4, "window_s": 300}
    n = stated["run"]["resolve"]
    assert stated["minutes"] == pytest.approx(5 * (n / 4 - 1))
    assert stated["minutes_by_account"] == {"anonymous": 0.0, "free": 0.0, "pro": 0.0}


def test_hours_fall_with_bandwidth_and_workers(hub, tmp_path):
    slow = printed(tmp_path, "plan", *HUB, "--bandwidth", "8kbit")
    fast = printed(tmp_path, "plan", *HUB, "--bandwidth", "80kbit", "--workers", "4")

    read, base = slow["bytes"]["to_read"], slow["bytes"]["base"]
    assert slow["hours"]["bandwidth"] == pytest.approx((read + base) / 1_000 / 3600)
    assert fast["hours"]["bandwidth"] == pytest.approx((read / 4 + base) / 10_000 / 3600)
    assert slow["hours"]["binds"] == "bandwidth"
    assert slow["hours"]["total"] == slow["hours"]["start"] + slow["hours"]["bandwidth"]


def test_without_its_base_full_checkpoints_are_planned_as_refused(hub, tmp_path, monkeypatch):
    base = hub.repos["org/base"]
    monkeypatch.setattr(base, "files", {"config.json": base.files["config.json"]})

    plan = printed(tmp_path, "plan", *HUB)

    assert {row["code"]: row["models"] for row in plan["refused"]}["needs-base"] == 5
    assert [row["kind"] for row in plan["groups"]] == ["adapter"]
    assert "the base cannot be opened" in " ".join(plan["notes"])


def test_a_family_of_a_renamed_base_stays_one_family(hub, whole, monkeypatch):
    others = {id: repo for id, repo in hub.repos.items() if id != "org/base"}
    base = replace(hub.repos["org/base"], id="new/name")
    monkeypatch.setattr(hub, "repos", {**others, "new/name": base})
    monkeypatch.setattr(hub, "renamed", {"org/base": "new/name"})

    report = printed(whole.folder, "index", "new/name", "--hub")

    assert (report["base"], report["unchanged"], report["indexed"]) == ("org/base", 6, 0)
    with dx.open(whole.folder / "c.duckdb", read_only=True) as db:
        assert db.bases == ["org/base"]


def test_a_plan_of_a_catalog_that_is_only_read_keeps_nothing(hub, tmp_path):
    with dx.open(tmp_path / "c.duckdb"):
        pass
    with dx.open(tmp_path / "c.duckdb", read_only=True) as db:
        plan = db.plan("org/base", hub=True)
        assert db.sql("SELECT count(*) AS n FROM listings")[0]["n"] == 0

    assert sum(row["models"] for row in plan) == 6
