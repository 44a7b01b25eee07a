import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcomes import indexed

from deltadex.errors import BadFilter
from deltadex.store import Catalog
from deltadex.store.tables.filters import COLUMNS, parse_filter

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dataset = 'imdb'", "a"),
        ("DATASET IS NULL", "c"),
        ("dataset is not null and downloads is null", "b"),
        ("downloads >= 5", "ac"),
        ("downloads < 1e2 OR author = 'it''s'", "ac"),
        ("NOT (dataset LIKE 'im%')", "b"),
        ("dataset ILIKE 'IM%'", "a"),
        ("id NOT IN ('a', 'b')", "c"),
        ("id IN ('a','c') AND NOT id = 'a'", "c"),
        ("status <> 'indexed'", ""),
        ("dataset = 'x'' OR 1=1 --'", ""),
    ],
)
def test_filters_mean_what_they_say(catalog, text, expected):
    assert "".join(row.id for row in catalog.models(where=text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "drop table models",
        "dataset",
        "dataset =",
        "key = 1",
        "dataset = imdb",
        "downloads = 'many'",
        "dataset = 'a'; DELETE FROM models",
        "(dataset = 'a'",
        "dataset = 'a' dataset = 'b'",
        "id IN ()",
        "(" * 80 + "id = 'a'" + ")" * 80,
    ],
)
def test_everything_else_is_refused_by_name(text):
    with pytest.raises(BadFilter, match="--where"):
        parse_filter(text)


WORDS = st.sampled_from(
    [
        *COLUMNS,
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "IS",
        "NULL",
        "(",
        ")",
        ",",
        "=",
        "<",
        "'a'",
        "1",
        ";",
        "--",
        "models",
        "'",
    ]
)


@given(st.text() | st.lists(WORDS).map(" ".join))
def test_no_text_does_anything_but_select(catalog, text):
    try:
        rows = catalog.models(where=text)
    except BadFilter:
        rows = []

    assert {row.id for row in rows} <= {"a", "b", "c"}
    assert len(catalog.models()) == 3


def test_model_is_another_name_of_id():
    assert parse_filter("model = 'a'") == parse_filter("id = 'a'")
