"""Models with moved layers or renamed tensors are indexed in the places of the base."""

import numpy as np
import pytest
from factories import finetune, in_order, make_bert, make_checkpoint, read_config

from deltadex.indexer.index import index_family
from deltadex.indexer.options import IndexOptions
from deltadex.store import Catalog

LAYERS = 4


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A fine-tune, the same one in other forms, and a stranger, indexed."""
    folder = tmp_path_factory.mktemp("moved")
    base = make_bert(folder / "base", seed=0, layers=LAYERS)
    tuned = finetune(base, seed=1)
    stranger = make_bert(folder / "other", seed=9, layers=LAYERS)
    top = {n: stranger[n] if "layer.3." in n else t for n, t in tuned.items()}
    forms = {
        "plain": tuned,
        "renamed": {f"w{number}": t for number, t in enumerate(tuned.values())},
        "dropped": in_order(tuned, (0, 2, 3)),
        "turned": in_order(tuned, (3, 1, 2, 0)),
        "doubled": in_order(tuned, (0, 1, 1, 2, 3)),
        "new-top": top,
        "lacking": {n: t for n, t in tuned.items() if "layer.2.attention.self" not in n},
        "stranger": in_order(stranger, (0, 2, 3)),
    }
    for name, tensors in forms.items():
        make_checkpoint(folder / "models" / name, tensors, config=folder / "base", shards=2)
    claiming = {**read_config(folder / "base"), "_name_or_path": "someone/other-base"}
    make_checkpoint(folder / "models" / "claiming", tuned, config=claiming)
    options = IndexOptions(str(folder / "base"), folder / "models")
    with Catalog.open(folder / "c.duckdb") as catalog:
        report = index_family(catalog, options)
        yield catalog, {o.model.id: o.code for o in report.refused}


def norms(catalog, model):
    return {str(s.slot): s.fro_norm for s in catalog.slots(catalog.stored(model).key)}


def notes(catalog, model):
    return catalog.model(model).notes


def test_a_model_whose_weights_are_none_of_the_base_stays_refused(indexed):
    _, codes = indexed

    assert codes == {"stranger": "layer-mismatch"}


@pytest.mark.parametrize(
    ("model", "missing", "said"),
    [
        ("renamed", "", "its tensors are named otherwise than its base's"),
        ("dropped", "1", "layer 1 dropped"),
        ("turned", "", "layers in another order"),
        ("doubled", "", "layer 1 duplicated"),
    ],
)
def test_updates_are_those_of_the_model_before_it_was_changed(indexed, model, missing, said):
    catalog, _ = indexed
    plain = {s: n for s, n in norms(catalog, "plain").items() if s.split(".")[1] != missing}

    assert norms(catalog, model) == pytest.approx(plain, rel=1e-6)
    note, *more = notes(catalog, model)
    assert note.endswith(said)
    assert "its layers are other layers of the base" in note
    unread = "rests on 24 of 30 layer matrices: 'encoder.layer."
    assert [line.startswith(unread) for line in more] == [True] * (model == "doubled")
    if not missing:
        family = catalog.family(catalog.bases()[0], catalog.find_recipe(None))
        _, (ours, theirs) = family.by_id([model, "plain"])
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


LACKS = "rests on 21 of 24 layer matrices: it lacks 'encoder.2.q', 'encoder.2.k', 'encoder.2.v'"
CLAIMS = "its files name 'someone/other-base' as its base; its weights show {}"


def test_matrices_that_are_lacking_another_base_that_is_named_and_a_new_layer_are_noted(indexed):
    catalog, _ = indexed

    assert notes(catalog, "lacking") == (LACKS,)
    assert catalog.model("lacking").partly_read == LACKS
    assert notes(catalog, "claiming") == (CLAIMS.format(catalog.bases()[0]),)
    (note,) = notes(catalog, "new-top")
    assert note.endswith("layer 3 replaced, or not recognised")
    assert norms(catalog, "new-top").keys() == norms(catalog, "plain").keys()
