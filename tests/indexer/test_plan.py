"""Plans of folders, and the arithmetic of hours, requests and disk."""

import json

import pytest
from click.testing import CliRunner
from factories import make_family
from hypothesis import given
from hypothesis import strategies as st

import deltadex as dx
from deltadex.cli import main
from deltadex.errors import RequestError
from deltadex.indexer.fingerprint import make_recipe
from deltadex.indexer.hub import RateLimit
from deltadex.indexer.plan import (
    LIMITS,
    PROCESSOR_NS,
    SLOT_S,
    START_S,
    catalog_bytes,
    minutes,
    parse_bandwidth,
    stated_limits,
)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder)
    (models / "a-0" / "model.safetensors").rename(models / "a-0" / "m.Q4_K_M.gguf")
    return folder


def test_a_plan_of_a_folder_is_what_the_run_does(family):
    with dx.open() as db:
        plan = db.plan(family / "base", family / "models").to_json()
        report = db.index(family / "base", family / "models").to_json()
        again = db.plan(family / "base", family / "models").to_json()

    assert plan["models"]["to_read"] == report["indexed"] == 3
    assert plan["bytes"]["files"] == report["bytes_wanted"] == report["bytes_total"]
    assert plan["bytes"]["sizes_from"] == {"files": 3}
    assert [row["code"] for row in plan["refused"]] == ["quantized"]
    assert plan["requests"]["run"] == {"api": 0, "resolve": 0}
    assert plan["walk"] is None
    # of few small models the start and every slot count
    assert 3600 * plan["hours"]["start"] == START_S
    processor_s = SLOT_S * 3 * plan["disk"]["slots"]
    assert 3600 * plan["hours"]["processor"] == pytest.approx(processor_s, rel=0.1)
    assert again["models"] == {
        "listed": 4, "excluded": 0, "in_catalog": 3, "refused": 1, "to_read": 0,
    }  # fmt: skip


def test_a_budget_over_a_folder_wants_less_than_the_files(family):
    with dx.open() as db:
        plan = db.plan(family / "base", family / "models", budget="10%").to_json()
        report = db.index(family / "base", family / "models", budget="10%").to_json()

    assert plan["bytes"]["to_read"] == report["bytes_wanted"] < report["bytes_total"]
    assert plan["bytes"]["to_read"] == pytest.approx(report["bytes_read"], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--depth", "2"], 2, "--depth and --min-downloads need --hub"),
        (["--bandwidth", "fast"], 2, "bandwidth 'fast': expected a rate such as 1Gbit"),
        (["--exclude", "big"], 2, "'big' is not one of"),
        (["--exclude", "quantized", "--exclude", "full"], 3, "that --exclude and --min-downloads"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(family, tmp_path, arguments, code, line):
    db = ["--db", str(tmp_path / "c.duckdb")]

    done = CliRunner().invoke(
        main, ["plan", str(family / "base"), str(family / "models"), *arguments, *db]
    )

    assert done.exit_code == code
    assert line in done.output
    assert "Traceback" not in done.output


def test_the_table_has_the_numbers_of_the_document(family, tmp_path):
    command = ["plan", str(family / "base"), str(family / "models"), "--budget", "10%"]
    command += ["--db", str(tmp_path / "c.duckdb")]

    document = json.loads(CliRunner().invoke(main, [*command, "--json", "--quiet"]).stdout)
    shown = CliRunner().invoke(main, [*command, "--quiet"])

    assert shown.exit_code == 0
    assert "3 of 4 models would be read (1 refused)" in shown.stdout
    assert "(budget 10%)" in shown.stdout
    assert document["refused"][0]["meaning"] in shown.stdout
    assert f"a model of {document['disk']['slots']} slots" in shown.stdout


@pytest.mark.parametrize(
    ("text", "bits"),
    [("1Gbit", 1e9), ("200 Mbit/s", 2e8), ("50MB", 4e8), ("0.5gbit", 5e8), ("10kB/s", 8e4)],
)
def test_a_bandwidth_is_bits_or_bytes_a_second(text, bits):
    assert parse_bandwidth(text) == bits


@pytest.mark.parametrize("text", ["", "0Gbit", "-1Gbit", "Gbit", "1", "1Tbit", "1Gb", "1gbps"])
def test_what_is_no_bandwidth_is_refused(text):
    with pytest.raises(RequestError, match="expected a rate"):
        parse_bandwidth(text)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_requests_wait_for_the_slower_of_the_two_budgets(api, resolve):
    requests = {"api": api, "resolve": resolve}
    by_account = [minutes(requests, LIMITS[name]) for name in ("anonymous", "free", "pro")]

    assert by_account == sorted(by_account, reverse=True)
    assert minutes(requests, LIMITS["free"]) == pytest.approx(
        5 * max(0, api / 1_000 - 1, resolve / 5_000 - 1)
    )


def test_limits_of_the_hub_come_before_those_of_the_account():
    stated = {"api": RateLimit(7, 60)}

    assert stated_limits({}, has_token=False) == ("anonymous", LIMITS["anonymous"])
    assert stated_limits({}, has_token=True)[0] == "free"
    assert stated_limits(stated, has_token=True) == (
        "stated by the Hub",
        {"api": RateLimit(7, 60), "resolve": LIMITS["free"]["resolve"]},
    )


@pytest.mark.parametrize(
    ("models", "slots", "parameters", "measured_s"),
    [(1, 12, 24_576, 3.99), (40, 12, 24_576, 5.89), (6, 36, 10_616_832, 5.24)],
)
def test_planned_seconds_are_within_a_factor_of_two_of_the_processor_time_that_was_measured(
    models, slots, parameters, measured_s
):
    """The measurements of docs/plan.md: `index` of whole folders as a process of its own."""
    arithmetic = 1e-9 * PROCESSOR_NS * parameters * models
    planned = START_S + SLOT_S * slots * models + arithmetic

    assert measured_s / 2 < planned < 2 * measured_s


def test_the_catalogs_size_is_that_of_real_files(tmp_path):
    """Against the growth of a DuckDB file between 150 and 600 models (benchmarks, 72 slots)."""
    recipe = make_recipe("sketch", None, ())

    planned = catalog_bytes([recipe], 1, 72, 12)

    assert planned.per_model == pytest.approx(83_300, rel=0.1)
    assert catalog_bytes([recipe], 10, 72, 12).total == 10 * planned.total


def test_adapters_alone_are_planned_without_their_base(tmp_path, monkeypatch):
    folder = tmp_path / "models" / "lora"
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": "nowhere/base"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(b"x" * 100)
    monkeypatch.setattr("deltadex.indexer.base.Base.weights", None)

    with dx.open() as db:
        plan = db.plan("nowhere/base", tmp_path / "models").to_json()

    assert plan["models"]["to_read"] == 1
    assert plan["bytes"]["to_read"] == 100
    assert plan["requests"]["plan"] == {}
    assert "slots and their disk are not known" in " ".join(plan["notes"])
