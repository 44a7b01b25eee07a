"""Models of a tiny BERT and a tiny GPT-2, found across the two by a panel."""

import json

import pytest
from click.testing import CliRunner
from factories import write_reviews
from panel_families import GPT2, make_families

import deltadex as dx
from deltadex.cli import main
from deltadex.errors import RequestError

N_SETS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A catalog of two families, and a folder of data sets of which no panel was made."""
    folder = make_families(tmp_path_factory.mktemp("across"))
    (folder / "sets").mkdir()
    for number in range(N_SETS):
        write_reviews(folder / "sets" / f"set-{number}.csv", n=16 + 2 * number)
    return folder


@pytest.fixture(scope="module")
def db(folder):
    with dx.open(folder / "c.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def found(db, folder):
    return db.panels.find_similar("g-0", panel=folder / "sets", k=3)


def test_models_of_the_other_base_are_found_by_a_panel_that_is_computed_first(db, found, folder):
    document = found.to_json()

    assert len(found) == 3
    assert {row["base"] for row in found} == {str(folder / "bert" / "base")}
    assert [row["rank"] for row in found] == [1, 2, 3]
    assert document["query"]["base"] == str(folder / GPT2 / "base")
    assert document["panel"] == {"name": "sets", "sets": N_SETS, "others": [], "notes": []}
    assert [row["panel"] for row in db.panels()] == ["sets"]
    # four models and five data sets tell no probability
    assert {row["probability"] for row in found} == {None}
    assert document["verdict"] == "no model stands out"
    assert document["families"][0]["sets"] == N_SETS
    assert all(-1 <= row["cosine"] <= 1 for row in found)


def test_the_panel_that_is_there_is_asked_and_nothing_is_computed(db, found, monkeypatch):
    monkeypatch.setattr("deltadex.database.panels.BuildPanel.answer", None)

    again = db.panels.find_similar("g-0", k=3)

    assert again.to_json() == found.to_json()


def test_a_model_that_is_not_stored_is_placed_as_the_stored_one(db, found, folder):
    gpt2 = folder / GPT2
    fresh = db.panels.find_similar(gpt2 / "models" / "g-0", base=str(gpt2 / "base"), k=3)

    assert [row["model"] for row in fresh] == [row["model"] for row in found]
    assert [row["cosine"] for row in fresh] == pytest.approx(
        [row["cosine"] for row in found], abs=1e-6
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"panel": "nothing"}, "no panel 'nothing'"),
        ({"panel": "sets", "dataset": "nobody"}, "no model has the dataset 'nobody'"),
        ({"panel": "kept"}, "no panel 'kept'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(db, found, options, reason):
    with pytest.raises(RequestError, match=reason) as refused:
        db.panels.find_similar("g-0", **options)

    assert "\n" not in str(refused.value)


def test_one_family_has_nothing_to_be_compared_with(folder, tmp_path):
    with dx.open(tmp_path / "one.duckdb") as one:
        one.index(folder / GPT2 / "base", folder / GPT2 / "models")
        with pytest.raises(RequestError, match="has one family"):
            one.panels.find_similar("g-0")


def test_a_family_without_the_panel_is_left_out_with_the_reason(db, found, folder):
    bert = str(folder / "bert" / "base")
    db.panels.build(folder / "sets", name="half", bases=[str(folder / GPT2 / "base")])

    with pytest.raises(RequestError, match="has no data set of panel half") as refused:
        db.panels.find_similar("g-0", panel="half")

    assert bert in str(refused.value)
    db.panels.drop("half")


def test_what_was_read_otherwise_on_another_base_is_said(db, found, folder, caplog):
    bert, gpt2 = (str(folder / kind / "base") for kind in ("bert", GPT2))
    db.panels.build(folder / "sets", name="odd", bases=[bert], max_examples=16)
    db.panels.build(folder / "sets", name="odd", bases=[gpt2], max_examples=8)

    document = db.panels.find_similar("g-0", panel="odd").to_json()

    (note,) = document["panel"]["notes"]
    assert "other options" in note
    assert note in caplog.text
    assert document["panel"]["others"] == ["sets"]
    db.panels.drop("odd")


def test_a_panel_of_its_own_cannot_take_the_name_of_the_one_that_comes_along(db, folder):
    with pytest.raises(RequestError, match="not 'kept' or 'builtin'"):
        db.panels.build(folder / "sets", name="builtin")


def test_the_command_prints_a_table_and_the_document(db, found, folder):
    path = ["--db", str(folder / "c.duckdb")]

    printed = CliRunner().invoke(main, ["find-similar", "g-0", "--across", *path])
    document = CliRunner().invoke(
        main, ["find-similar", "g-0", "--across", "-k", "3", "--json", *path]
    )
    alone = CliRunner().invoke(main, ["find-similar", "g-0", "--panel", "sets", *path])

    assert printed.exit_code == 0, printed.output
    assert "by the panel sets" in printed.stdout
    assert "It says at most" in printed.stdout
    assert json.loads(document.stdout) == found.to_json()
    assert alone.exit_code == 2
    assert "add --across" in alone.stderr
