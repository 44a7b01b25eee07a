"""`deltadex sql`: the catalog's tables, and nothing else."""

import csv
import io
import resource
import shutil
import sys
import time

import pytest
from catalogs import refused, write
from processes import holding
from running import document, run

from deltadex.errors import BadQuery
from deltadex.questions.sql import Select

SECRET = "a-secret-of-this-machine"

REFUSED = [
    "DELETE FROM models",
    "DROP TABLE models",
    "CREATE TABLE t AS SELECT 1",
    "SELECT 1; DROP TABLE models",
    "SELECT nextval('model_' || 'keys')",
    "COPY models TO 'FOLDER/out.csv'",
    "EXPORT DATABASE 'FOLDER/out'",
    "ATTACH 'FOLDER/out.duckdb' AS other",
    "SET enable_external_access = true",
    "LOAD httpfs",
    "SELECT * FROM 'FOLDER/secret.csv'",
    'SELECT * FROM "FOLDER/secret.csv"',
    'SELECT * FROM "secret.csv"',
    "SELECT * FROM read_text('FOLDER/secret.csv')",
    "SELECT * FROM glob('FOLDER/*')",
    "SELECT (SELECT content FROM read_text('FOLDER/secret.csv'))",
    "SELECT * FROM models, LATERAL (SELECT * FROM read_text('FOLDER/secret.csv'))",
    "SELECT * FROM query('SELECT content FROM read_text(''FOLDER/secret.csv'')')",
    "SELECT * FROM query_table('FOLDER/secret.csv')",
    "DESCRIBE SELECT * FROM read_csv('FOLDER/secret.csv')",
    "EXPLAIN ANALYZE SELECT * FROM read_csv('FOLDER/secret.csv')",
    "FROM sniff_csv('FOLDER/secret.csv')",
    "SELECT * FROM 'https://example.org/x.csv'",
    "SELECT getenv('HOME')",
    "SELECT * FROM duckdb_secrets()",
    "PRAGMA database_list",
    "SELEKT 1",
    "",
]


ANSWERED = [
    "FROM failures ORDER BY ALL",
    'SELECT f.model, m.dataset FROM "FAILURES" f JOIN Models m ON m.id = f.model ORDER BY ALL',
    "WITH a AS (FROM coverage) SELECT count(*) AS n FROM a",
    "SHOW TABLES",
    "SELECT * FROM range(3)",
    "SUMMARIZE models",
    "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1",
]
"""Statements over tables and views, some named in a subquery or with other letters."""


def write_catalog(folder):
    (folder / "secret.csv").write_text(f"word\n{SECRET}\n")
    return write(folder / "c.duckdb", refused("a\x1b[31m"), refused("b", dataset="x,y"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_catalog(tmp_path_factory.mktemp("sql"))


@pytest.fixture
def db(written, tmp_path):
    for path in written.parent.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path / "c.duckdb"


@pytest.fixture(scope="module", params=["free", "held"])
def catalog_file(request, tmp_path_factory):
    """The file, also while another process holds it and lets others in."""
    db = write_catalog(tmp_path_factory.mktemp(request.param))
    if request.param == "free":
        yield db
        return
    with holding(db, 0) as holder:
        yield db
        assert holder.communicate("end\n", timeout=30)[0] == "gone\n"


def test_a_select_is_a_table_a_document_or_csv(catalog_file):
    query = "SELECT id AS model, dataset, key, [1, 2] AS pair, NULL AS no FROM models ORDER BY id"

    shown = run(catalog_file, "sql", query)
    answer = document(catalog_file, "sql", query)
    table = list(csv.reader(io.StringIO(run(catalog_file, "sql", query, "--csv").stdout)))

    heads, first, *_ = shown.stdout.splitlines()
    assert heads.split() == ["model", "dataset", "key", "pair", "no"]
    assert first.endswith("[1, 2]  NULL")
    assert "\x1b" not in shown.stdout
    assert answer["columns"] == ["model", "dataset", "key", "pair", "no"]
    assert answer["rows"][1] == {
        "model": "b",
        "dataset": "x,y",
        "key": 2,
        "pair": [1, 2],
        "no": None,
    }
    assert table[2] == ["b", "x,y", "2", "[1, 2]", ""]
    odd = "SELECT 'NaN'::DOUBLE AS x, 1.5::DECIMAL(4, 2) AS y, '\\x00\\xFF'::BLOB AS z, now() AS t"
    assert list(document(catalog_file, "sql", odd)["rows"][0]) == list("xyzt")


def slowly(*statements):
    return [pytest.param(statement, marks=pytest.mark.slow) for statement in statements]


@pytest.mark.parametrize("statement", REFUSED)
def test_nothing_but_a_select_of_the_catalog_runs(db, statement):
    before = db.read_bytes()

    result = run(db, "sql", statement.replace("FOLDER", str(db.parent)))

    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") <= 4
    assert "Traceback" not in result.output
    assert SECRET not in result.output
    assert db.read_bytes() == before
    assert sorted(p.name for p in db.parent.iterdir()) == ["c.duckdb", "secret.csv"]


def test_equal_names_of_columns_are_kept_apart(db):
    answer = document(db, "sql", "SELECT m.id, n.id FROM models m JOIN models n USING (key)")

    assert len(set(answer["columns"])) == 2


def test_a_statement_comes_from_standard_input(db):
    result = run(db, "sql", "-", "--csv", input="SELECT 7 AS seven")

    assert result.stdout == "seven\n7\n"


def test_what_others_may_ask_has_limits(db):
    many = "SELECT count(*) FROM range(1000000000000) a, range(1000000)"
    large = "SELECT repeat('x', 20000000)"
    for statement, seconds, says in (
        (many, 0.2, "stopped after 0.2 s"),
        (large, 60.0, "16 MiB"),
        ("FROM range(6)", 60.0, "more than 5 rows"),
    ):
        with pytest.raises(BadQuery, match=says):
            Select(statement).of(db, seconds=seconds, rows=5)
    for statement in ("FROM range(5) -- comment", "FROM range(5);", "FROM (VALUES (1)) ORDER BY 1"):
        assert Select(statement).of(db, seconds=60.0, rows=5)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT length(repeat(id[1], 2000000000)) FROM models",
        "SELECT levenshtein(repeat('ab', 100000), repeat('ba', 100000))",
        *slowly(
            "SELECT list_sum(range(400000000))",
            "WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM t) "
            "SELECT max(s) FROM t",
        ),
    ],
)
def test_limits_of_time_and_memory_hold_inside_one_expression(catalog_file, statement):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()

    with pytest.raises(BadQuery, match=r"not enough memory|stopped after|than 5 rows"):
        Select(statement).of(catalog_file, seconds=2.0, rows=5)

    # a process is started, and tables are copied
    assert time.monotonic() - started < 60.0
    for whose, limit in (("SELF", before + (200 << 10)), ("CHILDREN", 3 << 19)):
        usage = resource.getrusage(getattr(resource, f"RUSAGE_{whose}"))
        assert usage.ru_maxrss < max(limit, before + (200 << 10))
    assert [path.name for path in catalog_file.parent.glob("*tmp*")] == []


@pytest.mark.parametrize("statement", [*ANSWERED[:2], *slowly(*ANSWERED[2:])])
def test_what_others_ask_is_answered_as_the_owner_is(catalog_file, statement):
    own = Select(statement).of(catalog_file).to_json()

    assert Select(statement).of(catalog_file, seconds=60.0, rows=1000).to_json() == own


@pytest.mark.parametrize("value", ["'infinity'::timestamp", "'-infinity'::date"])
def test_a_value_that_has_no_other_form_is_to_be_cast(catalog_file, value):
    with pytest.raises(BadQuery, match="cast to VARCHAR"):
        Select(f"SELECT {value}").of(catalog_file)


def test_an_interval_is_its_months_days_and_nanoseconds(catalog_file):
    answer = Select("SELECT INTERVAL 1 DAY AS i").of(catalog_file, seconds=60.0, rows=9)

    assert answer.to_json()["rows"][0]["i"] == [0, 1, 0]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="JSON is read as deep as DuckDB nests")
def test_a_statement_that_is_nested_too_deeply_is_refused(db):
    nested = "CASE WHEN true THEN " * 400 + "1" + " END" * 400

    with pytest.raises(BadQuery, match="nested too deeply"):
        Select(f"SELECT {nested}").of(db)
