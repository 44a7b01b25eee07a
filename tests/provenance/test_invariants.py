"""Layers are recognised in any basis, order of heads and order of neurons; decoys are not."""

import numpy as np
import pytest
import scipy.stats
import transformations as made
from factories import make_checkpoint
from hypothesis import given
from hypothesis import strategies as st
from tiny_networks import tiny_model

from deltadex.indexer import place
from deltadex.indexer.checkpoint import ModelFolder, open_local
from deltadex.provenance.bases import base_invariants
from deltadex.provenance.bases.invariants import (
    AnchorWhitening,
    find_transformation,
    log_p,
    null_width,
)

SIZES = {"vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 6, "intermediate_size": 128}
SEEDS = st.integers(0, 2**32 - 1)


def make(kind, seed=0):
    network = tiny_model(kind, seed=seed, **SIZES)
    prefix = "" if kind == "bert" else "model."
    state = {f"{prefix}{name}": t.detach().clone() for name, t in network.state_dict().items()}
    return made.Model(state=state, config=network.config.to_dict())


def rows_of(model, folder):
    tensors = {name: tensor.contiguous().clone() for name, tensor in model.state.items()}
    make_checkpoint(folder, tensors, config=model.config)
    checkpoint, config = open_local(folder), ModelFolder.at(folder).json("config.json")
    placed = place({name: ref.shape for name, ref in checkpoint.tensors.items()}, config)
    return base_invariants.ModelRows(checkpoint, placed, config)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    models = {kind: make(kind) for kind in ("bert", "llama")}
    return {
        kind: (model, base_invariants.make_invariants(rows_of(model, folder / kind)))
        for kind, model in models.items()
    }


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("bert", n) for n in ("all", "duplicated+heads+residual")),
        *(("llama", n) for n in ("residual-signs", "rotated+all", "dropped+rotated")),
    ],
)
def test_layers_and_changes_of_a_transformed_model(kind, name, bases, tmp_path):
    model, invariants = bases[kind]
    apply, changes, order = made.CASES[name]

    answer = find_transformation(rows_of(apply(model), tmp_path / "m"), invariants)

    assert answer.p < 1e-20
    assert answer.layers == tuple(enumerate(order or range(model.layers)))
    said = "; ".join(answer.changes)
    assert all(change in said for change in changes), said


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_decoy_of_the_same_config_is_not_the_bases(kind, bases, tmp_path):
    model, invariants = bases[kind]

    for name, decoy in made.decoys(model, make(kind, 1)).items():
        answer = find_transformation(rows_of(decoy, tmp_path / name), invariants)

        if any(part in name for part in ("embeddings", "residual", "column-order")):
            assert answer.changes[0] == "token embeddings of the base, layers not"
            assert not answer.layers
        else:
            assert answer is None


def test_half_of_the_layers_must_be_the_bases(bases, tmp_path):
    model, invariants = bases["bert"]
    fresh = make("bert", 1).state
    for n_fresh, expected in ((2, True), (4, False)):
        layers = tuple(f"encoder.layer.{n}." for n in range(n_fresh))
        mixed = model.with_state({n: fresh[n] for n in fresh if n.startswith(layers)})

        answer = find_transformation(rows_of(mixed, tmp_path / f"{n_fresh}"), invariants)

        assert len(answer.layers) == (4 if expected else 0)


def test_serialised_invariants_are_the_same_and_bad_bytes_are_refused(bases):
    _, invariants = bases["llama"]
    content = invariants.to_bytes()

    again = base_invariants.BaseInvariants.from_bytes(content)

    assert again.to_bytes() == content
    rng = np.random.default_rng(0)
    bad = [b"", b"PK", content[: len(content) // 2], content[:-1], content[1:]]
    bad += [content[:at] + b"\xff\xfe" + content[at + 2 :] for at in rng.integers(0, 9000, 40)]
    for broken in bad:
        if broken != content:
            with pytest.raises(ValueError, match="no invariants of a base"):
                base_invariants.BaseInvariants.from_bytes(broken)


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("layers", "width", "heads", "neurons", "vocabulary"),
    [(6, 384, (12, 12, 12), 1536, 30522), (32, 4096, (32, 8, 8), 14336, 128256)],
)
def test_the_kept_bytes_of_an_8b_shape(layers, width, heads, neurons, vocabulary):
    n_anchors = len(base_invariants.choose_anchors(vocabulary, width))
    parts = dict(zip(("q", "k", "v", "neurons"), (*heads, neurons), strict=True))

    n_rows, kept = base_invariants.affordable(layers, n_anchors, parts)

    for n_vectors in (n_rows * sum(heads), kept):
        assert (
            0.2 * base_invariants.RESPONSE_BYTES
            < layers * n_anchors * n_vectors
            <= base_invariants.RESPONSE_BYTES
        )
    assert kept >= 128


@given(SEEDS)
def test_whitened_responses_do_not_depend_on_the_basis(seed):
    rng = np.random.default_rng(seed)
    anchors, rows = normal(rng, 24, 16), normal(rng, 5, 16)
    gain = rng.uniform(0.5, 2, 16).astype(np.float32)
    turn = scipy.stats.ortho_group.rvs(16, random_state=rng).astype(np.float32)

    first = AnchorWhitening(anchors).apply((rows * gain) @ anchors.T)
    second = AnchorWhitening(anchors @ turn).apply((rows * gain) @ turn @ (anchors @ turn).T)

    np.testing.assert_allclose(first, second, atol=1e-4)


def test_p_is_pearsons():
    rng = np.random.default_rng(0)
    for strength in (0.0, 0.2, 0.5):
        first, second = rng.normal(size=(2, 200))
        second = second + strength * first
        expected = scipy.stats.pearsonr(first, second, alternative="greater")
        cosine = np.array([[expected.statistic]])

        p = log_p(cosine, 200.0, 1.0, comparisons=1)[0, 0]

        assert p == pytest.approx(np.log(expected.pvalue), rel=0.05)


def test_p_counts_a_null_that_is_wider_than_chance():
    rng = np.random.default_rng(0)
    wide = np.tanh(rng.normal(size=(20, 50)) * 0.3)  # as of 14 independent entries

    p = np.exp(log_p(wide, 200.0, null_width(wide, 200.0), comparisons=1))

    assert np.mean(p < 0.01) < 0.025
