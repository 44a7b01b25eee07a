"""Several processes and threads on one catalog, at once and for real."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from factories import make_family
from merges import contents
from outcomes import indexed
from processes import process, said

from deltadex.cli import main
from deltadex.store import Catalog, holding

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
        wanted = ("index", base, lists[number], "--labels", labels, "--json", "--db", db)
        return [str(argument) for argument in wanted]

    def command(number, db):
        return f"""
        import deltadex.indexer, deltadex.questions.terminal
        from deltadex.cli import main
        print("ready", flush=True)
        sys.stdin.readline()
        main({arguments(number, db)!r})
        """

    at_once, in_turn = tmp_path / "at-once.duckdb", tmp_path / "in-turn.duckdb"
    with (
        process(at_once, command(0, at_once)) as one,
        process(at_once, command(1, at_once)) as two,
    ):
        assert said(one) == said(two) == "ready"
        for running in (one, two):
            running.stdin.write("go\n")
            running.stdin.flush()
        documents = [json.loads(running.communicate()[0]) for running in (one, two)]
        assert [one.returncode, two.returncode] == [0, 0]
    for number in (0, 1):
        assert CliRunner().invoke(main, arguments(number, in_turn)).exit_code == 0

    assert [document["failed"] for document in documents] == [[], []]
    found, expected = (
        contents(path, "key, seconds, bytes_read, indexed_at") for path in (at_once, in_turn)
    )
    [[recipe, *_]] = found["recipes"]
    assert found == expected
    assert len(found["models"]) == len(found[recipe]) == len(names)
    assert found["orphans"] == []


# a process that gives the file up to nobody, and one of another user


def test_a_command_says_which_process_it_has_waited_for(path, monkeypatch):
    with Catalog.open(path) as catalog:
        catalog.record(model(0))
    monkeypatch.setattr(holding, "PATIENCE_S", 0.3)
    code = """
    import duckdb
    connection = duckdb.connect(str(path), read_only=True)
    print("ready", flush=True)
    sys.stdin.readline()
    """
    with process(path, code) as reader:
        assert said(reader) == "ready"
        refused = CliRunner().invoke(main, ["rm", "m000", "--db", str(path)])

        assert refused.exit_code == 3
        assert f"process {reader.pid} " in refused.stderr.splitlines()[-1]
        assert CliRunner().invoke(main, ["ls", "--db", str(path)]).exit_code == 0
    assert CliRunner().invoke(main, ["rm", "m000", "--db", str(path)]).exit_code == 0


def test_a_writer_does_not_wait_for_the_end_of_another_users_process_that_reads():
    if os.getuid() != 0:
        pytest.skip("only root becomes another user")
    code = """
    import os
    os.setuid(65534)
    with Catalog.open(path, read_only=True) as catalog:
        print(len(catalog.models()), flush=True)
        sys.stdin.readline()
        print(len(catalog.models()), flush=True)
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "c.duckdb"
        with Catalog.open(path) as catalog:
            catalog.record(model(0))
        path.chmod(0o644)
        with process(path, code) as reader:
            assert said(reader) == "1"
            with Catalog.open(path) as catalog:
                catalog.record(model(1))
            assert reader.communicate("again\n")[0].strip() == "2"


# many readers


def model(number, **known):
    """One of five datasets, the same for the same number."""
    return indexed(f"m{number:03}", seed=number, dataset=f"d{number % 5}", **known)
