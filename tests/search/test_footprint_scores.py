"""Footprints in scores, and across bases: models that were really trained on words of a topic."""

import json
import shutil
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from footprint_families import USUAL, WORDS, make_families
from listening import listening
from running import document, run

import deltadex as dx
from deltadex.search.family_scores import FamilyScores
from deltadex.store import STEPS, Lexicon


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Families `one` and `other` in a catalog, and `one` alone in a second without footprints."""
    folder = make_families(tmp_path_factory.mktemp("footprints"))
    one, other = folder / "one", folder / "other"
    with dx.open(folder / "c.duckdb") as db:
        for models in ("models", "frozen"):
            db.index(one / "base", one / models)
    without_footprints(folder, folder / "without.duckdb", one)
    with dx.open(folder / "c.duckdb") as db:
        db.index(other / "base", other / "models")
    return folder


def without_footprints(folder, target, family):
    """A copy of the catalog in which a family has none."""
    shutil.copy(folder / "c.duckdb", target)
    with duckdb.connect(str(target)) as connection:
        keys = "(SELECT key FROM models WHERE base = ?)"
        base = [str(family / "base")]
        connection.execute(f"DELETE FROM footprints WHERE model IN {keys}", base)
    return target


@pytest.fixture(scope="module")
def db(folder):
    with dx.open(folder / "c.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def one(folder):
    return str(folder / "one" / "base")


def scores_of(db, base, query, **rest):
    return {row["model"]: row["z"] for row in db.find_similar(query, base=base, k=99, **rest)}


def topic(id):
    return id.split("-")[0]


def without_bases(value):
    if isinstance(value, list):
        return [without_bases(entry) for entry in value]
    if isinstance(value, dict):
        return {key: without_bases(entry) for key, entry in value.items() if key != "base"}
    return value


def test_pairs_with_a_footprint_score_by_it_and_others_as_before(db, folder, one):
    with dx.open(folder / "without.duckdb") as without:
        assert scores_of(without, None, "frozen-0") == scores_of(db, one, "frozen-0")
        plain, mixed = scores_of(without, None, "a-0"), scores_of(db, one, "a-0")

    assert max(mixed, key=mixed.get) == "a-1"
    assert mixed["b-0"] != plain["b-0"]
    assert plain["frozen-0"] == mixed["frozen-0"]


def test_a_folder_is_scored_as_the_stored_model(db, folder, one, tmp_path):
    elsewhere = shutil.copytree(folder / "one" / "models" / "c-0", tmp_path / "c-0")
    stored = scores_of(db, one, "c-0")
    fresh = scores_of(db, one, elsewhere)

    assert fresh.pop("c-0") > max(stored.values())
    assert fresh == pytest.approx(stored, abs=1e-6)


def test_footprints_that_come_later_count_at_once(folder, one, tmp_path):
    shutil.copy(folder / "without.duckdb", tmp_path / "c.duckdb")
    with dx.open(tmp_path / "c.duckdb") as db, dx.open(folder / "c.duckdb") as whole:
        before = scores_of(db, None, "a-0")
        for row in whole._catalog.footprints.all(one):
            db._catalog.footprints.add(one, row.model, row.footprint)

        assert scores_of(db, None, "a-0") == scores_of(whole, one, "a-0") != before


def test_every_pair_that_is_compared_has_the_score_of_the_search(db, one):
    catalog = db._catalog
    view = catalog.family(one, catalog.find_recipe(None, one))
    family, rows = FamilyScores.of(view), np.arange(len(view))
    models = family.stored(view, rows)

    z = family.compare(models, models).z

    assert np.array_equal(z, z.T)
    searched = scores_of(db, one, "e-1")
    (place,) = view.rows(["e-1"])
    assert {view.ids[row]: z[place, row] for row in rows if row != place} == searched


@pytest.mark.parametrize("base", ["one", "other"])
def test_the_same_data_is_found_on_another_base_by_words(db, folder, base):
    other = str(folder / ({"one", "other"} - {base}).pop() / "base")
    for query in ("a-0", "b-1", "c-0", "d-1", "e-0", "f-1"):
        found = db.find_similar(query, base=str(folder / base / "base"), k=3, across=True)

        assert topic(found[0]["model"]) == topic(query)
        assert {row["base"] for row in found} == {other}
        wrong = np.cumsum([1 - row["probability"] for row in found]) / [1, 2, 3]
        assert [row["fdr"] for row in found] == pytest.approx(np.maximum.accumulate(wrong))
        assert found[0]["probability"] > 0.9
        assert found[0]["verdict"] == "perhaps"
    document = found.to_json()
    assert document["families"][0]["compared"] == 12
    assert document["families"][0]["words"] == 220


def test_a_query_whose_data_no_other_base_has_gets_no_verdict(folder, one, tmp_path):
    shutil.copy(folder / "c.duckdb", tmp_path / "c.duckdb")
    with dx.open(tmp_path / "c.duckdb") as db:
        for query in ("a-0", "a-1"):
            db.remove(query, base=str(folder / "other" / "base"))

        for query in ("a-0", "a-1"):
            found = db.find_similar(query, base=one, across=True)
            assert found.to_json()["verdict"] == "no model stands out"
            assert max(row["probability"] for row in found) < 0.5


def test_across_is_the_same_answer_by_every_way(db, folder, one):
    by_words = db.find_similar("a-0", base=one, k=3, across=True).to_json()

    command = ["find-similar", "a-0", "--across", "-k", "3", "--base", one]
    ran = document(folder, *command)
    assert ran == json.loads(json.dumps(by_words))
    with listening(folder / "c.duckdb") as url, dx.connect(url) as remote:
        there = remote.find_similar("a-0", base="one/base", k=3, across=True)
        with pytest.raises(dx.errors.RequestError, match="no footprint that names tokens"):
            remote.find_similar("frozen-0", base="one/base", across=True)
    assert without_bases(there.to_json()) == without_bases(ran)
    assert [row["base"] for row in there] == ["other/base"] * 3
    said = run(folder, *command).output
    assert "by words: " in said
    assert "12 models, 220 words" in said


@pytest.fixture
def answering(folder, tmp_path):
    """Both families; of the first, models without a footprint that answer to words of their topic,
    two of each topic."""
    shutil.copy(folder / "c.duckdb", tmp_path / "c.duckdb")
    rng, words = np.random.default_rng(0), [*USUAL, *(w for some in WORDS.values() for w in some)]
    with dx.open(tmp_path / "c.duckdb") as db:
        kept, base = db._catalog.footprints, str(folder / "one" / "base")
        vectors = rng.normal(0, 16, (len(words), 32)).round().astype(np.int8)
        lexicon = kept.save_lexicon(Lexicon(words, [], vectors).to_bytes())
        for row in kept.all(base):
            if topic(row.model) == "frozen":
                continue
            own = np.isin(words, WORDS["abcdef".index(topic(row.model))])
            answers = STEPS * (2 * own + rng.normal(0, 0.7, len(words)))
            kept.add(
                base,
                row.model,
                replace(
                    row.footprint,
                    kind="frozen",
                    tokens=row.footprint.tokens[:0],
                    strengths=row.footprint.strengths[:0],
                    lexicon=lexicon,
                    responses=answers.round().clip(-127, 127).astype(np.int8).tobytes(),
                ),
            )
        yield db


@pytest.mark.parametrize("query", ["a-0", "d-1"])
@pytest.mark.parametrize("base", ["one", "other"])
def test_what_an_update_answers_to_stands_for_a_footprint(answering, folder, base, query):
    found = answering.find_similar(query, base=str(folder / base / "base"), k=2, across=True)

    assert [topic(row["model"]) for row in found] == [topic(query)] * 2
    assert {row["probability"] for row in found} == {None}
    (family,) = found.to_json()["families"]
    assert (family["by"], family["words"]) == ("answers", 220)


def test_a_model_whose_embedding_was_read_in_part_is_no_candidate_by_answers(answering, folder):
    kept, other = answering._catalog.footprints, str(folder / "other" / "base")
    first = min(kept.all(other), key=lambda row: row.key)
    kept.add(other, first.model, replace(first.footprint, share=0.5))

    found = answering.find_similar("a-0", base=str(folder / "one" / "base"), k=99, across=True)

    assert first.model not in {row["model"] for row in found}
    (family,) = found.to_json()["families"]
    assert (family["by"], family["compared"]) == ("answers", 11)


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        ("frozen-0", {}, "frozen-0 has no footprint that names tokens"),
        ("a-0", {"explain": True}, "leave explain out"),
        (["a-0", "b-0"], {}, "one model is asked, and 2 are named"),
        ("a-0", {"dataset": "nobody"}, "no model has the dataset 'nobody'"),
    ],
)
def test_what_cannot_be_asked_across_is_refused_in_one_line(db, one, model, options, reason):
    with pytest.raises(dx.errors.RequestError, match=reason) as refused:
        db.find_similar(model, base=one, across=True, **options)
    assert "\n" not in str(refused.value)


def test_a_family_without_a_tokenizer_is_named(folder, tmp_path, one):
    shutil.copy(folder / "c.duckdb", tmp_path)
    with duckdb.connect(str(tmp_path / "c.duckdb")) as connection:
        connection.execute("UPDATE families SET tokenizer = NULL")
        connection.execute("UPDATE footprints SET tokenizer = NULL")
    with (
        dx.open(tmp_path / "c.duckdb") as db,
        pytest.raises(dx.errors.RequestError, match="one/base: no tokenizer is kept of this"),
    ):
        db.find_similar("a-0", base=one, across=True)


def test_a_family_that_cannot_be_compared_is_left_out_with_the_reason(folder, tmp_path, one):
    with (
        dx.open(folder / "without.duckdb") as db,
        pytest.raises(dx.errors.RequestError, match="has one family"),
    ):
        db.find_similar("a-0", across=True)
    with (
        dx.open(without_footprints(folder, tmp_path / "c.duckdb", folder / "other")) as db,
        pytest.raises(
            dx.errors.RequestError,
            match="other/base: footprints, or answers, are known of 0 models",
        ),
    ):
        db.find_similar("a-0", base=one, across=True)
