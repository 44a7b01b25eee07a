from dataclasses import replace

import numpy as np
import pytest
from families import first, main_axes, make_labelled
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

from deltadex.records import ModelRecord
from deltadex.search import clusters as density
from deltadex.search.clusters import NOISE, find_clusters, measure_agreement, name_clusters


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_too_few_models_are_noise(n):
    family = first(make_labelled(5, datasets=1)[0], n)

    assert find_clusters(family, 3).tolist() == [NOISE] * n


def test_a_large_family_is_clustered_from_a_sample_in_principal_axes(monkeypatch):
    family, truth = make_labelled(1200, strength=3.0, dim=100)
    monkeypatch.setattr(density, "WHOLE_FAMILY", 500)
    monkeypatch.setattr(density, "SAMPLE", 800)

    found = find_clusters(replace(family, axes=main_axes(family.vectors)), 9)

    labels = [truth[id] for id in family.ids]
    joined = found != NOISE
    assert adjusted_rand_score(np.array(labels)[joined], found[joined]) == 1.0
    assert joined.mean() > 0.95


def test_agreement_is_that_of_scikit_learn_with_noise_alone():
    family, _ = make_labelled(60, strength=1.0, labelled=0.7)
    codes = np.random.default_rng(1).integers(-1, 4, size=60)

    found = measure_agreement(family, codes)

    rows = [i for i, label in enumerate(family.labels) if label]
    labels = [family.labels[i] for i in rows]
    alone = np.where(codes == NOISE, 100 + np.arange(60), codes)[rows]
    assert found["ari"] == pytest.approx(adjusted_rand_score(labels, alone))
    assert found["nmi"] == pytest.approx(normalized_mutual_info_score(labels, alone))
    assert found["silhouette"]["labels"] == pytest.approx(
        silhouette_score(family.vectors[rows], labels, metric="cosine"), abs=1e-6
    )
    inside = codes != NOISE
    assert found["silhouette"]["clusters"] == pytest.approx(
        silhouette_score(family.vectors[inside], codes[inside], metric="cosine"), abs=1e-6
    )


def record(id, **known):
    return ModelRecord(id=id, base="gpt2", **known)


def name(*clusters):
    records = {one.id: one for cluster in clusters for one in cluster}
    ids = [[one.id for one in cluster] for cluster in clusters]
    return name_clusters(ids, records, lambda _: ())


def test_a_dominant_dataset_names_its_cluster():
    cluster = [record(f"m{i}", dataset="imdb" if i else "emotion") for i in range(4)]

    (found,) = name(cluster)

    assert found["name"] == "imdb"
    assert [tuple(row.values()) for row in found["datasets"]] == [("imdb", 3), ("emotion", 1)]


def test_without_labels_terms_that_set_it_apart_name_it():
    poems = [record(f"x{i}/gpt2-poetry-lora") for i in range(3)]
    code = [record(f"y{i}/gpt2-python-lora", author="ann") for i in range(3)]

    first, second = name(poems, code)

    assert (first["name"], second["name"]) == ("poetry", "python")
    assert first["terms"] == ["poetry"]
    assert second["authors"] == [{"author": "ann", "models": 3}]


def test_no_two_clusters_have_one_name():
    small = [record(f"few-steps-{i}", dataset="mr") for i in range(3)]
    large = [record(f"f{i}", dataset="mr") for i in range(5)]
    more = [record(f"g{i}", dataset="mr") for i in range(5)]
    taken = [record(f"h{i}", dataset="mr 2") for i in range(3)]

    names = [one["name"] for one in name(large, more, small, taken)]

    assert names == ["mr", "mr 3", "mr · few", "mr 2"]
