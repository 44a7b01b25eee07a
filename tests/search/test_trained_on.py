"""Models by a data set: planted siblings, strangers, filters, references."""

import numpy as np
import pytest
from catalogs import make_catalog, make_data, make_indexed
from hypothesis import given
from hypothesis import strategies as st

from deltadex.search import compare_kept, find_data, find_trained_on, kept_data_sets
from deltadex.search.trained_on import COEFFICIENTS, DataCalibration, with_labels
from deltadex.store import Filters

DIM, PLANTED = 4, ("m07", "m19")


def vectors(n=24, seed=0):
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(n, DIM))
    made[:, 0] = 0.3 * rng.normal(size=n)
    for id in PLANTED:
        made[int(id[1:])] = [3.0, *(0.2 * rng.normal(size=DIM - 1))]
    return made


DIRECTION = np.eye(DIM)[0]
DATA = make_data("data", DIRECTION)


def family(tmp_path, order=range(24)):
    rows = vectors()
    models = (make_indexed(f"m{i:02}", rows[i], kind="full") for i in order)
    return make_catalog(tmp_path / "c.duckdb", *models)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    with family(tmp_path_factory.mktemp("trained")) as made:
        yield made


def test_planted_models_come_first_and_strangers_are_around_zero(catalog):
    answer = find_trained_on(catalog, make_data("data", DIRECTION, groups=4), k=24)

    assert {model.model for model in answer.models[:2]} == set(PLANTED)
    assert [model.rank for model in answer.models] == list(range(1, 25))
    assert abs(np.median([model.z for model in answer.models[2:]])) < 1
    assert answer.models[1].z > answer.models[2].z + 1
    assert all(model.z_error is not None and model.z_error > 0 for model in answer.models)
    assert (answer.compared, answer.references, answer.control) == (24, 0, None)
    (first,) = find_trained_on(catalog, make_data("data", DIRECTION, groups=2), k=1).models
    assert first.z_error is None  # errors are known from three groups on


@pytest.mark.parametrize(("kept", "used"), [(9, 0), (10, 10)])
def test_ten_other_data_sets_are_references(tmp_path, kept, used):
    others = np.random.default_rng(5).normal(size=(kept, DIM)) * [0.2, 1, 1, 1]
    with family(tmp_path) as catalog:
        for number, vector in enumerate(others):
            catalog.data_sets.save(make_data(f"other {number}", vector))
        answer = find_trained_on(catalog, DATA, k=2)

    assert answer.references == used
    assert {model.model for model in answer.models} == set(PLANTED)


def test_a_filter_and_k_limit_the_models(catalog):
    answer, nobody = (
        find_trained_on(catalog, DATA, k=1, filters=Filters(where=where))
        for where in ("id <> 'm07'", "id = 'x'")
    )

    assert [model.model for model in answer.models] == ["m19"]
    assert answer.compared == 23
    assert (nobody.models, nobody.verdict) == ((), "no model stands out")


@pytest.mark.parametrize("kinds", [("adapter",), ("adapter", "full")])
@pytest.mark.parametrize("n", [1, 2, 24])
def test_families_of_any_kind_and_size_are_answered(tmp_path, kinds, n):
    rows = vectors()[-n:]
    models = [
        make_indexed(f"m{i:02}", row, kind=kinds[i % len(kinds)]) for i, row in enumerate(rows)
    ]
    with make_catalog(tmp_path / "c.duckdb", *models) as catalog:
        answer = find_trained_on(catalog, DATA, k=50)

    assert len(answer.models) == n
    assert all(np.isfinite([m.z, m.fdr, m.cosine, m.score]).all() for m in answer.models)
    if n < 3:
        assert {model.probability for model in answer.models} == {None}
        assert answer.verdict == "no model stands out"
        assert answer.calibration.source == "the null alone"


def test_a_pair_has_one_number_in_both_directions(tmp_path):
    """Labels of near models disagree, which lowers probabilities of `find_trained_on`."""
    labels = ("a", "b", None)
    rows = vectors()
    models = [
        make_indexed(f"m{i:02}", row, kind="full", dataset=labels[i % 3])
        for i, row in enumerate(rows)
    ]
    with make_catalog(tmp_path / "c.duckdb", *models) as catalog:
        sets = [make_data(f"data {n}", vector) for n, vector in enumerate(np.eye(DIM))]
        for data in sets:
            catalog.data_sets.save(data)
        of_data = {
            (data.name, model.model): (model.z, model.probability, model.verdict)
            for data in sets
            for model in find_trained_on(catalog, data, k=len(rows)).models
        }
        of_models = {
            (data["data"], f"m{i:02}"): (data["z"], data["probability"], data["verdict"])
            for i in (0, 7, 19)
            for data in find_data(catalog, f"m{i:02}")["data"]
        }
        rates = {
            i: [data["fdr"] for data in find_data(catalog, f"m{i:02}")["data"]] for i in (0, 7, 19)
        }

        view = catalog.family("base", catalog.find_recipe(None, "base"))
        compared = compare_kept(view, kept_data_sets(catalog, view), np.arange(len(view)))

    assert len(of_models) == 3 * DIM
    assert of_models == {pair: of_data[pair] for pair in of_models}
    for i in (0, 7, 19):
        listed = {near.data: near for near in compared.neighbours(i)}
        for name, near in listed.items():
            z, probability, _ = of_models[name, f"m{i:02}"]
            assert (near.z, near.probability) == pytest.approx((z, probability))
        assert len(listed) == DIM
        assert [near.fdr for near in listed.values()] == pytest.approx(rates[i])
        wrong = np.cumsum([1 - near.probability for near in listed.values()])
        assert rates[i] == pytest.approx(np.maximum.accumulate(wrong / np.arange(1, DIM + 1)))


LABELS = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=12, max_size=12)
FALLING_Z = st.lists(st.floats(-3, 30), min_size=1, max_size=12).map(
    lambda z: sorted(z, reverse=True)
)


def test_a_label_that_the_nearer_models_do_not_share_lowers_its_probability():
    known = with_labels(np.full(5, 0.99), ["a", "a", "b", None, "a"])

    assert known.tolist() == [0.99, 0.99, 1 / 3, 0.99, 3 / 4]


@given(FALLING_Z, LABELS, st.sampled_from(sorted(COEFFICIENTS)), st.integers(12, 5000))
def test_rates_never_fall_as_z_falls(z, labels, kind, n):
    known = DataCalibration(models=n, source="families like it", kind=kind)

    judged = known.judge(np.array(z), labels[: len(z)])

    assert (np.diff(judged.fdr) >= 0).all()
    assert (known.probabilities(np.array(z), [None] * len(z), np.zeros(len(z), bool)) <= 1).all()
    unlabelled = known.judge(np.array(z), [None] * len(z)).probabilities
    assert (np.diff(unlabelled) <= 0).all()


def test_a_contrastive_loss_gives_no_verdict():
    judged = DataCalibration.of(80, "contrastive").judge(np.array([60.0]), [None])

    assert judged.verdicts == ("no model stands out",)


@pytest.mark.parametrize("loss", ["causal", "classification"])
def test_few_models_and_very_many_ask_for_a_higher_z(loss):
    def probability(z, n):
        return DataCalibration.of(n, loss).judge(np.array([z]), [None]).probability(0)

    assert probability(3.0, 80) < 0.5 < 0.85 < probability(20.0, 80)
    assert probability(9.0, 20) < probability(9.0, 80) > probability(9.0, 8000)


def test_tokens_and_classes_are_compared_with_weights_of_their_own(catalog):
    by_loss = [
        find_trained_on(catalog, make_data("data", DIRECTION, loss=loss), k=24).models
        for loss in ("causal", "seq2seq", "classification")
    ]
    z = [[model.z for model in models] for models in by_loss]

    assert z[0] == z[1] != z[2]
