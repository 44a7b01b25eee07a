"""Sums that hooks collect, against autograd's own gradient of the whole loss."""

import numpy as np
import pytest
import torch
from tiny_task_models import gradient_sums, linear_sketch, make_examples, tiny_task_model

from deltadex.data import gradients
from deltadex.data.losses import choose_loss
from deltadex.indexer.delta import dense
from deltadex.indexer.fingerprint import make_recipe

RECIPE = make_recipe("sketch", None, ())
KINDS = {
    "bert": ("masked", dict()),
    "gpt2": ("next", dict()),
    "llama": ("next", dict()),
    "t5": ("translated", dict(completion=True)),
    "albert": ("masked", dict()),
    "distilbert": (None, dict(label=3)),
    "roberta": (None, dict(label="number")),
}


def _loss(model, examples):
    loss = choose_loss(model, examples, max_tokens=32)
    encoded = loss.encode(examples)
    loss.prepare(encoded, 4, {})
    return loss, encoded


@pytest.mark.parametrize("name", KINDS)
def test_sums_are_the_gradient_of_the_whole_loss(name):
    head, kind = KINDS[name]
    model, examples = tiny_task_model(name, head), make_examples(10, **kind)
    loss, encoded = _loss(model, examples)
    matrices = gradients.layer_matrices(model.whole, model.config.to_dict())
    sums = gradients.GradientSums(matrices, None, model.device)
    n_predicted = 0
    with sums.collecting(model.whole):
        for first in range(0, len(encoded), 3):
            value, n = loss.total(encoded[first : first + 3])
            value.backward()
            n_predicted += n
    stored = [p for p in model.whole.parameters() if p.grad is not None]

    model.whole.requires_grad_(True)
    value, n = loss.total(encoded)
    (value / n).backward()

    assert not stored
    assert n == n_predicted
    weights = dict(model.whole.named_parameters(remove_duplicate=False))
    updates = {u.slot: u for u in sums.updates(1 / n) if not u.part}
    assert len(updates) == len(matrices.placements)
    for placement in matrices.placements:
        expected = -placement.cut(weights[placement.tensor].grad)
        found = dense(updates[placement.slot].delta)
        # residuals of a fitted head add up to nothing, and leave more of the rounding
        assert float((found - expected).norm()) <= 5e-3 * float(expected.norm()), placement.slot


def test_stacked_experts_are_left_out():
    model = tiny_task_model("mixtral", "next")

    matrices = gradients.layer_matrices(model.whole, model.config.to_dict())

    assert not any("experts" in name for name in matrices.modules)
    assert {"q", "k", "v", "o"} <= {p.slot.role for p in matrices.placements}


def test_streamed_sums_give_the_fingerprint_of_the_matrices():
    """Of a width of 16, where 16 factors are all there are."""
    model, examples = tiny_task_model("gpt2", "next", n_embd=16), make_examples(24)

    dense, streamed = (
        gradients.fingerprint_data(
            model, examples, RECIPE, gradients.DataQueryOptions(streamed=s, parts=2)
        )
        for s in (False, True)
    )

    # the numbers before they are coded: of 32 rows and columns most numbers of a sketch are 0
    assert float(dense.fingerprint.vector @ streamed.fingerprint.vector) > 0.98
    sums = [gradient_sums(model, examples, streamed=streamed) for streamed in (False, True)]
    linear = [linear_sketch(one, RECIPE) for one in sums]
    assert np.linalg.norm(linear[0] - linear[1]) < 0.02 * np.linalg.norm(linear[0])
    for one, other in zip(*(one.updates(1.0) for one in sums), strict=True):
        assert one.slot == other.slot
        assert np.isclose(one.delta.norm, other.delta.norm, rtol=1e-3)


def test_a_streamed_sum_recovers_a_matrix_whose_spectrum_falls():
    rng = torch.Generator().manual_seed(3)
    left, right = (torch.randn(n, 60, generator=rng) for n in (300, 200))
    scales = 0.8 ** torch.arange(60.0)
    whole = (left * scales) @ right.T
    exact, found = (
        gradients.DenseSum((300, 200), torch.device("cpu")),
        gradients.StreamedSum((300, 200), torch.device("cpu"), 40),
    )
    for total in (exact, found):
        for start in range(0, 60, 7):
            part = slice(start, start + 7)
            total.add((left * scales).T[part], right.T[part])

    matrix = dense(found.descent(1.0))

    assert torch.allclose(dense(exact.descent(1.0)), -whole, atol=1e-3)
    best = torch.linalg.svdvals(whole.double())[16:].square().sum().sqrt()
    # the first 16 directions are far above what the sketches lose
    assert float((matrix + whole).norm()) < float(best)


def test_sums_of_parts_add_up():
    rng = torch.Generator().manual_seed(0)
    deltas, inputs = torch.randn(30, 20, generator=rng), torch.randn(30, 50, generator=rng)
    for kind, columns in ((gradients.DenseSum, ()), (gradients.StreamedSum, (30,))):
        whole, first, second = (kind((20, 50), torch.device("cpu"), *columns) for _ in range(3))
        whole.add(deltas, inputs)
        first.add(deltas[:11], inputs[:11])
        second.add(deltas[11:], inputs[11:])

        first.add_sum(second)

        expected, found = dense(whole.descent(2.0)), dense(first.descent(2.0))
        assert float((found - expected).norm()) < 1e-4 * float(expected.norm())
        assert np.isclose(whole.descent(2.0).norm, float(expected.norm()), rtol=1e-4)


def test_no_set_of_gradients_is_held():
    """Of a model whose matrices are large beside its activations, streamed."""
    model = tiny_task_model("gpt2", "next", n_embd=512, n_head=4)
    matrices = gradients.layer_matrices(model.whole, model.config.to_dict())
    n_values = sum(p.shape[0] * p.shape[1] for p in matrices.placements)
    loss, encoded = _loss(model, make_examples(8))
    sums = gradients.GradientSums(matrices, 24, model.device)

    with sums.collecting(model.whole), torch.profiler.profile(profile_memory=True) as profile:
        value, _ = loss.total(encoded[:2])
        value.backward()

    peak = current = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            current += event.nbytes()
            peak = max(peak, current)
    held = sum(t.nbytes for row in sums._sums for total in row for t in total.buffers)
    assert peak < 4 * n_values / 4
    assert held < 4 * n_values / 2
    assert all(p.grad is None for p in model.whole.parameters())
