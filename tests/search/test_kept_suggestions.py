import numpy as np
import pytest
from catalogs import AXES, DIM, fill, make_data

from deltadex.questions.cluster import show_clusters
from deltadex.questions.terminal.sections import show_answer
from deltadex.search.clusters import cluster_family
from deltadex.search.suggestions import HINTED, SUGGESTED, combine_answers
from deltadex.search.trained_on import KeptEvidence


def test_a_kept_data_set_names_the_models_that_lie_along_it(tmp_path, capsys):
    kept = [make_data("acme", AXES[0])]
    with fill(tmp_path / "c.duckdb", kept=kept, apart=10.0) as catalog:
        report = cluster_family(catalog)
    show_answer(show_clusters(report))

    found = {one["model"]: (one["dataset"], one["source"]) for one in report["suggestions"]}
    near = {f"near-{n}" for n in range(6)}
    assert near <= found.keys()
    assert {found[model] for model in near} == {("acme", "kept data")}
    assert report["calibration"]["kept_data"] == 1
    assert report["suggestions"][0]["source"] == "kept data"
    shown = capsys.readouterr().out
    for words in ("named by", "kept data", "1 kept data set may name models as well"):
        assert words in shown


def test_data_that_no_model_lies_along_names_none(tmp_path):
    rng = np.random.default_rng(3)
    kept = [make_data(f"data-{n}", rng.normal(size=DIM)) for n in range(3)]
    with fill(tmp_path / "c.duckdb", near=0, strangers=40, kept=kept) as catalog:
        report = cluster_family(catalog)

    assert report["suggestions"] == []
    assert report["abstained"] == 40


@pytest.mark.parametrize(
    "n_near", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 60))]
)
def test_names_are_wrong_at_most_at_their_rate(n_near):
    """200 models, of which some lie near a set that is kept, or near a labelled dataset.

    The labelled list is as false as its rate says: its p-values are uniform where no labelled model
    shares the data. The share of wrong names is a mean over families; 400 know it to 0.02.
    """
    rng = np.random.default_rng(n_near)
    shares = []
    for _ in range(400):
        z = rng.laplace(size=(3, 200))
        z[0, :n_near] = rng.normal(9, 2, n_near)
        p = rng.random(200)
        p[100:120] = rng.random(20) * 1e-4
        order = np.argsort(p)
        rates = np.empty(200)
        expected = 200 * p[order] / np.arange(1, 201)
        rates[order] = np.minimum(np.minimum.accumulate(expected[::-1])[::-1], 1.0)
        sets = tuple(make_data(f"d{place}", AXES[0]) for place in range(len(z)))
        known, zeros = 1 / (1 + np.exp(8.0 - z)), np.zeros_like(z)
        kept = KeptEvidence(sets=sets, z=z, cosines=zeros, probabilities=known, rates=zeros)
        names, combined, from_data = combine_answers(["label"] * 200, rates, kept)
        right = np.zeros(200, dtype=bool)
        right[100:120] = ~from_data[100:120]
        right[:n_near] = np.array(names)[:n_near] == "d0"
        named = combined <= SUGGESTED
        shares.append((named & ~right).sum() / max(1, named.sum()))

    assert np.mean(shares) <= SUGGESTED
    assert SUGGESTED < HINTED
