"""Names that are shown lead back to what they mean, and hold no folder's place."""

from pathlib import Path

import pytest
from catalogs import make_catalog, make_indexed
from hypothesis import given
from hypothesis import strategies as st
from listening import listening
from services import API, served

import deltadex as dx
from deltadex.errors import RequestError
from deltadex.service.api.catalog import Names

PARTS = st.text(alphabet="abc", min_size=1, max_size=2)
FOLDERS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
HUB_IDS = st.lists(PARTS, min_size=1, max_size=2).map("/".join)


def names(*bases):
    return Names(bases, Path("/data/c.duckdb"))


@given(st.lists(st.one_of(FOLDERS, HUB_IDS), unique=True, max_size=8))
def test_every_base_is_told_by_its_shown_name(bases):
    shown = names(*bases)

    assert [shown.meant(shown.shown(base)) for base in bases] == bases
    assert len(set(shown.bases)) == len(bases)


def test_a_folder_is_shown_by_as_few_parts_as_tell_it():
    shown = names("/x/one/base", "/y/two/base", "/y/gpt2", "google/base")

    assert shown.bases == ["google/base", "gpt2", "one/base", "two/base"]


def test_a_path_is_refused_with_the_bases_there_are():
    with pytest.raises(RequestError, match="near: base"):
        names("/secret/base").meant("/secret/base2")
    assert names("/secret/base").meant("bert") == "bert"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/c.duckdb: no models", "c.duckdb: no models"),
        ("/srv/m/run/model.safetensors: short", "model.safetensors: short"),
        ("see https://hf.co/a/b", "see https://hf.co/a/b"),
        ("google/bert and a/b/c", "google/bert and a/b/c"),
        ("ratio 1/2, and/or", "ratio 1/2, and/or"),
        ("cannot read '/srv/me/x y'", "cannot read 'x y'"),
        ("base ~/nets/base", "base base"),
        (r"at C:\nets\base", "at base"),
    ],
)
def test_a_sentence_keeps_the_last_part_of_a_path(text, shown):
    assert names("/srv/m").redact(text) == shown


def test_what_stands_in_a_detail_is_shown_and_not_obeyed(shared_db):
    with served(shared_db) as client:
        for sent in (
            "similar?model=x%1B[31m%07",
            "clusters?base=%C2%9B2J",
            "models?where=%E2%80%AE",
        ):
            detail = client.get(f"{API}/{sent}").json()["detail"]
            assert detail.isprintable()


def test_a_text_is_asked_of_a_base_by_its_shown_name(tmp_path):
    base = "/secret/nets/base"
    models = [make_indexed(f"m{i}", [1, 0, 0, i], base=base) for i in range(3)]
    make_catalog(tmp_path / "c.duckdb", *models).close()
    with served(tmp_path / "c.duckdb") as client:
        found = client.get(f"{API}/search?text=bank&base=base")

    assert found.status_code == 200
    assert [left["base"] for left in found.json()["left_out"]] == ["base"]
    assert "/secret" not in found.text


def test_a_last_slash_that_is_escaped_is_a_part_of_an_id(tmp_path):
    ids = ("x", "x/trace", "trace", "a%2Fb", "c\x01d")
    make_catalog(
        tmp_path / "c.duckdb", *(make_indexed(id, [1, 0, 0, i]) for i, id in enumerate(ids))
    ).close()
    with listening(tmp_path / "c.duckdb") as url, dx.connect(url) as db:
        assert [db.show(id).to_json()["model"] for id in ids[:-1]] == list(ids[:-1])
        assert [db.trace(id, offline=True).to_json()["model"] for id in ids[:2]] == list(ids[:2])
        for ask in (db.show, db.find_similar):
            with pytest.raises(RequestError, match=r"^model: .* a control character .* here$"):
                ask("c\x01d")
