"""Exports to a folder: what is in it afterwards, how they go on, and what they refuse."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from qdrant_families import (
    BASE,
    OTHER,
    OTHER_DIM,
    RECIPE,
    expected_points,
    export,
    exported_points,
    insert,
    make_catalog,
    unit_vectors,
)

import deltadex
from deltadex.cli import main
from deltadex.errors import EmptyCatalog, EngineError, RecipeMismatch, RequestError, StoreFull
from deltadex.store import Catalog
from deltadex.store.qdrant import edge
from deltadex.store.qdrant.edge import NOTE, EdgeCollection
from deltadex.store.qdrant.exporting import ExactNeighbours
from deltadex.store.qdrant.index import EdgeTarget, ServerTarget, parse_target

KILLED_HERE = {
    "before the folder is made": "edge.engine.EdgeShard.create",
    "before the first batch": "edge.EdgeCollection.upsert",
    "between batches": "edge.EdgeCollection.upsert 3",
    "before the graph": "edge.EdgeCollection.build",
    "before the check": "exporting._Export._check_vectors",
    "before it is noted as complete": "edge.EdgeCollection.seal",
}
KILLER = """
import json, os, signal, sys
from pathlib import Path
sys.path[:0] = {path!r}
import qdrant_families as families
from deltadex.store import Catalog
from deltadex.store.qdrant import edge, exporting

exporting.UPSERTED_AT_ONCE = 16

class Engine:
    "The engine's module, with another EdgeShard.create."
    def __init__(self, inner, create):
        self.inner, self.create, self.load = inner, create, inner.EdgeShard.load
        self.EdgeShard = self
    def __getattr__(self, name):
        return getattr(self.inner, name)

def export(point, db, target):
    name, _, calls = point.partition(" ")
    left = [int(calls or 1)]
    owner, method = eval(name.rpartition(".")[0]), name.rpartition(".")[2]
    inner = getattr(owner, method)

    def killed(*args, **kwargs):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*args, **kwargs)

    if owner is edge.engine.EdgeShard:
        edge.engine = Engine(edge.engine, killed)
    else:
        setattr(owner, method, killed)
    with Catalog.open(Path(db)) as catalog:
        families.export(catalog, target)

for point, db, target in {runs!r}:
    child = os.fork()
    if not child:
        export(point, db, target)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with a catalog, and an export that was killed at each point, in `0`, `1`, …"""
    folder = tmp_path_factory.mktemp("killed")
    make_catalog(folder / "c.duckdb")
    runs = []
    for number, point in enumerate(KILLED_HERE.values()):
        db = shutil.copy(folder / "c.duckdb", folder / f"{number}.duckdb")
        runs.append((point, str(db), f"edge:{folder}/{number}"))
    script = KILLER.format(path=[os.path.dirname(__file__)], runs=runs)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout.split() == ["-9"] * len(runs), done.stderr
    with Catalog.open(folder / "c.duckdb") as catalog:
        export(catalog, f"edge:{folder}/undisturbed")
    return folder


@pytest.fixture
def db(path):
    return make_catalog(path)


@pytest.fixture
def catalog(db):
    with Catalog.open(db) as opened:
        yield opened


@pytest.fixture
def target(tmp_path):
    return f"edge:{tmp_path}/v"


@pytest.fixture
def folder(catalog, target, tmp_path):
    """An export of the catalog."""
    export(catalog, target)
    return tmp_path / "v"


def note_state(folder, state):
    """Make the note of an export say where it was ended."""
    note = json.loads((folder / NOTE).read_text())
    (folder / NOTE).write_text(json.dumps(note | {"state": state}))


def assert_exported(catalog, target):
    """Every point is what SQL says of the model."""
    points, expected = exported_points(target), expected_points(catalog)
    assert set(points) == set(expected)
    for key, (payload, vector) in points.items():
        fields = ("model", "dataset", "author", "kind", "downloads")
        assert (*(payload[field] for field in fields), vector) == expected[key]
        assert (payload["base"], payload["recipe"], payload["key"]) == (BASE, RECIPE.id, key)


def test_points_are_what_the_catalog_says_of_models(catalog, target):
    report = export(catalog, target)

    assert_exported(catalog, target)
    assert (report.models, report.added, report.removed, report.repaired) == (60, 60, 0, 0)
    assert (report.recall_at_10, report.queries) == (1.0, 60)
    assert report.bytes > 60 * 4 * RECIPE.dim
    checksum = hashlib.sha256()
    for key, (*_, vector) in sorted(expected_points(catalog).items()):
        checksum.update(key.to_bytes(8, "little") + vector)
    assert report.checksum == checksum.hexdigest()


@settings(max_examples=2, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=2))
def test_a_later_export_writes_the_differences(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("e")
    target, last_key = f"edge:{folder}/v", 40
    with Catalog.open(make_catalog(folder / "c.duckdb", last_key)) as catalog:
        export(catalog, target)
        for n_gone, n_added in changes:
            for key in sorted(expected_points(catalog))[:n_gone]:
                catalog.remove(f"m{key}")
            if n_added:
                keys = range(last_key + 1, last_key + n_added + 1)
                insert(catalog, keys, unit_vectors(n_added, seed=last_key))
                last_key += n_added

            report = export(catalog, target)

            assert (report.added, report.removed) == (n_added, n_gone)
            assert report.newest_key == max(expected_points(catalog))
            assert_exported(catalog, target)


def test_a_changed_label_is_written_and_nothing_else(catalog, target):
    first = export(catalog, target)
    catalog.label("m7", dataset="imdb", author="somebody")

    report = export(catalog, target)

    assert (report.added, report.removed, report.checksum) == (1, 0, first.checksum)
    assert exported_points(target)[7][0]["dataset"] == "imdb"


@pytest.mark.parametrize("number", range(len(KILLED_HERE)), ids=list(KILLED_HERE))
def test_an_export_that_was_killed_goes_on(killed, number):
    target = f"edge:{killed}/{number}"
    with Catalog.open(killed / "c.duckdb") as catalog:
        report = export(catalog, target)

        assert_exported(catalog, target)
    assert exported_points(target) == exported_points(f"edge:{killed}/undisturbed")
    assert (report.models, report.repaired) == (60, 0)


def test_a_folder_that_was_only_begun_is_begun_again(catalog, folder, target):
    note_state(folder, "creating")
    shutil.rmtree(next((folder / "segments").iterdir()))

    assert export(catalog, target).added == 60
    assert_exported(catalog, target)


def test_what_the_making_of_a_graph_left_is_removed(catalog, folder, target):
    note_state(folder, "writing")
    left = folder / "temp_segments" / "segment_builder_x"
    left.mkdir(parents=True)
    (left / "matrix.dat").write_bytes(b"half")

    export(catalog, target)

    assert not left.exists()
    assert_exported(catalog, target)


def test_a_folder_with_any_file_harmed_is_refused_with_its_name(folder, tmp_path):
    harmed = tmp_path / "harmed"
    files = sorted(p.relative_to(folder) for p in (folder / "segments").rglob("*") if p.is_file())
    assert len(files) > 5
    for number, name in enumerate([*files, NOTE]):
        shutil.copytree(folder, harmed)
        file = harmed / name
        if number % 3 == 0:
            os.truncate(file, file.stat().st_size // 2)
        elif number % 3 == 1 and name != NOTE:
            file.unlink()
        else:
            data = file.read_bytes()
            file.write_bytes(bytes([data[0] ^ 255]) + data[1:])

        with pytest.raises(EngineError, match="remove the folder and run") as refused:
            EdgeCollection(harmed)

        assert os.path.basename(name) in str(refused.value)
        shutil.rmtree(harmed)


def test_vectors_that_are_not_read_back_as_written_are_written_again(catalog, folder, target):
    """The note says that an export goes on, so that only the check at its end can see it."""
    vector = unit_vectors(60)[30].tobytes()
    (file,) = [f for f in folder.rglob("*.mmap") if vector in f.read_bytes()]
    file.write_bytes(file.read_bytes().replace(vector, unit_vectors(1, 5)[0].tobytes()))
    note_state(folder, "writing")

    report = export(catalog, target)

    assert (report.added, report.repaired) == (0, 1)
    assert_exported(catalog, target)


@pytest.mark.parametrize(
    ("recipe", "base", "message"),
    [
        (OTHER_DIM, BASE, "holds vectors of 8 numbers, and mean-factors has 10"),
        (OTHER, BASE, "holds points of some/base under mean-factors-"),
        (RECIPE, "another/base", "holds points of some/base under mean-factors-"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_vectors_of_two_kinds_never_meet(catalog, target, recipe, base, message):
    before = exported_points(target)
    insert(catalog, [900, 901], unit_vectors(2, dim=recipe.dim), recipe, "another/base")
    if base == BASE:
        catalog.remove("m900")
        insert(catalog, [902], unit_vectors(1, dim=recipe.dim), recipe, base)

    with pytest.raises(RecipeMismatch, match=message):
        export(catalog, target, recipe, base)

    assert exported_points(target) == before


def test_a_family_without_vectors_is_not_exported(catalog, tmp_path):
    with pytest.raises(EmptyCatalog):
        export(catalog, f"edge:{tmp_path}/v", base="no/base")

    assert not (tmp_path / "v").exists()


def test_a_folder_of_other_files_is_left_alone(catalog, tmp_path):
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "thesis.txt").write_text("x")

    with pytest.raises(EngineError, match="not a folder of vectors"):
        export(catalog, f"edge:{tmp_path}/v")

    assert [path.name for path in (tmp_path / "v").iterdir()] == ["thesis.txt"]


def test_one_process_has_a_folder_open(catalog, folder, target):
    opened_by_another = pytest.raises(EngineError, match="another process has it open")
    with closing(EdgeCollection(folder)), opened_by_another:
        export(catalog, target)


def test_a_full_disk_stops_an_export_that_goes_on_later(catalog, target, monkeypatch):
    left = [3]

    def usage(path):
        left[0] -= 1
        return shutil._ntuple_diskusage(1 << 40, 1, (1 << 40) if left[0] > 0 else 5 << 20)

    monkeypatch.setattr(edge.shutil, "disk_usage", usage)
    with pytest.raises(StoreFull, match=r"the disk has 5\.0 MiB free, and 256\.0 MiB are needed"):
        export(catalog, target)

    monkeypatch.undo()
    export(catalog, target)
    assert_exported(catalog, target)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 90), st.integers(1, 20), st.integers(0, 99))
def test_recall_counts_the_ten_nearest_of_brute_force(n, n_batch, seed):
    vectors, keys = unit_vectors(n, seed), np.arange(5, 5 + n)
    rng = np.random.default_rng(seed)
    neighbours = ExactNeighbours(keys[:3], vectors[:3])
    for start in range(0, n, n_batch):
        neighbours.add(keys[start : start + n_batch], vectors[start : start + n_batch])
    for query in range(min(n, 3)):
        scores = vectors.astype(np.float64) @ vectors[query].astype(np.float64)
        scores[query] = -np.inf
        truth = set(keys[np.argsort(-scores)[: min(10, n - 1)]].tolist())
        answer = rng.permutation(keys)

        hits = [key for key in answer.tolist() if key != keys[query]][: len(truth)]

        expected = len(truth & set(hits)) / len(truth) if truth else 1.0
        assert neighbours.recall(query, answer) == pytest.approx(expected)
        assert neighbours.recall(query, keys[np.argsort(-scores)]) == 1.0


def test_the_command_prints_what_it_did_and_refuses_in_one_line(db, tmp_path):
    def run(*arguments):
        return CliRunner().invoke(main, ["export", "--db", str(db), *arguments])

    done = run("--to", f"edge:{tmp_path}/v", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["models"], document["recall_at_10"]) == (60, 1.0)

    (tmp_path / "v" / NOTE).write_text("{}")
    damaged = run("--to", f"edge:{tmp_path}/v", "--quiet")
    assert damaged.exit_code == 3
    assert damaged.output.count("\n") == 1
    assert damaged.output.startswith("Error: ")
    assert run().exit_code == run("x", "--to", "edge:y").exit_code == 2
    assert run("--to", "edge:y", "--scores").exit_code == 2


def test_without_the_engine_one_line_says_what_to_install(db, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    monkeypatch.delitem(sys.modules, "deltadex.store.qdrant.edge", raising=False)
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    monkeypatch.delitem(sys.modules, "deltadex.store.qdrant.server", raising=False)
    for target in (f"edge:{tmp_path}/v", "qdrant://localhost/c"):
        with (
            deltadex.open(db) as opened,
            pytest.raises(RequestError, match=r"pip install 'deltadex\[qdrant\]'"),
        ):
            opened.export_vectors(target)


# What names a place of exported vectors, and what does not

NAMES = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=40
).filter(lambda name: "/" not in name and name not in (".", ".."))


@pytest.mark.parametrize(
    ("text", "host", "port", "collection", "https"),
    [
        ("qdrant://localhost/bert", "localhost", 6333, "bert", False),
        ("qdrant://h:80/a?https=1", "h", 80, "a", True),
        ("qdrant://[::1]:7/a%20b/?https=false", "::1", 7, "a b", False),
    ],
)
def test_a_servers_address_is_understood(text, host, port, collection, https):
    assert parse_target(text) == ServerTarget(
        host=host, port=port, collection=collection, https=https
    )


@given(NAMES, st.booleans(), st.sampled_from(["localhost", "::1", "10.0.0.1"]))
def test_an_address_that_was_printed_is_the_same_address(name, https, host):
    target = ServerTarget(host=host, port=6334, collection=name, https=https)

    assert parse_target(str(target)) == target


def test_a_folder_is_meant_from_where_the_command_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert parse_target("edge:a/b") == EdgeTarget(Path(tmp_path / "a/b"))
    assert parse_target(str(parse_target("edge:a/b"))) == EdgeTarget(Path(tmp_path / "a/b"))


@pytest.mark.parametrize(
    "text",
    [
        *("edge:", "edges", "http://h/c", "qdrant:h/c", "qdrant:///c", "qdrant://h:99999/c"),
        *(f"qdrant://h{rest}" for rest in ("", "/", "/a/b", "/..", "/c#x", "/" + 256 * "c")),
        *(f"qdrant://h/c?{option}" for option in ("api_key=1", "https=perhaps")),
    ],
)
def test_what_is_no_target_is_a_wrong_call(text):
    with pytest.raises(RequestError):
        parse_target(text)


def test_a_key_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(RequestError, match="QDRANT_API_KEY") as refused:
        parse_target("qdrant://s3cret@h/c")

    assert "s3cret" not in str(refused.value)
