"""Catalogs of this release and of every earlier one: they open, and answer as they did."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner
from make_golden import BASE, MEAN, SKETCH, answered

from deltadex.cli import main
from deltadex.errors import OlderSchema
from deltadex.records import Fingerprint, Indexed, LinearSketch, ModelRecord
from deltadex.store import Catalog, examine
from deltadex.store.opening import SCHEMA_VERSION

FILES = sorted(Path(__file__).parent.glob("catalog-*.duckdb.gz"))
DUCKDB_1_5_READS = 68
"""The newest storage version that DuckDB 1.5.5 reads; files that 2.0 makes unasked have 69."""


@pytest.fixture(params=FILES, ids=lambda path: path.name)
def golden(request, tmp_path):
    """A copy of a catalog, and what it must answer."""
    path = tmp_path / "c.duckdb"
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    name = request.param.name.removesuffix(".duckdb.gz")
    return path, {
        **json.loads(request.param.with_name(name + ".json").read_text("utf-8")),
        "version": name.removeprefix("catalog-"),
    }


def test_there_is_one_of_every_minor_version():
    assert {"catalog-0.1.duckdb.gz", "catalog-0.2.duckdb.gz"} <= {path.name for path in FILES}


@pytest.mark.parametrize("read_only", [True, False])
def test_it_answers_as_it_did(golden, read_only):
    path, expected = golden
    with Catalog.open(path, read_only=read_only) as catalog:
        answers = json.loads(json.dumps(answered(catalog)))
    del expected["version"]
    # a walk of the Hub is forgotten after a day
    del expected["listing"]

    nearest, before = answers.pop("nearest"), expected.pop("nearest")
    assert answers.pop("purity") == pytest.approx(expected.pop("purity"))
    # scores are normalised otherwise since 0.1: the nearest has the same data, places may change
    assert [_nearest(answer) for answer in nearest] == [_nearest(answer) for answer in before]
    # later versions may say more, never less or other things
    for key, value in expected.items():
        assert _part(answers[key], value) == value


def test_a_reader_leaves_an_older_file_alone_where_it_must(golden, monkeypatch):
    path, _ = golden
    before = path.read_bytes()
    if _is_of_this_schema(path):
        return

    with pytest.raises(OlderSchema, match="deltadex doctor"):
        Catalog.open(path, read_only=True, migrates=False)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(OlderSchema, match="deltadex doctor"):
        Catalog.open(path, read_only=True)
    assert path.read_bytes() == before


def _nearest(answer):
    return [n["dataset"] for n in answer["neighbours"][:1]]


def _part(found, expected):
    """What is found, without the keys of objects that were not expected."""
    if isinstance(expected, dict):
        return {k: _part(found[k], v) for k, v in expected.items()}
    if isinstance(expected, list):
        assert len(found) == len(expected)
        return [_part(one, other) for one, other in zip(found, expected, strict=True)]
    return found


def _is_of_this_schema(path):
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute("SELECT schema_version FROM meta").fetchone()[0] == SCHEMA_VERSION


def test_it_is_well(golden):
    is_older = not _is_of_this_schema(golden[0])

    troubles = {f.check for f in examine(golden[0]) if f.state in ("problem", "repaired")}

    assert troubles == ({"catalog"} if is_older else set())


def test_what_came_later_is_unknown_of_its_models(golden):
    path, expected = golden
    with Catalog.open(path) as catalog:
        key = catalog.model("a/rot-0", BASE).key
        sketches = catalog.family(BASE, SKETCH).sketches(np.array([key]))

        assert catalog.find_recipe("sketch", BASE) == SKETCH
        if "0.1" in expected["version"]:
            assert [s.zero_share for s in catalog.slots(key)] == [None] * 3
            assert catalog.linear_sketch("a/rot-0", BASE) is None
            assert {(row.status, row.record.verified) for row in catalog.models(base=BASE)} >= {
                ("indexed", "unverified"),
                ("failed", None),
            }
        assert [str(slot) for slot in sketches.slots] == [
            f"{stack}.{layer}.{role}" for stack, layer, role, *_ in expected["slots"]["a/rot-0"]
        ]
        # of unit length, in float16
        assert np.allclose(sketches.weights, 1.0, atol=1e-3)


def test_a_model_indexed_again_gets_what_came_later(golden):
    path, _ = golden
    with Catalog.open(path) as catalog:
        row = catalog.model("a/rot-0", BASE)
        vector = catalog.family(BASE, SKETCH).by_id([row.id])[1][0]
        linear = LinearSketch(recipe=SKETCH.id, pooled=np.ones(1024, np.float32), layers={})
        slots = [replace(s, zero_share=0.5) for s in catalog.slots(row.key, SKETCH.id)]
        catalog.record(
            Indexed(
                model=row.record,
                fingerprints=(Fingerprint(recipe=SKETCH, vector=vector, norm=1.0),),
                slots=tuple(slots),
                bytes_read=1,
                seconds=0.1,
                linear=linear,
            )
        )

        row = catalog.model("a/rot-0", BASE)
        assert [s.zero_share for s in catalog.slots(row.key)] == [0.5] * 3
        assert catalog.linear_sketch(row.id, BASE).pooled.sum() == 1024


def test_commands_migrate_it_and_answer(golden):
    path, expected = golden

    def asked(*words):
        ended = CliRunner().invoke(main, [*words, "--db", str(path), "--json"])
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)

    listed = asked("ls")["models"]
    found = asked("find-similar", "rot-0", "-k", "1")
    purity = asked("eval", "--base", BASE, "--with-unlabelled")
    checked = asked("doctor")

    assert {m["model"] for m in listed} == {m["model"] for m in expected["models"]}
    assert found["neighbours"][0]["model"] == "a/rot-1"
    assert purity["micro"] == pytest.approx(expected["purity"])
    assert checked["problems"] == 0
    assert _is_of_this_schema(path)


def test_it_can_be_written_to(golden):
    path, expected = golden
    twin = next(m for m in expected["models"] if m["model"] == "a/rot-0")
    with Catalog.open(path) as catalog:
        vectors = {r.id: catalog.family(BASE, r).by_id(["a/rot-0"])[1][0] for r in (SKETCH, MEAN)}
        slots = tuple(catalog.slots(catalog.model("a/rot-0", BASE).key, SKETCH.id))
        model = ModelRecord(id="g/new", base=BASE, signature="new", dataset="rot")
        made = tuple(Fingerprint(recipe=r, vector=vectors[r.id], norm=1.0) for r in (SKETCH, MEAN))
        new = Indexed(model=model, fingerprints=made, slots=slots, bytes_read=1, seconds=0.1)
        catalog.record(new)
        catalog.remove("b/blau-0")
        catalog.relabel(BASE, [ModelRecord(id="c/unlabelled", base=BASE, dataset="grün")])

    with Catalog.open(path) as catalog:
        ids = {row.id: row for row in catalog.models()}
        assert ids.keys() == {m["model"] for m in expected["models"]} - {"b/blau-0"} | {"g/new"}
        assert ids["c/unlabelled"].dataset == "grün"
        assert (catalog.family(BASE, SKETCH).by_id(["g/new"])[1][0] == vectors[SKETCH.id]).all()
        assert twin["dataset"] == ids["a/rot-0"].dataset


def test_every_duckdb_from_1_5_reads_the_file(golden):
    header = golden[0].read_bytes()[:20]

    assert header[8:12] == b"DUCK"
    assert int.from_bytes(header[12:20], "little") <= DUCKDB_1_5_READS
