"""Plans of folders, and the arithmetic of hours, requests and disk."""

import pytest
from factories import lora_of, make_family, write_files
from running import document, run

import deltadex as dx
from deltadex.errors import RequestError
from deltadex.indexer.fingerprint import make_recipe
from deltadex.indexer.plan import SLOT_S, START_S, catalog_bytes, parse_bandwidth


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


def test_the_table_has_the_numbers_of_the_document(family, tmp_path):
    asked = ("plan", family / "base", family / "models", "--budget", "10%")

    plan, shown = document(tmp_path, *asked), run(tmp_path, *asked)

    assert shown.exit_code == 0
    assert "3 of 4 models would be read (1 refused)" in shown.stdout
    assert "(budget 10%)" in shown.stdout
    assert plan["refused"][0]["meaning"] in shown.stdout
    assert f"a model of {plan['disk']['slots']} slots" in shown.stdout


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


def test_the_catalogs_size_is_that_of_real_files(tmp_path):
    """Against what a DuckDB file grew by between 150 and 600 models (benchmarks, 72 slots)."""
    recipe = make_recipe("sketch", None, ())

    planned = catalog_bytes([recipe], 1, 72, 12)

    assert planned["per_model"] == pytest.approx(86_800, rel=0.1)
    assert catalog_bytes([recipe], 10, 72, 12)["total"] == 10 * planned["total"]


def test_adapters_alone_are_planned_without_their_base(tmp_path, monkeypatch):
    files = lora_of({}, "nowhere/base") | {"adapter_model.safetensors": b"x" * 100}
    write_files(tmp_path / "models" / "lora", files)
    monkeypatch.setattr("deltadex.indexer.base.Base.weights", None)

    with dx.open() as db:
        plan = db.plan("nowhere/base", tmp_path / "models").to_json()

    assert plan["models"]["to_read"] == 1
    assert plan["bytes"]["to_read"] == 100
    assert plan["requests"]["plan"] == {}
    assert "slots and their disk are not known" in " ".join(plan["notes"])
