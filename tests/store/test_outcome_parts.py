"""Outcomes as Parquet parts, and parts in a catalog."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from catalogs import refused
from outcomes import OTHER, RECIPE, indexed
from pyarrow import parquet

from deltadex.errors import StoreDamaged, StoreError
from deltadex.records import Recipe
from deltadex.store import Part, PartFolder, commit_part, merge_catalogs
from deltadex.store.exchange import listed_file, manifest_bytes

EARLY, LATE = "2020-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"


def part(*outcomes, **more):
    known = {"lease": "0" * 16, "base": "base", "written_at": LATE, "recipes": (RECIPE,)}
    return Part(outcomes=outcomes, **known | more)


@pytest.fixture
def folder(tmp_path):
    return PartFolder(str(tmp_path / "parts"))


def test_a_part_is_read_as_it_was_written(folder):
    plain = indexed("plain", seed=2, recipe=OTHER, sketched=False)
    models = (indexed("org/a", seed=1, notes=("odd",), author="ü"), plain, refused("c"))
    wide = Recipe(name="sketch", rank=8, dim=4, params=(("rows", "2%"), ("b", "x")))
    about = {"revision": "abc", "architecture": "bert", "layout": (("encoder", "q", 4),)}
    models = (*models, indexed("wide", recipe=wide, sketched=False))
    written = part(*models, recipes=(RECIPE, OTHER, wide), **about)

    read = folder.read(folder.write(written))

    assert read == written
    for before, after in zip(models[:2], read.outcomes[:2], strict=True):
        for ours, theirs in zip(before.fingerprints, after.fingerprints, strict=True):
            assert np.array_equal(ours.vector, theirs.vector)
        for ours, theirs in zip(before.slots, after.slots, strict=True):
            assert (ours.sketch, ours.sigma.tolist()) == (theirs.sketch, theirs.sigma.tolist())
    assert np.array_equal(read.outcomes[0].linear.pooled, models[0].linear.pooled)
    assert read.outcomes[0].linear.layers.keys() == models[0].linear.layers.keys()
    assert read.outcomes[1].linear is None


@pytest.mark.parametrize(
    ("later", "n_changed"),
    [
        (part(indexed("m", seed=2, signature="read"), written_at=EARLY), 0),
        (part(indexed("m", seed=2, signature="read")), 1),
        (part(refused("m", "hub-unreachable", signature="read")), 0),
        (part(refused("m", "gated", signature="read")), 0),
        (part(refused("m", "id-taken", signature="read")), 0),
    ],
    ids=["older", "of changed files", "hub-unreachable", "gated", "id-taken"],
)
def test_a_later_reading_replaces_an_earlier_one_and_a_fault_that_may_pass_none(
    catalog, later, n_changed
):
    catalog.record(indexed("m", seed=1, signature="recorded"))

    assert len(commit_part(catalog, later, catalog.known("base"))) == n_changed
    stored = catalog.known("base")["m"]
    assert (stored.status, stored.signature) == ("indexed", ["recorded", "read"][n_changed])


def data_of(folder, path):
    """The Parquet file of a part."""
    manifest = Path(folder.url, path)
    return manifest.with_name(json.loads(manifest.read_bytes())["file"]["name"])


@pytest.mark.slow
def test_every_flipped_bit_and_every_cut_of_a_part_is_noticed(folder):
    path = folder.write(part(indexed("m", seed=1), indexed("n", seed=2)))
    rng, original = np.random.default_rng(0), folder.read(path)
    for place in (data_of(folder, path), Path(folder.url, path)):
        whole = place.read_bytes()
        cuts = [whole[:size] for size in (0, 1, len(whole) // 2, len(whole) - 1)]
        flipped = []
        for position in range(len(whole)):
            changed = bytearray(whole)
            changed[position] ^= 1 << int(rng.integers(8))
            flipped.append(bytes(changed))
        for content in (*cuts, *flipped):
            place.write_bytes(content)
            with pytest.raises(StoreDamaged, match="delete it"):
                folder.read(path)
        place.write_bytes(whole)

    assert folder.read(path) == original


def rewritten(folder, path, *, change=None, about=None, schema=None):
    """Another part in the place of one, with the hashes that it has to have."""
    manifest, data = Path(folder.url, path), data_of(folder, path)
    table = parquet.read_table(data)
    rows = table.to_pylist()
    if change is not None:
        change(rows[0])
        rows = [row for row in rows if row]
    table = pa.Table.from_pylist(rows, schema=(schema or (lambda s: s))(table.schema))
    parquet.write_table(table, data)
    file = listed_file(data.read_bytes(), len(rows))
    data.rename(data.with_name(file.name))
    document = json.loads(manifest.read_bytes()) | {"file": asdict(file)}
    if about is not None:
        document = about(document) if callable(about) else about
    body = document if isinstance(document, bytes) else manifest_bytes(document)
    manifest.write_bytes(body)


def of_slot(**values):
    return lambda row: row["slots"][0].update(values)


HOSTILE_PARTS = {  # beside what `test_checks.HOSTILE_ROWS` has, for which one rule serves both
    "a sketch of 10 MB": {"change": of_slot(sketch=b"a" * 10_000_000)},
    "an energy of NaN": {"change": of_slot(energy=float("nan"))},
    "a short vector": {"change": lambda row: row["vectors"][0].update(vector=[1.0])},
    "another recipe": {"change": lambda row: row["vectors"][0].update(recipe="x")},
    "no id": {"change": lambda row: row.update(id=None)},
    "no models": {"change": dict.clear},
    "a share of text": {"about": lambda about: about | {"base_bytes": "1"}},
    "another base": {"change": lambda row: row.update(base="other")},
    "a column less": {"schema": lambda schema: schema.remove(0)},
    "empty metadata": {"about": b"{}"},
    "deep JSON": {"about": b"[" * 100_000},
    "another layout": {"about": lambda about: about | {"layout": 5}},
    "other recipes": {"about": lambda about: about | {"recipes": [{}]}},
    "a wide recipe": {
        "about": lambda about: about | {"recipes": [about["recipes"][0] | {"dim": 10**9}]}
    },
    "another lease": {"about": lambda about: about | {"lease": "other"}},
    "no time": {"about": lambda about: about | {"written_at": "soon"}},
}


def test_every_hostile_part_is_named_and_left_out_and_the_others_are_merged(catalog, folder):
    for number, hostile in enumerate(HOSTILE_PARTS.values()):
        rewritten(folder, folder.write(part(indexed("m", seed=1), lease=f"{number:03}")), **hostile)
    folder.write(part(indexed("good", seed=2), lease="good"))

    merged = merge_catalogs(catalog, [folder.url])

    damaged = dict(zip(HOSTILE_PARTS, merged["damaged"], strict=True))
    assert merged["added"] == 1
    assert [row.id for row in catalog.models()] == ["good"]
    assert [name for name, line in damaged.items() if "; delete it, and index" not in line] == []
    assert all(len(line) < 600 and line.isprintable() for line in damaged.values())
    assert "model m: its slot energy is not what" in damaged["an energy of NaN"]
    assert "model m: its slot sketch is not what" in damaged["a sketch of 10 MB"]
    assert "its layout cannot be used" in damaged["another layout"]
    assert "good" in folder.known("base")


def test_a_base_with_any_name_has_a_folder_of_its_own_that_goes_with_its_parts(folder, tmp_path):
    names = ["org/base", "/a/very/long/path" * 20, "/a/very/long/path" * 20 + "x", "..", "a b"]
    for name in names:
        folder.write(part(indexed("m", base=name), base=name))
    assert [len(folder.paths(name)) for name in names] == [1] * len(names)

    one = Path(folder.url, folder.paths(names[-1])[0]).parent
    (one / ".part-1.json.4000000.0.partial").write_bytes(b"of a writer that was killed")
    folder.remove_family(names.pop())
    assert not one.parent.exists()
    assert len(folder.paths()) == len(names)
    mine = Path(folder.url, folder.paths(names[-1])[0]).with_name("notes.txt")
    mine.touch()
    for name in names:
        folder.remove_family(name)
    assert [path for path in (tmp_path / "parts").rglob("*") if path.is_file()] == [mine]


def test_parts_at_any_address_of_fsspec_are_written_and_read(catalog):
    folder = PartFolder("memory://bucket/parts")
    path = folder.write(part(indexed("m", seed=1)))

    assert folder.paths("base") == [path]
    assert merge_catalogs(catalog, [folder.url])["added"] == 1
    folder.remove_family("base")
    assert folder.paths() == []
    with pytest.raises(StoreError, match="nonsense://x"):
        PartFolder("nonsense://x")
