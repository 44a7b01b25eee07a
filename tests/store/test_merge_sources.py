import hashlib
import shutil

import duckdb
import pytest
from merges import contents, counts, merge, write
from outcomes import RECIPE, indexed
from processes import HOLDER, process, said

from deltadex.errors import (
    EmptyCatalog,
    ForeignDatabase,
    NewerSchema,
    OlderSchema,
    RequestError,
    StoreDamaged,
    StoreError,
)
from deltadex.store import Catalog, merge_catalogs
from deltadex.store.remote import RemoteSession

# other processes


def test_a_source_is_not_changed_and_may_be_read_only(a, b):
    write(b, indexed("x", seed=1))
    b.chmod(0o400)
    before = hashlib.sha256(b.read_bytes()).hexdigest()

    merge(a, b)

    assert hashlib.sha256(b.read_bytes()).hexdigest() == before
    assert {p.name for p in a.parent.iterdir()} == {a.name, b.name}


def test_source_and_target_may_be_held_by_others(a, b):
    write(a, indexed("mine", seed=90))
    with process(a, HOLDER.format(n=2)) as one, process(b, HOLDER.format(n=5)) as two:
        assert [said(one), said(two)] == ["holding"] * 2

        document = merge(a, b)

        assert counts(document) == [3, 0, 2, 0]
        one.communicate("end\n")
        two.communicate("end\n")
    with Catalog.open(a) as catalog:
        assert len(catalog.family("base", RECIPE).by_id()[0]) == 6


def test_a_batch_is_made_again_when_the_targets_holder_dies(a, b, monkeypatch):
    write(b, indexed("x", seed=1), indexed("y", seed=2))
    with process(a, HOLDER.format(n=1)) as holder:
        said(holder)
        commit = RemoteSession.commit

        def dying(self):
            monkeypatch.undo()
            holder.kill()
            holder.wait()
            commit(self)

        with Catalog.open(a) as catalog:
            monkeypatch.setattr(RemoteSession, "commit", dying)

            document = merge_catalogs(catalog, [b]).to_json()

    assert counts(document) == [2, 0, 0, 0]
    with Catalog.open(a) as catalog:
        assert [row.id for row in catalog.models()] == ["held000", "x", "y"]


def test_a_killed_merge_leaves_whole_models_and_goes_on(a, b):
    write(b, *(indexed(f"m{number:03}", seed=number) for number in range(40)))
    code = f"""
    from deltadex.store.care import merging as merge
    merge.AT_ONCE = 1
    def slowly(batches):
        for number, batch in enumerate(batches):
            if number == 17:
                print("there", flush=True)
            time.sleep(0.01)
            yield batch
    with Catalog.open(path) as catalog:
        merge.merge_catalogs(catalog, [Path({str(b)!r})], tracked=slowly)
    """
    with process(a, code) as merging:
        assert said(merging) == "there"
        merging.kill()
        merging.wait()
    with Catalog.open(a) as catalog:
        there = [row.id for row in catalog.models()]
        assert 17 <= len(there) < 40
        assert catalog.family("base", RECIPE).by_id()[0] == there
        assert all(len(catalog.slots(catalog.model(id, "base").key)) == 2 for id in there)

    document = merge(a, b)

    assert document["added"] == 40 - len(there)
    assert contents(a) == contents(b)


# what is refused


def test_a_catalog_is_not_merged_into_itself(a, b):
    write(a, indexed("x"))
    b.hardlink_to(a)

    with pytest.raises(RequestError, match="the target itself"):
        merge(a, b)


def test_nothing_is_merged_when_one_source_is_missing(a, b, tmp_path):
    write(b, indexed("x"))

    with pytest.raises(EmptyCatalog, match="none"):
        merge(a, b, tmp_path / "none")
    with Catalog.open(a) as catalog:
        assert catalog.models() == []


@pytest.mark.parametrize(
    ("version", "kind", "says"),
    [(2, OlderSchema, "`deltadex doctor` brings"), (99, NewerSchema, "upgrade")],
)
def test_a_source_of_another_version_is_refused_by_name(a, b, version, kind, says):
    write(b, indexed("x"))
    with duckdb.connect(str(b)) as connection:
        connection.execute("UPDATE meta SET schema_version = ?", [version])

    with pytest.raises(kind, match=rf"b\.duckdb.*{says}"):
        merge(a, b)


def test_a_file_of_another_program_is_refused(a, b):
    with duckdb.connect(str(b)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")

    with pytest.raises(ForeignDatabase, match=r"b\.duckdb"):
        merge(a, b)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE recipes SET id = 'x'' FROM models; DROP TABLE models; --'",
        "UPDATE recipes SET vectors = 'models'",
        "UPDATE recipes SET name = 'it''s'",
        "UPDATE slots SET role = 'sideways'",
        "UPDATE models SET status = 'failed', code = 'of a later version'",
        "UPDATE models SET status = 'failed'",
        "ALTER TABLE slots ALTER sketch TYPE VARCHAR USING hex(sketch)",
        "ALTER TABLE slots DROP COLUMN zero_share",
        "DROP TABLE linear_sketches",
    ],
)
def test_words_that_no_deltadex_wrote_are_refused(a, b, sql):
    write(b, indexed("x"))
    with duckdb.connect(str(b)) as connection:
        connection.execute(sql)

    with pytest.raises(StoreDamaged, match=r"b\.duckdb"):
        merge(a, b)
    with Catalog.open(a) as catalog:
        assert catalog.models() == []


def test_vectors_that_are_not_of_unit_length_are_left_out(a, b):
    write(b, *(indexed(id) for id in "xyz"))
    with duckdb.connect(str(b)) as connection:
        (table,) = connection.execute("SELECT vectors FROM recipes").fetchone()
        for key, value in enumerate(["2.0", "'nan'::FLOAT", "0.0"], start=1):
            vector = f"[{', '.join([value] * 8)}]::FLOAT[8]"
            connection.execute(f"UPDATE {table} SET vector = {vector} WHERE model = {key}")

    assert merge(a, b)["damaged"] == [
        f"{b}: model {id} is not what `deltadex index` writes (length); index it again"
        for id in "xyz"
    ]
    with Catalog.open(a) as catalog:
        assert catalog.models() == []


@pytest.mark.slow
def test_a_source_damaged_in_the_middle_is_the_one_that_is_named(a, b):
    write(b, *(indexed(f"m{n:03}", seed=n, notes=("x" * 500,)) for n in range(300)))
    whole = b.read_bytes()
    b.write_bytes(whole[:20480] + bytes(len(whole) - 20480))
    shutil.copy(b, b.with_name("copy.duckdb"))

    with pytest.raises(StoreError, match=r"b\.duckdb"):
        merge(a, b)
