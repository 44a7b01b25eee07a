"""Answers are those of the command line, and hold nothing of the machine."""

import pytest
from services import API, settled


def get(reader, path, **params):
    answer = settled(reader, f"{API}/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_pages_filters_and_orders(reader):
    assert get(reader, "models", limit=2)["total"] == 5
    names = [m["model"] for m in get(reader, "models", order="desc")["models"]]
    assert names == ["broken", "b-1", "b-0", "a-1", "a-0"]
    wanted = {"order": "desc", "indexed_first": True}
    indexed = [m["model"] for m in get(reader, "models", **wanted)["models"]]
    assert indexed == ["b-1", "b-0", "a-1", "a-0", "broken"]
    paged = get(reader, "models", limit=2, offset=1)["models"]
    assert [m["model"] for m in paged] == ["a-1", "b-0"]
    assert [m["model"] for m in get(reader, "models", q="BRO")["models"]] == ["broken"]
    assert get(reader, "models", q="AUTHOR1")["total"] == 2
    assert get(reader, "models", status="indexed", kind="full")["total"] == 4
    assert get(reader, "models", kind="adapter")["total"] == 0
    by_author = get(reader, "models", sort="author", order="desc")["models"]
    assert [m["model"] for m in by_author] == ["a-1", "b-1", "a-0", "b-0", "broken"]
    assert get(reader, "models", offset=9)["models"] == []


def test_families_name_a_local_base_by_its_last_part(reader):
    document = get(reader, "families")

    (family,) = document["families"]
    assert (family["base"], family["models"], family["indexed"]) == ("base", 5, 4)
    assert family["recipes"][0]["name"] == "sketch"
    assert document["writable"] is False


def test_map_columns_fit_together_and_have_a_tag(reader):
    answer = settled(reader, f"{API}/map", params={"layout": "pca", "base": "base"})
    document = answer.json()

    assert (document["base"], document["layout"]) == ("base", "pca")
    assert sorted(document["models"]) == ["a-0", "a-1", "b-0", "b-1"]
    assert len(document["x"]) == len(document["y"]) == len(document["dataset"]) == 4
    again = reader.get(
        f"{API}/map", params={"layout": "pca"}, headers={"If-None-Match": answer.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("params", "status", "detail"),
    [
        ({"model": "a-9"}, 404, "near: a-"),
        ({"model": "a-0", "author": "autor1"}, 422, "no model has the author 'autor1'; near: auth"),
        ({"model": "a-0", "base": "bas"}, 404, "near: base"),
        ({"model": "a-0", "recipe": "skech"}, 422, "near: sketch"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(reader, params, status, detail):
    answer = reader.get(f"{API}/similar", params=params)

    assert answer.status_code == status
    assert detail in answer.json()["detail"]


def test_a_batch_answers_each_question_or_says_why_not(reader, shared_db):
    recipe = get(reader, "families")["families"][0]["recipes"][0]
    from deltadex.store import Catalog

    with Catalog.open(shared_db, read_only=True) as catalog:
        chosen = catalog.find_recipe(None)
        ids, vectors = catalog.family(catalog.bases()[0], chosen).by_id()
    vector = (3 * vectors[ids.index("a-0")]).tolist()
    queries = [{"model": "a-0"}, {"vector": vector}, {"model": "nobody"}, {"vector": [1.0]}]

    answer = reader.post(f"{API}/similar", json={"queries": queries, "k": 2})
    stored, by_vector, unknown, short = answer.json()["results"]

    assert recipe["dim"] == len(vector)
    assert stored == get(reader, "similar", model="a-0", k=2)
    assert by_vector["query"]["model"] == "vector"
    assert by_vector["neighbours"][0]["model"] == "a-0"
    assert by_vector["neighbours"][0]["cosine"] == pytest.approx(1.0, abs=1e-5)
    assert (unknown["problem"]["status"], unknown["problem"]["code"]) == (404, "unknown-model")
    assert (short["problem"]["status"], short["problem"]["code"]) == (422, "bad-request")


def test_no_answer_holds_a_path_of_the_machine(reader, shared_db):
    place = str(shared_db.parent)
    requests = [
        *((path, {}) for path in ("families", "stats", "models", "failures", "map", "evaluation")),
        ("families/base/lineage", {}),
        *((path, {}) for path in ("clusters", "metrics", "openapi.json", "ready", "health")),
        *((f"models/{model}", {}) for model in ("a-0", "broken", "nobody", place)),
        ("similar", {"model": "a-0"}),
        ("similar", {"model": "broken"}),
        ("similar", {"model": "nobody"}),
        ("similar", {"model": "a-0", "base": "elsewhere"}),
        ("similar", {"model": "a-0", "recipe": "none"}),
        ("models", {"base": "elsewhere"}),
        ("explain", {"model": "a-0", "other": "broken"}),
        ("explain", {"model": "a-0", "other": "a-1"}),
        ("evaluation", {"recipe": "none"}),
    ]

    for path, params in requests:
        answer = settled(reader, f"{API}/{path}", params=params)
        assert place not in answer.text, path
        assert place not in str(answer.headers), path
        assert answer.status_code in (200, 404, 422), (path, answer.text)


@pytest.mark.parametrize("spelling", ["{folder}", "{folder}/../models/a-0", "./a-0", "~"])
def test_a_path_is_no_id(reader, shared_db, spelling):
    model = spelling.format(folder=shared_db.parent / "models" / "a-0")

    for path in ("similar", "explain"):
        params = {"model": model, "other": "a-1"} if path == "explain" else {"model": model}
        answer = reader.get(f"{API}/{path}", params=params)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-model")


@pytest.mark.parametrize("where", ["source LIKE '/%'", "id = 'x' OR base_raw = '/x'", "BASE='x'"])
def test_filters_cannot_ask_for_paths(reader, where):
    for path, params in (("models", {}), ("similar", {"model": "a-0"})):
        answer = reader.get(f"{API}/{path}", params={"where": where, **params})
        assert (answer.status_code, answer.json()["code"]) == (422, "bad-filter")
