from dataclasses import replace

import numpy as np
import pytest
from catalogs import make_catalog, make_indexed
from families import make_labelled, scored, shuffled, unit_rows
from scipy.stats import beta
from sklearn.cluster import HDBSCAN
from sklearn.metrics import (
    adjusted_rand_score,
    normalized_mutual_info_score,
    silhouette_score,
)

from deltadex.records import ModelRecord
from deltadex.search import clusters as density
from deltadex.search.clusters import (
    NOISE,
    _notes,
    cluster_family,
    default_min_size,
    find_clusters,
    measure_agreement,
    name_clusters,
    terms_of,
)
from deltadex.search.family_scores import bounded, id_digest
from deltadex.search.suggestions import Sample


def test_the_clusters_are_those_of_hdbscan_on_the_points_themselves():
    # test_hierarchy.py has the rest: here no model bridges two clusters
    family, _ = make_labelled(120, strength=2.0)

    expected = HDBSCAN(min_cluster_size=4, algorithm="brute", copy=True).fit(family.vectors)

    found = find_clusters(family, 4)
    assert adjusted_rand_score(expected.labels_, found) == 1.0
    assert np.array_equal(found == NOISE, expected.labels_ == NOISE)


def test_better_scores_are_used_where_the_family_has_them():
    family, _ = make_labelled(60, strength=3.0, datasets=3)
    blind = replace(family, vectors=np.ones_like(family.vectors))

    found = find_clusters(replace(blind, scores=family.vectors @ family.vectors.T), 3)

    assert np.array_equal(found, find_clusters(family, 3))
    assert len(set(find_clusters(blind, 3).tolist())) == 1


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_too_few_models_are_noise(n):
    family = shuffled(make_labelled(5, datasets=1)[0], np.arange(n))

    assert find_clusters(family, 3).tolist() == [NOISE] * n


def test_copies_beside_strangers_are_one_cluster():
    family, _ = make_labelled(40, datasets=1)
    strange = unit_rows(np.random.default_rng(0).normal(size=(4, family.vectors.shape[1])))
    copies = np.repeat(family.vectors[:1], 36, axis=0)
    mixed = replace(family, vectors=np.concatenate([strange, copies]))

    assert find_clusters(mixed, 3).tolist() == [NOISE] * 4 + [0] * 36


def test_a_large_family_is_clustered_from_a_sample_in_principal_axes(monkeypatch):
    family, truth = make_labelled(1200, strength=3.0, dim=100)
    monkeypatch.setattr(density, "WHOLE_FAMILY", 500)
    monkeypatch.setattr(density, "SAMPLE", 800)
    order = np.random.default_rng(0).permutation(1200)

    found = find_clusters(family, 9)

    labels = [truth[id] for id in family.ids]
    joined = found != NOISE
    assert adjusted_rand_score(np.array(labels)[joined], found[joined]) == 1.0
    assert joined.mean() > 0.95
    assert np.array_equal(find_clusters(shuffled(family, order), 9), found[order])


def test_strangers_of_a_large_family_join_no_dataset(monkeypatch):
    # in the sample HDBSCAN decides: in one family of eight a stranger or two belong to a cluster,
    # in one of sixty a large one takes most of them; outside the sample, in that one alone
    monkeypatch.setattr(density, "WHOLE_FAMILY", 500)
    monkeypatch.setattr(density, "SAMPLE", 600)
    joined, noise = zip(*(_strangers_that_join(seed) for seed in range(9)), strict=True)

    assert np.median(joined, axis=0).tolist() == [0, 0]
    assert max(noise) < 0.05


def _strangers_that_join(seed):
    """How many of 200 strangers among 800 models join a data set's cluster, sampled ones and
    others; and the share of the 800 that join none."""
    family, _ = make_labelled(1000, strength=3.0, dim=200, seed=seed)
    strange = unit_rows(np.random.default_rng(seed + 5).normal(size=(200, 200)))
    mixed = replace(family, vectors=np.concatenate([family.vectors[:800], strange]))
    sampled = sorted(range(1000), key=lambda row: id_digest(mixed.ids[row]))[:600]
    is_sampled = np.isin(np.arange(800, 1000), sampled)
    found = find_clusters(mixed, 10)
    datasets, strangers = found[:800], found[800:]
    joins = np.isin(strangers, datasets[datasets != NOISE])
    counts = [int(joins[is_sampled].sum()), int(joins[~is_sampled].sum())]
    return counts, (datasets == NOISE).mean()


def test_a_stray_member_hardly_changes_who_joins():
    rng = np.random.default_rng(0)
    centre = rng.normal(size=50)
    members = unit_rows(centre + 0.3 * rng.normal(size=(60, 50)))
    stray = unit_rows(centre + 3 * rng.normal(size=(1, 50)))

    without = density._joining_cosine(members)

    assert (stray @ members.T).max() < without - 0.3
    assert density._joining_cosine(np.concatenate([members, stray])) == pytest.approx(
        without, abs=0.02
    )


def test_a_copy_joins_copies_whatever_its_last_bits(monkeypatch):
    monkeypatch.setattr(density, "WHOLE_FAMILY", 100)
    monkeypatch.setattr(density, "SAMPLE", 150)
    family, _ = make_labelled(300, datasets=6, dim=60)
    rng = np.random.default_rng(0)
    originals = unit_rows(rng.normal(size=(6, 60)))[np.arange(300) % 6]
    copies = replace(family, vectors=originals * (1 + 1e-15 * rng.normal(size=(300, 60))))

    found = find_clusters(copies, 8)

    assert adjusted_rand_score(np.arange(300) % 6, found) == 1.0


@pytest.mark.parametrize("n_members", [2, 3, 10, 100, 1000])
def test_a_joining_model_is_nearer_than_a_twentieth_of_the_members(n_members):
    # the bound holds the quantile of the population with its confidence: 95 % of 200 draws,
    # which know it to 6.2 % (four standard errors of a share)
    rng = np.random.default_rng(1)
    population = beta(8, 2)
    quantile = population.ppf(density.STRAYS)
    drawn = population.rvs(size=(200, n_members), random_state=rng)
    holds = np.mean([density._bounded_quantile(sample) >= quantile for sample in drawn])

    assert holds >= density.CONFIDENCE - 0.062


def test_the_smallest_cluster_grows_with_the_family():
    assert [default_min_size(n) for n in (1, 100, 4_000, 100_000)] == [3, 3, 16, 79]


@pytest.mark.parametrize(
    ("n", "notes"),
    [
        (5, ["5 models are too few"]),
        (6, []),
        (density.WHOLE_FAMILY, []),
        (density.WHOLE_FAMILY + 1, ["clustered in"]),
        (density.SAMPLE, ["clustered in"]),
        (density.SAMPLE + 1, ["clustered in", "20000 models were clustered"]),
    ],
)
def test_what_was_left_out_is_noted(n, notes):
    assert [said.startswith(note) for said, note in zip(_notes(n, 3), notes, strict=True)] == [
        True
    ] * len(notes)


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


def test_silhouettes_of_a_large_family_are_those_of_its_sample(monkeypatch):
    monkeypatch.setattr("deltadex.search.suggestions.MOST_SAMPLED", 50)
    family, _ = make_labelled(90, strength=1.0, labelled=0.4)
    codes = np.random.default_rng(1).integers(-1, 4, size=90)
    family = scored(family)
    sample = Sample.of(family)

    found = measure_agreement(family, codes, sample)["silhouette"]

    labels = np.array(family.labels, object)
    is_labelled, rows = labels != None, sample.rows  # noqa: E711
    assert len(rows) == 50 > is_labelled.sum()
    assert np.isin(np.flatnonzero(is_labelled), rows).all()
    for groups, counts, name in (
        (labels, is_labelled, "labels"),
        (codes, codes != NOISE, "clusters"),
    ):
        at = np.flatnonzero(counts[rows])
        distances = 1.0 - bounded(sample.pairs.z[np.ix_(at, at)])
        np.fill_diagonal(distances, 0.0)
        named = groups[rows[at]].astype(str)
        expected = silhouette_score(distances, named, metric="precomputed")
        assert found[name] == pytest.approx(expected, abs=1e-6)


def test_agreement_is_undefined_without_labels_or_clusters():
    family, _ = make_labelled(6, labelled=0.0)

    found = measure_agreement(family, np.full(6, NOISE))

    silhouette = {"labels": None, "clusters": None}
    assert found == {"ari": None, "nmi": None, "silhouette": silhouette}


def record(id, **known):
    return ModelRecord(id=id, base="gpt2", **known)


def name(*clusters, words=()):
    records = {one.id: one for cluster in clusters for one in cluster}
    ids = [[one.id for one in cluster] for cluster in clusters]
    return name_clusters(ids, records, lambda _: words)


def test_a_dominant_dataset_names_its_cluster():
    cluster = [record(f"m{i}", dataset="imdb" if i else "emotion") for i in range(4)]

    (found,) = name(cluster)

    assert found.name == "imdb"
    assert found.datasets == (("imdb", 3), ("emotion", 1))


def test_two_datasets_that_share_a_cluster_share_its_name():
    (found,) = name([record(f"m{i}", dataset="ab"[i % 2]) for i in range(4)])

    assert found.name == "a + b"


def test_without_labels_terms_that_set_it_apart_name_it():
    poems = [record(f"x{i}/gpt2-poetry-lora") for i in range(3)]
    code = [record(f"y{i}/gpt2-python-lora", author="ann") for i in range(3)]

    first, second = name(poems, code)

    assert (first.name, second.name) == ("poetry", "python")
    assert first.terms == ("poetry",)
    assert second.authors == (("ann", 3),)


def test_what_its_models_answer_to_names_a_cluster_without_labels_alone():
    words = ("flights", "airline", "fares")
    unlabelled = [record(f"x{i}/gpt2-poetry-lora") for i in range(3)]
    labelled = [record(f"y{i}", dataset="atis") for i in range(3)]

    names = [one.name for one in name(unlabelled, labelled, words=words)]
    (mixed,) = name([record(f"poetry{i}", dataset=f"d{i}") for i in range(5)], words=words)

    assert names == ["flights, airline, fares", "atis"]
    assert (mixed.name, mixed.words) == ("flights, airline, fares", words)


def test_without_words_the_author_names_it():
    mine = [record(f"r{i}", author="ann") for i in range(3)]
    others = [record(f"s{i}", author=f"b{i}") for i in range(3)]

    assert [one.name for one in name(mine, others)] == ["by ann", "unnamed"]


def test_no_two_clusters_have_one_name():
    small = [record(f"few-steps-{i}", dataset="mr") for i in range(3)]
    large = [record(f"f{i}", dataset="mr") for i in range(5)]
    more = [record(f"g{i}", dataset="mr") for i in range(5)]
    taken = [record(f"h{i}", dataset="mr 2") for i in range(3)]

    names = [one.name for one in name(large, more, small, taken)]

    assert names == ["mr", "mr 3", "mr · few", "mr 2"]


def test_words_of_the_base_and_of_how_models_are_kept_are_no_words():
    one = record("someone/gpt2-imdb_lora-checkpoint", task="SEQ_CLS", dataset_raw="stanford/imdb")

    assert terms_of(one) == {"someone", "imdb", "stanford"}


def test_the_report_is_that_of_the_catalog(tmp_path):
    near = {"a": [1, 0, 0, 0], "b": [0, 1, 0, 0]}
    made = [
        make_indexed(f"{d}{i}", [*vector[:3], 0.01 * i], dataset=d if i else None, author="x")
        for d, vector in near.items()
        for i in range(4)
    ]
    with make_catalog(tmp_path / "c.duckdb", *made) as catalog:
        found = cluster_family(catalog, min_size=3)
        without = cluster_family(catalog, suggest=False)

    assert {one["name"]: one["size"] for one in found["clusters"]} == {"a": 4, "b": 4}
    assert (found["models"], found["noise"], found["ari"]) == (8, [], 1.0)
    copies = [(one["model"], one["dataset"], one["verdict"]) for one in found["suggestions"]]
    assert copies == [("a0", "a", "copy"), ("b0", "b", "copy")]
    assert (found["hints"], found["abstained"]) == ([], 0)
    assert "suggestions" not in without
