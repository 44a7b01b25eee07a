import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import indexed

from deltadex.errors import BadFilter
from deltadex.store import Catalog
from deltadex.store.tables.filters import _MOST_PARTS, COLUMNS, parse_filter

MODELS = [
    {"id": "a", "dataset": "imdb", "downloads": 5, "author": "x"},
    {"id": "b", "dataset": "ag_news", "downloads": None, "author": "y"},
    {"id": "c", "dataset": None, "downloads": 100, "author": "it's"},
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    with Catalog.open(tmp_path_factory.mktemp("f") / "c.duckdb") as opened:
        for model in MODELS:
            opened.record(indexed(**model))
        yield opened


REFUSED = {
    "": "",
    "dataset = imdb2": "",
    "downloads = 'many'": "",
    "dataset = 'a'; DELETE FROM models": "",
    "id NOT = 'a'": "",
    "colour = 'red'": "'colour' is not a column",
    "id = 'a' AND": "join tests",
    "id = 'a' (id = 'b')": "join tests",
    "(dataset = 'a'": "join tests",
    "id IN ('a'": "a test is a column",
    "id = 'a' ; id = 'b'": "cannot read \"; id = 'b'\"",
}


def test_everything_else_is_refused_by_name_with_what_was_not_understood():
    for text, named in REFUSED.items():
        with pytest.raises(BadFilter, match="--where") as refused:
            parse_filter(text)
        assert named in str(refused.value)


TESTS = st.sampled_from(
    [
        *("downloads < 100", "downloads >= 5", "downloads <> 5", "downloads <= 5.5e0"),
        *("dataset = 'imdb'", "dataset != 'imdb'", "dataset IS NULL", "dataset IS NOT NULL"),
        *("author > 'it''s'", "author LIKE '%t%'", "id NOT LIKE 'a'", "id NOT IN ('a', 'c')"),
    ]
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        inner.map(lambda text: f"NOT {text}"),
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, st.sampled_from(["AND", "or"]), inner).map(" ".join),
    ),
    max_leaves=6,
)


def test_names_and_ilike_have_no_case_and_a_quote_is_written_twice(catalog):
    found = catalog.models(where="DATASET ILIKE 'IM%' OR author = 'it''s'")

    assert [row.id for row in found] == ["a", "c"]
    assert catalog.models(where="dataset = 'x'' OR 1=1 --'") == []


@settings(deadline=None)
@given(CONDITIONS)
def test_a_condition_means_what_it_means_to_sqlite(catalog, text):
    with sqlite3.connect(":memory:") as other:
        other.execute("PRAGMA case_sensitive_like = ON")
        other.execute("CREATE TABLE models (id TEXT, dataset TEXT, downloads REAL, author TEXT)")
        for model in MODELS:
            other.execute("INSERT INTO models VALUES (:id, :dataset, :downloads, :author)", model)
        expected = [id for (id,) in other.execute(f"SELECT id FROM models WHERE {text}")]
    other.close()

    assert [row.id for row in catalog.models(where=text)] == sorted(expected)


@pytest.mark.parametrize("opening", ["(", "NOT ", "NOT ("])
def test_conditions_nest_to_a_limit(catalog, opening):
    def nested(n):
        return f"{opening * n}id = 'a'{')' * n * opening.count('(')}"

    assert len(catalog.models(where=nested(50))) == 1
    with pytest.raises(BadFilter, match=f"more than {_MOST_PARTS}"):
        parse_filter(nested(5_000))


KEYWORDS = "AND OR NOT IN LIKE IS NULL ( ) , = < 'a' 1 ; -- models '"
WORDS = st.sampled_from([*COLUMNS, *KEYWORDS.split()])


@given(st.text() | st.lists(WORDS).map(" ".join))
def test_no_text_does_anything_but_select(catalog, text):
    try:
        rows = catalog.models(where=text)
    except BadFilter:
        rows = []

    assert {row.id for row in rows} <= {"a", "b", "c"}
    assert len(catalog.models()) == 3
