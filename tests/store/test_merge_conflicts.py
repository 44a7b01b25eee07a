from dataclasses import replace

import numpy as np
import pytest
from merges import counts, merge, write
from outcomes import OTHER, RECIPE, indexed, unit

from deltadex.store import BaseRecord, Catalog


def test_other_weights_stay_out_and_are_reported_with_both(a, b):
    write(a, indexed("x", seed=1, signature="one", dataset="d"))
    write(b, indexed("x", seed=2, signature="two", dataset="e"), indexed("y", seed=3))

    document = merge(a, b)

    assert counts(document) == [1, 0, 0, 1]
    (conflict,) = document["conflicts"]
    assert (conflict["base"], conflict["model"], conflict["about"]) == ("base", "x", "weights")
    assert conflict["source"] == str(b)
    assert (conflict["kept"]["signature"], conflict["other"]["signature"]) == ("one", "two")
    with Catalog.open(a) as catalog:
        assert catalog.model("x").dataset == "d"
        assert np.array_equal(catalog.family("base", RECIPE).by_id(["x"])[1][0], unit(1, 8))
    assert merge(a, b)["conflicts"] == document["conflicts"]


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ({"content_sha256": "c"}, {"content_sha256": "c"}, True),
        ({"content_sha256": "c"}, {"content_sha256": "d"}, False),
        ({"signature": "s"}, {"signature": "s"}, True),
        ({"signature": ""}, {"signature": ""}, False),
        ({}, {}, False),
    ],
)
def test_weights_are_the_same_by_hash_or_by_signature(a, b, mine, theirs, same):
    write(a, indexed("x", seed=1, **{"signature": "one"} | mine))
    write(b, indexed("x", seed=2, recipe=OTHER, **{"signature": "two"} | theirs))

    assert merge(a, b)["differing"] == (0 if same else 1)


def _shaken(outcome, noise, scale=1.0):
    """The outcome as another processor might have it."""
    (fingerprint,) = outcome.fingerprints
    vector = fingerprint.vector + np.float32(noise) * unit(77, 8)
    slots = tuple(replace(s, fro_norm=s.fro_norm * scale) for s in outcome.slots)
    shaken = replace(fingerprint, vector=vector / np.linalg.norm(vector))
    return replace(outcome, fingerprints=(shaken,), slots=slots)


@pytest.mark.parametrize(
    ("noise", "scale", "differing"), [(0, 1, 0), (1e-5, 1.0001, 0), (0.02, 1, 1), (0, 1.1, 1)]
)
def test_the_same_weights_copied_are_known_by_what_was_measured(a, b, noise, scale, differing):
    write(a, indexed("x", seed=1, signature="copied on Monday"))
    write(b, _shaken(indexed("x", seed=1, signature="on Tuesday"), noise, scale))

    assert merge(a, b)["differing"] == differing


LABELS = [
    ({}, {"dataset": "e", "label_source": "tags"}, "e", 0),
    ({"dataset": "d", "label_source": "card"}, {}, "d", 0),
    ({"dataset": "d", "label_source": "card"}, {"dataset": "e", "label_source": "tags"}, "d", 1),
    ({"dataset": None, "label_source": "labels"}, {"dataset": "e"}, None, 1),
    ({"dataset": "d", "author": "me"}, {"dataset": "d", "author": "you"}, "d", 1),
    ({"author": None}, {"author": "you"}, None, 0),
]


@pytest.mark.parametrize(("mine", "theirs", "dataset", "conflicts"), LABELS)
def test_labels_are_filled_and_never_overruled(a, b, mine, theirs, dataset, conflicts):
    write(a, indexed("x", seed=1, **mine))
    write(b, indexed("x", seed=1, **theirs))

    document = merge(a, b)

    assert [c["about"] for c in document["conflicts"]] == ["labels"] * conflicts
    with Catalog.open(a) as catalog:
        assert catalog.model("x").dataset == dataset
        assert catalog.model("x").author == (mine.get("author") or theirs.get("author"))


def test_families_are_joined_and_contradictions_reported(a, b):
    with Catalog.open(a) as one, Catalog.open(b) as two:
        one.save_base(
            BaseRecord(base="base", architecture="bert", shapes={"q": (4, 3), "k": (4, 3)})
        )
        two.save_base(
            BaseRecord(
                base="base", revision="r", architecture="bert", shapes={"q": (4, 9), "v": (4, 3)}
            )
        )
        two.save_base(BaseRecord(base="more"))

    document = merge(a, b)

    (conflict,) = document["conflicts"]
    assert (conflict["model"], conflict["about"]) == (None, "base")
    assert (conflict["kept"], conflict["other"]) == ({"q": [4, 3]}, {"q": [4, 9]})
    with Catalog.open(a) as catalog:
        assert catalog.bases() == ["base", "more"]
        family = catalog.base("base")
        assert family.shapes == {"k": (4, 3), "q": (4, 3), "v": (4, 3)}
        assert (family.revision, family.architecture) == ("r", "bert")


def test_unfinished_walks_of_the_hub_stay_where_they_are(a, b):
    with Catalog.open(b) as catalog:
        catalog.listings("base").save("base", [{"id": "x"}])

    merge(a, b)

    with Catalog.open(a) as catalog:
        assert catalog.listings("base").load("base") is None
