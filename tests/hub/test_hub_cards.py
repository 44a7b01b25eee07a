"""Cards of Hub models: fetched where nothing else names a dataset, and never at a model's cost."""

import pytest
from factories import write_files
from hub_standin import Fault

import deltadex as dx
from deltadex.indexer.family import find_member, member_of, with_card_label
from deltadex.indexer.hub import describe, run_session

SENTENCE = (
    b"---\nlicense: mit\n---\n# x\n\nThis model is a fine-tuned version of "
    b"[bert](https://huggingface.co/bert) on the imdb dataset.\n"
)
CARD = {"README.md": SENTENCE}


@pytest.fixture
def full(family):
    """A model of the Hub, with a card that has only a sentence."""
    repo = family.repos["org/full"]
    files, fields = dict(repo.files), dict(repo.fields)
    repo.files |= CARD
    yield repo
    repo.files, repo.fields = files, fields


def cards(hub):
    """How many cards were requested."""
    return sum(request.path.endswith("/README.md") for request in hub.log)


def test_the_hub_gives_the_label_that_the_same_files_give_locally(family, full, tmp_path):
    local = find_member(str(write_files(tmp_path / "full", full.files)), "org/base").record

    with dx.open() as db:
        db.add("org/full", base="org/base")
        row = db.models()[0]
        (tmp_path / "labels.csv").write_text("model,author\norg/full,ann\n")
        for _ in ("stored", "new"):
            db.add("org/full", base="org/base", labels=tmp_path / "labels.csv")
            assert [db.models()[0][name] for name in ("dataset", "author")] == ["imdb", "ann"]
            db.remove("org/full")

    assert (row["dataset"], row["dataset_raw"], row["label_source"]) == ("imdb", "imdb", "sentence")
    assert row["dataset"] == local.dataset
    assert row["label_source"] == local.label_source
    assert cards(family) == 2


@pytest.mark.parametrize("name", ["org/bert-imdb", "org/run-7"])
def test_the_front_matter_of_a_card_counts_where_the_hub_states_none_of_it(family, name):
    card = b"---\ndatasets: [acme/reviews]\n---\n# x\n"
    family.add(name, {"model.safetensors": b"", "README.md": card})
    session = run_session()
    listed = member_of(describe(name, session=session), "base", claims=())

    labelled = with_card_label(listed, session).record

    assert (labelled.dataset, labelled.label_source) == ("acme/reviews", "card")


@pytest.mark.parametrize(
    ("fault", "requests"),
    [({"kind": "endless", "nth": 0}, 1), ({"kind": "stall", "nth": 0}, 2)],
    ids=["endless", "stall"],
)
def test_a_card_that_cannot_be_fetched_costs_only_its_label(family, full, fault, requests):
    family.faults.append(Fault(path="/README.md", where="hub", **fault))  # type: ignore[arg-type]

    with dx.open() as db:
        report = db.add("org/full", base="org/base").to_json()
        row = db.models()[0]

    assert (report["indexed"], report["failed"]) == (1, [])
    assert (row["dataset"], row["label_source"]) == (None, None)
    assert cards(family) == requests


def test_labels_of_a_user_save_the_request(family, full, tmp_path):
    (tmp_path / "labels.csv").write_text("model,dataset\norg/full,mine\n")

    with dx.open() as db:
        db.add("org/full", base="org/base", labels=tmp_path / "labels.csv")
        assert db.models()[0]["dataset"] == "mine"

    assert cards(family) == 0
