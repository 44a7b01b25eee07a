"""Sketches of a published index: shortened, attached, searched as a family of the catalog."""

import json
import shutil

import numpy as np
import pytest
from catalogs import SKETCH_DIM, make_catalog, make_indexed
from hypothesis import given
from hypothesis import strategies as st
from published_families import place_at, publish

import deltadex as dx
from deltadex.errors import BadIndex
from deltadex.records import Recipe, Slot
from deltadex.search import labelled, neighbours, published_lengths
from deltadex.store import SketchMatrix
from deltadex.store.exchange import manifest_bytes
from deltadex.store.published import publication
from deltadex.store.published.manifest import MANIFEST, SketchForm, parse_manifest
from deltadex.store.sketch_codes import decode

BASE, DIM, N = "example/base", 48, 24
DEFAULT = Recipe(
    name="sketch",
    rank=8,
    dim=2048,
    params=(("slot_blocks", "update:512,output:1024,input:512"),),
    version=3,
)


def members(n=N, *, seed=0):
    """Models of both kinds and four data sets."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, DIM))
    return [
        make_indexed(
            f"model-{place:02}",
            centres[place % 4] + rng.normal(size=DIM),
            base=BASE,
            kind=("full", "adapter")[place // 4 % 2],
            dataset=f"d{place % 4}",
        )
        for place in range(n)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sketched")
    make_catalog(folder / "theirs.duckdb", *members()).close()
    publish(folder / "theirs.duckdb", folder / "index")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """Their catalog, and the index that was published of it."""
    return shutil.copytree(made, tmp_path / "made")


def attached(folder, *own):
    """A catalog of some models to which the index is attached."""
    make_catalog(folder / "mine.duckdb", *own).close()
    db = dx.open(folder / "mine.duckdb")
    db.attach(folder / "index", name="theirs")
    return db


KEYS = ("model", "z", "cosine", "fdr", "verdict", "dataset", "probability")


def told(hits, keys=KEYS):
    return [tuple(hit[key] for key in keys) for hit in hits]


def test_an_index_with_whole_sketches_answers_as_its_publishers_catalog(folder):
    """Of one slot with 64 numbers a block nothing is cut, and a weight of 1 stays 1."""
    with dx.open(folder / "theirs.duckdb") as theirs, attached(folder) as mine:
        for id in ("model-00", "model-05"):
            assert told(mine.find_similar(id, k=N)) == told(theirs.find_similar(id, k=N))
        assert None not in {hit["probability"] for hit in mine.find_similar("model-00", k=N)}
        assert {hit["source"] for hit in mine.find_similar("model-00", k=N)} == {"theirs"}


def test_few_own_models_have_the_strangers_of_the_index(folder):
    """In the index's family three of its own models have the z that they have there."""
    own = members()[4:7]
    with dx.open(folder / "theirs.duckdb") as theirs, attached(folder, *own) as mine:
        wanted = {hit["model"]: hit["z"] for hit in theirs.find_similar("model-08", k=N)}
        found = mine.find_similar("model-08", k=N)

    assert sorted(wanted) == sorted(hit["model"] for hit in found)
    assert {hit["model"] for hit in found if hit["source"] is None} == {m.model.id for m in own}
    for hit in found:
        tolerance = 1e-9 if hit["source"] else 0.7  # a copy of a model of the cohort is no model
        assert hit["z"] == pytest.approx(wanted[hit["model"]], abs=tolerance)


def test_the_catalogs_own_models_and_attached_ones_are_on_one_scale(folder):
    """Two disjoint halves of one family: strangers of both are around 0, as far from it."""
    with attached(folder, *members(2 * N)[N:]) as mine:
        pairs = [
            (hit["source"], hit["z"])
            for place in range(N, 2 * N, 3)
            for hit in mine.find_similar(f"model-{place}", k=99)
            if hit["dataset"] != f"d{place % 4}"
        ]

    own, theirs = (np.array([z for s, z in pairs if s == source]) for source in (None, "theirs"))
    assert (len(own), len(theirs)) == (N * 6, N * 6)
    assert abs(np.median(own) - np.median(theirs)) < 0.3
    assert 0.7 < own.std() / theirs.std() < 1.4


def test_a_large_index_compares_candidates_alone_and_ranks_them_as_ever(folder, monkeypatch):
    with attached(folder) as mine:
        whole = told(mine.find_similar("model-00", k=5), KEYS[:3])
        filtered = told(mine.find_similar("model-00", k=5, dataset="d1"), KEYS[:3])
        monkeypatch.setattr(neighbours, "COMPARED_WHOLE", 4)
        monkeypatch.setattr(neighbours, "CANDIDATES", 9)
        read, of = [], publication.AttachedIndex.sketches_at
        monkeypatch.setattr(
            publication.AttachedIndex, "sketches_at", lambda *a: read.append(a[1]) or of(*a)
        )
        assert told(mine.find_similar("model-00", k=5), KEYS[:3]) == whole
        assert told(mine.find_similar("model-00", k=5, dataset="d1"), KEYS[:3]) == filtered

    # the query, and the best ten of either kind
    assert max(map(len, read)) <= 20


def test_a_small_index_has_vectors_alone_and_is_made_full_again(folder):
    small = publish(folder / "theirs.duckdb", folder / "index", size="small")
    names = {path.name.partition("-")[0] for path in (folder / "index").glob("*-*.*")}
    with dx.open(folder / "theirs.duckdb") as theirs, attached(folder) as mine:
        near = mine.find_similar("model-00", k=N)
        assert len(near) == N - 1
        assert told(near, KEYS[1:2]) != told(theirs.find_similar("model-00", k=N), KEYS[1:2])
        full = publish(folder / "theirs.duckdb", folder / "index")
        mine.attached.refresh()
        assert told(mine.find_similar("model-00", k=N)) == told(
            theirs.find_similar("model-00", k=N)
        )

    assert names == {"models", "deltadex"}
    wanted = [("small", 0, 0), ("full", 0, 0)]
    assert [(row["size"], row["added"], row["dropped"]) for row in (small, full)] == wanted
    assert small["bytes_per_model"] < full["bytes_per_model"]


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("sketches", "blocks", "update"), SKETCH_DIM + 8, "blocks"),
        (("sketches", "blocks", "update"), 12, "blocks"),
        (("sketches", "blocks", "update"), 8.0, "blocks"),
        (("sketches", "blocks"), {"update": 8}, "blocks"),
        (("sketches", "slots"), ["encoder.0.q"] * 2, "slots"),
        (("sketches", "slots"), ["encoder.x.q"], "ValueError"),
        (("sketches", "slots"), ["encoder.0"], "ValueError"),
    ],
)
def test_sketches_that_cannot_be_are_refused_by_field(made, path, value, field):
    document = json.loads((made / "index" / MANIFEST).read_bytes())
    place_at(document, path, value)

    with pytest.raises(BadIndex, match=field):
        parse_manifest(manifest_bytes(document))


# what is published of a sketch


@given(
    seed=st.integers(0, 999),
    blocks=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=3),
    n_slots=st.integers(1, 3),
)
def test_a_published_sketch_is_the_first_numbers_of_every_block(seed, blocks, n_slots):
    names = ("update", "output", "input")
    dims = {name: 8 * max(pair) for name, pair in zip(names, blocks, strict=False)}
    lengths = {name: 8 * min(pair) for name, pair in zip(names, blocks, strict=False)}
    slots = [Slot("encoder", layer, "q") for layer in range(n_slots)]
    matrix, rng = SketchMatrix.empty(dims, slots, 4), np.random.default_rng(seed)
    matrix.codes[:] = rng.integers(0, 256, matrix.codes.shape)
    matrix.weights[:] = rng.choice([0.0, 1e-3, 0.5, 1.0], matrix.weights.shape)
    form = SketchForm(lengths, matrix.slots)
    back = form.decode(form.encode(matrix))

    assert np.abs(back.weights - matrix.weights).max() <= 1 / 255
    assert np.array_equal(back.weights > 0, matrix.weights > 0)
    for slot in range(len(matrix.slots)):
        starts = [0, 0]
        for name, dim in matrix.dims.items():
            whole = decode(matrix.codes[:, slot], starts[0], dim)
            cut = decode(back.codes[:, slot], starts[1], lengths[name])
            assert np.array_equal(cut, whole[:, : lengths[name]])
            starts = [starts[0] + dim // 4, starts[1] + lengths[name] // 4]
    both = matrix.cut(lengths)
    assert np.array_equal(matrix.cosines(both), both.cosines(both))


@given(
    n_slots=st.integers(1, 1200),
    kinds=st.lists(st.sampled_from(["adapter", "full"]), min_size=1, max_size=3),
)
def test_any_architecture_has_16_kib_per_model(n_slots, kinds):
    lengths = published_lengths(DEFAULT, kinds, n_slots)
    slots = tuple(Slot("encoder", layer, "q") for layer in range(n_slots))

    assert all(length % 8 == 0 and length >= 8 for length in lengths.values())
    assert all(lengths[name] <= dim for name, dim in [("update", 512), ("output", 1024)])
    assert SketchForm(lengths, slots).n_bytes <= labelled.PUBLISHED_SKETCH_BYTES
    assert SketchForm(lengths, slots).n_bytes > 0.9 * min(
        labelled.PUBLISHED_SKETCH_BYTES - 12 * n_slots, 515 * n_slots
    )
