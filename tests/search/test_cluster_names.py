from catalogs import make_catalog, make_indexed

from deltadex.records import ModelRecord
from deltadex.search.clusters import cluster_family, name_clusters, terms_of


def record(id, **known):
    return ModelRecord(id=id, base="gpt2", **known)


def name(*clusters):
    records = {one.id: one for cluster in clusters for one in cluster}
    return name_clusters([[one.id for one in cluster] for cluster in clusters], records)


def test_a_dominant_dataset_names_its_cluster():
    cluster = [record(f"m{i}", dataset="imdb" if i else "emotion") for i in range(4)]

    (found,) = name(cluster)

    assert found.name == "imdb"
    assert found.datasets == (("imdb", 3), ("emotion", 1))


def test_two_datasets_that_share_a_cluster_share_its_name():
    (found,) = name([record(f"m{i}", dataset="ab"[i % 2]) for i in range(4)])

    assert found.name == "a + b"


def test_without_labels_words_that_set_it_apart_name_it():
    poems = [record(f"x{i}/gpt2-poetry-lora") for i in range(3)]
    code = [record(f"y{i}/gpt2-python-lora", author="ann") for i in range(3)]

    first, second = name(poems, code)

    assert (first.name, second.name) == ("poetry", "python")
    assert first.words == ("poetry",)
    assert second.authors == (("ann", 3),)


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
