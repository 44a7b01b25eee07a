import os
import socket
import stat
import threading
import time

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcomes import RECIPE, indexed
from processes import holding, kill, process, said

from deltadex.errors import HolderLost, OtherSchema, StoreLocked
from deltadex.search import StoredQuery, find_similar
from deltadex.store import Catalog, ModelFilter, Page, opening
from deltadex.store import session as sessions
from deltadex.store.remote import Host, RemoteSession, join
from deltadex.store.sharing import (
    HolderFile,
    Ledger,
    LocalSession,
    holder_path,
    read_holder,
    write_holder,
)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(sessions, "PATIENCE_S", 0.3)


@pytest.fixture
def held(path):
    """A session on a file that this process holds, and one let in through the door."""
    connection = duckdb.connect(":memory:")
    connection.execute(f"ATTACH '{path}' AS catalog")
    connection.execute("USE catalog")
    own = LocalSession(connection, Ledger())
    host = Host(path, own)
    guest = join(path)
    yield own, guest
    guest.close()
    host.close()
    own.close()


def _ids(catalog):
    return [row.id for row in catalog.models()]


# Two processes


@pytest.mark.parametrize("read_only", [True, False])
def test_a_catalog_is_read_while_another_process_writes(path, read_only):
    with holding(path, 3), Catalog.open(path, read_only=read_only) as catalog:
        assert _ids(catalog) == ["held000", "held001", "held002"]


def test_what_a_guest_writes_is_seen_by_the_holder_and_stays(path):
    code = """
    with Catalog.open(path) as catalog:
        print("holding", flush=True)
        sys.stdin.readline()
        print(" ".join(row.id for row in catalog.models()), flush=True)
        sys.stdin.readline()
    """
    with process(path, code) as holder:
        said(holder)
        with Catalog.open(path) as catalog:
            catalog.record(indexed("guest", seed=5))
            catalog.record(indexed("guest", seed=6))
            holder.stdin.write("tell\n")
            holder.stdin.flush()
            assert said(holder) == "guest"
        holder.communicate("end\n")

    with Catalog.open(path, read_only=True) as catalog:
        assert _ids(catalog) == ["guest"]
        assert len(catalog.slots(catalog.model("guest", "base").key)) == len(indexed("guest").slots)


@pytest.mark.slow
def test_several_writers_at_once_leave_every_model_once(path):
    code = """
    with Catalog.open(path) as catalog:
        for number in range(40):
            catalog.record(indexed(f"m{number:03}", seed=number))
    print("done", flush=True)
    """
    with process(path, code) as one, process(path, code) as two, process(path, code) as three:
        assert [said(p) for p in (one, two, three)] == ["done"] * 3

    with Catalog.open(path, read_only=True) as catalog:
        assert _ids(catalog) == [f"m{number:03}" for number in range(40)]
        assert catalog.family("base", catalog.find_recipe(None)).by_id()[1].shape[0] == 40


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_guest_goes_on_when_the_holder_ends_or_is_killed(path, is_killed):
    with holding(path, 2) as holder, Catalog.open(path) as catalog, catalog.reader() as reader:
        before = catalog.changes
        assert len(_ids(catalog)) == 2
        kill(holder) if is_killed else holder.communicate("end\n")

        catalog.record(indexed("later"))

        assert _ids(reader) == _ids(catalog) == ["held000", "held001", "later"]
        assert read_holder(path).pid == os.getpid()
        assert catalog.changes != before


def test_a_change_is_made_again_when_the_holder_dies_in_the_middle_of_it(path, monkeypatch):
    with holding(path, 1) as holder, Catalog.open(path) as catalog:
        commits = []
        commit = RemoteSession.commit

        def dying(self):
            commits.append(self)
            kill(holder)
            commit(self)

        monkeypatch.setattr(RemoteSession, "commit", dying)

        catalog.record(indexed("mine"))

        assert len(commits) == 1
        assert _ids(catalog) == ["held000", "mine"]


def _die(holder):
    """End a holder as a kill would: its guests get no more answers."""
    for link, _ in list(holder.access._host._guests.values()):
        link._socket.shutdown(socket.SHUT_RDWR)
    holder.close()


QUESTIONS = {
    "find-similar": lambda catalog: find_similar(catalog, StoredQuery("a1"), k=3).to_json(),
    "family": lambda catalog: list(catalog.family("base", RECIPE).ids),
    "stats": lambda catalog: catalog.stats()["bases"],
    "show": lambda catalog: catalog.describe("a1"),
    "a page": lambda catalog: catalog.page_of_models(ModelFilter(), Page()),
}


@pytest.mark.parametrize(
    "question",
    [pytest.param(q, marks=[pytest.mark.slow] * (q != "find-similar")) for q in QUESTIONS],
)
def test_a_question_is_answered_whenever_the_holder_dies(path, monkeypatch, question):
    ask, request = QUESTIONS[question], RemoteSession._request
    with Catalog.open(path) as catalog:
        for number in range(4):
            catalog.record(indexed(f"a{number}", seed=number))
        expected = ask(catalog)

    n_deaths, is_dead = 0, True
    while is_dead:
        holder, n_requests, is_dead = Catalog.open(path), 0, False

        def counted(session, *asked, holder=holder, dies_at=n_deaths + 1):
            nonlocal n_requests, is_dead
            n_requests += 1
            if n_requests == dies_at:
                is_dead = True
                _die(holder)
            return request(session, *asked)

        with Catalog.open(path, read_only=True) as catalog:
            monkeypatch.setattr(RemoteSession, "_request", counted)
            assert ask(catalog) == expected
            monkeypatch.undo()
        n_deaths += is_dead
    holder.close()

    assert n_deaths >= 2


def test_a_snapshot_of_several_questions_is_lost_with_its_holder(path):
    with holding(path, 3) as holder, Catalog.open(path, read_only=True) as catalog:
        with catalog.snapshot():
            assert len(catalog.models()) == 3
            kill(holder)
            with pytest.raises(HolderLost):
                catalog.models()

        assert len(catalog.models()) == 3


def test_a_holder_that_dies_while_one_enters_is_succeeded(path, monkeypatch):
    check = opening.has_schema
    with holding(path, 3) as holder:

        def after_a_death(*asked):
            kill(holder)
            return check(*asked)

        monkeypatch.setattr(opening, "has_schema", after_a_death)

        with Catalog.open(path) as catalog:
            assert len(_ids(catalog)) == 3
            assert read_holder(path).pid == os.getpid()


def test_a_killed_guest_leaves_nothing_half_done(path):
    code = """
    catalog = Catalog.open(path)
    session = catalog._session
    session._session.begin()
    session._session.execute("DELETE FROM models")
    print("begun", flush=True)
    sys.stdin.readline()
    """
    with Catalog.open(path) as catalog:
        catalog.record(indexed("a"))
        with process(path, code) as guest:
            assert said(guest) == "begun"
            kill(guest)

        catalog.record(indexed("b"))

        assert _ids(catalog) == ["a", "b"]


def test_an_ending_holder_waits_for_what_a_guest_is_writing(path):
    catalog = Catalog.open(path)
    code = """
    catalog = Catalog.open(path)
    def slow(session):
        session.execute("INSERT INTO families (base, slots) VALUES ('slow', '{}')")
        print("begun", flush=True)
        time.sleep(1.0)
    catalog._session.write(slow)
    print("written", flush=True)
    catalog.close()
    """
    with process(path, code) as guest:
        assert said(guest) == "begun"

        catalog.close()

        assert said(guest) == "written"
    with Catalog.open(path) as catalog:
        assert catalog.bases() == ["slow"]


def test_a_writer_waits_for_a_reading_process(path):
    with Catalog.open(path) as catalog:
        catalog.record(indexed("a"))
    code = """
    with Catalog.open(path, read_only=True) as catalog:
        print("reading", flush=True)
        time.sleep(1.0)
    """
    with process(path, code) as reader:
        said(reader)
        with Catalog.open(path) as catalog:
            catalog.record(indexed("b"))

            assert reader.wait() == 0


def test_a_file_that_nobody_shares_names_its_holder(path, impatient):
    with Catalog.open(path) as catalog:
        catalog.record(indexed("a"))
    code = """
    import duckdb
    connection = duckdb.connect(str(path))
    print("holding", flush=True)
    time.sleep(30)
    """
    with process(path, code) as holder:
        said(holder)

        with pytest.raises(StoreLocked, match=f"process {holder.pid}"):
            Catalog.open(path)


# Threads of one process


@pytest.mark.slow
def test_readers_answer_while_a_thread_writes(path):
    with Catalog.open(path) as catalog:
        for number in range(20):
            catalog.record(indexed(f"m{number:03}", seed=number))
        asked, failures = [], []

        def ask():
            try:
                with catalog.reader() as reader:
                    while not ended.is_set():
                        found = find_similar(reader, StoredQuery("m003"), k=5)
                        asked.append(len(found.neighbours))
            except Exception as err:
                failures.append(err)

        ended = threading.Event()
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(20, 60):
            catalog.record(indexed(f"m{number:03}", seed=number))
        ended.set()
        for thread in threads:
            thread.join()

        assert not failures
        assert set(asked) == {5}
        last = {n.model for n in find_similar(catalog, StoredQuery("m003"), k=100).neighbours}
        assert last == set(_ids(catalog)) - {"m003"}


def test_a_reader_that_does_not_wait_sees_the_last_snapshot_that_was_caught_up(path):
    with Catalog.open(path) as catalog, catalog.reader(waits_for_index=False) as reader:
        for number in range(3):
            catalog.record(indexed(f"m{number}", seed=number))

        def found(by):
            return {n.model for n in find_similar(by, StoredQuery("m0"), k=9).neighbours}

        assert found(reader) == {"m1", "m2"}
        catalog.record(indexed("m3", seed=3))
        assert found(reader) == {"m1", "m2"}
        assert found(catalog) == {"m1", "m2", "m3"}
        assert found(reader) == {"m1", "m2", "m3"}


# The door


def test_the_note_is_for_its_owner_alone_and_goes_with_the_holder(path):
    with Catalog.open(path):
        assert stat.S_IMODE(holder_path(path).stat().st_mode) == 0o600
    assert not holder_path(path).exists()


def test_nobody_is_let_in_without_the_key(path, held):
    note = read_holder(path)
    forged = HolderFile(pid=note.pid, machine=note.machine, port=note.port, key=b"0" * 32)

    with pytest.raises(OSError):  # noqa: PT011
        RemoteSession(forged)


@pytest.mark.slow
def test_a_stranger_at_the_port_is_not_taken_for_the_holder(path):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        note = HolderFile(
            pid=1, machine=socket.gethostname(), port=stranger.getsockname()[1], key=b"1" * 32
        )
        write_holder(path, note)

        def pretend():
            link, _ = stranger.accept()
            with link:
                link.recv(32)
                link.sendall(bytes(64))

        thread = threading.Thread(target=pretend)
        thread.start()
        assert join(path) is None
        thread.join()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 200])
def test_a_rude_visitor_keeps_nobody_else_out(path, held, sent):
    with socket.create_connection(("127.0.0.1", read_holder(path).port)) as rude:
        rude.sendall(sent)
        guest = join(path)

        assert guest.execute("SELECT 1") == [(1,)]
        guest.close()


def test_a_note_of_a_process_that_is_gone_is_passed_over(path):
    write_holder(path, HolderFile(pid=1, machine=socket.gethostname(), port=1, key=b"k" * 32))

    with Catalog.open(path) as catalog:
        catalog.record(indexed("a"))

        assert _ids(catalog) == ["a"]


def test_a_folder_that_refuses_the_note_keeps_the_catalog_usable(path):
    Catalog.open(path).close()
    path = path.rename(path.with_name("c" * 250))  # with `.wal` a name, with `.holder` too long

    with Catalog.open(path) as catalog:
        catalog.record(indexed("a"))

        assert _ids(catalog) == ["a"]


def test_a_catalog_of_another_version_is_refused_through_its_holder_too(path):
    with Catalog.open(path) as catalog:
        catalog._session.execute("UPDATE meta SET schema_version = 99")

        with pytest.raises(OtherSchema):
            Catalog.open(path)


# What is said


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(max_size=50),
    st.lists(st.integers(-(2**31), 2**31), max_size=20),
    st.lists(st.text(max_size=5), max_size=5),
)


def test_values_come_back_as_the_holder_itself_gets_them(held):
    own, guest = held

    @given(st.lists(VALUES, min_size=1, max_size=6))
    def same(values):
        sql = "SELECT " + ", ".join("?" for _ in values)
        assert guest.execute(sql, values) == own.execute(sql, values)

    same()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(x), avg(x), count(*), max(x) FROM range(10) r(x)",
        "SELECT 170141183460469231731687303715884105727::HUGEINT",
        "SELECT [1.5, 2.5]::FLOAT[], ['a', NULL], {'a': 1}",
        "SELECT TIMESTAMP '2026-01-02 03:04:05', NULL, 'x'::BLOB",
        "SELECT x, x FROM range(3) r(x)",
        "SELECT 1 WHERE false",
    ],
)
def test_every_kind_of_column_comes_back_as_it_is(held, sql):
    own, guest = held

    assert guest.execute(sql) == own.execute(sql)


def test_a_refused_statement_is_the_same_error_for_a_guest_and_a_large_table_goes_through(held):
    _, guest = held

    with pytest.raises(duckdb.CatalogException, match="no_such_table"):
        guest.execute("SELECT * FROM no_such_table")
    table = guest.arrow("SELECT range AS key, random() AS value FROM range(300000)")
    guest.register("copied", table)
    assert guest.execute("SELECT count(*), sum(key) FROM copied")[0][0] == 300_000
    assert np.isfinite(table.column("value").to_numpy()).all()


def test_one_writer_at_a_time(held):
    own, guest = held
    other = own.session()
    guest.begin()
    order = []

    def second():
        other.begin()
        order.append("second")
        other.commit()

    thread = threading.Thread(target=second)
    thread.start()
    time.sleep(0.1)
    order.append("first")
    guest.commit()
    thread.join()
    other.close()

    assert order == ["first", "second"]
