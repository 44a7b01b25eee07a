"""The parents of a merge are found in sketches, and what is missing is said."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from merging import WIDTH, column, dare, random_updates, sketched, ties

from deltadex.provenance.merges.parents import find_parents

MODELS = random_updates(40, kin=((5, 1), (6, 1), (7, 2), (8, 3)))
KNOWN = sketched(MODELS)


def weights_of(found):
    return {parent.model: parent.weight for parent in found.parents}


def find(update, known=KNOWN, **options):
    return found_in(sketched(update[None]), known, **options)


def found_in(target, known, **options):
    return find_parents(target, known, [f"m{row}" for row in known.keys], **options)


@given(st.lists(st.floats(0.1, 1.0), min_size=2, max_size=4), st.integers(0, 1000))
@settings(max_examples=8)
def test_a_weighted_mean_gives_its_parents_and_weights(weights, seed):
    rows = np.random.default_rng(seed).choice(40, len(weights), replace=False)
    shares = np.array(weights) / sum(weights)

    found = find((MODELS[rows] * column(*shares.tolist())).sum(0))

    expected = {f"m{row}": share for row, share in zip(rows, shares, strict=True)}
    assert weights_of(found) == pytest.approx(expected, abs=1e-3)
    assert (found.kind, found.method, found.is_complete) == ("merge", "linear", True)


def test_weights_may_be_negative_or_vary_by_layer():
    negative = find((MODELS[[1, 2]] * column(0.8, -0.4)).sum(0))
    by_layer = torch.tensor([0.2, 0.2, 0.5, 0.5, 0.9, 0.9])[:, None, None]
    varied = find(MODELS[1] * by_layer + MODELS[2] * (1 - by_layer))

    assert weights_of(negative) == pytest.approx({"m1": 0.8, "m2": -0.4}, abs=1e-3)
    assert negative.method == "task_arithmetic"
    layers = {parent.model: list(parent.layers.values()) for parent in varied.parents}
    assert layers["m1"] == pytest.approx([0.2, 0.5, 0.9], abs=1e-3)
    assert layers["m2"] == pytest.approx([0.8, 0.5, 0.1], abs=1e-3)
    assert (varied.method, varied.is_complete) == ("linear", True)


@pytest.mark.parametrize("known", ["absent", "its sibling is there"])
@pytest.mark.parametrize("method", ["linear", "ties", "dare"])
def test_a_parent_that_is_not_there_is_said(method, known):
    parts, weights = MODELS[[1, 20, 21]], column(0.35, 0.35, 0.3)
    update = {
        "linear": lambda: (parts * weights).sum(0),
        "ties": lambda: ties(parts, weights, 0.5),
        "dare": lambda: dare(parts, weights, 0.5),
    }[method]()
    gone = [1, 5, 6] if known == "absent" else [1, 6]

    whole, found = find(update), find(update, excluded=gone)

    assert set(weights_of(whole)) == {"m1", "m20", "m21"}
    assert whole.is_complete is (True if method == "linear" else None)
    assert not found.is_complete
    assert {"m20", "m21"} <= set(weights_of(found))
    assert found.unexplained > 0.1


def test_the_model_itself_and_its_copies_are_no_parents_and_equal_parents_are_listed():
    copies = torch.cat([MODELS, MODELS[[1, 30]]])
    known = sketched(copies)

    merge = find((MODELS[[1, 2]] * column(0.5, 0.5)).sum(0), known)
    itself = find(MODELS[30], known, excluded=[30])

    parent = next(parent for parent in merge.parents if "m1" in (parent.model, *parent.equal))
    assert {parent.model, *parent.equal} == {"m1", "m40"}
    assert (itself.kind, itself.parents, itself.copies) == ("copy", (), ("m41",))


def test_one_model_interpolated_with_the_base_is_no_fine_tune_of_it():
    assert weights_of(find(MODELS[4] * 0.5)) == pytest.approx({"m4": 0.5})
    assert find(MODELS[4] * 0.5).kind == "scaled"
    stranger = random_updates(1, seed=77)[0]
    assert find(stranger).kind == "none" or not find(stranger).is_related


def test_a_descendant_is_taken_only_where_nothing_explains_the_model_without_it():
    merged = (MODELS[[1, 2]] * column(0.5, 0.5)).sum(0)
    descendant = merged + 0.05 * random_updates(1, seed=5)[0]
    known = sketched(torch.cat([MODELS, descendant[None]]))

    assert set(weights_of(find(merged, known))) == {"m1", "m2"}
    drawn = dare(MODELS[[1, 2]], column(0.5, 0.5), 0.5)
    known = sketched(torch.cat([MODELS, (drawn + 0.05 * MODELS[9])[None]]))
    assert set(weights_of(find(drawn, known, later=[40]))) == {"m1", "m2"}


def test_storage_rounding_as_long_as_half_the_update_is_no_ground_for_parents():
    update = (MODELS[[1, 2]] * column(0.5, 0.5)).sum(0)
    noisy = sketched(update[None], floor=float(update.flatten(1).norm(dim=1).mean()) * 0.8)

    assert found_in(noisy, KNOWN).kind == "rounding"


def test_a_parent_as_short_as_the_rounding_is_found_and_a_copy_is_still_a_copy():
    noise = torch.randn(MODELS[0].shape, generator=torch.Generator().manual_seed(3)) / WIDTH
    floor = 0.3 * float(MODELS[1].flatten(1).norm(dim=1).mean())
    noise = noise * floor / noise.flatten(1).norm(dim=1)[:, None, None]
    mixed = (MODELS[[10, 2]] * column(0.8, 0.2)).sum(0) + noise

    found = found_in(sketched(mixed[None], floor=floor), KNOWN)
    copied = found_in(sketched((MODELS[10] + noise)[None], floor=floor), KNOWN)

    assert set(weights_of(found)) == {"m10", "m2"}
    assert (copied.kind, copied.copies) == ("copy", ("m10",))
