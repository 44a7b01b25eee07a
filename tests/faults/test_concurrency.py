"""Several processes and threads on one catalog, at once and for real."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner
from factories import make_family

from deltadex.cli import main
from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe, Slot, SlotStats
from deltadex.search import StoredQuery, evaluate, find_similar
from deltadex.store import Catalog
from deltadex.store import session as sessions

RECIPE = Recipe(name="sketch", rank=2, dim=8, params=(("slot_blocks", "update:16"),))

COMMAND = """
import sys
import deltadex.indexer, deltadex.terminal
from deltadex.cli import main
print("ready", flush=True)
sys.stdin.readline()
main(sys.argv[1:])
"""


@contextmanager
def python(code, *arguments):
    """A process that runs `code`; it says a line when it is ready, and is killed at the end."""
    running = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        try:
            assert running.stdout.readline().strip() == "ready", running.stderr.read()
            yield running
        finally:
            running.kill()


def content(path):
    """What a catalog knows, by names and bit for bit, whenever it came to know it."""
    with duckdb.connect(str(path), read_only=True) as connection:
        ((table,),) = connection.execute("SELECT vectors FROM recipes").fetchall()
        columns = "* EXCLUDE (key, seconds, bytes_read, indexed_at)"
        return {
            name: connection.execute(sql).fetchall()
            for name, sql in {
                "models": f"SELECT {columns} FROM models ORDER BY base, id",
                "families": "FROM families ORDER BY base",
                "vectors": f"SELECT m.id, v.vector, v.norm FROM {table} v "
                "JOIN models m ON m.key = v.model ORDER BY 1",
                "slots": "SELECT m.id, s.* EXCLUDE (model) FROM slots s "
                "JOIN models m ON m.key = s.model ORDER BY ALL",
                "orphans": "SELECT model FROM slots ANTI JOIN models ON model = key",
            }.items()
        }


# two indexers


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return make_family(tmp_path_factory.mktemp("family"), pairs=("a", "b", "c"), runs=2)


@pytest.mark.slow
@pytest.mark.parametrize("folders", [pytest.param("the same", marks=pytest.mark.slow), "other"])
def test_two_indexers_at_once_leave_what_one_after_the_other_leaves(family, tmp_path, folders):
    base, labels = family.parent / "base", family / "labels.csv"
    lists = [tmp_path / "one.txt", tmp_path / "two.txt"]
    names = sorted(path.name for path in family.iterdir() if path.is_dir())
    for number, path in enumerate(lists):
        some = names if folders == "the same" else names[number::2]
        path.write_text("".join(f"{family / name}\n" for name in some))

    def arguments(number, db):
        return ["index", base, lists[number], "--labels", labels, "--json", "--db", db]

    at_once, in_turn = tmp_path / "at-once.duckdb", tmp_path / "in-turn.duckdb"
    with (
        python(COMMAND, *arguments(0, at_once)) as one,
        python(COMMAND, *arguments(1, at_once)) as two,
    ):
        for running in (one, two):
            running.stdin.write("go\n")
            running.stdin.flush()
        said = [running.communicate() for running in (one, two)]
        assert [one.returncode, two.returncode] == [0, 0], said
    for number in (0, 1):
        done = CliRunner().invoke(main, [str(a) for a in arguments(number, in_turn)])
        assert done.exit_code == 0

    assert [json.loads(out)["failed"] for out, _ in said] == [[], []]
    found = content(at_once)
    assert found == content(in_turn)
    assert len(found["models"]) == len(found["vectors"]) == len(names)
    assert found["orphans"] == []


# a holder that lets nobody in


READER = """
import os, sys
from pathlib import Path
from deltadex.store import Catalog
if sys.argv[2] == "another user":
    os.setuid(65534)
catalog = Catalog.open(Path(sys.argv[1]), read_only=True)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def open_folder():
    """A folder that every user can enter, as pytest's are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("who", ["this user", "another user"])
def test_a_writer_is_told_which_process_reads(open_folder, monkeypatch, who):
    path = open_folder / "c.duckdb"
    with Catalog.open(path) as catalog:
        catalog.record(outcome(0))
    if who == "another user":
        _open_to_all(path)
    monkeypatch.setattr(sessions, "PATIENCE_S", 0.3)
    with python(READER, path, who) as reader:
        refused = CliRunner().invoke(main, ["rm", "m000", "--db", str(path)])

        assert refused.exit_code == 3
        assert f"process {reader.pid} " in refused.stderr.splitlines()[-1]
        assert CliRunner().invoke(main, ["ls", "--db", str(path)]).exit_code == 0
    assert CliRunner().invoke(main, ["rm", "m000", "--db", str(path)]).exit_code == 0


def _open_to_all(path):
    """Let every user read the file; only root can become another user to try it."""
    if os.getuid() != 0:
        pytest.skip("only root becomes another user")
    path.chmod(0o644)


# many readers


def outcome(number, **record):
    """A model of one of five datasets, the same for the same number."""
    rng = np.random.default_rng(number)
    vector = rng.normal(size=RECIPE.dim).astype(np.float32)
    slot = SlotStats(
        slot=Slot("encoder", 0, "q"),
        shape=(4, 3),
        fro_norm=1.0,
        relative_norm=0.1,
        sigma=np.ones(2, dtype=np.float32),
        energy=0.9,
        stable_rank=1.5,
        noise_floor=0.0,
        sketch=rng.normal(size=16).astype("<f2").tobytes(),
    )
    model = ModelRecord(
        id=f"m{number:03}", base="base", dataset=f"d{number % 5}", signature="s", **record
    )
    fingerprint = Fingerprint(recipe=RECIPE, vector=vector / np.linalg.norm(vector), norm=1.0)
    return Indexed(
        model=model, fingerprints=(fingerprint,), slots=(slot,), bytes_read=1, seconds=0.1
    )


def first(n):
    return [f"m{number:03}" for number in range(n)]


def ask_ls(catalog):
    rows = catalog.models()
    assert [row.id for row in rows] == first(len(rows))
    assert {row.recipes for row in rows} == {(RECIPE.id,)}
    return len(rows)


def ask_find_similar(catalog):
    neighbours = find_similar(catalog, StoredQuery("m007"), k=1000).neighbours
    known = first(1 + max(int(n.model[1:]) for n in neighbours))
    # one that is written again between index and answer may be left out of it
    assert set(known) - {"m007", *(n.model for n in neighbours)} <= REWRITTEN
    assert len(neighbours) == len({n.model for n in neighbours} - {"m007"})
    assert all(n.dataset == f"d{int(n.model[1:]) % 5}" for n in neighbours)
    return len(known)


def ask_eval(catalog):
    evaluation = evaluate(catalog)
    assert evaluation["labelled"] == evaluation["queries"] == evaluation["models"]
    return evaluation["models"]


def ask_stats(catalog):
    document = catalog.stats()
    ((base,), (recipe,)) = document["bases"], document["recipes"]
    counts = {base["models"], base["indexed"], recipe["models"], document["statuses"]["indexed"]}
    assert len(counts) == 1
    return counts.pop()


QUESTIONS = [ask_ls, ask_find_similar, ask_eval, ask_stats]
STARTED, UNTIL = 20, 40
REWRITTEN = {f"m{number:03}" for number in range(0, STARTED, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("n_added", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_eight_readers_see_whole_moments_while_many_models_are_written(tmp_path, n_added):
    path, ended, failures, answers = tmp_path / "c.duckdb", threading.Event(), [], []
    with Catalog.open(path) as catalog:
        for number in range(STARTED):
            catalog.record(outcome(number))
        committed, begun = [STARTED], [STARTED]

        def read(question):
            last = 0
            try:
                with catalog.reader() as reader:
                    while not ended.wait(0.2):
                        before = committed[0]
                        seen = question(reader)
                        assert max(before, last) <= seen <= begun[0]
                        last = seen
                        answers.append(question)
            except Exception as err:
                failures.append(err)

        threads = [threading.Thread(target=read, args=(q,)) for q in QUESTIONS * 2]
        for thread in threads:
            thread.start()
        for number in range(STARTED, STARTED + n_added):
            begun[0] = number + 1
            catalog.record(outcome(number))
            if number % 4 == 0:
                # what is written again is never missed
                catalog.record(outcome(number % STARTED, author="me"))
            committed[0] = number + 1
        ended.set()
        for thread in threads:
            thread.join()

        assert failures == []
        assert {q for q in QUESTIONS if answers.count(q) < 2} == set()
        assert [q(catalog) for q in QUESTIONS] == [STARTED + n_added] * 4


GUEST = """
import json, sys
from pathlib import Path
from deltadex.search import StoredQuery, evaluate, find_similar
from deltadex.store import Catalog
with Catalog.open(Path(sys.argv[1]), read_only=True) as catalog:
    print("ready", flush=True)
    while True:
        rows = catalog.models()
        found = find_similar(catalog, StoredQuery("m007"), k=1000).neighbours
        print(json.dumps([len(rows), 1 + len(found), evaluate(catalog)["models"]]), flush=True)
        if len(rows) == int(sys.argv[2]):
            break
"""


def test_readers_of_other_processes_see_every_model_once_it_is_written(tmp_path):
    path = tmp_path / "c.duckdb"
    with Catalog.open(path) as catalog:
        for number in range(STARTED):
            catalog.record(outcome(number))
        with python(GUEST, path, UNTIL) as one, python(GUEST, path, UNTIL) as two:
            for number in range(STARTED, UNTIL):
                catalog.record(outcome(number))
            said = [reader.communicate() for reader in (one, two)]

            assert [one.returncode, two.returncode] == [0, 0], said
    for out, _ in said:
        counted = list(itertools.chain(*map(json.loads, out.splitlines())))
        assert counted == sorted(counted)
        assert counted[-3:] == [UNTIL] * 3
